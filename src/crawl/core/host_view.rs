//! What operators ask of one host: its robots.txt, addresses, connections and health.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::network::origins::Origin;
use crate::fetch::resolver::NameView;
use crate::frontier::hosts::Health;
use crate::frontier::{LaneView, OriginView, RobotsView};
use crate::io::Io;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// One host, as `example.com` or `example.com:8080`.
    pub fn host(&self, name: &str) -> Response {
        let Some(url) = url_of_host(name) else {
            let message = format!("{name:?} is no host: give example.com, or example.com:8080");
            return Response::error(400, &message);
        };
        let host = url.host_str();
        let port = Some(url.port()).filter(|port| *port != 80);
        let origins = self.frontier.origins_of(host, port, self.now);
        let counts = self.frontier.host_counts(host);
        let origins: Vec<Value> = origins.iter().map(|view| self.origin_json(view)).collect();
        let reply = json!({
            "host": host,
            "priority": self.frontier.host_priorities().get(host),
            "excluded": self.frontier.excludes_host(host),
            "seed": counts.is_seed,
            "pages": counts.pages,
            "sitemaps": counts.sitemaps,
            "name": self.name_json(host, url.port()),
            "origins": origins,
        });
        Response::json(200, &reply)
    }

    /// An origin that is in use.
    fn origin_json(&self, view: &OriginView) -> Value {
        let number = view.number;
        let idle = self.network.idle_connections(Origin::Direct(number));
        let flights = self
            .flights
            .of_lanes(|lane| self.frontier.origin_of_lane(lane) == number);
        let key = CrawlUrl::parse(&format!("{}/", view.name));
        let has_spilled = key.is_ok_and(|url| self.spill.has(self.frontier.origin_key(&url).0));
        json!({
            "origin": view.name,
            "has_route": view.has_route,
            "robots": self.robots_json(view.robots),
            "health": self.health_json(view.health),
            "failures": view.failures,
            "in_flight": flights.count(),
            "idle_connections": idle,
            "queued": view.lane.map_or(0, |lane| lane.queued),
            "has_more_on_disk": has_spilled,
            "waits_for": view.lane.map(lane_wait),
        })
    }

    /// The state of a robots.txt, with the time until which it is valid.
    pub fn robots_json(&self, robots: RobotsView) -> Value {
        let (state, until, delay) = match robots {
            RobotsView::Unknown => ("unknown", None, None),
            RobotsView::Fetching => ("fetching", None, None),
            RobotsView::Known(until, delay) => ("known", Some(until), delay),
            RobotsView::Absent(until) => ("absent", Some(until), None),
            RobotsView::Unreachable(until) => ("unreachable", Some(until), None),
        };
        let is_expired = until.is_some_and(|until| until <= self.now);
        json!({
            "state": if is_expired { "expired" } else { state },
            "valid_until": until.map(|until| self.wall_text(until)),
            "crawl_delay": delay.map(|delay| delay.as_secs_f64()),
        })
    }

    /// Whether a host is asked, and until when not.
    pub fn health_json(&self, health: Health) -> Value {
        match health {
            Health::Up => json!({"state": "up", "until": null}),
            Health::Held(until) => json!({"state": "held", "until": self.wall_text(until)}),
            Health::Down => json!({"state": "down", "until": null}),
            Health::Unroutable => json!({"state": "unroutable", "until": null}),
        }
    }

    /// What is known of a host's name.
    fn name_json(&self, host: &str, port: u16) -> Value {
        let (state, answer, until) = match self.network.names().view(host, port, self.now) {
            NameView::Unknown => ("unknown", None, None),
            NameView::LookingUp => ("looking_up", None, None),
            NameView::Known { answer, until } => match answer {
                Ok(answer) => ("known", Some(Ok(answer)), until),
                Err(failure) => ("failed", Some(Err(failure)), until),
            },
        };
        let addresses = answer.as_ref().and_then(|answer| answer.as_ref().ok());
        let addresses = addresses.map(|answer| {
            let texts = answer.addresses.iter().map(ToString::to_string);
            texts.take(ADDRESSES_MAX).collect::<Vec<String>>()
        });
        let failure = answer.as_ref().and_then(|answer| answer.as_ref().err());
        json!({
            "state": state,
            "addresses": addresses,
            "error": failure.map(|failure| failure.code()),
            "until": until.map(|until| self.wall_text(until)),
        })
    }

    /// A time, as text.
    pub fn wall_text(&self, at: Instant) -> String {
        self.network.wall_at(at).to_string()
    }
}

/// The front page of a host, with its port if that is given.
pub fn url_of_host(name: &str) -> Option<CrawlUrl> {
    let is_host = !name.contains(['/', '?', '#', '@']);
    let url = CrawlUrl::parse(&format!("http://{name}/"));
    url.ok().filter(|_| is_host)
}

/// What a lane waits for, in one word.
pub fn lane_wait(view: LaneView) -> &'static str {
    use crate::frontier::LaneWait;
    match view.wait {
        LaneWait::Idle => "nothing",
        LaneWait::Inactive => "turn",
        LaneWait::Scopes => "scopes",
        LaneWait::Release => "connection",
        LaneWait::Robots => "robots",
        LaneWait::Host => "host",
        LaneWait::PageLimit => "page_limit",
    }
}

/// Addresses that are shown: an answer may have thousands.
const ADDRESSES_MAX: usize = 32;
