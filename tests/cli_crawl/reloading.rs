//! Limits, the configuration and the log of a running crawl are changed, by `argiope ctl` and by SIGHUP.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control::{ctl, reply_of, requests_in};
use crate::run::{Crawl, Ended, Going, check_refused};
use crate::server::{Asked, Server, page};

/// Two seconds of requests at a delay, as servers see them, give or take some.
#[track_caller]
fn check_pace(server: &Server, delay: f64) {
    thread::sleep(Duration::from_millis(200));
    let found = requests_in(server, Duration::from_secs(2)) as f64;
    let expected = 2.0 / delay;
    let may_err = 2.0 + 0.3 * expected;
    assert!(
        (found - expected).abs() <= may_err,
        "{found} requests, not {expected}"
    );
}

/// A crawl of one host under a configuration file.
struct Configured {
    crawl: Crawl,
    server: Server,
}

impl Configured {
    fn new(settings: &str) -> Self {
        let server = Server::new(|_: &Asked| page("a page"));
        let crawl = Crawl::of(&[]);
        let list: String = (0..3000).map(|n| server.url(&format!("/{n}\n"))).collect();
        crawl.file("list", list.as_bytes());
        let configured = Configured { crawl, server };
        configured.write(settings);
        configured
    }

    fn folder(&self) -> &Path {
        self.crawl.folder()
    }

    fn write(&self, settings: &str) {
        let head = "robotstxt_obey = false\nrandomize_download_delay = false\n";
        self.crawl
            .file("settings.toml", format!("{head}{settings}").as_bytes());
    }

