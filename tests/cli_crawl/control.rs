//! `argiope ctl` and `--admin`: a running crawl answers questions and takes orders.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::again::wait_for_file;
use crate::run::{Crawl, Ended, Going, check_refused};
use crate::server::{Asked, Server, page};

/// Runs `argiope ctl out` in a folder.
pub fn ctl(folder: &Path, args: &[&str]) -> Ended {
    let args = [&["ctl", "out"], args].concat();
    Going::start(&args, folder, b"").wait()
}

/// The reply to a call that succeeds.
#[track_caller]
pub fn reply_of(folder: &Path, args: &[&str]) -> Value {
    let ended = ctl(folder, args).expect(0);
    assert_eq!(ended.err, "");
    serde_json::from_str(&ended.out).expect("it is JSON")
}

/// The reply to an order that succeeds, with a note on stderr.
#[track_caller]
fn noted(folder: &Path, args: &[&str], note: &str) -> Value {
    let ended = ctl(folder, args).expect(0);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert!(ended.err.contains(note), "{args:?}: {}", ended.err);
    serde_json::from_str(&ended.out).expect("it is JSON")
}

/// A crawl of a host with many pages, 50 ms between two.
fn paced(server: &Server) -> Crawl {
    let list: String = (0..2000).map(|n| server.url(&format!("/{n}\n"))).collect();
    let crawl = Crawl::of(&["--seeds", "list"]).with(&["-s", "DOWNLOAD_DELAY=50ms"]);
    crawl.file("list", list.as_bytes());
    crawl
}

fn is_listening(folder: &Path) -> bool {
    folder.join("out/control.sock").exists()
}

/// Starts it, and waits until it listens and has sent something.
pub fn start(crawl: &Crawl, server: &Server) -> Going {
    let going = crawl.start();
    server.wait_for_requests(1);
    assert!(is_listening(crawl.folder()));
    going
}

fn requests(server: &Server) -> usize {
    server.asked().len()
}

/// Requests that arrive in this time.
pub fn requests_in(server: &Server, span: Duration) -> usize {
    let before = requests(server);
    thread::sleep(span);
    requests(server) - before
}

/// The reply to bytes on a TCP connection, until its end.
fn exchange(at: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a timeout");
    // A crawl that has refused the head may not read the rest.
    let _ = stream.write_all(request);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

pub fn get(at: &str, path: &str, fields: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
    exchange(at, request.as_bytes())
}

/// The address in the log of a crawl that was started with port 0.
pub fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn an_operator_pauses_paces_and_stops_a_crawl_whose_server_sees_it() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawl = paced(&server);
    let going = start(&crawl, &server);
    let folder = crawl.folder();
    let mode = fs::metadata(folder.join("out/control.sock")).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    assert_eq!(reply_of(folder, &[])["phase"], json!("running"));
    assert_eq!(reply_of(folder, &["pause"]), json!({"paused": true}));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(requests_in(&server, Duration::from_millis(500)), 0);
    assert_eq!(reply_of(folder, &["resume"]), json!({"paused": false}));
    let scope = format!("127.0.0.1:{}", server.port());
    let reply = reply_of(folder, &["set", &scope, "delay=10s"]);
    assert_eq!(reply["settings"], json!({"delay": 10}));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(requests_in(&server, Duration::from_millis(700)), 0);
    let shown = reply_of(folder, &["scope", &scope]);
    assert_eq!(shown["now"]["limited_by"], json!("user"));
    let listed = reply_of(
        folder,
        &[
            "scopes", "--sort", "sent", "--match", "127.*", "--limit", "3",
        ],
    );
    assert_eq!(listed["scopes"][0]["scope"], json!(scope));
    let held = reply_of(folder, &["hold", &scope, "1h"]);
    assert_eq!(held["settings"]["delay"], json!(10));
    assert!(held["settings"]["hold_until"].is_string(), "{held}");
    check_refused(
        &ctl(folder, &["hold", &scope, "soon"]),
        &["2030-01-31T18:00:00Z"],
    );
    let released = reply_of(folder, &["release", &scope]);
    assert_eq!(released["settings"], json!({"delay": 10}));
    let forgotten = reply_of(folder, &["forget", &scope]);
    assert_eq!(forgotten, json!({"scope": scope, "scopes": 1}));
    let host = reply_of(folder, &["host", &scope]);
    assert_eq!(host["origins"][0]["health"]["state"], json!("up"), "{host}");
    let url = reply_of(folder, &["url", &server.url("/extra")]);
    assert_eq!(url["state"], json!("never_seen"), "{url}");
    let url = reply_of(folder, &["url", "http://elsewhere.test/"]);
    assert_eq!(url["filter"], json!("offsite"), "{url}");
    reply_of(folder, &["set", &scope]);
    let extra = crawl.file(
        "extra",
        format!("# more\n{}\n", server.url("/extra")).as_bytes(),
    );
    let added = reply_of(folder, &["seeds", extra.to_str().expect("a path")]);
    assert_eq!(added, json!({"accepted": 1, "rejected": []}));
    let url = reply_of(folder, &["url", &server.url("/extra")]);
    assert_eq!(url["state"], json!("queued"), "{url}");
    let meta = "x".repeat(20_000);
    let long = |n| {
        format!(
            "{{\"url\": \"{}\", \"meta\": \"{meta}\"}}\n",
            server.url(&format!("/long{n}"))
        )
    };
    let long: String = (0..110).map(long).collect();
    let long = crawl.file("long", long.as_bytes());
    let added = reply_of(folder, &["seeds", long.to_str().expect("a path")]);
    assert_eq!(added["accepted"], json!(110));
    let closed = reply_of(folder, &["rotate"])["closed"].clone();
    let names = closed.as_array().expect("a list");
    assert_eq!(names[0], json!("results-000001.jsonl"));
    let is_warc = |name: &str| name.starts_with("warc/argiope-");
    assert!(names[1].as_str().is_some_and(is_warc), "{closed}");
    for name in names {
        wait_for_file(&folder.join("out").join(name.as_str().expect("a name")));
    }
    assert!(!folder.join("out/results.jsonl").exists());
    assert_eq!(reply_of(folder, &["stop", "--now"]), json!({"grace": 0.0}));
    let ended = going.wait().expect(3);
    assert!(!is_listening(folder));
    let crawled = crawl.left(ended);
    let orders = crawled.read("orders.jsonl");
    let orders: Vec<Value> = orders
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect();
    let names: Vec<&str> = orders
        .iter()
        .filter_map(|line| line["order"].as_str())
        .collect();
    // The long lines are in several orders.
    let mut names = names;
    names.dedup();
    assert_eq!(
        names,
        [
            "pause", "resume", "scope", "forget", "scope", "seeds", "rotate", "stop"
        ]
    );
    assert_eq!(orders[2]["after"], json!({"delay": 10}));
    assert_eq!(orders[3]["before"], json!({"delay": 10}));
    assert_eq!(orders[4]["after"], json!({"delay": 10}));
    assert!(crawled.read("pending.jsonl").contains("/extra"));
    let rotated = orders.iter().find(|line| line["order"] == "rotate");
    assert_eq!(rotated.expect("its line")["closed"], closed);
    // What the server was asked for has its line, in one of the files.
    assert_eq!(crawled.lines().len(), server.asked().len());
}

