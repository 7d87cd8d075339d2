//! Bodies that a sink streams, skips or cancels, over loopback.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use argiope::testkit::http::Step;
use argiope::testkit::server;
use argiope::{BodyMode, Crawler, FinishReason, Flow, Page, Reply, Request, Resume, Sink, Turn};

use crate::loopback::{Reply as Answer, Server};

/// Most pieces in a channel.
const PIECES: usize = 16;
/// Most bytes of a piece.
const PIECE_MAX: usize = 64 << 10;

/// Calls that a sink has received.
#[derive(Default)]
struct SinkRecord {
    ended: Vec<Page>,
    /// Bytes that did not fit into the channel yet; `over_max` is their maximum.
    over: Vec<u8>,
    over_max: usize,
    resume: Option<Resume>,
}

/// Selects the body mode by the path of the page.
struct ByPath {
    record: Arc<Mutex<SinkRecord>>,
    pieces: SyncSender<Vec<u8>>,
}

fn lock(record: &Mutex<SinkRecord>) -> MutexGuard<'_, SinkRecord> {
    record.lock().expect("no test panics while holding it")
}

impl Sink for ByPath {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        let body_mode = match reply.url.rsplit('/').next() {
            Some("taken") => BodyMode::Take,
            Some("skipped") => BodyMode::Skip,
            Some("cancelled") => BodyMode::Cancel,
            _ => BodyMode::Keep,
        };
        if body_mode == BodyMode::Take {
            assert_eq!((reply.status, reply.tag), (200, 7));
            assert_eq!(reply.headers.get("x-kind"), Some(&b"long"[..]));
            lock(&self.record).resume = Some(reply.resume());
        }
        body_mode
    }

    fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
        assert!(!piece.is_empty());
        let mut record = lock(&self.record);
        if record.over.is_empty() {
            match self.pieces.try_send(piece.to_vec()) {
                Ok(()) => return Flow::Ready,
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => panic!("the reader lives"),
            }
        }
        record.over.extend_from_slice(piece);
        record.over_max = record.over_max.max(record.over.len());
        Flow::Full
    }

    fn put(&mut self, page: &mut Page) {
        lock(&self.record).ended.push(std::mem::take(page));
    }
}

fn crawler(server: &Server) -> (Crawler, Arc<Mutex<SinkRecord>>, Receiver<Vec<u8>>) {
    let record: Arc<Mutex<SinkRecord>> = Arc::default();
    let (pieces, reader) = sync_channel(PIECES);
    let sink = ByPath {
        record: Arc::clone(&record),
        pieces,
    };
    let config = server.config().with("DOWNLOAD_MAXSIZE", "1MiB");
    let config = config.and_then(|config| config.with("RETRY_TIMES", 2));
    let crawler = Crawler::builder(config.expect("a size")).sink(sink).build();
    (crawler.expect("a crawler"), record, reader)
}

/// A body without repetitions, so that lost or duplicated parts are detected.
fn long_body(bytes: usize) -> String {
    let numbers = (0_u64..).map(|number| format!("{number:015}\n"));
    numbers.take(bytes / 16).collect()
}

#[test]
fn a_long_body_is_streamed_at_the_speed_of_its_sink() {
    let body = long_body(24 << 20);
    let sent = body.clone();
    let server = Server::start(move |asked| match asked.target.as_str() {
        "/taken" => Answer::page(&sent).field("X-Kind", "long"),
        _ => Answer::page("short"),
    });
    let (mut crawler, record, reader) = crawler(&server);
    crawler
        .submit(Request::get("http://a.test/taken").tag(7))
        .expect("a sound seed");
    // On another host, so that it does not wait for the held body.
    crawler
        .submit(Request::get("http://b.test/short"))
        .expect("a sound seed");

    let others = Arc::clone(&record);
    let reads = thread::spawn(move || {
        let mut whole = Vec::new();
        // Reads nothing until the other page has arrived: by then the long body is held, or will be soon.
        while lock(&others).ended.is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        loop {
            match reader.recv_timeout(Duration::from_millis(20)) {
                Ok(piece) => whole.extend(piece),
                Err(_) => {
                    let mut record = lock(&others);
                    whole.append(&mut record.over);
                    if record.ended.len() == 2 {
                        return whole;
                    }
                    if let Some(resume) = &record.resume {
                        resume.resume();
                    }
                }
            }
        }
    });
    let mut buffered = 0;
    while crawler.turn(None) == Turn::GoesOn {
        buffered = buffered.max(crawler.progress().buffered);
    }
    let whole = reads.join().expect("it reads to the end");
    assert!(
        whole == body.as_bytes(),
        "{} of {}",
        whole.len(),
        body.len()
    );

    let record = lock(&record);
    assert_eq!(record.ended[0].body, b"short");
    let taken = &record.ended[1];
    assert_eq!(taken.failure, None);
    assert_eq!(
        (taken.bytes_taken, taken.truncated),
        (body.len() as u64, None)
    );
    assert!(taken.body.is_empty() && taken.digest().is_none());
    assert!(record.over_max > 0, "it was held");
    assert!(record.over_max <= PIECE_MAX, "{}", record.over_max);
    assert!(buffered <= 1 << 20, "{buffered}");
}

