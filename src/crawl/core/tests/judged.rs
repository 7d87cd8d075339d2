//! An operator who asks where URLs are, and judges the answers from outside: by what was submitted, what servers were
//! asked for, and which results the sink has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::core::tests::spilled::page;
use crate::crawl::core::tests::trial::{config, web_resolver};
use crate::crawl::core::tests::watch::Watch;
use crate::crawl::journal::state::State;
use crate::crawl::{Admin, Crawler, Parts, Turn};
use crate::frontier::request::PageKind;
use crate::frontier::settings::Follow;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Answer, ConnId, Faults, FullDisk, Net, Sim, World};
use crate::io::{Close, Credentials, Endpoint, IoSettings, Peer};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;

/// What the crawl sends to operators, by connection.
pub type Replies = Shared<BTreeMap<ConnId, Vec<u8>>>;

/// A world in which an operator listens, too.
pub struct Overheard {
    pub inner: Box<dyn World>,
    pub replies: Replies,
    /// Whether this machine's network works.
    pub is_down: Shared<bool>,
}

impl World for Overheard {
    fn distance(&mut self, to: SocketAddr, rng: &mut Rng) -> Duration {
        self.inner.distance(to, rng)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        match self.is_down.get() {
            true => Answer::Unreachable,
            false => self.inner.connect(conn, to, net),
        }
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        match self.replies.borrow_mut().get_mut(&conn) {
            Some(reply) => reply.extend_from_slice(bytes),
            None => self.inner.bytes(conn, bytes, net),
        }
    }

    fn closed(&mut self, conn: ConnId, how: Close, net: &mut Net) {
        if !self.replies.borrow().contains_key(&conn) {
            self.inner.closed(conn, how, net);
        }
    }

    fn datagram(&mut self, socket: ConnId, to: SocketAddr, bytes: &[u8], net: &mut Net) {
        self.inner.datagram(socket, to, bytes, net);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        self.inner.alarm(what, net);
    }
}

/// What is known of URLs from outside.
#[derive(Default)]
pub struct Known {
    /// Those that were submitted, that servers were asked for, or that an earlier run left.
    pub admitted: BTreeSet<String>,
    /// Those whose last result the sink has.
    pub ended: BTreeSet<String>,
    /// Number of results that were read.
    pub read: usize,
}

impl Known {
    /// The sink has these results so far.
    pub fn take_pages(&mut self, pages: &[Page]) {
        let new = pages[self.read..].iter();
        self.read = pages.len();
        // A redirect that is followed is the last of its URL, and not of its request.
        let is_last = |page: &&Page| page.is_final || page.redirect.is_some();
        for page in new
            .filter(is_last)
            .filter(|page| page.kind == PageKind::Page)
        {
            self.ended.insert(page.url.clone());
        }
    }
}

/// Asks where URLs are, and judges the answers.
#[derive(Default)]
pub struct Judge {
    pub replies: Replies,
    asked: Vec<Question>,
    /// How often each state was found.
    pub states: BTreeMap<String, u32>,
    /// Answers from the disk.
    pub on_disk: u32,
}

struct Question {
    conn: ConnId,
    url: String,
    was_admitted: bool,
    had_ended: bool,
}

impl Judge {
    /// Asks where a URL is, unless many questions wait.
    pub fn ask(&mut self, crawler: &mut Crawler<Sim>, url: &str, known: &Known) {
        if self.asked.len() >= 12 {
            return;
        }
        let encoded = url.replace('/', "%2F").replace(':', "%3A");
        let request = format!("GET /v1/urls/{encoded} HTTP/1.1\r\nConnection: close\r\n\r\n");
        let conn = self.send(crawler, &request);
        self.asked.push(Question {
            conn,
            url: url.to_owned(),
            was_admitted: known.admitted.contains(url),
            had_ended: known.ended.contains(url),
        });
    }

    /// Sends a request on a connection of its own.
    fn send(&mut self, crawler: &mut Crawler<Sim>, request: &str) -> ConnId {
        let peer = Peer::Unix(Credentials {
            pid: None,
            uid: 7,
            gid: 7,
        });
        let endpoint = Endpoint::Unix {
            path: PathBuf::from("/crawl/control.sock"),
            mode: 0o600,
        };
        let net = crawler.io_mut().net();
        let conn = net.connect_client(&endpoint, peer, Duration::from_micros(100));
        net.reply(conn, Duration::ZERO, request.as_bytes());
        self.replies.borrow_mut().insert(conn, Vec::new());
        conn
    }

