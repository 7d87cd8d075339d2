//! Results that the crawl's owner takes one by one, and the links that it finds in them.

use std::sync::Arc;
use std::time::Duration;

use crate::crawl::control::found::Found;
use crate::crawl::crawler::{Crawler, Turn};
use crate::io::Io;
use crate::sink::later::{LinksLater, OpenPage};
use crate::sink::page::Page;

/// Time for which the crawl makes no turn while its owner takes waiting results: requests
/// become due meanwhile.
const TURN_EVERY: Duration = Duration::from_millis(1);

impl<I: Io> Crawler<I> {
    /// The next result of a crawler that was built without a sink: drives the crawl until there is
    /// one. `None` once the crawl is over and all have been taken; then
    /// [`Progress::finish_reason`](crate::Progress::finish_reason) has the reason.
    ///
    /// ```
    /// use argiope::{Config, Crawler, FinishReason, Request};
    ///
    /// let config = Config::default().with("ALLOW_NET", "loopback")?;
    /// # let config = config.with("HOST_DOWN_AFTER", "0")?;
    /// let mut crawler = Crawler::builder(config).build()?;
    /// crawler.submit(Request::get("http://127.0.0.1:9/"))?;
    /// while let Some(page) = crawler.next_result() {
    ///     println!("{:?} {}", page.status, page.url);
    /// }
    /// # assert_eq!(crawler.progress().finish_reason, Some(FinishReason::Finished));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A [result](Page::is_result) is the final page of a request or of a link, with success or failure. A sitemap has
    /// one if it was submitted. Results come in order of finishing. [`Builder::every_attempt`](crate::Builder::every_attempt) adds each
    /// robots.txt and each sitemap that was not submitted, and attempts that a retry or a redirect follows. Up to
    /// [`Builder::results_max`](crate::Builder::results_max) results wait, and at most 8 MiB of their
    /// content; then the crawl sends nothing new and reads no more until one is taken, so that memory
    /// stays bounded. It does not end before the last is taken: requests that follow from it may still
    /// be submitted.
    ///
    /// Between two calls the crawl makes no turn, and requests that become due leave late: pass a result that
    /// takes more than a millisecond or so to another thread.
    ///
    /// In a crawler with a sink results go there: this method runs it to its end, and returns `None`.
    pub fn next_result(&mut self) -> Option<Page> {
        loop {
            if self.core.output().results_wait() {
                if self.core.is_left_behind(TURN_EVERY) {
                    self.turn(Some(Duration::ZERO));
                }
                return self.try_next_result();
            }
            if self.core.waits_for_owner() {
                return None;
            }
            if let Turn::Over(_) = self.turn(None) {
                return self.try_next_result();
            }
        }
    }

    /// Acknowledges a result that was pulled, by its number ([`Page::id`]): the caller does not lose it any
    /// more. Of effect in a crawl with a [state](crate::Builder::state) alone.
    ///
    /// A commit covers results that are acknowledged, and waits for those that were queued before it began:
    /// acknowledge each that was pulled, failures included, in any order. The run that
    /// resumes the crawl fetches the rest again: also results that were acknowledged, if no commit followed.
    /// So store each with its [`Page::epoch`], and delete those of a later one than that of
    /// [`State::commit`](crate::State::commit) before the crawl is resumed. While 65 536 results are not
    /// acknowledged, nothing more is sent.
    ///
    /// [`Crawler::next_result`] returns `None` once all results were taken, also if the last ones are not
    /// acknowledged. Acknowledge them and call [`Crawler::run`], which makes the last commit. It does not
    /// wait for acknowledgements, nor does a stop longer than `STOP_GRACE`: without them the last commit
    /// is missing, and the results after the one before it are fetched again.
    ///
    /// ```
    /// use argiope::sim::{Reply, Web};
    /// use argiope::{Config, Crawler, FinishReason, Request};
    ///
    /// let web = Web::new(|_| Reply::page("hello"));
    /// let mut crawler = Crawler::builder(Config::default()).build_in(&web, 1)?;
    /// crawler.submit(Request::get("http://example.com/"))?;
    /// let mut stored = Vec::new();
    /// while let Some(page) = crawler.next_result() {
    ///     let id = page.id;
    ///     stored.push(page); // In a database, say.
    ///     crawler.acknowledge(id);
    /// }
    /// assert_eq!(crawler.run(), FinishReason::Finished);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn acknowledge(&mut self, id: u64) {
        self.core.acknowledge(id);
    }

    /// The next result if one waits: takes no turn. For programs that take the turns in a loop of their
    /// own; the rest of [`Crawler::next_result`] holds here too.
    ///
    /// ```
    /// use argiope::{Config, Crawler, Turn};
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use std::time::Duration;
    ///
    /// let mut crawler = Crawler::builder(Config::default()).build()?;
    /// loop {
    ///     let turn = crawler.turn(Some(Duration::ZERO));
    ///     while let Some(page) = crawler.try_next_result() {
    ///         println!("{:?} {}", page.status, page.url);
    ///     }
    ///     match turn {
    ///         Turn::GoesOn => poll(&mut [PollFd::new(&crawler, PollFlags::IN)], None)?,
    ///         Turn::Over(_) => break,
    ///     };
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The [descriptor](Crawler::as_fd) is readable while results wait, and a turn does not wait for
    /// events; but a caller that takes turns and no results is not woken repeatedly. Remaining results
    /// can still be taken after the last turn.
    pub fn try_next_result(&mut self) -> Option<Page> {
        self.core.take_result()
    }

    /// Holds a pulled page open until its links are known: see [`LinksLater`]. The links are fetched
    /// by the proxy of the page's [request](crate::Request::proxy), if it names one, unless they set one.
    pub fn links_later(&self, page: &Page) -> LinksLater {
        held_open(page, self.core.found())
    }
}

