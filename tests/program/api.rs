//! Each way to embed the crawler, against a small server on the loopback device.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::base::shared::Shared;
use argiope::serde_json::json;
use argiope::settings::{ScopeSettings, SettingValue};
use argiope::{
    AdmitError, Answer, Blame, ByHost, ByStatus, Classify, Config, Crawler, Decision,
    DecisionEvent, DeferredScopes, FailureKind, FinishReason, Instant, Observation, Pace, Page,
    Request, ScopeMap, ScopeQuery, ScopesError, Signal, Sink, Strategy, SubmitError, Turn, Wall,
};

use crate::loopback::{Reply, Server};

/// No crawl here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_function_gets_every_page_of_a_crawl() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/" => Reply::page("<a href=/next>on</a>"),
        _ => Reply::page("the end"),
    });
    let (pages, mut crawler) = kept(server.config());
    crawler
        .submit(Request::get("http://a.test/"))
        .expect("it is a URL");
    assert_eq!(crawler.run(), FinishReason::Finished);
    let pages = pages.borrow();
    let results: Vec<_> = pages
        .iter()
        .map(|page| (&*page.url, page.status, page.depth, page.parent))
        .collect();
    assert_eq!(
        results,
        [
            ("http://a.test/", Some(200), 0, None),
            ("http://a.test/next", Some(200), 1, Some(pages[0].id)),
        ]
    );
    assert_eq!(pages[1].body, b"the end");
    assert_eq!(crawler.stats().pages, 2);
}

#[test]
fn a_full_sink_pauses_the_crawl_and_loses_nothing() {
    const ROOM: usize = 2;
    const IN_FLIGHT: usize = 4;
    const PAGES: usize = 60;

    struct ToThread {
        pages: SyncSender<Page>,
        waiting: Arc<AtomicUsize>,
    }
    impl Sink for ToThread {
        fn put(&mut self, page: &mut Page) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.pages
                .try_send(std::mem::take(page))
                .expect("no more comes than was on its way");
        }
        fn is_ready(&self) -> bool {
            self.waiting.load(Ordering::SeqCst) < ROOM
        }
    }

    let server = Server::start(|_| Reply::page("a page"));
    let (pages, inbox): (_, Receiver<Page>) = sync_channel(ROOM + IN_FLIGHT);
    let waiting = Arc::new(AtomicUsize::new(0));
    let taken = Arc::clone(&waiting);
    let reader = thread::spawn(move || {
        let mut count = 0;
        for _ in inbox {
            thread::sleep(Duration::from_millis(2));
            taken.fetch_sub(1, Ordering::SeqCst);
            count += 1;
        }
        count
    });
    let config = set(server.config(), "CONCURRENT_REQUESTS", IN_FLIGHT);
    let mut crawler = Crawler::builder(config)
        .sink(ToThread { pages, waiting })
        .build()
        .expect("it can be set up");
    for number in 0..PAGES {
        crawler
            .submit(Request::get(format!("http://h{number}.test/")))
            .expect("it is a URL");
    }
    let began = Clock::now();
    assert_eq!(crawler.run(), FinishReason::Finished);
    // The reader takes 0.1 s. A crawl that polled it once a second would take 12 s.
    assert!(began.elapsed() < Duration::from_secs(8), "it overslept");
    drop(crawler);
    assert_eq!(reader.join().expect("the reader is well"), PAGES);
}

#[test]
fn a_crawl_fed_by_a_handle_ends_with_the_last_handle() {
    let server = Server::start(|_| Reply::page("a page"));
    let (pages, mut crawler) = kept(server.config());
    let handle = crawler.handle();
    let feeder = thread::spawn(move || {
        let second = handle.clone();
        for number in 0..10 {
            let request = Request::get(format!("http://a.test/{number}"));
            handle.submit(request).expect("the crawl goes on");
            thread::sleep(Duration::from_millis(5));
        }
        drop(handle);
        thread::sleep(Duration::from_millis(50));
        second
            .try_submit(Request::get("http://a.test/last"))
            .expect("a handle still lives");
    });
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    feeder.join().expect("every request was taken");
    assert_eq!(pages.borrow().len(), 11);
    assert_eq!(&*pages.borrow()[10].url, "http://a.test/last");
}

