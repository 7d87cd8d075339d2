//! Crawls one after the other in the same output directory.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::ends::of_pages;
use crate::run::{Crawl, Going};
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
    server.wait_for(asked + 2);
    going.signal(Signal::KILL);
    let ended = going.wait();
    assert_eq!(ended.code, None);
    let told = ended.err.contains("pending.jsonl.old");
    assert_eq!(told, !seeds.contains("old"), "{}", ended.err);
}

#[test]
fn seeds_that_overwriting_would_delete_are_kept_until_the_next_time() {
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
