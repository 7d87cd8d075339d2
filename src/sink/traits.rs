//! The contract between a crawl and its sink.

use std::any::Any;
use std::io;
use std::path::PathBuf;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::gzip::Gzip;
use crate::base::machine;
use crate::base::sentence::debug_as_sentence;
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::page::Page;
use crate::sink::reply::{BodyMode, Flow, Reply};
use crate::throttle::decision::Decision;

/// Receives every finished attempt, on the crawl's own thread.
///
/// Each attempt is passed to [`Sink::put`] once, when it has ended. A sink that wants a body in pieces, or
/// not at all, returns that mode from [`Sink::on_head`] and receives the pieces in [`Sink::on_body`];
/// `put` then marks the end. A function of a [`Page`] is a sink.
///
/// Nothing is sent while one of its methods runs. A slow sink applies backpressure with
/// [`Sink::is_ready`]: while it returns `false` the crawl reads no more from the network, so that memory
/// stays bounded. A sink that writes files through the crawl's own disk thread is a [`DiskSink`].
///
/// # Commits
///
/// Results become final in *epochs*, numbered from 1. An epoch has the pages that were put since the one
/// before it, and is committed in two phases:
///
/// 1. [`Sink::prepare`] ends the epoch: the sink begins to make its pages durable. Pages that are put from
///    now on belong to the next epoch.
/// 2. [`Sink::is_prepared`] is called in each turn until it returns `true`: every page of the epoch
///    survives a crash of the machine.
/// 3. The crawl records the epoch in its state, together with what is still to be fetched.
/// 4. [`Sink::committed`]: the pages of the epoch are never fetched again.
///
/// One epoch is committed at a time: neither `prepare` nor [`Sink::finish`] is called between steps 1 and
/// 4. At the end of a crawl `finish` comes first, then these steps for the last epoch, and the crawl is
/// over once [`Sink::is_done`] returns `true` again.
///
/// If a write fails ([`Sink::failure`]), also between steps 1 and 4, nothing is committed any more: the
/// crawl calls `finish`, and ends.
///
/// When a crawl is resumed from its state, [`Sink::resumed`] comes before anything else, with the last
/// epoch of step 3. The sink deletes everything newer: those pages are fetched again. The crash may have
/// been between steps 3 and 4, so this epoch is final although `committed` was not called for it.
///
/// A crawl without a state on disk has one epoch, which ends with the crawl, and never calls `resumed`.
pub trait Sink: Send {
    /// Called with the final head of a page's reply; returns how the body is wanted. Not called for
    /// robots.txt and sitemaps, which the crawl reads itself.
    fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
        BodyMode::Keep
    }

    /// Called with a piece of a body in mode [`BodyMode::Take`], of the attempt `id`: 1 byte to 64
    /// KiB. Pieces of one body arrive in order, and bodies take turns: after one mebibyte, or
    /// everything that was read at once, it is the turn of others.
    fn on_body(&mut self, _id: u64, _piece: &[u8]) -> Flow {
        Flow::Ready
    }

    /// Takes a finished attempt, successful or not. Called once for each, robots.txt, retries and
    /// redirects included ([`Page::is_final`] marks the last of a request), also after
    /// [`Sink::is_ready`] returned `false`, and never after [`Sink::finish`].
    ///
    /// Keep the page, or any part of it, with `std::mem::take`. The memory of the rest is used again
    /// for later pages. It must not block.
    fn put(&mut self, page: &mut Page);

    /// Returns whether the sink accepts more now. Attempts in progress are still passed to `put`
    /// after it returns `false`. It is called in each turn, and every few milliseconds while it
    /// returns `false`, so the crawl need not be woken.
    ///
    /// While it returns `false` nothing is sent and little is read; if it never returns `true`
    /// again, the crawl waits until it is stopped. If requests wait for it for ten seconds, a
    /// warning is logged, once per period.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns whether the sink uses our own address of each connection ([`Page::local`]), which
    /// costs a system call; if not, that field is `None`.
    fn reads_local(&self) -> bool {
        true
    }

    /// Called with each decision about the pace of a scope, and its time. Only with
    /// `AUTOTHROTTLE_DEBUG`, which records a decision for nearly every answer. A decision caused by
    /// an answer is passed on when its exchange has ended, with the size of its body.
    fn decision(&mut self, _decision: &Decision, _at: Wall) {}

    /// Called about every second: writes out what has accumulated.
    fn flush(&mut self) {}

    /// No more pages come: the crawl has ended, and its last commit follows. Called once.
    fn finish(&mut self) {}

    /// Returns whether everything is written, or cannot be. Called in each turn after `finish` until it
    /// returns `true`, and again after the last `committed`.
    fn is_done(&self) -> bool {
        true
    }

    /// The first write error. A crawl that loses results ends: it calls `finish`, and waits for
    /// `is_done` for at most `STOP_GRACE`.
    fn failure(&self) -> Option<&WriteError> {
        None
    }

    /// First phase of a commit: begins to make durable everything that was put so far. See
    /// [Commits](Sink#commits) for the order of the calls.
    fn prepare(&mut self, _epoch: Epoch) {}

    /// Returns whether everything up to the end of `epoch` is durable. Called at least once, and in each
    /// turn, from `prepare` until it returns `true`.
    fn is_prepared(&self, _epoch: Epoch) -> bool {
        true
    }

    /// Second phase of a commit: the crawl has recorded the epoch and never fetches its pages again.
    fn committed(&mut self, _epoch: Epoch) {}

    /// The crawl continues from its state: delete everything that came after the epoch `last`, or
    /// everything of this crawl if nothing was committed. Called once, before anything else.
    fn resumed(&mut self, _last: Option<Epoch>) {}
}

