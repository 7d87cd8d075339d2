//! Removes queued requests unsent: cancelled ones, and those left at the end of the crawl.

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::base::units::Units;
use crate::frontier::job::Job;
use crate::frontier::origins::NO_LANE;
use crate::frontier::queued::Queued;
use crate::frontier::request::PageKind;

/// How far the removal of queued requests from all lanes is.
#[derive(Debug, Default)]
pub struct Removal {
    /// The next lane.
    lane: u32,
}

/// Units of a step, some tenths of a millisecond: one for each lane, and [`REQUEST_UNITS`] for each request that is
/// looked at. In tests there are several steps.
const UNITS_PER_STEP: u64 = if cfg!(test) { 200 } else { 16_384 };

/// A request is moved, or becomes a job.
const REQUEST_UNITS: usize = 16;

/// Requests that are taken from one lane in a step, if it has more.
const REQUESTS_PER_STEP: usize = if cfg!(test) { 8 } else { 1_024 };

impl Frontier {
    /// Goes on with a removal: returns the queued requests of the next few lanes whose root number satisfies
    /// `is_wanted`, and those up to a number of lanes for which `lane_until` returns one, but no robots.txt, which other
    /// requests wait for. Returns whether all lanes were visited.
    pub fn advance_removal(
        &mut self,
        removal: &mut Removal,
        is_wanted: impl Fn(u64) -> bool,
        lane_until: impl Fn(LaneId) -> Option<u64>,
    ) -> (Vec<(LaneId, Job)>, bool) {
        let mut removed = Vec::new();
        let mut units = Units::new(UNITS_PER_STEP);
        while !units.is_spent() {
            let Some(slot) = self.lanes.get(removal.lane as usize) else {
                return (removed, true);
            };
            let lane = LaneId(removal.lane);
            let length = slot.queue.len();
            units.spend(1);
            if length == 0 {
                removal.lane += 1;
                continue;
            }
            let until = lane_until(lane);
            let has_more =
                self.remove_from(lane, &mut removed, &is_wanted, until, REQUESTS_PER_STEP);
            match has_more {
                true => units.spend(REQUESTS_PER_STEP * REQUEST_UNITS),
                false => {
                    units.spend(length * REQUEST_UNITS);
                    removal.lane += 1;
                }
            }
        }
        (removed, false)
    }

    /// Removes requests from the queue of a lane: those that satisfy `is_wanted`, and those up to a number. Of the
    /// latter at most so many of those that come first. Returns whether there may be more.
    pub fn remove_from(
        &mut self,
        lane: LaneId,
        removed: &mut Vec<(LaneId, Job)>,
        is_wanted: impl Fn(u64) -> bool,
        until: Option<u64>,
        most: usize,
    ) -> bool {
        let slot = &mut self.lanes[lane.0 as usize];
        let is_wanted = |queued: &Queued| {
            let root = queued.root();
            let is_one = until.is_some_and(|until| root <= until) || is_wanted(root);
            is_one && queued.kind() != PageKind::Robots
        };
        let before = slot.queue.peek().map(Queued::priority);
        let mut out = Vec::new();
        let mut has_more = false;
        if until.is_some() && slot.queue.len() > most {
            let first = std::iter::from_fn(|| slot.queue.pop()).take(most);
            let (wanted, others): (Vec<Queued>, Vec<Queued>) = first.partition(&is_wanted);
            // Newer ones may come first by their priority: then all are looked at.
            has_more = !wanted.is_empty();
            out = wanted;
            others
                .into_iter()
                .for_each(|queued| slot.queue.push(queued));
            self.rebuilt.note(lane);
        }
        let slot = &mut self.lanes[lane.0 as usize];
        if !has_more {
            out = slot.queue.extract(is_wanted);
        }
        if out.is_empty() {
            return false;
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
            removed.push((lane, job));
        }
        has_more
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::base::ids::{ScopeId, ScopeSet};
    use crate::base::rng::Rng;
    use crate::base::secret::Secret;
    use crate::frontier::settings::FrontierSettings;
    use crate::wire::url::CrawlUrl;

    fn push(frontier: &mut Frontier, id: u64, host: u64, priority: i32) {
        let url = CrawlUrl::parse(&format!("http://h{host}.test/{id}")).expect("a URL");
        let job = Job {
            priority,
            ..Job::seed(id, url)
        };
        let scopes = ScopeSet::unordered([ScopeId(host as u32)]);
        let query = frontier.lane_query(&job);
        let lane = LaneId(host as u32);
        match (query.candidate, frontier.lane_for(query, &scopes)) {
            (Some(_), _) | (None, Ok(_)) => {}
            (None, Err(new)) => frontier.open_lane(new, lane),
        }
        frontier.push(lane, job);
    }

    #[test]
    fn what_is_wanted_is_removed_in_short_steps_and_what_comes_meanwhile_stays() {
        for seed in 0..50 {
            let mut rng = Rng::from_seed(seed);
            let settings = FrontierSettings::default();
            let mut frontier = Frontier::new(settings, &Secret::from_seed(seed));
            const HOSTS: u64 = 300;
            let mut all: BTreeSet<(u64, u64)> = BTreeSet::new();
            let mut next = 0;
            for host in 0..HOSTS {
                let count = if host % 50 == 7 {
                    100
                } else {
                    1 + rng.below(3)
                };
                for _ in 0..count {
                    next += 1;
                    push(&mut frontier, next, host, rng.below(3) as i32);
                    all.insert((host, next));
                }
            }
            let until = next;
            let is_wanted = |root: u64| root % 11 == 3 && root <= until;
            let is_lane_wanted = |host: u64| host % 25 == 7;
            let expected = all
                .iter()
                .filter(|(host, id)| is_wanted(*id) || is_lane_wanted(*host));
            let expected: BTreeSet<(u64, u64)> = expected.copied().collect();
            let (mut removal, mut removed, mut steps) = (Removal::default(), BTreeSet::new(), 0);
            loop {
                let (jobs, is_over) = frontier.advance_removal(&mut removal, is_wanted, |lane| {
                    is_lane_wanted(lane.0.into()).then_some(until)
                });
                assert!(jobs.len() <= 20, "{}", jobs.len());
                for (lane, job) in jobs {
                    assert!(
                        removed.insert((u64::from(lane.0), job.root())),
                        "it is removed once"
                    );
                }
                if is_over {
                    break;
                }
                steps += 1;
                next += 1;
                push(&mut frontier, next, rng.below(HOSTS), rng.below(5) as i32);
            }
            assert_eq!(removed, expected, "seed {seed}");
            assert!(steps > 20, "{steps}");
            let left = frontier.drain(std::iter::empty()).count();
            assert_eq!(left, next as usize - removed.len());
        }
    }
}
