//! Whole probes in virtual time, against a scripted server.

mod settings;
mod targets;
mod waiting;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::probe::*;
use crate::fetch::failure::FailureKind;
use crate::io::Close;
use crate::io::sim::{Answer as Accepts, ConnId, Faults, Net, Sim, World};
use crate::sink::page::Page;
use crate::wire::dns::forge;
use crate::wire::dns::forge::Forge;

/// What a server does with a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Answers after this long.
    Answers(Duration),
    /// Answers at this instant, or at once if it is past.
    AnswersAt(Instant),
    /// Answers with this status after this long.
    Says(u16, Duration),
    /// Resets the connection.
    Resets,
    /// Closes the connection without a reply.
    Ends,
    /// The same after this long.
    EndsAfter(Duration),
    /// Never answers.
    Nothing,
}

type Script = Box<dyn Fn(usize, Instant) -> Does + Send + Sync>;

/// A scripted server, and a record of its requests.
struct Server {
    /// Its reaction to the n-th request and its time of arrival.
    script: Script,
    accepts: Accepts,
    round_trip: Duration,
    lines: BTreeMap<ConnId, Vec<u8>>,
    most_lines: usize,
    opened: usize,
    asked: Vec<(Instant, String)>,
    /// Requests for this path are never answered.
    hangs: Option<&'static str>,
    /// What it says as a name server, by the time.
    names: fn(Instant) -> Names,
}

/// What a name server does with a query.
#[derive(Clone, Copy, Debug)]
enum Names {
    /// Resolves the name to one address, after 40 ms.
    Address,
    /// Says that there is no such name.
    Absent,
    /// Says that it failed.
    Fails,
    /// Does not answer.
    Nothing,
}

impl Server {
    fn new(script: impl Fn(usize, Instant) -> Does + Send + Sync + 'static) -> Self {
        Server {
            script: Box::new(script),
            accepts: Accepts::Accept,
            round_trip: Duration::ZERO,
            lines: BTreeMap::new(),
            most_lines: 0,
            opened: 0,
            asked: Vec::new(),
            hangs: None,
            names: |_| Names::Address,
        }
    }
}

impl World for Server {
    fn distance(&mut self, _to: SocketAddr, _rng: &mut Rng) -> Duration {
        self.round_trip
    }

    fn connect(&mut self, conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Accepts {
        if self.accepts == Accepts::Accept {
            self.lines.insert(conn, Vec::new());
            self.opened += 1;
            self.most_lines = self.most_lines.max(self.lines.len());
        }
        self.accepts
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let unread = self
            .lines
            .get_mut(&conn)
            .expect("bytes arrive on an open connection");
        unread.extend_from_slice(bytes);
        if !unread.ends_with(b"\r\n\r\n") {
            return;
        }
        let head = String::from_utf8(std::mem::take(unread)).expect("requests are text");
        let now = net.now();
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let does = match self.hangs {
            Some(path) if path == target => Does::Nothing,
            _ => (self.script)(self.asked.len(), now),
        };
        self.asked.push((now, target));
        let (status, after) = match does {
            Does::Answers(after) => (200, after),
            Does::AnswersAt(at) => (200, at.saturating_since(now)),
            Does::Says(status, after) => (status, after),
            Does::Resets => return net.reset(conn, Duration::ZERO),
            Does::Ends => return net.end(conn, Duration::ZERO),
            Does::EndsAfter(after) => return net.end(conn, after),
            Does::Nothing => return,
        };
        let reply = format!(
            "HTTP/1.1 {status} So\r\nLocation: /elsewhere\r\nRetry-After: 7\r\n\
             RateLimit-Remaining: 0\r\nRateLimit-Reset: 9\r\nContent-Length: 2\r\n\r\nok"
        );
        net.reply(conn, after, reply.as_bytes());
    }

    fn closed(&mut self, conn: ConnId, _how: Close, _net: &mut Net) {
        self.lines.remove(&conn);
    }

    /// As a name server.
    fn datagram(&mut self, socket: ConnId, _to: SocketAddr, query: &[u8], net: &mut Net) {
        let (name, kind) = forge::question_of(query);
        let reply = match ((self.names)(net.now()), kind) {
            (Names::Address, 1) => Forge::reply_to(query).address(&name, 3600, "10.0.0.1"),
            (Names::Address, _) => Forge::reply_to(query).soa("test", 60, 60),
            (Names::Absent, _) => Forge::reply_to(query).rcode(3).soa("test", 3600, 3600),
            (Names::Fails, _) => Forge::reply_to(query).rcode(2),
            (Names::Nothing, _) => return,
        };
        net.reply(socket, ms(40), &reply.bytes());
    }
}

/// A probe that has ended.
struct Ended {
    reason: FinishReason,
    report: ProbeReport,
    pages: Vec<Page>,
    server: Shared<Server>,
}

impl Ended {
    /// Arrival times of the requests, in microseconds.
    fn asked(&self) -> Vec<u64> {
        let server = self.server.borrow();
        let asked = server.asked.iter();
        asked.map(|(at, _)| at.as_nanos() / 1000).collect()
    }

