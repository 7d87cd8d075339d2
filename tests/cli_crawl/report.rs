//! `argiope report`: the figures of a crawl's files, and what is said of files that are missing or damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::authority::Authority;
use crate::run::{Crawl, Crawled, Ended, Going, check_refused, text};
use crate::server::{Asked, Server, Step, not_found, page, redirect, reply};

/// Runs `argiope report out` in a folder.
fn report(folder: &Path, args: &[&str]) -> Ended {
    let args = [&["report", "out"], args].concat();
    Going::start(&args, folder, b"").wait()
}

fn json(folder: &Path) -> Value {
    let ended = report(folder, &["--json"]).expect(0);
    assert_eq!(ended.err, "");
    serde_json::from_str(&ended.out).expect("it is JSON")
}

fn folder_of(crawled: &Crawled) -> std::path::PathBuf {
    crawled.out().parent().expect("a folder").to_owned()
}

/// Notes of a report, as one text.
fn notes(report: &Value) -> String {
    let notes = report["notes"].as_array().expect("a list");
    notes.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// A crawl of two servers, one with TLS: pages at three depths, robots.txt, a redirect, errors and a delay.
fn crawl() -> Crawled {
    let authority = Authority::new();
    let answer = |asked: &Asked| match asked.target.as_str() {
        "/robots.txt" => reply("200 OK", &[], b"User-agent: *\nDisallow: /secret"),
        "/" => page(
            "<a href=/a>a</a> <a href=/b>b</a> <a href=/moved>m</a> <a href=/none>n</a> <a href=/secret>s</a>",
        ),
        "/a" => page("<a href=/deep>deep</a> <a href=/empty>e</a>"),
        "/moved" => redirect("301 Moved Permanently", "/b2"),
        "/none" => not_found(),
        "/empty" => reply("204 No Content", &[], b""),
        "/broken" => vec![Step::Close],
        _ => reply(
            "200 OK",
            &["Content-Type: Text/Plain; x=\"<script>\""],
            &[b'x'; 3000],
        ),
    };
    let plain = Server::new(answer);
    let secure = Server::tls(authority.server("b.test", |_| ()), answer);
    let seeds = [
        format!("http://a.test:{}/", plain.port()),
        format!("https://b.test:{}/", secure.port()),
        format!("http://a.test:{}/broken", plain.port()),
    ];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let crawl = Crawl::of(&seeds);
    crawl.file("ca.pem", authority.pem().as_bytes());
    crawl
        .with(&["--resolve", &plain.named("a.test")])
        .with(&["--resolve", &secure.named("b.test")])
        .with(&["--ca-file", "ca.pem", "-s", "RETRY_TIMES=1"])
        .with(&["-s", "ROBOTSTXT_OBEY=true", "-s", "DOWNLOAD_DELAY=0.03"])
        .with(&["-s", "BACKOFF_ENABLED=false", "-s", "OUTAGE_BREAKER=false"])
        .run()
}

/// Counts lines by a value.
fn counts<'a>(lines: &'a [Value], key: impl Fn(&'a Value) -> Option<String>) -> Value {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for key in lines.iter().filter_map(key) {
        *counts.entry(key).or_default() += 1;
    }
    serde_json::to_value(counts).expect("JSON")
}

fn host(line: &Value) -> String {
    let url = line["url"].as_str().expect("a URL");
    url.split('/').nth(2).expect("a host").to_owned()
}

/// Nanoseconds within the day of a wall time.
fn nanos(at: &Value) -> i128 {
    let at = at.as_str().expect("a time");
    let number = |from: usize, to: usize| at[from..to].parse::<i128>().expect("digits");
    let seconds =
        (number(8, 10) * 24 + number(11, 13)) * 3600 + number(14, 16) * 60 + number(17, 19);
    seconds * 1_000_000_000 + number(20, 29)
}

