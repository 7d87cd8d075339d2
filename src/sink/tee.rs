//! Two sinks as one.

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Wall;
use crate::sink::page::Page;
use crate::sink::{Sink, WriteError};
use crate::throttle::decision::Decision;

/// Puts every page into both sinks, at the pace of the slower one.
///
/// Two that write files must have file ids of their own
/// ([`FileSinkOptions::files_from`](crate::sink::files::FileSinkOptions::files_from)).
pub struct Tee<A, B>(pub A, pub B);

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        self.0.put(&mut page.clone(), disk);
        self.1.put(page, disk);
    }

    fn decision(&mut self, decision: &Decision, at: Wall, disk: &mut Vec<DiskJob>) {
        self.0.decision(decision, at, disk);
        self.1.decision(decision, at, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        self.0.disk_done(done, disk);
        self.1.disk_done(done, disk);
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready() && self.1.is_ready()
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        self.0.flush(disk);
        self.1.flush(disk);
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        self.0.finish(disk);
        self.1.finish(disk);
    }

    fn is_done(&self) -> bool {
        self.0.is_done() && self.1.is_done()
    }

    fn failure(&self) -> Option<&WriteError> {
        self.0.failure().or_else(|| self.1.failure())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shared::Shared;
    use crate::sink::function::FunctionSink;
    use crate::sink::page::samples;

    #[test]
    fn both_sinks_get_every_page_and_either_holds_the_crawl_back() {
        let (first, second) = (Shared::new(Vec::new()), Shared::new(Vec::new()));
        let (room_first, room_second) = (Shared::new(true), Shared::new(true));
        let mut sink = Tee(
            FunctionSink::new(|page: Page| first.borrow_mut().push(page.id))
                .ready_when(|| room_first.get()),
            FunctionSink::new(|page: Page| second.borrow_mut().push(page.id))
                .ready_when(|| room_second.get()),
        );
        sink.put(&mut samples::page(7), &mut Vec::new());
        assert_eq!(*first.borrow(), [7]);
        assert_eq!(*second.borrow(), [7]);
        assert!(sink.is_ready());
        room_first.set(false);
        assert!(!sink.is_ready());
        room_first.set(true);
        room_second.set(false);
        assert!(!sink.is_ready());
    }
}
