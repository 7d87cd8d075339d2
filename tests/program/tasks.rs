//! Crawls in async programs, on threads of their own.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use argiope::io::sim::Sim;
use argiope::sim::{Reply, Web};
use argiope::{
    AsyncCrawl, AsyncHandle, Builder, Config, Crawler, FinishReason, Page, Request, ScopeMap,
    ScopeQuery, State, SubmitError,
};
use tokio::runtime;
use tokio::time::{sleep, timeout};

/// No test takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const fn is_send<T: Send>() {}
const fn is_shared<T: Clone + Send + Sync + 'static>() {}

/// Checked by the compiler.
const _: () = {
    is_send::<AsyncCrawl>();
    is_send::<AsyncCrawl<Sim>>();
    is_shared::<AsyncHandle>();
};

fn run<F: Future>(test: F) -> F::Output {
    let runtime = runtime::Builder::new_current_thread().enable_time().build();
    let timed = async { timeout(PATIENCE, test).await.expect("it ends") };
    runtime.expect("a runtime").block_on(timed)
}

fn builder() -> Builder {
    let config = Config::default()
        .with("DOWNLOAD_DELAY", 0)
        .and_then(|config| config.with("ROBOTSTXT_OBEY", false))
        .and_then(|config| config.with("FOLLOW", "none"));
    Crawler::builder(config.expect("sound settings"))
}

/// A crawl of a web that has every page.
fn spawn(builder: Builder) -> AsyncCrawl<Sim> {
    let web = Web::new(|_| Reply::page("hello"));
    let crawler = builder.build_in(&web, 1).expect("a crawler");
    crawler.spawn().expect("a thread")
}

fn get(number: u64) -> Request {
    Request::get(format!("http://a.test/{number}")).tag(number)
}

/// Submits so many requests; ends early if the crawl does.
async fn produce(handle: AsyncHandle, count: u64, submitted: Arc<AtomicUsize>) {
    for number in 0..count {
        match handle.submit(get(number)).await {
            Ok(_) => submitted.fetch_add(1, Ordering::SeqCst),
            Err(SubmitError::Over(_)) => return,
            Err(error) => panic!("{error}"),
        };
    }
}

#[test]
fn a_task_takes_every_page_and_the_crawl_ends_with_its_last_handle() {
    run(async {
        let mut crawl = spawn(builder().results_max(4));
        tokio::spawn(produce(crawl.handle(), 3000, Arc::default()));
        let mut tags = BTreeSet::new();
        while let Some(page) = crawl.next().await {
            assert!(tags.insert(page.tag));
        }
        assert_eq!(tags.len(), 3000);
        assert!(crawl.next().await.is_none(), "it stays over");
        let mut crawler = crawl.finish().await;
        let reason = crawler.progress().finish_reason;
        assert_eq!(reason, Some(FinishReason::Finished));
        assert_eq!(crawler.take_pending().count(), 0);
    });
}

#[test]
fn crawl_does_not_end_between_a_page_and_what_it_leads_to() {
    run(async {
        let mut crawl = spawn(builder());
        crawl.submit(get(0)).expect("it begins");
        let mut tags = Vec::new();
        while let Some(page) = crawl.next().await {
            tags.push(page.tag);
            if page.tag < 20 {
                // The crawl is idle meanwhile, and has no other handle.
                sleep(Duration::from_millis(5)).await;
                crawl.submit(get(page.tag + 1)).expect("it goes on");
            }
        }
        assert_eq!(tags, (0..=20).collect::<Vec<u64>>());
        let refused = crawl.submit(get(99));
        assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
    });
}

