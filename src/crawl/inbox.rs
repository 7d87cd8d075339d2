//! What comes from elsewhere: requests submitted, scopes answered and the word to stop, from any
//! thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::mapping::Mapped;
use crate::frontier::request::Request;
use crate::io::Waker;
use crate::throttle::map::Later;

/// Submits requests to a crawl and stops it, from any thread.
///
/// While a handle lives the crawl does not end for lack of work; drop the last one to say that no
/// more requests come.
#[derive(Debug)]
pub struct Handle {
    stopper: Stopper,
}

/// Stops a crawl, from any thread or a signal's. It does not keep the crawl going.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
    waker: Waker,
}

/// A request that came too late: the crawl is over.
#[derive(Debug, thiserror::Error)]
#[error("the crawl is over; {} was not taken", .0.url)]
pub struct Closed(pub Box<Request>);

/// Why [`Handle::try_submit`] did not take a request.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// As many wait as may; try again later.
    #[error("the crawl has no room now for {}", .0.url)]
    Full(Box<Request>),
    /// The crawl is over.
    #[error("the crawl is over; {} was not taken", .0.url)]
    Closed(Box<Request>),
}

#[derive(Debug, Default)]
struct Shared {
    handles: AtomicUsize,
    stop: AtomicU8,
    bad_seeds: AtomicU64,
    submitted: Mutex<Submitted>,
    /// No more than the crawl has asked for and not taken.
    mapped: Mutex<VecDeque<Mapped>>,
    /// Somebody may go on: there is room, or never will be.
    room: Condvar,
}

#[derive(Debug, Default)]
struct Submitted {
    waiting: VecDeque<Request>,
    closed: bool,
}

impl Shared {
    fn submitted(&self) -> MutexGuard<'_, Submitted> {
        // Whoever panicked while holding it left a queue that is whole.
        self.submitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn mapped(&self) -> MutexGuard<'_, VecDeque<Mapped>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests submitted and not yet taken in. [`Handle::submit`] waits while there are so many.
const SUBMITTED_MAX: usize = 4096;

impl Handle {
    /// Submits a request; waits while the crawl has no room, so that memory stays bounded.
    ///
    /// Not to be called on the crawl's own thread, where it could wait for ever: use
    /// `Crawler::submit` there.
    pub fn submit(&self, request: Request) -> Result<(), Closed> {
        let shared = &self.stopper.shared;
        let full = |submitted: &mut Submitted| {
            !submitted.closed && submitted.waiting.len() >= SUBMITTED_MAX
        };
        let submitted = shared
            .room
            .wait_while(shared.submitted(), full)
            .unwrap_or_else(PoisonError::into_inner);
        if submitted.closed {
            return Err(Closed(Box::new(request)));
        }
        self.add(submitted, request);
        Ok(())
    }

    /// Submits a request if there is room for it now.
    pub fn try_submit(&self, request: Request) -> Result<(), NotTaken> {
        let submitted = self.stopper.shared.submitted();
        if submitted.closed {
            return Err(NotTaken::Closed(Box::new(request)));
        }
        if submitted.waiting.len() >= SUBMITTED_MAX {
            return Err(NotTaken::Full(Box::new(request)));
        }
        self.add(submitted, request);
        Ok(())
    }

    /// A crawl that left requests waiting comes back for them unasked; one that found none sleeps.
    fn add(&self, mut submitted: MutexGuard<'_, Submitted>, request: Request) {
        let asleep = submitted.waiting.is_empty();
        submitted.waiting.push_back(request);
        drop(submitted);
        if asleep {
            self.stopper.waker.wake();
        }
    }

    /// Counts lines that were to be requests and are none, for the statistics.
    pub fn count_bad_seeds(&self, count: u64) {
        let shared = &self.stopper.shared;
        shared.bad_seeds.fetch_add(count, Ordering::SeqCst);
    }

    /// What stops the crawl without keeping it going.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.stopper.shared.handles.fetch_add(1, Ordering::SeqCst);
        Handle {
            stopper: self.stopper.clone(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stopper.shared.handles.fetch_sub(1, Ordering::SeqCst);
        self.stopper.waker.wake();
    }
}

impl Stopper {
    /// Ends the crawl in good order: what is in flight is finished within the grace time.
    pub fn stop(&self) {
        self.shared.stop.fetch_max(1, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Ends the crawl at once: what is in flight is cancelled. Files stay valid.
    pub fn stop_now(&self) {
        self.shared.stop.fetch_max(2, Ordering::SeqCst);
        self.waker.wake();
    }
}

/// The crawl's end of it.
#[derive(Debug)]
pub(super) struct Inbox {
    stopper: Stopper,
}

/// The word to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub at_once: bool,
}

impl Inbox {
    pub fn new(waker: Waker) -> Self {
        Inbox {
            stopper: Stopper {
                shared: Arc::default(),
                waker,
            },
        }
    }

