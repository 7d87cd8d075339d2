//! After every kind of end, `pending.jsonl` has the queued requests and `stats.json` the reason.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::run::{Crawl, Crawled, Going, check_refused, text};
use crate::server::{Asked, Server, Step, page};

/// A crawl of so many pages of a server, by a seeds file.
pub fn of_pages(server: &Server, pages: usize, args: &[&str]) -> (Crawl, BTreeSet<String>) {
    let urls: BTreeSet<String> = (0..pages).map(|n| server.url(&format!("/{n}"))).collect();
    let lines: Vec<&str> = urls.iter().map(String::as_str).collect();
    let crawl = Crawl::of(&["--seeds", "seeds", "--no-warc"]).with(args);
    crawl.file("seeds", lines.join("\n").as_bytes());
    (crawl, urls)
}

/// What had a final line, unless the end of the crawl cancelled it.
pub fn ended(crawled: &Crawled) -> BTreeSet<String> {
    let ended = |line: &serde_json::Value| {
        line["kind"] == "page" && line["final"] == true && line["error"]["kind"] != "cancelled"
    };
    let lines = crawled.lines().into_iter().filter(ended);
    lines.map(|line| text(&line["url"])).collect()
}

/// What is pending.
pub fn pending(crawled: &Crawled) -> BTreeSet<String> {
    let lines = crawled.read("pending.jsonl");
    assert!(lines.ends_with('\n'), "the last line is whole");
    assert!(!crawled.out().join("pending.jsonl.tmp").exists());
    let urls: BTreeSet<String> = lines.lines().map(str::to_owned).collect();
    assert_eq!(urls.len(), lines.lines().count(), "nothing is there twice");
    urls
}

/// Each URL has either ended or is pending.
#[track_caller]
pub fn check_nothing_lost(crawled: &Crawled, urls: &BTreeSet<String>) {
    let (ended, pending) = (ended(crawled), pending(crawled));
    let twice: Vec<_> = ended.intersection(&pending).take(5).collect();
    let all = &ended | &pending;
    let lost: Vec<_> = urls.difference(&all).take(5).collect();
    assert!(twice.is_empty() && lost.is_empty(), "{twice:?} {lost:?}");
    assert_eq!(all.len(), urls.len());
}

#[test]
fn at_a_limit_queued_requests_are_in_pending_jsonl() {
    let check = |args: &[&str], reason: &str| {
        let server = Server::new(|asked: &Asked| match asked.target.as_str() {
            "/13" | "/14" | "/15" => vec![Step::Close],
            _ => page("a page"),
        });
        let (crawl, urls) = of_pages(&server, 6000, args);
        let crawled = crawl.run();
        assert_eq!(crawled.stats()["finish_reason"], reason, "{args:?}");
        check_nothing_lost(&crawled, &urls);
        assert!(pending(&crawled).len() > 3000, "{args:?}");
    };
    check(&["--max-pages", "20"], "closespider_pagecount");
    check(
        &[
            "--max-time",
            "500ms",
            "-s",
            "DOWNLOAD_DELAY=5ms",
            "-s",
            "CONCURRENT_REQUESTS_PER_DOMAIN=1",
        ],
        "closespider_timeout",
    );
    check(
        &["-s", "CLOSESPIDER_ERRORCOUNT=2"],
        "closespider_errorcount",
    );
}

#[test]
fn a_finished_crawl_has_no_pending_jsonl() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawled = of_pages(&server, 20, &["--max-pages", "20"]).0.run();
    assert!(!crawled.out().join("pending.jsonl").exists());
}

#[test]
fn failures_of_robots_txt_count_as_errors_and_disallowed_urls_do_not() {
    let check = |robots: &'static str, down_after: &str, reason: &str| {
        let server = Server::new(move |asked: &Asked| match asked.target.as_str() {
            "/robots.txt" if robots.is_empty() => vec![Step::Close],
            "/robots.txt" => page(robots),
            _ => page("a page"),
        });
        let down_after = format!("HOST_DOWN_AFTER={down_after}");
        let args = [
            "-s",
            "ROBOTSTXT_OBEY=true",
            "-s",
            "CLOSESPIDER_ERRORCOUNT=5",
            "-s",
            &down_after,
        ];
        let (crawl, urls) = of_pages(&server, 3000, &args);
        let crawled = crawl.run();
        assert_eq!(crawled.stats()["finish_reason"], reason, "{down_after}");
        (crawled, urls)
    };
    // With 1 s the host is given up, and its URLs end so.
    for down_after in ["0", "1s"] {
        let (crawled, urls) = check("", down_after, "closespider_errorcount");
        check_nothing_lost(&crawled, &urls);
        let ended = ended(&crawled);
        assert!(ended.len() < 30, "{down_after}: {}", ended.len());
        let lines = crawled.lines();
        let is_final = |line: &&serde_json::Value| ended.contains(&text(&line["url"]));
        for line in lines.iter().filter(is_final) {
            assert_eq!(line["error"]["code"], "robots.unreachable", "{down_after}");
        }
    }
    check("User-agent: *\nDisallow: /\n", "0", "finished");
}

