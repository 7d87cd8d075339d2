//! Health of hosts: their failures in a row, their holds, and the clock that counts them.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;

use super::{HostId, HostPort};
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::frontier::saved_hosts::{SavedFailure, SavedHosts};
use crate::frontier::settings::HostPolicy;

/// The hosts that failed since their last success.
///
/// ```text
///        HOST_HOLD_FAILURES in a row,        a failure, HOST_DOWN_AFTER
///        or no answer for robots.txt         after the first of them
/// Up ───────────────────────────────► Held ───────────────────────────► Down
///  ▲                                   │ ▲                               │
///  │                        hold over  ▼ │ a failure: twice as long      │
///  └──────────── a success ◄────────── Up (one more try) ◄───────────────┘ HOST_DOWN_TIME later
/// ```
#[derive(Debug)]
pub struct Failures {
    failing: HashMap<HostPort, Failing, Secret>,
    /// When each of `failing` is to be checked, to drop it if its host is idle.
    stale: BTreeSet<(Instant, HostPort)>,
    /// Held ones, by the end of the hold, each once. Expired holds are removed by [`Failures::expire`].
    held: BTreeSet<(Instant, HostPort)>,
    /// Failures for a later run, and those of an earlier one.
    saved: SavedHosts,
    /// Total time in which the crawl itself could send nothing, until `stopped_since`.
    stopped: Duration,
    /// Since when the crawl can send nothing; `None` while it can.
    stopped_since: Option<Instant>,
}

/// A host that failed since its last success.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// The first failure in the row, in [active time](Failures::active_time).
    since: Instant,
    /// Time from that in earlier runs of the crawl.
    earlier: Duration,
    /// Failures since the last success.
    failures: u8,
    /// Holds since the last success; [`GIVEN_UP`] after it was given up.
    holds: u8,
    /// End of its hold, or of the time that it stays given up; in the past while it may be tried.
    until: Instant,
    /// It accepts connections but answers nothing: a connection alone is not a success.
    is_unresponsive: bool,
    /// Number of times it was given up.
    given_up: u8,
    /// It was given up because this machine has no route to it.
    is_unroutable: bool,
    /// End of the last discounted span, in active time.
    discounted_until: Instant,
    /// When it is to be checked, as in `stale`.
    checked_at: Instant,
}

/// Health of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may be asked.
    Up,
    /// It failed: not to be asked before this time.
    Held(Instant),
    /// It was given up: its URLs end as `host_down`, or as `robots.unreachable` where its robots.txt
    /// never came.
    Down,
    /// It was given up because this machine has no route to it: its URLs end as `connect.unreachable`.
    Unroutable,
}

/// Kind of a host's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFailure {
    /// Its name could not be resolved, or it could not be connected to.
    Unconnected,
    /// Its robots.txt got no answer, before or after a connection.
    Unanswered,
}

/// Result of recording a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVerdict {
    /// The failure is counted, without effect so far; or its request was in flight when an earlier
    /// failure caused a hold.
    Counted,
    /// The host is held for this long.
    Held(Duration),
    /// The host is given up, after this long without a success.
    GivenUp(Duration),
}

/// How long after the end of its hold the failures of an idle host are kept: as long as others of its links may
/// be found.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// Most doublings of a hold, and of the time that a host stays given up.
const DOUBLINGS_MAX: u8 = 31;
/// Value of [`Failing::holds`] for a host that was given up.
const GIVEN_UP: u8 = u8::MAX;
/// Maximum number of holds removed per call of [`Failures::expire`].
pub const EXPIRED_PER_TURN: usize = 1024;

impl Failures {
    /// None. `secret` keys the hash tables.
    pub fn new(secret: &Secret) -> Self {
        Failures {
            failing: HashMap::with_hasher(*secret),
            stale: BTreeSet::new(),
            held: BTreeSet::new(),
            saved: SavedHosts::new(secret),
            stopped: Duration::ZERO,
            stopped_since: None,
        }
    }

    /// Saves failures for a later run from now on.
    pub fn start_saving(&mut self) {
        self.saved.start();
    }

    /// The next failure that changed since it was saved: host and port, and its bytes; none if it is over.
    /// `id_of`: the number of a host, by its name.
    pub fn poll_saved(
        &mut self,
        id_of: impl Fn(&str) -> Option<HostId>,
        now: Instant,
    ) -> Option<(String, Vec<u8>)> {
        let (host, port) = self.saved.poll()?;
        let id = id_of(&host);
        let failing = id.and_then(|id| self.failing.get(&(id, port)));
        let failing = failing.filter(|failing| !failing.is_unroutable);
        let bytes = failing.map(|failing| {
            let span = self.active_time(now).saturating_since(failing.since);
            let failure = SavedFailure {
                failures: failing.failures,
                holds: failing.holds,
                given_up: failing.given_up,
                is_unresponsive: failing.is_unresponsive,
                span: span + failing.earlier,
                left: failing.until.saturating_since(now),
            };
            failure.encode()
        });
        Some((format!("{host}:{port}"), bytes.unwrap_or_default()))
    }

