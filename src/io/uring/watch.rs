//! How closely the sockets were watched, and so how far their stamps can be trusted.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::connection::{Arrived, Connection};
use crate::base::time::Instant;
use crate::io::delay::RunDelay;
use crate::io::leisure::Leisure;
use crate::io::stamps::{EXACT, PROMPT, Stamps, Unseen};
use crate::io::{Clock, Stamp};

/// How closely the sockets were watched up to this turn.
#[derive(Debug)]
pub(super) struct Watch {
    delay: RunDelay,
    /// When there was no answer last.
    empty_at: Instant,
    /// Since when the answers of this turn may have been given.
    since: Instant,
    /// The same, as well as it is known without the scheduler's account.
    unseen: Unseen,
    /// How long our thread was kept from watching in that time; `None` where nobody knows.
    kept: Option<Duration>,
    absence: Absence,
    leisure: Leisure,
}

/// How long our thread was off its processor: segments that were found together came within as much
/// of each other, whatever the count of them says.
///
/// To wait for it is one way to be off, another is what a page's handler may do: to wait for a disk,
/// say, from which the kernel's interruption does not wake it.
#[derive(Clone, Copy, Debug)]
struct Absence {
    /// For so long in all,
    off: Duration,
    since: Instant,
    /// up to this moment, when it was looked into last.
    until: Instant,
    /// How long the thread had been on a processor by then.
    spent: Duration,
}

impl Absence {
    fn start() -> Self {
        Absence {
            off: Duration::ZERO,
            since: Instant::START,
            until: Instant::START,
            spent: Duration::ZERO,
        }
    }

    fn look(&mut self, spent: Duration, now: Instant) {
        let passed = now.saturating_since(self.until);
        *self = Absence {
            off: passed.saturating_sub(spent.saturating_sub(self.spent)),
            since: self.until,
            until: now,
            spent,
        };
    }

    /// How long at the most within the time between the two; `None` where that was not looked into.
    fn between(self, since: Instant, until: Instant) -> Option<Duration> {
        (self.since <= since && self.until >= until).then_some(self.off)
    }
}

/// How long this thread has been on a processor.
fn spent() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

impl Watch {
    pub(super) fn start() -> Self {
        Watch {
            delay: RunDelay::none(),
            empty_at: Instant::START,
            since: Instant::START,
            unseen: Unseen::since(Instant::START),
            kept: None,
            absence: Absence::start(),
            leisure: Leisure::start(),
        }
    }

    /// From now on the calling thread watches.
    pub(super) fn adopt(&mut self) {
        self.delay = RunDelay::start();
    }

    /// There was no answer at this moment.
    pub(super) fn saw_nothing(&mut self, at: Instant) {
        self.empty_at = at;
    }

    /// So many answers were taken, all or not all of them.
    pub(super) fn begin_turn(
        &mut self,
        now: Instant,
        unseen: Unseen,
        complete: bool,
        answers: usize,
    ) {
        self.leisure.begin_turn(now, answers);
        if self.has_leisure(now) {
            self.absence.look(spent(), now);
        }
        self.unseen = unseen;
        self.since = self.empty_at;
        // It cannot have been longer than there was time.
        let longest = now.saturating_since(self.since);
        self.kept = if longest > EXACT {
            self.delay.since_last().map(|delay| delay.min(longest))
        } else {
            Some(longest)
        };
        if complete {
            self.empty_at = now;
        }
    }

    /// Whether there is time to look closely.
    pub(super) fn has_leisure(&self, now: Instant) -> bool {
        self.leisure.is_there(now)
    }

