//! Targets that are requested over and over.

use super::*;
use crate::admin::format::MetricsFormat;

const EVERY: Duration = Duration::from_secs(1);

/// Requests each target once a second, for so many seconds.
fn every_second(seconds: u64) -> ProbeSettings {
    ProbeSettings {
        every: Some(EVERY),
        length: Some(Length::Time(Duration::from_secs(seconds))),
        ..ProbeSettings::default()
    }
}

fn set_timeout(config: &mut Config, timeout: Duration) {
    let set = config.set("DOWNLOAD_TIMEOUT", timeout, SettingSource::Program);
    set.expect("a valid timeout");
}

/// When each path was requested, in milliseconds.
fn times(ended: &Ended) -> BTreeMap<String, Vec<u64>> {
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, path) in &ended.server.borrow().asked {
        let at = at.as_nanos() / 1_000_000;
        times.entry(path.clone()).or_default().push(at);
    }
    times
}

const URLS: [&str; 4] = [
    "http://10.0.0.1/a",
    "http://10.0.0.2/b",
    "http://10.0.0.3/c",
    "http://10.0.0.4/d",
];

#[test]
fn each_target_has_a_phase_of_its_own_and_keeps_it() {
    let server = Server::new(|n, _| Does::Answers(ms(n as u64 % 7)));
    let ended = run_with(server, every_second(3), config(), &URLS);
    let times = times(&ended);
    for (number, path) in ["/a", "/b", "/c", "/d"].into_iter().enumerate() {
        let first = number as u64 * 250;
        assert_eq!(times[path], [first, first + 1000, first + 2000], "{path}");
    }
    assert_eq!(ended.report.due, 12);
    assert_eq!(ended.reason, FinishReason::Finished);
}

#[test]
fn a_target_that_hangs_disturbs_no_other() {
    let mut config = config();
    set_timeout(&mut config, ms(900));
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    server.hangs = Some("/b");
    let ended = run_with(server, every_second(20), config, &URLS);
    for (path, times) in times(&ended) {
        let first = times[0];
        let expected: Vec<u64> = (0..20).map(|round| first + round * 1000).collect();
        assert_eq!(times, expected, "{path}");
    }
    let report = &ended.report;
    assert_eq!(
        (report.replies, report.errors(), report.skipped),
        (60, 20, 0)
    );
    assert_eq!(
        ended.millis(Measure::Wait, 1.0),
        0,
        "none waits for a connection"
    );
    assert_eq!(ended.millis(Measure::Lateness, 1.0), 0);
}

#[test]
fn a_request_is_not_sent_while_the_one_before_to_its_target_is_open() {
    let mut config = config();
    set_timeout(&mut config, ms(2500));
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    server.hangs = Some("/c");
    let ended = run_with(server, every_second(9), config, &URLS);
    let times = times(&ended);
    // Of three that are due one is sent.
    assert_eq!(times["/c"], [500, 3500, 6500]);
    assert_eq!(times["/d"].len(), 9);
    assert_eq!(ended.report.skipped, 6);
    assert_eq!(ended.server.borrow().most_lines, 2);
}

#[test]
fn the_last_result_of_each_target_is_kept() {
    let io = Sim::new(
        1,
        Box::new(Shared::new(Server::new(|_, _| Does::Answers(ms(5))))),
    );
    let targets = URLS.map(Request::get);
    let names = resolver::ResolverSettings::default();
    let settings = every_second(2);
    let mut probe =
        Probe::on(io, names, config(), settings, &targets, |_: Page| {}).expect("it can be set up");
    let metrics = |probe: &Probe<Sim>, url| probe.target_metrics(url, MetricsFormat::Prometheus);
    assert_eq!(metrics(&probe, URLS[0]), None, "it was not requested yet");
    assert_eq!(probe.watch_counts().expect("they are watched").pending, 4);
    probe.run();
    for url in URLS {
        let text = metrics(&probe, url).expect(url);
        assert!(text.contains("probe_success 1\n"), "{text}");
    }
    assert_eq!(metrics(&probe, "http://10.0.0.9/"), None);
    let counts = probe.watch_counts().expect("they are watched");
    assert_eq!((counts.up, counts.pending, counts.succeeded), (4, 0, 8));
    let all = probe.metrics(MetricsFormat::Prometheus);
    assert!(
        all.contains("argiope_probe_targets{state=\"up\"} 4\n"),
        "{all}"
    );
    assert!(
        !all.contains("10.0.0.1"),
        "a target has no series there: {all}"
    );
}

