//! A deadline as a descriptor: a timerfd on the monotonic clock, set only when it changes.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::base::time::Instant;
use crate::io::stamps::Stamps;

/// Becomes readable at its deadline or a little after, never before.
#[derive(Debug)]
pub(in crate::io) struct Timer {
    fd: OwnedFd,
    /// The deadline that the kernel has; `None` once it has fired.
    armed: Option<Instant>,
}

impl Timer {
    /// # Errors
    /// When there is no descriptor left, or the system forbids timers, as some sandboxes do. A loop
    /// without deadlines would send too early or never.
    pub(in crate::io) fn new() -> io::Result<Self> {
        Self::of(timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        ))
    }

    fn of(created: Result<OwnedFd, Errno>) -> io::Result<Self> {
        match created {
            Ok(fd) => Ok(Timer { fd, armed: None }),
            Err(errno) => {
                let error = io::Error::from(errno);
                let reason = match errno {
                    Errno::NOSYS | Errno::PERM | Errno::ACCESS => {
                        "timers are forbidden, possibly by a sandbox, and deadlines need them (timerfd_create)"
                    }
                    _ => "cannot create a timer (timerfd_create)",
                };
                Err(io::Error::new(error.kind(), format!("{reason}: {error}")))
            }
        }
    }

    /// Sets the deadline. One that has passed fires at once; an unchanged one costs nothing.
    pub(in crate::io) fn arm(&mut self, until: Option<Instant>, stamps: &Stamps) {
        let until = until.filter(|until| *until < Instant::FAR_FUTURE);
        if self.armed == until {
            return;
        }
        let it_value = match until {
            // All zeroes would disarm, but no moment of a running machine is zero.
            Some(until) => stamps.timer_time(until),
            None => ZERO,
        };
        timerfd_settime(
            &self.fd,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: ZERO,
                it_value,
            },
        )
        .expect("a timer takes any moment after boot");
        self.armed = until;
    }

    /// The deadline has fired: the same one must be set again to fire again.
    pub(in crate::io) fn note_fired(&mut self) {
        self.armed = None;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets how precisely the kernel times the calling thread's sleep. Best effort: a refusal only makes
/// wake-ups later.
pub(in crate::io) fn set_timer_slack(slack: Duration) {
    let nanos = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    // Zero would mean the default of 50 µs.
    let _ = set_current_timer_slack(Some(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN)));
}

const ZERO: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_reason_why_timers_are_unavailable() {
        let check = |errno: Errno, expected: &str| {
            let error = Timer::of(Err(errno)).expect_err("there is no timer");
            assert_eq!(error.kind(), io::Error::from(errno).kind());
            let text = error.to_string();
            assert!(text.starts_with(expected), "{text}");
        };
        let forbidden = "timers are forbidden, possibly by a sandbox, and deadlines need them (timerfd_create): ";
        check(Errno::NOSYS, forbidden);
        check(Errno::PERM, forbidden);
        check(Errno::MFILE, "cannot create a timer (timerfd_create): ");
        assert!(Timer::new().is_ok());
    }
}
