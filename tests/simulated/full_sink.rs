//! A sink that is full for a while, now and then.

use std::collections::BTreeSet;

use argiope::base::disk::{DiskDone, DiskJob};
use argiope::base::shared::Shared;
use argiope::base::time::Wall;
use argiope::sink::files::FileSink;
use argiope::sink::page::Page;
use argiope::sink::reply::{BodyMode, Flow, Reply};
use argiope::throttle::decision::Decision;
use argiope::{Commit, DiskSink, Epoch, FileLength, Preparation, WriteError};

/// Files, in a sink that takes no more now and then.
pub struct FullNowAndThen {
    pub inner: FileSink,
    pub is_full: Shared<bool>,
    /// The numbers of attempts whose bodies it takes in pieces, if it does.
    pub streamed: Option<Shared<BTreeSet<u64>>>,
}

/// Half of the pages of words: others have links, which are found in kept bodies only.
fn is_streamed(reply: &Reply<'_>) -> bool {
    let kind = reply.headers.get("content-type").unwrap_or(b"");
    let has_words = kind.windows(5).any(|part| part == b"size=");
    has_words && reply.id.is_multiple_of(2)
}

impl DiskSink for FullNowAndThen {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        if let Some(streamed) = &self.streamed
            && is_streamed(reply)
        {
            streamed.borrow_mut().insert(reply.id);
            return BodyMode::Take;
        }
        self.inner.on_head(reply)
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        self.inner.on_body(id, piece)
    }

    fn keeps_codings(&self) -> bool {
        self.inner.keeps_codings()
    }

    fn preparation(&mut self, page: &Page, units: &mut u64) -> Option<Box<dyn Preparation>> {
        self.inner.preparation(page, units)
    }

    fn prepared_page(&mut self, id: u64, prepared: Box<dyn Preparation>) {
        self.inner.prepared_page(id, prepared);
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        self.inner.put(page, disk);
    }

    fn decision(&mut self, decision: &Decision, at: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.decision(decision, at, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        self.inner.disk_done(done, disk);
    }

    fn is_ready(&self) -> bool {
        !self.is_full.get() && self.inner.is_ready()
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        self.inner.flush(disk);
    }

    fn keeps_links(&self) -> bool {
        self.inner.keeps_links()
    }

    fn keeps_filtered(&self) -> bool {
        self.inner.keeps_filtered()
    }

    fn filtered(&mut self, line: &[u8], at: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.filtered(line, at, disk);
    }

    fn on_time(&mut self, now: Wall, disk: &mut Vec<DiskJob>) {
        self.inner.on_time(now, disk);
    }

    fn rotate(&mut self, disk: &mut Vec<DiskJob>) -> Vec<String> {
        self.inner.rotate(disk)
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        self.inner.finish(disk);
    }

    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    fn prepare(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.inner.prepare(epoch, disk);
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        self.inner.prepared(epoch)
    }

    fn committed(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.inner.committed(epoch, disk);
    }

    fn resumed(&mut self, last: Option<&Commit>, disk: &mut Vec<DiskJob>) {
        self.inner.resumed(last, disk);
    }

    fn failure(&self) -> Option<&WriteError> {
        self.inner.failure()
    }
}
