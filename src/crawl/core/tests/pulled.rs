//! Crawls whose results are pulled, and that end at any turn: what was acknowledged is kept, the rest comes
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::rng::Rng;
use crate::crawl::core::tests::trial::{config, web_resolver};
use crate::crawl::journal::state::{State, StateError};
use crate::crawl::{Crawler, FinishReason};
use crate::frontier::request::{PageKind, Request};
use crate::io::IoSettings;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::sink::page::Page;

const PAGES: u64 = 60;
/// More results than there are.
const ALL: usize = 1_000_000;

/// A program that stores results: some wait with others for a transaction, and are lost in a crash.
#[derive(Default)]
struct Program {
    /// URL and epoch of each final page.
    stored: Vec<(String, u64)>,
    /// Number of results that were stored and not committed.
    deleted: usize,
}

impl Program {
    /// Stores results; returns their numbers.
    fn store(&mut self, batch: &mut Vec<Page>) -> Vec<u64> {
        let pages = batch.drain(..).map(|page| {
            let epoch = page.epoch.expect("the crawl has a state").0;
            if page.is_final && page.kind == PageKind::Page {
                self.stored.push((page.url, epoch));
            }
            page.id
        });
        pages.collect()
    }

    /// Before the crawl is resumed.
    fn delete_after(&mut self, last: u64) {
        let before = self.stored.len();
        self.stored.retain(|(_, epoch)| *epoch <= last);
        self.deleted += before - self.stored.len();
    }
}

fn out() -> &'static Path {
    Path::new("out")
}

/// Runs the crawl to its end, or until so many results were pulled. Returns what the disk has.
fn run(
    state: State,
    program: &mut Program,
    results: usize,
    earlier: &BTreeMap<PathBuf, Vec<u8>>,
    rng: &mut Rng,
) -> (Option<FinishReason>, BTreeMap<PathBuf, Vec<u8>>) {
    let web = Web::new(|asked| {
        let number: u64 = asked.target.trim_start_matches('/').parse().unwrap_or(0);
        let links = [1, 2, 13].map(|step| format!("<a href=/{}>x</a>", (number + step) % PAGES));
        Reply::page(links.concat()).after(Duration::from_millis(5))
    });
    let mut config = config(rng.below(1000));
    config.frontier.robots_obey = rng.below(2) == 0;
    config.state_sync = Duration::from_millis(rng.below(60));
    config.throttle.default.concurrency = 3;
    let resolver = web_resolver();
    let faults = Faults {
        disk_latency_max: Duration::from_millis(rng.below(20)),
        ..Faults::default()
    };
    let mut io = Sim::with(rng.next_u64(), IoSettings::default(), faults, web.world());
    let mut files = earlier.clone();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let is_begun = state.commit().is_some();
    let config = config.finish().expect("a sound config");
    let builder = Crawler::builder(config).state(state);
    let builder = match rng.below(2) {
        0 => builder,
        _ => builder.every_attempt(),
    };
    let mut crawler = builder.build_on(io, resolver).expect("a crawler");
    if !is_begun {
        let seed = Request::get("http://a.test/0");
        crawler.submit(seed).expect("it is a URL");
    }
    // The last batch is lost: the crawl ends without its commit.
    let is_careless = results < ALL && rng.below(2) == 0;
    let batch_max = 1 + rng.below(20) as usize;
    let mut batch = Vec::new();
    let mut reason = None;
    for _ in 0..results {
        let page = crawler.next_result();
        let is_last = page.is_none();
        if is_last && is_careless && !batch.is_empty() {
            assert_eq!(crawler.run(), FinishReason::Finished);
            break;
        }
        batch.extend(page);
        if batch.len() >= batch_max || is_last {
            for id in program.store(&mut batch) {
                crawler.acknowledge(id);
            }
        }
        if is_last {
            reason = Some(crawler.run());
            break;
        }
    }
    let kept = crawler.io().files().iter().map(|(path, bytes)| {
        let synced = crawler.io().synced(path);
        (path.clone(), bytes[..synced].to_vec())
    });
    (reason, kept.collect())
}

#[test]
fn each_result_is_stored_once_whenever_a_crawl_that_is_pulled_ends() {
    let mut deleted = 0;
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let mut program = Program::default();
        let new = || State::new(out(), String::new(), [seed as u8; 16]).expect("it is short");
        let mut state = new();
        let mut files = BTreeMap::new();
        for ends in 0.. {
            assert!(ends < 1000, "seed {seed}: the crawl does not end");
            let results = match ends < 1 + seed % 8 {
                true => 1 + rng.below(90) as usize,
                false => ALL,
            };
            let (reason, left) = run(state, &mut program, results, &files, &mut rng);
            files = left;
            state = match State::load_from(out(), &files) {
                Err(StateError::None(_)) => {
                    files.clear();
                    new()
                }
                read => read.expect("it can be read"),
            };
            program.delete_after(state.commit().map_or(0, |commit| commit.epoch.0));
            if reason == Some(FinishReason::Finished) {
                assert_eq!(state.queued(), 0, "seed {seed}");
                break;
            }
        }
        deleted += program.deleted;
        let urls = program.stored.iter().map(|(url, _)| url);
        let urls: BTreeSet<&String> = urls.collect();
        assert_eq!(urls.len() as u64, PAGES, "seed {seed}: no result is lost");
        let stored = program.stored.len() as u64;
        assert_eq!(stored, PAGES, "seed {seed}: none is stored twice");
    }
    assert!(deleted > 0, "some were acknowledged and not committed");
}
