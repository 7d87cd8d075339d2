//! Owning, driving and controlling a crawl from other threads, with a small server on loopback.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::base::shared::Shared;
use argiope::settings::{ScopePatch, SettingValue};
use argiope::{
    Config, ControlError, Crawler, Feedback, FinishReason, Handle, Page, Request, Stopper, Turn,
};
use rustix::event::{PollFd, PollFlags, epoll};

use crate::loopback::{Reply, Server};

/// No crawl here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const fn is_send<T: Send>() {}
const fn is_shared<T: Clone + Send + Sync + 'static>() {}
const fn is_shown<T: std::fmt::Debug>() {}
const fn is_error<T: std::error::Error + Send + Sync + 'static>() {}

/// Checked by the compiler.
const _: () = {
    is_send::<Crawler>();
    is_send::<Crawler<argiope::io::sim::Sim>>();
    is_send::<argiope::Builder>();
    is_shared::<Handle>();
    is_shared::<Stopper>();
    is_shared::<Config>();
    is_shared::<Page>();
    is_shared::<Request>();
    is_shared::<argiope::Feedback>();
    is_shared::<argiope::Resume>();
    is_shared::<argiope::Wake>();
    is_send::<argiope::DeferredScopes>();
    is_send::<argiope::LinksLater>();
    is_send::<argiope::probe::Probe>();
    is_send::<argiope::sink::files::FileSink>();

    is_shown::<Crawler>();
    is_shown::<argiope::Builder>();
    is_shown::<argiope::Combined>();
    is_shown::<argiope::FunctionSink<fn(Page)>>();
    is_shown::<argiope::probe::Probe>();
    is_shown::<argiope::parts::PacingWheel>();
    is_shown::<argiope::sink::tee::Tee<fn(Page), fn(Page)>>();

    is_error::<argiope::AdmitError>();
    is_error::<argiope::ConfigError>();
    is_error::<argiope::ControlError>();
    is_error::<argiope::Failure>();
    is_error::<argiope::ProxyError>();
    is_error::<argiope::ScopesError>();
    is_error::<argiope::SeedError>();
    is_error::<argiope::SetUpError>();
    is_error::<argiope::SubmitError>();
    is_error::<argiope::TlsConfigError>();
    is_error::<argiope::UrlError>();
    is_error::<argiope::WriteError>();
    is_error::<argiope::parts::CodingError>();
    is_error::<argiope::parts::HttpError>();
    is_error::<argiope::parts::RequestError>();
    is_error::<argiope::probe::CeilingError>();
    is_error::<argiope::settings::Problem>();
    is_error::<argiope::sink::directory::DirectoryError>();
};

#[test]
fn a_crawl_can_move_between_threads() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Reply::page("a page"));
        let (pages, mut crawler) = kept(set(server.config(), "IO", io));
        if crawler.progress().io.as_str() != io {
            crate::loud::skip(format!("there is no {io} here"));
            continue;
        }
        for number in 0..40 {
            crawler
                .submit(Request::get(format!("http://a.test/{number}")))
                .expect("it is a URL");
        }
        // Built on this thread, and driven by two others: the first does half of it, the second the rest.
        let handle = crawler.handle();
        let mut crawler = thread::spawn({
            let pages = pages.clone();
            move || {
                while pages.borrow().len() < 20 {
                    assert_eq!(crawler.turn(Some(Duration::from_secs(5))), Turn::GoesOn);
                }
                crawler
            }
        })
        .join()
        .expect("it takes turns");
        handle
            .try_submit(Request::get("http://a.test/last"))
            .expect("there is room");
        drop(handle);
        let reason = thread::spawn(move || crawler.run());
        assert_eq!(reason.join().expect("it ends"), FinishReason::Finished);
        let pages = pages.borrow();
        assert_eq!(pages.len(), 41, "{io}");
        let failed = pages.iter().find(|page| page.status != Some(200));
        assert!(failed.is_none(), "{io}: {failed:?}");
    }
}

