//! Seeds of a crawl that is resumed: files wherever they are, what pipes delivered, and what was rejected.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Crawl, Ended, Going};
use crate::server::{Server, page};

/// URLs of a server, one a line.
fn lines(server: &Server, range: std::ops::Range<u32>) -> String {
    let lines = range.map(|n| server.url(&format!("/{n}\n")));
    lines.collect()
}

/// Starts or continues a crawl into `out`, from any folder.
fn crawl(folder: &Path, out: &Path, args: &[&str], input: &str) -> Ended {
    let out = out.to_str().expect("text");
    let fixed = ["crawl", "--quiet", "--out", out, "--allow-net", "loopback"];
    let settings = ["-s", "DOWNLOAD_DELAY=0", "-s", "ROBOTSTXT_OBEY=false"];
    let more = ["--no-warc", "-s", "FRONTIER_MAX=5"];
    let all = [&fixed[..], &settings, &more, args].concat();
    Going::start(&all, folder, input.as_bytes()).wait()
}

#[test]
fn a_directory_below_dev_is_resumed_as_any_other() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let server = Server::new(|_| page("a page"));
    let out = memory.path().join("c");
    let run = |args: &[&str], input: &str| {
        let ended = crawl(memory.path(), &out, args, input).expect(0);
        assert_eq!(ended.err, "");
    };
    run(
        &["--seeds", "-", "--max-pages", "2"],
        &lines(&server, 0..60),
    );
    run(&["--resume", "--max-pages", "4"], "");
    let export = ["state", out.to_str().expect("text"), "--export"];
    let exported = Going::start(&export, memory.path(), b"").wait().expect(0);
    let left = exported.out.lines().count();
    assert!(left >= 50 && left + server.asked().len() == 60, "{left}");
    run(&["--resume", "--max-pages", "0"], "");
    assert_eq!(server.targets().len(), 60);
    // So is a seeds file there: it is read again.
    let (file, out) = (memory.path().join("seeds"), memory.path().join("d"));
    fs::write(&file, lines(&server, 100..130)).expect("a file");
    let seeds = ["--seeds", file.to_str().expect("text"), "--max-pages", "2"];
    crawl(memory.path(), &out, &seeds, "").expect(0);
    let ended = crawl(memory.path(), &out, &["--resume", "--max-pages", "0"], "").expect(0);
    assert_eq!(ended.err, "");
    assert_eq!(server.targets().len(), 90);
}

#[test]
fn what_another_crawl_left_of_a_pipe_is_a_seeds_file_as_any_other() {
    let server = Server::new(|_| page("a page"));
    let folder = tempfile::tempdir().expect("a folder");
    let run = |out: &str, args: &[&str], input: &str| {
        let ended = crawl(folder.path(), Path::new(out), args, input).expect(0);
        assert_eq!(ended.err, "");
    };
    run(
        "c",
        &["--seeds", "-", "--max-pages", "2"],
        &lines(&server, 0..40),
    );
    let first = server.asked().len();
    run(
        "e",
        &["--seeds", "c/state/unread-00000001", "--max-pages", "2"],
        "",
    );
    run("e", &["--resume", "--max-pages", "0"], "");
    // What the first crawl had queued is not in that file.
    let asked = server.targets().len();
    assert!(asked >= 30 && asked > first, "{asked}");
    let lines = fs::read_to_string(folder.path().join("c/state/unread-00000001"));
    let unread = lines.expect("it is kept").lines().count();
    assert_eq!(asked, first + unread);
}

#[test]
fn a_resumed_run_that_sends_nothing_does_not_advise_to_begin_anew() {
    let server = Server::new(|_| page("a page"));
    let crawl = Crawl::of(&[&server.url("/0")]).aloud();
    crawl.try_run().expect(0);
    crawl.file("more.txt", lines(&server, 0..1).as_bytes());
    let args = ["crawl", "--resume", "--out", "out", "--seeds", "more.txt"];
    let ended = Going::start(&args, crawl.folder(), b"").wait().expect(0);
    assert_eq!(server.asked().len(), 1, "all of it is known");
    assert!(
        ended.err.contains("still queued   nothing"),
        "{}",
        ended.err
    );
    assert!(!ended.err.contains("--overwrite"), "{}", ended.err);
}

#[test]
fn a_rejected_seed_has_one_line_whatever_stopped_the_crawl_between() {
    let server = Server::new(|_| page("a page"));
    let mut text = String::new();
    for number in 0..40 {
        text += &server.url(&format!("/{number}\n"));
        if number % 2 == 0 {
            text += &format!("not a url {number}\n");
        }
    }
    let crawl = Crawl::of(&["--seeds", "s.txt", "--max-pages", "5"])
        .with(&["-s", "FRONTIER_MAX=5"])
        .aloud();
    crawl.file("s.txt", text.as_bytes());
    let first = crawl.try_run().expect(0);
    assert!(
        first.err.contains("20 invalid seeds are in"),
        "{}",
        first.err
    );
    for pages in ["12", "0"] {
        let args = ["crawl", "--resume", "--out", "out", "--max-pages", pages];
        let ended = Going::start(&args, crawl.folder(), b"").wait().expect(0);
        assert!(!ended.err.contains("not a url"), "{}", ended.err);
        assert!(!ended.err.contains("invalid"), "{}", ended.err);
    }
    assert_eq!(server.targets().len(), 40);
    let crawled = crawl.left(first);
    assert_eq!(crawled.read("rejected.jsonl").lines().count(), 20);
}

#[test]
fn a_second_signal_ends_the_reading_of_a_pipe_that_has_no_end() {
    let server = Server::new(|_| page("a page"));
    let crawl = Crawl::of(&["--seeds", "fifo", "--stop-grace", "40s"]).with(&TAKES_FEW);
    let crawl = crawl.aloud();
    let pipe = crawl.folder().join("fifo");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo is there").success());
    let first = format!("{}\n", server.url("/first"));
    let writer = thread::spawn(move || {
        let mut pipe = fs::OpenOptions::new()
            .write(true)
            .open(pipe)
            .expect("a pipe");
        pipe.write_all(first.as_bytes()).expect("it is read");
        // Until its reader is gone.
        let block = "http://a.test/x\n".repeat(1000);
        while pipe.write_all(block.as_bytes()).is_ok() {}
    });
    let going = crawl.start();
    server.wait_for_requests(1);
    going.signal(Signal::TERM);
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    writer.join().expect("it ends");
    assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
    let words = "a pipe did not end before a second signal";
    assert!(ended.err.contains(words), "{}", ended.err);
}

/// A crawl of a page an hour, which does not look at ten thousand seeds first.
const TAKES_FEW: [&str; 6] = [
    "-s",
    "DOWNLOAD_DELAY=1h",
    "-s",
    "FRONTIER_MAX=10",
    "--contact",
    "me@example.org",
];
