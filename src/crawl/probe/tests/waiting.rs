//! Requests to watched targets that wait: for a connection, a name, or ourselves.

use std::collections::BTreeSet;

use super::*;
use crate::admin::format::MetricsFormat;
use crate::base::disk::DiskJob;
use crate::fetch::failure::Failure;

/// Requests each target once in this time, for so many rounds.
fn rounds(every: Duration, count: u32) -> ProbeSettings {
    ProbeSettings {
        every: Some(every),
        length: Some(Length::Time(every * count)),
        ..ProbeSettings::default()
    }
}

fn timeout(of: Duration) -> Config {
    let mut config = config();
    config.io.sockets_max = 10_000;
    let set = config.set("DOWNLOAD_TIMEOUT", of, SettingSource::Program);
    set.expect("a valid timeout");
    config
}

/// How long after it was due a request ended.
fn took(page: &Page) -> Duration {
    let due = page.timings.due.expect("it was due");
    page.ended.saturating_since(due)
}

fn code(page: &Page) -> String {
    page.failure.as_ref().map_or(String::new(), Failure::code)
}

/// A sink that takes no more while the test says so.
#[derive(Clone)]
struct Slow {
    is_full: Shared<bool>,
    pages: Shared<Vec<Page>>,
    /// Pages that were put while it took no more.
    pressed: Shared<usize>,
}

impl Slow {
    fn new() -> Self {
        Slow {
            is_full: Shared::new(false),
            pages: Shared::default(),
            pressed: Shared::new(0),
        }
    }
}

impl DiskSink for Slow {
    fn put(&mut self, page: &mut Page, _: &mut Vec<DiskJob>) {
        *self.pressed.borrow_mut() += usize::from(*self.is_full.borrow());
        self.pages.borrow_mut().push(std::mem::take(page));
    }

    fn is_ready(&self) -> bool {
        !*self.is_full.borrow()
    }
}

fn urls(count: usize) -> Vec<Request> {
    let url = |n: usize| format!("http://10.1.{}.{}/{n}", n / 250, n % 250 + 1);
    (0..count).map(|n| Request::get(url(n))).collect()
}

fn run_until(probe: &mut Probe<Sim>, second: u64) {
    while probe.elapsed() < Duration::from_secs(second) {
        let patience = Duration::from_secs(second) - probe.elapsed();
        assert_eq!(probe.turn(Some(patience)), Turn::GoesOn);
    }
}

#[test]
fn while_the_sink_takes_no_more_requests_are_skipped_and_results_stay() {
    let sink = Slow::new();
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let targets = urls(100);
    let settings = rounds(Duration::from_secs(1), 1000);
    let world = Box::new(Shared::new(server));
    let mut probe = probe_in(world, settings, timeout(ms(900)), &targets, sink.clone());
    run_until(&mut probe, 3);
    *sink.is_full.borrow_mut() = true;
    run_until(&mut probe, 60);
    let pressed = *sink.pressed.borrow();
    assert!(pressed <= 2, "{pressed} results that were under way");
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.up, counts.failed), (100, 0));
    assert!((5_600..5_800).contains(&counts.skipped), "{counts:?}");
    let report = probe.report();
    assert_eq!(report.skipped, counts.skipped);
    assert!(report.due < 500, "{}", report.due);
    *sink.is_full.borrow_mut() = false;
    run_until(&mut probe, 70);
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.up, counts.failed), (100, 0));
    assert!(counts.succeeded >= 1200, "{counts:?}");
}

#[test]
fn in_a_pause_requests_are_skipped_and_results_stay() {
    let sink = Slow::new();
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let targets = urls(100);
    let settings = rounds(Duration::from_secs(1), 1000);
    let world = Box::new(Shared::new(server));
    let mut probe = probe_in(world, settings, timeout(ms(900)), &targets, sink.clone());
    run_until(&mut probe, 3);
    let handle = probe.crawler_mut().handle();
    handle.pause();
    run_until(&mut probe, 20);
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.up, counts.failed), (100, 0));
    assert!((1_600..1_800).contains(&counts.skipped), "{counts:?}");
    handle.resume();
    run_until(&mut probe, 25);
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.up, counts.failed), (100, 0));
    assert!(counts.succeeded >= 750, "{counts:?}");
}

