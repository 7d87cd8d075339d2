//! Orders that are not carried out yet when a crawl is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::crawl::config::{Config, SettingSource};
use crate::crawl::control::error::ControlError;
use crate::crawl::core::tests::spilled::{
    crawl, killed, orders_in, page, resumed, resumed_into, run_until,
};
use crate::crawl::core::tests::trial::run_for;
use crate::crawl::{Crawler, Turn};
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::Sim;
use crate::io::sim::web::{Reply, Web};
use crate::sink::Sink;
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::throttle::settings::ScopePatch;

/// Links of pages are followed, and requests wait in memory.
fn follow_all(config: &mut Config) {
    config.frontier.memory_max = 1 << 30;
    config.frontier.follow = Follow::All;
}

/// A page whose links take many turns to read.
fn long_page() -> Reply {
    Reply::page("<a href='/'>x</a>".repeat(200_000))
}

/// A sink that takes results while the flag is set.
fn gated_sink() -> (Arc<AtomicBool>, impl Sink + 'static) {
    let ready = Arc::new(AtomicBool::new(true));
    let is_ready = Arc::clone(&ready);
    let sink = FunctionSink::new(|_: Page| ()).ready_when(move || is_ready.load(Ordering::Relaxed));
    (ready, sink)
}

fn run_until_a_page_is_under_way(crawler: &mut Crawler<Sim>) {
    for _ in 0..100_000 {
        if crawler.core.pages.has_under_way() {
            break;
        }
        crawler.turn(Some(Duration::from_millis(1)));
    }
}

/// Cancels a request with a long page while the sink is not ready, and kills the crawl; returns how often a later
/// run requests it. `by_scope`: its scope is cancelled. `in_flight`: its reply is still being received.
fn requested_after_cancel(by_scope: bool, in_flight: bool) -> usize {
    let web = || {
        Web::new(|asked| match asked.target.as_str() {
            "/1" => long_page(),
            _ => Reply::text("done"),
        })
    };
    let edit = follow_all;
    let (ready, sink) = gated_sink();
    let begun = crawl(&web(), edit);
    let first = web();
    let mut crawler = resumed_into(sink, &begun, &first, edit);
    let handle = crawler.handle();
    let id = crawler.submit(page(1)).expect("it is a URL");
    for _ in 0..100_000 {
        if crawler.core.pages.has_under_way() || in_flight && !first.asked().is_empty() {
            break;
        }
        crawler.turn(Some(Duration::from_millis(1)));
    }
    ready.store(false, Ordering::Relaxed);
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(crawler.core.pages.has_under_way(), !in_flight);
    let cancelled = match by_scope {
        true => handle.cancel_scope("a.test"),
        false => handle.cancel(id),
    };
    cancelled.expect("there is room");
    run_for(&mut crawler, Duration::from_secs(2));
    let second = web();
    let mut last = resumed(&crawler, &second, edit);
    while last.turn(None) == Turn::GoesOn {}
    assert_eq!(orders_in(&killed(&last)), [0, 0]);
    // The first crawl goes on, too: its orders end with the page.
    ready.store(true, Ordering::Relaxed);
    drop(handle);
    while crawler.turn(None) == Turn::GoesOn {}
    assert_eq!(orders_in(&killed(&crawler)), [0, 0]);
    let asked = second.asked();
    asked.iter().filter(|asked| asked.target == "/1").count()
}

#[test]
fn a_request_stays_cancelled_while_its_page_waits_for_the_sink() {
    let all = [(false, false), (true, false), (false, true), (true, true)];
    let again = all.map(|(by_scope, in_flight)| requested_after_cancel(by_scope, in_flight));
    assert_eq!(again, [0; 4]);
}

