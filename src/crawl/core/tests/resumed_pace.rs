//! Politeness across the runs of a crawl, measured at the simulated servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::time::{Instant, Wall};
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, web_resolver};
use crate::crawl::journal::state::{State, StateError};
use crate::crawl::{Crawler, Parts, Turn};
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::io::{Io, IoSettings};
use crate::sink::function::FunctionSink;
use crate::sink::page::Page;
use crate::throttle::settings::{ScopePatch, WindowKind};

/// The simulated world's round trip.
const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The first run's start.
const BEGAN: Wall = Wall(1_767_225_600_000_000_000);

fn out() -> &'static Path {
    Path::new("out")
}

/// How runs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// The process is killed: what it wrote is there.
    Killed,
    /// A power cut: of what was not synced any part is there.
    PowerCut,
    /// By a signal: it commits and ends.
    Stopped,
}

/// A request at its server.
#[derive(Clone, Debug)]
struct Seen {
    /// The true time since the first run began.
    at: Duration,
    asked: Asked,
    run: usize,
}

/// Runs of one crawl.
struct Runs {
    rng: Rng,
    ends: Ends,
    files: BTreeMap<PathBuf, Vec<u8>>,
    seen: Vec<Seen>,
    /// The true time since the first run began.
    clock: Duration,
    /// When each run ended.
    ended: Vec<Duration>,
    /// How far the wall clock is off, in seconds.
    off: i64,
    /// Settings that scopes are given when the next run has begun.
    orders: Vec<(&'static str, ScopePatch)>,
    /// Scopes of which the next run forgets what was learned, as it begins.
    forgets: Vec<&'static str>,
    run: usize,
}

impl Runs {
    fn new(seed: u64, ends: Ends) -> Self {
        Runs {
            rng: Rng::from_seed(seed),
            ends,
            files: BTreeMap::new(),
            seen: Vec::new(),
            clock: Duration::ZERO,
            ended: Vec::new(),
            off: 0,
            orders: Vec::new(),
            forgets: Vec::new(),
            run: 0,
        }
    }

    /// The state that is left, or a new one.
    fn state(&mut self) -> State {
        let new = || State::new(out(), String::new(), [1; 16]).expect("it is short");
        match self.files.is_empty() {
            true => new(),
            false => match State::load_from(out(), &self.files) {
                Err(StateError::None(_)) => {
                    self.files.clear();
                    new()
                }
                read => read.expect("it can be read"),
            },
        }
    }

    /// Runs for so long, and is down for so long after.
    fn run(
        &mut self,
        span: Duration,
        down: Duration,
        seeds: &[&str],
        edit: impl FnOnce(&mut Config),
        answer: impl FnMut(&Asked) -> Reply + Send + 'static,
    ) {
        let web = Web::new(answer).round_trip(ROUND_TRIP);
        let mut config = config(self.rng.below(1 << 32));
        config.frontier.follow = Follow::All;
        config.state_sync = Duration::from_millis(self.rng.below(2_000));
        config.outage_breaker = false;
        config.stop_grace = Duration::from_millis(self.rng.below(200));
        edit(&mut config);
        let faults = Faults {
            disk_latency_max: match self.ends {
                Ends::PowerCut => Duration::from_millis(self.rng.below(80)),
                Ends::Killed | Ends::Stopped => Duration::ZERO,
            },
            ..Faults::default()
        };
        let resolver = web_resolver();
        let nanos = self.clock.as_nanos() as u64;
        let wall = BEGAN.0.saturating_add(nanos);
        let wall = wall.saturating_add_signed(self.off.saturating_mul(1_000_000_000));
        let settings = IoSettings::default();
        let io = Sim::with(self.rng.next_u64(), settings, faults, web.world());
        let mut io = io.starting_at(Wall(wall));
        let state = self.state();
        state.beginning().write_to(&mut self.files);
        io.put_files(std::mem::take(&mut self.files));
        let taken = state.seeds_taken().unwrap_or(0);
        let mut parts = Parts::new(FunctionSink::new(|_: Page| {}));
        parts.state = Some(state);
        let config = config.finish().expect("a sound config");
        let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
        for (position, seed) in (1..).zip(seeds).skip(taken as usize) {
            let seed = Request::get(*seed);
            let submitted = crawler.handle().submit_seed_at(seed, position);
            submitted.expect("there is room");
        }
        for (scope, patch) in self.orders.drain(..) {
            let ordered = crawler.handle().set_scope(scope, patch);
            ordered.expect("there is room");
        }
        for scope in self.forgets.drain(..) {
            crawler.handle().forget(scope).expect("there is room");
        }
        let until = crawler.io().now() + span;
        while crawler.io().now() < until {
            let left = until.saturating_since(crawler.io().now());
            if crawler.turn(Some(left)) != Turn::GoesOn {
                break;
            }
        }
        if self.ends == Ends::Stopped {
            crawler.stopper().stop();
            while crawler.turn(None) == Turn::GoesOn {}
        }
        for (path, bytes) in crawler.io().files() {
            let synced = crawler.io().synced(path);
            let more = match self.ends {
                Ends::PowerCut => self.rng.below((bytes.len() - synced) as u64 + 1) as usize,
                Ends::Killed | Ends::Stopped => bytes.len() - synced,
            };
            let kept = bytes[..synced + more].to_vec();
            self.files.insert(path.clone(), kept);
        }
        let began = self.clock;
        let since = |at: Instant| began + at.saturating_since(Instant::START);
        self.seen.extend(web.asked().into_iter().map(|asked| Seen {
            at: since(asked.at),
            asked,
            run: self.run,
        }));
        self.clock = since(crawler.io().now());
        self.ended.push(self.clock);
        self.clock += down;
        self.run += 1;
    }

