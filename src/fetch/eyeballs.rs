//! Decides which address to connect to next, and when: the race of RFC 8305 §5.
//!
//! Hand-written: it takes the time as an argument and touches no socket, as everything in `fetch` does.

use std::net::IpAddr;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::time::Instant;

/// A race of connection attempts to one host's addresses, in order.
///
/// It has no sockets. Its owner asks [`next`](Self::next) which address to try, starts the attempt
/// when the address's scope permits it, and reports the result. Asking changes nothing, so an owner
/// that may not start yet asks again later. The first connection wins: then the owner aborts the
/// other attempts and drops the race.
///
/// ```text
///        ┌──── delay over, or an attempt failed ────┐
///        v                                          │
///      Ready ── attempt started, more addresses ─> Spaced
///        └───── last address started or skipped ─> Exhausted (lost when no attempt is left)
/// ```
#[derive(Clone, Debug)]
pub struct Race {
    addresses: SmallVec<[IpAddr; 2]>,
    /// Number of addresses started or skipped.
    started: usize,
    /// Number of attempts that have neither failed nor won.
    in_progress: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next address may be tried.
    Ready,
    /// The previous attempt has until this time before the next one starts.
    Spaced { until: Instant },
    /// There is no next address.
    Exhausted,
}

/// Next action of a race's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Connect to this address.
    Try(IpAddr),
    /// Nothing before this time, unless an attempt fails.
    At(Instant),
    /// All addresses were tried and attempts are in progress.
    Wait,
    /// No attempt is left: the host cannot be connected to.
    Lost,
}

impl Race {
    /// A race to addresses in the order of RFC 8305 §4; lost at once if there are none.
    pub fn new(addresses: SmallVec<[IpAddr; 2]>) -> Self {
        let mut race = Race {
            addresses,
            started: 0,
            in_progress: 0,
            state: State::Ready,
        };
        race.enter(State::Ready);
        race
    }

    /// The next action.
    pub fn next(&self, now: Instant) -> Turn {
        match self.state {
            State::Spaced { until } if now < until => Turn::At(until),
            State::Ready | State::Spaced { .. } => Turn::Try(self.addresses[self.started]),
            State::Exhausted if self.in_progress > 0 => Turn::Wait,
            State::Exhausted => Turn::Lost,
        }
    }

    /// The attempt to the address from [`next`](Self::next) was started.
    pub fn handle_started(&mut self, now: Instant) {
        self.started += 1;
        self.in_progress += 1;
        let until = now + ATTEMPT_DELAY;
        self.enter(State::Spaced { until });
    }

    /// The address from [`next`](Self::next) may not be tried: continues with the one after it.
    pub fn handle_skipped(&mut self) {
        self.started += 1;
        self.enter(self.state);
    }

    /// An attempt failed; the next may start at once (RFC 8305 §5).
    pub fn handle_failed(&mut self) {
        debug_assert!(self.in_progress > 0, "an attempt that fails was started");
        self.in_progress = self.in_progress.saturating_sub(1);
        self.enter(State::Ready);
    }

    /// Returns whether all addresses are of the same family as this one.
    pub fn has_only_like(&self, one: IpAddr) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.all(|address| address.is_ipv4() == one.is_ipv4())
    }

    fn enter(&mut self, state: State) {
        self.state = if self.started < self.addresses.len() {
            state
        } else {
            State::Exhausted
        };
    }
}

/// How long an attempt runs before the next address is tried in parallel (RFC 8305 §8).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn race(count: u8) -> Race {
        Race::new((1..=count).map(address).collect())
    }

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    fn check(race: &Race, ms: u64, expected: Turn) {
        assert_eq!(race.next(at(ms)), expected, "at {ms} ms");
    }

    #[test]
    fn the_next_attempt_starts_after_250_ms() {
        let mut race = race(2);
        check(&race, 0, Turn::Try(address(1)));
        race.handle_started(at(10));
        check(&race, 10, Turn::At(at(260)));
        check(&race, 260, Turn::Try(address(2)));
        race.handle_started(at(300));
        check(&race, 300, Turn::Wait);
        check(&race, 9000, Turn::Wait);
    }

    #[test]
    fn a_failure_starts_the_next_attempt_at_once() {
        let mut race = race(3);
        race.handle_started(at(0));
        race.handle_failed();
        check(&race, 5, Turn::Try(address(2)));
        race.handle_started(at(5));
        check(&race, 6, Turn::At(at(255)));
    }

    #[test]
    fn the_race_is_lost_when_the_last_attempt_failed() {
        let mut race = race(2);
        race.handle_started(at(0));
        race.handle_started(at(250));
        race.handle_failed();
        check(&race, 260, Turn::Wait);
        race.handle_failed();
        check(&race, 270, Turn::Lost);
    }

    #[test]
    fn a_skipped_address_costs_no_time() {
        let mut race = race(3);
        race.handle_skipped();
        check(&race, 0, Turn::Try(address(2)));
        race.handle_skipped();
        race.handle_skipped();
        check(&race, 0, Turn::Lost);
    }

    #[test]
    fn an_owner_that_may_not_start_yet_can_ask_again() {
        let mut race = race(2);
        check(&race, 0, Turn::Try(address(1)));
        check(&race, 700, Turn::Try(address(1)));
        race.handle_started(at(700));
        check(&race, 700, Turn::At(at(950)));
    }

    #[test]
    fn a_race_without_addresses_is_lost() {
        check(&race(0), 0, Turn::Lost);
    }
}