/// A [`Sink`] that writes files through the crawl's own disk thread, as
/// [`FileSink`](crate::sink::files::FileSink) does. Every `Sink` is one that has no jobs for the disk.
///
/// Methods with the argument `disk` push jobs to it. The disk thread performs all jobs in the order in
/// which they were pushed, while the crawl continues; the result of each comes by
/// [`DiskSink::disk_done`], in the same order. Jobs can be pushed only in these methods. Everything else
/// is as with [`Sink`].
///
/// ```
/// use std::path::PathBuf;
/// use argiope::{DiskDone, DiskJob, DiskSink, Epoch, FileId, FileLength, Page, WriteError};
///
/// /// Writes the URL of each page to a file.
/// #[derive(Default)]
/// struct Urls {
///     is_open: bool,
///     on_their_way: usize,
///     synced: Option<u64>,
///     failure: Option<WriteError>,
/// }
///
/// const FILE: FileId = FileId(1);
/// const SYNC: u64 = 1;
///
/// impl DiskSink for Urls {
///     fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
///         if !self.is_open {
///             self.is_open = true;
///             disk.push(DiskJob::Create { file: FILE, path: PathBuf::from("urls.txt") });
///         }
///         let bytes = format!("{}\n", page.url).into_bytes();
///         self.on_their_way += bytes.len();
///         disk.push(DiskJob::Append { file: FILE, bytes, gzip: false, tag: 0 });
///     }
///
///     fn disk_done(&mut self, done: &DiskDone, _disk: &mut Vec<DiskJob>) {
///         if done.file != Some(FILE) {
///             return; // another's job
///         }
///         self.on_their_way -= done.held;
///         match &done.result {
///             Ok(written) if done.tag == SYNC => self.synced = Some(written.offset),
///             Ok(_) => {}
///             Err(error) => self.failure = Some(WriteError::new("urls.txt", error)),
///         }
///     }
///
///     fn is_ready(&self) -> bool {
///         self.on_their_way < 1 << 20
///     }
///
///     fn is_done(&self) -> bool {
///         self.on_their_way == 0
///     }
///
///     fn failure(&self) -> Option<&WriteError> {
///         self.failure.as_ref()
///     }
///
///     fn prepare(&mut self, _epoch: Epoch, disk: &mut Vec<DiskJob>) {
///         self.synced = if self.is_open { None } else { Some(0) };
///         if self.is_open {
///             disk.push(DiskJob::Sync { file: FILE, tag: SYNC });
///         }
///     }
///
///     fn prepared(&self, _epoch: Epoch) -> Option<Vec<FileLength>> {
///         self.synced.map(|length| vec![FileLength::new("urls.txt", length)])
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use argiope::sim::{Reply, Web};
/// use argiope::{Config, Crawler, FinishReason, Request};
///
/// let web = Web::new(|_| Reply::page("hello"));
/// let mut crawler = Crawler::builder(Config::default()).sink(Urls::default()).build_in(&web, 1)?;
/// crawler.submit(Request::get("http://example.com/"))?;
/// assert_eq!(crawler.run(), FinishReason::Finished);
/// # Ok(())
/// # }
/// ```
pub trait DiskSink: Send {
    /// As [`Sink::on_head`].
    fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
        BodyMode::Keep
    }

    /// As [`Sink::on_body`].
    fn on_body(&mut self, _id: u64, _piece: &[u8]) -> Flow {
        Flow::Ready
    }

    /// Returns whether the sink stores replies as received, with their content codings, for readers
    /// that may not support all of them: WARC files. Such a sink keeps a copy of a reply while it
    /// [prepares](DiskSink::preparation) it, which counts as a buffered body; a helper thread may need a second
    /// one while it compresses it. The result must be constant.
    fn keeps_codings(&self) -> bool {
        false
    }

    /// Returns whether the sink writes the links that are found in a page, before filters: the crawl then keeps them
    /// until the page is put. The result must be constant.
    fn keeps_links(&self) -> bool {
        false
    }

    /// Returns whether the sink writes the links that filters leave out: the crawl then keeps those of a page until it
    /// is put, and calls [`DiskSink::filtered`] for others. The result must be constant.
    fn keeps_filtered(&self) -> bool {
        false
    }

    /// Called with the line of `filtered.jsonl` about a seed, or another request from outside, that a filter leaves
    /// out; it ends with a line end. Only with [`DiskSink::keeps_filtered`].
    fn filtered(&mut self, _line: &[u8], _at: Wall, _disk: &mut Vec<DiskJob>) {}

    /// Returns the work that has to be done for this page before it is put: for sinks that digest, copy or
    /// compress whole bodies. `None` if there is none, or if `put` does it: it must then take at most
    /// `units`, of a few nanoseconds each, which are subtracted.
    ///
    /// The crawl does the work in steps, with other work in between, or on a helper thread (`WORKERS`). The
    /// page's body may be absent here; it is there in [`Preparation::step`] and [`Preparation::complete`].
    fn preparation(&mut self, _page: &Page, _units: &mut u64) -> Option<Box<dyn Preparation>> {
        None
    }

    /// Called just before `put` of the page with this `id` with its completed preparation.
    fn prepared_page(&mut self, _id: u64, _prepared: Box<dyn Preparation>) {}

    /// Called before `put` of the final page with this `id`, with its request; only if `request`
    /// has more information than the page, such as header fields, scopes or flags. A sink that
    /// keeps it until the page is written can return it complete from [`DiskSink::take_unwritten`].
    fn on_request(&mut self, _id: u64, _request: &dyn Fn() -> Request) {}

    /// Takes a finished attempt, successful or not, as [`Sink::put`] does. Push the jobs for this page to
    /// `disk`: they are performed in order, after all that were pushed before, and each result comes by
    /// [`DiskSink::disk_done`]. It must not block.
    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>);

    /// Called with the result of each job, in the order of the jobs; also of jobs of others (see
    /// [`DiskDone::file`]), such as the other half of a [`Tee`](crate::sink::tee::Tee). [`DiskDone`] states
    /// which jobs are reported only if they fail.
    fn disk_done(&mut self, _done: &DiskDone, _disk: &mut Vec<DiskJob>) {}

    /// As [`Sink::is_ready`].
    fn is_ready(&self) -> bool {
        true
    }

    /// As [`Sink::reads_local`].
    fn reads_local(&self) -> bool {
        true
    }

    /// As [`Sink::decision`].
    fn decision(&mut self, _decision: &Decision, _at: Wall, _disk: &mut Vec<DiskJob>) {}

    /// As [`Sink::flush`].
    fn flush(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// Called before each [`DiskSink::flush`] with the wall-clock time, which never goes back.
    fn on_time(&mut self, _now: Wall, _disk: &mut Vec<DiskJob>) {}

    /// Closes the output files and begins others with what comes next, by an order of the crawl's operator. Files
    /// without content are not closed. Returns the final names of the files that are closed, relative to the output
    /// directory; in a crawl with a state they get them after the next commit.
    fn rotate(&mut self, _disk: &mut Vec<DiskJob>) -> Vec<String> {
        Vec::new()
    }

    /// As [`Sink::finish`]. Jobs under way are still reported by `disk_done`.
    fn finish(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// As [`Sink::is_done`].
    fn is_done(&self) -> bool {
        true
    }

    /// As [`Sink::failure`].
    fn failure(&self) -> Option<&WriteError> {
        None
    }

    /// Takes the requests whose results could not be written, each once. They count as still to be
    /// fetched when the crawl ends.
    fn take_unwritten(&mut self) -> Vec<Request> {
        Vec::new()
    }

    /// As [`Sink::prepare`]. Push a [`DiskJob::Sync`] for each file with results of this epoch: its result
    /// has the file's durable length.
    fn prepare(&mut self, _epoch: Epoch, _disk: &mut Vec<DiskJob>) {}

    /// Returns every output file of the crawl so far, with its length at the end of `epoch`, once all of
    /// that is durable; `None` before, and if it failed. A file that was complete in an earlier epoch may
    /// be omitted. Called as [`Sink::is_prepared`] is. The crawl records the lengths with the epoch.
    fn prepared(&self, _epoch: Epoch) -> Option<Vec<FileLength>> {
        Some(Vec::new())
    }

    /// As [`Sink::committed`].
    fn committed(&mut self, _epoch: Epoch, _disk: &mut Vec<DiskJob>) {}

    /// As [`Sink::resumed`]: cut each file to its length in `last`, and delete those that it does not
    /// name.
    fn resumed(&mut self, _last: Option<&Commit>, _disk: &mut Vec<DiskJob>) {}
}

/// Work for one page that depends on the page alone: [`DiskSink::preparation`].
pub trait Preparation: Any + Send {
    /// Does a part of it: at most `units`, of a few nanoseconds each, and subtracts what it used. Returns
    /// whether it is complete. `page`: the page, complete.
    fn step(&mut self, page: &Page, units: &mut u64) -> bool;

    /// Does all that is left of it, on a helper thread (`WORKERS`), where it may take long. It is called
    /// instead of further steps, also where nothing is left. `gzip`: the thread's, at the level of
    /// `WARC_GZIP_LEVEL`.
    fn complete(&mut self, page: &Page, _gzip: &mut Gzip) {
        let mut units = u64::MAX;
        while !self.step(page, &mut units) {}
    }
}

impl<S: Sink> DiskSink for S {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        Sink::on_head(self, reply)
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        Sink::on_body(self, id, piece)
    }

    fn put(&mut self, page: &mut Page, _disk: &mut Vec<DiskJob>) {
        Sink::put(self, page);
    }

    fn is_ready(&self) -> bool {
        Sink::is_ready(self)
    }

    fn reads_local(&self) -> bool {
        Sink::reads_local(self)
    }

    fn decision(&mut self, decision: &Decision, at: Wall, _disk: &mut Vec<DiskJob>) {
        Sink::decision(self, decision, at);
    }

    fn flush(&mut self, _disk: &mut Vec<DiskJob>) {
        Sink::flush(self);
    }

    fn finish(&mut self, _disk: &mut Vec<DiskJob>) {
        Sink::finish(self);
    }

    fn is_done(&self) -> bool {
        Sink::is_done(self)
    }

    fn failure(&self) -> Option<&WriteError> {
        Sink::failure(self)
    }

    fn prepare(&mut self, epoch: Epoch, _disk: &mut Vec<DiskJob>) {
        Sink::prepare(self, epoch);
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        Sink::is_prepared(self, epoch).then(Vec::new)
    }

    fn committed(&mut self, epoch: Epoch, _disk: &mut Vec<DiskJob>) {
        Sink::committed(self, epoch);
    }

    fn resumed(&mut self, last: Option<&Commit>, _disk: &mut Vec<DiskJob>) {
        Sink::resumed(self, last.map(|commit| commit.epoch));
    }
}

