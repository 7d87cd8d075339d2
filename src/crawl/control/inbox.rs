//! Inbox of a crawl's handles: submissions, answers of the scope map, commands, and stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::crawl::config::Config;
use crate::crawl::control::ahead::Ahead;
use crate::crawl::control::handle::{Handle, Stopper};
use crate::crawl::control::reloads::Reloads;
use crate::crawl::control::shared::{COMMANDS_TIME, Command, Shared, lock};
use crate::crawl::control::submissions::Waiting;
use crate::crawl::stats::Snapshot;
use crate::crawl::work::mapping::Mapped;
use crate::frontier::job::Job;
use crate::frontier::numbers::Numbers;
use crate::io::Waker;
use crate::throttle::map::DeferredScopes;

/// Inbox of a crawl's handles.
#[derive(Debug)]
pub struct Inbox {
    stopper: Stopper,
    /// Submitted requests that were taken and have not ended.
    ahead: Ahead,
    /// The grace time that was returned last.
    last_grace: u64,
}

/// A command to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Within the grace time of the configuration.
    Configured,
    /// Within this time.
    Within(Duration),
}

impl Inbox {
    /// `numbers`: source of the attempts' numbers. `ahead_max`: most requests that handles may submit beyond what is
    /// being fetched.
    pub fn new(waker: Waker, config: Arc<Config>, numbers: Numbers, ahead_max: usize) -> Self {
        let shared = Shared::new(config, numbers, ahead_max);
        Inbox {
            stopper: Stopper::of(Arc::new(shared), waker),
            ahead: Ahead::default(),
            last_grace: Shared::NEVER,
        }
    }

    fn shared(&self) -> &Shared {
        self.stopper.shared()
    }

