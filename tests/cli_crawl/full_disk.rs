//! A full volume: the crawl pauses until there is space, and loses nothing.
//!
//! Each test mounts its own small volume in a private namespace, which needs root.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use rustix::fs::statvfs;
use rustix::process::Signal;

use crate::run::{Crawl, Going, text};
use crate::server::{Asked, Server, reply};

const PAGES: usize = 60;
const VOLUME: &str = "size=1m";
/// What another program has on the volume, until it takes it away.
const FILLER: usize = 800 << 10;

/// Pages that do not get smaller by compression.
fn noise(asked: &Asked) -> Vec<crate::server::Step> {
    let mut state = asked
        .target
        .bytes()
        .fold(1u64, |sum, byte| sum * 31 + u64::from(byte));
    let body: Vec<u8> = (0..20_000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        })
        .collect();
    reply("200 OK", &["Content-Type: image/png"], &body)
}

/// A crawl of some pages whose output, or a folder in it, is on a nearly full volume.
struct Nearly {
    server: Server,
    crawl: Crawl,
    volume: PathBuf,
}

impl Nearly {
    fn full(below: &str) -> Self {
        Nearly::with_reserve(below, "0")
    }

    fn with_settings(below: &str, settings: &[&str]) -> Self {
        Nearly::with(below, "0", settings)
    }

    /// The crawl leaves this much of the volume free.
    fn with_reserve(below: &str, free_min: &str) -> Self {
        Nearly::with(below, free_min, &[])
    }

    fn with(below: &str, free_min: &str, settings: &[&str]) -> Self {
        let server = Server::new(noise);
        let crawl = Crawl::of(&["--seeds", "seeds", "--stop-grace", "2s"])
            .with(&[
                "-s",
                "DOWNLOAD_DELAY=10ms",
                "-s",
                "CONCURRENT_REQUESTS_PER_DOMAIN=1",
                "-s",
                &format!("DISK_FREE_MIN={free_min}"),
                "-s",
                "STATE_SYNC=20ms",
            ])
            .with(settings)
            .aloud();
        let urls: Vec<String> = (0..PAGES).map(|n| server.url(&format!("/{n}"))).collect();
        crawl.file("seeds", urls.join("\n").as_bytes());
        let volume = crawl.folder().join(below);
        fs::create_dir_all(&volume).expect("a folder");
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", VOLUME, "none"])
            .arg(&volume));
        fs::write(volume.join("filler"), vec![1; FILLER]).expect("there is room for that");
        Nearly {
            server,
            crawl,
            volume,
        }
    }

    /// Waits until the crawl has paused: the volume is full, and no page is requested.
    fn wait(&self) {
        let began = Instant::now();
        let mut asked = (0, Instant::now());
        loop {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "the crawl does not end"
            );
            thread::sleep(Duration::from_millis(20));
            let now = self.server.asked().len();
            if now != asked.0 {
                asked = (now, Instant::now());
            }
            let room = statvfs(&self.volume).expect("a volume").f_bavail;
            if room < 20 && asked.1.elapsed() > Duration::from_millis(1500) {
                assert!((5..PAGES).contains(&now), "{now} pages");
                return;
            }
        }
    }

    /// Takes the last room that there is.
    fn take_all_room(&self) {
        let mut last = fs::File::create(self.volume.join("last")).expect("a file");
        while last.write_all(&[1; 512]).is_ok() {}
    }

    fn make_room(&self) {
        run(Command::new("mount")
            .args(["-o", "remount,size=64m"])
            .arg(&self.volume));
    }
}

impl Drop for Nearly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.volume).status();
    }
}

fn run(command: &mut Command) {
    assert!(command.status().expect("it runs").success(), "{command:?}");
}

/// Runs a test on a thread whose mounts nobody else sees; skips it where it may not.
fn in_own_mounts(name: &str, test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            // SAFETY: takes a number; other threads keep the mounts that they have.
            let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
            let private = Command::new("mount")
                .args(["--make-rprivate", "/"])
                .status();
            if !alone || !private.is_ok_and(|status| status.success()) {
                crate::loud::skip(format!(
                    "{name} needs root and mount, for a volume of its own"
                ));
                return;
            }
            test();
        });
        runs.join().expect("the test passes");
    });
}

