//! Durations of a request's phases, measured by a loop that handles every event late: on epoll, on
//! io_uring, and in the simulation, where they are exact to the nanosecond.

#[path = "../src/base/loud.rs"]
mod loud;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use argiope::fetch::resolver::{self, Families};
use argiope::io::sim::{Answer, ConnId, Faults, Net, Sim, World};
use argiope::io::{
    Accepted, Chunk, Close, Endpoint, Epoll, Event, Io, IoSettings, Token, Uring, Waker, WorkerJob,
};
use argiope::probe::{Length, Measure, Probe, ProbeReport, ProbeSettings};
use argiope::testkit::dns;
use argiope::testkit::server::{Acceptor, loopback};
use argiope::{Config, DiskJob, FinishReason, Instant, IoKind, Page, Request, Wall};

/// The phases that are measured.
const MEASURES: [Measure; 4] = [
    Measure::Dns,
    Measure::Connect,
    Measure::FirstByte,
    Measure::Body,
];
/// By how much the loop handles each event late.
const STALL: Duration = Duration::from_millis(4);
/// Round trip of the simulated network.
const ROUND_TRIP: Duration = Duration::from_millis(8);
/// Time until a name server answers.
const LOOKUP: Duration = Duration::from_millis(30);
/// Time until a server sends the head.
const HEAD: Duration = Duration::from_millis(20);
/// Time from there to the rest of the body.
const BODY: Duration = Duration::from_millis(10);
/// Time from there to the end of the connection, which alone ends the body.
const END: Duration = Duration::from_millis(15);

/// A back end whose thread is stalled before each connect, before each submission of sends, and before
/// each wait for events.
struct Late<I> {
    io: I,
    /// Lets time pass. Events of a simulation meanwhile are reported later.
    pass: fn(&mut I, Duration, &mut Vec<Event>),
    queued_events: Vec<Event>,
    has_queued: bool,
}

impl<I: Io> Late<I> {
    fn new(io: I, pass: fn(&mut I, Duration, &mut Vec<Event>)) -> Self {
        Late {
            io,
            pass,
            queued_events: Vec::new(),
            has_queued: false,
        }
    }

    fn stall(&mut self) {
        (self.pass)(&mut self.io, STALL, &mut self.queued_events);
    }
}

impl<I: Io> Io for Late<I> {
    fn kind(&self) -> IoKind {
        self.io.kind()
    }

    fn now(&self) -> Instant {
        self.io.now()
    }

    fn wall_at_start(&self) -> Wall {
        self.io.wall_at_start()
    }

    fn capacity(&self) -> usize {
        self.io.capacity()
    }

    fn connect(&mut self, token: Token, to: SocketAddr) {
        self.stall();
        self.io.connect(token, to);
    }

    fn local(&self, token: Token) -> Option<SocketAddr> {
        self.io.local(token)
    }

    fn open_datagram(&mut self, token: Token, to: SocketAddr) {
        self.io.open_datagram(token, to);
    }

    fn listen(&mut self, token: Token, at: &Endpoint) -> io::Result<()> {
        self.io.listen(token, at)
    }

    fn accept(&mut self, token: Token, accepted: Accepted) {
        self.io.accept(token, accepted);
    }

    fn send(&mut self, token: Token, bytes: &[u8], mark: bool) {
        self.has_queued = true;
        self.io.send(token, bytes, mark);
    }

    fn set_reading(&mut self, token: Token, on: bool) {
        self.io.set_reading(token, on);
    }

    fn unsent(&self, token: Token) -> usize {
        self.io.unsent(token)
    }

    fn has_unread(&self, token: Token) -> bool {
        self.io.has_unread(token)
    }

    fn close(&mut self, token: Token, how: Close) {
        for event in std::mem::take(&mut self.queued_events) {
            match event {
                Event::Received {
                    token: whose,
                    chunk,
                    ..
                } if whose == token => self.io.release(chunk),
                event if event.token() == Some(token) => {}
                event => self.queued_events.push(event),
            }
        }
        self.io.close(token, how);
    }

    fn compute(&mut self, job: WorkerJob) {
        self.io.compute(job);
    }

    fn disk(&mut self, job: DiskJob) {
        self.io.disk(job);
    }

    fn submit(&mut self) {
        if std::mem::take(&mut self.has_queued) {
            self.stall();
        }
        self.io.submit();
    }

    fn wait(&mut self, _: Option<Instant>, events: &mut Vec<Event>) {
        self.stall();
        events.append(&mut self.queued_events);
        self.io.wait(Some(self.io.now()), events);
    }

    fn queued_events(&self) -> &[Event] {
        self.io.queued_events()
    }

