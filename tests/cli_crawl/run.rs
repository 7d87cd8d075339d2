//! Runs the binary with a time limit, and reads its output.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use argiope::sink::directory::LineReader;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A run of the binary that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
    /// The most memory that it ever had resident, in bytes.
    pub memory: u64,
}

/// A run of the binary that goes on; it does not outlive its test.
pub struct Going {
    child: Child,
    out: Option<JoinHandle<String>>,
    err: Option<JoinHandle<String>>,
    began: Instant,
}

/// Runs a command line to its end.
pub fn argiope(args: &[&str]) -> Ended {
    Going::start(args, Path::new("/"), b"").wait()
}

impl Going {
    /// Starts the binary in a folder and gives it some input.
    pub fn start(args: &[&str], folder: &Path, input: &[u8]) -> Self {
        let mut going = Going::start_without_reader(args, folder, input);
        let out = going.child.stdout.take().expect("stdout is piped");
        going.out = Some(read_all(out));
        going
    }

    /// The same; what it prints is for the caller to read, or not.
    pub fn start_without_reader(args: &[&str], folder: &Path, input: &[u8]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
        command.args(args);
        Going::start_command(command, folder, input)
    }

    /// Starts a command that becomes the binary.
    pub fn start_command(command: Command, folder: &Path, input: &[u8]) -> Self {
        let mut going = Going::start_with_stderr(command, folder, input, Stdio::piped());
        let err = going.child.stderr.take().expect("stderr is piped");
        going.err = Some(read_all(err));
        going
    }

    /// The same; its stderr is the caller's.
    pub fn start_with_stderr(
        mut command: Command,
        folder: &Path,
        input: &[u8],
        stderr: Stdio,
    ) -> Self {
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the binary runs");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let input = input.to_vec();
        thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        Going {
            child,
            out: None,
            err: None,
            began: Instant::now(),
        }
    }

    pub fn stdout(&mut self) -> std::process::ChildStdout {
        self.child.stdout.take().expect("nobody reads stdout yet")
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        let ended = self.child.try_wait().expect("it can be waited for");
        ended.is_none()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the binary, and to nothing else.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it still runs");
    }

    /// Waits for its end; a run that takes too long is killed, and the test fails.
    pub fn wait(mut self) -> Ended {
        let mut memory = 0;
        let code = loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                break status.code();
            }
            memory = memory.max(peak_memory(self.child.id()));
            assert!(
                self.began.elapsed() < LONGEST,
                "the binary did not end within {LONGEST:?}"
            );
            thread::sleep(Duration::from_millis(3));
        };
        let ended = Ended {
            code,
            out: self.out.take().map_or_else(String::new, joined),
            err: self.err.take().map_or_else(String::new, joined),
            took: self.began.elapsed(),
            memory,
        };
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        ended
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn joined(reader: JoinHandle<String>) -> String {
    reader.join().expect("the reader ends")
}

impl Ended {
    /// It ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }

    /// The result lines on stdout.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        read_lines(&self.out)
    }
}

/// The command line is refused: exit code 2, nothing on stdout, one line on stderr with these parts.
#[track_caller]
pub fn check_refused(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert_eq!(ended.out, "");
    for part in parts {
        assert!(ended.err.contains(part), "{part} is not in: {}", ended.err);
    }
}

/// A crawl of servers on loopback, without delays and retries by default.
pub struct Crawl {
    folder: TempDir,
    args: Vec<String>,
    quiet: bool,
    input: Vec<u8>,
}

impl Crawl {
    pub fn of(urls: &[&str]) -> Self {
        Crawl {
            folder: tempfile::tempdir().expect("a folder"),
            args: urls.iter().map(|url| (*url).to_owned()).collect(),
            quiet: true,
            input: Vec::new(),
        }
    }

    pub fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Says what it does, not only errors.
    pub fn aloud(mut self) -> Self {
        self.quiet = false;
        self
    }

    pub fn input(mut self, input: &[u8]) -> Self {
        self.input = input.to_vec();
        self
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file into its folder; gives the path.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }

    fn all_args(&self) -> Vec<&str> {
        let mut args = vec!["crawl"];
        args.extend(self.quiet.then_some("--quiet"));
        let defaults: &[(&str, &[&str])] = &[
            ("--out", &["--out", "out"]),
            ("--allow-net", &["--allow-net", "loopback"]),
            ("DOWNLOAD_DELAY", &["-s", "DOWNLOAD_DELAY=0"]),
            (
                "CONCURRENT_REQUESTS_PER_DOMAIN",
                &["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=16"],
            ),
            ("RETRY_TIMES", &["-s", "RETRY_TIMES=0"]),
            ("ROBOTSTXT_OBEY", &["-s", "ROBOTSTXT_OBEY=false"]),
        ];
        for (name, default) in defaults {
            let said = |arg: &String| arg == name || arg.starts_with(&format!("{name}="));
            // Lines to stdout alone are what a crawl without --out is about.
            let streams = *name == "--out" && self.args.iter().any(|arg| arg == "--results");
            if !streams && !self.args.iter().any(said) {
                args.extend(*default);
            }
        }
        args.extend(self.args.iter().map(String::as_str));
        args
    }

