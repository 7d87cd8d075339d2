//! The work on replies that came: what is looked for in their bodies, and what their results take to be
//! written. It is done in bounded steps, many in a turn, so that no page keeps others waiting.
//!
//! ```text
//! on_end ──► at once, as far as the turn's units last ──► concluded: the sink has it, its lane goes on
//!                 │                                            ▲
//!                 └──► under way, a slice in each turn ────────┘
//! ```

use std::collections::VecDeque;

use super::finding::{Finding, Progress};
use super::origins::Origin;
use crate::base::memory::memory_of;
use crate::base::units::Units;
use crate::crawl::core::Core;
use crate::fetch::exchange::Buffers;
use crate::frontier::job::Job;
use crate::io::{Close, Io};
use crate::sink::page::Page;
use crate::throttle::engine::LaneId;

/// The replies that are under way, and what a turn may still do for them.
#[derive(Debug)]
pub struct Work {
    units: Units,
    /// What the turn may still do to compare requests with rules of robots.txt.
    rules: Units,
    under_way: VecDeque<Box<Task>>,
    /// Bytes that these hold, as they were counted.
    held: usize,
    /// Units that were spent in the turn that spent most.
    #[cfg(test)]
    spent_max: u64,
}

/// A reply that is whole, and what is still to be done for it.
///
/// Its lane stays open and its page counts as in flight until it is concluded.
#[derive(Debug)]
pub struct Task {
    pub job: Job,
    pub lane: LaneId,
    /// Held until the end.
    pub origin: Origin,
    pub page: Box<Page>,
    pub finding: Finding,
    /// Bytes that it holds, as they were counted.
    pub held: usize,
}

/// What a turn does for replies, in units of a few nanoseconds: one to three milliseconds, whatever is
/// in them.
pub const UNITS_PER_TURN: u64 = 384 << 10;

/// Octets that a turn compares with rules of robots.txt: a few files that are made to take long.
const RULE_UNITS_PER_TURN: u64 = 1 << 20;

/// What replies that just came may not take of it while others are under way.
const UNITS_RESERVED: u64 = UNITS_PER_TURN / 2;

/// What one of several gets before it is the next one's turn.
const UNITS_PER_SLICE: u64 = UNITS_PER_TURN / 4;

/// What a reply takes beside what depends on what is in it.
const TASK_UNITS: usize = 256;

/// A reply of which nothing is wanted is concluded at once if it is no longer than this.
const LIGHT: usize = 16 << 10;

/// So many under way, and nothing is released until there are fewer.
const UNDER_WAY_MAX: usize = 256;

impl Default for Work {
    fn default() -> Self {
        Work {
            units: Units::new(UNITS_PER_TURN),
            rules: Units::new(RULE_UNITS_PER_TURN),
            under_way: VecDeque::new(),
            held: 0,
            #[cfg(test)]
            spent_max: 0,
        }
    }
}

impl Work {
    /// A turn begins.
    pub fn begin_turn(&mut self) {
        #[cfg(test)]
        {
            self.spent_max = self.spent_max();
        }
        self.units = Units::new(UNITS_PER_TURN);
        self.rules = Units::new(RULE_UNITS_PER_TURN);
    }

    /// Whether no reply is under way.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Whether so many are under way that no more should be asked for.
    pub fn is_full(&self, in_flight: usize, in_flight_max: usize) -> bool {
        self.under_way.len() >= UNDER_WAY_MAX.min(in_flight_max.saturating_sub(in_flight).max(1))
    }

    /// Whether one of a lane's is under way.
    pub fn has(&self, lane: LaneId) -> bool {
        self.under_way.iter().any(|task| task.lane == lane)
    }

    /// Whether the turn has done enough.
    pub fn is_spent(&self) -> bool {
        self.units.is_spent()
    }

    /// So many octets of requests were compared with rules of robots.txt.
    pub fn spend_on_rules(&mut self, steps: usize) {
        self.rules.spend(steps);
    }

    /// Whether the turn has compared enough of them: others have their turn before more is released.
    pub fn is_spent_on_rules(&self) -> bool {
        self.rules.is_spent()
    }

    /// Units that were spent in the turn that spent most.
    #[cfg(test)]
    pub fn spent_max(&self) -> u64 {
        self.spent_max.max(self.units.spent())
    }

    /// Nothing more is looked for in the replies that `is_named` names.
    pub fn call_off(&mut self, is_named: impl Fn(&Task) -> bool) {
        for task in &mut self.under_way {
            if is_named(task) {
                task.call_off();
            }
        }
    }

    /// Takes out all that are under way, as what would have them fetched.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        std::mem::take(&mut self.under_way)
            .into_iter()
            .map(|task| task.job)
    }
}

