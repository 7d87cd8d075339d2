//! `--resume`: nothing is lost and nothing has two lines, whatever ended the crawl before.

#[path = "../../tools/crash/files.rs"]
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use self::files::Output;
use crate::indexes;
use crate::run::{Crawl, Crawled, Ended, Going, check_refused, read_lines, text};
use crate::server::{Asked, Server, Step, page, redirect, reply};

const HOSTS: u32 = 6;
const PAGES: u32 = 40;

/// A web of several hosts: each page links to others, some redirect, some fail once or for ever.
fn web(asked: &Asked) -> Vec<Step> {
    let host = asked.header("host").unwrap_or_default().to_owned();
    let number = asked.target.trim_start_matches("/p").parse();
    let Ok(number): Result<u32, _> = number else {
        return page("the start: <a href=/p0>0</a>");
    };
    let wait = Step::Wait(Duration::from_millis(u64::from(number * 7 % 13)));
    let answer = match number % 11 {
        3 => redirect("302 Found", &format!("/p{}", (number + 1) % PAGES)),
        5 => reply("404 Not Found", &["Content-Type: text/plain"], b"no"),
        7 => reply("503 Service Unavailable", &[], b""),
        _ => {
            let mut body = format!("page {number} of {host}\n");
            for step in [1, 2, 17] {
                body += &format!("<a href=/p{}>x</a>\n", (number + step) % PAGES);
            }
            let (name, port) = host.split_once(':').unwrap_or((&host, "80"));
            let next: u32 = name
                .trim_start_matches('h')
                .trim_end_matches(".test")
                .parse()
                .unwrap_or(0);
            let next = (next + 1) % HOSTS;
            body += &format!("<a href=http://h{next}.test:{port}/p{number}>y</a>\n");
            page(&body)
        }
    };
    [vec![wait], answer].concat()
}

fn crawl(server: &Server) -> Crawl {
    let everywhere = format!("*:{}:127.0.0.1", server.port());
    Crawl::of(&[&format!("http://h0.test:{}/p0", server.port())])
        .with(&["--follow", "all", "--resolve", &everywhere])
        .with(&["-s", "DOWNLOAD_DELAY=12ms", "-s", "RETRY_TIMES=1"])
        .with(&[
            "-s",
            "CONCURRENT_REQUESTS_PER_DOMAIN=4",
            "-s",
            "STATE_SYNC=20ms",
        ])
        .with(&["-s", "BACKOFF_ENABLED=false"])
}

/// How long a run lasts before it is killed. Later ones last longer, so that the crawl ends on a machine that is
/// busy, too.
fn run_time(kills: u64) -> Duration {
    Duration::from_millis(30 + kills * 37 % 90 + kills * kills / 20)
}

/// Runs a command line in a folder.
fn argiope_in(folder: &Path, args: &[&str]) -> Ended {
    Going::start(args, folder, b"").wait()
}

/// Continues the crawl in this folder: nothing else is given.
fn resume(folder: &Path) -> Going {
    Going::start(
        &["crawl", "--quiet", "--resume", "--out", "out"],
        folder,
        b"",
    )
}

/// The files of a crawl, with which nothing is wrong.
fn checked(crawled: &Crawled) -> Output {
    drop(crawled.lines());
    let output = Output::read(&crawled.out()).expect("its files can be read");
    assert_eq!(output.violations(), [""; 0]);
    // No kill costs an index, or leaves a part of one.
    indexes::check(&crawled.out());
    output
}

/// How each page ended, by its URL without the port.
fn ends(output: &Output, port: u16) -> BTreeMap<String, String> {
    let port = port.to_string();
    let ends = output.ends().into_iter();
    ends.map(|(url, end)| (url.replace(&port, "PORT"), end.to_owned()))
        .collect()
}

