//! `BYTES_PER_SECOND_MAX`: a budget of received bytes, by which requests and reads wait.

use std::time::Duration;

use crate::base::byte_rate::ByteRate;
use crate::base::time::Instant;
use crate::frontier::request::PageKind;

/// A token bucket of received bytes, and the sizes of the usual page and the usual robots.txt.
///
/// While more was received than the rate allows, nothing more is read, and no request departs. Nor does one while the
/// replies of those in flight are expected to take more than [`AHEAD`]: the bytes of many that are sent together would
/// come together.
#[derive(Debug)]
pub struct Rate {
    /// Of 0 bytes per second: unlimited.
    bytes: ByteRate,
    /// Of pages and sitemaps.
    pages: ReplySize,
    /// Of robots.txt, which is small, and known of many hosts before their first page.
    robots: ReplySize,
    /// Bytes of all replies that have ended, in earlier runs of the crawl, too.
    received: u64,
}

/// Bytes of a reply, as a moving average.
#[derive(Debug)]
struct ReplySize {
    usual: f64,
    /// The share of that average which no reply has made yet.
    unknown: f64,
}

/// Requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    /// All of them.
    pub all: usize,
    /// Those for a robots.txt.
    pub robots: usize,
}

impl InFlight {
    /// None.
    pub const NONE: InFlight = InFlight { all: 0, robots: 0 };

    fn pages(self) -> usize {
        self.all.saturating_sub(self.robots)
    }
}

impl ReplySize {
    const fn new() -> Self {
        ReplySize {
            usual: USUAL,
            unknown: 1.0,
        }
    }

    fn count(&mut self, bytes: u64) {
        self.usual += (bytes as f64 - self.usual) / AVERAGED;
        self.unknown -= self.unknown / AVERAGED;
    }
}

impl Rate {
    /// So many bytes per second, none of them received; 0: unlimited.
    pub fn new(per_second: u64) -> Self {
        Rate {
            bytes: ByteRate::new(per_second, UNSPENT_MAX),
            pages: ReplySize::new(),
            robots: ReplySize::new(),
            received: 0,
        }
    }

    /// Bytes of all replies that have ended.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// So many bytes were received in earlier runs.
    pub fn restore_received(&mut self, bytes: u64) {
        self.received = self.received.saturating_add(bytes);
    }

    /// Whether another request may be sent beside those in flight before `most` bytes were received; 0: no limit.
    /// Without any in flight this is so until they were.
    ///
    /// `arriving`: bytes so far of the replies in flight. Each is expected to have a usual reply's more. Before the size
    /// of any page is known that is the 16th part of `most`, of at most `reply_max`: 16 pages, or as many more as cannot
    /// exceed `most`, are in flight until the first have ended.
    pub fn leaves_room(
        &self,
        most: u64,
        in_flight: InFlight,
        arriving: u64,
        reply_max: u64,
    ) -> bool {
        let guess = (most as f64 / AT_FIRST).min(reply_max as f64);
        let usual = self.pages.usual + self.pages.unknown * (guess - USUAL).max(0.0);
        let expected = in_flight.pages() as f64 * usual + self.expected_robots(in_flight);
        let received = self.received.saturating_add(arriving) as f64;
        most == 0 || received + expected < most as f64
    }

    fn expected_robots(&self, in_flight: InFlight) -> f64 {
        in_flight.robots as f64 * self.robots.usual
    }

    /// Changes the rate from now on. What was received beyond the earlier one is forgotten.
    pub fn set(&mut self, per_second: u64, now: Instant) {
        if per_second != self.bytes.per_second() {
            self.bytes.restart(per_second, now);
        }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.bytes.per_second() > 0
    }

    /// Bytes were received.
    pub fn count(&mut self, bytes: usize, now: Instant) {
        if self.is_limited() {
            self.bytes.count(bytes as u64, now);
        }
    }

    /// An attempt has ended, of which so many bytes were received. `reply`: the kind of its reply, if it has one. An
    /// attempt without one does not show how large replies are.
    pub fn count_reply(&mut self, bytes: u64, reply: Option<PageKind>) {
        self.received = self.received.saturating_add(bytes);
        match reply {
            Some(PageKind::Page | PageKind::Sitemap) => self.pages.count(bytes),
            Some(PageKind::Robots) => self.robots.count(bytes),
            None => {}
        }
    }

    /// Whether more was received than the rate allows by now.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.is_limited() && self.bytes.paid_at() > now
    }

    /// When that is over, if it is so.
    pub fn paid_at(&self, now: Instant) -> Option<Instant> {
        self.is_spent(now).then_some(self.bytes.paid_at())
    }

    /// Whether another request may be sent beside those in flight.
    pub fn allows_request(&self, in_flight: InFlight, now: Instant) -> bool {
        if !self.is_limited() {
            return true;
        }
        let pages = in_flight.pages() as f64 * self.pages.usual;
        let expected = (self.bytes).time_of(pages + self.expected_robots(in_flight));
        !self.is_spent(now) && (in_flight.all == 0 || expected <= AHEAD)
    }
}

/// What was not received in an idle time may be later, as far as it came in so much time.
const UNSPENT_MAX: Duration = Duration::from_millis(250);

/// Replies in flight are expected to take no longer than this at the rate.
const AHEAD: Duration = Duration::from_secs(1);

