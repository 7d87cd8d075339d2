//! Meaning of an answer for pacing: the facts of an answer, and the signal that is read from them.
//!
//! Interpreting an answer is separate from reacting to it: this file is the first half,
//! `strategy.rs` the second. An embedder may replace either.

use std::time::Duration;

use crate::base::time::{Instant, Wall};
use crate::fetch::failure::FailureKind;
use crate::wire::http::Headers;
use crate::wire::page_kind::PageKind;
use crate::wire::rate_limit::RateLimit;
use crate::wire::{cache_status, retry_after};

/// The facts of an exchange, as input of classification.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Answer<'a> {
    /// Number of the attempt.
    pub id: u64,
    /// The requested URL.
    pub url: &'a str,
    /// What was requested: a page, a robots.txt or a sitemap.
    pub kind: PageKind,
    /// The names of the scopes it was sent under, in arbitrary order.
    pub scopes: &'a [&'a str],
    /// Status of the final head; `None` if no final head arrived.
    pub status: Option<u16>,
    /// Header fields of the final head; empty if none arrived.
    pub headers: &'a Headers,
    /// The failure, if the exchange failed.
    pub failure: Option<FailureKind>,
    /// Time from the request's departure to the last byte of the final head.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake, if this exchange made one.
    pub latency: Option<Duration>,
    /// Both latencies may be too long by up to this much, because our thread was busy and the
    /// kernel did not record the arrival. Zero if they are exact.
    pub slack: Duration,
    /// The request asked that AutoThrottle ignore its reply (Scrapy's
    /// `autothrottle_dont_adjust_delay`).
    pub dont_adjust_delay: bool,
    /// The status that [`Classify::classify_body`] gave the body, in [`Classify::retries`]; `None` before
    /// that, and if it gave none.
    pub body_status: Option<u16>,
    /// The wall-clock time, for dates in header fields.
    pub wall: Wall,
}

/// Meaning of an answer for the pace of the scopes it was sent under.
///
/// Status and failure are those of the answer unless a [`Classify`] replaces them (for example with
/// the status that a scraping API reports for its target). Whether they are a refusal is decided by
/// each scope's settings.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Signal {
    /// The status to judge by; `None` if no final head arrived.
    pub status: Option<u16>,
    /// The failure to judge by.
    pub failure: Option<FailureKind>,
    /// Time from the request's departure to the last byte of the final head; `None` teaches
    /// nothing.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake, if this exchange made one; `None` teaches nothing.
    pub latency: Option<Duration>,
    /// Both latencies may be too long by up to this much.
    pub slack: Duration,
    /// Whether an intermediate cache answered, so that the latency carries no signal of the origin.
    /// `None`: unknown.
    pub cached: Option<bool>,
    /// `Retry-After`, from now on.
    pub retry_after: Option<Duration>,
    /// Time from now until the server's own quota window restarts (`RateLimit-*`).
    pub rate_limit_reset: Option<Duration>,
    /// Nothing remains of the quota until then.
    pub rate_limit_exhausted: bool,
    /// Which of the scopes a refusal concerns.
    pub blame: Blame,
    /// Feedback about single scopes.
    pub feedback: Vec<Feedback>,
}

/// Which scopes of a request a refusal concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blame {
    /// The most specific: the last in the map's order. Of unordered scopes, all. A parent is
    /// included if two of its children were refused within one window.
    #[default]
    Specific,
    /// Every scope of the request.
    All,
    /// None: the answer is not a refusal, whatever its status.
    NoScope,
    /// These only, if the request has them.
    Only(Vec<String>),
}

/// Feedback about one scope, independent of the status: the specification's `delay`, `actual` and
/// `remaining`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Feedback {
    /// The scope's name. Feedback about a scope that the request was not sent under is ignored.
    pub scope: String,
    /// The scope is exhausted: counts as a refusal.
    pub exhausted: bool,
    /// Holds the scope for this long.
    pub delay: Option<Duration>,
    /// Actual total cost of the request; the difference from its expected cost is corrected.
    pub actual: Option<f64>,
    /// Remaining quota of the scope in the present window, as counted by the server.
    pub remaining: Option<f64>,
}

impl Feedback {
    /// Empty feedback about this scope.
    pub fn new(scope: impl Into<String>) -> Self {
        Feedback {
            scope: scope.into(),
            ..Feedback::default()
        }
    }

    /// Marks the scope as exhausted.
    pub fn exhausted(mut self) -> Self {
        self.exhausted = true;
        self
    }

    /// Holds the scope for this long.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets the actual total cost. An invalid amount (negative, not finite) is ignored, and the
    /// estimate stays.
    pub fn actual(mut self, units: f64) -> Self {
        self.actual = Some(units).filter(|units| units.is_finite() && *units >= 0.0);
        self
    }