/// Checks that what was requested more often than it has lines has one that says so. Returns how much there is.
fn check_refetched(server: &Server, output: &Output) -> usize {
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for page in server.asked() {
        let host = page.header("host").unwrap_or_default();
        *asked
            .entry(format!("http://{host}{}", page.target))
            .or_default() += 1;
    }
    asked.retain(|url, times| {
        let lines = output.lines.iter();
        let lines: Vec<_> = lines
            .filter(|line| line.is_page && line.url == *url)
            .collect();
        let is_lost = !lines.is_empty() && *times > lines.len();
        assert!(
            !is_lost || lines.iter().any(|line| line.is_refetched),
            "{url} was requested again, and no line says so"
        );
        is_lost
    });
    asked.len()
}

/// How the pages of an uninterrupted crawl end.
fn whole() -> BTreeMap<String, String> {
    let server = Server::new(web);
    ends(&checked(&crawl(&server).run()), server.port())
}

#[test]
fn nothing_is_lost_or_doubled_when_a_crawl_is_killed_again_and_again() {
    let expected = whole();
    assert!(expected.len() > 150, "{}", expected.len());
    let server = Server::new(web);
    // Some twenty requests are in memory, and some forty keys of URLs; the others are in files.
    let memory = ["-s", "FRONTIER_MEMORY=2000", "-s", "SEEN_MEMORY=400"];
    let first = crawl(&server).with(&memory);
    let mut going = first.start();
    server.wait_for_requests(3);
    let (mut kills, mut has_runs) = (0, false);
    let ended: Ended = loop {
        thread::sleep(run_time(kills));
        if !going.is_running() {
            break going.wait();
        }
        going.signal(Signal::KILL);
        drop(going);
        kills += 1;
        assert!(kills < 200, "the crawl makes no progress");
        let state = fs::read_dir(first.folder().join("out/state")).expect("a state");
        let mut names = state.map(|entry| entry.expect("an entry").file_name());
        has_runs |= names.any(|name| name.to_string_lossy().starts_with("seen-"));
        going = resume(first.folder());
    };
    let ended = ended.expect(0);
    assert!(kills >= 3, "it was killed {kills} times");
    assert!(has_runs, "keys were in files");
    let crawled: Crawled = first.left(ended);
    let output = checked(&crawled);
    let mut pages = output.lines.iter().filter(|line| line.is_page);
    assert!(pages.all(|line| line.is_sent));
    let refetched = check_refetched(&server, &output);
    assert!(refetched > 0, "some are asked again");
    assert_eq!(ends(&output, server.port()), expected);
    drop(crawled.warc());
}

#[test]
fn lines_in_many_compressed_files_are_neither_lost_nor_doubled_by_kills() {
    let expected = whole();
    let server = Server::new(web);
    let first = crawl(&server).with(&["-s", "RESULTS_SIZE_MAX=9000"]);
    let mut going = first.start();
    server.wait_for_requests(3);
    let mut kills = 0;
    let ended: Ended = loop {
        thread::sleep(run_time(kills));
        if !going.is_running() {
            break going.wait();
        }
        going.signal(Signal::KILL);
        drop(going);
        kills += 1;
        assert!(kills < 200, "the crawl makes no progress");
        // Each run may compress its lines in another way.
        let compression = ["none", "gzip", "zstd"][kills as usize % 3];
        let compression = format!("RESULTS_COMPRESSION={compression}");
        let args = ["crawl", "--quiet", "--resume", "--out", "out", "-s"];
        let args = [&args[..], &[&compression]].concat();
        going = Going::start(&args, first.folder(), b"");
    };
    assert!(kills >= 3, "it was killed {kills} times");
    let crawled: Crawled = first.left(ended.expect(0));
    let output = checked(&crawled);
    assert_eq!(ends(&output, server.port()), expected);
    let names = fs::read_dir(crawled.out()).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let names: Vec<String> = names.filter(|name| name.starts_with("results")).collect();
    assert!(names.len() > 3, "{names:?}");
    for ending in [".jsonl", ".jsonl.gz", ".jsonl.zst"] {
        assert!(names.iter().any(|name| name.ends_with(ending)), "{names:?}");
    }
    assert!(
        names.iter().all(|name| !name.ends_with(".open")),
        "{names:?}"
    );
    // The report reads all of them.
    let report = argiope_in(
        crawled.out().parent().expect("a parent"),
        &["report", "out", "--json"],
    )
    .expect(0);
    let report: Value = serde_json::from_str(&report.out).expect("JSON");
    assert_eq!(report["results"]["lines"], output.lines.len());
}

