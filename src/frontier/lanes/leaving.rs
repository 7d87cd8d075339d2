//! Requests that leave their queues unsent: cancelled, or left when the crawl is over.

use super::{Frontier, Stands};
use crate::base::time::Instant;
use crate::frontier::job::Job;
use crate::frontier::origins::NO_LANE;
use crate::frontier::queued::Queued;
use crate::frontier::request::Kind;
use crate::throttle::engine::{LaneId, Throttle};
use crate::throttle::scope::ScopeId;

impl Frontier {
    /// Takes out of the queues the requests that `is_wanted` names by their origin's number, and all
    /// that are queued in lanes under one of these scopes, save robots.txt, which others wait for.
    /// Looks at every lane: a few milliseconds for a million.
    pub fn take_out(
        &mut self,
        is_wanted: impl Fn(u64) -> bool,
        scopes: &[ScopeId],
        throttle: &mut Throttle,
        now: Instant,
    ) -> Vec<(LaneId, Job)> {
        let mut taken = Vec::new();
        for lane in (0..self.lanes.len() as u32).map(LaneId) {
            let slot = &mut self.lanes[lane.0 as usize];
            if slot.queue.is_empty() {
                continue;
            }
            let all = !scopes.is_empty()
                && throttle
                    .lane_scopes(lane)
                    .iter()
                    .any(|scope| scopes.contains(scope));
            let out = slot.queue.extract(|queued| {
                queued.kind() != Kind::Robots && (all || is_wanted(queued.root()))
            });
            if out.is_empty() {
                continue;
            }
            self.queued -= out.len();
            if slot.stands == Stands::Offered && !slot.queue.is_empty() {
                // Another may be the first now.
                self.offer(lane, throttle, now);
            }
            for queued in out {
                let job = queued.into_job(self.address_of(lane, throttle));
                taken.push((lane, job));
            }
        }
        taken
    }

    /// Empties every queue: for `pending.jsonl`. What waited outside comes with it, all in order of
    /// admission. Each request becomes a job when it is asked for; until then it takes two words more
    /// than in its queue.
    pub fn drain(
        &mut self,
        outside: impl Iterator<Item = Job>,
        throttle: &Throttle,
    ) -> impl Iterator<Item = Job> {
        let mut queued: Vec<(LaneId, Queued)> = Vec::with_capacity(self.queued);
        for (lane, slot) in (0..).map(LaneId).zip(self.lanes.iter_mut()) {
            while let Some(first) = slot.queue.pop() {
                queued.push((lane, first));
            }
        }
        self.queued = 0;
        let outside = outside.map(|job| (NO_LANE, Queued::Whole(Box::new(job))));
        queued.extend(outside);
        // Numbers are given once, and sorting in place takes no memory.
        queued.sort_unstable_by_key(|(_, queued)| queued.id());
        queued.into_iter().map(|(lane, queued)| match queued {
            Queued::Whole(job) => *job,
            plain => plain.into_job(self.address_of(lane, throttle)),
        })
    }
}