#[test]
fn a_cancelled_scope_is_forgotten_while_later_pages_wait_for_the_sink() {
    let web = || {
        Web::new(|asked| match asked.target.as_str() {
            "/late" => Reply::status(302)
                .field("location", "/done")
                .field("retry-after", "60"),
            "/1" => long_page(),
            _ => Reply::text("done"),
        })
    };
    let edit = follow_all;
    let (ready, sink) = gated_sink();
    let begun = crawl(&web(), edit);
    let mut crawler = resumed_into(sink, &begun, &web(), edit);
    let handle = crawler.handle();
    let late = Request::get("http://a.test/late");
    crawler.submit(late).expect("it is a URL");
    run_for(&mut crawler, Duration::from_secs(30));
    handle.cancel_scope("b.test").expect("there is room");
    run_for(&mut crawler, Duration::from_secs(1));
    crawler.submit(page(1)).expect("it is a URL");
    run_until_a_page_is_under_way(&mut crawler);
    ready.store(false, Ordering::Relaxed);
    run_for(&mut crawler, Duration::from_secs(1));
    assert_eq!(orders_in(&killed(&crawler)), [0, 1], "a request waits");
    run_for(&mut crawler, Duration::from_secs(60));
    assert!(crawler.core.pages.has_under_way());
    assert_eq!(orders_in(&killed(&crawler)), [0, 0]);
}

#[test]
fn the_target_of_a_redirect_stays_cancelled_when_the_page_of_the_redirect_comes_first() {
    const OTHERS: u64 = 100;
    let web = || {
        Web::new(|asked| match asked.target.as_str() {
            "/0" => Reply::status(302)
                .field("location", "/target")
                .after(Duration::from_millis(500)),
            _ => Reply::text("done"),
        })
    };
    let edit = |config: &mut Config| {
        config.throttle.default.delay = Duration::from_secs(100);
        config.frontier.memory_max = 1 << 30;
    };
    let mut tried = 0;
    for seed in 0..12 {
        let room = Arc::new(AtomicI64::new(i64::MAX));
        let (left, taken) = (Arc::clone(&room), Arc::clone(&room));
        let sink = FunctionSink::new(move |_: Page| {
            taken.fetch_sub(1, Ordering::Relaxed);
        });
        let sink = sink.ready_when(move || left.load(Ordering::Relaxed) > 0);
        let begun = crawl(&web(), edit);
        let first = web();
        let mut crawler = resumed_into(sink, &begun, &first, edit);
        let handle = crawler.handle();
        let ids = (0..=OTHERS).map(|number| crawler.submit(page(number)).expect("it is a URL"));
        let ids: Vec<u64> = ids.collect();
        while first.asked().is_empty() {
            run_for(&mut crawler, Duration::from_millis(50));
        }
        crawler.delay_admission(seed);
        for _ in 0..3000 {
            if !crawler.core.pages.is_empty() {
                break;
            }
            run_for(&mut crawler, Duration::from_millis(1));
        }
        room.store(0, Ordering::Relaxed);
        run_for(&mut crawler, Duration::from_secs(1));
        if !crawler.core.pages.has_under_way() {
            // The answer to the offer of its target was not late.
            continue;
        }
        for others in [&ids[1..], &ids[..1]] {
            for id in others {
                handle.cancel(*id).expect("there is room");
            }
            run_for(&mut crawler, Duration::from_millis(100));
        }
        assert_eq!(crawler.core.work.unsent_len() as u64, OTHERS + 1);
        // As many as end in one turn, and the page of the redirect.
        room.store(65, Ordering::Relaxed);
        run_for(&mut crawler, Duration::from_secs(1));
        assert!(!crawler.core.pages.has_under_way());
        assert_eq!(crawler.core.work.unsent_len() as u64, OTHERS + 1 - 64);
        let second = web();
        let mut last = resumed(&crawler, &second, edit);
        while last.turn(None) == Turn::GoesOn {}
        assert_eq!(second.asked().len(), 0, "seed {seed}");
        assert_eq!(orders_in(&killed(&last)), [0, 0], "seed {seed}");
        tried += 1;
    }
    assert!(tried > 2, "{tried}");
}

