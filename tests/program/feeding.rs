//! Request sources, and links extracted by other threads, over loopback.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::{
    BodyMode, Crawler, EndedRequest, FinishReason, LinksLater, Page, Reply, Request, RequestSource,
    Sink, SourceError, SourcePoll, Turn, Wake,
};

use crate::loopback::{Reply as Answer, Server};

/// No crawl here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sink that sends each page, with its [`LinksLater`], to a thread that finds its links.
struct ToThread {
    pages: Sender<(Page, LinksLater)>,
    open: Vec<(u64, LinksLater)>,
}

impl Sink for ToThread {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        self.open.push((reply.id, reply.links_later()));
        BodyMode::Keep
    }

    fn put(&mut self, page: &mut Page) {
        let place = self.open.iter().position(|(id, _)| *id == page.id);
        let later = self.open.swap_remove(place.expect("it had a head")).1;
        if page.is_final {
            let page = std::mem::take(page);
            self.pages.send((page, later)).expect("the thread lives");
        }
    }
}

#[test]
fn links_from_a_slow_thread_are_followed() {
    const PAGES: usize = 30;
    let server = Server::start(|asked| match asked.target.as_str() {
        "/0" => Answer::redirect("302 Found", "/1"),
        _ => Answer::page("a page"),
    });
    let (pages, looks) = channel::<(Page, LinksLater)>();
    let sink = ToThread {
        pages,
        open: Vec::new(),
    };
    let config = server.config().with("FOLLOW", "host").expect("it is sound");
    let mut crawler = Crawler::builder(config)
        .sink(sink)
        .build()
        .expect("a crawler");
    let first = Request::get("http://a.test/0");
    crawler.submit(first).expect("it is a URL");
    let finds = thread::spawn(move || {
        let mut depths = Vec::new();
        for (page, later) in looks {
            // By then the crawl has no other work.
            thread::sleep(Duration::from_millis(3));
            depths.push(page.depth);
            let number = depths.len() + 1;
            if number <= PAGES {
                assert_eq!(later.links([Request::get(format!("/{number}"))]), 1);
            }
        }
        depths
    });
    assert_eq!(crawler.run(), FinishReason::Finished);
    assert_eq!(crawler.stats().pages, PAGES as u64);
    drop(crawler);
    let depths = finds.join().expect("it looks at every page");
    assert_eq!(depths, (0..PAGES as u32).collect::<Vec<_>>());
}

/// A source of the requests in a channel.
struct FromChannel {
    requests: Receiver<Request>,
    wakes: Sender<Wake>,
    ended: Sender<u64>,
}

impl RequestSource for FromChannel {
    fn next(&mut self, wake: &Wake) -> Result<SourcePoll, SourceError> {
        Ok(match self.requests.try_recv() {
            Ok(request) => SourcePoll::Request(request),
            Err(TryRecvError::Disconnected) => SourcePoll::Finished,
            Err(TryRecvError::Empty) => {
                self.wakes.send(wake.clone()).expect("the test listens");
                SourcePoll::Nothing
            }
        })
    }

    fn ended(&mut self, ended: &EndedRequest<'_>) {
        self.ended.send(ended.tag).expect("the test listens");
    }
}

#[test]
fn a_source_that_is_fed_by_another_thread_wakes_the_crawl_within_a_millisecond() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Answer::page("a page"));
        let config = server.config().with("IO", io).expect("it is sound");
        let (requests, comes) = channel();
        let (wakes, hears) = channel();
        let (ended, acknowledged) = channel();
        let source = FromChannel {
            requests: comes,
            wakes,
            ended,
        };
        let mut crawler = Crawler::builder(config)
            .source(source)
            .build()
            .expect("a crawler");
        let (woke, turns) = channel();
        let driver = thread::spawn(move || {
            loop {
                let turn = crawler.turn(None);
                woke.send(Clock::now()).expect("the test listens");
                while crawler.try_next_result().is_some() {}
                if let Turn::Over(reason) = turn {
                    return reason;
                }
            }
        });
        let mut quickest = PATIENCE;
        for tag in 1..=12 {
            let wake = hears.recv_timeout(PATIENCE).expect("it is asked");
            // Long enough for the crawl to sleep.
            thread::sleep(Duration::from_millis(5));
            while turns.try_recv().is_ok() {}
            let request = Request::get(format!("http://a.test/{tag}")).tag(tag);
            requests.send(request).expect("the source lives");
            let said = Clock::now();
            wake.wake();
            let woken = turns.recv_timeout(PATIENCE).expect("it wakes");
            quickest = quickest.min(woken.saturating_duration_since(said));
            assert_eq!(acknowledged.recv_timeout(PATIENCE), Ok(tag));
        }
        // Other processes may delay a wake, but not every one.
        assert!(quickest < Duration::from_millis(1), "{io}: {quickest:?}");
        drop(requests);
        let wake = hears.recv_timeout(PATIENCE).expect("it is asked");
        wake.wake();
        assert_eq!(driver.join().expect("it ends"), FinishReason::Finished);
    }
}

#[test]
fn deferred_links_wake_the_crawl_within_a_millisecond() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Answer::page("a page"));
        let config = server.config().with("IO", io).expect("it is sound");
        let mut crawler = Crawler::builder(config).build().expect("a crawler");
        let first = Request::get("http://a.test/0");
        crawler.submit(first).expect("it is a URL");
        let page = crawler.next_result().expect("a page");
        let open: Vec<LinksLater> = (0..12).map(|_| crawler.links_later(&page)).collect();
        let (woke, turns) = channel();
        let driver = thread::spawn(move || {
            loop {
                let turn = crawler.turn(None);
                woke.send(Clock::now()).expect("the test listens");
                if let Turn::Over(reason) = turn {
                    return reason;
                }
            }
        });
        let tries = open.into_iter().enumerate().map(|(number, later)| {
            thread::sleep(Duration::from_millis(5));
            while turns.try_recv().is_ok() {}
            let said = Clock::now();
            match number % 2 {
                0 => drop(later),
                _ => drop(later.links([])),
            }
            let woken = turns.recv_timeout(PATIENCE).expect("it wakes");
            woken.saturating_duration_since(said)
        });
        let quickest = tries.min().expect("some tries");
        assert!(quickest < Duration::from_millis(1), "{io}: {quickest:?}");
        assert_eq!(driver.join().expect("it ends"), FinishReason::Finished);
    }
}
