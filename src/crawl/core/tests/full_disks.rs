//! Crawls in virtual time on a disk that fills, and is emptied again or not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::base::gzip::gunzip;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::crawl::config::Config;
use crate::crawl::core::tests::log::{capture, captured};
use crate::crawl::core::tests::trial::{calm, get, turn};
use crate::crawl::finish::FinishReason;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::io::Io;
use crate::io::sim::{Faults, FullDisk, Origins, Sim};
use crate::sink::files::{FileSink, FileSinkOptions, WarcOptions};
use crate::throttle::settings::Jitter;

const PAGES: u32 = 100;
const FULL_FROM: Duration = Duration::from_millis(2500);
const FULL_UNTIL: Duration = Duration::from_secs(60);

/// A crawl of a hundred pages, one every 100 ms, whose disk is full below this path until `until`.
fn crawl(below: &str, until: Duration) -> (Crawler<Sim>, Shared<Origins>) {
    crawl_with(below, until, Duration::from_millis(10), Config::default())
}

/// As [`crawl`], with pages that take this long and with further settings.
fn crawl_with(
    below: &str,
    until: Duration,
    think: Duration,
    config: Config,
) -> (Crawler<Sim>, Shared<Origins>) {
    let world = calm(think);
    let mut crawler = crawl_in(below, until, Shared::clone(&world), config);
    for page in 0..PAGES {
        crawler.submit(get(1, page)).expect("it is a URL");
    }
    (crawler, world)
}

/// A crawl of these origins whose disk is full from 2.5 s to 60 s.
pub fn crawl_of(origins: Origins, config: Config) -> Crawler<Sim> {
    crawl_in("out", FULL_UNTIL, Shared::new(origins), config)
}

fn crawl_in(below: &str, until: Duration, world: Shared<Origins>, config: Config) -> Crawler<Sim> {
    let full = FullDisk {
        below: PathBuf::from(below),
        from: FULL_FROM,
        until,
        free: 0,
    };
    crawl_on(full, world, config)
}

/// A crawl on this disk.
fn crawl_on(full: FullDisk, world: Shared<Origins>, mut config: Config) -> Crawler<Sim> {
    for (name, value) in [
        ("AUTOTHROTTLE_ENABLED", serde_json::json!(true)),
        ("AUTOTHROTTLE_START_DELAY", serde_json::json!(0.1)),
        ("AUTOTHROTTLE_MAX_DELAY", serde_json::json!(0.1)),
    ] {
        config = config.with(name, value).expect("a setting");
    }
    config.throttle.default.delay = Duration::from_millis(100);
    config.throttle.default.delay_per_slot = Duration::ZERO;
    config.throttle.default.jitter = Jitter::NONE;
    config.throttle.debug = true;
    config.frontier.robots_obey = false;
    config.allow_net = vec!["10.0.0.0/8".to_owned()];
    config.random_seed = Some(1);
    let faults = Faults {
        disk_full: vec![full],
        ..Faults::default()
    };
    let io = Sim::with(
        1,
        config.io.clone(),
        faults,
        Box::new(Shared::clone(&world)),
    );
    let sink = FileSink::new(FileSinkOptions {
        decisions: true,
        warc: Some(WarcOptions::new("a.test", [7; 16])),
        ..FileSinkOptions::new("out")
    });
    let parts = Parts {
        stats_path: Some(PathBuf::from("out/stats.json")),
        ..Parts::new(sink)
    };
    let config = config.finish().expect("a sound config");
    let names = resolver::ResolverSettings::default();
    Crawler::on(io, config, names, parts).expect("a crawler")
}

pub fn run(crawler: &mut Crawler<Sim>) -> FinishReason {
    for _ in 0..100_000 {
        if let Turn::Over(reason) = turn(crawler, None) {
            return reason;
        }
    }
    panic!("the crawl does not end: {:?}", crawler.progress());
}

pub fn lines(crawler: &Crawler<Sim>) -> Vec<Value> {
    let files = crawler.io().files();
    let text = &files[Path::new("out/results.jsonl")];
    let text = std::str::from_utf8(text).expect("lines are text");
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "the last line is whole"
    );
    let lines = text.lines().map(serde_json::from_str::<Value>);
    lines.map(|line| line.expect("each line is JSON")).collect()
}

