//! What an answer means for pacing: the facts of an answer, and the signal that is read from them.
//!
//! What an answer *means* is apart from what the pace *does* about it: this file is the first half,
//! `strategy.rs` the second. An embedder may replace either.

use std::time::Duration;

use crate::base::time::Wall;
use crate::fetch::failure::FailureKind;
use crate::wire::http::Headers;
use crate::wire::rate_limit::RateLimit;
use crate::wire::{cache_status, retry_after};

/// The facts of an exchange, as classification sees them.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Number of the attempt.
    pub id: u64,
    /// The URL asked for.
    pub url: &'a str,
    /// The names of the scopes it was sent under, in no order.
    pub scopes: &'a [&'a str],
    /// Status of the final head; `None` where no final head arrived.
    pub status: Option<u16>,
    /// Header fields of the final head; empty where none arrived.
    pub headers: &'a Headers,
    /// What went wrong, if something did.
    pub failure: Option<FailureKind>,
    /// From the request's departure to the last byte of the final head.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake where this exchange made one.
    pub latency: Option<Duration>,
    /// Both may be too long by as much: our thread was busy, and the kernel does not tell. Zero
    /// where they are exact.
    pub slack: Duration,
    /// The request asked that its reply teach AutoThrottle nothing
    /// (Scrapy's `autothrottle_dont_adjust_delay`).
    pub dont_adjust_delay: bool,
    /// The wall time, for dates in header fields.
    pub wall: Wall,
}

/// What an answer says about the pace of the scopes it was sent under.
///
/// Status and failure are the answer's own unless a [`Classify`] says otherwise (the status that a
/// scraping API reports of its target, say). Whether they are a refusal is each scope's settings'
/// to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signal {
    /// The status to be judged by; `None` where no final head arrived.
    pub status: Option<u16>,
    /// The failure to be judged by.
    pub failure: Option<FailureKind>,
    /// From the request's departure to the last byte of the final head; `None` teaches nothing.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake where this exchange made one; `None` teaches nothing.
    pub latency: Option<Duration>,
    /// Both may be too long by as much.
    pub slack: Duration,
    /// Served from a cache on the way: its latency says nothing of the origin. `None`: not said.
    pub cached: Option<bool>,
    /// `Retry-After`, from now on.
    pub retry_after: Option<Duration>,
    /// When the server's own counting begins anew, from now on (`RateLimit-*`).
    pub rate_limit_reset: Option<Duration>,
    /// Nothing remains until then.
    pub rate_limit_exhausted: bool,
    /// Which of the scopes a refusal is about.
    pub blame: Blame,
    /// What is known of single scopes beyond that.
    pub feedback: Vec<Feedback>,
}

/// Which scopes of a request a refusal is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blame {
    /// The most specific: the last in the map's order. Of scopes that came without an order, all.
    /// A parent joins in where two of its children were refused within one window.
    #[default]
    Specific,
    /// Every scope of the request.
    All,
    /// None: whatever the status, it is no refusal.
    Nobody,
    /// These alone, where the request has them.
    Only(Vec<String>),
}

/// What an answer says of one scope, whatever its status: the specification's `delay`, `actual`
/// and `remaining`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// The scope's name. One that the request was not sent under is left out.
    pub scope: String,
    /// It is exhausted: as good as a refusal.
    pub exhausted: bool,
    /// Nothing departs for this long.
    pub delay: Option<Duration>,
    /// What the request did cost, in all: the difference from its expected cost is reconciled.
    pub actual: Option<f64>,
    /// What remains of the scope's quota in the present window, as the server counts.
    pub remaining: Option<f64>,
}

impl Feedback {
    /// Says nothing yet of this scope.
    pub fn of(scope: impl Into<String>) -> Self {
        Feedback {
            scope: scope.into(),
            ..Feedback::default()
        }
    }

    /// It is exhausted.
    pub fn exhausted(mut self) -> Self {
        self.exhausted = true;
        self
    }

    /// Nothing departs for this long.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// What the request did cost, in all. What is no number of units (negative, not finite) is
    /// left out, and the estimate stays.
    pub fn actual(mut self, units: f64) -> Self {
        self.actual = Some(units).filter(|units| units.is_finite() && *units >= 0.0);
        self
    }