    /// A failure that an earlier run saved `elapsed` ago, for when its host is needed. Returns false if it
    /// has no effect any more.
    pub fn restore(&mut self, name: &str, saved: &[u8], elapsed: Duration, now: Instant) -> bool {
        self.saved.restore(name, saved, elapsed, KEPT, now)
    }

    /// Continues with the failures of a new host that an earlier run saved. Returns how many more of its ports
    /// fail.
    pub fn resume(&mut self, id: HostId, name: &str) -> usize {
        let mut begun = 0;
        for earlier in self.saved.take(name) {
            let host_port = (id, earlier.port);
            let SavedFailure {
                failures, holds, ..
            } = earlier.failure;
            let failing = Failing {
                since: self.active_time(earlier.resumed_at),
                earlier: earlier.failure.span,
                failures,
                holds,
                until: earlier.until,
                is_unresponsive: earlier.failure.is_unresponsive,
                given_up: earlier.failure.given_up,
                is_unroutable: false,
                discounted_until: Instant::START,
                checked_at: earlier.until + KEPT,
            };
            if (1..GIVEN_UP).contains(&holds) {
                self.held.insert((failing.until, host_port));
            }
            self.stale.insert((failing.checked_at, host_port));
            begun += usize::from(self.failing.insert(host_port, failing).is_none());
        }
        begun
    }

    /// Health of a host at `now`.
    pub fn health(&self, host_port: HostPort, now: Instant) -> Health {
        match self.failing.get(&host_port) {
            Some(failing) if failing.until <= now => Health::Up,
            Some(failing) if failing.holds < GIVEN_UP => Health::Held(failing.until),
            Some(failing) if failing.is_unroutable => Health::Unroutable,
            Some(_) => Health::Down,
            None => Health::Up,
        }
    }

    /// Failures of a host since its last success.
    pub fn count(&self, host_port: HostPort) -> u8 {
        let failing = self.failing.get(&host_port);
        failing.map_or(0, |failing| failing.failures)
    }

    /// A host fails from now on. Returns whether it did not before.
    pub fn begin(&mut self, host_port: HostPort, name: &str, now: Instant) -> bool {
        self.saved.add(name, host_port.1);
        if self.failing.contains_key(&host_port) {
            return false;
        }
        let checked_at = now + KEPT;
        let failing = Failing {
            since: self.active_time(now),
            earlier: Duration::ZERO,
            failures: 0,
            holds: 0,
            until: now,
            is_unresponsive: false,
            given_up: 0,
            is_unroutable: false,
            discounted_until: Instant::START,
            checked_at,
        };
        self.stale.insert((checked_at, host_port));
        self.failing.insert(host_port, failing);
        true
    }

    /// A host that fails has failed once more: see [`Hosts::failed`](super::Hosts::failed).
    pub fn failed(
        &mut self,
        host_port: HostPort,
        how: HostFailure,
        policy: &HostPolicy,
        now: Instant,
    ) -> HostVerdict {
        let down_after = policy.down_after;
        let active = self.active_time(now);
        let failing = self.failing_mut(host_port);
        let since = active.saturating_since(failing.since) + failing.earlier;
        let before = failing.until;
        failing.is_unresponsive |= how == HostFailure::Unanswered;
        failing.failures = failing.failures.saturating_add(1);
        let is_tried_again = failing.holds > 0;
        if how == HostFailure::Unconnected
            && failing.failures < policy.failures_max
            && !is_tried_again
        {
            return HostVerdict::Counted;
        }
        if since >= down_after {
            self.give_up(host_port, false, policy, now);
            return HostVerdict::GivenUp(since);
        }
        let hold = policy
            .hold_min
            .saturating_mul(1 << failing.holds.min(DOUBLINGS_MAX))
            .min(policy.hold_max);
        // The last try is due when `down_after` has passed, not later.
        let hold = hold.min(down_after - since);
        failing.until = now + hold;
        failing.holds = failing.holds.saturating_add(1).min(GIVEN_UP - 1);
        let until = failing.until;
        self.held.remove(&(before, host_port));
        self.held.insert((until, host_port));
        HostVerdict::Held(hold)
    }

