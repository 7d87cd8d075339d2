//! State shared by a crawl and its handles: submissions, answers of the scope map, commands, and orders to
//! stop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use log::LevelFilter;
use serde_json::{Map, Value};

use crate::crawl::config::Config;
use crate::crawl::control::error::ControlError;
use crate::crawl::control::reloads::Reloads;
use crate::crawl::control::submissions::{Limit, Submissions};
use crate::crawl::stats::Snapshot;
use crate::crawl::work::mapping::Mapped;
use crate::frontier::exclusion::Exclusion;
use crate::frontier::numbers::Numbers;
use crate::throttle::engine::covers_many_scopes;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;

/// State shared by the crawl and its handles.
pub struct Shared {
    /// Checks of submitted requests.
    pub config: Arc<Config>,
    pub numbers: Numbers,
    pub handles: AtomicUsize,
    /// The shortest grace time of all orders to stop, in nanoseconds; or one of the two constants.
    pub grace: AtomicU64,
    pub paused: AtomicBool,
    /// A handle has resumed the crawl: that lifts a pause by order, too.
    pub resumed: AtomicBool,
    pub bad_seeds: AtomicU64,
    pub submissions: Arc<Submissions>,
    /// The thread that took the last turn, by its [number](thread_number). Before the first turn 0, or [`NO_THREAD`] if
    /// it is known that another than the builder takes it.
    driver: AtomicU64,
    /// The thread that built the crawler.
    builder: u64,
    pub commands: Mutex<Commands>,
    /// Answers of the scope map: no more than the crawl has asked for and not taken.
    pub mapped: Mutex<VecDeque<Mapped>>,
    pub snapshots: Mutex<Snapshots>,
    /// Notified when a snapshot was taken.
    pub snapshot_taken: Condvar,
    /// A handle requested a snapshot.
    pub asked: AtomicBool,
    pub reloads: Reloads,
}

/// Commands that are not applied yet.
#[derive(Default)]
pub struct Commands {
    pub waiting: Vec<Command>,
    pub closed: bool,
}

/// A command to a crawl.
pub enum Command {
    /// Cancels the request of this number.
    Cancel(u64),
    /// Cancels the requests of this scope up to this number.
    CancelScope(String, u64),
    /// Changes the settings of a scope.
    SetScope(String, Box<ScopePatch>),
    /// Withdraws such a change.
    WithdrawScope(String),
    /// Reports what is known of a scope.
    Feedback(Box<Feedback>),
    /// Closes the output files.
    Rotate,
    /// Changes limits of the crawl; null withdraws an order.
    SetLimits(Map<String, Value>),
    /// Replaces the configuration.
    Reload(Box<Config>),
    /// Excludes something, or withdraws that.
    Exclude(Box<Exclusion>, bool),
    /// Forgets what was learned of a scope, a pattern, or all.
    Forget(String),
    /// Sets the priority of a host.
    HostPriority(String, i32),
    /// Sets the level of the log.
    LogLevel(LevelFilter),
}

impl Command {
    /// Its cost, as a share of [`COMMANDS_TIME`].
    pub fn takes(&self) -> u32 {
        match self {
            // All cancels of a turn share one search.
            Command::Cancel(_) | Command::CancelScope(..) => 0,
            Command::SetLimits(_) | Command::Reload(_) | Command::WithdrawScope(_) => COMMANDS_TIME,
            Command::SetScope(name, _) | Command::Forget(name) if covers_many_scopes(name) => {
                COMMANDS_TIME
            }
            // All requests in flight are compared.
            Command::Exclude(..) => COMMANDS_TIME / 4,
            Command::SetScope(..)
            | Command::Feedback(_)
            | Command::Rotate
            | Command::Forget(_)
            | Command::HostPriority(..)
            | Command::LogLevel(_) => 1,
        }
    }
}

/// Snapshots of the crawl.
#[derive(Default)]
pub struct Snapshots {
    /// Number of snapshots requested, and of those answered.
    pub asked: u64,
    pub answered: u64,
    pub last: Snapshot,
}

