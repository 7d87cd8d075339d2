//! Ctrl-C and SIGTERM: one shuts down, two end at once; the files are complete in both cases.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::run::{Crawl, Going, text};
use crate::server::{Asked, Server, Step, page, reply};
use crate::terminal::terminal;

/// Pages that take their time, and one that never comes.
fn web(asked: &Asked) -> Vec<Step> {
    match asked.target.as_str() {
        "/never" => vec![Step::Hang],
        "/late" => [vec![Step::Wait(Duration::from_secs(1))], page("late")].concat(),
        _ => page("a page"),
    }
}

#[test]
fn one_signal_finishes_requests_in_flight_and_saves_the_others() {
    let server = Server::new(web);
    let mut urls = vec![server.url("/late"), server.url("/never")];
    urls.extend((0..20).map(|n| server.url(&format!("/{n}"))));
    let seeds: String = urls
        .iter()
        .map(|url| format!("{{\"url\": \"{url}\", \"meta\": {{\"u\": \"{url}\"}}}}\n"))
        .collect();
    let args = ["-s", "DOWNLOAD_DELAY=100ms", "--stop-grace", "2s"];
    let crawl = Crawl::of(&["--seeds", "seeds"]).with(&args).aloud();
    crawl.file("seeds", seeds.as_bytes());
    let going = crawl.start();
    server.wait_for_requests(5);
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    assert!(ended.err.contains("stopped after"), "{}", ended.err);
    let first = crawl.left(ended);
    let stats = first.stats();
    assert_eq!(stats["finish_reason"], "shutdown");
    assert_eq!(stats["in_flight"], 0);
    assert_eq!(
        first.line(&server.url("/late"))["status"],
        200,
        "what is in flight is waited for"
    );
    let never = server.url("/never");
    let lines = first.lines();
    let stopped = lines.iter().find(|line| line["url"] == never);
    let stopped = stopped.expect("it was sent");
    assert_eq!(stopped["error"]["code"], "cancelled.stopped");
    assert_eq!(stopped["final"], false, "a resume requests it again");
    assert!(String::from_utf8_lossy(&first.warc()).contains("WARC-Type: response"));

    // What is pending is what a second crawl needs: nothing twice, nothing lost.
    let pending = first.read("pending.jsonl");
    let second_server = server.asked().len();
    let second = Crawl::of(&["--seeds", "-"])
        .with(&["-s", "FIRST_BYTE_TIMEOUT=500ms"])
        .input(pending.as_bytes())
        .run();
    assert_eq!(second.stats()["seeds_bad"], 0);
    assert_eq!(second.stats()["seeds"], pending.lines().count());
    assert!(server.asked().len() > second_server);
    let ended_well = |lines: Vec<serde_json::Value>| -> Vec<String> {
        let lines = lines
            .into_iter()
            .filter(|line| line["error"]["kind"] != "cancelled");
        lines
            .map(|line| {
                assert_eq!(line["meta"]["u"], line["url"], "metadata is kept: {line}");
                text(&line["url"])
            })
            .collect()
    };
    let mut all = [ended_well(first.lines()), ended_well(second.lines())].concat();
    all.sort();
    urls.sort();
    assert_eq!(all, urls);
}

#[test]
fn two_signals_stop_at_once_with_complete_files() {
    let server = Server::new(web);
    let urls = ["/a", "/b", "/never"].map(|path| server.url(path));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let crawl = Crawl::of(&urls);
    let going = crawl.start();
    server.wait_for_requests(3);
    // Long enough for what came to have been read.
    std::thread::sleep(Duration::from_millis(200));
    going.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    going.signal(Signal::TERM);
    let ended = going.wait().expect(3);
    assert!(ended.took < Duration::from_secs(5), "{:?}", ended.took);
    let crawled = crawl.left(ended);
    assert_eq!(crawled.lines().len(), 3);
    assert_eq!(crawled.stats()["finish_reason"], "shutdown");
    assert_eq!(
        crawled.read("pending.jsonl"),
        format!("{}\n", server.url("/never"))
    );
    let records = crawled.warc();
    let records = String::from_utf8_lossy(&records);
    assert_eq!(records.matches("WARC-Type: response").count(), 2);
}

