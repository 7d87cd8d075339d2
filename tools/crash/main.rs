//! Kills a crawl again and again, and judges what it did: at its servers and in its files.
//!
//!     cargo build --release
//!     cargo run --release --example crash
//!     cargo run --release --example crash -- --disk 64 --domains 300
//!
//! A loopback web of many domains is crawled without an end first, then with `kill -9` at random moments,
//! each time continued by `--resume`. Compared are the pages and how they ended, at the servers and in the
//! files, result lines and WARC records, what the servers were asked twice, and the gaps between requests to
//! each domain, across the kills, too. `warcio check` reads the WARC files (`pip install warcio`). With
//! `--disk` the crawl is on a volume of so many megabytes that is filled again and again (in a user
//! namespace); every second time it is killed while there is no space. Prints a table; exits with 1 if
//! anything is wrong. See `--help`.
//!
//! `--domains 100 --pages 600` presses each domain: its requests wait for its gap, not for a free slot.

mod files;
mod judge;
mod runs;
mod small_disk;
mod web;

use std::collections::BTreeSet;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use argiope::testkit::stamp::{Clock, Stamping};
use files::Output;
use judge::{OUTCOME_UNKNOWN, Promise, Seen};
use runs::Crawl;
use small_disk::SmallDisk;
use web::{Arrival, ORDER, Size, Web};

const USAGE: &str = "\
usage: crash [OPTION]...

  --domains N      domains of the web (default: 10000)
  --pages N        pages of each (default: 5)
  --kills N        kills, or with --disk how often the volume is filled (default: 200, or 50)
  --delay S        DOWNLOAD_DELAY in seconds (default: 0.2)
  --sync S         STATE_SYNC in seconds (default: 0.1)
  --seed N         of the random moments (default: 1)
  --disk MB        crawls into a volume of this size in memory, which is filled
  --folder DIR     where the crawls are (default: a new folder in the temporary directory)
  --argiope FILE   the command (default: the one built beside this program)
";

struct Plan {
    domains: u32,
    pages: u32,
    kills: Option<u32>,
    delay: f64,
    sync: f64,
    seed: u64,
    disk: Option<u64>,
    folder: PathBuf,
    argiope: PathBuf,
}

fn main() {
    let plan = Plan::read().unwrap_or_else(|wrong| {
        eprintln!("crash: {wrong}; see --help");
        process::exit(2);
    });
    let result = match plan.disk {
        Some(_) if !small_disk::is_inside() => match small_disk::run_inside() {
            Ok(None) => {
                eprintln!("SKIPPED: a user namespace with mounts of its own is not permitted here");
                process::exit(0);
            }
            Ok(Some(status)) => process::exit(status.code().unwrap_or(1)),
            Err(error) => Err(error),
        },
        _ => plan.run(),
    };
    match result {
        Ok(true) => {}
        Ok(false) => process::exit(1),
        Err(error) => {
            eprintln!("crash: {error}");
            process::exit(1);
        }
    }
}

impl Plan {
    fn read() -> Result<Plan, String> {
        let beside = env::current_exe().unwrap_or_default();
        let built = beside
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("."));
        let mut plan = Plan {
            domains: 10_000,
            pages: 5,
            kills: None,
            delay: 0.2,
            sync: 0.1,
            seed: 1,
            disk: None,
            folder: env::temp_dir().join(format!("argiope-crash-{}", process::id())),
            argiope: built.join("argiope"),
        };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            if name == "--help" {
                print!("{USAGE}");
                process::exit(0);
            }
            let value = arguments.next().ok_or(format!("{name} needs a value"))?;
            let invalid = || format!("invalid {name}: `{value}`");
            let number = || {
                value
                    .parse()
                    .ok()
                    .filter(|number| *number > 0)
                    .ok_or_else(invalid)
            };
            let seconds = || value.parse().map_err(|_| invalid());
            match name.as_str() {
                "--domains" => plan.domains = number()?,
                "--pages" => plan.pages = number()?,
                "--kills" => plan.kills = Some(number()?),
                "--delay" => plan.delay = seconds()?,
                "--sync" => plan.sync = seconds()?,
                "--seed" => plan.seed = number()?.into(),
                "--disk" => plan.disk = Some(number()?.into()),
                "--folder" => plan.folder = value.into(),
                "--argiope" => plan.argiope = value.into(),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        if !plan.argiope.is_file() {
            return Err(format!(
                "{} is missing: build it first",
                plan.argiope.display()
            ));
        }
        Ok(plan)
    }

