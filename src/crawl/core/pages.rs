//! Processes replies: so much at once, the rest a step in each turn, or by helper threads.

use crate::base::ids::LaneId;
use crate::base::units::Units;
use crate::base::worker::WorkerDone;
use crate::crawl::core::Core;
use crate::crawl::core::follow::Followed;
use crate::crawl::network::origins::Origin;
use crate::crawl::pages::Task;
use crate::fetch::exchange::Buffers;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;
use crate::frontier::robots::RobotsResult;
use crate::io::Io;
use crate::sink::Preparation;
use crate::sink::page::Page;

/// Pages of the line that are concluded in one turn: a millisecond's work.
const CONCLUDED_PER_TURN: usize = 64;

/// Pages that are given to workers for each of them: enough that none waits for the crawl's thread.
const JOBS_PER_WORKER: usize = 8;

impl<I: Io> Core<I> {
    /// Processes a reply that has just arrived. Returns its buffers if that is complete; otherwise the
    /// reply stays in progress.
    pub fn process_page(&mut self, mut task: Task) -> Option<Buffers> {
        let has_workers = self.pages.has_workers();
        let mut units = self.pages.units_at_once();
        let may_advance = !units.is_spent() && !self.work.is_full_of_offers();
        let is_ours = !has_workers || task.is_short();
        let is_over =
            task.is_light() || is_ours && may_advance && self.advance(&mut task, &mut units);
        self.pages.put_back(&units);
        if is_over && self.pages.is_first() {
            return Some(self.conclude(task));
        }
        let mut task = Box::new(task);
        self.count_held(&mut task);
        if has_workers {
            let is_complete = is_over || self.is_prepared_for_worker(&mut task);
            self.pages.line_up(task, is_complete);
            self.submit_computations(false);
        } else {
            self.pages.push(task);
        }
        None
    }

    /// The page of a redirect waits for the answer to the offer of its target: only then is it known
    /// whether it is final.
    pub fn wait_for_target(&mut self, task: Task, target: OfferId) -> Option<Buffers> {
        let mut task = Box::new(task);
        self.count_held(&mut task);
        self.pages.wait(target, task);
        None
    }

    /// Processes replies under way with the units left of the turn, a slice each, while the sink is ready and
    /// few offers wait. `is_ending`: in any case.
    pub fn process_pages(&mut self, is_ending: bool) {
        while !self.pages.is_spent() && (is_ending || self.may_read_links()) {
            let Some(mut task) = self.pages.pop() else {
                break;
            };
            let mut units = self.pages.slice();
            let is_over = self.advance(&mut task, &mut units);
            self.pages.put_back(&units);
            if is_over {
                self.conclude_later(*task);
            } else {
                self.count_held(&mut task);
                self.pages.push(task);
            }
        }
        self.process_line(is_ending);
        self.wakeups
            .turn_again_if(self.pages.has_work() && (is_ending || self.may_read_links()));
    }

    /// Handles what workers have found, and concludes replies in the order of the line.
    fn process_line(&mut self, is_ending: bool) {
        while !self.pages.is_spent() && (is_ending || self.may_read_links()) {
            let Some((number, mut task)) = self.pages.take_back() else {
                break;
            };
            self.conclude_decoded(&mut task);
            let mut units = self.pages.slice();
            let mut is_handled = self.handle_found(&mut task, &mut units);
            if is_handled && task.is_short() {
                is_handled = self.find(&mut task, &mut units);
            }
            self.pages.put_back(&units);
            self.count_held(&mut task);
            if is_handled {
                let is_direct = task.is_light() && task.work_mut().needs_preparation();
                let is_complete = is_direct || self.is_prepared_for_worker(&mut task);
                self.pages.settle(number, task, is_complete);
            } else {
                self.pages.put_back_task(number, task);
            }
        }
        self.submit_computations(is_ending);
        for _ in 0..CONCLUDED_PER_TURN {
            if !is_ending && !self.output.is_ready() {
                return;
            }
            let Some(task) = self.pages.pop_complete() else {
                return;
            };
            self.conclude_later(*task);
        }
    }

    /// The body of a reply is decoded now, if it was not before: what follows from it is decided.
    fn conclude_decoded(&mut self, task: &mut Task) {
        let Some(open) = task.open.take() else {
            return;
        };
        let page = &mut task.work.as_mut().expect("its page is here").page;
        let (refusals, followed) = self.conclude_reply(&task.job, *open, page, task.is_cancelled);
        task.refusals = refusals;
        match followed {
            Followed::Finding(finding) => task.work_mut().set_finding(finding),
            Followed::Awaits(_) => unreachable!("a redirect is decoded while it arrives"),
        }
    }

