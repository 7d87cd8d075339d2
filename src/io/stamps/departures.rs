//! The moment at which bytes left, and how precisely it is known.
//!
//! The clock is read just before the system call that sends. If other processes get the processor in
//! between, the bytes leave later; only the duration of the call and the scheduler's statistics show
//! that.
//!
//! Mostly other processes run when the call is about to return and the bytes have left: the receiver may
//! be one of them. So where a thread has been busy and has used up its time slice, the kernel
//! [stamps](Socket::send_stamped) what it sends. That takes one more system call, for which such a
//! thread has the time.

use std::time::Duration;

use crate::base::time::Instant;
use crate::io::sockets::outbox::Left;
use crate::io::sockets::socket::Socket;
use crate::io::stamps::run_delay::RunDelay;
use crate::io::stamps::{EXACT, PROMPT, STEP, Stamps};
use crate::io::{Event, NetError, Token};

/// Measures departures.
#[derive(Debug)]
pub(in crate::io) struct Departures {
    delay: RunDelay,
    /// When the scheduler's statistics were last read.
    looked_at: Instant,
}

/// When bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) struct Departure {
    pub(in crate::io) at: Instant,
    /// They may have left as much later.
    pub(in crate::io) slack: Duration,
    /// They had left by then.
    pub(in crate::io) left_by: Instant,
}

impl Departure {
    /// The event that reports it.
    pub(in crate::io) fn event(self, token: Token) -> Event {
        let Departure { at, slack, left_by } = self;
        Event::Sent {
            token,
            at,
            slack,
            left_by,
        }
    }
}

/// Result of a send.
#[derive(Clone, Copy, Debug)]
pub(in crate::io) struct Sent {
    /// The moment before the system call.
    pub(in crate::io) before: Instant,
    /// Bytes that the socket took; `None` if it is full.
    pub(in crate::io) taken: Option<usize>,
    /// When they left, if that is to be reported.
    pub(in crate::io) departure: Option<Departure>,
}

/// A system call that sent, between two readings of the clock.
#[derive(Clone, Copy, Debug)]
struct Call {
    before: Instant,
    after: Instant,
    /// All bytes were sent, and so few that they left at one moment.
    is_single: bool,
}

impl Departures {
    pub(in crate::io) fn start() -> Self {
        Departures {
            delay: RunDelay::start(),
            looked_at: Instant::START,
        }
    }

    /// Sends are about to begin. Waits before this moment do not matter to them; the statistics are read
    /// often enough to separate the two.
    pub(in crate::io) fn begin(&mut self, now: Instant) {
        if now.saturating_since(self.looked_at) > ACCOUNT_AGE {
            self.waited(now);
        }
    }

    /// Sends bytes in one system call. The departure is reported if `mark`, and stamped by the kernel if
    /// `stamped`.
    pub(in crate::io) fn send(
        &mut self,
        socket: &mut Socket,
        bytes: &[u8],
        mark: bool,
        stamped: bool,
        stamps: &Stamps,
    ) -> Result<Sent, NetError> {
        let stamped = mark && stamped && socket.stamps_departures();
        socket.prepare_send();
        let before = stamps.now();
        let taken = if stamped {
            socket.send_stamped(bytes)?
        } else {
            socket.send(bytes)?
        };
        let departure = mark.then(|| {
            let call = Call {
                before,
                after: stamps.now(),
                is_single: taken == Some(bytes.len()) && bytes.len() <= SEGMENT,
            };
            self.measure(call, Some(&*socket).filter(|_| stamped), stamps)
        });
        Ok(Sent {
            before,
            taken,
            departure,
        })
    }

    /// How much later than `before` a system call between the two moments may have sent.
    fn slack(&mut self, before: Instant, after: Instant) -> Duration {
        let took = after.saturating_since(before);
        if took <= PROMPT {
            return Duration::ZERO;
        }
        slack_of(took, self.waited(after))
    }

    /// When bytes left. `stamped`: their socket, if the kernel was to stamp them. Without a stamp so
    /// far, the moment is known as well as without asking for one.
    fn measure(&mut self, call: Call, stamped: Option<&Socket>, stamps: &Stamps) -> Departure {
        while let Some(kernel) = stamped.and_then(Socket::departed) {
            // Stamps of earlier departures, which came too late, are skipped.
            if let Some(at) = stamps.departure(kernel)
                && let Some(departure) = by_stamp(call, at)
            {
                return departure;
            }
        }
        Departure {
            at: call.before,
            slack: self.slack(call.before, call.after),
            left_by: call.after,
        }
    }

    /// The event of bytes that left a socket which had been full.
    pub(in crate::io) fn event(&mut self, token: Token, left: Left) -> Event {
        match left {
            Left::Begun { before, after } => Departure {
                at: before,
                slack: self.slack(before, after),
                left_by: after,
            }
            .event(token),
            Left::Ended { after } => Event::Flushed { token, at: after },
        }
    }

    fn waited(&mut self, now: Instant) -> Option<Duration> {
        self.looked_at = now;
        self.delay.since_last()
    }
}

