//! Decisions of the throttle and the rule behind each: the lines of `throttle.jsonl`.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::base::time::Instant;

/// One decision about the pace of one scope: what was observed, what it changed, and by which rule.
///
/// Its `Display` form is the line that Scrapy's AutoThrottle logs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// When it was made.
    pub at: Instant,
    /// The scope's name.
    pub scope: String,
    /// The attempt whose answer caused it, if any.
    pub id: Option<u64>,
    /// Kind of decision.
    pub event: DecisionEvent,
    /// Status of that answer.
    pub status: Option<u16>,
    /// The latency considered, measured from the start that `latency_from` sets.
    pub latency: Option<Duration>,
    /// The delay that the rule aims at, if any.
    pub target_delay: Option<Duration>,
    /// The pace's delay before and after.
    pub delay: [Duration; 2],
    /// The pace's concurrency before and after.
    pub concurrency: [u32; 2],
    /// Requests of the scope in flight.
    pub in_flight: u32,
    /// Bytes of the answer's body after content decoding; `None` if no body arrived.
    pub size: Option<u64>,
    /// Human-readable text: what was observed and what was done about it.
    pub reason: Cow<'static, str>,
    /// The rule that decided.
    pub source: DecisionSource,
}

/// Formats the line of Scrapy 2.19's AutoThrottle, so that parsers of its log can read it: whole
/// milliseconds, truncated instead of rounded; unknown values are 0.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = self.delay.map(|delay| delay.as_secs_f64() * 1000.0);
        let latency = self.latency.unwrap_or_default().as_millis();
        write!(
            f,
            "slot: {} | conc:{:2} | delay:{:5} ms ({:+}) | latency:{latency:5} ms | size:{:6} bytes",
            self.scope,
            self.in_flight,
            after as i64,
            (after - before) as i64,
            self.size.unwrap_or(0),
        )
    }
}

/// The kinds of decisions; field `event` of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DecisionEvent {
    /// AutoThrottle evaluated a latency.
    Autothrottle,
    /// A refusal made the pace slower.
    Backoff,
    /// Nothing departs for a limited time.
    Hold,
    /// Time without refusals made the pace faster again.
    Recover,
    /// Rampup made the pace faster or slower.
    Rampup,
    /// A quota was spent, or reconciled.
    Quota,
    /// robots.txt asked for a delay.
    Robots,
    /// A setting had no effect.
    Ineffective,
    /// Answers are suspected to be block pages.
    Suspect,
}

impl DecisionEvent {
    /// All events.
    pub const ALL: [DecisionEvent; 9] = [
        DecisionEvent::Autothrottle,
        DecisionEvent::Backoff,
        DecisionEvent::Hold,
        DecisionEvent::Recover,
        DecisionEvent::Rampup,
        DecisionEvent::Quota,
        DecisionEvent::Robots,
        DecisionEvent::Ineffective,
        DecisionEvent::Suspect,
    ];

    /// The name in `throttle.jsonl`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecisionEvent::Autothrottle => "autothrottle",
            DecisionEvent::Backoff => "backoff",
            DecisionEvent::Hold => "hold",
            DecisionEvent::Recover => "recover",
            DecisionEvent::Rampup => "rampup",
            DecisionEvent::Quota => "quota",
            DecisionEvent::Robots => "robots",
            DecisionEvent::Ineffective => "ineffective",
            DecisionEvent::Suspect => "suspect",
        }
    }
}

impl fmt::Display for DecisionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The rules that pace a scope; field `source` of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The latency.
    Autothrottle,
    /// Refusals.
    Backoff,
    /// `Retry-After`.
    RetryAfter,
    /// `RateLimit-*` and similar fields.
    RateLimit,
    /// Crawl-delay.
    Robots,
    /// Rampup.
    Rampup,
    /// A quota.
    Quota,
    /// The configuration, or the embedding program.
    User,
}

impl DecisionSource {
    /// The name in `throttle.jsonl`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DecisionSource::Autothrottle => "autothrottle",
            DecisionSource::Backoff => "backoff",
            DecisionSource::RetryAfter => "retry-after",
            DecisionSource::RateLimit => "ratelimit",
            DecisionSource::Robots => "robots",
            DecisionSource::Rampup => "rampup",
            DecisionSource::Quota => "quota",
            DecisionSource::User => "user",
        }
    }
}

impl fmt::Display for DecisionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A sample decision for tests.
#[cfg(test)]
pub(crate) fn sample() -> Decision {
    Decision {
        at: Instant::START,
        scope: "a.test".to_owned(),
        id: Some(7),
        event: DecisionEvent::Autothrottle,
        status: Some(200),
        latency: Some(Duration::from_millis(310)),
        target_delay: Some(Duration::from_millis(310)),
        delay: [80, 195].map(Duration::from_millis),
        concurrency: [3, 4],
        in_flight: 2,
        size: Some(1024),
        reason: Cow::Borrowed("the delay follows the latency"),
        source: DecisionSource::Autothrottle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(delay: [f64; 2], latency: f64, in_flight: u32, size: Option<u64>, expected: &str) {
        let decision = Decision {
            delay: delay.map(Duration::from_secs_f64),
            latency: Some(Duration::from_secs_f64(latency)),
            in_flight,
            size,
            ..sample()
        };
        assert_eq!(decision.to_string(), expected);
    }

    #[test]
    fn f92_a_decision_is_displayed_as_scrapys_log_line() {
        // The expected lines are the output of Python's own formatting of the same numbers.
        check(
            [0.08, 0.195],
            0.31,
            2,
            Some(1024),
            "slot: a.test | conc: 2 | delay:  195 ms (+115) | latency:  310 ms | size:  1024 bytes",
        );
        check(
            [5.0, 2.6004],
            0.2008,
            12,
            Some(1_234_567),
            "slot: a.test | conc:12 | delay: 2600 ms (-2399) | latency:  200 ms | size:1234567 bytes",
        );
        check(
            [0.0004, 0.0],
            0.0009,
            1,
            None,
            "slot: a.test | conc: 1 | delay:    0 ms (+0) | latency:    0 ms | size:     0 bytes",
        );
    }
}
