//! The reply to the question for one URL: where it is, and why it has not been fetched yet.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::core::host_view::lane_wait;
use crate::crawl::spill::FoundRequest;
use crate::frontier::job::Job;
use crate::frontier::seen::Presence;
use crate::frontier::{QueuedUrl, RobotsView};
use crate::io::Io;
use crate::wire::url::CrawlUrl;

/// Depth of a link for which the filters of a URL that was never seen are applied.
const LINK_DEPTH: u32 = 1;

impl<I: Io> Core<I> {
    /// Answers the question for a URL with this state.
    pub fn answer_url(&mut self, key: Key, url: &CrawlUrl, mut state: Value) {
        state["url"] = json!(url.as_str());
        state["seen"] = json!(match self.frontier.presence_of(url) {
            Presence::Seen => "yes",
            Presence::Likely => "likely",
            Presence::New => "no",
        });
        let origins = self.frontier.origins_for(url);
        let number = origins.first();
        let allows = number.and_then(|number| self.frontier.robots_allow(*number, url, self.now));
        state["robots_allow"] = json!(allows);
        self.answer_search(key, &Response::json(200, &state));
    }

    /// A URL that is queued.
    pub fn queued_json(&self, url: &CrawlUrl, queued: &QueuedUrl) -> Value {
        let QueuedUrl { lane, found } = queued;
        let view = self.frontier.lane_view(*lane);
        let mut waits = self.waits_of_lane(url, *lane);
        if found.ahead > 0 {
            let text = format!("{} requests of its queue are ahead of it", found.ahead);
            waits.push(json!({"cause": "queue", "text": text}));
        }
        let why = waits.first().map_or_else(
            || json!("nothing delays it: it is about to be sent"),
            |first| first["text"].clone(),
        );
        json!({
            "state": "queued",
            "why": why,
            "id": found.id,
            "kind": found.kind.as_str(),
            "depth": found.depth,
            "priority": found.priority,
            "attempt": found.attempt,
            "position": found.ahead + 1,
            "position_is_exact": found.is_exact,
            "on_disk": false,
            "queued": view.queued,
            "waits_for": lane_wait(view),
            "waits": waits,
            "scopes": self.scopes_of_lane(*lane),
        })
    }

    /// A URL that is queued in a file of the state.
    pub fn spilled_json(&self, url: &CrawlUrl, found: &FoundRequest) -> Value {
        let mut waits = Vec::new();
        if found.is_cancelled {
            waits.push(json!({
                "cause": "cancelled",
                "text": "it was cancelled: it ends when its turn comes",
            }));
        }
        waits.push(match found.rests_until {
            Some(until) => json!({
                "cause": "memory",
                "text": format!(
                    "it is on disk, and nothing of its origin is sent before {}",
                    self.wall_text(until)
                ),
            }),
            None => json!({
                "cause": "memory",
                "text": "it is on disk, and comes back to memory when it is the turn of its origin (FRONTIER_MEMORY)",
            }),
        });
        self.waiting_json(url, &found.job, found.ahead, true, waits)
    }

    /// A URL that an earlier run left, and that is not queued yet. `ahead`: those that are queued before it.
    pub fn left_json(&self, url: &CrawlUrl, job: &Job, ahead: u64) -> Value {
        let text = format!(
            "an earlier run left it, and {ahead} others that this run has not queued yet are before it"
        );
        let waits = vec![json!({"cause": "resuming", "text": text})];
        self.waiting_json(url, job, ahead, false, waits)
    }

    /// A URL that waits for its way into a queue in memory, behind so many others and behind what is in that queue.
    fn waiting_json(
        &self,
        url: &CrawlUrl,
        job: &Job,
        ahead: u64,
        is_on_disk: bool,
        first: Vec<Value>,
    ) -> Value {
        let lane = self.frontier.first_lane_for(url);
        let mut waits = self.waits_of_crawl();
        waits.extend(first);
        if let Some(lane) = lane {
            waits.extend(self.waits_of_host(url, lane));
            waits.extend(self.waits_of_scopes(lane));
        }
        let queued = lane.map_or(0, |lane| self.frontier.lane_view(lane).queued);
        let scopes = lane.map(|lane| self.scopes_of_lane(lane));
        json!({
            "state": "queued",
            "why": waits[0]["text"],
            "id": job.id,
            "kind": job.kind.as_str(),
            "depth": job.depth,
            "priority": job.priority,
            "attempt": job.attempt,
            "position": queued as u64 + ahead + 1,
            "position_is_exact": false,
            "on_disk": is_on_disk,
            "waits": waits,
            "scopes": scopes.unwrap_or_default(),
        })
    }

    /// A URL that is nowhere. `doubts`: why it may be somewhere.
    pub fn over_json(&self, url: &CrawlUrl, doubts: Option<&str>) -> Value {
        let presence = self.frontier.presence_of(url);
        if presence != Presence::Seen && self.frontier.is_offered(url) {
            let why = "whether it was seen before is being looked up on the disk";
            return json!({"state": "offered", "why": why});
        }
        if presence == Presence::New {
            if let Some(robots) = self.fetched_robots_json(url) {
                return robots;
            }
            return match self.frontier.filter_of(url, LINK_DEPTH) {
                Some(filter) => {
                    let why = format!("a link to it is left out by the filter {filter}");
                    json!({"state": "filtered", "why": why, "filter": filter.as_str()})
                }
                None => {
                    let why = "no seed and no link that was read so far leads to it";
                    json!({"state": "never_seen", "why": why})
                }
            };
        }
        if let Some(doubts) = doubts {
            let why = format!("it was admitted, and has ended or was missed: {doubts}");
            return json!({"state": "unknown", "why": why});
        }
        if self.output.failure().is_some() {
            let why = "it has ended, but results could not be written: if its own was not, pending.jsonl has it";
            return json!({"state": "unknown", "why": why});
        }
        let why = match self.output.has_disk_room() {
            true => {
                "it has ended: results.jsonl has its line, or gets it when that is written next"
            }
            false => "it has ended; the disk is full, so results.jsonl may get its line later",
        };
        json!({"state": "ended", "why": why})
    }

    /// A robots.txt that was fetched for its host: it is no page, and may be fetched again.
    fn fetched_robots_json(&self, url: &CrawlUrl) -> Option<Value> {
        if url.path() != "/robots.txt" {
            return None;
        }
        let origins = self.frontier.origins_for(url).into_iter();
        let mut states = origins.map(|number| self.frontier.origin_view(number, self.now).robots);
        let robots =
            states.find(|robots| !matches!(robots, RobotsView::Unknown | RobotsView::Fetching))?;
        let why = "it was fetched as the robots.txt of its host, and is fetched again once it has expired and is needed";
        Some(json!({"state": "ended", "why": why, "robots": self.robots_json(robots)}))
    }
}