#[test]
fn figures_of_a_crawl_are_those_that_its_lines_add_up_to() {
    let crawled = crawl();
    let lines = crawled.lines();
    let found = json(&folder_of(&crawled));
    assert_eq!(notes(&found), "");
    let count = |is: &dyn Fn(&Value) -> bool| lines.iter().filter(|line| is(line)).count() as u64;
    let sum = |key: &str| -> u64 { lines.iter().filter_map(|line| line[key].as_u64()).sum() };
    let is_sent = |line: &Value| !line["sent"].is_null();
    let sent: Vec<&Value> = lines.iter().filter(|line| is_sent(line)).collect();
    assert!(lines.len() >= 18, "{lines:#?}");

    let totals = &found["totals"];
    assert_eq!(totals["attempts"], lines.len() as u64);
    assert_eq!(totals["sent"], sent.len() as u64);
    assert_eq!(totals["finals"], count(&|line| line["final"] == true));
    assert_eq!(totals["robots"], count(&|line| line["kind"] == "robots"));
    assert_eq!(totals["pages"], crawled.stats()["pages"]);
    assert_eq!(
        totals["retries"],
        count(&|line| line["attempt"].as_u64() > Some(1))
    );
    assert_eq!(
        totals["redirects"],
        count(&|line| !line["redirect"].is_null())
    );
    assert_eq!(totals["bytes_wire"], sum("bytes_wire"));
    assert_eq!(totals["bytes_body"], sum("bytes_body"));
    assert_eq!(
        totals["depth"],
        counts(&lines, |line| Some(line["depth"].to_string()))
    );
    assert!(totals["depth"]["2"].as_u64() > Some(2), "{totals}");
    let first = sent.iter().map(|line| text(&line["sent"])).min();
    assert_eq!(totals["first_sent"].as_str(), first.as_deref());

    let intervals = found["throughput"]["intervals"].as_array().expect("a list");
    let in_all: u64 = intervals
        .iter()
        .filter_map(|interval| interval["sent"].as_u64())
        .sum();
    assert_eq!(in_all, sent.len() as u64);

    let status = |line: &Value| line["status"].as_u64().map(|status| status.to_string());
    assert_eq!(found["outcomes"]["status"], counts(&lines, status));
    let errors = found["outcomes"]["errors"].as_array().expect("a list");
    let errors: BTreeMap<String, u64> = errors
        .iter()
        .map(|error| {
            (
                text(&error["code"]),
                error["count"].as_u64().expect("a count"),
            )
        })
        .collect();
    let code = |line: &Value| line["error"]["code"].as_str().map(str::to_owned);
    assert_eq!(
        serde_json::to_value(&errors).expect("JSON"),
        counts(&lines, code)
    );
    assert!(errors.contains_key("robots.disallowed"), "{errors:?}");

    let mut latencies: Vec<f64> = lines
        .iter()
        .filter_map(|line| line["server_latency"].as_f64())
        .collect();
    latencies.sort_by(f64::total_cmp);
    let latency = &found["latency"]["server_latency"];
    assert_eq!(latency["count"], latencies.len() as u64);
    let near = |value: &Value, expected: f64| {
        let value = value.as_f64().expect("seconds");
        assert!(
            (value / expected - 1.0).abs() < 0.002,
            "{value} is not {expected}"
        );
    };
    near(&latency["p50"], latencies[(latencies.len() - 1) / 2]);
    near(&latency["max"], latencies[latencies.len() - 1]);
    near(
        &latency["mean"],
        latencies.iter().sum::<f64>() / latencies.len() as f64,
    );
    let answers: Vec<f64> = lines
        .iter()
        .filter_map(|line| Some(line["first_byte"].as_f64()? - line["request"].as_f64()?))
        .collect();
    let phases = found["latency"]["phases"].as_array().expect("a list");
    let mut phases = phases.iter().filter(|phase| phase["phase"] == "first_byte");
    let phase = &phases.next().expect("it is there")["seconds"];
    assert_eq!(phase["count"], answers.len() as u64);
    near(
        &phase["mean"],
        answers.iter().sum::<f64>() / answers.len() as f64,
    );

    let slowest = found["hosts"]["slowest"].as_array().expect("a list");
    let attempts: BTreeMap<String, u64> = slowest
        .iter()
        .map(|row| {
            (
                text(&row["host"]),
                row["attempts"].as_u64().expect("a count"),
            )
        })
        .collect();
    let replied: BTreeSet<String> = lines
        .iter()
        .filter(|line| !line["server_latency"].is_null())
        .map(host)
        .collect();
    assert_eq!(attempts.keys().cloned().collect::<BTreeSet<_>>(), replied);
    for (name, attempts) in attempts {
        assert_eq!(attempts, count(&|line| host(line) == name), "{name}");
    }

    assert_eq!(
        found["connections"]["reused"],
        count(&|line| is_sent(line) && line["reused"] == true)
    );
    assert_eq!(
        found["connections"]["new"],
        count(&|line| is_sent(line) && line["reused"] == false)
    );
    let secure = count(&|line| is_sent(line) && !line["tls"].is_null());
    assert!(secure > 5, "{lines:#?}");
    assert_eq!(found["tls"]["with_tls"], secure);
    assert_eq!(found["tls"]["versions"]["rows"][0]["count"], secure);
    assert_eq!(found["tls"]["unverified"], 0);

    let types = found["bodies"]["types"]["rows"].as_array().expect("a list");
    let types: Vec<(String, u64)> = types
        .iter()
        .map(|row| (text(&row["name"]), row["count"].as_u64().expect("a count")))
        .collect();
    let typed = count(&|line| !line["status"].is_null() && !line["content_type"].is_null());
    assert_eq!(types.iter().map(|(_, count)| count).sum::<u64>(), typed);
    let mixed_case = count(&|line| {
        line["content_type"]
            .as_str()
            .is_some_and(|t| t.starts_with("Text/"))
    });
    assert!(types.contains(&(
        "text/plain".to_owned(),
        mixed_case + count(&|line| line["content_type"] == "text/plain")
    )));
    assert_eq!(found["waited"], crawled.stats()["waited"]);
    assert_eq!(found["finish_reason"], "finished");
}

