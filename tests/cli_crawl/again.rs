//! Several crawls, in sequence or at once, in the same output directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::ends::{check_nothing_lost, of_pages};
use crate::run::{Crawl, Going, check_refused};
use crate::server::{Asked, Server, page};

/// A crawl that was ended by a limit, with what is left of it.
fn left_off(server: &Server) -> (Crawl, String) {
    let (crawl, _) = of_pages(server, 3000, &["--max-pages", "20"]);
    crawl.try_run().expect(0);
    let pending = fs::read_to_string(crawl.folder().join("out/pending.jsonl")).expect("it is left");
    (crawl, pending)
}

/// Crawls these seeds into the same directory once more, and is killed soon.
#[track_caller]
fn killed(server: &Server, crawl: &Crawl, seeds: &str) {
    let args = ["--overwrite", "--no-warc", "-s", "DOWNLOAD_DELAY=20ms"];
    let next = Crawl::of(&[]).with(&args).aloud().command();
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec \"$0\" \"$@\" --seeds {seeds}")])
        .arg(next.get_program())
        .args(next.get_args());
    let asked = server.asked().len();
    let going = Going::start_command(command, crawl.folder(), b"");
    server.wait_for_requests(asked + 2);
    going.signal(Signal::KILL);
    let ended = going.wait();
    assert_eq!(ended.code, None);
    let is_named = ended.err.contains("pending.jsonl.old");
    assert_eq!(is_named, !seeds.contains("old"), "{}", ended.err);
}

#[test]
fn overwrite_keeps_a_seeds_file_as_pending_jsonl_old() {
    let server = Server::new(|_: &Asked| page("a page"));
    for seeds in ["out/pending.jsonl", "- < out/pending.jsonl"] {
        let (crawl, pending) = left_off(&server);
        let read = |name: &str| fs::read_to_string(crawl.folder().join(name));
        killed(&server, &crawl, seeds);
        assert_eq!(read("out/pending.jsonl.old").ok(), Some(pending.clone()));
        assert!(read("out/pending.jsonl").is_err());
        // Once more, from what was kept: it stays where it is.
        killed(&server, &crawl, "out/pending.jsonl.old");
        assert_eq!(read("out/pending.jsonl.old").ok(), Some(pending));
    }
}

/// Waits until a file is there.
pub fn wait_for_file(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "{path:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

const SLOWLY: [&str; 4] = [
    "-s",
    "DOWNLOAD_DELAY=100ms",
    "-s",
    "CONCURRENT_REQUESTS_PER_DOMAIN=1",
];

/// A crawl whose results are being written.
fn under_way(server: &Server) -> (Crawl, Going, BTreeSet<String>) {
    let (crawl, urls) = of_pages(server, 400, &SLOWLY);
    let going = crawl.start();
    wait_for_file(&crawl.folder().join("out/results.jsonl"));
    (crawl, going, urls)
}

/// Stops a crawl that has lost its directory, and reads how many requests it reports as not saved.
#[track_caller]
fn check_reports_the_loss(going: Going) {
    going.signal(Signal::INT);
    let ended = going.wait().expect(1);
    let mut lines = ended
        .err
        .lines()
        .filter(|line| line.contains("are not saved"));
    let line = lines.next().unwrap_or_else(|| panic!("{}", ended.err));
    assert_eq!(lines.next(), None);
    let mut counts = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let count = counts.next().unwrap_or_else(|| panic!("{line}"));
    assert!((200..400).contains(&count), "{line}");
}

#[test]
fn a_crawl_writes_nothing_to_a_replaced_directory() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, first, _) = under_way(&server);
    let out = crawl.folder().join("out");
    fs::remove_dir_all(&out).expect("it can be deleted");
    let second_server = Server::new(|_: &Asked| page("a page"));
    let urls: BTreeSet<String> = (0..400)
        .map(|n| second_server.url(&format!("/{n}")))
        .collect();
    let seeds: Vec<&str> = urls.iter().map(String::as_str).collect();
    crawl.file("second", seeds.join("\n").as_bytes());
    let second = Crawl::of(&["--seeds", "second", "--no-warc"]).with(&SLOWLY);
    let second = Going::start_command(second.command(), crawl.folder(), b"");
    wait_for_file(&out.join("results.jsonl"));
    // Long enough for the first crawl to have replaced its statistics.
    std::thread::sleep(Duration::from_secs(6));
    check_reports_the_loss(first);

    let owner = fs::read_to_string(out.join(".argiope-lock")).expect("it is locked");
    assert!(
        owner.contains(&format!("process {} ", second.id())),
        "{owner}"
    );
    assert!(!out.join("pending.jsonl").exists());
    if let Ok(stats) = fs::read(out.join("stats.json")) {
        let stats: Value = serde_json::from_slice(&stats).expect("JSON");
        assert!(stats["finish_reason"].is_null(), "the second goes on");
    }
    second.signal(Signal::INT);
    let crawled = crawl.left(second.wait().expect(3));
    check_nothing_lost(&crawled, &urls);
    assert_eq!(crawled.stats()["seeds"], 400);
    assert!(!out.join(".argiope-lock").exists());
}

#[test]
fn a_crawl_reports_a_deleted_directory() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, going, _) = under_way(&server);
    fs::remove_dir_all(crawl.folder().join("out")).expect("it can be deleted");
    check_reports_the_loss(going);
    assert!(!crawl.folder().join("out").exists());
}

#[test]
fn a_crawl_writes_pending_jsonl_to_a_moved_directory() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, going, urls) = under_way(&server);
    let (out, moved) = (crawl.folder().join("out"), crawl.folder().join("monday"));
    fs::rename(&out, &moved).expect("it can be moved");
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert!(!out.exists());
    fs::rename(&moved, &out).expect("it can be moved back");
    check_nothing_lost(&crawl.left(ended), &urls);
    assert!(!out.join(".argiope-lock").exists());
}

