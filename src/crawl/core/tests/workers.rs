//! Pages that helper threads work on, in virtual time: results come back in any order, after any time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{SinkRecord, config, crawl_under, finish, get, run_for};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::failure::{Failure, Truncation};
use crate::fetch::resolver::ResolverSettings;
use crate::frontier::request::{PageKind, Request};
use crate::frontier::settings::Follow;
use crate::io::IoSettings;
use crate::io::sim::{Faults, Origins, Sim};
use crate::sink::files::{FileSink, FileSinkOptions};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::throttle::settings::{Oversize, Quota, WindowKind};
use crate::throttle::signal::{Answer, BodySignal, Classify, Feedback};
use crate::wire::coding::gzip;

/// Longer than what the crawl's thread searches itself.
const LONG: usize = 3000;

/// Longer than any other time here.
const SLOW: Duration = Duration::from_secs(2);

fn site(host: u32) -> SocketAddr {
    format!("10.0.0.{host}:80").parse().expect("an address")
}

fn reply(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// A long page with these links.
fn html(origins: &mut Origins, host: u32, path: &str, links: &[String]) {
    let links: String = links
        .iter()
        .map(|to| format!("<a href={to}>x</a>"))
        .collect();
    let body = links + &" ".repeat(LONG);
    origins.reply(site(host), path, Duration::ZERO, reply("text/html", &body));
}

fn crawl(
    origins: Origins,
    faults: Faults,
    edit: impl FnOnce(&mut Config),
) -> (Crawler<Sim>, SinkRecord) {
    crawl_under(faults, None, Shared::new(origins), 1, |config, _| {
        config.io.workers = 2;
        config.frontier.follow = Follow::Host;
        edit(config);
    })
}

fn slow() -> Faults {
    Faults {
        compute_max: SLOW,
        ..Faults::default()
    }
}

fn paths(record: &SinkRecord) -> Vec<String> {
    let pages = record.pages.borrow();
    let path = |url: &str| url.split_once(".0.0.").expect("an address").1.to_owned();
    pages.iter().map(|page| path(&page.url)).collect()
}

#[test]
fn lines_are_in_the_order_in_which_exchanges_ended() {
    const HOSTS: u32 = 40;
    let mut origins = Origins::default();
    for host in 1..=HOSTS {
        let wait = Duration::from_millis(u64::from(host) * 10);
        let body = match host % 3 {
            // The crawl's thread finishes it at once: it waits for those before it.
            0 => "short".to_owned(),
            _ => " ".repeat(LONG),
        };
        origins.reply(site(host), "/0", wait, reply("text/html", &body));
    }
    let (mut crawler, record) = crawl(origins, slow(), |_| {});
    for host in 1..=HOSTS {
        crawler.submit(get(host, 0)).expect("a seed");
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    assert_eq!(pages.len(), HOSTS as usize);
    assert!(pages.is_sorted_by_key(|page| page.ended));
}

#[test]
fn the_next_request_of_a_host_does_not_wait_for_the_work_on_its_last_page() {
    let mut origins = Origins::default();
    (0..3).for_each(|page| html(&mut origins, 1, &format!("/{page}"), &[]));
    let (mut crawler, record) = crawl(origins, slow(), |config| {
        config.throttle.default.concurrency = 1;
    });
    (0..3).for_each(|page| {
        crawler.submit(get(1, page)).expect("a seed");
    });
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    let sent = |page: usize| pages[page].timings.sent.expect("it was sent");
    let gap = sent(2).saturating_since(sent(0));
    assert!(gap < Duration::from_millis(500), "{gap:?}");
    let last = pages[2].ended.saturating_since(sent(2));
    assert!(
        last < Duration::from_millis(500),
        "it ended on the wire: {last:?}"
    );
}

#[test]
fn all_links_of_a_page_are_found_though_a_worker_returns_a_part_of_them_at_a_time() {
    const LINKS: usize = 30_000;
    let mut origins = Origins::default();
    let links: Vec<String> = (0..LINKS)
        .map(|link| format!("/a/long/way/to/{link}"))
        .collect();
    html(&mut origins, 1, "/0", &links);
    let (mut crawler, record) = crawl(origins, Faults::default(), |config| {
        config.frontier.pages_per_host_max = 1;
        config.frontier.links_per_page_max = LINKS;
    });
    crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    let first = pages.iter().find(|page| page.status == Some(200));
    assert_eq!(first.expect("it was fetched").links, Some(LINKS as u32));
    // Those beyond the limit end unsent.
    let ends: BTreeSet<&str> = pages.iter().map(|page| page.url.as_str()).collect();
    assert_eq!(ends.len(), LINKS + 1);
}

#[test]
fn a_panic_in_a_worker_ends_one_page_with_an_error_and_not_the_crawl() {
    const HOSTS: u32 = 200;
    let mut origins = Origins::default();
    for host in 1..=HOSTS {
        html(&mut origins, host, "/0", &["/1".to_owned()]);
        html(&mut origins, host, "/1", &[]);
    }
    let faults = Faults {
        compute_panic: 0.3,
        ..Faults::default()
    };
    let (mut crawler, record) = crawl(origins, faults, |_| {});
    for host in 1..=HOSTS {
        crawler.submit(get(host, 0)).expect("a seed");
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    let failed = |url: &str| {
        let failure = pages.iter().find(|page| page.url == url)?.failure.as_ref();
        Some(failure.map(Failure::code))
    };
    let mut panics = 0;
    for host in 1..=HOSTS {
        let [first, next] = [0, 1].map(|page| failed(&format!("http://10.0.0.{host}/{page}")));
        match first.expect("each seed has its line") {
            Some(code) => {
                assert_eq!((code.as_str(), next), ("internal.panic", None));
                panics += 1;
            }
            None => assert!(next.is_some(), "its link was followed"),
        }
    }
    assert!((HOSTS / 10..HOSTS / 2).contains(&panics), "{panics}");
    let whole = pages.iter().filter(|page| page.status == Some(200));
    assert!(
        whole.clone().all(|page| page.body.len() >= LONG),
        "they are as they arrived"
    );
}

#[test]
fn urls_whose_robots_txt_ends_in_a_panic_are_not_fetched() {
    let mut origins = Origins::default();
    let rules = format!("User-agent: *\nAllow: /\n{}", "# x\n".repeat(LONG));
    origins.reply(
        site(1),
        "/robots.txt",
        Duration::ZERO,
        reply("text/plain", &rules),
    );
    html(&mut origins, 1, "/0", &[]);
    let faults = Faults {
        compute_panic: 1.0,
        ..Faults::default()
    };
    let (mut crawler, record) = crawl(origins, faults, |config| {
        config.frontier.robots_obey = true;
    });
    let seed = crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.end(seed).as_deref(), Some("robots.unreachable"));
}

#[test]
fn robots_txt_and_its_sitemaps_that_a_worker_read_are_obeyed_and_followed() {
    let mut origins = Origins::default();
    let filler = "# x\n".repeat(LONG);
    let rules = format!("{filler}User-agent: *\nDisallow: /1\nSitemap: /map.xml\n");
    origins.reply(
        site(1),
        "/robots.txt",
        Duration::ZERO,
        reply("text/plain", &rules),
    );
    let entry = "<url><loc>http://10.0.0.1/2</loc></url>";
    let map = format!("<urlset>{entry}<!--{filler}--></urlset>");
    origins.reply(site(1), "/map.xml", Duration::ZERO, reply("text/xml", &map));
    (0..3).for_each(|page| html(&mut origins, 1, &format!("/{page}"), &["/1".to_owned()]));
    let (mut crawler, record) = crawl(origins, slow(), |config| {
        config.frontier.robots_obey = true;
        config.frontier.sitemaps = true;
    });
    crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    let of_kind = |kind| pages.iter().filter(move |page| page.kind == kind);
    let fetched: BTreeSet<&str> = of_kind(PageKind::Page)
        .filter(|page| page.status == Some(200))
        .map(|page| page.url.as_str())
        .collect();
    let expected = ["http://10.0.0.1/0", "http://10.0.0.1/2"];
    assert_eq!(fetched, BTreeSet::from(expected));
    assert_eq!(of_kind(PageKind::Sitemap).count(), 1);
}

#[test]
fn a_crawl_that_stops_waits_for_its_workers_and_loses_no_page() {
    let mut origins = Origins::default();
    (0..20).for_each(|page| html(&mut origins, 1, &format!("/{page}"), &["/99".to_owned()]));
    let (mut crawler, record) = crawl(origins, slow(), |config| {
        config.stop_grace = Duration::ZERO;
    });
    let seeds: Vec<u64> = (0..20)
        .map(|page| crawler.submit(get(1, page)).expect("a seed"))
        .collect();
    run_for(&mut crawler, Duration::from_millis(300));
    assert!(!crawler.core.pages.is_empty(), "workers are busy");
    crawler.stopper().stop();
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    let pending: BTreeSet<String> = crawler
        .take_pending()
        .map(|left| left.request.url)
        .collect();
    for (page, seed) in seeds.iter().enumerate() {
        let is_pending = pending.contains(&format!("http://10.0.0.1/{page}"));
        let is_done = record.end(*seed).as_deref() == Some("200");
        assert!(is_pending != is_done, "page {page}: {pending:?}");
    }
    assert!(
        pending.contains("http://10.0.0.1/99"),
        "its links are pending"
    );
}

#[test]
fn a_sink_that_fails_leaves_the_pages_of_workers_to_be_fetched_again() {
    let mut origins = Origins::default();
    (0..20).for_each(|page| html(&mut origins, 1, &format!("/{page}"), &[]));
    let (mut crawler, record) = crawl(origins, slow(), |_| {});
    for page in 0..20 {
        crawler.submit(get(1, page)).expect("a seed");
    }
    run_for(&mut crawler, Duration::from_millis(300));
    assert!(!crawler.core.pages.is_empty(), "workers are busy");
    record.fails.set(true);
    assert_eq!(finish(&mut crawler), FinishReason::SinkFailed);
    let pending: BTreeSet<String> = crawler
        .take_pending()
        .map(|left| left.request.url)
        .collect();
    let done: BTreeSet<String> = paths(&record).into_iter().collect();
    for page in 0..20 {
        let is_pending = pending.contains(&format!("http://10.0.0.1/{page}"));
        assert!(
            is_pending || done.contains(&format!("1/{page}")),
            "page {page}"
        );
    }
}

#[test]
fn a_host_that_waits_in_its_own_loop_is_not_kept_busy_by_pages_at_workers() {
    let mut origins = Origins::default();
    html(&mut origins, 1, "/0", &[]);
    let (mut crawler, _) = crawl(origins, slow(), |_| {});
    crawler.submit(get(1, 0)).expect("a seed");
    let mut turns = 0;
    while crawler.turn(None) == Turn::GoesOn {
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns");
}

/// How the page of a coded body ended: its error, why it is incomplete, and the body.
fn decoded(
    workers: usize,
    coding: &str,
    coded: &[u8],
    cut: bool,
    edit: &dyn Fn(&mut Config),
) -> (Option<String>, Option<Truncation>, Vec<u8>, Option<u32>) {
    let length = coded.len() + usize::from(cut);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-encoding: {coding}\r\n\
         content-length: {length}\r\n\r\n"
    );
    let mut origins = Origins::default();
    let reply = [head.as_bytes(), coded].concat();
    origins.reply(site(1), "/0", Duration::ZERO, reply);
    let (mut crawler, record) = crawl(origins, slow(), |config| {
        config.io.workers = workers;
        config.frontier.pages_per_host_max = 1;
        config.frontier.retry_times = 0;
        edit(config);
    });
    crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(crawler.core.network.buffered(), 0);
    assert_eq!(crawler.progress().in_flight, 0);
    let pages = record.pages.take();
    let page = pages.into_iter().find(|page| page.status.is_some());
    let page = page.expect("it has a reply");
    let code = page.failure.as_ref().map(Failure::code);
    (code, page.truncated, page.body, page.links)
}

#[test]
fn a_body_that_a_worker_decodes_ends_as_one_that_is_decoded_while_it_arrives() {
    let mut rng = Rng::from_seed(7);
    let noise: String = (0..4000)
        .map(|_| char::from(b'a' + rng.below(26) as u8))
        .collect();
    let text = format!("<a href=/1>x</a>{noise}");
    let usual = gzip(text.as_bytes());
    let mut damaged = usual.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let mut wrong_sum = usual.clone();
    let sum = wrong_sum.len() - 6;
    wrong_sum[sum] ^= 1;
    let twice = [&usual[..], &usual].concat();
    let bomb = gzip(&vec![b' '; 8 << 20]);
    let long = gzip(text.repeat(40).as_bytes());
    let mut seen = BTreeSet::new();
    for (name, coding, coded) in [
        ("usual", "gzip", &usual),
        ("damaged", "gzip", &damaged),
        ("wrong sum", "gzip", &wrong_sum),
        ("twice", "gzip", &twice),
        ("bomb", "gzip", &bomb),
        ("long", "gzip", &long),
        ("no gzip", "gzip", &text.clone().into_bytes()),
        ("unknown", "rot13", &usual),
        ("two codings", "gzip, gzip", &gzip(&usual)),
        ("deflate", "deflate", &usual),
    ] {
        for cut in [false, true] {
            for body_max in [1 << 20, 3000, 10 << 20] {
                let edit = |config: &mut Config| config.fetch.body_max = body_max;
                let by_loop = decoded(0, coding, coded, cut, &edit);
                let by_worker = decoded(2, coding, coded, cut, &edit);
                let is_bomb = by_loop.0.as_deref() == Some("content_encoding.bomb");
                let body = |seen: &(_, _, Vec<u8>, _)| match is_bomb {
                    // How much of it is decoded depends on its pieces.
                    true => Vec::new(),
                    false => seen.2.clone(),
                };
                assert!(
                    by_loop.0 == by_worker.0
                        && by_loop.1 == by_worker.1
                        && by_loop.3 == by_worker.3
                        && body(&by_loop) == body(&by_worker),
                    "{name}, cut {cut}, at most {body_max}: {:?}, {:?}, {} bytes, {:?} links; \
                     {:?}, {:?}, {} bytes, {:?} links",
                    by_loop.0,
                    by_loop.1,
                    by_loop.2.len(),
                    by_loop.3,
                    by_worker.0,
                    by_worker.1,
                    by_worker.2.len(),
                    by_worker.3,
                );
                seen.insert(by_loop.0);
            }
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn a_body_of_a_coding_that_a_worker_finds_broken_is_fetched_again() {
    let coded = [&gzip(&[b'x'; 3000])[..10], &[0xff; 2000]].concat();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        coded.len()
    );
    let mut origins = Origins::default();
    let reply = [head.as_bytes(), &coded].concat();
    origins.reply(site(1), "/0", Duration::ZERO, reply);
    let (mut crawler, record) = crawl(origins, slow(), |config| {
        config.frontier.retry_times = 2;
        config.frontier.retry_exceptions = vec!["content_encoding".to_owned()];
    });
    let seed = crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len(), 3);
    assert_eq!(record.end(seed).as_deref(), Some("content_encoding.broken"));
}

/// A crawl with helper threads that writes files.
fn with_files(
    origins: Origins,
    faults: Faults,
    edit: impl FnOnce(&mut Config),
    parts: Option<Parts>,
) -> Crawler<Sim> {
    let mut config = config(1);
    config.io.workers = 2;
    config.frontier.follow = Follow::Host;
    edit(&mut config);
    let io = Sim::with(1, IoSettings::default(), faults, Box::new(origins));
    let config = config.finish().expect("a sound config");
    let parts = parts.unwrap_or_else(|| Parts::new(FileSink::new(FileSinkOptions::new("out"))));
    Crawler::on(io, config, ResolverSettings::default(), parts).expect("a crawler")
}

fn coded_reply(coded: &[u8]) -> Vec<u8> {
    let length = coded.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-encoding: gzip\r\n\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), coded].concat()
}

fn noise(length: usize) -> Vec<u8> {
    let mut rng = Rng::from_seed(7);
    (0..length).map(|_| b'a' + rng.below(26) as u8).collect()
}

#[test]
fn a_short_sitemap_of_many_urls_is_written_once_it_is_prepared() {
    let mut origins = Origins::default();
    let robots = "User-agent: *\nAllow: /\nSitemap: http://10.0.0.1/map.xml.gz\n";
    let rules = reply("text/plain", robots);
    origins.reply(site(1), "/robots.txt", Duration::ZERO, rules);
    let map = gzip("http://10.0.0.1/\n".repeat(40_000).as_bytes());
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
        map.len()
    );
    let map = [head.as_bytes(), &map].concat();
    origins.reply(site(1), "/map.xml.gz", Duration::ZERO, map);
    let edit = |config: &mut Config| {
        config.frontier.robots_obey = true;
        config.frontier.sitemaps = true;
    };
    let mut crawler = with_files(origins, slow(), edit, None);
    crawler.submit(get(1, 0)).expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
}

