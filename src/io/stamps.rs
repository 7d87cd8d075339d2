//! The crawl's clock, and the conversion of the kernel's receive stamps to it.
//!
//! The kernel stamps arrivals in CLOCK_REALTIME; the crawl's clock is CLOCK_MONOTONIC. Both are slewed
//! alike, so their offset is constant until the wall clock is stepped. The offset is measured each turn
//! and the most precise reading kept. A reading that contradicts it by more than [`STEP`] shows a step:
//! stamps that may precede it are rejected.

pub(super) mod query_budget;
pub(super) mod departures;
pub(super) mod idle_time;
pub(super) mod run_delay;

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Clock, Stamp};
use crate::base::time::{Instant, Wall, nanos};

/// The crawl's clock and its offset from the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// CLOCK_MONOTONIC when the crawl began.
    start: u64,
    /// CLOCK_REALTIME when the crawl began.
    wall_at_start: Wall,
    offset: Offset,
    /// When the last step of the wall clock was noticed.
    stepped: Option<Instant>,
    /// When the last complete poll was made.
    looked_at: Instant,
}

/// CLOCK_REALTIME − CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Offset {
    nanos: i64,
    /// The error bound, in nanoseconds.
    uncertainty: u64,
}

/// What limits the time of an arrival that was found by a poll: see [`Stamps::arrival`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PollWindow {
    /// The socket was empty then.
    since: Instant,
    /// When the poll found something to read.
    found_at: Instant,
    /// The poll slept: these bytes, or others found with them, ended the sleep.
    slept: bool,
    /// After the sleep our thread waited for a processor, at most this long.
    run_delay: Duration,
    /// How many events the poll found.
    events: u32,
    /// When the request left that these bytes answer.
    sent_at: Instant,
}

impl PollWindow {
    /// A window without a sleep, from a moment when the socket was empty.
    pub(super) fn empty_at(since: Instant) -> Self {
        PollWindow {
            since,
            found_at: since,
            slept: false,
            run_delay: Duration::MAX,
            events: 0,
            sent_at: Instant::START,
        }
    }

    /// Bounds the wait for a processor after a sleep; without it the wait is unknown.
    pub(super) fn run_delay(self, run_delay: Duration) -> Self {
        PollWindow { run_delay, ..self }
    }

    /// Whether querying the kernel about a stamp that may be off pays. It does for a loop with [idle
    /// time](super::idle_time::IdleTime), and for one that was held up by more than reading and sending.
    /// A loop that always has something to read is short of each microsecond, and a short sleep now and
    /// then does not change that.
    pub(super) fn is_worth_query(self, stamp: &Stamp, has_idle_time: bool) -> bool {
        let passed = self.found_at.saturating_since(self.since);
        let held_up = passed > PER_EVENT * self.events.max(EVENTS_A_TURN);
        let has_time = has_idle_time && (self.slept || self.was_busy());
        stamp.is_bound() && stamp.clock == Clock::Kernel && (has_time || held_up)
    }

    /// Whether a stamp is older than the arrival: from before the socket was empty, or from long before
    /// the end of a sleep or of other work. Either our thread was late, or the stamped segment waited
    /// for a missing one; this holds even where the stamp is so close to the request that it would count
    /// as exact.
    pub(super) fn is_stale(self, stamp: &Stamp) -> bool {
        let looked = self.slept || self.was_busy();
        let late = looked && self.found_at.saturating_since(stamp.at) > PROMPT;
        stamp.clock == Clock::Kernel && (late || self.since.saturating_since(stamp.at) > EXACT)
    }

    /// Whether more time passed than the events account for.
    fn was_busy(self) -> bool {
        self.found_at.saturating_since(self.since) > PER_EVENT * self.events
    }

    /// Sets when the request left; no byte of its reply came before that.
    pub(super) fn sent_at(self, at: Instant) -> Self {
        PollWindow {
            sent_at: at,
            ..self
        }
    }
}

