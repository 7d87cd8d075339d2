//! Tests of the harvester: pace and cost of each key at the API, and rows in the database.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use argiope::serde_json::{Value, json};
use argiope::{Config, FinishReason, Stopper};
use tempfile::TempDir;

use crate::harvest::{BEHIND_MAX, JOBS_PER_KEY, Key, harvest, open};
use crate::in_time;
use crate::loopback::{Asked, Reply, Server, gaps, peak};

/// What a stamp of the kernel's may be early, and how long a crawl may be without the processor between
/// the stamp of a departure and its system call.
const TOLERANCE: Duration = Duration::from_millis(11);

/// A database of items, which cost 1, with a search after every fourth, which costs 5.
fn database(jobs: usize) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("jobs.sqlite");
    let database = open(&path).expect("a database");
    for job in 1..=jobs {
        let (kind, cost) = if job % 5 == 0 {
            ("search", 5)
        } else {
            ("item", 1)
        };
        let url = format!("http://api.test/{kind}/{job}");
        let insert = "INSERT INTO job (url, cost) VALUES (?1, ?2)";
        database
            .execute(insert, (url, cost))
            .expect("it is written");
    }
    (folder, path)
}

fn keys(names: &[&str]) -> Vec<Key> {
    let key = |name: &&str| Key {
        name: name.to_string(),
        secret: format!("secret-{name}"),
    };
    names.iter().map(key).collect()
}

/// The number that a query gives.
fn count(path: &Path, query: &str) -> i64 {
    let database = open(path).expect("a database");
    let query = format!("SELECT CAST(({query}) AS INTEGER)");
    let number = database.query_row(&query, [], |row| row.get(0));
    number.expect("a number")
}

fn limited(server: &Server, limits: Value) -> Config {
    server
        .config()
        .with("THROTTLING_SCOPES", limits)
        .expect("the limits are sound")
}

/// What was asked under a key.
fn under(server: &Server, key: &str) -> Vec<Asked> {
    let shown = format!("Bearer secret-{key}");
    server.asked_of(|asked| asked.header("Authorization") == Some(&shown))
}

fn cost(asked: &Asked) -> u32 {
    if asked.target.starts_with("/search/") {
        5
    } else {
        1
    }
}

#[test]
fn each_key_is_used_within_its_own_limits_and_each_answer_is_a_row() {
    let (window, delay) = (Duration::from_millis(500), Duration::from_millis(50));
    let server = Server::start(|asked| Reply::page(&asked.target).after(Duration::from_millis(10)));
    let (_folder, path) = database(75);
    let config = limited(
        &server,
        json!({
            "key/a": {"quota": 10, "window": "500ms", "window_kind": "sliding", "concurrency": 3},
            "key/b": {"delay": "50ms", "jitter": 0, "concurrency": 1},
            "key/c": {"quota": 6, "window": "500ms", "window_kind": "sliding", "concurrency": 2},
        }),
    );
    let reason = in_time({
        let path = path.clone();
        move || harvest(&path, keys(&["a", "b", "c"]), config, |_| {}).expect("it is harvested")
    });
    assert_eq!(reason, FinishReason::Finished);

    let [a, b, c] = ["a", "b", "c"].map(|key| under(&server, key));
    assert_eq!(
        a.len() + b.len() + c.len(),
        75,
        "each job is asked for once"
    );
    for (asked, quota, places) in [(&a, 10, 3), (&c, 6, 2)] {
        for first in asked {
            let end = first.at + window - TOLERANCE;
            let within = asked
                .iter()
                .filter(|other| (first.at..end).contains(&other.at));
            let spent: u32 = within.map(cost).sum();
            assert!(spent <= quota, "{spent} of {quota} were spent in a window");
        }
        assert!(!asked.is_empty() && peak(asked) <= places);
    }
    assert!(
        gaps(&b).iter().all(|gap| *gap >= delay - TOLERANCE),
        "{:?}",
        gaps(&b)
    );
    assert!(!b.is_empty() && peak(&b) == 1);

    assert_eq!(
        count(&path, "SELECT count(*) FROM job WHERE state = 'done'"),
        75
    );
    assert_eq!(count(&path, "SELECT sum(cost) FROM answer"), 60 + 15 * 5);
    for (key, asked) in [("a", &a), ("b", &b), ("c", &c)] {
        let rows = format!(
            "SELECT count(*) FROM answer WHERE key = '{key}' AND status = 200 AND latency >= 0.01
             AND url = 'http://api.test' || CAST(body AS TEXT)"
        );
        assert_eq!(count(&path, &rows), asked.len() as i64);
        let spent = format!("SELECT sum(cost) FROM answer WHERE key = '{key}'");
        let expected: u32 = asked.iter().map(cost).sum();
        assert_eq!(count(&path, &spent), i64::from(expected));
    }
}