/// Most commands that wait.
pub const COMMANDS_MAX: usize = 4096;

/// Commands on single scopes that are applied in one turn, some 10 µs each. A command on all scopes takes
/// longer and is applied alone.
pub const COMMANDS_TIME: u32 = 64;

/// Maximum time that a request for a snapshot waits for the end of a turn.
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(100);

impl Shared {
    /// No order to stop: the crawl runs.
    pub const NEVER: u64 = u64::MAX;
    /// The grace time of the configuration.
    pub const CONFIGURED: u64 = u64::MAX - 1;

    /// `ahead_max`: most requests that handles may submit beyond what is being fetched.
    pub fn new(config: Arc<Config>, numbers: Numbers, ahead_max: usize) -> Self {
        Shared {
            submissions: Arc::new(Submissions::new(ahead_max)),
            driver: AtomicU64::new(0),
            builder: thread_number(),
            config,
            numbers,
            handles: AtomicUsize::new(0),
            grace: AtomicU64::new(Self::NEVER),
            paused: AtomicBool::new(false),
            resumed: AtomicBool::new(false),
            bad_seeds: AtomicU64::new(0),
            commands: Mutex::default(),
            mapped: Mutex::default(),
            snapshots: Mutex::default(),
            snapshot_taken: Condvar::new(),
            asked: AtomicBool::new(false),
            reloads: Reloads::default(),
        }
    }

    /// This thread takes a turn.
    pub fn set_driver(&self) {
        self.driver.store(thread_number(), Ordering::Relaxed);
    }

    /// The thread that built the crawler will not take its turns: another one will.
    pub fn hand_over(&self) {
        self.driver.store(NO_THREAD, Ordering::Relaxed);
    }

    /// What bounds a submission by this thread if it must not wait, since it takes the crawl's turns and would wait for
    /// itself; `None` for other threads.
    pub fn limit_of_driver(&self) -> Option<Limit> {
        // Only the thread itself stores its number, so it reads what it stored.
        match self.driver.load(Ordering::Relaxed) {
            // It may be the one that is to take the first turn.
            0 => (self.builder == thread_number()).then_some(Limit::None),
            driver => (driver == thread_number()).then_some(Limit::Inbox),
        }
    }

    /// Sends a command. Returns whether it is the only one: the caller then wakes the crawl.
    pub fn send(&self, command: Command) -> Result<bool, ControlError> {
        let mut commands = lock(&self.commands);
        if commands.closed {
            return Err(ControlError::Over);
        }
        if commands.waiting.len() >= COMMANDS_MAX {
            return Err(ControlError::Busy);
        }
        commands.waiting.push(command);
        Ok(commands.waiting.len() == 1)
    }

    /// Requests a stop within this grace time. A time longer than that of an earlier request has no effect.
    pub fn stop_within(&self, nanos: u64) {
        self.grace.fetch_min(nanos, Ordering::SeqCst);
    }

    /// Asks the crawl for a snapshot; `wake` wakes it.
    pub fn ask(&self, wake: impl FnOnce()) -> Snapshot {
        let mut snapshots = lock(&self.snapshots);
        snapshots.asked += 1;
        let question = snapshots.asked;
        self.asked.store(true, Ordering::SeqCst);
        drop(snapshots);
        wake();
        let waits = |snapshots: &mut Snapshots| snapshots.answered < question;
        let (snapshots, _) = self
            .snapshot_taken
            .wait_timeout_while(lock(&self.snapshots), SNAPSHOT_PATIENCE, waits)
            .unwrap_or_else(PoisonError::into_inner);
        snapshots.last.clone()
    }
}

/// Locks a mutex, also after a panic: a thread that panicked with one of these locks left the data
/// consistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No number of a thread.
const NO_THREAD: u64 = u64::MAX;

/// A number of this thread, from 1, which no other thread of the process has.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