#[test]
fn no_cancellation_is_kept_once_no_request_waits_in_a_file() {
    let web = Web::new(|_| Reply::text("done"));
    let edit = |config: &mut Config| config.throttle.default.delay = Duration::from_millis(50);
    let mut crawler = crawl(&web, edit);
    let handle = crawler.handle();
    let ids = (0..256).map(|number| crawler.submit(page(number)).expect("it is a URL"));
    let ids: Vec<u64> = ids.collect();
    run_until(&mut crawler, Duration::from_secs(20));
    assert_eq!(web.asked().len(), 256);
    for number in 0..200 {
        let other = Request::get(format!("http://b.test/{number}"));
        crawler.submit(other).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_millis(100));
    for id in ids {
        handle.cancel(id).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_millis(200));
    assert_eq!(orders_in(&killed(&crawler)), [256, 0]);
    assert_eq!(crawler.core.spill.cancelled_len(), 256);
    run_for(&mut crawler, Duration::from_secs(20));
    assert_eq!(orders_in(&killed(&crawler)), [0, 0]);
    assert_eq!(crawler.core.spill.cancelled_len(), 0);
}

#[test]
fn a_key_of_an_order_that_the_new_configuration_does_not_allow_leaves_the_delay_that_was_ordered() {
    let web = || Web::new(|_| Reply::text("done").after(Duration::from_secs(7200)));
    let mut first = crawl(&web(), |_| ());
    first.submit(page(0)).expect("it is a URL");
    let patch = |text: &str| text.parse::<ScopePatch>().expect("a patch");
    let names = ["default", "a.test"];
    for name in names {
        let ordered = patch(r#"{"delay": 10, "backoff": {"min_delay": 100}}"#);
        first.set_scope(name, ordered).expect("it is sound");
    }
    run_for(&mut first, Duration::from_secs(1));
    let changed = |config: &mut Config| {
        let set = config.set("BACKOFF_MAX_DELAY", 50, SettingSource::Option);
        set.expect("it is a delay");
    };
    let mut killed = first;
    for _ in 0..2 {
        let mut next = resumed(&killed, &web(), changed);
        let throttle = &next.core.throttle;
        let left = [throttle.default_patch(), throttle.patch_of("a.test")];
        assert_eq!(left, names.map(|_| patch(r#"{"delay": 10}"#)));
        run_for(&mut next, Duration::from_secs(1));
        killed = next;
    }
}

#[test]
fn every_order_that_a_stopped_crawl_takes_holds_in_the_next_run() {
    for by_scope in [false, true] {
        let web = || Web::new(|_| Reply::text("done").after(Duration::from_secs(100)));
        let mut crawler = crawl(&web(), follow_all);
        let handle = crawler.handle();
        let id = crawler.submit(page(1)).expect("it is a URL");
        run_for(&mut crawler, Duration::from_secs(1));
        handle.stopper().stop_now();
        // More than one turn has time for.
        for number in 0..200 {
            let patch = ScopePatch::default().delay(Duration::from_secs(number));
            handle.set_scope("c.test", patch).expect("it is not over");
        }
        let cancelled = match by_scope {
            true => handle.cancel_scope("a.test"),
            false => handle.cancel(id),
        };
        cancelled.expect("it is not over");
        while crawler.core.control.phase().is_fetching() {
            crawler.turn(Some(Duration::ZERO));
        }
        assert_eq!(handle.cancel(id), Err(ControlError::Over));
        while crawler.turn(None) == Turn::GoesOn {}
        let second = web();
        let mut last = resumed(&crawler, &second, follow_all);
        assert_eq!(
            last.core.throttle.patch_of("c.test").delay,
            Some(Duration::from_secs(199))
        );
        while last.turn(None) == Turn::GoesOn {}
        assert_eq!(orders_in(&killed(&last)), [0, 0]);
        assert_eq!(second.asked().len(), 0);
    }
}
