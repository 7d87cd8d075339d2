//! Seeds from pipes, of crawls that end before they have taken them all and are resumed: random lines, ends and
//! settings. Each line is taken once, by whichever run.
//!
//! A failure prints its seed; `ARGIOPE_SEED` runs that crawl alone.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use argiope::base::rng::Rng;
use argiope::parts::gzip;
use data_encoding::BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::run::{Crawl, Going, all_lines, read_lines, text};
use crate::server::{Server, page};

/// Crawls that are tried; some seconds for all.
const SEEDS: u64 = 24;

/// Lines of seeds, as text, and what is to come of them.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// The method and the body of each request, by its target.
    good: BTreeMap<String, (String, Vec<u8>)>,
    /// How many can never be sent.
    bad: usize,
}

impl Lines {
    /// Random lines of every kind, with targets that begin so.
    fn random(rng: &mut Rng, methods: &[&str], server: &Server, name: &str) -> Self {
        let mut lines = Lines::default();
        if rng.chance(0.2) {
            lines.bytes.extend("\u{feff}".bytes());
        }
        let count = pick(rng, &[1, 5, 30, 80]);
        let is_windows = rng.chance(0.3);
        for number in 0..count {
            let target = format!("/{name}{number}");
            lines.add(rng, methods, &server.url(&target), target);
            let end: &[u8] = match is_windows || rng.chance(0.1) {
                true => b"\r\n",
                false => b"\n",
            };
            lines.bytes.extend(end);
        }
        if rng.chance(0.4) {
            let text = lines.bytes.trim_ascii_end().len();
            lines.bytes.truncate(text);
        }
        if rng.chance(0.2) {
            lines.bytes = gzip(&lines.bytes);
        }
        lines
    }

    /// Adds a line without its end.
    fn add(&mut self, rng: &mut Rng, methods: &[&str], url: &str, target: String) {
        let bad: [&[u8]; 7] = [
            b"not a url",
            b"ftp://example.com/",
            b"http://[::1/",
            b"\xff\xfe",
            b"{\"url\": 3}",
            b"{\"url\": \"http://a.test/\", \"methd\": \"GET\"}",
            b"{\"url\": \"http://a.test/\", \"method\": \"GET it\"}",
        ];
        let mut request = ("GET".to_owned(), Vec::new());
        let line = match rng.below(12) {
            0 => pick(rng, &["", "   ", "\t"]).into(),
            1 => format!("# {url}").into_bytes(),
            2..4 => {
                self.bad += 1;
                return self.bytes.extend(pick(rng, &bad));
            }
            4 | 5 => {
                request.0 = pick(rng, methods).to_owned();
                request.1 = vec![b'x'; rng.below(300) as usize];
                let seed = json!({
                    "url": url,
                    "method": request.0,
                    "body_b64": BASE64.encode(&request.1),
                    "meta": {"target": target},
                });
                seed.to_string().into_bytes()
            }
            6 => format!("{},\"{url}\"", rng.below(1000)).into_bytes(),
            7 => format!("  {url}\t").into_bytes(),
            _ => url.as_bytes().to_owned(),
        };
        if line.iter().any(|byte| !byte.is_ascii_whitespace()) && line[0] != b'#' {
            self.good.insert(target, request);
        }
        self.bytes.extend(line);
    }
}

/// A crawl over several runs.
struct Trial {
    seed: u64,
    rng: Rng,
    server: Server,
    /// All lines so far. Those that can never be sent are of pipes.
    given: Lines,
    /// Lines of the file that can never be sent.
    bad_of_file: usize,
    has_kills: bool,
    was_killed: bool,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By a limit of pages.
    Limit,
    /// By a signal that stops it.
    Stop,
    Kill,
    /// By itself.
    Finish,
}

impl Trial {
    fn new(seed: u64) -> Self {
        Trial {
            seed,
            rng: Rng::from_seed(seed),
            server: Server::new(|_| page("p")),
            given: Lines::default(),
            bad_of_file: 0,
            has_kills: seed.is_multiple_of(2),
            was_killed: false,
        }
    }