#[test]
fn submit_fails_after_the_end_of_a_crawl() {
    let server = Server::start(|_| Reply::page("a page"));
    let (_, mut crawler) = kept(server.config());
    let handle = crawler.handle();
    crawler.stopper().stop();
    assert_eq!(to_the_end(&mut crawler), FinishReason::Shutdown);
    let late = handle.submit(Request::get("http://a.test/").tag(5));
    assert_eq!(late.expect_err("it is over").into_request().tag, 5);
    let late = handle.try_submit(Request::get("http://a.test/"));
    assert!(matches!(late, Err(SubmitError::Over(_))));
    let late = crawler.submit(Request::get("http://a.test/"));
    assert_eq!(late, Err(AdmitError::Over));
}

#[test]
fn stop_finishes_requests_in_flight_and_returns_the_others() {
    let server = Server::start(|_| Reply::page("slow").after(Duration::from_millis(300)));
    let (pages, mut crawler) = kept(server.config());
    submit_pages(&mut crawler, 3);
    stop_once_asked(server, &crawler, false);
    assert_eq!(to_the_end(&mut crawler), FinishReason::Shutdown);
    let statuses: Vec<_> = pages.borrow().iter().map(|page| page.status).collect();
    assert_eq!(statuses, [Some(200)]);
    let pending: Vec<_> = crawler.take_pending().map(|p| p.request.url).collect();
    assert_eq!(pending, ["http://a.test/1", "http://a.test/2"]);
}

#[test]
fn stop_now_cancels_requests_in_flight_and_returns_them_too() {
    let server = Server::start(|_| Reply::page("never").after(PATIENCE * 2));
    let (pages, mut crawler) = kept(server.config());
    submit_pages(&mut crawler, 3);
    stop_once_asked(server, &crawler, true);
    let began = Clock::now();
    assert_eq!(to_the_end(&mut crawler), FinishReason::Shutdown);
    assert!(began.elapsed() < Duration::from_secs(10), "it did not wait");
    let pages = pages.borrow();
    assert_eq!(pages.len(), 1);
    let failure = pages[0].failure.as_ref().expect("it was cut short");
    assert_eq!(failure.kind, FailureKind::Cancelled);
    assert_eq!(crawler.take_pending().count(), 3);
}

#[test]
fn waiting_for_the_descriptor_alone_meets_every_deadline() {
    // A busy machine may delay a request for as long as a tick of one second does, but not in every run.
    let mut longest = (0..3).map(|_| longest_gap_by_descriptor());
    let is_met = |longest| longest < Duration::from_millis(900);
    assert!(longest.any(is_met), "a gap of 60 ms waits for a tick");
}

