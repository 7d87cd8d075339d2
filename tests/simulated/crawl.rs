//! A crawl of a [`PoliteWeb`] from its seeds to its result lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use argiope::audit::{Attempt, Auditor, Evidence, Orders, RobotsLog, RunLog};
use argiope::base::shared::Shared;
use argiope::base::time::Wall;
use argiope::crawl::config::{Config, SettingSource, SettingValue};
use argiope::crawl::{Crawler, Parts, Turn};
use argiope::fetch::resolver::ResolverSettings;
use argiope::frontier::request::Request;
use argiope::io::sim::{Faults, Sim};
use argiope::sink::files::{FileSink, FileSinkOptions, write_line};
use argiope::sink::tee::Tee;
use argiope::{DiskSink, FinishReason, FunctionSink, Handle, Page, SubmitError};
use serde_json::Value;

use super::stdout::kept_lines;
use super::web::{NAME_SERVER, PoliteWeb};

/// The log of runs.
pub const RUNS: &str = "out/runs.jsonl";

/// A crawl that can begin.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub seeds: Vec<String>,
    /// Requests with options, after the seeds.
    pub requests: Vec<Request>,
    /// The ways of some seeds, as their requests name them.
    pub routes: BTreeMap<String, &'static str>,
    pub preset: Option<&'static str>,
    pub settings: Vec<(&'static str, Value)>,
    pub faults: Faults,
    /// Names are asked of the web's name server; else they are known.
    pub asks_names: bool,
    /// Half of all offers to the frontier are answered late.
    pub admits_late: bool,
    /// The seeds are submitted by a handle as it has room: so many beyond what is being fetched.
    pub ahead: Option<usize>,
    /// Its output directory.
    pub out: PathBuf,
    /// The wall clock's time at its start, if not the usual one.
    pub wall: Option<Wall>,
}

/// Submits requests by a handle, and checks that it accepts no more than it may.
struct Producer {
    /// `None` once all are submitted.
    handle: Option<Handle>,
    left: VecDeque<Request>,
    ahead: usize,
    submitted: BTreeSet<u64>,
    /// The numbers of final pages.
    ended: Shared<BTreeSet<u64>>,
}

