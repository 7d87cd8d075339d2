//! Asks a crawl for its metrics many times a second.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use argiope::{Admin, Crawler};

use crate::{pin, processors};

/// A thread that scrapes, and its socket.
pub struct Scraper {
    thread: JoinHandle<(u64, Duration)>,
    is_over: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

impl Scraper {
    /// Serves the crawl's control interface, and scrapes it `rate` times a second from now on.
    pub fn start(crawler: &mut Crawler, rate: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the socket");
        let socket = folder.path().join("control.sock");
        crawler
            .serve(Admin::new().socket(&socket))
            .expect("the crawl listens");
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                pin(1 % processors());
                scrape_until(&is_over, &socket, rate)
            }
        });
        Scraper {
            thread,
            is_over,
            _folder: folder,
        }
    }

    /// Ends the thread; returns the number of scrapes and how long the slowest took.
    pub fn stop(self) -> (u64, Duration) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().expect("each scrape is answered")
    }
}

fn scrape_until(is_over: &AtomicBool, socket: &Path, rate: u64) -> (u64, Duration) {
    let began = Instant::now();
    let (mut scrapes, mut longest) = (0, Duration::ZERO);
    let mut kept: Option<UnixStream> = None;
    while !is_over.load(Ordering::SeqCst) {
        let due = Duration::from_secs_f64(scrapes as f64 / rate as f64);
        let asked = Instant::now();
        if let Some(early) = due.checked_sub(asked - began) {
            thread::sleep(early);
            continue;
        }
        let (mut stream, is_last) = match kept.take() {
            Some(stream) => (stream, true),
            None => (UnixStream::connect(socket).expect("it listens"), false),
        };
        scrape(&mut stream);
        kept = (!is_last).then_some(stream);
        longest = longest.max(asked.elapsed());
        scrapes += 1;
    }
    (scrapes, longest)
}

/// One scrape; its reply has a declared length.
fn scrape(stream: &mut UnixStream) {
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut reply = Vec::new();
    let mut block = [0; 16 << 10];
    loop {
        let read = stream.read(&mut block).expect("it answers");
        assert!(read > 0, "it closed the connection");
        reply.extend_from_slice(&block[..read]);
        let is_whole = |length| reply.len() >= length;
        if length_of(&reply).is_some_and(is_whole) {
            assert!(reply.starts_with(b"HTTP/1.1 200"), "it has metrics");
            return;
        }
    }
}

/// Length of a reply, once its head is there.
fn length_of(reply: &[u8]) -> Option<usize> {
    let end = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&reply[..end]).expect("a head is text");
    let mut lines = head.lines();
    let length = lines.find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length:")?
            .trim()
            .parse::<usize>()
            .ok()
    });
    Some(end + length.expect("its length is declared"))
}