/// Each page has one line, which contains the position of its record.
fn check_whole(crawler: &Crawler<Sim>) {
    let files = crawler.io().files();
    let mut pages = BTreeMap::new();
    for line in lines(crawler) {
        let url = line["url"].as_str().expect("a URL").to_owned();
        let place = &line["warc"];
        let path = format!("out/{}", place["file"].as_str().expect("a file"));
        let number = |key: &str| place[key].as_u64().expect("a number") as usize;
        let warc = &files[Path::new(&path)];
        let record = gunzip(&warc[number("offset")..][..number("length")]);
        let record = String::from_utf8(record).expect("text");
        assert!(
            record.contains(&format!("WARC-Target-URI: {url}\r\n")),
            "{record}"
        );
        assert!(record.contains("WARC-Type: response"), "{record}");
        assert_eq!(pages.insert(url, line), None, "a line is there twice");
    }
    assert_eq!(pages.len(), PAGES as usize);
}

#[test]
fn a_full_disk_pauses_the_crawl_is_logged_once_and_loses_no_result() {
    for below in [
        "out",
        "out/warc",
        "out/results.jsonl",
        "out/stats.json",
        "out/throttle.jsonl",
    ] {
        capture();
        let (mut crawler, world) = crawl(below, FULL_UNTIL);
        assert_eq!(run(&mut crawler), FinishReason::Finished, "{below}");
        let lines = captured();
        assert_eq!(lines.len(), 1, "{below}: {lines:?}");
        assert!(lines[0].contains("disk full (cannot "), "{lines:?}");
        assert!(lines[0].contains(below), "{lines:?}");
        check_whole(&crawler);
        // The crawl detects it within a few seconds, the period in which such a file is written.
        let found_out = FULL_FROM + Duration::from_secs(4);
        let hits = world.borrow();
        let sent = hits
            .hits()
            .iter()
            .map(|hit| hit.at.saturating_since(Instant::START));
        let paused = sent.filter(|at| (found_out..FULL_UNTIL).contains(at));
        assert_eq!(paused.count(), 0, "{below}");
        let stats = &crawler.io().files()[Path::new("out/stats.json")];
        let stats: Value = serde_json::from_slice(stats).expect("JSON");
        assert_eq!(stats["finish_reason"], "finished");
        assert_eq!(stats["disk_pauses"], 1);
        let paused = stats["disk_paused"].as_f64().expect("a number");
        assert!((53.0..59.0).contains(&paused), "{below}: {paused}");
    }
}

#[test]
fn a_crawl_that_waits_for_room_sleeps() {
    let (mut crawler, _) = crawl("out", FULL_UNTIL);
    let mut turns = 0;
    while crawler.io().now().saturating_since(Instant::START) < FULL_UNTIL {
        assert_eq!(turn(&mut crawler, None), Turn::GoesOn);
        turns += 1;
    }
    assert!(turns < 1000, "{turns} turns in a minute");
}

#[test]
fn a_stop_with_a_full_disk_waits_for_its_grace_time_and_then_saves_what_fits() {
    for (below, grace) in [("out/warc", 10), ("out", 10), ("out/warc", 0)] {
        let (mut crawler, _) = crawl(below, Duration::from_secs(3600));
        let stopper = crawler.stopper();
        let at = |crawler: &Crawler<Sim>| crawler.elapsed().as_secs();
        while at(&crawler) < 20 {
            assert_eq!(turn(&mut crawler, None), Turn::GoesOn);
        }
        stopper.shutdown(Duration::from_secs(grace));
        assert_eq!(run(&mut crawler), FinishReason::SinkFailed);
        let took = at(&crawler) - 20;
        assert!((grace..grace + 4).contains(&took), "{took} s");
        let error = crawler.write_error().expect("a result is lost");
        assert_eq!(error.code(), "full");
        if below == "out/warc" {
            let stats = &crawler.io().files()[Path::new("out/stats.json")];
            let stats: Value = serde_json::from_slice(stats).expect("JSON");
            assert_eq!(stats["finish_reason"], "sink_failed");
        }
        let mut all: Vec<String> = crawler
            .take_pending()
            .map(|left| left.request.url)
            .collect();
        for line in lines(&crawler) {
            if line["final"] == true && line["error"].is_null() {
                all.push(line["url"].as_str().expect("a URL").to_owned());
            }
        }
        all.sort();
        let count = all.len();
        all.dedup();
        assert_eq!(
            (count, all.len()),
            (PAGES as usize, PAGES as usize),
            "{below}"
        );
    }
}

#[test]
fn a_stop_is_graceful_if_disk_space_becomes_free_in_time() {
    let (mut crawler, _) = crawl("out", Duration::from_secs(25));
    let stopper = crawler.stopper();
    while crawler.elapsed() < Duration::from_secs(20) {
        assert_eq!(turn(&mut crawler, None), Turn::GoesOn);
    }
    stopper.shutdown(Duration::from_secs(10));
    assert_eq!(run(&mut crawler), FinishReason::Shutdown);
    assert!(crawler.write_error().is_none());
    let pending = crawler.take_pending().count();
    assert_eq!(lines(&crawler).len() + pending, PAGES as usize);
}

