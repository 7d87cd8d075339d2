//! Crawl-delay: when it applies, its maximum, and other rules of a scope.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::crawl::Plan;
use super::policy::page_of;
use super::web::{PoliteWeb, address, rules};

const SITE: &str = "one.test";

/// Crawls ten pages of a host whose robots.txt asks for this gap; the gaps between the pages in
/// seconds, and how many were in flight at most.
fn crawl(asked: f64, settings: &[(&'static str, Value)]) -> (Vec<f64>, usize) {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    let site = web.site(SITE, address(1));
    let asks = rules(Duration::from_secs_f64(asked)).after_ms(300);
    site.path("/robots.txt", [asks])
        .mood(Arc::new(|visit| Some(page_of(visit.path).after_ms(200))));
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0.05)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false);
    plan.settings.extend_from_slice(settings);
    plan.seeds = (0..10).map(|n| format!("http://{SITE}/{n}")).collect();
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    let moments: Vec<_> = web
        .visits(SITE)
        .filter(|a| a.path != "/robots.txt")
        .collect();
    assert_eq!(moments.len(), 10);
    let gaps = moments.windows(2);
    let gaps = gaps.map(|pair| pair[1].at.saturating_since(pair[0].at).as_secs_f64());
    (gaps.collect(), web.hosts[SITE].peak)
}

/// All gaps are this long, and so many are in flight at most.
fn check(asked: f64, settings: &[(&'static str, Value)], gap: f64, peak: usize) {
    let (gaps, seen) = crawl(asked, settings);
    assert!(
        gaps.iter()
            .all(|seen| (gap - 1e-6..gap + 0.01).contains(seen))
            && seen == peak,
        "{gaps:?}, {seen} at once under {settings:?}"
    );
}

#[test]
fn f51_a_crawl_delay_is_the_gap_with_one_request_in_flight() {
    check(0.3, &[], 0.3, 1);
    // Never faster than the user said.
    check(0.3, &[("DOWNLOAD_DELAY", json!(0.5))], 0.5, 1);
}

#[test]
fn f51_jitter_only_lengthens_a_crawl_delay() {
    let (gaps, _) = crawl(0.3, &[("RANDOMIZE_DOWNLOAD_DELAY", json!(0.5))]);
    assert!(gaps.iter().all(|gap| *gap >= 0.299_999), "{gaps:?}");
}

#[test]
fn f52_a_crawl_delay_is_capped() {
    let most = ("THROTTLING_ROBOTSTXT_MAX_DELAY", json!(0.5));
    check(9999.0, &[most], 0.5, 1);
}

#[test]
fn f53_crawl_delay_needs_both_settings() {
    for (obey, heed) in [(true, true), (true, false), (false, true), (false, false)] {
        let settings = [
            ("ROBOTSTXT_OBEY", json!(obey)),
            ("THROTTLING_ROBOTSTXT_OBEY", json!(heed)),
        ];
        let (gap, peak) = if obey && heed { (0.6, 1) } else { (0.05, 5) };
        let (gaps, seen) = crawl(0.6, &settings);
        let kept = gaps.iter().all(|gap| *gap >= 0.599);
        assert_eq!(kept, obey && heed, "{gaps:?} of {gap} under {settings:?}");
        assert!(seen <= peak, "{seen} at once under {settings:?}");
    }
}

#[test]
fn f54_a_scopes_own_delay_replaces_the_crawl_delay() {
    for own in [
        json!({ SITE: {"delay": 0.25, "concurrency": 1} }),
        json!({ SITE: {"delay": 0.25, "concurrency": 1, "ignore_robots_txt": true} }),
    ] {
        check(1.0, &[("THROTTLING_SCOPES", own)], 0.25, 1);
    }
}

#[test]
fn f54_a_scopes_own_concurrency_keeps_the_crawl_delay() {
    for own in [
        json!({ SITE: {"concurrency": 8} }),
        json!({ SITE: {"concurrency": 8, "ignore_robots_txt": true} }),
    ] {
        // Pages take longer than the gap.
        let (gaps, peak) = crawl(0.1, &[("THROTTLING_SCOPES", own)]);
        assert!(gaps.iter().all(|gap| *gap >= 0.099_999), "{gaps:?}");
        assert_eq!(peak, 2);
    }
}

#[test]
fn f55_robots_txt_cannot_deadlock_a_host_with_one_slot() {
    let one = [
        ("CONCURRENT_REQUESTS_PER_DOMAIN", json!(1)),
        ("CONCURRENT_REQUESTS", json!(1)),
    ];
    let (gaps, peak) = crawl(0.0, &one);
    assert_eq!(peak, 1);
    assert!(gaps.iter().all(|gap| *gap < 0.3), "{gaps:?}");
}

#[test]
fn f51_hosts_that_share_a_scope_keep_their_own_crawl_delays() {
    let mut web = PoliteWeb::default();
    web.round_trip = Duration::from_millis(10);
    let mut plan = Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set("SCOPE_MAP", json!(["domain"]));
    for (number, (name, asked)) in [("a.one.test", 2), ("b.one.test", 0)].iter().enumerate() {
        let site = web.site(name, address(1 + number as u16));
        site.rules(Duration::from_secs(*asked));
        for page in 0..5 {
            site.page(&format!("/{page}"), &[]);
            plan.seeds.push(format!("http://{name}/{page}"));
        }
    }
    let web = web.shared();
    // The web itself checks the gap of the one; the other need not wait for it.
    plan.run(&web);
    let moments = web.borrow().moments("b.one.test");
    let took = moments[5].saturating_since(moments[0]);
    assert!(took < Duration::from_secs(1), "{took:?}");
}