    /// Its command line, for a test that changes what it runs under.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argiope"));
        command.args(self.all_args());
        command
    }

    /// Runs it where no file may grow beyond so many kilobytes.
    pub fn try_run_with_small_files(&self, kilobytes: u32) -> Ended {
        let mut command = Command::new("bash");
        let script = format!(r#"ulimit -f {kilobytes}; exec "$0" "$@""#);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_argiope")]);
        command.args(self.all_args());
        Going::start_command(command, self.folder(), &self.input).wait()
    }

    pub fn start(&self) -> Going {
        Going::start(&self.all_args(), self.folder(), &self.input)
    }

    pub fn start_without_reader(&self) -> Going {
        Going::start_without_reader(&self.all_args(), self.folder(), &self.input)
    }

    /// Runs it, without checks of the result.
    pub fn try_run(&self) -> Ended {
        self.start().wait()
    }

    /// A crawl that ends by itself.
    #[track_caller]
    pub fn run(self) -> Crawled {
        let ended = self.try_run().expect(0);
        self.left(ended)
    }

    /// What the crawl left in its folder.
    pub fn left(self, ended: Ended) -> Crawled {
        Crawled {
            ended,
            folder: self.folder,
        }
    }
}

/// What a crawl left behind.
pub struct Crawled {
    pub ended: Ended,
    folder: TempDir,
}

impl Crawled {
    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.out().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Every result line.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        read_lines(&all_lines(&self.out()))
    }

    /// The URLs of pages that ended, sorted.
    #[track_caller]
    pub fn urls(&self) -> Vec<String> {
        let lines = self.lines();
        let pages = lines
            .iter()
            .filter(|line| line["kind"] == "page" && line["final"] == true);
        let mut urls: Vec<String> = pages.map(|line| text(&line["url"])).collect();
        urls.sort();
        urls
    }

    /// The final line of a URL.
    #[track_caller]
    pub fn line(&self, url: &str) -> Value {
        let lines = self.lines();
        let mut found = lines
            .iter()
            .filter(|line| line["url"] == url && line["final"] == true);
        let line = found
            .next()
            .unwrap_or_else(|| panic!("no line of {url} in {lines:#?}"));
        assert!(found.next().is_none(), "{url} ended twice");
        line.clone()
    }

    /// The final line of its only page.
    #[track_caller]
    pub fn only(&self) -> Value {
        let lines = self.lines();
        let mut found = lines.iter().filter(|line| line["final"] == true);
        let line = found.next().expect("a line");
        assert!(found.next().is_none(), "{lines:#?}");
        line.clone()
    }

    #[track_caller]
    pub fn stats(&self) -> Value {
        serde_json::from_str(&self.read("stats.json")).expect("stats.json is JSON")
    }

    /// The decoded records of all WARC files that were finished; there is no other file among them but their indexes.
    #[track_caller]
    pub fn warc(&self) -> Vec<u8> {
        let mut records = Vec::new();
        for entry in fs::read_dir(self.out().join("warc")).expect("a WARC folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|ending| ending == "cdxj") {
                continue;
            }
            assert!(
                path.to_str().is_some_and(|path| path.ends_with(".warc.gz")),
                "{path:?}"
            );
            let file = fs::File::open(&path).expect("it is there");
            flate2::read::MultiGzDecoder::new(file)
                .read_to_end(&mut records)
                .expect("whole gzip members");
        }
        records
    }
}

/// A line's error code, or its absence.
pub fn code(line: &Value) -> &str {
    line["error"]["code"].as_str().unwrap_or("")
}

/// The detail of a line's error.
pub fn detail(line: &Value) -> &str {
    line["error"]["detail"].as_str().unwrap_or("")
}

pub fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

/// The result lines of all files in an output directory.
pub fn all_lines(out: &Path) -> String {
    let mut reader = LineReader::results(out, u64::MAX).expect("a directory");
    let mut text = Vec::new();
    while let Some(line) = reader.next().expect("it can be read") {
        text.extend_from_slice(line.text);
    }
    String::from_utf8(text).expect("lines are text")
}

