//! Two sinks as one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::page::Page;
use crate::sink::reply::{BodyMode, Flow, Reply, Resume, Tell};
use crate::sink::{Sink, WriteError};
use crate::throttle::decision::Decision;

/// Puts every page into both sinks, at the pace of the slower one.
///
/// Of a body each gets what it wants, but where one takes it in pieces and the other keeps it: it is
/// then kept for both ([`Page::body_mode`] says so). Where both take it, it goes on while neither is full:
/// each has a [`Resume`] of its own.
///
/// Two that write files must have file ids of their own
/// ([`FileSinkOptions::files_from`](crate::sink::files::FileSinkOptions::files_from)).
pub struct Tee<A, B> {
    /// The one that is given everything first.
    pub first: A,
    /// The other.
    pub second: B,
    doors: Doors,
    /// Whom either of them tells that it has room again.
    gates: [Tell; 2],
}

/// The bodies that come in pieces, by their attempt.
type Doors = Arc<Mutex<BTreeMap<u64, Door>>>;

/// A body on its way to both.
struct Door {
    /// Which of them take it.
    takes: [bool; 2],
    /// Which of these are full.
    full: [bool; 2],
    /// What lets it be read on.
    resume: Resume,
}

impl<A, B> Tee<A, B> {
    /// Both of them.
    pub fn new(first: A, second: B) -> Self {
        let doors = Doors::default();
        Tee {
            first,
            second,
            gates: [0, 1].map(|which| gate(&doors, which)),
            doors,
        }
    }
}

/// What one of the two tells when it has room again: the body is read on once the other has, too.
fn gate(doors: &Doors, which: usize) -> Tell {
    let doors = Arc::clone(doors);
    Arc::new(move |held| {
        let mut doors = lock(&doors);
        let Some(door) = doors.get_mut(&held.attempt) else {
            return;
        };
        let was_full = std::mem::take(&mut door.full[which]);
        if was_full && !door.is_full() {
            let resume = door.resume.clone();
            drop(doors);
            resume.resume();
        }
    })
}

impl Door {
    fn is_full(&self) -> bool {
        self.full != [false; 2]
    }
}

/// Whoever panicked while holding it left something whole.
fn lock(doors: &Doors) -> MutexGuard<'_, BTreeMap<u64, Door>> {
    doors.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A: Sink, B: Sink> Sink for Tee<A, B> {
    fn keeps_codings(&self) -> bool {
        self.first.keeps_codings() || self.second.keeps_codings()
    }

    fn prepare(&mut self, page: &Page, units: &mut u64) -> bool {
        let first = self.first.prepare(page, units);
        first && self.second.prepare(page, units)
    }

    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        let [first, second] = [0, 1].map(|which| Reply {
            resumed: &self.gates[which],
            ..reply.clone()
        });
        let modes = [self.first.on_head(&first), self.second.on_head(&second)];
        // From the one that needs all to the one that wants nothing.
        let order = [
            BodyMode::Keep,
            BodyMode::Take,
            BodyMode::Skip,
            BodyMode::Cancel,
        ];
        let body_mode = order
            .into_iter()
            .find(|body_mode| modes.contains(body_mode));
        let body_mode = body_mode.expect("every body_mode is among all of them");
        if body_mode == BodyMode::Take {
            let door = Door {
                takes: modes.map(|body_mode| body_mode == BodyMode::Take),
                full: [false; 2],
                resume: reply.resume(),
            };
            lock(&self.doors).insert(reply.id, door);
        }
        body_mode
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        let takes = match lock(&self.doors).get_mut(&id) {
            None => return Flow::Ready,
            Some(door) => {
                // One may have room again before it has said that it has none: that is not to be lost.
                door.full = door.takes;
                door.takes
            }
        };
        let ready = [
            takes[0] && self.first.on_body(id, piece) == Flow::Ready,
            takes[1] && self.second.on_body(id, piece) == Flow::Ready,
        ];
        let mut doors = lock(&self.doors);
        let door = doors.get_mut(&id).expect("a body on its way has its door");
        for (full, ready) in door.full.iter_mut().zip(ready) {
            *full &= !ready;
        }
        match door.is_full() {
            true => Flow::Full,
            false => Flow::Ready,
        }
    }

    fn reads_local(&self) -> bool {
        self.first.reads_local() || self.second.reads_local()
    }

    fn asked_by(&mut self, id: u64, request: &dyn Fn() -> Request) {
        self.first.asked_by(id, request);
        self.second.asked_by(id, request);
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        lock(&self.doors).remove(&page.id);
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

    fn take_unwritten(&mut self) -> Vec<Request> {
        let mut all = self.first.take_unwritten();
        all.append(&mut self.second.take_unwritten());
        let mut seen = BTreeSet::new();
        all.retain(|request| seen.insert(request.to_line()));
        all
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

    /// Takes every body, one piece at a time.
    #[derive(Default)]
    struct OneAtATime(Option<Resume>);

    impl Sink for OneAtATime {
        fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
            self.0 = Some(reply.resume());
            BodyMode::Take
        }

        fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
            if piece == b"drained at once" {
                self.resume();
            }
            Flow::Full
        }

        fn put(&mut self, _page: &mut Page, _disk: &mut Vec<DiskJob>) {}
    }

    impl OneAtATime {
        fn resume(&self) {
            self.0.as_ref().expect("a head came").resume();
        }
    }

    #[test]
    fn a_body_goes_on_once_both_sinks_have_room() {
        let page = samples::page(7);
        let resumed = Arc::new(Mutex::new(0));
        let told = Arc::clone(&resumed);
        let tell: Tell = Arc::new(move |_| *told.lock().unwrap() += 1);
        let mut sink = Tee::new(OneAtATime::default(), OneAtATime::default());
        let reply = Reply {
            resumed: &tell,
            ..Reply::of(&page)
        };
        assert_eq!(sink.on_head(&reply), BodyMode::Take);
        assert_eq!(sink.on_body(7, b"hello"), Flow::Full);
        for _ in 0..3 {
            sink.second.resume();
        }
        assert_eq!(*resumed.lock().unwrap(), 0, "the first one is full");
        sink.first.resume();
        assert_eq!(*resumed.lock().unwrap(), 1);
        assert_eq!(sink.on_body(7, b"drained at once"), Flow::Ready);
        sink.put(&mut page.clone(), &mut Vec::new());
        sink.first.resume();
    }

    /// Wants this of every body, and counts the octets that it is given of it.
    struct Wants(BodyMode, Flow, usize);

    impl Sink for Wants {
        fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
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
        use BodyMode::{Cancel, Keep, Skip, Take};
        use Flow::{Full, Ready};
        let page = samples::page(7);
        let check = |modes: [BodyMode; 2], flows: [Flow; 2], body_mode, flow, octets| {
            let [first, second] = [0, 1].map(|of| Wants(modes[of], flows[of], 0));
            let mut sink = Tee::new(first, second);
            let reply = Reply::of(&page);
            assert_eq!(sink.on_head(&reply), body_mode, "{modes:?}");
            assert_eq!(sink.on_body(7, b"hello"), flow, "{modes:?} {flows:?}");
            assert_eq!([sink.first.2, sink.second.2], octets, "{modes:?}");
            sink.put(&mut page.clone(), &mut Vec::new());
            assert!(lock(&sink.doors).is_empty());
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
