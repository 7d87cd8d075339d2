//! Hosts with large robots.txt files and with endless sitemaps, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crawl::Crawler;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{SinkRecord, crawl_web, finish, turn};
use crate::crawl::finish::FinishReason;
use crate::frontier::filter::Filtered;
use crate::frontier::request::PageKind;
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::Sim;
use crate::io::sim::web::{Asked, Reply, Web};

const HOSTS: usize = 40;

fn count(web: &Web, target: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for asked in web.asked().iter().filter(|asked| asked.target == target) {
        *counts.entry(asked.address.to_string()).or_default() += 1;
    }
    counts
}

/// Crawls a host and its sitemaps to the end, at one request per second.
fn crawl_sitemaps(web: &Web, edit: impl FnOnce(&mut Config)) -> (Crawler<Sim>, SinkRecord) {
    let (mut crawler, record) = crawl_web(web, |config, _| {
        config.frontier.follow = Follow::Host;
        config.frontier.robots_obey = true;
        config.frontier.sitemaps = true;
        config.throttle.default.delay = Duration::from_secs(1);
        edit(config);
    });
    crawler
        .submit(Request::get("http://10.0.0.1/"))
        .expect("a seed");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    (crawler, record)
}

/// Number of requested sitemaps below `/s/`.
fn sitemaps_asked(web: &Web) -> usize {
    let asked = web.asked();
    let sitemaps = asked.iter().filter(|asked| asked.target.starts_with("/s/"));
    sitemaps.count()
}

#[test]
fn rules_of_many_hosts_stay_within_their_bound_and_are_fetched_again_when_needed() {
    let rules = format!(
        "User-agent: *\nDisallow: /no\n{}",
        "Disallow: /something/else\n".repeat(2_000)
    );
    let web = Web::new(move |asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => Reply::text(rules.as_str()),
        _ => Reply::page("a page"),
    });
    let (mut crawler, record) = crawl_web(&web, |config, _| {
        config.frontier.robots_obey = true;
        config.frontier.robots_memory = 200 << 10;
        config.throttle.default.delay = Duration::from_secs(1);
    });
    for page in 0..4 {
        for host in 1..=HOSTS {
            for path in ["yes", "no"] {
                let url = format!("http://10.0.0.{host}/{path}{page}");
                crawler.submit(Request::get(url)).expect("a seed");
            }
        }
    }
    let mut most = 0;
    while turn(&mut crawler, Some(Duration::from_secs(3600))) == crate::crawl::Turn::GoesOn {
        most = most.max(crawler.core.frontier.rules_bytes());
    }
    assert!(most > 100 << 10, "the bound was never near: {most}");
    assert!(most <= 200 << 10, "{most} bytes of rules");
    let pages = record.pages.borrow();
    let ends = |status: Option<u16>| {
        pages
            .iter()
            .filter(|page| page.kind == PageKind::Page && page.status == status)
            .count()
    };
    assert_eq!((ends(Some(200)), ends(None)), (4 * HOSTS, 4 * HOSTS));
    let fetched: usize = count(&web, "/robots.txt").values().sum();
    assert!(
        fetched > HOSTS,
        "some were given up and fetched again: {fetched}"
    );
    assert!(
        fetched <= 9 * HOSTS,
        "each fetch brings its lane on: {fetched}"
    );
}

#[test]
fn an_endless_sitemap_index_ends_and_does_not_starve_pages() {
    let web = Web::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => {
            Reply::text("User-agent: *\nDisallow: /secret\nSitemap: /s/0\nSitemap: /secret.xml\n")
        }
        target if target.starts_with("/s/") => {
            let more: String = (0..40)
                .map(|n| format!("<sitemap><loc>{target}/{n}</loc></sitemap>"))
                .collect();
            Reply::status(200)
                .field("Content-Type", "application/xml")
                .body(format!("<sitemapindex>{more}</sitemapindex>"))
        }
        "/" => Reply::page(
            (0..50)
                .map(|n| format!("<a href=/{n}>"))
                .collect::<String>(),
        ),
        _ => Reply::page("a page"),
    });
    let (crawler, record) = crawl_sitemaps(&web, |config| {
        config.frontier.sitemaps_per_host_max = 100;
        config.frontier.path_repeat_limit = 100;
    });
    let asked = web.asked();
    let place = |target: &str| asked.iter().position(|asked| asked.target == target);
    assert!(
        place("/").expect("the seed") <= 3,
        "the seed waits for one sitemap at most"
    );
    assert!(
        place("/49").expect("the last link") <= 110,
        "pages and sitemaps take turns"
    );
    assert_eq!(place("/secret.xml"), None, "robots.txt forbids it");
    let sitemaps = sitemaps_asked(&web);
    assert_eq!(sitemaps, 99, "one of a hundred was forbidden");
    let filtered = crawler.core.frontier.filtered();
    assert!(filtered[&Filtered::HostSitemaps] > 0);
    let pages = record.pages.borrow();
    let secret = pages
        .iter()
        .find(|page| page.url.ends_with("/secret.xml"))
        .expect("its line");
    let failure = secret.failure.as_ref().expect("it was not sent");
    assert_eq!(
        (secret.kind, failure.name),
        (PageKind::Sitemap, "disallowed")
    );
}

#[test]
fn sitemaps_are_followed_as_deep_as_allowed_and_no_deeper_than_the_pages_of_a_host() {
    let web = || {
        Web::new(|asked: &Asked| match asked.target.as_str() {
            "/robots.txt" => Reply::text("Sitemap: /s/1\n"),
            target if target.starts_with("/s/") => {
                let number: u32 = target[3..].parse().expect("a number");
                Reply::status(200).field("Content-Type", "application/xml").body(format!(
                    "<x><sitemap><loc>/s/{}</loc></sitemap><url><loc>/page{number}</loc></url></x>",
                    number + 1
                ))
            }
            _ => Reply::page("a page"),
        })
    };
    for (depth, pages_max, expected) in [(3, 0, 3), (1, 0, 1), (0, 3, 4)] {
        let web = web();
        let (crawler, _) = crawl_sitemaps(&web, |config| {
            config.frontier.sitemap_depth_limit = depth;
            config.frontier.pages_per_host_max = pages_max;
        });
        let sitemaps = sitemaps_asked(&web);
        assert!(
            sitemaps <= expected && sitemaps + 1 >= expected,
            "{depth}: {sitemaps} sitemaps"
        );
        if depth > 0 {
            assert_eq!(sitemaps, expected);
            let deeper = crawler.core.frontier.filtered()[&Filtered::SitemapDepth];
            assert_eq!(deeper, 1);
        }
    }
}
