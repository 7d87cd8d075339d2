//! `--resume` of a directory in which something is missing, old, or not as the crawl left it.

use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Crawl, Going};
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
