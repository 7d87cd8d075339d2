//! The disk: a thread that does what it is handed, in order, and compresses on the way.
//!
//! Writing to a file may block for seconds, so it is not the crawl's thread that does it. Jobs go
//! in through a channel; what became of them comes back through a list and a wake-up.

#![expect(unsafe_code, reason = "signal masks are set through libc alone")]

mod files;
mod room;

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use flate2::{Compress, Compression, FlushCompress, Status};
use rustix::event::{EventfdFlags, eventfd};

use super::Event;
use crate::base::disk::{DiskDone, DiskJob, Written};
use crate::base::machine;
use files::Files;
pub(super) use room::PAUSE;
use room::Room;

/// The disk thread's other end. Dropped, it waits until all jobs are done, or fail for want of room.
#[derive(Debug)]
pub(super) struct Disk {
    /// `None` only while being dropped, or when there is no thread to send to.
    jobs: Option<Sender<DiskJob>>,
    done: Arc<Mutex<Vec<Event>>>,
    wake: Wake,
    room: Arc<Room>,
    thread: Option<JoinHandle<()>>,
    /// Readable once standard output is given up; `None` where the system has no such thing for us.
    given_up: Option<Arc<OwnedFd>>,
}

/// Tells the loop that there is something to take.
#[derive(Clone)]
struct Wake(Arc<dyn Fn() + Send + Sync>);

impl Disk {
    /// Starts the thread. `wake` is called when there is something to take after there was nothing.
    pub(super) fn start(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let wake = Wake(Arc::new(wake));
        let done = Arc::new(Mutex::new(Vec::new()));
        let (jobs, inbox) = channel();
        let given_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let given_up = given_up.ok().map(Arc::new);
        let room = Arc::new(Room::default());
        let thread = {
            let (done, wake, room) = (Arc::clone(&done), wake.clone(), Arc::clone(&room));
            let files = Files::new(given_up.clone());
            thread::Builder::new()
                .name("disk".into())
                .spawn(move || work(files, &inbox, &done, &wake, &room))
        };
        let thread = thread
            .inspect_err(|error| log::error!("the disk's thread cannot be started: {error}"))
            .ok();
        Disk {
            jobs: thread.is_some().then_some(jobs),
            done,
            wake,
            room,
            thread,
            given_up,
        }
    }

    /// Nobody is waited for any more who reads standard output, and no room on a full disk.
    pub(super) fn give_up_waiting(&self) {
        self.room.give_up();
        if let Some(given_up) = &self.given_up {
            // It has room for 2⁶⁴ of them.
            let _ = rustix::io::write(given_up, &1_u64.to_ne_bytes());
        }
    }

    pub(super) fn push(&mut self, job: DiskJob) {
        let refused = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|unsent| unsent.0),
            None => Some(job),
        };
        if let Some(job) = refused {
            let gone = io::Error::other("the disk's thread is not there");
            let outcome = outcome_of(job, Err(gone));
            report(&self.done, &self.wake, Event::Disk(outcome));
        }
    }

    /// Appends what became of jobs since it was last asked.
    pub(super) fn take_done(&mut self, events: &mut Vec<Event>) {
        events.append(&mut lock(&self.done));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.jobs = None;
        self.room.give_up();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the disk's thread panicked; what it was handed may not be written");
        }
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wake")
    }
}

/// Makes gzip members, one after another, in memory of its own.
#[derive(Debug)]
pub(super) struct Gzip {
    state: Compress,
    member: Vec<u8>,
}

impl Default for Gzip {
    fn default() -> Self {
        Gzip {
            state: Compress::new_gzip(Compression::new(LEVEL), WINDOW_BITS),
            member: Vec::new(),
        }
    }
}

impl Gzip {
    /// The bytes as one gzip member.
    pub(super) fn member(&mut self, bytes: &[u8]) -> &[u8] {
        self.state.reset();
        self.member.clear();
        self.member.shrink_to(MEMBER_KEPT);
        let mut status = Status::Ok;
        while status != Status::StreamEnd {
            self.member.reserve(bytes.len() / 2 + 1024);
            let rest = &bytes[self.state.total_in() as usize..];
            status = self
                .state
                .compress_vec(rest, &mut self.member, FlushCompress::Finish)
                .expect("compressing with room for output cannot fail");
        }
        &self.member
    }
}