    pub fn handle(&self) -> Handle {
        Handle::of(self.stopper())
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// A turn begins, on this thread.
    pub fn begin_turn(&self) {
        self.shared().set_driver();
    }

    pub fn take(&mut self) -> Option<Waiting> {
        let waiting = self.stopper.shared().submissions.take()?;
        if let Waiting::Numbered(job) = &waiting {
            self.ahead.handle_taken(job.id);
        }
        Some(waiting)
    }

    /// Another thread than this one will take the turns.
    pub fn hand_over(&self) {
        self.shared().hand_over();
    }

    /// An attempt of the request of this number took off, or its flight is over.
    pub fn handle_flight(&mut self, root: u64, is_in_flight: bool) {
        self.ahead.handle_flight(root, is_in_flight);
    }

    /// The request of this number has its final page.
    pub fn handle_end(&mut self, root: u64) {
        self.ahead.handle_end(root);
    }

    /// Submitters get the room that requests left which are fetched or have ended: at the end of a turn if it is enough,
    /// in a tick in any case.
    pub fn offer_room(&mut self, is_tick: bool) {
        let submissions = &self.stopper.shared().submissions;
        match self.ahead.take_change() {
            Some(unfetched) => submissions.set_unfetched(unfetched, is_tick),
            None if is_tick && submissions.lock().has_held_back() => {
                submissions.set_unfetched(self.ahead.unfetched(), true);
            }
            None => {}
        }
    }

    /// Replaces the most requests that handles may submit beyond what is being fetched.
    pub fn set_ahead_max(&self, requests: usize) {
        self.shared().submissions.set_ahead_max(requests);
    }

    /// Removes the numbered submissions that `is_unwanted` names.
    pub fn take_out(&mut self, is_unwanted: impl Fn(&Job) -> bool) -> Vec<Job> {
        let submissions = &self.shared().submissions;
        let mut submitted = submissions.lock();
        let out = submitted.take_out(is_unwanted);
        if !out.is_empty() {
            submissions.wake(submitted);
        }
        out
    }

    /// The lowest number of the submissions that have one.
    pub fn lowest_number(&self) -> Option<u64> {
        self.shared().submissions.lock().lowest_number()
    }

    /// Whether no submission waits.
    pub fn is_empty(&self) -> bool {
        self.shared().submissions.lock().is_empty()
    }

    /// The commands since the last call, in order, as many as one turn has time for; and whether there are
    /// more.
    pub fn take_commands(&mut self) -> (Vec<Command>, bool) {
        let commands = &mut lock(&self.shared().commands).waiting;
        let mut time = COMMANDS_TIME;
        let takes_all = |command: &Command| {
            time = time.saturating_sub(command.takes());
            time == 0
        };
        let until = commands.iter().position(takes_all);
        let now: Vec<Command> = commands
            .drain(..until.map_or(commands.len(), |last| last + 1))
            .collect();
        (now, !commands.is_empty())
    }

    /// Whether commands are still to be taken.
    pub fn has_commands(&self) -> bool {
        !lock(&self.shared().commands).waiting.is_empty()
    }

    /// Accepts no more commands. Returns whether some are still to be taken.
    pub fn close_commands(&mut self) -> bool {
        let mut commands = lock(&self.shared().commands);
        commands.closed = true;
        !commands.waiting.is_empty()
    }

    /// Whether the crawl is paused. Not without a handle, which alone can resume it.
    pub fn is_paused(&self) -> bool {
        self.shared().paused.load(Ordering::SeqCst) && !self.is_closed()
    }

    /// Requests to read the configuration anew.
    pub fn reloads(&self) -> &Reloads {
        &self.shared().reloads
    }

    /// Whether a handle has resumed the crawl since the last call.
    pub fn take_resumed(&mut self) -> bool {
        self.shared().resumed.swap(false, Ordering::SeqCst)
    }

    /// Enables answers of the scope map from any thread.
    pub fn later(&self, number: u64, part: usize) -> DeferredScopes {
        let stopper = self.stopper();
        DeferredScopes::new(move |scopes| {
            let mut mapped = lock(&stopper.shared().mapped);
            // As with requests: a sleeping crawl is woken; one that left some polls again in its next turn.
            let asleep = mapped.is_empty();
            mapped.push_back(Mapped {
                number,
                part,
                scopes,
            });
            drop(mapped);
            if asleep {
                stopper.waker().wake();
            }
        })
    }

    pub fn take_mapped(&mut self) -> Option<Mapped> {
        lock(&self.shared().mapped).pop_front()
    }

    /// Whether a handle requested a snapshot.
    pub fn is_asked(&self) -> bool {
        self.shared().asked.load(Ordering::SeqCst)
    }

    /// Sends a snapshot to all handles that requested one.
    pub fn answer(&self, snapshot: Snapshot) {
        let shared = self.shared();
        let mut snapshots = lock(&shared.snapshots);
        shared.asked.store(false, Ordering::SeqCst);
        snapshots.answered = snapshots.asked;
        snapshots.last = snapshot;
        drop(snapshots);
        shared.snapshot_taken.notify_all();
    }

    /// Accepts no more submissions: called when the crawl begins to end. What was accepted before can still be taken.
    pub fn close_submissions(&self) {
        self.shared().submissions.close();
    }

    /// The same if none waits to be taken and no handle exists. Returns whether they are closed.
    pub fn close_submissions_if_done(&self) -> bool {
        self.is_closed() && self.shared().submissions.close_if_empty()
    }

    /// Accepts nothing more: called when the crawl is over. What was accepted before can still be taken.
    pub fn close(&mut self) {
        let shared = self.shared();
        shared.submissions.close();
        let mut commands = lock(&shared.commands);
        commands.closed = true;
        commands.waiting.clear();
        drop(commands);
        // No further turn would answer the waiting handles.
        lock(&shared.snapshots).answered = u64::MAX;
        shared.snapshot_taken.notify_all();
    }

    /// Whether no handle exists. Requests submitted before may still wait.
    pub fn is_closed(&self) -> bool {
        self.shared().handles.load(Ordering::SeqCst) == 0
    }

    /// Takes the count of invalid seed lines.
    pub fn take_bad_seeds(&self) -> u64 {
        self.shared().bad_seeds.swap(0, Ordering::SeqCst)
    }

    /// Whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.shared().grace.load(Ordering::SeqCst) < Shared::NEVER
    }

