//! Stamps of arrivals, and how far they can be off, judged by when completions were looked at.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::receiving::{Arrived, Receiving};
use crate::base::time::Instant;
use crate::io::sockets::{Connection, Kind};
use crate::io::stamps::idle_time::IdleTime;
use crate::io::stamps::run_delay::RunDelay;
use crate::io::stamps::{EXACT, PROMPT, PollWindow, Stamps};
use crate::io::{Clock, Stamp};

/// When completions were looked at, up to this turn.
#[derive(Debug)]
pub(super) struct Stamping {
    delay: RunDelay,
    /// When the completion queue was last seen empty.
    empty_at: Instant,
    /// The earliest moment at which this turn's completions were posted.
    since: Instant,
    /// The same without the scheduler's statistics.
    window: PollWindow,
    /// How long our thread waited for a processor in that time; `None` if unknown.
    kept: Option<Duration>,
    off_cpu: OffCpu,
    idle_time: IdleTime,
}

/// How long our thread was off its processor: segments that were found together came within as much of
/// each other, whatever their count.
///
/// It may have waited for a processor or, in a page's handler, for a disk, which the kernel's interrupt
/// does not end.
#[derive(Clone, Copy, Debug)]
struct OffCpu {
    /// Time off the processor,
    off: Duration,
    since: Instant,
    /// up to this moment, the last look.
    until: Instant,
    /// The thread's CPU time at the last look.
    cpu_time: Duration,
}

impl OffCpu {
    fn start() -> Self {
        OffCpu {
            off: Duration::ZERO,
            since: Instant::START,
            until: Instant::START,
            cpu_time: Duration::ZERO,
        }
    }

    fn look(&mut self, cpu_time: Duration, now: Instant) {
        let passed = now.saturating_since(self.until);
        *self = OffCpu {
            off: passed.saturating_sub(cpu_time.saturating_sub(self.cpu_time)),
            since: self.until,
            until: now,
            cpu_time,
        };
    }

    /// The time off the processor between two moments, at most; `None` if that was not observed.
    fn between(self, since: Instant, until: Instant) -> Option<Duration> {
        (self.since <= since && self.until >= until).then_some(self.off)
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let cpu_time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(cpu_time.tv_sec as u64, cpu_time.tv_nsec as u32)
}

impl Stamping {
    pub(super) fn start() -> Self {
        Stamping {
            delay: RunDelay::none(),
            empty_at: Instant::START,
            since: Instant::START,
            window: PollWindow::empty_at(Instant::START),
            kept: None,
            off_cpu: OffCpu::start(),
            idle_time: IdleTime::start(),
        }
    }

    /// Observes the calling thread from now on.
    pub(super) fn adopt(&mut self) {
        self.delay = RunDelay::start();
    }

    /// The completion queue was empty at this moment.
    pub(super) fn note_empty(&mut self, at: Instant) {
        self.empty_at = at;
    }

