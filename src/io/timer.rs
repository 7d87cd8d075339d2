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

use super::stamps::Stamps;
use crate::base::time::Instant;

/// Becomes readable at its deadline or a little after, never before.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    /// The deadline the kernel has; `None` once it has been told to us.
    armed: Option<Instant>,
}

impl Timer {
    /// # Errors
    /// When there is no descriptor to be had, or the system has none of this kind for us: some
    /// sandboxes do not know them. A loop that could not keep a deadline would send too early or never.
    pub(super) fn new() -> io::Result<Self> {
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
                        "no deadline can be kept: a sandbox forbids timers (timerfd_create)"
                    }
                    _ => "no timer can be had (timerfd_create)",
                };
                Err(io::Error::new(error.kind(), format!("{reason}: {error}")))
            }
        }
    }

    /// Sets the deadline. One that has passed is due at once; costs nothing if it is unchanged.
    pub(super) fn arm(&mut self, until: Option<Instant>, stamps: &Stamps) {
        let until = until.filter(|until| *until < Instant::FAR_FUTURE);
        if self.armed == until {
            return;
        }
        let it_value = match until {
            // All zeroes disarm, but no moment of a running machine is that.
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
        .expect("a timer of our own takes any moment after boot");
        self.armed = until;
    }

    /// Takes note that the deadline was told to us: the same one must be set anew to be told again.
    pub(super) fn told(&mut self) {
        self.armed = None;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// How finely the kernel times the calling thread's sleep. Best effort: late is the worst it gets.
pub(super) fn set_timer_slack(slack: Duration) {
    let nanos = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    // Zero would stand for the default of 50 µs.
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
    fn where_there_are_no_timers_it_is_said_what_is_missing() {
        let check = |errno: Errno, said: &str| {
            let error = Timer::of(Err(errno)).expect_err("there is no timer");
            assert_eq!(error.kind(), io::Error::from(errno).kind());
            let text = error.to_string();
            assert!(text.starts_with(said), "{text}");
        };
        let forbidden = "no deadline can be kept: a sandbox forbids timers (timerfd_create): ";
        check(Errno::NOSYS, forbidden);
        check(Errno::PERM, forbidden);
        check(Errno::MFILE, "no timer can be had (timerfd_create): ");
        assert!(Timer::new().is_ok());
    }
}