/// What a reader of standard output keeps: numbered lines, up to the number that a resumed run names.
#[derive(Default)]
struct Reader {
    kept: Vec<Value>,
    dropped: usize,
}

impl Reader {
    /// Reads what a run wrote, of which the last line may be cut short by a kill.
    fn read(&mut self, out: &str) {
        for line in out
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
        {
            let line: Value = serde_json::from_str(line).expect("JSON");
            if let Some(after) = line["resumed_after"].as_u64() {
                let before = self.kept.len();
                self.kept.truncate(after as usize);
                assert_eq!(
                    self.kept.len(),
                    after as usize,
                    "committed lines were written"
                );
                self.dropped += before - self.kept.len();
                continue;
            }
            assert_eq!(line["seq"], self.kept.len() + 1, "{line}");
            self.kept.push(line);
        }
    }
}

#[test]
fn a_reader_of_standard_output_keeps_each_line_once_when_the_crawl_is_killed() {
    let expected = whole();
    let server = Server::new(web);
    let first = crawl(&server).with(&["--results", "-", "--out", "out"]);
    let mut going = first.start();
    server.wait_for_requests(3);
    let mut reader = Reader::default();
    let (mut kills, mut resumed) = (0, 0);
    let ended: Ended = loop {
        thread::sleep(run_time(kills));
        if !going.is_running() {
            break going.wait();
        }
        going.signal(Signal::KILL);
        let killed = going.wait();
        assert!(
            kills == 0 || killed.out.is_empty() || killed.out.starts_with("{\"resumed_after\"")
        );
        resumed += usize::from(killed.out.starts_with("{\"resumed_after\""));
        reader.read(&killed.out);
        kills += 1;
        assert!(kills < 200, "the crawl makes no progress");
        going = resume(first.folder());
    };
    let ended = ended.expect(0);
    reader.read(&ended.out);
    assert!(
        resumed >= 3,
        "it was killed {kills} times, and resumed {resumed}"
    );
    assert!(reader.dropped > 0, "some lines were not committed");
    let again = argiope_in(
        first.folder(),
        &["crawl", "--resume", "--results", "-", "--out", "out"],
    );
    let again = again.expect(0);
    assert_eq!(
        again.out,
        format!("{{\"resumed_after\": {}}}\n", reader.kept.len())
    );
    let crawled = first.left(ended);
    let file = crawled.out().join("results.jsonl");
    assert!(!file.exists());
    let lines = reader.kept.iter().map(|line| format!("{line}\n"));
    fs::write(&file, lines.collect::<String>()).expect("it can be written");
    let output = checked(&crawled);
    assert_eq!(ends(&output, server.port()), expected);
}

#[test]
fn a_line_that_a_kill_cut_short_is_ended_in_a_file_of_standard_output() {
    let server = Server::new(web);
    let first = crawl(&server).with(&["--results", "-", "--out", "out", "--max-pages", "5"]);
    let written = first.try_run().expect(0).out;
    let cut = "{\"id\": 99, \"pa";
    for before in [written.clone(), format!("{written}{cut}")] {
        let path = first.file("lines", before.as_bytes());
        let mut command = std::process::Command::new("sh");
        let script = r#"exec "$0" crawl --quiet --resume --out out --max-pages 1 >> lines"#;
        command.args(["-c", script, env!("CARGO_BIN_EXE_argiope")]);
        let resumed = Going::start_command(command, first.folder(), b"");
        resumed.wait().expect(0);
        let text = fs::read_to_string(path).expect("lines");
        let mut lines = text[written.len()..].lines();
        if before != written {
            assert_eq!(lines.next(), Some(cut));
        }
        let line = lines.next().expect("the first line of the run");
        assert!(line.starts_with("{\"resumed_after\": "), "{line}");
    }
}