/// Every page has one line, with the position of its record.
fn check_whole(out: &Path) {
    let lines = fs::read_to_string(out.join("results.jsonl")).expect("lines");
    let mut urls = BTreeMap::new();
    for line in crate::run::read_lines(&lines) {
        let place = &line["warc"];
        let warc = fs::read(out.join(text(&place["file"]))).expect("the file has its final name");
        let at = place["offset"].as_u64().expect("a number") as usize;
        let mut record = Vec::new();
        GzDecoder::new(&warc[at..])
            .read_to_end(&mut record)
            .expect("a whole member");
        let url = text(&line["url"]);
        let head = String::from_utf8_lossy(&record[..1000]).into_owned();
        assert!(
            head.contains(&format!("WARC-Target-URI: {url}\r\n")),
            "{head}"
        );
        assert_eq!(urls.insert(url, ()), None, "twice");
    }
    assert_eq!(urls.len(), PAGES);
}

#[test]
fn a_full_volume_pauses_a_crawl_until_there_is_space() {
    in_own_mounts("a_full_volume_pauses_a_crawl_until_there_is_space", || {
        for below in ["out", "out/warc"] {
            let nearly = Nearly::full(below);
            let going = nearly.crawl.start();
            nearly.wait();
            nearly.make_room();
            let ended = going.wait().expect(0);
            check_whole(&nearly.crawl.folder().join("out"));
            let lines: Vec<&str> = ended
                .err
                .lines()
                .filter(|l| l.contains("disk full"))
                .collect();
            assert_eq!(lines.len(), 1, "{}", ended.err);
            assert!(
                lines[0].contains(below) && lines[0].contains("No space left"),
                "{}",
                lines[0]
            );
        }
    });
}

#[test]
fn a_signal_while_the_warc_volume_is_full_saves_the_frontier() {
    in_own_mounts(
        "a_signal_while_the_warc_volume_is_full_saves_the_frontier",
        || {
            let nearly = Nearly::full("out/warc");
            let going = nearly.crawl.start();
            nearly.wait();
            going.signal(Signal::TERM);
            let ended = going.wait().expect(1);
            assert!(ended.err.contains("No space left"), "{}", ended.err);
            let out = nearly.crawl.folder().join("out");
            let read = |name: &str| fs::read_to_string(out.join(name)).expect(name);
            let mut urls: Vec<String> = read("pending.jsonl").lines().map(str::to_owned).collect();
            let lines = crate::run::read_lines(&read("results.jsonl"));
            urls.extend(lines.iter().map(|line| text(&line["url"])));
            let all = urls.len();
            urls.sort();
            urls.dedup();
            assert_eq!((urls.len(), all), (PAGES, PAGES));
            let stats: serde_json::Value = serde_json::from_str(&read("stats.json")).expect("JSON");
            assert_eq!(stats["finish_reason"], "sink_failed");
        },
    );
}

#[test]
fn a_crawl_with_a_state_does_not_wait_for_space_for_its_pending_requests() {
    in_own_mounts(
        "a_crawl_with_a_state_does_not_wait_for_space_for_its_pending_requests",
        || {
            let nearly = Nearly::full("out");
            let going = nearly.crawl.start();
            nearly.wait();
            nearly.take_all_room();
            going.signal(Signal::TERM);
            let ended = going.wait();
            assert!(ended.took < Duration::from_secs(40), "{:?}", ended.took);
            let out = nearly.crawl.folder().join("out");
            for name in ["pending.jsonl", "pending.jsonl.tmp"] {
                assert!(!out.join(name).exists(), "{name}");
            }
            let how = "continue with --resume --out out";
            assert!(ended.err.contains(how), "{}", ended.err);
            assert!(!ended.err.contains("it is lost"), "{}", ended.err);
            nearly.make_room();
            let args = ["crawl", "--quiet", "--resume", "--out", "out"];
            Going::start(&args, nearly.crawl.folder(), b"")
                .wait()
                .expect(0);
            check_whole(&out);
        },
    );
}

#[test]
fn a_second_signal_drops_a_frontier_that_does_not_fit_on_the_volume() {
    in_own_mounts(
        "a_second_signal_drops_a_frontier_that_does_not_fit_on_the_volume",
        || {
            let nearly = Nearly::with_settings("out", &["-s", "STATE=false"]);
            let going: Going = nearly.crawl.start();
            nearly.wait();
            nearly.take_all_room();
            going.signal(Signal::TERM);
            // Results are given up after the grace, and room for the frontier is waited for.
            thread::sleep(Duration::from_secs(6));
            fs::read_dir(&nearly.volume).expect("it still runs");
            going.signal(Signal::TERM);
            let ended = going.wait().expect(1);
            assert!(ended.took < Duration::from_secs(40), "{:?}", ended.took);
            let out = nearly.crawl.folder().join("out");
            assert!(
                !out.join("pending.jsonl").exists(),
                "half a file has no final name"
            );
        },
    );
}

