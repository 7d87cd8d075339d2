//! A crawl with an operator in virtual time, and an operator who gives random orders.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::judged::{Judge, Known};
use crate::crawl::core::tests::random_settings;
use crate::crawl::core::tests::trial::{SinkRecord, calm, crawl_in_world, get, run_for, turn};
use crate::crawl::{Admin, Crawler, Turn};
use crate::io::sim::{Answer, ConnId, Faults, Net, Origins, Sim, World};
use crate::io::{Close, Credentials, Endpoint, Io, Peer};
use crate::sink::page::Page;

/// Servers, and what the crawl has sent to operators.
#[derive(Default)]
pub struct Operated {
    pub origins: Shared<Origins>,
    pub replies: BTreeMap<ConnId, Vec<u8>>,
    pub closed: Vec<ConnId>,
}

impl World for Operated {
    fn distance(&mut self, _: SocketAddr, _: &mut Rng) -> Duration {
        Duration::from_millis(1)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.origins.borrow_mut().connect(conn, to, net)
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        match self.replies.get_mut(&conn) {
            Some(reply) => reply.extend_from_slice(bytes),
            None => self.origins.borrow_mut().bytes(conn, bytes, net),
        }
    }

    fn closed(&mut self, conn: ConnId, how: Close, net: &mut Net) {
        match self.replies.contains_key(&conn) {
            true => self.closed.push(conn),
            false => self.origins.borrow_mut().closed(conn, how, net),
        }
    }
}

/// A crawl with an operator.
pub struct Trial {
    pub crawler: Crawler<Sim>,
    pub record: SinkRecord,
    pub world: Shared<Operated>,
}

/// The time for a reply.
pub const THINK: Duration = Duration::from_millis(5);

pub const ORDERS: &str = "/crawl/orders.jsonl";

fn endpoint() -> Endpoint {
    Endpoint::Unix {
        path: PathBuf::from("/crawl/control.sock"),
        mode: 0o600,
    }
}

impl Trial {
    /// A crawl of two hosts, 100 ms between requests, with so many pages of each.
    pub fn new(pages: u32) -> Self {
        Trial::under(Faults::default(), pages)
    }

    /// The same, under faults.
    pub fn under(faults: Faults, pages: u32) -> Self {
        let mut trial = Trial::configured(faults, THINK, |_| {});
        trial.submit(pages);
        trial
    }

    /// A crawl without requests, 100 ms between them, of this configuration.
    pub fn with(edit: impl FnOnce(&mut Config)) -> Self {
        Trial::configured(Faults::default(), THINK, edit)
    }

    /// A crawl of two hosts that take `think` for each reply, with so many pages of each.
    pub fn thinking(think: Duration, pages: u32, edit: impl FnOnce(&mut Config)) -> Self {
        let mut trial = Trial::configured(Faults::default(), think, edit);
        trial.submit(pages);
        trial
    }

    pub fn submit(&mut self, pages: u32) {
        for host in 1..=2 {
            for page in 0..pages {
                self.crawler.submit(get(host, page)).expect("it is a URL");
            }
        }
    }

    pub fn configured(faults: Faults, think: Duration, edit: impl FnOnce(&mut Config)) -> Self {
        let world = Shared::new(Operated {
            origins: calm(think),
            ..Operated::default()
        });
        let (mut crawler, record) = crawl_in_world(Shared::clone(&world), faults, |config, _| {
            config.throttle.default.delay = Duration::from_millis(100);
            edit(config);
        });
        let admin = Admin::new().socket("/crawl/control.sock").orders(ORDERS, 0);
        crawler.serve(admin).expect("nothing else listens");
        Trial {
            crawler,
            record,
            world,
        }
    }

    /// A server takes so long for its robots.txt, which it does not have.
    pub fn slow_robots(&mut self, at: &str, think: Duration) {
        self.answer(at, "/robots.txt", think, "404 Not Found");
    }

    /// What a server answers for a target from now on, and after which time.
    pub fn answer(&mut self, at: &str, target: &str, think: Duration, status: &str) {
        let at: SocketAddr = at.parse().expect("an address");
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        let world = self.world.borrow();
        let mut origins = world.origins.borrow_mut();
        origins.reply(at, target, think, reply.as_bytes());
    }

    /// Opens a connection and sends these bytes on it.
    pub fn send(&mut self, bytes: &[u8]) -> ConnId {
        let peer = Peer::Unix(Credentials {
            pid: Some(7),
            uid: 1000,
            gid: 100,
        });
        let net = self.crawler.io_mut().net();
        let conn = net.connect_client(&endpoint(), peer, Duration::from_micros(100));
        net.reply(conn, Duration::ZERO, bytes);
        self.world.borrow_mut().replies.insert(conn, Vec::new());
        conn
    }