#[test]
fn standard_output_may_go_to_a_file_in_the_output_directory() {
    let server = Server::new(|_: &Asked| page("a page"));
    for args in [&[][..], &["--overwrite"]] {
        let crawl = Crawl::of(&[&server.url("/")])
            .with(&["--results", "-", "--out", "out"])
            .with(args);
        fs::create_dir(crawl.folder().join("out")).expect("a folder");
        let mut command = Command::new("sh");
        let script = r#"exec "$0" "$@" > out/results.jsonl"#;
        command.args(["-c", script]);
        command.arg(crawl.command().get_program());
        command.args(crawl.command().get_args());
        let ended = Going::start_command(command, crawl.folder(), b"").wait();
        let crawled = crawl.left(ended.expect(0));
        assert_eq!(crawled.read("results.jsonl").lines().count(), 1);
    }
}

#[test]
fn a_signal_while_seeds_are_read_deletes_nothing_and_ends_the_process() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, pending) = left_off(&server);
    // No seed among them, and more than is read in a moment.
    crawl.file("wrong", "no seed\n".repeat(4_000_000).as_bytes());
    let next = Crawl::of(&["--seeds", "wrong", "--overwrite"]);
    let going = Going::start_command(next.command(), crawl.folder(), b"");
    std::thread::sleep(Duration::from_millis(500));
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert_eq!(ended.out, "");
    let kept = fs::read_to_string(crawl.folder().join("out/pending.jsonl"));
    assert_eq!(kept.ok(), Some(pending));
}

#[test]
fn a_deleted_lock_file_does_not_stop_a_crawl() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, going, urls) = under_way(&server);
    fs::remove_file(crawl.folder().join("out/.argiope-lock")).expect("it can be deleted");
    going.signal(Signal::INT);
    let crawled = crawl.left(going.wait().expect(3));
    check_nothing_lost(&crawled, &urls);
}

#[test]
fn without_a_directory_a_warning_counts_queued_requests() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, urls) = of_pages(&server, 3000, &["--max-pages", "20", "--results", "-"]);
    let ended = crawl.aloud().try_run().expect(0);
    let done: BTreeSet<String> = ended
        .lines()
        .iter()
        .filter(|line| line["final"] == true && line["error"]["kind"] != "cancelled")
        .map(|line| crate::run::text(&line["url"]))
        .collect();
    let lines: Vec<&str> = ended
        .err
        .lines()
        .filter(|line| line.contains("are not saved"))
        .collect();
    assert_eq!(lines.len(), 1, "{}", ended.err);
    let count = (urls.len() - done.len()).to_string();
    assert!(
        lines[0].split(' ').any(|word| word == count) && lines[0].contains("--out"),
        "{count} in {}",
        lines[0]
    );
}

#[test]
fn a_crawl_whose_lock_file_was_deleted_is_shown_and_admits_no_other() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, going, _) = under_way(&server);
    let lock = crawl.folder().join("out/.argiope-lock");
    fs::remove_file(&lock).expect("it can be deleted");
    let run = |args: &[&str]| Going::start(args, crawl.folder(), b"").wait();
    let owner = format!("process {} on ", going.id());
    let shown = run(&["state", "out"]).expect(0).out;
    assert!(shown.contains(&owner), "{shown}");
    for option in ["--resume", "--overwrite"] {
        let args = ["crawl", "--out", "out", option, "http://127.0.0.1:1/"];
        let refused = run(&args);
        check_refused(&refused, &["in use by another crawl", &owner]);
    }
    assert!(!lock.exists(), "who is refused makes none");
    going.signal(Signal::INT);
    going.wait().expect(3);
    let shown = run(&["state", "out"]).expect(0).out;
    assert!(!shown.contains("process "), "{shown}");
}

#[test]
fn the_summary_has_all_that_is_queued_though_pending_jsonl_cannot_be_written() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, _) = of_pages(&server, 400, &SLOWLY);
    let crawl = crawl.aloud();
    let going = crawl.start();
    wait_for_file(&crawl.folder().join("out/results.jsonl"));
    let in_its_place = crawl.folder().join("out/pending.jsonl.tmp");
    fs::create_dir(in_its_place).expect("a folder");
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert!(ended.err.contains("nothing is lost"), "{}", ended.err);
    let line = ended.err.lines().find(|line| line.contains("still queued"));
    let mut words = line.into_iter().flat_map(|line| line.split(' '));
    let count = words.find_map(|word| word.parse::<u64>().ok());
    assert!(
        count.is_some_and(|count| (200..400).contains(&count)),
        "{}",
        ended.err
    );
}

#[test]
fn overwrite_keeps_results_that_no_crawl_has_written() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawl = Crawl::of(&[&server.url("/"), "--overwrite"]).aloud();
    let own = "{\"id\": 1, \"title\": \"mine\"}\n";
    fs::create_dir(crawl.folder().join("out")).expect("a folder");
    crawl.file("out/results.jsonl", own.as_bytes());
    let ended = crawl.try_run().expect(0);
    let warning = "results.jsonl was not written by a crawl: it is kept as out/results.jsonl.old";
    assert!(ended.err.contains(warning), "{}", ended.err);
    // That of the crawl is replaced.
    let ended = crawl.try_run().expect(0);
    assert!(!ended.err.contains("was not written"), "{}", ended.err);
    let crawled = crawl.left(ended);
    assert_eq!(crawled.read("results.jsonl.old"), own);
    assert!(!crawled.out().join("results.jsonl.old2").exists());
    assert_eq!(crawled.lines().len(), 1);
}