    fn run(&self) -> io::Result<bool> {
        argiope::raise_open_files();
        let _stamping = Stamping::begin()?;
        let web = Web::start(Size {
            domains: self.domains,
            pages: self.pages,
            latency: LATENCY,
        })?;
        let kills = self
            .kills
            .unwrap_or(if self.disk.is_some() { 50 } else { 200 });
        // The crawl lasts as long as all kills take, and half as long again.
        let long = match self.disk {
            None => f64::from(kills / LONG_EVERY) * self.again_within().as_secs_f64(),
            Some(_) => 0.0,
        };
        let fetching = f64::from(kills) * RUN_MEAN.as_secs_f64() + long;
        let rate = f64::from(web.requests()) / (fetching * 1.5);
        let in_flight = (rate * LATENCY.as_secs_f64() / 2.0).ceil().max(1.0);
        let settings = [
            format!("DOWNLOAD_DELAY={}", self.delay),
            "RANDOMIZE_DOWNLOAD_DELAY=false".to_owned(),
            format!("STATE_SYNC={}", self.sync),
            "RETRY_TIMES=1".to_owned(),
            "BACKOFF_ENABLED=false".to_owned(),
            format!("CONCURRENT_REQUESTS={in_flight}"),
        ];
        let began = Instant::now();
        let whole = Crawl::new(&self.argiope, &self.folder.join("whole"), &web, &settings)?;
        whole.run_whole()?;
        let whole_took = began.elapsed();
        let asked_of_whole = asked(&web.take_arrivals(), &web);
        let began = Instant::now();
        let folder = self.folder.join("ended");
        let disk = self
            .disk
            .map(|megabytes| SmallDisk::mount(&folder, megabytes));
        let disk = disk.transpose()?;
        let crawl = Crawl::new(&self.argiope, &folder, &web, &settings)?;
        let (fills, ends) = match &disk {
            None => (0, self.kill(&crawl, kills)?),
            Some(disk) => self.fill(&crawl, disk, kills)?,
        };
        let took = began.elapsed();
        let (whole, ended) = (Output::read(&whole.out())?, Output::read(&crawl.out())?);
        let promise = Promise {
            delay: Duration::from_secs_f64(self.delay),
            again_within: self.again_within(),
            unsent_max: ends.len(),
        };
        let arrivals = web.take_arrivals();
        let asked_of_ended = asked(&arrivals, &web);
        let seen = Seen::of(&web, arrivals, &ended, &ends, &promise);
        let mut wrong = ended.violations();
        let (expected, found) = (whole.ends(), ended.ends());
        for (url, end) in &expected {
            // What was in flight at a kill, and must not be made twice, has no other end.
            match found.get(url) {
                Some(found) if found == end => {}
                Some(found) if url.ends_with(ORDER) && *found == OUTCOME_UNKNOWN => {}
                Some(found) => wrong.push(format!("{url} ended as {found}, and not as {end}")),
                None => wrong.push(format!("{url} is lost")),
            }
        }
        let more = found.keys().filter(|url| !expected.contains_key(**url));
        wrong.extend(more.map(|url| format!("{url} was not found without an end")));
        for url in asked_of_whole.symmetric_difference(&asked_of_ended) {
            let is_unknown = found.get(&**url) == Some(&OUTCOME_UNKNOWN);
            match asked_of_whole.contains(url) {
                true if is_unknown => {}
                true => wrong.push(format!("{url} was not requested")),
                false => wrong.push(format!("{url} was requested, and not without an end")),
            }
        }
        let warcio = check_by_warcio(&crawl.out(), &mut wrong)?;
        wrong.extend(seen.wrong);
        let refetched = ended.lines.iter().filter(|line| line.is_refetched).count();
        let rows = [
            (
                "pages of an uninterrupted crawl",
                expected.len().to_string(),
            ),
            ("pages of the ended one", found.len().to_string()),
            ("times that its disk was full", fills.to_string()),
            ("kills", ends.len().to_string()),
            (
                "time of the uninterrupted crawl",
                format!("{whole_took:.1?}"),
            ),
            ("time of the ended one", format!("{took:.1?}")),
            ("result lines", ended.lines.len().to_string()),
            ("requests for pages", seen.pages.to_string()),
            ("requests whose results were lost", seen.lost.to_string()),
            ("lines with \"refetched\"", refetched.to_string()),
            (
                "the longest time from one to its end",
                format!("{:.1?}", seen.lost_before),
            ),
            (
                "robots.txt files that were asked again",
                seen.robots_again.to_string(),
            ),
            (
                "ended as cancelled.outcome_unknown",
                seen.unknown.to_string(),
            ),
            ("of these not sent", seen.unknown_unsent.to_string()),
            ("shortest gap within a run", gap(seen.gap_within)),
            ("shortest gap across an end", gap(seen.gap_across)),
            (
                "the same with a Crawl-delay of 0.5 s",
                gap(seen.gap_crawl_delay),
            ),
            (
                "warcio check",
                warcio.map_or("SKIPPED".to_owned(), |files| format!("{files} files")),
            ),
            ("violations", wrong.len().to_string()),
        ];
        for (name, value) in rows {
            println!("{name:<38}{value:>24}");
        }
        for violation in wrong.iter().take(SHOWN) {
            println!("  {violation}");
        }
        if warcio.is_none() {
            println!("SKIPPED: warcio is not installed (pip install warcio): all else was judged");
        }
        let made = if disk.is_some() {
            fills
        } else {
            ends.len() as u32
        };
        if made < kills {
            println!("the crawl was over after {made} of {kills} times: give it more --pages");
            return Ok(false);
        }
        Ok(wrong.is_empty())
    }

