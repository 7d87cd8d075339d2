//! Measures how late requests depart, with many scopes and a fixed rate of due requests.
//!
//! `cargo run --release --example lateness -- [--scopes N] [--rate N] [--new-connections]
//! [--scrapes N] [--set NAME=VALUE]…`
//!
//! With a million scopes and 20 000 requests a second each scope has a delay of 50 s. Requests are
//! submitted at random at that rate: one for each scope, and a second that is due one delay later. Only
//! the second ones are measured. The origin runs on another processor; by its clock the lateness is the
//! gap between the two requests of a scope, less the delay. A run takes twice the delay. Connections are
//! kept and few, so that the time from due to the system call is measured; `--new-connections` opens one
//! for each request, to 250 addresses. `--scrapes N` serves the control interface, and asks for `/metrics` N times a
//! second from the origin's processor, each second scrape over a new connection.

mod origin;
mod scraper;

use std::path::PathBuf;
use std::process::exit;
use std::time::{Duration, Instant};

use argiope::base::shared::Shared;
use argiope::serde_json::Value;
use argiope::{Config, Crawler, Page, Request, Spread};

use self::origin::Origin;
use self::scraper::Scraper;

#[expect(dead_code, reason = "freed memory is not returned to the system here")]
#[path = "../../src/cli/allocator.rs"]
mod allocator;

/// Options, from `--name value` pairs.
struct Plan {
    scopes: u64,
    rate: u64,
    new_connections: bool,
    /// Scrapes of the metrics per second.
    scrapes: u64,
    set: Vec<(String, String)>,
}

/// The crawl's own measurements of the second requests.
#[derive(Default)]
struct Own {
    pages: u64,
    failed: u64,
    /// From the later of due and ready to sent, as in result lines.
    lateness: Spread,
    /// From due to sent.
    overdue: Spread,
}

fn main() {
    allocator::prepare();
    let plan = plan();
    let delay = Duration::from_secs_f64(plan.scopes as f64 / plan.rate as f64);
    let origin = Origin::start(delay).expect("loopback has a port");
    pin(0);
    let own = Shared::new(Own::default());
    let mut crawler = crawler(&plan, delay, &own);
    let scraper = (plan.scrapes > 0).then(|| Scraper::start(&mut crawler, plan.scrapes));
    let (began, kept_waiting) = (Instant::now(), kept_waiting());
    let lag = run(&plan, &mut crawler, origin.port, &own);
    let took = began.elapsed().as_secs_f64();
    let scraped = scraper.map(Scraper::stop);
    let kept_waiting = self::kept_waiting() - kept_waiting;
    let (own, seen) = (own.borrow(), origin.seen());
    let kind = if plan.new_connections { "new" } else { "kept" };
    println!(
        "{} scopes, one due every {:.0} s each, {kind} connections: {} requests in {took:.1} s, \
         {} failed",
        plan.scopes,
        delay.as_secs_f64(),
        seen.requests,
        own.failed
    );
    for (error, count) in &crawler.stats().by_error {
        println!("{count} ended as {error}");
    }
    println!("second request of each scope:");
    row("lateness, by result lines", &own.lateness);
    row("from due to sent, by result lines", &own.overdue);
    row("gap less delay, by the origin's kernel", &seen.excess);
    row("length of a turn", &lag);
    if let Some((scrapes, longest)) = scraped {
        println!(
            "{scrapes} scrapes of /metrics, {:.0} a second; the slowest took {:.1} ms",
            scrapes as f64 / took,
            longest.as_secs_f64() * 1e3
        );
    }
    println!(
        "our thread waited {:.1} ms for its processor",
        kept_waiting.as_secs_f64() * 1e3
    );
    // Dropping the crawl finishes its disk jobs.
    drop(crawler);
    let _ = std::fs::remove_file(stats_path());
    println!(
        "gaps shorter than the delay at the origin: {}, the shortest by {:.0} us",
        seen.short,
        seen.shortest_by.as_secs_f64() * 1e6
    );
}