/// Crawls six pages with a delay of 60 ms, and waits for the descriptor in between. Returns the longest
/// gap.
fn longest_gap_by_descriptor() -> Duration {
    let server = Server::start(|asked| match asked.host.as_str() {
        "silent.test" => Reply::page("too late").after(PATIENCE * 2),
        _ => Reply::page("a page"),
    });
    let gap = Duration::from_millis(60);
    let config = set(server.config(), "DOWNLOAD_DELAY", "60ms");
    let config = set(config, "FIRST_BYTE_TIMEOUT", "250ms");
    let (pages, mut crawler) = kept(config);
    submit_pages(&mut crawler, 6);
    crawler
        .submit(Request::get("http://silent.test/"))
        .expect("it is a URL");
    let began = Clock::now();
    let mut waits = 0;
    loop {
        if let Turn::Over(reason) = crawler.turn(Some(Duration::ZERO)) {
            assert_eq!(reason, FinishReason::Finished);
            break;
        }
        let fd = crawler.as_fd();
        let mut fds = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        let bound = PATIENCE.try_into().expect("it fits");
        let ready = rustix::event::poll(&mut fds, Some(&bound)).expect("poll works");
        assert_eq!(ready, 1, "the descriptor carries every deadline");
        waits += 1;
        assert!(began.elapsed() < PATIENCE, "the crawl does not end");
    }
    assert_eq!(pages.borrow().len(), 7);
    let late = pages
        .borrow()
        .iter()
        .filter(|page| page.failure.is_some())
        .count();
    assert_eq!(late, 1, "the silent host ran into its timeout");
    assert!(
        waits < 500,
        "a host that waits must not be kept busy: {waits}"
    );
    let paced: Vec<_> = server
        .asked()
        .into_iter()
        .filter(|asked| asked.host == "a.test")
        .map(|asked| asked.at)
        .collect();
    let gaps = paced.windows(2).map(|pair| pair[1] - pair[0]);
    // Arrivals vary because of the server's threads; the sends do not.
    let check =
        |between: &Duration| assert!(*between > gap.mul_f64(0.5), "{between:?} is too soon");
    gaps.inspect(check).max().expect("two requests")
}

#[test]
fn two_crawlers_take_turns_on_one_thread() {
    let servers = [
        Server::start(|_| Reply::page("one")),
        Server::start(|_| Reply::page("two")),
    ];
    let mut crawls: Vec<_> = servers.iter().map(|s| kept(s.config())).collect();
    for (_, crawler) in &mut crawls {
        submit_pages(crawler, 5);
    }
    let began = Clock::now();
    let mut over = 0;
    while over < crawls.len() {
        over = crawls
            .iter_mut()
            .map(|(_, crawler)| crawler.turn(Some(Duration::from_millis(1))))
            .filter(|turn| *turn == Turn::Over(FinishReason::Finished))
            .count();
        assert!(began.elapsed() < PATIENCE, "the crawls go on and on");
    }
    for ((pages, _), body) in crawls.iter().zip([b"one", b"two"]) {
        assert_eq!(pages.borrow().len(), 5);
        assert!(pages.borrow().iter().all(|page| page.body == body));
    }
}

#[test]
fn scope_map_classifier_and_strategy_are_replaceable() {
    /// All hosts of one owner share a scope.
    struct ByOwner;
    impl ScopeMap for ByOwner {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            let host = query.url().host_str();
            let owner = host.split('.').next_back().unwrap_or_default();
            query.add(format!("owner/{owner}"));
        }
    }
    struct Counting(Shared<usize>);
    impl Classify for Counting {
        fn classify(&self, answer: &Answer<'_>) -> Signal {
            assert_eq!(answer.status, Some(200));
            self.0.set(self.0.get() + 1);
            ByStatus.classify(answer)
        }
    }
    /// Each answer makes the next gap longer.
    struct Tiring;
    impl Strategy for Tiring {
        fn start(&mut self, _settings: &ScopeSettings) -> Pace {
            Pace {
                delay: Duration::ZERO,
                concurrency: 1,
            }
        }
        fn answer(
            &mut self,
            _: &ScopeSettings,
            pace: Pace,
            _: &Observation<'_>,
            _: Instant,
        ) -> Pace {
            Pace {
                delay: pace.delay + Duration::from_millis(40),
                ..pace
            }
        }
    }

    let server = Server::start(|_| Reply::page("a page"));
    let pages = Shared::new(Vec::new());
    let (kept, classified) = (Shared::clone(&pages), Shared::new(0));
    let mut crawler = Crawler::builder(server.config())
        .sink(move |page: Page| kept.borrow_mut().push(page))
        .scope_map(ByOwner)
        .classify(Counting(Shared::clone(&classified)))
        .strategy(|scope: &str| {
            (scope == "owner/test").then(|| Box::new(Tiring) as Box<dyn Strategy>)
        })
        .build()
        .expect("it can be set up");
    for host in ["a", "b", "c"] {
        crawler
            .submit(Request::get(format!("http://{host}.test/")))
            .expect("it is a URL");
    }
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    let pages = pages.borrow();
    assert!(pages.iter().all(|page| page.scopes == ["owner/test"]));
    let gaps: Vec<_> = pages.iter().map(|page| page.delay).collect();
    let millis = |millis| Some(Duration::from_millis(millis));
    assert_eq!(gaps[1..], [millis(40), millis(80)]);
    assert_eq!(classified.get(), 3);
}