#[test]
fn a_moved_crawl_does_not_interrupt_its_former_thread() {
    let slowly = Duration::from_millis(150);
    let server = Server::start(move |_| Reply::page("a page").after(slowly));
    let (pages, mut crawler) = kept(set(server.config(), "IO", "uring"));
    crawler
        .submit(Request::get("http://a.test/"))
        .expect("it is a URL");
    while server.asked().is_empty() {
        crawler.turn(Some(Duration::from_millis(5)));
    }
    // The reply arrives while another thread drives the crawl. Work that the kernel still did for this
    // thread would interrupt its wait.
    let (sender, receiver) = std::sync::mpsc::channel();
    let driver = thread::spawn(move || {
        crawler.turn(Some(Duration::ZERO));
        sender.send("it has taken over").expect("the test listens");
        let reason = crawler.run();
        sender.send("it has ended").expect("the test listens");
        (reason, crawler)
    });
    receiver.recv().expect("it takes over");
    let nothing = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    while receiver.try_recv().is_err() {
        assert_eq!(waited(&nothing, Duration::from_millis(50)), Ok(0));
    }
    assert_eq!(driver.join().expect("it ends").0, FinishReason::Finished);
    assert_eq!(pages.borrow()[0].status, Some(200));
}

/// Drives a crawl to its end; `wait` waits for its descriptor between turns.
fn drive(crawler: &mut Crawler, mut wait: impl FnMut(&Crawler)) -> usize {
    let began = Clock::now();
    let mut turns = 0;
    while crawler.turn(Some(Duration::ZERO)) == Turn::GoesOn {
        turns += 1;
        assert!(began.elapsed() < PATIENCE, "the crawl goes on and on");
        wait(crawler);
    }
    turns
}

/// Waits until the descriptor is readable (level-triggered).
fn level(crawler: &Crawler) {
    let mut fds = [PollFd::new(crawler, PollFlags::IN)];
    let bound = PATIENCE.try_into().expect("it fits");
    let ready = rustix::event::poll(&mut fds, Some(&bound)).expect("poll works");
    assert_eq!(ready, 1, "the descriptor carries every deadline");
}

/// Waits until the descriptor becomes readable again (edge-triggered).
fn edge() -> impl FnMut(&Crawler) {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    let mut is_new = true;
    move |crawler| {
        if std::mem::take(&mut is_new) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, crawler, epoll::EventData::new_u64(0), flags).expect("it is one");
        }
        // An io_uring that works for this thread may interrupt the wait, which is harmless.
        let woken = waited(&epoll, PATIENCE);
        assert_ne!(woken, Ok(0), "the descriptor reports everything");
    }
}

#[test]
fn the_descriptor_signals_each_deadline_within_a_millisecond() {
    for (io, edges) in [
        ("epoll", false),
        ("epoll", true),
        ("uring", false),
        ("uring", true),
    ] {
        // Other processes may delay a run by milliseconds. A deadline that the descriptor does not report
        // is missed in every run.
        let mut runs = (0..10).map(|_| late_by_the_descriptor(io, edges));
        assert!(
            runs.any(|late| late < Duration::from_millis(1)),
            "{io}, edges {edges}: late in ten runs"
        );
    }
}

/// The median lateness of requests, in a crawl whose turns begin only when its descriptor is readable.
fn late_by_the_descriptor(io: &str, edges: bool) -> Duration {
    const PAGES: usize = 25;
    let server = Server::start(|_| Reply::page("a page"));
    let config = set(server.config(), "IO", io);
    let config = set(config, "DOWNLOAD_DELAY", "20ms");
    let config = set(config, "RANDOMIZE_DOWNLOAD_DELAY", false);
    let (pages, mut crawler) = kept(config);
    for number in 0..PAGES {
        crawler
            .submit(Request::get(format!("http://a.test/{number}")))
            .expect("it is a URL");
    }
    let turns = match edges {
        false => drive(&mut crawler, level),
        true => drive(&mut crawler, edge()),
    };
    assert!(turns < PAGES * 30, "{io}: a host is kept busy: {turns}");
    let pages = pages.borrow();
    let mut late: Vec<_> = pages
        .iter()
        .filter_map(|page| page.timings.lateness())
        .collect();
    late.sort();
    assert_eq!(late.len(), PAGES);
    late[PAGES / 2]
}

#[test]
fn submit_makes_the_descriptor_readable() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Reply::page("a page"));
        let (pages, mut crawler) = kept(set(server.config(), "IO", io));
        let handle = crawler.handle();
        // When the request arrives, the crawl has no work left, not even a tick.
        let mut settled = 0;
        while settled < 3 {
            assert_eq!(crawler.turn(Some(Duration::ZERO)), Turn::GoesOn);
            let mut fds = [PollFd::new(&crawler, PollFlags::IN)];
            let bound = Duration::from_millis(1100).try_into().expect("it fits");
            match rustix::event::poll(&mut fds, Some(&bound)).expect("poll works") {
                0 => settled += 1,
                _ => settled = 0,
            }
        }
        crawler
            .submit(Request::get("http://a.test/"))
            .expect("it is a URL");
        drop(handle);
        drive(&mut crawler, level);
        assert_eq!(pages.borrow().len(), 1);
    }
}

