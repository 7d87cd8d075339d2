//! What an answer means for pacing: the facts of an answer, and the signal that is read from them.
//!
//! What an answer *means* is apart from what the pace *does* about it: this file is the first half,
//! `strategy.rs` the second. An embedder may replace either.

use std::time::Duration;

use crate::fetch::failure::FailureKind;

/// The facts of one finished exchange, as classification sees them.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The URL asked for.
    pub url: &'a str,
    /// Status of the final head; `None` where no final head arrived.
    pub status: Option<u16>,
    /// What went wrong, if something did.
    pub failure: Option<FailureKind>,
    /// From the request's departure to the last byte of the final head.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake where this exchange made one.
    pub latency: Option<Duration>,
    /// The request asked that its reply teach AutoThrottle nothing
    /// (Scrapy's `autothrottle_dont_adjust_delay`).
    pub dont_adjust_delay: bool,
}

/// What an answer says about the pace of the scopes it was sent under.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signal {
    /// What kind of answer it was.
    pub meaning: Meaning,
    /// From the request's departure to the last byte of the final head; `None` teaches nothing.
    pub server_latency: Option<Duration>,
    /// The same plus the TLS handshake where this exchange made one; `None` teaches nothing.
    pub latency: Option<Duration>,
}

/// The kinds of answers that pacing tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The origin did what was asked. Its latency may speed the crawl up.
    Success,
    /// The origin answered with something else: it may slow the crawl down, never speed it up.
    Other,
    /// No answer came.
    Nothing,
}

/// Reads a signal from an answer. Called on the crawl's thread for every answer: it must be quick.
pub trait Classify {
    /// What `answer` means.
    fn classify(&self, answer: &Answer<'_>) -> Signal;
}

/// The field's habit: only a 200 is a success (Scrapy's AutoThrottle, rule 4).
#[derive(Clone, Copy, Debug, Default)]
pub struct ByStatus;

impl Classify for ByStatus {
    fn classify(&self, answer: &Answer<'_>) -> Signal {
        let meaning = match (answer.status, answer.failure) {
            (Some(200), None) => Meaning::Success,
            (Some(_), _) => Meaning::Other,
            (None, _) => Meaning::Nothing,
        };
        let taught = |latency: Option<Duration>| latency.filter(|_| !answer.dont_adjust_delay);
        Signal {
            meaning,
            server_latency: taught(answer.server_latency),
            latency: taught(answer.latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: Option<u16>, failure: Option<FailureKind>, expected: Meaning) {
        let answer = Answer {
            url: "http://a.test/",
            status,
            failure,
            server_latency: Some(Duration::from_millis(5)),
            latency: Some(Duration::from_millis(5)),
            dont_adjust_delay: false,
        };
        assert_eq!(ByStatus.classify(&answer).meaning, expected);
    }

    #[test]
    fn only_a_whole_200_is_a_success() {
        check(Some(200), None, Meaning::Success);
        check(Some(201), None, Meaning::Other);
        check(Some(304), None, Meaning::Other);
        check(Some(503), None, Meaning::Other);
        check(Some(200), Some(FailureKind::Truncated), Meaning::Other);
        check(None, Some(FailureKind::Timeout), Meaning::Nothing);
    }

    #[test]
    fn f90_a_request_may_ask_that_its_latency_teaches_nothing() {
        let answer = Answer {
            url: "http://a.test/",
            status: Some(200),
            failure: None,
            server_latency: Some(Duration::from_secs(9)),
            latency: Some(Duration::from_secs(9)),
            dont_adjust_delay: true,
        };
        assert_eq!(ByStatus.classify(&answer).latency, None);
        assert_eq!(ByStatus.classify(&answer).server_latency, None);
    }
}