#[test]
fn a_limit_of_time_ends_a_crawl_while_its_volume_is_full() {
    in_own_mounts(
        "a_limit_of_time_ends_a_crawl_while_its_volume_is_full",
        || {
            for has_state in [true, false] {
                let state = format!("STATE={has_state}");
                let nearly =
                    Nearly::with_settings("out", &["--max-time", "5s", "-s", state.as_str()]);
                let going = nearly.crawl.start();
                nearly.wait();
                nearly.take_all_room();
                let ended = going.wait().expect(1);
                // The limit, the grace for results, and that for requests that are left without a state.
                let took = ended.took.as_secs_f64();
                assert!((4.9..25.0).contains(&took), "{took} s: {}", ended.err);
                assert!(ended.err.contains("No space left"), "{}", ended.err);
                if has_state {
                    nearly.make_room();
                    let more = ["--resume", "--out", "out", "--max-time", "0"];
                    let args = [&["crawl", "--quiet"][..], &more].concat();
                    Going::start(&args, nearly.crawl.folder(), b"")
                        .wait()
                        .expect(0);
                    check_whole(&nearly.crawl.folder().join("out"));
                }
            }
        },
    );
}

#[test]
fn a_crawl_leaves_its_reserve_of_free_space_and_continues_when_there_is_more() {
    in_own_mounts(
        "a_crawl_leaves_its_reserve_of_free_space_and_continues_when_there_is_more",
        || {
            let reserve = 100 << 10;
            for below in ["out", "out/warc"] {
                let nearly = Nearly::with_reserve(below, "100KiB");
                let going = nearly.crawl.start();
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(4) {
                    let volume = statvfs(&nearly.volume).expect("a volume");
                    let free = volume.f_bavail * volume.f_frsize;
                    assert!(free >= reserve, "{below}: {free} bytes are free");
                    thread::sleep(Duration::from_millis(5));
                }
                let asked = nearly.server.asked().len();
                assert!((2..PAGES).contains(&asked), "{below}: {asked} pages");
                nearly.make_room();
                let ended = going.wait().expect(0);
                check_whole(&nearly.crawl.folder().join("out"));
                let full = ended.err.lines().filter(|l| l.contains("disk full"));
                let full: Vec<&str> = full.collect();
                let [line] = full[..] else {
                    panic!("{below}: one line expected: {}", ended.err);
                };
                assert!(line.contains("DISK_FREE_MIN keeps 102400 free"), "{line}");
            }
        },
    );
}

#[test]
fn a_stop_below_the_reserve_saves_all_results_in_it() {
    in_own_mounts("a_stop_below_the_reserve_saves_all_results_in_it", || {
        let nearly = Nearly::with_reserve("out", "150KiB");
        let going = nearly.crawl.start();
        thread::sleep(Duration::from_secs(4));
        going.signal(Signal::TERM);
        let ended = going.wait().expect(3);
        let out = nearly.crawl.folder().join("out");
        let lines = fs::read_to_string(out.join("results.jsonl")).expect("lines");
        let lines = crate::run::read_lines(&lines).len();
        assert_eq!(lines, nearly.server.asked().len(), "{}", ended.err);
        nearly.make_room();
        let args = ["crawl", "--quiet", "--resume", "--out", "out"];
        Going::start(&args, nearly.crawl.folder(), b"")
            .wait()
            .expect(0);
        check_whole(&out);
    });
}

#[test]
fn a_volume_that_fills_again_and_again_loses_nothing() {
    in_own_mounts("a_volume_that_fills_again_and_again_loses_nothing", || {
        for reserve in ["0", "60KiB"] {
            let nearly = Nearly::with_reserve("out", reserve);
            let mut going = nearly.crawl.start();
            let filler = nearly.volume.join("filler");
            let mut kills = 0;
            // Another program writes and removes files, and the crawl is killed now and then.
            for (round, size) in
                (1..400).zip([FILLER, 0, 2 * FILLER, FILLER / 2].into_iter().cycle())
            {
                let mut file = fs::File::create(&filler).expect("a file");
                let _ = file.write_all(&vec![1; size]);
                drop(file);
                thread::sleep(Duration::from_millis(60));
                if !going.is_running() {
                    break;
                }
                if round % 6 == 0 {
                    going.signal(Signal::KILL);
                    going.wait();
                    kills += 1;
                    fs::write(&filler, b"").expect("a file");
                    let args = ["crawl", "--quiet", "--resume", "--out", "out"];
                    going = Going::start(&args, nearly.crawl.folder(), b"");
                }
                if round == 40 {
                    // The pages do not all fit.
                    nearly.make_room();
                }
            }
            going.wait().expect(0);
            assert!(kills >= 2, "{kills} kills");
            check_whole(&nearly.crawl.folder().join("out"));
        }
    });
}