/// A function that takes each page, without backpressure. Called on the crawl's thread: nothing is
/// sent while it runs. See [`FunctionSink`](crate::FunctionSink) for backpressure.
impl<F: FnMut(Page) + Send> Sink for F {
    fn put(&mut self, page: &mut Page) {
        self(std::mem::take(page));
    }
}

/// A file could not be written.
#[derive(thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's error, with the file and the operation.
    #[source]
    pub cause: io::Error,
}

debug_as_sentence!(WriteError);

impl WriteError {
    /// The file at `path` could not be written: a copy of the system's error.
    pub fn new(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        let cause = match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        WriteError {
            path: path.into(),
            cause,
        }
    }

    /// Stable error code: `full`, `denied`, `read_only`, `not_found`, `open_files`, `memory`,
    /// `unsupported` or `other`.
    pub fn code(&self) -> &'static str {
        machine::code(&self.cause)
    }

    /// Returns whether writing may succeed later without any change. The result is lost in either
    /// case.
    pub fn is_retryable(&self) -> bool {
        machine::is_temporary(&self.cause)
    }

    /// The disk's errors name the file; those of system calls do not.
    fn message(&self) -> String {
        let (path, cause) = (self.path.display().to_string(), self.cause.to_string());
        if cause.contains(&path) {
            cause
        } else {
            format!("cannot write {path}: {cause}")
        }
    }
}