#[test]
fn statistics_count_as_refused_what_the_throttle_classifies_so() {
    /// A 403 of this server means too many requests; a 503 concerns none of the scopes.
    struct Forbidding;
    impl Classify for Forbidding {
        fn classify(&self, answer: &Answer<'_>) -> Signal {
            let signal = ByStatus.classify(answer);
            match answer.status {
                Some(403) => with(signal, |signal| {
                    signal.status = Some(429);
                }),
                Some(503) => with(signal, |signal| {
                    signal.blame = Blame::NoScope;
                }),
                _ => signal,
            }
        }
    }
    let refused = |classify: bool| -> Vec<(String, u64, u64)> {
        let server = Server::start(|asked| match asked.host.as_str() {
            "forbids.test" => Reply::status("403 Forbidden"),
            "unavailable.test" => Reply::status("503 Service Unavailable"),
            "gateway.test" => Reply::status("502 Bad Gateway"),
            _ => Reply::page("a page"),
        });
        let builder = Crawler::builder(set(server.config(), "RETRY_TIMES", 0)).sink(|_: Page| ());
        let builder = match classify {
            true => builder.classify(Forbidding),
            false => builder,
        };
        let mut crawler = builder.build().expect("it can be set up");
        for host in ["forbids", "unavailable", "gateway", "page"] {
            crawler
                .submit(Request::get(format!("http://{host}.test/")))
                .expect("it is a URL");
        }
        assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
        let scopes = crawler.stats().most_refused_scopes(10);
        let scopes = scopes.into_iter();
        scopes
            .map(|(name, tally)| (name.to_owned(), tally.refused, tally.sent))
            .collect()
    };
    let counts = |names: &[&str]| -> Vec<(String, u64, u64)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), 1, 1))
            .collect()
    };
    assert_eq!(
        refused(false),
        counts(&["gateway.test", "unavailable.test"])
    );
    assert_eq!(refused(true), counts(&["forbids.test", "gateway.test"]));
}

#[test]
fn tag_and_meta_follow_redirects_but_not_links() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/from" => Reply::redirect("302 Found", "/to"),
        "/to" => Reply::page("<a href=/link>on</a>"),
        _ => Reply::page("a link's page"),
    });
    let (pages, mut crawler) = kept(server.config());
    let request = Request::get("http://a.test/from")
        .tag(7)
        .meta(json!({"job": [1, 2]}));
    let id = crawler.submit(request).expect("it is a URL");
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    let pages = pages.borrow();
    assert_eq!(pages[0].id, id);
    assert_eq!(pages[1].parent, Some(id));
    let results: Vec<_> = pages.iter().map(|page| (page.tag, page.meta())).collect();
    let job = Some(r#"{"job":[1,2]}"#);
    assert_eq!(results, [(7, job), (7, job), (0, None)]);
}

#[test]
fn a_post_becomes_a_get_at_302_and_stays_a_post_at_307() {
    let check = |status: &'static str, expected: (&str, &str), typed: bool| {
        let server = Server::start(move |asked| match asked.target.as_str() {
            "/form" => Reply::redirect(status, "/done"),
            _ => Reply::page("done"),
        });
        let (_, mut crawler) = kept(server.config());
        let request = Request::post("http://a.test/form", "a=1")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .header("X-Mine", "stays");
        crawler.submit(request).expect("it is a URL");
        assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
        let asked = server.asked();
        let of = |number: usize| (&*asked[number].method, &*asked[number].body);
        assert_eq!(of(0), ("POST", &b"a=1"[..]));
        assert_eq!(of(1), (expected.0, expected.1.as_bytes()), "{status}");
        let content_type = asked[1].header("Content-Type");
        assert_eq!(content_type.is_some(), typed, "{status}");
        assert_eq!(asked[1].header("X-Mine"), Some("stays"), "{status}");
    };
    check("302 Found", ("GET", ""), false);
    check("303 See Other", ("GET", ""), false);
    check("307 Temporary Redirect", ("POST", "a=1"), true);
    check("308 Permanent Redirect", ("POST", "a=1"), true);
}