#[test]
fn try_next_alone_ends_the_crawl() {
    run(async {
        let mut crawl = spawn(builder());
        for number in 0..10 {
            crawl.submit(get(number)).expect("it begins");
        }
        let mut pages = 0;
        while !crawl.is_over() {
            while crawl.try_next().is_some() {
                pages += 1;
            }
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(pages, 10);
        assert!(crawl.next().await.is_none());
    });
}

#[test]
fn virtual_time_stands_still_while_a_task_works() {
    run(async {
        let config = Config::default()
            .with("CLOSESPIDER_TIMEOUT", 3600)
            .and_then(|config| config.with("ROBOTSTXT_OBEY", false));
        let mut crawl = spawn(Crawler::builder(config.expect("sound settings")));
        let handle = crawl.handle();
        tokio::spawn(async move {
            for number in 0..5 {
                sleep(Duration::from_millis(10)).await;
                handle.submit(get(number)).await.expect("it goes on");
            }
        });
        let mut pages = 0;
        while crawl.next().await.is_some() {
            pages += 1;
        }
        let crawler = crawl.finish().await;
        let reason = crawler.progress().finish_reason;
        assert_eq!((pages, reason), (5, Some(FinishReason::Finished)));
    });
}

#[test]
fn a_crawl_that_has_finished_takes_no_more_before_its_last_commit() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let state = State::new(folder.path(), String::new(), [7; 16]).expect("a state");
        let mut crawl = spawn(builder().state(state));
        crawl.submit(get(0)).expect("it begins");
        let page = crawl.next().await.expect("a page");
        assert!(
            crawl.next().await.is_none(),
            "its acknowledgement is awaited"
        );
        let refused = crawl.submit(get(1));
        assert!(matches!(refused, Err(SubmitError::Over(_))), "{refused:?}");
        crawl.acknowledge(page.id);
        let mut crawler = crawl.finish().await;
        assert_eq!(crawler.take_pending().count(), 0);
    });
}

