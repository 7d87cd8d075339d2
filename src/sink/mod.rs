//! Where results go.

pub mod page;
pub mod reply;
pub(crate) mod later;
mod line;
pub mod results;
mod decisions;
mod prepared;
mod unwritten;
mod warc;
pub mod files;
pub mod directory;

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
/// Whole pages come by [`Sink::put`]. A sink that wants a body while it comes, or not at all, says so
/// in [`Sink::on_head`] and hears its pieces by [`Sink::on_body`]; `put` is then the end.
///
/// A sink that is slow says so with [`Sink::is_ready`]: the crawl then reads no more from the
/// network until it is, so that memory stays bounded.
pub trait Sink: Send {
    /// The final head of a page's reply is there: what is wanted of its body. Not called for
    /// robots.txt and sitemaps, which the crawl reads itself.
    fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
        BodyMode::Keep
    }

    /// A piece of a body that is [taken](BodyMode::Take), of the attempt of this `id`: 1 byte to 64 KiB.
    /// Pieces of one body come in their order, those of several in turn: after a mebibyte of one, or
    /// what was read of it at once, it is others' turn.
    fn on_body(&mut self, _id: u64, _piece: &[u8]) -> Flow {
        Flow::Ready
    }

    /// Whether it wants to know our own address of each connection ([`Page::local`]), which takes a
    /// system call; if not, that is `None`.
    fn reads_local(&self) -> bool {
        true
    }

    /// Whether it keeps replies as they came, coded as they were, for readers that may not know every
    /// content coding: WARC files. Such a sink holds a copy of a reply while it [prepares](Sink::prepare)
    /// it, which counts among the buffered bodies. The answer stays the same.
    fn keeps_codings(&self) -> bool {
        false
    }

    /// Does some of what taking this page will cost: as much as `units` are left, of which each is the
    /// work of a few nanoseconds, and takes what it used off them. Returns whether nothing is left
    /// to do. Until then the crawl calls it again, with other work in between, and puts the page after.
    ///
    /// For sinks that digest, copy or compress whole bodies on the crawl's thread, which sends nothing
    /// meanwhile.
    fn prepare(&mut self, _page: &Page, _units: &mut u64) -> bool {
        true
    }

    /// What asked for the final page of this `id`, which is put next: only where `request` says more than
    /// the page does, as header fields, scopes or flags. A sink that keeps it until the page is written
    /// has it whole for [`Sink::take_unwritten`].
    fn asked_by(&mut self, _id: u64, _request: &dyn Fn() -> Request) {}

    /// Takes a finished attempt. Whatever is to be written is pushed to `disk`.
    ///
    /// The page, or any part of it, is the sink's to keep (`std::mem::take`). The memory of what it
    /// leaves is used for later pages.
    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>);

    /// Hears what was decided about the pace of a scope, and when. Only with `AUTOTHROTTLE_DEBUG`,
    /// which makes a decision of nearly every answer. A decision that an answer led to comes when
    /// its exchange has ended, with the size of its body.
    fn decision(&mut self, _decision: &Decision, _at: Wall, _disk: &mut Vec<DiskJob>) {}

    /// Hears of a finished disk job, whoever asked for it.
    fn disk_done(&mut self, _done: &DiskDone, _disk: &mut Vec<DiskJob>) {}

    /// Whether it takes more now. What is on its way when it says no is still put. It is asked in each
    /// turn, and every few milliseconds while it says no: nobody has to wake the crawl.
    ///
    /// As long as it says no, nothing is sent and little is read; a crawl whose sink never says yes
    /// again goes on so until it is told to stop. Where requests wait for it for ten seconds the log
    /// has a warning, one for each such stretch.
    fn is_ready(&self) -> bool {
        true
    }

    /// Called now and then (about every second): writes out what it has gathered.
    fn flush(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// The crawl has ended: writes the rest. Jobs it still waits for are reported by `disk_done`.
    fn finish(&mut self, _disk: &mut Vec<DiskJob>) {}

    /// Whether all that it took is written, or cannot be. Asked after `finish`.
    fn is_done(&self) -> bool {
        true
    }

    /// The first thing that could not be written. A crawl whose results are lost ends: it calls
    /// `finish`, and waits for `is_done` for `STOP_GRACE` at most.
    fn failure(&self) -> Option<&WriteError> {
        None
    }

    /// What would have the results again that could not be written, each once. They are among what is
    /// still to be fetched when the crawl is over.
    fn take_unwritten(&mut self) -> Vec<Request> {
        Vec::new()
    }
}

/// Drops every result; a page costs it nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn reads_local(&self) -> bool {
        false
    }

    fn put(&mut self, _page: &mut Page, _disk: &mut Vec<DiskJob>) {}
}

/// A function that takes each page, and always takes more. Called on the crawl's thread: while it
/// runs nothing is sent. See [`function::FunctionSink`] for one that can say that it is full.
impl<F: FnMut(Page) + Send> Sink for F {
    fn put(&mut self, page: &mut Page, _disk: &mut Vec<DiskJob>) {
        self(std::mem::take(page));
    }
}

/// Our own machine would not write a file.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.told())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// What the machine said, of which file, when we tried what.
    #[source]
    pub cause: io::Error,
}

impl WriteError {
    /// The stable name: `full`, `denied`, `read_only`, `not_found`, `open_files`, `memory`,
    /// `unsupported` or `other`.
    pub fn code(&self) -> &'static str {
        machine::code(&self.cause)
    }

    /// Whether it may be written later with nothing mended. The result that it held is lost either way.
    pub fn is_retryable(&self) -> bool {
        machine::passes(&self.cause)
    }

    /// The disk names the file in what it says; a system call does not.
    fn told(&self) -> String {
        let (path, cause) = (self.path.display().to_string(), self.cause.to_string());
        if cause.contains(&path) {
            cause
        } else {
            format!("cannot write {path}: {cause}")
        }
    }
}
