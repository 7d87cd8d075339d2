//! Cost of a page by number of scopes, for everything in a crawl but the kernel.
//!
//! `cargo run --release --example scope_growth [-- --pages N --memory-max GB SIZE…]`
//!
//! Each size is a number of hosts, crawled in its own process: one scope and one queued URL per host;
//! every page has one link, to the host's next page. Time and network are simulated by `null_io.rs`;
//! links, names, frontier, throttle, wheel, connections and replies are real. At every size 20 000 pages
//! per second of virtual time are due. Once every host has been fetched, `--pages` more are timed by the
//! thread's processor time, in slices whose median is reported. A size that needs more memory than
//! `--memory-max` is skipped.

mod null_io;

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use argiope::frontier::request::Request;
use argiope::{Config, Crawler, Page, Turn};
use null_io::NullIo;

#[expect(dead_code, reason = "freed memory is not returned to the system here")]
#[path = "../../src/cli/allocator.rs"]
mod allocator;

/// The smallest comes first and last, so that drift of the machine shows.
const SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 1_000];
const PAGES: u64 = 400_000;
const SLICES: u64 = 20;
const PAGES_PER_SECOND: u64 = 20_000;
/// Minimum number of pages before the timed ones, to warm code and tables.
const WARM: u64 = 100_000;
/// Memory is checked once per this many seeds or turns.
const LOOK_EVERY: u64 = 1 << 14;
/// Exit code of a process whose crawl does not fit.
const DOES_NOT_FIT: u8 = 3;

struct Plan {
    sizes: Vec<u64>,
    pages: u64,
    memory_max: u64,
}

fn main() -> ExitCode {
    allocator::prepare();
    let plan = plan();
    match plan.sizes[..] {
        [scopes] => match measure(scopes, &plan) {
            Ok(line) => println!("{line}"),
            Err(full) => {
                println!("{scopes} scopes: {full}");
                return ExitCode::from(DOES_NOT_FIT);
            }
        },
        _ => compare(&plan),
    }
    ExitCode::SUCCESS
}

fn plan() -> Plan {
    let mut plan = Plan {
        sizes: Vec::new(),
        pages: PAGES,
        memory_max: 8_000_000_000,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let number = |text: Option<String>| {
            let parsed = text.and_then(|text| text.parse::<u64>().ok());
            parsed.filter(|number| *number > 0).unwrap_or_else(|| {
                eprintln!("{word}: scope_growth [--pages N] [--memory-max GB] [SIZE…]");
                std::process::exit(2);
            })
        };
        match word.as_str() {
            "--pages" => plan.pages = number(arguments.next()),
            "--memory-max" => plan.memory_max = number(arguments.next()) * 1_000_000_000,
            size => plan.sizes.push(number(Some(size.to_owned()))),
        }
    }
    if plan.sizes.is_empty() {
        plan.sizes.extend(SIZES);
    }
    plan
}

/// Runs each size in its own process, and prints the cost at the largest relative to the smallest.
fn compare(plan: &Plan) {
    let ourselves = std::env::current_exe().expect("a process has a program");
    let mut costs: Vec<(u64, f64)> = Vec::new();
    for &scopes in &plan.sizes {
        let child = Command::new(&ourselves)
            .args(["--pages", &plan.pages.to_string()])
            .args([
                "--memory-max",
                &(plan.memory_max / 1_000_000_000).to_string(),
            ])
            .arg(scopes.to_string())
            .stderr(Stdio::inherit())
            .output()
            .expect("a program that runs can be run");
        let said = String::from_utf8_lossy(&child.stdout);
        print!("{said}");
        match child.status.code() {
            Some(0) => costs.push((scopes, cost_in(&said))),
            Some(code) if code == i32::from(DOES_NOT_FIT) => {}
            _ => panic!("{scopes} scopes: {}", child.status),
        }
    }
    let sizes = || costs.iter().map(|(scopes, _)| *scopes);
    if let (Some(least), Some(most)) = (sizes().min(), sizes().max()) {
        let mean = |of: u64| {
            let costs = costs.iter().filter(|(scopes, _)| *scopes == of);
            let (count, sum) = costs.fold((0.0, 0.0), |(n, sum), (_, cost)| (n + 1.0, sum + cost));
            sum / count
        };
        println!(
            "a page at {most} scopes costs {:.2} times what it does at {least}",
            mean(most) / mean(least)
        );
    }
}