#[test]
fn a_request_may_name_its_scopes_and_its_priority() {
    let server = Server::start(|_| Reply::page("a page"));
    let (pages, mut crawler) = kept(server.config());
    for (path, priority) in [("low", -1), ("usual", 0), ("high", 9)] {
        let request = Request::get(format!("http://a.test/{path}"))
            .priority(priority)
            .scope("mine")
            .scope("ours");
        crawler.submit(request).expect("it is a URL");
    }
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    let pages = pages.borrow();
    let order: Vec<_> = pages.iter().map(|page| &page.url[14..]).collect();
    assert_eq!(order, ["high", "usual", "low"]);
    let mut scopes = pages[0].scopes.clone();
    scopes.sort();
    assert_eq!(scopes, ["mine", "ours"]);
}

#[test]
fn f90_dont_adjust_delay_ignores_a_slow_reply() {
    let gap_after = |first: Request| {
        let server = Server::start(|asked| match asked.target.as_str() {
            "/slow" => Reply::page("slow").after(Duration::from_millis(300)),
            _ => Reply::page("fast"),
        });
        let config = set(server.config(), "AUTOTHROTTLE_ENABLED", true);
        // In this mode one reply shows the effect.
        let config = set(config, "AUTOTHROTTLE_MODE", "scrapy");
        let config = set(config, "AUTOTHROTTLE_START_DELAY", "50ms");
        let config = set(config, "CONCURRENT_REQUESTS_PER_DOMAIN", 1);
        let (pages, mut crawler) = kept(config);
        for request in [first, Request::get("http://a.test/fast")] {
            crawler.submit(request).expect("it is a URL");
        }
        assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
        let pages = pages.borrow();
        pages[1].delay.expect("it was sent")
    };
    let slow = || Request::get("http://a.test/slow").priority(1);
    assert_eq!(gap_after(slow().dont_adjust_delay()).as_millis(), 50);
    assert!(gap_after(slow()).as_millis() >= 300);
}

#[test]
fn a_sink_gets_each_decision_after_its_reply() {
    #[derive(Clone, Default)]
    struct Log(Shared<Vec<String>>);
    impl Sink for Log {
        fn put(&mut self, page: &mut Page) {
            self.0.borrow_mut().push(format!("page {}", page.id));
        }
        fn decision(&mut self, decision: &Decision, at: Wall) {
            assert!(at.0 > 0 && decision.event == DecisionEvent::Autothrottle);
            let (id, size) = (decision.id.expect("an answer"), decision.size);
            let text = format!("decision {id}, {} bytes", size.expect("a body"));
            self.0.borrow_mut().push(text);
        }
    }
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "AUTOTHROTTLE_ENABLED", true);
    let config = set(config, "AUTOTHROTTLE_START_DELAY", 0.01);
    let config = set(config, "AUTOTHROTTLE_DEBUG", true);
    let log = Log::default();
    let mut crawler = Crawler::builder(config)
        .sink(log.clone())
        .build()
        .expect("a crawler");
    submit_pages(&mut crawler, 2);
    assert_eq!(crawler.run(), FinishReason::Finished);
    let pacing = crawler.pacing();
    assert_eq!(pacing.scopes[0].sent, 2);
    assert_eq!(pacing.decided[&DecisionEvent::Autothrottle], 2);
    assert_eq!(
        *log.0.borrow(),
        [
            "decision 1, 6 bytes",
            "page 1",
            "decision 2, 6 bytes",
            "page 2"
        ]
    );
}

