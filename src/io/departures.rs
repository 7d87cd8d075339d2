//! How closely the moment is known at which something left.
//!
//! The clock is read just before the system call that sends. If others are given the processor
//! between the two, what is sent leaves later than that: nothing shows it but the time that the
//! system call seemed to take, and the scheduler's account of how long our thread had to wait.
//!
//! Mostly it is when the call returns, and what was sent is gone, that others have their turn: it may
//! be who was sent to. So a thread that has been busy with other things, and has used up its share of
//! the processor, has the kernel [stamp](Socket::send_stamped) what it sends. That takes a system call
//! more, and there is the time for it.

use std::time::Duration;

use super::delay::RunDelay;
use super::outbox::Left;
use super::socket::Socket;
use super::stamps::{EXACT, PROMPT, STEP, Stamps};
use super::{Event, NetError, Token};
use crate::base::time::Instant;

/// Watches over departures.
#[derive(Debug)]
pub(super) struct Departures {
    delay: RunDelay,
    /// When the account was looked at last.
    looked_at: Instant,
}

/// When something left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) at: Instant,
    /// It may have left as much later.
    pub(super) slack: Duration,
    /// It had left by then.
    pub(super) gone: Instant,
}

impl Departure {
    /// The news of it.
    pub(super) fn of(self, token: Token) -> Event {
        let Departure { at, slack, gone } = self;
        Event::Sent {
            token,
            at,
            slack,
            gone,
        }
    }
}

/// What became of a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The moment before its system call.
    pub(super) before: Instant,
    /// Bytes that the socket took; `None` where it has no room.
    pub(super) taken: Option<usize>,
    /// When they left, if that is to be told.
    pub(super) departure: Option<Departure>,
}

/// What a system call sent between two looks at the clock.
#[derive(Clone, Copy, Debug)]
struct Call {
    before: Instant,
    after: Instant,
    /// All that was to be sent, and it was so little that it left at one moment.
    is_single: bool,
}

impl Departures {
    pub(super) fn start() -> Self {
        Departures {
            delay: RunDelay::start(),
            looked_at: Instant::START,
        }
    }

    /// Some are about to leave. What our thread waited before does not matter to them; it is looked
    /// up often enough to be told from what it waits from now on, and no more often.
    pub(super) fn begin(&mut self, now: Instant) {
        if now.saturating_since(self.looked_at) > ACCOUNT_AGE {
            self.waited(now);
        }
    }

    /// Sends bytes in one system call. When they left is told if `mark`; the kernel is to stamp that if
    /// `stamped`.
    pub(super) fn send(
        &mut self,
        socket: &mut Socket,
        bytes: &[u8],
        mark: bool,
        stamped: bool,
        stamps: &Stamps,
    ) -> Result<Sent, NetError> {
        let stamped = mark && stamped;
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
            self.tell(call, Some(&*socket).filter(|_| stamped), stamps)
        });
        Ok(Sent {
            before,
            taken,
            departure,
        })
    }

    /// How much later than `before` something may have left that a system call sent between the two.
    fn slack(&mut self, before: Instant, after: Instant) -> Duration {
        let took = after.saturating_since(before);
        if took <= PROMPT {
            return Duration::ZERO;
        }
        slack_of(took, self.waited(after))
    }

    /// When something left. `stamped`: the socket it was sent through, if the kernel was to stamp it.
    /// Where there is no stamp yet, it is known as closely as without.
    fn tell(&mut self, call: Call, stamped: Option<&Socket>, stamps: &Stamps) -> Departure {
        while let Some(kernel) = stamped.and_then(Socket::departed) {
            // One that is of an earlier departure was late for that.
            if let Some(at) = stamps.departure(kernel)
                && let Some(departure) = by_stamp(call, at)
            {
                return departure;
            }
        }
        Departure {
            at: call.before,
            slack: self.slack(call.before, call.after),
            gone: call.after,
        }
    }

    /// The news of what a socket took that had been full.
    pub(super) fn news(&mut self, token: Token, left: Left) -> Event {
        match left {
            Left::Begun { before, after } => Departure {
                at: before,
                slack: self.slack(before, after),
                gone: after,
            }
            .of(token),
            Left::Ended { after } => Event::Gone { token, at: after },
        }
    }

    fn waited(&mut self, now: Instant) -> Option<Duration> {
        self.looked_at = now;
        self.delay.since_last()
    }
}