    /// How long before the end of its run a request may have been made whose result is lost.
    fn again_within(&self) -> Duration {
        let full = if self.disk.is_some() {
            FULL_TIME
        } else {
            Duration::ZERO
        };
        Duration::from_secs_f64(self.sync) + LATENCY + COMMIT_TIME + full
    }

    /// Runs the crawl to its end, with kills before; returns when they were.
    fn kill(&self, crawl: &Crawl, kills: u32) -> io::Result<Vec<Duration>> {
        let mut random = self.seed;
        let mut ends = Vec::new();
        let mut run = crawl.start()?;
        for number in 1..=kills {
            // Some die while they read the state; some later than what they fetched first may be lost.
            let most = match below(&mut random, 10) {
                0 => LOADING,
                _ => LOADING + Duration::from_secs_f64(self.delay) + 2 * RUN_MEAN,
            };
            let mut span = Duration::from_micros(below(&mut random, most.as_micros() as u64));
            if number % LONG_EVERY == 0 {
                span += self.again_within();
            }
            if run.ends_within(span)? {
                break;
            }
            run.kill()?;
            ends.push(Clock::read().now);
            run = crawl.resume(&[])?;
        }
        run.finish()?;
        Ok(ends)
    }

    /// Runs the crawl to its end, on a volume that is filled so often; returns how often it was, and when
    /// the crawl was killed.
    fn fill(
        &self,
        crawl: &Crawl,
        disk: &SmallDisk,
        fills: u32,
    ) -> io::Result<(u32, Vec<Duration>)> {
        let mut random = self.seed;
        let mut ends = Vec::new();
        let mut run = crawl.start()?;
        let mut filled = 0;
        while filled < fills {
            let span = Duration::from_micros(below(&mut random, 2 * RUN_MEAN.as_micros() as u64));
            if run.ends_within(LOADING + span)? {
                break;
            }
            disk.fill()?;
            thread::sleep(Duration::from_millis(below(&mut random, 1500)));
            if run.ends_within(Duration::ZERO)? {
                disk.empty()?;
                break;
            }
            filled += 1;
            if filled % 2 == 0 {
                disk.empty()?;
                continue;
            }
            run.kill()?;
            ends.push(Clock::read().now);
            disk.empty()?;
            // With a reserve the crawl pauses before a write fails; without one it may be torn.
            let reserve = [None, Some("DISK_FREE_MIN=0".to_owned())];
            let reserve = &reserve[below(&mut random, 2) as usize];
            run = crawl.resume(reserve.as_slice())?;
        }
        run.finish()?;
        Ok((filled, ends))
    }
}

/// The URLs that were requested.
fn asked(arrivals: &[Arrival], web: &Web) -> BTreeSet<String> {
    arrivals.iter().map(|arrival| web.url(arrival)).collect()
}

fn gap(gap: Option<Duration>) -> String {
    gap.map_or("-".to_owned(), |gap| format!("{gap:.1?}"))
}

/// Whether `warcio check` accepts the files; returns how many. `None` without warcio.
fn check_by_warcio(out: &Path, wrong: &mut Vec<String>) -> io::Result<Option<u32>> {
    let found = Command::new("warcio").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        return Ok(None);
    }
    let mut files = 0;
    for entry in std::fs::read_dir(out.join("warc"))? {
        let path = entry?.path();
        if path.to_string_lossy().contains(".cdxj") {
            continue;
        }
        let checked = Command::new("warcio").arg("check").arg(&path).output()?;
        if !checked.status.success() {
            wrong.push(format!("warcio check {} failed", path.display()));
        }
        files += 1;
    }
    Ok(Some(files))
}

/// A number below the bound (splitmix64).
fn below(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % bound.max(1)
}

/// Longest time until a reply.
const LATENCY: Duration = Duration::from_millis(100);

/// Mean time of a run in which it fetches.
const RUN_MEAN: Duration = Duration::from_millis(350);

/// Time in which a run reads its state.
const LOADING: Duration = Duration::from_millis(100);

/// One of so many runs lasts longer than results may wait for their commit.
const LONG_EVERY: u32 = 10;

/// Time that the commit of a result takes beyond `STATE_SYNC`, on a busy disk: the one that is under way
/// when it arrives, and its own.
const COMMIT_TIME: Duration = Duration::from_secs(1);

/// Time without space in which nothing is committed: twice in a row, and until the disk is tried again.
const FULL_TIME: Duration = Duration::from_secs(5);

/// Violations that are shown.
const SHOWN: usize = 20;
