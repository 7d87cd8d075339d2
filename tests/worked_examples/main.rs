//! The worked examples of the specification: programs of `examples/` and others, each against a server on
//! loopback. All figures are measured by the server.

#[allow(dead_code, reason = "other tests ask it for more")]
#[path = "../loopback/mod.rs"]
mod loopback;

#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/api_retry_policy.rs"]
mod api_retry_policy;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/cost_cap.rs"]
mod cost_cap;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/endpoints.rs"]
mod endpoints;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/hierarchy.rs"]
mod hierarchy;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/registrable_domain.rs"]
mod registrable_domain;
#[allow(dead_code, reason = "its main is a user's to run")]
#[path = "../../examples/scraping_api.rs"]
mod scraping_api;

mod apis;
mod holds;
mod managers;
mod quotas;
#[cfg(feature = "cli")]
mod requests;
mod scopes;

use std::time::{Duration, Instant};

use argiope::base::shared::Shared;
use argiope::settings::SettingValue;
use argiope::{Builder, Config, Crawler, FinishReason, Page, Request, Turn};

use loopback::{Asked, gaps};

/// No crawl here takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a stamp of the kernel's may be early: it is read against another clock than ours.
const TOLERANCE: Duration = Duration::from_millis(1);

/// How long a crawl may be without the processor between the stamp of a departure, which its gap
/// runs from, and the system call: what arrives late is followed too soon.
const LATE: Duration = Duration::from_millis(10);

/// A crawler made by this builder, whose pages are kept.
fn kept(builder: Builder) -> (Shared<Vec<Page>>, Crawler) {
    let pages: Shared<Vec<Page>> = Shared::default();
    let keeps = Shared::clone(&pages);
    let crawler = builder
        .sink(move |page: Page| keeps.borrow_mut().push(page))
        .build()
        .expect("it can be set up");
    (pages, crawler)
}

/// Crawls these to the end; gives the pages.
fn crawl(builder: Builder, requests: impl IntoIterator<Item = Request>) -> Vec<Page> {
    let (pages, mut crawler) = kept(builder);
    for request in requests {
        crawler.submit(request).expect("it is a request");
    }
    to_the_end(&mut crawler);
    drop(crawler);
    pages.into_inner().expect("the crawl is over")
}

/// Crawls these to the end under nothing but a configuration.
fn crawl_under(config: Config, requests: impl IntoIterator<Item = Request>) -> Vec<Page> {
    crawl(Crawler::builder(config), requests)
}

fn to_the_end(crawler: &mut Crawler) {
    let began = Instant::now();
    loop {
        if let Turn::Over(reason) = crawler.turn(Some(Duration::from_millis(100))) {
            assert_eq!(reason, FinishReason::Finished);
            return;
        }
        assert!(began.elapsed() < PATIENCE, "the crawl does not end");
    }
}

fn get(url: impl Into<String>) -> Request {
    Request::get(url)
}

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Every gap between these is at least this long, and all together are.
#[track_caller]
fn assert_gaps(asked: &[Asked], least: Duration) {
    let gaps = gaps(asked);
    assert!(!gaps.is_empty(), "nothing lies between {asked:?}");
    for gap in &gaps {
        assert!(*gap + LATE >= least, "{gap:?} of {gaps:?}");
    }
    let (whole, count) = (gaps.iter().sum::<Duration>(), gaps.len() as u32);
    assert!(whole + LATE >= least * count, "{whole:?} of {gaps:?}");
}

/// From one departure to the other it took at least this long.
#[track_caller]
fn assert_apart(first: &Asked, then: &Asked, least: Duration) {
    let apart = then.at.saturating_sub(first.at);
    assert!(apart + LATE >= least, "only {apart:?} apart");
}

/// From the reply to one it took at least this long to the other.
#[track_caller]
fn assert_silent(after: &Asked, then: &Asked, least: Duration) {
    let silent = then.at.saturating_sub(after.done);
    assert!(silent + TOLERANCE >= least, "silent for only {silent:?}");
}

/// The names of the scopes of a page, sorted.
fn scopes_of(page: &Page) -> Vec<&str> {
    let mut scopes: Vec<&str> = page.scopes.iter().map(|scope| &**scope).collect();
    scopes.sort_unstable();
    scopes
}
