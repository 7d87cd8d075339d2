//! Memory for a body with a slow sink, in virtual time: 8 GiB take seconds.
//! `cargo test --test long_body -- --nocapture` shows the figures.

#[expect(dead_code, reason = "how often memory was asked for is others' affair")]
mod counting;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use argiope::base::rng::Rng;
use argiope::base::shared::Shared;
use argiope::crawl::{Crawler, Parts, Turn};
use argiope::fetch::resolver::ResolverSettings;
use argiope::io::Io;
use argiope::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use argiope::{BodyMode, Config, DiskSink, Flow, Instant, Page, Reply, Request, Resume, Sink};
use counting::{Counting, held, held_most};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes per second that the sink takes.
const RATE: f64 = 1e6;
/// Bytes that the sink has room for.
const QUEUE: usize = 256 << 10;
/// Bytes that the kernel has room for, on our side of a connection.
const WINDOW: usize = 256 << 10;
/// Interval in which the server checks for room.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// Most memory for such a body: the crawl's buffers, the simulated kernel's, and all else.
const HELD_MAX: isize = 8 << 20;

#[test]
fn eight_gigabytes_into_a_slow_sink_need_a_few_buffers() {
    check(8 << 30);
}

#[test]
fn expanding_bodies_do_not_block_other_pages() {
    const LENGTH: usize = 32 << 20;
    const ENOUGH: usize = 1 << 20;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder
        .write_all(&vec![0; LENGTH])
        .expect("a vector takes every byte");
    let coded = encoder.finish().expect("a vector takes every byte");
    assert!(coded.len() < 64 << 10, "it comes in one read");
    let sink = Ready::default();
    let (taken, before) = (sink.taken.clone(), sink.taken_before.clone());
    let mut crawler = crawler(Both { coded }, Duration::ZERO, sink);
    for url in ["http://10.0.0.1/coded", "http://10.0.0.2/short"] {
        crawler.submit(Request::get(url)).expect("it is a URL");
    }
    let mut turn_most = 0;
    loop {
        let then = taken.get();
        let turn = crawler.turn(None);
        turn_most = turn_most.max(taken.get() - then);
        if turn != Turn::GoesOn {
            break;
        }
    }
    assert_eq!(taken.get(), LENGTH);
    // A body may be read twice in a turn: when it arrives, and when it resumes at the end of the turn.
    // The last piece of each may exceed the limit.
    assert!(
        turn_most <= 2 * (ENOUGH + PIECE_MAX),
        "{turn_most} bytes in a turn"
    );
    assert!(
        before.get() <= ENOUGH + PIECE_MAX,
        "{} bytes before the other page",
        before.get()
    );
}

/// Two servers with the same round trip, which answer at the same moment: one with this body, one with a
/// short page.
struct Both {
    coded: Vec<u8>,
}

impl World for Both {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        Duration::from_millis(10)
    }

    fn connect(&mut self, _conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Answer {
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let (coding, body) = match bytes.starts_with(b"GET /coded ") {
            true => ("Content-Encoding: gzip\r\n", &self.coded[..]),
            false => ("", &b"short"[..]),
        };
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\n{coding}Content-Length: {length}\r\n\r\n");
        net.reply(conn, Duration::ZERO, &[head.as_bytes(), body].concat());
    }
}

/// A sink that always has room.
#[derive(Clone, Default)]
struct Ready {
    taken: Shared<usize>,
    /// Bytes of the long body that it had taken when the short page arrived.
    taken_before: Shared<usize>,
}

impl Sink for Ready {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        match reply.url.ends_with("/coded") {
            true => BodyMode::Take,
            false => BodyMode::Keep,
        }
    }

    fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
        *self.taken.borrow_mut() += piece.len();
        Flow::Ready
    }

    fn put(&mut self, page: &mut Page) {
        assert_eq!(page.failure, None);
        if page.url.ends_with("/short") {
            self.taken_before.set(self.taken.get());
        }
    }
}

/// A crawl of these servers.
fn crawler(
    world: impl World + 'static,
    piece_gap_max: Duration,
    sink: impl DiskSink + 'static,
) -> Crawler<Sim> {
    let config = Config::default().with("ROBOTSTXT_OBEY", false);
    let config = config
        .expect("a truth value")
        .with("ALLOW_NET", "10.0.0.0/8");
    let config = config
        .expect("a network")
        .with("DOWNLOAD_TIMEOUT", "1d")
        .expect("a time");
    let config = config.with("DECODED_RATIO_MAX", 2000).expect("a number");
    let config = config.finish().expect("settings that can be");
    let faults = Faults {
        piece_bytes_max: PIECE_MAX,
        piece_gap_max,
        ..Faults::default()
    };
    let sim = Sim::with(1, config.io().clone(), faults, Box::new(world));
    let names = ResolverSettings::default();
    Crawler::on(sim, config, names, Parts::new(sink)).expect("a crawl that can begin")
}