    /// The reply on a connection, once it is whole; then it is forgotten.
    fn take_reply(&mut self, conn: ConnId) -> Option<(u16, Value)> {
        let mut replies = self.replies.borrow_mut();
        let reply = whole(replies.get(&conn)?)?;
        replies.remove(&conn);
        Some(reply)
    }

    /// Judges the answers that are there.
    pub fn judge(&mut self, known: &Known, what: &str) {
        for question in std::mem::take(&mut self.asked) {
            let reply = self.replies.borrow()[&question.conn].clone();
            match whole(&reply) {
                Some((200, state)) => {
                    self.judge_state(&question, &state, known, what);
                    self.replies.borrow_mut().remove(&question.conn);
                }
                Some(_) => {
                    self.replies.borrow_mut().remove(&question.conn);
                }
                None => self.asked.push(question),
            }
        }
    }

    fn judge_state(&mut self, question: &Question, reply: &Value, known: &Known, what: &str) {
        let url = &question.url;
        let state = reply["state"].as_str().expect("it has a state");
        assert!(reply["why"].is_string(), "{what}: {reply}");
        *self.states.entry(state.to_owned()).or_default() += 1;
        self.on_disk += u32::from(reply["on_disk"] == true);
        if reply.get("kind").is_some_and(|kind| kind != "page") || state == "unknown" {
            return;
        }
        let is_over = ["ended", "never_seen", "filtered"].contains(&state);
        let is_unfinished = question.was_admitted && !known.ended.contains(url);
        assert!(
            !(is_unfinished && is_over),
            "{what}: {url} has not ended: {reply:#}"
        );
        // A filter of keys on the disk may err, and then another link to it waits for the answer.
        let is_over = state == "ended" || state == "offered" && reply["seen"] == "likely";
        assert!(
            !question.had_ended || is_over,
            "{what}: the sink has the result of {url}: {reply:#}"
        );
    }

    /// Questions without an answer are over with their crawl.
    pub fn forget(&mut self) {
        self.asked.clear();
        self.replies.borrow_mut().clear();
    }
}

