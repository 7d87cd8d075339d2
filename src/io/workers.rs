//! Helper threads that compute: work on whole pages, which would keep the loop busy.
//!
//! Jobs enter through one queue, all of a turn at once; results come back through the list of events and
//! its wake-up that the disk threads use. No job waits for another.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::Event;
use super::priority::lower_priority;
use super::results::{Results, block_signals};
use crate::base::gzip::Gzip;
use crate::base::worker::WorkerJob;

/// A handle of the helper threads. Dropping it waits for the jobs under way and drops the others.
#[derive(Debug)]
pub(super) struct Workers {
    queue: Arc<Queue>,
    /// Jobs that leave with the next submit.
    jobs: Vec<WorkerJob>,
    threads: Vec<JoinHandle<()>>,
    gzip_level: u32,
    results: Results,
}

/// Jobs that no thread has taken yet.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<WorkerJob>,
    /// Threads that wait for a job.
    waiting: usize,
    is_closed: bool,
}

impl Workers {
    /// Starts so many threads, which make gzip members of this level. Results go to `results`.
    pub(super) fn start(count: usize, gzip_level: u32, results: &Results) -> Self {
        let queue = Arc::new(Queue::default());
        let mut threads = Vec::new();
        for number in 0..count {
            let (queue, results) = (Arc::clone(&queue), results.clone());
            let name = format!("worker-{number}");
            match thread::Builder::new()
                .name(name)
                .spawn(move || work(&queue, Gzip::new(gzip_level), &results))
            {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    log::error!("cannot start a worker thread (WORKERS): {error}");
                    break;
                }
            }
        }
        Workers {
            queue,
            jobs: Vec::new(),
            threads,
            gzip_level,
            results: results.clone(),
        }
    }

    /// Queues a job until the next [`Workers::submit`].
    pub(super) fn push(&mut self, job: WorkerJob) {
        self.jobs.push(job);
    }

    /// Gives the queued jobs to the threads. Without a thread they are performed here.
    pub(super) fn submit(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        if self.threads.is_empty() {
            let mut gzip = Gzip::new(self.gzip_level);
            for job in self.jobs.drain(..) {
                self.results.report(Event::Computed(job.perform(&mut gzip)));
            }
            return;
        }
        let count = self.jobs.len();
        let mut state = self.queue.lock();
        state.jobs.extend(self.jobs.drain(..));
        let woken = state.waiting.min(count);
        mem::drop(state);
        for _ in 0..woken {
            self.queue.changed.notify_one();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.is_closed = true;
        state.jobs.clear();
        mem::drop(state);
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of jobs are results.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// The next job; `None` once the queue is closed.
    fn take(&self) -> Option<WorkerJob> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.waiting += 1;
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// The state is valid even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn work(queue: &Queue, mut gzip: Gzip, results: &Results) {
    block_signals();
    lower_priority(NICER);
    while let Some(job) = queue.take() {
        results.report(Event::Computed(job.perform(&mut gzip)));
    }
}

/// How much nicer the threads are than the one that starts them. They have a third of its share of a
/// processor that both want.
const NICER: i32 = 5;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use rustix::process::getpriority_process;
    use rustix::thread::gettid;

    use super::*;
    use crate::base::worker::{Compute, WorkerDone};
    use crate::io::Waker;

    /// Adds, once it may.
    struct Add {
        numbers: [u64; 2],
        sum: u64,
        may: Option<Receiver<()>>,
    }

    impl Compute for Add {
        fn run(&mut self, _gzip: &mut Gzip) {
            if let Some(may) = &self.may {
                may.recv().expect("the test lets it");
            }
            let [one, other] = self.numbers;
            self.sum = one.checked_add(other).expect("it fits");
        }
    }

    fn add(number: u64, other: u64, may: Option<Receiver<()>>) -> WorkerJob {
        let numbers = [number, other];
        let compute = Box::new(Add {
            numbers,
            sum: 0,
            may,
        });
        WorkerJob { number, compute }
    }

    fn wait_for(results: &Results, woken: &Receiver<()>, count: usize) -> Vec<WorkerDone> {
        let mut events = Vec::new();
        while events.len() < count {
            woken.recv().expect("the results wake the loop");
            results.take(&mut events);
        }
        let computed = events.into_iter().map(|event| match event {
            Event::Computed(done) => done,
            other => panic!("not a computation: {other:?}"),
        });
        computed.collect()
    }

    fn results() -> (Results, Receiver<()>) {
        let (wake, woken): (Sender<()>, _) = channel();
        let waker = Waker::new(move || wake.send(()).expect("the test listens"));
        (Results::new(waker), woken)
    }

    #[test]
    fn each_job_comes_back_once_with_its_result() {
        for threads in [0, 1, 3] {
            let (results, woken) = results();
            let mut workers = Workers::start(threads, 1, &results);
            (0..100).for_each(|number| workers.push(add(number, 5, None)));
            workers.submit();
            let mut sums: Vec<_> = wait_for(&results, &woken, 100)
                .into_iter()
                .map(|done| (done.number, done.into_computed::<Add>().sum))
                .collect();
            sums.sort_unstable();
            let expected: Vec<_> = (0..100).map(|number| (number, number + 5)).collect();
            assert_eq!(sums, expected, "{threads} threads");
        }
    }

    /// Reads the niceness of its thread.
    struct ReadNice(i32);

    impl Compute for ReadNice {
        fn run(&mut self, _gzip: &mut Gzip) {
            self.0 = getpriority_process(Some(gettid())).expect("it is readable");
        }
    }

    #[test]
    fn threads_that_compute_give_way_to_the_one_that_starts_them() {
        let here = getpriority_process(Some(gettid())).expect("it is readable");
        let (results, woken) = results();
        let mut workers = Workers::start(1, 1, &results);
        workers.push(WorkerJob {
            number: 1,
            compute: Box::new(ReadNice(i32::MIN)),
        });
        workers.submit();
        let done = wait_for(&results, &woken, 1).pop().expect("one job");
        let there = done.into_computed::<ReadNice>().0;
        assert_eq!(there, (here + NICER).min(19));
    }

    #[test]
    fn jobs_leave_with_submit_and_pass_one_that_takes_long() {
        let (results, woken) = results();
        let mut workers = Workers::start(2, 1, &results);
        let (let_it, may) = channel();
        workers.push(add(1, 1, Some(may)));
        workers.push(add(2, 2, None));
        assert!(woken.try_recv().is_err());
        workers.submit();
        assert_eq!(wait_for(&results, &woken, 1)[0].number, 2);
        let_it.send(()).expect("the job waits");
        assert_eq!(wait_for(&results, &woken, 1)[0].number, 1);
    }

    #[test]
    fn a_panic_is_a_result_and_its_thread_goes_on() {
        let (results, woken) = results();
        let mut workers = Workers::start(1, 1, &results);
        workers.push(add(1, u64::MAX, None));
        workers.push(add(2, 2, None));
        workers.submit();
        let done = wait_for(&results, &woken, 2);
        assert_eq!(done[0].panic.as_deref(), Some("it fits"));
        assert_eq!(done[1].panic, None);
    }

    #[test]
    fn dropping_waits_for_the_job_under_way_and_drops_the_others() {
        let (results, woken) = results();
        let mut workers = Workers::start(1, 1, &results);
        let (let_it, may) = channel();
        workers.push(add(1, 1, Some(may)));
        workers.push(add(2, 2, None));
        workers.submit();
        while workers.queue.lock().jobs.len() == 2 {
            thread::yield_now();
        }
        let_it.send(()).expect("the job waits");
        drop(workers);
        let first = wait_for(&results, &woken, 1);
        assert!(first[0].number == 1 && first.len() <= 2);
    }
}