    fn has_pending(&self) -> bool {
        !self.queued_events.is_empty() || self.io.has_pending()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.io.as_fd()
    }

    fn arm(&mut self, until: Option<Instant>) {
        self.io.arm(until);
    }

    fn waker(&self) -> Waker {
        self.io.waker()
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        self.io.bytes(chunk)
    }

    fn release(&mut self, chunk: Chunk) {
        self.io.release(chunk);
    }
}

/// Reads no event of the kernel in the meantime.
fn sleep<I>(_: &mut I, span: Duration, _: &mut Vec<Event>) {
    thread::sleep(span);
}

/// Runs the simulation, whose events keep their stamps.
fn pass(sim: &mut Sim, span: Duration, queued_events: &mut Vec<Event>) {
    let until = sim.now() + span;
    while sim.now() < until {
        sim.wait(Some(until), queued_events);
    }
}

/// The reply of a name server that knows this address for every name.
fn answer(query: &[u8], address: [u8; 4]) -> Vec<u8> {
    let reply = dns::reply(query, |_| dns::Answer::Address(address.into()));
    reply.expect("it is a query")
}

const FIRST: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nto the";
const REST: &[u8] = b" end";

/// The servers in virtual time.
struct Simulated;

impl World for Simulated {
    fn distance(&mut self, _: SocketAddr, _: &mut argiope::base::rng::Rng) -> Duration {
        ROUND_TRIP
    }

    fn connect(&mut self, _: ConnId, _: SocketAddr, _: &mut Net) -> Answer {
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, _: &[u8], net: &mut Net) {
        net.reply(conn, HEAD, FIRST);
        net.reply(conn, HEAD + BODY, REST);
        net.end(conn, HEAD + BODY + END);
    }

    fn datagram(&mut self, socket: ConnId, _: SocketAddr, query: &[u8], net: &mut Net) {
        net.reply(socket, LOOKUP, &answer(query, [10, 0, 0, 1]));
    }
}

fn simulation() -> Late<Sim> {
    let faults = Faults {
        piece_bytes_max: 1 << 20,
        piece_gap_max: Duration::ZERO,
        ..Faults::default()
    };
    let sim = Sim::with(1, IoSettings::default(), faults, Box::new(Simulated));
    Late::new(sim, pass)
}

/// The servers on loopback: one for pages, one for names.
struct Servers {
    pages: Acceptor,
    names: SocketAddr,
    /// The spans as the servers measure them; longer on a busy machine.
    took: Took,
}

type Took = Arc<Mutex<Vec<(Measure, Duration)>>>;

impl Servers {
    fn start() -> Self {
        let took = Took::default();
        let taken = Arc::clone(&took);
        let pages = Acceptor::start(loopback(), move |stream, _| serve_page(stream, &taken));
        let taken = Arc::clone(&took);
        // Answers one query at a time: the interval of queries is four times the time of an answer.
        let names = dns::serve(move |_| {
            wait(Measure::Dns, LOOKUP, &taken);
            dns::Answer::Address(Ipv4Addr::LOCALHOST)
        });
        Servers { pages, names, took }
    }

    /// The median, in milliseconds.
    fn took(&self, measure: Measure) -> f64 {
        let took = self.took.lock().expect("no server panics");
        let spans = took.iter().filter(|(of, _)| *of == measure);
        let mut spans: Vec<_> = spans.map(|(_, span)| *span).collect();
        spans.sort_unstable();
        // No span was recorded of TCP's handshake, which the servers do not see.
        let median = spans.get(spans.len() / 2).copied().unwrap_or_default();
        median.as_secs_f64() * 1e3
    }
}

fn serve_page(mut stream: TcpStream, taken: &Took) -> std::io::Result<()> {
    let _ = stream.read(&mut [0; 4096])?;
    wait(Measure::FirstByte, HEAD, taken);
    stream.write_all(FIRST)?;
    wait(Measure::Body, BODY, taken);
    stream.write_all(REST)?;
    thread::sleep(END);
    Ok(())
}

fn wait(measure: Measure, span: Duration, taken: &Took) {
    let began = std::time::Instant::now();
    thread::sleep(span);
    let took = (measure, began.elapsed());
    taken.lock().expect("no server panics").push(took);
}

