//! What operators ask of one URL: where it is, and why it has not been fetched yet.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::core::host_view::lane_wait;
use crate::crawl::flights::{Flight, Stage};
use crate::crawl::steering::{Asked, Subject};
use crate::crawl::work::admission::without_dropped;
use crate::frontier::seen::Presence;
use crate::frontier::{QueuedUrl, UrlSearch};
use crate::io::Io;
use crate::wire::url::CrawlUrl;

/// Depth of a link for which the filters of a URL that was never seen are applied.
const LINK_DEPTH: u32 = 1;

impl<I: Io> Core<I> {
    /// Begins to answer the question for a URL: it may be in a long queue.
    pub fn begin_url(&mut self, asked: &Asked) {
        let url = match CrawlUrl::parse(&asked.call.name) {
            Ok(url) => without_dropped(url, &self.config),
            Err(error) => {
                let message = format!("{:?} is no URL to fetch: {error}", asked.call.name);
                return self.refuse(asked, &Response::error(400, &message));
            }
        };
        let progress = self.frontier.search(&url);
        if progress.is_over() {
            return self.answer_url(asked.key, &url, &progress, None);
        }
        self.begin_search(asked, Subject::Url(url, progress));
    }

    /// Answers the question for a URL.
    pub fn answer_url(
        &mut self,
        key: Key,
        url: &CrawlUrl,
        progress: &UrlSearch,
        found: Option<&QueuedUrl>,
    ) {
        let mut reply = match found {
            Some(queued) => self.queued_json(url, queued),
            None => self.elsewhere_json(url, progress.origins()),
        };
        reply["url"] = json!(url.as_str());
        reply["seen"] = json!(match self.frontier.presence_of(url) {
            Presence::Seen => "yes",
            Presence::Likely => "likely",
            Presence::New => "no",
        });
        let number = progress.origins().first();
        let allows = number.and_then(|number| self.frontier.robots_allow(*number, url, self.now));
        reply["robots_allow"] = json!(allows);
        self.answer_search(key, &Response::json(200, &reply));
    }

    /// A URL that is queued.
    fn queued_json(&self, url: &CrawlUrl, queued: &QueuedUrl) -> Value {
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
            "position": found.ahead + 1,
            "position_is_exact": found.is_exact,
            "queued": view.queued,
            "waits_for": lane_wait(view),
            "waits": waits,
            "scopes": self.scopes_of_lane(*lane),
        })
    }

    /// A URL that is not in a queue in memory.
    fn elsewhere_json(&self, url: &CrawlUrl, origins: &[u32]) -> Value {
        let is_of_origin = |lane| origins.contains(&self.frontier.origin_of_lane(lane));
        let mut flights = self.flights.of_lanes(is_of_origin);
        if let Some(flight) = flights.find(|flight| flight.job.url == *url) {
            return self.in_flight_json(flight);
        }
        if let Some((job, until)) = self.work.find(url) {
            let why = match until {
                Some(_) => "a redirect to it asked for a delay (Retry-After)",
                None => "its scopes are not known yet: the scope map has not answered",
            };
            let until = until.map(|until| self.wall_text(until));
            return json!({"state": "delayed", "why": why, "id": job.id, "until": until});
        }
        if self.frontier.is_offered(url) {
            let why = "whether it was seen before is being looked up on the disk";
            return json!({"state": "offered", "why": why});
        }
        if self.frontier.presence_of(url) == Presence::New {
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
        let is_on_disk = self.spill.has(self.frontier.origin_key(url).0);
        let (state, why) = match is_on_disk || self.work.has_left() {
            true => (
                "ended_or_on_disk",
                "it was admitted; requests of its origin are on the disk, or not all of an earlier run are queued yet: \
                 it is one of them, or has ended",
            ),
            false => (
                "ended",
                "it was admitted before and waits in no queue: it has ended, or its reply is being worked on",
            ),
        };
        json!({"state": state, "why": why})
    }

    fn in_flight_json(&self, flight: &Flight) -> Value {
        let (stage, why) = match flight.stage {
            Stage::Connecting { .. } => ("connecting", "it waits for its connection"),
            Stage::Ready { .. } => (
                "ready",
                "it has a connection and leaves when its scopes permit",
            ),
            Stage::Exchanging { .. } | Stage::Moving => ("exchanging", "it waits for the reply"),
        };
        let span = self.now.saturating_since(flight.released);
        json!({
            "state": "in_flight",
            "why": why,
            "id": flight.job.id,
            "kind": flight.job.kind.as_str(),
            "depth": flight.job.depth,
            "priority": flight.job.priority,
            "stage": stage,
            "for": span.as_secs_f64(),
        })
    }
}