#[test]
fn an_unwanted_body_is_skipped_and_its_connection_reused() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/skipped" => Answer::page("x".repeat(100_000)),
        _ => Answer::page("kept"),
    });
    let (mut crawler, record, _reader) = crawler(&server);
    for path in ["skipped", "next"] {
        let url = format!("http://a.test/{path}");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    crawler.run();
    let record = lock(&record);
    let [skipped, next] = &record.ended[..] else {
        panic!("two pages");
    };
    assert_eq!((skipped.status, &skipped.failure), (Some(200), &None));
    assert!(skipped.body.is_empty() && skipped.raw_body().is_empty());
    assert!(skipped.bytes_wire > 100_000);
    assert_eq!(next.body, b"kept");
    assert!(next.reused);
}

#[test]
fn a_reply_cancelled_by_the_sink_is_not_retried() {
    let server = Server::start(|asked| match asked.target.as_str() {
        "/cancelled" => Answer::page("x".repeat(8 << 20)),
        _ => Answer::page("kept"),
    });
    let (mut crawler, record, _reader) = crawler(&server);
    for path in ["cancelled", "next"] {
        let url = format!("http://a.test/{path}");
        crawler.submit(Request::get(url)).expect("a sound seed");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    let record = lock(&record);
    let [cancelled, next] = &record.ended[..] else {
        panic!("two pages");
    };
    let failure = cancelled.failure.as_ref().expect("a failure");
    assert_eq!(
        (failure.kind.as_str(), failure.name),
        ("cancelled", "by_sink")
    );
    assert!(cancelled.is_final && cancelled.bytes_wire < 1 << 20);
    assert_eq!(next.body, b"kept");
    assert!(!next.reused);
}

/// Takes every body, one piece at a time.
#[derive(Default)]
struct PieceByPiece {
    whole: Vec<u8>,
    longest: usize,
    /// Whether it is full since the last piece.
    is_full: bool,
    after_full: usize,
    resume: Option<Resume>,
    ended: Vec<Page>,
}

#[derive(Clone, Default)]
struct OneAtATime(Arc<Mutex<PieceByPiece>>);

impl Sink for OneAtATime {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        self.0.lock().expect("no test panics").resume = Some(reply.resume());
        BodyMode::Take
    }

    fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
        let mut record = self.0.lock().expect("no test panics");
        if record.is_full {
            record.after_full += piece.len();
        }
        record.is_full = true;
        record.longest = record.longest.max(piece.len());
        record.whole.extend_from_slice(piece);
        Flow::Full
    }

    fn put(&mut self, page: &mut Page) {
        let mut record = self.0.lock().expect("no test panics");
        record.ended.push(std::mem::take(page));
    }
}

/// A server that sends this reply to every request, and then closes the connection.
fn answers_with(reply: Vec<u8>) -> server::Server {
    server::Server::start(move |_| vec![Step::Send(reply.clone()), Step::Close])
}