/// The status and the body of a reply, once that is whole.
fn whole(reply: &[u8]) -> Option<(u16, Value)> {
    let reply = std::str::from_utf8(reply).expect("it is text");
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let length = head.split("Content-Length: ").nth(1)?.lines().next()?;
    let length: usize = length.parse().expect("it is a number");
    let status = head.split(' ').nth(1)?.parse().expect("it is a number");
    let body = body.get(..length)?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

const HOSTS: u64 = 4;
const PAGES: u64 = 120;
/// Above the numbers of pages that are linked.
const ADDED: u64 = 100_000;

/// Pages that link to others; some redirect, some fail for a while or for ever.
fn answer(asked: &Asked, rng: &mut Rng) -> Reply {
    let after = Duration::from_millis(rng.below(60));
    let host: u64 = asked.host[1..2].parse().unwrap_or(0);
    let number: u64 = asked.target.trim_start_matches('/').parse().unwrap_or(0);
    match number % 12 {
        3 => Reply::status(302).field("location", format!("/{}", (number + 1) % PAGES)),
        4 if rng.chance(0.5) => Reply::status(302)
            .field("location", format!("/{}", PAGES + number))
            .field("retry-after", "2"),
        5 => Reply::status(404),
        6 => Reply::reset(),
        7 => Reply::status(503),
        _ => {
            let links = [1, 5, 9, 70].map(|step| format!("<a href=/{}>x</a>", number + step));
            let links = if number < PAGES {
                links.concat()
            } else {
                String::new()
            };
            let next = format!("<a href=http://h{}.test/{number}>y</a>", (host + 1) % HOSTS);
            Reply::page(links + &next + &" ".repeat([0, 40_000][(number % 2) as usize]))
        }
    }
    .after(after)
}

/// A crawl with a state, which is killed and continued, and what is known of it.
struct Trial {
    seed: u64,
    rng: Rng,
    known: Known,
    judge: Judge,
    /// The sink's results of this run, and how many it takes.
    pages: Shared<Vec<Page>>,
    room: Shared<Option<usize>>,
    is_down: Shared<bool>,
    /// Seeds that an operator adds: when, the last one, those without an answer, and those that were accepted.
    adding: Rng,
    added: u64,
    unanswered: Vec<(ConnId, String)>,
    accepted: BTreeSet<String>,
    /// Number of accepted seeds that were looked for after a kill.
    checked: u32,
}

impl Trial {
    fn new(seed: u64) -> Self {
        Trial {
            seed,
            rng: Rng::from_seed(seed),
            known: Known::default(),
            judge: Judge::default(),
            pages: Shared::default(),
            room: Shared::default(),
            is_down: Shared::default(),
            adding: Rng::from_seed(seed + 1000),
            added: 0,
            unanswered: Vec::new(),
            accepted: BTreeSet::new(),
            checked: 0,
        }
    }

    /// An operator adds a seed now and then. Returns whether one was accepted in this turn.
    fn add_seeds(&mut self, crawler: &mut Crawler<Sim>) -> bool {
        if self.adding.chance(0.05) {
            self.added += 1;
            let url = format!("http://h{}.test/{}", self.added % HOSTS, ADDED + self.added);
            let length = url.len();
            let request =
                format!("POST /v1/seeds HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{url}");
            let conn = self.judge.send(crawler, &request);
            self.unanswered.push((conn, url));
        }
        let before = self.accepted.len();
        for (conn, url) in std::mem::take(&mut self.unanswered) {
            match self.judge.take_reply(conn) {
                Some((200, reply)) if reply["accepted"] == 1 => {
                    self.known.admitted.insert(url.clone());
                    self.accepted.insert(url);
                }
                Some(_) => {}
                None => self.unanswered.push((conn, url)),
            }
        }
        self.accepted.len() > before
    }

    /// What was accepted has ended in the run that was killed, or is still to be fetched.
    fn check_accepted(&mut self, before: &Crawler<Sim>) {
        let files = before.io().files();
        let state = State::load_from(Path::new("out"), files).expect("it can be read");
        let restored = state.restored.as_ref().expect("of a crawl");
        let offered = restored.offered.iter();
        let offered = offered.map(|entry| entry.job.url.to_string());
        let left: BTreeSet<String> = offered.chain(state.queued_urls(files)).collect();
        for url in std::mem::take(&mut self.accepted) {
            self.checked += 1;
            let is_known = self.known.ended.contains(&url) || left.contains(&url);
            assert!(
                is_known,
                "seed {}: {url} was accepted, and is lost",
                self.seed
            );
        }
        self.unanswered.clear();
    }

    fn run(&mut self, before: Option<&Crawler<Sim>>) -> Crawler<Sim> {
        if let Some(before) = before {
            self.check_accepted(before);
        }
        let rng = &mut self.rng;
        let mut answers = rng.fork("answers");
        let web = Web::new(move |asked| answer(asked, &mut answers));
        let mut config = config(self.seed);
        config.frontier.follow = Follow::All;
        config.frontier.retry_times = 1;
        config.frontier.memory_max = [1 << 30, 3000, 1, 1][rng.below(4) as usize];
        config.frontier.seen_memory_max = [1 << 30, 700][rng.below(2) as usize];
        config.io.workers = [0, 2][rng.below(2) as usize];
        config.state_sync = Duration::from_millis(rng.below(300));
        config.throttle.default.delay = Duration::from_millis(rng.below(200));
        config.throttle.default.concurrency = 1 + rng.below(3) as u32;
        config.stop_grace = Duration::from_millis(rng.below(200));
        let from = Duration::from_millis(500 + rng.below(3000));
        let full = FullDisk {
            below: "out".into(),
            from,
            until: from + Duration::from_secs(3),
            free: 0,
        };
        let faults = Faults {
            disk_latency_max: Duration::from_millis([1, 5, 30][rng.below(3) as usize]),
            compute_max: Duration::from_millis(100),
            disk_full: if rng.chance(0.3) {
                vec![full]
            } else {
                Vec::new()
            },
            ..Faults::default()
        };
        let world = Overheard {
            inner: web.world(),
            replies: Shared::clone(&self.judge.replies),
            is_down: Shared::clone(&self.is_down),
        };
        let mut io = Sim::with(
            rng.next_u64(),
            IoSettings::default(),
            faults,
            Box::new(world),
        );
        // What was not committed is lost.
        let state = match before {
            Some(before) => {
                let files = before.io().files();
                io.put_files(files.clone());
                let state = State::load_from(Path::new("out"), files).expect("it can be read");
                let left = state.restored.as_ref().expect("of a crawl");
                let offered = left.offered.iter().map(|entry| entry.job.url.to_string());
                let offered: BTreeSet<String> = offered.collect();
                let queued = state.queued_urls(files).into_iter();
                let queued: BTreeSet<String> = queued.collect();
                self.known = Known {
                    admitted: queued.difference(&offered).cloned().collect(),
                    ..Known::default()
                };
                state
            }
            None => State::new(Path::new("out"), String::new(), [3; 16]).expect("it is short"),
        };
        let mut files = io.files().clone();
        state.beginning().write_to(&mut files);
        io.put_files(files);
        self.pages.borrow_mut().clear();
        let (pages, taken, room) = (
            Shared::clone(&self.pages),
            Shared::clone(&self.pages),
            Shared::clone(&self.room),
        );
        let sink = FunctionSink::new(move |page| pages.borrow_mut().push(page));
        let is_ready = move || room.get().is_none_or(|room| taken.borrow().len() < room);
        let mut parts = Parts::new(sink.ready_when(is_ready));
        parts.state = Some(state);
        let config = config.finish().expect("a sound config");
        let mut crawler = Crawler::on(io, config, web_resolver(), parts).expect("a crawler");
        let admin = Admin::new().socket("/crawl/control.sock");
        crawler.serve(admin).expect("nothing else listens");
        if rng.chance(0.5) {
            crawler.delay_admission(rng.next_u64());
        }
        self.drive(&mut crawler, &web, before.is_none());
        crawler
    }

    fn drive(&mut self, crawler: &mut Crawler<Sim>, web: &Web, is_first: bool) {
        let seed = self.seed;
        let mut urls: Vec<String> = Vec::new();
        for number in 0..PAGES * 2 {
            urls.extend((0..HOSTS).map(|host| format!("http://h{host}.test/{number}")));
        }
        let turns = 100 + self.rng.below(900);
        let mut seeds = (0..if is_first { 300 } else { 0 }).map(page);
        let mut watch = Watch::default();
        for turn in 0..turns {
            if turn % 3 == 0
                && let Some(request) = seeds.next()
            {
                let url = request
                    .url
                    .replace("a.test", &format!("h{}.test", turn % HOSTS));
                let request = crate::frontier::request::Request {
                    url: url.clone(),
                    ..request
                };
                crawler.submit(request).expect("it is a URL");
                self.known.admitted.insert(url);
            }
            if self.rng.chance(0.01) {
                let taken = self.pages.borrow().len();
                let room = taken + self.rng.below(3) as usize;
                let is_full = self.rng.chance(0.3);
                self.room.set(is_full.then_some(room));
            }
            if self.rng.chance(0.004) {
                self.is_down.set(self.rng.chance(0.4));
            }
            if self.rng.chance(0.2) {
                let admitted = &self.known.admitted;
                let url = match self.rng.chance(0.9) && !admitted.is_empty() {
                    true => admitted
                        .iter()
                        .nth(self.rng.below(admitted.len() as u64) as usize),
                    false => urls.get(self.rng.below(urls.len() as u64) as usize),
                };
                let url = url.expect("it is there").clone();
                self.judge.ask(crawler, &url, &self.known);
            }
            let is_accepted = self.add_seeds(crawler);
            if is_accepted && !self.seed.is_multiple_of(3) && turn > 200 && self.adding.chance(0.3)
            {
                // It is killed as soon as the operator has the answer.
                break;
            }
            let patience = Some(Duration::from_millis(200));
            if watch.turn(crawler, patience) != Turn::GoesOn {
                break;
            }
            if turn % 32 == 0 {
                for request in web.asked() {
                    let url = format!("http://{}{}", request.host, request.target);
                    self.known.admitted.insert(url);
                }
            }
            self.known.take_pages(&self.pages.borrow());
            self.judge
                .judge(&self.known, &format!("seed {seed}, turn {turn}"));
        }
        self.judge.forget();
        self.room.set(None);
        self.is_down.set(false);
    }
}

#[test]
fn a_url_that_has_not_ended_is_never_reported_as_ended_and_none_that_was_accepted_is_lost() {
    let mut states: BTreeMap<String, u32> = BTreeMap::new();
    let (mut on_disk, mut checked) = (0, 0);
    for seed in 0..24 {
        let mut trial = Trial::new(seed);
        let first = trial.run(None);
        let second = trial.run(Some(&first));
        trial.run(Some(&second));
        for (state, count) in trial.judge.states {
            *states.entry(state).or_default() += count;
        }
        on_disk += trial.judge.on_disk;
        checked += trial.checked;
    }
    assert!(checked > 100, "{checked}");
    let seen = [
        "queued",
        "in_flight",
        "offered",
        "working",
        "ended",
        "never_seen",
    ];
    for state in seen {
        assert!(states.contains_key(state), "{state}: {states:?}");
    }
    assert!(on_disk > 100, "{on_disk}: {states:?}");
}
