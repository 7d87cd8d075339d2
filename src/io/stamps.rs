//! The crawl's clock, and how the kernel's receive stamps are told in it.
//!
//! The kernel stamps arrivals in CLOCK_REALTIME, the crawl lives on CLOCK_MONOTONIC. Both are
//! slewed alike, so they differ by a constant until someone steps the wall clock. The constant is
//! measured each turn; when it has moved by more than [`STEP`], stamps taken before the move are
//! not believed.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Clock, Stamp};
use crate::base::time::{Instant, Wall, nanos};

/// The crawl's clock and what it knows of the wall's.
#[derive(Debug)]
pub(super) struct Stamps {
    /// CLOCK_MONOTONIC when the crawl began.
    start: u64,
    /// CLOCK_REALTIME when the crawl began.
    wall_at_start: Wall,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC, as of this turn.
    offset: i64,
    /// Stamps that fall before this moment were taken before the wall clock was stepped.
    trusted_from: Instant,
    /// When the last complete look at the kernel's news was taken.
    looked_at: Instant,
}

/// Since when a socket's bytes may have lain unseen: see [`Stamps::arrival`].
#[derive(Clone, Copy, Debug)]
pub(super) struct UnseenSince(Instant);

impl Stamps {
    pub(super) fn start() -> Self {
        let (monotonic, offset) = pair();
        Stamps {
            start: monotonic,
            wall_at_start: Wall(monotonic.saturating_add_signed(offset)),
            offset,
            trusted_from: Instant::START,
            looked_at: Instant::START,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.tell(monotonic())
    }

    pub(super) fn wall_at_start(&self) -> Wall {
        self.wall_at_start
    }

    /// The moment as CLOCK_MONOTONIC counts it, for a timer.
    pub(super) fn timer_time(&self, at: Instant) -> Timespec {
        let since_boot = self.start.saturating_add(at.as_nanos());
        Timespec {
            tv_sec: (since_boot / SECOND) as i64,
            tv_nsec: (since_boot % SECOND) as _,
        }
    }

    /// Begins a turn, right after news was fetched: measures how far the two clocks lie apart.
    ///
    /// `slept`: the fetch had to wait for the first of the news. `complete`: nothing was left behind.
    /// Returns the present and since when the news fetched may have lain unseen.
    pub(super) fn begin_turn(&mut self, slept: bool, complete: bool) -> (Instant, UnseenSince) {
        let (monotonic, offset) = pair();
        let now = self.tell(monotonic);
        self.notice_step(offset, now);
        let unseen_since = if slept { now } else { self.looked_at };
        if complete {
            self.looked_at = now;
        }
        (now, UnseenSince(unseen_since))
    }

    fn notice_step(&mut self, offset: i64, now: Instant) {
        let moved = offset.wrapping_sub(self.offset);
        if moved.unsigned_abs() > nanos(STEP) {
            log::warn!(
                "the wall clock was stepped by {:.3} s; arrivals in flight are stamped by us",
                moved as f64 / 1e9
            );
            self.trusted_from = now;
        }
        self.offset = offset;
    }

    /// When bytes arrived: by the kernel's stamp where there is one that can be believed.
    ///
    /// One read returns all that has arrived, with the stamp of the *last* segment. A segment
    /// cannot have come before the socket was last seen empty, so the stamp is off by at most
    /// its distance from there; beyond [`COALESCING`] it is labelled an upper bound. So it is
    /// where a sleep ended that much after the stamp: the machine ran others first, and what
    /// ended the sleep may have been an earlier segment. `floor` is a moment that the arrival
    /// cannot precede.
    pub(super) fn arrival(
        &self,
        kernel: Option<Timespec>,
        unseen_since: UnseenSince,
        floor: Instant,
    ) -> Stamp {
        let Some(at) = kernel.and_then(|stamp| self.convert(stamp)) else {
            return self.noticed();
        };
        if at < self.trusted_from {
            return self.noticed();
        }
        let now = self.now();
        if at > now + STEP {
            return self.noticed();
        }
        Stamp {
            at: at.max(floor).min(now),
            clock: Clock::Kernel,
            bound: at.saturating_since(unseen_since.0) > COALESCING
                || unseen_since.0.saturating_since(at) > COALESCING,
        }
    }

    /// What is only known to have happened by now.
    pub(super) fn noticed(&self) -> Stamp {
        Stamp {
            at: self.now(),
            clock: Clock::User,
            bound: true,
        }
    }

    fn convert(&self, stamp: Timespec) -> Option<Instant> {
        let wall = u64::try_from(stamp.tv_sec).ok()?.checked_mul(SECOND)?
            + u64::try_from(stamp.tv_nsec).ok()?;
        Some(self.tell(wall.checked_add_signed(self.offset.checked_neg()?)?))
    }

    fn tell(&self, monotonic: u64) -> Instant {
        Instant::from_nanos(monotonic.saturating_sub(self.start))
    }
}

/// CLOCK_MONOTONIC and how far CLOCK_REALTIME is ahead of it, read as close together as can be.
fn pair() -> (u64, i64) {
    let mut best = (u64::MAX, 0, 0);
    // A pair that an interrupt came between is read again; three tries, or the loop could stall.
    for _ in 0..3 {
        let before = monotonic();
        let wall = read(ClockId::Realtime);
        let after = monotonic();
        let apart = after - before;
        if apart < best.0 {
            let middle = before + apart / 2;
            best = (apart, after, wall as i64 - middle as i64);
        }
        if apart < 1_000 {
            break;
        }
    }
    (best.1, best.2)
}

fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// The wall clock is only ever slewed together with the monotonic one; apart they move by steps.
/// A millisecond is far above the error of a pair and far below a step that anyone would make.
const STEP: Duration = Duration::from_millis(1);

/// How far a stamp may be off, when several segments arrived before one read, and still be told
/// as if it were exact.
const COALESCING: Duration = Duration::from_millis(1);

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that began two seconds ago, so that moments of the past can be told.
    fn stamps() -> Stamps {
        let mut stamps = Stamps::start();
        stamps.start -= 2 * SECOND;
        stamps
    }

