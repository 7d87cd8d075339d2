//! What comes from elsewhere: requests submitted and the word to stop, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::frontier::request::Request;
use crate::io::Waker;

/// Submits requests to a crawl and stops it, from any thread.
///
/// While a handle lives the crawl does not end for lack of work; drop the last one to say that no
/// more requests come.
#[derive(Debug)]
pub struct Handle {
    sender: SyncSender<Request>,
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
}

/// Requests submitted and not yet taken in. [`Handle::submit`] waits while there are so many.
const SUBMITTED_MAX: usize = 4096;

impl Handle {
    /// Submits a request; waits while the crawl has no room, so that memory stays bounded.
    ///
    /// Not to be called on the crawl's own thread, where it could wait for ever: use
    /// `Crawler::submit` there.
    pub fn submit(&self, request: Request) -> Result<(), Closed> {
        self.sender
            .send(request)
            .map_err(|refused| Closed(Box::new(refused.0)))?;
        self.stopper.waker.wake();
        Ok(())
    }

    /// Submits a request if there is room for it now.
    pub fn try_submit(&self, request: Request) -> Result<(), NotTaken> {
        self.sender
            .try_send(request)
            .map_err(|refused| match refused {
                TrySendError::Full(request) => NotTaken::Full(Box::new(request)),
                TrySendError::Disconnected(request) => NotTaken::Closed(Box::new(request)),
            })?;
        self.stopper.waker.wake();
        Ok(())
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
            sender: self.sender.clone(),
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
    sender: SyncSender<Request>,
    receiver: Receiver<Request>,
    stopper: Stopper,
}

/// The word to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub at_once: bool,
}

impl Inbox {
    pub fn new(waker: Waker) -> Self {
        let (sender, receiver) = sync_channel(SUBMITTED_MAX);
        Inbox {
            sender,
            receiver,
            stopper: Stopper {
                shared: Arc::default(),
                waker,
            },
        }
    }

    pub fn handle(&self) -> Handle {
        self.stopper.shared.handles.fetch_add(1, Ordering::SeqCst);
        Handle {
            sender: self.sender.clone(),
            stopper: self.stopper.clone(),
        }
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    pub fn take(&mut self) -> Option<Request> {
        self.receiver.try_recv().ok()
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
