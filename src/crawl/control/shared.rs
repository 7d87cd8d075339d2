//! What a crawl and its handles share: requests submitted, scopes answered, orders, and the order to stop.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::crawl::config::Config;
use crate::crawl::control::error::ControlError;
use crate::crawl::control::snapshot::Snapshot;
use crate::crawl::work::mapping::Mapped;
use crate::frontier::job::Job;
use crate::frontier::numbers::Numbers;
use crate::frontier::request::Request;
use crate::throttle::engine::covers_many_scopes;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;

/// What the crawl and its handles have in common.
pub struct Shared {
    /// What requests are checked by.
    pub config: Arc<Config>,
    pub numbers: Numbers,
    pub handles: AtomicUsize,
    /// In nanoseconds, the least that was said; or one of the two below.
    pub grace: AtomicU64,
    pub paused: AtomicBool,
    pub bad_seeds: AtomicU64,
    pub submitted: Mutex<Submitted>,
    /// What the crawl was told and has not heeded yet; `None` once it is over.
    pub words: Mutex<Option<Vec<Command>>>,
    /// No more than the crawl has asked for and not taken.
    pub mapped: Mutex<VecDeque<Mapped>>,
    /// Somebody may go on: there is room, or never will be.
    pub room: Condvar,
    pub figures: Mutex<Figures>,
    /// Whoever asked for figures can have them.
    pub figures_told: Condvar,
    /// Somebody asks for figures.
    pub asked: AtomicBool,
}

/// Requests that were submitted and not yet taken in.
#[derive(Default)]
pub struct Submitted {
    pub waiting: VecDeque<Waiting>,
    pub closed: bool,
}

/// One of them.
pub enum Waiting {
    /// It has its number, and whoever submitted it waits for its end.
    Numbered(Box<Job>),
    /// Nobody does.
    Seed(Box<Request>),
}

/// What a crawl is told by whoever steers it.
pub enum Command {
    /// The request of this number is not wanted any more.
    Cancel(u64),
    /// Those of this scope are not, up to this number.
    CancelScope(String, u64),
    /// This holds for the scope from now on.
    SetScope(String, Box<ScopePatch>),
    /// This is known of a scope.
    Feedback(Box<Feedback>),
}

impl Command {
    /// How much of [`COMMANDS_TIME`] it takes.
    pub fn takes(&self) -> u32 {
        match self {
            // They are looked for together.
            Command::Cancel(_) | Command::CancelScope(..) => 0,
            Command::SetScope(name, _) if covers_many_scopes(name) => COMMANDS_TIME,
            Command::SetScope(..) | Command::Feedback(_) => 1,
        }
    }
}

/// What was told of the crawl.
#[derive(Default)]
pub struct Figures {
    /// How often they were asked for, and how many of those were answered.
    pub asked: u64,
    pub answered: u64,
    pub last: Snapshot,
}

/// Requests submitted and not yet taken in. [`Handle::submit`] waits while there are so many.
pub const SUBMITTED_MAX: usize = 4096;

/// Words that wait to be heeded.
pub const COMMANDS_MAX: usize = 4096;

/// Words about single scopes that are heeded in one turn, some 10 µs each. One about all of them takes as
/// long as there are many, and comes alone.
pub const COMMANDS_TIME: u32 = 64;

/// How long one who asks for figures waits for a turn to end.
const FIGURES_PATIENCE: Duration = Duration::from_millis(100);

impl Submitted {
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= SUBMITTED_MAX
    }

    /// Adds one. Whether it is the only one: the crawl does not come for it unasked.
    pub fn add(&mut self, waiting: Waiting) -> bool {
        self.waiting.push_back(waiting);
        self.waiting.len() == 1
    }
}

impl Shared {
    /// A grace that nobody has said: the crawl goes on.
    pub const NEVER: u64 = u64::MAX;
    /// The grace that the configuration says.
    pub const CONFIGURED: u64 = u64::MAX - 1;

    pub fn new(config: Arc<Config>, numbers: Numbers) -> Self {
        Shared {
            config,
            numbers,
            handles: AtomicUsize::new(0),
            grace: AtomicU64::new(Self::NEVER),
            paused: AtomicBool::new(false),
            bad_seeds: AtomicU64::new(0),
            submitted: Mutex::default(),
            words: Mutex::new(Some(Vec::new())),
            mapped: Mutex::default(),
            room: Condvar::new(),
            figures: Mutex::default(),
            figures_told: Condvar::new(),
            asked: AtomicBool::new(false),
        }
    }

    pub fn submitted(&self) -> MutexGuard<'_, Submitted> {
        lock(&self.submitted)
    }

    /// The same once there is room, or the crawl is over.
    pub fn when_there_is_room(&self) -> MutexGuard<'_, Submitted> {
        let full = |submitted: &mut Submitted| !submitted.closed && submitted.is_full();
        self.room
            .wait_while(self.submitted(), full)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the crawl something. Whether it is the only thing, so that the crawl must be woken.
    pub fn tell(&self, word: Command) -> Result<bool, ControlError> {
        let mut words = lock(&self.words);
        let words = words.as_mut().ok_or(ControlError::Over)?;
        if words.len() >= COMMANDS_MAX {
            return Err(ControlError::Busy);
        }
        words.push(word);
        Ok(words.len() == 1)
    }

    /// Only a shorter grace changes anything.
    pub fn stop_within(&self, nanos: u64) {
        self.grace.fetch_min(nanos, Ordering::SeqCst);
    }

    /// Asks how the crawl does, which `wake` wakes.
    pub fn ask(&self, wake: impl FnOnce()) -> Snapshot {
        let mut figures = lock(&self.figures);
        figures.asked += 1;
        let question = figures.asked;
        self.asked.store(true, Ordering::SeqCst);
        drop(figures);
        wake();
        let waits = |figures: &mut Figures| figures.answered < question;
        let (figures, _) = self
            .figures_told
            .wait_timeout_while(lock(&self.figures), FIGURES_PATIENCE, waits)
            .unwrap_or_else(PoisonError::into_inner);
        figures.last.clone()
    }
}

/// Whoever panicked while holding one of these left something whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