    /// The status and the body of a reply, once that is whole.
    pub fn reply(&self, conn: ConnId) -> Option<(u16, String)> {
        let world = self.world.borrow();
        let reply = String::from_utf8(world.replies[&conn].clone()).expect("it is text");
        let (head, body) = reply.split_once("\r\n\r\n")?;
        let length = head.split("Content-Length: ").nth(1)?.lines().next()?;
        let length: usize = length.parse().expect("it is a number");
        let status = head.split(' ').nth(1)?.parse().expect("it is a number");
        (body.len() >= length).then(|| (status, body[..length].to_owned()))
    }

    /// Sends a request and waits for its reply, at most a second.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let conn = self.send(request.as_bytes());
        let since = self.crawler.io().now();
        loop {
            if let Some((status, body)) = self.reply(conn) {
                let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
                return (status, body);
            }
            let soon = Duration::from_millis(1);
            if turn(&mut self.crawler, Some(soon)) != Turn::GoesOn {
                self.pass(soon);
            }
            let waited = self.crawler.io().now().saturating_since(since);
            assert!(waited < Duration::from_secs(1), "{method} {path}: no reply");
        }
    }

    /// The same, if it succeeds.
    pub fn ask_well(&mut self, method: &str, path: &str, body: &str) -> Value {
        let (status, reply) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {reply}");
        reply
    }

    /// When the servers received requests, since a moment.
    pub fn hits_since(&self, from: Instant) -> Vec<Instant> {
        let world = self.world.borrow();
        let origins = world.origins.borrow();
        let hits = origins.hits().iter().map(|hit| hit.at);
        hits.filter(|at| *at > from).collect()
    }

    /// The targets that a server was asked for after a moment.
    pub fn targets_after(&self, host: &str, from: Instant) -> Vec<String> {
        let at: SocketAddr = format!("{host}:80").parse().expect("an address");
        let world = self.world.borrow();
        let origins = world.origins.borrow();
        let hits = origins.hits().iter();
        let hits = hits.filter(|hit| hit.to == at && hit.at > from);
        let targets = hits.map(|hit| hit.head.split(' ').nth(1).unwrap_or_default());
        targets.map(str::to_owned).collect()
    }

    /// Time passes for a crawl that is over.
    pub fn pass(&mut self, span: Duration) {
        let until = self.now() + span;
        while self.now() < until {
            self.crawler.io_mut().wait(Some(until), &mut Vec::new());
        }
    }

    pub fn now(&self) -> Instant {
        self.crawler.io().now()
    }

    /// Asks for the stream of events.
    pub fn stream(&mut self) -> ConnId {
        self.send(b"GET /v1/events HTTP/1.1\r\n\r\n")
    }

    /// The events of a stream so far.
    pub fn events(&self, conn: ConnId) -> Vec<Value> {
        let world = self.world.borrow();
        let reply = String::from_utf8(world.replies[&conn].clone()).expect("it is text");
        let Some((head, body)) = reply.split_once("\r\n\r\n") else {
            return Vec::new();
        };
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains("Content-Type: text/event-stream\r\n"),
            "{head}"
        );
        let events = body.split_terminator("\n\n");
        let events = events.map(|event| event.strip_prefix("data: ").expect("it is data"));
        let events = events.map(|data| serde_json::from_str(data).expect("it is JSON"));
        events.collect()
    }

    pub fn run(&mut self, millis: u64) {
        run_for(&mut self.crawler, Duration::from_millis(millis));
    }

    /// The lines of the file of orders.
    pub fn orders(&self) -> Vec<Value> {
        let io = self.crawler.io();
        let path = Path::new(ORDERS);
        let bytes = io.files().get(path).cloned().unwrap_or_default();
        assert_eq!(io.synced(path), bytes.len(), "every line is durable");
        let text = String::from_utf8(bytes).expect("it is text");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("it is JSON"))
            .collect()
    }
}

/// An operator of a crawl in a random world, who looks at no replies but those that say where a URL is.
pub struct RandomOperator {
    begun: Config,
    judge: Judge,
    known: Known,
    rng: Rng,
    /// Requests that are still to be sent.
    left: u32,
}

impl RandomOperator {
    /// Sends so many requests to the crawl, which listens from now on, and asks where URLs are. `seeds`: what was
    /// submitted.
    pub fn new(
        crawler: &mut Crawler<Sim>,
        seed: u64,
        requests: u32,
        judge: Judge,
        seeds: BTreeSet<String>,
    ) -> Self {
        let admin = Admin::new().socket("/crawl/control.sock").orders(ORDERS, 0);
        crawler.serve(admin).expect("nothing else listens");
        random_settings::change_at_random(crawler, seed + 1);
        if seed.is_multiple_of(2) {
            // So that few scopes are too many for one turn.
            crawler.core.throttle.set_units_per_visit(1);
        }
        RandomOperator {
            begun: crawler.config().clone(),
            judge,
            known: Known {
                admitted: seeds,
                ..Known::default()
            },
            rng: Rng::from_seed(seed),
            left: requests,
        }
    }

