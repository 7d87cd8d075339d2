//! A crawl that is stopped at a random moment loses no URL and fetches none twice.

use std::collections::BTreeSet;
use std::time::Duration;

use argiope::FinishReason;
use argiope::base::rng::Rng;

use super::crawl::{Line, Run};
use super::many_seeds::each_seed;
use super::random::{Follow, case, reachable};

/// URLs that have their final result; what was cancelled is still to be fetched.
fn done(run: &Run) -> BTreeSet<String> {
    let lines = run.lines();
    let pages = lines
        .iter()
        .filter(|line| line.is_page() && line.is_final());
    pages
        .filter(|line| line.end() != "cancelled.stopped")
        .map(|line| line.url().to_owned())
        .collect()
}

fn check(seed: u64) {
    let mut rng = Rng::from_seed(seed).fork("stop");
    let mut case = case(seed);
    // All seeds are submitted before the stop: those of a handle may be pending twice, as a submission and as a link.
    case.plan.ahead = None;
    let web = case.web.shared();
    let mut run = case.plan.begin(&web);
    let at = Duration::from_millis(rng.below(8_000));
    if run.until(at).is_some() {
        return;
    }
    let stopper = run.crawler.stopper();
    if rng.chance(0.3) {
        stopper.stop_now();
    } else {
        stopper.stop();
        if rng.chance(0.5) {
            run.turn();
            stopper.stop_now();
        }
    }
    let sent = web.borrow().arrivals.len();
    let stopped_at = run.crawler.elapsed();
    let reason = run.finish();
    assert!(
        matches!(reason, FinishReason::Shutdown | FinishReason::Finished),
        "seed {seed}: {reason}"
    );
    let took = run.crawler.elapsed() - stopped_at;
    assert!(
        took < Duration::from_secs(27),
        "seed {seed}: it took {took:?}"
    );
    // What had left before may still arrive, no more.
    let in_flight = web.borrow().promise.in_all;
    let after = web.borrow().arrivals.len() - sent;
    assert!(
        after <= in_flight,
        "seed {seed}: {after} were sent after the stop"
    );
    run.check_manners();

    let done = done(&run);
    let pending: Vec<String> = run.crawler.take_pending().map(|p| p.request.url).collect();
    let to_do: BTreeSet<String> = pending.iter().cloned().collect();
    assert_eq!(
        to_do.len(),
        pending.len(),
        "seed {seed}: {pending:?} has doubles"
    );
    let both: Vec<_> = done.intersection(&to_do).collect();
    assert!(
        both.is_empty(),
        "seed {seed}: {both:?} were done and would be done again"
    );
    // Where a redirect's target leads on, its own line says so.
    let led_on: BTreeSet<String> = run
        .lines()
        .iter()
        .filter(|line| !line.is_final() && line.0["redirect"].is_string())
        .map(|line| line.url().to_owned())
        .collect();
    for line in run.lines().iter().filter(|line| line.is_page()) {
        check_goes_on(seed, line, &done, &to_do, &led_on);
    }
    for line in run.lines() {
        let Some(target) = line.0["redirect"].as_str().filter(|_| line.is_page()) else {
            continue;
        };
        let known = run.ends(target).len() + usize::from(to_do.contains(target));
        assert!(known > 0, "seed {seed}: the target {target} was lost");
    }
    for url in &case.plan.seeds {
        let known = run.ends(url).len() + usize::from(to_do.contains(url));
        assert!(known > 0, "seed {seed}: the seed {url} was lost");
    }
    if case.follow == Follow::All {
        let mut found = reachable(&web.borrow(), &pending, Follow::All);
        found.extend(run.lines().iter().map(|line| line.url().to_owned()));
        let lost: Vec<_> = case.expected.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}: {lost:?} would not be found again"
        );
    }
}

/// A line that was not the last is followed by another, or by what is pending.
fn check_goes_on(
    seed: u64,
    line: &Line,
    done: &BTreeSet<String>,
    to_do: &BTreeSet<String>,
    led_on: &BTreeSet<String>,
) {
    let url = line.url();
    assert!(
        done.contains(url) || to_do.contains(url) || led_on.contains(url),
        "seed {seed}: {url} is neither done nor pending"
    );
}

#[test]
fn a_crawl_stopped_at_any_moment_has_every_url_either_done_or_pending() {
    each_seed(200, check);
}
