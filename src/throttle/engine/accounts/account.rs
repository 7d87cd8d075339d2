//! Statistics of one scope.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::ScopeId;
use crate::base::time::{Instant, nanos};
use crate::throttle::cause::WaitCause;
use crate::throttle::decision::DecisionEvent;
use crate::throttle::engine::median::Median;
use crate::throttle::scope::{NO_INDEX, Profile};
use crate::throttle::strategy::Pace;

/// Statistics of one scope.
///
/// The fields changed by each request come first and fill three cache lines: with ten thousand
/// accounts in turn, each access is a cache miss.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Account {
    /// Departures.
    pub sent: u64,
    /// The first departure.
    pub first: Option<Instant>,
    /// The last departure.
    pub last: Option<Instant>,
    /// The pace at the last departure, or since its last change.
    pub pace: Pace,
    /// Integral of requests on the wire over time, in request-nanoseconds.
    wire_time: u128,
    pub(in crate::throttle::engine) profile: Arc<Profile>,
    changed: Instant,
    /// Of the latency that the pace follows.
    pub(super) latency: Median,
    /// Of the delay before jitter, over the departures.
    delay: Median,
    on_the_wire: u32,
    /// Maximum number of requests on the wire at once.
    pub peak: u32,
    /// Final heads and failures.
    pub replies: u64,
    /// Answers that were refusals of this scope.
    pub refused: u64,
    /// What the first lane in the line waits for, and since when.
    pub(super) waiting: Option<(WaitCause, Instant)>,
    pub(super) waited_until: Instant,
    /// Nanoseconds before departures whose delay was at its maximum.
    at_max_delay: u64,
    /// Nanoseconds waited, by cause. Time of lanes that wait together is counted once.
    pub(super) waited: [u64; CAUSES],
    pub(super) decided: [u32; EVENTS],
    /// The scope's name.
    pub scope: String,
    /// The reason why its answers are suspected to be block pages, if they are.
    pub suspected: Option<String>,
    /// The configuration names the scope.
    pub configured: bool,
    pub(super) is_live: bool,
    /// Number of its lanes that are parked.
    pub(super) parked: u32,
    /// The scope, while the account is live.
    pub(super) id: ScopeId,
}

impl Account {
    pub(super) fn new(scope: &str, configured: bool, profile: Arc<Profile>, now: Instant) -> Self {
        Account {
            scope: scope.to_owned(),
            configured,
            sent: 0,
            replies: 0,
            refused: 0,
            first: None,
            last: None,
            peak: 0,
            pace: Pace {
                delay: profile.settings.delay,
                concurrency: profile.settings.concurrency,
            },
            suspected: None,
            profile,
            latency: Median::default(),
            delay: Median::default(),
            at_max_delay: 0,
            decided: [0; EVENTS],
            waited: [0; CAUSES],
            waited_until: now,
            waiting: None,
            on_the_wire: 0,
            changed: now,
            wire_time: 0,
            is_live: true,
            parked: 0,
            id: ScopeId(NO_INDEX),
        }
    }

    /// Time waited for this cause until `now`.
    pub(crate) fn waited(&self, cause: WaitCause, now: Instant) -> Duration {
        let open = self.waiting.filter(|(present, _)| *present == cause);
        let open = open.map(|(_, since)| now.saturating_since(since.max(self.waited_until)));
        Duration::from_nanos(self.waited[cause as usize]) + open.unwrap_or_default()
    }

    /// Rate in requests per second between the first departure and the last; `None` before the
    /// second.
    pub fn rate(&self) -> Option<f64> {
        let span = self.last?.saturating_since(self.first?).as_secs_f64();
        (span > 0.0).then(|| (self.sent - 1) as f64 / span)
    }

    /// Mean gap between departures; `None` before the second.
    pub(crate) fn gap(&self) -> Option<Duration> {
        let span = self.last?.saturating_since(self.first?);
        (self.sent > 1).then(|| span.div_f64((self.sent - 1) as f64))
    }

    /// The configured pace.
    pub fn configured_pace(&self) -> Pace {
        Pace {
            delay: self.profile.settings.delay,
            concurrency: self.profile.settings.concurrency,
        }
    }

    /// Estimated median of the latency that the pace follows; `None` without answers.
    pub fn latency(&self) -> Option<Duration> {
        self.latency.get()
    }

    /// Estimated median of the delay before jitter, over the departures.
    pub fn delay(&self) -> Option<Duration> {
        self.delay.get()
    }

    /// Share of the time from the first departure to the last during which the delay was at the
    /// maximum of AutoThrottle, or else of backoff.
    pub fn at_max_delay(&self) -> f64 {
        let span = self.first.zip(self.last);
        let span = span.map_or(0, |(first, last)| nanos(last.saturating_since(first)));
        self.at_max_delay as f64 / span.max(1) as f64
    }

    /// Number of decisions of this kind.
    pub(crate) fn decided(&self, event: DecisionEvent) -> u32 {
        self.decided[event as usize]
    }