#[test]
fn submit_rejects_an_unfetchable_url() {
    let (_, mut crawler) = kept(Config::default());
    let refused = crawler.submit(Request::get("no url at all"));
    assert!(matches!(refused, Err(AdmitError::Url(_))), "{refused:?}");
    let split = Request::get("http://b.test/").header("X", "a\r\nY: b");
    let refused = crawler.submit(split);
    assert!(
        matches!(refused, Err(AdmitError::Request(_))),
        "{refused:?}"
    );
}

#[test]
fn a_duplicate_gets_a_number_at_once_and_ends_as_filtered() {
    let server = Server::start(|_| Reply::page("once"));
    let (pages, mut crawler) = kept(server.config());
    let mut submit = |url: String| crawler.submit(Request::get(url)).expect("it is a URL");
    let first = submit("http://a.test/".to_owned());
    let again = submit("http://a.test/#same".to_owned());
    assert_ne!(first, again);
    assert_eq!(crawler.run(), FinishReason::Finished);
    let pages = pages.take();
    let of = |id: u64| pages.iter().find(|page| page.id == id).expect("it ended");
    assert_eq!(of(first).status, Some(200));
    let failure = of(again).failure.as_ref().expect("it was not fetched");
    assert_eq!(
        failure.to_string().split(':').next(),
        Some("filtered.duplicate")
    );
    assert!(of(again).is_final);
}

#[test]
fn build_rejects_an_invalid_config() {
    let config = Config::default().with("BUFFERED_BODIES_MAX", "1MiB");
    let config = config.expect("a size by itself");
    let error = Crawler::builder(config).build().expect_err("it is refused");
    assert!(error.to_string().contains("DOWNLOAD_MAXSIZE"), "{error}");
}

#[test]
fn dropping_a_running_crawler_releases_its_handles() {
    let server = Server::start(|_| Reply::page("never").after(PATIENCE * 2));
    let (pages, mut crawler) = kept(server.config());
    submit_pages(&mut crawler, 3);
    let handle = crawler.handle();
    let began = Clock::now();
    while server.asked().is_empty() {
        crawler.turn(Some(Duration::from_millis(5)));
        assert!(began.elapsed() < PATIENCE, "nothing is asked");
    }
    let began = Clock::now();
    drop(crawler);
    assert!(began.elapsed() < Duration::from_secs(5), "it hung");
    assert!(pages.borrow().is_empty());
    assert!(handle.submit(Request::get("http://a.test/late")).is_err());
}

#[test]
fn a_crawl_leaves_the_process_as_it_was() {
    let dispositions = || {
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE].map(|signal| {
            // SAFETY: a null action only reads the present one into `present`, which is ours.
            unsafe {
                let mut present: libc::sigaction = std::mem::zeroed();
                let read = libc::sigaction(signal, std::ptr::null(), &raw mut present);
                assert_eq!(read, 0, "signal {signal}");
                present.sa_sigaction
            }
        })
    };
    // The parent process may have changed them.
    let before = dispositions();
    let server = Server::start(|_| Reply::page("a page"));
    let (_, mut crawler) = kept(server.config());
    submit_pages(&mut crawler, 1);
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    assert_eq!(log::max_level(), log::LevelFilter::Off);
    assert_eq!(dispositions(), before);
}

