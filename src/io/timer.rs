//! A deadline as a descriptor: a timerfd on the monotonic clock, set only when it changes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

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
    pub(super) fn new() -> io::Result<Self> {
        let fd = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("timerfd_create: {error}"))
        })?;
        Ok(Timer { fd, armed: None })
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
    let nanos = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: this request takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos.max(1)) };
}

const ZERO: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
