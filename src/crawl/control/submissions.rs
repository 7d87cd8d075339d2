//! Submitted requests that the crawl has not taken yet, and the room that is left for more.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task;

use crate::base::slab::{Key, Slab};
use crate::frontier::job::Job;

/// A submitted request. Not boxed: memory that one thread allocates and another frees takes long.
pub enum Waiting {
    /// It has its number, and its submitter is notified of its end.
    Numbered(Job),
    /// A seed without a number, and its position in the list of seeds, from 1; 0 if it is in none.
    Seed(Job, u64),
    /// The list of seeds has ended.
    SeedsEnd,
}

/// What bounds a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The inbox, and what the crawl has ahead of what it fetches.
    Ahead,
    /// The inbox alone.
    Inbox,
}

/// Submitted requests, and those who wait for room.
pub struct Submissions {
    submitted: Mutex<Submitted>,
    /// Notified when there is room, or the crawl is over.
    room: Condvar,
}

/// Submitted requests that are not admitted yet.
pub struct Submitted {
    waiting: VecDeque<Waiting>,
    /// Number of those that have a number.
    numbered: usize,
    /// Requests that were taken and are not being fetched: those at the end of the last turn, and those taken since.
    unfetched: usize,
    /// Most requests with a number that wait here and are unfetched.
    ahead_max: usize,
    /// The crawl is over.
    pub closed: bool,
    /// Threads that wait for room.
    threads: usize,
    /// Tasks that wait for room, at most one for each [`RoomWait`].
    tasks: Slab<task::Waker>,
    /// There was room for a few requests, and no waiting submitter was notified.
    has_held_back: bool,
}

/// A future that waits for room. Each registration wakes it at most once; dropping it removes the
/// registration.
pub struct RoomWait {
    submissions: Arc<Submissions>,
    /// Its place in [`Submitted::tasks`].
    place: Option<Key>,
}

/// Most submitted requests that wait for admission. [`Handle::submit`] waits while there are so many.
pub const SUBMITTED_MAX: usize = 4096;

/// Default of [`Submitted::ahead_max`]: enough for the hosts of a broad crawl, in a few megabytes.
pub const AHEAD: usize = 10_000;

/// Submitters are notified of room for so many requests at once, or for a sixteenth of what may be ahead; of less with the
/// next tick. Woken for each request, two threads would spend most of their time waking each other.
const NOTIFIED_MAX: usize = 64;

impl Submissions {
    /// None yet; at most `ahead_max` beyond what is being fetched, at least one.
    pub fn new(ahead_max: usize) -> Self {
        Submissions {
            submitted: Mutex::new(Submitted {
                waiting: VecDeque::new(),
                numbered: 0,
                unfetched: 0,
                ahead_max: ahead_max.max(1),
                closed: false,
                threads: 0,
                tasks: Slab::default(),
                has_held_back: false,
            }),
            room: Condvar::new(),
        }
    }

    /// Locks the submissions, also after a panic, which left them consistent.
    pub fn lock(&self) -> MutexGuard<'_, Submitted> {
        (self.submitted.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the submissions, once there is room or the crawl is over.
    pub fn when_there_is_room(&self, limit: Limit) -> MutexGuard<'_, Submitted> {
        let mut submitted = self.lock();
        while !submitted.closed && submitted.is_full(limit) {
            submitted.threads += 1;
            submitted = (self.room.wait(submitted)).unwrap_or_else(PoisonError::into_inner);
            submitted.threads -= 1;
        }
        submitted
    }

    /// Wakes all threads and tasks that wait: called when there is room, or the crawl is over.
    pub fn notify(&self, mut submitted: MutexGuard<'_, Submitted>) {
        submitted.has_held_back = false;
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

    /// So many requests are unfetched at the end of a turn: notifies those who wait, if there is room for many again, or
    /// for any with a tick.
    pub fn set_unfetched(&self, unfetched: usize, is_tick: bool) {
        let mut submitted = self.lock();
        submitted.unfetched = unfetched;
        let room = submitted.room_ahead();
        let is_awaited = submitted.threads > 0 || !submitted.tasks.is_empty();
        let many = (submitted.ahead_max / 16).clamp(1, NOTIFIED_MAX);
        if is_awaited && (room >= many || is_tick && room > 0) {
            self.notify(submitted);
        } else {
            submitted.has_held_back = is_awaited && room > 0;
        }
    }

    /// Number of futures that wait for room.
    #[cfg(test)]
    pub fn tasks(&self) -> usize {
        self.lock().tasks.len()
    }
}

impl Submitted {
    /// Requests that may still be submitted ahead of what is being fetched.
    fn room_ahead(&self) -> usize {
        (self.ahead_max).saturating_sub(self.numbered + self.unfetched)
    }

    /// Whether nothing more is accepted under this limit.
    pub fn is_full(&self, limit: Limit) -> bool {
        self.waiting.len() >= SUBMITTED_MAX || limit == Limit::Ahead && self.room_ahead() == 0
    }

    /// Whether there is room, and no waiting submitter was notified.
    pub fn has_held_back(&self) -> bool {
        self.has_held_back
    }

    /// Adds one. Returns whether it is the only one: the caller then wakes the crawl.
    pub fn add(&mut self, waiting: Waiting) -> bool {
        self.numbered += usize::from(matches!(waiting, Waiting::Numbered(_)));
        self.waiting.push_back(waiting);
        self.waiting.len() == 1
    }

    /// Takes the first. One with a number is unfetched from now on.
    pub fn take(&mut self) -> Option<Waiting> {
        let first = self.waiting.pop_front()?;
        let is_numbered = usize::from(matches!(first, Waiting::Numbered(_)));
        self.numbered -= is_numbered;
        self.unfetched += is_numbered;
        Some(first)
    }

    /// Removes those with numbers that `is_unwanted` names: they end without being taken.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let mut out = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Numbered(job) if is_unwanted(&job) => out.push(job),
                wanted => self.waiting.push_back(wanted),
            }
        }
        self.numbered -= out.len();
        out
    }

    /// The lowest number of those that have one.
    pub fn lowest_number(&self) -> Option<u64> {
        let numbers = self.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Numbered(job) => Some(job.id),
            Waiting::Seed(..) | Waiting::SeedsEnd => None,
        });
        numbers.min()
    }

    /// Number of those that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl RoomWait {
    /// A wait that has not begun.
    pub fn new(submissions: &Arc<Submissions>) -> Self {
        RoomWait {
            submissions: Arc::clone(submissions),
            place: None,
        }
    }

    /// Registers this task to be woken, if there is no room and the crawl is not over. Returns whether it
    /// waits.
    pub fn poll_wait(&mut self, task: &task::Waker) -> bool {
        let mut submitted = self.submissions.lock();
        if submitted.closed || !submitted.is_full(Limit::Ahead) {
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

impl Drop for RoomWait {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let task = self.submissions.lock().tasks.remove(place);
            drop(task);
        }
    }
}
