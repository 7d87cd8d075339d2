//! Pages that take long to be worked on, in virtual time: a turn does only so much for all of them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{SinkRecord, config, crawl, finish, get, run_for, turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::network::pieces::KEPT_PER_TURN;
use crate::crawl::pages::UNITS_PER_TURN;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::frontier::request::PageKind;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::{Faults, Origins, Sim};
use crate::io::{Io, IoSettings};
use crate::sink::files::{FileSink, FileSinkOptions, WarcOptions};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::sink::tee::Tee;

/// Most units by which the last item of a turn may exceed the turn's budget.
const ITEM_UNITS: u64 = 64 << 10;

const SMALL: Duration = Duration::from_millis(50);

fn site(host: u32) -> SocketAddr {
    format!("10.0.0.{host}:80").parse().expect("an address")
}

/// A page of this type and body.
fn reply(content_type: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn html(origins: &mut Origins, host: u32, path: &str, body: &str) {
    let reply = reply("text/html", body.as_bytes());
    origins.reply(site(host), path, Duration::ZERO, reply);
}

/// This many links to missing pages, and some text.
fn links(count: usize) -> String {
    (0..count)
        .map(|link| format!("<p>a paragraph of text <a class=x href=/{link}>link</a></p>\n"))
        .collect()
}

fn large(config: &mut Config, settings: &mut IoSettings) {
    config.frontier.follow = Follow::Host;
    config.frontier.pages_per_host_max = 3;
    settings.read_budget = 1 << 20;
}

/// Runs turns until a reply is being processed.
fn until_under_way(crawler: &mut Crawler<Sim>) {
    for _ in 0..100_000 {
        if !crawler.core.pages.is_empty() {
            return;
        }
        assert_eq!(turn(crawler, Some(Duration::from_secs(3600))), Turn::GoesOn);
    }
    panic!("no reply is ever under way");
}

/// A crawl with this page as its only seed, while it is being processed; and the seed's number.
fn under_way(body: &str, edit: impl FnOnce(&mut Config)) -> (Crawler<Sim>, SinkRecord, u64) {
    let mut origins = Origins::default();
    html(&mut origins, 1, "/", body);
    let (mut crawler, _, record) = crawl(origins, 1, |config, settings| {
        large(config, settings);
        edit(config);
    });
    let id = crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a seed");
    until_under_way(&mut crawler);
    (crawler, record, id)
}

/// Crawls these with files, also WARC files. Returns the most units that a turn spent, and the pages in
/// the order of their lines.
fn with_files(
    origins: Origins,
    seeds: &[Request],
    edit: impl FnOnce(&mut Config),
) -> (u64, Vec<Page>) {
    let mut config = config(1);
    edit(&mut config);
    let record: Shared<Vec<Page>> = Shared::default();
    let pages = Shared::clone(&record);
    let mut options = FileSinkOptions::new("out");
    options.warc = Some(WarcOptions::new("here", [7; 16]));
    let sink = Tee::new(
        FileSink::new(options),
        FunctionSink::new(move |page: Page| pages.borrow_mut().push(page)),
    );
    let settings = IoSettings {
        read_budget: 1 << 20,
        ..IoSettings::default()
    };
    let io = Sim::with(1, settings, Faults::default(), Box::new(origins));
    let config = config.finish().expect("a sound config");
    let mut crawler = Crawler::on(
        io,
        config,
        resolver::ResolverSettings::default(),
        Parts::new(sink),
    )
    .expect("a crawler");
    for seed in seeds {
        crawler.submit(seed.clone()).expect("a seed");
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let most = crawler.core.pages.spent_max();
    assert_eq!(
        crawler.core.network.buffered(),
        0,
        "what was held is given back"
    );
    drop(crawler);
    (most, record.take())
}

#[test]
fn several_large_pages_at_once_share_one_budget_a_turn_also_with_warc() {
    let mut origins = Origins::default();
    let body = links(40_000);
    let gzip = crate::wire::coding::gzip(body.as_bytes());
    let latin: Vec<u8> = body
        .bytes()
        .map(|b| if b == b'x' { 0xe9 } else { b })
        .collect();
    for host in 1..=4 {
        html(&mut origins, host, "/", &body);
    }
    let coded = [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n",
        &gzip[..],
    ];
    origins.reply(site(5), "/", Duration::ZERO, coded.concat());
    origins.reply(
        site(6),
        "/",
        Duration::ZERO,
        reply("text/html; charset=latin1", &latin),
    );
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let chunks = b"1\r\n<\r\n".repeat(300_000);
    origins.reply(
        site(7),
        "/",
        Duration::ZERO,
        [&chunked[..], &chunks, b"0\r\n\r\n"].concat(),
    );
    let seeds: Vec<Request> = (1..=7)
        .map(|host| Request::get(format!("http://10.0.0.{host}/")))
        .collect();
    let (most, pages) = with_files(origins, &seeds, |config| {
        config.frontier.pages_per_host_max = 2
    });
    let large: Vec<&Page> = pages.iter().filter(|page| page.seed).collect();
    assert_eq!(large.len(), 7);
    for page in large {
        assert!(
            page.is_final && page.failure.is_none(),
            "{:?}",
            page.failure
        );
        assert!(!page.body.is_empty(), "a sink has the whole body");
        if !page.url.ends_with("7/") {
            assert_eq!(page.links, Some(10_000), "{}", page.url);
        }
    }
    assert!(most >= UNITS_PER_TURN, "the budget was never spent: {most}");
    assert!(
        most <= UNITS_PER_TURN + ITEM_UNITS,
        "a turn spent {most} units"
    );
}

#[test]
fn hostile_robots_and_sitemaps_take_no_longer_per_turn_than_pages() {
    let mut origins = Origins::default();
    let mut rules = "User-agent: *\n".to_owned();
    rules += &"Disallow: /*a*b$\n".repeat(10_000);
    rules += &"Sitemap: /s.xml\nSitemap: /t.xml.gz\n".repeat(5_000);
    let locs: String = (0..50_000)
        .map(|n| format!("<url><loc>/{n}</loc></url>"))
        .collect();
    let locs = format!("<urlset>{locs}</urlset>");
    origins.reply(
        site(1),
        "/robots.txt",
        Duration::ZERO,
        reply("text/plain", rules.as_bytes()),
    );
    origins.reply(
        site(1),
        "/s.xml",
        Duration::ZERO,
        reply("application/xml", locs.as_bytes()),
    );
    let gzip = crate::wire::coding::gzip(locs.replace("/", "/y").as_bytes());
    origins.reply(
        site(1),
        "/t.xml.gz",
        Duration::ZERO,
        reply("application/gzip", &gzip),
    );
    html(&mut origins, 1, "/", "home");
    let (most, pages) = with_files(origins, &[Request::get("http://10.0.0.1/")], |config| {
        config.frontier.robots_obey = true;
        config.frontier.sitemaps = true;
        config.frontier.pages_max = 0;
        config.frontier.pages_per_host_max = 30;
    });
    let count = |kind: PageKind| {
        pages
            .iter()
            .filter(|page| page.kind == kind && page.status == Some(200))
            .count()
    };
    assert_eq!((count(PageKind::Robots), count(PageKind::Sitemap)), (1, 2));
    assert!(
        most <= UNITS_PER_TURN + ITEM_UNITS,
        "a turn spent {most} units"
    );
}

/// Hosts 1 to `hosts`, whose page `/0` has this body, coded already.
fn all_reply(hosts: u32, coding: &str, coded: &[u8]) -> Origins {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        coded.len()
    );
    let mut origins = Origins::default();
    for host in 1..=hosts {
        let reply = [head.as_bytes(), coded].concat();
        origins.reply(site(host), "/0", Duration::ZERO, reply);
    }
    origins
}

#[test]
fn long_and_highly_compressed_bodies_share_the_bytes_of_a_turn() {
    let body = vec![b' '; 3 << 20];
    let coded = crate::wire::coding::gzip(&body);
    for (coding, sent) in [("gzip", &coded), ("identity", &body)] {
        let origins = all_reply(6, coding, sent);
        let (mut crawler, _, record) = crawl(origins, 1, |config, settings| {
            large(config, settings);
            config.fetch.ratio_max = u32::MAX;
        });
        for host in 1..=6 {
            crawler.submit(get(host, 0)).expect("a seed");
        }
        // All bodies have begun, and the larger part of each waits for the sink.
        while crawler.core.network.paused_len() < 6 {
            assert_eq!(
                turn(&mut crawler, Some(Duration::from_millis(1))),
                Turn::GoesOn
            );
            if crawler.core.network.buffered() > 0 {
                record.room.set(Some(0));
            }
        }
        run_for(&mut crawler, Duration::from_secs(20));
        record.room.set(None);
        assert_eq!(finish(&mut crawler), FinishReason::Finished);
        let pages = record.pages.borrow();
        assert_eq!(pages.len(), 6);
        for page in pages.iter() {
            assert!(page.failure.is_none(), "{:?}", page.failure);
            assert!(page.body == body, "{coding}");
        }
        assert_eq!(
            crawler.core.network.pieces().kept_max,
            KEPT_PER_TURN,
            "{coding}"
        );
        assert_eq!(crawler.core.network.buffered(), 0);
    }
}

#[test]
fn a_long_body_of_small_chunks_takes_of_a_turn_its_bytes_only() {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunks = b"1\r\nx\r\n".repeat(3 << 19);
    let reply = [&head[..], &chunks, b"0\r\n\r\n"].concat();
    let mut origins = Origins::default();
    for host in 1..=2 {
        origins.reply(site(host), "/0", Duration::ZERO, reply.clone());
    }
    let (mut crawler, _, record) = crawl(origins, 1, large);
    for host in 1..=2 {
        crawler.submit(get(host, 0)).expect("a seed");
    }
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len(), 2);
    assert!(
        record
            .pages
            .borrow()
            .iter()
            .all(|page| page.body.len() == 3 << 19)
    );
    let pieces = crawler.core.network.pieces();
    assert!(pieces.kept_max > 0, "they are long");
    assert!(
        pieces.kept_total <= 2 * reply.len(),
        "{}",
        pieces.kept_total
    );
}

