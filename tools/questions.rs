//! Time of each question to the control interface of a crawl with many scopes, and of orders about them: at most
//! 50 ms for one scope, host or URL, and for a list by the crawl's accounts. And the longest turn of the loop meanwhile.
//!
//! ```sh
//! cargo run --release --example questions -- [HOSTS]
//! ```
//!
//! Queues one request to each host, ten million unless given (some 3 GB), in a paused crawl, and asks each question
//! 20 times; each order is given once. Nothing is sent. Prints the median and the greatest time, and the longest turn
//! meanwhile, also in processor time of the loop's thread; exit code 1 if a bound is exceeded.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::{Admin, Config, Crawler, Page, Request};

/// The bound of questions about one thing, and of lists by accounts.
const TIME_MAX: Duration = Duration::from_millis(50);
const HOSTS: u64 = 10_000_000;
const REPEATED: usize = 20;
/// Turns before the first question.
const TURNS_FIRST: u32 = 10_000;

/// Questions with a bound, and those that are searched for in steps.
const BOUNDED: [&str; 6] = [
    "/v1/scopes/h7.example",
    "/v1/hosts/h7.example",
    "/v1/urls/http%3A%2F%2Fh7.example%2F",
    "/v1/urls/http%3A%2F%2Fh7.example%2Fnever",
    "/v1/scopes?sort=sent",
    "/v1/status",
];
const SEARCHED: [&str; 5] = [
    "/v1/queues",
    "/v1/queues?match=none*",
    "/v1/scopes?state=held",
    "/v1/scopes?state=any&match=*77*",
    "/v1/scopes?state=any&match=none*",
];

/// Orders: the method, the path and the body.
const ORDERS: [(&str, &str, &str); 6] = [
    ("PATCH", "/v1/scopes/h7.example", r#"{"delay": 3}"#),
    ("PATCH", "/v1/scopes/*.example", r#"{"delay": 3}"#),
    ("PATCH", "/v1/scopes/default", r#"{"delay": 2}"#),
    ("POST", "/v1/scopes/default/forget", ""),
    ("PUT", "/v1/exclusions/*.example", ""),
    ("PUT", "/v1/exclusions/re%3A%2Fcalendar%2F", ""),
];

/// The longest turn since it was last asked for.
#[derive(Default)]
struct Turns {
    /// In nanoseconds of the clock.
    longest: AtomicU64,
    /// In nanoseconds of processor time.
    longest_worked: AtomicU64,
}

impl Turns {
    fn record(&self, longest: Duration, worked: Duration) {
        let nanos = |span: Duration| span.as_nanos() as u64;
        (self.longest).fetch_max(nanos(longest), Ordering::SeqCst);
        (self.longest_worked).fetch_max(nanos(worked), Ordering::SeqCst);
    }

    /// Describes the longest turn, and forgets it.
    fn take(&self) -> String {
        let taken = |longest: &AtomicU64| Duration::from_nanos(longest.swap(0, Ordering::SeqCst));
        let (longest, worked) = (taken(&self.longest), taken(&self.longest_worked));
        format!("longest turn {longest:.2?}, of which {worked:.2?} of work")
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hosts = match std::env::args().nth(1) {
        Some(text) => text.parse()?,
        None => HOSTS,
    };
    let config = Config::default().with("ROBOTSTXT_OBEY", false)?;
    let mut crawler = Crawler::builder(config).sink(|_: Page| {}).build()?;
    let handle = crawler.handle();
    handle.pause();
    for host in 0..hosts {
        crawler.submit(Request::get(format!("http://h{host}.example/")))?;
        if host % 4096 == 0 {
            crawler.turn(Some(Duration::ZERO));
        }
    }
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("control.sock");
    crawler.serve(Admin::new().socket(&socket))?;
    // What was submitted last is queued in the first turns.
    for _ in 0..TURNS_FIRST {
        crawler.turn(Some(Duration::ZERO));
    }
    let turns = Arc::new(Turns::default());
    let asker = thread::spawn({
        let turns = Arc::clone(&turns);
        move || ask_all(&socket, &turns)
    });
    while !asker.is_finished() {
        let (began, worked) = (Clock::now(), processor_time());
        crawler.turn(Some(Duration::ZERO));
        turns.record(began.elapsed(), processor_time() - worked);
    }
    drop(handle);
    if asker.join().expect("it does not panic") {
        return Err("a bound is exceeded".into());
    }
    Ok(())
}

/// Asks each question some times, and gives each order; returns whether a question takes too long.
fn ask_all(socket: &Path, turns: &Turns) -> bool {
    let mut exceeded = false;
    let bounded = BOUNDED.iter().map(|path| (path, true));
    let searched = SEARCHED.iter().map(|path| (path, false));
    for (path, is_bounded) in bounded.chain(searched) {
        turns.take();
        let asked = (0..REPEATED).map(|_| ask(socket, "GET", path, ""));
        let mut times: Vec<Duration> = asked.collect();
        times.sort_unstable();
        let (median, most) = (times[REPEATED / 2], times[REPEATED - 1]);
        exceeded |= is_bounded && most > TIME_MAX;
        println!(
            "{path}: median {median:.2?}, greatest {most:.2?}; {}",
            turns.take()
        );
        // Lists are kept for a second.
        thread::sleep(Duration::from_millis(1100));
    }
    for (method, path, body) in ORDERS {
        turns.take();
        let took = ask(socket, method, path, body);
        // What is left of it is done in later turns.
        thread::sleep(Duration::from_secs(2));
        println!("{method} {path} {body}: {took:.2?}; {}", turns.take());
    }
    exceeded
}

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    // SAFETY: the call writes one timespec, which is valid for writes and zeroed before.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Duration {
    let began = Clock::now();
    let mut stream = UnixStream::connect(PathBuf::from(socket)).expect("the crawl listens");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream
        .write_all(request.as_bytes())
        .expect("the crawl reads");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the crawl replies");
    let status = reply.get(9..12).unwrap_or_default();
    assert_eq!(
        status,
        b"200",
        "{method} {path}: {}",
        String::from_utf8_lossy(&reply)
    );
    began.elapsed()
}