/// A server that works on one request after another: for long on the first one of each target, and for a short time
/// on those after one that succeeded.
struct Limited {
    lines: BTreeMap<ConnId, Vec<u8>>,
    /// When a reply is complete, and for which path.
    replies: BTreeMap<ConnId, (Instant, String)>,
    known: BTreeSet<String>,
    is_busy_until: Instant,
}

const FIRST_WORK: Duration = Duration::from_millis(40);
const LATER_WORK: Duration = Duration::from_millis(1);

impl World for Limited {
    fn connect(&mut self, conn: ConnId, _to: SocketAddr, _net: &mut Net) -> Accepts {
        self.lines.insert(conn, Vec::new());
        Accepts::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        let unread = self.lines.entry(conn).or_default();
        unread.extend_from_slice(bytes);
        if !unread.ends_with(b"\r\n\r\n") {
            return;
        }
        let head = String::from_utf8(std::mem::take(unread)).expect("requests are text");
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let work = match self.known.contains(&path) {
            true => LATER_WORK,
            false => FIRST_WORK,
        };
        // Work on what the client gives up is done, too.
        self.is_busy_until = self.is_busy_until.max(net.now()) + work;
        let after = self.is_busy_until.saturating_since(net.now());
        net.reply(
            conn,
            after,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        );
        self.replies.insert(conn, (self.is_busy_until, path));
    }

    fn closed(&mut self, conn: ConnId, _how: Close, net: &mut Net) {
        self.lines.remove(&conn);
        if let Some((at, path)) = self.replies.remove(&conn)
            && at <= net.now()
        {
            self.known.insert(path);
        }
    }
}

#[test]
fn a_probe_recovers_from_overload_that_ends_with_the_first_success_of_each_target() {
    const ROUNDS: u32 = 16;
    let every = Duration::from_secs(4);
    let world = Limited {
        lines: BTreeMap::new(),
        replies: BTreeMap::new(),
        known: BTreeSet::new(),
        is_busy_until: Instant::START,
    };
    let settings = ProbeSettings {
        connections_max: Some(20),
        ..rounds(every, ROUNDS)
    };
    // 100 requests a second, of which the server can do 25 at first.
    let (targets, time) = (urls(400), Duration::from_secs(2));
    let sink = Slow::new();
    let mut probe = probe_in(
        Box::new(world),
        settings,
        timeout(time),
        &targets,
        sink.clone(),
    );
    probe.run();
    let pages = sink.pages.take();
    for page in pages.iter().filter(|page| page.timings.sent.is_some()) {
        let waited = page
            .timings
            .started
            .saturating_since(page.timings.due.expect("due"));
        assert!(waited <= time / 2, "it starts {waited:?} after it was due");
    }
    let failed_in = |round: u32| {
        let from = Instant::START + every * round;
        let due = |page: &&Page| {
            page.timings
                .due
                .is_some_and(|due| (from..from + every).contains(&due))
        };
        let of_round = pages.iter().filter(due);
        of_round.filter(|page| page.failure.is_some()).count()
    };
    let failed: Vec<_> = (0..ROUNDS).map(failed_in).collect();
    assert!(failed[0] > 200, "it is overloaded: {failed:?}");
    assert_eq!(failed[ROUNDS as usize - 4..], [0; 4], "{failed:?}");
}

#[test]
fn requests_that_waited_too_long_end_over_several_turns() {
    // All that are due within 5 s may wait until then.
    let mut targets = urls(2_000);
    for (number, target) in targets.iter_mut().enumerate().take(990) {
        let due = ms(5) * number as u32;
        target.timeout = Some((Duration::from_secs(5) - due) * 2);
    }
    let settings = ProbeSettings {
        connections_max: Some(1),
        ..rounds(Duration::from_secs(10), 1)
    };
    let sink = Slow::new();
    // The only connection is free when they are overdue.
    let server = Shared::new(Server::new(|number, _| match number {
        0 => Does::AnswersAt(at_ms(5_000)),
        _ => Does::Nothing,
    }));
    let world = Box::new(Shared::clone(&server));
    let mut probe = probe_in(world, settings, timeout(ms(9_900)), &targets, sink.clone());
    let (mut most, mut before) = (0, 0);
    while probe.elapsed() < Duration::from_secs(6) {
        assert_eq!(probe.turn(Some(ms(100))), Turn::GoesOn);
        let ended = sink.pages.borrow().len();
        most = most.max(ended - before);
        before = ended;
    }
    assert!(before >= 989, "{before}");
    assert!(most <= 300, "{most} in one turn");
    let server = server.borrow();
    let is_late = |path: &&str| targets[1..990].iter().any(|late| late.url.ends_with(path));
    let asked = server.asked.iter().map(|(_, path)| path.as_str());
    assert_eq!(asked.filter(is_late).count(), 0, "they start too late");
}

