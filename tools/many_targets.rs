//! Measures how late requests to many targets depart, each at its own phase, while some targets hang.
//!
//! `cargo run --release --example many_targets -- [--targets N] [--every SECONDS] [--rounds N] [--warmup ROUNDS]
//! [--hanging N] [--scrapes N] [--connections N] [--origin PORT] [--https] [--set NAME=VALUE]…`
//!
//! With 100 000 targets every 15 s, 6 667 are due in a second. Each is an address of its own in 127.0.0.0/8, and each
//! request opens a connection. The origin answers on another processor, except for `--hanging` targets, which it
//! never answers. The first round is a warm-up: it makes the TLS sessions that later ones resume; `--warmup` takes
//! more rounds, for an origin that full handshakes overload at first. `--https` measures over TLS 1.2. `--scrapes` asks
//! for `/probe` of a target so often in a second over the control interface. `--origin PORT` has another server answer,
//! which listens at all addresses, such as nginx; no target hangs then. Prints `FAILED` and exits 1 if
//! the 99th percentile of `lateness` (from the later of due and ready to the departure) or of `wait` (from due to the
//! start of the connection) is above 1 ms, those of requests that failed included, if a request was skipped or
//! dropped, or if one that should succeed did not.
//! Open files are limited: `ulimit -n 200000`.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use argiope::probe::{Length, Measure, Probe, ProbeReport, ProbeSettings};
use argiope::testkit::engine::{Answer, End, Engine, Service};
use argiope::testkit::http::{Request as Asked, Step};
use argiope::testkit::server::{TlsConfig, listener};
use argiope::{Admin, Config, Instant, Page, Request};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::TLS12;

#[expect(dead_code, reason = "freed memory is not returned to the system here")]
#[path = "../src/cli/allocator.rs"]
mod allocator;

/// Options, from `--name value` pairs.
struct Plan {
    targets: u32,
    every: f64,
    rounds: u32,
    warmup: u32,
    hanging: u32,
    scrapes: u32,
    connections: Option<usize>,
    origin: Option<u16>,
    https: bool,
    set: Vec<(String, String)>,
}

/// How late the requests were, whatever became of them: when each was due, and the span.
#[derive(Default)]
struct Departures {
    /// From the later of due and ready to the departure.
    lateness: Vec<(Instant, Duration)>,
    /// From due to the start of the connection, or to the end of a request that had none.
    wait: Vec<(Instant, Duration)>,
}

impl Departures {
    fn count(&mut self, page: &Page) {
        let timings = &page.timings;
        let due = timings.due.expect("it was due");
        self.lateness
            .extend(timings.lateness().map(|span| (due, span)));
        let has_begun = timings.sent.is_some() || timings.connect.is_some();
        let begun = if has_begun {
            timings.started
        } else {
            page.ended
        };
        self.wait.push((due, begun.saturating_since(due)));
    }

    /// The spans of the requests after the warm-up. The schedule begins after set-up, with the first request that was
    /// due.
    fn measured(
        spans: &[(Instant, Duration)],
        start: Option<Instant>,
        warmup: Duration,
    ) -> Vec<Duration> {
        let from = start.map(|start| start + warmup);
        let measured = spans.iter().filter(|(due, _)| Some(*due) >= from);
        measured.map(|(_, span)| *span).collect()
    }

    /// The least time that so large a share of the spans does not exceed.
    fn quantile(spans: &mut [Duration], share: f64) -> Duration {
        spans.sort_unstable();
        let rank = (spans.len() as f64 * share).ceil() as usize;
        spans
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }
}

/// Most lateness of 99 % of the requests.
const LATENESS_MAX: Duration = Duration::from_millis(1);