    /// When bytes arrived, and how far that may be off. Whatever kept us from looking: where they
    /// came in one segment, and no other one with them, the stamp is theirs.
    ///
    /// That our thread had its processor does not tell it all. On a busy machine segments wait,
    /// stamped, for the kernel to deliver them together. So segments are counted wherever there is
    /// [time](Watch::has_leisure) for it. When that is done it is [judged](Connection::judged).
    pub(super) fn judge(
        &self,
        kernel: Option<Timespec>,
        connection: &mut Connection,
        stamps: &Stamps,
        all_seen: impl FnOnce() -> bool,
    ) -> Stamp {
        let (blind, floor) = (connection.blind, connection.floor);
        // Bytes come neither before what they answer nor before those that they follow.
        let asked = connection.asked.max(floor);
        let told = |unseen: Unseen| stamps.arrival(kernel, unseen.asked(asked), floor);
        let unseen = match self.kept {
            Some(_) => Unseen::since(self.since),
            None => self.unseen,
        };
        let stamp = told(unseen);
        if stamp.clock == Clock::User {
            return stamp;
        }
        let (slack, counts) = if stamp.at < blind.until {
            (told(Unseen::since(blind.since.min(self.since))).slack, true)
        } else if self.has_leisure(self.leisure.since()) {
            (stamp.slack, true)
        } else {
            (stamp.slack.min(self.kept.unwrap_or(Duration::MAX)), false)
        };
        let stale = self.unseen.is_stale(&stamp);
        let arrived = if stale || (counts && slack > EXACT) {
            connection.arrived(all_seen)
        } else {
            Arrived::Unknown
        };
        match arrived {
            Arrived::Alone => Stamp::exact(stamp.at),
            Arrived::OutOfOrder => {
                let woken = told(self.unseen);
                if stale || woken.is_bound() {
                    // Nobody stamped what was missing.
                    stamps.arrival(None, unseen.asked(asked), floor)
                } else {
                    woken
                }
            }
            Arrived::Unknown => {
                let off = self.absence.between(self.since, self.leisure.since());
                let slack = match off.filter(|_| stamp.at >= blind.until) {
                    Some(off) if off <= EXACT => Duration::ZERO,
                    Some(off) => slack.min(off + PROMPT),
                    None => slack,
                };
                let exact = slack <= EXACT;
                Stamp {
                    slack: if exact { Duration::ZERO } else { slack },
                    ..stamp
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::io::socket::Socket;
    use crate::io::uring::connection::Kind;

    #[test]
    fn time_off_the_processor_is_what_was_not_spent_on_it() {
        let micros = Duration::from_micros;
        let check = |passed: u64, spent: u64, off| {
            let mut absence = Absence::start();
            let began = Instant::from_nanos(5_000_000_000);
            let ended = began + micros(passed);
            absence.look(micros(1000), began);
            absence.look(micros(1000 + spent), ended);
            assert_eq!(absence.between(began, ended), Some(micros(off)));
            assert_eq!(absence.between(began + micros(1), ended), Some(micros(off)));
            assert_eq!(absence.between(Instant::START, ended), None);
            assert_eq!(absence.between(began, ended + micros(1)), None);
        };
        check(50_000, 50_000, 0);
        check(50_000, 49_000, 1000);
        // Two clocks that are read one after the other.
        check(50_000, 50_003, 0);
    }

    /// The stamp of two segments that made one arrival, at the end of what kept us from looking.
    fn judge_two_segments(kept: impl Fn()) -> Stamp {
        let (socket, mut peer) = Socket::connected();
        let (mut watch, mut stamps) = (Watch::start(), Stamps::start());
        let mut connection = Connection::new(socket, Kind::Stream, stamps.now());
        connection.blind.until = stamps.now();
        let (now, unseen) = stamps.begin_turn(false, true, 0);
        watch.begin_turn(now, unseen, true, 0);
        (0..2).for_each(|_| peer.write_all(b"!").expect("heard"));
        connection.note_arrival(false);
        kept();
        let stamp = clock_gettime(ClockId::Realtime);
        let (now, unseen) = stamps.begin_turn(false, true, 1);
        watch.begin_turn(now, unseen, true, 1);
        watch.judge(Some(stamp), &mut connection, &stamps, || true)
    }

    #[test]
    fn segments_that_came_together_while_we_had_the_processor_came_at_one_moment() {
        let kept = Duration::from_millis(1);
        let busy = || {
            let began = std::time::Instant::now();
            while began.elapsed() < kept {
                std::hint::spin_loop();
            }
        };
        // Others may have the processor now and then.
        assert!((0..50).any(|_| !judge_two_segments(busy).is_bound()));
        // Asleep they may have come as far apart, and no further.
        let found = judge_two_segments(|| std::thread::sleep(kept));
        assert!(found.slack >= kept, "{found:?}");
    }
}
