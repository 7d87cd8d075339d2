//! Processes replies: so much at once, the rest a step in each turn.

use crate::base::units::Units;
use crate::crawl::core::Core;
use crate::crawl::pages::Task;
use crate::fetch::exchange::Buffers;
use crate::frontier::job::Job;
use crate::frontier::offers::OfferId;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Processes a reply that has just arrived. Returns its buffers if that is complete; otherwise the
    /// reply stays in progress.
    pub fn process_page(&mut self, mut task: Task) -> Option<Buffers> {
        let mut units = self.pages.units_at_once();
        let may_advance = !units.is_spent() && !self.work.is_full_of_offers();
        let is_over = task.is_light() || may_advance && self.advance(&mut task, &mut units);
        self.pages.put_back(&units);
        if is_over {
            return Some(self.conclude(task));
        }
        let mut task = Box::new(task);
        self.count_held(&mut task);
        self.pages.push(task);
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
                return;
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
        self.wakeups
            .turn_again_if(self.pages.has_under_way() && (is_ending || self.may_read_links()));
    }

    /// The requests that have their replies, whose results the sink has not got.
    pub fn replied(&self) -> impl Iterator<Item = &Job> {
        self.pages.jobs()
    }

    /// Whether replies are processed: the sink is ready, and answers to offers are not too far behind.
    fn may_read_links(&self) -> bool {
        self.output.is_ready() && !self.work.is_full_of_offers()
    }

    /// Ends all work under way; links not found yet are dropped.
    pub fn conclude_all(&mut self) {
        self.keep_offers();
        while let Some(mut task) = self.pages.pop() {
            task.cancel();
            self.conclude_later(*task);
        }
    }

    /// Does a step of the work; returns whether it is complete.
    fn advance(&mut self, task: &mut Task, units: &mut Units) -> bool {
        if !task.finding.is_over() {
            if !self.find(task, units) {
                return false;
            }
            std::mem::take(&mut task.finding).end(&mut task.page);
        }
        let before = units.left();
        let mut left = before;
        let is_prepared = self.output.process(&task.page, &mut left);
        units.spend((before - left.min(before)) as usize);
        is_prepared
    }

    /// Delivers the page to the sink; the lane continues.
    fn conclude(&mut self, task: Task) -> Buffers {
        let Task {
            job,
            lane,
            origin,
            page,
            refusals,
            ..
        } = task;
        self.count_in_scopes(&page, refusals);
        let counts = page.is_final && page.status.is_some();
        self.frontier.count_bytes(lane, page.bytes_wire);
        let buffers = self.deliver(&job, page);
        self.end_attempt(lane, &job, counts);
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
        drop(self.conclude(task));
        let is_wanted = self.is_running() && self.frontier.has_queued(lane);
        if !self.workload.keeps_connection(is_wanted) && !self.pages.has(lane) {
            self.close_idle(origin);
        }
        self.release_origin(origin);
    }

    /// Counts anew what a reply under way holds: it is among the bodies that are buffered.
    fn count_held(&mut self, task: &mut Task) {
        let held = task.memory(self.output.keeps_codings());
        self.network.count_held(task.held, held);
        task.held = held;
    }
}
