//! Scopes shared by requests: hierarchies, addresses, domains, own scopes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use argiope::FinishReason;
use argiope::base::time::Instant;
use argiope::frontier::request::Request;
use serde_json::json;

use super::crawl::Plan;
use super::policy::pages;
use super::web::{PoliteWeb, Reply, Step, address};

/// A host whose pages take this long, and so many of them.
fn host(web: &mut PoliteWeb, name: &str, number: u16, count: usize, think: u64) -> Vec<String> {
    let think = Duration::from_millis(think);
    web.site(name, address(number)).mood(pages(think));
    (0..count).map(|n| format!("http://{name}/{n}")).collect()
}

fn plan() -> Plan {
    Plan::new(&[])
        .set("DOWNLOAD_DELAY", 0)
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("ROBOTSTXT_OBEY", false)
}

fn web() -> PoliteWeb {
    let mut web = PoliteWeb::default();
    web.promise.obeys_robots = false;
    web.round_trip = Duration::from_millis(10);
    web
}

/// The moments at which any of these was asked, in order.
fn moments(web: &PoliteWeb, belongs: impl Fn(&str) -> bool) -> Vec<Instant> {
    let all = web.arrivals.iter();
    all.filter(|a| belongs(&a.host)).map(|a| a.at).collect()
}

fn least_gap(moments: &[Instant]) -> Duration {
    let gaps = moments.windows(2);
    let gaps = gaps.map(|pair| pair[1].saturating_since(pair[0]));
    gaps.min().expect("two moments have a gap")
}

