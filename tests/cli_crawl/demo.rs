//! `argiope demo --serve`: the demo's web for a crawl in another process.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::again::wait_for_file;
use crate::run::{Going, check_refused};

#[test]
fn a_served_demo_logs_each_request_of_another_crawl_and_judges_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let demo = ["demo", "--serve", "web", "--domains", "12", "--pages", "3"];
    let web = Going::start(&demo, folder, b"");
    // The last of its files.
    wait_for_file(&folder.join("web/demo.toml"));
    let crawl = [
        "crawl",
        "--quiet",
        "--config",
        "web/demo.toml",
        "--seeds",
        "web/seeds.txt",
        "--out",
        "out",
        "--contact",
        "me@example.org",
    ];
    Going::start(&crawl, folder, b"").wait().expect(0);
    let again = Going::start(&demo, folder, b"").wait();
    check_refused(
        &again,
        &["web/requests.jsonl exists", "name a new directory"],
    );
    web.signal(Signal::INT);
    let ended = web.wait().expect(0);
    assert!(ended.out.contains("polite"), "{}", ended.out);
    assert!(
        ended.err.contains("argiope crawl --config web/demo.toml"),
        "{}",
        ended.err
    );
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(folder.join(name)).expect("a file of lines");
        let lines = text.lines().map(serde_json::from_str);
        lines.map(|line| line.expect("JSON")).collect()
    };
    let (requests, results) = (lines("web/requests.jsonl"), lines("out/results.jsonl"));
    let logged = |host: &str, path: &str| {
        let is_it = |request: &&Value| request["host"] == host && request["path"] == path;
        requests.iter().filter(is_it).count()
    };
    let replied = results.iter().filter(|line| line["status"].is_u64());
    assert!(
        replied.clone().count() > 24,
        "pages and robots.txt of twelve hosts"
    );
    for line in replied {
        let url = line["url"].as_str().expect("a URL");
        let (host, path) = url["http://".len()..].split_once('/').expect("a path");
        let (host, _) = host.split_once(':').expect("a port");
        assert_eq!(logged(host, &format!("/{path}")), 1, "{url}");
    }
    for request in &requests {
        assert_eq!(request["method"], "GET");
        assert!(request["at"].as_str().is_some_and(|at| at.ends_with('Z')));
    }
}
