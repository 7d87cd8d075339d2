//! Removes queued requests unsent: cancelled ones, and those left at the end of the crawl.

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::frontier::job::Job;
use crate::frontier::origins::NO_LANE;
use crate::frontier::queued::Queued;
use crate::frontier::request::PageKind;

impl Frontier {
    /// Removes and returns the queued requests whose root number satisfies `is_wanted`, and all of the
    /// lanes that satisfy `is_lane_wanted`, except robots.txt, which other requests wait for. Visits
    /// every lane: a few milliseconds for a million.
    pub fn extract(
        &mut self,
        is_wanted: impl Fn(u64) -> bool,
        is_lane_wanted: impl Fn(LaneId) -> bool,
    ) -> Vec<(LaneId, Job)> {
        let mut taken = Vec::new();
        for lane in (0..self.lanes.len() as u32).map(LaneId) {
            let slot = &mut self.lanes[lane.0 as usize];
            if slot.queue.is_empty() {
                continue;
            }
            let all = is_lane_wanted(lane);
            let before = slot.queue.peek().map(Queued::priority);
            let out = slot.queue.extract(|queued| {
                queued.kind() != PageKind::Robots && (all || is_wanted(queued.root()))
            });
            if out.is_empty() {
                continue;
            }
            self.rebuilt.note(lane);
            self.queued -= out.len();
            self.queued_bytes -= out.iter().map(Queued::bytes).sum::<usize>();
            match slot.state {
                _ if slot.queue.is_empty() => self.first_pages.end(lane),
                // The first request may be another now, with other costs.
                LaneState::Offered => self.offer_lane(lane),
                LaneState::Parked => self.update_parked(lane, before),
                _ => {}
            }
            for queued in out {
                let job = queued.into_job(self.address_of(lane));
                taken.push((lane, job));
            }
        }
        taken
    }

    /// Empties every queue, for `pending.jsonl`, and merges in `others`, jobs that are not queued: all in
    /// order of admission. Requests are converted to jobs lazily; until then each takes two words more
    /// than in its queue.
    pub fn drain(&mut self, others: impl Iterator<Item = Job>) -> impl Iterator<Item = Job> {
        let mut queued: Vec<(LaneId, Queued)> = Vec::with_capacity(self.queued);
        for (lane, slot) in (0..).map(LaneId).zip(self.lanes.iter_mut()) {
            while let Some(first) = slot.queue.pop() {
                queued.push((lane, first));
            }
        }
        self.queued = 0;
        self.queued_bytes = 0;
        let others = others.map(|job| (NO_LANE, Queued::Whole(Box::new(job))));
        queued.extend(others);
        // Numbers are unique, so an unstable sort is enough; it allocates nothing.
        queued.sort_unstable_by_key(|(_, queued)| queued.id());
        queued.into_iter().map(|(lane, queued)| match queued {
            Queued::Whole(job) => *job,
            plain => plain.into_job(self.address_of(lane)),
        })
    }
}