#[test]
fn an_expanding_body_is_streamed_and_stops_when_the_sink_is_full() {
    // The noise keeps the ratio of expansion within the limit, although the zeros alone exceed it. All of
    // these arrive in one read.
    let mut body = noise(256 << 10);
    body.resize(body.len() + (8 << 20), 0);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&body).expect("a vector takes every byte");
    let coded = encoder.finish().expect("a vector takes every byte");
    for (io, length) in [("epoll", true), ("epoll", false), ("uring", false)] {
        let mut reply = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n".to_vec();
        if length {
            reply.extend(format!("Content-Length: {}\r\n", coded.len()).bytes());
        }
        reply.extend(b"\r\n");
        reply.extend(&coded);
        let server = Server::start(|_| Answer::page("never requested"));
        let raw = answers_with(reply);
        let here = format!("*:80:{}", raw.address());
        let config = server.config().with("RESOLVE", here);
        let config = config
            .and_then(|config| config.with("IO", io))
            .expect("sound");
        let sink = OneAtATime::default();
        let record = Arc::clone(&sink.0);
        let crawler = Crawler::builder(config).sink(sink).build();
        let Ok(mut crawler) = crawler else {
            assert_eq!(io, "uring", "only this one may be missing");
            continue;
        };
        crawler
            .submit(Request::get("http://a.test/"))
            .expect("a sound seed");
        let mut turns = 0;
        while crawler.turn(Some(Duration::from_millis(1))) == Turn::GoesOn {
            let mut record = record.lock().expect("no test panics");
            turns = if record.is_full { turns + 1 } else { turns };
            // No piece arrives in the turns in between.
            if turns == 3 {
                (record.is_full, turns) = (false, 0);
                record.resume.as_ref().expect("a head came").resume();
            }
            let buffered = crawler.progress().buffered;
            assert!(buffered <= 1 << 20, "{buffered} bytes are buffered");
        }
        let record = record.lock().expect("no test panics");
        assert_eq!(record.ended[0].failure, None, "{io} {length}");
        assert!(
            record.whole == body,
            "{} bytes of {}",
            record.whole.len(),
            body.len()
        );
        assert_eq!(
            (record.longest, record.after_full),
            (PIECE_MAX, 0),
            "{io} {length}"
        );
    }
}

/// Bytes that no coding can compress.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// A sink that takes the bodies of `/taken` in pieces, and is full after each piece. Keeps the handles
/// that resume them.
#[derive(Clone, Default)]
struct NeverReady {
    ended: Arc<Mutex<Vec<String>>>,
    resumes: Arc<Mutex<Vec<Resume>>>,
}

impl Sink for NeverReady {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        if !reply.url.ends_with("/taken") {
            return BodyMode::Keep;
        }
        self.resumes.lock().expect("whole").push(reply.resume());
        BodyMode::Take
    }

    fn on_body(&mut self, _id: u64, _piece: &[u8]) -> Flow {
        Flow::Full
    }

    fn put(&mut self, page: &mut Page) {
        self.ended.lock().expect("whole").push(page.url.clone());
    }
}

#[test]
fn a_connection_is_reused_after_a_body_that_ended_while_the_sink_was_full() {
    for io in ["epoll", "uring"] {
        let server = Server::start(|_| Answer::page("a short body"));
        let config = server.config().with("IO", io).expect("it is one");
        let sink = NeverReady::default();
        let mut crawler = Crawler::builder(config)
            .sink(sink.clone())
            .build()
            .expect("a crawler");
        for path in ["taken", "next"] {
            let url = format!("http://a.test/{path}");
            crawler.submit(Request::get(url)).expect("it is a URL");
        }
        assert_eq!(crawler.run(), FinishReason::Finished);
        let ended = sink.ended.lock().expect("whole");
        assert_eq!(*ended, ["http://a.test/taken", "http://a.test/next"]);
        assert_eq!(crawler.stats().connections, 1, "{io}");
    }
}

#[test]
fn streamed_bodies_do_not_count_towards_kept_bodies() {
    let (long, page) = ("x".repeat(1 << 20), "y".repeat(200 << 10));
    let server = Server::start(move |asked| match asked.target.as_str() {
        "/taken" => Answer::page(&long),
        _ => Answer::page(&page),
    });
    let config = server.config().with("DOWNLOAD_MAXSIZE", "256KiB");
    let config = config.and_then(|config| config.with("BUFFERED_BODIES_MAX", "256KiB"));
    let sink = NeverReady::default();
    let mut crawler = Crawler::builder(config.expect("sizes"))
        .sink(sink.clone())
        .build()
        .expect("a crawler");
    for number in 0..3 {
        let taken = Request::get(format!("http://held-{number}.test/taken"));
        crawler.submit(taken).expect("it is a URL");
    }
    for number in 0..6 {
        let kept = Request::get(format!("http://kept-{number}.test/kept"));
        crawler.submit(kept).expect("it is a URL");
    }
    let ended = || sink.ended.lock().expect("whole").len();
    while ended() < 6 {
        assert_eq!(crawler.turn(None), Turn::GoesOn);
    }
    // Resumes the held bodies piece by piece.
    while ended() < 9 {
        for resume in &*sink.resumes.lock().expect("whole") {
            resume.resume();
        }
        assert_eq!(crawler.turn(None), Turn::GoesOn);
    }
}
