//! Backpressure on handles: how much they may submit beyond what is being fetched.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake};
use std::time::Duration;
use std::{fs, thread};

use crate::crawl::control::error::SubmitError;
use crate::crawl::core::tests::trial::{
    SinkRecord, calm, config, crawl_ahead, finish, get, run_for, turn,
};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Handle, Turn};
use crate::io::sim::Sim;
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;

const AHEAD: usize = 10;

/// A crawl of servers that answer after 100 ms, with two requests in flight at most to each.
fn crawl() -> (Crawler<Sim>, Handle, SinkRecord) {
    crawl_ahead(AHEAD, calm(Duration::from_millis(100)), |config, _| {
        config.throttle.default.concurrency = 2;
    })
}

/// Submits pages of a server from this one on while there is room; returns the next one.
fn fill(handle: &Handle, host: u32, mut page: u32) -> u32 {
    loop {
        match handle.try_submit(get(host, page)) {
            Ok(_) => page += 1,
            Err(SubmitError::Full(request)) => {
                assert_eq!(request.url, get(host, page).url);
                return page;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn handles_submit_so_many_requests_beyond_those_in_flight() {
    let (mut crawler, handle, record) = crawl();
    assert_eq!(fill(&handle, 1, 0), 10);
    run_for(&mut crawler, Duration::from_millis(50));
    let mut next = fill(&handle, 1, 10);
    assert_eq!(next, 12, "two are in flight");
    for _ in 0..20 {
        run_for(&mut crawler, Duration::from_millis(100));
        next = fill(&handle, 1, next);
        let ended = record.pages.borrow().len() as u32;
        assert_eq!(next, ended + crawler.progress().in_flight as u32 + 10);
    }
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len() as u32, next);
}

#[test]
fn a_request_that_ends_unsent_makes_room() {
    let (mut crawler, handle, record) = crawl();
    handle.pause();
    assert_eq!(fill(&handle, 1, 0), 10);
    run_for(&mut crawler, Duration::from_secs(5));
    assert_eq!(fill(&handle, 1, 10), 10, "nothing is fetched in a pause");
    handle.cancel_scope("10.0.0.1").expect("it goes on");
    run_for(&mut crawler, Duration::from_millis(10));
    assert_eq!(record.pages.borrow().len(), 10, "cancelled");
    // Each of them was seen.
    assert_eq!(fill(&handle, 1, 0), 10);
    run_for(&mut crawler, Duration::from_millis(10));
    assert_eq!(record.pages.borrow().len(), 20, "duplicates");
    assert_eq!(fill(&handle, 2, 0), 10);
}

#[test]
fn a_request_that_waits_for_its_retry_takes_room() {
    let (mut crawler, handle, record) = crawl();
    // No server listens there.
    for page in 0..10 {
        handle.try_submit(get(9, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_millis(300));
    let pages = record.pages.borrow();
    assert!(!pages.is_empty() && pages.iter().all(|page| !page.is_final));
    drop(pages);
    let in_flight = crawler.progress().in_flight as u32;
    assert!(in_flight < 10, "they wait");
    assert_eq!(fill(&handle, 1, 0), in_flight);
}

#[test]
fn crawl_ends_though_a_slow_scope_has_all_the_room() {
    let (mut crawler, handle, record) = crawl_ahead(3, calm(Duration::ZERO), |config, _| {
        config.throttle.default.delay = Duration::from_secs(60);
        config.throttle.default.concurrency = 1;
    });
    // The requests of the other server wait behind those of the first.
    let mut left: Vec<_> = (0..20).map(|page| get(1, page)).collect();
    left.extend((0..5).map(|page| get(2, page)));
    left.reverse();
    let mut handle = Some(handle);
    for _ in 0..10_000 {
        while let (Some(request), Some(open)) = (left.pop(), &handle) {
            if let Err(SubmitError::Full(back)) = open.try_submit(request) {
                left.push(*back);
                break;
            }
        }
        handle = handle.filter(|_| !left.is_empty());
        if let Turn::Over(reason) = turn(&mut crawler, Some(Duration::from_secs(60))) {
            assert_eq!(reason, FinishReason::Finished);
            break;
        }
    }
    assert!(
        crawler.progress().finish_reason.is_some(),
        "it does not end"
    );
    assert_eq!(record.pages.borrow().len(), 25);
}

#[test]
fn requests_of_the_owner_and_seeds_take_no_room() {
    let (mut crawler, handle, _) = crawl();
    for page in 100..150 {
        crawler.submit(get(1, page)).expect("it is a URL");
        handle.submit_seed(get(2, page)).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_millis(10));
    assert_eq!(fill(&handle, 3, 0), 10);
}

#[test]
fn submit_now_exceeds_the_room_and_counts() {
    let (mut crawler, handle, _) = crawl();
    for page in 0..30 {
        handle.submit_now(get(1, page)).expect("it does not wait");
    }
    run_for(&mut crawler, Duration::from_millis(250));
    assert_eq!(fill(&handle, 2, 0), 0);
    run_for(&mut crawler, Duration::from_millis(1200));
    assert!(fill(&handle, 2, 0) > 0);
}

#[test]
fn submit_from_a_sink_does_not_wait() {
    let submitter = Arc::new(Mutex::new(None::<Handle>));
    let count = Arc::new(AtomicUsize::new(0));
    let (from, counted) = (Arc::clone(&submitter), Arc::clone(&count));
    let mut config = config(1);
    config.throttle.default.concurrency = 2;
    let sink = FunctionSink::new(move |page: Page| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut handle = from.lock().expect("no panic");
        // Each of the first pages leads to many more than may be ahead.
        if page.depth == 0 && page.url.ends_with("/0") {
            for number in 1..100 {
                let handle = handle.as_ref().expect("the first page");
                handle
                    .submit(get(1, number))
                    .expect("it neither waits nor is full");
            }
            *handle = None;
        }
    });
    let world = calm(Duration::from_millis(1));
    let io = Sim::with(1, config.io.clone(), Default::default(), Box::new(world));
    let builder = Crawler::builder(config).sink(sink).ahead(AHEAD);
    let mut crawler = builder.build_on(io, Default::default()).expect("a crawler");
    *submitter.lock().expect("no panic") = Some(crawler.handle());
    crawler.submit(get(1, 0)).expect("it is a URL");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(count.load(Ordering::SeqCst), 100);
}

/// It would wait for the first turn, which it is to take.
#[test]
fn submit_does_not_wait_before_the_first_turn() {
    let (mut crawler, handle, record) = crawl();
    for page in 0..5000 {
        let request = get(1, page % 300).dont_filter();
        handle.submit(request).expect("it is accepted");
    }
    drop(handle);
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len(), 5000);
}

#[test]
fn a_crawl_that_stops_accepts_no_more_and_wakes_waiting_submissions() {
    let (mut crawler, handle, record) = crawl();
    assert_eq!(fill(&handle, 1, 0), 10);
    run_for(&mut crawler, Duration::from_millis(50));
    let submitted = fill(&handle, 1, 10);
    let woken = Arc::new(Wakes::default());
    let waker = Arc::clone(&woken).into();
    let mut context = Context::from_waker(&waker);
    let mut waits = pin!(handle.submit_async(get(2, 0)));
    assert!(waits.as_mut().poll(&mut context).is_pending());
    crawler.stopper().stop();
    run_for(&mut crawler, Duration::from_millis(1));
    assert!(
        crawler.progress().finish_reason.is_none(),
        "two are awaited"
    );
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(refused) = waits.as_mut().poll(&mut context) else {
        panic!("it waits for a crawl that takes no more");
    };
    assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
    let refused = handle.submit_now(get(2, 1));
    assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
    assert_eq!(finish(&mut crawler), FinishReason::Shutdown);
    let ended = record.pages.borrow().len();
    assert_eq!(ended + crawler.take_pending().count(), submitted as usize);
}

#[test]
fn a_handle_of_a_crawl_that_has_panicked_is_over() {
    let mut crawler = Crawler::builder(config(1))
        .sink(|_: Page| panic!("the sink"))
        .build_on(
            Sim::with(
                1,
                Default::default(),
                Default::default(),
                Box::new(calm(Duration::ZERO)),
            ),
            Default::default(),
        )
        .expect("a crawler");
    let handle = crawler.handle();
    handle.submit(get(1, 0)).expect("it begins");
    let run = AssertUnwindSafe(|| while crawler.turn(None) == Turn::GoesOn {});
    catch_unwind(run).expect_err("the sink panics");
    let refused = handle.submit(get(1, 1));
    assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
    handle.cancel(1).expect_err("there is no crawl");
}

#[test]
fn a_thread_that_submits_waits_until_there_is_room() {
    let (mut crawler, handle, record) = crawl();
    let submitted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&submitted);
    let (sender, receiver) = std::sync::mpsc::channel();
    let producer = thread::spawn(move || {
        sender
            .send(fs::read_link("/proc/thread-self").expect("Linux"))
            .expect("the test listens");
        for page in 0..100 {
            handle.submit(get(1, page)).expect("the crawl goes on");
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let task = Path::new("/proc").join(receiver.recv().expect("it has begun"));
    while !producer.is_finished() {
        // What it does not submit by now it waits for.
        let is_asleep = || {
            let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
            (stat.rsplit_once(") ")).is_none_or(|(_, state)| state.starts_with('S'))
        };
        while !producer.is_finished() && !is_asleep() {
            thread::yield_now();
        }
        let ended = record.pages.borrow().len();
        let most = ended + crawler.progress().in_flight + AHEAD;
        let now = submitted.load(Ordering::SeqCst);
        assert!(now <= most, "{now} {most}");
        if turn(&mut crawler, Some(Duration::from_millis(100))) != Turn::GoesOn {
            break;
        }
    }
    producer.join().expect("it is woken");
    assert_eq!(finish(&mut crawler), FinishReason::Finished);
    assert_eq!(record.pages.borrow().len(), 100);
}

#[test]
fn room_for_a_few_of_many_is_offered_within_a_second() {
    let (mut crawler, handle, _) = crawl_ahead(2000, calm(Duration::ZERO), |config, _| {
        config.throttle.default.delay = Duration::from_secs(10);
        config.throttle.default.concurrency = 1;
    });
    for page in 0..2000 {
        let request = get(1, page % 300).dont_filter();
        handle.try_submit(request).expect("there is room");
    }
    run_for(&mut crawler, Duration::from_secs(5));
    handle.try_submit(get(2, 0)).expect("one was fetched");
    let woken = Arc::new(Wakes::default());
    let waker = Arc::clone(&woken).into();
    let mut context = Context::from_waker(&waker);
    run_for(&mut crawler, Duration::from_secs(1));
    let mut waits = pin!(handle.submit_async(get(2, 1)));
    while waits.as_mut().poll(&mut context).is_ready() {
        // The second server has fetched one, too.
        waits.set(handle.submit_async(get(2, 1).dont_filter()));
    }
    woken.0.store(0, Ordering::SeqCst);
    run_for(&mut crawler, Duration::from_secs(21));
    assert!(woken.0.load(Ordering::SeqCst) > 0);
    assert!(waits.as_mut().poll(&mut context).is_ready());
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn the_thread_that_built_a_crawl_which_another_one_drives_submits_within_the_bound_from_the_beginning()
 {
    let (crawler, handle, _) = crawl();
    crawler.core.leave_turns_to_others();
    let mut submitted = 0;
    let refused = (0..10_000).find_map(|page| {
        let refused = handle.submit_now(get(1, page)).err();
        submitted += usize::from(refused.is_none());
        refused
    });
    assert!(matches!(refused, Some(SubmitError::Full(_))));
    assert_eq!(submitted, 4096);
}