#[test]
fn a_crawl_with_lines_in_a_file_is_not_resumed_to_standard_output() {
    let server = Server::new(web);
    let first = crawl(&server).with(&["--max-pages", "5"]);
    first.try_run().expect(0);
    let args = ["crawl", "--resume", "--results", "-", "--out", "out"];
    let refused = argiope_in(first.folder(), &args);
    check_refused(&refused, &["--results -", "out/results.jsonl", "leave"]);
}

#[test]
fn a_crawl_that_was_stopped_is_resumed_and_a_finished_one_has_nothing_left() {
    let expected = whole();
    let server = Server::new(web);
    let first = crawl(&server).with(&["--stop-grace", "10ms"]);
    let going = first.start();
    server.wait_for_requests(40);
    going.signal(Signal::INT);
    going.wait().expect(3);
    let before = fs::read_to_string(first.folder().join("out/results.jsonl")).expect("lines");
    let before = read_lines(&before).len();
    let pending = first.folder().join("out/pending.jsonl");
    assert!(pending.exists());
    // As a copy of the folder may be.
    let state = first.folder().join("out/state");
    fs::set_permissions(&state, Permissions::from_mode(0o755)).expect("it is ours");
    let ended = resume(first.folder()).wait().expect(0);
    let mode = fs::metadata(&state).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o700, "it holds credentials");
    assert!(!pending.exists(), "nothing is left to be fetched");
    let crawled = first.left(ended);
    let lines = crawled.lines();
    assert!(before < lines.len());
    assert_eq!(ends(&checked(&crawled), server.port()), expected);
    let asked = server.asked().len();
    let folder = crawled.out();
    let folder = folder.parent().expect("it is in a folder");
    let again = argiope_in(folder, &["crawl", "--resume", "--out", "out"]).expect(0);
    assert!(again.err.contains("is finished"), "{}", again.err);
    assert_eq!(crawled.lines().len(), lines.len());
    assert_eq!(server.asked().len(), asked);
}

#[test]
fn each_seed_is_taken_once_when_a_crawl_is_killed_while_it_reads_them() {
    let server =
        Server::new(|_: &Asked| [vec![Step::Wait(Duration::from_millis(3))], page("p")].concat());
    let lines_of = |list: &str| {
        let seeds = (0..120).map(|n| match n % 10 {
            4 => "# a comment".to_owned(),
            7 => "no seed".to_owned(),
            _ => server.url(&format!("/{list}{n}")),
        });
        seeds.collect::<Vec<_>>().join("\n")
    };
    let seeds = [
        "--seeds",
        "a",
        "--seeds",
        "b",
        "--follow",
        "none",
        "-s",
        "FRONTIER_MAX=5",
    ];
    let first = Crawl::of(&[&server.url("/first")])
        .with(&seeds)
        .with(&["-s", "STATE_SYNC=10ms", "-s", "DOWNLOAD_DELAY=4ms"])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=2"]);
    for list in ["a", "b", "c"] {
        first.file(list, lines_of(list).as_bytes());
    }
    let mut going = first.start();
    server.wait_for_requests(30);
    let third = server.url("/third");
    let more: [&[&str]; 4] = [&[], &[&third], &["--seeds", "c"], &[]];
    for given in more {
        going.signal(Signal::KILL);
        drop(going);
        let args = [&["crawl", "--quiet", "--resume", "--out", "out"], given].concat();
        going = Going::start(&args, first.folder(), b"");
        let asked = server.asked().len();
        server.wait_for_requests(asked + 30);
    }
    let ended = going.wait().expect(0);
    let crawled = first.left(ended);
    let found = ends(&checked(&crawled), server.port());
    assert_eq!(
        found.len(),
        3 * 96 + 2,
        "all seeds of three files, and two URLs"
    );
}