#[test]
fn paused_bodies_end_one_after_the_other_if_memory_is_short() {
    let mut rng = Rng::from_seed(1);
    let body: Vec<u8> = (0..3 << 20)
        .map(|_| b"abcd"[rng.below(4) as usize])
        .collect();
    let coded = crate::wire::coding::gzip(&body);
    for (coding, sent) in [("gzip", &coded), ("identity", &body)] {
        let origins = all_reply(40, coding, sent);
        let (mut crawler, _, record) = crawl(origins, 1, |config, settings| {
            config.fetch.body_max = 4 << 20;
            settings.read_budget = 256 << 10;
            config.buffered_bodies_max = 12 << 20;
        });
        for host in 1..=40 {
            crawler.submit(get(host, 0)).expect("a seed");
        }
        while turn(&mut crawler, None) == Turn::GoesOn {
            let took = crawler.elapsed();
            assert!(
                took < Duration::from_secs(60),
                "{coding}: {:?}",
                crawler.progress()
            );
        }
        let pages = record.pages.borrow();
        let whole = pages.iter().filter(|page| page.body == body).count();
        assert_eq!(whole, 40, "{coding}");
    }
}

#[test]
fn links_that_are_too_long_with_their_base_are_counted_and_never_made() {
    let mut origins = Origins::default();
    let short: String = (0..10_000).map(|link| format!("<a href={link}>")).collect();
    let body = format!("<base href='/{}/'>{short}<a href=/x>", "b".repeat(60_000));
    html(&mut origins, 1, "/", &body);
    let (mut crawler, _, record) = crawl(origins, 1, large);
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a seed");
    let (mut held, mut turns) = (0, 0);
    while turn(&mut crawler, Some(Duration::from_secs(3600))) == Turn::GoesOn {
        held = held.max(crawler.progress().buffered);
        turns += usize::from(!crawler.core.pages.is_empty());
    }
    assert!(turns < 20, "{turns} turns were spent on it");
    let pages = record.pages.borrow();
    assert_eq!(pages[0].links, Some(10_000));
    let long = crawler.core.frontier.filtered()[&crate::frontier::filter::Filtered::Length];
    assert_eq!(long, 10_000);
    assert!(held < 8 << 20, "{held} bytes were held");
    let most = crawler.core.pages.spent_max();
    assert!(
        most <= UNITS_PER_TURN + ITEM_UNITS,
        "a turn spent {most} units"
    );
}

