//! The contract between a crawl and its sink.

use std::io;
use std::path::PathBuf;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::machine;
use crate::base::time::Wall;
use crate::frontier::request::Request;
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
/// Results become final in *epochs*, numbered from 1, each in two phases. [`Sink::prepare`] asks the
/// sink to make everything durable that was put so far; when [`Sink::is_prepared`] returns true, the
/// crawl records the epoch, and calls [`Sink::committed`]. A sink that was prepared and not committed
/// when the process ended must drop what came after the last committed epoch: those pages are fetched
/// again. A crawl without a state on the disk has one epoch, which ends with the crawl.
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

    /// The crawl has ended: no more pages come. Called once.
    fn finish(&mut self) {}

    /// Returns whether everything is written, or cannot be. Called after `finish`.
    fn is_done(&self) -> bool {
        true
    }

    /// The first write error. A crawl that loses results ends: it calls `finish`, and waits for
    /// `is_done` for at most `STOP_GRACE`.
    fn failure(&self) -> Option<&WriteError> {
        None
    }

    /// The first phase of a commit: begins to make durable everything that was put so far. What is put
    /// from now on belongs to the next epoch.
    fn prepare(&mut self, _epoch: u64) {}

    /// Returns whether everything up to the end of `epoch` is durable. Called in each turn after
    /// [`Sink::prepare`] until it returns `true`.
    fn is_prepared(&self, _epoch: u64) -> bool {
        true
    }

    /// The second phase: the crawl has recorded the epoch and never fetches its pages again. Not called
    /// for an epoch of which a result could not be written.
    fn committed(&mut self, _epoch: u64) {}
}

/// A [`Sink`] that writes files through the crawl's own disk thread, as
/// [`FileSink`](crate::sink::files::FileSink) does. Every `Sink` is one that has no jobs for the disk.
///
/// All jobs pushed to `disk` are written in this order, while the crawl continues;
/// [`DiskSink::disk_done`] reports each job. Everything else is as with [`Sink`].
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
    /// [processes](DiskSink::process) it, which counts as a buffered body. The result must be constant.
    fn keeps_codings(&self) -> bool {
        false
    }

    /// Does a part of the work for this page: at most `units`, of a few nanoseconds each, and
    /// subtracts what it used. Returns whether the work is complete. Until then the crawl calls it
    /// again, with other work in between, and calls `put` afterwards.
    ///
    /// For sinks that digest, copy or compress whole bodies on the crawl's thread, which sends
    /// nothing meanwhile.
    fn process(&mut self, _page: &Page, _units: &mut u64) -> bool {
        true
    }

    /// Called before `put` of the final page with this `id`, with its request; only if `request`
    /// has more information than the page, such as header fields, scopes or flags. A sink that
    /// keeps it until the page is written can return it complete from [`DiskSink::take_unwritten`].
    fn on_request(&mut self, _id: u64, _request: &dyn Fn() -> Request) {}

    /// As [`Sink::put`].
    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>);

    /// Called for each finished disk job, including jobs of others.
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

    /// As [`Sink::prepare`].
    fn prepare(&mut self, _epoch: u64, _disk: &mut Vec<DiskJob>) {}

    /// As [`Sink::is_prepared`].
    fn is_prepared(&self, _epoch: u64) -> bool {
        true
    }

    /// As [`Sink::committed`].
    fn committed(&mut self, _epoch: u64) {}
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

    fn prepare(&mut self, epoch: u64, _disk: &mut Vec<DiskJob>) {
        Sink::prepare(self, epoch);
    }

    fn is_prepared(&self, epoch: u64) -> bool {
        Sink::is_prepared(self, epoch)
    }

    fn committed(&mut self, epoch: u64) {
        Sink::committed(self, epoch);
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
#[derive(Debug, thiserror::Error)]
#[error("{}", self.message())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The system's error, with the file and the operation.
    #[source]
    pub cause: io::Error,
}

impl WriteError {
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