#[test]
fn a_resume_without_a_seeds_file_of_the_crawl_is_refused_and_loses_nothing() {
    let server = Server::new(|_: &Asked| page("p"));
    let seeds = |list: &str| {
        let urls = (0..30).map(|n| server.url(&format!("/{list}{n}")));
        urls.collect::<Vec<_>>().join("\n")
    };
    // Standard input is read last, whatever it is.
    let args = [
        "--seeds", "-", "--seeds", "a", "--seeds", "b", "--follow", "none",
    ];
    let first = Crawl::of(&args)
        .with(&["--max-pages", "35", "-s", "FRONTIER_MAX=5"])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"])
        .input(server.url("/last").as_bytes());
    for list in ["a", "b"] {
        first.file(list, seeds(list).as_bytes());
    }
    first.try_run().expect(0);
    let moved = first.folder().join("elsewhere");
    fs::rename(first.folder().join("a"), &moved).expect("it can be moved");
    let args = ["crawl", "--resume", "--out", "out", "--max-pages", "0"];
    let refused = argiope_in(first.folder(), &args).expect(2);
    assert!(
        refused.err.contains("is missing: put it back"),
        "{}",
        refused.err
    );
    fs::rename(&moved, first.folder().join("a")).expect("it can be moved back");
    let ended = argiope_in(first.folder(), &args).expect(0);
    assert!(!ended.err.contains("not read again"), "{}", ended.err);
    let crawled = first.left(ended);
    let found = ends(&checked(&crawled), server.port());
    assert_eq!(found.len(), 61, "the line of standard input was kept");
}

/// A crawl that was killed after sixty requests.
fn killed(server: &Server) -> Crawl {
    let first = crawl(server);
    let going = first.start();
    server.wait_for_requests(60);
    going.signal(Signal::KILL);
    going.wait();
    first
}

#[test]
fn a_damaged_state_is_refused_with_its_place_and_salvaged_on_request() {
    let server = Server::new(web);
    let first = killed(&server);
    let journal = first.folder().join("out/state/journal-00000001");
    let mut bytes = fs::read(&journal).expect("a journal");
    // A commit has it, also if the crawl was killed long after that.
    let early = bytes.len() / 4;
    bytes[early] ^= 1;
    fs::write(&journal, &bytes).expect("it is changed");
    let args = ["crawl", "--resume", "--out", "out"];
    let lines = fs::read(first.folder().join("out/results.jsonl")).expect("lines");
    let refused = argiope_in(first.folder(), &args);
    check_refused(
        &refused,
        &["journal-00000001 is damaged", "from byte ", "--salvage"],
    );
    let unchanged = fs::read(&journal).expect("the journal");
    assert_eq!(unchanged, bytes, "a refusal changes nothing");
    let unchanged = fs::read(first.folder().join("out/results.jsonl")).expect("lines");
    assert_eq!(unchanged, lines, "a refusal changes nothing");
    let args = ["crawl", "--quiet", "--resume", "--salvage", "--out", "out"];
    let ended = argiope_in(first.folder(), &args).expect(0);
    assert!(ended.err.contains("is damaged"), "{}", ended.err);
    assert!(ended.err.contains("are missing, unless"), "{}", ended.err);
    let found: BTreeSet<String> = (first.left(ended).lines().iter())
        .filter(|line| line["kind"] == "page")
        .map(|line| text(&line["url"]).replace(&server.port().to_string(), "PORT"))
        .collect();
    let expected = whole();
    let missing: Vec<&String> = (expected.keys().filter(|url| !found.contains(*url))).collect();
    assert!(missing.len() <= 2, "one damaged record: {missing:?}");
}