    /// A worker has done its work on a reply.
    pub fn on_computed(&mut self, done: WorkerDone) {
        let number = done.number;
        let panicked = self.pages.handle_computed(done).cloned();
        let has_record = self.output.keeps_codings();
        if let Some(task) = self.pages.in_line(number)
            && let Some(held) = task.memory(has_record)
        {
            self.network.count_held(task.held, held);
            task.held = held;
        }
        let Some(job) = panicked else {
            return;
        };
        log::error!("{}: a fault of ours; the page has no links", job.url);
        if let Some(origin) = job.robots_for() {
            // What waits for its rules is not fetched without them.
            let id = job.id;
            let robots = self.on_robots(id, origin, RobotsResult::Unreachable);
            let task = self.pages.in_line(number);
            if let Some(work) = task.and_then(|task| task.work.as_mut()) {
                work.page.robots = Some(robots);
            }
        }
    }

    /// Asks the sink what it prepares of a page, if it was not asked yet. Returns whether that leaves no work
    /// for a worker.
    fn is_prepared_for_worker(&mut self, task: &mut Task) -> bool {
        let work = task.work_mut();
        if work.needs_preparation() {
            let preparation = self.output.preparation(&work.page, &mut 0);
            work.set_preparation(preparation);
        }
        work.is_complete()
    }

    /// Passes jobs to the workers, while their results are handled; they begin when the turn submits.
    fn submit_computations(&mut self, is_ending: bool) {
        let is_handled = is_ending || self.may_read_links();
        loop {
            let most = match (is_handled, self.network.is_full()) {
                (false, _) => 0,
                // The first of the line makes room.
                (true, true) => 1,
                (true, false) => JOBS_PER_WORKER * self.config.io.workers,
            };
            let Some(job) = self.pages.poll_job(most) else {
                return;
            };
            if let Some(task) = self.pages.in_line(job.number) {
                let held = task.held + std::mem::take(&mut task.expected);
                self.network.count_held(task.held, held);
                task.held = held;
            }
            self.network.compute(job);
        }
    }

    /// The requests that have their replies, whose results the sink has not got.
    pub fn replied(&self) -> impl Iterator<Item = &Job> {
        self.pages.jobs()
    }

    /// Whether replies are processed: the sink is ready, and answers to offers are not too far behind.
    fn may_read_links(&self) -> bool {
        self.output.is_ready() && !self.work.is_full_of_offers()
    }

    /// Ends all work under way; links not found yet are dropped. Replies that are at a worker are given up:
    /// they are still to be fetched.
    pub fn conclude_all(&mut self) {
        self.keep_offers();
        let (line, without_verdict) = self.pages.drain_line();
        self.end_without_verdict(without_verdict);
        let under_way = std::iter::from_fn(|| self.pages.pop()).map(|task| *task);
        let all: Vec<Task> = under_way.chain(line).collect();
        for mut task in all {
            self.conclude_decoded(&mut task);
            task.work_mut().cut_short();
            self.conclude_later(task);
        }
    }

    /// Does a step of the work; returns whether it is complete.
    fn advance(&mut self, task: &mut Task, units: &mut Units) -> bool {
        if !self.handle_found(task, units) || !self.find(task, units) {
            return false;
        }
        let work = task.work_mut();
        if work.needs_preparation() {
            let before = units.left();
            let mut left = before;
            let preparation = self.output.preparation(&work.page, &mut left);
            units.spend((before - left.min(before)) as usize);
            work.set_preparation(preparation);
        }
        work.prepare(units)
    }

    /// Delivers the page of a task to the sink; the lane continues.
    fn conclude(&mut self, task: Task) -> Buffers {
        let Task {
            job,
            lane,
            origin,
            work,
            refusals,
            ..
        } = task;
        let work = work.expect("a page at a worker is not concluded");
        let (page, prepared) = work.into_page();
        self.conclude_page((&job, lane, origin), refusals, page, prepared)
    }

    /// Delivers a page to the sink, with what was prepared of it; the lane continues.
    pub fn conclude_page(
        &mut self,
        (job, lane, origin): (&Job, LaneId, Origin),
        refusals: u32,
        page: Box<Page>,
        prepared: Option<Box<dyn Preparation>>,
    ) -> Buffers {
        self.count_in_scopes(&page, refusals);
        let counts = page.is_final && page.status.is_some();
        if let Some(prepared) = prepared {
            self.output.handle_prepared(page.id, prepared);
        }
        let buffers = self.deliver(job, page);
        self.end_attempt(lane, job, counts);
        self.release_origin(origin);
        buffers
    }

    /// The same of one that was under way, for which a connection may have been kept.
    fn conclude_later(&mut self, task: Task) {
        // There may be room for another.
        self.wakeups.turn_again();
        let (lane, origin) = (task.lane, task.origin);
        self.network.count_held(task.held, 0);
        self.share_origin(origin);
        let buffers = self.conclude(task);
        self.output.put_buffers(buffers);
        let is_wanted = self.is_running() && self.frontier.has_queued(lane);
        if !self.workload.keeps_connection(is_wanted) && !self.pages.has(lane) {
            self.close_idle(origin);
        }
        self.release_origin(origin);
    }

    /// Counts anew what a reply under way holds: it is among the bodies that are buffered.
    fn count_held(&mut self, task: &mut Task) {
        let Some(held) = task.memory(self.output.keeps_codings()) else {
            return;
        };
        self.network.count_held(task.held, held);
        task.held = held;
    }
}
