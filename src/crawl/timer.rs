//! All timers: together with `io::Event`, everything that can wake the loop.

use std::time::Duration;

use crate::base::time::Instant;
use crate::base::timeouts::TimeoutWheel;

/// A source of wake-ups. Each has one definition of when it is due: the core's `deadline_of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// There is more work than one turn takes, results wait for an owner that takes them, or the crawl is
    /// over.
    Again,
    /// A sink that was not ready is polled again: it may wait for another thread, and cannot signal when
    /// it is ready.
    Sink,
    /// A scope of the throttle may release a request or let one depart.
    Throttle,
    /// The outage breaker has something to decide.
    Outage,
    /// More may be received, by `BYTES_PER_SECOND_MAX`.
    Rate,
    /// A connection's present phase may be out of time, or an attempt's next address may be tried.
    Slots,
    /// A DNS query may be out of time.
    Resolver,
    /// A redirect that was to wait may be followed.
    Delayed,
    /// The seen set has an answer to an offer.
    Admission,
    /// An idle connection has been kept for long enough.
    Pool,
    /// What was recorded since the last commit is to be committed.
    Commit,
    /// What was recorded is to be handed to the disk: a process that is killed then has recorded it.
    Records,
    /// Statistics are written, sinks flushed, limits checked.
    Tick,
    /// A held lane may be offered again.
    Frontier,
    /// A request of a probe is due, or its last ones are abandoned.
    Arrival,
    /// The source of requests is to be asked.
    Source,
    /// `CLOSESPIDER_TIMEOUT` is reached.
    TimeLimit,
    /// The grace time of a crawl that ends is over.
    Grace,
}

impl Timer {
    /// All of them.
    pub const ALL: [Timer; 18] = [
        Timer::Again,
        Timer::Sink,
        Timer::Throttle,
        Timer::Outage,
        Timer::Rate,
        Timer::Slots,
        Timer::Resolver,
        Timer::Delayed,
        Timer::Admission,
        Timer::Pool,
        Timer::Commit,
        Timer::Records,
        Timer::Tick,
        Timer::Frontier,
        Timer::Arrival,
        Timer::Source,
        Timer::TimeLimit,
        Timer::Grace,
    ];

    /// Those that fire one by one, in this order. The others have a step of their own in each turn.
    ///
    /// The breaker goes first: others may wait for its verdict. The tick goes ahead of the frontier,
    /// whose lanes may be very many.
    pub const FIRED: [Timer; 9] = [
        Timer::Outage,
        Timer::Slots,
        Timer::Resolver,
        Timer::Delayed,
        Timer::Admission,
        Timer::Pool,
        Timer::Commit,
        Timer::Tick,
        Timer::Frontier,
    ];
}

/// Interval of ticks: statistics are written and sinks flushed.
pub const TICK: Duration = Duration::from_secs(1);

/// When the loop turns again, beside the deadlines of others.
#[derive(Debug)]
pub struct Wakeups {
    /// There is more to do than one turn takes.
    is_unfinished: bool,
    /// When the next tick is due; `None` while the crawl is idle.
    next_tick: Option<Instant>,
    /// The descriptor carries the next deadline: a host may be waiting for it.
    is_armed: bool,
}

impl Wakeups {
    /// The first turn is due at once.
    pub fn new(now: Instant) -> Self {
        Wakeups {
            is_unfinished: true,
            next_tick: Some(now + TICK),
            is_armed: false,
        }
    }

    /// A turn begins: the host no longer waits for the descriptor.
    pub fn begin_turn(&mut self) {
        self.is_armed = false;
    }

    /// A turn begins: it completes all work, unless it asks for another turn from now on.
    pub fn begin_work(&mut self) {
        self.is_unfinished = false;
    }

    /// A further turn follows at once.
    pub fn turn_again(&mut self) {
        self.is_unfinished = true;
    }

    /// The same on a condition.
    pub fn turn_again_if(&mut self, condition: bool) {
        self.is_unfinished |= condition;
    }

    /// Whether a further turn follows at once.
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// When the next tick is due.
    pub fn next_tick(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Sets the next tick. An idle crawl is not woken for one.
    pub fn set_tick(&mut self, is_idle: bool, now: Instant) {
        self.next_tick = (!is_idle).then(|| now + TICK);
    }

    /// The descriptor was set to the next deadline.
    pub fn set_armed(&mut self) {
        self.is_armed = true;
    }

    /// Whether the descriptor carries the next deadline.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The same; it does not any more.
    pub fn take_armed(&mut self) -> bool {
        std::mem::take(&mut self.is_armed)
    }
}

/// A timer of a connection or of an attempt, by slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotTimer {
    /// A connection's present phase may be out of time.
    Socket(u32),
    /// An attempt's next address may be tried.
    Flight(u32),
}

/// The timers of connections and attempts, thousands of them.
pub struct Deadlines {
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

    /// Arms the timer to fire at `at` or before. It may fire early: its handler checks the true
    /// deadline, so moving a deadline later needs no call.
    pub fn arm_by(&mut self, timer: SlotTimer, at: Instant) {
        let key = key(timer);
        if self.armed.len() <= key as usize {
            self.armed.resize(key as usize + 1, Instant::FAR_FUTURE);
        }
        if at < self.armed[key as usize] {
            self.armed[key as usize] = at;
            self.wheel.arm(key, at);
        }
    }

    pub fn cancel(&mut self, timer: SlotTimer) {
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

    pub fn expire(&mut self, now: Instant) -> Option<SlotTimer> {
        let key = self.wheel.expire(now)?;
        self.armed[key as usize] = Instant::FAR_FUTURE;
        Some(if key % 2 == 0 {
            SlotTimer::Socket(key / 2)
        } else {
            SlotTimer::Flight(key / 2)
        })
    }
}

fn key(timer: SlotTimer) -> u32 {
    match timer {
        SlotTimer::Socket(slot) => slot * 2,
        SlotTimer::Flight(slot) => slot * 2 + 1,
    }
}
