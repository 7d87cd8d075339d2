//! Combines two sinks.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::disk::{DiskDone, DiskJob};
use crate::base::gzip::Gzip;
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::page::Page;
use crate::sink::reply::{BodyMode, Flow, Reply, Resume, ResumeFn};
use crate::sink::{DiskSink, Preparation, WriteError};
use crate::throttle::decision::Decision;

/// Passes every page to both sinks, at the pace of the slower one.
///
/// Each gets the body in its mode, except that it is kept for both if one takes it in
/// pieces and the other keeps it (see [`Page::body_mode`]). If both take it in pieces, it is
/// delivered while neither is full: each has its own [`Resume`].
///
/// Two sinks that write files must use different file ids
/// ([`FileSinkOptions::files_from`](crate::sink::files::FileSinkOptions::files_from)).
pub struct Tee<A, B> {
    /// The sink that receives everything first.
    pub first: A,
    /// The other sink.
    pub second: B,
    bodies: SharedBodies,
    /// The callbacks by which each of them resumes a body.
    resume_fns: [ResumeFn; 2],
}

impl<A, B> fmt::Debug for Tee<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tee").finish_non_exhaustive()
    }
}

/// The bodies delivered in pieces, by attempt.
type SharedBodies = Arc<Mutex<BTreeMap<u64, SharedBody>>>;

/// A body delivered to both.
struct SharedBody {
    /// Which sinks take it in pieces.
    takes: [bool; 2],
    /// Which of these are full.
    full: [bool; 2],
    /// Resumes reading it.
    resume: Resume,
}

impl<A, B> Tee<A, B> {
    /// Combines both sinks.
    pub fn new(first: A, second: B) -> Self {
        let bodies = SharedBodies::default();
        Tee {
            first,
            second,
            resume_fns: [0, 1].map(|which| resume_fn(&bodies, which)),
            bodies,
        }
    }
}

/// The callback of one sink: the body is resumed once the other sink has room as well.
fn resume_fn(bodies: &SharedBodies, which: usize) -> ResumeFn {
    let bodies = Arc::clone(bodies);
    Arc::new(move |held| {
        let mut bodies = lock(&bodies);
        let Some(body) = bodies.get_mut(&held.attempt) else {
            return;
        };
        let was_full = std::mem::take(&mut body.full[which]);
        if was_full && !body.is_full() {
            let resume = body.resume.clone();
            drop(bodies);
            resume.resume();
        }
    })
}

impl SharedBody {
    fn is_full(&self) -> bool {
        self.full != [false; 2]
    }
}

/// A panic while the lock was held leaves the map consistent.
fn lock(bodies: &SharedBodies) -> MutexGuard<'_, BTreeMap<u64, SharedBody>> {
    bodies.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What both sinks prepare.
struct Both {
    first: Option<Box<dyn Preparation>>,
    second: Option<Box<dyn Preparation>>,
}

impl Preparation for Both {
    fn step(&mut self, page: &Page, units: &mut u64) -> bool {
        let mut both = self.first.iter_mut().chain(&mut self.second);
        both.all(|preparation| preparation.step(page, units))
    }

    fn complete(&mut self, page: &Page, gzip: &mut Gzip) {
        let both = self.first.iter_mut().chain(&mut self.second);
        both.for_each(|preparation| preparation.complete(page, gzip));
    }
}

impl<A: DiskSink, B: DiskSink> DiskSink for Tee<A, B> {
    fn keeps_codings(&self) -> bool {
        self.first.keeps_codings() || self.second.keeps_codings()
    }

    fn keeps_filtered(&self) -> bool {
        self.first.keeps_filtered() || self.second.keeps_filtered()
    }

    fn filtered(&mut self, line: &[u8], at: Wall, disk: &mut Vec<DiskJob>) {
        self.first.filtered(line, at, disk);
        self.second.filtered(line, at, disk);
    }

    fn keeps_links(&self) -> bool {
        self.first.keeps_links() || self.second.keeps_links()
    }

    fn preparation(&mut self, page: &Page, units: &mut u64) -> Option<Box<dyn Preparation>> {
        let first = self.first.preparation(page, units);
        let second = self.second.preparation(page, units);
        let is_wanted = first.is_some() || second.is_some();
        is_wanted.then(|| -> Box<dyn Preparation> { Box::new(Both { first, second }) })
    }

