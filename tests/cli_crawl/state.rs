//! `argiope state`: what is in the state of a crawl, which may be running.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use argiope::{Config, Crawler, FinishReason, Page, State};
use rustix::process::Signal;
use serde_json::{Value, json as json_of};

use crate::run::{Crawl, Ended, Going, check_refused, text};
use crate::server::{Asked, Server, Step, page, reply};

/// Runs `argiope state out` in a folder.
fn state(folder: &Path, args: &[&str]) -> Ended {
    let args = [&["state", "out"], args].concat();
    Going::start(&args, folder, b"").wait()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let ended = state(folder, &[args, &["--json"]].concat()).expect(0);
    assert_eq!(ended.err, "");
    serde_json::from_str(&ended.out).expect("it is JSON")
}

/// The result once it is as wanted: what is done is committed a little later.
fn json_when(folder: &Path, args: &[&str], is_wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let found = json(folder, args);
        if is_wanted(&found) {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{found:#}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// All files below a folder, with their bytes and times.
fn files(folder: &Path) -> Vec<(String, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let changed = fs::metadata(&path).and_then(|meta| meta.modified());
                    let bytes = fs::read(&path).expect("a file");
                    found.push((path.display().to_string(), bytes, changed.expect("a time")));
                }
            }
        }
    }
    found.sort();
    found
}

/// A crawl of one host, whose first page is answered, one is redirected, and the others wait for long.
fn slow(server: &Server) -> Crawl {
    let list: String = (0..30).map(|n| server.url(&format!("/q{n}\n"))).collect();
    let crawl = Crawl::of(&["--seeds", "list"])
        .with(&[
            "-s",
            "STATE_SYNC=10ms",
            "-s",
            "CONCURRENT_REQUESTS_PER_DOMAIN=1",
        ])
        .with(&["--stop-grace", "10ms", "-s", "DOWNLOAD_DELAY=1h"]);
    let meta = format!(
        "{{\"url\": \"{}\", \"priority\": 5, \"depth\": 3, \"meta\": {{\"k\": [1]}}}}\n",
        server.url("/meta")
    );
    let first = format!(
        "{{\"url\": \"{}\", \"priority\": 9}}\n",
        server.url("/first")
    );
    crawl.file("list", (list + &meta + &first).as_bytes());
    crawl
}

#[test]
fn a_running_crawl_is_shown_without_being_disturbed() {
    let server = Server::new(|_: &Asked| page("<a href=/link>x</a>"));
    let crawl = slow(&server);
    let going = crawl.start();
    server.wait_for_requests(1);
    let host = format!("127.0.0.1:{}", server.port());
    let found = json_when(crawl.folder(), &[], |found| found["ended"] == 1);
    let running = text(&found["running"]);
    assert!(
        running.starts_with(&format!("process {} on ", going.id())),
        "{running}"
    );
    assert_eq!(found["hosts"], 1);
    // 32 seeds and a link; one has ended.
    assert_eq!(found["requests"]["total"], 32, "{found:#}");
    assert_eq!(found["requests"]["kinds"]["page"], 32);
    assert_eq!(
        found["longest_queues"][0]["host"],
        Value::from(host.clone())
    );
    assert_eq!(found["damage"], Value::Array(Vec::new()));
    assert!(
        found["commit"]["age"]
            .as_f64()
            .is_some_and(|age| age < 30.0),
        "{found:#}"
    );
    assert_eq!(found["seeds"]["all"], true);
    let of_host = json(crawl.folder(), &["--host", &host, "--top", "2"]);
    assert_eq!(of_host["requests"], 32);
    assert_eq!(of_host["next"].as_array().map(Vec::len), Some(2));
    let meta = &of_host["next"][0];
    assert_eq!(meta["url"], Value::from(server.url("/meta")));
    assert_eq!(
        (&meta["priority"], &meta["depth"], &meta["position"]),
        (&5.into(), &3.into(), &1.into())
    );
    assert_eq!(meta["meta"]["k"][0], 1);
    assert_eq!(meta["why"], serde_json::json!(["first"]));
    let of_scope = json(crawl.folder(), &["--scope", &text(&meta["scopes"][0])]);
    assert_eq!(of_scope["requests"], 32);
    let of_url = json(crawl.folder(), &["--url", &server.url("/q7#x")]);
    assert_eq!(
        (&of_url["standing"], &of_url["next"][0]["position"]),
        (&"queued".into(), &9.into())
    );
    assert_eq!(of_url["next"][0]["why"], serde_json::json!(["queued"]));
    let standing =
        |path: &str| json(crawl.folder(), &["--url", &server.url(path)])["standing"].clone();
    assert_eq!(standing("/first"), "ended");
    let first = json(crawl.folder(), &["--url", &server.url("/first")]);
    let outcome = first["outcome"].as_str().expect("a text");
    assert!(outcome.starts_with("fetched, status 200"), "{outcome}");
    assert_eq!(standing("/never"), "never_seen");
    assert_eq!(standing("/link"), "queued");
    // Nothing was locked or stopped.
    going.signal(Signal::INT);
    going.wait().expect(3);
    let before = files(crawl.folder());
    let found = json(crawl.folder(), &[]);
    assert_eq!(
        (&found["running"], &found["requests"]["total"]),
        (&Value::Null, &32.into())
    );
    let shown = state(crawl.folder(), &["--url", &server.url("/q0")])
        .expect(0)
        .out;
    assert!(
        shown.contains("not running") && shown.contains("--resume --out out"),
        "{shown}"
    );
    assert!(
        state(crawl.folder(), &[])
            .expect(0)
            .out
            .contains("32 queued")
    );
    assert!(before == files(crawl.folder()), "a file was changed");
}

