//! Requests leave memory when others need the room: those of lanes that wait for long.

use std::time::Duration;

use super::{Frontier, LaneChange, LaneState};
use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::frontier::hosts::Health;
use crate::frontier::job::Job;
use crate::frontier::queued::Queued;

/// Rounds over all lanes, in steps.
#[derive(Debug, Default)]
pub(super) struct Eviction {
    /// The next lane of the round.
    lane: u32,
    /// When the next round may begin.
    next: Instant,
}

/// Requests of one lane that are to wait elsewhere, and until when no more of them are needed.
#[derive(Debug)]
pub struct Evicted {
    /// Their lane. It may be closed when the changes of lanes are applied.
    pub lane: LaneId,
    /// The requests.
    pub jobs: Vec<Job>,
    /// None of its origin is sent before.
    pub until: Instant,
}

/// A lane keeps the requests that it may send within this time.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Time between the ends of two rounds and the beginning of the next.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// Lanes in one step.
const LANES_PER_STEP: u32 = 256;

/// Requests that leave in one step at most.
const REQUESTS_PER_STEP: usize = 1024;

impl Frontier {
    /// Takes requests of lanes that wait for long, as far as `may_leave` allows. `pace`: when a lane may be
    /// released, and the gap after that. Returns whether the round goes on.
    pub fn evict(
        &mut self,
        evicted: &mut Vec<Evicted>,
        pace: impl Fn(LaneId) -> (Instant, Duration),
        may_leave: impl Fn(&Job) -> bool,
        now: Instant,
    ) -> bool {
        if self.eviction.lane == 0 && now < self.eviction.next {
            return false;
        }
        let end = (self.lanes.len() as u32).min(self.eviction.lane + LANES_PER_STEP);
        let mut left = REQUESTS_PER_STEP;
        while self.eviction.lane < end {
            let lane = LaneId(self.eviction.lane);
            if let Some((kept, until)) = self.kept_of(lane, &pace, now) {
                let jobs = self.take_behind(lane, kept, left, &may_leave, now);
                left -= jobs.len();
                if !jobs.is_empty() {
                    evicted.push(Evicted { lane, jobs, until });
                }
                if left == 0 {
                    return true;
                }
            }
            self.eviction.lane += 1;
        }
        if (end as usize) < self.lanes.len() {
            return true;
        }
        self.eviction.lane = 0;
        self.eviction.next = now + ROUND_EVERY;
        false
    }

    /// How many requests a lane keeps, and until when it needs no more; `None`: all.
    fn kept_of(
        &self,
        lane: LaneId,
        pace: impl Fn(LaneId) -> (Instant, Duration),
        now: Instant,
    ) -> Option<(usize, Instant)> {
        let slot = &self.lanes[lane.0 as usize];
        let soon = now + KEPT_FOR;
        let (at, gap) = match slot.state {
            _ if slot.queue.is_empty() => return None,
            LaneState::Offered | LaneState::Parked => pace(lane),
            LaneState::Held => match self.health(lane, now) {
                Health::Held(until) => (until, KEPT_FOR),
                _ => return None,
            },
            _ => return None,
        };
        if at > soon {
            return Some((0, at));
        }
        let more = soon.saturating_since(at).as_nanos() / gap.as_nanos().max(1);
        let kept = usize::try_from(more).unwrap_or(usize::MAX);
        Some((kept.saturating_add(1), soon))
    }

    /// Takes up to `most` requests behind the first `kept`.
    fn take_behind(
        &mut self,
        lane: LaneId,
        kept: usize,
        most: usize,
        may_leave: impl Fn(&Job) -> bool,
        now: Instant,
    ) -> Vec<Job> {
        let slot = &mut self.lanes[lane.0 as usize];
        if slot.queue.len() <= kept {
            return Vec::new();
        }
        self.rebuilt.note(lane);
        let before = slot.queue.peek().map(Queued::priority);
        let count = kept.saturating_add(most);
        let first: Vec<Queued> = std::iter::from_fn(|| slot.queue.pop())
            .take(count)
            .collect();
        let mut jobs = Vec::new();
        let mut back = Vec::new();
        for (number, queued) in first.into_iter().enumerate() {
            if number < kept {
                back.push(queued);
                continue;
            }
            let bytes = queued.bytes();
            let job = queued.into_job(self.address_of(lane));
            match may_leave(&job) {
                true => {
                    self.queued -= 1;
                    self.queued_bytes -= bytes;
                    jobs.push(job);
                }
                false => back.push(Queued::of(job)),
            }
        }
        let slot = &mut self.lanes[lane.0 as usize];
        back.into_iter().for_each(|queued| slot.queue.push(queued));
        match (slot.queue.is_empty(), slot.state) {
            (true, state) => {
                if matches!(state, LaneState::Offered | LaneState::Parked) {
                    self.changes.push(LaneChange::Withdraw(lane));
                }
                self.deactivate(lane, LaneState::Idle);
                self.close_if_done(lane, now);
            }
            // Another request may be the first now.
            (false, LaneState::Offered) => self.offer_lane(lane),
            (false, LaneState::Parked) => self.update_parked(lane, before),
            (false, _) => {}
        }
        jobs
    }
}