/// The first figure in a line of [`measure`].
fn cost_in(line: &str) -> f64 {
    let after = line.split_once(": ").map_or("", |(_, after)| after);
    let figure = after.split(' ').next().and_then(|word| word.parse().ok());
    figure.expect("a line of ours begins with its figure")
}

fn measure(scopes: u64, plan: &Plan) -> Result<String, String> {
    let began = thread_time();
    let mut crawler = crawler(scopes);
    for number in 0..scopes {
        crawler
            .submit(Request::get(format!("http://domain-{number}.test/")))
            .expect("each is a new URL");
        if number % LOOK_EVERY == 0 {
            check_memory(plan, || format!("after {number} seeds"))?;
        }
    }
    let admitted = thread_time();
    reach(&mut crawler, scopes, plan)?;
    let all_asked = thread_time();
    reach(&mut crawler, scopes.max(WARM), plan)?;
    let mut slices = Vec::new();
    for _ in 0..SLICES {
        let (before, from) = (crawler.stats().pages, thread_time());
        reach(&mut crawler, before + plan.pages.div_ceil(SLICES), plan)?;
        let pages = crawler.stats().pages - before;
        slices.push((thread_time() - from).as_nanos() as f64 / pages as f64);
    }
    slices.sort_by(f64::total_cmp);
    let each = |time: Duration| time.as_nanos() as f64 / scopes as f64;
    let line = format!(
        "{scopes} scopes: {:.0} ns a page; {:.0} a host's first, {:.0} its admission; {} MB at most",
        slices[slices.len() / 2],
        each(all_asked - admitted),
        each(admitted - began),
        resident("VmHWM") / 1_000_000,
    );
    // Dropping a large crawl takes seconds, and the process ends anyway.
    std::mem::forget(crawler);
    Ok(line)
}

fn crawler(scopes: u64) -> Crawler<NullIo> {
    let settings = [
        (
            "DOWNLOAD_DELAY",
            (scopes as f64 / PAGES_PER_SECOND as f64).into(),
        ),
        // A quarter more than are in flight at that rate, so that the first pages come at about the
        // same rate as later ones.
        ("CONCURRENT_REQUESTS", 320.into()),
        ("ROBOTSTXT_OBEY", false.into()),
        ("FRONTIER_MAX", (2 * scopes + 1024).into()),
        ("RESOLVE", vec!["*:80:127.0.0.1"].into()),
        ("ALLOW_NET", vec!["loopback"].into()),
        ("RANDOM_SEED", 1.into()),
    ];
    let config = settings
        .into_iter()
        .try_fold(
            Config::default(),
            |config, (name, value): (_, serde_json::Value)| config.with(name, value),
        )
        .expect("valid settings");
    Crawler::builder(config)
        .sink(|_: Page| {})
        .build_on(
            NullIo::new(),
            argiope::fetch::resolver::ResolverSettings::default(),
        )
        .expect("no resource of the machine is needed")
}

/// Crawls until this many pages have been fetched.
fn reach(crawler: &mut Crawler<NullIo>, pages: u64, plan: &Plan) -> Result<(), String> {
    let mut turns = 0;
    while crawler.stats().pages < pages {
        assert_eq!(
            crawler.turn(None),
            Turn::GoesOn,
            "every page leads to another: {:?}",
            crawler.stats().first_errors
        );
        turns += 1;
        if turns % LOOK_EVERY == 0 {
            check_memory(plan, || format!("after {} pages", crawler.stats().pages))?;
        }
    }
    Ok(())
}

fn check_memory(plan: &Plan, when: impl Fn() -> String) -> Result<(), String> {
    let (gigabytes, now) = (plan.memory_max / 1_000_000_000, resident("VmRSS"));
    if now > plan.memory_max {
        return Err(format!("do not fit in {gigabytes} GB, given up {}", when()));
    }
    Ok(())
}

/// A field of /proc/self/status, in bytes.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a size in KiB")
        * 1024
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