/// The departure by the kernel's stamp, unless it belongs to another one. The stamp is the last byte's;
/// `at` is never later than the first byte's departure.
fn by_stamp(call: Call, stamp: Instant) -> Option<Departure> {
    let Call { before, after, .. } = call;
    if stamp + STEP < before || stamp > after + STEP {
        return None;
    }
    let late = stamp.saturating_since(before);
    Some(if call.is_single {
        Departure {
            at: before + late,
            slack: Duration::ZERO,
            left_by: after.max(before + late),
        }
    } else {
        Departure {
            at: before,
            slack: if late <= EXACT { Duration::ZERO } else { late },
            left_by: after.max(before + late),
        }
    })
}

/// The slack of a call that took so long; `waited`: how long the thread waited for a processor in that
/// time or a longer one, `None` if unknown.
fn slack_of(took: Duration, waited: Option<Duration>) -> Duration {
    match waited {
        Some(waited) if waited <= EXACT => Duration::ZERO,
        Some(waited) => waited.min(took),
        None => took,
    }
}

/// Reading the statistics takes a microsecond or two.
const ACCOUNT_AGE: Duration = Duration::from_millis(1);

/// Bytes that leave in one segment: the smallest maximum that a host may announce.
const SEGMENT: usize = 536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_of_a_departure_is_the_wait_for_a_processor() {
        let check = |took, waited: Option<u64>, slack| {
            let micros = Duration::from_micros;
            assert_eq!(slack_of(micros(took), waited.map(micros)), micros(slack));
        };
        check(60, Some(0), 0);
        check(60, Some(25), 0);
        check(60, Some(26), 26);
        // The remaining wait was before the call.
        check(60, Some(4000), 60);
        check(60, None, 60);
    }

    #[test]
    fn a_quick_send_reads_no_statistics() {
        let mut departures = Departures::start();
        let before = Instant::from_nanos(1_000_000);
        assert_eq!(departures.slack(before, before + PROMPT), Duration::ZERO);
        assert_eq!(departures.looked_at, Instant::START);
        departures.slack(before, before + PROMPT * 2);
        assert_eq!(departures.looked_at, before + PROMPT * 2);
        departures.begin(before + PROMPT * 2 + ACCOUNT_AGE);
        assert_eq!(departures.looked_at, before + PROMPT * 2);
        let later = before + ACCOUNT_AGE * 2;
        departures.begin(later);
        assert_eq!(departures.looked_at, later);
    }

    fn micros(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn a_stamped_departure_is_exact_however_long_its_system_call_took() {
        let check = |stamp: u64, is_single, measured: Option<(u64, u64)>| {
            let call = Call {
                before: micros(1000),
                after: micros(5000),
                is_single,
            };
            let measured = measured.map(|(at, slack)| Departure {
                at: micros(at),
                slack: Duration::from_micros(slack),
                left_by: micros(stamp.max(5000)),
            });
            assert_eq!(
                by_stamp(call, micros(stamp)),
                measured,
                "stamped at {stamp}"
            );
        };
        check(1004, true, Some((1004, 0)));
        check(3000, true, Some((3000, 0)));
        // The stamp is later than the end of the call.
        check(5003, true, Some((5003, 0)));
        // The two clocks are read a little apart.
        check(995, true, Some((1000, 0)));
        // The first byte may have left before the last one.
        check(1020, false, Some((1000, 0)));
        check(3000, false, Some((1000, 2000)));
        // The stamp of another departure.
        check(980, true, None);
        check(5020, true, None);
    }

    #[test]
    fn a_departure_stamp_is_returned_once() {
        let (socket, _peer) = Socket::connected();
        let (mut departures, stamps) = (Departures::start(), Stamps::start());
        let held_up = Duration::from_millis(5);
        for _ in 0..3 {
            let began = stamps.now();
            assert_eq!(socket.send_stamped(b"?"), Ok(Some(1)));
            let ended = stamps.now();
            // As if other processes had run after the call.
            let call = Call {
                before: began,
                after: ended + held_up,
                is_single: true,
            };
            let measured = departures.measure(call, Some(&socket), &stamps);
            assert!(measured.at >= began && measured.at <= ended, "{measured:?}");
            assert_eq!(measured.slack, Duration::ZERO);
            assert!(socket.departed().is_none(), "it is measured once");
        }
    }

    #[test]
    fn a_late_departure_stamp_is_not_used_for_the_next_send() {
        let (socket, _peer) = Socket::connected();
        let (mut departures, stamps) = (Departures::start(), Stamps::start());
        assert_eq!(socket.send_stamped(b"?"), Ok(Some(1)));
        std::thread::sleep(Duration::from_millis(1));
        let before = stamps.now();
        assert_eq!(socket.send_stamped(b"?"), Ok(Some(1)));
        let after = stamps.now();
        let call = Call {
            before,
            after,
            is_single: true,
        };
        let measured = departures.measure(call, Some(&socket), &stamps);
        assert!(
            measured.at >= before && measured.at <= after,
            "{measured:?}"
        );
        assert!(socket.departed().is_none(), "stamps do not accumulate");
    }
}