#[test]
fn a_small_page_does_not_wait_for_a_large_one_that_came_before() {
    let mut origins = Origins::default();
    html(&mut origins, 1, "/", &links(40_000));
    html(&mut origins, 2, "/0", "small");
    let (mut crawler, _, record) = crawl(origins, 1, large);
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a seed");
    until_under_way(&mut crawler);
    crawler.submit(get(2, 0)).expect("a seed");
    let before = crawler.io().now();
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    assert!(
        pages[0].ended <= before,
        "a page has the time of its last byte"
    );
    assert!(pages.iter().any(|page| page.url.ends_with("/0")));
    assert!(crawler.elapsed() > SMALL / 100);
}

#[test]
fn a_crawl_ends_only_when_what_is_under_way_is_done_and_counts_it_once() {
    for limit in [0, 1] {
        let body = format!("{}<a href=/last>", links(9_000));
        let (mut crawler, record, _) = under_way(&body, |config| config.frontier.pages_max = limit);
        assert_eq!(crawler.core.frontier.pages(), 0, "it is not done");
        assert_eq!(crawler.core.flights.len(), 0);
        let reason = finish(&mut crawler);
        let pages = record.pages.borrow();
        assert_eq!(pages[0].links, Some(9_001));
        match limit {
            0 => {
                assert_eq!(reason, FinishReason::Finished);
                assert_eq!(pages.iter().filter(|page| page.status.is_some()).count(), 3);
            }
            _ => {
                assert_eq!(reason, FinishReason::PageCount);
                assert_eq!(pages.len(), 1);
                drop(pages);
                assert_eq!(crawler.take_pending().count(), 9_001);
            }
        }
    }
}

