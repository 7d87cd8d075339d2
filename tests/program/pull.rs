//! Results pulled one by one by the owner of a crawl, over loopback.

use std::time::{Duration, Instant as Clock};

use argiope::base::shared::Shared;
use argiope::settings::SettingValue;
use argiope::{Config, Crawler, FinishReason, Page, Request, Turn};
use rustix::event::{PollFd, PollFlags, poll};

use crate::loopback::{Reply, Server};

/// No crawl here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

fn submit(crawler: &mut Crawler, host: u32, page: u32) {
    let url = format!("http://{host}.test/{page}");
    crawler.submit(Request::get(url)).expect("it is a URL");
}

fn number(page: &Page) -> u32 {
    let (_, number) = page.url.rsplit_once('/').expect("a path");
    number.parse().expect("a number")
}

#[test]
fn a_crawl_continues_while_results_lead_to_requests() {
    let server = Server::start(|asked| Reply::page(&asked.target));
    let mut crawler = Crawler::builder(server.config())
        .build()
        .expect("a crawler");
    submit(&mut crawler, 1, 0);
    let mut taken = Vec::new();
    while let Some(page) = crawler.next_result() {
        assert_eq!(page.status, Some(200), "{:?}", page.failure);
        assert_eq!(page.body, format!("/{}", taken.len()).as_bytes());
        taken.push(number(&page));
        // The last result was taken: only a new request keeps the crawl from ending.
        if taken.len() < 20 {
            submit(&mut crawler, 1, taken.len() as u32);
        }
    }
    assert_eq!(taken, (0..20).collect::<Vec<_>>());
    assert_eq!(
        crawler.progress().finish_reason,
        Some(FinishReason::Finished)
    );
    assert!(crawler.next_result().is_none(), "it stays over");
}

#[test]
fn a_sitemap_that_was_submitted_is_a_result() {
    let server = Server::start(|asked| {
        Reply::page(match asked.target.as_str() {
            "/index.xml" => {
                "<sitemapindex><sitemap><loc>http://1.test/map.xml</loc></sitemap></sitemapindex>"
            }
            "/map.xml" => "<urlset><url><loc>http://1.test/page</loc></url></urlset>",
            _ => "a page",
        })
    });
    let mut crawler = Crawler::builder(server.config())
        .build()
        .expect("a crawler");
    let line = r#"{"url": "http://1.test/index.xml", "sitemap": 1}"#;
    let request = Request::from_line(line).expect("it is a line");
    let id = crawler
        .submit(request.expect("it has a URL"))
        .expect("it is a URL");
    let results = std::iter::from_fn(|| crawler.next_result());
    let results: Vec<(u64, String)> = results
        .map(|page| (page.root, page.url.to_string()))
        .collect();
    assert_eq!(results.len(), 2, "{results:?}");
    assert_eq!(results[0], (id, "http://1.test/index.xml".to_owned()));
    assert!(results[1].1.ends_with("/page"), "{results:?}");
}

#[test]
fn untaken_results_pause_the_crawl_and_none_is_lost() {
    const IN_FLIGHT: usize = 4;
    let check = |pages: u32, results_max, body: usize, held: usize| {
        let server = Server::start(move |_| Reply::page("x".repeat(body)));
        let config = set(server.config(), "CONCURRENT_REQUESTS", IN_FLIGHT as u64);
        let mut crawler = Crawler::builder(config)
            .results_max(results_max)
            .build()
            .expect("a crawler");
        for page in 0..pages {
            submit(&mut crawler, page, page);
        }
        // Takes no result while requests still arrive.
        let mut since = (0, Clock::now());
        while since.1.elapsed() < Duration::from_millis(300) {
            assert_eq!(crawler.turn(Some(Duration::from_millis(20))), Turn::GoesOn);
            let asked = server.asked().len();
            if asked > since.0 {
                since = (asked, Clock::now());
            }
        }
        let bound = held + IN_FLIGHT;
        assert!((held..=bound).contains(&since.0), "{} of {bound}", since.0);
        assert!(crawler.progress().buffered <= 4 * IN_FLIGHT * body + (1 << 20));
        let results = std::iter::from_fn(|| crawler.next_result());
        let mut taken: Vec<u32> = results
            .map(|page| {
                assert_eq!((page.body.len(), page.truncated), (body, None));
                number(&page)
            })
            .collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..pages).collect::<Vec<_>>());
    };
    check(40, 5, 10, 5);
    // Each body counts twice, raw and decoded.
    check(20, 1000, 1 << 20, 4);
    // No body fits into the bound, and all arrive nevertheless.
    check(8, 1000, 9 << 20, 1);
}