    /// Asks where a URL is now and then, and judges the answers by the results.
    pub fn ask(&mut self, crawler: &mut Crawler<Sim>, results: &[Page], what: &str) {
        self.known.take_pages(results);
        self.judge.judge(&self.known, what);
        if self.rng.chance(0.1) {
            let seeds = &self.known.admitted;
            let number = self.rng.below(seeds.len() as u64) as usize;
            let url = seeds.iter().nth(number).expect("it is there").clone();
            self.judge.ask(crawler, &url, &self.known);
        }
    }

    /// How often a URL was found in each state.
    pub fn states(&self) -> &BTreeMap<String, u32> {
        &self.judge.states
    }

    /// Sends the next request now and then; after the last one the crawl is not paused.
    pub fn act(&mut self, crawler: &mut Crawler<Sim>) {
        random_settings::check(crawler, &self.begun);
        let is_paused = crawler.core.control.is_paused();
        if self.left == 0 && !is_paused || self.left > 0 && !is_paused && !self.rng.chance(0.03) {
            return;
        }
        let request = match self.left == 0 || is_paused && self.rng.chance(0.1) {
            true => b"POST /v1/resume HTTP/1.1\r\n\r\n".to_vec(),
            false => self.request(),
        };
        self.left = self.left.saturating_sub(1);
        let uid = self.rng.below(2000) as u32;
        let peer = Peer::Unix(Credentials {
            pid: None,
            uid,
            gid: uid,
        });
        let net = crawler.io_mut().net();
        let conn = net.connect_client(&endpoint(), peer, Duration::from_micros(200));
        let cut = self.rng.below(request.len() as u64 + 1) as usize;
        let (first, second) = request.split_at(cut);
        net.reply(conn, Duration::ZERO, first);
        net.reply(conn, Duration::from_millis(self.rng.below(3)), second);
        let after = Duration::from_millis(self.rng.below(50));
        match self.rng.below(4) {
            0 => net.end(conn, after),
            1 => net.reset(conn, after),
            _ => {}
        }
    }

    fn request(&mut self) -> Vec<u8> {
        let scope = ["10.0.0.1", "one", "two", "default", "*.test", "nowhere"];
        let scope = scope[self.rng.below(6) as usize];
        let delay = self.rng.below(3);
        let put = |scope: &str, body: &str| {
            let length = body.len();
            format!("PUT /v1/scopes/{scope} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let host = [
            "10.0.0.2",
            "*.test",
            "10.0.0.7",
            "10.0.0.2%2F31",
            "10.0.0.3%2F32",
            "re%3A%2F%5B12%5D%24",
            "re%3A%28",
        ];
        let host = host[self.rng.below(7) as usize];
        let method = ["PUT", "DELETE"][self.rng.below(2) as usize];
        let text = match self.rng.below(19) {
            16..=18 => random_settings::request(&mut self.rng),
            0 | 1 => "POST /v1/pause HTTP/1.1\r\n\r\n".to_owned(),
            2 => put(scope, &format!("{{\"delay\": {delay}}}")),
            3 => put(scope, "{}"),
            12 => {
                let body = [
                    "{\"hold_until\": \"2026-01-01T00:00:09Z\"}",
                    "{\"delay\": null}",
                ];
                put(scope, body[self.rng.below(2) as usize]).replace("PUT", "PATCH")
            }
            14 => {
                let body = format!("{{\"priority\": {}}}", self.rng.below(5) as i32 - 2);
                let length = body.len();
                format!(
                    "PUT /v1/hosts/10.0.0.{delay}/priority HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            }
            13 => format!("POST /v1/scopes/{scope}/forget HTTP/1.1\r\n\r\n"),
            4 => format!("POST /v1/scopes/{scope}/cancel HTTP/1.1\r\n\r\n"),
            5 => format!(
                "GET /v1/scopes/{scope} HTTP/1.1\r\n\r\nGET /v1/scopes HTTP/1.1\r\n\r\nGET /v1/scopes/{scope}/decisions HTTP/1.1\r\n\r\n"
            ),
            6 => "GET /v1/status HTTP/1.1\r\n\r\n".repeat(30),
            11 => format!(
                "GET /v1/urls/http%3A%2F%2F{host}%2F1 HTTP/1.1\r\n\r\nGET /v1/hosts/{host} HTTP/1.1\r\n\r\n"
            ),
            7 => put(scope, "{\"delay\": \"no\"}"),
            8 | 9 => format!("{method} /v1/exclusions/{host} HTTP/1.1\r\n\r\n"),
            10 => "GET /v1/events HTTP/1.1\r\n\r\n".to_owned(),
            _ => return (0..100).map(|_| self.rng.below(256) as u8).collect(),
        };
        text.into_bytes()
    }
}
