//! Sinks: destinations of results.

#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod reply;
pub(crate) mod later;
mod line;
#[doc(hidden)]
pub mod results;
mod decisions;
mod prepared;
mod unwritten;
mod warc;
pub mod files;
pub mod directory;

#[doc(hidden)]
pub mod function;
pub(crate) mod pull;
pub mod tee;

use std::io;
use std::path::PathBuf;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::machine;
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::throttle::decision::Decision;
use page::Page;
use reply::{BodyMode, Flow, Reply};

/// Receives every finished attempt, on the crawl's own thread.
///
/// Complete pages are passed to [`Sink::put`]. A sink that wants a body in pieces, or not at all,
/// says so in [`Sink::on_head`] and receives the pieces in [`Sink::on_body`]; `put` then marks the
/// end.
///
/// A slow sink applies backpressure with [`Sink::is_ready`]: while it returns `false` the crawl
/// reads no more from the network, so that memory stays bounded.
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

    /// Returns whether the sink uses our own address of each connection ([`Page::local`]), which
    /// costs a system call; if not, that field is `None`.
    fn reads_local(&self) -> bool {
        true
    }

    /// Returns whether the sink stores replies as received, with their content codings, for readers
    /// that may not support all of them: WARC files. Such a sink keeps a copy of a reply while it
    /// [prepares](Sink::prepare) it, which counts as a buffered body. The result must be constant.
    fn keeps_codings(&self) -> bool {
        false
    }

    /// Does a part of the work for this page: at most `units`, of a few nanoseconds each, and
    /// subtracts what it used. Returns whether the work is complete. Until then the crawl calls it
    /// again, with other work in between, and calls `put` afterwards.
    ///
    /// For sinks that digest, copy or compress whole bodies on the crawl's thread, which sends
    /// nothing meanwhile.
    fn prepare(&mut self, _page: &Page, _units: &mut u64) -> bool {
        true
    }

    /// Called before `put` of the final page with this `id`, with its request; only if `request`
    /// has more information than the page, such as header fields, scopes or flags. A sink that
    /// keeps it until the page is written can return it complete from [`Sink::take_unwritten`].
    fn on_request(&mut self, _id: u64, _request: &dyn Fn() -> Request) {}

    /// Takes a finished attempt, and pushes whatever must be written to `disk`.
    ///
    /// The sink may keep the page, or any part of it (`std::mem::take`). The memory of the rest is
    /// reused for later pages.
    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>);

    /// Called with each decision about the pace of a scope, and its time. Only with
    /// `AUTOTHROTTLE_DEBUG`, which records a decision for nearly every answer. A decision caused by
    /// an answer is passed on when its exchange has ended, with the size of its body.
    fn decision(&mut self, _decision: &Decision, _at: Wall, _disk: &mut Vec<DiskJob>) {}

    /// Called for each finished disk job, including jobs of others.
    fn disk_done(&mut self, _done: &DiskDone, _disk: &mut Vec<DiskJob>) {}

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

    /// Called about every second: writes out what has accumulated.
    fn flush(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// The crawl has ended: writes the rest. Pending jobs are reported by `disk_done`.
    fn finish(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// Returns whether everything is written, or cannot be. Called after `finish`.
    fn is_done(&self) -> bool {
        true
    }

    /// The first write error. A crawl that loses results ends: it calls `finish`, and waits for
    /// `is_done` for at most `STOP_GRACE`.
    fn failure(&self) -> Option<&WriteError> {
        None
    }

    /// Takes the requests whose results could not be written, each once. They count as still to be
    /// fetched when the crawl ends.
    fn take_unwritten(&mut self) -> Vec<Request> {
        Vec::new()
    }
}

/// Discards every result, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn reads_local(&self) -> bool {
        false
    }

    fn put(&mut self, _page: &mut Page, _disk: &mut Vec<DiskJob>) {}
}

/// A function that takes each page, without backpressure. Called on the crawl's thread: nothing is
/// sent while it runs. See [`function::FunctionSink`] for backpressure.
impl<F: FnMut(Page) + Send> Sink for F {
    fn put(&mut self, page: &mut Page, _disk: &mut Vec<DiskJob>) {
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