#[test]
fn each_command_wakes_a_sleeping_crawl() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Reply::page("a page"));
        let (_, mut crawler) = kept(set(server.config(), "IO", io));
        let handle = crawler.handle();
        let (woke, wakes) = std::sync::mpsc::channel();
        let driver = thread::spawn(move || {
            loop {
                let turn = crawler.turn(None);
                woke.send(Clock::now()).expect("the test listens");
                if let Turn::Over(reason) = turn {
                    return reason;
                }
            }
        });
        let quickest = |what: &str, word: &dyn Fn()| {
            let tries = (0..12).map(|_| {
                // Long enough for the crawl to sleep.
                thread::sleep(Duration::from_millis(5));
                while wakes.try_recv().is_ok() {}
                let said = Clock::now();
                word();
                let woke = wakes.recv_timeout(PATIENCE).expect("it wakes");
                woke.saturating_duration_since(said)
            });
            // Other processes may delay a wake, but not every one.
            let quickest = tries.min().expect("some tries");
            assert!(
                quickest < Duration::from_millis(1),
                "{io}: {what}: {quickest:?}"
            );
        };
        quickest("stats", &|| drop(handle.stats()));
        quickest("try_submit", &|| {
            // This request is rejected, so that nothing else wakes the crawl.
            let refused = Request::get("http://0.0.0.0/");
            handle.try_submit(refused).expect("there is room");
        });
        quickest("cancel", &|| handle.cancel(1).expect("it goes on"));
        quickest("cancel_scope", &|| {
            handle.cancel_scope("a.test").expect("it goes on");
        });
        quickest("set_scope", &|| {
            let patch = ScopePatch::default();
            handle.set_scope("a.test", patch).expect("it goes on");
        });
        quickest("feedback", &|| {
            let nothing = Feedback::new("a.test");
            handle.feedback(nothing).expect("it goes on");
        });
        quickest("exclude", &|| {
            handle.exclude("b.test").expect("it goes on");
            handle.include("b.test").expect("it goes on");
        });
        quickest("forget", &|| handle.forget("a.test").expect("it goes on"));
        quickest("set_host_priority", &|| {
            handle.set_host_priority("a.test", 1).expect("it goes on");
        });
        quickest("pause", &|| handle.pause());
        quickest("resume", &|| handle.resume());
        quickest("clone and drop", &|| drop(handle.clone()));
        handle.shutdown(Duration::ZERO);
        assert_eq!(driver.join().expect("it ends"), FinishReason::Shutdown);
    }
}

#[test]
fn invalid_scope_patch_is_rejected_by_the_call() {
    let (_, mut crawler) = kept(Config::default());
    let handle = crawler.handle();
    let nothing = ScopePatch::default;
    let wrong = [
        nothing().concurrency(0),
        nothing().delay(Duration::MAX),
        nothing().delay_per_slot(Duration::MAX),
        nothing().quota(f64::NAN),
        nothing().quota(f64::INFINITY),
        nothing().quota(-1.0),
        nothing().quota(0.0),
        nothing().window(Duration::MAX),
        nothing().requests_per_minute(f64::NAN),
        nothing().requests_per_minute(-5.0),
        r#"{"backoff": {"min_delay": 10, "max_delay": 1}}"#
            .parse()
            .expect("each value is sound"),
    ];
    for patch in wrong {
        for name in ["a.test", "default", "*.example.org"] {
            let result = handle.set_scope(name, patch.clone());
            assert!(
                matches!(result, Err(ControlError::Unsound(_))),
                "{patch:?}: {result:?}"
            );
            assert!(crawler.set_scope(name, patch.clone()).is_err(), "{patch:?}");
        }
    }
    let text = r#"{"autothrottle": {"target_concurrency": 0}}"#;
    assert!(text.parse::<ScopePatch>().is_err(), "{text}");
    let mended = handle.set_scope("a.test", nothing().concurrency(0));
    let text = mended.expect_err("it is unsound").to_string();
    assert!(
        text.starts_with("THROTTLING_SCOPES.\"a.test\".concurrency: "),
        "{text}"
    );
    for name in ["", " a.test", "http://a.test/", "a*b", "ip/here"] {
        assert!(handle.set_scope(name, nothing()).is_err(), "{name:?}");
    }
    // Every value that the types allow is usable, also the extreme ones.
    let edges = [
        nothing().delay(Duration::from_secs(3_000_000_000)),
        nothing().quota(f64::MAX).window(Duration::ZERO),
        nothing().quota(f64::MIN_POSITIVE),
        nothing().concurrency(65_535),
    ];
    for patch in edges {
        let server = Server::start(|_| Reply::page("a page"));
        let (_, mut crawler) = kept(server.config());
        crawler.set_scope("a.test", patch).expect("it is sound");
        for number in 0..3 {
            let request = Request::get(format!("http://a.test/{number}"));
            crawler.submit(request).expect("a URL");
        }
        for _ in 0..20 {
            crawler.turn(Some(Duration::from_millis(5)));
        }
    }
}