#[test]
fn gaps_of_a_crawl_are_compared_with_their_delay_and_none_is_short() {
    let crawled = crawl();
    let mut lines = crawled.lines();
    lines.retain(|line| !line["sent"].is_null());
    lines.sort_by_key(|line| nanos(&line["sent"]));
    let mut last: BTreeMap<String, i128> = BTreeMap::new();
    let (mut compared, mut without_delay) = (0, 0);
    for line in &lines {
        let sent = nanos(&line["sent"]);
        let scopes = line["scopes"].as_array().expect("a list");
        let gaps = scopes
            .iter()
            .filter_map(|scope| Some(sent - last.insert(text(scope), sent)?));
        let gap = gaps.collect::<Vec<_>>().into_iter().max();
        let delay = line["delay"].as_f64().expect("a delay");
        match (delay > 0.0, gap) {
            (false, _) => without_delay += 1,
            (true, Some(gap)) => {
                assert!(gap as f64 >= delay * 1e9 - 1.0, "{line}");
                compared += 1;
            }
            (true, None) => panic!("a delay before the first of a scope: {line}"),
        }
    }
    assert!(compared >= 8, "{compared}");
    let gaps = &json(&folder_of(&crawled))["gaps"];
    assert_eq!(gaps["compared"], compared);
    assert_eq!(gaps["without_delay"], without_delay);
    for none in ["short", "without_predecessor", "omitted", "unordered"] {
        assert_eq!(gaps[none], 0, "{none}");
    }
    let tightest = &gaps["tightest"][0];
    assert!(
        tightest["gap"].as_f64() >= tightest["delay"].as_f64(),
        "{tightest}"
    );
}

#[test]
fn the_page_is_written_beside_the_lines_or_where_it_is_asked_for() {
    let crawled = crawl();
    let folder = folder_of(&crawled);
    let before = fs::read(crawled.out().join("results.jsonl")).expect("the lines");
    let ended = report(&folder, &[]).expect(0);
    assert_eq!(ended.out, "out/report.html\n");
    assert!(ended.err.starts_with("  slowest "), "{}", ended.err);
    let page = crawled.read("report.html");
    assert!(
        page.starts_with("<!doctype html>") && page.ends_with("</html>\n"),
        "{page}"
    );
    assert!(
        page.contains("robots.disallowed") && !page.contains("<script"),
        "{page}"
    );
    let ended = report(&folder, &["-o", "page.html", "--json"]).expect(0);
    assert!(ended.out.starts_with('{'), "{}", ended.out);
    let other = fs::read_to_string(folder.join("page.html")).expect("the page");
    assert_eq!(other.lines().count(), page.lines().count());
    let ended = report(&folder, &["-o", "-"]).expect(0);
    assert!(ended.out.starts_with("<!doctype html>"), "{}", ended.out);
    let after = fs::read(crawled.out().join("results.jsonl")).expect("the lines");
    assert_eq!(before, after);
    let left: Vec<_> = fs::read_dir(crawled.out())
        .expect("a folder")
        .flatten()
        .collect();
    assert!(
        left.iter()
            .all(|entry| !entry.file_name().to_string_lossy().contains("tmp"))
    );
}