/// Fetches a body of this length.
fn check(length: u64) {
    let pattern = pattern();
    let endless = Endless {
        length,
        pattern: Arc::clone(&pattern),
        sent: BTreeMap::new(),
    };
    let record = Shared::new(SinkRecord::default());
    let sink = Slow {
        record: record.clone(),
        pattern,
    };
    let mut crawler = crawler(endless, Duration::from_micros(200), sink);
    let request = Request::get("http://10.0.0.1/endless");
    crawler.submit(request).expect("it is a URL");

    let before = held();
    counting::forget_most();
    let mut buffered = 0;
    let mut then = crawler.io().now();
    loop {
        let patience = record.borrow().patience();
        let turn = crawler.turn(Some(patience));
        buffered = buffered.max(crawler.progress().buffered);
        let now = crawler.io().now();
        record.borrow_mut().pass(now.saturating_since(then));
        then = now;
        if turn != Turn::GoesOn {
            break;
        }
    }
    let most = held_most() - before;
    let took = then.saturating_since(Instant::START).as_secs_f64();
    println!(
        "{length} bytes in {took:.0} s of virtual time: {most} bytes at the most, \
         {buffered} of them in the crawl's own books"
    );
    let record = record.borrow();
    let page = record.page.as_ref().expect("it ended");
    assert_eq!((&page.failure, page.bytes_taken), (&None, length));
    assert_eq!(record.taken, length);
    let least = length as f64 / RATE;
    assert!((least * 0.99..least * 1.05).contains(&took), "{took} s");
    assert!(most <= HELD_MAX, "{most} bytes");
}

/// A server of one body, which is generated while it is sent.
struct Endless {
    length: u64,
    pattern: Arc<[u8]>,
    /// Bytes sent on each connection with a request.
    sent: BTreeMap<ConnId, u64>,
}

impl World for Endless {
    fn connect(&mut self, _conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Answer {
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        assert!(bytes.ends_with(b"\r\n\r\n"), "a request is short");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", self.length);
        net.reply(conn, Duration::ZERO, head.as_bytes());
        self.sent.insert(conn, 0);
        net.alarm(Duration::ZERO, conn.0);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        let conn = ConnId(what);
        let Some(sent) = self.sent.get_mut(&conn) else {
            return;
        };
        let room = WINDOW.saturating_sub(net.unread(conn));
        let left = self.length - *sent;
        let mut room = usize::try_from(left).map_or(room, |left| left.min(room));
        while room > 0 {
            let piece = stretch(&self.pattern, *sent, room.min(PIECE_MAX));
            net.reply(conn, Duration::ZERO, piece);
            *sent += piece.len() as u64;
            room -= piece.len();
        }
        if *sent < self.length {
            net.alarm(LOOKS_EVERY, what);
        }
    }
}

/// A sink that takes [`RATE`] bytes per second.
struct Slow {
    record: Shared<SinkRecord>,
    pattern: Arc<[u8]>,
}

#[derive(Default)]
struct SinkRecord {
    taken: u64,
    /// Bytes that it was given and has not processed.
    level: f64,
    is_full: bool,
    resume: Option<Resume>,
    page: Option<Page>,
}

impl SinkRecord {
    /// Time until it is polled again.
    fn patience(&self) -> Duration {
        Duration::from_secs_f64((self.level / 2.0 / RATE).max(0.001))
    }

    /// Processes bytes for this long.
    fn pass(&mut self, time: Duration) {
        self.level = (self.level - time.as_secs_f64() * RATE).max(0.0);
        if self.is_full && self.level <= QUEUE as f64 / 2.0 {
            self.is_full = false;
            self.resume.as_ref().expect("a head came").resume();
        }
    }
}

impl Sink for Slow {
    fn on_head(&mut self, reply: &Reply<'_>) -> BodyMode {
        self.record.borrow_mut().resume = Some(reply.resume());
        BodyMode::Take
    }

    fn on_body(&mut self, _id: u64, piece: &[u8]) -> Flow {
        let mut record = self.record.borrow_mut();
        assert!(!record.is_full, "it said that it has no room");
        assert!(piece == stretch(&self.pattern, record.taken, piece.len()));
        record.taken += piece.len() as u64;
        record.level += piece.len() as f64;
        record.is_full = record.level >= QUEUE as f64;
        match record.is_full {
            true => Flow::Full,
            false => Flow::Ready,
        }
    }

    fn put(&mut self, page: &mut Page) {
        self.record.borrow_mut().page = Some(std::mem::take(page));
    }
}

/// Most bytes of the body that are generated at once.
const PIECE_MAX: usize = 64 << 10;
/// Period of the body. It is a prime, so that a buffer that is lost or duplicated is detected.
const PERIOD: u64 = 1_000_003;

fn pattern() -> Arc<[u8]> {
    let mut rng = Rng::from_seed(7);
    let once = std::iter::repeat_with(|| rng.below(256) as u8);
    let mut bytes: Vec<u8> = once.take(PERIOD as usize).collect();
    bytes.extend_from_within(..PIECE_MAX);
    bytes.into()
}

/// The bytes of the body from this position on.
fn stretch(pattern: &[u8], from: u64, length: usize) -> &[u8] {
    let start = (from % PERIOD) as usize;
    &pattern[start..start + length]
}