impl Task {
    /// Nothing more is looked for in it.
    fn call_off(&mut self) {
        std::mem::take(&mut self.finding).end(&mut self.page);
    }

    /// Whether it takes no time that is worth counting.
    fn is_light(&self) -> bool {
        let page = &self.page;
        self.finding.is_over() && page.response_bytes.len() + page.body.len() <= LIGHT
    }

    /// Bytes that it holds. With `has_record` the sink makes a record of its reply, a copy.
    fn memory(&self, has_record: bool) -> usize {
        let page = &self.page;
        let copies = if has_record { 2 } else { 1 };
        memory_of(&page.body) + copies * memory_of(&page.response_bytes) + self.finding.memory()
    }
}

impl<I: Io> Core<I> {
    /// Works on a reply that just came. Gives its memory once that is done; otherwise it is under way.
    pub fn work_at_once(&mut self, mut task: Task) -> Option<Buffers> {
        let reserved = match self.work.is_empty() {
            true => 0,
            false => UNITS_RESERVED,
        };
        let most = self.work.units.left().saturating_sub(reserved);
        let mut units = self.work.units.take(most);
        units.spend(TASK_UNITS);
        let is_over = task.is_light() || !units.is_spent() && self.advance(&mut task, &mut units);
        self.work.units.put_back(&units);
        if is_over {
            return Some(self.conclude(task));
        }
        let mut task = Box::new(task);
        self.count_held(&mut task);
        self.work.under_way.push_back(task);
        None
    }

    /// Gives the replies that are under way what is left of the turn, a slice to each in turn, as long
    /// as the sink takes more. `is_ending`: also where it does not.
    pub fn work_on(&mut self, is_ending: bool) {
        while !self.work.is_spent() && (is_ending || self.sink.is_ready()) {
            let Some(mut task) = self.work.under_way.pop_front() else {
                return;
            };
            let mut units = self.work.units.take(UNITS_PER_SLICE);
            let is_over = self.advance(&mut task, &mut units);
            self.work.units.put_back(&units);
            if is_over {
                self.conclude_later(*task);
            } else {
                self.count_held(&mut task);
                self.work.under_way.push_back(task);
            }
        }
        self.unfinished |= !self.work.is_empty() && (is_ending || self.sink.is_ready());
    }

    /// Ends all work under way; links not yet found are left out.
    pub fn conclude_all(&mut self) {
        while let Some(mut task) = self.work.under_way.pop_front() {
            task.call_off();
            self.conclude_later(*task);
        }
    }

    /// Does some of what is to be done; whether nothing is left.
    fn advance(&mut self, task: &mut Task, units: &mut Units) -> bool {
        if !task.finding.is_over() {
            if self.find(task, units) == Progress::Paused {
                return false;
            }
            std::mem::take(&mut task.finding).end(&mut task.page);
        }
        let before = units.left();
        let mut left = before;
        let is_prepared = self.sink.prepare(&task.page, &mut left);
        units.spend((before - left.min(before)) as usize);
        is_prepared
    }

    /// The sink has the page, and the lane goes on.
    fn conclude(&mut self, task: Task) -> Buffers {
        let Task {
            job,
            lane,
            origin,
            page,
            ..
        } = task;
        let counts = page.is_final && page.status.is_some();
        let buffers = self.deliver(&job, page);
        self.frontier
            .ended(lane, &job, counts, &mut self.throttle, self.now);
        self.let_go_of(origin);
        buffers
    }

    /// The same of one that was under way, for which a connection may have been kept.
    fn conclude_later(&mut self, task: Task) {
        // There may be room for another.
        self.unfinished = true;
        let (lane, origin) = (task.lane, task.origin);
        self.buffered -= task.held;
        self.work.held -= task.held;
        self.hold_again(origin);
        drop(self.conclude(task));
        let is_wanted = self.is_running() && self.frontier.has_queued(lane);
        if self.load.is_none() && !is_wanted && !self.work.has(lane) {
            self.close_idle(origin);
        }
        self.let_go_of(origin);
    }

    /// Closes the connections that were kept for an origin.
    pub fn close_idle(&mut self, origin: Origin) {
        while let Some(kept) = self.pool.take(origin.number()) {
            self.close_slot(kept, Close::Finish);
        }
    }

    /// Counts anew what a reply under way holds: it is among the bodies that are buffered.
    fn count_held(&mut self, task: &mut Task) {
        let held = task.memory(self.sink.keeps_codings());
        self.buffered = self.buffered - task.held + held;
        self.work.held = self.work.held - task.held + held;
        task.held = held;
    }
}
