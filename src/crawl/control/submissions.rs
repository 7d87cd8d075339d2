//! Submitted requests that the crawl has not taken yet, and the room that is left for more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task;
use std::thread::{self, Thread};

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
    /// Nothing: the crawl has not begun, and the thread that is to begin it submits.
    None,
}

/// Submitted requests, and the submitters that wait for room.
pub struct Submissions {
    submitted: Mutex<Submitted>,
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
    /// Nothing more is accepted: the crawl is over, or ends.
    closed: bool,
    /// Submitters that wait under [`Limit::Ahead`], at most one for each [`RoomWait`], by when they began to wait.
    ahead: BTreeMap<u64, task::Waker>,
    /// The same under [`Limit::Inbox`].
    inbox: BTreeMap<u64, task::Waker>,
    /// Number of submitters that have begun to wait so far.
    begun: u64,
    /// There was room for a few requests, and no waiting submitter was woken.
    has_held_back: bool,
}

/// A wait of a thread or a task for room. Each registration wakes it at most once. Dropping it removes the
/// registration, or passes a wake that it did not use on to the next waiter.
pub struct RoomWait {
    submissions: Arc<Submissions>,
    limit: Limit,
    /// Its place in the order of the waiters, since it began to: it keeps it until it has submitted.
    place: Option<u64>,
}

/// Most submitted requests that wait for admission. [`Handle::submit`] waits while there are so many.
pub const SUBMITTED_MAX: usize = 4096;

/// Default of [`Submitted::ahead_max`]: enough for the hosts of a broad crawl, in a few megabytes.
pub const AHEAD: usize = 10_000;

/// Submitters are woken for room for so many requests at once, or for a sixteenth of what may be ahead; for less with the
/// next tick. Woken for each request, two threads would spend most of their time waking each other.
const WOKEN_MIN: usize = 64;

/// Most submitters that are woken at once, on the crawl's thread, some 100 ns each.
const WOKEN_MAX: usize = 256;

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
                ahead: BTreeMap::new(),
                inbox: BTreeMap::new(),
                begun: 0,
                has_held_back: false,
            }),
        }
    }

    /// Locks the submissions, also after a panic, which left them consistent.
    pub fn lock(&self) -> MutexGuard<'_, Submitted> {
        (self.submitted.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the submissions, once there is room or the crawl takes no more.
    pub fn when_there_is_room(self: &Arc<Self>, limit: Limit) -> MutexGuard<'_, Submitted> {
        let submitted = self.lock();
        if submitted.closed || !submitted.is_full(limit) {
            return submitted;
        }
        drop(submitted);
        let mut wait = RoomWait::new(self, limit);
        let task = Arc::new(Unpark(thread::current())).into();
        loop {
            while wait.poll_wait(&task) {
                thread::park();
            }
            let mut submitted = self.lock();
            if submitted.closed || !submitted.is_full(limit) {
                wait.remove_from(&mut submitted);
                return submitted;
            }
        }
    }

    /// Takes the first, and wakes submitters once half of the inbox is free.
    pub fn take(&self) -> Option<Waiting> {
        let mut submitted = self.lock();
        let first = submitted.take()?;
        let left = submitted.waiting.len();
        if left == SUBMITTED_MAX / 2 || left < SUBMITTED_MAX / 2 && !submitted.inbox.is_empty() {
            self.wake(submitted);
        }
        Some(first)
    }

    /// Wakes as many waiting submitters as there is room for, those first that have waited longest.
    pub fn wake(&self, mut submitted: MutexGuard<'_, Submitted>) {
        if submitted.closed {
            return;
        }
        let woken = submitted.take_woken();
        drop(submitted);
        woken.into_iter().for_each(task::Waker::wake);
    }

    /// Accepts nothing more, and wakes all waiters. What was accepted can still be taken.
    pub fn close(&self) {
        let mut submitted = self.lock();
        submitted.closed = true;
        let ahead = std::mem::take(&mut submitted.ahead);
        let inbox = std::mem::take(&mut submitted.inbox);
        drop(submitted);
        for waker in ahead.into_values().chain(inbox.into_values()) {
            waker.wake();
        }
    }

    /// The same if nothing waits to be taken. Returns whether it is closed.
    pub fn close_if_empty(&self) -> bool {
        let mut submitted = self.lock();
        // Submissions check this flag under the same lock, so none is accepted after the last turn took the rest.
        submitted.closed |= submitted.waiting.is_empty();
        let is_closed = submitted.closed;
        drop(submitted);
        if is_closed {
            self.close();
        }
        is_closed
    }

    /// So many requests are unfetched at the end of a turn: wakes waiters, if there is room for many again, or
    /// for any with a tick.
    pub fn set_unfetched(&self, unfetched: usize, is_tick: bool) {
        let mut submitted = self.lock();
        submitted.unfetched = unfetched;
        let room = submitted.room(Limit::Ahead);
        let is_awaited = !submitted.ahead.is_empty();
        let many = (submitted.ahead_max / 16).clamp(1, WOKEN_MIN);
        if is_awaited && (room >= many || is_tick && room > 0) {
            self.wake(submitted);
        } else {
            submitted.has_held_back = is_awaited && room > 0;
        }
    }

    /// Replaces the most requests beyond what is being fetched, at least one.
    pub fn set_ahead_max(&self, requests: usize) {
        let mut submitted = self.lock();
        submitted.ahead_max = requests.max(1);
        self.wake(submitted);
    }

    /// Number of threads and tasks that wait for room.
    #[cfg(test)]
    pub fn waits(&self) -> usize {
        let submitted = self.lock();
        submitted.ahead.len() + submitted.inbox.len()
    }
}