#[test]
fn a_crawl_that_was_killed_can_be_asked_again_when_it_is_resumed() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawl = paced(&server);
    let going = start(&crawl, &server);
    let folder = crawl.folder();
    let scope = format!("127.0.0.1:{}", server.port());
    reply_of(folder, &["set", &scope, "delay=5s"]);
    reply_of(folder, &["pause"]);
    let note = "no request to a host \"a.test\" is queued now";
    let excluded = noted(folder, &["exclude", "*.example.com", "a.test"], note);
    assert_eq!(excluded, json!({"excluded": ["*.example.com", "a.test"]}));
    reply_of(folder, &["include", "a.test"]);
    noted(folder, &["priority", "a.test", "-3"], note);
    reply_of(folder, &["exclude", "198.51.100.0/24", r"re:/\d{9}$"]);
    going.signal(Signal::KILL);
    going.wait();
    assert!(is_listening(folder), "nobody has removed the socket");
    check_refused(&ctl(folder, &[]), &["no crawl is running in out"]);
    let args = ["crawl", "--quiet", "--resume", "--out", "out"];
    let before = requests(&server);
    let resumed = Going::start(&args, folder, b"");
    while ctl(folder, &[]).code != Some(0) {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(reply_of(folder, &[])["paused"], json!(true));
    assert_eq!(
        reply_of(folder, &["exclude"]),
        json!({"excluded": ["*.example.com", "198.51.100.0/24", r"re:/\d{9}$"]})
    );
    assert_eq!(reply_of(folder, &["host", "a.test"])["priority"], json!(-3));
    assert_eq!(requests_in(&server, Duration::from_millis(300)), 0);
    reply_of(folder, &["resume"]);
    while requests(&server) == before {
        thread::sleep(Duration::from_millis(10));
    }
    let shown = reply_of(folder, &["scope", &scope]);
    assert_eq!(shown["settings"], json!({"delay": 5}));
    reply_of(folder, &["stop", "--now"]);
    resumed.wait().expect(3);
    let orders = fs::read_to_string(folder.join("out/orders.jsonl")).expect("a file");
    assert_eq!(orders.lines().count(), 10, "{orders}");
}

