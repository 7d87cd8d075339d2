//! Processing of complete replies: searching their bodies, and preparing their result lines. It runs in
//! bounded steps, several in a turn, so that no page delays others.
//!
//! ```text
//! on_end ──► at once, as far as the turn's units last ──► concluded: the sink has it, its lane continues
//!                 │                                            ▲
//!                 └──► under way, a slice in each turn ────────┘
//! ```

pub mod finding;

use std::collections::{BTreeMap, VecDeque};

use crate::base::ids::LaneId;
use crate::base::memory::memory_of;
use crate::base::units::Units;
use crate::crawl::network::origins::Origin;
use crate::crawl::pages::finding::Finding;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;
use crate::sink::page::Page;

/// The replies under way, and the units left for them in the turn.
#[derive(Debug)]
pub struct Pages {
    units: Units,
    /// Units left in the turn for matching requests with rules of robots.txt.
    rules: Units,
    under_way: VecDeque<Box<Task>>,
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
    pub page: Box<Page>,
    /// Which of the page's scopes refused it: a bit for each, in order.
    pub refusals: u32,
    pub finding: Finding,
    /// Its bytes counted as buffered.
    pub held: usize,
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

/// Releases stop while so many replies are under way.
const UNDER_WAY_MAX: usize = 256;

impl Default for Pages {
    fn default() -> Self {
        Pages {
            units: Units::new(UNITS_PER_TURN),
            rules: Units::new(RULE_UNITS_PER_TURN),
            under_way: VecDeque::new(),
            waiting: BTreeMap::new(),
            #[cfg(test)]
            spent_max: 0,
        }
    }
}

impl Pages {
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
        set(&mut task.page);
        self.under_way.push_back(task);
        true
    }

    /// The request whose redirect waits for this answer.
    pub fn waiting_for(&self, target: OfferId) -> Option<&Job> {
        self.waiting.get(&target).map(|task| &task.job)
    }

    /// The requests of all replies under way or waiting.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        let all = self.under_way.iter().chain(self.waiting.values());
        all.map(|task| &task.job)
    }

    /// Whether no reply is under way or waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is work to do for a reply.
    pub fn has_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Number of replies under way or waiting.
    pub fn len(&self) -> usize {
        self.under_way.len() + self.waiting.len()
    }

    /// Whether so many are under way that nothing should be released.
    pub fn is_full(&self, in_flight: usize, in_flight_max: usize) -> bool {
        self.len() >= UNDER_WAY_MAX.min(in_flight_max.saturating_sub(in_flight).max(1))
    }

    /// Whether one of a lane's is under way.
    pub fn has(&self, lane: LaneId) -> bool {
        let mut all = self.under_way.iter().chain(self.waiting.values());
        all.any(|task| task.lane == lane)
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
        for task in &mut self.under_way {
            if is_named(task) {
                task.cancel();
            }
        }
    }

    /// Removes all replies, as the requests that would fetch them again.
    pub fn drain(&mut self) -> impl Iterator<Item = Job> + use<> {
        let under_way = std::mem::take(&mut self.under_way).into_iter();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        under_way.chain(waiting).map(|task| task.job)
    }
}

impl Task {
    /// The search in it is over.
    pub fn cancel(&mut self) {
        std::mem::take(&mut self.finding).end(&mut self.page);
    }

    /// Whether its processing takes negligible time.
    pub fn is_light(&self) -> bool {
        let page = &self.page;
        self.finding.is_over() && page.response_bytes.len() + page.body.len() <= LIGHT
    }

    /// Bytes that it holds. With `has_record` the sink makes a record of its reply, a copy.
    pub fn memory(&self, has_record: bool) -> usize {
        let page = &self.page;
        let copies = if has_record { 2 } else { 1 };
        memory_of(&page.body) + copies * memory_of(&page.response_bytes) + self.finding.memory()
    }
}
