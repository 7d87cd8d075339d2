//! Everything that can be due: with `io::Event` all that can wake the loop.

use crate::base::time::Instant;
use crate::base::timeouts::TimeoutWheel;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A connection's present phase may be out of time.
    Socket(u32),
    /// An attempt's next address may be tried.
    Flight(u32),
    /// A query may be out of time.
    Resolver,
    /// A connection has been idle for long enough.
    Pool,
    /// A host has been held for long enough.
    Frontier,
    /// A redirect may be followed.
    Delayed,
    /// The breaker has something to decide.
    Outage,
    /// Statistics are written, sinks flushed, limits looked at.
    Tick,
}

/// The timers that come by the thousand: one a socket and one an attempt, by slot.
pub(super) struct Deadlines {
    wheel: TimeoutWheel,
    armed: Vec<Instant>,
}

impl Deadlines {
    pub fn new(start: Instant) -> Self {
        Deadlines {
            wheel: TimeoutWheel::new(start),
            armed: Vec::new(),
        }
    }

    /// Sees to it that the timer fires at `at` or before. It may fire early: who is called looks
    /// at the true deadline, so a deadline that only moves later costs nothing here.
    pub fn arm_by(&mut self, timer: Timer, at: Instant) {
        let key = key(timer);
        if self.armed.len() <= key as usize {
            self.armed.resize(key as usize + 1, Instant::FAR_FUTURE);
        }
        if at < self.armed[key as usize] {
            self.armed[key as usize] = at;
            self.wheel.arm(key, at);
        }
    }

    pub fn cancel(&mut self, timer: Timer) {
        let key = key(timer);
        if let Some(armed) = self.armed.get_mut(key as usize)
            && *armed != Instant::FAR_FUTURE
        {
            *armed = Instant::FAR_FUTURE;
            self.wheel.cancel(key);
        }
    }

    pub fn next(&self) -> Option<Instant> {
        self.wheel.next()
    }

    pub fn expire(&mut self, now: Instant) -> Option<Timer> {
        let key = self.wheel.expire(now)?;
        self.armed[key as usize] = Instant::FAR_FUTURE;
        Some(if key % 2 == 0 {
            Timer::Socket(key / 2)
        } else {
            Timer::Flight(key / 2)
        })
    }
}

fn key(timer: Timer) -> u32 {
    match timer {
        Timer::Socket(slot) => slot * 2,
        Timer::Flight(slot) => slot * 2 + 1,
        other => unreachable!("{other:?} is no timer of a slot"),
    }
}