fn row(name: &str, spread: &Spread) {
    let at = |share: f64| {
        let span = spread.quantile(share).unwrap_or_default();
        format!("{:>8.1}", span.as_secs_f64() * 1e6)
    };
    println!(
        "{name:<40} p50 {} us, p99 {}, p99.9 {}, max {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn crawler(plan: &Plan, delay: Duration, own: &Shared<Own>) -> Crawler {
    let mut config = Config::default();
    let kept = if plan.new_connections { 0 } else { 4096 };
    let ours: [(&str, Value); 8] = [
        ("DOWNLOAD_DELAY", delay.as_secs_f64().into()),
        ("DOWNLOAD_DELAY_PER_SLOT", 0.into()),
        ("RANDOMIZE_DOWNLOAD_DELAY", false.into()),
        ("ROBOTSTXT_OBEY", false.into()),
        ("FOLLOW", "none".into()),
        ("ALLOW_NET", "loopback".into()),
        ("FRONTIER_MAX", (plan.scopes * 3).into()),
        ("KEEPALIVE_MAX", kept.into()),
    ];
    let theirs = plan.set.iter();
    let theirs = theirs.map(|(name, value)| (name.as_str(), value.as_str().into()));
    for (name, value) in ours.into_iter().chain(theirs) {
        config = config
            .with(name, value)
            .unwrap_or_else(|error: argiope::ConfigError| {
                eprintln!("{error}");
                exit(2);
            });
    }
    let shared = Shared::clone(own);
    let sink = move |page: Page| {
        let own = &mut *shared.borrow_mut();
        own.failed += u64::from(page.status != Some(200));
        if page.tag != SECOND {
            return;
        }
        own.pages += 1;
        let timings = &page.timings;
        if let (Some(lateness), Some(due), Some(sent)) =
            (timings.lateness(), timings.due, timings.sent)
        {
            own.lateness.record(lateness);
            own.overdue.record(sent.saturating_since(due));
        }
    };
    // Written as in a usual crawl: nothing is sent during that time.
    Crawler::builder(config)
        .sink(sink)
        .stats_path(stats_path())
        .build()
        .expect("a crawler")
}

/// Runs the crawl until all second requests have ended; returns the lengths of the turns until then. The
/// turn that drops the remaining requests is longer, and not counted.
fn run(plan: &Plan, crawler: &mut Crawler, port: u16, own: &Shared<Own>) -> Spread {
    let stopper = crawler.stopper();
    let mut random = Random(plan.scopes);
    let mean = 1.0 / plan.rate as f64;
    let began = Instant::now();
    let (mut scope, mut next) = (0, Duration::ZERO);
    let addresses = if plan.new_connections { 250 } else { 4 };
    loop {
        let now = began.elapsed();
        while scope < plan.scopes && next <= now {
            let host = format!("127.0.1.{}:{port}", 1 + scope % addresses);
            // The third is never sent: while it is queued, connections are kept.
            for wave in 0..3 {
                let request = Request::get(format!("http://{host}/{scope}/{wave}"));
                let request = request.scope(format!("s{scope}")).tag(wave);
                crawler.submit(request).expect("each is a new URL");
            }
            scope += 1;
            next += Duration::from_secs_f64(-mean * random.share().ln());
        }
        let fed = scope == plan.scopes;
        let patience = if fed {
            PATIENCE
        } else {
            next.saturating_sub(now).min(PATIENCE)
        };
        crawler.turn(Some(patience));
        if own.borrow().pages >= plan.scopes {
            let lag = crawler.stats().lag.clone();
            stopper.stop_now();
            crawler.run();
            return lag;
        }
    }
}

/// A simple random number generator.
struct Random(u64);

impl Random {
    /// Above 0, up to 1.
    fn share(&mut self) -> f64 {
        // Knuth's multiplier and increment.
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

fn plan() -> Plan {
    let mut plan = Plan {
        scopes: 1_000_000,
        rate: 20_000,
        new_connections: false,
        scrapes: 0,
        set: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| usage(&name));
        let number = |text: String| match text.parse::<u64>() {
            Ok(number) if number > 0 => number,
            _ => usage(&text),
        };
        match name.as_str() {
            "--scopes" => plan.scopes = number(value()),
            "--rate" => plan.rate = number(value()),
            "--scrapes" => plan.scrapes = number(value()),
            "--new-connections" => plan.new_connections = true,
            "--set" => match value().split_once('=') {
                Some((name, value)) => plan.set.push((name.to_owned(), value.to_owned())),
                None => usage("--set"),
            },
            other => usage(other),
        }
    }
    plan
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: lateness [--scopes N] [--rate N] [--new-connections] [--scrapes N] [--set NAME=VALUE]…"
    );
    exit(2);
}

/// Path of the statistics of this run.
fn stats_path() -> PathBuf {
    let name = format!("lateness-{}.json", std::process::id());
    std::env::temp_dir().join(name)
}

/// How long the calling thread was runnable without running, since its start.
fn kept_waiting() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Pins the calling thread to one processor.
pub fn pin(processor: usize) {
    // SAFETY: a set of zeroes is an empty one, and the call reads no more than it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Number of processors.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The wave that is measured.
const SECOND: u64 = 1;
/// The longest wait of a turn.
const PATIENCE: Duration = Duration::from_millis(100);