    /// The requests of a host, in order.
    fn of(&self, host: &str) -> Vec<&Seen> {
        let seen = self.seen.iter();
        seen.filter(|seen| seen.asked.host == host).collect()
    }

    /// No two requests of the host are closer than this.
    fn check_gaps(&self, host: &str, gap: Duration, seed: u64) {
        for pair in self.of(host).windows(2) {
            let waited = pair[1].at.saturating_sub(pair[0].at);
            assert!(
                waited >= gap,
                "seed {seed}, {:?}: {host} waited {waited:?} from {:?} of run {} to run {}",
                self.ends,
                pair[0].at,
                pair[0].run,
                pair[1].run,
            );
        }
    }
}

/// A page with links to a hundred others.
fn page() -> Reply {
    let links = (0..100).map(|page| format!("<a href=/{page}>x</a>"));
    Reply::page(links.collect::<String>())
}

const ENDS: [Ends; 3] = [Ends::Killed, Ends::PowerCut, Ends::Stopped];

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn no_gap_is_shorter_than_allowed_across_any_restart() {
    for seed in 0..30 {
        let mut runs = Runs::new(seed, ENDS[seed as usize % 3]);
        for _ in 0..8 {
            let (span, down) = (runs.rng.below(9_000), runs.rng.below(700));
            let seeds = ["http://a.test/", "http://slots.test/"];
            // The clock of the machine is set now and then.
            runs.off += [0, 0, -5_000, 7_000][runs.rng.below(4) as usize];
            let edit = |config: &mut Config| {
                config.throttle.default.delay = millis(800);
                let slots = ScopePatch {
                    delay: Some(millis(300)),
                    delay_per_slot: Some(millis(2_000)),
                    concurrency: Some(3),
                    ..ScopePatch::default()
                };
                config
                    .throttle
                    .scopes
                    .insert("slots.test".to_owned(), slots);
            };
            runs.run(millis(span), millis(down), &seeds, edit, |_| page());
        }
        assert!(runs.of("a.test").len() > 8, "seed {seed}");
        runs.check_gaps("a.test", millis(800), seed);
        runs.check_gaps("slots.test", millis(300), seed);
        for three in runs.of("slots.test").windows(4) {
            let waited = three[3].at - three[0].at;
            assert!(waited >= millis(2_000), "seed {seed}: {waited:?}");
        }
    }
}

#[test]
fn after_an_end_in_order_only_hosts_that_were_asked_lately_wait() {
    for ends in [Ends::Stopped, Ends::Killed] {
        let mut runs = Runs::new(1, ends);
        let seeds = ["http://a.test/", "http://b.test/"];
        let edit = |config: &mut Config| config.throttle.default.delay = millis(10_000);
        for seeds in [&seeds[..1], &seeds] {
            runs.run(millis(4_000), millis(50), seeds, edit, |_| page());
        }
        let resumed = runs.ended[0] + millis(50);
        let of_other = runs.of("b.test");
        let is_soon = |seen: &&&Seen| seen.at < resumed + millis(1_000);
        let waits = of_other.first().filter(is_soon).is_none();
        assert_eq!(waits, ends == Ends::Killed);
        runs.run(millis(25_000), millis(50), &seeds, edit, |_| page());
        assert!(runs.of("a.test").len() > 2);
        runs.check_gaps("a.test", millis(10_000), 1);
    }
}

#[test]
fn a_short_run_that_ends_in_order_remembers_that_the_one_before_it_was_killed() {
    let mut runs = Runs::new(1, Ends::Killed);
    let edit = |config: &mut Config| {
        config.throttle.default.delay = millis(10_000);
        config.state_sync = millis(10);
    };
    // Nothing is left of a.test, so that the second run has no scope for it.
    let answer = |asked: &Asked| match asked.host.as_str() {
        "a.test" => Reply::text("done"),
        _ => page(),
    };
    let seeds = ["http://a.test/", "http://b.test/", "http://a.test/2"];
    runs.run(millis(500), millis(50), &seeds[..2], edit, answer);
    runs.ends = Ends::Stopped;
    runs.run(millis(300), millis(50), &seeds[..2], edit, answer);
    assert_eq!(runs.of("a.test").len(), 1);
    runs.run(millis(25_000), millis(50), &seeds, edit, answer);
    assert_eq!(runs.of("a.test").len(), 2);
    runs.check_gaps("a.test", millis(10_000), 1);
}

#[test]
fn a_retry_after_that_was_learned_holds_in_the_next_runs() {
    let wait = Duration::from_secs(10);
    let mut held = 0;
    for seed in 0..40 {
        let ends = [Ends::Killed, Ends::Stopped][seed as usize % 2];
        let mut runs = Runs::new(seed, ends);
        // When refusals were learned, and the end of that run.
        let mut refusals = Vec::new();
        for _ in 0..12 {
            let (span, down) = (runs.rng.below(6_000), runs.rng.below(3_000));
            let mut answers = Rng::from_seed(runs.rng.next_u64());
            let refused: Arc<Mutex<Vec<Instant>>> = Arc::default();
            let refusing = Arc::clone(&refused);
            let answer = move |asked: &Asked| match answers.below(4) {
                0 => {
                    refusing.lock().expect("no panic").push(asked.at);
                    Reply::status(429).field("Retry-After", wait.as_secs())
                }
                _ => page(),
            };
            let edit = |config: &mut Config| config.throttle.default.delay = millis(200);
            let began = runs.clock;
            let seeds = ["http://a.test/"];
            runs.run(millis(span), millis(down), &seeds, edit, answer);
            let ended = runs.ended[runs.ended.len() - 1];
            for at in refused.lock().expect("no panic").iter() {
                let learned = began + at.saturating_since(Instant::START) + ROUND_TRIP / 2;
                if learned < ended {
                    refusals.push((learned, runs.run - 1));
                }
            }
        }
        let seen = runs.of("a.test");
        for (learned, run) in refusals {
            let Some(next) = seen.iter().find(|seen| seen.at > learned) else {
                continue;
            };
            held += u32::from(next.run > run);
            assert!(
                next.at >= learned + wait,
                "seed {seed}, {ends:?}: learned at {learned:?} in run {run}, sent at {:?} in run {}",
                next.at,
                next.run
            );
        }
    }
    assert!(held > 40, "{held}");
}

#[test]
fn a_scope_keeps_the_settings_that_it_was_given_while_the_crawl_ran() {
    let delay = |delay| ScopePatch::default().delay(millis(delay));
    for (seed, ends) in (0..).zip(ENDS) {
        let mut runs = Runs::new(seed, ends);
        runs.orders = vec![
            ("a.test", delay(3_000)),
            ("default", delay(1_000)),
            // The delay stays.
            ("default", ScopePatch::default().concurrency(1)),
            // The settings of the configuration are removed.
            ("c.test", ScopePatch::default()),
        ];
        for _ in 0..3 {
            let edit = |config: &mut Config| {
                config.throttle.default.delay = millis(100);
                let slow = delay(10_000);
                config.throttle.scopes.insert("c.test".to_owned(), slow);
            };
            let seeds = ["http://a.test/", "http://b.test/", "http://c.test/"];
            runs.run(millis(20_000), millis(100), &seeds, edit, |_| page());
        }
        for (host, gap, pages) in [
            ("a.test", 3_000, 4),
            ("b.test", 1_000, 15),
            ("c.test", 1_000, 15),
        ] {
            for run in 1..3 {
                let seen: Vec<_> = runs
                    .of(host)
                    .into_iter()
                    .filter(|seen| seen.run == run)
                    .collect();
                assert!(
                    seen.len() >= pages,
                    "{ends:?}, run {run}: {host}: {}",
                    seen.len()
                );
                for pair in seen.windows(2) {
                    let took = pair[1].at - pair[0].at;
                    assert!(took >= millis(gap), "{ends:?}, run {run}: {host}: {took:?}");
                }
            }
        }
    }
}

#[test]
fn no_quota_is_exceeded_in_any_window_across_restarts() {
    let (units, window) = (5, millis(4_000));
    for seed in 0..30 {
        let mut runs = Runs::new(seed, ENDS[seed as usize % 3]);
        for _ in 0..10 {
            let (span, down) = (runs.rng.below(12_000), runs.rng.below(3_000));
            let edit = |config: &mut Config| {
                config.throttle.default.delay = Duration::ZERO;
                let quota = ScopePatch {
                    delay: Some(Duration::ZERO),
                    concurrency: Some(2),
                    quota: Some(units as f64),
                    window: Some(window),
                    window_kind: Some(WindowKind::Sliding),
                    ..ScopePatch::default()
                };
                config.throttle.scopes.insert("a.test".to_owned(), quota);
            };
            let seeds = ["http://a.test/"];
            runs.run(millis(span), millis(down), &seeds, edit, |_| page());
        }
        let seen = runs.of("a.test");
        assert!(seen.len() > 20, "seed {seed}: {}", seen.len());
        for more in seen.windows(units + 1) {
            let took = more[units].at - more[0].at;
            assert!(
                took >= window,
                "seed {seed}, {:?}: {took:?} in runs {} to {}",
                runs.ends,
                more[0].run,
                more[units].run
            );
        }
    }
}

#[test]
fn a_robots_txt_is_asked_for_once_while_it_is_valid() {
    let (lifetime, sync) = (millis(20_000), millis(1_500));
    let hosts = ["rules.test", "absent.test", "down.test"];
    for seed in 0..24 {
        let mut runs = Runs::new(seed, ENDS[seed as usize % 3]);
        for _ in 0..9 {
            let (span, down) = (runs.rng.below(9_000), runs.rng.below(3_000));
            let edit = |config: &mut Config| {
                config.throttle.default.delay = millis(300);
                config.frontier.robots_obey = true;
                config.frontier.robots_lifetime = lifetime;
                config.frontier.retry_times = 0;
                config.state_sync = sync;
            };
            let answer = |asked: &Asked| match (&*asked.host, &*asked.target) {
                ("rules.test", "/robots.txt") => Reply::text("user-agent: *\ndisallow: /1\n"),
                ("absent.test", "/robots.txt") => Reply::status(404),
                (_, "/robots.txt") => Reply::status(500),
                _ => page(),
            };
            let urls = hosts.map(|host| format!("http://{host}/"));
            let seeds = urls.each_ref().map(String::as_str);
            runs.run(millis(span), millis(down), &seeds, edit, answer);
        }
        for host in hosts {
            let seen = runs.of(host);
            let is_robots = |seen: &&&Seen| seen.asked.target == "/robots.txt";
            let robots: Vec<_> = seen.iter().filter(is_robots).collect();
            for pair in robots.windows(2) {
                let (at, run) = (pair[0].at, pair[0].run);
                // It arrived, and was committed.
                let was_recorded = at + sync * 2 + millis(500) < runs.ended[run];
                let is_valid = pair[1].at < at + lifetime;
                assert!(
                    !(is_valid && was_recorded),
                    "seed {seed}, {:?}: {host} at {at:?} in run {run} and {:?} in run {}",
                    runs.ends,
                    pair[1].at,
                    pair[1].run
                );
            }
            let disallowed = |seen: &&&Seen| host == "rules.test" && seen.asked.target == "/1";
            assert_eq!(seen.iter().filter(disallowed).count(), 0);
        }
        assert!(runs.of("rules.test").len() > 20, "seed {seed}");
    }
}

#[test]
fn limits_of_pages_are_for_all_runs() {
    for seed in 0..12 {
        let mut runs = Runs::new(seed, Ends::Stopped);
        for run in 0..10 {
            let (span, down) = (runs.rng.below(4_000), runs.rng.below(1_000));
            let edit = |config: &mut Config| {
                config.throttle.default.delay = millis(200);
                config.frontier.pages_per_host_max = 12;
                config.frontier.pages_max = 30;
                config.stop_grace = millis(1_000);
            };
            let seeds = ["http://a.test/", "http://b.test/", "http://c.test/"];
            let span = if run == 9 { 60_000 } else { span };
            runs.run(millis(span), millis(down), &seeds, edit, |_| page());
        }
        let pages = ["a.test", "b.test", "c.test"].map(|host| runs.of(host).len());
        assert!(
            pages.iter().all(|pages| *pages <= 12),
            "seed {seed}: {pages:?}"
        );
        assert_eq!(pages.iter().sum::<usize>(), 30, "seed {seed}: {pages:?}");
    }
}

#[test]
fn the_limit_of_time_is_for_all_runs() {
    for (seed, ends) in (0..).zip(ENDS) {
        let mut runs = Runs::new(seed, ends);
        let most = millis(20_000);
        let mut active = Duration::ZERO;
        for _ in 0..30 {
            let (span, down) = (2_000 + runs.rng.below(4_000), runs.rng.below(60_000));
            let edit = |config: &mut Config| {
                // Longer than that for all pages.
                config.throttle.default.delay = millis(300);
                config.max_time = Some(most);
            };
            let began = runs.clock;
            let seeds = ["http://a.test/"];
            runs.run(millis(span), millis(down), &seeds, edit, |_| page());
            active += runs.ended[runs.ended.len() - 1] - began;
        }
        // What a run did after its last commit is not known.
        let unknown = match ends {
            Ends::Stopped => millis(300),
            Ends::Killed | Ends::PowerCut => millis(30 * 2_500),
        };
        assert!(active >= most, "{ends:?}: {active:?}");
        assert!(active <= most + unknown, "{ends:?}: {active:?}");
    }
}

#[test]
fn time_counts_while_nothing_happens() {
    let mut runs = Runs::new(1, Ends::Killed);
    let edit = |config: &mut Config| {
        config.max_time = Some(Duration::from_secs(600));
        config.throttle.default.delay = Duration::from_secs(3600);
    };
    let seeds = ["http://a.test/"];
    for _ in 0..2 {
        let began = runs.clock;
        runs.run(millis(400_000), millis(0), &seeds, edit, |_| page());
        let took = runs.ended[runs.run - 1] - began;
        let most = [400, 262][runs.run - 1];
        assert!(took <= Duration::from_secs(most), "{took:?}");
    }
}

#[test]
fn a_clock_that_was_set_makes_no_hold_longer_than_it_was() {
    let wait = Duration::from_secs(20);
    for off in [-1_000_000, -3, 0, 3, 1_000_000] {
        let mut runs = Runs::new(1, Ends::Killed);
        let edit = |config: &mut Config| config.throttle.default.delay = millis(2_000);
        let seeds = ["http://a.test/"];
        let refuse = |_: &Asked| Reply::status(429).field("Retry-After", 20);
        runs.run(millis(1_000), millis(500), &seeds, edit, refuse);
        runs.off = off;
        let resumed = runs.clock;
        runs.run(millis(60_000), millis(0), &seeds, edit, |_| page());
        let seen = runs.of("a.test");
        let next = seen.iter().find(|seen| seen.run == 1).expect("it goes on");
        let waited = next.at - resumed;
        assert!(waited <= wait + millis(500), "{off}: {waited:?}");
        assert!(waited >= millis(2_000), "{off}: {waited:?}");
        if off <= 0 {
            assert!(next.at >= seen[0].at + wait, "{off}: {waited:?}");
        }
    }
}

#[test]
fn a_learned_limit_is_kept_by_the_next_run() {
    let mut runs = Runs::new(1, Ends::Killed);
    let edit = |config: &mut Config| config.throttle.default.delay = millis(100);
    let seeds = ["http://a.test/"];
    let mut last = Instant::START;
    let answer = move |asked: &Asked| {
        let waited = asked.at.saturating_since(last);
        last = asked.at;
        match waited < millis(900) {
            true => Reply::status(429),
            false => page(),
        }
    };
    runs.run(millis(50_000), millis(1_000), &seeds, edit, answer);
    runs.run(millis(20_000), millis(0), &seeds, edit, |_| page());
    let seen = runs.of("a.test");
    let next: Vec<_> = seen.iter().filter(|seen| seen.run == 1).collect();
    let gap = next[1].at - next[0].at;
    assert!(gap >= millis(500), "{gap:?}");
}

#[test]
fn what_was_learned_of_scopes_that_are_not_in_use_is_forgotten_also_by_later_runs() {
    let gap_after = |forgets: &[&'static str]| {
        let mut runs = Runs::new(1, Ends::Killed);
        let edit = |config: &mut Config| config.throttle.default.delay = millis(100);
        let seeds = ["http://a.test/"];
        let mut last = Instant::START;
        let answer = move |asked: &Asked| {
            let waited = asked.at.saturating_since(last);
            last = asked.at;
            match waited < millis(900) {
                true => Reply::status(429),
                false => page(),
            }
        };
        runs.run(millis(50_000), millis(1_000), &seeds, edit, answer);
        // Nothing is sent by this run, so that the state is that of the one before.
        runs.forgets = forgets.to_vec();
        let held = |config: &mut Config| {
            edit(config);
            let far = r#"{"hold_until": "2100-01-01T00:00:00Z"}"#;
            let patch = far.parse().expect("a patch");
            config.throttle.scopes.insert("a.test".to_owned(), patch);
        };
        runs.run(millis(5_000), millis(1_000), &seeds, held, |_| page());
        runs.run(millis(20_000), millis(0), &seeds, edit, |_| page());
        let seen = runs.of("a.test");
        assert!(seen.iter().all(|seen| seen.run != 1));
        let next: Vec<_> = seen.iter().filter(|seen| seen.run == 2).collect();
        next[1].at - next[0].at
    };
    let learned = gap_after(&[]);
    assert!(learned >= millis(500), "{learned:?}");
    let other = gap_after(&["*.other.test"]);
    assert_eq!(other, learned);
    for name in ["*.test", "default", "a.test"] {
        let gap = gap_after(&[name]);
        assert!(gap < millis(200), "{name}: {gap:?}");
    }
}

#[test]
fn what_was_learned_while_the_clock_was_ahead_ages_from_the_next_run_on() {
    let mut runs = Runs::new(0, Ends::Killed);
    let hour = Duration::from_secs(3600);
    let seeds = ["http://a.test/"];
    let run = |runs: &mut Runs, down| {
        let edit = |config: &mut Config| {
            config.frontier.robots_obey = true;
            config.throttle.default.delay = millis(800);
        };
        runs.run(millis(8_000), down, &seeds, edit, |_| page());
    };
    // The clock is ten days ahead.
    runs.off = 240 * 3600;
    run(&mut runs, hour);
    runs.off = 0;
    run(&mut runs, 25 * hour);
    run(&mut runs, hour);
    let of_robots = |seen: &&Seen| seen.asked.target == "/robots.txt";
    let fetched = runs.seen.iter().filter(of_robots);
    assert_eq!(fetched.map(|seen| seen.run).collect::<Vec<_>>(), [0, 2]);
    assert!(runs.of("a.test").iter().any(|seen| seen.run == 1));
}
