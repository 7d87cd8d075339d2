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
    /// What was given from one such moment to the next, and how long that took.
    before: u32,
    before_ms: u32,
    /// How much of `giving` passed until the server answered again.
    closed_ms: u32,
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
            before: 0,
            before_ms: 0,
            closed_ms: 0,
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
            (self.before, self.before_ms) = if self.is_anchored() {
                let open = millis(self.giving).saturating_sub(self.closed_ms);
                (self.given, open)
            } else {
                (self.count, millis(self.busy))
            };
            self.given = 0;
            self.closed_ms = 0;
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

    /// The server answers again after it was closed. The gap at which it gave since it was opened
    /// the last time, where enough was given to tell: the time that it was closed for is counted.
    /// When it opened is not known, only that it was after the last refusal.
    pub fn reopened(&mut self) -> Option<u64> {
        self.closed_ms = millis(self.giving);
        let took = u64::from(self.before_ms) * 1_000_000 + self.giving;
        let tells = self.before >= KNOWN_ANSWERS && took >= KNOWN_ROUND_TRIPS * self.round_trip();
        let unseen = nanos(self.last_sent.saturating_since(self.since));
        tells.then(|| (took - unseen.min(took) / 2) / u64::from(self.before))
    }

    /// Whether the server was closed for much of the time, now that it answers again: it was asked
    /// for more than it gives, and not only at the end.
    pub fn was_spent(&self) -> bool {
        self.closed_ms >= self.before_ms / 4
    }

    /// Whether so much was given since the last refusal that a server which gives at this gap had
    /// not as much, by more than chance.
    pub fn gave_more_than(&self, gap: u64) -> bool {
        let least = u64::from(self.given.saturating_sub(5));
        self.is_anchored() && self.giving < least.saturating_mul(gap)
    }

    /// No gap shorter than this can be kept up by a server that gave so little since its last
    /// refusal and refuses again.
    pub fn gap_bound(&self) -> Option<u64> {
        (self.is_anchored() && self.given > 0).then(|| self.giving / (u64::from(self.given) + 1))
    }
}

/// Milliseconds of nanoseconds; more than fit are as many as fit.
pub(super) fn millis(span: u64) -> u32 {
    u32::try_from(span / 1_000_000).unwrap_or(u32::MAX)
}

/// Microseconds; more than an hour is an hour.
fn micros(span: Duration) -> u32 {
    span.as_micros().min(3_600_000_000) as u32
}
