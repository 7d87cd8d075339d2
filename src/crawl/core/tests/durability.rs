//! Crawls into files in virtual time, on a disk that tears, loses, reorders, fills up and fails, which are
//! ended again and again and continued each time.
//!
//! `ARGIOPE_SEEDS` is the number of crawls: `ARGIOPE_SEEDS=10000 cargo test --release --lib -- durability`.
//! A failure prints the seed; `ARGIOPE_SEED` runs that crawl alone.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, Read};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::crawl::core::tests::folder::{self, files_of, put_files};
use crate::crawl::core::tests::resumed_files::checked_lines;
use crate::crawl::core::tests::trial::{config, web_resolver};
use crate::crawl::finish::FinishReason;
use crate::crawl::journal::contents::StateContents;
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, Parts, Turn};
use crate::frontier::request::Request;
use crate::frontier::settings::Follow;
use crate::io::sim::web::{Asked, Reply, Web};
use crate::io::sim::{Crash, Faults, FullDisk, Shared, Sim};
use crate::io::{Io, IoSettings};
use crate::sink::directory::{self, LineFile};
use crate::sink::files::{Compression, FileSink, FileSinkOptions, Rotation, WarcOptions};
use crate::throttle::settings::ScopePatch;

/// Crawls that are tried unless `ARGIOPE_SEEDS` says otherwise.
const SEEDS: u64 = 200;

/// No more crawls are tried after so many that failed.
const FAILED_MAX: usize = 20;

/// Crawls that found something once: a sync of results failed, a later one did not, and the commit under way
/// had the length of that one.
const FOUND: [u64; 1] = [570];

const HOSTS: u64 = 3;
const PAGES: u64 = 14;

/// Time from the reply of a server to the commit of its line, beyond `STATE_SYNC`, on a quick disk that
/// works: round trips, the jobs queued before the commit, and its own.
const COMMIT_TIME: Duration = Duration::from_secs(4);

/// Time from an order to its record on a disk that works and has little to do.
const RECORD_TIME: Duration = Duration::from_millis(150);

/// [`COMMIT_TIME`] on such a disk.
const QUICK_COMMIT_TIME: Duration = Duration::from_millis(500);

/// All delays of the configuration are shorter.
const DELAY_MAX: Duration = Duration::from_millis(60);

/// What arrives within this time of an order may have left before it.
const UNDER_WAY: Duration = Duration::from_millis(30);

/// Gaps where requests arrive may be shorter than where they leave: connections have round trips of 5 to 50 ms.
const ON_THE_WAY: Duration = Duration::from_micros(22_500);

/// Gaps, cancellations, and runs that were stopped in order, that were judged in all crawls.
static GAPS_JUDGED: AtomicU64 = AtomicU64::new(0);
static CANCELS_JUDGED: AtomicU64 = AtomicU64::new(0);
static STOPS_JUDGED: AtomicU64 = AtomicU64::new(0);

/// Requests in flight to one host.
const CONCURRENCY: u32 = 3;

/// Requests other than GET, to the first host.
const ORDERS: u64 = 8;

const ROBOTS: &str = "/robots.txt";

/// The sitemap of each host, in crawls with sitemaps, and the only page in it, to which no page links.
const SITEMAP: &str = "/map.xml";
const MAPPED: &str = "/mapped";

/// A page that links to others and to the next host; some redirect, some fail for a while or for ever.
fn answer(asked: &Asked, rng: &mut Rng) -> Reply {
    if asked.method != "GET" {
        return Reply::text("done").after(Duration::from_millis(rng.below(300)));
    }
    let after = Duration::from_millis(rng.below(40));
    let host = &asked.host;
    if asked.target == ROBOTS {
        return Reply::text(format!("Sitemap: http://{host}{SITEMAP}\n")).after(after);
    }
    if asked.target == SITEMAP {
        let entry = format!("<url><loc>http://{host}{MAPPED}</loc></url>");
        return Reply::text(format!("<urlset>{entry}</urlset>")).after(after);
    }
    let number = asked.target.trim_start_matches('/').parse().unwrap_or(0);
    match number % 10 {
        3 => Reply::status(302).field("location", format!("/{}", (number + 1) % PAGES)),
        5 => Reply::status(404),
        6 => Reply::reset(),
        7 => Reply::status(503),
        _ => {
            let host: u64 = host[1..2].parse().unwrap_or(0);
            let links = [1, 2, 9].map(|step| format!("<a href=/{}>x</a>", (number + step) % PAGES));
            let next = format!("<a href=http://h{}.test/{number}>y</a>", (host + 1) % HOSTS);
            // Helper threads search long pages alone.
            let filler = " ".repeat([0, 3000][(number % 2) as usize]);
            Reply::page(links.concat() + &next + &filler)
        }
    }
    .after(after)
}