#[test]
fn by_tcp_a_change_needs_the_token() {
    let server = Server::new(|_: &Asked| page("a page"));
    let at = free_address();
    let crawl = paced(&server).with(&["--admin", &at, "--admin-token-file", "token"]);
    crawl.file("token", b"0123456789abcdef\n");
    let going = start(&crawl, &server);
    let host = format!("Host: {at}\r\n");
    assert!(get(&at, "/healthz", &host).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(get(&at, "/v1/status", &host).contains("\"phase\":\"running\""));
    let rebound = get(&at, "/v1/status", "Host: evil.example\r\n");
    assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
    let pause = |fields: &str| {
        let request = format!("POST /v1/pause HTTP/1.1\r\n{host}{fields}Connection: close\r\n\r\n");
        exchange(&at, request.as_bytes())
    };
    assert!(pause("").starts_with("HTTP/1.1 401 "));
    assert!(pause("Authorization: Bearer 0123456789abcdeg\r\n").starts_with("HTTP/1.1 401 "));
    assert_eq!(reply_of(crawl.folder(), &[])["paused"], json!(false));
    assert!(pause("Authorization: Bearer 0123456789abcdef\r\n").starts_with("HTTP/1.1 200 "));
    assert_eq!(reply_of(crawl.folder(), &[])["paused"], json!(true));
    reply_of(crawl.folder(), &["stop", "--now"]);
    going.wait().expect(3);
}

#[test]
fn malformed_slow_oversized_and_unauthenticated_requests_change_nothing() {
    let server = Server::new(|_: &Asked| page("a page"));
    let at = free_address();
    let crawl = paced(&server).with(&["--admin", &at]);
    let going = start(&crawl, &server);
    let long = [
        b"GET /".as_slice(),
        &vec![b'a'; 100_000],
        b" HTTP/1.1\r\n\r\n",
    ]
    .concat();
    let fields = [
        b"GET / HTTP/1.1\r\n".as_slice(),
        &b"x: y\r\n".repeat(500),
        b"\r\n",
    ]
    .concat();
    let body = b"POST /v1/seeds HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n";
    let smuggled = b"POST /v1/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let order = b"POST /v1/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let bad: [(&[u8], &str); 7] = [
        (b"\x16\x03\x01\x02\x00\x01\n", "400"),
        (b"GET / HTTP/3.0\r\n\r\n", "505"),
        (&long, "431"),
        (&fields, "431"),
        (body, "413"),
        (smuggled, "400"),
        (order, "403"),
    ];
    let all = || {
        for (request, status) in [bad; 5].concat() {
            let reply = exchange(&at, request);
            let expected = format!("HTTP/1.1 {status} ");
            assert!(reply.starts_with(&expected), "{status}: {reply}");
        }
    };
    thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(all))));
    // Those that send nothing more, or do not read, delay no other.
    let mut slow: Vec<TcpStream> = (0..15)
        .map(|_| TcpStream::connect(&at).expect("it listens"))
        .collect();
    for stream in &mut slow {
        stream.write_all(b"GET /v1/status HT").expect("it is taken");
    }
    let began = Instant::now();
    assert!(get(&at, "/healthz", "Host: localhost\r\n").starts_with("HTTP/1.1 200 "));
    assert!(began.elapsed() < Duration::from_secs(5));
    let status = reply_of(crawl.folder(), &["status"]);
    assert_eq!(
        (&status["paused"], &status["phase"]),
        (&json!(false), &json!("running"))
    );
    assert!(!crawl.folder().join("out/orders.jsonl").exists());
    reply_of(crawl.folder(), &["stop", "--now"]);
    going.wait().expect(3);
}

