//! The simulated web of the public API: replies are defined by a function, and requests are recorded.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argiope::base::shared::Shared;
use argiope::sim::{Asked, Reply, Web};
use argiope::{
    Config, Crawler, Epoch, Failure, FinishReason, Handle, MetricsFormat, Page, Request, Sink,
    Turn, WriteError,
};

#[test]
fn the_sink_gets_the_replies_of_the_function() {
    let web = Web::new(|asked| match (&*asked.method, &*asked.target) {
        ("POST", _) => Reply::page(asked.body.clone()),
        ("HEAD", _) => Reply::page("no body goes with this"),
        (_, "/gone") => Reply::status(410).field("Retry-After", 7),
        (_, "/nothing") => Reply::status(204).body("left out"),
        _ => Reply::page("a page"),
    });
    let pages = crawl(
        &web,
        config(),
        [
            Request::get("http://a.test/"),
            Request::get("http://a.test/gone"),
            Request::get("http://a.test/nothing"),
            Request::post("http://a.test/posted", "what was posted"),
            Request::get("http://a.test/head").method("HEAD"),
            Request::get("http://a.test/behind").header("X-Own", "1"),
        ],
    );
    let received: Vec<_> = pages
        .iter()
        .map(|page| {
            (
                page.status.unwrap_or(0),
                str::from_utf8(&page.body).unwrap(),
            )
        })
        .collect();
    assert_eq!(
        received,
        [
            (200, "a page"),
            (410, ""),
            (204, ""),
            (200, "what was posted"),
            (200, ""),
            (200, "a page")
        ]
    );
    assert_eq!(pages[1].headers.get("retry-after"), Some(&b"7"[..]));
    let own = |asked: &Asked| asked.fields.contains(&("X-Own".to_owned(), "1".to_owned()));
    assert_eq!(web.asked().iter().filter(|asked| own(asked)).count(), 1);
}

#[test]
fn latency_is_the_round_trip_plus_the_origins_delay() {
    let (round_trip, thinks) = (Duration::from_millis(80), Duration::from_millis(300));
    let web = Web::new(move |_| Reply::page("a page").after(thinks)).round_trip(round_trip);
    let pages = crawl(&web, config(), [Request::get("http://a.test/")]);
    assert_eq!(pages[0].timings.server_latency(), Some(round_trip + thinks));
    let asked = &web.asked()[0];
    assert_eq!(asked.answered, Some(asked.at + thinks));
    let sent = pages[0].timings.sent.expect("it left");
    assert_eq!(asked.at.saturating_since(sent), round_trip / 2);
}

#[test]
fn every_attempt_has_a_duration() {
    let thinks = Duration::from_millis(300);
    let web = Web::new(move |asked| match &*asked.host {
        "silent.test" => Reply::silence(),
        "cut.test" => Reply::reset().after(thinks),
        _ => Reply::page("a page").after(thinks),
    });
    let config = set(config(), "DOWNLOAD_TIMEOUT", "7s");
    let requests =
        ["silent.test", "cut.test", "a.test"].map(|host| Request::get(format!("http://{host}/")));
    let refused = Request::get("http://127.0.0.1/");
    let pages = crawl(&web, config, requests.into_iter().chain([refused]));
    let page = |host: &str| {
        let of = |page: &&Page| page.url.contains(host);
        pages.iter().find(of).expect("it has its page")
    };
    let took = |host| {
        page(host)
            .ended
            .saturating_since(page(host).timings.started)
    };
    let failure = |host| page(host).failure.as_ref().map(Failure::code);
    let whole = Duration::from_secs(7);
    assert_eq!(failure("silent").as_deref(), Some("timeout.total"));
    assert!(took("silent") >= whole && took("silent") < whole + thinks);
    assert_eq!(failure("cut").as_deref(), Some("reset.reset"));
    assert!(took("cut") > thinks && took("cut") < thinks * 2);
    assert_eq!(
        Some(page("a.test").ended),
        page("a.test").timings.body.map(|body| body.at)
    );
    assert_eq!(
        failure("127").as_deref(),
        Some("blocked_address.not_global")
    );
    assert_eq!(took("127"), Duration::ZERO);
}

