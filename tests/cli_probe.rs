//! Compares the measurements of `argiope probe` with the server's own clock, and its HDR log with
//! HdrHistogram for Python. A test whose dependency is missing (that package, io_uring) prints that it was
//! skipped.
#![cfg(feature = "cli")]

#[expect(
    dead_code,
    reason = "servers for tests do more than this one asks of them"
)]
mod loopback;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use loopback::{Reply, Server};

/// Adds the intervals of each tag together; prints the count and the percentiles of each, and the
/// start and the end of each interval.
const READER: &str = r#"
import json, sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

empty = lambda: HdrHistogram(1, 3600 * 10**9, 3)
reader = HistogramLogReader(sys.argv[1], empty())
sums, spans = {}, []
while (interval := reader.get_next_interval_histogram()) is not None:
    tag = interval.get_tag() or "due"
    sums.setdefault(tag, empty()).add(interval)
    spans.append([tag, interval.get_start_time_stamp(), interval.get_end_time_stamp()])
measures = {
    tag: {
        "count": sum.get_total_count(),
        **{name: sum.get_value_at_percentile(percent) / 1e9
           for name, percent in [("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9), ("max", 100)]},
    }
    for tag, sum in sums.items()
}
print(json.dumps({"measures": measures, "spans": spans}))
"#;

/// Reports what is not checked. Written to stderr directly, because the test harness captures the output
/// of passing tests.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// The reader's output for a log; `None` without the reader.
fn read(log: &Path) -> Option<Value> {
    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output().ok();
    let there = python(&["-c", "import hdrh"]).is_some_and(|output| output.status.success());
    if !there {
        skip("hdrh is not installed (pip install hdrhistogram), so no HDR log was read by it");
        return None;
    }
    let output = python(&["-c", READER, log.to_str().expect("a path")]).expect("it just ran");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).expect("it prints JSON"))
}

/// The median of spans in seconds.
fn median(mut spans: Vec<f64>) -> f64 {
    assert!(!spans.is_empty());
    spans.sort_by(f64::total_cmp);
    spans[spans.len() / 2]
}

/// Medians, while our thread is kept busy: the server's latency as we measure it, as the server measures
/// it, and our lateness. `None` if the kernel does not support this back end.
fn stalled(io: &str) -> Option<(f64, f64, f64)> {
    let server = Server::start(|_| Reply::page("a page").after(Duration::from_millis(20)));
    let output = Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args(["probe", "http://a.test/", "--json"])
        .args(["--rate", "40", "--requests", "80"])
        .args(["--stall", "50ms", "--results", "-", "--io", io])
        .args(["--allow-net", "loopback", "--resolve", &server.here()])
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = errors.lines().find(|line| line.starts_with('{'));
    let report: Value = report
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("{errors}"));
    if report["io"] != io {
        let why = errors.lines().next().unwrap_or_default();
        skip(&format!("nothing was measured on {io}: {why}"));
        return None;
    }
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    assert_eq!(lines.len(), 80);
    let ours = |key: &str| {
        let spans = lines.iter().map(|line| line[key].as_f64().expect(key));
        median(spans.collect())
    };
    let theirs = server.asked();
    let theirs = theirs
        .iter()
        .map(|asked| (asked.done - asked.at).as_secs_f64());
    Some((
        ours("server_latency"),
        median(theirs.collect()),
        ours("lateness"),
    ))
}

#[test]
fn a_stalled_probe_measures_the_servers_time() {
    for io in ["epoll", "uring"] {
        let Some((ours, theirs, lateness)) = stalled(io) else {
            assert_eq!(io, "uring", "every Linux has epoll");
            continue;
        };
        // A thread that only sleeps is a tenth of that late.
        assert!(lateness > 0.005, "{io}: it is busy: {lateness} s");
        let apart = (ours - theirs).abs();
        assert!(
            apart < 0.003,
            "{io}: {ours} s by us, {theirs} s by the server"
        );
    }
}

#[test]
fn the_hdr_log_has_the_percentiles_of_the_report() {
    let asked = AtomicU64::new(0);
    let silence = Mutex::new(None);
    let server = Server::start(move |_| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        let mut after = Duration::from_millis(asked % 20);
        // Requests within two seconds of the hundredth are answered after them, so that some intervals
        // have no answer on any machine.
        let mut silence = silence.lock().expect("no server panics");
        if asked >= 100 {
            let until = *silence.get_or_insert(loopback::now() + Duration::from_millis(2100));
            after = after.max(until.saturating_sub(loopback::now()));
        }
        let page = Reply::page("a page").after(after);
        // Some connections are set up during the measurement, however fast the pages are.
        match asked % 10 {
            0 => page.field("Connection", "close"),
            _ => page,
        }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("probe.hlog");
    let output = Command::new(env!("CARGO_BIN_EXE_argiope"))
        .args(["probe", "http://a.test/", "--json", "--rate", "200"])
        .args(["--duration", "2500ms", "--warmup", "300ms", "--hdr"])
        .arg(&log)
        .args(["--allow-net", "loopback", "--resolve", &server.here()])
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let ours: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    let Some(theirs) = read(&log) else {
        return;
    };
    let measures = ours["latency"].as_object().expect("an object");
    let measured: BTreeMap<_, _> = measures
        .iter()
        .filter(|(_, spread)| !spread.is_null())
        .collect();
    assert_eq!(measured.len(), 9, "{ours}");
    let found = theirs["measures"].as_object().expect("an object");
    assert_eq!(found.len(), measured.len(), "{theirs}");
    for (measure, spread) in measured {
        let found = &found[measure];
        assert_eq!(found["count"], spread["count"], "{measure}");
        for statistic in ["p50", "p90", "p99", "p999", "max"] {
            let value = |of: &Value| of[statistic].as_f64().expect("a span");
            let (ours, theirs) = (value(spread), value(found));
            assert!(
                (ours - theirs).abs() <= ours * 0.001 + 1e-9,
                "{measure} {statistic}: {ours} {theirs}"
            );
        }
    }
    // One interval per second, and none without an answer. Stamps are in whole milliseconds.
    let spans = theirs["spans"].as_array().expect("a list").iter();
    let due: Vec<(f64, f64)> = spans
        .filter(|span| span[0] == "due")
        .map(|span| (span[1].as_f64().expect("ms"), span[2].as_f64().expect("ms")))
        .collect();
    assert!(due.len() >= 2, "{due:?}");
    for pair in due.windows(2) {
        assert!(pair[1].0 - pair[0].1 >= -2.0, "they overlap: {due:?}");
    }
    let text = fs::read_to_string(&log).expect("the log");
    assert!(text.contains("#[StartTime: "), "{text}");
}
