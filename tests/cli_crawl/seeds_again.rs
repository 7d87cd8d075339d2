//! Seeds files of a crawl that is resumed: where they are kept, what if they change, what if they are damaged.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Crawl, Ended, Going, check_refused};
use crate::server::{Asked, Server, Step, page};

/// Few seeds are taken before they are needed, one after the other.
const TAKES_FEW: [&str; 8] = [
    "-s",
    "FRONTIER_MAX=10",
    "-s",
    "CONCURRENT_REQUESTS_PER_DOMAIN=1",
    "-s",
    "STATE_SYNC=10ms",
    "--follow",
    "none",
];

fn server() -> Server {
    Server::new(|_: &Asked| [vec![Step::Wait(Duration::from_millis(3))], page("p")].concat())
}

/// So many URLs, a line each.
fn lines(server: &Server, name: &str, count: usize) -> String {
    (0..count)
        .map(|n| server.url(&format!("/{name}{n}\n")))
        .collect()
}

/// What was asked for, each once.
fn asked(server: &Server) -> BTreeSet<String> {
    server.targets().into_iter().collect()
}

fn crawl_in(folder: &Path, args: &[&str]) -> Ended {
    let args = [&["crawl", "--quiet", "--out", "out"], args].concat();
    Going::start(&args, folder, b"").wait()
}

/// A crawl of sixty seeds, ended by a limit after fifteen.
fn left_off(server: &Server) -> Crawl {
    let crawl = Crawl::of(&["--seeds", "list", "--max-pages", "15"]).with(&TAKES_FEW);
    crawl.file("list", lines(server, "q", 60).as_bytes());
    crawl.try_run().expect(0);
    crawl
}

/// Begins anew with `pending.jsonl` as seeds; ends after some pages, or is killed.
fn begin_anew(server: &Server, folder: &Path, is_killed: bool) {
    let limit = if is_killed { "1000" } else { "10" };
    let next = Crawl::of(&["--seeds", "out/pending.jsonl", "--overwrite"])
        .with(&TAKES_FEW)
        .with(&["--max-pages", limit]);
    let before = server.asked().len();
    let going = Going::start_command(next.command(), folder, b"");
    if is_killed {
        server.wait_for_requests(before + 8);
        going.signal(Signal::KILL);
        going.wait();
    } else {
        going.wait().expect(0);
    }
}

#[test]
fn a_crawl_of_pending_jsonl_is_resumed_from_the_file_that_was_kept() {
    for is_killed in [false, true] {
        let server = server();
        let crawl = left_off(&server);
        begin_anew(&server, crawl.folder(), is_killed);
        crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]).expect(0);
        assert_eq!(asked(&server).len(), 60, "killed: {is_killed}");
    }
}

#[test]
fn pending_jsonl_as_seeds_again_and_again_replaces_no_file_that_was_kept() {
    let server = server();
    let crawl = left_off(&server);
    let out = crawl.folder().join("out");
    let mut kept = vec![fs::read(out.join("pending.jsonl")).expect("it was left")];
    for _ in 0..2 {
        begin_anew(&server, crawl.folder(), false);
        kept.push(fs::read(out.join("pending.jsonl")).expect("it was left"));
    }
    crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]).expect(0);
    assert_eq!(asked(&server).len(), 60);
    for (name, content) in ["pending.jsonl.old", "pending.jsonl.old2"].iter().zip(kept) {
        assert_eq!(fs::read(out.join(name)).ok(), Some(content), "{name}");
    }
}

#[test]
fn pending_jsonl_given_to_a_crawl_that_is_resumed_is_kept_for_the_next_resume() {
    for is_killed in [false, true] {
        let server = server();
        let crawl = left_off(&server);
        let pending = crawl.folder().join("out/pending.jsonl");
        fs::write(&pending, lines(&server, "more", 60)).expect("it can be written");
        let args = ["--resume", "--seeds", "out/pending.jsonl", "--max-pages"];
        if is_killed {
            let all = [&["crawl", "--quiet", "--out", "out"], &args[..], &["0"]].concat();
            let going = Going::start(&all, crawl.folder(), b"");
            server.wait_for_requests(90);
            going.signal(Signal::KILL);
            going.wait();
        } else {
            crawl_in(crawl.folder(), &[&args[..], &["90"]].concat()).expect(0);
        }
        crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]).expect(0);
        assert_eq!(asked(&server).len(), 120, "killed: {is_killed}");
    }
}

#[test]
fn an_output_file_that_a_resumed_crawl_continues_is_refused_as_seeds() {
    let server = server();
    let crawl = left_off(&server);
    let warcs = fs::read_dir(crawl.folder().join("out/warc")).expect("WARC files");
    let mut names = warcs.map(|warc| warc.expect("a file").file_name());
    let is_archive = |name: &String| name.ends_with(".warc.gz");
    let archive = names.find_map(|name| name.into_string().ok().filter(is_archive));
    let archive = format!("out/warc/{}", archive.expect("there is one"));
    for (file, part) in [
        (archive.as_str(), "is a WARC file"),
        ("out/results.jsonl", "is a file of result lines"),
    ] {
        let refused = crawl_in(crawl.folder(), &["--resume", "--seeds", file]);
        check_refused(&refused, &[file, part]);
    }
    // Nor is one of them without result lines.
    let results = crawl.folder().join("out/results.jsonl");
    fs::write(results, "http://a.test/\n").expect("it can be written");
    let refused = crawl_in(
        crawl.folder(),
        &["--resume", "--seeds", "out/results.jsonl"],
    );
    let parts = [
        "out/results.jsonl",
        "is an output file of this crawl",
        "copy it",
    ];
    check_refused(&refused, &parts);
}

