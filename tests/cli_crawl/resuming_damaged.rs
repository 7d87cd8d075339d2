//! `--resume` of a directory in which something is missing, old, or not as the crawl left it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Crawl, Ended, Going, check_refused, read_lines};
use crate::server::{Asked, Server, Step, page};

fn server() -> Server {
    Server::new(|_: &Asked| [vec![Step::Wait(Duration::from_millis(3))], page("p")].concat())
}

/// A crawl of so many seeds that ends after some.
fn left_off(server: &Server, seeds: usize, max: &str, args: &[&str]) -> Crawl {
    let crawl = Crawl::of(&["--seeds", "list", "--max-pages", max, "--follow", "none"])
        .with(&[
            "-s",
            "CONCURRENT_REQUESTS_PER_DOMAIN=1",
            "-s",
            "STATE_SYNC=10ms",
        ])
        .with(args);
    let list: String = (0..seeds)
        .map(|n| server.url(&format!("/q{n}\n")))
        .collect();
    crawl.file("list", list.as_bytes());
    crawl.try_run().expect(0);
    crawl
}

fn resume_in(folder: &Path, args: &[&str]) -> Ended {
    let args = [&["crawl", "--resume", "--out", "out"], args].concat();
    Going::start(&args, folder, b"").wait()
}

/// The files of a folder whose names have this part.
fn files_with(folder: &Path, part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut found: Vec<_> = paths
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().contains(part))
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_missing_file_of_keys_is_refused_with_its_remedy() {
    let server = server();
    let crawl = left_off(&server, 300, "200", &["-s", "SEEN_MEMORY=400"]);
    let runs = files_with(&crawl.folder().join("out/state"), "seen-");
    let run = runs.first().expect("keys are in files");
    let name = run.file_name().expect("a name").to_string_lossy();
    fs::remove_file(run).expect("it is there");
    let refused = resume_in(crawl.folder(), &[]);
    check_refused(
        &refused,
        &[&name, "restore the file from a backup", "--salvage"],
    );
    resume_in(crawl.folder(), &["--salvage", "--max-pages", "0"]).expect(0);
}

#[test]
fn pending_jsonl_of_an_earlier_end_does_not_outlive_the_beginning_of_a_resume() {
    let server = server();
    let crawl = left_off(&server, 300, "20", &[]);
    let pending = crawl.folder().join("out/pending.jsonl");
    assert!(pending.exists());
    let before = server.asked().len();
    let args = ["crawl", "--resume", "--out", "out", "--max-pages", "0"];
    let going = Going::start(&args, crawl.folder(), b"");
    server.wait_for_requests(before + 5);
    going.signal(Signal::KILL);
    going.wait();
    assert!(!pending.exists(), "some of its requests have ended");
}

#[test]
fn a_signal_while_the_state_is_read_ends_the_process_and_releases_the_directory() {
    let server = server();
    let crawl = left_off(&server, 30, "20", &[]);
    let state = crawl.folder().join("out/state");
    let before = fs::read(state.join("journal-00000001")).expect("a journal");
    // Opening a named pipe blocks until another process opens it for writing.
    let pipe = state.join("journal-00000009");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("it runs").success());
    for signal in [Signal::TERM, Signal::INT] {
        let going = Going::start(&["crawl", "--resume", "--out", "out"], crawl.folder(), b"");
        let lock = crawl.folder().join("out/.argiope-lock");
        while !lock.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        going.signal(signal);
        let ended = going.wait().expect(3);
        assert_eq!(ended.out, "");
        assert!(!lock.exists());
    }
    assert_eq!(fs::read(state.join("journal-00000001")).ok(), Some(before));
    fs::remove_file(pipe).expect("it is there");
    resume_in(crawl.folder(), &["--max-pages", "0"]).expect(0);
    assert_eq!(server.targets().len(), 30);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for path in files_with(from, "") {
        let name = path.file_name().expect("a name");
        fs::copy(&path, to.join(name)).expect("it can be copied");
    }
}