    /// What remains of the quota. What is no number of units is left out.
    pub fn remaining(mut self, units: f64) -> Self {
        self.remaining = Some(units).filter(|units| units.is_finite() && *units >= 0.0);
        self
    }
}

/// A bare name means exhausted.
impl From<&str> for Feedback {
    fn from(scope: &str) -> Self {
        Feedback::of(scope).exhausted()
    }
}

impl Signal {
    /// What `answer` says by itself: status, failure, latency, and what its header fields tell of
    /// caches and limits.
    pub fn of(answer: &Answer<'_>) -> Self {
        let taught = |latency: Option<Duration>| latency.filter(|_| !answer.dont_adjust_delay);
        let cached = cache_status::is_cached(answer.headers);
        let mut limit = RateLimit::read(answer.headers, answer.wall);
        if cached == Some(true) {
            // What a cache kept of the origin's limits is of another time, or another client's.
            limit = RateLimit::default();
        }
        Signal {
            status: answer.status,
            failure: answer.failure,
            server_latency: taught(answer.server_latency),
            latency: taught(answer.latency),
            slack: answer.slack,
            cached,
            retry_after: retry_after::read(answer.headers, answer.wall),
            rate_limit_exhausted: limit.is_exhausted(),
            rate_limit_reset: limit.reset,
            ..Signal::default()
        }
    }

    /// Blames this scope alone.
    pub fn blame_only(mut self, scope: impl Into<String>) -> Self {
        self.blame = Blame::Only(vec![scope.into()]);
        self
    }

    /// Adds what is known of one scope; what was said of it before is said anew field by field.
    pub fn feedback(mut self, more: impl Into<Feedback>) -> Self {
        let more = more.into();
        match self.feedback.iter_mut().find(|f| f.scope == more.scope) {
            Some(said) => {
                said.exhausted |= more.exhausted;
                said.delay = more.delay.or(said.delay);
                said.actual = more.actual.or(said.actual);
                said.remaining = more.remaining.or(said.remaining);
            }
            None => self.feedback.push(more),
        }
        self
    }

    /// What can be believed of `latency`, one of the signal's own, where `present` has been usual so
    /// far. A mere bound says that it took between as much less and this: it speaks against what
    /// lies outside, and for nothing in between.
    pub fn believed(&self, latency: Duration, present: Duration) -> Duration {
        present.clamp(latency.saturating_sub(self.slack), latency)
    }

    /// The server's latency, unless more of it may be our own doing than the server's.
    pub fn sure_latency(&self) -> Option<Duration> {
        let sure = |latency: &Duration| self.slack <= latency.saturating_sub(self.slack);
        self.server_latency.filter(sure)
    }

    /// Whether the origin did what was asked: its latency may speed the crawl up.
    ///
    /// Scrapy's AutoThrottle takes a 200 alone (its rule 4); otherwise every 2xx and a 304 are
    /// normal.
    pub fn is_success(&self, only_200: bool) -> bool {
        match (self.status, self.failure) {
            (Some(200), None) => true,
            (Some(201..=299 | 304), None) => !only_200,
            _ => false,
        }
    }
}

/// What is known at the end of an exchange whose head was answered before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ending {
    /// What went wrong after the head, if something did.
    pub failure: Option<FailureKind>,
    /// From the request's departure to the end of the body.
    pub took: Option<Duration>,
    /// Bytes of the body.
    pub size: u64,
    /// A digest of the body and the URL-independent rest: the same for the same page.
    pub digest: u64,
    /// A mark of a block in the body: the words that were found.
    pub mark: Option<&'static str>,
    /// Items that the embedder found in the body; `None` where nobody looked.
    pub items: Option<u32>,
}

