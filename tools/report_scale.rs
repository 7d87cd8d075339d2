//! Time and memory of `argiope report` for a large crawl: ten million lines take at most a minute and 300 MB.
//!
//! ```sh
//! cargo build --release && cargo run --release --example report_scale -- [LINES] [HOSTS]
//! ```
//!
//! Writes the result lines of a made-up crawl with the writer of real ones, 10 GB for ten million, to a folder that
//! is deleted at the end; then runs the command beside this program and reads its JSON. With two million hosts, the
//! default, each is visited five times, and half of them do not fit into the report's table. Exit code 1 if a bound
//! is exceeded; on a shared machine the processor time says more than the time.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::serde_json::{self, Value};
use argiope::sink::files::{RecordPlace, write_line};
use argiope::{Failure, FailureKind, HttpVersion, Instant, Page, Stamp, TlsInfo, TlsVersion, Wall};

/// The bounds for [`LINES`] lines.
const TIME_MAX: Duration = Duration::from_secs(60);
const MEMORY_MAX: u64 = 300_000_000;
const LINES: u64 = 10_000_000;
const HOSTS: u64 = 2_000_000;

/// Lines in whose order of finishing the order of departure is mixed.
const BLOCK: u64 = 4096;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |usual: u64| {
        let argument = arguments.next();
        argument.map_or(usual, |text| text.parse().expect("a number"))
    };
    let (lines, hosts) = (next(LINES), next(HOSTS));
    let folder = tempfile::tempdir_in(".").expect("a folder");
    let path = folder.path().join("results.jsonl");
    write_lines(&path, lines, hosts);
    let bytes = fs::metadata(&path).expect("the file").len();
    println!("{lines} lines of {hosts} hosts, {} MB", bytes / 1_000_000);

    let own = std::env::current_exe().expect("this program");
    let binary = own.with_file_name("../argiope");
    let out = folder.path().join("report.json");
    let began = Clock::now();
    let mut child = Command::new(&binary)
        .args(["report", "--json"])
        .arg(folder.path())
        .stdout(File::create(&out).expect("a file"))
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    let (mut memory, mut processor) = (0, 0.0);
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        memory = peak_memory(child.id()).unwrap_or(memory);
        processor = processor_seconds(child.id()).unwrap_or(processor);
        thread::sleep(Duration::from_millis(5));
    };
    let took = began.elapsed();
    let text = fs::read_to_string(&out).expect("the report");
    assert!(status.success(), "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["totals"]["attempts"], lines);
    for key in ["compared", "short", "omitted", "unordered"] {
        println!("gaps, {key}: {}", report["gaps"][key]);
    }
    println!(
        "{:.1} s, {processor:.1} s of processor time, {} MB",
        took.as_secs_f64(),
        memory / 1_000_000
    );
    if took > TIME_MAX || memory > MEMORY_MAX {
        println!(
            "too much: at most {TIME_MAX:?} and {} MB",
            MEMORY_MAX / 1_000_000
        );
        std::process::exit(1);
    }
}

fn write_lines(path: &Path, lines: u64, hosts: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).expect("a file"));
    let mut page = page();
    let mut line = Vec::new();
    for number in 0..lines {
        // An odd factor permutes the numbers of a block.
        let sent = (number - number % BLOCK) + (number % BLOCK).wrapping_mul(1021) % BLOCK;
        change(&mut page, sent, hosts);
        let place = RecordPlace {
            file: "warc/argiope-20261121000000000-00001-crawler.warc.gz",
            offset: sent * 9000,
            length: 8500,
        };
        line.clear();
        write_line(&page, Some(place), &mut line);
        file.write_all(&line).expect("it is written");
    }
    file.flush().expect("it is written");
}

/// What all pages have in common.
fn page() -> Page {
    let mut page = Page::default();
    page.wall_at_start = Wall(1_795_219_200_000_000_000);
    page.is_final = true;
    page.method = "GET".into();
    page.attempt = 1;
    page.version = Some(HttpVersion::Http11);
    page.remote = Some(SocketAddr::from(([203, 0, 113, 7], 443)));
    page.local = Some(SocketAddr::from(([192, 0, 2, 1], 40_112)));
    page.links = Some(40);
    page.scopes = vec![String::new()];
    page
}

/// Makes the page that of a request: 5000 depart each second, and a host is visited in every round.
fn change(page: &mut Page, number: u64, hosts: u64) {
    let (host, round) = (number % hosts, number / hosts);
    page.id = number + 1;
    page.depth = round as u32;
    page.scopes[0] = format!("www.domain-{host}.test");
    page.url = format!("https://www.domain-{host}.test/section/{round}/page-{number}.html");
    let started = Instant::from_nanos(number * 200_000);
    let after = |micros: u64| started + Duration::from_micros(micros);
    let latency = 20_000 + number.wrapping_mul(2_654_435_761) % 400_000;
    let timings = &mut page.timings;
    timings.started = started;
    timings.due = Some(started);
    timings.dns = Some(after(9_000));
    timings.connect = Some(Stamp::exact(after(18_000)));
    timings.secured = Some(Stamp::exact(after(31_000)));
    timings.tls_took = Some(Duration::from_micros(12_000));
    timings.ready = Some(after(31_010));
    timings.sent = Some(after(31_050));
    let is_error = number.is_multiple_of(20);
    page.failure = is_error.then(|| Failure::new(FailureKind::Timeout, "first_byte", "no reply"));
    page.status = (!is_error).then_some(200);
    let reply = |micros: u64| (!is_error).then(|| Stamp::exact(after(micros)));
    page.timings.first_byte = reply(31_050 + latency);
    page.timings.headers = reply(31_090 + latency);
    page.timings.body = reply(40_000 + latency);
    page.tls = Some(TlsInfo::new(TlsVersion::Tls13, "TLS13_AES_128_GCM_SHA256"));
    page.content_type = (!is_error).then(|| "text/html; charset=utf-8".to_owned());
    page.bytes_wire = 8_000 + number % 50_000;
    page.delay = Some(Duration::from_secs(u64::from(round > 0)));
}

fn peak_memory(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024)
}

/// Processor time of a process so far. The kernel counts it in hundredths of a second.
fn processor_seconds(id: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks = ticks.map(|field| field.parse::<u64>().ok());
    Some(ticks.sum::<Option<u64>>()? as f64 / 100.0)
}