#[test]
fn each_name_has_its_own_constant_address() {
    let web = Web::new(|_| Reply::page("a page"));
    let hosts = ["a.test", "b.test", "c.test:8080", "a.test"];
    let urls = hosts.iter().enumerate();
    let urls = urls.map(|(number, host)| Request::get(format!("http://{host}/{number}")));
    crawl(&web, config(), urls);
    let asked = web.asked();
    let of = |host: &str| -> BTreeSet<_> {
        let asked = asked.iter().filter(|asked| asked.host == host);
        asked.map(|asked| asked.address).collect()
    };
    assert_eq!(of("a.test").len(), 1);
    assert_eq!(
        of("c.test:8080").first().expect("it was asked").port(),
        8080
    );
    let all: BTreeSet<_> = asked.iter().map(|asked| asked.address.ip()).collect();
    assert_eq!(all.len(), 3);
}

#[test]
fn origins_can_be_silent_or_reset_and_https_is_refused() {
    let web = Web::new(|asked| match &*asked.target {
        "/silent" => Reply::silence(),
        _ => Reply::reset(),
    });
    let requests = [
        "http://a.test/silent",
        "http://b.test/reset",
        "https://c.test/",
    ];
    let mut pages = crawl(&web, config(), requests.map(Request::get));
    pages.sort_by_key(|page| page.id);
    let failed = |at: usize| {
        let failure = pages[at].failure.as_ref().expect("it failed");
        format!("{}.{}", failure.kind.as_str(), failure.name)
    };
    assert_eq!(failed(0), "timeout.first_byte");
    assert!(failed(1).starts_with("reset."), "{}", failed(1));
    assert_eq!(failed(2), "connect.refused");
}

#[test]
fn a_custom_pace_shows_at_the_origin() {
    let round_trip = Duration::from_millis(40);
    let web = Web::new(|_| Reply::page("a page")).round_trip(round_trip);
    let config = set(config(), "DOWNLOAD_DELAY", "1h");
    let urls = (0..25).map(|number| Request::get(format!("http://a.test/{number}")));
    crawl(&web, config, urls);
    let asked = web.asked();
    for pair in asked.windows(2) {
        let gap = pair[1].at.saturating_since(pair[0].at);
        let hour = Duration::from_secs(3600);
        assert!(gap >= hour && gap < hour + 2 * round_trip, "{gap:?}");
    }
}

/// Crawls these to the end; returns the pages in the order of their end.
fn crawl(web: &Web, config: Config, requests: impl IntoIterator<Item = Request>) -> Vec<Page> {
    let (sender, received) = channel();
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| sender.send(page).expect("the test listens"))
        .build_in(web, 1)
        .expect("settings that can be");
    for request in requests {
        crawler.submit(request).expect("it is a request");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    drop(crawler);
    received.into_iter().collect()
}

fn config() -> Config {
    let config = set(Config::default(), "DOWNLOAD_DELAY", "0");
    let config = set(config, "RANDOMIZE_DOWNLOAD_DELAY", "false");
    let config = set(config, "RETRY_TIMES", "0");
    set(config, "ROBOTSTXT_OBEY", "false")
}

fn set(config: Config, name: &str, value: &str) -> Config {
    config.with(name, value).expect("the setting is sound")
}

/// In the simulation requests that arrive during a turn take no time, so the clock does not end the turn.
#[test]
fn a_turn_without_patience_is_bounded() {
    let web = Web::new(|_| Reply::page("a page"));
    let handle: Arc<Mutex<Option<Handle>>> = Arc::default();
    let (submits, pages) = (Arc::clone(&handle), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&pages);
    let config = config().with("EXCLUDE", "left-out.test").unwrap();
    let mut crawler = Crawler::builder(config)
        .sink(move |_: Page| {
            let page = count.fetch_add(1, Ordering::Relaxed);
            assert!(page < 50_000, "the turn does not end");
            let request = Request::get(format!("http://left-out.test/{page}"));
            let handle = submits.lock().unwrap();
            handle.as_ref().unwrap().try_submit(request).unwrap();
        })
        .build_in(&web, 1)
        .unwrap();
    let own = crawler.handle();
    let first = Request::get("http://left-out.test/");
    own.try_submit(first).unwrap();
    *handle.lock().unwrap() = Some(own);
    for _ in 0..10 {
        assert_eq!(crawler.turn(Some(Duration::ZERO)), Turn::GoesOn);
    }
    assert!(pages.load(Ordering::Relaxed) > 10);
}