    /// Sets the remaining quota. An invalid amount is ignored.
    pub fn remaining(mut self, units: f64) -> Self {
        self.remaining = Some(units).filter(|units| units.is_finite() && *units >= 0.0);
        self
    }
}

/// A bare name means exhausted.
impl From<&str> for Feedback {
    fn from(scope: &str) -> Self {
        Feedback::new(scope).exhausted()
    }
}

impl Signal {
    /// The default meaning of `answer`: its status, failure and latency, and what its header fields
    /// report about caches and limits.
    pub fn from_answer(answer: &Answer<'_>) -> Self {
        let taught = |latency: Option<Duration>| latency.filter(|_| !answer.dont_adjust_delay);
        let cached = cache_status::is_cached(answer.headers);
        let mut limit = RateLimit::read(answer.headers, answer.wall);
        if cached == Some(true) {
            // A cached rate-limit field belongs to another time, or to another client.
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

    /// Blames this scope only.
    pub fn blame_only(mut self, scope: impl Into<String>) -> Self {
        self.blame = Blame::Only(vec![scope.into()]);
        self
    }

    /// Adds feedback about one scope; it replaces earlier feedback about it field by field.
    pub fn feedback(mut self, more: impl Into<Feedback>) -> Self {
        let more = more.into();
        match self.feedback.iter_mut().find(|f| f.scope == more.scope) {
            Some(earlier) => {
                earlier.exhausted |= more.exhausted;
                earlier.delay = more.delay.or(earlier.delay);
                earlier.actual = more.actual.or(earlier.actual);
                earlier.remaining = more.remaining.or(earlier.remaining);
            }
            None => self.feedback.push(more),
        }
        self
    }

    /// Returns the value of `latency` (one of the signal's own) to use, given that `present` is the
    /// usual one. If the latency is an interval (slack), it contradicts `present` only outside of
    /// the interval.
    pub(crate) fn believed(&self, latency: Duration, present: Duration) -> Duration {
        present.clamp(latency.saturating_sub(self.slack), latency)
    }

    /// The server's latency, unless more than half of it may be a delay by this process.
    pub(crate) fn sure_latency(&self) -> Option<Duration> {
        let sure = |latency: &Duration| self.slack <= latency.saturating_sub(self.slack);
        self.server_latency.filter(sure)
    }

    /// Returns whether the origin served the request, so that its latency may make the crawl
    /// faster.
    ///
    /// Scrapy's AutoThrottle accepts only a 200 (its rule 4); otherwise every 2xx and 304 count.
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
#[non_exhaustive]
pub struct ExchangeEnd {
    /// What was requested: a page, a robots.txt or a sitemap.
    pub kind: PageKind,
    /// Departure of the request. If the pace has changed since, the answer is not to the present one.
    pub sent: Instant,
    /// The status that it is judged by: that of its body, if the crawl's [`Classify`] gave one, else that
    /// of its head.
    pub status: Option<u16>,
    /// The answer was a refusal of this scope, by its head, its body or its failure.
    pub refused: bool,
    /// The failure after the head, if any.
    pub failure: Option<FailureKind>,
    /// Time from the request's departure to the end of the body.
    pub took: Option<Duration>,
    /// Bytes of the body.
    pub size: u64,
    /// A digest of the body and other URL-independent data: equal for equal pages.
    pub digest: u64,
    /// The text in the body that marks a block page, if found.
    pub mark: Option<&'static str>,
    /// Number of items that the embedder found in the body; `None` if it did not look.
    pub items: Option<u32>,
}

/// Signal of the body of an answer for the pace, in addition to its head's.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BodySignal {
    /// The status to judge by in place of the head's: 429 for a page that asks for patience under a
    /// 200, for example. `None`: the head's holds. It counts as if the head had it: for the pace by
    /// `BACKOFF_HTTP_CODES`, for retries by `RETRY_HTTP_CODES`, and links are taken from a 200 only. A refusal
    /// by the head remains one. The page has both ([`Page::judged`](crate::Page::judged)).
    pub status: Option<u16>,
    /// Which of the scopes a refusal concerns, if `status` is one.
    pub blame: Blame,
    /// Number of items in the body. If items end while answers stay fast and successful, that is a sign
    /// of a block. `None`: not counted.
    pub items: Option<u32>,
    /// Feedback about single scopes.
    pub feedback: Vec<Feedback>,
}

impl BodySignal {
    /// The body has no signal.
    pub fn nothing() -> Self {
        BodySignal::default()
    }

    /// Judges by this status.
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets which of the scopes a refusal concerns.
    pub fn blame(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }

    /// Sets the number of items.
    pub fn items(mut self, items: u32) -> Self {
        self.items = Some(items);
        self
    }

    /// Adds feedback about one scope.
    pub fn feedback(mut self, feedback: impl Into<Feedback>) -> Self {
        self.feedback.push(feedback.into());
        self
    }
}

/// The part of a body that [`Classify::classify_body`] reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyPart {
    /// The body as the sink keeps it: all of it, once it has ended. Nothing of one that the sink takes in
    /// pieces or skips.
    #[default]
    Kept,
    /// The first bytes, at most so many and at most 64 KiB, of any body, whatever the sink does with it: as
    /// soon as they are decoded, or at its end if it is shorter. Of a body that the sink skips, so many bytes
    /// are decoded before the rest is discarded.
    Start(usize),
}

/// Most bytes of [`BodyPart::Start`]: they are held beside bodies that are passed on in pieces.
pub const BODY_START_MAX: usize = 64 << 10;

/// Interprets answers for pacing. Called on the crawl's thread for every answer, so it must be
/// fast. Those to a robots.txt or a sitemap are among them ([`Answer::kind`]), but their bodies are not read.
pub trait Classify: Send {
    /// Returns the meaning of `answer`. Called when the final head arrived, or when none will
    /// arrive.
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        Signal::from_answer(answer)
    }

