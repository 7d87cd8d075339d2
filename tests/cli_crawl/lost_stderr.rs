//! A stderr that cannot be written to: the crawl continues, and its frontier is saved.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::ends::{check_nothing_lost, of_pages};
use crate::run::Going;
use crate::server::{Asked, Server, page};
use crate::terminal::{control_by, terminal};

/// One page after the other, so that the crawl can be met in its middle.
const SLOWLY: [&str; 4] = [
    "-s",
    "DOWNLOAD_DELAY=20ms",
    "-s",
    "CONCURRENT_REQUESTS_PER_DOMAIN=1",
];

/// Each write to it fails for want of room.
fn full_disk() -> Stdio {
    let file = OpenOptions::new().write(true).open("/dev/full");
    file.expect("Linux has it").into()
}

/// Each write to it fails, because its reader is closed.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

#[test]
fn without_stderr_a_limit_still_writes_pending_jsonl() {
    for stderr in [full_disk, broken_pipe] {
        let server = Server::new(|_: &Asked| page("a page"));
        let (crawl, urls) = of_pages(&server, 3000, &["--max-pages", "20"]);
        let crawl = crawl.aloud();
        let going = Going::start_with_stderr(crawl.command(), crawl.folder(), b"", stderr());
        let crawled = crawl.left(going.wait().expect(0));
        check_nothing_lost(&crawled, &urls);
    }
}

#[test]
fn a_write_error_of_progress_does_not_end_the_crawl() {
    for stderr in [full_disk, broken_pipe] {
        let server = Server::new(|_: &Asked| page("a page"));
        let (crawl, urls) = of_pages(&server, 3000, &SLOWLY);
        let crawl = crawl.aloud();
        let going = Going::start_with_stderr(crawl.command(), crawl.folder(), b"", stderr());
        server.wait_for_requests(2);
        going.signal(Signal::USR1);
        server.wait_for_requests(30);
        going.signal(Signal::INT);
        let crawled = crawl.left(going.wait().expect(3));
        check_nothing_lost(&crawled, &urls);
    }
}

#[test]
fn closing_the_terminal_shuts_the_crawl_down() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, urls) = of_pages(&server, 3000, &SLOWLY);
    let crawl = crawl.aloud();
    let (shown, written) = terminal();
    let mut command = crawl.command();
    control_by(&mut command, &written);
    let going = Going::start_with_stderr(command, crawl.folder(), b"", written.into());
    server.wait_for_requests(5);
    // The kernel sends SIGHUP; each write fails from here on.
    drop(shown);
    let crawled = crawl.left(going.wait().expect(3));
    assert_eq!(crawled.stats()["finish_reason"], "shutdown");
    check_nothing_lost(&crawled, &urls);
}

#[test]
fn exit_codes_do_not_depend_on_stderr() {
    let server = Server::new(|_: &Asked| page("a page"));
    let url = server.url("/");
    let check = |args: &[&str], code: i32| {
        for stderr in [full_disk, broken_pipe] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
            command.args(args);
            let going = Going::start_with_stderr(command, Path::new("/"), b"", stderr());
            let ended = going.wait();
            assert_eq!(ended.code, Some(code), "{args:?}");
        }
    };
    check(&["crawl"], 2);
    check(&["crawl", "--no-such-option"], 2);
    check(&["robots", "/does-not-exist", "http://a.test/"], 2);
    check(&["links", "/does-not-exist", "--base", "http://a.test/"], 2);
    check(&["links", "/does-not-exist", "--base", "no URL"], 2);
    check(&["fetch", "http://127.0.0.1:1/"], 1);
    let probe = ["probe", &url, "--allow-net", "loopback", "--rate", "20"];
    let shortly = ["--duration", "1s", "--results", "-"];
    check(&[&probe[..], &shortly].concat(), 0);
    let too_slow = ["--duration", "1s", "--fail-above", "p50=1ns"];
    check(&[&probe[..], &too_slow].concat(), 1);
}