#[test]
fn a_closed_stdout_does_not_lose_the_frontier() {
    let server = Server::new(|_: &Asked| page("a page"));
    let args = [
        "--results",
        "-",
        "-s",
        "DOWNLOAD_DELAY=1ms",
        "-s",
        "CONCURRENT_REQUESTS_PER_DOMAIN=1",
    ];
    let (crawl, urls) = of_pages(&server, 3000, &args);
    let mut command = crawl.command();
    command.args(["--out", "crawl"]);
    let mut child = command
        .current_dir(crawl.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let stdout = child.stdout.take().expect("stdout is piped");
    let head = Command::new("head")
        .args(["-n", "5"])
        .stdin(stdout)
        .output();
    let lines = String::from_utf8(head.expect("head runs").stdout).expect("lines are text");
    assert_eq!(lines.lines().count(), 5);
    assert!(child.wait().expect("it ends").success());
    let out = crawl.folder().join("crawl");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).expect(name);
    let stats: serde_json::Value = serde_json::from_str(&read("stats.json")).expect("JSON");
    assert_eq!(stats["finish_reason"], "sink_failed");
    let pending: BTreeSet<String> = read("pending.jsonl").lines().map(str::to_owned).collect();
    assert!(
        pending.len() > 2000 && pending.is_subset(&urls),
        "{}",
        pending.len()
    );
}

#[test]
fn endless_seeds_do_not_delay_the_end_of_a_crawl() {
    let server = Server::new(|_: &Asked| page("a page"));
    let url = server.url("/a-page");
    let script =
        format!("i=0; while :; do i=$((i+1)); echo '{url}'$i; done | \"$0\" \"$@\" --seeds -");
    let crawl = Crawl::of(&["--max-pages", "5", "--stop-grace", "1s", "--no-warc"]).aloud();
    let with = crawl.command();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(script)
        .arg(with.get_program())
        .args(with.get_args());
    let going = Going::start_command(command, crawl.folder(), b"");
    let crawled = crawl.left(going.wait().expect(0));
    assert!(
        crawled.ended.took < Duration::from_secs(20),
        "{:?}",
        crawled.ended.took
    );
    assert!(
        crawled
            .ended
            .err
            .contains("a pipe did not end within STOP_GRACE"),
        "{}",
        crawled.ended.err
    );
    let pending = pending(&crawled);
    assert_eq!(ended(&crawled).len(), 5);
    // From the first on none is left out.
    let last = pending.len() + 5;
    assert!((6..=last).all(|n| pending.contains(&format!("{url}{n}"))));
}

#[test]
fn sigquit_shuts_down_and_sigusr1_prints_progress() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, urls) = of_pages(&server, 500, &["-s", "DOWNLOAD_DELAY=100ms"]);
    let going = crawl.start();
    server.wait_for_requests(2);
    going.signal(Signal::USR1);
    going.signal(Signal::USR2);
    server.wait_for_requests(14);
    going.signal(Signal::QUIT);
    let crawled = crawl.left(going.wait().expect(3));
    assert_eq!(crawled.stats()["finish_reason"], "shutdown");
    check_nothing_lost(&crawled, &urls);
    let progress = crawled
        .ended
        .err
        .lines()
        .filter(|line| line.contains(" queued  "));
    assert_eq!(progress.count(), 1, "{}", crawled.ended.err);
}

#[test]
fn a_second_crawl_of_the_same_directory_is_refused_and_names_the_owner() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, urls) = of_pages(&server, 50, &["-s", "DOWNLOAD_DELAY=200ms"]);
    let going = crawl.start();
    server.wait_for_requests(2);
    let owner = format!("process {}", going.id());
    for overwrite in [&[][..], &["--overwrite"]] {
        let mut command = crawl.command();
        command.args(overwrite);
        let second = Going::start_command(command, crawl.folder(), b"").wait();
        check_refused(&second, &["in use", &owner, " on ", "since 20", "--out"]);
    }
    assert!(crawl.folder().join("out/results.jsonl").exists());
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert!(!crawl.folder().join("out/.argiope-lock").exists());
    check_nothing_lost(&crawl.left(ended), &urls);
}

#[test]
fn the_lock_of_a_killed_crawl_is_released() {
    let server = Server::new(|_: &Asked| page("a page"));
    let (crawl, _) = of_pages(&server, 50, &["-s", "DOWNLOAD_DELAY=200ms"]);
    let going = crawl.start();
    server.wait_for_requests(2);
    going.signal(Signal::KILL);
    assert_eq!(going.wait().code, None);
    assert!(crawl.folder().join("out/.argiope-lock").exists());
    let mut command = crawl.command();
    command.args(["--overwrite", "--max-pages", "1"]);
    Going::start_command(command, crawl.folder(), b"")
        .wait()
        .expect(0);
}

#[test]
fn a_limit_of_time_ends_a_crawl_whose_standard_output_is_full() {
    // With requests left, and with none.
    for (pages, delay) in [(100, "200ms"), (1, "0")] {
        let server = Server::new(|_: &Asked| page("a page"));
        let delay = format!("DOWNLOAD_DELAY={delay}");
        let limits = ["--max-time", "2s", "--stop-grace", "1s", "-s", &delay];
        let (crawl, _) = of_pages(&server, pages, &limits);
        let crawl = crawl.with(&["--results", "-"]).aloud();
        let mut command = Command::new("bash");
        command.args(["-c", r#"exec "$0" "$@" > /dev/full"#]);
        command.arg(crawl.command().get_program());
        command.args(crawl.command().get_args());
        let ended = Going::start_command(command, crawl.folder(), b"").wait();
        let ended = ended.expect(1);
        let took = ended.took.as_secs_f64();
        assert!((1.9..8.0).contains(&took), "{took} s: {}", ended.err);
        let errors = [
            "disk full",
            "No space left",
            "results written before are kept",
        ];
        for part in errors {
            assert!(ended.err.contains(part), "{part}: {}", ended.err);
        }
        // All of them: no line was written.
        let unsaved = format!("{pages} queued requests are not saved");
        assert!(ended.err.contains(&unsaved), "{}", ended.err);
    }
}