    pub fn handle(&self) -> Handle {
        self.stopper.shared.handles.fetch_add(1, Ordering::SeqCst);
        Handle {
            stopper: self.stopper.clone(),
        }
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    pub fn take(&mut self) -> Option<Request> {
        let mut submitted = self.stopper.shared.submitted();
        let request = submitted.waiting.pop_front()?;
        // Who waits for room is told when there is room for many: told of every single place, two
        // threads would do little but wake each other.
        if submitted.waiting.len() == SUBMITTED_MAX / 2 {
            self.stopper.shared.room.notify_all();
        }
        Some(request)
    }

    /// What tells the crawl the scopes of a request, once they are known.
    pub fn later(&self, number: u64, part: usize) -> Later {
        let Stopper { shared, waker } = self.stopper();
        Later::new(move |scopes| {
            let mut mapped = shared.mapped();
            // As with requests: one that is asleep is woken, one that left some comes back.
            let asleep = mapped.is_empty();
            mapped.push_back(Mapped {
                number,
                part,
                scopes,
            });
            drop(mapped);
            if asleep {
                waker.wake();
            }
        })
    }

    pub fn take_mapped(&mut self) -> Option<Mapped> {
        self.stopper.shared.mapped().pop_front()
    }

    /// The crawl is over: nothing more is taken. What was taken until now can still be had.
    pub fn close(&mut self) {
        self.stopper.shared.submitted().closed = true;
        self.stopper.shared.room.notify_all();
    }

    /// Whether no handle lives any more. Requests that were submitted before may still be there,
    /// so this is asked after the inbox was found empty.
    pub fn is_closed(&self) -> bool {
        self.stopper.shared.handles.load(Ordering::SeqCst) == 0
    }

    /// Takes the count of lines that were no requests.
    pub fn take_bad_seeds(&self) -> u64 {
        self.stopper.shared.bad_seeds.swap(0, Ordering::SeqCst)
    }

    pub fn stopped(&self) -> Option<Stop> {
        match self.stopper.shared.stop.load(Ordering::SeqCst) {
            0 => None,
            stop => Some(Stop { at_once: stop > 1 }),
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn inbox() -> (Inbox, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let waker = Waker::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        (Inbox::new(waker), wakes)
    }

    #[test]
    fn a_full_inbox_takes_nothing_until_there_is_room() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for number in 0..SUBMITTED_MAX {
            let request = Request::get("http://a.test/").tag(number as u64);
            handle.try_submit(request).expect("there is room");
        }
        let more = handle.try_submit(Request::get("http://a.test/more"));
        assert!(matches!(more, Err(NotTaken::Full(request)) if request.url.ends_with("more")));
        assert_eq!(inbox.take().expect("the first").tag, 0);
        handle
            .try_submit(Request::get("http://a.test/more"))
            .expect("there is room again");
    }

    #[test]
    fn whoever_waits_for_room_goes_on_once_half_is_taken() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        let total = SUBMITTED_MAX * 3;
        let submits = thread::spawn(move || {
            for _ in 0..total {
                handle
                    .submit(Request::get("http://a.test/"))
                    .expect("the crawl goes on");
            }
        });
        let mut taken = 0;
        while taken < total {
            match inbox.take() {
                Some(_) => taken += 1,
                None => thread::yield_now(),
            }
        }
        submits.join().expect("it does not wait for ever");
    }

    #[test]
    fn whoever_waits_for_room_hears_that_the_crawl_is_over() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for _ in 0..SUBMITTED_MAX {
            handle
                .try_submit(Request::get("http://a.test/"))
                .expect("there is room");
        }
        let (told, hears) = channel();
        let waits = thread::spawn(move || {
            told.send(()).expect("the test listens");
            handle.submit(Request::get("http://a.test/late"))
        });
        hears.recv().expect("it is about to wait");
        thread::sleep(Duration::from_millis(20));
        inbox.close();
        let refused = waits.join().expect("it does not wait for ever");
        assert!(matches!(refused, Err(Closed(request)) if request.url.ends_with("late")));
        assert!(inbox.take().is_some(), "what was taken is still there");
    }

    #[test]
    fn f67_a_crawl_is_woken_for_the_first_answer_only() {
        let (mut inbox, wakes) = inbox();
        inbox.later(1, 0).answer("a");
        drop(inbox.later(2, 0));
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        let numbers = std::iter::from_fn(|| inbox.take_mapped()).map(|mapped| mapped.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
        inbox.later(3, 0).answer("a");
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn a_crawl_is_woken_for_the_first_request_only() {
        let (mut inbox, wakes) = inbox();
        let handle = inbox.handle();
        let submit = || {
            handle
                .try_submit(Request::get("http://a.test/"))
                .expect("there is room");
        };
        submit();
        submit();
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        while inbox.take().is_some() {}
        submit();
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
    }
}