#[test]
fn a_delayed_redirect_shows_until_when_it_waits() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/" => reply("302 Found", &["Location: /target", "Retry-After: 50"], b""),
        _ => page("p"),
    });
    let crawl = Crawl::of(&[&server.url("/")]).with(&["-s", "STATE_SYNC=10ms"]);
    let going = crawl.start();
    server.wait_for_requests(1);
    let target = server.url("/target");
    let args = ["--url", &target];
    let found = json_when(crawl.folder(), &args, |found| {
        found["standing"] != "never_seen"
    });
    let next = &found["next"][0];
    assert_eq!(
        (&next["redirects"], &next["standing"]),
        (&1.into(), &"delayed".into())
    );
    let shown = state(crawl.folder(), &args).expect(0).out;
    let until = format!(
        "waits for its delayed redirect until {}",
        text(&next["not_before"])
    );
    assert!(shown.contains(&until), "{shown}");
    assert_eq!(json(crawl.folder(), &[])["requests"]["delayed"], 1);
    going.signal(Signal::KILL);
    going.wait();
}

#[test]
fn an_export_is_the_seeds_of_another_crawl() {
    check_export("FRONTIER_MAX=5");
}

#[test]
fn requests_that_do_not_fit_into_memory_are_shown_and_exported() {
    let crawl = check_export("FRONTIER_MEMORY=600");
    let shown = json(crawl.folder(), &[]);
    let files = shown["files"].as_array().expect("a list");
    let is_queue = |file: &Value| text(&file["name"]).starts_with("state/queue-");
    assert!(files.iter().any(is_queue), "{shown:#}");
    assert_eq!(shown["ended"].as_u64().map(|ended| ended < 20), Some(true));
}

/// A crawl that ends early under this setting: what is left is exported, and crawled by another.
fn check_export(setting: &str) -> Crawl {
    let server =
        Server::new(|_: &Asked| [vec![Step::Wait(Duration::from_millis(2))], page("p")].concat());
    let list: String = (0..60).map(|n| server.url(&format!("/q{n}\n"))).collect();
    let crawl = Crawl::of(&["--seeds", "list", "--max-pages", "10"]).with(&[
        "-s",
        setting,
        "-s",
        "CONCURRENT_REQUESTS_PER_DOMAIN=2",
    ]);
    crawl.file("list", list.as_bytes());
    crawl.try_run().expect(0);
    let exported = state(crawl.folder(), &["--export"]).expect(0).out;
    let pending =
        fs::read_to_string(crawl.folder().join("out/pending.jsonl")).expect("it was written");
    let sorted = |lines: &str| lines.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&exported), sorted(&pending));
    let rest = Crawl::of(&["--seeds", "-"]).input(exported.as_bytes());
    let rest = rest.run();
    let ended = fs::read_to_string(crawl.folder().join("out/results.jsonl")).expect("lines");
    let mut all: BTreeSet<String> = rest.urls().into_iter().collect();
    all.extend(
        crate::run::read_lines(&ended)
            .iter()
            .map(|line| text(&line["url"])),
    );
    assert_eq!(all.len(), 60);
    crawl
}

