//! Processing of complete replies: searching their bodies, and preparing their result lines. The loop does
//! it in bounded steps, several in a turn, so that no page delays others; or helper threads do it (`WORKERS`).
//!
//! ```text
//! on_end ──► at once, as far as the turn's units last ──► concluded: the sink has it, its lane continues
//!                 │                                            ▲
//!                 ├──► under way, a slice in each turn ────────┤
//!                 └──► at a worker ──► in the line, in order ──┘
//! ```

pub mod finding;
mod line;
pub mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::ids::LaneId;
use crate::base::units::Units;
use crate::base::worker::{WorkerDone, WorkerJob};
use crate::crawl::classifier::BodyStart;
use crate::crawl::network::origins::Origin;
use crate::crawl::pages::line::Line;
use crate::crawl::pages::work::PageWork;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;
use crate::sink::page::Page;
use crate::throttle::decision::Decision;
use crate::throttle::engine::TicketId;
use crate::throttle::signal::Signal;
use crate::wire::url::CrawlUrl;

/// The replies under way, and the units left for them in the turn.
#[derive(Debug)]
pub struct Pages {
    units: Units,
    /// Units left in the turn for matching requests with rules of robots.txt.
    rules: Units,
    under_way: VecDeque<Box<Task>>,
    /// Whether helper threads do the work on large replies.
    has_workers: bool,
    /// With helper threads: all replies that are not concluded, except redirects that wait.
    line: Line,
    /// Jobs for the workers, by their numbers: those of the first in the line go first.
    jobs: BTreeMap<u64, WorkerJob>,
    /// Requests of replies that were given up while they were at a worker.
    abandoned: Vec<Job>,
    /// Number of replies at a worker.
    at_workers: usize,
    /// Redirects, each until the offer of its target is answered.
    waiting: BTreeMap<OfferId, Box<Task>>,
    /// Most units spent in a turn.
    #[cfg(test)]
    spent_max: u64,
}

/// A complete reply and its remaining work.
///
/// Its lane stays open and its page counts as in flight until it is concluded.
#[derive(Debug)]
pub struct Task {
    pub job: Job,
    pub lane: LaneId,
    /// Held until the end.
    pub origin: Origin,
    /// Which of the page's scopes refused it: a bit for each, in order.
    pub refusals: u32,
    /// The page and the work on it; `None` while it is at a worker.
    pub work: Option<PageWork>,
    /// What the verdict on its reply needs, until its body is decoded.
    pub open: Option<Box<OpenEnd>>,
    /// Its URL, shared by the requests that follow from it; `None` before the first.
    pub via: Option<Arc<str>>,
    /// Its bytes counted as buffered.
    pub held: usize,
    /// Bytes that its body is expected to take once it is decoded, until that is under way.
    pub expected: usize,
    /// The crawl stopped before its reply was complete.
    pub is_stopped: bool,
    /// Links that are found from now on are dropped.
    pub is_cancelled: bool,
}

/// What a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyWait {
    /// Its turn among the replies under way.
    Turn,
    /// A helper thread.
    Worker,
    /// Its body, without which the throttle has no verdict.
    Verdict,
    /// Whether the target of its redirect was seen.
    Target,
    /// It was given up when the crawl ended: the request is still to be fetched.
    NextRun,
}

/// The end of an exchange of which the throttle has not the verdict yet: the body may show a refusal, or a fault.
#[derive(Debug)]
pub struct OpenEnd {
    pub ticket: TicketId,
    /// Signal of the reply's head.
    pub signal: Option<Signal>,
    /// The start of its body, if it is judged by that.
    pub body_start: Option<Box<BodyStart>>,
    /// The decisions that its head caused.
    pub decisions: Vec<Decision>,
}

/// Work of a turn on replies, in units of a few nanoseconds: one to three milliseconds, for any
/// content.
pub const UNITS_PER_TURN: u64 = 384 << 10;

/// Octets that a turn matches with rules of robots.txt: enough for a few malicious files.
const RULE_UNITS_PER_TURN: u64 = 1 << 20;

/// Units reserved for replies under way, which new replies may not use.
const UNITS_RESERVED: u64 = UNITS_PER_TURN / 2;

