//! What the first request of a lane waits for, as operators ask.

use serde_json::{Value, json};

use crate::base::ids::LaneId;
use crate::crawl::breaker::Egress;
use crate::crawl::core::Core;
use crate::frontier::LaneWait;
use crate::frontier::hosts::Health;
use crate::io::Io;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// All that a lane waits for, the most general cause first. `url`: one of its requests.
    pub fn waits_of_lane(&self, url: &CrawlUrl, lane: LaneId) -> Vec<Value> {
        let mut waits = self.waits_of_crawl();
        waits.extend(self.waits_of_host(url, lane));
        waits.extend(self.waits_of_scopes(lane));
        waits
    }

    /// The scopes of a lane with their present state.
    pub fn scopes_of_lane(&self, lane: LaneId) -> Vec<Value> {
        let scopes = self.throttle.lane_scopes(lane).iter();
        let scopes = scopes.map(|id| {
            let name = self.throttle.scope_name(*id);
            json!({"scope": name, "now": self.scope_now(name)})
        });
        scopes.collect()
    }

    /// What prevents releases of the whole crawl.
    pub fn waits_of_crawl(&self) -> Vec<Value> {
        let progress = self.progress();
        let in_flight_max = self.network.in_flight_max();
        let is_capped = self.throttle.room() == 0;
        let causes = [
            (!self.is_running(), "ending", "the crawl is ending"),
            (self.control.is_paused(), "paused", "the crawl is paused"),
            (progress.disk_full_for.is_some(), "disk", "the disk is full"),
            (
                !self.output.takes_more() && progress.disk_full_for.is_none(),
                "sink",
                "the sink takes no more results now",
            ),
            (
                self.outage.stops_releases(in_flight_max),
                "outage",
                "the network of this machine does not work",
            ),
            (
                is_capped || self.network.is_full(),
                "global_cap",
                "as many requests are in flight as may be (CONCURRENT_REQUESTS)",
            ),
            (
                !self.is_within_rate(),
                "bytes",
                "the replies take all of BYTES_PER_SECOND_MAX",
            ),
            (
                !self.is_within_total(),
                "bytes_total",
                "the replies in flight are expected to reach CLOSESPIDER_BYTECOUNT",
            ),
        ];
        let causes = causes.into_iter().filter(|(applies, ..)| *applies);
        let causes = causes.map(|(_, cause, text)| json!({"cause": cause, "text": text}));
        causes.collect()
    }

    /// What a lane waits for beside its scopes.
    pub fn waits_of_host(&self, url: &CrawlUrl, lane: LaneId) -> Vec<Value> {
        let mut waits = Vec::new();
        let mut wait =
            |cause: &str, text: String| waits.push(json!({"cause": cause, "text": text}));
        let is_excluded_since = self.frontier.is_host_excluded_since(url.host_str());
        if is_excluded_since || self.frontier.excluded().exclude(url) {
            let text = "it is excluded: it ends as filtered.excluded when its turn comes";
            wait("excluded", text.to_owned());
        }
        if let Some(egress) = self.outage.parked_for(lane) {
            let way = match egress {
                Egress::Global4 => "IPv4".to_owned(),
                Egress::Global6 => "IPv6".to_owned(),
                Egress::Local => "the local network".to_owned(),
                Egress::Proxy(proxy) => format!("the proxy at {proxy}"),
                Egress::Names => "the name servers".to_owned(),
            };
            wait("outage", format!("it waits until {way} works again"));
        }
        match self.frontier.health_of_lane(lane, self.now) {
            Health::Up => {}
            Health::Held(until) => {
                let until = self.wall_text(until);
                wait("host", format!("its host failed and is held until {until}"));
            }
            Health::Down => wait(
                "host",
                "its host was given up: it ends as host_down".to_owned(),
            ),
            Health::Unroutable => wait("host", "there is no route to its host".to_owned()),
        }
        if let Some(since) = self.network.names().lookups().waits_since(lane) {
            let since = self.wall_text(since);
            wait(
                "dns",
                format!("the address of its host is looked up since {since}"),
            );
        }
        match self.frontier.lane_view(lane).wait {
            LaneWait::Robots => {
                let text = format!("{}/robots.txt is being fetched", url.origin());
                wait("robots", text);
            }
            LaneWait::PageLimit => {
                let text = "requests in flight may reach a limit of pages";
                wait("page_limit", text.to_owned());
            }
            LaneWait::Inactive => {
                let text = "as many origins have their turn as keep the crawl busy; others wait for theirs";
                wait("turn", text.to_owned());
            }
            LaneWait::Idle | LaneWait::Scopes | LaneWait::Release | LaneWait::Host => {}
        }
        waits
    }

    /// What the scopes of a lane wait for.
    pub fn waits_of_scopes(&self, lane: LaneId) -> Vec<Value> {
        let mut waits = Vec::new();
        for id in self.throttle.lane_scopes(lane) {
            let name = self.throttle.scope_name(*id);
            let Some(view) = self.throttle.view(name, self.now) else {
                continue;
            };
            if view.next_send > self.now {
                let (until, rule) = (self.wall_text(view.next_send), view.rule.as_str());
                let text = format!("the scope {name} sends nothing before {until} (rule {rule})");
                waits.push(json!({
                    "cause": "scope", "scope": name, "until": until, "rule": rule, "text": text,
                }));
            }
            if !view.has_free_slot {
                let text = format!(
                    "{} requests of the scope {name} are in flight, as many as may be",
                    view.in_flight
                );
                waits.push(json!({"cause": "slot", "scope": name, "text": text}));
            }
        }
        waits
    }
}