    /// Runs the crawl to its end, with some ends before.
    fn check(&mut self) {
        let crawl = self.first_run();
        let out = crawl.folder().join("out");
        for number in 1..2 + self.rng.below(4) {
            let last = match self.has_kills {
                true => End::Kill,
                false => End::Stop,
            };
            let end = pick(&mut self.rng, &[End::Limit, End::Limit, End::Stop, last]);
            self.resume(crawl.folder(), number, end);
        }
        self.resume(crawl.folder(), 9, End::Finish);
        let (seed, given) = (self.seed, &self.given);
        let lines = read_lines(&all_lines(&out));
        let finals = lines.iter().filter(|line| line["final"] == true);
        let finals = finals.inspect(|line| assert_eq!(line["status"], 200, "seed {seed}: {line}"));
        let finals: Vec<String> = finals.map(|line| target_of(&line["url"])).collect();
        let targets: BTreeSet<&String> = finals.iter().collect();
        assert_eq!(finals.len(), targets.len(), "seed {seed}: {finals:?}");
        assert!(
            targets.into_iter().eq(given.good.keys()),
            "seed {seed}: {finals:?}"
        );
        for line in lines.iter().filter(|line| line["method"] != "GET") {
            let meta = json!({"target": target_of(&line["url"])});
            assert_eq!(line["meta"], meta, "seed {seed}");
        }
    }

    /// The first run, in a folder of its own.
    fn first_run(&mut self) -> Crawl {
        let frontier_max = pick(&mut self.rng, &["1", "10", "0"]);
        let concurrency = pick(&mut self.rng, &["1", "3", "16"]);
        let mut crawl = Crawl::of(&["--seeds", "-", "--follow", "none"])
            .with(&["-s", &format!("FRONTIER_MAX={frontier_max}")])
            .with(&[
                "-s",
                &format!("CONCURRENT_REQUESTS_PER_DOMAIN={concurrency}"),
            ])
            .with(&["-s", "STATE_SYNC=10ms"]);
        if self.rng.chance(0.5) {
            // Without one the first ten thousand seeds are read before the crawl begins.
            crawl = crawl.with(&["--contact", "me@example.org"]);
        }
        if self.rng.chance(0.3) {
            let mut lines = self.random_lines("file");
            crawl.file("list", &lines.bytes);
            crawl = crawl.with(&["--seeds", "list"]);
            self.bad_of_file = std::mem::take(&mut lines.bad);
            self.give(lines);
        }
        let mut lines = self.random_lines("a");
        while lines.good.is_empty() {
            lines = self.random_lines("a");
        }
        let limit = 1 + self.rng.below(lines.good.len() as u64 + 1);
        crawl = crawl
            .with(&["--max-pages", &limit.to_string()])
            .input(&lines.bytes);
        self.give(lines);
        crawl.try_run().expect(0);
        self.check_left(&crawl.folder().join("out"));
        crawl
    }

    /// A run that resumes the crawl.
    fn resume(&mut self, folder: &Path, number: u64, end: End) {
        let before = self.server.asked().len() as u64;
        let asked: BTreeSet<String> = self.server.targets().into_iter().collect();
        let left = (self.given.good.len() - asked.len()) as u64;
        let more = self.rng.below(left + 2);
        let end = match end {
            // A run is stopped once it has begun: until then it reads no pipe.
            End::Stop if left == 0 => End::Limit,
            end => end,
        };
        let until = (before + more.clamp(1, left.max(1))) as usize;
        let limit = match end {
            End::Limit => (before + more).max(1),
            End::Stop | End::Kill | End::Finish => 0,
        };
        let limit = limit.to_string();
        let mut args = vec![
            "crawl",
            "--quiet",
            "--resume",
            "--out",
            "out",
            "--max-pages",
            &limit,
        ];
        let mut input = Vec::new();
        // What a pipe has delivered to a run that is killed is lost.
        if end != End::Kill && self.rng.chance(0.4) {
            let lines = self.random_lines(&format!("r{number}-"));
            args.extend(["--seeds", "-"]);
            input.clone_from(&lines.bytes);
            self.give(lines);
        }
        let going = Going::start(&args, folder, &input);
        match end {
            End::Limit | End::Finish => drop(going.wait().expect(0)),
            End::Stop => {
                self.server.wait_for_requests(until);
                going.signal(Signal::INT);
                let ended = going.wait();
                assert!([Some(0), Some(3)].contains(&ended.code), "{ended:?}");
            }
            End::Kill => {
                if left > 0 {
                    self.server.wait_for_requests(until);
                }
                going.signal(Signal::KILL);
                going.wait();
                self.was_killed = true;
                return;
            }
        }
        self.check_left(&folder.join("out"));
    }