    fn kernel(stamps: &Stamps, at: Instant) -> Option<Timespec> {
        let wall = (stamps.start + at.as_nanos()).saturating_add_signed(stamps.offset);
        Some(Timespec {
            tv_sec: (wall / SECOND) as i64,
            tv_nsec: (wall % SECOND) as _,
        })
    }

    #[test]
    fn a_kernel_stamp_is_told_on_the_crawls_clock() {
        let stamps = stamps();
        let at = Instant::from_nanos(1_234_567_890);
        let told = stamps.arrival(kernel(&stamps, at), UnseenSince(at), Instant::START);
        assert_eq!(
            told,
            Stamp {
                at,
                clock: Clock::Kernel,
                bound: false
            }
        );
    }

    #[test]
    fn a_stamp_long_after_the_socket_was_last_seen_empty_is_a_bound() {
        let stamps = stamps();
        let at = Instant::from_nanos(1_500_000_000);
        let bound = |seen| {
            let told = stamps.arrival(kernel(&stamps, at), UnseenSince(seen), Instant::START);
            assert_eq!(told.clock, Clock::Kernel);
            told.bound
        };
        assert!(!bound(at - COALESCING));
        assert!(bound(at - COALESCING - Duration::from_nanos(1)));
    }

    #[test]
    fn a_stamp_long_before_the_end_of_the_sleep_it_ended_is_a_bound() {
        let mut stamps = stamps();
        let (now, woken) = stamps.begin_turn(true, true);
        let bound = |before: Duration| {
            let at = Instant::from_nanos(now.as_nanos() - nanos(before));
            let told = stamps.arrival(kernel(&stamps, at), woken, Instant::START);
            assert_eq!(told.clock, Clock::Kernel);
            told.bound
        };
        assert!(!bound(Duration::from_micros(50)));
        assert!(bound(COALESCING * 2));
    }

    #[test]
    fn news_waited_for_was_seen_at_once_and_news_found_was_not() {
        let mut stamps = stamps();
        let (first, _) = stamps.begin_turn(true, true);
        let (second, found) = stamps.begin_turn(false, true);
        assert_eq!(found.0, first);
        // A look that left news behind does not count as having seen the rest.
        let (_, found) = stamps.begin_turn(false, false);
        assert_eq!(found.0, second);
        let (_, found) = stamps.begin_turn(false, true);
        assert_eq!(found.0, second);
        let (now, found) = stamps.begin_turn(true, true);
        assert_eq!(found.0, now);
    }

    #[test]
    fn after_a_step_of_the_wall_clock_earlier_stamps_are_not_believed() {
        let mut stamps = stamps();
        let before = kernel(&stamps, stamps.now());
        let unseen = UnseenSince(stamps.now());
        assert_eq!(
            stamps.arrival(before, unseen, Instant::START).clock,
            Clock::Kernel
        );
        // Forward, backward, and a slew that is none.
        for (moved, believed) in [
            (3_600 * SECOND as i64, false),
            (-3_600 * SECOND as i64, false),
            (500_000, true),
        ] {
            let mut stamps = Stamps { ..stamps };
            let now = stamps.now();
            stamps.notice_step(stamps.offset + moved, now);
            let told = stamps.arrival(before, unseen, Instant::START);
            assert_eq!(told.clock == Clock::Kernel, believed, "moved by {moved} ns");
            assert_eq!(told.bound, !believed);
        }
        let now = stamps.now();
        stamps.notice_step(stamps.offset + 5 * SECOND as i64, now);
        let after = kernel(&stamps, stamps.now());
        assert_eq!(
            stamps.arrival(after, unseen, Instant::START).clock,
            Clock::Kernel
        );
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_neither_our_clock_nor_timers_nor_times_in_files() {
        for hours in [3, -3] {
            let mut stamps = stamps();
            let due = stamps.now() + Duration::from_secs(5);
            let (wall, timer) = (stamps.wall_at_start(), stamps.timer_time(due));
            let before = stamps.now();
            let moved = hours * 3_600 * SECOND as i64;
            stamps.notice_step(stamps.offset + moved, before);
            let after = stamps.now();
            assert!(after >= before && after < before + Duration::from_secs(60));
            assert_eq!(stamps.wall_at_start(), wall);
            assert_eq!(stamps.timer_time(due), timer);
            // What left before the step and is answered after it took the time that it took.
            let answer = stamps.arrival(
                kernel(&stamps, stamps.now()),
                UnseenSince(stamps.now()),
                before,
            );
            let latency = answer.at.saturating_since(before);
            assert!(latency < Duration::from_secs(60), "{latency:?}");
            assert!(
                wall.at(answer.at) >= wall.at(before),
                "files keep their order"
            );
        }
    }

    #[test]
    fn a_stamp_is_neither_in_the_future_nor_before_its_socket() {
        let stamps = stamps();
        let ahead = stamps.now() + Duration::from_micros(900);
        let told = stamps.arrival(kernel(&stamps, ahead), UnseenSince(ahead), Instant::START);
        assert!(told.at < ahead);
        let floor = Instant::from_nanos(1_000_000_000);
        let early = floor - Duration::from_micros(3);
        let told = stamps.arrival(kernel(&stamps, early), UnseenSince(early), floor);
        assert_eq!(told.at, floor);
        assert_eq!(
            stamps.arrival(None, UnseenSince(floor), floor).clock,
            Clock::User
        );
    }
}
