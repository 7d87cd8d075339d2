//! Measures the rate at which requests were really sent and answered, as opposed to the permitted
//! rate.

use std::time::Duration;

use crate::base::time::{Instant, nanos};

/// Counts answers and the time during which requests were sent.
///
/// A pause between two requests counts only up to twice the gap or the round trip, so that an idle
/// scope measures nothing.
#[derive(Debug)]
pub(super) struct Meter {
    /// Start of the present pace. Requests sent earlier belong to the pace before.
    pub since: Instant,
    /// The last round of refusals, or a later step of concurrency.
    pub quiet_since: Instant,
    last_sent: Instant,
    /// Answers to requests sent at the present pace, and the nanoseconds during which these were
    /// sent.
    pub count: u32,
    pub busy: u64,
    /// The same since the first refusal of the last run of refusals. At that moment the server had
    /// no tokens left, so the rate since then is its own, even if it is a token bucket.
    pub served: u32,
    pub serving: u64,
    /// Answers and milliseconds between the previous such moment and the last one.
    served_before: u32,
    served_before_ms: u32,
    /// The part of `serving` that passed before the server answered again.
    closed_ms: u32,
    /// Departure of the request whose refusal marked that moment; `START` if there was none.
    anchored_at: Instant,
    round_trip_us: u32,
}

/// A rate is known after this many answers at one pace,
const KNOWN_ANSWERS: u32 = 10;
/// sent over at least this many round trips.
const KNOWN_ROUND_TRIPS: u64 = 10;
/// While backoff is calm, the rate is averaged over about this many answers.
const MEMORY: u32 = 256;

impl Meter {
    pub fn new(now: Instant) -> Self {
        Meter {
            since: now,
            quiet_since: now,
            last_sent: now,
            count: 0,
            busy: 0,
            served: 0,
            serving: 0,
            served_before: 0,
            served_before_ms: 0,
            closed_ms: 0,
            anchored_at: Instant::START,
            round_trip_us: 0,
        }
    }

    /// Records a departure at `sent`, under a pace that asked for the gap `asked`.
    fn departed(&mut self, sent: Instant, asked: u64) {
        if sent <= self.last_sent {
            return;
        }
        let most = 2 * asked.max(self.round_trip());
        let passed = nanos(sent.saturating_since(self.last_sent)).min(most);
        let here = nanos(sent.saturating_since(self.since)).min(passed);
        self.serving += passed;
        self.busy += here;
        self.last_sent = sent;
    }

    /// Records a departure whose answer is not a refusal.
    pub fn accepted(&mut self, sent: Instant, latency: Option<Duration>, asked: u64) {
        if let Some(latency) = latency {
            self.round_trip_us = match self.round_trip_us {
                0 => micros(latency),
                old => old - old / 8 + micros(latency) / 8,
            };
        }
        self.departed(sent, asked);
        if sent > self.anchored_at {
            self.served = self.served.saturating_add(1);
        }
        if sent >= self.since {
            self.count = self.count.saturating_add(1);
        }
    }

    /// Records a departure that was refused. The latency of a refusal is used only while no other
    /// is known.
    pub fn refused(&mut self, sent: Instant, latency: Option<Duration>, asked: u64) {
        if let (0, Some(latency)) = (self.round_trip_us, latency) {
            self.round_trip_us = micros(latency);
        }
        self.departed(sent, asked);
    }

    /// Time from the last departure to `until`.
    pub fn idle_until(&self, until: Instant) -> Duration {
        until.saturating_since(self.last_sent)
    }

    /// Records that nothing is sent until `until` because the server requested it; this is not idle
    /// time.
    pub fn held(&mut self, until: Instant) {
        if until > self.last_sent {
            self.serving += nanos(until.saturating_since(self.last_sent));
            self.last_sent = until;
        }
    }

    /// Starts a new pace.
    pub fn step(&mut self, now: Instant) {
        self.since = now;
        self.restart();
    }

    /// Restarts the measurement of the present pace.
    pub fn restart(&mut self) {
        self.count = 0;
        self.busy = 0;
    }