fn work(
    mut files: Files,
    inbox: &Receiver<DiskJob>,
    done: &Mutex<Vec<Event>>,
    wake: &Wake,
    room: &Room,
) {
    block_signals();
    while let Ok(job) = inbox.recv() {
        let silent = is_silent(&job);
        let result = perform(&mut files, &job, room, |event| report(done, wake, event));
        if result.is_err() || !silent {
            report(done, wake, Event::Disk(outcome_of(job, result)));
        }
    }
}

/// Does a job, and again while there is no room for it.
fn perform(
    files: &mut Files,
    job: &DiskJob,
    room: &Room,
    mut report: impl FnMut(Event),
) -> io::Result<Written> {
    let mut was_full = false;
    loop {
        match files.perform(job) {
            Err(error) if waits_for_room(job, &error) && !room.is_given_up() => {
                if !mem::replace(&mut was_full, true) {
                    report(Event::DiskFull(error));
                }
                room.wait();
            }
            result => {
                // Another failure than that there is no room.
                let is_full = |error| waits_for_room(job, error);
                if was_full && !result.as_ref().is_err_and(is_full) {
                    report(Event::DiskRoom);
                }
                return result;
            }
        }
    }
}

/// Whether a job that failed is to be tried again once there is room. What could not be synced is not:
/// the kernel says so once, and then knows nothing of it any more.
pub(super) fn waits_for_room(job: &DiskJob, error: &io::Error) -> bool {
    machine::is_full(error) && !matches!(job, DiskJob::Sync { .. })
}

/// Whether a job reports only failure.
pub(super) fn is_silent(job: &DiskJob) -> bool {
    match job {
        DiskJob::Create { .. } | DiskJob::Stdout { .. } | DiskJob::Finish { .. } => true,
        DiskJob::Append { .. } | DiskJob::Sync { .. } | DiskJob::Replace { .. } => false,
    }
}

/// What became of a job, as it is told.
pub(super) fn outcome_of(job: DiskJob, result: io::Result<Written>) -> DiskDone {
    let held = job.held();
    let mut unwritten = Vec::new();
    let (file, tag) = match job {
        DiskJob::Create { file, .. } | DiskJob::Stdout { file } | DiskJob::Finish { file, .. } => {
            (Some(file), 0)
        }
        DiskJob::Append {
            file, bytes, tag, ..
        } => {
            if result.is_err() {
                unwritten = bytes;
            }
            (Some(file), tag)
        }
        DiskJob::Sync { file, tag } => (Some(file), tag),
        DiskJob::Replace { tag, .. } => (None, tag),
    };
    DiskDone {
        tag,
        file,
        held,
        result,
        unwritten,
    }
}

fn report(done: &Mutex<Vec<Event>>, wake: &Wake, news: Event) {
    let mut done = lock(done);
    let first = done.is_empty();
    done.push(news);
    mem::drop(done);
    if first {
        (wake.0)();
    }
}

/// A thread that panicked leaves the list as good as it was.
fn lock(done: &Mutex<Vec<Event>>) -> MutexGuard<'_, Vec<Event>> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps signals for the host's threads; above all, writing to a closed pipe is an error here and
/// not the end of the process.
fn block_signals() {
    // SAFETY: a zeroed set is filled before it is read, and only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// Where more effort stops paying in size.
const LEVEL: u32 = 6;

/// The largest window that gzip has: 32 KiB.
const WINDOW_BITS: u8 = 15;

/// Memory that the compressor keeps from one member to the next.
const MEMBER_KEPT: usize = 1024 * 1024;

/// The content of one gzip member.
#[cfg(test)]
pub(crate) fn gunzip(member: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    io::Read::read_to_end(&mut flate2::read::GzDecoder::new(member), &mut content)
        .expect("a whole gzip member");
    content
}