impl Stamps {
    pub(super) fn start() -> Self {
        let (monotonic, offset) = read_clocks();
        Stamps {
            start: monotonic,
            wall_at_start: Wall(monotonic.saturating_add_signed(offset.nanos)),
            offset,
            stepped: None,
            looked_at: Instant::START,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.instant(monotonic())
    }

    pub(super) fn wall_at_start(&self) -> Wall {
        self.wall_at_start
    }

    /// The moment on CLOCK_MONOTONIC, for a timer.
    pub(super) fn timer_time(&self, at: Instant) -> Timespec {
        let since_boot = self.start.saturating_add(at.as_nanos());
        Timespec {
            tv_sec: (since_boot / SECOND) as i64,
            tv_nsec: (since_boot % SECOND) as _,
        }
    }

    /// A complete poll that began at this moment found nothing.
    pub(super) fn note_empty(&mut self, at: Instant) {
        self.looked_at = self.looked_at.max(at);
    }

    /// Begins a turn right after a poll: measures the offset of the clocks.
    ///
    /// `slept`: the poll slept until the first event. `complete`: it left no event behind. `events`: how
    /// many it found. Returns the present and the window of these events.
    pub(super) fn begin_turn(
        &mut self,
        slept: bool,
        complete: bool,
        events: usize,
    ) -> (Instant, PollWindow) {
        let (monotonic, offset) = read_clocks();
        let now = self.instant(monotonic);
        self.measure(offset, now);
        let window = PollWindow {
            since: self.looked_at,
            found_at: now,
            slept,
            run_delay: Duration::MAX,
            events: u32::try_from(events).unwrap_or(u32::MAX),
            sent_at: Instant::START,
        };
        if complete {
            self.looked_at = now;
        }
        (now, window)
    }

    /// Takes another reading of the offset: a more precise one, or one after a step.
    fn measure(&mut self, offset: Offset, now: Instant) {
        if let Some(moved) = self.moved(offset) {
            log::warn!(
                "the wall clock was stepped by {:.6} s; arrivals in flight get our own stamps",
                moved as f64 / 1e9
            );
            self.stepped = Some(now);
            self.offset = offset;
        } else if offset.uncertainty < self.offset.uncertainty {
            self.offset = offset;
        }
    }

    /// How far the offset has moved, if by more than the error bounds allow.
    fn moved(&self, offset: Offset) -> Option<i64> {
        let moved = offset.nanos.saturating_sub(self.offset.nanos);
        let explained = nanos(STEP) + self.offset.uncertainty + offset.uncertainty;
        (moved.unsigned_abs() > explained).then_some(moved)
    }

    /// Whether the offset still holds at this moment.
    fn is_offset_current(&self) -> bool {
        self.moved(read_clocks().1).is_none()
    }

    /// When bytes arrived: the kernel's stamp, if it is plausible.
    ///
    /// One read returns all bytes that have arrived, with the stamp of the *last* segment. The bytes
    /// that the caller waits for may have come in an earlier one, but neither before the socket was last
    /// seen empty nor before the request left; the stamp can be off by that much. It counts as exact
    /// where that is less than [`EXACT`], and where it [ended a sleep](ended_sleep) after which our
    /// thread had a processor at once. While the thread waits for a processor, a second segment can come
    /// just as close to the end of the sleep. `floor` is a moment that the arrival cannot precede.
    ///
    /// A stamped segment may have waited in the kernel when the socket was seen empty, so that limits
    /// only stamps from after it.
    ///
    /// Rejected are stamps in the future, and those that may precede a step of the wall clock.
    pub(super) fn arrival(
        &self,
        kernel: Option<Timespec>,
        window: PollWindow,
        floor: Instant,
    ) -> Stamp {
        let arrival = kernel.and_then(|stamp| self.convert(stamp));
        // What came before the poll that found it is not in the future; this saves reading the clock.
        let now = match arrival {
            Some(at) if at <= window.found_at => window.found_at.max(floor),
            _ => self.now(),
        };
        let stepped = self.stepped.is_some_and(|stepped| window.since <= stepped);
        let possible =
            |at: &Instant| *at <= now + STEP && (*at >= window.since || self.is_offset_current());
        let Some(at) = arrival.filter(possible).filter(|_| !stepped) else {
            let now = self.now();
            return Stamp {
                at: now,
                clock: Clock::User,
                slack: now.saturating_since(window.since.max(window.sent_at)),
            };
        };
        let at = at.max(floor).min(now);
        let since = Some(window.since).filter(|since| *since <= at);
        let slack = at.saturating_since(window.sent_at.max(since.unwrap_or_default()));
        let woken = window.slept && window.run_delay <= EXACT;
        let exact = slack <= EXACT || (woken && ended_sleep(at, window.found_at));
        Stamp {
            at,
            clock: Clock::Kernel,
            slack: if exact { Duration::ZERO } else { slack },
        }
    }

    /// When bytes left, by the kernel's stamp; `None` if it is not plausible.
    pub(super) fn departure(&self, kernel: Timespec) -> Option<Instant> {
        self.convert(kernel).filter(|_| self.is_offset_current())
    }

    /// Something that happened by now, at an unknown moment since the last complete poll.
    pub(super) fn bound_now(&self) -> Stamp {
        let now = self.now();
        Stamp {
            at: now,
            clock: Clock::User,
            slack: now.saturating_since(self.looked_at),
        }
    }

    fn convert(&self, stamp: Timespec) -> Option<Instant> {
        let wall = u64::try_from(stamp.tv_sec).ok()?.checked_mul(SECOND)?
            + u64::try_from(stamp.tv_nsec).ok()?;
        Some(self.instant(wall.checked_add_signed(self.offset.nanos.checked_neg()?)?))
    }

    fn instant(&self, monotonic: u64) -> Instant {
        Instant::from_nanos(monotonic.saturating_sub(self.start))
    }
}

/// Whether an arrival at this moment ended a sleep, at `woken`, or came together with what ended it.
/// Much earlier, it may have been the first of several while other processes ran; much later, it came
/// after the sleep.
fn ended_sleep(at: Instant, woken: Instant) -> bool {
    woken.saturating_since(at) <= PROMPT && at.saturating_since(woken) <= PROMPT / 8
}

/// How much later than `before` a system call between the two moments may have sent: nothing, unless
/// other processes ran in that time.
pub(super) fn departure_slack(before: Instant, after: Instant) -> Duration {
    let took = after.saturating_since(before);
    if took <= PROMPT { Duration::ZERO } else { took }
}

/// When a connection was established: one round trip, as measured by the kernel, after the attempt left.
/// A late loop does not change that. Without a measurement, it was established by now. The attempt may
/// have left `slack` later than `started`.
pub(super) fn established(
    started: Instant,
    slack: Duration,
    rtt: Option<Duration>,
    now: Instant,
) -> Stamp {
    match rtt {
        Some(rtt) => Stamp {
            at: now.min(started + slack + rtt),
            clock: Clock::Kernel,
            slack,
        },
        None => Stamp {
            at: now,
            clock: Clock::User,
            slack: now.saturating_since(started),
        },
    }
}

/// CLOCK_MONOTONIC and the offset of CLOCK_REALTIME, read as close together as possible.
fn read_clocks() -> (u64, Offset) {
    let mut best = Offset {
        nanos: 0,
        uncertainty: u64::MAX,
    };
    let mut now = 0;
    // An interrupted reading is repeated; three tries bound the delay of the loop.
    for _ in 0..3 {
        let before = monotonic();
        let wall = read(ClockId::Realtime);
        now = monotonic();
        let uncertainty = (now - before).div_ceil(2);
        if uncertainty < best.uncertainty {
            let nanos = wall as i64 - (before + uncertainty) as i64;
            best = Offset { nanos, uncertainty };
        }
        if uncertainty < 500 {
            break;
        }
    }
    (now, best)
}

fn monotonic() -> u64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// The wall clock is slewed together with the monotonic one; they move apart only by steps. Differences
/// up to this, beyond the error of the readings, are not a step.
pub(super) const STEP: Duration = Duration::from_micros(10);

/// An error up to this is reported as exact.
pub(super) const EXACT: Duration = Duration::from_micros(25);

/// The longest that waking our thread takes, or a system call that sends, unless other processes run in
/// between. What such a call sends leaves near its beginning; on the loopback device the call also
/// delivers it.
pub(super) const PROMPT: Duration = Duration::from_micros(45);

/// The most that an event costs a loop which only reads and sends. A query of the kernel takes a
/// fortieth of it.
const PER_EVENT: Duration = Duration::from_micros(50);

/// Sockets read per turn that may have been found by earlier polls.
const EVENTS_A_TURN: u32 = 16;

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that began two seconds ago, so that past moments can be converted.
    fn stamps() -> Stamps {
        let mut stamps = Stamps::start();
        stamps.start -= 2 * SECOND;
        stamps
    }