#[test]
fn waiting_for_the_descriptor_alone_misses_no_result() {
    for io in ["epoll", "uring"] {
        for (results_max, takes_first) in [(1, false), (1, true), (256, false), (256, true)] {
            let server = Server::start(|_| Reply::page("a page"));
            let config = set(server.config(), "IO", io);
            let mut crawler = Crawler::builder(config)
                .results_max(results_max)
                .build()
                .expect("a crawler");
            if crawler.progress().io.as_str() != io {
                crate::loud::skip(format!("there is no {io} here"));
                continue;
            }
            for page in 0..50 {
                submit(&mut crawler, page % 5, page);
            }
            let mut taken = Vec::new();
            let mut take = |crawler: &mut Crawler| {
                while let Some(page) = crawler.try_next_result() {
                    taken.push(number(&page));
                }
            };
            let mut turns = 0;
            let began = Clock::now();
            loop {
                if takes_first {
                    take(&mut crawler);
                }
                let turn = crawler.turn(Some(Duration::ZERO));
                turns += 1;
                if !takes_first {
                    take(&mut crawler);
                }
                if turn != Turn::GoesOn {
                    break;
                }
                let mut fds = [PollFd::new(&crawler, PollFlags::IN)];
                let patience = PATIENCE.try_into().expect("it fits");
                let ready = poll(&mut fds, Some(&patience)).expect("poll works");
                assert_eq!(ready, 1, "{io}, {results_max}, {takes_first}: it sleeps");
            }
            // A crawl that polled for room would be slower.
            assert!(began.elapsed() < PATIENCE);
            take(&mut crawler);
            taken.sort_unstable();
            assert_eq!(taken, (0..50).collect::<Vec<_>>());
            assert!(turns < 1500, "{io}: a host is kept busy: {turns}");
        }
    }
}

/// Whether the descriptor is readable at this moment.
fn is_readable(crawler: &Crawler) -> bool {
    let mut fds = [PollFd::new(crawler, PollFlags::IN)];
    let now = Duration::ZERO.try_into().expect("it fits");
    poll(&mut fds, Some(&now)).expect("poll works") == 1
}

#[test]
fn the_descriptor_is_readable_for_results_only_while_they_are_queued() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|asked| match asked.target.as_str() {
            "/0" => Reply::page("at once"),
            _ => Reply::page("later than this test takes").after(PATIENCE),
        });
        let config = set(server.config(), "IO", io);
        let mut crawler = Crawler::builder(config).build().expect("a crawler");
        submit(&mut crawler, 0, 0);
        submit(&mut crawler, 1, 1);
        loop {
            assert_eq!(crawler.turn(Some(Duration::ZERO)), Turn::GoesOn);
            let readable = is_readable(&crawler);
            if crawler.try_next_result().is_some() {
                assert!(readable, "{io}");
                break;
            }
        }
        // An io_uring with completions is readable until they are read.
        let mut looks = 0;
        while is_readable(&crawler) {
            crawler.turn(Some(Duration::ZERO));
            assert!(crawler.try_next_result().is_none());
            looks += 1;
        }
        let bound = if io == "uring" { 2 } else { 0 };
        assert!(looks <= bound, "{io}: {looks}");
    }
}

#[test]
fn results_are_dropped_by_run_and_not_queued_with_a_sink() {
    let server = Server::start(|_| Reply::page("a page"));
    let pages = Shared::new(0);
    let count = pages.clone();
    let mut without = Crawler::builder(server.config())
        .results_max(2)
        .build()
        .expect("a crawler");
    let mut with = Crawler::builder(server.config())
        .sink(move |_: Page| *count.borrow_mut() += 1)
        .build()
        .expect("a crawler");
    for page in 0..10 {
        submit(&mut without, 1, page);
        submit(&mut with, 1, page);
    }
    assert!(without.next_result().is_some());
    assert_eq!(without.run(), FinishReason::Finished);
    assert!(without.next_result().is_none());
    assert_eq!(without.stats().pages, 10);
    assert!(with.try_next_result().is_none());
    assert!(with.next_result().is_none());
    assert_eq!(pages.get(), 10);
}