#[test]
fn a_directory_without_a_crawl_and_files_of_a_crawl_as_the_page_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |args: &[&str], parts: &[&str]| {
        check_refused(&report(folder.path(), args), parts);
    };
    refused(&[], &["out is not a directory", "output directory"]);
    let out = folder.path().join("out");
    fs::create_dir(&out).expect("a folder");
    refused(&[], &["out has no results.jsonl", "--results -"]);
    assert_eq!(fs::read_dir(&out).expect("the folder").count(), 0);
    fs::write(out.join("results.jsonl"), "nonsense\n{}\n").expect("a file");
    let none = [
        "out/results.jsonl",
        "none of its 2 lines",
        "line 1: expected",
        "backup",
    ];
    refused(&["--json"], &none);
    fs::write(out.join("results.jsonl"), "").expect("a file");
    refused(
        &["-o", "out/results.jsonl"],
        &["-o out/results.jsonl", "another file"],
    );
    fs::write(folder.path().join("notes.txt"), "mine").expect("a file");
    refused(
        &["-o", "notes.txt"],
        &["-o notes.txt", "is no HTML page", "delete it"],
    );
    let notes = fs::read_to_string(folder.path().join("notes.txt"));
    assert_eq!(notes.expect("it is still there"), "mine");
    refused(&["-o", "-", "--json"], &["-o -", "--json"]);
    let ended = report(folder.path(), &["-o", "none/page.html"]).expect(1);
    assert!(
        ended.err.contains("none/page.html: cannot be written"),
        "{}",
        ended.err
    );
}

#[test]
fn missing_and_damaged_files_are_named_in_the_report() {
    let crawled = crawl();
    let folder = folder_of(&crawled);
    let lines = crawled.read("results.jsonl");
    let whole = json(&folder);
    let (first, rest) = lines.split_once('\n').expect("lines");
    let cut = &rest[..rest.len() - 10];
    let file = crawled.out().join("results.jsonl");
    fs::write(&file, format!("{first}\nnonsense\n{cut}")).expect("a file");
    let found = json(&folder);
    let attempts = whole["totals"]["attempts"].as_u64().expect("a count");
    assert_eq!(found["totals"]["attempts"], attempts - 1);
    assert_eq!(found["results"]["bad"], 1);
    assert_eq!(found["results"]["bad_lines"][0]["line"], 2);
    assert_eq!(
        found["results"]["bad_lines"][0]["byte"],
        first.len() as u64 + 1
    );
    assert_eq!(found["results"]["incomplete"], true);
    let notes_of = notes(&found);
    assert!(notes_of.contains("line 2, at byte"), "{notes_of}");
    assert!(
        notes_of.contains("last line of results.jsonl has no end"),
        "{notes_of}"
    );
    fs::write(&file, &lines).expect("a file");

    let stats = crawled.out().join("stats.json");
    fs::write(&stats, "{\"waited\": ").expect("a file");
    let found = json(&folder);
    assert!(
        notes(&found).contains("stats.json cannot be used (EOF"),
        "{}",
        notes(&found)
    );
    assert!(found["waited"].is_null());
    fs::remove_file(&stats).expect("it is there");
    let found = json(&folder);
    assert!(
        notes(&found).contains("There is no stats.json"),
        "{}",
        notes(&found)
    );
    report(&folder, &[]).expect(0);
    let page = crawled.read("report.html");
    assert!(page.contains("Not known without stats.json"), "{page}");
    fs::write(&stats, "{\"attempts\": 3}").expect("a file");
    let found = json(&folder);
    assert!(
        notes(&found).contains("is of 3 attempts"),
        "{}",
        notes(&found)
    );
}

#[test]
fn a_crawl_without_lines_has_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    fs::create_dir(&out).expect("a folder");
    fs::write(out.join("results.jsonl"), "").expect("a file");
    let found = json(folder.path());
    assert!(notes(&found).contains("has no line"), "{found}");
    assert!(found["latency"]["latency"].is_null() && found["totals"]["seconds"].is_null());
    report(folder.path(), &[]).expect(0);
    let page = fs::read_to_string(out.join("report.html")).expect("the page");
    assert!(!page.contains("NaN") && !page.contains("inf "), "{page}");
}