/// What the kernel's stamp says of a departure, unless it is of another one. It is the last byte's,
/// and `at` is never later than the first one's.
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
            gone: after.max(before + late),
        }
    } else {
        Departure {
            at: before,
            slack: if late <= EXACT { Duration::ZERO } else { late },
            gone: after.max(before + late),
        }
    })
}

/// A system call took so long, and in that time, or in more, the thread waited so long; `None` where
/// nobody knows.
fn slack_of(took: Duration, waited: Option<Duration>) -> Duration {
    match waited {
        Some(waited) if waited <= EXACT => Duration::ZERO,
        Some(waited) => waited.min(took),
        None => took,
    }
}

/// The account is a file to be read, which takes a microsecond or two.
const ACCOUNT_AGE: Duration = Duration::from_millis(1);

/// Bytes that leave in one segment: the least that every host takes in one.
const SEGMENT: usize = 536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_is_as_doubtful_as_our_thread_was_kept_from_it() {
        let check = |took, waited: Option<u64>, slack| {
            let micros = Duration::from_micros;
            assert_eq!(slack_of(micros(took), waited.map(micros)), micros(slack));
        };
        check(60, Some(0), 0);
        check(60, Some(25), 0);
        check(60, Some(26), 26);
        // The rest of it was before.
        check(60, Some(4000), 60);
        check(60, None, 60);
    }

    #[test]
    fn a_quick_system_call_needs_no_account() {
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
    fn a_stamped_departure_is_known_however_long_its_system_call_took() {
        let check = |stamp: u64, is_single, told: Option<(u64, u64)>| {
            let call = Call {
                before: micros(1000),
                after: micros(5000),
                is_single,
            };
            let told = told.map(|(at, slack)| Departure {
                at: micros(at),
                slack: Duration::from_micros(slack),
                gone: micros(stamp.max(5000)),
            });
            assert_eq!(by_stamp(call, micros(stamp)), told, "stamped at {stamp}");
        };
        check(1004, true, Some((1004, 0)));
        check(3000, true, Some((3000, 0)));
        // The wire has seen it by the later of the two.
        check(5003, true, Some((5003, 0)));
        // The two clocks may be read a little apart.
        check(995, true, Some((1000, 0)));
        // The first byte may have left before the last one did.
        check(1020, false, Some((1000, 0)));
        check(3000, false, Some((1000, 2000)));
        // Of another departure.
        check(980, true, None);
        check(5020, true, None);
    }

    #[test]
    fn the_kernel_tells_when_it_sent_and_once() {
        let (socket, _peer) = Socket::connected();
        let (mut departures, stamps) = (Departures::start(), Stamps::start());
        let held_up = Duration::from_millis(5);
        for _ in 0..3 {
            let began = stamps.now();
            assert_eq!(socket.send_stamped(b"?"), Ok(Some(1)));
            let ended = stamps.now();
            // As if others had been run after the call.
            let call = Call {
                before: began,
                after: ended + held_up,
                is_single: true,
            };
            let told = departures.tell(call, Some(&socket), &stamps);
            assert!(told.at >= began && told.at <= ended, "{told:?}");
            assert_eq!(told.slack, Duration::ZERO);
            assert!(socket.departed().is_none(), "it is told once");
        }
    }

    #[test]
    fn a_stamp_that_came_too_late_is_not_the_next_departures() {
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
        let told = departures.tell(call, Some(&socket), &stamps);
        assert!(told.at >= before && told.at <= after, "{told:?}");
        assert!(socket.departed().is_none(), "stamps do not pile up");
    }
}
