//! Owning a crawl, driving it and steering it from elsewhere, against a small server on the
//! loopback device.

#[allow(dead_code, reason = "other tests ask it for more")]
mod loopback;

use std::thread;
use std::time::Duration;

use argiope::base::shared::Shared;
use argiope::{Config, Crawler, Handle, Page, Request, Stopper, Turn};

use loopback::{Reply, Server};

const fn is_send<T: Send>() {}
const fn is_shared<T: Clone + Send + Sync + 'static>() {}

/// Checked where it is compiled.
const _: () = {
    is_send::<Crawler>();
    is_send::<Crawler<argiope::io::sim::Sim>>();
    is_send::<argiope::Builder>();
    is_shared::<Handle>();
    is_shared::<Stopper>();
};

#[test]
fn a_crawl_goes_on_whichever_thread_takes_its_turns() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Reply::page("a page"));
        let (pages, mut crawler) = kept(server.config().with("IO", io).expect("a back end"));
        if crawler.progress().io != io {
            eprintln!("SKIPPED: there is no {io} here");
            continue;
        }
        for number in 0..40 {
            crawler
                .submit(Request::get(format!("http://a.test/{number}")))
                .expect("it is a URL");
        }
        // Made here, driven by threads that end: first until half is done, then to the end.
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
        assert_eq!(reason.join().expect("it ends"), "finished");
        let pages = pages.borrow();
        assert_eq!(pages.len(), 41, "{io}");
        let failed = pages.iter().find(|page| page.status != Some(200));
        assert!(failed.is_none(), "{io}: {failed:?}");
    }
}

#[test]
fn the_thread_that_drove_a_crawl_before_is_left_in_peace() {
    let slowly = Duration::from_millis(150);
    let server = Server::start(move |_| Reply::page("a page").after(slowly));
    let (pages, mut crawler) = kept(server.config().with("IO", "uring").expect("a back end"));
    crawler
        .submit(Request::get("http://a.test/"))
        .expect("it is a URL");
    while server.asked().is_empty() {
        crawler.turn(Some(Duration::from_millis(5)));
    }
    // The reply comes while another thread drives. What the kernel still did in our name would
    // break off our own wait.
    let (tells, hears) = std::sync::mpsc::channel();
    let driver = thread::spawn(move || {
        crawler.turn(Some(Duration::ZERO));
        tells.send("it has taken over").expect("the test listens");
        let reason = crawler.run();
        tells.send("it has ended").expect("the test listens");
        (reason, crawler)
    });
    hears.recv().expect("it takes over");
    let nothing = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let nothing = nothing.expect("a descriptor");
    while hears.try_recv().is_err() {
        let mut events: [rustix::event::epoll::Event; 1] =
            std::array::from_fn(|_| rustix::event::epoll::Event {
                flags: rustix::event::epoll::EventFlags::IN,
                data: rustix::event::epoll::EventData::new_u64(0),
            });
        let patience = Duration::from_millis(50).try_into().expect("it fits");
        let waited = rustix::event::epoll::wait(&nothing, &mut events, Some(&patience));
        assert_eq!(waited, Ok(0));
    }
    assert_eq!(driver.join().expect("it ends").0, "finished");
    assert_eq!(pages.borrow()[0].status, Some(200));
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
