//! The crawl's clock, and how the kernel's receive stamps are told in it.
//!
//! The kernel stamps arrivals in CLOCK_REALTIME, the crawl lives on CLOCK_MONOTONIC. Both are
//! slewed alike, so they differ by a constant until someone steps the wall clock. The constant is
//! measured each turn, and the best of its readings kept; when one contradicts it by more than
//! [`STEP`], stamps that may have been taken before are not believed.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::{Clock, Stamp};
use crate::base::time::{Instant, Wall, nanos};

/// The crawl's clock and what it knows of the wall's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    /// CLOCK_MONOTONIC when the crawl began.
    start: u64,
    /// CLOCK_REALTIME when the crawl began.
    wall_at_start: Wall,
    offset: Offset,
    /// When a step of the wall clock was noticed last.
    stepped: Option<Instant>,
    /// When the last complete look at the kernel's news was taken.
    looked_at: Instant,
}

/// CLOCK_REALTIME − CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Offset {
    nanos: i64,
    /// It may be off by as much, in nanoseconds.
    doubt: u64,
}

/// What is known of the time before a socket's bytes were seen: see [`Stamps::arrival`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// There was nothing to be read then.
    since: Instant,
    /// A look found them at this moment.
    found: Instant,
    /// It had to wait for them: they, or others that came with them, ended a sleep.
    slept: bool,
    /// After its sleep our thread waited for a processor, so long at the most.
    kept: Duration,
    /// How much news it found.
    news: u32,
    /// What they answer departed then.
    asked: Instant,
}

impl Unseen {
    /// There was nothing since then, and what was found was not slept for.
    pub(super) fn since(since: Instant) -> Self {
        Unseen {
            since,
            found: since,
            slept: false,
            kept: Duration::MAX,
            news: 0,
            asked: Instant::START,
        }
    }

    /// A look that slept was kept from its processor no longer than this; else nobody knows.
    pub(super) fn kept(self, kept: Duration) -> Self {
        Unseen { kept, ..self }
    }

    /// Whether it pays to ask the kernel for more about a stamp that may be off. A loop that has
    /// [leisure](super::leisure::Leisure) can do so, and one that was held up by other things than to
    /// read and send; where there is always something to read, each microsecond counts, and a sleep now
    /// and then is no leisure.
    pub(super) fn is_worth_asking(self, stamp: &Stamp, has_leisure: bool) -> bool {
        let passed = self.found.saturating_since(self.since);
        let held_up = passed > PER_NEWS * self.news.max(NEWS_A_TURN);
        let has_time = has_leisure && (self.slept || self.was_busy());
        stamp.is_bound() && stamp.clock == Clock::Kernel && (has_time || held_up)
    }

    /// Whether a stamp is older than it should be: what it is of came before there was anything to be
    /// read, or long before a sleep or other work of ours ended. Either our thread was late, or the
    /// segment that was stamped had to wait for another one; be it so soon after what it answers that
    /// the stamp would pass for exact.
    pub(super) fn is_stale(self, stamp: &Stamp) -> bool {
        let looked = self.slept || self.was_busy();
        let late = looked && self.found.saturating_since(stamp.at) > PROMPT;
        stamp.clock == Clock::Kernel && (late || self.since.saturating_since(stamp.at) > EXACT)
    }

    /// Whether more time passed than the news takes by itself.
    fn was_busy(self) -> bool {
        self.found.saturating_since(self.since) > PER_NEWS * self.news
    }

    /// The bytes answer what departed at this moment, so that none of them came before it.
    pub(super) fn asked(self, at: Instant) -> Self {
        Unseen { asked: at, ..self }
    }
}