#[test]
fn a_limit_of_time_holds_while_the_disk_is_full() {
    let run_for = |seconds: u64, (pages, think): (u32, u64), until| {
        let config = Config::default().with("CLOSESPIDER_TIMEOUT", seconds);
        let config = config.and_then(|config| config.with("STOP_GRACE", 10));
        let world = calm(Duration::from_millis(think));
        let mut crawler = crawl_in("out/warc", until, world, config.expect("settings"));
        for page in 0..pages {
            crawler.submit(get(1, page)).expect("it is a URL");
        }
        let reason = run(&mut crawler);
        let pending = crawler.take_pending().count();
        assert_eq!(lines_of_pages(&crawler) + pending, pages as usize);
        (crawler.elapsed().as_secs(), reason, crawler)
    };
    let forever = Duration::from_secs(3600);
    // The second has fetched all before the limit, and waits to write the result.
    for (seconds, pages) in [(20, (PAGES, 10)), (60, (1, 5000))] {
        capture();
        let (ended_at, reason, crawler) = run_for(seconds, pages, forever);
        assert_eq!(reason, FinishReason::SinkFailed);
        let expected = seconds + 10..seconds + 14;
        assert!(expected.contains(&ended_at), "{seconds}: {ended_at} s");
        let error = crawler.write_error().expect("a result is lost");
        assert_eq!(error.code(), "full");
        let lines = captured();
        let waits = lines.iter().filter(|line| line.contains("results wait"));
        assert_eq!(waits.count(), usize::from(pages.0 == 1), "{lines:?}");
    }
    // There is room in time.
    let (ended_at, reason, crawler) = run_for(20, (PAGES, 10), Duration::from_secs(25));
    assert_eq!(reason, FinishReason::Timeout);
    assert!((20..28).contains(&ended_at), "{ended_at} s");
    assert!(crawler.write_error().is_none());
}

/// Number of lines of pages that ended well.
fn lines_of_pages(crawler: &Crawler<Sim>) -> usize {
    let lines = lines(crawler);
    let ended = lines
        .iter()
        .filter(|line| line["final"] == true && line["error"].is_null());
    ended.count()
}

#[test]
fn stops_while_a_crawl_at_its_limit_waits_for_pages_need_no_third_for_the_disk() {
    // The last pages are in flight at the time limit, and end after about 10 s.
    let config = Config::default().with("CLOSESPIDER_TIMEOUT", 7);
    let think = Duration::from_secs(5);
    let forever = Duration::from_secs(3600);
    let config = config.expect("a setting");
    let (mut crawler, _) = crawl_with("out/warc", forever, think, config);
    let stopper = crawler.stopper();
    let mut turn_until = |millis| {
        while crawler.elapsed() < Duration::from_millis(millis) {
            assert_eq!(turn(&mut crawler, None), Turn::GoesOn);
        }
        assert!(crawler.progress().in_flight > 0, "{millis}");
    };
    turn_until(7500);
    stopper.stop();
    turn_until(7600);
    stopper.stop_now();
    assert_eq!(run(&mut crawler), FinishReason::SinkFailed);
    let took = crawler.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
}

#[test]
fn a_crawl_pauses_at_its_reserve_of_free_space_and_loses_nothing() {
    capture();
    let world = calm(Duration::from_millis(10));
    let config = Config::default()
        .with("DISK_FREE_MIN", 10_000)
        .expect("a setting");
    let full = FullDisk {
        below: PathBuf::from("out"),
        from: Duration::ZERO,
        until: FULL_UNTIL,
        free: 50_000,
    };
    let mut crawler = crawl_on(full, Shared::clone(&world), config);
    for page in 0..PAGES {
        crawler.submit(get(1, page)).expect("it is a URL");
    }
    while crawler.io().now() < Instant::START + FULL_UNTIL - Duration::from_secs(1) {
        turn(&mut crawler, Some(Duration::from_millis(100)));
        let written: usize = crawler.io().files().values().map(Vec::len).sum();
        assert!(written <= 40_000, "{written} bytes are written");
    }
    let asked = world.borrow().hits().len();
    assert!((10..PAGES as usize).contains(&asked), "{asked} pages");
    assert_eq!(run(&mut crawler), FinishReason::Finished);
    check_whole(&crawler);
    let lines = captured();
    let full: Vec<&String> = lines
        .iter()
        .filter(|line| line.contains("disk full"))
        .collect();
    let [line] = full[..] else {
        panic!("one line expected: {full:?}");
    };
    assert!(line.contains("bytes are free on its volume"), "{line}");
    assert!(line.contains("DISK_FREE_MIN keeps 10000 free"), "{line}");
}