    fn prepared_page(&mut self, id: u64, prepared: Box<dyn Preparation>) {
        let prepared: Box<dyn Any> = prepared;
        if let Ok(both) = prepared.downcast::<Both>() {
            let Both { first, second } = *both;
            first
                .into_iter()
                .for_each(|first| self.first.prepared_page(id, first));
            second
                .into_iter()
                .for_each(|second| self.second.prepared_page(id, second));
        }
    }

    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        let [first, second] = [0, 1].map(|which| Reply {
            resumed: &self.resume_fns[which],
            ..reply.clone()
        });
        let modes = [self.first.on_head(&first), self.second.on_head(&second)];
        // Ordered by decreasing need.
        let order = [
            BodyMode::Keep,
            BodyMode::Take,
            BodyMode::Skip,
            BodyMode::Cancel,
        ];
        let body_mode = order
            .into_iter()
            .find(|body_mode| modes.contains(body_mode));
        let body_mode = body_mode.expect("the list contains every body mode");
        if body_mode == BodyMode::Take {
            let body = SharedBody {
                takes: modes.map(|body_mode| body_mode == BodyMode::Take),
                full: [false; 2],
                resume: reply.resume(),
            };
            lock(&self.bodies).insert(reply.id, body);
        }
        body_mode
    }

    fn on_body(&mut self, id: u64, piece: &[u8]) -> Flow {
        let takes = match lock(&self.bodies).get_mut(&id) {
            None => return Flow::Ready,
            Some(body) => {
                // A sink may resume before it has returned `Full`; that call must not be lost.
                body.full = body.takes;
                body.takes
            }
        };
        let ready = [
            takes[0] && self.first.on_body(id, piece) == Flow::Ready,
            takes[1] && self.second.on_body(id, piece) == Flow::Ready,
        ];
        let mut bodies = lock(&self.bodies);
        let body = bodies.get_mut(&id).expect("a body in pieces is registered");
        for (full, ready) in body.full.iter_mut().zip(ready) {
            *full &= !ready;
        }
        match body.is_full() {
            true => Flow::Full,
            false => Flow::Ready,
        }
    }

    fn reads_local(&self) -> bool {
        self.first.reads_local() || self.second.reads_local()
    }

    fn on_request(&mut self, id: u64, request: &dyn Fn() -> Request) {
        self.first.on_request(id, request);
        self.second.on_request(id, request);
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        lock(&self.bodies).remove(&page.id);
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

    fn on_time(&mut self, now: Wall, disk: &mut Vec<DiskJob>) {
        self.first.on_time(now, disk);
        self.second.on_time(now, disk);
    }

    fn rotate(&mut self, disk: &mut Vec<DiskJob>) -> Vec<String> {
        let mut closed = self.first.rotate(disk);
        closed.extend(self.second.rotate(disk));
        closed
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        self.first.finish(disk);
        self.second.finish(disk);
    }

    fn is_done(&self) -> bool {
        self.first.is_done() && self.second.is_done()
    }

    fn prepare(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.first.prepare(epoch, disk);
        self.second.prepare(epoch, disk);
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        let mut files = self.first.prepared(epoch)?;
        files.append(&mut self.second.prepared(epoch)?);
        Some(files)
    }

    fn committed(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.first.committed(epoch, disk);
        self.second.committed(epoch, disk);
    }

    fn resumed(&mut self, last: Option<&Commit>, disk: &mut Vec<DiskJob>) {
        self.first.resumed(last, disk);
        self.second.resumed(last, disk);
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
    use crate::sink::Sink;
    use crate::sink::function::FunctionSink;
    use crate::sink::page::samples;

    #[test]
    fn both_sinks_receive_every_page_and_either_applies_backpressure() {
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

        fn put(&mut self, _page: &mut Page) {}
    }

    impl OneAtATime {
        fn resume(&self) {
            self.0.as_ref().expect("a head came").resume();
        }
    }

    #[test]
    fn a_body_is_resumed_once_both_sinks_have_room() {
        let page = samples::page(7);
        let resumed = Arc::new(Mutex::new(0));
        let calls = Arc::clone(&resumed);
        let resume_fn: ResumeFn = Arc::new(move |_| *calls.lock().unwrap() += 1);
        let mut sink = Tee::new(OneAtATime::default(), OneAtATime::default());
        let reply = Reply {
            resumed: &resume_fn,
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

    /// Wants this mode for every body, and counts the bytes it receives.
    struct Wants(BodyMode, Flow, usize);

    impl Sink for Wants {
        fn on_head(&mut self, _reply: &Reply<'_>) -> BodyMode {
            self.0
        }

        fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
            self.2 += piece.len();
            self.1
        }

        fn put(&mut self, _page: &mut Page) {}
    }

    #[test]
    fn each_sink_receives_the_body_in_its_mode() {
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
            assert!(lock(&sink.bodies).is_empty());
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
