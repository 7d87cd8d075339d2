//! Two sinks as one.

use std::collections::BTreeMap;

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Wall;
use crate::sink::page::Page;
use crate::sink::reply::{Flow, Reply, Wish};
use crate::sink::{Sink, WriteError};
use crate::throttle::decision::Decision;

/// Puts every page into both sinks, at the pace of the slower one.
///
/// Of a body each gets what it wants, but where one takes it in pieces and the other keeps it: it is
/// then kept for both ([`Page::wish`] says so).
///
/// Two that write files must have file ids of their own
/// ([`FileSinkOptions::files_from`](crate::sink::files::FileSinkOptions::files_from)).
pub struct Tee<A, B> {
    /// The one that is given everything first.
    pub first: A,
    /// The other.
    pub second: B,
    /// Which of them take the bodies that come in pieces, by their attempt.
    taken_by: BTreeMap<u64, [bool; 2]>,
}

impl<A, B> Tee<A, B> {
    /// Both of them.
    pub fn new(first: A, second: B) -> Self {
        Tee {
            first,
            second,
            taken_by: BTreeMap::new(),
        }
    }
}

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    fn on_head(&mut self, reply: &Reply<'_>) -> Wish {
        let wishes = [self.first.on_head(reply), self.second.on_head(reply)];
        // From the one that needs all to the one that wants nothing.
        let order = [Wish::Keep, Wish::Take, Wish::Skip, Wish::Cancel];
        let wish = order.into_iter().find(|wish| wishes.contains(wish));
        let wish = wish.expect("every wish is among all of them");
        if wish == Wish::Take {
            let takes = wishes.map(|wish| wish == Wish::Take);
            self.taken_by.insert(reply.id, takes);
        }
        wish
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        let [first, second] = self.taken_by.get(&id).copied().unwrap_or_default();
        let mut flow = Flow::Ready;
        if first && self.first.on_body(id, piece) == Flow::Full {
            flow = Flow::Full;
        }
        if second && self.second.on_body(id, piece) == Flow::Full {
            flow = Flow::Full;
        }
        flow
    }

    fn reads_local(&self) -> bool {
        self.first.reads_local() || self.second.reads_local()
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        self.taken_by.remove(&page.id);
        self.first.put(&mut page.clone(), disk);
        self.second.put(page, disk);
    }

    fn decision(&mut self, decision: &Decision, at: Wall, disk: &mut Vec<DiskJob>) {
        self.first.decision(decision, at, disk);
        self.second.decision(decision, at, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        self.first.disk_done(done, disk);
        self.second.disk_done(done, disk);
    }

    fn is_ready(&self) -> bool {
        self.first.is_ready() && self.second.is_ready()
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        self.first.flush(disk);
        self.second.flush(disk);
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        self.first.finish(disk);
        self.second.finish(disk);
    }

    fn is_done(&self) -> bool {
        self.first.is_done() && self.second.is_done()
    }

    fn failure(&self) -> Option<&WriteError> {
        self.first.failure().or_else(|| self.second.failure())
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
        let mut sink = Tee::new(
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

    /// Wants this of every body, and counts the octets that it is given of it.
    struct Wants(Wish, Flow, usize);

    impl Sink for Wants {
        fn on_head(&mut self, _reply: &Reply<'_>) -> Wish {
            self.0
        }

        fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
            self.2 += piece.len();
            self.1
        }

        fn put(&mut self, _page: &mut Page, _disk: &mut Vec<DiskJob>) {}
    }

    #[test]
    fn each_sink_gets_of_a_body_what_it_wants() {
        use Flow::{Full, Ready};
        use Wish::{Cancel, Keep, Skip, Take};
        let page = samples::page(7);
        let check = |wishes: [Wish; 2], flows: [Flow; 2], wish, flow, octets| {
            let [first, second] = [0, 1].map(|of| Wants(wishes[of], flows[of], 0));
            let mut sink = Tee::new(first, second);
            let reply = Reply::of(&page);
            assert_eq!(sink.on_head(&reply), wish, "{wishes:?}");
            assert_eq!(sink.on_body(7, b"hello"), flow, "{wishes:?} {flows:?}");
            assert_eq!([sink.first.2, sink.second.2], octets, "{wishes:?}");
            sink.put(&mut page.clone(), &mut Vec::new());
            assert!(sink.taken_by.is_empty());
        };
        check([Take, Take], [Ready, Ready], Take, Ready, [5, 5]);
        check([Take, Take], [Full, Ready], Take, Full, [5, 5]);
        check([Take, Take], [Ready, Full], Take, Full, [5, 5]);
        check([Take, Skip], [Ready, Full], Take, Ready, [5, 0]);
        check([Cancel, Take], [Full, Ready], Take, Ready, [0, 5]);
        check([Keep, Take], [Ready, Ready], Keep, Ready, [0, 0]);
        check([Cancel, Skip], [Ready, Ready], Skip, Ready, [0, 0]);
    }
}
