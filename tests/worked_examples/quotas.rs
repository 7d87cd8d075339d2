//! Quotas: expected cost, actual cost, and the remaining units reported by the server.

use std::time::Duration;

use argiope::serde_json::{Value, json};
use argiope::{Answer, Classify, Config, Crawler, Feedback, Page, Request, Signal};

use crate::cost_cap::{ActualCost, COST, Priced, cap};
use crate::loopback::{Asked, Reply, Server};
use crate::{assert_apart, crawl, crawl_under, get, millis, set};

const API: &str = "api.toscrape.com";

/// A quota and a window of a second, one request at a time.
fn quota(server: &Server, units: f64) -> Config {
    let scopes = json!({COST: {"quota": units, "window": 1.0}});
    set(server.config(), "THROTTLING_SCOPES", scopes)
}

/// Requests to the API, priced as the example does: 2 each.
fn priced(config: Config, count: usize) -> Vec<Page> {
    let builder = Crawler::builder(config)
        .scope_map(Priced)
        .classify(ActualCost);
    crawl(
        builder,
        (0..count).map(|number| get(format!("http://{API}/{number}"))),
    )
}

/// How many arrived within this time of the first.
fn within(asked: &[Asked], time: Duration) -> usize {
    let until = asked[0].at + time;
    asked.iter().filter(|asked| asked.at < until).count()
}

#[test]
fn f61_a_request_that_would_cost_too_much_waits_for_the_next_window() {
    let server = Server::start(|_| Reply::page("a page"));
    let requests =
        (0..4).map(|number| get(format!("http://a.test/{number}")).scope_cost(COST, 3.0));
    crawl_under(quota(&server, 10.0), requests);
    let asked = server.asked();
    assert_apart(&asked[0], &asked[3], millis(1000));
    assert!(asked[2].at < asked[0].at + millis(900), "three fit");
}

#[test]
fn f62_the_actual_cost_replaces_the_estimate() {
    // Of the estimate, 2 each, five would fit into 10.
    let check = |cost: Option<&'static str>, expected: usize| {
        let server = Server::start(move |_| match cost {
            Some(units) => Reply::page("a page").field("X-Actual-Cost", units),
            None => Reply::page("a page"),
        });
        priced(quota(&server, 10.0), 8);
        let asked = server.asked();
        assert_eq!(
            within(&asked, millis(1000) - crate::LATE),
            expected,
            "{cost:?}"
        );
        assert_eq!(asked.len(), 8);
    };
    check(Some("2.5"), 4);
    check(Some("1.5"), 6);
    check(None, 5);
    check(Some("dear"), 5);
    check(Some("-3"), 5);
}

#[test]
fn f63_spending_is_limited_to_what_the_server_reports_as_remaining() {
    struct Remaining;
    impl Classify for Remaining {
        fn classify(&self, answer: &Answer<'_>) -> Signal {
            let signal = Signal::from_answer(answer);
            let units = answer.headers.get("X-Remaining");
            match units.and_then(|value| str::from_utf8(value).ok()?.parse().ok()) {
                Some(units) => signal.feedback(Feedback::new(COST).remaining(units)),
                None => signal,
            }
        }
    }
    let server = Server::start(|asked| match asked.target.as_str() {
        "/0" => Reply::page("a page").field("X-Remaining", "3"),
        _ => Reply::page("a page"),
    });
    let requests =
        (0..8).map(|number| get(format!("http://a.test/{number}")).scope_cost(COST, 1.0));
    // One at a time: the second waits for what is said to the first.
    let requests = requests.map(|request| request.scope("a.test"));
    crawl(
        Crawler::builder(quota(&server, 10.0)).classify(Remaining),
        requests,
    );
    assert_eq!(within(&server.asked(), millis(1000) - crate::LATE), 4);
}

#[test]
fn f64_the_servers_ledger_exceeds_the_cap_at_most_by_requests_in_flight() {
    const IN_FLIGHT: usize = 4;
    const WINDOW: Duration = millis(300);
    // From 30 % below the estimate of 10 to as much above it.
    fn cost(target: &str) -> f64 {
        let number: usize = target[1..]
            .split('?')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        [13.0, 12.5, 7.0, 13.0, 12.5, 13.0, 13.0][number % 7]
    }
    let server = Server::start(|asked| {
        let reply = Reply::page("a page").after(millis(5));
        reply.field("X-Actual-Cost", cost(&asked.target))
    });
    let config = cap(server.config()).expect("settings");
    let mut scopes = Value::from(config.get("THROTTLING_SCOPES").expect("a setting"));
    scopes[COST]["window"] = json!(WINDOW.as_secs_f64());
    scopes[API]["concurrency"] = json!(IN_FLIGHT);
    let config = config.with("THROTTLING_SCOPES", scopes).expect("scopes");
    let builder = Crawler::builder(config)
        .scope_map(Priced)
        .classify(ActualCost);
    crawl(
        builder,
        (0..100).map(|number| get(format!("http://{API}/{number}?browser=1"))),
    );
    let asked = server.asked();
    // Windows lie behind each other and begin with a departure: after so many, so much at most.
    let most = 100.0 + 3.0 * IN_FLIGHT as f64;
    let mut spent = 0.0;
    for asked_now in &asked {
        spent += cost(&asked_now.target);
        let passed = asked_now.at - asked[0].at + crate::LATE;
        let windows = 1 + passed.as_nanos() / WINDOW.as_nanos();
        assert!(
            spent <= most * windows as f64,
            "{spent} in {windows} windows"
        );
    }
    assert!(asked[99].at - asked[0].at + crate::LATE >= WINDOW * 10);
    assert!(within(&asked, WINDOW) >= 8, "the quota is used");
}

#[test]
fn f65_an_oversize_cost_is_sent_alone_or_refused() {
    let requests = || {
        let small =
            (0..4).map(|number| get(format!("http://a.test/{number}")).scope_cost(COST, 1.0));
        let big = get("http://b.test/big").scope_cost(COST, 999.0);
        small
            .take(2)
            .chain([big])
            .chain(
                (2..4).map(|number| get(format!("http://a.test/{number}")).scope_cost(COST, 1.0)),
            )
            .collect::<Vec<Request>>()
    };
    let is_big = |asked: &Asked| asked.target == "/big";

    let server = Server::start(|_| Reply::page("a page"));
    crawl_under(quota(&server, 10.0), requests());
    let asked = server.asked();
    assert_eq!(asked.len(), 5);
    let big = server.asked_of(is_big).remove(0);
    for other in asked.iter().filter(|asked| !is_big(asked)) {
        assert!(other.at < big.at || other.at + crate::LATE >= big.at + millis(1000));
    }
    if asked[0].target != "/big" {
        assert_apart(&asked[0], &big, millis(1000));
    }

    let server = Server::start(|_| Reply::page("a page"));
    let config = set(quota(&server, 10.0), "QUOTA_OVERSIZE", "refuse");
    let pages = crawl_under(config, requests());
    assert_eq!(server.asked().len(), 4);
    assert!(server.asked_of(is_big).is_empty());
    let unsent = pages.iter().filter(|page| page.timings.sent.is_none());
    assert_eq!(
        unsent.map(|page| &*page.url).collect::<Vec<_>>(),
        ["http://b.test/big"]
    );
}