#[test]
fn targets_are_given_once_and_not_too_often() {
    let refused = |settings: ProbeSettings, urls: &[&str], part: &str| {
        let io = Sim::new(1, Box::new(Shared::new(Server::new(|_, _| Does::Nothing))));
        let targets: Vec<_> = urls.iter().map(|url| Request::get(*url)).collect();
        let names = resolver::ResolverSettings::default();
        let made = Probe::on(io, names, config(), settings, &targets, |_: Page| {});
        let error = made.expect_err("it is refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    let twice = ["http://10.0.0.1/a", "http://10.0.0.1:80/a"];
    refused(every_second(1), &twice, "given twice");
    let often = |every| ProbeSettings {
        every: Some(every),
        ..every_second(1)
    };
    refused(often(Duration::from_micros(1)), &URLS, "at least 1ms");
    let many = vec![URLS[0]; 20_001];
    let part = "every: 1ms is too short for 20001 targets; give at least 3ms";
    refused(often(ms(1)), &many, part);
    let rarely = ProbeSettings {
        every: Some(Duration::MAX),
        ..every_second(1)
    };
    refused(rarely, &URLS, "10 years");
}

#[test]
fn a_target_whose_address_is_not_allowed_is_down_and_the_others_go_on() {
    let urls = [URLS[0], "http://192.168.0.9/x", URLS[1]];
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let ended = run_with(server, every_second(5), config(), &urls);
    assert_eq!(ended.reason, FinishReason::Finished);
    assert_eq!((ended.report.replies, ended.report.errors()), (10, 5));
    let kind = ended.report.by_error.keys().next();
    assert_eq!(kind.map(String::as_str), Some("blocked_address.not_global"));
}

#[test]
fn a_probe_is_refused_if_the_address_of_no_target_is_allowed() {
    let io = Sim::new(1, Box::new(Shared::new(Server::new(|_, _| Does::Nothing))));
    let targets = ["http://192.168.0.9/x", "http://localhost/"].map(Request::get);
    let names = resolver::ResolverSettings::default();
    let settings = every_second(1);
    let made = Probe::on(io, names, config(), settings, &targets, |_: Page| {});
    let error = made.expect_err("none can be requested").to_string();
    assert!(error.contains("--allow-net 192.168.0.9"), "{error}");
}

#[test]
fn a_target_is_up_in_the_next_round_once_its_name_resolves() {
    for fails in [Names::Absent, Names::Fails] {
        let mut server = Server::new(|_, _| Does::Answers(ms(5)));
        server.names = match fails {
            Names::Absent => |now| match now < at_ms(60_500) {
                true => Names::Absent,
                false => Names::Address,
            },
            _ => |now| match now < at_ms(60_500) {
                true => Names::Fails,
                false => Names::Address,
            },
        };
        let settings = ProbeSettings {
            every: Some(Duration::from_secs(2)),
            ..every_second(80)
        };
        let ended = run_with(server, settings, config(), &["http://a.test/"]);
        let asked = ended.asked();
        let first = asked[0] / 1000;
        assert!((62_000..62_100).contains(&first), "{fails:?}: {first}");
        assert_eq!(asked.len(), 9);
    }
}

#[test]
fn a_name_whose_lookup_takes_long_to_fail_is_looked_up_by_the_next_request_too() {
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    // The lookup ends after 6 s.
    server.names = |now| match now < at_ms(9_000) {
        true => Names::Nothing,
        false => Names::Address,
    };
    let settings = ProbeSettings {
        every: Some(Duration::from_secs(10)),
        ..every_second(40)
    };
    let ended = run_with(server, settings, config(), &["http://a.test/"]);
    let asked: Vec<_> = ended.asked().iter().map(|at| at / 1_000_000).collect();
    assert_eq!(asked, [10, 20, 30]);
}

#[test]
fn a_request_that_waits_for_a_name_ends_when_its_time_is_over() {
    let mut config = config();
    set_timeout(&mut config, ms(900));
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    server.names = |_| Names::Nothing;
    let urls = ["http://a.test/", "http://b.test/", URLS[0]];
    let ended = run_with(server, every_second(10), config, &urls);
    let report = &ended.report;
    assert_eq!((report.skipped, report.replies), (0, 10));
    let failed: u64 = report.by_error.values().sum();
    assert_eq!(failed, 20);
    assert!(report.by_error["timeout.dns"] > 0, "{:?}", report.by_error);
    for page in ended.pages.iter().filter(|page| page.failure.is_some()) {
        let due = page.timings.due.expect("it was due");
        let took = page.ended.saturating_since(due);
        assert!(took <= ms(910), "{took:?}: {:?}", page.failure);
    }
}

#[test]
fn the_time_of_a_request_includes_its_lookup() {
    let mut config = config();
    set_timeout(&mut config, ms(900));
    let mut server = Server::new(|_, _| Does::Nothing);
    // The answer to a second try.
    server.names = |now| match now < at_ms(500) {
        true => Names::Nothing,
        false => Names::Address,
    };
    server.accepts = Accepts::Silence;
    let settings = every_second(8);
    let names = ["http://a.test/"];
    let ended = run_with(server, settings, config, &names);
    for page in &ended.pages {
        let due = page.timings.due.expect("it was due");
        let took = page.ended.saturating_since(due);
        assert!(took <= ms(910), "{took:?}: {:?}", page.failure);
    }
    assert_eq!(ended.report.skipped, 0);
}

#[test]
fn bodies_of_watched_targets_are_counted_and_not_kept() {
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let ended = run_with(server, every_second(2), config(), &URLS[..1]);
    for page in &ended.pages {
        assert_eq!((page.body.len(), page.bytes_taken), (0, 2));
    }
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let kept = run_with(server, settings(1.0, 2), config(), &URLS[..1]);
    assert_eq!(kept.pages[0].body.len(), 2);
}

#[test]
fn connections_are_kept_from_one_round_to_the_next() {
    let settings = ProbeSettings {
        every: Some(Duration::from_secs(40)),
        new_connections: Some(false),
        ..every_second(200)
    };
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let ended = run_with(server, settings, config(), &URLS[..2]);
    assert_eq!(ended.asked().len(), 10);
    assert_eq!(ended.server.borrow().opened, 2);
}

#[test]
fn however_many_targets_hang_the_others_are_on_time() {
    let hanging = |n: usize| format!("http://10.1.{}.{}/h", n / 250, n % 250 + 1);
    let mut urls: Vec<String> = (0..4200).map(hanging).collect();
    urls.extend(URLS.map(str::to_owned));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let mut server = Server::new(|_, _| Does::Answers(ms(5)));
    server.hangs = Some("/h");
    let mut config = config();
    set_timeout(&mut config, ms(9_000));
    config.io.sockets_max = 10_000;
    let settings = ProbeSettings {
        every: Some(Duration::from_secs(10)),
        ..every_second(20)
    };
    let ended = run_with(server, settings, config, &urls);
    assert_eq!((ended.report.replies, ended.report.errors()), (8, 8_400));
    let late = ended.pages.iter().filter(|page| {
        let due = page.timings.due.expect("it was due");
        page.timings.started > due + ms(1)
    });
    assert_eq!(late.count(), 0);
}

#[test]
fn without_an_end_the_targets_are_requested_until_a_stop() {
    let server = Shared::new(Server::new(|_, _| Does::Answers(ms(5))));
    let io = Sim::new(1, Box::new(Shared::clone(&server)));
    let settings = ProbeSettings {
        every: Some(EVERY),
        ..ProbeSettings::default()
    };
    let names = resolver::ResolverSettings::default();
    let targets = URLS.map(Request::get);
    let mut probe =
        Probe::on(io, names, config(), settings, &targets, |_: Page| {}).expect("it can be set up");
    while probe.elapsed() < Duration::from_secs(100) {
        assert_eq!(probe.turn(None), Turn::GoesOn);
    }
    assert_eq!(probe.report().length, Length::Endless);
    assert_eq!(probe.watch_counts().expect("watched").succeeded, 400);
    let span = probe.report().span;
    assert!((100..101).contains(&span.as_secs()), "{span:?}");
    probe.stopper().stop_now();
    assert_eq!(probe.run(), FinishReason::Shutdown);
}

#[test]
fn every_target_has_a_new_connection_of_its_own_by_default() {
    let urls: Vec<String> = (0..1200)
        .map(|n| format!("http://10.1.{}.{}/h", n / 250, n % 250 + 1))
        .collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let server = Server::new(|_, _| Does::Answers(ms(5)));
    let mut config = config();
    config.io.sockets_max = 10_000;
    let ended = run_with(server, every_second(3), config, &urls);
    assert_eq!(ended.report.connections_max, 1200);
    assert_eq!(ended.report.replies, 3600);
    assert_eq!(ended.server.borrow().opened, 3600);
}

#[test]
fn by_default_a_request_ends_before_the_next_one_to_its_target() {
    let ended_after = |every: Duration, timeout: Option<Duration>| {
        let settings = ProbeSettings {
            every: Some(every),
            length: Some(Length::Time(every * 2)),
            ..ProbeSettings::default()
        };
        let mut config = config();
        if let Some(timeout) = timeout {
            set_timeout(&mut config, timeout);
        }
        let mut server = Server::new(|_, _| Does::Nothing);
        server.hangs = Some("/a");
        let ended = run_with(server, settings, config, &URLS[..1]);
        assert_eq!((ended.report.errors(), ended.report.skipped), (2, 0));
        let page = &ended.pages[0];
        let took = page.ended.saturating_since(page.timings.started);
        (took.as_secs_f64() * 10.0).round() / 10.0
    };
    assert_eq!(ended_after(Duration::from_secs(2), None), 1.8);
    assert_eq!(ended_after(Duration::from_secs(60), None), 10.0);
    let own = Some(Duration::from_secs(20));
    assert_eq!(ended_after(Duration::from_secs(60), own), 20.0);
}