/// Slice of one of several replies, in units.
const UNITS_PER_SLICE: u64 = UNITS_PER_TURN / 4;

/// Fixed cost of a reply, in units.
const TASK_UNITS: usize = 256;

/// A reply without a search is concluded at once if it is no longer than this, in bytes.
const LIGHT: usize = 16 << 10;

/// A body that is searched is not worth a worker if it is no longer than this, in bytes: most files of
/// robots.txt, and the bodies of redirects and errors.
const SHORT: usize = 2 << 10;

/// Releases stop while so many replies are under way.
const UNDER_WAY_MAX: usize = 256;

impl Default for Pages {
    fn default() -> Self {
        Pages {
            units: Units::new(UNITS_PER_TURN),
            rules: Units::new(RULE_UNITS_PER_TURN),
            under_way: VecDeque::new(),
            has_workers: false,
            line: Line::default(),
            jobs: BTreeMap::new(),
            abandoned: Vec::new(),
            at_workers: 0,
            waiting: BTreeMap::new(),
            #[cfg(test)]
            spent_max: 0,
        }
    }
}

impl Pages {
    /// No reply yet. `has_workers`: helper threads work on large ones.
    pub fn new(has_workers: bool) -> Self {
        Pages {
            has_workers,
            ..Pages::default()
        }
    }

    /// Whether helper threads work on large replies.
    pub fn has_workers(&self) -> bool {
        self.has_workers
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        #[cfg(test)]
        {
            self.spent_max = self.spent_max();
        }
        self.units = Units::new(UNITS_PER_TURN);
        self.rules = Units::new(RULE_UNITS_PER_TURN);
    }

    /// The units for a new reply: those left in the turn, less those reserved for replies under way.
    pub fn units_at_once(&mut self) -> Units {
        let reserved = match self.has_under_way() {
            false => 0,
            true => UNITS_RESERVED,
        };
        let most = self.units.left().saturating_sub(reserved);
        let mut units = self.units.take(most);
        units.spend(TASK_UNITS);
        units
    }

    /// The units for one of the replies under way: its slice of what is left of the turn.
    pub fn slice(&mut self) -> Units {
        self.units.take(UNITS_PER_SLICE)
    }

    /// Takes back what is left of units that were given out.
    pub fn put_back(&mut self, units: &Units) {
        self.units.put_back(units);
    }

    /// A reply is under way, behind all others.
    pub fn push(&mut self, task: Box<Task>) {
        self.under_way.push_back(task);
    }

    /// The first reply under way.
    pub fn pop(&mut self) -> Option<Box<Task>> {
        self.under_way.pop_front()
    }

    /// A redirect waits for the answer to the offer of its target.
    pub fn wait(&mut self, target: OfferId, task: Box<Task>) {
        self.waiting.insert(target, task);
    }

    /// The answer has arrived: `set` records it in the page, which is queued last. Returns false if no
    /// redirect waits for it.
    pub fn resume(&mut self, target: OfferId, set: impl FnOnce(&mut Page)) -> bool {
        let Some(mut task) = self.waiting.remove(&target) else {
            return false;
        };
        set(&mut task.work_mut().page);
        match self.has_workers {
            false => self.under_way.push_back(task),
            true => {
                let number = self.line.push(task, false);
                self.line.came_back(number);
            }
        }
        true
    }

    /// Spends the units of a page that is searched for nothing, if it can be concluded at once: that takes
    /// negligible time, and no other page is before it. Returns whether it can.
    pub fn try_take_at_once(&mut self, page: &Page) -> bool {
        let takes = is_light(page) && self.is_first();
        if takes {
            let units = self.units_at_once();
            self.put_back(&units);
        }
        takes
    }

    /// Whether a reply that has just arrived is concluded at once if its work is complete: none is before it.
    pub fn is_first(&self) -> bool {
        self.line.is_empty()
    }

    /// A reply is the last in the line. Unless it is complete it goes to a worker.
    pub fn line_up(&mut self, mut task: Box<Task>, is_complete: bool) {
        task.expected = task.work_mut().memory_decoded();
        let work = if is_complete { None } else { task.work.take() };
        let number = self.line.push(task, is_complete);
        self.jobs
            .extend(work.map(|work| (number, job_of(number, work))));
    }