#[test]
fn what_is_not_the_directory_of_a_crawl_is_refused_with_its_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = state(folder.path(), &[]);
    check_refused(
        &missing,
        &["out is not a directory", "name the output directory"],
    );
    fs::create_dir(folder.path().join("out")).expect("a folder");
    check_refused(
        &state(folder.path(), &[]),
        &["out has no state", "STATE=true"],
    );
    fs::create_dir(folder.path().join("out/state")).expect("a folder");
    fs::write(
        folder.path().join("out/state/journal-00000000"),
        b"not a journal, but long enough for its header",
    )
    .expect("a file");
    check_refused(
        &state(folder.path(), &[]),
        &["out/state/journal-00000000", "not a segment of a journal"],
    );
    let refused = state(folder.path(), &["--url", "x", "--export"]);
    check_refused(&refused, &["--url", "--export"]);
}

#[test]
fn damage_is_shown_with_what_is_intact() {
    let server = Server::new(|_: &Asked| page("p"));
    let crawl = slow(&server);
    let going = crawl.start();
    server.wait_for_requests(1);
    json_when(crawl.folder(), &[], |found| found["ended"] == 1);
    going.signal(Signal::KILL);
    going.wait();
    let journal = crawl.folder().join("out/state/journal-00000001");
    let mut bytes = fs::read(&journal).expect("a journal");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&journal, &bytes).expect("it is changed");
    let found = json(crawl.folder(), &[]);
    let damage = &found["damage"][0];
    let (start, end) = (&damage["ranges"][0][0], &damage["ranges"][0][1]);
    let middle = middle as u64;
    assert!(
        start.as_u64().is_some_and(|start| start <= middle),
        "{damage}"
    );
    assert!(end.as_u64().is_some_and(|end| end > middle), "{damage}");
    let total = found["requests"]["total"].as_u64().expect("a count");
    assert!((30..=33).contains(&total), "{total}");
    let shown = state(crawl.folder(), &[]).expect(0).out;
    assert!(shown.contains("journal-00000001 is damaged"), "{shown}");
    let exported = state(crawl.folder(), &["--export"]).expect(0);
    assert!(exported.err.contains("is damaged"), "{}", exported.err);
    assert!(exported.out.lines().count() as u64 >= total);
}

#[test]
fn a_hold_of_a_scope_is_shown_as_the_reason() {
    let server = Server::new(|asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => page(""),
        _ => reply("429 Too Many Requests", &["Retry-After: 50"], b""),
    });
    let crawl = Crawl::of(&[&server.url("/a"), &server.url("/b")])
        .with(&["-s", "STATE_SYNC=10ms", "-s", "ROBOTSTXT_OBEY=true"])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"]);
    let going = crawl.start();
    server.wait_for_requests(2);
    let found = json_when(crawl.folder(), &[], |found| {
        found["holds"]["scopes"] == 1 && found["ended"] == 1
    });
    let host = format!("127.0.0.1:{}", server.port());
    let oldest = &found["holds"]["oldest"];
    assert_eq!(
        (&oldest["scope"], &oldest["source"]),
        (&host.as_str().into(), &"retry-after".into())
    );
    let left = oldest["left"].as_f64().expect("a number");
    assert!((20.0..50.0).contains(&left), "{oldest}");
    let of_scope = json(crawl.folder(), &["--scope", &host]);
    assert_eq!(of_scope["scopes"][0]["name"], host.as_str());
    assert_eq!(of_scope["scopes"][0]["hold"]["until"], oldest["until"]);
    assert_eq!(
        of_scope["next"][0]["why"],
        serde_json::json!(["first", "held"])
    );
    assert!(of_scope["next"][0]["url"].as_str().is_some());
    let of_host = json(crawl.folder(), &["--host", &host]);
    assert!(of_host["robots_fetched"].as_str().is_some(), "{of_host:#}");
    let shown = state(crawl.folder(), &["--host", &host]).expect(0).out;
    assert!(
        shown.contains("held: ") && shown.contains("(retry-after)"),
        "{shown}"
    );
    going.signal(Signal::KILL);
    going.wait();
}

