//! Random crawls under random settings that are killed and resumed, on disks that are full now and then: what
//! `filtered.jsonl` says agrees with the result lines of all runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::base::time::{Instant, Wall};
use argiope::crawl::Parts;
use argiope::io::sim::Crash;
use argiope::sink::directory;
use argiope::sink::files::{FileSink, FileSinkOptions, Results, WarcOptions};
use argiope::{BodyPart, Classify, FinishReason, State};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::crawl::{Line, Output, Run};
use super::full_sink::FullNowAndThen;
use super::many_seeds::each_seed;
use super::output_laws::{
    DISALLOWED, check_commit, check_retries, check_verdicts, counted_as_filtered, lines_of,
    rotation_of, written_as_filtered,
};
use super::proxies::SAID_BY_PROXY;
use super::random::{Case, Follow, absolute, askable, pick, split};
use super::routes::{check_hosts, check_routes, check_secrets};
use super::stdout::{FIRST_OF_RESUMED, first_line};
use super::varied::{Said, bound_bodies, public_hosts, public_hosts_max, varied};
use super::web::{PoliteWeb, Reply};
use super::words::{ByWords, Label, add_words, random_part};
use crate::folder::{self, files_of, put_files};

/// How many there are; some seconds for all.
const SEEDS: u64 = 90;

/// URLs that no crawl with this setting fetches.
const DENIED: &str = "/p[36]$";

/// Time from what a run learns to its record, on a disk that works and has little to do.
const RECORD_TIME: Duration = Duration::from_millis(150);

/// A crawl over several runs.
struct Trial {
    seed: u64,
    rng: Rng,
    /// What a run learns is soon on disk.
    has_quick_disk: bool,
    folder: TempDir,
    said: Said,
    seeds: Vec<String>,
    /// The part of bodies by which replies are judged.
    part: Option<BodyPart>,
    /// The attempts whose bodies went to the sink in pieces.
    streamed: Shared<BTreeSet<u64>>,
    /// The public hosts that have got requests, if that is known to later runs.
    asked: BTreeSet<String>,
    /// The wall clock's time at the start of the next run.
    wall: Wall,
    /// What the runs have written to standard output, if their lines go there.
    stdout: Option<Vec<u8>>,
    /// All runs write to one pipe; else each to one of its own.
    has_one_pipe: bool,
}

/// How often each link of each page, or of none, has a line in `filtered.jsonl`.
type LeftOut = BTreeMap<(Option<String>, String), u64>;

impl Trial {
    fn new(seed: u64) -> Self {
        let (case, said) = settings_of(seed);
        let mut of_output = Rng::from_seed(seed).fork("output of a killed crawl");
        Trial {
            seed,
            rng: Rng::from_seed(seed).fork("kills"),
            has_quick_disk: case.plan.faults.disk_latency_max < Duration::from_millis(2)
                && case.plan.faults.disk_full.is_empty(),
            folder: folder::in_memory(),
            said,
            seeds: case.plan.seeds,
            part: random_part(&mut Rng::from_seed(seed).fork("judged bodies")),
            streamed: Shared::default(),
            asked: BTreeSet::new(),
            wall: Wall(1_767_225_600_000_000_000),
            stdout: of_output.chance(0.4).then(Vec::new),
            has_one_pipe: of_output.chance(0.5),
        }
    }