#[test]
fn what_a_resume_cuts_off_is_reported() {
    let server = server();
    let crawl = left_off(&server, 300, "20", &["--no-warc"]);
    let results = crawl.folder().join("out/results.jsonl");
    let before = fs::read_to_string(&results).expect("lines");
    let more = before.lines().next().expect("a line").to_owned() + "\n";
    fs::write(&results, format!("{before}{more}{more}{{\"cut")).expect("it can be written");
    let ended = resume_in(crawl.folder(), &["--max-pages", "1"]).expect(0);
    let cut = format!("out/results.jsonl: {} bytes (2 lines", 2 * more.len() + 5);
    assert!(ended.err.contains(&cut), "{}", ended.err);
    assert!(ended.err.contains("last commit"), "{}", ended.err);
    let quiet = resume_in(crawl.folder(), &["--max-pages", "1"]).expect(0);
    assert!(!quiet.err.contains("results.jsonl"), "{}", quiet.err);
}

#[test]
fn an_older_state_is_refused_and_with_salvage_newer_results_are_kept_elsewhere() {
    let server = server();
    let crawl = left_off(&server, 300, "20", &["-s", "WARC_SIZE_MAX=1KiB"]);
    let out = crawl.folder().join("out");
    let (state, backup) = (out.join("state"), crawl.folder().join("backup"));
    copy(&state, &backup);
    resume_in(crawl.folder(), &["--max-pages", "100"]).expect(0);
    let newer = fs::read_to_string(out.join("results.jsonl")).expect("lines");
    let warcs = files_with(&out.join("warc"), ".warc.gz");
    fs::remove_dir_all(&state).expect("it is there");
    copy(&backup, &state);
    let refused = resume_in(crawl.folder(), &[]);
    check_refused(
        &refused,
        &["out/warc/argiope-", "older", "--salvage", "uncommitted"],
    );
    assert_eq!(
        fs::read_to_string(out.join("results.jsonl")).ok(),
        Some(newer.clone())
    );
    assert_eq!(files_with(&out.join("warc"), ".warc"), warcs);
    let ended = resume_in(crawl.folder(), &["--salvage", "--max-pages", "0"]).expect(0);
    assert!(
        ended.err.contains("uncommitted/results.jsonl"),
        "{}",
        ended.err
    );
    let kept = fs::read_to_string(out.join("uncommitted/results.jsonl")).expect("it was kept");
    assert!(
        newer.ends_with(&kept) && kept.lines().count() > 50,
        "{}",
        kept.len()
    );
    let aside = files_with(&out.join("uncommitted"), ".warc.gz").len();
    assert!(
        aside > 10 && aside < warcs.len(),
        "{aside} of {}",
        warcs.len()
    );
    let lines = read_lines(&fs::read_to_string(out.join("results.jsonl")).expect("lines"));
    assert_eq!(
        lines.iter().filter(|line| line["final"] == true).count(),
        300
    );
}

#[test]
fn a_warc_file_that_was_being_written_and_is_gone_is_reported_as_lost() {
    let server = server();
    let crawl = Crawl::of(&[&server.url("/")])
        .with(&[
            "--follow",
            "all",
            "-s",
            "STATE_SYNC=10ms",
            "-s",
            "DOWNLOAD_DELAY=5ms",
        ])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1", "--seeds", "list"]);
    let list: String = (0..300).map(|n| server.url(&format!("/q{n}\n"))).collect();
    crawl.file("list", list.as_bytes());
    let going = crawl.start();
    server.wait_for_requests(60);
    going.signal(Signal::KILL);
    going.wait();
    let open = files_with(&crawl.folder().join("out/warc"), ".open");
    let [open] = &open[..] else {
        panic!("{open:?}");
    };
    fs::remove_file(open).expect("it is there");
    let ended = resume_in(crawl.folder(), &["--max-pages", "1"]).expect(0);
    let path = open.with_extension("");
    let name = path.file_name().expect("a name").to_string_lossy();
    let line = ended.err.lines().find(|line| line.contains(&*name));
    let line = line.unwrap_or_else(|| panic!("{}", ended.err));
    assert!(line.contains("bytes of it were committed"), "{line}");
    assert!(line.contains("deleted or moved"), "{line}");
    assert!(!line.contains("complete"), "{line}");
}