    /// A percentile, in whole milliseconds.
    fn millis(&self, measure: Measure, share: f64) -> u128 {
        let spread = self.report.spread(measure);
        spread.quantile(share).expect("it was measured").as_millis()
    }
}

fn settings(rate: f64, requests: u64) -> ProbeSettings {
    ProbeSettings {
        rate,
        length: Some(Length::Requests(requests)),
        ..ProbeSettings::default()
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    config.random_seed = Some(7);
    config
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn at_ms(count: u64) -> Instant {
    Instant::START + ms(count)
}

fn run(server: Server, settings: ProbeSettings) -> Ended {
    run_with(server, settings, config(), &["http://10.0.0.1/"])
}

fn run_with(server: Server, settings: ProbeSettings, config: Config, urls: &[&str]) -> Ended {
    let targets: Vec<_> = urls.iter().map(|url| Request::get(*url)).collect();
    run_requests(server, settings, config, &targets)
}

fn run_requests(
    server: Server,
    settings: ProbeSettings,
    config: Config,
    targets: &[Request],
) -> Ended {
    let server = Shared::new(server);
    let pages: Shared<Vec<Page>> = Shared::default();
    let seen = Shared::clone(&pages);
    let sink = move |page: Page| seen.borrow_mut().push(page);
    let world = Box::new(Shared::clone(&server));
    let mut probe = probe_in(world, settings, config, targets, sink);
    let reason = probe.run();
    let report = probe.report();
    Ended {
        reason,
        report,
        pages: pages.take(),
        server,
    }
}

/// A probe in this world, whose bytes arrive whole.
fn probe_in(
    world: Box<dyn World>,
    settings: ProbeSettings,
    config: Config,
    targets: &[Request],
    sink: impl DiskSink + 'static,
) -> Probe<Sim> {
    let faults = Faults {
        piece_bytes_max: 1 << 20,
        piece_gap_max: Duration::ZERO,
        ..Faults::default()
    };
    let io = Sim::with(1, crate::io::IoSettings::default(), faults, world);
    let names = resolver::ResolverSettings {
        servers: vec![SocketAddr::from(([10, 53, 53, 53], 53))],
        ..resolver::ResolverSettings::default()
    };
    Probe::on(io, names, config, settings, targets, sink).expect("it can be set up")
}

/// A probe that the test runs turn by turn.
fn probe(
    script: impl Fn(usize, Instant) -> Does + Send + Sync + 'static,
    settings: ProbeSettings,
) -> Probe<Sim> {
    let io = Sim::new(1, Box::new(Shared::new(Server::new(script))));
    let target = [Request::get("http://10.0.0.1/")];
    let names = resolver::ResolverSettings::default();
    Probe::on(io, names, config(), settings, &target, |_: Page| {}).expect("it can be set up")
}

#[test]
fn requests_leave_when_they_are_due_independent_of_replies() {
    let calm = run(
        Server::new(|_, _| Does::Answers(ms(1))),
        settings(100.0, 300),
    );
    let due: Vec<u64> = (0..300).map(|n| n * 10_000).collect();
    assert_eq!(calm.asked(), due);
    let unreliable = Server::new(|n, _| match n % 5 {
        0 => Does::Answers(ms(700)),
        1 => Does::Resets,
        2 => Does::Says(503, ms(3)),
        3 => Does::Says(429, ms(90)),
        _ => Does::Ends,
    });
    let unreliable = run(unreliable, settings(100.0, 300));
    // The request whose reused connection was closed is sent once more.
    let mut firsts: Vec<_> = unreliable
        .pages
        .iter()
        .filter(|page| page.attempt == 1)
        .map(|page| page.timings.sent.expect("it left").as_nanos() / 1000)
        .collect();
    firsts.sort_unstable();
    assert_eq!(firsts, due);
    assert_eq!(unreliable.reason, FinishReason::Finished);
    assert!(unreliable.report.is_rate_reached());
}

#[test]
fn one_connection_is_reused_if_one_is_enough() {
    let ended = run(Server::new(|_, _| Does::Answers(ms(1))), settings(10.0, 50));
    assert_eq!(ended.server.borrow().opened, 1);
    assert_eq!(ended.report.connections, 1);
    assert_eq!(ended.report.replies, 50);
}

#[test]
fn each_request_opens_a_connection_with_new_connections() {
    let settings = ProbeSettings {
        new_connections: Some(true),
        ..settings(10.0, 50)
    };
    let mut server = Server::new(|_, _| Does::Answers(ms(1)));
    server.round_trip = ms(4);
    let ended = run(server, settings);
    assert_eq!(ended.server.borrow().opened, 50);
    assert_eq!(ended.server.borrow().most_lines, 1, "each is closed");
    assert_eq!(ended.report.spread(Measure::Connect).count(), 50);
    assert_eq!(ended.millis(Measure::Connect, 0.5), 4);
    // 4 ms for the connection, 4 ms round trip and 1 ms for the answer.
    assert_eq!(ended.millis(Measure::Sent, 0.5), 5);
    assert_eq!(ended.millis(Measure::Due, 0.5), 9);
}

/// Answers within 1 ms, except from 1 s to 2 s, where it does not answer.
fn stalls(_: usize, now: Instant) -> Does {
    if (at_ms(1000)..at_ms(2000)).contains(&now) {
        Does::AnswersAt(at_ms(2000))
    } else {
        Does::Answers(ms(1))
    }
}

#[test]
fn a_stall_raises_every_latency_from_due_and_few_from_departure() {
    let one_connection = ProbeSettings {
        connections_max: Some(1),
        length: Some(Length::Time(Duration::from_secs(10))),
        ..settings(100.0, 0)
    };
    let ended = run(Server::new(stalls), one_connection.clone());
    assert_eq!(ended.report.due, 1000);
    assert_eq!(ended.report.replies, 1000, "no sample is left out");
    // One request took 1 s; the 99 that were due meanwhile had no connection.
    assert_eq!(ended.millis(Measure::Sent, 0.99), 1);
    assert_eq!(ended.millis(Measure::Sent, 1.0), 1000);
    assert!((900..1000).contains(&ended.millis(Measure::Due, 0.99)));
    let late = ended.report.spread(Measure::Due).buckets();
    let late: u64 = late
        .filter(|(span, _)| *span > ms(100))
        .map(|(_, n)| n)
        .sum();
    assert!((85..=105).contains(&late), "{late} of them waited");
    assert!(ended.millis(Measure::Wait, 0.99) > 890);
    assert!(
        ended.millis(Measure::Lateness, 1.0) < 1,
        "the wait is not lateness"
    );
    assert!(ended.report.is_rate_reached(), "all caught up in time");
    // With enough connections both figures are equal.
    let many = ProbeSettings {
        connections_max: Some(200),
        ..one_connection
    };
    let ended = run(Server::new(stalls), many);
    assert_eq!(ended.asked().len(), 1000);
    assert!((900..1000).contains(&ended.millis(Measure::Sent, 0.99)));
    assert!((900..1000).contains(&ended.millis(Measure::Due, 0.99)));
    assert_eq!(ended.millis(Measure::Wait, 1.0), 0);
}

#[test]
fn a_lookup_is_a_phase_of_the_request_that_started_it_and_later_ones_wait() {
    let server = Server::new(|_, _| Does::Answers(ms(1)));
    let urls = ["http://a.test/"];
    let ended = run_with(server, settings(100.0, 50), config(), &urls);
    assert_eq!(ended.report.replies, 50);
    assert_eq!(ended.report.spread(Measure::Dns).count(), 1);
    assert_eq!(ended.millis(Measure::Dns, 1.0), 40);
    // Due at 0, 10, 20 and 30 ms; the lookup ends at 40 ms.
    let waited = ended.report.spread(Measure::Wait).buckets();
    let waited: Vec<_> = waited
        .filter(|(span, _)| *span > ms(1))
        .map(|(_, n)| n)
        .collect();
    assert_eq!(waited.iter().sum::<u64>(), 3);
    assert_eq!(ended.millis(Measure::Due, 1.0), 41);
    assert_eq!(ended.millis(Measure::Sent, 1.0), 1);
}

#[test]
fn connections_to_all_addresses_together_are_limited() {
    let settings = ProbeSettings {
        connections_max: Some(3),
        ..settings(200.0, 400)
    };
    let mut server = Server::new(|n, _| Does::Answers(ms(if n % 7 == 0 { 40 } else { 2 })));
    server.round_trip = ms(1);
    let urls = [
        "http://10.0.0.1/a",
        "http://10.0.0.2/b",
        "http://10.0.0.3/c",
        "http://10.0.0.4/d",
        "http://10.0.0.5/e",
    ];
    let ended = run_with(server, settings, config(), &urls);
    // One more may be closing.
    assert!(ended.server.borrow().most_lines <= 4);
    assert_eq!(ended.report.replies, 400);
    let server = ended.server.borrow();
    for path in ["/a", "/b", "/c", "/d", "/e"] {
        let asked = server.asked.iter().filter(|(_, target)| target == path);
        assert_eq!(asked.count(), 80, "in turn");
    }
}

#[test]
fn random_arrivals_repeat_with_their_seed_and_follow_the_schedule() {
    let poisson = ProbeSettings {
        arrivals: Arrivals::Poisson,
        ..settings(100.0, 500)
    };
    let asked = |seed| {
        let mut config = config();
        config.random_seed = Some(seed);
        let server = Server::new(|n, _| Does::Answers(ms(n as u64 % 50)));
        run_with(server, poisson.clone(), config, &["http://10.0.0.1/"]).asked()
    };
    let one = asked(1);
    assert_eq!(one.len(), 500);
    assert_eq!(one, asked(1));
    assert_ne!(one, asked(2));
    let span = one[499] - one[0];
    assert!((4_000_000..6_000_000).contains(&span), "{span} µs");
}

#[test]
fn the_warm_up_is_sent_and_not_counted() {
    let settings = ProbeSettings {
        warmup: Duration::from_secs(2),
        length: Some(Length::Time(Duration::from_secs(3))),
        ..settings(10.0, 0)
    };
    let slow_at_first = |_, now| Does::Answers(ms(if now < at_ms(1900) { 50 } else { 5 }));
    let ended = run(Server::new(slow_at_first), settings);
    assert_eq!(ended.asked().len(), 50);
    assert_eq!(ended.pages.len(), 50, "its pages go to the sink");
    assert_eq!((ended.report.warmup, ended.report.due), (20, 30));
    assert_eq!(ended.report.spread(Measure::Due).count(), 30);
    assert_eq!(ended.millis(Measure::Due, 1.0), 5);
    assert_eq!(ended.report.span, Duration::from_secs(3));
    assert!((9.9..10.1).contains(&ended.report.rate_reached()));
}

#[test]
fn a_rate_that_cannot_be_reached_is_reported() {
    // Ten connections with 100 ms for each reply carry 100 requests per second.
    let settings = ProbeSettings {
        connections_max: Some(10),
        length: Some(Length::Time(Duration::from_secs(5))),
        ..settings(300.0, 0)
    };
    let ended = run(Server::new(|_, _| Does::Answers(ms(100))), settings);
    assert_eq!(ended.report.due, 1500);
    assert!(!ended.report.is_rate_reached());
    let reached = ended.report.rate_reached();
    assert!((99.0..103.0).contains(&reached), "{reached}");
    assert_eq!(ended.report.replies, 1500, "late, but sent");
    assert!(ended.millis(Measure::Due, 1.0) > 9_000);
    assert_eq!(ended.millis(Measure::Sent, 1.0), 100);
}

#[test]
fn a_rate_is_reached_only_if_nine_tenths_of_the_requests_started_in_time() {
    // One connection with 50 ms for each reply, for 0.1 s: two requests start in time.
    let one = ProbeSettings {
        connections_max: Some(1),
        ..settings(1000.0, 100)
    };
    let ended = run(Server::new(|_, _| Does::Answers(ms(50))), one);
    assert_eq!((ended.report.due, ended.report.begun_in_time), (100, 2));
    assert!(!ended.report.is_rate_reached());
    // Rate, requests due, of these started in time, expected.
    let check = |rate, due, begun_in_time, expected| {
        let mut report = ended.report.clone();
        (report.rate, report.due) = (rate, due);
        report.begun_in_time = begun_in_time;
        report.span = Duration::from_secs_f64(due as f64 / rate);
        let reached = report.is_rate_reached();
        assert_eq!(reached, expected, "{begun_in_time} of {due} at {rate}");
        assert!(!reached || report.rate_reached() >= rate * 0.9);
    };
    check(1000.0, 1, 1, true);
    check(1000.0, 1, 0, false);
    check(1000.0, 9, 8, false);
    check(1000.0, 10, 9, true);
    check(1000.0, 100, 90, true);
    check(1000.0, 100, 89, false);
    check(1000.0, 2_000, 1_900, true);
    check(1000.0, 2_000, 1_899, false);
    check(1000.0, 100_000, 99_000, true);
    check(1000.0, 100_000, 98_999, false);
    check(0.1, 3, 2, false);
}

#[test]
fn unsent_requests_are_reported() {
    // Two connections without replies, and a timeout longer than STOP_GRACE.
    let settings = ProbeSettings {
        connections_max: Some(2),
        ..settings(10.0, 50)
    };
    let ended = run(Server::new(|_, _| Does::Nothing), settings);
    assert_eq!(ended.reason, FinishReason::Overdue);
    assert_eq!(ended.report.due, 50);
    assert_eq!(ended.report.replies, 0);
    let cancelled = ended.report.by_error.get("cancelled.stopped").copied();
    let timed_out = ended.report.by_error.get("timeout.first_byte").copied();
    assert_eq!((cancelled, timed_out), (Some(2), None));
    assert_eq!(ended.report.unsent, 48);
    assert_eq!(ended.report.sent, 2);
    assert!(!ended.report.is_rate_reached());
    // Requests beyond WAITING_MAX are dropped.
    let settings = ProbeSettings {
        connections_max: Some(2),
        length: Some(Length::Time(Duration::from_secs(1))),
        ..self::settings(100_000.0, 0)
    };
    let ended = run(Server::new(|_, _| Does::Nothing), settings);
    assert_eq!(ended.report.due, 100_000);
    assert_eq!(ended.report.dropped, 100_000 - 65_536 - 2);
    assert_eq!(ended.report.unsent, 65_536);
    assert!(!ended.report.is_rate_reached());
}

#[test]
fn failures_are_counted_by_code_and_not_in_latencies() {
    let script = |n, _| match n % 10 {
        3 => Does::Resets,
        6 => Does::Nothing,
        _ => Does::Answers(ms(5)),
    };
    let settings = ProbeSettings {
        new_connections: Some(true),
        ..settings(10.0, 100)
    };
    let mut config = config();
    config.fetch.first_byte_timeout = Duration::from_secs(2);
    let ended = run_with(Server::new(script), settings, config, &["http://10.0.0.1/"]);
    let expected = [
        ("reset.reset".to_owned(), 10),
        ("timeout.first_byte".to_owned(), 10),
    ];
    assert_eq!(ended.report.by_error, expected.into());
    assert_eq!(ended.report.errors(), 20);
    assert_eq!(ended.report.replies, 80);
    for measure in [Measure::Due, Measure::Sent, Measure::Whole] {
        assert_eq!(ended.report.spread(measure).count(), 80);
        assert_eq!(ended.millis(measure, 1.0), 5);
    }
    assert_eq!(
        ended.report.first_errors["reset.reset"].0,
        "http://10.0.0.1/"
    );
}

#[test]
fn failed_connections_do_not_stop_the_schedule() {
    let mut server = Server::new(|_, _| Does::Nothing);
    server.accepts = Accepts::Refuse;
    let ended = run(server, settings(10.0, 40));
    assert_eq!(ended.report.by_error["connect.refused"], 40);
    assert_eq!(ended.reason, FinishReason::Finished);
    let begun: Vec<_> = ended
        .pages
        .iter()
        .map(|page| page.timings.started.as_nanos())
        .collect();
    let due: Vec<_> = (0..40).map(|n| n * 100_000_000).collect();
    assert_eq!(begun, due);
    assert!(ended.report.is_rate_reached());
}

#[test]
fn statuses_are_replies_and_redirects_are_not_followed() {
    let script = |n, _| Does::Says(if n % 2 == 0 { 302 } else { 500 }, ms(1));
    let ended = run(Server::new(script), settings(10.0, 20));
    assert_eq!(ended.report.by_status, [(302, 10), (500, 10)].into());
    assert_eq!(ended.asked().len(), 20);
    assert!(ended.pages.iter().all(|page| page.is_final));
    let errors = &ended.report.by_error;
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_request_on_a_closed_connection_is_repeated_and_its_latency_includes_both_attempts() {
    let script = |n, _| match n {
        5 => Does::Ends,
        _ => Does::Answers(ms(2)),
    };
    let ended = run(Server::new(script), settings(10.0, 20));
    assert_eq!(ended.report.retried, 1);
    assert_eq!(ended.report.replies, 20);
    assert_eq!(ended.report.errors(), 0);
    assert_eq!(ended.asked().len(), 21);
}

#[test]
fn an_address_that_is_not_globally_routable_ends_the_probe_at_once() {
    let server = Server::new(|_, _| Does::Answers(ms(1)));
    let urls = ["http://127.0.0.1/"];
    let ended = run_with(server, settings(10.0, 100), config(), &urls);
    assert_eq!(ended.reason, FinishReason::BlockedAddress);
    assert!(ended.report.due < 3);
    let failure = ended.pages[0].failure.as_ref().expect("it failed");
    assert_eq!(failure.kind, FailureKind::BlockedAddress);
    assert!(failure.detail.contains("--allow-net"), "{failure}");
    assert_eq!(ended.server.borrow().opened, 0);
}

#[test]
fn pages_have_their_due_time_and_the_callers_tag() {
    let server = Shared::new(Server::new(|_, _| Does::Answers(ms(30))));
    let io = Sim::new(1, Box::new(server));
    let pages: Shared<Vec<Page>> = Shared::default();
    let seen = Shared::clone(&pages);
    let one_connection = ProbeSettings {
        connections_max: Some(1),
        ..settings(50.0, 4)
    };
    let targets = [
        Request::get("http://10.0.0.1/a").tag(11),
        Request::get("http://10.0.0.1/b")
            .tag(12)
            .header("X-Mine", "1"),
    ];
    let sink = move |page: Page| seen.borrow_mut().push(page);
    let names = resolver::ResolverSettings::default();
    let mut probe =
        Probe::on(io, names, config(), one_connection, &targets, sink).expect("it can be set up");
    assert_eq!(probe.run(), FinishReason::Finished);
    let pages = pages.take();
    let tags: Vec<_> = pages.iter().map(|page| page.tag).collect();
    assert_eq!(tags, [11, 12, 11, 12]);
    let due: Vec<_> = pages.iter().map(|page| page.timings.due).collect();
    assert_eq!(due, [0, 20, 40, 60].map(|ms| Some(at_ms(ms))));
    assert!(pages[1].timings.started >= at_ms(30), "it had to wait");
    let second = String::from_utf8_lossy(&pages[1].request_bytes).into_owned();
    assert!(second.contains("X-Mine: 1\r\n"), "{second}");
}

#[test]
fn intervals_sum_up_to_the_whole() {
    let script = |n, _| Does::Answers(ms(1 + n as u64 % 20));
    let mut probe = probe(script, settings(100.0, 1000));
    probe.keep_intervals();
    let mut intervals = Vec::new();
    while let Turn::GoesOn = probe.turn(None) {
        if probe.elapsed() >= Duration::from_secs(intervals.len() as u64 + 1) {
            intervals.extend(probe.take_interval());
        }
    }
    intervals.extend(probe.take_interval());
    assert_eq!(intervals.len(), 11);
    let counted = |measure| -> u64 {
        let spreads = intervals.iter().flat_map(|interval| &interval.spreads);
        let of_it = spreads.filter(|(other, _)| *other == measure);
        of_it.map(|(_, spread)| spread.count()).sum()
    };
    assert_eq!(counted(Measure::Due), 1000);
    assert_eq!(
        counted(Measure::Connect),
        probe.report().spread(Measure::Connect).count()
    );
    for pair in intervals.windows(2) {
        let gap = pair[1].start.saturating_since(pair[0].start);
        assert_eq!(gap, pair[0].length, "they follow each other");
    }
}

#[test]
fn nothing_is_due_after_a_stop() {
    // Twenty connections with 5 s for each reply, and 10 requests per second.
    let settings = ProbeSettings {
        connections_max: Some(20),
        length: Some(Length::Time(Duration::from_secs(3600))),
        ..settings(10.0, 0)
    };
    let mut probe = probe(|_, _| Does::Answers(Duration::from_secs(5)), settings);
    while probe.elapsed() < Duration::from_secs(4) {
        probe.turn(Some(ms(10)));
    }
    probe.stopper().stop();
    assert_eq!(probe.run(), FinishReason::Shutdown);
    assert!(
        probe.elapsed() > Duration::from_secs(6),
        "requests in flight are awaited"
    );
    let report = probe.report();
    assert!((40..=41).contains(&report.due), "{}", report.due);
    assert_eq!((report.sent, report.replies), (20, 20));
    assert_eq!(report.unsent, report.due - 20);
    let span = report.span.as_millis();
    assert!((4000..=4020).contains(&span), "{span} ms");
}

#[test]
fn invalid_settings_are_refused_with_their_field() {
    let check = |settings: ProbeSettings, urls: &[&str], part: &str| {
        let io = Sim::new(1, Box::new(Shared::new(Server::new(|_, _| Does::Nothing))));
        let targets: Vec<_> = urls.iter().map(|url| Request::get(*url)).collect();
        let names = resolver::ResolverSettings::default();
        let made = Probe::on(io, names, config(), settings, &targets, |_: Page| {});
        let refused = made.map(|_| ()).expect_err(part).to_string();
        assert!(refused.starts_with(part), "{refused}");
    };
    let url = &["http://10.0.0.1/"][..];
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        check(settings(rate, 1), url, "rate:");
    }
    check(settings(1.0, 0), url, "length:");
    check(settings(1e-6, u64::MAX), url, "length:");
    let with = |change: fn(&mut ProbeSettings)| {
        let mut settings = settings(1.0, 1);
        change(&mut settings);
        settings
    };
    check(
        with(|s| s.connections_max = Some(0)),
        url,
        "connections_max:",
    );
    check(
        with(|s| s.length = Some(Length::Time(Duration::ZERO))),
        url,
        "length:",
    );
    check(
        with(|s| s.length = Some(Length::Time(Duration::MAX))),
        url,
        "length:",
    );
    check(with(|s| s.warmup = Duration::MAX), url, "warmup:");
    check(settings(1.0, 1), &[], "URL");
    check(
        settings(1.0, 1),
        &["ftp://10.0.0.1/"],
        "URL: ftp://10.0.0.1/",
    );
}