#[test]
fn a_request_that_waits_for_a_connection_has_no_more_time_than_others() {
    let settings = ProbeSettings {
        connections_max: Some(1),
        ..rounds(Duration::from_secs(2), 8)
    };
    let sink = Slow::new();
    let targets = urls(4);
    let world = Box::new(Shared::new(Server::new(|_, _| Does::Nothing)));
    let mut probe = probe_in(world, settings, timeout(ms(1800)), &targets, sink.clone());
    probe.run();
    let pages = sink.pages.borrow();
    assert_eq!(pages.len(), 32);
    for page in pages.iter() {
        let most = match page.timings.sent.is_some() {
            true => ms(1810),
            // It got no connection in half of its time.
            false => ms(910),
        };
        assert!(took(page) <= most, "{:?}: {}", took(page), code(page));
        assert_eq!(code(page), "timeout.total");
    }
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.skipped, counts.failed), (0, 32));
    // The second one got no connection.
    let text = probe.target_metrics(&targets[1].url, MetricsFormat::Prometheus);
    let text = text.expect("it has ended");
    assert!(text.contains("\nprobe_duration_seconds 0.9\n"), "{text}");
}

#[test]
fn a_request_that_is_repeated_has_no_more_time_than_others() {
    let settings = ProbeSettings {
        new_connections: Some(false),
        ..rounds(Duration::from_secs(1), 4)
    };
    let server = Server::new(|number, _| match number {
        0 => Does::Answers(ms(5)),
        1 => Does::EndsAfter(ms(800)),
        _ => Does::Nothing,
    });
    let ended = run_requests(server, settings, config(), &urls(1));
    assert_eq!((ended.report.retried, ended.report.skipped), (1, 0));
    assert_eq!(ended.report.errors(), 3);
    for page in ended.pages.iter().filter(|page| page.is_final) {
        assert!(took(page) <= ms(910), "{:?}: {}", took(page), code(page));
    }
}

#[test]
fn the_own_timeout_of_a_request_holds_behind_another_of_its_lane() {
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    server.names = |_| Names::Nothing;
    let targets = [("http://a.test/1", 30), ("http://a.test/2", 1)].map(|(url, seconds)| {
        let mut request = Request::get(url);
        request.timeout = Some(Duration::from_secs(seconds));
        request
    });
    let settings = rounds(Duration::from_secs(4), 3);
    let ended = run_requests(server, settings, timeout(ms(3_600)), &targets);
    let second = ended.pages.iter().filter(|page| page.url.ends_with("/2"));
    let second: Vec<_> = second.collect();
    assert_eq!(second.len(), 3);
    assert_eq!(code(second[0]), "timeout.dns");
    for page in second {
        assert!(took(page) <= ms(1010), "{:?}: {}", took(page), code(page));
    }
}

#[test]
fn the_address_of_a_target_behind_a_proxy_is_not_looked_up_here() {
    let made = |url: &str, proxy: bool| {
        let io = Sim::new(1, Box::new(Shared::new(Server::new(|_, _| Does::Nothing))));
        let names = resolver::ResolverSettings {
            overrides: vec!["b.test:80:192.168.0.9".parse().expect("an override")],
            ..resolver::ResolverSettings::default()
        };
        let mut config = config();
        if proxy {
            config = config
                .with("PROXY", "http://10.0.0.9:3128")
                .expect("a proxy");
        }
        let targets = [Request::get(url)];
        let every = rounds(Duration::from_secs(1), 1);
        Probe::on(io, names, config, every, &targets, |_: Page| {}).is_ok()
    };
    assert!(!made("http://b.test/", false));
    assert!(made("http://b.test/", true), "the proxy resolves it");
    assert!(
        !made("http://192.168.0.9/", true),
        "wherever it is resolved"
    );
}