    /// So many completions were taken; `complete` if none was left.
    pub(super) fn begin_turn(
        &mut self,
        now: Instant,
        window: PollWindow,
        complete: bool,
        completions: usize,
    ) {
        self.idle_time.begin_turn(now, completions);
        if self.has_idle_time(now) {
            self.off_cpu.look(cpu_time(), now);
        }
        self.window = window;
        self.since = self.empty_at;
        // The wait is no longer than the period.
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

    /// Whether there is time for extra system calls.
    pub(super) fn has_idle_time(&self, now: Instant) -> bool {
        self.idle_time.is_available(now)
    }

    /// When bytes arrived, and how far that can be off. Whatever kept us from looking, the stamp is
    /// exact if they came in one segment and no other came with them.
    ///
    /// The time on the processor does not suffice to decide: on a busy machine stamped segments wait for the
    /// kernel to deliver them together. So segments are counted whenever there is
    /// [time](Stamping::has_idle_time) for it. Afterwards the arrival is [judged](Receiving::note_judged).
    pub(super) fn judge(
        &self,
        kernel: Option<Timespec>,
        connection: &mut Connection<Receiving>,
        stamps: &Stamps,
        all_seen: impl FnOnce() -> bool,
    ) -> Stamp {
        let (gap, floor) = (connection.input.gap, connection.floor);
        // Bytes come neither before the request that they answer nor before the bytes that they follow.
        let sent_at = connection.sent_at.max(floor);
        let reported = |window: PollWindow| stamps.arrival(kernel, window.sent_at(sent_at), floor);
        let window = match self.kept {
            Some(_) => PollWindow::empty_at(self.since),
            None => self.window,
        };
        let stamp = reported(window);
        if stamp.clock == Clock::User {
            return stamp;
        }
        let (slack, counts) = if stamp.at < gap.until {
            (
                reported(PollWindow::empty_at(gap.since.min(self.since))).slack,
                true,
            )
        } else if self.has_idle_time(self.idle_time.since()) {
            (stamp.slack, true)
        } else {
            (stamp.slack.min(self.kept.unwrap_or(Duration::MAX)), false)
        };
        let stale = self.window.is_stale(&stamp);
        let arrived = if stale || (counts && slack > EXACT) {
            match connection.kind {
                Kind::Stream => connection.input.arrived(&connection.socket, all_seen),
                Kind::Datagram => Arrived::SingleSegment,
            }
        } else {
            Arrived::Unknown
        };
        match arrived {
            Arrived::SingleSegment => Stamp::exact(stamp.at),
            Arrived::OutOfOrder => {
                let woken = reported(self.window);
                if stale || woken.is_bound() {
                    // The missing segment has no stamp.
                    stamps.arrival(None, window.sent_at(sent_at), floor)
                } else {
                    woken
                }
            }
            Arrived::Unknown => {
                let off = self.off_cpu.between(self.since, self.idle_time.since());
                let slack = match off.filter(|_| stamp.at >= gap.until) {
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
    use crate::io::sockets::socket::Socket;

    #[test]
    fn time_off_the_processor_is_wall_time_without_cpu_time() {
        let micros = Duration::from_micros;
        let check = |passed: u64, cpu_time: u64, off| {
            let mut off_cpu = OffCpu::start();
            let began = Instant::from_nanos(5_000_000_000);
            let ended = began + micros(passed);
            off_cpu.look(micros(1000), began);
            off_cpu.look(micros(1000 + cpu_time), ended);
            assert_eq!(off_cpu.between(began, ended), Some(micros(off)));
            assert_eq!(off_cpu.between(began + micros(1), ended), Some(micros(off)));
            assert_eq!(off_cpu.between(Instant::START, ended), None);
            assert_eq!(off_cpu.between(began, ended + micros(1)), None);
        };
        check(50_000, 50_000, 0);
        check(50_000, 49_000, 1000);
        // The two clocks are read one after the other.
        check(50_000, 50_003, 0);
    }

    /// The stamp of two segments that made one arrival, after `kept` had kept us from looking.
    fn judge_two_segments(kept: impl Fn()) -> Stamp {
        let (socket, mut peer) = Socket::connected();
        let (mut stamping, mut stamps) = (Stamping::start(), Stamps::start());
        let mut connection: Connection<Receiving> =
            Connection::new(socket, Kind::Stream, stamps.now());
        connection.input.gap.until = stamps.now();
        let (now, window) = stamps.begin_turn(false, true, 0);
        stamping.begin_turn(now, window, true, 0);
        (0..2).for_each(|_| peer.write_all(b"!").expect("the socket is open"));
        connection.input.note_arrival(false);
        kept();
        let stamp = clock_gettime(ClockId::Realtime);
        let (now, window) = stamps.begin_turn(false, true, 1);
        stamping.begin_turn(now, window, true, 1);
        stamping.judge(Some(stamp), &mut connection, &stamps, || true)
    }

    #[test]
    fn segments_found_together_while_on_the_processor_have_an_exact_stamp() {
        let kept = Duration::from_millis(1);
        let busy = || {
            let began = std::time::Instant::now();
            while began.elapsed() < kept {
                std::hint::spin_loop();
            }
        };
        // Other processes may take the processor now and then.
        assert!((0..50).any(|_| !judge_two_segments(busy).is_bound()));
        // While we sleep the segments may come as far apart, and no further.
        let found = judge_two_segments(|| std::thread::sleep(kept));
        assert!(found.slack >= kept, "{found:?}");
    }
}