impl Submitted {
    /// Requests that may still be submitted ahead of what is being fetched.
    fn room_ahead(&self) -> usize {
        (self.ahead_max).saturating_sub(self.numbered + self.unfetched)
    }

    /// Requests that may still be submitted under this limit.
    fn room(&self, limit: Limit) -> usize {
        let inbox = SUBMITTED_MAX.saturating_sub(self.waiting.len());
        match limit {
            Limit::Ahead => inbox.min(self.room_ahead()),
            Limit::Inbox => inbox,
            Limit::None => usize::MAX,
        }
    }

    /// Whether nothing more is accepted under this limit.
    pub fn is_full(&self, limit: Limit) -> bool {
        self.room(limit) == 0
    }

    /// Whether nothing more is accepted at all.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The wakers of the submitters that are to be woken.
    fn take_woken(&mut self) -> Vec<task::Waker> {
        let mut woken = Vec::new();
        for limit in [Limit::Inbox, Limit::Ahead] {
            // Of seeds there are many in a row.
            let is_early = limit == Limit::Inbox && self.waiting.len() > SUBMITTED_MAX / 2;
            let room = if is_early { 0 } else { self.room(limit) };
            let room = room.min(WOKEN_MAX);
            let waits = self.waits_mut(limit);
            let first = std::iter::from_fn(|| waits.pop_first());
            woken.extend(first.take(room).map(|(_, waker)| waker));
        }
        // With the next tick, if there is room for them then: of those that are woken some may submit nothing.
        self.has_held_back = !self.ahead.is_empty();
        woken
    }

    fn waits_mut(&mut self, limit: Limit) -> &mut BTreeMap<u64, task::Waker> {
        match limit {
            Limit::Inbox => &mut self.inbox,
            Limit::Ahead | Limit::None => &mut self.ahead,
        }
    }

    /// Whether there is room, and no waiting submitter was woken.
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
    fn take(&mut self) -> Option<Waiting> {
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

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl RoomWait {
    /// A wait that has not begun.
    pub fn new(submissions: &Arc<Submissions>, limit: Limit) -> Self {
        RoomWait {
            submissions: Arc::clone(submissions),
            limit,
            place: None,
        }
    }

    /// Registers this task to be woken, if there is no room and the crawl is not over. Returns whether it
    /// waits.
    pub fn poll_wait(&mut self, task: &task::Waker) -> bool {
        let mut submitted = self.submissions.lock();
        if submitted.closed || !submitted.is_full(self.limit) {
            return false;
        }
        let place = *self.place.get_or_insert(submitted.begun);
        submitted.begun += u64::from(place == submitted.begun);
        let waits = submitted.waits_mut(self.limit);
        let old = match waits.get(&place) {
            Some(old) if old.will_wake(task) => None,
            _ => waits.insert(place, task.clone()),
        };
        drop(submitted);
        // Last, since it may own a task with another such future.
        drop(old);
        true
    }

    /// It has submitted: the room that it was woken for is used.
    pub fn end(&mut self) {
        if self.place.is_some() {
            let submissions = Arc::clone(&self.submissions);
            let mut submitted = submissions.lock();
            let task = self.remove_from(&mut submitted);
            drop(submitted);
            drop(task);
        }
    }

    /// It does not submit: if it was woken, there is room for another.
    pub fn give_up(&mut self) {
        if self.place.is_some() {
            let submissions = Arc::clone(&self.submissions);
            let mut submitted = submissions.lock();
            match self.remove_from(&mut submitted) {
                Some(task) => {
                    drop(submitted);
                    drop(task);
                }
                None => submissions.wake(submitted),
            }
        }
    }

    /// Removes its registration; `None` if it was woken since.
    fn remove_from(&mut self, submitted: &mut Submitted) -> Option<task::Waker> {
        submitted.waits_mut(self.limit).remove(&self.place.take()?)
    }
}

impl Drop for RoomWait {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// A thread that waits.
struct Unpark(Thread);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs its number when it is woken.
    struct Logs(usize, Arc<Mutex<Vec<usize>>>);

    impl task::Wake for Logs {
        fn wake(self: Arc<Self>) {
            (self.1.lock()).expect("no panic").push(self.0);
        }
    }

    #[test]
    fn as_many_are_woken_as_there_is_room_for_and_the_oldest_first() {
        let submissions = Arc::new(Submissions::new(10));
        let woken = Arc::<Mutex<Vec<usize>>>::default();
        let wait = |number| task::Waker::from(Arc::new(Logs(number, Arc::clone(&woken))));
        let take = || std::mem::take(&mut *woken.lock().expect("no panic"));
        submissions.set_unfetched(10, false);
        let mut waits: Vec<Option<RoomWait>> = (0..1000)
            .map(|number| {
                let mut room = RoomWait::new(&submissions, Limit::Ahead);
                assert!(room.poll_wait(&wait(number)));
                Some(room)
            })
            .collect();
        submissions.set_unfetched(7, false);
        assert_eq!(take(), [0, 1, 2]);
        // It submits nothing.
        waits[1] = None;
        assert_eq!(take(), [3, 4, 5], "there is room for three");
        // Others took the room: it keeps its place.
        submissions.set_unfetched(10, false);
        assert!(
            waits[2]
                .as_mut()
                .is_some_and(|room| room.poll_wait(&wait(2)))
        );
        submissions.set_unfetched(8, false);
        assert_eq!(take(), [2, 6]);
        // It was not woken, so no other waiter is woken in its place.
        waits[500] = None;
        assert!(take().is_empty());
        submissions.close();
        assert_eq!(take().len(), 1000 - 7 - 1, "all waiters");
    }
}