/// A sink that records what it is asked to commit. It is prepared at the third query.
struct Committing {
    calls: Shared<Vec<String>>,
    asked: AtomicU32,
    failure: Option<WriteError>,
}

impl Sink for Committing {
    fn put(&mut self, page: &mut Page) {
        self.calls.borrow_mut().push(format!("put {}", page.url));
    }

    fn finish(&mut self) {
        self.calls.borrow_mut().push("finish".to_owned());
    }

    fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    fn prepare(&mut self, epoch: Epoch) {
        self.calls.borrow_mut().push(format!("prepare {epoch}"));
    }

    fn is_prepared(&self, _epoch: Epoch) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= 2
    }

    fn committed(&mut self, epoch: Epoch) {
        let asked = self.asked.load(Ordering::Relaxed);
        assert!(asked >= 3, "it was not prepared");
        self.calls.borrow_mut().push(format!("committed {epoch}"));
    }
}

fn commits_of(failure: Option<WriteError>) -> (FinishReason, Vec<String>) {
    let web = Web::new(|_| Reply::page("a page"));
    let calls = Shared::new(Vec::new());
    let sink = Committing {
        calls: Shared::clone(&calls),
        asked: AtomicU32::new(0),
        failure,
    };
    let builder = Crawler::builder(config()).sink(sink);
    let mut crawler = builder.build_in(&web, 1).expect("a crawler");
    crawler
        .submit(Request::get("http://a.test/").ignore_robots())
        .expect("a request");
    let reason = crawler.run();
    (reason, calls.take())
}

#[test]
fn a_sink_commits_once_all_of_its_results_are_durable() {
    let (reason, calls) = commits_of(None);
    assert_eq!(reason, FinishReason::Finished);
    let expected = ["put http://a.test/", "finish", "prepare 1", "committed 1"];
    assert_eq!(calls, expected);
}

#[test]
fn a_sink_that_failed_gets_no_commit() {
    let cause = io::Error::other("the disk is gone");
    let (reason, calls) = commits_of(Some(WriteError::new("results", &cause)));
    assert_eq!(reason, FinishReason::SinkFailed);
    assert_eq!(calls.last().map(String::as_str), Some("finish"));
}

#[test]
fn only_the_scopes_that_waited_longest_have_metrics_of_their_own() {
    let series = |scopes_max: &str| {
        let web = Web::new(|_| Reply::page("a page"));
        let config = set(config(), "METRICS_SCOPES_MAX", scopes_max);
        let config = set(config, "DOWNLOAD_DELAY", "1s");
        let builder = Crawler::builder(config).sink(|_: Page| {});
        let mut crawler = builder.build_in(&web, 1).expect("a crawler");
        // Host 3 waits longest.
        for host in 0..4 {
            for page in 0..=host {
                let request = Request::get(format!("http://host-{host}.test/{page}"));
                crawler.submit(request).expect("a request");
            }
        }
        assert_eq!(crawler.run(), FinishReason::Finished);
        let text = crawler.metrics(MetricsFormat::default());
        let sent = |line: &str| {
            line.strip_prefix("argiope_scope_sent_total")
                .map(str::to_owned)
        };
        let omitted = |line: &str| {
            line.strip_prefix("argiope_scopes_omitted ")
                .map(str::to_owned)
        };
        let omitted: Vec<String> = text.lines().filter_map(omitted).collect();
        (text.lines().filter_map(sent).collect(), omitted.concat())
    };
    let check = |scopes_max, sent: &[&str], omitted: &str| {
        let sent: Vec<String> = sent.iter().map(|sent| (*sent).to_owned()).collect();
        assert_eq!(
            series(scopes_max),
            (sent, omitted.to_owned()),
            "{scopes_max}"
        );
    };
    let (second, third) = ("{scope=\"host-2.test\"} 3", "{scope=\"host-3.test\"} 4");
    check("0", &[], "4");
    check("1", &[third], "3");
    check("2", &[second, third], "2");
    assert_eq!(series("100").0.len(), 4);
}