impl Stamps {
    pub(super) fn start() -> Self {
        let (monotonic, offset) = pair();
        Stamps {
            start: monotonic,
            wall_at_start: Wall(monotonic.saturating_add_signed(offset.nanos)),
            offset,
            stepped: None,
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

    /// A complete look, begun at this moment, found no news.
    pub(super) fn saw_nothing(&mut self, at: Instant) {
        self.looked_at = self.looked_at.max(at);
    }

    /// Begins a turn, right after news was fetched: measures how far the two clocks lie apart.
    ///
    /// `slept`: the fetch had to wait for the first of the news. `complete`: nothing was left behind.
    /// `news`: how much there was.
    /// Returns the present and what is known of when the news came.
    pub(super) fn begin_turn(
        &mut self,
        slept: bool,
        complete: bool,
        news: usize,
    ) -> (Instant, Unseen) {
        let (monotonic, offset) = pair();
        let now = self.tell(monotonic);
        self.measure(offset, now);
        let unseen = Unseen {
            since: self.looked_at,
            found: now,
            slept,
            kept: Duration::MAX,
            news: u32::try_from(news).unwrap_or(u32::MAX),
            asked: Instant::START,
        };
        if complete {
            self.looked_at = now;
        }
        (now, unseen)
    }

    /// Takes another reading of the offset: better than the one we have, or another one.
    fn measure(&mut self, offset: Offset, now: Instant) {
        if let Some(moved) = self.moved(offset) {
            log::warn!(
                "the wall clock was stepped by {:.6} s; arrivals in flight are stamped by us",
                moved as f64 / 1e9
            );
            self.stepped = Some(now);
            self.offset = offset;
        } else if offset.doubt < self.offset.doubt {
            self.offset = offset;
        }
    }

    /// How far the offset has moved, if it has by more than can be explained.
    fn moved(&self, offset: Offset) -> Option<i64> {
        let moved = offset.nanos.saturating_sub(self.offset.nanos);
        let explained = nanos(STEP) + self.offset.doubt + offset.doubt;
        (moved.unsigned_abs() > explained).then_some(moved)
    }

    /// Whether the offset is the one that there is at this very moment.
    fn is_true(&self) -> bool {
        self.moved(pair().1).is_none()
    }

    /// When bytes arrived: by the kernel's stamp where there is one that can be believed.
    ///
    /// One read returns all that has arrived, with the stamp of the *last* segment. What the caller
    /// waits for may have been in an earlier one. That cannot have come before the socket was last
    /// seen empty, nor before it was asked for; so far the stamp may be off. It is taken for exact
    /// where that is less than [`EXACT`], and where it [ended a sleep](ended_sleep) after which our
    /// thread had its processor at once: while it waits for one, that of a server that answers in two
    /// parts perhaps, the second part can come and be as close to the end of the sleep. `floor` is a
    /// moment that the arrival cannot precede.
    ///
    /// A segment may have waited in the kernel, stamped, when the socket was seen empty: that says
    /// nothing of a stamp from before it.
    ///
    /// Not believed are stamps of the future, and all that may have been taken before the wall clock
    /// was stepped.
    pub(super) fn arrival(
        &self,
        kernel: Option<Timespec>,
        unseen: Unseen,
        floor: Instant,
    ) -> Stamp {
        let told = kernel.and_then(|stamp| self.convert(stamp));
        // What came before the look that found it is of no future, and needs no look at the clock.
        let now = match told {
            Some(at) if at <= unseen.found => unseen.found.max(floor),
            _ => self.now(),
        };
        let stepped = self.stepped.is_some_and(|stepped| unseen.since <= stepped);
        let possible = |at: &Instant| *at <= now + STEP && (*at >= unseen.since || self.is_true());
        let Some(at) = told.filter(possible).filter(|_| !stepped) else {
            let now = self.now();
            return Stamp {
                at: now,
                clock: Clock::User,
                slack: now.saturating_since(unseen.since.max(unseen.asked)),
            };
        };
        let at = at.max(floor).min(now);
        let since = Some(unseen.since).filter(|since| *since <= at);
        let slack = at.saturating_since(unseen.asked.max(since.unwrap_or_default()));
        let woken = unseen.slept && unseen.kept <= EXACT;
        let exact = slack <= EXACT || (woken && ended_sleep(at, unseen.found));
        Stamp {
            at,
            clock: Clock::Kernel,
            slack: if exact { Duration::ZERO } else { slack },
        }
    }

    /// When something left, by the kernel's stamp; `None` if it cannot be believed.
    pub(super) fn departure(&self, kernel: Timespec) -> Option<Instant> {
        self.convert(kernel).filter(|_| self.is_true())
    }

    /// What is only known to have happened by now.
    pub(super) fn noticed(&self) -> Stamp {
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
        Some(self.tell(wall.checked_add_signed(self.offset.nanos.checked_neg()?)?))
    }

    fn tell(&self, monotonic: u64) -> Instant {
        Instant::from_nanos(monotonic.saturating_sub(self.start))
    }
}

/// Whether an arrival at this moment can be what ended a sleep, at `woken`, or one that came together
/// with that. Longer before the end of the sleep it may have been the first of several, while the
/// machine ran others; and after it, one that came on top.
fn ended_sleep(at: Instant, woken: Instant) -> bool {
    woken.saturating_since(at) <= PROMPT && at.saturating_since(woken) <= PROMPT / 8
}

/// How much later than `before` something may have left that a system call did between the two:
/// nothing, unless others were run in that time.
pub(super) fn departure_slack(before: Instant, after: Instant) -> Duration {
    let took = after.saturating_since(before);
    if took <= PROMPT { Duration::ZERO } else { took }
}

/// When a connection was established: a round trip after its attempt left, by the kernel's
/// measure, which a late loop does not change; else no later than we noticed. The attempt may have
/// left `slack` later than `started`.
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

/// CLOCK_MONOTONIC and how far CLOCK_REALTIME is ahead of it, read as close together as can be.
fn pair() -> (u64, Offset) {
    let mut best = Offset {
        nanos: 0,
        doubt: u64::MAX,
    };
    let mut now = 0;
    // A pair that an interrupt came between is read again; three tries, or the loop could stall.
    for _ in 0..3 {
        let before = monotonic();
        let wall = read(ClockId::Realtime);
        now = monotonic();
        let doubt = (now - before).div_ceil(2);
        if doubt < best.doubt {
            let nanos = wall as i64 - (before + doubt) as i64;
            best = Offset { nanos, doubt };
        }
        if doubt < 500 {
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

/// The wall clock is only ever slewed together with the monotonic one; apart they move by steps.
/// Less than this is nothing, beyond what is doubtful about the readings themselves.
pub(super) const STEP: Duration = Duration::from_micros(10);

/// An arrival that is off by no more is told as exact.
pub(super) const EXACT: Duration = Duration::from_micros(25);

/// Waking us takes no longer where the machine does not run others first. Nor does a system call that
/// sends: what it sends leaves near its beginning; on the loopback device it also takes it to the
/// other side.
pub(super) const PROMPT: Duration = Duration::from_micros(45);

/// What each piece of news costs a loop that does nothing but read and send, at the most. To ask the
/// kernel takes a fortieth of it.
const PER_NEWS: Duration = Duration::from_micros(50);

/// A turn reads from so many sockets that may have been news in earlier ones.
const NEWS_A_TURN: u32 = 16;

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

    #[test]
    fn a_connection_is_established_a_round_trip_after_it_left_and_never_in_the_future() {
        let ms = Duration::from_millis;
        let started = Instant::START + ms(1000);
        let check = |slack, rtt: Option<u64>, now, at, expected_slack| {
            let stamp = established(started, ms(slack), rtt.map(ms), started + ms(now));
            assert_eq!(stamp.at, started + ms(at), "{stamp:?}");
            assert_eq!(stamp.slack, ms(expected_slack), "{stamp:?}");
        };
        check(0, Some(30), 50, 30, 0);
        check(5, Some(30), 50, 35, 5);
        // A round trip that the kernel measured on another packet may be a longer one.
        check(0, Some(80), 50, 50, 0);
        check(30, Some(30), 50, 50, 30);
        // Without a measure it was no later than it was noticed.
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

    /// Empty at `since` (ms), found by a look that did not sleep.
    fn found(since: u64) -> Unseen {
        Unseen::since(millis(since))
    }

    fn moved(offset: Offset, by: i64) -> Offset {
        Offset {
            nanos: offset.nanos + by,
            doubt: offset.doubt,
        }
    }

    #[test]
    fn a_kernel_stamp_is_told_on_the_crawls_clock() {
        let stamps = stamps();
        let at = Instant::from_nanos(1_234_567_890);
        let unseen = Unseen {
            since: at,
            ..found(0)
        };
        let told = stamps.arrival(kernel(&stamps, at), unseen, Instant::START);
        assert_eq!(told, Stamp::exact(at));
    }

    #[test]
    fn a_stamp_may_be_off_by_its_distance_from_when_there_was_nothing() {
        let stamps = stamps();
        let slack = |at: Instant, unseen| {
            let told = stamps.arrival(kernel(&stamps, at), unseen, Instant::START);
            assert_eq!((told.at, told.clock), (at, Clock::Kernel));
            assert_eq!(told.is_bound(), !told.slack.is_zero());
            told.slack
        };
        let nearly = EXACT + Duration::from_nanos(1);
        assert_eq!(slack(millis(1000) + EXACT, found(1000)), Duration::ZERO);
        assert_eq!(slack(millis(1000) + nearly, found(1000)), nearly);
        let fifty = Duration::from_millis(50);
        assert_eq!(slack(millis(1050), found(1000)), fifty);
        // No answer comes before its question, however long the socket lay unseen.
        let ten = Duration::from_millis(10);
        assert_eq!(slack(millis(1050), found(1000).asked(millis(1040))), ten);
        let asked = found(1000).asked(millis(1050) - EXACT);
        assert_eq!(slack(millis(1050), asked), Duration::ZERO);
    }

    #[test]
    fn a_segment_that_waited_in_the_kernel_was_stamped_before_the_socket_was_seen_empty() {
        let stamps = stamps();
        let at = millis(1400);
        let unseen = found(1500).asked(millis(1390));
        let told = stamps.arrival(kernel(&stamps, at), unseen, Instant::START);
        let slack = Duration::from_millis(10);
        let clock = Clock::Kernel;
        assert_eq!(told, Stamp { at, clock, slack });
    }

    #[test]
    fn a_stamp_close_to_the_end_of_the_sleep_that_it_ended_is_exact() {
        let mut stamps = stamps();
        let (now, woken) = stamps.begin_turn(true, true, 1);
        let is_bound_if = |at: Instant, woken| {
            let told = stamps.arrival(kernel(&stamps, at), woken, Instant::START);
            assert_eq!(told.clock, Clock::Kernel);
            told.is_bound()
        };
        let is_bound = |at| is_bound_if(at, woken.kept(EXACT));
        assert!(!is_bound(now - PROMPT));
        // Others ran before us, and may have sent more.
        assert!(is_bound_if(now - PROMPT, woken.kept(EXACT * 2)));
        assert!(is_bound_if(now - PROMPT, woken), "nobody knows");
        // Woken late: what ended the sleep may have been an earlier segment than the last.
        assert!(is_bound(now - PROMPT - Duration::from_nanos(1)));
        // Read late: others may have come in between.
        std::thread::sleep(PROMPT);
        assert!(!is_bound(now + PROMPT / 8));
        assert!(is_bound(now + PROMPT / 2));
    }

    #[test]
    fn the_kernel_is_asked_by_a_loop_that_has_leisure_or_does_other_things() {
        let check = |slept, has_leisure, news, turn: u64, slack: u64, asks| {
            let unseen = Unseen {
                found: millis(900) + Duration::from_micros(turn),
                slept,
                news,
                ..found(900)
            };
            let stamp = Stamp {
                slack: Duration::from_micros(slack),
                ..Stamp::exact(unseen.found)
            };
            let is_asked = unseen.is_worth_asking(&stamp, has_leisure);
            assert_eq!(is_asked, asks, "{turn} {slack}");
            let by_user = Stamp {
                clock: Clock::User,
                ..stamp
            };
            assert!(!unseen.is_worth_asking(&by_user, has_leisure));
        };
        check(true, true, 20, 60, 60, true);
        check(true, false, 20, 60, 60, false);
        check(true, true, 20, 9000, 0, false);
        check(false, true, 20, 1000, 3000, false);
        check(false, false, 20, 1001, 60, true);
        check(false, false, 20, 1001, 0, false);
        // What was read in that time was news before.
        check(false, true, 1, 50, 60, false);
        check(false, true, 1, 51, 60, true);
        check(false, false, 1, 800, 60, false);
        check(false, false, 1, 801, 60, true);
    }

    #[test]
    fn a_stamp_is_stale_where_its_segment_waited_or_we_were_late() {
        let check = |slept, news, at: u64, stale| {
            let unseen = Unseen {
                found: millis(950),
                slept,
                news,
                ..found(900)
            };
            let stamp = Stamp::exact(Instant::from_nanos(at * 1000));
            assert_eq!(unseen.is_stale(&stamp), stale, "{at} µs");
        };
        // So much news takes the 50 ms; so little does not.
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
    fn news_lay_unseen_since_the_last_complete_look_began() {
        let mut stamps = stamps();
        let (first, _) = stamps.begin_turn(true, true, 1);
        let (second, unseen) = stamps.begin_turn(false, true, 1);
        assert_eq!(
            (unseen.since, unseen.found, unseen.slept),
            (first, second, false)
        );
        // A look that left news behind does not count as having seen the rest.
        let (_, unseen) = stamps.begin_turn(false, false, 1);
        assert_eq!(unseen.since, second);
        let (third, unseen) = stamps.begin_turn(false, true, 1);
        assert_eq!(unseen.since, second);
        // One that found nothing was a look, too.
        let looked = third + Duration::from_micros(10);
        stamps.saw_nothing(looked);
        let (now, unseen) = stamps.begin_turn(true, true, 1);
        assert_eq!(
            (unseen.since, unseen.found, unseen.slept),
            (looked, now, true)
        );
    }

    #[test]
    fn what_may_have_been_stamped_before_the_clock_was_stepped_is_not_believed() {
        let hour = 3_600 * SECOND as i64;
        for step in [hour, -hour, 50 * SECOND as i64, -2_000_000, 60_000, -60_000] {
            let mut stamps = stamps();
            let (arrived, since) = (millis(1500), millis(1000));
            let before = kernel(&stamps, arrived);
            stamps.looked_at = since;
            let offset = moved(stamps.offset, step);
            let noticed = stamps.now();
            stamps.measure(offset, noticed);
            let unseen = Unseen { since, ..found(0) };
            let told = stamps.arrival(before, unseen, Instant::START);
            assert_eq!(told.clock, Clock::User, "stepped by {step} ns");
            // The truth lies between both ends.
            assert!(told.at >= arrived && told.at - told.slack <= arrived);
            // What comes once the step is known is stamped by the new clock, and believed.
            let since = stamps.now();
            let after = kernel(&stamps, since);
            let unseen = Unseen { since, ..found(0) };
            let told = stamps.arrival(after, unseen, Instant::START);
            assert_eq!(told, Stamp::exact(since), "stepped by {step} ns");
        }
    }

    #[test]
    fn a_step_that_is_not_known_yet_makes_no_absurd_moment() {
        let hour = 3_600 * SECOND as i64;
        for step in [hour, -hour, 600_000_000, -60_000_000] {
            let stamps = stamps();
            // Stamped after the step, told by the offset from before it.
            let late = Stamps {
                offset: moved(stamps.offset, -step),
                ..stamps
            };
            let told = late.arrival(kernel(&stamps, millis(1500)), found(1490), millis(1400));
            assert_eq!(told.clock, Clock::User, "stepped by {step} ns");
            assert!(told.at >= millis(1500) && told.at <= stamps.now());
        }
    }

    #[test]
    fn a_reading_of_the_clocks_is_no_step_and_the_best_one_is_kept() {
        let mut stamps = stamps();
        let exact = stamps.offset;
        let worse = Offset {
            nanos: exact.nanos + 40_000,
            doubt: 50_000,
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
    fn a_step_of_the_wall_clock_moves_neither_our_clock_nor_timers_nor_times_in_files() {
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
            // What left before the step and is answered after it took the time that it took.
            let stamp = kernel(&stamps, stamps.now());
            let answer = stamps.arrival(stamp, found(0).asked(before), before);
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
        let told = stamps.arrival(kernel(&stamps, ahead), found(1900), Instant::START);
        assert_eq!(told.clock, Clock::User);
        assert!(told.at < ahead);
        let floor = millis(1000);
        let early = floor - Duration::from_micros(3);
        let told = stamps.arrival(kernel(&stamps, early), found(1000), floor);
        assert_eq!(told, Stamp::exact(floor));
        let none = stamps.arrival(None, found(1000), floor);
        assert!(none.clock == Clock::User && none.is_bound());
    }

    #[test]
    fn a_departure_that_was_held_up_says_how_long() {
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
