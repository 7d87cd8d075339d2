//! Cost of each way to drive a crawl, relative to `Crawler::run` in the same round: pages per second on
//! kept connections, and processor time of the thread that takes the turns.
//!
//! ```sh
//! cargo bench --bench hosts -- [--pages N] [--rounds N]
//! ```
//!
//! The server is a minimal thread on the second processor; the crawls run on the first. All drop their
//! pages, except `run, with lines`, which writes result lines as the command does: its disk thread shares
//! the crawls' processor, and shows in the rate only. That row is counted per turn. The first tenth of each
//! crawl is not measured. With `next_result` some hundreds of pages are queued, so use many pages. A figure
//! is the median of the rounds, with minimum and maximum. `asyncio` is driven by Python, with all requests
//! submitted first, like the others; `asyncio, fed` creates and submits URLs in Python during the crawl,
//! which is included in its cost. If Python cannot import `argiope`, its rows are reported and skipped;
//! ARGIOPE_PYTHON selects the interpreter (see `tools/python/README.md`).

mod server;

use std::env;
use std::error::Error;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argiope::serde_json::{self, Value};
use argiope::sink::files::{FileSink, FileSinkOptions};
use argiope::{Config, ConfigError, Crawler, Page, Request, Turn};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::CpuSet;
use tokio::io::unix::AsyncFd;

// The allocator of the command and of the Python package.
#[expect(dead_code, reason = "freed memory is not returned to the system here")]
#[path = "../../src/cli/allocator.rs"]
mod allocator;

/// The ways to drive a crawl.
const HOSTS: &[(&str, Drive)] = &[
    ("run", run),
    ("run, with lines", with_lines),
    ("own epoll loop", in_epoll),
    ("tokio's AsyncFd", in_tokio),
    ("next_result", pulled),
    ("asyncio", |plan| in_python("drive", plan)),
    ("asyncio, fed", |plan| in_python("crawl", plan)),
];

type Drive = fn(&Plan) -> Result<Option<Cost>, Box<dyn Error>>;

struct Plan {
    pages: u64,
    rounds: usize,
    port: u16,
}

/// Cost of a crawl, in seconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wall: f64,
    processor: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    allocator::prepare();
    // New threads and processes inherit the processor.
    let processors = two_processors();
    stay_on(processors.map(|two| two[1]));
    let port = server::start(Ipv4Addr::LOCALHOST, reply())?;
    stay_on(processors.map(|two| two[0]));
    let (pages, rounds) = (30_000, 21);
    let mut plan = Plan {
        pages,
        rounds,
        port,
    };
    let mut arguments = env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match name.as_str() {
            "--pages" => plan.pages = number().ok_or("--pages takes a number")?,
            "--rounds" => plan.rounds = number().ok_or("--rounds takes a number")? as usize,
            // Passed by cargo.
            "--bench" => {}
            other => return Err(format!("{other}: hosts [--pages N] [--rounds N]").into()),
        }
    }
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); HOSTS.len()];
    for _ in 0..plan.rounds {
        for ((_, drive), costs) in HOSTS.iter().zip(&mut costs) {
            costs.extend(drive(&plan)?);
        }
    }
    println!(
        "{:16} {:>9} {:>24} {:>24}",
        "", "pages/s", "rate, of run's", "processor, of run's"
    );
    for ((name, _), own) in HOSTS.iter().zip(&costs) {
        if own.is_empty() {
            println!("{name:16} SKIPPED: cannot import argiope (ARGIOPE_PYTHON)");
            continue;
        }
        let rounds = own.iter().zip(&costs[0]);
        let rates = rounds.clone().map(|(own, run)| run.wall / own.wall);
        let processor = rounds.map(|(own, run)| own.processor / run.processor);
        let pages = plan.pages as f64 * 0.9;
        let (_, rate, _) = spread(own.iter().map(|cost| pages / cost.wall));
        println!(
            "{name:16} {rate:9.0} {:>24} {:>24}",
            median_text(rates),
            median_text(processor)
        );
    }
    Ok(())
}

/// The first two processors available to this process.
fn two_processors() -> Option<[usize; 2]> {
    let ours = rustix::thread::sched_getaffinity(None).ok()?;
    let mut ours = (0..CpuSet::MAX_CPU).filter(|processor| ours.is_set(*processor));
    let two = ours.next().zip(ours.next());
    if two.is_none() {
        eprintln!("hosts: server and crawls share a processor: figures are unreliable");
    }
    two.map(|(first, second)| [first, second])
}

/// Pins this thread, and its future threads and processes, to one processor.
fn stay_on(processor: Option<usize>) {
    let Some(processor) = processor else { return };
    let mut set = CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set).expect("an available processor");
}

/// Minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    )
}

fn median_text(values: impl Iterator<Item = f64>) -> String {
    let (least, middle, most) = spread(values);
    format!("{middle:.3} ({least:.3} to {most:.3})")
}

/// Records the moments between which a crawl is measured.
#[derive(Clone)]
struct Meter {
    pages: u64,
    state: Arc<Mutex<State>>,
}

/// Number of pages, and the marks at a tenth and at the end.
type State = (u64, [Option<Mark>; 2]);

#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    processor: Duration,
}

impl Meter {
    fn new(plan: &Plan) -> Self {
        let pages = plan.pages;
        let state = Arc::default();
        Meter { pages, state }
    }

    fn page(&self, page: &Page) {
        assert_eq!(page.status, Some(200), "{:?}", page.failure);
        let mut state = self.state();
        let pages = state.0 + 1;
        self.count(&mut state, pages);
    }

    /// Sets the number of pages.
    fn counted(&self, pages: u64) {
        self.count(&mut self.state(), pages);
    }