    /// A command to stop, or to stop sooner; each is returned once.
    pub fn take_stop(&mut self) -> Option<Stop> {
        let grace = self.shared().grace.load(Ordering::SeqCst);
        if grace >= self.last_grace {
            return None;
        }
        self.last_grace = grace;
        Some(match grace {
            Shared::CONFIGURED => Stop::Configured,
            nanos => Stop::Within(Duration::from_nanos(nanos)),
        })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;
    use std::task::{Context, Poll, Wake};
    use std::{fs, thread};

    use super::*;
    use crate::crawl::control::error::SubmitError;
    use crate::crawl::control::submissions::SUBMITTED_MAX;
    use crate::frontier::request::Request;
    use crate::throttle::settings::ScopePatch;

    fn inbox() -> (Inbox, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let waker = Waker::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let inbox = Inbox::new(waker, Arc::default(), Numbers::default(), usize::MAX);
        (inbox, wakes)
    }

    /// Takes this many requests as they arrive.
    fn take(inbox: &mut Inbox, total: usize) {
        let mut taken = 0;
        while taken < total {
            match inbox.take() {
                Some(_) => taken += 1,
                None => thread::yield_now(),
            }
        }
    }

    #[test]
    fn a_full_inbox_rejects_requests_until_one_is_taken() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for number in 0..SUBMITTED_MAX {
            let request = Request::get("http://a.test/").tag(number as u64);
            handle.try_submit(request).expect("there is room");
        }
        let more = handle.try_submit(Request::get("http://a.test/more"));
        assert!(matches!(more, Err(SubmitError::Full(request)) if request.url.ends_with("more")));
        assert!(inbox.take().is_some());
        handle
            .try_submit(Request::get("http://a.test/more"))
            .expect("there is room again");
    }