#[test]
fn a_seeds_file_that_changed_is_refused_until_it_is_put_back() {
    let server = server();
    let crawl = left_off(&server);
    let list = crawl.folder().join("list");
    let before = fs::read_to_string(&list).expect("the seeds");
    // Lines that no commit has, as after a crash.
    let results = crawl.folder().join("out/results.jsonl");
    let lines = fs::read_to_string(&results).expect("lines");
    let more = format!("{lines}{}", &lines[..lines.find('\n').expect("a line") + 1]);
    fs::write(&results, &more).expect("it can be written");
    let same_length = before.replacen("/q3\n", "/x3\n", 1);
    let longer = format!("{}\n{before}", server.url("/first"));
    for changed in [same_length, longer] {
        fs::write(&list, changed).expect("it can be written");
        let refused = crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]);
        let path = list.display().to_string();
        check_refused(&refused, &["--resume", &path, "has changed", "put it back"]);
        let exported = Going::start(&["state", "out", "--export"], crawl.folder(), b"").wait();
        exported.expect(2);
    }
    let unchanged = fs::read_to_string(&results).expect("lines");
    assert_eq!(unchanged, more, "a refusal changes nothing");
    assert_eq!(asked(&server).len(), 15);
    fs::write(&list, before).expect("it can be written");
    crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]).expect(0);
    assert_eq!(asked(&server).len(), 60);
}

/// A gzip file that ends early, and the number of lines that can be read of it.
fn cut_gzip(text: &str) -> (Vec<u8>, usize) {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("a Vec takes all");
    let whole = encoder.finish().expect("a Vec takes all");
    // Only the trailer is missing: all lines can be read.
    (whole[..whole.len() - 8].to_owned(), text.lines().count())
}

#[test]
fn a_damaged_seeds_file_delays_neither_other_seeds_nor_what_is_queued() {
    let server = server();
    let (bad, count) = cut_gzip(&lines(&server, "bad", 30));
    let crawl = Crawl::of(&[
        "--seeds",
        "bad.gz",
        "--seeds",
        "good",
        &server.url("/named"),
    ]);
    let crawl = crawl.with(&["--follow", "none"]);
    crawl.file("bad.gz", &bad);
    crawl.file("good", lines(&server, "good", 30).as_bytes());
    let ended = crawl.try_run();
    check_refused(
        &ended,
        &[
            "--seeds",
            "bad.gz",
            "after line 30",
            "ends too early",
            "--resume --seeds",
        ],
    );
    assert_eq!(asked(&server).len(), count + 31);
    // The crawl is finished, and what was reported once does not block it.
    let out = crawl_in(crawl.folder(), &["--resume"]).expect(0);
    assert_eq!(out.err, "");
    // The remedy that was named.
    let mended = lines(&server, "bad", 40);
    crawl.file("mended", mended.as_bytes());
    crawl_in(crawl.folder(), &["--resume", "--seeds", "mended"]).expect(0);
    assert_eq!(asked(&server).len(), count + 31 + 10);
    assert_eq!(server.asked().len(), count + 31 + 10, "none twice");
}

#[test]
fn a_damaged_seeds_file_does_not_block_the_resumes_of_its_crawl() {
    let server = server();
    let (bad, count) = cut_gzip(&lines(&server, "bad", 30));
    // The first limit ends the crawl before it has read that far, the second after it.
    let crawl = Crawl::of(&["--seeds", "bad.gz", "--seeds", "good", "--max-pages", "5"]);
    let crawl = crawl.with(&TAKES_FEW);
    crawl.file("bad.gz", &bad);
    crawl.file("good", lines(&server, "good", 60).as_bytes());
    crawl.try_run().expect(2);
    let second = crawl_in(crawl.folder(), &["--resume", "--max-pages", "45"]);
    check_refused(&second, &["bad.gz", "after line 30"]);
    assert!(asked(&server).len() >= 45);
    crawl_in(crawl.folder(), &["--resume", "--max-pages", "0"]).expect(0);
    assert_eq!(asked(&server).len(), count + 60);
    assert_eq!(server.asked().len(), count + 60, "none twice");
}

#[test]
fn seeds_of_which_nothing_can_be_read_are_refused_before_anything_is_deleted() {
    let server = server();
    let crawl = left_off(&server);
    crawl.file("bad.gz", b"\x1f\x8b\x08nothing of it is gzip");
    let refused = crawl_in(crawl.folder(), &["--seeds", "bad.gz", "--overwrite"]);
    check_refused(&refused, &["bad.gz", "after line 0"]);
    assert!(crawl.folder().join("out/pending.jsonl").exists());
}