/// Bytes of a reply before any is known.
const USUAL: f64 = 32.0 * 1024.0;

/// Replies that are expected to have all of the limit, before the size of any is known.
const AT_FIRST: f64 = 16.0;

/// The moving average is of about so many replies.
const AVERAGED: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Option<PageKind> = Some(PageKind::Page);

    fn pages(all: usize) -> InFlight {
        InFlight { all, robots: 0 }
    }

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn bytes_beyond_the_rate_are_paid_by_time() {
        let mut rate = Rate::new(1000);
        assert!(!rate.is_spent(at(10_000)));
        rate.count(1250, at(10_000));
        assert_eq!(
            rate.paid_at(at(10_000)),
            Some(at(11_000)),
            "a quarter was unspent"
        );
        assert!(!rate.is_spent(at(11_000)));
        rate.count(100, at(11_000));
        rate.count(100, at(11_000));
        assert_eq!(rate.paid_at(at(11_000)), Some(at(11_200)));
    }

    #[test]
    fn no_more_replies_are_in_flight_than_come_in_a_second() {
        let mut rate = Rate::new(101_000);
        for _ in 0..200 {
            rate.count_reply(10_000, PAGE);
        }
        let most = (0..100).filter(|count| rate.allows_request(pages(*count), at(0)));
        assert_eq!(most.max(), Some(10));
        rate.set(1, at(0));
        assert!(
            rate.allows_request(InFlight::NONE, at(0)),
            "one is always possible"
        );
        assert!(!rate.allows_request(pages(1), at(0)));
        rate.count(1, at(0));
        rate.count(1, at(0));
        assert!(
            !rate.allows_request(InFlight::NONE, at(0)),
            "the bytes so far come first"
        );
    }

    #[test]
    fn replies_in_flight_are_expected_to_take_what_is_left_of_the_total() {
        let mut rate = Rate::new(0);
        for _ in 0..200 {
            rate.count_reply(1000, PAGE);
        }
        assert_eq!(rate.received(), 200_000);
        let most = |rate: &Rate, total| {
            let room = |count: &usize| rate.leaves_room(total, pages(*count), 0, u64::MAX);
            (0..100).filter(room).max()
        };
        assert_eq!(most(&rate, 0), Some(99), "no limit");
        assert_eq!(most(&rate, 205_500), Some(5));
        assert_eq!(most(&rate, 200_001), Some(0));
        assert_eq!(most(&rate, 200_000), None);
        rate.restore_received(5_000);
        assert_eq!(most(&rate, 205_500), Some(0));
        rate.restore_received(u64::MAX);
        assert_eq!(most(&rate, 205_500), None, "nor does it overflow");
    }

    #[test]
    fn bytes_count_as_they_arrive_and_few_replies_of_unknown_size_are_in_flight() {
        const TOTAL: u64 = 160_000_000;
        let most = |rate: &Rate, arriving: u64, reply_max: u64| {
            let room = |count: &usize| rate.leaves_room(TOTAL, pages(*count), arriving, reply_max);
            (0..20_000).filter(room).max()
        };
        let mut rate = Rate::new(0);
        assert_eq!(most(&rate, 0, u64::MAX), Some(15));
        assert_eq!(most(&rate, 80_000_000, u64::MAX), Some(7));
        assert_eq!(most(&rate, TOTAL, u64::MAX), None, "it has arrived");
        assert_eq!(most(&rate, 0, 1_000_000), Some(159), "none is larger");
        rate.count_reply(32 << 10, PAGE);
        assert_eq!(most(&rate, 0, u64::MAX), Some(17));
        for _ in 0..200 {
            rate.count_reply(32 << 10, PAGE);
        }
        assert!(most(&rate, 0, u64::MAX) > Some(4000));
    }

    #[test]
    fn robots_txt_and_attempts_without_reply_do_not_show_how_large_pages_are() {
        const TOTAL: u64 = 16_000_000;
        let most = |rate: &Rate, robots: usize| {
            let in_flight = |all| InFlight {
                all: robots + all,
                robots,
            };
            let room = |count: &usize| rate.leaves_room(TOTAL, in_flight(*count), 0, u64::MAX);
            (0..20_000).filter(room).max()
        };
        let mut rate = Rate::new(0);
        assert_eq!(most(&rate, 0), Some(15));
        for _ in 0..200 {
            rate.count_reply(100, Some(PageKind::Robots));
            rate.count_reply(0, None);
        }
        assert_eq!(most(&rate, 0), Some(15));
        assert_eq!(most(&rate, 100), Some(15), "those are small");
        assert_eq!(most(&rate, 20_000), Some(13));
        rate.count_reply(1000, PAGE);
        assert!(most(&rate, 0) > Some(15));
    }

    #[test]
    fn without_a_limit_nothing_waits_and_a_new_one_forgets_the_debt() {
        let mut rate = Rate::new(0);
        rate.count(usize::MAX, at(0));
        assert!(rate.allows_request(pages(usize::MAX), at(0)));
        rate.set(1000, at(5));
        rate.count(2000, at(5));
        assert_eq!(rate.paid_at(at(5)), Some(at(2005)));
        rate.set(2000, at(5));
        assert!(!rate.is_spent(at(5)));
        rate.count(usize::MAX, at(5));
        assert!(rate.is_spent(at(1 << 40)), "nor does it overflow");
    }
}