    /// Returns how much of the body [`Classify::classify_body`] reads. Called after
    /// [`Classify::classify`], once for each final head of a page.
    fn body_part(&self, _answer: &Answer<'_>) -> BodyPart {
        BodyPart::Kept
    }

    /// Returns the signal of the body beyond that of its head. Called once for each answer with a final
    /// head, with the bytes of [`Classify::body_part`] after content decoding (before it, if the coding is
    /// unknown). If the body has ended, its failure is in `answer`.
    ///
    /// Called for pages only, as is [`Classify::body_part`]. A robots.txt or a sitemap is a file for programs,
    /// in which the words of a refusal may stand in a comment or a URL: its head alone is judged.
    ///
    /// An answer keeps its slots in its scopes until then: with a concurrency of 1 the next request departs by
    /// this signal. With more, others may have departed before it; their refusals count as one round with this.
    fn classify_body(&self, _answer: &Answer<'_>, _body: &[u8]) -> BodySignal {
        BodySignal::nothing()
    }

    /// Returns whether to retry the request after this many attempts, or `None` for the usual rules
    /// (`RETRY_TIMES`, `RETRY_HTTP_CODES`, `RETRY_EXCEPTIONS`), which take the status of the body before that
    /// of the head. In either case the next attempt waits for its scopes like any request. A robots.txt that is not
    /// retried any more is what its last answer says: after a 429, a 5xx or no answer nothing of its origin is fetched.
    fn retries(&self, _answer: &Answer<'_>, _attempts: u32) -> Option<bool> {
        None
    }
}

/// The default: classifies by status.
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
            kind: PageKind::Page,
            scopes: &["a.test"],
            status: Some(200),
            headers,
            failure: None,
            server_latency: Some(Duration::from_secs(9)),
            latency: Some(Duration::from_secs(9)),
            slack: Duration::ZERO,
            dont_adjust_delay: false,
            body_status: None,
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
    fn f86_scrapy_mode_accepts_only_a_complete_200_and_otherwise_every_2xx_or_304_counts() {
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
    fn f89_a_latency_interval_counts_only_where_it_excludes_the_usual_one() {
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
        // Between 2 and 52 ms: faster than usual, slower than usual, neither.
        check(50, 5000, 52);
        check(50, 1, 2);
        check(50, 20, 20);
        // All of it may be a delay by this process.
        check(52, 0, 0);
        check(60, 20, 20);
    }

    #[test]
    fn f89_a_latency_that_is_mostly_our_own_delay_is_not_the_servers() {
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
    fn f90_a_request_may_exclude_its_latency_from_learning() {
        let headers = Headers::default();
        let answer = Answer {
            dont_adjust_delay: true,
            ..answer(&headers)
        };
        assert_eq!(ByStatus.classify(&answer).latency, None);
        assert_eq!(ByStatus.classify(&answer).server_latency, None);
    }

    #[test]
    fn f68_a_bare_name_means_exhausted_and_feedback_is_merged_by_field() {
        let signal = Signal::default()
            .feedback("api")
            .feedback(Feedback::new("cost").actual(2.5))
            .feedback(Feedback::new("cost").remaining(3.0).actual(f64::NAN));
        assert!(signal.feedback[0].exhausted);
        assert_eq!(signal.feedback.len(), 2);
        assert_eq!(signal.feedback[1].actual, Some(2.5));
        assert_eq!(signal.feedback[1].remaining, Some(3.0));
        assert!(!signal.feedback[1].exhausted);
    }
}