    /// Records a round of refusals: the server has no tokens left. Later rounds without an answer
    /// in between belong to the same moment.
    pub fn anchor(&mut self, sent: Instant) {
        if self.served > 0 || !self.is_anchored() {
            (self.served_before, self.served_before_ms) = if self.is_anchored() {
                let open = millis(self.serving).saturating_sub(self.closed_ms);
                (self.served, open)
            } else {
                (self.count, millis(self.busy))
            };
            self.served = 0;
            self.closed_ms = 0;
            self.serving = nanos(self.last_sent.saturating_since(sent));
            self.anchored_at = sent;
        }
    }

    pub fn is_anchored(&self) -> bool {
        self.anchored_at > Instant::START
    }

    /// Halves the counts now and then, so that old answers weigh less than new ones.
    pub fn decay(&mut self) {
        if self.count >= MEMORY {
            self.count /= 2;
            self.busy /= 2;
        }
    }

    pub fn round_trip(&self) -> u64 {
        u64::from(self.round_trip_us) * 1000
    }

    /// Returns whether enough requests were answered at this pace to know its rate.
    pub fn is_known(&self) -> bool {
        self.has_answers(KNOWN_ANSWERS)
    }

    /// Returns whether at least `answers` requests were answered at this pace, over enough round
    /// trips.
    pub fn has_answers(&self, answers: u32) -> bool {
        self.count >= answers && self.busy >= KNOWN_ROUND_TRIPS * self.round_trip()
    }

    /// Average gap at the present pace, as measured.
    pub fn real_gap(&self) -> u64 {
        self.busy / u64::from(self.count.max(1))
    }

    /// The gap that was refused, of requests sent `asked` apart: the measured gap where it is
    /// clearly longer.
    pub fn refused_gap(&self, asked: u64) -> u64 {
        let real = self.busy / (u64::from(self.count) + 1);
        if self.is_known() && real > asked + asked / 5 {
            real
        } else {
            asked
        }
    }

    /// Returns whether enough was served since the last refusal to consider the server recovered.
    pub fn has_recovered(&self) -> bool {
        self.served >= KNOWN_ANSWERS && self.serving >= KNOWN_ROUND_TRIPS * self.round_trip()
    }

    /// The gap at which the server served since its last refusal, if it is measured over at least
    /// `answers` answers.
    pub fn served_gap(&self, answers: u32) -> Option<u64> {
        let is_known = self.is_anchored() && self.served >= answers.max(1);
        is_known.then(|| self.serving / u64::from(self.served))
    }

    /// The same, if at least half of the answers came at the present pace.
    pub fn served_gap_here(&self, answers: u32) -> Option<u64> {
        self.served_gap(answers)
            .filter(|_| self.count >= self.served / 2)
    }

    /// Called when the server answers again after it refused everything. Returns the gap at which
    /// it served since it opened the time before, including the time during which it was closed, if
    /// there were enough answers to measure it. When it opened is only known to be after the last
    /// refusal.
    pub fn reopened(&mut self) -> Option<u64> {
        self.closed_ms = millis(self.serving);
        let took = u64::from(self.served_before_ms) * 1_000_000 + self.serving;
        let is_known =
            self.served_before >= KNOWN_ANSWERS && took >= KNOWN_ROUND_TRIPS * self.round_trip();
        let unseen = nanos(self.last_sent.saturating_since(self.since));
        is_known.then(|| (took - unseen.min(took) / 2) / u64::from(self.served_before))
    }

    /// Returns whether the server was closed for a large share of the time before it answered
    /// again: its quota was used up well before the end of its window.
    pub fn was_exhausted(&self) -> bool {
        self.closed_ms >= self.served_before_ms / 4
    }

    /// Returns whether more was served since the last refusal than a server with this gap would
    /// have served, by more than chance.
    pub fn served_faster_than(&self, gap: u64) -> bool {
        let least = u64::from(self.served.saturating_sub(5));
        self.is_anchored() && self.serving < least.saturating_mul(gap)
    }

    /// Lower bound of the gap that the server can sustain: it served this little between its last
    /// two refusals.
    pub fn gap_bound(&self) -> Option<u64> {
        (self.is_anchored() && self.served > 0).then(|| self.serving / (u64::from(self.served) + 1))
    }
}

/// Converts nanoseconds to milliseconds, saturating.
pub(super) fn millis(span: u64) -> u32 {
    u32::try_from(span / 1_000_000).unwrap_or(u32::MAX)
}

/// Converts to microseconds; values above one hour count as one hour.
fn micros(span: Duration) -> u32 {
    span.as_micros().min(3_600_000_000) as u32
}
