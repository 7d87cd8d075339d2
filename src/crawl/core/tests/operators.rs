//! Operators who ask crawls and give them orders, in virtual time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::routes::ROUTES;
use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::random_settings;
use crate::crawl::core::tests::trial::{
    SinkRecord, calm, crawl_in_world, finish, get, run_for, turn,
};
use crate::crawl::{Admin, Crawler, FinishReason, Turn};
use crate::io::sim::{Answer, ConnId, Faults, FullDisk, Net, Origins, Sim, World};
use crate::io::{Close, Credentials, Endpoint, Io, Peer};

/// Servers, and what the crawl has sent to operators.
#[derive(Default)]
pub struct Operated {
    pub origins: Shared<Origins>,
    replies: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
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
const THINK: Duration = Duration::from_millis(5);

const ORDERS: &str = "/crawl/orders.jsonl";

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

    fn submit(&mut self, pages: u32) {
        for host in 1..=2 {
            for page in 0..pages {
                self.crawler.submit(get(host, page)).expect("it is a URL");
            }
        }
    }

    fn configured(faults: Faults, think: Duration, edit: impl FnOnce(&mut Config)) -> Self {
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

/// An operator of a crawl in a random world, who does not look at replies.
pub struct RandomOperator {
    begun: Config,
    rng: Rng,
    /// Requests that are still to be sent.
    left: u32,
}

impl RandomOperator {
    /// Sends so many requests to the crawl, which listens from now on.
    pub fn new(crawler: &mut Crawler<Sim>, seed: u64, requests: u32) -> Self {
        let admin = Admin::new().socket("/crawl/control.sock").orders(ORDERS, 0);
        crawler.serve(admin).expect("nothing else listens");
        random_settings::change_at_random(crawler, seed + 1);
        RandomOperator {
            begun: crawler.config().clone(),
            rng: Rng::from_seed(seed),
            left: requests,
        }
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

#[test]
fn a_paused_crawl_sends_nothing_until_it_is_resumed() {
    let mut trial = Trial::new(50);
    trial.run(500);
    assert_eq!(
        trial.ask_well("POST", "/v1/pause", ""),
        json!({"paused": true})
    );
    // What has departed arrives within a millisecond.
    trial.run(10);
    let paused_at = trial.now();
    trial.run(2000);
    assert_eq!(trial.hits_since(paused_at), [] as [Instant; 0]);
    let (status, why) = trial.ask("GET", "/readyz", "");
    assert_eq!((status, why), (503, json!("the crawl is paused\n")));
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    trial.ask_well("POST", "/v1/resume", "");
    trial.run(1000);
    assert!(trial.hits_since(paused_at).len() >= 18);
    assert_eq!(trial.ask_well("GET", "/readyz", ""), json!("ready\n"));
    let orders: Vec<Value> = trial.orders();
    let names: Vec<&str> = orders
        .iter()
        .filter_map(|line| line["order"].as_str())
        .collect();
    assert_eq!(names, ["pause", "resume"]);
    assert_eq!(
        (&orders[0]["uid"], &orders[0]["after"]),
        (&json!(1000), &json!(true))
    );
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 100);
}

#[test]
fn the_pace_of_a_scope_changes_at_once_and_its_state_shows_it() {
    let mut trial = Trial::new(50);
    trial.run(500);
    let reply = trial.ask_well("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": 5}"#);
    assert_eq!(
        reply,
        json!({"scope": "10.0.0.1", "settings": {"delay": 5}})
    );
    let changed_at = trial.now();
    trial.run(20_000);
    let of_first = {
        let world = trial.world.borrow();
        let origins = world.origins.borrow();
        let first: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        let hits = origins.hits().iter().filter(|hit| hit.to == first);
        hits.map(|hit| hit.at).collect::<Vec<_>>()
    };
    let later: Vec<Instant> = of_first.into_iter().filter(|at| *at > changed_at).collect();
    assert!(later.len() >= 3, "{later:?}");
    for pair in later.windows(2) {
        assert!(pair[1].saturating_since(pair[0]) >= Duration::from_millis(4990));
    }
    let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
    assert_eq!(scope["settings"], json!({"delay": 5}));
    assert_eq!(scope["now"]["delay"], json!(5.0));
    assert_eq!(scope["now"]["waits_for"], json!("delay"));
    assert!(scope["now"]["next_send"].is_string(), "{scope}");
    let list = trial.ask_well("GET", "/v1/scopes?sort=delay&match=10.*&limit=1", "");
    assert_eq!(list["scopes"][0]["scope"], json!("10.0.0.1"));
    assert_eq!(list["scopes"].as_array().map(Vec::len), Some(1));
    let order = &trial.orders()[0];
    assert_eq!(
        (&order["before"], &order["after"]),
        (&json!({}), &json!({"delay": 5}))
    );
}

#[test]
fn seeds_are_added_and_a_scope_is_cancelled() {
    let mut trial = Trial::new(50);
    trial.run(300);
    trial.ask_well("POST", "/v1/scopes/10.0.0.2/cancel", "");
    let seeds = "http://10.0.0.3/7\n# a comment\n\nhttp://10.0.0.3/8\nhttp://10.0.0.3:99999/\n";
    let reply = trial.ask_well("POST", "/v1/seeds", seeds);
    assert_eq!(reply["accepted"], json!(2));
    assert_eq!(reply["rejected"][0]["url"], json!("http://10.0.0.3:99999/"));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    let pages = trial.record.pages.borrow();
    let ends = |host: &str| {
        let of_host = pages.iter().filter(|page| page.url.contains(host));
        let failures = of_host.map(|page| page.failure.as_ref().map(|failure| failure.code()));
        failures.collect::<Vec<_>>()
    };
    assert_eq!(ends("10.0.0.3"), [None, None]);
    let cancelled = ends("10.0.0.2");
    assert_eq!(cancelled.len(), 50);
    let asked = cancelled
        .iter()
        .flatten()
        .filter(|code| **code == "cancelled.asked");
    assert!(asked.count() >= 45);
    assert!(ends("10.0.0.1").iter().all(Option::is_none));
}

#[test]
fn an_order_that_waits_for_the_disk_is_in_effect_and_is_answered_in_time() {
    let full = FullDisk {
        below: PathBuf::from("/crawl"),
        from: Duration::ZERO,
        until: Duration::from_secs(60),
        free: 0,
    };
    let faults = Faults {
        disk_full: vec![full],
        ..Faults::default()
    };
    let mut trial = Trial::under(faults, 1000);
    trial.run(300);
    let order =
        trial.send(b"PUT /v1/scopes/10.0.0.1 HTTP/1.1\r\nContent-Length: 12\r\n\r\n{\"delay\": 7}");
    trial.run(9_000);
    assert_eq!(trial.reply(order), None);
    trial.run(3_000);
    let (status, words) = trial.reply(order).expect("it is answered");
    assert_eq!(status, 202, "{words}");
    let scope = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "");
    assert_eq!(scope["settings"], json!({"delay": 7}));
    trial.run(60_000);
    assert_eq!(trial.orders().len(), 1);
}

#[test]
fn a_handle_resumes_what_an_operator_has_paused() {
    let mut trial = Trial::new(50);
    let handle = trial.crawler.handle();
    trial.run(300);
    trial.ask_well("POST", "/v1/pause", "");
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    // It does not by being dropped.
    drop(handle.clone());
    drop(handle);
    trial.run(500);
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(true)
    );
    let handle = trial.crawler.handle();
    handle.resume();
    trial.run(1_500);
    assert_eq!(
        trial.ask_well("GET", "/v1/status", "")["paused"],
        json!(false)
    );
    handle.pause();
    trial.run(10);
    let reply = trial.ask_well("POST", "/v1/resume", "");
    assert_eq!(
        reply,
        json!({"paused": true}),
        "the handle still wants a pause"
    );
    drop(handle);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
}

#[test]
fn many_different_questions_about_all_scopes_are_refused_for_a_while() {
    let mut trial = Trial::new(50);
    trial.run(300);
    let stars = format!("/v1/scopes?match={}", "*".repeat(9));
    assert_eq!(trial.ask("GET", &stars, "").0, 400);
    trial.run(1_000);
    let ask = |trial: &mut Trial, number: u32| {
        trial
            .ask("GET", &format!("/v1/scopes?match=a{number}"), "")
            .0
    };
    let statuses: Vec<u16> = (0..20).map(|number| ask(&mut trial, number)).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        16,
        "{statuses:?}"
    );
    assert_eq!(statuses[19], 503);
    trial.run(1_000);
    assert_eq!(ask(&mut trial, 30), 200);
}