/// Holds a page open until its links are known.
pub(super) fn held_open(page: &Page, found: &Arc<Found>) -> LinksLater {
    let page = OpenPage {
        id: page.id,
        root: page.root,
        url: page.url.as_str().into(),
        depth: page.depth,
        // That of its host, or of its URL, holds for no other.
        route: page.route.clone().filter(|_| page.is_route_own),
    };
    let found = Arc::clone(found);
    LinksLater::new(page, found)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::crawl::config::Config;
    use crate::fetch::resolver;
    use crate::frontier::request::Request;
    use crate::io::IoSettings;
    use crate::io::sim::{Faults, Origins, Sim};
    use crate::throttle::settings::Jitter;

    /// A crawl of this many pages of one server, one at a time without delay. Each answer takes 10 ms.
    fn crawl(pages: u32, results_max: usize) -> Crawler<Sim> {
        let mut config = Config::default();
        config.throttle.default.delay = Duration::ZERO;
        config.throttle.default.delay_per_slot = Duration::ZERO;
        config.throttle.default.jitter = Jitter::NONE;
        config.throttle.default.concurrency = 1;
        config.frontier.robots_obey = false;
        config.allow_net = vec!["10.0.0.0/8".to_owned()];
        let at: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        let mut origins = Origins::default();
        for page in 0..pages {
            origins.page(at, &format!("/{page}"), "a page");
        }
        let io = Sim::with(
            1,
            IoSettings::default(),
            Faults::default(),
            Box::new(origins),
        );
        let mut crawler = Crawler::builder(config)
            .results_max(results_max)
            .build_on(io, resolver::ResolverSettings::default())
            .expect("a crawler");
        for page in 0..pages {
            let request = Request::get(format!("http://10.0.0.1/{page}"));
            crawler.submit(request).expect("it is a URL");
        }
        crawler
    }

    #[test]
    fn a_short_queue_and_the_end_cost_no_time() {
        let took = |results_max| {
            let mut crawler = crawl(200, results_max);
            let results = std::iter::from_fn(|| crawler.next_result());
            assert_eq!(results.count(), 200);
            crawler.elapsed()
        };
        let (short, long) = (took(1), took(256));
        assert_eq!(short, long);
    }

    #[test]
    fn a_turn_does_not_wait_while_a_result_does() {
        let mut crawler = crawl(4, 4);
        while crawler.stats().pages < 2 {
            assert_eq!(crawler.turn(None), Turn::GoesOn);
        }
        // The third page is in flight.
        crawler.turn(Some(Duration::ZERO));
        let before = crawler.io().now();
        assert!(crawler.try_next_result().is_some());
        assert_eq!(crawler.turn(None), Turn::GoesOn);
        assert_eq!(crawler.io().now(), before);
        assert!(crawler.try_next_result().is_some());
        assert_eq!(crawler.turn(None), Turn::GoesOn);
        assert!(crawler.io().now() > before, "there is none to be taken");
        // The crawl does not spin either if no result is ever taken.
        let mut turns = 0;
        while crawler.elapsed() < Duration::from_secs(1) {
            assert_eq!(crawler.turn(None), Turn::GoesOn);
            turns += 1;
            assert!(turns < 1000, "{:?}", crawler.progress());
        }
    }
}