#[test]
fn results_are_kept_elsewhere_when_the_journal_of_their_commits_is_lost() {
    let server = Server::new(web);
    let first = killed(&server);
    let out = first.folder().join("out");
    let lines = fs::read(out.join("results.jsonl")).expect("lines");
    assert!(!lines.is_empty());
    // The one with the beginning of the crawl is left.
    fs::remove_file(out.join("state/journal-00000001")).expect("a journal");
    let ended = argiope_in(first.folder(), &["crawl", "--resume", "--out", "out"]).expect(0);
    assert!(ended.err.contains("uncommitted"), "{}", ended.err);
    let kept = fs::read(out.join("uncommitted/results.jsonl")).expect("they are kept");
    assert!(kept == lines, "as they were");
    let kept = fs::read_dir(out.join("uncommitted")).expect("a folder");
    let names = kept.map(|entry| entry.expect("an entry").file_name());
    let is_warc = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".warc.gz.open");
    assert!(names.into_iter().any(is_warc), "records, too");
    let output = checked(&first.left(ended));
    assert_eq!(ends(&output, server.port()), whole());
}

#[test]
fn a_state_of_a_newer_version_is_refused_and_not_changed() {
    let server = Server::new(|_: &Asked| page("p"));
    let crawled = Crawl::of(&[&server.url("/")]).run();
    let journal = crawled.out().join("state/journal-00000001");
    let mut bytes = fs::read(&journal).expect("a journal");
    bytes[8] = 2;
    let checksum = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&journal, &bytes).expect("it is changed");
    let folder = crawled.out();
    let folder = folder.parent().expect("it is in a folder");
    for salvage in [&[][..], &["--salvage"]] {
        let args = [&["crawl", "--resume", "--out", "out"], salvage].concat();
        let refused = argiope_in(folder, &args);
        check_refused(
            &refused,
            &[
                "journal-00000001: the state has version 2",
                "or a later one",
            ],
        );
        assert_eq!(fs::read(&journal).expect("the journal"), bytes);
    }
}

#[test]
fn damaged_files_of_queued_requests_are_named_and_salvaged() {
    let list =
        |server: &Server| -> String { (0..200).map(|n| server.url(&format!("/q{n}\n"))).collect() };
    for is_missing in [false, true] {
        let server = Server::new(|_: &Asked| page("p"));
        let first = Crawl::of(&["--seeds", "list", "--max-pages", "5"])
            .with(&["-s", "FRONTIER_MEMORY=600", "--follow", "none"])
            .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=1"]);
        first.file("list", list(&server).as_bytes());
        first.try_run().expect(0);
        let state = first.folder().join("out/state");
        let files = fs::read_dir(&state).expect("a state");
        let mut queues: Vec<_> = files.map(|entry| entry.expect("an entry").path()).collect();
        queues.retain(|path| path.display().to_string().contains("queue-"));
        let queue = queues.first().expect("some requests are in files");
        let name = queue.file_name().expect("a name").to_string_lossy();
        let args = ["crawl", "--resume", "--max-pages", "0", "--out", "out"];
        if is_missing {
            fs::remove_file(queue).expect("it is there");
            let refused = argiope_in(first.folder(), &args);
            check_refused(&refused, &[&name, "is missing", "--salvage"]);
        } else {
            let mut bytes = fs::read(queue).expect("a file");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(queue, bytes).expect("it is changed");
            let ended = argiope_in(first.folder(), &args).expect(1);
            assert!(ended.err.contains(&*name), "{}", ended.err);
            assert!(ended.err.contains("is damaged: restore"), "{}", ended.err);
        }
        let args = [&args[..], &["--salvage"]].concat();
        let ended = argiope_in(first.folder(), &args).expect(0);
        assert!(ended.err.contains("requests were in it"), "{}", ended.err);
        let lost = ended.err.split(" requests were in it").next();
        let lost = lost.and_then(|text| text.rsplit(' ').next()?.parse::<usize>().ok());
        let lost = lost.expect("a number");
        assert!(lost > 0, "{}", ended.err);
        let mut crawled = first.left(ended);
        let found = ends(&checked(&crawled), server.port());
        assert_eq!(found.len() + lost, 200, "{}", crawled.ended.err);
        let renewed = format!("{lost} URLs without a line in results.jsonl count as new");
        assert!(
            crawled.ended.err.contains(&renewed),
            "{}",
            crawled.ended.err
        );
        let folder = crawled.out().parent().expect("a folder").to_owned();
        fs::write(folder.join("again"), list(&server)).expect("it can be written");
        let args = ["crawl", "--resume", "--seeds", "again", "--out", "out"];
        crawled.ended = argiope_in(&folder, &args).expect(0);
        assert_eq!(ends(&checked(&crawled), server.port()).len(), 200);
        let counts = argiope_in(&folder, &["state", "--json", "out"]).expect(0);
        let counts: serde_json::Value = serde_json::from_str(&counts.out).expect("JSON");
        assert_eq!(counts["ended"], 200, "{counts}");
    }
}