#[test]
fn f17_invalid_costs_are_rejected_and_valid_costs_are_pending() {
    let server = Server::start(|_| Reply::page("a page"));
    let (_, mut crawler) = kept(server.config());
    let request = || Request::get("http://a.test/");
    let mut refused = |request: Request, expected: ScopesError| {
        assert_eq!(crawler.submit(request), Err(AdmitError::Scopes(expected)));
    };
    let cost = |text: &str| ScopesError::Cost(text.to_owned());
    refused(request().scope_cost("a", f64::NAN), cost("NaN"));
    refused(request().scope_cost("a", f64::INFINITY), cost("inf"));
    refused(request().scope_cost("a", -1.0), cost("-1"));
    refused(request().scope(""), ScopesError::Unnamed);
    let many = (0..17).fold(request(), |request, n| request.scope(n.to_string()));
    refused(many, ScopesError::TooMany(17));
    let mut costs_only = request();
    costs_only.scope_costs = vec![1.0];
    refused(costs_only, ScopesError::CostsOfNothing);
    assert_eq!(crawler.stats().seeds_bad, 6);

    let sound = request().scope("b").scope_cost("a", 2.5);
    crawler.submit(sound).expect("its costs are sound");
    crawler.stopper().stop();
    assert_eq!(to_the_end(&mut crawler), FinishReason::Shutdown);
    let pending: Vec<_> = crawler.take_pending().collect();
    assert_eq!(
        pending[0].request.scopes,
        Some(vec!["b".to_owned(), "a".to_owned()])
    );
    assert_eq!(pending[0].request.scope_costs, [1.0, 2.5]);
}

/// Defers the scopes of `slow.test`; other requests have their host as scope.
struct LookedUp<F> {
    asked: Shared<Vec<String>>,
    look_up: F,
}

impl<F: Fn(DeferredScopes) + Send> ScopeMap for LookedUp<F> {
    fn scopes(&self, query: &mut ScopeQuery<'_>) {
        self.asked.borrow_mut().push(query.url().path().to_owned());
        if query.url().host_str() != "slow.test" {
            return ByHost.scopes(query);
        }
        query.add("first");
        (self.look_up)(query.later());
    }
}

/// A crawler with such a map, its pages, and the paths for which the map was queried.
fn looked_up(
    config: Config,
    look_up: impl Fn(DeferredScopes) + Send + 'static,
) -> (Crawler, Shared<Vec<Page>>, Shared<Vec<String>>) {
    let pages: Shared<Vec<Page>> = Shared::default();
    let kept = Shared::clone(&pages);
    let asked = Shared::default();
    let map = LookedUp {
        asked: Shared::clone(&asked),
        look_up,
    };
    let crawler = Crawler::builder(config)
        .sink(move |page: Page| kept.borrow_mut().push(page))
        .scope_map(map)
        .build()
        .expect("it can be set up");
    (crawler, pages, asked)
}

#[test]
fn f67_a_slow_map_is_called_once_and_delays_no_other_request() {
    let tries = AtomicUsize::new(0);
    let server = Arc::new(Server::start(move |asked| match asked.target.as_str() {
        "/slow" if tries.fetch_add(1, Ordering::SeqCst) == 0 => Reply::redirect("503 Busy", "/"),
        "/slow" => Reply::redirect("302 Found", "/next"),
        _ => Reply::page("a page"),
    }));
    let config = set(server.config(), "RETRY_TIMES", 1);
    let looks = Arc::clone(&server);
    let (mut crawler, pages, asked) = looked_up(config, move |later| {
        let server = Arc::clone(&looks);
        thread::spawn(move || {
            // Waits until the other pages were requested.
            while server.asked().len() < 3 {
                thread::sleep(Duration::from_millis(5));
            }
            later.answer([("cost", 2.5), ("target", 1.0)]);
        });
    });
    crawler
        .submit(Request::get("http://slow.test/slow"))
        .expect("it is a URL");
    assert_eq!(crawler.progress().queued, 1, "it waits for its scopes");
    submit_pages(&mut crawler, 3);
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    let paths: Vec<_> = server
        .asked()
        .iter()
        .map(|asked| asked.target.clone())
        .collect();
    assert_eq!(paths, ["/0", "/1", "/2", "/slow", "/slow", "/next"]);
    // The retry keeps its scopes; the target of the redirect is another request.
    assert_eq!(*asked.borrow(), ["/slow", "/0", "/1", "/2", "/next"]);
    for page in &pages.borrow()[3..] {
        let mut scopes = page.scopes.to_vec();
        scopes.sort();
        assert_eq!(scopes, ["cost", "first", "target"]);
    }
}