#[test]
fn a_page_that_is_cancelled_between_two_rounds_at_a_worker_is_written() {
    let mut origins = Origins::default();
    let long = format!("/{}/0", "d".repeat(1900));
    let links: String = (0..690).map(|link| format!("<a href=x{link}>")).collect();
    origins.reply(site(1), &long, Duration::ZERO, reply("text/html", &links));
    let mut crawler = with_files(origins, slow(), |_| {}, None);
    let url = format!("http://10.0.0.1{long}");
    let id = crawler.submit(Request::get(url)).expect("a seed");
    while crawler.core.pages.is_empty() {
        assert_eq!(crawler.turn(Some(Duration::from_millis(10))), Turn::GoesOn);
    }
    crawler.handle().cancel(id).expect("it runs");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
}

/// Each page costs as much as its body says.
struct Costs;

impl Classify for Costs {
    fn classify_body(&self, answer: &Answer<'_>, body: &[u8]) -> BodySignal {
        let mut signal = BodySignal::nothing();
        if !body.is_empty() {
            let cost = |scope: &&str| Feedback::new(*scope).actual(5.0);
            signal.feedback = answer.scopes.iter().map(cost).collect();
        }
        signal
    }
}

#[test]
fn costs_that_a_body_shows_are_charged_before_the_next_request() {
    let coded = gzip(&noise(6000));
    let mut origins = Origins::default();
    for page in 0..40 {
        origins.reply(
            site(1),
            &format!("/{page}"),
            Duration::ZERO,
            coded_reply(&coded),
        );
    }
    let count = Shared::new(0);
    let counted = Shared::clone(&count);
    let sink = FunctionSink::new(move |_: Page| *counted.borrow_mut() += 1);
    let mut parts = Parts::new(sink);
    parts.classify = Some(Box::new(Costs));
    let edit = |config: &mut Config| {
        config.throttle.default.concurrency = 1;
        config.throttle.default.quota = Some(Quota {
            units: 10.0,
            window: Duration::from_secs(60),
            kind: WindowKind::Fixed,
            oversize: Oversize::Alone,
        });
    };
    let mut crawler = with_files(origins, slow(), edit, Some(parts));
    for page in 0..40 {
        crawler.submit(get(1, page)).expect("a seed");
    }
    run_for(&mut crawler, Duration::from_secs(50));
    assert_eq!(*count.borrow(), 2);
}