    #[test]
    fn a_submitter_that_waits_for_room_resumes_once_half_is_taken() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        let total = SUBMITTED_MAX * 3;
        let submits = thread::spawn(move || {
            for _ in 0..total {
                handle
                    .submit(Request::get("http://a.test/"))
                    .expect("the crawl goes on");
            }
        });
        take(&mut inbox, total);
        submits.join().expect("it does not wait for ever");
    }

    /// Waits until a thread sleeps.
    fn until_asleep(task: &Path) {
        let is_asleep = || {
            let stat = fs::read_to_string(task.join("stat")).expect("it lives");
            let (_, state) = stat.rsplit_once(") ").expect("its name has brackets");
            state.starts_with('S')
        };
        while !is_asleep() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_submitter_that_waits_for_room_is_woken_when_the_crawl_is_over() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for _ in 0..SUBMITTED_MAX {
            handle
                .try_submit(Request::get("http://a.test/"))
                .expect("there is room");
        }
        let (sender, receiver) = channel();
        let waits = thread::spawn(move || {
            let task = fs::read_link("/proc/thread-self").expect("Linux");
            sender.send(task).expect("the test listens");
            handle.submit(Request::get("http://a.test/late"))
        });
        let task = receiver.recv().expect("it is about to wait");
        until_asleep(&Path::new("/proc").join(task));
        inbox.close();
        let refused = waits.join().expect("it does not wait for ever");
        assert!(
            matches!(refused, Err(SubmitError::Over(request)) if request.url.ends_with("late"))
        );
        assert!(inbox.take().is_some(), "what was taken is still there");
    }

    /// Polls a future to its end, sleeping in between.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        struct Thread(thread::Thread);
        impl Wake for Thread {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Thread(thread::current())).into();
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }

    #[test]
    fn a_task_that_waits_for_room_resumes_once_half_is_taken() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        let total = SUBMITTED_MAX * 3;
        let submits = thread::spawn(move || {
            block_on(async {
                for _ in 0..total {
                    let request = Request::get("http://a.test/");
                    handle
                        .submit_async(request)
                        .await
                        .expect("the crawl goes on");
                }
            });
        });
        take(&mut inbox, total);
        submits.join().expect("it does not wait for ever");
    }

    #[test]
    fn a_task_that_waits_for_room_is_woken_when_the_crawl_is_over() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for _ in 0..SUBMITTED_MAX {
            let request = Request::get("http://a.test/");
            handle.try_submit(request).expect("there is room");
        }
        let woken = Arc::new(AtomicUsize::new(0));
        struct Counted(Arc<AtomicUsize>);
        impl Wake for Counted {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let waker = Arc::new(Counted(Arc::clone(&woken))).into();
        let mut context = Context::from_waker(&waker);
        let mut late = pin!(handle.submit_async(Request::get("http://a.test/late")));
        for _ in 0..3 {
            assert!(late.as_mut().poll(&mut context).is_pending());
        }
        inbox.close();
        assert_eq!(
            woken.load(Ordering::SeqCst),
            1,
            "once, however often it was polled"
        );
        let Poll::Ready(refused) = late.as_mut().poll(&mut context) else {
            panic!("it waits for a crawl that is over");
        };
        assert!(
            matches!(refused, Err(SubmitError::Over(request)) if request.url.ends_with("late"))
        );
    }

    #[test]
    fn a_dropped_future_stops_waiting_for_room() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        for _ in 0..SUBMITTED_MAX {
            let request = Request::get("http://a.test/");
            handle.try_submit(request).expect("there is room");
        }
        let mut context = Context::from_waker(std::task::Waker::noop());
        let late = || Box::pin(handle.submit_async(Request::get("http://a.test/late")));
        let mut stays = late();
        for _ in 0..1000 {
            let mut given_up = late();
            for future in [&mut given_up, &mut stays] {
                assert!(future.as_mut().poll(&mut context).is_pending());
            }
        }
        assert_eq!(
            inbox.shared().submissions.waits(),
            1,
            "the one that is left"
        );
        inbox.close();
        assert_eq!(inbox.shared().submissions.waits(), 0);
        let mut after = late();
        assert!(after.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn f67_a_crawl_is_woken_for_the_first_answer_only() {
        let (mut inbox, wakes) = inbox();
        inbox.later(1, 0).answer("a");
        drop(inbox.later(2, 0));
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        let numbers = std::iter::from_fn(|| inbox.take_mapped()).map(|mapped| mapped.number);
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
        inbox.later(3, 0).answer("a");
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn commands_about_scopes_are_applied_a_few_in_each_turn_and_cancels_together() {
        let (mut inbox, _) = inbox();
        let handle = inbox.handle();
        let set = |name: &str| handle.set_scope(name, ScopePatch::default());
        for number in 0..100 {
            set(&format!("key-{number}")).expect("the crawl runs");
        }
        set("default").expect("the crawl runs");
        set("*.example.org").expect("the crawl runs");
        for id in 0..1000 {
            handle.cancel(id).expect("it goes on");
        }
        let turns: Vec<(usize, bool)> = (0..5)
            .map(|_| inbox.take_commands())
            .map(|(commands, is_more)| (commands.len(), is_more))
            .collect();
        let expected = [(64, true), (37, true), (1, true), (1000, false), (0, false)];
        assert_eq!(turns, expected);
    }

    #[test]
    fn a_crawl_is_woken_for_the_first_request_only() {
        let (mut inbox, wakes) = inbox();
        let handle = inbox.handle();
        let submit = || {
            handle
                .try_submit(Request::get("http://a.test/"))
                .expect("there is room");
        };
        submit();
        submit();
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        while inbox.take().is_some() {}
        submit();
        assert_eq!(wakes.load(Ordering::SeqCst), 2);
    }
}