#[test]
fn f67_without_an_answer_of_the_map_the_scope_is_the_host() {
    let server = Server::start(|_| Reply::page("a page"));
    let (mut crawler, pages, _) = looked_up(server.config(), |later| {
        thread::spawn(move || drop(later));
    });
    crawler
        .submit(Request::get("http://slow.test/"))
        .expect("it is a URL");
    assert_eq!(to_the_end(&mut crawler), FinishReason::Finished);
    let mut scopes = pages.borrow()[0].scopes.to_vec();
    scopes.sort();
    assert_eq!(scopes, ["first", "slow.test"]);
}

#[test]
fn f67_requests_waiting_for_scopes_keep_the_crawl_alive_and_are_pending_after_a_stop() {
    let server = Server::start(|_| Reply::page("a page"));
    let unanswered = Shared::new(Vec::new());
    let held = Shared::clone(&unanswered);
    let (mut crawler, pages, _) =
        looked_up(server.config(), move |later| held.borrow_mut().push(later));
    for number in 0..2 {
        let request = Request::get(format!("http://slow.test/{number}"));
        crawler.submit(request).expect("it is a URL");
    }
    for _ in 0..5 {
        assert_eq!(crawler.turn(Some(Duration::from_millis(1))), Turn::GoesOn);
    }
    crawler.stopper().stop();
    // An answer after the stop has no effect.
    let last = unanswered.borrow_mut().pop().expect("two wait");
    last.answer("late");
    assert_eq!(to_the_end(&mut crawler), FinishReason::Shutdown);
    assert!(pages.borrow().is_empty());
    let pending: Vec<_> = crawler.take_pending().collect();
    let urls: Vec<_> = pending
        .iter()
        .map(|pending| pending.request.url.as_str())
        .collect();
    assert_eq!(urls, ["http://slow.test/0", "http://slow.test/1"]);
    assert!(
        pending
            .iter()
            .all(|pending| pending.request.scopes.is_none())
    );
    drop(crawler);
    unanswered
        .take()
        .into_iter()
        .for_each(|later| later.answer("too late"));
}

/// A crawler whose pages are kept.
fn kept(config: Config) -> (Shared<Vec<Page>>, Crawler) {
    let pages = Shared::new(Vec::new());
    let kept = Shared::clone(&pages);
    let crawler = Crawler::builder(config)
        .sink(move |page: Page| kept.borrow_mut().push(page))
        .build()
        .expect("it can be set up");
    (pages, crawler)
}

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

/// `http://a.test/0` and so on.
fn submit_pages(crawler: &mut Crawler, count: usize) {
    for number in 0..count {
        crawler
            .submit(Request::get(format!("http://a.test/{number}")))
            .expect("it is a URL");
    }
}

#[test]
fn build_rejects_an_invalid_default_header() {
    for headers in [json!({"a:b": "c"}), json!({"a b": "c"}), json!(["a b: c"])] {
        let refused = Config::default().with("DEFAULT_REQUEST_HEADERS", headers);
        let text = refused.expect_err("no token").to_string();
        assert!(text.starts_with("DEFAULT_REQUEST_HEADERS"), "{text}");
    }
}

/// Stops the crawl from another thread once the server has a request.
fn stop_once_asked(server: Server, crawler: &Crawler, at_once: bool) {
    let stopper = crawler.stopper();
    thread::spawn(move || {
        while server.asked().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        if at_once {
            stopper.stop_now();
        } else {
            stopper.stop();
        }
    });
}

/// Runs turns until the crawl ends; returns the reason.
fn to_the_end(crawler: &mut Crawler) -> FinishReason {
    let began = Clock::now();
    loop {
        if let Turn::Over(reason) = crawler.turn(Some(Duration::from_millis(100))) {
            return reason;
        }
        assert!(began.elapsed() < PATIENCE, "the crawl does not end");
    }
}

/// Returns the signal with this change.
fn with(mut signal: Signal, change: impl FnOnce(&mut Signal)) -> Signal {
    change(&mut signal);
    signal
}