/// A server that requests a stop at its tenth request.
fn stopping(stop: fn(&Stopper)) -> (Server, Arc<Mutex<Option<Stopper>>>) {
    let stopper = Arc::new(Mutex::new(None));
    let (stopper_slot, times) = (Arc::clone(&stopper), Mutex::new(0));
    let server = Server::start(move |asked| {
        let mut times = times.lock().expect("no holder panics");
        *times += 1;
        if *times == 10 {
            stop(
                stopper_slot
                    .lock()
                    .expect("no holder panics")
                    .as_ref()
                    .expect("it runs"),
            );
        }
        match asked.target.as_str() {
            "/item/3" => Reply::status("404 Not Found"),
            "/item/7" => Reply::redirect("302 Found", "/moved"),
            _ => Reply::page("a page"),
        }
    });
    (server, stopper)
}

#[test]
fn a_second_harvest_continues_a_stopped_one_without_repeats() {
    for (stop, is_graceful) in [
        (Stopper::stop as fn(&Stopper), true),
        (Stopper::stop_now, false),
    ] {
        let (server, stopper) = stopping(stop);
        let (_folder, path) = database(40);
        let mut reasons = Vec::new();
        for run in 1..=2 {
            let config = limited(&server, json!({"default": {"concurrency": 2}}));
            let (path_of_it, stopper_slot) = (path.clone(), Arc::clone(&stopper));
            let started =
                move |comes| *stopper_slot.lock().expect("no holder panics") = Some(comes);
            reasons.push(in_time(move || {
                let harvested = harvest(&path_of_it, keys(&["a", "b"]), config, started);
                harvested.expect("it is harvested")
            }));
            let open = count(&path, "SELECT count(*) FROM job WHERE state = 'open'");
            // A stop at once cancels four on their way, and one more job waits for its redirect's target.
            let open_max = if is_graceful { 31 } else { 35 };
            let expected = if run == 1 { 20..=open_max } else { 0..=0 };
            assert!(expected.contains(&open), "{open} are left");
        }
        assert_eq!(reasons, [FinishReason::Shutdown, FinishReason::Finished]);

        for what in ["job", "DISTINCT job"] {
            let good = "FROM answer WHERE error IS NULL AND status IN (200, 404)";
            assert_eq!(count(&path, &format!("SELECT count({what}) {good}")), 40);
        }
        // One is redirected, and asked for again where the stop comes before its target. At once means
        // that four may be on their way.
        let asked = server.asked().len();
        let expected = 41..=if is_graceful { 42 } else { 46 };
        assert!(expected.contains(&asked), "{asked}");
        // What it leads to is asked for under the same key, and costs as much again.
        let moved = server.asked_of(|asked| asked.target == "/moved").remove(0);
        let shown = moved.header("Authorization").unwrap_or_default();
        assert!(shown.starts_with("Bearer secret-"), "{shown}");
        let rows =
            "SELECT count(*) FROM answer AS first JOIN answer AS second USING (job, key, cost)
                    WHERE first.status = 302 AND second.url LIKE '%/moved' AND second.status = 200";
        assert!(count(&path, rows) >= 1);
    }
}

#[test]
fn a_slow_commit_bounds_the_number_of_requests() {
    let (counts, seen) = channel();
    let counts = Mutex::new(counts);
    let server = Server::start(move |_| {
        let _ = counts.lock().expect("no holder panics").send(());
        Reply::page("a page")
    });
    let (_folder, path) = database(300);
    let other = open(&path).expect("a database");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("it is locked");
    let config = limited(&server, json!({"default": {"concurrency": 4}}));
    let harvester = thread::spawn({
        let path = path.clone();
        move || harvest(&path, keys(&["a", "b"]), config, |_| {}).expect("it is harvested")
    });

    for _ in 0..BEHIND_MAX {
        seen.recv_timeout(crate::PATIENCE)
            .expect("it goes on until so many wait");
    }
    // Were there no bound it would be a matter of milliseconds until all are there.
    let mut more = 0;
    while seen.recv_timeout(Duration::from_secs(1)).is_ok() {
        more += 1;
    }
    assert!(more <= 2 * JOBS_PER_KEY, "{more} more than may wait");

    other.execute_batch("COMMIT").expect("it is let go");
    assert_eq!(
        in_time(|| harvester.join().expect("it ends")),
        FinishReason::Finished
    );
    assert_eq!(count(&path, "SELECT count(*) FROM answer"), 300);
    assert_eq!(server.asked().len(), 300);
}

#[test]
fn a_failing_database_ends_the_harvest_with_its_error() {
    let server = Server::start(|_| Reply::page("a page"));
    let (_folder, path) = database(1000);
    open(&path)
        .and_then(|database| {
            database.execute_batch(
                "CREATE TRIGGER full BEFORE INSERT ON answer WHEN NEW.job = 20
                 BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
            )
        })
        .expect("it is written");
    let config = limited(&server, json!({"default": {"concurrency": 4}}));
    let error = in_time(move || {
        let harvested = harvest(&path, keys(&["a"]), config, |_| {});
        harvested
            .map_err(|error| error.to_string())
            .expect_err("the disk is full")
    });
    assert_eq!(error, "the disk is full");
    assert!(server.asked().len() < 1000);
}
