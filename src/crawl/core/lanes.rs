//! Lanes between the frontier, which queues, and the throttle, which paces: each change of a lane is
//! applied to the throttle as soon as the frontier has made it.

use std::time::Duration;

use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::frontier::LaneChange;
use crate::frontier::job::Job;
use crate::frontier::robots::RobotsResult;
use crate::io::Io;
use crate::sink::page::{RobotsInForce, RobotsMeaning};
use crate::throttle::settings::ScopePatch;

impl<I: Io> Core<I> {
    /// Applies the frontier's changes of lanes to the throttle.
    pub fn update_lanes(&mut self) {
        for change in self.frontier.lane_changes() {
            match change {
                LaneChange::Offer {
                    lane,
                    costs,
                    priority,
                    goes_first,
                } => {
                    self.throttle.expect(lane, &costs, self.now);
                    self.throttle.set_priority(lane, priority, self.now);
                    match goes_first {
                        true => self.throttle.offer_first(lane, self.now),
                        false => self.throttle.offer(lane, self.now),
                    }
                }
                LaneChange::Park(lane) => self.throttle.park(lane, self.now),
                LaneChange::Withdraw(lane) => self.throttle.withdraw(lane, self.now),
                LaneChange::Close(lane) => {
                    self.throttle.close_lane(lane, self.now);
                    self.network.forget_lookup(lane);
                    self.outage.forget(lane);
                }
            }
        }
    }

    /// Offers a lane if it has something queued; closes it if nothing is left of it.
    pub fn offer_or_close(&mut self, lane: LaneId) {
        self.frontier.offer_or_close(lane, self.now);
        self.update_lanes();
    }

    /// Returns a request that could not be sent after all to the front of its lane.
    pub fn return_to_lane(&mut self, lane: LaneId, job: Job) {
        self.steering.searches().note_queued(&job.url);
        self.frontier.put_back(lane, job, self.now);
        self.update_lanes();
    }

    /// Withholds a lane until a moment.
    pub fn pause_lane(&mut self, lane: LaneId, until: Instant) {
        self.frontier.pause(lane, until);
        self.update_lanes();
    }

    /// An attempt has ended. `page`: it brought a page that counts against the limits.
    pub fn end_attempt(&mut self, lane: LaneId, job: &Job, page: bool) {
        self.frontier.ended(lane, job, page, self.now);
        self.update_lanes();
    }

    /// A robots.txt has arrived, or is known to be unavailable, for an origin. Returns what is in force.
    pub fn on_robots(
        &mut self,
        attempt: u64,
        origin: u32,
        brought: RobotsResult,
    ) -> Box<RobotsInForce> {
        let meaning = match &brought {
            RobotsResult::Rules(_) => RobotsMeaning::Rules,
            RobotsResult::Absent => RobotsMeaning::Absent,
            RobotsResult::Unreachable => RobotsMeaning::Unreachable,
        };
        // Its last lane may close, and the origin be forgotten.
        let name = self.frontier.origin_name(origin);
        let until = self
            .frontier
            .robots_arrived(attempt, origin, brought, self.now);
        self.update_lanes();
        Box::new(RobotsInForce {
            origin: name,
            from: self.now,
            until,
            meaning,
        })
    }

    /// robots.txt has a Crawl-delay: it becomes one of the lane's scopes (F51).
    pub fn apply_crawl_delay(&mut self, lane: LaneId, delay: Duration) {
        let Some(front) = self.frontier.front_url(lane) else {
            return;
        };
        self.join_crawl_delay(lane, front.scope_key(), delay);
    }

    /// The Crawl-delay that an earlier run found, if any, becomes one of the scopes of a new lane: the host's
    /// robots.txt itself waits for it.
    pub fn restore_crawl_delay(&mut self, lane: LaneId, host: &str) {
        if let Some(delay) = self.frontier.earlier_crawl_delay(host) {
            self.join_crawl_delay(lane, host, delay);
        }
    }

    fn join_crawl_delay(&mut self, lane: LaneId, host: &str, delay: Duration) {
        if let Some(own) = self.throttle.poll_crawl_delay_warning(host, delay) {
            log::warn!(
                "{host}: the scope's own {} used instead of the Crawl-delay of {delay:?} in robots.txt \
                 (ignore_robots_txt = true in the scope silences this warning)",
                kept(&own)
            );
        }
        if !self.throttle.applies_crawl_delay(host) {
            return;
        }
        self.record_crawl_delay(host, delay);
        let scope = self.throttle.crawl_delay_scope(host, delay);
        self.throttle.note_crawl_delay(scope, delay, self.now);
        self.throttle.follow_lane(scope, lane);
        self.throttle.add_scope(lane, scope);
    }
}

/// Names the scope's own settings that are kept.
fn kept(own: &ScopePatch) -> String {
    match (own.delay, own.concurrency) {
        (Some(delay), Some(concurrency)) => {
            format!("delay of {delay:?} and concurrency of {concurrency} are")
        }
        (Some(delay), None) => format!("delay of {delay:?} is"),
        (None, concurrency) => format!("concurrency of {} is", concurrency.unwrap_or(1)),
    }
}
