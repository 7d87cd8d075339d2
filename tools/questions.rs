//! Time of each question to the control interface of a crawl with many scopes: at most 50 ms for one scope, host or
//! URL, and for a list by the crawl's accounts.
//!
//! ```sh
//! cargo run --release --example questions -- [HOSTS]
//! ```
//!
//! Queues one request to each host, ten million unless given (some 3 GB), in a paused crawl, and asks each question
//! 20 times. Nothing is sent. Prints the median and the greatest time, and the longest turn of the loop meanwhile;
//! exit code 1 if a bound is exceeded.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use argiope::{Admin, Config, Crawler, Page, Request, Turn};

/// The bound of questions about one thing, and of lists by accounts.
const TIME_MAX: Duration = Duration::from_millis(50);
const HOSTS: u64 = 10_000_000;
const REPEATED: usize = 20;

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
    let is_over = Arc::new(AtomicBool::new(false));
    let asker = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let exceeded = ask_all(&socket);
            is_over.store(true, Ordering::SeqCst);
            exceeded
        }
    });
    // What was submitted last is queued in the first turns.
    while crawler.turn(Some(Duration::ZERO)) == Turn::GoesOn {}
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::SeqCst) {
        let began = Clock::now();
        let turn = crawler.turn(Some(Duration::ZERO));
        longest = longest.max(began.elapsed());
        if turn != Turn::GoesOn {
            thread::sleep(Duration::from_micros(50));
        }
    }
    println!("longest turn: {longest:.2?}");
    drop(handle);
    if asker.join().expect("it does not panic") {
        return Err("a bound is exceeded".into());
    }
    Ok(())
}

/// Asks each question some times; returns whether one takes too long.
fn ask_all(socket: &Path) -> bool {
    let mut exceeded = false;
    let bounded = BOUNDED.iter().map(|path| (path, true));
    let searched = SEARCHED.iter().map(|path| (path, false));
    for (path, is_bounded) in bounded.chain(searched) {
        let mut times: Vec<Duration> = (0..REPEATED).map(|_| ask(socket, path)).collect();
        times.sort_unstable();
        let (median, most) = (times[REPEATED / 2], times[REPEATED - 1]);
        exceeded |= is_bounded && most > TIME_MAX;
        println!("{path}: median {median:.2?}, greatest {most:.2?}");
        // Lists are kept for a second.
        thread::sleep(Duration::from_millis(1100));
    }
    exceeded
}

fn ask(socket: &Path, path: &str) -> Duration {
    let began = Clock::now();
    let mut stream = UnixStream::connect(PathBuf::from(socket)).expect("the crawl listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("the crawl reads");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the crawl replies");
    let status = reply.get(9..12).unwrap_or_default();
    assert_eq!(
        status,
        b"200",
        "{path}: {}",
        String::from_utf8_lossy(&reply)
    );
    began.elapsed()
}