    fn out(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the crawl to its end, with some kills before.
    fn check(&mut self) {
        let new = State::new(self.out(), String::new(), [self.seed as u8; 16]);
        let mut state = new.expect("it is short");
        let kills = 1 + self.rng.below(3);
        for number in 0.. {
            let resumed_after = (number > 0).then(|| lines_of(&state));
            let mut run = self.begin(state, number);
            // As they are once the first line has come.
            self.show_stdout(&mut run, resumed_after);
            self.check_lines(&run, None);
            self.show_stdout(&mut run, None);
            let before = counts(&run);
            let earlier = run.lines().iter().map(Line::id).collect();
            let span = pick(&mut self.rng, &[300, 3000, 20_000]);
            let ended = match number < kills {
                true => run.until(Duration::from_millis(self.rng.below(span))),
                false => Some(run.finish()),
            };
            run.check_web();
            self.check_hosts(&run);
            self.check_routes(&run, &earlier);
            if let Some(reason) = ended {
                self.check_stdout(&run, resumed_after);
                run.check_manners();
                if reason == FinishReason::Finished {
                    run.check_lines();
                    check_retries(&run.lines(), &self.said, &[]);
                    self.check_counts(&run, &before);
                }
                return self.check_lines(&run, Some(reason));
            }
            state = self.kill(run, resumed_after);
        }
    }

    /// Begins a run with the files of those before it.
    fn begin(&self, state: State, number: u64) -> Run {
        let (mut case, said) = settings_of(self.seed);
        state.beginning().write().expect("it can be written");
        let lock = directory::lock(self.out()).expect("it is free");
        let (runs, length) = directory::prepare_run_log(&lock).expect("it can be read");
        drop(lock);
        case.web.promise.robots_known = number > 0;
        let plan = &mut case.plan;
        plan.out = self.out().to_owned();
        plan.wall = Some(self.wall);
        plan.seeds.clear();
        if number > 0 {
            plan.requests.clear();
        }
        for full in &mut plan.faults.disk_full {
            let below = full.below.strip_prefix("out").expect("all are there");
            full.below = self.out().join(below);
        }
        let mut options = FileSinkOptions::new(self.out());
        options.robots = true;
        options.filtered = true;
        options.commits = true;
        options.rotation = rotation_of(&said);
        if self.stdout.is_some() {
            options.results = Results::Stdout;
        }
        options.warc = (said.get("WARC") == Some(&json!(true)))
            .then(|| WarcOptions::new("a.test", [number as u8; 16]));
        let taken = state.seeds_taken().unwrap_or(u64::MAX);
        let mut parts = Parts::new(FullNowAndThen {
            inner: FileSink::new(options),
            is_full: Shared::new(false),
            streamed: Some(Shared::clone(&self.streamed)),
        });
        parts.classify = (self.part).map(|part| Box::new(ByWords(part)) as Box<dyn Classify>);
        parts.state = Some(state);
        let mut run = plan.begin_with(&case.web.shared(), parts);
        run.crawler.io_mut().put_files(files_of(self.out()));
        run.crawler.log_runs(runs, length);
        let handle = run.crawler.handle();
        let seeds = (1..).zip(&self.seeds);
        for (position, url) in seeds.filter(|(position, _)| *position > taken) {
            let request = plan.request(url);
            let submitted = handle.submit_seed_at(request, position);
            submitted.unwrap_or_else(|error| panic!("seed {}: {url}: {error}", self.seed));
        }
        run
    }

    /// Kills a run; returns the state that is left.
    fn kill(&mut self, mut run: Run, resumed_after: Option<u64>) -> State {
        self.wall = Wall(self.wall.0 + run.crawler.elapsed().as_nanos() as u64 + 1);
        let files = run.crawler.io_mut().crash(Crash::Killed, &mut self.rng);
        self.check_first_line(&run, resumed_after);
        if let Some(stdout) = &mut self.stdout {
            stdout.extend_from_slice(run.crawler.io().stdout());
            if !self.has_one_pipe {
                // The line that was cut short is the last of its pipe.
                let end = stdout.iter().rposition(|byte| *byte == b'\n');
                stdout.truncate(end.map_or(0, |at| at + 1));
            }
        }
        put_files(self.out(), &files);
        let state = State::load(self.out()).expect("it can be read");
        let lock = directory::lock(self.out()).expect("it is free");
        directory::resume(&lock, state.commit()).expect("its files can be continued");
        state
    }

    /// Puts what earlier runs wrote to standard output before what this one writes, and after that the first line of a
    /// run that is resumed after so many lines.
    fn show_stdout(&self, run: &mut Run, resumed_after: Option<u64>) {
        if let Some(before) = &self.stdout {
            let more = resumed_after.map(first_line).unwrap_or_default();
            run.output = Output::Stdout([before, more.as_bytes()].concat());
        }
    }

    /// A resumed run begins with the line that says how many of the lines before it count; a first run has no such
    /// line.
    fn check_first_line(&self, run: &Run, resumed_after: Option<u64>) {
        let written = String::from_utf8_lossy(run.crawler.io().stdout());
        let first = resumed_after.map(first_line);
        let is_first = match &first {
            Some(first) => written.starts_with(first) || first.starts_with(&*written),
            None => !written.starts_with(FIRST_OF_RESUMED),
        };
        assert!(
            is_first || self.stdout.is_none(),
            "seed {}: {first:?} is not the first line of {written}",
            self.seed
        );
    }

    /// All lines on standard output are committed once the crawl has ended.
    fn check_stdout(&self, run: &Run, resumed_after: Option<u64>) {
        if self.stdout.is_none() {
            return;
        }
        let seed = self.seed;
        self.check_first_line(run, resumed_after);
        let is_resumed =
            String::from_utf8_lossy(run.crawler.io().stdout()).starts_with(FIRST_OF_RESUMED);
        assert_eq!(
            is_resumed,
            resumed_after.is_some(),
            "seed {seed}: the first line is written"
        );
        let state = State::load_from(self.out(), run.crawler.io().files());
        let state = state.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        drop(check_commit(run, &state));
        let lines = run.lines().len() as u64;
        assert_eq!(lines_of(&state), lines, "seed {seed}: all are committed");
    }

    /// The public hosts that get requests are no more than allowed, in all runs together.
    fn check_hosts(&mut self, run: &Run) {
        let Some(most) = public_hosts_max(&self.said) else {
            return;
        };
        let (seed, web) = (self.seed, run.web.borrow());
        let now = Instant::START + run.crawler.elapsed();
        for arrival in &web.arrivals {
            let host = public_hosts(std::iter::once(&*arrival.host));
            let is_recorded = now.saturating_since(arrival.at) > RECORD_TIME;
            if is_recorded && self.has_quick_disk {
                self.asked.extend(host.into_iter().map(str::to_owned));
            }
        }
        let of_run = public_hosts(web.hosts.keys().map(String::as_str));
        let asked = &self.asked;
        assert!(of_run.len() <= most, "seed {seed}: {of_run:?}, not {most}");
        assert!(asked.len() <= most, "seed {seed}: {asked:?}, not {most}");
    }

    /// Each request of a run goes the way that is due, and none for another host.
    fn check_routes(&self, run: &Run, earlier: &BTreeSet<u64>) {
        let (case, said) = settings_of(self.seed);
        check_routes(run, &said, &case.plan.routes, earlier);
        check_secrets(run);
        check_hosts(run, &askable(&case.web, &self.seeds, Follow::All));
    }

    /// What the last run counted as left out has its lines, and no other has come in it.
    fn check_counts(&self, run: &Run, before: &BTreeMap<String, u64>) {
        let mut new = counts(run);
        for (filter, count) in before {
            *new.entry(filter.clone()).or_default() -= count;
        }
        new.retain(|_, count| *count > 0);
        let counted = counted_as_filtered(run);
        assert_eq!(new, counted, "seed {}: what filters left out", self.seed);
    }

    /// Each link that was left out of a page with a result line has its line, and no other. `reason`: why the crawl
    /// is over, if it is.
    fn check_lines(&self, run: &Run, reason: Option<FinishReason>) {
        let (seed, said) = (self.seed, &self.said);
        let lines = run.lines();
        check_verdicts(&lines, self.part, &self.streamed.borrow());
        let disallowed = lines
            .iter()
            .filter(|line| line.end() == "robots.disallowed");
        let mut disallowed: BTreeSet<&str> = disallowed.map(|line| line.url()).collect();
        let known: BTreeSet<&str> = lines.iter().map(|line| line.url()).collect();
        let is_denied = |url: &str| said.contains_key("DENY") && is_denied(url);
        let (mut left, mut unread) = left_out(run);
        for line in lines.iter().filter(|line| line.is_final()) {
            let url = line.url();
            let is_sound = line.0["error"].is_null() && line.0["truncated"].is_null();
            let is_sound = is_sound && line.is_page();
            let found = line.0["links"].as_u64().unwrap_or(0) as usize;
            let (links, target) = match Label::of(&line.0) {
                // There is no page.
                None if line.text("content_type") == SAID_BY_PROXY || url.starts_with("https") => {
                    (Vec::new(), None)
                }
                None => links_of(&run.web.borrow(), url),
                Some(_) => (Vec::new(), None),
            };
            let is_cut = links.len() > found && !line.0["links"].is_null();
            let cut = unread.remove(url).unwrap_or(0);
            assert!(
                cut == u64::from(is_cut) || cut == 0 && !is_sound,
                "seed {seed}: links beyond the first of {links:?} are left out {cut} times: {}",
                line.0
            );
            for link in links.into_iter().take(found).chain(target) {
                let key = (Some(url.to_owned()), link);
                let written = left.remove(&key).unwrap_or(0);
                let (_, link) = key;
                let is_followed = reason != Some(FinishReason::Finished) || known.contains(&*link);
                let is_left_out = is_sound && (is_denied(&link) || !is_followed);
                assert!(
                    written == 1 || written == 0 && !is_left_out,
                    "seed {seed}: {link} is left out {written} times: {}",
                    line.0
                );
            }
        }
        for line in run.lines_of("filtered") {
            if line["filter"] == DISALLOWED {
                let url = line["url"].as_str().expect("it is known");
                assert!(
                    disallowed.remove(url),
                    "seed {seed}: no result, or one line more: {line}"
                );
            }
        }
        assert!(
            disallowed.is_empty(),
            "seed {seed}: no line: {disallowed:?}"
        );
        for url in &self.seeds {
            let written = left.remove(&(None, url.clone())).unwrap_or(0);
            let is_due = reason == Some(FinishReason::Finished) && is_denied(url);
            assert!(
                written == 1 && is_denied(url) || written == 0 && !is_due,
                "seed {seed}: the seed {url} is left out {written} times"
            );
        }
        assert!(
            left.is_empty() && unread.is_empty(),
            "seed {seed}: no page with a result has {left:?} or {unread:?}"
        );
    }
}

/// A random crawl that can be killed, and what is set. It fetches more than those of every setting.
fn settings_of(seed: u64) -> (Case, Said) {
    let (mut case, mut said) = varied(seed);
    let mut rng = Rng::from_seed(seed).fork("settings of a killed crawl");
    said.retain(|name, _| !LIMITING.contains(name) || rng.chance(0.1));
    bound_bodies(&mut said);
    let hosts = said.get_mut("HOSTS").and_then(Value::as_object_mut);
    for entry in hosts.into_iter().flat_map(|hosts| hosts.values_mut()) {
        let entry = entry.as_object_mut().expect("a table");
        entry.retain(|key, _| !key.ends_with("_max") && !key.ends_with("_limit"));
    }
    said.insert("DOWNLOAD_DELAY", json!(pick(&mut rng, &[0.0, 0.01, 0.2])));
    said.insert("STATE", json!(true));
    said.insert("STATE_SYNC", json!(pick(&mut rng, &[0.0, 0.05, 0.5])));
    said.insert("FILTERED_FILE", json!(true));
    if rng.chance(0.7) {
        said.insert("DENY", json!([DENIED]));
    }
    let follow = pick(&mut rng, &["host", "domain", "all"]);
    let settings = said.clone().into_iter();
    case.plan.settings = settings.chain([("FOLLOW", json!(follow))]).collect();
    for (name, site) in &case.web.sites {
        let pages = site.paths.keys().filter(|path| path.starts_with("/p"));
        let urls = pages.map(|path| format!("http://{name}{path}"));
        case.plan.seeds.extend(urls.filter(|_| rng.chance(0.4)));
    }
    if let Some((_, hosts)) = &mut case.web.promise.login {
        let of_seeds = case.plan.seeds.iter().map(|url| split(url).0.to_owned());
        hosts.extend(of_seeds);
    }
    case.plan.seeds.sort();
    case.plan.seeds.dedup();
    if rng.chance(0.5) {
        add_words(&mut rng, &mut case.web);
    }
    case.web.outages.retain(|_| rng.chance(0.2));
    case.web.round_trip = case.web.round_trip.min(Duration::from_millis(150));
    let latency = pick(&mut rng, &[0, 1, 40]);
    case.plan.faults.disk_latency_max = Duration::from_millis(latency);
    (case, said)
}

/// Settings that let a crawl fetch little: few crawls have them.
const LIMITING: [&str; 28] = [
    "ACCEPT_ZSTD",
    "AUTOTHROTTLE_ENABLED",
    "BUFFERED_BODIES_MAX",
    "BYTES_PER_DOMAIN_MAX",
    "BYTES_PER_SECOND_MAX",
    "CLOSESPIDER_BYTECOUNT",
    "CLOSESPIDER_ERRORCOUNT",
    "CLOSESPIDER_PAGECOUNT",
    "CLOSESPIDER_TIMEOUT",
    "DEPTH_LIMIT",
    "DISK_FREE_MIN",
    "DOMAIN_SCOPE_DEFAULTS",
    "DOWNLOAD_DELAY_PER_SLOT",
    "DOWNLOAD_MAXSIZE",
    "DOWNLOAD_MIN_RATE",
    "FIRST_BYTE_TIMEOUT",
    "DOWNLOAD_TIMEOUT",
    "IDLE_TIMEOUT",
    "HOST_DOWN_AFTER",
    "HOST_HOLD_FAILURES",
    "CONNECT_TIMEOUT",
    "LINKS_PER_PAGE_MAX",
    "PAGES_PER_DOMAIN_MAX",
    "PAGES_PER_HOST_MAX",
    "REDIRECT_MAX_TIMES",
    "SOCKETS_MAX",
    "THROTTLING_SCOPES",
    "URLLENGTH_LIMIT",
];

fn is_denied(url: &str) -> bool {
    url.ends_with("/p3") || url.ends_with("/p6")
}

/// The links of a page, each once, and where it redirects to.
fn links_of(web: &PoliteWeb, url: &str) -> (Vec<String>, Option<String>) {
    let (host, path) = split(url);
    let steps = web.sites.get(host).and_then(|site| site.paths.get(path));
    match steps.and_then(|steps| steps.last()).map(|step| &step.reply) {
        Some(Reply::Page(links) | Reply::Chunked(links) | Reply::UntilEnd(links)) => {
            let mut seen = BTreeSet::new();
            let links = links.iter().map(|link| absolute(link, host));
            (
                links.filter(|link| seen.insert(link.clone())).collect(),
                None,
            )
        }
        Some(Reply::Redirect(_, to)) => (Vec::new(), Some(to.clone())),
        _ => (Vec::new(), None),
    }
}

/// The links in `filtered.jsonl`, and how many of each page have no URL there.
fn left_out(run: &Run) -> (LeftOut, BTreeMap<String, u64>) {
    let (mut left, mut unread) = (LeftOut::new(), BTreeMap::new());
    let lines = run.lines_of("filtered");
    for line in lines.iter().filter(|line| line["filter"] != DISALLOWED) {
        let count = line["count"].as_u64().expect("a number");
        let from = line["from"].as_str().map(str::to_owned);
        match (line["url"].as_str(), from) {
            (Some(url), from) => *left.entry((from, url.to_owned())).or_default() += count,
            (None, from) => *unread.entry(from.expect("a page")).or_default() += count,
        }
    }
    (left, unread)
}

/// How many links are left out by each filter.
fn counts(run: &Run) -> BTreeMap<String, u64> {
    let mut counts = written_as_filtered(run);
    counts.remove(DISALLOWED);
    counts
}

#[test]
fn killed_crawls_write_each_link_that_is_left_out_once() {
    each_seed(SEEDS, |seed| Trial::new(seed).check());
}