#[test]
fn what_cannot_be_excluded_and_a_priority_out_of_range_are_rejected_by_the_call() {
    let (_, crawler) = kept(Config::default());
    let handle = crawler.handle();
    let is_invalid = |result: Result<(), ControlError>| {
        let error = result.expect_err("it is invalid");
        assert_eq!(error.code(), "invalid", "{error}");
        assert!(!error.is_retryable());
    };
    for name in ["re:(", "a/b", "192.0.2.0/33", "\\d+"] {
        is_invalid(handle.exclude(name));
    }
    is_invalid(handle.set_host_priority("a.test:8080", 1));
    is_invalid(handle.set_host_priority("a.test", i32::MIN));
    let error = handle.forget("a*b").expect_err("it is no pattern");
    assert_eq!(error.code(), "unsound", "{error}");
}

#[test]
fn stats_returns_a_fresh_snapshot() {
    let server = Server::start(|_| Reply::page("a page"));
    let (_, mut crawler) = kept(server.config());
    let handle = crawler.handle();
    // No thread drives it yet, so this is the snapshot of its start.
    assert_eq!(handle.stats().pages, 0);
    let driver = thread::spawn(move || (crawler.run(), crawler));
    for number in 1..=3 {
        let page = Request::get(format!("http://a.test/{number}"));
        handle.submit(page).expect("it goes on");
        let began = Clock::now();
        while handle.stats().pages < number {
            assert!(began.elapsed() < PATIENCE, "{:?}", handle.stats());
        }
    }
    assert_eq!(handle.stats().by_status, [(200, 3)].into());
    handle.shutdown(Duration::ZERO);
    let (reason, crawler) = driver.join().expect("it ends");
    assert_eq!(reason, FinishReason::Shutdown);
    drop(crawler);
    let began = Clock::now();
    assert_eq!(
        handle.stats().progress.finish_reason,
        Some(FinishReason::Shutdown)
    );
    assert!(
        began.elapsed() < Duration::from_millis(90),
        "a crawl that is over is not waited for"
    );
}

#[test]
fn an_idle_crawl_uses_no_processor_time() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Reply::page("a page"));
        let (_, mut crawler) = kept(set(server.config(), "IO", io));
        let handle = crawler.handle();
        handle
            .try_submit(Request::get("http://a.test/"))
            .expect("there is room");
        let driver = thread::spawn(move || {
            let mut turns = 0;
            let mut of_the_last_seconds = 0;
            let began = Clock::now();
            while crawler.turn(None) == Turn::GoesOn {
                turns += 1;
                if began.elapsed() > Duration::from_millis(2500) {
                    of_the_last_seconds += 1;
                }
            }
            (turns, of_the_last_seconds)
        });
        thread::sleep(Duration::from_millis(4500));
        handle.shutdown(Duration::ZERO);
        let (turns, late) = driver.join().expect("it ends");
        assert!(turns < 100, "{io}: {turns}");
        assert!(
            late <= 2,
            "{io}: it is awake without need: {late} of {turns}"
        );
    }
}

/// Waits on an epoll; returns the number of events.
fn waited(epoll: &OwnedFd, patience: Duration) -> Result<usize, rustix::io::Errno> {
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }];
    let patience = patience.try_into().expect("it fits");
    epoll::wait(epoll, &mut events, Some(&patience))
}

fn set(config: Config, name: &str, value: impl Into<SettingValue>) -> Config {
    config.with(name, value).expect("the setting is sound")
}

/// A crawler whose pages are kept.
fn kept(config: Config) -> (Shared<Vec<Page>>, Crawler) {
    let pages = Shared::new(Vec::new());
    let kept = pages.clone();
    let crawler = Crawler::builder(config)
        .sink(move |page: Page| kept.borrow_mut().push(page))
        .build()
        .expect("it can be set up");
    (pages, crawler)
}
