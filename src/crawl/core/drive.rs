//! A crawl that is driven by the loop of a host program: short turns, and the descriptor's deadline.

use std::time::Duration;

use crate::crawl::core::Core;
use crate::io::Io;

/// About how long a host's turn takes: the host has other work.
const HOSTS_TURN: Duration = Duration::from_millis(1);

/// Turns in a host's turn at most: in virtual time they may take no time.
const TURNS_OF_HOSTS_TURN: usize = 100;

impl<I: Io> Core<I> {
    /// A host's turn: takes turns without waiting while each has events, then sets the descriptor. Events
    /// that arrive meanwhile do not pass through the host's own wait, which would cost a busy crawl a tenth
    /// of its pages. Ends early when results are to be taken.
    pub fn turn_for_host(&mut self) {
        let began = self.network.clock();
        for _ in 0..TURNS_OF_HOSTS_TURN {
            let had_events = self.turn(Some(began));
            if self.control.phase().is_over() {
                return;
            }
            let took = self.network.clock().saturating_since(began);
            if !had_events || took >= HOSTS_TURN || self.output.results_wait() {
                break;
            }
        }
        self.arm_descriptor();
    }

    /// Sets the descriptor's deadline. It is readable at once if there is something to do.
    pub fn arm_descriptor(&mut self) {
        let deadline = match self.network.has_pending() {
            true => Some(self.now),
            false => self.next_deadline(),
        };
        self.network.arm_descriptor(deadline);
        self.wakeups.set_armed();
    }

    /// Something is to be done that came between turns: wakes a host that waits.
    pub fn wake_host(&mut self) {
        self.wakeups.turn_again();
        if self.wakeups.take_armed() {
            self.network.arm_descriptor(Some(self.now));
        }
    }

    /// Whether the last turn is longer ago than `bound`.
    pub fn is_left_behind(&self, bound: Duration) -> bool {
        self.network.clock().saturating_since(self.now) > bound
    }

    /// A result was taken: wakes the host if the crawl waited for that.
    pub fn on_result_taken(&mut self) {
        let is_empty = !self.output.results_wait();
        let reads_on = self.output.was_full() && self.output.is_ready();
        if reads_on || is_empty && self.is_running() && self.is_exhausted() {
            self.wake_host();
        } else if is_empty && self.wakeups.is_armed() {
            // It was readable because results waited.
            self.arm_descriptor();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::base::shared::Shared;
    use crate::crawl::Turn;
    use crate::crawl::core::tests::trial::{crawl_under, get, run_for};
    use crate::io::sim::{Faults, Origins};

    /// Replies arrive faster than they are read.
    #[test]
    fn a_hosts_turn_handles_new_events_for_about_a_millisecond() {
        const PAGES: u32 = 200;
        let think = Duration::from_millis(50);
        let reading = Duration::from_micros(250);
        let mut origins = Origins::default();
        let at: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        for page in 0..PAGES {
            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n!";
            origins.reply(at, &format!("/{page}"), think, reply);
        }
        let faults = Faults {
            chunk_takes: reading,
            ..Faults::default()
        };
        let (mut crawler, record) =
            crawl_under(faults, None, Shared::new(origins), 1, |config, _| {
                config.throttle.concurrent_requests = PAGES as usize;
                config.throttle.default.concurrency = PAGES;
            });
        for page in 0..PAGES {
            crawler.submit(get(1, page)).expect("it is a URL");
        }
        run_for(&mut crawler, think);
        let taken = || record.pages.borrow().len();
        let mut longest = Duration::ZERO;
        while taken() < PAGES as usize {
            let began = crawler.io().now();
            if crawler.turn(Some(Duration::ZERO)) != Turn::GoesOn {
                break;
            }
            longest = longest.max(crawler.io().now().saturating_since(began));
            run_for(&mut crawler, reading);
        }
        assert_eq!(taken(), PAGES as usize);
        assert!(longest > HOSTS_TURN, "it ends early: {longest:?}");
        assert!(longest < HOSTS_TURN * 2, "it goes on: {longest:?}");
    }
}