#[test]
fn a_reply_that_is_cut_off_as_the_sink_fails_is_pending_once() {
    let mut origins = Origins::default();
    let reply = cut_reply(&gzip(&noise(6000)));
    origins.reply(site(1), "/0", Duration::ZERO, reply);
    let (mut crawler, record) = crawl(origins, slow(), |_| {});
    crawler.submit(get(1, 0)).expect("a seed");
    run_for(&mut crawler, Duration::from_millis(500));
    record.fails.set(true);
    assert_eq!(finish(&mut crawler), FinishReason::SinkFailed);
    let pending: Vec<String> = crawler
        .take_pending()
        .map(|left| left.request.url)
        .collect();
    assert_eq!(pending, ["http://10.0.0.1/0"]);
}

#[test]
fn bodies_at_workers_stay_within_their_bound() {
    const BOUND: u64 = 8 << 20;
    for is_ready in [false, true] {
        let text: String = (0..20_000)
            .map(|line| {
                format!(
                    "<p>some words of a page that says {} again</p>\n",
                    line / 50
                )
            })
            .collect();
        let coded = gzip(text.as_bytes());
        let mut origins = Origins::default();
        for host in 1..=250 {
            origins.reply(
                site(host),
                "/0",
                Duration::from_secs(3),
                coded_reply(&coded),
            );
        }
        let (mut crawler, record) = crawl(origins, slow(), |config| {
            config.buffered_bodies_max = BOUND;
            config.fetch.body_max = 4 << 20;
        });
        for host in 1..=250 {
            crawler.submit(get(host, 0)).expect("a seed");
        }
        run_for(&mut crawler, Duration::from_millis(2500));
        if !is_ready {
            record.room.set(Some(0));
        }
        let mut most = 0;
        for _ in 0..2000 {
            if crawler.turn(Some(Duration::from_millis(100))) != Turn::GoesOn {
                break;
            }
            most = most.max(crawler.core.network.buffered());
        }
        // Those that each worker has, and the first of the line, may be beyond it.
        let beyond = 24 * text.len();
        assert!(most < BOUND as usize + beyond, "{is_ready}: {most}");
        if !is_ready {
            record.room.set(None);
        }
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        assert_eq!(record.pages.borrow().len(), 250);
    }
}