#[test]
fn an_operator_stops_the_crawl_and_the_listener_is_closed() {
    let mut trial = Trial::new(50);
    trial.run(300);
    let reply = trial.ask_well("POST", "/v1/stop", r#"{"grace": 0.5}"#);
    assert_eq!(reply, json!({"grace": 0.5}));
    assert_eq!(finish(&mut trial.crawler), FinishReason::Shutdown);
    assert_eq!(
        trial.crawler.take_pending().count() + trial.record.pages.borrow().len(),
        100
    );
    // It is refused.
    let conn = trial.send(b"GET /healthz HTTP/1.1\r\n\r\n");
    trial.pass(Duration::from_secs(1));
    assert!(trial.world.borrow().closed.contains(&conn));
}

#[test]
fn an_order_that_is_wrong_changes_nothing_and_is_not_recorded() {
    let mut trial = Trial::new(20);
    trial.run(300);
    let bad = [
        ("PUT", "/v1/scopes/10.0.0.1", "{", 400),
        ("PUT", "/v1/scopes/10.0.0.1", r#"{"delay": -1}"#, 400),
        ("PUT", "/v1/scopes/10.0.0.1", r#"{"dealy": 1}"#, 400),
        ("POST", "/v1/stop", r#"{"grace": "soon"}"#, 400),
        ("POST", "/v1/stop", r#"{"grace": -1}"#, 400),
        ("POST", "/v1/stop", "[]", 400),
        (
            "POST",
            "/v1/seeds",
            "http://10.0.0.3/1\n{\"url\": 1}\n",
            400,
        ),
        ("GET", "/v1/scopes?sort=name", "", 400),
        ("GET", "/v1/scopes?limit=0", "", 400),
        ("GET", "/v1/scopes?limit=1001", "", 400),
        ("GET", "/v1/scopes/nowhere.test", "", 404),
        ("GET", "/v1/stop", "", 405),
    ];
    for (method, path, body, expected) in bad {
        let (status, reply) = trial.ask(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {reply}");
        assert!(reply["error"].is_string(), "{method} {path}: {reply}");
    }
    assert_eq!(trial.orders(), [] as [Value; 0]);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 40);
}

#[test]
fn the_description_has_the_routes_and_the_keys_of_the_replies() {
    let description: Value =
        serde_json::from_str(include_str!("../../../admin/openapi.json")).expect("it is JSON");
    let paths = description["paths"].as_object().expect("it has paths");
    let mut described: Vec<(String, String)> = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().expect("it has methods") {
            described.push((path.clone(), method.to_uppercase()));
            let route = ROUTES
                .iter()
                .find(|route| route.path == path && route.method == method.to_uppercase());
            let route = route.unwrap_or_else(|| panic!("there is no {method} {path}"));
            let parameters = operation["parameters"].as_array();
            let parameters = parameters.into_iter().flatten();
            let names = parameters.filter(|parameter| parameter["in"] == "query");
            let names: Vec<&str> = names.filter_map(|one| one["name"].as_str()).collect();
            assert_eq!(names, route.parameters, "{method} {path}");
        }
    }
    for route in ROUTES {
        let this = (route.path.to_owned(), route.method.to_owned());
        assert!(described.contains(&this), "{this:?} is not described");
    }
    let mut trial = Trial::new(20);
    trial.run(500);
    let same = trial.crawler.config().clone();
    trial
        .crawler
        .reload_from(move |answer| answer.give(Ok(same.clone())));
    let mut check = |method: &str, path: &str, body: &str, schema: &str| {
        let reply = trial.ask_well(method, path, body);
        has_keys(&description, schema, &reply);
    };
    check("GET", "/v1/status", "", "Status");
    check("GET", "/v1/scopes", "", "Scopes");
    check("GET", "/v1/scopes?state=any", "", "ScopesInState");
    check("GET", "/v1/queues", "", "Queues");
    check("GET", "/v1/scopes/10.0.0.1", "", "Scope");
    check("GET", "/v1/scopes/10.0.0.1/decisions", "", "Decisions");
    check("GET", "/v1/hosts/10.0.0.1", "", "Host");
    let priority = r#"{"priority": 3}"#;
    check("PUT", "/v1/hosts/10.0.0.1/priority", priority, "Priority");
    check("GET", "/v1/urls/http%3A%2F%2F10.0.0.1%2F19", "", "Url");
    check("GET", "/v1/urls/http%3A%2F%2F10.0.0.1%2F0", "", "Url");
    check("PUT", "/v1/scopes/10.0.0.1", "{}", "Changed");
    check("PATCH", "/v1/scopes/10.0.0.1", "{}", "Changed");
    check("POST", "/v1/scopes/10.0.0.1/forget", "", "Forgotten");
    check("DELETE", "/v1/scopes/10.0.0.1", "", "Changed");
    check("GET", "/v1/limits", "", "Limits");
    let limit = r#"{"CONCURRENT_REQUESTS": 9}"#;
    check("PUT", "/v1/limits", limit, "Limits");
    check("POST", "/v1/reload", "", "Reloaded");
    check("GET", "/v1/log", "", "Log");
    check("POST", "/v1/scopes/nowhere/cancel", "", "Cancelled");
    check("PUT", "/v1/exclusions/a.test", "", "Exclusions");
    check("GET", "/v1/exclusions", "", "Exclusions");
    check("POST", "/v1/pause", "", "Paused");
    check("POST", "/v1/resume", "", "Paused");
    check("POST", "/v1/rotate", "", "Rotated");
    check("POST", "/v1/seeds", "http://10.0.0.3/1", "Seeds");
    assert_eq!(trial.ask_well("GET", "/v1/openapi.json", ""), description);
    let metrics = trial.ask_well("GET", "/metrics", "");
    let metrics = metrics.as_str().expect("it is text");
    assert!(metrics.contains("# TYPE argiope_"), "{metrics}");
    assert!(metrics.contains("10.0.0.1"), "{metrics}");
    let present = trial.ask_well("GET", "/v1/scopes/10.0.0.1", "")["now"].clone();
    has_keys(&description, "Present", &present);
    let described = &description["components"]["schemas"]["Present"]["properties"];
    let described = described.as_object().expect("it has properties").keys();
    let found = present.as_object().expect("it is an object").keys();
    assert!(
        described.eq(found),
        "each key of a scope's state is described"
    );
}

/// A reply has the keys that its schema requires, of their types.
fn has_keys(description: &Value, schema: &str, reply: &Value) {
    let schema = &description["components"]["schemas"][schema];
    let required = schema["required"].as_array().into_iter().flatten();
    for key in required.filter_map(Value::as_str) {
        let found = &reply[key];
        assert!(reply.get(key).is_some(), "{key} is missing: {reply}");
        let kind = match found {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let described = schema["properties"][key]["type"].to_string();
        let fits = described.contains(kind)
            || described.contains("integer") && found.is_u64()
            || described == "null";
        assert!(fits, "{key} is {found}, not {described}");
    }
}

#[test]
fn nonsense_from_operators_changes_nothing() {
    let pages = |nonsense: bool| {
        let mut trial = Trial::new(30);
        let mut rng = Rng::from_seed(5);
        if nonsense {
            for _ in 0..200 {
                let length = rng.below(400) as usize;
                let mut bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
                match rng.below(4) {
                    0 => bytes = b"GET /v1/status HTTP/1.1\r\nX: ".repeat(1 + length),
                    1 => bytes
                        .splice(..0, *b"POST /v1/pau HTTP/1.1\r\n")
                        .for_each(drop),
                    2 => {
                        bytes =
                            b"PUT /v1/scopes/a HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n".to_vec()
                    }
                    _ => {}
                }
                trial.send(&bytes);
                trial.run(rng.below(30));
            }
        }
        assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
        assert_eq!(trial.orders(), [] as [Value; 0]);
        let pages = trial.record.pages.borrow();
        let mut urls: Vec<String> = pages.iter().map(|page| page.url.clone()).collect();
        urls.sort();
        urls
    };
    assert_eq!(pages(true), pages(false));
}

#[test]
fn a_stream_has_an_event_each_second_with_the_present_status() {
    let mut trial = Trial::new(1000);
    let streams = [trial.stream(), trial.stream()];
    let mut arrived = Vec::new();
    for _ in 0..200 {
        let before = trial.events(streams[0]).len();
        trial.run(100);
        arrived.push(trial.events(streams[0]).len() - before);
    }
    let in_a_second: Vec<usize> = arrived.windows(10).map(|some| some.iter().sum()).collect();
    assert!(
        in_a_second.iter().all(|number| *number <= 2),
        "{in_a_second:?}"
    );
    let events = trial.events(streams[0]);
    assert!((19..=21).contains(&events.len()), "{}", events.len());
    for stream in streams {
        for pair in trial.events(stream).windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(|event| event["elapsed"].as_f64());
            assert!(before < after, "an event is not that before: {before:?}");
        }
    }
    let description: Value =
        serde_json::from_str(include_str!("../../../admin/openapi.json")).expect("it is JSON");
    has_keys(&description, "Status", &events[20 - 2]);
    assert_eq!(trial.world.borrow().closed, []);
}

#[test]
fn a_stream_of_a_paused_crawl_goes_on_beyond_the_time_of_an_idle_connection() {
    let mut trial = Trial::new(10);
    trial.ask_well("POST", "/v1/pause", "");
    let stream = trial.stream();
    trial.run(200_000);
    let events = trial.events(stream);
    assert!((199..=201).contains(&events.len()), "{}", events.len());
    assert!(events.iter().all(|event| event["paused"] == json!(true)));
    assert!(!trial.world.borrow().closed.contains(&stream));
}

#[test]
fn the_last_event_of_a_stream_has_the_phase_over_and_the_final_totals() {
    let mut trial = Trial::new(20);
    let stream = trial.stream();
    trial.run(1500);
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    trial.pass(Duration::from_secs(1));
    let events = trial.events(stream);
    let (last, earlier) = events.split_last().expect("there are some");
    assert_eq!(last["phase"], json!("over"));
    assert_eq!(last["finish_reason"], json!("finished"));
    assert_eq!(last["pages"], json!(40));
    assert!(earlier.iter().all(|event| event["phase"] != json!("over")));
    assert!(trial.world.borrow().closed.contains(&stream));
}

#[test]
fn streams_that_clients_end_or_reset_are_closed() {
    let mut trial = Trial::new(100);
    let [ended, reset] = [trial.stream(), trial.stream()];
    trial.run(1500);
    let net = trial.crawler.io_mut().net();
    net.end(ended, Duration::ZERO);
    net.reset(reset, Duration::ZERO);
    trial.run(1500);
    assert!(trial.world.borrow().closed.contains(&ended));
    assert!(trial.crawler.core.steering.is_empty());
    assert_eq!(finish(&mut trial.crawler), FinishReason::Finished);
    assert_eq!(trial.record.pages.borrow().len(), 200);
}

#[test]
fn the_page_is_sent_with_a_policy_that_allows_nothing_else() {
    let mut trial = Trial::new(5);
    let conn = trial.send(b"GET / HTTP/1.1\r\n\r\n");
    trial.run(100);
    let world = trial.world.borrow();
    let reply = String::from_utf8_lossy(&world.replies[&conn]).into_owned();
    let (head, body) = reply.split_once("\r\n\r\n").expect("it is whole");
    assert!(
        head.contains("Content-Type: text/html; charset=utf-8\r\n"),
        "{head}"
    );
    let policy = head.split("Content-Security-Policy: ").nth(1);
    let policy = policy.and_then(|rest| rest.lines().next());
    let policy = policy.expect("there is a policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    for part in [
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    ] {
        assert!(policy.contains(part), "{part} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(body, include_str!("../../../admin/page.html"));
}

#[test]
fn a_connection_without_a_whole_request_is_closed_in_time() {
    let mut trial = Trial::new(1000);
    let slow = trial.send(b"GET /v1/sta");
    let idle = trial.send(b"");
    trial.run(9_000);
    assert_eq!(trial.world.borrow().closed, []);
    trial.run(3_000);
    assert_eq!(trial.world.borrow().closed, [slow]);
    trial.run(65_000);
    assert_eq!(trial.world.borrow().closed, [slow, idle]);
}