fn main() {
    allocator::prepare();
    let plan = plan();
    let (port, _stop) = match plan.origin {
        Some(port) => (port, None),
        None => {
            let (port, stop) = start_origin(plan.https).expect("loopback has a port");
            (port, Some(stop))
        }
    };
    argiope::raise_open_files();
    pin(0);
    let targets: Vec<Request> = (0..plan.targets).map(|n| target(&plan, n, port)).collect();
    let departures: Arc<Mutex<Departures>> = Arc::default();
    let mut probe = probe(&plan, &targets, Arc::clone(&departures));
    let address = probe
        .serve(Admin::new().listen(SocketAddr::from(([127, 0, 0, 1], 0))))
        .expect("loopback has a port")
        .expect("a TCP address");
    let is_over = Arc::new(AtomicBool::new(false));
    let scraper = (plan.scrapes > 0).then(|| {
        let (is_over, rate) = (Arc::clone(&is_over), plan.scrapes);
        let url = targets[0].url.clone();
        thread::spawn(move || {
            pin(processors() - 1);
            scrape_until(&is_over, address, &url, rate)
        })
    });
    let (began, waited) = (processor_time(), kept_waiting());
    let reason = probe.run();
    let (processor, waited) = (processor_time() - began, kept_waiting() - waited);
    is_over.store(true, Ordering::SeqCst);
    let report = probe.report();
    let all = probe.elapsed();
    println!(
        "{} targets every {} s, {} hanging, {:.0} a second: {reason} after {:.1} s",
        plan.targets,
        plan.every,
        plan.hanging,
        f64::from(plan.targets) / plan.every,
        all.as_secs_f64()
    );
    println!(
        "{} due, {} replies, {} errors {:?}, {} skipped, {} connections",
        report.due,
        report.replies,
        report.errors(),
        report.by_error,
        report.skipped,
        report.connections
    );
    for (code, (url, detail)) in report.first_errors.iter().take(3) {
        println!("  {code}: {url}: {detail}");
    }
    let departures = departures.lock().unwrap_or_else(PoisonError::into_inner);
    let start = departures.wait.iter().map(|(due, _)| *due).min();
    let warmup = Duration::from_secs_f64(plan.every) * plan.warmup;
    let [mut lateness, mut wait] = [&departures.lateness, &departures.wait]
        .map(|spans| Departures::measured(spans, start, warmup));
    println!("all requests, also those that failed:");
    row("lateness", |share| {
        Departures::quantile(&mut lateness, share)
    });
    row("wait", |share| Departures::quantile(&mut wait, share));
    println!("those that were answered:");
    for measure in [Measure::Connect, Measure::Tls, Measure::Sent] {
        let spread = report.spread(measure);
        row(measure.as_str(), |share| {
            spread.quantile(share).unwrap_or_default()
        });
    }
    println!(
        "our thread: {:.0} % of a processor, {:.1} µs a request; it waited {:.1} ms for that",
        processor.as_secs_f64() / all.as_secs_f64() * 100.0,
        processor.as_secs_f64() * 1e6 / probe.ended().max(1) as f64,
        waited.as_secs_f64() * 1e3
    );
    if let Some(scraper) = scraper {
        let (scrapes, longest) = scraper.join().expect("each scrape is answered");
        println!(
            "{scrapes} scrapes; the slowest took {:.1} ms",
            longest.as_secs_f64() * 1e3
        );
    }
    if let Some(fault) = fault(&plan, &report, lateness, wait) {
        println!("FAILED: {fault}");
        exit(1);
    }
}

/// What is not as it should be.
fn fault(
    plan: &Plan,
    report: &ProbeReport,
    lateness: Vec<Duration>,
    wait: Vec<Duration>,
) -> Option<String> {
    let (targets, rounds) = (u64::from(plan.targets), u64::from(plan.rounds));
    let expected = targets * rounds;
    if report.due != expected || report.skipped + report.dropped > 0 {
        return Some(format!(
            "{} of {expected} requests were due, {} skipped, {} dropped",
            report.due, report.skipped, report.dropped
        ));
    }
    // No request waits for a connection or a lookup: that is our lateness, too. All have a wait, and those that were
    // sent a lateness.
    let counts = [
        ("lateness", lateness, report.sent),
        ("wait", wait, expected),
    ];
    for (name, mut spans, least) in counts {
        if (spans.len() as u64) < least.max(1) {
            return Some(format!("{} of {least} have a {name}", spans.len()));
        }
        let late = Departures::quantile(&mut spans, 0.99);
        if late > LATENESS_MAX {
            return Some(format!("the {name} at p99 is {late:.0?}"));
        }
    }
    let answered = expected - u64::from(plan.hanging) * rounds;
    (report.replies < answered).then(|| format!("{} of {answered} were answered", report.replies))
}

/// A target at an address of its own; those that hang are the first.
fn target(plan: &Plan, number: u32, port: u16) -> Request {
    // Not 127.0.0.x, where other programs listen.
    let address = Ipv4Addr::from(0x7f01_0001 + number);
    let scheme = if plan.https { "https" } else { "http" };
    let path = if number < plan.hanging { HANGS } else { "/" };
    Request::get(format!("{scheme}://{address}:{port}{path}"))
}

/// Of these the origin answers none.
const HANGS: &str = "/hangs";

fn probe(plan: &Plan, targets: &[Request], departures: Arc<Mutex<Departures>>) -> Probe {
    let mut config = Config::default();
    let timeout = (plan.every * 0.9).min(10.0).to_string();
    let ours = [
        ("ALLOW_NET", "loopback"),
        ("INSECURE", if plan.https { "true" } else { "false" }),
        ("TLS_SESSIONS_MEMORY", "2GiB"),
        ("DOWNLOAD_TIMEOUT", &timeout),
    ];
    let theirs = plan
        .set
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in ours.into_iter().chain(theirs) {
        config = config.with(name, value).unwrap_or_else(|error| {
            eprintln!("{error}");
            exit(2);
        });
    }
    let every = Duration::from_secs_f64(plan.every);
    let warmup = every * plan.warmup;
    let mut settings = ProbeSettings::default();
    settings.every = Some(every);
    settings.warmup = warmup;
    settings.connections_max = plan.connections;
    settings.length = Some(Length::Time(every * plan.rounds));
    let sink = move |page: Page| {
        let mut departures = departures.lock().unwrap_or_else(PoisonError::into_inner);
        departures.count(&page);
    };
    Probe::new(config, settings, targets, sink).unwrap_or_else(|error| {
        eprintln!("{error}");
        exit(2);
    })
}