    #[test]
    fn a_connection_is_established_one_round_trip_after_its_attempt_and_never_in_the_future() {
        let ms = Duration::from_millis;
        let started = Instant::START + ms(1000);
        let check = |slack, rtt: Option<u64>, now, at, expected_slack| {
            let stamp = established(started, ms(slack), rtt.map(ms), started + ms(now));
            assert_eq!(stamp.at, started + ms(at), "{stamp:?}");
            assert_eq!(stamp.slack, ms(expected_slack), "{stamp:?}");
        };
        check(0, Some(30), 50, 30, 0);
        check(5, Some(30), 50, 35, 5);
        // The kernel may have measured a later, longer round trip.
        check(0, Some(80), 50, 50, 0);
        check(30, Some(30), 50, 50, 30);
        // Without a measurement it is a bound.
        check(0, None, 50, 50, 50);
    }

    fn kernel(stamps: &Stamps, at: Instant) -> Option<Timespec> {
        let wall = (stamps.start + at.as_nanos()).saturating_add_signed(stamps.offset.nanos);
        Some(Timespec {
            tv_sec: (wall / SECOND) as i64,
            tv_nsec: (wall % SECOND) as _,
        })
    }

    fn millis(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Empty at `since` (ms), found by a poll that did not sleep.
    fn found_at(since: u64) -> PollWindow {
        PollWindow::empty_at(millis(since))
    }

    fn moved(offset: Offset, by: i64) -> Offset {
        Offset {
            nanos: offset.nanos + by,
            uncertainty: offset.uncertainty,
        }
    }

    #[test]
    fn a_kernel_stamp_is_converted_to_the_crawls_clock() {
        let stamps = stamps();
        let at = Instant::from_nanos(1_234_567_890);
        let window = PollWindow {
            since: at,
            ..found_at(0)
        };
        let arrival = stamps.arrival(kernel(&stamps, at), window, Instant::START);
        assert_eq!(arrival, Stamp::exact(at));
    }

    #[test]
    fn the_slack_of_a_stamp_is_its_distance_from_the_last_empty_poll() {
        let stamps = stamps();
        let slack = |at: Instant, window| {
            let arrival = stamps.arrival(kernel(&stamps, at), window, Instant::START);
            assert_eq!((arrival.at, arrival.clock), (at, Clock::Kernel));
            assert_eq!(arrival.is_bound(), !arrival.slack.is_zero());
            arrival.slack
        };
        let nearly = EXACT + Duration::from_nanos(1);
        assert_eq!(slack(millis(1000) + EXACT, found_at(1000)), Duration::ZERO);
        assert_eq!(slack(millis(1000) + nearly, found_at(1000)), nearly);
        let fifty = Duration::from_millis(50);
        assert_eq!(slack(millis(1050), found_at(1000)), fifty);
        // No reply precedes its request, however long the socket was not looked at.
        let ten = Duration::from_millis(10);
        assert_eq!(
            slack(millis(1050), found_at(1000).sent_at(millis(1040))),
            ten
        );
        let sent_at = found_at(1000).sent_at(millis(1050) - EXACT);
        assert_eq!(slack(millis(1050), sent_at), Duration::ZERO);
    }

    #[test]
    fn a_stamp_from_before_an_empty_poll_is_bounded_by_its_request() {
        let stamps = stamps();
        let at = millis(1400);
        let window = found_at(1500).sent_at(millis(1390));
        let arrival = stamps.arrival(kernel(&stamps, at), window, Instant::START);
        let slack = Duration::from_millis(10);
        let clock = Clock::Kernel;
        assert_eq!(arrival, Stamp { at, clock, slack });
    }

    #[test]
    fn a_stamp_close_to_the_end_of_the_sleep_that_it_ended_is_exact() {
        let mut stamps = stamps();
        let (now, woken) = stamps.begin_turn(true, true, 1);
        let is_bound_if = |at: Instant, woken| {
            let arrival = stamps.arrival(kernel(&stamps, at), woken, Instant::START);
            assert_eq!(arrival.clock, Clock::Kernel);
            arrival.is_bound()
        };
        let is_bound = |at| is_bound_if(at, woken.run_delay(EXACT));
        assert!(!is_bound(now - PROMPT));
        // Other processes ran before us, and may have sent more.
        assert!(is_bound_if(now - PROMPT, woken.run_delay(EXACT * 2)));
        assert!(is_bound_if(now - PROMPT, woken), "the wait is unknown");
        // Woken late: an earlier segment than the last may have ended the sleep.
        assert!(is_bound(now - PROMPT - Duration::from_nanos(1)));
        // Read late: more may have arrived in between.
        std::thread::sleep(PROMPT);
        assert!(!is_bound(now + PROMPT / 8));
        assert!(is_bound(now + PROMPT / 2));
    }

    #[test]
    fn a_loop_with_idle_time_or_other_work_queries_the_kernel() {
        let check = |slept, has_idle_time, events, turn: u64, slack: u64, queries| {
            let window = PollWindow {
                found_at: millis(900) + Duration::from_micros(turn),
                slept,
                events,
                ..found_at(900)
            };
            let stamp = Stamp {
                slack: Duration::from_micros(slack),
                ..Stamp::exact(window.found_at)
            };
            let is_asked = window.is_worth_query(&stamp, has_idle_time);
            assert_eq!(is_asked, queries, "{turn} {slack}");
            let by_user = Stamp {
                clock: Clock::User,
                ..stamp
            };
            assert!(!window.is_worth_query(&by_user, has_idle_time));
        };
        check(true, true, 20, 60, 60, true);
        check(true, false, 20, 60, 60, false);
        check(true, true, 20, 9000, 0, false);
        check(false, true, 20, 1000, 3000, false);
        check(false, false, 20, 1001, 60, true);
        check(false, false, 20, 1001, 0, false);
        // What was read in that time was found by an earlier poll.
        check(false, true, 1, 50, 60, false);
        check(false, true, 1, 51, 60, true);
        check(false, false, 1, 800, 60, false);
        check(false, false, 1, 801, 60, true);
    }

    #[test]
    fn a_stamp_is_stale_if_its_segment_waited_or_the_thread_was_late() {
        let check = |slept, events, at: u64, stale| {
            let window = PollWindow {
                found_at: millis(950),
                slept,
                events,
                ..found_at(900)
            };
            let stamp = Stamp::exact(Instant::from_nanos(at * 1000));
            assert_eq!(window.is_stale(&stamp), stale, "{at} µs");
        };
        // One thousand events account for the 50 ms; 999 do not.
        let (busy_with_it, busy_otherwise) = (1000, 999);
        check(false, busy_with_it, 900_000, false);
        check(false, busy_with_it, 899_980, false);
        check(false, busy_with_it, 899_970, true);
        check(false, busy_otherwise, 949_960, false);
        check(false, busy_otherwise, 949_950, true);
        check(true, 1, 949_960, false);
        check(true, 1, 949_950, true);
        check(true, 1, 899_970, true);
    }

    #[test]
    fn a_poll_window_begins_with_the_last_complete_poll() {
        let mut stamps = stamps();
        let (first, _) = stamps.begin_turn(true, true, 1);
        let (second, window) = stamps.begin_turn(false, true, 1);
        assert_eq!(
            (window.since, window.found_at, window.slept),
            (first, second, false)
        );
        // A poll that left events behind does not count as having seen the rest.
        let (_, window) = stamps.begin_turn(false, false, 1);
        assert_eq!(window.since, second);
        let (third, window) = stamps.begin_turn(false, true, 1);
        assert_eq!(window.since, second);
        // A poll that found nothing counts.
        let looked = third + Duration::from_micros(10);
        stamps.note_empty(looked);
        let (now, window) = stamps.begin_turn(true, true, 1);
        assert_eq!(
            (window.since, window.found_at, window.slept),
            (looked, now, true)
        );
    }

    #[test]
    fn a_stamp_that_may_precede_a_step_of_the_clock_is_rejected() {
        let hour = 3_600 * SECOND as i64;
        for step in [hour, -hour, 50 * SECOND as i64, -2_000_000, 60_000, -60_000] {
            let mut stamps = stamps();
            let (arrived, since) = (millis(1500), millis(1000));
            let before = kernel(&stamps, arrived);
            stamps.looked_at = since;
            let offset = moved(stamps.offset, step);
            let bound_now = stamps.now();
            stamps.measure(offset, bound_now);
            let window = PollWindow {
                since,
                ..found_at(0)
            };
            let arrival = stamps.arrival(before, window, Instant::START);
            assert_eq!(arrival.clock, Clock::User, "stepped by {step} ns");
            // The true moment lies within the bounds.
            assert!(arrival.at >= arrived && arrival.at - arrival.slack <= arrived);
            // Once the step is known, later stamps are converted by the new offset.
            let since = stamps.now();
            let after = kernel(&stamps, since);
            let window = PollWindow {
                since,
                ..found_at(0)
            };
            let arrival = stamps.arrival(after, window, Instant::START);
            assert_eq!(arrival, Stamp::exact(since), "stepped by {step} ns");
        }
    }

    #[test]
    fn a_stamp_after_an_unnoticed_step_is_rejected() {
        let hour = 3_600 * SECOND as i64;
        for step in [hour, -hour, 600_000_000, -60_000_000] {
            let stamps = stamps();
            // Stamped after the step, converted by the offset from before it.
            let late = Stamps {
                offset: moved(stamps.offset, -step),
                ..stamps
            };
            let arrival = late.arrival(kernel(&stamps, millis(1500)), found_at(1490), millis(1400));
            assert_eq!(arrival.clock, Clock::User, "stepped by {step} ns");
            assert!(arrival.at >= millis(1500) && arrival.at <= stamps.now());
        }
    }

    #[test]
    fn an_imprecise_reading_is_no_step_and_the_most_precise_one_is_kept() {
        let mut stamps = stamps();
        let exact = stamps.offset;
        let worse = Offset {
            nanos: exact.nanos + 40_000,
            uncertainty: 50_000,
        };
        stamps.measure(worse, millis(1000));
        assert!(stamps.stepped.is_none());
        assert_eq!(stamps.offset.nanos, exact.nanos);
        stamps.offset = worse;
        stamps.measure(exact, millis(1000));
        assert!(stamps.stepped.is_none());
        assert_eq!(stamps.offset.nanos, exact.nanos);
    }

    #[test]
    fn a_step_of_the_wall_clock_changes_neither_our_clock_nor_timers_nor_times_in_files() {
        for hours in [3, -3] {
            let mut stamps = stamps();
            let due = stamps.now() + Duration::from_secs(5);
            let (wall, timer) = (stamps.wall_at_start(), stamps.timer_time(due));
            let before = stamps.now();
            let offset = moved(stamps.offset, hours * 3_600 * SECOND as i64);
            stamps.measure(offset, before);
            let after = stamps.now();
            assert!(after >= before && after < before + Duration::from_secs(60));
            assert_eq!(stamps.wall_at_start(), wall);
            assert_eq!(stamps.timer_time(due), timer);
            // The latency of a request across a step is unchanged.
            let stamp = kernel(&stamps, stamps.now());
            let answer = stamps.arrival(stamp, found_at(0).sent_at(before), before);
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
        let ahead = stamps.now() + Duration::from_millis(5);
        let arrival = stamps.arrival(kernel(&stamps, ahead), found_at(1900), Instant::START);
        assert_eq!(arrival.clock, Clock::User);
        assert!(arrival.at < ahead);
        let floor = millis(1000);
        let early = floor - Duration::from_micros(3);
        let arrival = stamps.arrival(kernel(&stamps, early), found_at(1000), floor);
        assert_eq!(arrival, Stamp::exact(floor));
        let none = stamps.arrival(None, found_at(1000), floor);
        assert!(none.clock == Clock::User && none.is_bound());
    }

    #[test]
    fn a_slow_send_has_its_duration_as_slack() {
        let check = |took, slack| {
            let after = millis(1) + Duration::from_micros(took);
            let slack = Duration::from_micros(slack);
            assert_eq!(departure_slack(millis(1), after), slack);
        };
        check(0, 0);
        check(45, 0);
        check(46, 46);
        check(4000, 4000);
    }
}