#[test]
fn a_stuck_reader_is_dropped_a_second_after_a_signal() {
    // More than a pipe holds.
    let server = Server::new(|_: &Asked| page("a page"));
    let seeds: String = (0..200)
        .map(|n| format!("{}\n", server.url(&format!("/{n}"))))
        .collect();
    let args = ["--results", "-", "--no-warc", "-s", "DOWNLOAD_DELAY=0"];
    let crawl = Crawl::of(&["--seeds", "seeds"]).with(&args).aloud();
    crawl.file("seeds", seeds.as_bytes());
    let mut going = crawl.start_without_reader();
    let stdout = going.stdout();
    server.wait_for_requests(200);
    // All is done but for the last lines.
    std::thread::sleep(Duration::from_millis(500));
    going.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(200));
    going.signal(Signal::INT);
    let ended = going.wait();
    assert!(ended.took < Duration::from_secs(10), "{:?}", ended.took);
    assert_eq!(ended.code, Some(1), "results are lost: {}", ended.err);
    assert!(
        ended
            .err
            .contains("after 1 s those for standard output are discarded"),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("it was not read in time"),
        "{}",
        ended.err
    );
    drop(stdout);
}

#[test]
fn a_crawl_that_only_waits_stops_at_once() {
    let server = Server::new(web);
    let (one, two) = (server.url("/1"), server.url("/2"));
    let crawl = Crawl::of(&[&one, &two, "-s", "DOWNLOAD_DELAY=1h"]);
    let going = crawl.start();
    server.wait_for_requests(1);
    std::thread::sleep(Duration::from_millis(100));
    going.signal(Signal::INT);
    let ended = going.wait().expect(3);
    assert!(ended.took < Duration::from_secs(3), "{:?}", ended.took);
    let crawled = crawl.left(ended);
    assert_eq!(crawled.read("pending.jsonl").lines().count(), 1);
    assert_eq!(crawled.lines().len(), 1);
}