#[test]
fn f23_a_domain_bounds_the_sum_of_its_hosts_and_is_fully_used() {
    let mut web = web();
    let mut plan = plan().set("SCOPE_MAP", json!(["hierarchy"])).set(
        "THROTTLING_SCOPES",
        json!({
            "one.test": {"concurrency": 32},
            "books.one.test": {"concurrency": 24},
            "quotes.one.test": {"concurrency": 16},
        }),
    );
    for (number, name) in ["books.one.test", "quotes.one.test"].iter().enumerate() {
        let urls = host(&mut web, name, 1 + number as u16, 200, 1000);
        plan.seeds.extend(urls);
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    assert!(web.hosts["books.one.test"].peak <= 24);
    assert_eq!(web.hosts["quotes.one.test"].peak, 16);
    assert_eq!(web.all.peak, 32);
}

#[test]
fn f28_a_request_of_three_busy_scopes_has_its_turn() {
    let mut web = web();
    let mut plan = plan().set("SCOPE_MAP", json!(["hierarchy"]));
    for (number, name) in ["one.test", "b.one.test"].iter().enumerate() {
        let urls = host(&mut web, name, 1 + number as u16, 200, 100);
        plan.seeds.extend(urls);
    }
    let urls = host(&mut web, "a.b.one.test", 3, 1, 100);
    plan.seeds.extend(urls);
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    let waited = web.moments("a.b.one.test")[0].as_nanos() as f64 / 1e9;
    // A turn in the line of each of its three scopes, in which each of the others has one: pages of
    // 100 ms, and a round trip.
    let fair = 3.0 * 2.0 * 0.12;
    assert!(waited < 1.2 * fair, "{waited} s, a fair share is {fair} s");
    assert_eq!(web.all.peak, 1);
}

#[test]
fn f29_an_address_scope_has_its_own_pace() {
    let mut web = web();
    let mut plan = plan()
        .set("SCOPE_MAP", json!(["host", "ip"]))
        .set("CONCURRENT_REQUESTS_PER_DOMAIN", 8)
        .set(
            "ADDRESS_SCOPE_DEFAULTS",
            json!({"concurrency": 2, "delay": 0.1}),
        );
    web.promise.per_address = 2;
    for name in 0..10 {
        let urls = host(&mut web, &format!("name{name}.test"), 9, 5, 150);
        plan.seeds.extend(urls);
    }
    let urls = host(&mut web, "elsewhere.test", 8, 5, 150);
    plan.seeds.extend(urls);
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    assert_eq!(web.addresses[&address(9)].peak, 2);
    let shared = moments(&web, |host| host.starts_with("name"));
    assert_eq!(shared.len(), 50);
    assert!(least_gap(&shared) >= Duration::from_micros(99_998));
    let took = shared[49].saturating_since(shared[0]);
    assert!(took < Duration::from_millis(5000), "{took:?}");
}

/// Six domains with eight hosts each, all behind one address, and one domain by itself.
#[test]
fn the_broad_preset_bounds_domains_and_addresses() {
    let mut web = web();
    web.promise.per_address = 16;
    web.promise.per_host = 1;
    web.promise.gap_min = Duration::from_secs(1);
    let mut plan = Plan::new(&[])
        .set("RANDOMIZE_DOWNLOAD_DELAY", false)
        .set("ROBOTSTXT_OBEY", false);
    plan.preset = Some("broad");
    let domain = |host: &str| {
        host.split_once('.')
            .expect("hosts have domains")
            .1
            .to_owned()
    };
    for number in 0..6 {
        for sub in 0..8 {
            let name = format!("h{sub}.shared{number}.test");
            plan.seeds.extend(host(&mut web, &name, 1, 5, 700));
        }
    }
    for sub in 0..8 {
        let name = format!("h{sub}.alone.test");
        plan.seeds.extend(host(&mut web, &name, 2, 5, 1500));
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    let mut by_domain: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    for arrival in &web.arrivals {
        let moments = by_domain.entry(domain(&arrival.host)).or_default();
        moments.push(arrival.at);
    }
    for (domain, moments) in &by_domain {
        assert_eq!(moments.len(), 40);
        let gap = least_gap(moments);
        assert!(gap >= Duration::from_micros(249_998), "{gap:?} at {domain}");
        // No more than four at once: the fifth comes when the first is over.
        let think = if domain == "alone.test" { 1500 } else { 700 };
        for five in moments.windows(5) {
            let span = five[4].saturating_since(five[0]);
            assert!(span >= Duration::from_millis(think), "{span:?} at {domain}");
        }
    }
    let shared = moments(&web, |host| host.contains("shared"));
    assert!(least_gap(&shared) >= Duration::from_micros(49_998));
    // The address is used up: twenty a second while all of them have something.
    let took = shared[199].saturating_since(shared[0]).as_secs_f64();
    assert!(took < 200.0 * 0.05 * 1.1, "{took} s");
}

#[test]
fn f19_a_redirect_has_the_scopes_of_its_target_unless_set_by_the_caller() {
    for own in [false, true] {
        let mut web = web();
        let mut plan = plan().set(
            "THROTTLING_SCOPES",
            json!({"b.test": {"delay": 0.5}, "api": {"delay": 0.2}}),
        );
        web.site("a.test", address(1)).mood(Arc::new(|visit| {
            let to = format!("http://b.test{}", visit.path);
            Some(Step::new(Reply::Redirect(302, to)))
        }));
        host(&mut web, "b.test", 2, 0, 20);
        for page in 0..6 {
            let request = Request::get(format!("http://a.test/{page}"));
            plan.requests.push(match own {
                true => request.scope("api"),
                false => request,
            });
        }
        let web = web.shared();
        plan.run(&web);
        let web = web.borrow();
        let gap = |moments: &[Instant]| least_gap(moments).as_secs_f64();
        let there = gap(&web.moments("b.test"));
        let all = gap(&moments(&web, |_| true));
        if own {
            assert!(all > 0.199 && there < 0.45, "{all} in all, {there} there");
        } else {
            assert!(all < 0.1 && there > 0.499, "{all} in all, {there} there");
        }
    }
}

#[test]
fn f112_connections_are_used_again() {
    let mut web = web();
    let mut plan = plan().set("CONCURRENT_REQUESTS_PER_DOMAIN", 4);
    for number in 1..=10 {
        let urls = host(&mut web, &format!("host{number}.test"), number, 50, 20);
        plan.seeds.extend(urls);
    }
    let web = web.shared();
    plan.run(&web);
    let web = web.borrow();
    for number in 1..=10 {
        let calls = web.calls.iter().filter(|(_, to)| *to == address(number));
        let calls = calls.count();
        assert!(calls <= 4, "{calls} connections to host {number}");
    }
    assert_eq!(web.arrivals.len(), 500);
}

#[test]
fn f29_scopes_that_only_look_like_an_address_stay_with_their_request() {
    for by_request in [true, false] {
        let mut web = web();
        let urls = host(&mut web, "ip", 1, 4, 10);
        let map = match by_request {
            true => json!("host"),
            false => json!(["endpoint", "ip"]),
        };
        let plan = plan()
            .set("CONCURRENT_REQUESTS_PER_IP", 2)
            .set("SCOPE_MAP", map);
        let mut run = plan.begin(&web.shared());
        for url in &urls {
            let request = Request::get(url.as_str());
            let request = match by_request {
                true => request.scope("ip/9.9.9.9"),
                false => request,
            };
            run.crawler.submit(request).expect("it is a URL");
        }
        assert_eq!(run.finish(), FinishReason::Finished);
        assert_eq!(run.lines().len(), 4);
        run.check_manners();
    }
}