    /// The next job for the workers, if fewer than `most` are at them.
    pub fn poll_job(&mut self, most: usize) -> Option<WorkerJob> {
        if self.at_workers >= most {
            return None;
        }
        let (_, job) = self.jobs.pop_first()?;
        self.at_workers += 1;
        Some(job)
    }

    /// A worker has done its work on a reply. Returns the request of one that ended in a panic.
    pub fn handle_computed(&mut self, done: WorkerDone) -> Option<&Job> {
        self.at_workers -= 1;
        let (number, panic) = (done.number, done.panic.clone());
        // Otherwise it was given up.
        let task = self.line.get_mut(number)?;
        let mut work = *done.into_computed::<PageWork>();
        if let Some(message) = &panic {
            work.fail(message);
        } else if task.is_cancelled {
            work.cancel();
        }
        task.work = Some(work);
        self.line.came_back(number);
        let task = self.line.get_mut(number);
        task.filter(|_| panic.is_some()).map(|task| &task.job)
    }

    /// The reply of this number, if it is in the line.
    pub fn in_line(&mut self, number: u64) -> Option<&mut Task> {
        self.line.get_mut(number)
    }

    /// The next reply whose results are to be handled, with its number.
    pub fn take_back(&mut self) -> Option<(u64, Box<Task>)> {
        self.line.take_back()
    }

    /// The units of the turn end before all results of a reply are handled.
    pub fn put_back_task(&mut self, number: u64, task: Box<Task>) {
        self.line.put_back(number, task);
    }

    /// The results of a reply are handled. Unless it is complete it goes to a worker once more.
    pub fn settle(&mut self, number: u64, mut task: Box<Task>, is_complete: bool) {
        let work = if is_complete { None } else { task.work.take() };
        self.line.settle(number, task, is_complete);
        self.jobs
            .extend(work.map(|work| (number, job_of(number, work))));
    }

    /// The first reply of the line, if it is complete.
    pub fn pop_complete(&mut self) -> Option<Box<Task>> {
        self.line.pop()
    }

    /// Gives up the replies that are at a worker. Returns the others of the line, and the tickets of those
    /// without a verdict.
    pub fn drain_line(&mut self) -> (Vec<Task>, Vec<TicketId>) {
        self.jobs.clear();
        let tasks = self.line.drain().map(|task| *task);
        let (here, away): (Vec<_>, Vec<_>) = tasks.partition(|task| task.work.is_some());
        let open = away.iter().filter_map(|task| task.open.as_ref());
        let tickets = open.map(|open| open.ticket).collect();
        // What the crawl has stopped is kept already.
        let lost = away.into_iter().filter(|task| !task.is_stopped);
        self.abandoned.extend(lost.map(|task| task.job));
        (here, tickets)
    }

    /// The request whose redirect waits for this answer.
    pub fn waiting_for(&self, target: OfferId) -> Option<&Job> {
        self.waiting.get(&target).map(|task| &task.job)
    }