/// The seeds: a page, and requests of which those of odd numbers must not be made twice.
fn seeds() -> Vec<Request> {
    let orders = (0..ORDERS).map(|number| {
        let mut order = Request::get(format!("http://h0.test/order/{number}"));
        order.method = ["PUT", "POST"][number as usize % 2].to_owned();
        order.body = b"one of it".to_vec();
        order
    });
    [Request::get("http://h0.test/0")]
        .into_iter()
        .chain(orders)
        .collect()
}

/// What a crawl is ordered while it runs. Even crawls, those of [`FOUND`] among them, are ordered nothing.
#[derive(Default)]
struct Orders {
    /// The longest delay so far: each order is for a longer one.
    delay: Duration,
    /// The delay that later runs keep, by host.
    delays: BTreeMap<String, Duration>,
    /// URLs of requests that were cancelled.
    cancelled: BTreeSet<String>,
    /// Those that later runs do not make.
    unmade: BTreeSet<String>,
}

/// An order, and when it was given.
struct Order {
    at: Instant,
    what: Ordered,
}

enum Ordered {
    /// The delay of a host.
    Delay(String, Duration),
    /// The cancellation of a request, by its URL.
    Cancel(String),
}

/// A crawl over several runs.
struct Trial {
    seed: u64,
    rng: Rng,
    folder: TempDir,
    /// What was asked of the servers so far.
    asked: BTreeMap<String, u64>,
    /// Runs that ended before the crawl was over.
    runs: u64,
    /// How its runs end, if all end so.
    crash: Option<Crash>,
    orders: Orders,
    /// URLs that have a line that was cut off: no committed line has their result.
    lost: BTreeSet<String>,
    /// URLs that were requested in a run that was killed, without a committed line: what their lines were.
    killed: BTreeMap<String, Counts>,
    /// Of each URL before the run.
    counts: BTreeMap<String, Counts>,
    /// Requests that have a line which says that their outcome is unknown.
    unknown: BTreeSet<String>,
    /// Whether a run since the last one that ended in order did not: requests may be recorded as started.
    may_have_starts: bool,
    /// What runs share that follow each other on a machine.
    shared: Shared,
}

/// Lines of a URL.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Those of attempts that were sent.
    sent: u64,
    /// Those of them that say that an earlier run had sent it, too.
    refetched: u64,
}

/// What a run left.
struct Left {
    reason: Option<FinishReason>,
    files: BTreeMap<PathBuf, Vec<u8>>,
    asked: Vec<Asked>,
    crashed_at: Instant,
    /// Whether the machine lives.
    is_killed: bool,
    /// Until when lines may be uncommitted: none that was answered before is lost.
    settled: Option<Duration>,
    /// Whether its disk worked, and had little to do.
    is_idle: bool,
    /// Orders of the run, and the time after which a cancellation is committed, if that is known.
    orders: Vec<Order>,
    commit_time: Option<Duration>,
}

impl Trial {
    fn new(seed: u64) -> Self {
        Trial {
            seed,
            crash: [None, Some(Crash::Killed)][seed as usize % 2],
            lost: BTreeSet::new(),
            killed: BTreeMap::new(),
            counts: BTreeMap::new(),
            unknown: BTreeSet::new(),
            may_have_starts: false,
            shared: Shared::new(),
            orders: Orders::default(),
            runs: 0,
            rng: Rng::from_seed(seed),
            folder: folder::in_memory(),
            asked: BTreeMap::new(),
        }
    }

