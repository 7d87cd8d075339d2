//! Runs the binary, and reads its result lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Starts a crawl that writes to `out`, with its stderr beside it.
pub fn start(out: &Path, arguments: &[&str]) -> Child {
    start_by(Command::new(BINARY), out, arguments)
}

/// The same, by a command that starts others.
pub fn start_by(mut command: Command, out: &Path, arguments: &[&str]) -> Child {
    let errors = fs::File::create(errors_of(out)).expect("writable");
    command
        .arg("crawl")
        .arg("--out")
        .arg(out)
        .args(["--allow-net", "loopback"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .expect("the binary runs")
}

/// The binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_argiope");

/// Waits for a crawl's end; returns its exit code and output.
pub fn finish(mut child: Child, out: &Path) -> (Option<i32>, String) {
    let patience = Instant::now() + Duration::from_secs(120);
    let said = || fs::read_to_string(errors_of(out)).unwrap_or_default();
    while Instant::now() < patience {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return (status.code(), said());
        }
        sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("the crawl does not end:\n{}", said());
}

fn errors_of(out: &Path) -> PathBuf {
    out.with_extension("stderr")
}

/// The lines of a file of JSON lines.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    assert!(text.is_empty() || text.ends_with('\n'), "{path:?} is cut");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{path:?}: {line}")))
        .collect()
}

/// The URLs of a file of seeds that a crawl left, each once.
pub fn pending(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut urls = BTreeSet::new();
    for line in text.lines() {
        let url = match serde_json::from_str::<Value>(line) {
            Ok(seed) => seed["url"].as_str().expect("a seed has its URL").to_owned(),
            Err(_) => line.to_owned(),
        };
        assert!(urls.insert(url), "{line} is there twice");
    }
    urls
}

/// Text of a result line's field.
pub fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key}: {line}"))
}

/// A wall time of a result line, in seconds since 1970.
pub fn wall(line: &Value, key: &str) -> f64 {
    let text = text(line, key);
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().expect("digits");
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    assert!(text.ends_with('Z') && text.len() == "2026-01-01T00:00:00.000000000Z".len());
    let seconds = number(11, 13) * 3600 + number(14, 16) * 60 + number(17, 19);
    let nanos = number(20, 29);
    // Days of the years and months before, with March as the first month.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468;
    (days * 86_400 + seconds) as f64 + nanos as f64 / 1e9
}