    /// The requests of all replies under way or waiting.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        let all = self.tasks().map(|task| &task.job);
        all.chain(&self.abandoned)
    }

    /// The request for a URL whose reply is under way or waits, and for what.
    pub fn find(&self, url: &CrawlUrl) -> Option<(&Job, ReplyWait)> {
        let is_it = |task: &&Task| task.job.url == *url;
        let mut waiting = self.waiting.values().map(|task| &**task);
        if let Some(task) = waiting.find(is_it) {
            return Some((&task.job, ReplyWait::Target));
        }
        if let Some(task) = self.tasks().find(is_it) {
            let wait = match (&task.work, &task.open) {
                (None, _) => ReplyWait::Worker,
                (Some(_), Some(_)) => ReplyWait::Verdict,
                (Some(_), None) => ReplyWait::Turn,
            };
            return Some((&task.job, wait));
        }
        let mut abandoned = self.abandoned.iter();
        let job = abandoned.find(|job| job.url == *url)?;
        Some((job, ReplyWait::NextRun))
    }

    /// All replies under way, in the line or waiting.
    fn tasks(&self) -> impl Iterator<Item = &Task> {
        let all = self.under_way.iter().chain(self.waiting.values());
        all.map(|task| &**task).chain(self.line.iter())
    }

    /// Whether no reply is under way or waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is work to do for a reply, here or at a worker.
    pub fn has_under_way(&self) -> bool {
        !self.under_way.is_empty() || !self.line.is_empty()
    }

    /// Whether the loop has work to do for a reply, now.
    pub fn has_work(&self) -> bool {
        !self.under_way.is_empty() || self.line.has_back() || self.line.has_complete()
    }

    /// Whether there are replies at a worker, and none of which the work is the loop's.
    pub fn are_at_workers(&self) -> bool {
        self.at_workers > 0 && self.waiting.is_empty() && !self.has_work()
    }

    /// Number of replies under way or waiting.
    pub fn len(&self) -> usize {
        self.under_way.len() + self.line.len() + self.waiting.len()
    }

    /// Whether so many are under way that nothing should be released.
    pub fn is_full(&self, in_flight: usize, in_flight_max: usize) -> bool {
        self.len() >= UNDER_WAY_MAX.min(in_flight_max.saturating_sub(in_flight).max(1))
    }

    /// Whether one of a lane's is under way.
    pub fn has(&self, lane: LaneId) -> bool {
        self.tasks().any(|task| task.lane == lane)
    }

    /// Whether the turn has done enough.
    pub fn is_spent(&self) -> bool {
        self.units.is_spent()
    }

    /// `steps` octets of requests were compared with rules of robots.txt.
    pub fn spend_on_rules(&mut self, steps: usize) {
        self.rules.spend(steps);
    }

    /// Whether the turn has compared as many as it may.
    pub fn is_spent_on_rules(&self) -> bool {
        self.rules.is_spent()
    }

    /// Most units spent in a turn.
    #[cfg(test)]
    pub fn spent_max(&self) -> u64 {
        self.spent_max.max(self.units.spent())
    }

    /// Ends the search in the replies that `is_named` names.
    pub fn cancel(&mut self, mut is_named: impl FnMut(&Task) -> bool) {
        let all = self.under_way.iter_mut().map(|task| &mut **task);
        for task in all.chain(self.line.iter_mut()) {
            if is_named(task) {
                task.cancel();
            }
        }
    }

    /// Removes all replies, as the requests that would fetch them again.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let under_way = std::mem::take(&mut self.under_way).into_iter();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        let line = self.line.drain();
        let all = under_way.chain(line).chain(waiting).map(|task| task.job);
        all.chain(std::mem::take(&mut self.abandoned))
    }
}

impl Task {
    /// The work on its page.
    ///
    /// # Panics
    /// It is at a worker.
    pub fn work_mut(&mut self) -> &mut PageWork {
        self.work.as_mut().expect("the work is not at a worker")
    }

    /// Its URL, for a request that follows from it.
    pub fn shared_url(&mut self) -> Arc<str> {
        let work = self.work.as_ref().expect("the work is not at a worker");
        let url = || Arc::from(work.page.url.as_str());
        Arc::clone(self.via.get_or_insert_with(url))
    }

    /// The search in it is over.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
        if let Some(work) = &mut self.work {
            work.cancel();
        }
    }

    /// Whether its processing takes negligible time.
    pub fn is_light(&self) -> bool {
        let work = self.work.as_ref();
        work.is_some_and(|work| {
            work.is_decoded()
                && work.finding().is_over()
                && !work.extracts()
                && is_light(&work.page)
        })
    }

    /// Whether its processing takes less time than passing it to a worker.
    pub fn is_short(&self) -> bool {
        let work = self.work.as_ref();
        work.is_some_and(|work| {
            work.is_decoded()
                && !work.extracts()
                && work.finding().body_length() <= SHORT
                && work.page.response_bytes.len() <= LIGHT
        })
    }

    /// Bytes that it holds; `None` while it is at a worker. With `has_record` the sink makes a record of its
    /// reply, a copy.
    pub fn memory(&self, has_record: bool) -> Option<usize> {
        self.work.as_ref().map(|work| work.memory(has_record))
    }
}

/// Whether what is left to do with a page that was searched takes negligible time.
fn is_light(page: &Page) -> bool {
    page.response_bytes.len() + page.body.len() <= LIGHT
}

fn job_of(number: u64, work: PageWork) -> WorkerJob {
    let compute = Box::new(work);
    WorkerJob { number, compute }
}