#[test]
fn a_next_that_is_dropped_loses_no_page() {
    run(async {
        let mut crawl = spawn(builder().results_max(2));
        tokio::spawn(produce(crawl.handle(), 500, Arc::default()));
        let mut tags = BTreeSet::new();
        let mut dropped = 0;
        'crawl: loop {
            for polls in 0..4 {
                // The other branch is ready after so many polls.
                let mut left = polls;
                let other = poll_fn(|context| {
                    left -= i32::from(left > 0);
                    context.waker().wake_by_ref();
                    if left == 0 {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                });
                tokio::select! {
                    biased;
                    page = crawl.next() => match page {
                        Some(page) => assert!(tags.insert(page.tag)),
                        None => break 'crawl,
                    },
                    () = other => dropped += 1,
                }
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(tags.len(), 500);
        assert!(dropped > 0);
    });
}

#[test]
fn a_submit_that_is_dropped_submits_nothing() {
    run(async {
        let mut crawl = spawn(builder().ahead(1));
        let handle = crawl.handle();
        handle.as_handle().pause();
        handle.submit(get(0)).await.expect("there is room");
        let mut context = Context::from_waker(Waker::noop());
        for number in 1..100 {
            let submit = pin!(handle.submit(get(number)));
            assert!(submit.poll(&mut context).is_pending(), "{number}");
        }
        handle.as_handle().resume();
        drop(handle);
        let mut tags = Vec::new();
        while let Some(page) = crawl.next().await {
            tags.push(page.tag);
        }
        assert_eq!(tags, [0]);
    });
}

#[test]
fn a_producer_of_a_million_stays_a_little_ahead() {
    run(async {
        const AHEAD: usize = 10;
        const RESULTS: usize = 8;
        let mut crawl = spawn(builder().ahead(AHEAD).results_max(RESULTS));
        let submitted = Arc::<AtomicUsize>::default();
        tokio::spawn(produce(crawl.handle(), 1_000_000, Arc::clone(&submitted)));
        for taken in 0..400 {
            let now = submitted.load(Ordering::SeqCst);
            // Some more end while the queue of results fills up.
            let most = taken + RESULTS + 2 * 16 + AHEAD;
            assert!(now <= most, "{now} were submitted when {taken} were taken");
            crawl.next().await.expect("there are more");
        }
        drop(crawl);
    });
}

#[test]
fn dropping_the_crawl_stops_it() {
    run(async {
        let mut crawl = spawn(builder());
        let handle = crawl.handle();
        tokio::spawn(produce(crawl.handle(), u64::MAX, Arc::default()));
        crawl.next().await.expect("a page");
        drop(crawl);
        loop {
            match handle.submit(get(0).dont_filter()).await {
                Ok(_) => sleep(Duration::from_millis(1)).await,
                Err(error) => {
                    assert!(matches!(error, SubmitError::Over(_)), "{error}");
                    break;
                }
            }
        }
    });
}

#[test]
fn a_stopped_crawl_gives_its_pages_and_what_is_pending() {
    run(async {
        let mut crawl = spawn(builder().results_max(1));
        let handle = crawl.handle();
        for number in 0..200 {
            handle.submit(get(number)).await.expect("there is room");
        }
        let mut tags: Vec<u64> = Vec::new();
        for _ in 0..10 {
            tags.push(crawl.next().await.expect("there are more").tag);
        }
        crawl.stopper().stop();
        while let Some(page) = crawl.next().await {
            tags.push(page.tag);
        }
        let mut crawler = crawl.finish().await;
        let reason = crawler.progress().finish_reason;
        assert_eq!(reason, Some(FinishReason::Shutdown));
        tags.extend(crawler.take_pending().map(|pending| pending.request.tag));
        tags.sort_unstable();
        assert_eq!(tags, (0..200).collect::<Vec<u64>>());
    });
}

#[test]
fn finish_runs_a_crawl_whose_pages_are_not_taken_to_its_end() {
    run(async {
        let crawl = spawn(builder().results_max(1));
        for number in 0..300 {
            crawl.submit(get(number)).expect("there is room");
        }
        let crawler = crawl.finish().await;
        let reason = crawler.progress().finish_reason;
        assert_eq!(reason, Some(FinishReason::Finished));
        assert_eq!(crawler.stats().pages, 300);
    });
}

#[test]
fn pages_go_to_a_sink_where_there_is_one() {
    run(async {
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        let mut crawl = spawn(builder().sink(move |_: Page| {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        for number in 0..10 {
            crawl.submit(get(number)).expect("there is room");
        }
        assert!(crawl.next().await.is_none());
        assert_eq!(count.load(Ordering::SeqCst), 10);
    });
}

#[test]
#[should_panic(expected = "the map does not know b.test")]
fn a_panic_of_the_crawls_thread_ends_next_and_is_passed_on_by_finish() {
    run(async {
        struct Panics;
        impl ScopeMap for Panics {
            fn scopes(&self, query: &mut ScopeQuery<'_>) {
                panic!("the map does not know {}", query.url().host_str());
            }
        }
        let mut crawl = spawn(builder().scope_map(Panics));
        crawl
            .submit(Request::get("http://b.test/"))
            .expect("it begins");
        assert!(crawl.next().await.is_none());
        crawl.finish().await;
    });
}

#[test]
fn a_crawl_with_a_state_commits_what_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().to_owned();
    run(async {
        let state = State::new(&path, String::new(), [7; 16]).expect("a state");
        let crawler = builder()
            .state(state)
            .build_in(&Web::new(|_| Reply::page("hello")), 1);
        let mut crawl = crawler.expect("a crawler").spawn().expect("a thread");
        for number in 0..50 {
            crawl.submit(get(number)).expect("there is room");
        }
        let mut last = Vec::new();
        while let Some(page) = crawl.next().await {
            // The last ones after the end.
            last.push(page.id);
            if last.len() > 10 {
                crawl.acknowledge(last.remove(0));
            }
        }
        for id in last {
            crawl.acknowledge(id);
        }
        let mut crawler = crawl.finish().await;
        let reason = crawler.progress().finish_reason;
        assert_eq!(reason, Some(FinishReason::Finished));
        assert_eq!(crawler.take_pending().count(), 0);
    });
}