#[test]
fn that_a_host_does_not_answer_is_shown_as_the_reason() {
    let server = Server::new(|_: &Asked| page("p"));
    // Nothing listens on this port.
    let host = "127.0.0.1:1";
    let crawl = Crawl::of(&[
        &server.url("/answered"),
        "http://127.0.0.1:1/a",
        "http://127.0.0.1:1/b",
    ])
    .with(&["-s", "STATE_SYNC=10ms", "-s", "ROBOTSTXT_OBEY=true"]);
    let going = crawl.start();
    server.wait_for_requests(1);
    let found = json_when(crawl.folder(), &[], |found| {
        found["holds"]["hosts"] == 1 && found["ended"] == 1
    });
    assert_eq!(found["requests"]["total"], 2);
    assert_eq!(found["holds"]["scopes"], 0);
    // Between two holds it is not held.
    let of_host = json_when(crawl.folder(), &["--host", host], |found| {
        found["held_hosts"][0]["host"] == host
    });
    let held = &of_host["held_hosts"][0];
    assert!(held["failures"].as_u64() > Some(0), "{held}");
    assert_eq!(held["given_up"], 0);
    let next = of_host["next"].as_array().expect("requests");
    let why: Vec<&Value> = next.iter().map(|next| &next["why"]).collect();
    let first = serde_json::json!(["first", "host_held"]);
    let queued = serde_json::json!(["queued", "host_held"]);
    assert_eq!(why, [&first, &queued]);
    let other = format!("127.0.0.1:{}", server.port());
    let of_other = json(crawl.folder(), &["--host", &other]);
    assert_eq!(of_other["held_hosts"], Value::Array(Vec::new()));
    going.signal(Signal::KILL);
    going.wait();
}

#[test]
fn that_a_host_was_given_up_is_shown_after_its_requests_have_ended() {
    let url = "http://127.0.0.1:1/a";
    let crawl =
        Crawl::of(&[url]).with(&["-s", "HOST_DOWN_AFTER=10ms", "-s", "ROBOTSTXT_OBEY=true"]);
    crawl.try_run();
    let shown = state(crawl.folder(), &[]).expect(0).out;
    assert!(
        shown.contains("holds         no scopes\n  no answer     1 hosts"),
        "{shown}"
    );
    for subject in [
        ["--host", "127.0.0.1:1"],
        ["--host", "127.0.0.1"],
        ["--url", url],
    ] {
        let found = json(crawl.folder(), &subject);
        assert_eq!(found["requests"], 0);
        let held = &found["held_hosts"][0];
        assert_eq!(held["host"], "127.0.0.1:1", "{subject:?}");
        assert_eq!(held["given_up"], 1);
        let left = held["left"].as_f64().expect("a number");
        assert!((600.0..=900.0).contains(&left), "{held}");
        let shown = state(crawl.folder(), &subject).expect(0).out;
        let until = &text(&held["until"]);
        let line = format!("no answer     127.0.0.1:1 is not asked until {until} (");
        assert!(shown.contains(&line), "{shown}");
        assert!(shown.contains("given up 1 times"), "{shown}");
    }
    let found = json(crawl.folder(), &["--host", "127.0.0.1:11"]);
    assert_eq!(found["held_hosts"], Value::Array(Vec::new()));
}