#[test]
fn a_crawl_that_runs_is_named_to_whoever_wants_its_directory() {
    let server = Server::new(web);
    let first = crawl(&server);
    let going = first.start();
    server.wait_for_requests(3);
    let owner = format!("process {} on ", going.id());
    for more in [&["--resume"][..], &["--resume", "--salvage"]] {
        let args = [&["crawl", "--out", "out"], more].concat();
        let refused = argiope_in(first.folder(), &args);
        check_refused(&refused, &["in use by another crawl", &owner, "since"]);
    }
    for more in [&[][..], &["--overwrite"]] {
        let args = [
            &["crawl", "--quiet", "--out", "out", "http://a.test/"],
            more,
        ]
        .concat();
        let refused = argiope_in(first.folder(), &args);
        check_refused(&refused, &["in use by another crawl", &owner, "since"]);
    }
    going.signal(Signal::KILL);
    going.wait();
    // The kernel has released it.
    resume(first.folder()).wait().expect(0);
}

#[test]
fn what_a_pipe_delivered_and_was_not_taken_is_crawled_by_later_runs() {
    let server = Server::new(|_: &Asked| page("a page"));
    let urls = |range: std::ops::Range<u32>| -> Vec<String> {
        range.map(|n| server.url(&format!("/{n}"))).collect()
    };
    let (first, second) = (urls(0..900), urls(900..1200));
    let args = ["--seeds", "-", "--seeds", "file", "--max-pages", "20"];
    let crawl = Crawl::of(&args)
        .with(&["--no-warc", "-s", "FRONTIER_MAX=100"])
        .input(first.join("\n").as_bytes());
    let of_file = urls(1200..1210);
    crawl.file("file", of_file.join("\n").as_bytes());
    let ended = crawl.try_run().expect(0);
    assert_eq!(ended.err, "");
    let folder = crawl.folder();
    let exported = argiope_in(folder, &["state", "out", "--export"]).expect(0);
    assert_eq!(exported.out.lines().count(), 890);
    let pending = fs::read_to_string(folder.join("out/pending.jsonl")).expect("it is written");
    assert_eq!(pending.lines().count(), 890);
    // The next one reads a part of them, and of another pipe nothing.
    let resume = |out: &str, pages: &str, args: &[&str], input: &str| {
        let fixed = [
            "crawl",
            "--quiet",
            "--resume",
            "--out",
            out,
            "--max-pages",
            pages,
        ];
        let args = [&fixed[..], args].concat();
        let going = Going::start(&args, folder, input.as_bytes());
        assert_eq!(going.wait().expect(0).err, "");
    };
    resume("out", "200", &["--seeds", "-"], &second.join("\n"));
    resume("out", "300", &[], "");
    // The directory may be moved.
    fs::rename(folder.join("out"), folder.join("moved")).expect("it can be renamed");
    resume("moved", "0", &[], "");
    fs::rename(folder.join("moved"), folder.join("out")).expect("it can be renamed");
    let mut expected = [first, second, of_file].concat();
    expected.sort();
    let crawled = crawl.left(ended);
    assert_eq!(crawled.urls(), expected);
    assert_eq!(server.asked().len(), expected.len());
}
