//! What was really sent and answered: the pace that answers were got at, whatever was permitted.

use std::time::Duration;

use crate::base::time::{Instant, nanos};

/// Counts answers, and the time in which requests flowed.
///
/// Time without requests counts only as far as the pace explains it: an idle scope measures
/// nothing.
#[derive(Debug)]
pub(super) struct Meter {
    /// When the present pace began: requests sent before belong to another.
    pub since: Instant,
    /// The last round of refusals, or the last step of concurrency since.
    pub quiet_since: Instant,
    last_sent: Instant,
    /// Answers to requests sent at the present pace, and the time they flowed in.
    pub count: u32,
    pub busy: u64,
    /// The same since the first refusal of the last run of refusals. At that moment the server
    /// had nothing left to give, so what it gave since is its rate, however much it saves up.
    pub given: u32,
    pub giving: u64,
    /// When the request departed that saw that moment; `START` where there was none.
    anchored_at: Instant,
    round_trip_us: u32,
}

/// This many answers at one pace make a known rate, and
const KNOWN_ANSWERS: u32 = 10;
/// they take this many round trips at least.
const KNOWN_ROUND_TRIPS: u64 = 10;
/// While nothing binds, the rate is that of about this many answers.
const MEMORY: u32 = 256;

impl Meter {
    pub fn new(now: Instant) -> Self {
        Meter {
            since: now,
            quiet_since: now,
            last_sent: now,
            count: 0,
            busy: 0,
            given: 0,
            giving: 0,
            anchored_at: Instant::START,
            round_trip_us: 0,
        }
    }

    /// A request departed at `sent`, under a pace that asked for this gap.
    fn departed(&mut self, sent: Instant, asked: u64) {
        if sent <= self.last_sent {
            return;
        }
        let most = 2 * asked.max(self.round_trip());
        let passed = nanos(sent.saturating_since(self.last_sent)).min(most);
        let here = nanos(sent.saturating_since(self.since)).min(passed);
        self.giving += passed;
        self.busy += here;
        self.last_sent = sent;
    }

    /// The same, and it was answered well.
    pub fn accepted(&mut self, sent: Instant, latency: Option<Duration>, asked: u64) {
        if let Some(latency) = latency {
            self.round_trip_us = match self.round_trip_us {
                0 => micros(latency),
                old => old - old / 8 + micros(latency) / 8,
            };
        }
        self.departed(sent, asked);
        if sent > self.anchored_at {
            self.given = self.given.saturating_add(1);
        }
        if sent >= self.since {
            self.count = self.count.saturating_add(1);
        }
    }

    /// The same, and it was refused. How long that took is no measure, save where there is none.
    pub fn refused(&mut self, sent: Instant, latency: Option<Duration>, asked: u64) {
        if let (0, Some(latency)) = (self.round_trip_us, latency) {
            self.round_trip_us = micros(latency);
        }
        self.departed(sent, asked);
    }

    /// How long nothing will have been sent by then.
    pub fn silent_until(&self, until: Instant) -> Duration {
        until.saturating_since(self.last_sent)
    }

    /// Nothing is sent until then, and yet it is no idle time.
    pub fn held(&mut self, until: Instant) {
        if until > self.last_sent {
            self.giving += nanos(until.saturating_since(self.last_sent));
            self.last_sent = until;
        }
    }

    /// Another pace begins.
    pub fn step(&mut self, now: Instant) {
        self.since = now;
        self.again();
    }

    /// The present pace is measured anew.
    pub fn again(&mut self) {
        self.count = 0;
        self.busy = 0;
    }

    /// A round of refusals: the server has nothing left to give. Later rounds of the same run,
    /// with no answer between, are the same moment.
    pub fn anchor(&mut self, sent: Instant) {
        if self.given > 0 || !self.is_anchored() {
            self.given = 0;
            self.giving = nanos(self.last_sent.saturating_since(sent));
            self.anchored_at = sent;
        }
    }

    pub fn is_anchored(&self) -> bool {
        self.anchored_at > Instant::START
    }

    /// Old answers count less than new ones.
    pub fn forget_slowly(&mut self) {
        if self.count >= MEMORY {
            self.count /= 2;
            self.busy /= 2;
        }
    }

    pub fn round_trip(&self) -> u64 {
        u64::from(self.round_trip_us) * 1000
    }

    /// Whether enough was answered at this pace to call its rate known.
    pub fn is_known(&self) -> bool {
        self.has_seen(KNOWN_ANSWERS)
    }

    /// Whether so many were answered at this pace, over some round trips.
    pub fn has_seen(&self, answers: u32) -> bool {
        self.count >= answers && self.busy >= KNOWN_ROUND_TRIPS * self.round_trip()
    }

    /// From one request to the next at the present pace, as it really was.
    pub fn real_gap(&self) -> u64 {
        self.busy / u64::from(self.count.max(1))
    }

    /// The gap that was refused, of requests `asked` apart: longer where fewer came than might.
    pub fn refused_gap(&self, asked: u64) -> u64 {
        let real = self.busy / (u64::from(self.count) + 1);
        if self.is_known() && real > asked + asked / 5 {
            real
        } else {
            asked
        }
    }

    /// Whether enough was given since the last refusal to call it over.
    pub fn is_past_trouble(&self) -> bool {
        self.given >= KNOWN_ANSWERS && self.giving >= KNOWN_ROUND_TRIPS * self.round_trip()
    }

    /// The gap at which the server gave since its last refusal, where at least `answers` tell.
    pub fn gap_given(&self, answers: u32) -> Option<u64> {
        let tells = self.is_anchored() && self.given >= answers.max(1);
        tells.then(|| self.giving / u64::from(self.given))
    }

    /// The same where most was given at the present pace.
    pub fn gap_given_here(&self, answers: u32) -> Option<u64> {
        self.gap_given(answers)
            .filter(|_| self.count >= self.given / 2)
    }

    /// No gap shorter than this can be kept up by a server that gave so little since its last
    /// refusal and refuses again.
    pub fn gap_bound(&self) -> Option<u64> {
        (self.is_anchored() && self.given > 0).then(|| self.giving / (u64::from(self.given) + 1))
    }
}

/// Microseconds; more than an hour is an hour.
fn micros(span: Duration) -> u32 {
    span.as_micros().min(3_600_000_000) as u32
}