    /// Gives a host up that fails. `is_unroutable`: this machine has no route to it.
    pub fn give_up(
        &mut self,
        host_port: HostPort,
        is_unroutable: bool,
        policy: &HostPolicy,
        now: Instant,
    ) {
        let failing = self.failing_mut(host_port);
        let before = failing.until;
        failing.holds = GIVEN_UP;
        failing.is_unroutable = is_unroutable;
        let doubled = 1 << failing.given_up.min(DOUBLINGS_MAX);
        let silence = policy.down_time.saturating_mul(doubled);
        failing.until = now + silence.min(policy.down_time_max);
        failing.given_up = failing.given_up.saturating_add(1);
        self.held.remove(&(before, host_port));
    }

    fn failing_mut(&mut self, host_port: HostPort) -> &mut Failing {
        let failing = self.failing.get_mut(&host_port);
        failing.expect("it has begun to fail")
    }

    /// A host had a success, or is dropped. Returns whether it failed.
    pub fn end(&mut self, host_port: HostPort, name: &str) -> bool {
        let Some(failing) = self.failing.remove(&host_port) else {
            return false;
        };
        self.saved.add(name, host_port.1);
        self.held.remove(&(failing.until, host_port));
        self.stale.remove(&(failing.checked_at, host_port));
        true
    }

    /// Whether it fails, accepts connections, and answers nothing.
    pub fn is_unresponsive(&self, host_port: HostPort) -> bool {
        let failing = self.failing.get(&host_port);
        failing.is_some_and(|failing| failing.is_unresponsive)
    }

    /// The next host that is to be checked: [`Failures::keep`] follows.
    pub fn pop_stale(&mut self, now: Instant) -> Option<HostPort> {
        let (at, host_port) = self.stale.first().copied()?;
        if at > now {
            return None;
        }
        self.stale.pop_first();
        Some(host_port)
    }

    /// Checks it again later, if it is used or its hold ended less than [`KEPT`] ago; else returns false.
    pub fn keep(&mut self, host_port: HostPort, is_used: bool, now: Instant) -> bool {
        let failing = self.failing_mut(host_port);
        failing.checked_at = match is_used {
            true => now + KEPT,
            false => failing.until + KEPT,
        };
        let checked_at = failing.checked_at;
        checked_at > now && self.stale.insert((checked_at, host_port))
    }

    /// See [`Frontier::discount_time`](crate::frontier::Frontier::discount_time).
    pub fn discount_all(&mut self, span: Duration) {
        if self.stopped_since.is_none() {
            self.stopped += span;
        }
    }

    /// See [`Frontier::discount_host_time`](crate::frontier::Frontier::discount_host_time).
    pub fn discount(&mut self, host_port: HostPort, since: Instant, now: Instant) {
        let active = self.active_time(now);
        if let Some(failing) = self.failing.get_mut(&host_port) {
            // Several lanes may report overlapping spans.
            let since = since.max(failing.since).max(failing.discounted_until);
            failing.since += active.saturating_since(since);
            failing.discounted_until = active;
        }
    }

    /// Returns `now` on a clock that stops while the crawl itself can send nothing.
    pub fn active_time(&self, now: Instant) -> Instant {
        self.stopped_since.map_or(now, |since| since.min(now)) - self.stopped
    }

    /// Stops or restarts the clock of [`Failures::active_time`]: time in which the crawl itself can send
    /// nothing does not count towards giving a host up.
    pub fn set_stopped(&mut self, is_stopped: bool, now: Instant) {
        match (self.stopped_since, is_stopped) {
            (None, true) => self.stopped_since = Some(now),
            (Some(since), false) => {
                self.stopped += now.saturating_since(since);
                self.stopped_since = None;
            }
            _ => {}
        }
    }

    /// Number of hosts held at `now`, and when the first of these holds ends. Expired holds not yet
    /// [removed](Failures::expire) are few.
    pub fn held(&self, now: Instant) -> (usize, Option<Instant>) {
        let over = self
            .held
            .iter()
            .take_while(|(until, _)| *until <= now)
            .count();
        let next = self.held.iter().nth(over).map(|(until, _)| *until);
        (self.held.len() - over, next)
    }

    /// Removes expired holds, at most [`EXPIRED_PER_TURN`], so that a turn stays short.
    pub fn expire(&mut self, now: Instant) {
        for _ in 0..EXPIRED_PER_TURN {
            match self.held.first() {
                Some((until, _)) if *until <= now => self.held.pop_first(),
                _ => return,
            };
        }
    }
}

#[cfg(test)]
impl Failures {
    /// The host of each port that fails.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        assert_eq!(self.stale.len(), self.failing.len());
        self.failing.keys().map(|(id, _)| *id)
    }

    /// Number of holds, also of expired ones that are not removed.
    pub fn holds(&self) -> usize {
        self.held.len()
    }
}
