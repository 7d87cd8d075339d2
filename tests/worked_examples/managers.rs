//! Strategies and managers selected by the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use argiope::serde_json::{Map, Value, json};
use argiope::settings::ScopeSettings;
use argiope::{
    Answer, Builder, ByHost, Classify, Config, Crawler, Instant, Observation, Pace, ScopeMap,
    ScopeQuery, Signal, Strategy,
};

use crate::api_retry_policy::with_policy;
use crate::loopback::{Reply, Server};
use crate::{assert_apart, crawl, crawl_under, get, millis, scopes_of, set};

#[test]
fn f70_fixed_window_allows_its_requests_per_window() {
    let check = |config: &dyn Fn(Config) -> Config| {
        let server = Server::start(|_| Reply::page("a page"));
        crawl_under(
            config(server.config()),
            (0..7).map(|n| get(format!("http://a.test/{n}"))),
        );
        let asked = server.asked();
        assert_apart(&asked[0], &asked[3], millis(600));
        assert_apart(&asked[3], &asked[6], millis(600));
        assert!(asked[2].at < asked[0].at + millis(500), "three at once");
    };
    let manager = json!({"name": "fixed_window", "requests": 3, "window": 0.6});
    check(&|config| {
        set(
            config,
            "THROTTLING_SCOPES",
            json!({"a.test": {"manager": manager}}),
        )
    });
    check(&|config| set(config, "THROTTLING_SCOPE_MANAGER", manager.clone()));
}

/// Counts its calls.
struct Counting(Arc<AtomicUsize>);

impl ScopeMap for Counting {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        query.add("counted");
        ByHost.scopes(query);
    }
}

impl Classify for Counting {
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        self.0.fetch_add(100, Ordering::SeqCst);
        Signal::from_answer(answer)
    }
}

impl Strategy for Counting {
    fn start(&mut self, settings: &ScopeSettings) -> Pace {
        self.0.fetch_add(10_000, Ordering::SeqCst);
        Pace {
            delay: settings.delay,
            concurrency: 1,
        }
    }

    fn answer(&mut self, _: &ScopeSettings, pace: Pace, _: &Observation<'_>, _: Instant) -> Pace {
        self.0.fetch_add(1_000_000, Ordering::SeqCst);
        pace
    }
}

fn counting(builder: Builder, count: &Arc<AtomicUsize>) -> Builder {
    let map = Counting(Arc::clone(count));
    let classify = Counting(Arc::clone(count));
    let strategy = Arc::clone(count);
    builder
        .named_manager("counting", map, classify)
        .named_strategy("counting", move |_: &str, _: Map<String, Value>| {
            Ok(Box::new(Counting(Arc::clone(&strategy))))
        })
}

#[test]
fn f70_manager_and_strategy_are_selected_by_name() {
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "THROTTLING_MANAGER", "counting");
    let scopes = json!({"b.test": {"manager": "counting"}});
    let config = set(config, "THROTTLING_SCOPES", scopes);
    let count = Arc::new(AtomicUsize::new(0));
    let hosts = ["a.test", "b.test"].into_iter();
    let urls = hosts.flat_map(|host| (0..3).map(move |n| get(format!("http://{host}/{n}"))));
    let pages = crawl(counting(Crawler::builder(config), &count), urls);
    // Six requests are mapped and answered; one scope has the strategy, which gets its three.
    assert_eq!(count.load(Ordering::SeqCst), 3_010_606);
    assert!(
        pages
            .iter()
            .all(|page| scopes_of(page).contains(&"counted"))
    );
}

#[test]
fn f70_a_default_strategy_is_created_once_per_scope() {
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "THROTTLING_SCOPE_MANAGER", "counting");
    let count = Arc::new(AtomicUsize::new(0));
    let urls = (0..5).map(|n| get(format!("http://h{n}.test/")));
    crawl(counting(Crawler::builder(config), &count), urls);
    let (answers, started) = (5 * 1_000_000, 5 * 10_000);
    let made = count.load(Ordering::SeqCst);
    assert_eq!(made - answers, started, "{made}");
}

#[test]
fn f70_build_rejects_an_unknown_strategy() {
    let check = |setting: &str, value: Value, parts: &[&str]| {
        let config = set(Config::default(), setting, value);
        let builder = with_policy(Crawler::builder(config));
        let error = builder.build().expect_err("it is refused").to_string();
        for part in parts.iter().chain(&[setting]) {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    };
    check("THROTTLING_MANAGER", json!("nobody"), &["nobody"]);
    check(
        "THROTTLING_SCOPE_MANAGER",
        json!("nobody"),
        &["nobody", "fixed_window", "patient"],
    );
    let of = |manager: Value| json!({"a.test": {"manager": manager}});
    check(
        "THROTTLING_SCOPES",
        of(json!("nobody")),
        &["a.test", "nobody"],
    );
    let window = json!({"name": "fixed_window", "requests": 3});
    check(
        "THROTTLING_SCOPES",
        of(window),
        &["a.test", "fixed_window", "window"],
    );
    let patient = json!({"name": "patient", "first": 2.0, "most": 1.0});
    check(
        "THROTTLING_SCOPES",
        of(patient),
        &["a.test", "patient", "longer"],
    );
    let patient = json!({"name": "patient", "first": 1.0, "most": 2.0, "last": 3.0});
    check(
        "THROTTLING_SCOPES",
        of(patient),
        &["a.test", "patient", "last"],
    );
}
