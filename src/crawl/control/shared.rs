//! State shared by a crawl and its handles: submissions, answers of the scope map, commands, and orders to
//! stop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::Duration;

use log::LevelFilter;
use serde_json::{Map, Value};

use crate::base::slab::{Key, Slab};
use crate::crawl::config::Config;
use crate::crawl::control::error::ControlError;
use crate::crawl::control::reloads::Reloads;
use crate::crawl::stats::Snapshot;
use crate::crawl::work::mapping::Mapped;
use crate::frontier::exclusion::Exclusion;
use crate::frontier::job::Job;
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
    pub submitted: Mutex<Submitted>,
    pub commands: Mutex<Commands>,
    /// Answers of the scope map: no more than the crawl has asked for and not taken.
    pub mapped: Mutex<VecDeque<Mapped>>,
    /// Notified when there is room, or the crawl is over.
    pub room: Condvar,
    pub snapshots: Mutex<Snapshots>,
    /// Notified when a snapshot was taken.
    pub snapshot_taken: Condvar,
    /// A handle requested a snapshot.
    pub asked: AtomicBool,
    pub reloads: Reloads,
}

/// Submitted requests that are not admitted yet.
#[derive(Default)]
pub struct Submitted {
    pub waiting: VecDeque<Waiting>,
    pub closed: bool,
    /// Tasks that wait for room, at most one for each [`RoomWait`].
    tasks: Slab<task::Waker>,
}

/// Commands that are not applied yet.
#[derive(Default)]
pub struct Commands {
    pub waiting: Vec<Command>,
    pub closed: bool,
}

/// A future that waits for room. Each registration wakes it at most once; dropping it removes the
/// registration.
pub struct RoomWait<'a> {
    shared: &'a Shared,
    /// Its place in [`Submitted::tasks`].
    place: Option<Key>,
}

/// A submitted request. Not boxed: memory that one thread allocates and another frees takes long.
pub enum Waiting {
    /// It has its number, and its submitter is notified of its end.
    Numbered(Job),
    /// A seed without a number, and its position in the list of seeds, from 1; 0 if it is in none.
    Seed(Job, u64),
    /// The list of seeds has ended.
    SeedsEnd,
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

/// Most submitted requests that wait for admission. [`Handle::submit`] waits while there are so many.
pub const SUBMITTED_MAX: usize = 4096;

/// Most commands that wait.
pub const COMMANDS_MAX: usize = 4096;

/// Commands on single scopes that are applied in one turn, some 10 µs each. A command on all scopes takes
/// longer and is applied alone.
pub const COMMANDS_TIME: u32 = 64;

/// Maximum time that a request for a snapshot waits for the end of a turn.
const SNAPSHOT_PATIENCE: Duration = Duration::from_millis(100);

impl Submitted {
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= SUBMITTED_MAX
    }

    /// Adds one. Returns whether it is the only one: the caller then wakes the crawl.
    pub fn add(&mut self, waiting: Waiting) -> bool {
        self.waiting.push_back(waiting);
        self.waiting.len() == 1
    }
}

impl<'a> RoomWait<'a> {
    /// A wait that has not begun.
    pub fn new(shared: &'a Shared) -> Self {
        RoomWait {
            shared,
            place: None,
        }
    }

    /// Registers this task to be woken, if there is no room and the crawl is not over. Returns whether it
    /// waits.
    pub fn poll_wait(&mut self, task: &task::Waker) -> bool {
        let mut submitted = self.shared.submitted();
        if submitted.closed || !submitted.is_full() {
            return false;
        }
        let waiting = self.place.and_then(|place| submitted.tasks.get_mut(place));
        let old = waiting.map(|waiting| std::mem::replace(waiting, task.clone()));
        if old.is_none() {
            self.place = Some(submitted.tasks.insert(task.clone()));
        }
        drop(submitted);
        // Last, since it may own a task with another such future.
        drop(old);
        true
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let task = self.shared.submitted().tasks.remove(place);
            drop(task);
        }
    }
}

impl Shared {
    /// No order to stop: the crawl runs.
    pub const NEVER: u64 = u64::MAX;
    /// The grace time of the configuration.
    pub const CONFIGURED: u64 = u64::MAX - 1;

    pub fn new(config: Arc<Config>, numbers: Numbers) -> Self {
        Shared {
            config,
            numbers,
            handles: AtomicUsize::new(0),
            grace: AtomicU64::new(Self::NEVER),
            paused: AtomicBool::new(false),
            resumed: AtomicBool::new(false),
            bad_seeds: AtomicU64::new(0),
            submitted: Mutex::default(),
            commands: Mutex::default(),
            mapped: Mutex::default(),
            room: Condvar::new(),
            snapshots: Mutex::default(),
            snapshot_taken: Condvar::new(),
            asked: AtomicBool::new(false),
            reloads: Reloads::default(),
        }
    }

    /// Number of futures that wait for room.
    #[cfg(test)]
    pub fn tasks(&self) -> usize {
        self.submitted().tasks.len()
    }

    pub fn submitted(&self) -> MutexGuard<'_, Submitted> {
        lock(&self.submitted)
    }

    /// Locks the submissions, once there is room or the crawl is over.
    pub fn when_there_is_room(&self) -> MutexGuard<'_, Submitted> {
        let full = |submitted: &mut Submitted| !submitted.closed && submitted.is_full();
        self.room
            .wait_while(self.submitted(), full)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all threads and tasks that wait: called when there is room, or the crawl is over.
    pub fn notify_room(&self, mut submitted: MutexGuard<'_, Submitted>) {
        let places: Vec<Key> = submitted.tasks.iter().map(|(place, _)| place).collect();
        let tasks = places
            .into_iter()
            .filter_map(|place| submitted.tasks.remove(place));
        let tasks: Vec<task::Waker> = tasks.collect();
        drop(submitted);
        self.room.notify_all();
        for task in tasks {
            task.wake();
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