#[test]
fn unread_seeds_are_pending_too() {
    const SEEDS: usize = 20_000;
    let crawl = Crawl::of(&["--seeds", "seeds.txt", "--dns", "127.0.0.1:9"]);
    let seeds: String = (0..SEEDS).map(|n| format!("http://h{n}.test/\n")).collect();
    crawl.file("seeds.txt", seeds.as_bytes());
    let going = crawl.start();
    // Then it watches signals.
    let lock = crawl.folder().join("out/.argiope-lock");
    for _ in 0..10_000 {
        if lock.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    going.signal(Signal::INT);
    let ended = going.wait();
    let crawled = crawl.left(ended.expect(3));
    // On a busy machine the signal comes late, and some have failed by then: none is lost.
    let pending = crawled.read("pending.jsonl").lines().count();
    let ended = crawled.lines();
    let ended = ended.iter().filter(|line| line["final"] == true).count();
    assert!(pending > SEEDS / 2, "{pending} are pending");
    assert_eq!(pending + ended, SEEDS);
}

/// A seed with every key that one may have.
fn seed_that_says_all(url: &str) -> serde_json::Value {
    json!({
        "url": url, "scopes": {"one": 2.5, "two": 1.0}, "priority": -3, "depth": 2, "method": "PUT",
        "headers": [["X-Own", "yes"]], "body_b64": "AAEC/w==", "dont_adjust_delay": true,
        "timeout": 1.5, "body_max": 12, "ignore_robots": true, "dont_follow": true,
        "dont_filter": true, "dont_merge_cookies": true, "proxy": "direct", "meta": {"n": 1},
        "tag": 7,
    })
}

#[test]
fn pending_line_keeps_all_seed_fields() {
    let server = Server::new(web);
    let seed = seed_that_says_all(&server.url("/2"));
    let first = json!({"url": server.url("/1"), "scopes": ["one"]});
    let crawl = Crawl::of(&["--seeds", "-", "-s", "DOWNLOAD_DELAY=1h"]);
    let crawl = crawl.input(format!("{first}\n{seed}\n").as_bytes());
    let going = crawl.start();
    server.wait_for_requests(1);
    std::thread::sleep(Duration::from_millis(100));
    going.signal(Signal::INT);
    let crawled = crawl.left(going.wait().expect(3));
    let pending: serde_json::Value =
        serde_json::from_str(&crawled.read("pending.jsonl")).expect("one line of JSON");
    assert_eq!(pending, seed);
}

#[test]
fn logged_pending_line_keeps_all_seed_fields() {
    let server = Server::new(web);
    let seed = seed_that_says_all(&server.url("/2"));
    let others: String = (0..4)
        .map(|n| {
            format!(
                "{}\n",
                json!({"url": server.url("/1"), "dont_filter": true, "tag": n})
            )
        })
        .collect();
    let crawl = Crawl::of(&["--seeds", "-", "--no-warc"]);
    let crawl = crawl.input(format!("{others}{seed}\n").as_bytes());
    let ended = crawl.try_run_with_small_files(2).expect(1);
    let crawled = crawl.left(ended);
    let pending = crawled.read("pending.jsonl");
    let read = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let lines: Vec<_> = pending.lines().map(read).collect();
    // What a commit covered before the file was full has a line, the rest is pending.
    let written = crawled.lines();
    let is_written = written.iter().any(|line| line["url"] == seed["url"]);
    assert_ne!(lines.contains(&seed), is_written, "{pending}");
    assert!(!lines.is_empty());
    assert_eq!(lines.len() + written.len(), 5, "{pending} {written:?}");
}

const SITEMAPS: usize = 20;
const PAGES_PER_SITEMAP: usize = 10;

/// A sitemap index and its sitemaps, of which the first is silent as long as it is to be.
fn sitemaps(asked: &Asked, is_silent: bool) -> Vec<Step> {
    let xml = |kind: &str, item: &str, targets: Vec<String>| {
        let items = targets.iter();
        let items = items.map(|target| format!("<{item}><loc>{target}</loc></{item}>"));
        let text = format!("<{kind}>{}</{kind}>", items.collect::<String>());
        reply("200 OK", &["Content-Type: text/xml"], text.as_bytes())
    };
    match asked.target.as_str() {
        "/robots.txt" => reply("200 OK", &[], b"Sitemap: /index.xml"),
        "/index.xml" => {
            let targets = (0..SITEMAPS).map(|n| format!("/map/{n}"));
            xml("sitemapindex", "sitemap", targets.collect())
        }
        "/map/0" if is_silent => vec![Step::Hang],
        map if map.starts_with("/map/") => {
            let targets = (0..PAGES_PER_SITEMAP).map(|n| format!("/page{map}/{n}"));
            xml("urlset", "url", targets.collect())
        }
        _ => page("a page"),
    }
}

#[test]
fn unread_sitemaps_are_pending_for_the_next_crawl() {
    let is_silent = Arc::new(AtomicBool::new(true));
    let silent = Arc::clone(&is_silent);
    let server = Server::new(move |asked: &Asked| sitemaps(asked, silent.load(Ordering::SeqCst)));
    let settings = [
        "ROBOTSTXT_OBEY=true",
        "FOLLOW_SITEMAPS=true",
        "CONCURRENT_REQUESTS_PER_DOMAIN=1",
    ];
    let settings = settings.map(|setting| ["-s", setting]).concat();
    let limits = ["--max-time", "1s", "--stop-grace", "100ms"];
    let first = Crawl::of(&[&server.url("/")])
        .with(&settings)
        .with(&limits)
        .run();
    let pending = first.read("pending.jsonl");
    let read = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    let lines: Vec<_> = pending.lines().map(read).collect();
    // The first was on its way.
    let map = |n| json!({"url": server.url(&format!("/map/{n}")), "sitemap": 2});
    assert!((0..SITEMAPS).all(|n| lines.contains(&map(n))), "{pending}");
    assert_eq!(lines.len(), SITEMAPS, "{pending}");

    is_silent.store(false, Ordering::SeqCst);
    let second = Crawl::of(&["--seeds", "-"]).with(&settings);
    let second = second.input(pending.as_bytes()).run();
    assert_eq!(second.urls().len(), SITEMAPS * PAGES_PER_SITEMAP);
    // The host's robots.txt names the index again.
    assert_eq!(second.stats()["sitemaps"], SITEMAPS + 1);
    assert_eq!(second.stats()["seeds_bad"], 0);
}

#[test]
fn on_a_terminal_a_stop_is_answered_with_what_it_waits_for() {
    let server = Server::new(|_: &Asked| vec![Step::Hang]);
    let crawl = Crawl::of(&[&server.url("/")]).aloud();
    let crawl = crawl.with(&["--stop-grace", "1s"]);
    let (shown, written) = terminal();
    let going = Going::start_with_stderr(crawl.command(), crawl.folder(), b"", written.into());
    let reading = thread::spawn(move || {
        let mut shown = File::from(shown);
        let (mut text, mut block) = (String::new(), [0; 4096]);
        // Once the other side is closed, reading is an error.
        while let Ok(length @ 1..) = shown.read(&mut block) {
            text += &String::from_utf8_lossy(&block[..length]);
        }
        text
    });
    server.wait_for_requests(1);
    going.signal(Signal::INT);
    going.wait().expect(3);
    let text = reading.join().expect("it ends");
    let line =
        "stopping: waiting for 1 request in flight, up to 1 s; a second signal stops at once";
    assert_eq!(text.matches(line).count(), 1, "{text}");
}