#[test]
fn a_client_that_does_not_read_is_sent_no_more_than_it_takes() {
    let server = Server::new(|_: &Asked| page("a page"));
    let at = free_address();
    let crawl = paced(&server).with(&["--admin", &at]);
    let going = start(&crawl, &server);
    let mut stream = TcpStream::connect(&at).expect("it listens");
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    let request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(200);
    let mut sent = 0;
    // The crawl stops reading once its replies are not taken.
    while stream.write_all(&request).is_ok() {
        sent += 200;
        assert!(sent < 200_000, "it reads on");
    }
    let memory = |going: &Going| {
        let status = fs::read_to_string(format!("/proc/{}/status", going.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.expect("it has memory")
    };
    let before = memory(&going);
    thread::sleep(Duration::from_millis(500));
    assert!(memory(&going) < before + 20_000);
    reply_of(crawl.folder(), &["stop", "--now"]);
    going.wait().expect(3);
}

#[test]
fn wrong_flags_and_directories_are_refused() {
    let refused = |args: &[&str], parts: &[&str]| {
        let crawl = Crawl::of(&["http://127.0.0.1:9/"]).with(args);
        crawl.file("short", b"secret");
        check_refused(&crawl.try_run(), parts);
        assert!(!crawl.folder().join("out").exists());
    };
    refused(&["--admin", "0.0.0.0:0"], &["--admin-token-file"]);
    refused(&["--admin", "localhost"], &["--admin"]);
    let short = ["--admin", "127.0.0.1:0", "--admin-token-file", "short"];
    refused(&short, &["16 or more"]);
    let missing = ["--admin", "127.0.0.1:0", "--admin-token-file", "missing"];
    refused(&missing, &["cannot read missing"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    refused(&["--admin", &at], &[&at, "in use"]);
    let folder = tempfile::tempdir().expect("a folder");
    check_refused(&ctl(folder.path(), &[]), &["there is no directory out"]);
    for order in ["scope", "cancel", "exclude", "host", "url"] {
        let refused = ctl(folder.path(), &[order, ""]);
        check_refused(&refused, &["a value is required", "argiope ctl --help"]);
    }
    let refused = ctl(folder.path(), &["priority", "a.test", "5000"]);
    check_refused(&refused, &["5000", "-1000..=1000"]);
    fs::create_dir(folder.path().join("out")).expect("a folder");
    check_refused(
        &ctl(folder.path(), &["pause"]),
        &["no crawl is running in out"],
    );
    check_refused(
        &ctl(folder.path(), &["set", "a.test", "delay"]),
        &["KEY=VALUE"],
    );
}

#[test]
fn orders_that_changed_nothing_are_reported() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawl = paced(&server);
    let going = start(&crawl, &server);
    let folder = crawl.folder();
    let report = |args: &[&str], part: &str| {
        let ended = ctl(folder, args).expect(0);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
    };
    report(&["hold", "a.test", "2020-01-31T18:00:00Z"], "is not held");
    report(&["include", "a.test"], "was not excluded");
    let later = "no scope is named \"a.test\" now; the order holds for those that come later";
    let reply = noted(folder, &["hold", "a.test", "1h"], later);
    assert!(reply["settings"]["hold_until"].is_string(), "{reply}");
    noted(folder, &["set", "a.test", "delay=2"], later);
    let unchanged = "no scope is named \"a.test\" now; no pace has changed";
    noted(folder, &["unset", "a.test"], unchanged);
    noted(folder, &["release", "a.test"], unchanged);
    noted(folder, &["forget", "A.test"], "nothing was learned of one");
    noted(folder, &["cancel", "a.test"], "no request was cancelled");
    noted(folder, &["decisions", "a.test"], "it has no decisions");
    let of_pattern = "no scope in use matches \"*.b.test\" now";
    noted(folder, &["set", "*.b.test", "delay=2"], of_pattern);
    // One of another name is there.
    let scope = format!("; there is 127.0.0.1:{}", server.port());
    noted(folder, &["set", "127.0.0.1", "delay=2"], &scope);
    // None of these needs one.
    reply_of(folder, &["set", "default", "delay=0.05"]);
    reply_of(
        folder,
        &["exclude", "*.b.test", "192.0.2.0/24", "re:/none/"],
    );
    noted(
        folder,
        &["exclude", "A.test"],
        "what is excluded is not requested later",
    );
    reply_of(folder, &["include", "a.test"]);
    reply_of(folder, &["stop", "--now"]);
    going.wait().expect(3);
}

#[test]
fn hosts_that_a_resumed_run_excludes_are_asked_for_nothing_that_was_queued_before() {
    let server = Server::new(|_: &Asked| page("a page"));
    let port = server.port();
    let list: String = (0..2000)
        .map(|n| format!("http://a.test:{port}/{n}\n"))
        .collect();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let crawl = Crawl::of(&["--seeds", "list"]).with(&["--resolve", &resolve]);
    let crawl = crawl.with(&["-s", "DOWNLOAD_DELAY=50ms"]);
    crawl.file("list", list.as_bytes());
    let going = start(&crawl, &server);
    let folder = crawl.folder();
    reply_of(folder, &["pause"]);
    going.signal(Signal::KILL);
    going.wait();
    let before = requests(&server);
    crawl.file("excluded", b"a.test\n");
    let args = [
        "crawl",
        "--quiet",
        "--resume",
        "--out",
        "out",
        "--exclude",
        "excluded",
        "--resolve",
        &resolve,
    ];
    let resumed = Going::start(&args, folder, b"");
    while ctl(folder, &[]).code != Some(0) {
        thread::sleep(Duration::from_millis(10));
    }
    reply_of(folder, &["resume"]);
    let ended = resumed.wait().expect(0);
    assert_eq!(requests(&server), before);
    let crawled = crawl.left(ended);
    let filtered = crawled.read("results.jsonl");
    let filtered = filtered.matches("\"filtered.excluded\"").count();
    assert!(filtered > 100, "{filtered}");
}
