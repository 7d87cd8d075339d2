//! Crawls of a loopback server whose own log is compared with the files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sha1::{Digest, Sha1};

use super::*;

/// A request as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    host: String,
    target: String,
}

/// A server of two hosts: a.test asks to wait once, b.test has a Crawl-delay.
struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let log = Arc::clone(&log);
                thread::spawn(move || serve(stream.ok()?, &log));
            }
        });
        Server { address, seen }
    }

    fn seen_at(&self, host: &str) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no thread panicked");
        let of_host = seen.iter().filter(|seen| seen.host == host);
        of_host.cloned().collect()
    }

    fn count(&self) -> usize {
        self.seen.lock().expect("no thread panicked").len()
    }

    fn wait_for(&self, count: usize) {
        let begin = Instant::now();
        while self.count() < count {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the crawl does not go on"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn crawl(&self, out: &Path, more: &[&str]) -> Child {
        let port = self.address.port();
        let resolve = format!("*:{port}:127.0.0.1");
        let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
        command.arg("crawl").args(more).arg("--out").arg(out);
        command.args([
            "--allow-net",
            "loopback",
            "--quiet",
            "--no-warc",
            "--resolve",
            &resolve,
        ]);
        command.args([
            "-s",
            "DOWNLOAD_DELAY=0.1",
            "-s",
            "RANDOMIZE_DOWNLOAD_DELAY=false",
        ]);
        command
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs")
    }

    fn urls(&self) -> [String; 2] {
        ["a", "b"].map(|host| format!("http://{host}.test:{}/", self.address.port()))
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Seen>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut target, mut host) = (String::new(), String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if target.is_empty() {
            target = line.split(' ').nth(1)?.to_owned();
        } else if let Some(value) = line.to_ascii_lowercase().strip_prefix("host: ") {
            host = value.trim().split(':').next()?.to_owned();
        } else if line == "\r\n" {
            break;
        }
    }
    let number = {
        let mut seen = log.lock().ok()?;
        let number = seen.iter().filter(|seen| seen.host == host).count();
        seen.push(Seen {
            at: Instant::now(),
            host: host.clone(),
            target: target.clone(),
        });
        number
    };
    let delay = if host == "b.test" {
        "Crawl-delay: 0.3\n"
    } else {
        ""
    };
    let (status, fields, body) = match (target.as_str(), number) {
        ("/robots.txt", _) => (
            "200 OK",
            "",
            format!("User-agent: *\nDisallow: /private\n{delay}"),
        ),
        (_, 4) if host == "a.test" => {
            ("429 Too Many Requests", "Retry-After: 1\r\n", String::new())
        }
        _ => {
            let links = (number..number + 3).map(|n| format!("<a href='/p{n}'>x</a>"));
            let links: String = links.collect();
            (
                "200 OK",
                "",
                format!("{links}<a href='/private/{number}'>y</a>"),
            )
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{fields}Connection: close\r\n\r\n{body}",
        body.len()
    )
    .ok()
}

fn receipt(folder: &Path, site: &str) -> Value {
    let output = audit(folder, &["--site", site]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a receipt is JSON")
}

/// Both verifiers find no violation.
fn check_kept(folder: &Path) -> Value {
    let output = audit(folder, &["--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let first = found(&output);
    assert_eq!(first.verdict, "kept", "{value:#}");
    if let Some(second) = second_verdict(folder) {
        assert_eq!(second, first);
    }
    value
}

#[test]
fn a_receipt_lists_what_the_server_saw_and_the_verdict_agrees_with_its_log() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("crawl");
    let [a, b] = server.urls();
    let mut crawl = server.crawl(&out, &[&a, &b, "--max-pages", "24"]);
    assert!(crawl.wait().expect("it ends").success());
    let value = check_kept(&out);
    assert_eq!(value["unobserved"], serde_json::json!([]));
    let floors = BTreeMap::from([("a.test", 0.1), ("b.test", 0.3)]);
    for (host, floor) in floors {
        let seen = server.seen_at(host);
        assert!(seen.len() > 5, "{host}: {seen:?}");
        let receipt = receipt(&out, host);
        let listed = receipt["requests"].as_array().expect("a list");
        let targets: Vec<&str> = listed
            .iter()
            .filter_map(|one| one["target"].as_str())
            .collect();
        let at_server: Vec<&str> = seen.iter().map(|one| one.target.as_str()).collect();
        assert_eq!(targets, at_server, "{host}");
        // The thread that stamps a request may have been late.
        let late = Duration::from_millis(60).as_secs_f64();
        let gaps = seen
            .windows(2)
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64());
        assert!(
            gaps.into_iter().all(|gap| gap > floor - late),
            "{host}: {seen:?}"
        );
        assert!(!targets.iter().any(|target| target.starts_with("/private")));
        assert_eq!(receipt["robots"][0]["meaning"], "rules");
        assert_eq!(receipt["lines"], targets.len());
        assert_eq!(receipt["digest"], digest_of(&out, host), "{host}");
    }
    let asked = receipt(&out, "a.test");
    let hold = &asked["holds"][0];
    assert_eq!(
        (&hold["asked"], &hold["source"]),
        (&1.0.into(), &"retry-after".into())
    );
    let refused = server.seen_at("a.test");
    assert!(
        refused[5].at - refused[4].at > Duration::from_millis(940),
        "{refused:?}"
    );
}

/// The digest of a receipt by the rule of the reference.
fn digest_of(out: &Path, host: &str) -> String {
    let text = std::fs::read_to_string(out.join("results.jsonl")).expect("lines");
    let of = |bytes: &[u8]| {
        let digest: [u8; 20] = Sha1::digest(bytes).into();
        format!("sha1:{}", base32(&digest))
    };
    let mut digest = of(b"");
    for line in text.split_inclusive('\n') {
        let value: Value = serde_json::from_str(line).expect("a line");
        let is_of_host = value["url"]
            .as_str()
            .is_some_and(|url| url.contains(&format!("//{host}:")));
        if is_of_host && !value["sent"].is_null() {
            digest = of(format!("{digest}{line}").as_bytes());
        }
    }
    digest
}

fn base32(bytes: &[u8]) -> String {
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let bits: Vec<u8> = bits.collect();
    let digit = |five: &[u8]| {
        let number = five.iter().fold(0, |number, bit| number * 2 + bit);
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[usize::from(number)])
    };
    bits.chunks(5).map(digit).collect()
}

#[test]
fn a_crawl_that_was_killed_and_resumed_is_judged_and_the_time_between_is_unobserved() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("crawl");
    let [a, b] = server.urls();
    let args = [a.as_str(), &b, "--max-pages", "40", "-s", "STATE_SYNC=0.2"];
    let mut crawl = server.crawl(&out, &args);
    server.wait_for(16);
    crawl.kill().expect("it runs");
    crawl.wait().expect("it is killed");
    let before = server.count();
    let mut crawl = server.crawl(&out, &["--resume", "--max-pages", "40"]);
    assert!(crawl.wait().expect("it ends").success());
    assert!(server.count() > before);
    let value = check_kept(&out);
    let runs = value["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    assert_eq!(
        (&runs[0]["end"], runs[1]["end"].is_string()),
        (&Value::Null, true)
    );
    let unobserved = value["unobserved"].as_array().expect("a list");
    assert_eq!(unobserved.len(), 1);
    assert_eq!(unobserved[0]["to"], runs[1]["start"]);
    let [from, to] = ["from", "to"].map(|key| unobserved[0][key].as_str().expect("a time"));
    assert!(
        runs[0]["start"].as_str() < Some(from) && from < to,
        "{unobserved:?}"
    );
    let scopes = value["scopes"].as_array().expect("scopes");
    let gaps = scopes.iter().map(|scope| scope["unobserved_gaps"].as_u64());
    assert!(gaps.into_iter().all(|gaps| gaps == Some(1)), "{scopes:?}");
}

#[test]
fn orders_are_judged_from_their_acknowledgement_on() {
    let server = Server::start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("crawl");
    let [a, b] = server.urls();
    let mut crawl = server.crawl(&out, &[&a, &b, "--max-pages", "40"]);
    server.wait_for(8);
    let ctl = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
        let output = command.arg("ctl").arg(&out).args(args).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
    };
    ctl(&["pause"]);
    thread::sleep(Duration::from_millis(400));
    ctl(&["resume"]);
    ctl(&["exclude", "b.test"]);
    ctl(&[
        "set",
        &format!("a.test:{}", server.address.port()),
        "delay=0.2",
    ]);
    let of_b = server.seen_at("b.test").len();
    let count = server.count();
    server.wait_for(count + 4);
    ctl(&["stop", "--grace", "1s"]);
    crawl.wait().expect("it ends");
    check_kept(&out);
    assert!(server.seen_at("b.test").len() <= of_b + 1);
    let runs = std::fs::read_to_string(out.join("runs.jsonl")).expect("a log");
    let events: Vec<String> = runs
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["event"].to_string())
        .collect();
    assert_eq!(events, ["\"start\"", "\"scope\"", "\"end\""]);
}