#[test]
fn settings_that_were_given_while_the_crawl_ran_are_shown_for_the_scopes_to_which_they_apply() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    fs::create_dir(&out).expect("it can be made");
    let new = State::new(&out, String::new(), [1; 16]).expect("it is short");
    new.beginning().write().expect("it can be written");
    let builder = Crawler::builder(Config::default()).sink(|_: Page| {});
    let mut crawler = builder.state(new).build().expect("a crawler");
    for (name, patch) in [
        ("default", r#"{"delay": 3}"#),
        ("default", r#"{"concurrency": 2}"#),
        ("*.a.test", r#"{"backoff": {"max_delay": 500}}"#),
        ("www.a.test", "{}"),
        ("b.test", r#"{"quota": 7}"#),
    ] {
        let patch = patch.parse().expect("a patch");
        crawler.set_scope(name, patch).expect("it is sound");
    }
    assert_eq!(crawler.run(), FinishReason::Finished);
    drop(crawler);
    let ordered = |scope: &str| {
        let found = json(folder.path(), &["--scope", scope]);
        let ordered = found["ordered_settings"].as_array().expect("a list");
        let pairs = ordered.iter().map(|one| {
            assert!(one["recorded"].is_string(), "{one}");
            (text(&one["scope"]), one["settings"].clone())
        });
        pairs.collect::<Vec<_>>()
    };
    let default = || {
        let both = json_of!({"concurrency": 2, "delay": 3});
        ("default".to_owned(), both)
    };
    let below = || {
        let backoff = json_of!({"backoff": {"max_delay": 500}});
        ("*.a.test".to_owned(), backoff)
    };
    let own = ("www.a.test".to_owned(), json_of!({}));
    assert_eq!(ordered("www.a.test"), [own, below(), default()]);
    assert_eq!(ordered("c.a.test"), [below(), default()]);
    let own = ("b.test".to_owned(), json_of!({"quota": 7.0}));
    assert_eq!(ordered("b.test"), [own, default()]);
    assert_eq!(ordered("other"), [default()]);
    let shown = state(folder.path(), &["--scope", "b.test"]).expect(0).out;
    let line = r#"  ordered       b.test {"quota":7.0} (while the crawl ran; recorded "#;
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn a_missing_file_of_queued_requests_is_shown_as_damage() {
    let server = Server::new(|_: &Asked| page("p"));
    let list: String = (0..200).map(|n| server.url(&format!("/q{n}\n"))).collect();
    let crawl = Crawl::of(&["--seeds", "list", "--max-pages", "5"])
        .with(&["-s", "FRONTIER_MEMORY=600", "--follow", "none"])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"]);
    crawl.file("list", list.as_bytes());
    crawl.try_run().expect(0);
    let before = json(crawl.folder(), &[]);
    let names = files(&crawl.folder().join("out/state"));
    let queue = names.iter().find(|(path, ..)| path.contains("/queue-"));
    let (queue, ..) = queue.expect("some requests are in files");
    fs::remove_file(queue).expect("it is there");
    let found = json(crawl.folder(), &[]);
    let damage = &found["damage"][0];
    assert!(queue.ends_with(&text(&damage["file"])), "{found:#}");
    let lost = damage["requests"].as_u64().expect("a count");
    assert!(lost > 0, "{damage}");
    let total = |found: &Value| found["requests"]["total"].as_u64().expect("a count");
    assert_eq!(total(&found) + lost, total(&before));
    let shown = state(crawl.folder(), &[]).expect(0).out;
    assert!(shown.contains("is missing;"), "{shown}");
    let exported = state(crawl.folder(), &["--export"]).expect(0);
    assert!(exported.err.contains("is missing;"), "{}", exported.err);
    let written = exported.out.lines().count() as u64;
    assert!(written >= total(&found), "{written}");
    json(crawl.folder(), &["--host", "a.test"]);
}

#[test]
fn of_a_name_that_the_state_does_not_have_that_is_said() {
    let server = Server::new(|_: &Asked| page("p"));
    let crawl = slow(&server);
    let going = crawl.start();
    server.wait_for_requests(1);
    going.signal(Signal::INT);
    going.wait().expect(3);
    let host = format!("127.0.0.1:{}", server.port());
    for subject in ["--host", "--scope"] {
        for (name, is_known) in [(&*host, true), ("a.test", false)] {
            let shown = state(crawl.folder(), &[subject, name]).expect(0).out;
            let hint = "nothing: its requests have ended, or it has another name";
            assert_eq!(shown.contains(hint), !is_known, "{shown}");
            assert_eq!(json(crawl.folder(), &[subject, name])["known"], is_known);
        }
    }
    for name in ["http://127.0.0.1:1/", "127.0.0.1:1/", "user@a.test"] {
        let refused = state(crawl.folder(), &["--host", name]);
        check_refused(&refused, &["--host", name, "a.test:8080", "--url"]);
    }
    let shown = state(crawl.folder(), &["--scope", "http://a.test/"])
        .expect(0)
        .out;
    assert!(shown.contains("nothing: "), "{shown}");
}