/// A coded reply of which the last bytes do not come.
fn cut_reply(coded: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-encoding: gzip\r\n\
         content-length: {}\r\n\r\n",
        coded.len() + 9
    );
    [head.as_bytes(), coded].concat()
}

#[test]
fn a_stop_does_not_wait_longer_than_the_work_on_a_reply_that_it_cuts() {
    let mut origins = Origins::default();
    let reply = cut_reply(&gzip(&noise(60_000)));
    origins.reply(site(1), "/0", Duration::ZERO, reply);
    let (mut crawler, record) = crawl(origins, Faults::default(), |config| {
        config.stop_grace = Duration::ZERO;
    });
    let id = crawler.submit(get(1, 0)).expect("a seed");
    run_for(&mut crawler, Duration::from_millis(500));
    crawler.stopper().stop();
    let began = crawler.core.now();
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    let took = crawler.core.now().saturating_since(began);
    assert!(took < Duration::from_millis(50), "{took:?}");
    assert_eq!(record.end(id).as_deref(), Some("cancelled.stopped"));
}

#[test]
fn a_stop_cancels_a_body_that_would_be_cut_at_its_limit() {
    for workers in [0, 2] {
        let mut origins = Origins::default();
        let reply = cut_reply(&gzip(&noise(6000)));
        origins.reply(site(1), "/0", Duration::ZERO, reply);
        let (mut crawler, record) = crawl(origins, Faults::default(), |config| {
            config.io.workers = workers;
            config.fetch.body_max = 5000;
            config.stop_grace = Duration::ZERO;
        });
        let id = crawler.submit(get(1, 0)).expect("a seed");
        run_for(&mut crawler, Duration::from_millis(500));
        crawler.stopper().stop();
        assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
        assert_eq!(record.end(id).as_deref(), Some("cancelled.stopped"));
        let pending: Vec<String> = crawler
            .take_pending()
            .map(|left| left.request.url)
            .collect();
        assert_eq!(pending, ["http://10.0.0.1/0"], "{workers} workers");
    }
}