fn row(name: &str, mut quantile: impl FnMut(f64) -> Duration) {
    let mut at = |share: f64| format!("{:>8.1}", quantile(share).as_secs_f64() * 1e6);
    println!(
        "{name:<10} p50 {} µs, p99 {}, p99.9 {}, max {}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// Answers every request with the same page, but for those that hang.
struct Pages;

impl Service for Pages {
    type Exchange = ();

    fn answer(&mut self, _: usize, request: &Asked, arrived: Duration) -> Answer<()> {
        let step = match request.path() {
            HANGS => Step::Hang,
            _ => Step::Send(REPLY.to_vec()),
        };
        Answer {
            exchange: (),
            from: arrived,
            steps: vec![step],
            is_last: request.is_last,
        }
    }

    fn ended(&mut self, (): (), _: End) {}
}

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";

/// Starts the origin on the last processor; returns its port, and what stops it when dropped.
fn start_origin(https: bool) -> io::Result<(u16, UnixStream)> {
    let listener = listener("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    let (stop, stopped) = UnixStream::pair()?;
    let mut engine = Engine::new(Pages, vec![listener], None, stopped.into())?;
    if https {
        engine = engine.with_tls(tls_config().map_err(io::Error::other)?);
    }
    thread::spawn(move || {
        pin(processors() - 1);
        if let Err(error) = engine.run(None) {
            eprintln!("the origin failed: {error}");
            exit(1);
        }
    });
    Ok((port, stop))
}

/// TLS 1.2 with sessions that are resumed by tickets: for resumption neither side computes with its key.
fn tls_config() -> Result<TlsConfig, Box<dyn Error + Send + Sync>> {
    let names = ["targets.test".to_owned()];
    let own = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(default_provider().into())
        .with_protocol_versions(&[&TLS12])?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())?;
    config.ticketer = Ticketer::new()?;
    Ok(Arc::new(config))
}

/// Asks for the last result of a target, `rate` times a second. Returns how often, and how long the slowest took.
fn scrape_until(is_over: &AtomicBool, at: SocketAddr, url: &str, rate: u32) -> (u64, Duration) {
    let request =
        format!("GET /probe?target={url} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    let (mut scrapes, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::SeqCst) {
        let began = std::time::Instant::now();
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("it answers");
        longest = longest.max(began.elapsed());
        scrapes += 1;
        thread::sleep(
            Duration::from_secs_f64(1.0 / f64::from(rate)).saturating_sub(began.elapsed()),
        );
    }
    (scrapes, longest)
}

fn plan() -> Plan {
    let mut plan = Plan {
        targets: 100_000,
        every: 15.0,
        rounds: 3,
        warmup: 1,
        hanging: 0,
        scrapes: 0,
        connections: None,
        origin: None,
        https: false,
        set: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| usage(&name));
        let number = |text: String| text.parse().unwrap_or_else(|_| usage(&text));
        match name.as_str() {
            "--targets" => plan.targets = number(value()),
            "--every" => plan.every = value().parse().unwrap_or_else(|_| usage("--every")),
            "--rounds" => plan.rounds = number(value()),
            "--warmup" => plan.warmup = number(value()),
            "--hanging" => plan.hanging = number(value()),
            "--scrapes" => plan.scrapes = number(value()),
            "--connections" => plan.connections = Some(number(value()) as usize),
            "--origin" => plan.origin = Some(value().parse().unwrap_or_else(|_| usage("--origin"))),
            "--https" => plan.https = true,
            "--set" => match value().split_once('=') {
                Some((name, value)) => plan.set.push((name.to_owned(), value.to_owned())),
                None => usage("--set"),
            },
            other => usage(other),
        }
    }
    let is_sound =
        plan.targets > 0 && plan.every > 0.0 && plan.rounds > 0 && plan.hanging <= plan.targets;
    if !is_sound {
        usage("--targets, --every, --rounds or --hanging");
    }
    if plan.origin.is_some() && plan.hanging > 0 {
        usage("--hanging with --origin, which answers all");
    }
    plan
}

fn usage(wrong: &str) -> ! {
    eprintln!(
        "{wrong}: many_targets [--targets N] [--every SECONDS] [--rounds N] [--warmup ROUNDS] [--hanging N] \
         [--scrapes N] [--connections N] [--origin PORT] [--https] [--set NAME=VALUE]…"
    );
    exit(2);
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
fn pin(processor: usize) {
    // SAFETY: a set of zeroes is an empty one, and the call reads no more than it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Number of processors.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