/// The report of a probe that requests each of these URLs once.
fn probe<I: Io>(io: I, names: SocketAddr, rate: f64, urls: &[String]) -> ProbeReport {
    let names = resolver::ResolverSettings {
        servers: vec![names],
        families: Families::V4,
        ..resolver::ResolverSettings::default()
    };
    let config = Config::default().with("ALLOW_NET", "loopback,10.0.0.0/8");
    let mut settings = ProbeSettings::default();
    settings.rate = rate;
    settings.length = Some(Length::Requests(urls.len() as u64));
    let targets: Vec<_> = urls.iter().map(Request::get).collect();
    let config = config.expect("these settings are sound");
    let mut probe = Probe::on(io, names, config, settings, &targets, |_: Page| {});
    let probe = probe.as_mut().expect("it can be set up");
    assert_eq!(probe.run(), FinishReason::Finished);
    let report = probe.report();
    assert_eq!(report.replies, urls.len() as u64, "{:?}", report.by_error);
    // `stats.json` has the same phases.
    for (name, spread) in &probe.crawler().stats().phases {
        let named = |measure: &Measure| measure.as_str() == name.as_str();
        let measure = MEASURES.into_iter().find(named);
        if let Some(measure) = measure {
            let medians = [spread, report.spread(measure)].map(|spread| spread.quantile(0.5));
            assert_eq!(medians[0], medians[1], "{name}");
        }
    }
    report
}

/// URLs on this many hosts, each with a lookup of its own.
fn urls(count: usize, port: u16) -> Vec<String> {
    let url = |n| format!("http://n{n}.test:{port}/");
    (0..count).map(url).collect()
}

/// A percentile in milliseconds.
fn millis(report: &ProbeReport, measure: Measure, share: f64) -> f64 {
    let spread = report.spread(measure);
    spread
        .quantile(share)
        .expect("it was measured")
        .as_secs_f64()
        * 1e3
}

#[test]
fn a_late_loop_measures_every_phase_exactly() {
    let names = SocketAddr::from(([10, 53, 53, 53], 53));
    let report = probe(simulation(), names, 5.0, &urls(20, 80));
    let spans = [ROUND_TRIP + LOOKUP, ROUND_TRIP, ROUND_TRIP + HEAD, BODY];
    for (measure, took) in MEASURES.into_iter().zip(spans) {
        assert_eq!(report.spread(measure).count(), 20);
        let took = took.as_secs_f64() * 1e3;
        for share in [0.0, 1.0] {
            let taken = millis(&report, measure, share);
            let name = measure.as_str();
            // A distribution has a precision of three digits.
            assert!(
                (taken / took - 1.0).abs() < 1e-3,
                "{name}: {taken}, not {took} ms"
            );
        }
    }
    // The loop was late at least for the query, the connection and the request.
    assert!(millis(&report, Measure::Wait, 0.0) >= 4.0);
    let set_up = millis(&report, Measure::Due, 0.0) - millis(&report, Measure::Sent, 1.0);
    assert!(set_up >= (ROUND_TRIP + LOOKUP + ROUND_TRIP).as_millis() as f64 + 12.0);
}

fn a_late_loop_on_the_kernel_measures_every_phase_exactly<I: Io>(io: I) {
    let servers = Servers::start();
    let back_end = io.kind();
    let urls = urls(16, servers.pages.address().port());
    let report = probe(Late::new(io, sleep), servers.names, 8.0, &urls);
    assert!(millis(&report, Measure::Lateness, 0.5) >= 4.0);
    for measure in MEASURES {
        let (taken, took) = (millis(&report, measure, 0.5), servers.took(measure));
        let name = measure.as_str();
        // A busy machine adds to it, but less than one stall.
        assert!(
            (took - 0.5..took + 3.0).contains(&taken),
            "{back_end}, {name}: {taken}, not {took} ms"
        );
    }
}

#[test]
fn a_late_loop_measures_every_phase_on_epoll() {
    let epoll = Epoll::new(IoSettings::default()).expect("a back end");
    a_late_loop_on_the_kernel_measures_every_phase_exactly(epoll);
}

#[test]
fn a_late_loop_measures_every_phase_on_io_uring() {
    match Uring::new(IoSettings::default()) {
        Ok(uring) => a_late_loop_on_the_kernel_measures_every_phase_exactly(uring),
        Err(reason) => loud::skip(reason),
    }
}

#[test]
fn requests_that_share_a_lookup_each_have_their_own_wait() {
    let names = SocketAddr::from(([10, 53, 53, 53], 53));
    let urls = [81, 82].map(|port| format!("http://a.test:{port}/"));
    let report = probe(simulation(), names, 50.0, &urls);
    assert_eq!(report.spread(Measure::Dns).count(), 2);
    let longest = millis(&report, Measure::Dns, 1.0);
    assert!((37.9..38.1).contains(&longest), "{longest} ms");
    // The second request was due 20 ms after the first, and joined its lookup.
    let shortest = millis(&report, Measure::Dns, 0.0);
    assert!((14.0..=22.0).contains(&shortest), "{shortest} ms");
}