    /// The command line that begins it, or continues it.
    fn args<'a>(more: &[&'a str]) -> Vec<&'a str> {
        let args = [
            "crawl",
            "--quiet",
            "--out",
            "out",
            "--allow-net",
            "loopback",
        ];
        [&args[..], more].concat()
    }

    fn start(&self, more: &[&str]) -> Going {
        let args = [&["--seeds", "list", "--config", "settings.toml"], more].concat();
        let going = Going::start(&Configured::args(&args), self.folder(), b"");
        self.server.wait_for_requests(1);
        self.wait_until_it_listens();
        going
    }

    fn resume(&self, more: &[&str]) -> Going {
        let going = Going::start(
            &Configured::args(&[&["--resume"], more].concat()),
            self.folder(),
            b"",
        );
        self.wait_until_it_listens();
        going
    }

    fn wait_until_it_listens(&self) {
        while ctl(self.folder(), &[]).code != Some(0) {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn reply(&self, args: &[&str]) -> Value {
        reply_of(self.folder(), args)
    }

    fn refused(&self, args: &[&str]) -> Ended {
        ctl(self.folder(), args).expect(1)
    }

    fn orders(&self) -> Vec<Value> {
        let orders = fs::read_to_string(self.folder().join("out/orders.jsonl"));
        let orders = orders.unwrap_or_default();
        let lines = orders.lines().map(serde_json::from_str);
        lines.map(|line| line.expect("it is JSON")).collect()
    }

    /// What the settings of the scope of the host are, as a table of a file.
    fn scope(&self, delay: f64) -> String {
        let port = self.server.port();
        format!("[throttling_scopes.\"127.0.0.1:{port}\"]\ndelay = {delay}\n")
    }
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn a_file_that_was_edited_is_applied_by_a_reload_and_a_wrong_one_changes_nothing() {
    let case = Configured::new("download_delay = 0.05\nretry_times = 1\n");
    let going = case.start(&["-s", "RETRY_TIMES=3"]);
    case.write(&format!(
        "download_delay = 5\nretry_times = 9\n{}",
        case.scope(0.5)
    ));
    let reply = case.reply(&["reload"]);
    assert_eq!(
        names(&reply["applied"]),
        ["DOWNLOAD_DELAY", "THROTTLING_SCOPES"]
    );
    assert_eq!(reply["applied"][0]["before"], json!(0.05));
    check_pace(&case.server, 0.5);
    // What is wrong is named with its place.
    for (settings, part) in [
        ("download_delay = 1\nretry_times = \n", "settings.toml:4"),
        (
            "download_delay = \"soon\"\n",
            "settings.toml:3: download_delay",
        ),
        ("no_such = 1\n", "settings.toml:3: no_such: unknown setting"),
        (
            "backoff_min_delay = 9\nbackoff_max_delay = 8\n",
            "BACKOFF_MAX_DELAY",
        ),
    ] {
        case.write(settings);
        let refused = case.refused(&["reload"]);
        assert!(
            refused.err.contains("nothing was applied"),
            "{}",
            refused.err
        );
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    case.write("download_delay = 0.05\nwarc = false\nstate_sync = 5\n");
    let refused = case.refused(&["reload"]);
    let expected = "another run is needed for WARC, STATE_SYNC";
    assert!(refused.err.contains(expected), "{}", refused.err);
    let settings = case.folder().join("settings.toml");
    fs::remove_file(&settings).expect("it was there");
    assert!(case.refused(&["reload"]).err.contains("cannot be read"));
    fs::create_dir(&settings).expect("a folder");
    assert!(case.refused(&["reload"]).err.contains("not a regular file"));
    fs::remove_dir(&settings).expect("it was there");
    case.write(&format!("# {}\n", "x".repeat(1 << 20)));
    assert!(case.refused(&["reload"]).err.contains("at most 1048576"));
    check_pace(&case.server, 0.5);
    // The scope is removed from the file.
    case.write("download_delay = 0.1\nretry_times = 9\n");
    let reply = case.reply(&["reload"]);
    assert_eq!(
        names(&reply["applied"]),
        ["DOWNLOAD_DELAY", "THROTTLING_SCOPES"]
    );
    check_pace(&case.server, 0.1);
    let orders = case.orders();
    assert_eq!(orders.len(), 2, "{orders:?}");
    assert_eq!(orders[1]["applied"], reply["applied"]);
    let owner = rustix::process::getuid().as_raw();
    assert_eq!(orders[1]["uid"], json!(owner));
    // Later checks know which settings were in force.
    let runs = fs::read_to_string(case.folder().join("out/runs.jsonl")).expect("a file");
    let changes = runs
        .lines()
        .filter(|line| line.contains("\"event\":\"settings\""));
    assert_eq!(changes.count(), 2, "{runs}");
    case.reply(&["stop", "--now"]);
    going.wait().expect(3);
    let audited = Going::start(&["audit", "out"], case.folder(), b"").wait();
    assert_eq!(audited.code, Some(0), "{}{}", audited.out, audited.err);
}

#[test]
fn what_was_reloaded_and_ordered_holds_after_a_kill_with_the_same_precedence() {
    let case = Configured::new("download_delay = 0.05\n");
    let going = case.start(&[]);
    let scope = format!("127.0.0.1:{}", case.server.port());
    case.reply(&["set", &scope, "delay=0.5"]);
    case.reply(&[
        "limits",
        "concurrent_requests=7",
        "closespider_pagecount=2900",
    ]);
    case.write(&format!(
        "concurrent_requests = 99\nretry_times = 8\n{}",
        case.scope(0.02)
    ));
    let reply = case.reply(&["reload"]);
    assert_eq!(reply["held"], json!(["CONCURRENT_REQUESTS", scope]));
    check_pace(&case.server, 0.5);
    going.signal(Signal::KILL);
    going.wait();
    // With the file and without it: both are as before the kill.
    for args in [&["--config", "settings.toml"][..], &[]] {
        let going = case.resume(args);
        let limits = case.reply(&["limits"])["limits"].clone();
        let expected = json!({"value": 7, "configured": 99, "is_ordered": true});
        assert_eq!(limits["CONCURRENT_REQUESTS"], expected, "{args:?}");
        assert_eq!(limits["CLOSESPIDER_PAGECOUNT"]["value"], json!(2900));
        check_pace(&case.server, 0.5);
        going.signal(Signal::KILL);
        going.wait();
    }
    let going = case.resume(&["--config", "settings.toml"]);
    let reply = case.reply(&["unset", &scope]);
    assert_eq!(reply["settings"]["delay"], json!(0.02));
    check_pace(&case.server, 0.02);
    case.reply(&["limits", "concurrent_requests="]);
    let limits = case.reply(&["limits"])["limits"].clone();
    let expected = json!({"value": 99, "configured": 99, "is_ordered": false});
    assert_eq!(limits["CONCURRENT_REQUESTS"], expected);
    // A file that says something else than before holds over orders of earlier runs.
    case.reply(&["set", &scope, "delay=0.5"]);
    going.signal(Signal::KILL);
    going.wait();
    case.write(&case.scope(0.1));
    let going = case.resume(&["--config", "settings.toml"]);
    check_pace(&case.server, 0.1);
    case.reply(&["stop", "--now"]);
    going.wait().expect(3);
    let orders = case.orders();
    let orders: Vec<&str> = orders
        .iter()
        .filter_map(|line| line["order"].as_str())
        .collect();
    let expected = [
        "scope", "limits", "reload", "withdraw", "limits", "scope", "stop",
    ];
    assert_eq!(orders, expected);
}

/// A command that starts the crawl in a session of its own, which has no terminal.
fn without_terminal() -> Command {
    let args = Configured::args(&["--seeds", "list", "--config", "settings.toml"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
    command.args(args.into_iter().filter(|arg| *arg != "--quiet"));
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            // Where the tests run under nohup it is ignored, and a crawl keeps to that.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            match libc::setsid() {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    command
}

#[test]
fn sighup_without_a_terminal_reloads_and_the_log_says_what() {
    let case = Configured::new("download_delay = 0.05\n");
    let going = Going::start_command(without_terminal(), case.folder(), b"");
    case.server.wait_for_requests(1);
    case.wait_until_it_listens();
    case.write("download_delay = 0.5\n");
    going.signal(Signal::HUP);
    check_pace(&case.server, 0.5);
    let began = Instant::now();
    while case.orders().is_empty() && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    let orders = case.orders();
    assert_eq!(orders.len(), 1, "{orders:?}");
    let line = &orders[0];
    assert_eq!(
        (&line["order"], &line["uid"]),
        (&json!("reload"), &Value::Null)
    );
    assert_eq!(names(&line["applied"]), ["DOWNLOAD_DELAY"]);
    case.write("download_delay = 0.05\nwarc = false\n");
    going.signal(Signal::HUP);
    check_pace(&case.server, 0.5);
    assert_eq!(case.orders().len(), 1);
    case.reply(&["stop", "--now"]);
    let ended = going.wait().expect(3);
    assert!(
        ended.err.contains("reloaded: 1 setting has changed"),
        "{}",
        ended.err
    );
    assert!(
        ended
            .err
            .contains("nothing was applied: another run is needed for WARC"),
        "{}",
        ended.err
    );
}

#[test]
fn a_file_of_excluded_hosts_is_read_again() {
    let case = Configured::new("download_delay = 0.05\n");
    case.crawl.file("excluded", b"a.test\n");
    let going = case.start(&["--exclude", "excluded"]);
    case.crawl.file("excluded", b"a.test\n127.0.0.1\n");
    let reply = case.reply(&["reload"]);
    assert_eq!(names(&reply["applied"]), ["EXCLUDE"]);
    let ended = going.wait().expect(0);
    assert_eq!(ended.err, "");
    assert!(case.server.asked().len() < 1000);
    let lines = fs::read_to_string(case.folder().join("out/results.jsonl")).expect("a file");
    assert!(lines.contains("excluded_address"));
}

#[test]
fn limits_of_a_running_crawl_are_shown_changed_and_checked() {
    let case = Configured::new("download_delay = 0.05\nclosespider_pagecount = 2000\n");
    let going = case.start(&[]);
    for (args, code, part) in [
        (
            &["limits", "concurrent_requests"][..],
            2,
            "write NAME=VALUE",
        ),
        (
            &["limits", "concurrent_requests=-1"],
            1,
            "CONCURRENT_REQUESTS",
        ),
        (
            &["limits", "concurrent_requests=99999999999999999999999"],
            1,
            "CONCURRENT_REQUESTS",
        ),
        (&["limits", "nonsense=1"], 1, "nonsense: unknown setting"),
        (
            &["limits", "download_delay=1"],
            1,
            "not a limit that can be ordered",
        ),
        (
            &["limits", "pages_per_host_max=1"],
            1,
            "was 0 when the run began",
        ),
        (&["limits", "a=1", "a=2"], 2, "given twice"),
        (&["log", "loud"], 2, "not a level of the log; give off"),
    ] {
        let refused = ctl(case.folder(), args).expect(code);
        assert!(refused.err.contains(part), "{args:?}: {}", refused.err);
        if code == 2 {
            check_refused(&refused, &[part]);
        }
    }
    assert_eq!(case.orders(), [] as [Value; 0]);
    let limits = case.reply(&["limits", "closespider_pagecount=30"]);
    let limit = &limits["limits"]["CLOSESPIDER_PAGECOUNT"];
    assert_eq!(
        *limit,
        json!({"value": 30, "configured": 2000, "is_ordered": true})
    );
    going.wait().expect(0);
    assert!((30..=32).contains(&case.server.asked().len()));
    let stats = fs::read_to_string(case.folder().join("out/stats.json")).expect("a file");
    let stats: Value = serde_json::from_str(&stats).expect("it is JSON");
    assert_eq!(stats["finish_reason"], json!("closespider_pagecount"));
}

#[test]
fn the_level_of_the_log_changes_while_the_crawl_runs() {
    let case = Configured::new("download_delay = 0.05\n");
    let going = case.start(&[]);
    assert_eq!(case.reply(&["log"]), json!({"level": "error"}));
    assert_eq!(case.reply(&["log", "trace"]), json!({"level": "trace"}));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(case.reply(&["log", "ERROR"]), json!({"level": "error"}));
    let orders = case.orders();
    let values = |line: &Value| (line["before"].clone(), line["after"].clone());
    assert_eq!(values(&orders[0]), (json!("error"), json!("trace")));
    case.reply(&["stop", "--now"]);
    let ended = going.wait().expect(3);
    assert!(!ended.err.is_empty(), "it has logged something meanwhile");
}

#[test]
fn a_field_with_the_name_of_a_key_is_refused_at_the_beginning_only() {
    let case = Configured::new("download_delay = 0.05\n");
    let going = case.start(&[]);
    // It extracts nothing, and another run is needed for that.
    case.write("extract = [\"kind=h1\"]\n");
    let refused = case.refused(&["reload"]);
    let expected = "another run is needed for EXTRACT";
    assert!(refused.err.contains(expected), "{}", refused.err);
    case.reply(&["stop", "--now"]);
    going.wait().expect(3);
    let args = ["crawl", "--seeds", "list", "--config", "settings.toml"];
    let refused = Going::start(&args, case.folder(), b"").wait();
    check_refused(&refused, &["settings.toml:3: extract: ", "'page_kind=h1'"]);
    // As versions before began it.
    case.write("download_delay = 0.05\nextract = [\"kind=h1\"]\n");
    let going = case.resume(&["--config", "settings.toml"]);
    case.write("download_delay = 0.1\nextract = [\"kind=h1\"]\n");
    let reply = case.reply(&["reload"]);
    assert_eq!(names(&reply["applied"]), ["DOWNLOAD_DELAY"]);
    case.reply(&["stop", "--now"]);
    going.wait().expect(3);
    let args = [
        "crawl",
        "--resume",
        "--out",
        "out",
        "--config",
        "settings.toml",
        "--max-pages",
        "1",
    ];
    let warned = Going::start(&args, case.folder(), b"").wait().expect(0);
    let warning = "settings.toml:4: extract: \"kind=h1\" is named as the key kind of every result line: `argiope \
                   export` has the field as fields.kind";
    assert!(warned.err.contains(warning), "{}", warned.err);
}