/// Reads a signal from an answer. Called on the crawl's thread for every answer: it must be quick.
pub trait Classify: Send {
    /// What `answer` means. Called when the final head is there, or when there will be none.
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        Signal::of(answer)
    }

    /// Whether the request is made again, after this many attempts; `None` where the usual rules
    /// decide (`RETRY_TIMES`, `RETRY_HTTP_CODES`, `RETRY_EXCEPTIONS`). Whatever it is, the next
    /// attempt waits for its scopes like any request.
    fn retries(&self, _answer: &Answer<'_>, _attempts: u32) -> Option<bool> {
        None
    }

    /// How many items the body of a finished answer holds: an end of items while answers stay
    /// quick and good is a sign of a block. `None`: nobody looked.
    fn items(&self, _answer: &Answer<'_>, _body: &[u8]) -> Option<u32> {
        None
    }
}

/// The field's habit: an answer means what its status says.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByStatus;

impl Classify for ByStatus {}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(headers: &Headers) -> Answer<'_> {
        Answer {
            id: 1,
            url: "http://a.test/",
            scopes: &["a.test"],
            status: Some(200),
            headers,
            failure: None,
            server_latency: Some(Duration::from_secs(9)),
            latency: Some(Duration::from_secs(9)),
            slack: Duration::ZERO,
            dont_adjust_delay: false,
            wall: Wall(0),
        }
    }

    fn check(status: Option<u16>, failure: Option<FailureKind>, only_200: bool, expected: bool) {
        let signal = Signal {
            status,
            failure,
            ..Signal::default()
        };
        assert_eq!(signal.is_success(only_200), expected, "{signal:?}");
    }

    #[test]
    fn f86_only_a_whole_200_is_a_success_to_scrapy_and_every_2xx_or_304_otherwise() {
        check(Some(200), None, true, true);
        check(Some(201), None, true, false);
        check(Some(201), None, false, true);
        check(Some(206), None, false, true);
        check(Some(304), None, true, false);
        check(Some(304), None, false, true);
        check(Some(302), None, false, false);
        check(Some(404), None, false, false);
        check(Some(503), None, false, false);
        check(Some(200), Some(FailureKind::Truncated), false, false);
        check(None, Some(FailureKind::Timeout), false, false);
    }

    #[test]
    fn f89_a_bound_is_believed_where_it_speaks_against_what_is_usual() {
        let millis = Duration::from_millis;
        let check = |slack, present, expected| {
            let signal = Signal {
                slack: millis(slack),
                ..Signal::default()
            };
            let believed = signal.believed(millis(52), millis(present));
            assert_eq!(believed, millis(expected), "slack {slack}, usual {present}");
        };
        check(0, 5, 52);
        check(0, 5000, 52);
        // Somewhere from 2 to 52 ms: quicker than usual, slower than usual, neither.
        check(50, 5000, 52);
        check(50, 1, 2);
        check(50, 20, 20);
        // All of it may be ours.
        check(52, 0, 0);
        check(60, 20, 20);
    }

    #[test]
    fn f89_what_is_ours_for_the_most_part_is_no_latency_of_the_servers() {
        let check = |slack, sure| {
            let signal = Signal {
                server_latency: Some(Duration::from_millis(52)),
                slack: Duration::from_millis(slack),
                ..Signal::default()
            };
            assert_eq!(signal.sure_latency().is_some(), sure, "slack {slack}");
        };
        check(0, true);
        check(26, true);
        check(27, false);
        check(60, false);
    }

    #[test]
    fn f90_a_request_may_ask_that_its_latency_teaches_nothing() {
        let headers = Headers::default();
        let answer = Answer {
            dont_adjust_delay: true,
            ..answer(&headers)
        };
        assert_eq!(ByStatus.classify(&answer).latency, None);
        assert_eq!(ByStatus.classify(&answer).server_latency, None);
    }

    #[test]
    fn f68_a_bare_name_means_exhausted_and_later_words_add_to_earlier_ones() {
        let signal = Signal::default()
            .feedback("api")
            .feedback(Feedback::of("cost").actual(2.5))
            .feedback(Feedback::of("cost").remaining(3.0).actual(f64::NAN));
        assert!(signal.feedback[0].exhausted);
        assert_eq!(signal.feedback.len(), 2);
        assert_eq!(signal.feedback[1].actual, Some(2.5));
        assert_eq!(signal.feedback[1].remaining, Some(3.0));
        assert!(!signal.feedback[1].exhausted);
    }
}