    /// Why the next request waits, and since when; `None` if it does not.
    pub fn waits(&self) -> Option<(WaitCause, Instant)> {
        self.waiting
    }

    /// Total time waited until `now`.
    pub fn waited_total(&self, now: Instant) -> Duration {
        let waited = |cause: &WaitCause| self.waited(*cause, now);
        WaitCause::ALL.iter().map(waited).sum()
    }

    /// Mean number of requests on the wire, from the first departure to the last end, or to `now`
    /// while a request is on the wire.
    pub fn concurrency(&self, now: Instant) -> Option<f64> {
        let now = match self.on_the_wire {
            0 => self.changed,
            _ => now.max(self.changed),
        };
        let span = now.saturating_since(self.first?);
        let open = u128::from(nanos(now.saturating_since(self.changed)));
        let total = self.wire_time + open * u128::from(self.on_the_wire);
        (!span.is_zero()).then(|| total as f64 / nanos(span) as f64)
    }

    pub(super) fn on_the_wire(&mut self, by: i32, now: Instant) {
        let now = now.max(self.changed);
        let open = u128::from(nanos(now.saturating_since(self.changed)));
        self.wire_time += open * u128::from(self.on_the_wire);
        self.changed = now;
        self.on_the_wire = self.on_the_wire.saturating_add_signed(by);
        self.peak = self.peak.max(self.on_the_wire);
    }

    pub(super) fn departed(&mut self, pace: Pace, at: Instant) {
        self.sent += 1;
        self.pace = pace;
        self.delay.add(pace.delay);
        if let Some(last) = self.last
            && pace.delay >= self.profile.settings.delay_max()
        {
            self.at_max_delay += nanos(at.saturating_since(last));
        }
        self.first.get_or_insert(at);
        self.last = Some(at);
        self.on_the_wire(1, at);
    }

    pub(super) fn wait(&mut self, cause: WaitCause, from: Instant, to: Instant) -> u64 {
        let from = from.max(self.waited_until);
        if to <= from {
            return 0;
        }
        let more = nanos(to.saturating_since(from));
        self.waited[cause as usize] += more;
        self.waited_until = to;
        more
    }
}

/// Number of causes of waits.
pub(super) const CAUSES: usize = WaitCause::ALL.len();

/// Number of kinds of decisions.
pub(super) const EVENTS: usize = DecisionEvent::ALL.len();

/// What accounts are made of in tests.
#[cfg(test)]
pub(super) mod fixtures {
    use super::*;
    use crate::throttle::settings::ScopeSettings;

    pub fn profile() -> Arc<Profile> {
        Arc::new(Profile::of(ScopeSettings::default()))
    }

    pub fn secs(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::fixtures::{profile, secs};
    use super::*;

    #[test]
    fn fields_changed_by_each_request_fill_three_cache_lines() {
        assert!(offset_of!(Account, pace) < 64);
        assert!(offset_of!(Account, peak) < 128);
        assert!(offset_of!(Account, at_max_delay) < 192);
        assert_eq!(size_of::<Account>(), 384);
    }

    #[test]
    fn time_at_the_longest_delay_is_the_gap_before_such_a_request() {
        let mut account = Account::new("a.test", false, profile(), Instant::START);
        let longest = account.profile.settings.delay_max();
        let pace = |delay| Pace {
            delay,
            ..account.pace
        };
        let (longest, shorter) = (pace(longest), pace(longest / 2));
        for (pace, at) in [(longest, 100), (shorter, 200), (longest, 500)] {
            account.departed(pace, secs(at));
        }
        assert_eq!(account.at_max_delay, 300_000_000_000);
    }

    #[test]
    fn a_wait_is_charged_once_and_an_open_one_counts_until_now() {
        let mut account = Account::new("a.test", false, profile(), Instant::START);
        account.wait(WaitCause::Delay, secs(1), secs(3));
        account.wait(WaitCause::Quota, secs(2), secs(4));
        account.waiting = Some((WaitCause::Robots, secs(3)));
        let waited = |cause| account.waited(cause, secs(10)).as_secs();
        assert_eq!(waited(WaitCause::Delay), 2);
        assert_eq!(waited(WaitCause::Quota), 1);
        assert_eq!(waited(WaitCause::Robots), 6);
        assert_eq!(account.waited_total(secs(10)).as_secs(), 9);
    }

    #[test]
    fn mean_concurrency_covers_only_time_with_requests() {
        let mut account = Account::new("a.test", false, profile(), Instant::START);
        let pace = account.pace;
        account.departed(pace, secs(10));
        account.departed(pace, secs(11));
        account.on_the_wire(-1, secs(12));
        // Three seconds with one and one with two: until now, while one is on the wire.
        assert_eq!(account.concurrency(secs(14)), Some(5.0 / 4.0));
        account.on_the_wire(-1, secs(14));
        assert_eq!(account.concurrency(secs(1000)), Some(5.0 / 4.0));
        assert_eq!(account.peak, 2);
        assert_eq!(account.rate(), Some(1.0));
        assert_eq!(account.gap(), Some(Duration::from_secs(1)));
    }
}