#[track_caller]
pub fn read_lines(text: &str) -> Vec<Value> {
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "the last line is cut"
    );
    let lines = text.lines();
    let lines: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        check_line(line);
    }
    lines
}

/// A result line has every key of the contract, each with a value of its type.
#[track_caller]
fn check_line(line: &Value) {
    let object = line.as_object().expect("a line is an object");
    for (key, kind) in KEYS {
        let value = object
            .get(*key)
            .unwrap_or_else(|| panic!("no {key} in {line}"));
        let fits = |kind: &str| match kind {
            "null" => value.is_null(),
            "bool" => value.is_boolean(),
            "count" => value.is_u64(),
            "seconds" => value.as_f64().is_some_and(|seconds| seconds >= 0.0),
            "text" => value.is_string(),
            "wall" => value.as_str().is_some_and(is_wall),
            "list" => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_string)),
            "object" => value.is_object(),
            _ => true,
        };
        assert!(kind.split('|').any(fits), "{key} of {line} is not {kind}");
    }
    for flag in ["bound", "refetched"] {
        assert!(object.get(flag).is_none_or(|is| *is == true), "{line}");
    }
    let sequence = object.get("seq");
    assert!(sequence.is_none_or(Value::is_u64), "{line}");
    let optional = [
        "bound",
        "fields",
        "proxied",
        "refetched",
        "robots_ignored",
        "seq",
    ];
    let is_optional = |key: &String| optional.contains(&key.as_str());
    let allowed = |key: &String| KEYS.iter().any(|(known, _)| known == key) || is_optional(key);
    assert!(object.keys().all(allowed), "a key more in {line}");
    if let Some(error) = line["error"].as_object() {
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "detail", "kind"], "{line}");
        let kind = text(&error["kind"]);
        assert!(
            text(&error["code"]).starts_with(&format!("{kind}.")),
            "{line}"
        );
        assert!(!text(&error["detail"]).is_empty(), "{line}");
    }
    if line["sent"].is_null() {
        for key in [
            "status",
            "request",
            "first_byte",
            "headers",
            "body",
            "latency",
        ] {
            assert!(line[key].is_null(), "{key} of what was never sent: {line}");
        }
    }
    if line["status"].is_null() {
        for key in [
            "version",
            "content_type",
            "headers",
            "latency",
            "server_latency",
            "clock",
            "digest",
            "warc",
        ] {
            assert!(line[key].is_null(), "{key} of what has no head: {line}");
        }
    }
    let ends = [
        "dns",
        "connect",
        "tls_handshake",
        "request",
        "first_byte",
        "headers",
        "body",
    ];
    let ends: Vec<f64> = ends.iter().filter_map(|key| line[*key].as_f64()).collect();
    assert!(ends.is_sorted(), "phases end in order: {line}");
}

fn is_wall(text: &str) -> bool {
    text.len() == "2026-11-21T00:00:00.123456789Z".len() && text.ends_with('Z')
}

const KEYS: &[(&str, &str)] = &[
    ("id", "count"),
    ("parent", "count|null"),
    ("seed", "bool"),
    ("final", "bool"),
    ("kind", "text"),
    ("url", "text"),
    ("method", "text"),
    ("depth", "count"),
    ("attempt", "count"),
    ("scopes", "list"),
    ("status", "count|null"),
    ("error", "object|null"),
    ("truncated", "text|null"),
    ("redirect", "text|null"),
    ("version", "text|null"),
    ("content_type", "text|null"),
    ("remote", "text|null"),
    ("local", "text|null"),
    ("reused", "bool"),
    ("tls", "object|null"),
    ("bytes_wire", "count"),
    ("bytes_body", "count"),
    ("digest", "text|null"),
    ("links", "count|null"),
    ("robots", "object|null"),
    ("warc", "object|null"),
    ("started", "wall"),
    ("due", "wall|null"),
    ("sent", "wall|null"),
    ("dns", "seconds|null"),
    ("connect", "seconds|null"),
    ("tls_handshake", "seconds|null"),
    ("request", "seconds|null"),
    ("first_byte", "seconds|null"),
    ("headers", "seconds|null"),
    ("body", "seconds|null"),
    ("ended", "seconds|null"),
    ("latency", "seconds|null"),
    ("server_latency", "seconds|null"),
    ("clock", "text|null"),
    ("lateness", "seconds|null"),
    ("delay", "seconds|null"),
    ("hold", "object|null"),
    ("meta", "any"),
];

fn read_all(mut source: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = source.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn peak_memory(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Longer than any run here should take, and short enough to wait for when one hangs.
const LONGEST: Duration = Duration::from_secs(45);
