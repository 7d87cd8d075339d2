//! A verdict on a body acts on the pace like the status that it stands for: of two equal crawls, one of servers that
//! refuse by words under a 200, one of servers that refuse by status, each request arrives at the same time.

use std::cell::Cell;

use argiope::base::shared::Shared;
use argiope::base::time::Instant;
use argiope::crawl::Parts;
use argiope::sink::files::{FileSink, FileSinkOptions};
use argiope::{BodyPart, Classify, FinishReason};
use serde_json::json;

use super::crawl::{Plan, Run};
use super::many_seeds::each_seed;
use super::random::Case;
use super::random_throttling::throttled;
use super::reply::{Reply, Step};
use super::web::PoliteWeb;
use super::words::{ByWords, Words};

/// How many pairs there are; some seconds for all.
const SEEDS: u64 = 60;

/// A random web of servers with limits. Whatever refuses is the same page, by its words or by its status.
fn refusing(seed: u64, by_words: bool) -> Case {
    let mut case = throttled(seed);
    let refuse = |step: &mut Step| {
        if let Reply::ResetInside | Reply::Truncated = step.reply {
            // Their heads count as answers until their bodies fail, but not where a body is judged.
            step.reply = Reply::Reset;
        }
        if let Reply::Status(status @ (429 | 503)) = step.reply {
            let mut words = Words::asking(status);
            if !by_words {
                words.status = status;
            }
            step.reply = Reply::Words(words);
            // A wait time counts in a refusal only.
            step.headers.clear();
        }
    };
    for site in case.web.sites.values_mut() {
        // The body of a robots.txt is not judged.
        let pages = site.paths.iter_mut();
        let pages = pages.filter(|(path, _)| !path.starts_with("/robots"));
        pages.flat_map(|(_, steps)| steps).for_each(refuse);
        if let Some(limit) = &mut site.limit {
            refuse(&mut limit.refusal);
        }
    }
    // Heads and bodies come together.
    case.plan.faults.piece_bytes_max = 1 << 20;
    case.plan
        .settings
        .push(("AUTOTHROTTLE_ENABLED", json!(false)));
    case
}

fn crawl(case: Case, part: Option<BodyPart>) -> (Run, Vec<(Instant, String, String)>) {
    let Case { web, plan, .. } = case;
    let web = web.shared();
    let mut run = begin(&plan, &web, part);
    assert_eq!(run.finish(), FinishReason::Finished, "seed {}", plan.seed);
    run.check_manners();
    run.check_lines();
    let arrivals = web.borrow().arrivals.clone();
    let arrivals = arrivals.into_iter().map(|a| (a.at, a.host, a.path));
    (run, arrivals.collect())
}

fn begin(plan: &Plan, web: &Shared<PoliteWeb>, part: Option<BodyPart>) -> Run {
    let mut options = FileSinkOptions::new("out");
    options.robots = true;
    let mut parts = Parts::new(FileSink::new(options));
    parts.classify = part.map(|part| Box::new(ByWords(part)) as Box<dyn Classify>);
    plan.begin_with(web, parts)
}

#[test]
fn a_verdict_on_a_body_delays_requests_like_the_status_that_it_stands_for() {
    let refused = Cell::new(0);
    each_seed(SEEDS, |seed| {
        let part = match seed % 2 {
            0 => BodyPart::Start(1024),
            _ => BodyPart::Kept,
        };
        let (run, by_words) = crawl(refusing(seed, true), Some(part));
        let (_, by_status) = crawl(refusing(seed, false), None);
        let differs = by_words.iter().zip(&by_status).position(|(a, b)| a != b);
        if let Some(at) = differs {
            panic!(
                "seed {seed}: request {at} is {:?} by words, {:?} by status",
                by_words[at], by_status[at]
            );
        }
        assert_eq!(by_words.len(), by_status.len(), "seed {seed}");
        let lines = run.lines();
        let judged = lines.iter().filter(|line| !line.0["judged"].is_null());
        refused.set(refused.get() + judged.count());
    });
    assert!(refused.get() > 40, "{refused:?} refusals");
}