#[test]
fn a_crawl_stopped_at_once_still_finds_the_links_of_replies_in_progress() {
    let (mut crawler, record, _) = under_way(&links(9_000), |_| ());
    crawler.stopper().stop_now();
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    let pages = record.pages.borrow();
    assert_eq!(
        (pages.len(), pages[0].status, pages[0].links),
        (1, Some(200), Some(9_000))
    );
    drop(pages);
    assert_eq!(crawler.take_pending().count(), 9_000);
    assert_eq!(crawler.core.network.buffered(), 0);
}

#[test]
fn a_crawl_dropped_within_a_reply_leaves_its_request_pending() {
    let (mut crawler, record, _) = under_way(&links(9_000), |_| ());
    assert!(record.pages.borrow().is_empty());
    let pending: Vec<String> = crawler
        .take_pending()
        .map(|pending| pending.request.url)
        .collect();
    assert!(pending.contains(&"http://10.0.0.1/".to_owned()));
}

#[test]
fn a_cancelled_reply_under_way_is_not_followed_and_has_its_line() {
    let (mut crawler, record, id) = under_way(&links(9_000), |_| ());
    let handle = crawler.handle();
    handle.cancel(id).expect("the crawl goes on");
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    let pages = record.pages.borrow();
    assert_eq!(
        (pages.len(), pages[0].status, pages[0].is_final),
        (1, Some(200), true)
    );
    assert!(!pages[0].body.is_empty());
}

#[test]
fn a_failing_sink_ends_a_crawl_with_replies_in_progress() {
    let (mut crawler, record, _) = under_way(&links(9_000), |_| ());
    record.fails.set(true);
    assert_eq!(finish(&mut crawler), FinishReason::SinkFailed);
    assert_eq!(record.pages.borrow().len(), 1);
    assert_eq!(crawler.core.network.buffered(), 0);
}

#[test]
fn a_full_sink_gets_no_reply_in_progress_before_it_is_ready() {
    let (mut crawler, record, _) = under_way(&links(9_000), |_| ());
    record.room.set(Some(0));
    for _ in 0..1000 {
        turn(&mut crawler, Some(SMALL));
    }
    assert!(
        crawler.elapsed() > SMALL,
        "a crawl that waits for its sink sleeps"
    );
    assert_eq!(record.pages.borrow().len(), 0);
    record.room.set(None);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow()[0].links, Some(9_000));
}