impl Producer {
    /// Submits what there is room for, while so many requests are in flight.
    fn submit(&mut self, in_flight: usize, seed: u64) {
        let Some(handle) = &self.handle else {
            return;
        };
        while let Some(request) = self.left.pop_front() {
            let open = self.submitted.difference(&self.ended.borrow()).count();
            match handle.try_submit(request) {
                Ok(id) => {
                    assert!(
                        open < self.ahead + in_flight,
                        "seed {seed}: one more was accepted than {} ahead of {in_flight}",
                        self.ahead
                    );
                    self.submitted.insert(id);
                }
                Err(SubmitError::Full(back)) => {
                    assert!(open > 0, "seed {seed}: there is no room in an empty crawl");
                    return self.left.push_front(*back);
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        self.handle = None;
    }
}

/// A crawl on its way.
pub struct Run {
    pub seed: u64,
    pub crawler: Crawler<Sim>,
    pub web: Shared<PoliteWeb>,
    pub turns: u64,
    producer: Option<Producer>,
    /// The output directory.
    out: PathBuf,
    /// Where the result lines are.
    pub output: Output,
    /// The crawl's time, and the turns since it came.
    stands: (Duration, u64),
}

/// Where the result lines of a crawl are.
pub enum Output {
    File,
    /// And what earlier runs wrote there.
    Stdout(Vec<u8>),
    Pulled(Pulled),
}

/// Results that are pulled and acknowledged.
#[derive(Default)]
pub struct Pulled {
    /// Their lines.
    pub lines: Vec<u8>,
    /// None are taken meanwhile.
    pub is_full: Shared<bool>,
    /// The number of each and its URL, by their epochs.
    pub of_epochs: BTreeMap<u64, Vec<(u64, String)>>,
    pub acknowledged: BTreeSet<u64>,
    /// At most so many are taken after a turn.
    pub most: usize,
    /// None is acknowledged while the crawl does not depend on it.
    pub is_slow: bool,
    /// Those of the last turn.
    pub last: Vec<u64>,
}

/// A result line.
pub struct Line(pub Value);

/// Turns at one moment of virtual time. Each does a bounded part of what there is, so a busy moment has
/// many; a moment that has more never ends.
const TURNS_AT_ONCE_MAX: u64 = 5_000;
/// A crawl that takes so many turns goes round in circles.
const TURNS_MAX: u64 = 3_000_000;

impl Plan {
    pub fn new(seeds: &[&str]) -> Self {
        Plan {
            seed: 1,
            seeds: seeds.iter().map(|seed| (*seed).to_owned()).collect(),
            requests: Vec::new(),
            routes: BTreeMap::new(),
            preset: None,
            settings: Vec::new(),
            faults: Faults::default(),
            asks_names: false,
            admits_late: false,
            ahead: None,
            out: "out".into(),
            wall: None,
        }
    }

    pub fn set(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// The request of a seed.
    pub fn request(&self, seed: &str) -> Request {
        let request = Request::get(seed);
        match self.routes.get(seed) {
            None => request,
            Some(&"direct") => request.without_proxy(),
            Some(proxy) => request.proxy(proxy.parse().expect("a proxy")),
        }
    }

    pub fn begin(&self, web: &Shared<PoliteWeb>) -> Run {
        let mut options = FileSinkOptions::new("out");
        options.robots = true;
        let files = FileSink::new(options);
        let mut run = match self.ahead {
            None => self.begin_into(web, files),
            Some(ahead) => self.begin_ahead(web, files, ahead),
        };
        run.crawler.log_runs(RUNS, 0);
        run
    }

    /// Seeds and requests are submitted while the crawl runs.
    fn begin_ahead(&self, web: &Shared<PoliteWeb>, files: FileSink, ahead: usize) -> Run {
        let ended = Shared::<BTreeSet<u64>>::default();
        let ends = ended.clone();
        let record = FunctionSink::new(move |page: Page| {
            if page.is_final {
                ends.borrow_mut().insert(page.root);
            }
        });
        let mut parts = Parts::new(Tee::new(files, record));
        parts.ahead_max = ahead;
        let seeds = self.seeds.iter().map(|seed| self.request(seed));
        let left = seeds.chain(self.requests.iter().cloned()).collect();
        let none_yet = Plan {
            seeds: Vec::new(),
            requests: Vec::new(),
            ..self.clone()
        };
        let mut run = none_yet.begin_with(web, parts);
        run.producer = Some(Producer {
            handle: Some(run.crawler.handle()),
            left,
            ahead,
            submitted: BTreeSet::new(),
            ended,
        });
        run
    }

    pub fn begin_into(&self, web: &Shared<PoliteWeb>, sink: impl DiskSink + 'static) -> Run {
        self.begin_with(web, Parts::new(sink))
    }

    pub fn begin_with(&self, web: &Shared<PoliteWeb>, parts: Parts) -> Run {
        let mut config = Config::default();
        if let Some(name) = self.preset {
            config.preset(name).expect("a preset of this name");
        }
        for (name, value) in &self.settings {
            config
                .set(name, value, SettingSource::Program)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let mut set = |name: &str, value: SettingValue| {
            config
                .set(name, value, SettingSource::Program)
                .unwrap_or_else(|error| panic!("{error}"));
        };
        set("ALLOW_NET", "10.0.0.0/8".into());
        set("RANDOM_SEED", self.seed.into());
        let mut resolver = ResolverSettings::default();
        if self.asks_names {
            resolver.servers = vec![NAME_SERVER.parse().expect("an address")];
        } else {
            let web = web.borrow();
            let fixed = web.sites.iter().map(|(name, site)| {
                let (host, port) = name.split_once(':').unwrap_or((name, "80"));
                format!("{host}:{port}:{}", site.address)
            });
            let proxies = web.proxies.iter().filter_map(|proxy| {
                let (name, port) = (proxy.name?, proxy.address.port());
                Some(format!("{name}:{port}:{}", proxy.address))
            });
            let fixed = match web.only_address() {
                Some(address) => vec![format!("*:80:{address}")],
                None => fixed.chain(proxies).collect(),
            };
            set("RESOLVE", fixed.into());
        }
        let config = config.finish().expect("settings that can be");
        let world = Box::new(Shared::clone(web));
        let sim = Sim::with(self.seed, config.io().clone(), self.faults.clone(), world);
        let sim = match self.wall {
            Some(wall) => sim.starting_at(wall),
            None => sim,
        };
        let mut crawler =
            Crawler::on(sim, config, resolver, parts).expect("a crawl that can begin");
        if self.admits_late {
            crawler.delay_admission(self.seed);
        }
        for seed in &self.seeds {
            crawler
                .submit(self.request(seed))
                .unwrap_or_else(|error| panic!("{seed}: {error}"));
        }
        for request in &self.requests {
            crawler
                .submit(request.clone())
                .unwrap_or_else(|error| panic!("{}: {error}", request.url));
        }
        Run {
            seed: self.seed,
            crawler,
            web: Shared::clone(web),
            out: self.out.clone(),
            output: Output::File,
            turns: 0,
            producer: None,
            stands: (Duration::ZERO, 0),
        }
    }

    /// Crawls to the end, which must be of this kind, without a fault.
    pub fn run(&self, web: &Shared<PoliteWeb>) -> Run {
        let mut run = self.begin(web);
        let reason = run.finish();
        assert_eq!(reason, FinishReason::Finished, "seed {}", self.seed);
        run.check_manners();
        run
    }
}

impl Run {
    pub fn finish(&mut self) -> FinishReason {
        loop {
            if let Some(reason) = self.turn() {
                return reason;
            }
        }
    }

    /// One turn; why the crawl is over, where it is.
    pub fn turn(&mut self) -> Option<FinishReason> {
        self.turn_within(None)
    }

    fn turn_within(&mut self, patience: Option<Duration>) -> Option<FinishReason> {
        self.turns += 1;
        let progress = |run: &Run| run.crawler.progress();
        assert!(
            self.turns < TURNS_MAX,
            "seed {}: the crawl does not end: {:?}",
            self.seed,
            progress(self)
        );
        if let Some(producer) = &mut self.producer {
            producer.submit(self.crawler.progress().in_flight, self.seed);
        }
        let turn = self.crawler.turn(patience);
        self.pull(patience.is_some());
        let elapsed = self.crawler.elapsed();
        self.stands = match self.stands {
            (then, turns) if then == elapsed => (then, turns + 1),
            _ => (elapsed, 0),
        };
        assert!(
            self.stands.1 < TURNS_AT_ONCE_MAX,
            "seed {}: virtual time does not advance beyond {elapsed:?}: {:?}",
            self.seed,
            progress(self)
        );
        match turn {
            Turn::GoesOn => None,
            Turn::Over(reason) => Some(reason),
        }
    }

    /// Takes some results, and acknowledges those that it took before; all if none is left, as the crawl may
    /// wait for that. `has_time`: it goes on without.
    pub fn pull(&mut self, has_time: bool) {
        let Output::Pulled(pulled) = &mut self.output else {
            return;
        };
        if pulled.is_full.get() {
            return;
        }
        let mut sure = match pulled.is_slow && has_time {
            true => Vec::new(),
            false => std::mem::take(&mut pulled.last),
        };
        for _ in 0..pulled.most {
            let Some(page) = self.crawler.try_next_result() else {
                if !has_time {
                    sure.append(&mut pulled.last);
                }
                break;
            };
            write_line(&page, None, &mut pulled.lines);
            pulled.last.push(page.id);
            if let Some(epoch) = page.epoch {
                let of_epoch = pulled.of_epochs.entry(epoch.0).or_default();
                of_epoch.push((page.id, page.url));
            }
        }
        for id in sure {
            self.crawler.acknowledge(id);
            pulled.acknowledged.insert(id);
        }
    }

    /// Goes on until a moment of the crawl, or its end.
    pub fn until(&mut self, at: Duration) -> Option<FinishReason> {
        while let Some(left) = at.checked_sub(self.crawler.elapsed())
            && !left.is_zero()
        {
            // A crawl that has nothing to do sleeps for good.
            if let Some(reason) = self.turn_within(Some(left)) {
                return Some(reason);
            }
        }
        None
    }

    pub fn check_manners(&self) {
        self.check_web();
        self.check_audit();
    }

    /// No server complains.
    pub fn check_web(&self) {
        let web = self.web.borrow();
        assert!(
            web.faults.is_empty(),
            "seed {}: the web complains:\n{}",
            self.seed,
            web.faults.join("\n")
        );
    }

    /// Its own files show no violation, where it has them.
    fn check_audit(&self) {
        let files = self.crawler.io().files();
        let runs = files.get(&self.out.join("runs.jsonl"));
        let runs = RunLog::read(runs.map_or(&[][..], Vec::as_slice)).expect("memory can be read");
        if runs.is_empty() {
            return;
        }
        assert_eq!(runs.read_lines().bad, 0, "{:?}", runs.read_lines());
        let robots = self.bytes_of("robots");
        let mut auditor = Auditor::new(Evidence {
            runs,
            robots: RobotsLog::read(&*robots).expect("memory can be read"),
            orders: Orders::default(),
        });
        let lines = self.bytes();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            let attempt = Attempt::parse(line);
            auditor.add(&attempt.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
        }
        let (verdict, _) = auditor.finish();
        let text = || serde_json::to_string_pretty(&verdict.violations).unwrap_or_default();
        assert_eq!(verdict.verdict, "kept", "seed {}: {}", self.seed, text());
    }

    /// The result lines: those that a reader keeps.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.output {
            Output::File => {}
            Output::Stdout(before) => {
                return kept_lines(&[before, self.crawler.io().stdout()].concat());
            }
            Output::Pulled(pulled) => return pulled.lines.clone(),
        }
        self.bytes_of("results")
    }

    /// The lines of files whose names begin so.
    pub fn lines_of(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.bytes_of(name)).expect("lines are text");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    fn bytes_of(&self, kind: &str) -> Vec<u8> {
        let files = self.crawler.io().files();
        // The names are in the order of the files.
        let names = files.iter().filter_map(|(path, bytes)| {
            let name = path.strip_prefix(&self.out).ok()?.to_str()?;
            name.starts_with(kind).then_some((name, bytes))
        });
        let mut text = Vec::new();
        for (name, bytes) in names {
            let name = name.trim_end_matches(".open");
            match name.rsplit_once(".jsonl") {
                Some((_, ".gz")) => {
                    let mut decoder = flate2::read::MultiGzDecoder::new(&**bytes);
                    decoder.read_to_end(&mut text).expect("whole members");
                }
                Some((_, ".zst")) => text.extend(zstd::decode_all(&**bytes).expect("frames")),
                _ => text.extend_from_slice(bytes),
            }
        }
        text
    }

    pub fn lines(&self) -> Vec<Line> {
        let text = String::from_utf8(self.bytes()).expect("result lines are text");
        text.lines()
            .map(|line| {
                let value = serde_json::from_str(line);
                Line(value.unwrap_or_else(|error| panic!("seed {}: {error}: {line}", self.seed)))
            })
            .collect()
    }

    /// The lines of `throttle.jsonl`.
    pub fn decisions(&self) -> Vec<Value> {
        let files = self.crawler.io().files();
        let bytes = files.get(&self.out.join("throttle.jsonl"));
        let text = String::from_utf8(bytes.cloned().unwrap_or_default()).expect("lines are text");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// The error codes (`kind.code`), or statuses, of the lines of a URL, in order.
    pub fn ends(&self, url: &str) -> Vec<String> {
        let lines = self.lines();
        let of_url = lines.iter().filter(|line| line.url() == url);
        of_url.map(Line::end).collect()
    }

    /// Each page has the title that the web sent, if those are extracted; otherwise no line has fields.
    pub fn check_titles(&self, are_extracted: bool, reason: FinishReason) {
        let seed = self.seed;
        let web = self.web.borrow();
        for line in self.lines() {
            let sent = web.titles.get(line.url());
            let is_cut = !line.0["truncated"].is_null();
            let is_whole = line.is_page() && line.is_final() && line.end() == "200";
            let Some(found) = line.0.get("fields") else {
                // What is under way at the end of a crawl that stops is written as it is.
                let is_due = are_extracted && is_whole && reason == FinishReason::Finished;
                assert!(
                    !is_due || sent.is_none(),
                    "seed {seed}: no fields: {}",
                    line.0
                );
                continue;
            };
            assert!(are_extracted, "seed {seed}: fields: {}", line.0);
            let is_sent = match found["title"].as_str() {
                Some(title) => sent.is_some_and(|sent| sent.contains(title)),
                // A page that broke off, or none of links.
                None => !is_whole || is_cut || sent.is_none(),
            };
            assert!(is_sent, "seed {seed}: the web sent {sent:?}: {}", line.0);
        }
    }

    /// Each attempt that was not the last leads to exactly one other; each URL ends once.
    pub fn check_lines(&self) {
        let seed = self.seed;
        let lines = self.lines();
        let ids: BTreeSet<u64> = lines.iter().map(Line::id).collect();
        assert_eq!(ids.len(), lines.len(), "seed {seed}: ids are given once");
        let mut finals: BTreeMap<&str, u32> = BTreeMap::new();
        for line in &lines {
            let kind = line.text("kind");
            if line.is_final() {
                // A request that was numbered when it was submitted, and whose URL another had come to.
                let is_double = line.end() == "filtered.duplicate";
                if kind == "page" && !is_double {
                    *finals.entry(line.url()).or_default() += 1;
                }
                continue;
            }
            // Runs that follow ask for a robots.txt anew.
            if kind == "robots" && self.web.borrow().promise.robots_known {
                continue;
            }
            let heirs = lines
                .iter()
                .filter(|other| other.0["parent"] == line.0["id"] && other.text("kind") == kind);
            let heirs: Vec<_> = heirs.map(Line::id).collect();
            assert_eq!(
                heirs.len(),
                1,
                "seed {seed}: {} has one successor, not {heirs:?}",
                line.0
            );
        }
        for (url, count) in finals {
            assert_eq!(count, 1, "seed {seed}: {url} has one final line");
        }
    }
}

impl Line {
    pub fn id(&self) -> u64 {
        self.0["id"].as_u64().expect("every line has an id")
    }

    pub fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or("")
    }

    pub fn url(&self) -> &str {
        self.text("url")
    }

    pub fn is_final(&self) -> bool {
        self.0["final"] == true
    }

    pub fn is_page(&self) -> bool {
        self.text("kind") == "page"
    }

    /// How it ended: the error's code, or else the status.
    pub fn end(&self) -> String {
        match self.0["error"]["code"].as_str() {
            Some(code) => code.to_owned(),
            None => self.0["status"].to_string(),
        }
    }
}
