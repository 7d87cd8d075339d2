//! Small random webs under random settings.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::crawl::Line;
use super::random::case;

/// How many there are; a few seconds for all.
const SEEDS: u64 = 300;

/// Seeds that once showed a fault: they go first.
pub const FOUND: [u64; 6] = [11, 218, 573, 3200, 700824, 711350];

/// The seeds to run: `ARGIOPE_SEED`, or so many.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("ARGIOPE_SEED") {
        Ok(seed) => vec![seed.parse().expect("ARGIOPE_SEED is a number")],
        Err(_) => FOUND.into_iter().chain(1..=count).collect(),
    }
}

/// Runs a check for a number of seeds, and reports the failed ones at the end.
pub fn each_seed(count: u64, check: impl Fn(u64)) {
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| check(*seed))).is_err();
    let failed: Vec<u64> = seeds(count).into_iter().filter(fails).collect();
    assert!(
        failed.is_empty(),
        "ARGIOPE_SEED=… runs one of these again: {failed:?}"
    );
}

/// Crawls the web of a seed; gives its result lines.
fn crawl(seed: u64) -> Vec<u8> {
    let case = case(seed);
    let web = case.web.shared();
    let run = case.plan.run(&web);
    run.check_lines();
    let lines = run.lines();
    let pages = lines.iter().filter(|line| line.is_page());
    let found: BTreeSet<String> = pages.map(|line| line.url().to_owned()).collect();
    let lost: Vec<_> = case.expected.difference(&found).collect();
    let uncalled: Vec<_> = found.difference(&case.expected).collect();
    assert!(lost.is_empty(), "seed {seed}: {lost:?} were lost");
    assert!(
        uncalled.is_empty(),
        "seed {seed}: {uncalled:?} were nowhere"
    );
    check_sent(seed, &lines, &web.borrow().arrivals.len());
    run.bytes()
}

/// Every request that arrived has its line, and every line with `sent` its request.
pub fn check_sent(seed: u64, lines: &[Line], arrived: &usize) {
    let sent = lines.iter().filter(|line| !line.0["sent"].is_null());
    assert_eq!(
        sent.count(),
        *arrived,
        "seed {seed}: requests and their lines"
    );
}

#[test]
fn random_webs_with_random_settings_are_crawled_completely_and_politely() {
    each_seed(SEEDS, |seed| {
        crawl(seed);
    });
}

#[test]
fn the_same_seed_gives_the_same_result_lines_to_the_byte() {
    each_seed(10, |seed| {
        assert_eq!(crawl(seed), crawl(seed), "seed {seed}");
    });
}