    fn random_lines(&mut self, name: &str) -> Lines {
        let methods = match self.has_kills {
            // What must not be made twice may end unsent where a run is killed.
            true => ["PUT", "DELETE"],
            false => ["PUT", "POST"],
        };
        Lines::random(&mut self.rng, &methods, &self.server, name)
    }

    fn give(&mut self, lines: Lines) {
        self.given.good.extend(lines.good);
        self.given.bad += lines.bad;
    }

    /// Each line is asked for, or left for the next run; each that can never be sent is counted.
    fn check_left(&self, out: &Path) {
        let (seed, given) = (self.seed, &self.given);
        let mut asked = BTreeSet::new();
        for request in self.server.asked() {
            let expected = &given.good[&request.target];
            assert_eq!((&request.method, &request.body), (&expected.0, &expected.1));
            let is_new = asked.insert(request.target.clone());
            assert!(
                is_new || self.was_killed,
                "seed {seed}: {} is asked twice",
                request.target
            );
        }
        let pending = fs::read_to_string(out.join("pending.jsonl")).unwrap_or_default();
        let mut left = BTreeSet::new();
        for line in pending.lines() {
            let target = match serde_json::from_str::<Value>(line) {
                Ok(seed) => target_of(&seed["url"]),
                Err(_) => target_of(&line.into()),
            };
            let is_asked = asked.contains(&target) && !self.was_killed;
            assert!(
                !is_asked && left.insert(target),
                "seed {seed}: {line} is left twice, or was asked"
            );
        }
        let all: BTreeSet<&String> = asked.iter().chain(&left).collect();
        assert!(
            self.was_killed || all.iter().copied().eq(given.good.keys()),
            "seed {seed}: {all:?} of {:?}",
            given.good.keys()
        );
        let rejected = fs::read_to_string(out.join("rejected.jsonl")).unwrap_or_default();
        let lines = rejected.lines();
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let is_of_file = |line: &Value| text(&line["file"]).ends_with("list");
        let (of_file, of_pipes): (Vec<Value>, Vec<Value>) = lines.partition(is_of_file);
        assert_eq!(of_pipes.len(), given.bad, "seed {seed}: {rejected}");
        // What is left of a file is read again by the next run.
        let of_file: BTreeSet<Option<u64>> =
            of_file.iter().map(|line| line["line"].as_u64()).collect();
        assert_eq!(of_file.len(), self.bad_of_file, "seed {seed}: {rejected}");
    }
}

/// The target of a URL of the server.
fn target_of(url: &Value) -> String {
    let url = text(url);
    url[url.rfind('/').expect("a path")..].to_owned()
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize].clone()
}

#[test]
fn each_line_of_a_pipe_is_taken_once_by_the_runs_of_a_crawl() {
    let seeds = match env::var("ARGIOPE_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("ARGIOPE_SEED is a number");
            seed..=seed
        }
        Err(_) => 1..=SEEDS,
    };
    let fails = |seed: &u64| {
        let check = || Trial::new(*seed).check();
        catch_unwind(AssertUnwindSafe(check)).is_err()
    };
    let failed: Vec<u64> = seeds.filter(fails).collect();
    assert!(
        failed.is_empty(),
        "ARGIOPE_SEED=… runs one of these again: {failed:?}"
    );
}