    /// Whether the crawl fetches the sitemaps that robots.txt names.
    fn has_sitemaps(&self) -> bool {
        self.seed % 5 == 4
    }

    fn out(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the crawl to its end, with this number of ends before. `whole`: the URLs that have lines in a crawl
    /// without sitemaps.
    fn check_all(&mut self, ends: usize, whole: &BTreeSet<String>) {
        let lines = self.run_to_its_end(ends);
        let hosts = || (0..HOSTS).map(|number| format!("http://h{number}.test"));
        let mut expected = whole.clone();
        if self.has_sitemaps() {
            expected.extend(hosts().map(|host| host + MAPPED));
            for kind in [("robots", ROBOTS), ("sitemap", SITEMAP)] {
                let is_whole = |line: &&Value| line["kind"] == kind.0 && line["status"] == 200;
                let with_lines = lines.iter().filter(is_whole).map(|line| text(&line["url"]));
                let of_all: BTreeSet<String> = hosts().map(|host| host + kind.1).collect();
                assert_eq!(
                    with_lines.collect::<BTreeSet<_>>(),
                    of_all,
                    "all have lines"
                );
            }
        }
        assert_eq!(check(&lines), expected, "all pages have lines");
    }

    /// Runs the crawl to its end, with this number of ends before; returns its lines.
    fn run_to_its_end(&mut self, ends: usize) -> Vec<Value> {
        let secret = [self.seed as u8; 16];
        let new = State::new(self.out(), "{}".to_owned(), secret).expect("it is short");
        new.beginning().write().expect("it can be written");
        let mut state = new;
        let mut done = Vec::new();
        for number in 0..1000 {
            let has_faults = number < ends;
            let finals = finals_of(&done);
            let left = self.run(state, has_faults);
            for asked in left.asked.iter().filter(|asked| is_of_page(asked)) {
                let url = url_of(asked);
                assert!(
                    !finals.contains(&url),
                    "{url} has its line and is asked again"
                );
                assert!(
                    !self.orders.unmade.contains(&url),
                    "{url} was cancelled by an earlier run and is asked"
                );
                *self.asked.entry(url).or_default() += 1;
            }
            self.check_gaps(&left);
            self.keep_orders(&left);
            put_files(self.out(), &left.files);
            let is_over = left.reason == Some(FinishReason::Finished);
            (state, done) = self.resume();
            self.check_settled(&left, &done);
            self.note_killed(&left, &done);
            self.check_unknown(&left, &done);
            if is_over {
                assert_eq!(state.queued(), 0, "all has ended");
                self.check_asked(&done);
                return done;
            }
            self.runs += 1;
            state.beginning().write().expect("it can be written");
        }
        panic!("the crawl does not end");
    }

    /// Reads what is left, as `--resume` does; a resume may be interrupted and begin again.
    fn resume(&mut self) -> (State, Vec<Value>) {
        let again = self.rng.below(3);
        let uncommitted = self.uncommitted();
        // Lines that are cut off are known to a run that has begun, if it begins before or at once.
        let (mut is_cut, mut is_known) = (false, false);
        for _ in 0..again {
            let state = self.load();
            let lock = directory::lock(self.out()).expect("it is free");
            let is_cut_before = is_cut;
            if self.rng.chance(0.5) {
                directory::resume(&lock, state.commit()).expect("its files can be continued");
                is_cut = true;
            }
            if self.rng.chance(0.5) {
                state.beginning().write().expect("it can be written");
                is_known |= !is_cut_before;
            }
        }
        if is_known || !is_cut {
            self.lost.extend(uncommitted);
        }
        let state = self.load();
        let lock = directory::lock(self.out()).expect("it is free");
        directory::resume(&lock, state.commit()).expect("its files can be continued");
        drop(lock);
        (state, checked_lines(self.out(), true))
    }

    fn load(&self) -> State {
        let read = |name: &str, _| {
            let words = self.shared.get(name).ok_or(io::ErrorKind::NotFound)?;
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            Ok(words.iter().map(load).collect())
        };
        State::load_with(self.out(), |_| {}, read).expect("it can be read")
    }

    /// URLs of pages that have whole lines which no commit has.
    fn uncommitted(&self) -> Vec<String> {
        let state = State::load(self.out()).expect("it can be read");
        let files = state.commit().map_or(&[][..], |commit| &commit.files);
        let name = |path: &Path| path.file_name().map(|name| name.display().to_string());
        let listed: BTreeMap<String, u64> = (files.iter())
            .filter_map(|file| Some((name(&file.path)?, file.length)))
            .collect();
        let is_file = |name: &&String| name.starts_with("results-");
        let last = listed.keys().filter(is_file).max();
        let mut rest = Vec::new();
        for file in LineFile::results(self.out()).expect("it can be read") {
            let name = name(&file.path()).expect("it has a name");
            let named = name.trim_end_matches(".open");
            let first = named.replace("results.", "results-000001.");
            let committed = listed.get(named).or_else(|| listed.get(&first));
            let is_before = is_file(&&named.to_owned()) && last.is_some_and(|last| named < &**last);
            let committed = match committed {
                None if is_before => continue,
                committed => committed.copied().unwrap_or(0),
            };
            let mut reader = file.open_at(committed).expect("it can be opened");
            // What is torn is no member or frame.
            let _ = reader.read_to_end(&mut rest);
        }
        let lines = rest.split_inclusive(|byte| *byte == b'\n');
        let whole = lines.filter(|line| line.ends_with(b"\n"));
        let values = whole.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let sent = values.filter(|line| line["kind"] == "page" && !line["sent"].is_null());
        sent.map(|line| text(&line["url"])).collect()
    }

    /// One run of the crawl.
    fn run(&mut self, state: State, has_faults: bool) -> Left {
        let has_sitemaps = self.has_sitemaps();
        let rng = &mut self.rng;
        let mut answers = Rng::from_seed(rng.next_u64());
        let web = Web::new(move |asked| answer(asked, &mut answers));
        let mut config = config(self.seed);
        config.frontier.follow = Follow::All;
        config.frontier.robots_obey = rng.below(2) == 0 || has_sitemaps;
        config.frontier.sitemaps = has_sitemaps;
        config.frontier.retry_times = 1;
        // These numbers are drawn so that the crawls stay as they were.
        if rng.below(2) == 0 {
            rng.below(3000);
        }
        // All requests fit into memory, or few, or one block.
        config.frontier.memory_max = [1 << 30, 3000, 1][rng.below(3) as usize];
        // Of numbers of its own, so that the crawls stay as they were.
        let mut own = Rng::from_seed(self.seed).fork(format!("seen set of run {}", self.runs));
        config.frontier.seen_memory_max = [1 << 30, 700, 200, 1][own.below(4) as usize];
        config.io.workers = [0, 2][own.below(2) as usize];
        config.state_sync = Duration::from_millis(rng.below(300));
        let delay_max = DELAY_MAX.as_millis() as u64;
        config.throttle.default.delay = Duration::from_millis(rng.below(delay_max));
        config.throttle.default.concurrency = CONCURRENCY;
        config.outage_breaker = false;
        config.stop_grace = Duration::from_millis(rng.below(200));
        // Kills alone lose nothing that was recorded.
        let faults = match has_faults && self.seed % 4 != 1 {
            true => faults(self.folder.path(), rng),
            false => Faults {
                disk_latency_max: Duration::from_millis(1),
                ..Faults::default()
            },
        };
        let is_quick = faults.disk_latency_max < Duration::from_millis(10);
        let is_sound = is_quick && faults.disk_error == 0.0 && faults.disk_full.is_empty();
        // A record waits behind other jobs of the disk, and behind a slow sync.
        let is_idle = is_sound
            && faults.disk_latency_max < Duration::from_millis(2)
            && faults.sync_delay_max.is_zero();
        let never_fails = faults.disk_error == 0.0 && faults.disk_full.is_empty();
        let settled = is_sound.then_some(config.state_sync + COMMIT_TIME);
        let resolver = web_resolver();
        let mut warc = WarcOptions::new("a.test", [rng.below(256) as u8; 16]);
        warc.size_max = [4000, 20_000][rng.below(2) as usize];
        let mut own = Rng::from_seed(self.seed).fork(format!("files of run {}", self.runs));
        let compressions = [None, None, Some(Compression::Gzip), Some(Compression::Zstd)];
        let rotation = Rotation {
            size_max: [None, None, Some(700), Some(5000)][own.below(4) as usize],
            time_max: [None, Some(Duration::from_millis(300))][own.below(2) as usize],
            compression: compressions[own.below(4) as usize].filter(|c| c.is_built()),
        };
        let sink = FileSink::new(FileSinkOptions {
            warc: Some(warc),
            rotation,
            links: true,
            commits: true,
            ..FileSinkOptions::new(self.folder.path())
        });
        let io_settings = IoSettings {
            disk_free_min: [None, Some(0), Some(9000)][rng.below(3) as usize],
            ..IoSettings::default()
        };
        let mut io = Sim::with(rng.next_u64(), io_settings, faults, web.world());
        io.put_files(files_of(self.folder.path()));
        *io.shared() = std::mem::take(&mut self.shared);
        let taken = state.seeds_taken().unwrap_or(u64::MAX);
        let numbers = numbers_of_orders(self.folder.path());
        let mut parts = Parts::new(sink);
        parts.state = Some(state);
        let config = config.finish().expect("a sound config");
        let mut crawler = Crawler::on(io, config, resolver, parts).expect("a crawler");
        // The page of a redirect then waits for the answer about its target.
        let is_delayed = rng.below(3) == 0;
        if is_delayed {
            crawler.delay_admission(rng.next_u64());
        }
        let handle = crawler.handle();
        for (position, seed) in (1..).zip(seeds()).filter(|(position, _)| *position > taken) {
            handle
                .submit_seed_at(seed, position)
                .expect("there is room");
        }
        drop(handle);
        let turns = match has_faults {
            true => 1 + rng.below(600),
            false => 1_000_000,
        };
        let stops_at = (has_faults && rng.below(4) == 0).then(|| rng.below(turns));
        let mut reason = None;
        let mut own = Rng::from_seed(self.seed).fork(format!("orders of run {}", self.runs));
        let mut of_files = own.fork("files");
        let ordered_at: Vec<u64> = (0..own.below(6)).map(|_| own.below(turns)).collect();
        let is_ordered = has_faults && self.seed % 2 == 1;
        let mut orders = Vec::new();
        for turn in 0..turns {
            if is_ordered && ordered_at.contains(&turn) {
                orders.extend(self.orders.give(&mut crawler, &numbers, &mut own));
            }
            if has_faults && of_files.chance(0.01) {
                // A crawl that is over takes no commands.
                let _ = crawler.handle().rotate();
            }
            if stops_at == Some(turn) {
                crawler.stopper().stop();
            }
            if let Turn::Over(over) = crawler.turn(None) {
                reason = Some(over);
                break;
            }
        }
        let is_broken = crawler.io().disk_errors() > 0;
        if reason == Some(FinishReason::Finished) {
            assert!(!is_broken, "a crawl whose disk failed is not finished");
        }
        assert!(
            !never_fails || reason != Some(FinishReason::SinkFailed),
            "a job fails on a disk that works: a read came before what it reads was written"
        );
        let crashed_at = crawler.io().now();
        let any = [Crash::Killed, Crash::PowerCut][rng.below(2) as usize];
        let crash = self.crash.unwrap_or(any);
        let files = crawler.io_mut().crash(crash, rng);
        self.shared = std::mem::take(crawler.io_mut().shared());
        Left {
            reason,
            files,
            asked: web.asked(),
            crashed_at,
            is_killed: crash == Crash::Killed,
            settled: settled.filter(|_| reason.is_none() && !is_delayed),
            orders,
            is_idle,
            commit_time: match is_idle {
                true => settled.map(|time| time - COMMIT_TIME + QUICK_COMMIT_TIME),
                false => settled,
            },
        }
    }

    /// No gap between requests to a host is shorter than ordered before.
    fn check_gaps(&self, left: &Left) {
        for host in (0..HOSTS).map(|number| format!("h{number}.test")) {
            let asked = left.asked.iter().filter(|asked| asked.host == host);
            let asked = asked.filter(|asked| is_of_page(asked));
            let mut times: Vec<Instant> = asked.map(|asked| asked.at).collect();
            times.sort_unstable();
            for pair in times.windows(2) {
                let given = left.orders.iter().filter_map(|order| match &order.what {
                    Ordered::Delay(name, delay) if *name == host => Some((order.at, *delay)),
                    _ => None,
                });
                let given = given.filter(|(at, _)| *at + UNDER_WAY < pair[0]);
                let kept = self.orders.delays.get(&host).copied();
                let Some(least) = given.map(|(_, delay)| delay).chain(kept).max() else {
                    continue;
                };
                let gap = pair[1].saturating_since(pair[0]);
                assert!(
                    gap + ON_THE_WAY >= least,
                    "{host}: {gap:?} between two requests, after {least:?} were ordered"
                );
                GAPS_JUDGED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Remembers the orders of a run that later runs must follow.
    fn keep_orders(&mut self, left: &Left) {
        for Order { at, what } in &left.orders {
            let age = left.crashed_at.saturating_since(*at);
            match what {
                Ordered::Delay(host, delay) if left.is_idle && age > RECORD_TIME => {
                    self.orders.delays.insert(host.clone(), *delay);
                }
                Ordered::Cancel(url) if left.commit_time.is_some_and(|time| age > time) => {
                    self.orders.unmade.insert(url.clone());
                    CANCELS_JUDGED.fetch_add(1, Ordering::Relaxed);
                }
                Ordered::Delay(..) | Ordered::Cancel(_) => {}
            }
        }
    }

    /// Replies that came long before the crash have their lines.
    fn check_settled(&self, left: &Left, done: &[Value]) {
        let Some(settled) = left.settled else {
            return;
        };
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        for line in done {
            *lines.entry(text(&line["url"])).or_default() += 1;
        }
        for asked in &left.asked {
            let is_settled =
                (asked.answered).is_some_and(|at| left.crashed_at.saturating_since(at) > settled);
            let url = url_of(asked);
            assert!(
                !is_settled || lines.contains_key(&url),
                "{url} was answered {settled:?} before the crash, and has no line"
            );
        }
    }

    /// Each line that says so was sent, and sent again; nothing else was asked twice that must not be.
    fn check_asked(&self, lines: &[Value]) {
        let mut sent: BTreeMap<String, u64> = BTreeMap::new();
        let mut answered: BTreeMap<String, u64> = BTreeMap::new();
        let mut again: BTreeMap<String, u64> = BTreeMap::new();
        let pages = lines.iter().filter(|line| line["kind"] == "page");
        for line in pages.filter(|line| !line["sent"].is_null()) {
            *sent.entry(text(&line["url"])).or_default() += 1;
            if !line["status"].is_null() {
                *answered.entry(text(&line["url"])).or_default() += 1;
            }
            if line["refetched"] == true {
                *again.entry(text(&line["url"])).or_default() += 1;
            }
        }
        let mut lost = 0;
        for (url, lines) in &sent {
            let asked = self.asked.get(url).copied().unwrap_or(0);
            let answered = answered.get(url).copied().unwrap_or(0);
            assert!(
                asked >= answered,
                "{url} has {answered} lines with a reply and was asked {asked} times"
            );
            lost += asked.saturating_sub(*lines);
        }
        // Some requests were on their way when their run ended.
        let most = lost + self.runs * HOSTS * CONCURRENCY as u64;
        let again_in_all: u64 = again.values().sum();
        assert!(
            again_in_all <= most,
            "{again_in_all} lines are of requests that were made again, and {lost} were lost"
        );
        let unsent = lines.iter().filter(|line| line["sent"].is_null());
        let unsent: BTreeSet<String> = unsent.map(|line| text(&line["url"])).collect();
        for url in &self.lost {
            // A request that must not be made twice is not, nor one that was cancelled since.
            let was_cancelled = self.orders.cancelled.contains(url) && unsent.contains(url);
            let is_again = again.contains_key(url) || !sent.contains_key(url) || was_cancelled;
            assert!(
                is_again,
                "{url} was requested before a crash, and no line says so"
            );
        }
        for (url, times) in self.asked.iter().filter(|(url, _)| is_order(url)) {
            let is_once = url.ends_with(|last: char| "1357".contains(last));
            assert!(!is_once || *times == 1, "{url} was asked {times} times");
        }
        let orders = lines.iter().filter(|line| is_order(&text(&line["url"])));
        for line in orders.filter(|line| line["final"] == true) {
            let is_unknown = line["error"]["code"] == "cancelled.outcome_unknown";
            let is_cancelled = line["error"]["code"] == "cancelled.asked"
                && self.orders.cancelled.contains(&text(&line["url"]));
            let is_done =
                line["status"] == 200 || line["method"] == "POST" && is_unknown || is_cancelled;
            assert!(is_done, "{line}");
        }
    }

    /// Only what departed has an unknown outcome, unless a run that did not end in order may have started it.
    fn check_unknown(&mut self, left: &Left, done: &[Value]) {
        let is_unknown = |line: &&Value| line["error"]["code"] == "cancelled.outcome_unknown";
        for line in done.iter().filter(is_unknown) {
            let url = text(&line["url"]);
            // It may have been on its way when the run ended.
            let departed = self.asked.contains_key(&url) || !line["sent"].is_null();
            assert!(
                departed || self.may_have_starts || self.unknown.contains(&url),
                "{url} was never sent, and its outcome is said to be unknown"
            );
            self.unknown.insert(url);
        }
        let is_broken = |reason| reason == FinishReason::SinkFailed;
        self.may_have_starts = left.reason.is_none_or(is_broken);
        if left.reason == Some(FinishReason::Shutdown) {
            STOPS_JUDGED.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Each request of a run that was killed and has no committed line is known to all later runs: the next
    /// committed line of its URL says so.
    fn note_killed(&mut self, left: &Left, done: &[Value]) {
        let before = std::mem::replace(&mut self.counts, counts_of(done));
        let counts = &self.counts;
        self.killed.retain(|url, then| {
            let now = counts.get(url).copied().unwrap_or_default();
            assert!(
                now.sent == then.sent || now.refetched > then.refetched,
                "{url} was requested before a kill, and the next line does not say so: {then:?}, {now:?}"
            );
            now.sent == then.sent
        });
        if !left.is_killed {
            return;
        }
        let mut asked: BTreeMap<String, u64> = BTreeMap::new();
        let pages = left.asked.iter();
        for page in pages.filter(|asked| is_of_page(asked)) {
            *asked.entry(url_of(page)).or_default() += 1;
        }
        for (url, times) in asked {
            let now = counts.get(&url).copied().unwrap_or_default();
            let sent_before = before.get(&url).map_or(0, |before| before.sent);
            if times > now.sent - sent_before {
                self.killed.insert(url, now);
            }
        }
    }
}

/// The committed lines of each URL.
fn counts_of(lines: &[Value]) -> BTreeMap<String, Counts> {
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    let pages = lines.iter().filter(|line| line["kind"] == "page");
    for line in pages.filter(|line| !line["sent"].is_null()) {
        let counts = counts.entry(text(&line["url"])).or_default();
        counts.sent += 1;
        counts.refetched += u64::from(line["refetched"] == true);
    }
    counts
}

impl Orders {
    /// Gives an order to a crawl.
    fn give(
        &mut self,
        crawler: &mut Crawler<Sim>,
        numbers: &[(u64, String)],
        rng: &mut Rng,
    ) -> Option<Order> {
        let at = crawler.io().now();
        let handle = crawler.handle();
        let what = match numbers.is_empty() || rng.chance(0.4) {
            true => {
                let host = format!("h{}.test", rng.below(HOSTS));
                let shortest = self.delay.max(DELAY_MAX);
                self.delay = shortest + Duration::from_millis(rng.below(60));
                let patch = ScopePatch::default().delay(self.delay);
                handle.set_scope(&host, patch).ok()?;
                Ordered::Delay(host, self.delay)
            }
            false => {
                let (number, url) = &numbers[rng.below(numbers.len() as u64) as usize];
                handle.cancel(*number).ok()?;
                self.cancelled.insert(url.clone());
                Ordered::Cancel(url.clone())
            }
        };
        Some(Order { at, what })
    }
}

/// The numbers and URLs of the requests other than GET that an earlier run left.
fn numbers_of_orders(out: &Path) -> Vec<(u64, String)> {
    let contents = StateContents::read(out).expect("it can be read");
    let first = contents.queued().filter(|queued| queued.attempt() == 1);
    let requests = first.map(|queued| (queued.root(), queued.url().as_str().to_owned()));
    requests.filter(|(_, url)| is_order(url)).collect()
}

/// Faults of a disk.
fn faults(folder: &Path, rng: &mut Rng) -> Faults {
    let full = |rng: &mut Rng| {
        let from = Duration::from_millis(rng.below(3000));
        FullDisk {
            below: folder.to_owned(),
            from,
            until: from + Duration::from_millis(rng.below(5000)),
            free: rng.below(20_000),
        }
    };
    let most = rng.below(80);
    Faults {
        disk_latency_max: Duration::from_millis([1, 8, most, most][rng.below(4) as usize]),
        sync_delay_max: Duration::from_millis([0, rng.below(200)][rng.below(2) as usize]),
        disk_error: [0.0, 0.0, 0.002, 0.02][rng.below(4) as usize],
        disk_full: (0..rng.below(3).saturating_sub(1))
            .map(|_| full(rng))
            .collect(),
        ..Faults::default()
    }
}

fn is_order(url: &str) -> bool {
    url.starts_with("http://h0.test/order/")
}

fn is_of_page(asked: &Asked) -> bool {
    asked.target != ROBOTS && asked.target != SITEMAP
}

fn url_of(asked: &Asked) -> String {
    format!("http://{}{}", asked.host, asked.target)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The URLs of pages that have final lines: one each.
fn finals_of(lines: &[Value]) -> BTreeSet<String> {
    let mut finals = BTreeSet::new();
    for line in lines.iter().filter(|line| line["kind"] == "page") {
        if line["final"] == true {
            let url = text(&line["url"]);
            assert!(finals.insert(url.clone()), "{url} has two final lines");
        }
    }
    finals
}

/// The URLs that have lines. Each has one final line at most, each attempt that is not final has its
/// successor, and each line a number of its own.
fn check(lines: &[Value]) -> BTreeSet<String> {
    let pages = || lines.iter().filter(|line| line["kind"] == "page");
    drop(finals_of(lines));
    let parents: BTreeSet<u64> = pages().filter_map(|line| line["parent"].as_u64()).collect();
    for line in pages().filter(|line| line["final"] == false) {
        let id = line["id"].as_u64().expect("a number");
        assert!(parents.contains(&id), "nothing follows {line}");
    }
    let ids: BTreeSet<Option<u64>> = lines.iter().map(|line| line["id"].as_u64()).collect();
    assert_eq!(ids.len(), lines.len(), "each line has a number of its own");
    pages().map(|line| text(&line["url"])).collect()
}

fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")),
    )
}

#[test]
fn nothing_is_lost_or_doubled_on_a_disk_that_fails() {
    let whole = check(&Trial::new(0).run_to_its_end(0));
    assert!(
        whole.len() as u64 > HOSTS * (PAGES - 3) + ORDERS,
        "{whole:?}"
    );
    let seeds = match number("ARGIOPE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("ARGIOPE_SEEDS").unwrap_or(SEEDS) + 1,
    };
    for seed in FOUND {
        Trial::new(seed).check_all(1 + seed as usize % 9, &whole);
    }
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let run = || Trial::new(seed).check_all(1 + seed as usize % 9, &whole);
                    // The message of what failed comes before this one.
                    if catch_unwind(run).is_err() {
                        println!(
                            "the crawl of seed {seed} failed; ARGIOPE_SEED={seed} runs it alone"
                        );
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(seed);
                        if failed.len() >= FAILED_MAX {
                            return;
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(
        failed.is_empty(),
        "the crawls of these seeds failed: {failed:?}"
    );
    let judged = [&GAPS_JUDGED, &CANCELS_JUDGED, &STOPS_JUDGED];
    let judged = judged.map(|judged| judged.load(Ordering::Relaxed));
    let is_enough = judged[0] > 500 && judged[1] > 10 && judged[2] > 10;
    assert!(is_enough || seeds.end - seeds.start < SEEDS, "{judged:?}");
}