    fn count(&self, state: &mut State, pages: u64) {
        let before = std::mem::replace(&mut state.0, pages);
        for (mark, at) in [self.pages / 10, self.pages].into_iter().enumerate() {
            if before < at && at <= pages {
                state.1[mark] = Some(Mark::now());
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cost(&self) -> Result<Option<Cost>, Box<dyn Error>> {
        let state = self.state();
        let [Some(from), Some(to)] = state.1 else {
            return Err(format!("only {} of {} pages came", state.0, self.pages).into());
        };
        Ok(Some(Cost {
            wall: to.at.duration_since(from.at).as_secs_f64(),
            processor: (to.processor - from.processor).as_secs_f64(),
        }))
    }
}

impl Mark {
    fn now() -> Self {
        let thread = rustix::time::ClockId::ThreadCPUTime;
        let processor = rustix::time::clock_gettime(thread);
        Mark {
            at: Instant::now(),
            processor: processor.try_into().expect("it is not negative"),
        }
    }
}

/// A crawler whose pages are metered and dropped.
fn metered(plan: &Plan) -> Result<(Crawler, Meter), Box<dyn Error>> {
    let meter = Meter::new(plan);
    let meters = meter.clone();
    let builder = Crawler::builder(config(plan)?).sink(move |page: Page| meters.page(&page));
    let mut crawler = builder.build()?;
    submit(&mut crawler, plan)?;
    Ok((crawler, meter))
}

fn submit(crawler: &mut Crawler, plan: &Plan) -> Result<(), Box<dyn Error>> {
    for number in 0..plan.pages {
        crawler.submit(Request::get(url(number)))?;
    }
    Ok(())
}

fn url(number: u64) -> String {
    format!("http://host{}.test/{}", number % 4, number / 4)
}

fn settings(plan: &Plan) -> [(&'static str, String); 8] {
    [
        ("ALLOW_NET", "loopback".to_owned()),
        ("RESOLVE", format!("*:80:127.0.0.1:{}", plan.port)),
        ("DOWNLOAD_DELAY", "0".to_owned()),
        ("DOWNLOAD_DELAY_PER_SLOT", "0".to_owned()),
        ("CONCURRENT_REQUESTS", "64".to_owned()),
        ("CONCURRENT_REQUESTS_PER_DOMAIN", "16".to_owned()),
        ("ROBOTSTXT_OBEY", "false".to_owned()),
        ("FOLLOW", "none".to_owned()),
    ]
}

fn config(plan: &Plan) -> Result<Config, ConfigError> {
    let mut settings = settings(plan).into_iter();
    settings.try_fold(Config::default(), |config, (name, value)| {
        config.with(name, value)
    })
}

fn run(plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let (mut crawler, meter) = metered(plan)?;
    crawler.run();
    meter.cost()
}

/// As the binary does: each page is a line of a file.
fn with_lines(plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let sink = FileSink::new(FileSinkOptions::new(folder.path()));
    let mut crawler = Crawler::builder(config(plan)?).sink(sink).build()?;
    submit(&mut crawler, plan)?;
    let meter = Meter::new(plan);
    let mut turn = Turn::GoesOn;
    while turn == Turn::GoesOn {
        turn = crawler.turn(None);
        meter.counted(crawler.stats().pages);
    }
    let failed = &crawler.stats().by_error;
    assert!(failed.is_empty(), "{failed:?}");
    meter.cost()
}

fn in_epoll(plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let (mut crawler, meter) = metered(plan)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &crawler, EventData::new_u64(0), EventFlags::IN)?;
    let mut events = Vec::with_capacity(8);
    while crawler.turn(Some(Duration::ZERO)) == Turn::GoesOn {
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        events.clear();
    }
    meter.cost()
}

fn in_tokio(plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let (crawler, meter) = metered(plan)?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_io().build()?.block_on(async {
        // SAFETY: the descriptor is the crawler's own, and the same as long as that lives.
        let mut crawler = unsafe { AsyncFd::register(crawler)? };
        while crawler.get_mut().turn(Some(Duration::ZERO)) == Turn::GoesOn {
            crawler.readable_mut().await?.clear_ready();
        }
        Ok::<_, std::io::Error>(())
    })?;
    meter.cost()
}

fn pulled(plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let mut crawler = Crawler::builder(config(plan)?).build()?;
    submit(&mut crawler, plan)?;
    let meter = Meter::new(plan);
    while let Some(page) = crawler.next_result() {
        meter.page(&page);
    }
    meter.cost()
}

/// The same crawl by the script, which prints its cost: submitted first (`drive`), or during the crawl
/// (`crawl`).
fn in_python(how: &str, plan: &Plan) -> Result<Option<Cost>, Box<dyn Error>> {
    let python = env::var("ARGIOPE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let can = Command::new(&python)
        .args(["-c", "import argiope"])
        .output();
    if !can.is_ok_and(|can| can.status.success()) {
        return Ok(None);
    }
    let settings: serde_json::Map<_, _> = settings(plan)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    let ran = Command::new(&python)
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tools/python/speed.py"
        ))
        .args([
            how.to_owned(),
            plan.pages.to_string(),
            Value::Object(settings).to_string(),
        ])
        .output()?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
    }
    let said: Value = serde_json::from_slice(&ran.stdout)?;
    let figure = |name: &str| said[name].as_f64().ok_or("the script printed no figure");
    let (wall, processor) = (figure("wall")?, figure("processor")?);
    Ok(Some(Cost { wall, processor }))
}

/// A page of about a kilobyte without links.
fn reply() -> Vec<u8> {
    let body = format!("<html><body><p>{}</p></body></html>\n", "x".repeat(700));
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}
