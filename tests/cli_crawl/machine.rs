//! Shortages of the machine: open files, local ports, kernel features.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::run::{Crawl, Crawled, Going};
use crate::server::{Asked, Server, page};

/// A server whose pages take a while, and the most that it had under way at once.
fn slow(takes: Duration) -> (Server, Arc<AtomicUsize>) {
    let (open, peak) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let most = Arc::clone(&peak);
    let server = Server::new(move |_: &Asked| {
        let now = open.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        thread::sleep(takes);
        open.fetch_sub(1, Ordering::SeqCst);
        page("a page")
    });
    (server, peak)
}

/// Crawls so many pages of a server, on a new connection each, through a command that `change` has
/// changed. Every page is fetched, at the first try.
fn crawl(server: &Server, pages: usize, change: impl FnOnce(&mut Command)) -> Crawled {
    let urls: Vec<String> = (0..pages).map(|n| server.url(&format!("/{n}"))).collect();
    let seeds = urls.join("\n");
    let crawl = Crawl::of(&["--seeds", "-", "--no-warc", "--follow", "none"])
        .with(&["-s", "CONCURRENT_REQUESTS_PER_DOMAIN=400"])
        .with(&["-s", "KEEPALIVE_MAX=0"])
        .aloud();
    let mut command = crawl.command();
    change(&mut command);
    let going = Going::start_command(command, crawl.folder(), seeds.as_bytes());
    let crawled = crawl.left(going.wait().expect(0));
    let lines = crawled.lines();
    assert_eq!(lines.len(), pages);
    let statuses: BTreeSet<String> = lines.iter().map(|l| l["status"].to_string()).collect();
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), ["200"]);
    crawled
}

/// The lines of stderr that contain all of these words.
fn said<'a>(crawled: &'a Crawled, words: &[&str]) -> Vec<&'a str> {
    let lines = crawled.ended.err.lines();
    lines
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .collect()
}

/// Runs the command under these limits of open files.
fn with_open_files(command: &mut Command, soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: between fork and exec only one system call is made, with a live struct.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

#[test]
fn few_open_files_limit_requests_in_flight_and_are_logged_once() {
    let (server, peak) = slow(Duration::from_millis(150));
    let crawled = crawl(&server, 300, |command| with_open_files(command, 150, 150));
    let lines = said(&crawled, &["CONCURRENT_REQUESTS", "4096", "150 open files"]);
    assert_eq!(lines.len(), 1, "{}", crawled.ended.err);
    let peak = peak.load(Ordering::SeqCst);
    assert!((40..=86).contains(&peak), "{peak} at once");
}

#[test]
fn the_open_file_limit_is_raised_to_the_hard_limit() {
    let (server, peak) = slow(Duration::from_millis(400));
    let crawled = crawl(&server, 300, |command| with_open_files(command, 100, 6000));
    assert_eq!(said(&crawled, &["open files"]), [""; 0]);
    let peak = peak.load(Ordering::SeqCst);
    assert!(peak > 100, "{peak} at once");
}

/// Runs a test on a thread in a network of its own, of loopback alone; skips it where it may not.
fn in_own_network(name: &str, test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            // SAFETY: takes a number; other threads keep the network that they have.
            let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            let up = Command::new("ip")
                .args(["link", "set", "lo", "up"])
                .status();
            if !alone || !up.is_ok_and(|status| status.success()) {
                crate::loud::skip(format!(
                    "{name} needs root and ip, for a network of its own"
                ));
                return;
            }
            test();
        });
        runs.join().expect("the test passes");
    });
}

#[test]
fn without_local_ports_requests_wait_and_it_is_logged_once() {
    in_own_network(
        "without_local_ports_requests_wait_and_it_is_logged_once",
        || {
            let (server, peak) = slow(Duration::from_millis(50));
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 20019").expect("root may");
            let crawled = crawl(&server, 100, |_| {});
            let lines = said(&crawled, &["local port", "127.0.0.1"]);
            assert_eq!(lines.len(), 1, "{}", crawled.ended.err);
            let peak = peak.load(Ordering::SeqCst);
            assert!(peak <= 20, "{peak} at once");
            let stats = crawled.stats();
            let took = stats["elapsed"].as_f64().expect("a number");
            assert!(took < 30.0, "{took} s");
            let tries = stats["connections"].as_f64().expect("a number");
            assert!(tries < 100.0 + 64.0 * (took + 1.0), "{tries} tries");
        },
    );
}

/// A kernel that knows the system call `call`, but not with `argument` as its third argument.
fn without(command: &mut Command, call: libc::c_long, argument: Option<libc::c_int>, error: i32) {
    const NUMBER: u32 = 0;
    const THIRD: u32 = 16 + 2 * 8;
    let code = |code: u32| code as u16;
    let load = |at| step(code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), 0, 0, at);
    let equals = |value: u32, past: u8| {
        let compare = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
        step(compare, 0, past, value)
    };
    let give = |value| step(code(libc::BPF_RET | libc::BPF_K), 0, 0, value);
    let refuse = give(libc::SECCOMP_RET_ERRNO | error as u32);
    let allow = give(libc::SECCOMP_RET_ALLOW);
    let call = u32::try_from(call).expect("calls have small numbers");
    let filter = match argument {
        None => vec![load(NUMBER), equals(call, 1), refuse, allow],
        Some(argument) => vec![
            load(NUMBER),
            equals(call, 3),
            load(THIRD),
            equals(argument as u32, 1),
            refuse,
            allow,
        ],
    };
    // SAFETY: between fork and exec two system calls are made, with a program that outlives them.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_ptr().cast_mut(),
            };
            let filtered = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0;
            match filtered {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

#[test]
fn without_kernel_timestamps_the_own_clock_is_used_and_logged_once() {
    let (server, _) = slow(Duration::from_millis(20));
    let crawled = crawl(&server, 20, |command| {
        let stamping = Some(libc::SO_TIMESTAMPING);
        without(command, libc::SYS_setsockopt, stamping, libc::ENOPROTOOPT);
    });
    for line in crawled.lines() {
        assert_eq!(line["clock"], "user", "{line}");
        assert_eq!(line["bound"], true, "{line}");
        let latency = line["server_latency"].as_f64().expect("it was answered");
        assert!((0.02..10.0).contains(&latency), "{line}");
    }
    let lines = said(&crawled, &["does not stamp"]);
    assert_eq!(lines.len(), 1, "{}", crawled.ended.err);
}

#[test]
fn connections_work_without_tcp_info() {
    let (server, _) = slow(Duration::from_millis(20));
    let crawled = crawl(&server, 20, |command| {
        let option = Some(libc::TCP_INFO);
        without(command, libc::SYS_getsockopt, option, libc::ENOPROTOOPT);
    });
    assert!(
        crawled
            .lines()
            .iter()
            .all(|line| line["connect"].is_number())
    );
    // A refused connection still differs from an accepted one.
    let refusing = "http://127.0.0.1:1/";
    let crawl = Crawl::of(&[refusing]);
    let mut command = crawl.command();
    let option = Some(libc::TCP_INFO);
    without(
        &mut command,
        libc::SYS_getsockopt,
        option,
        libc::ENOPROTOOPT,
    );
    let going = Going::start_command(command, crawl.folder(), b"");
    let crawled = crawl.left(going.wait().expect(0));
    assert_eq!(crate::run::code(&crawled.only()), "connect.refused");
}

#[test]
fn the_error_names_a_missing_kernel_feature() {
    let crawl = Crawl::of(&["http://127.0.0.1:1/"]);
    let mut command = crawl.command();
    without(&mut command, libc::SYS_timerfd_create, None, libc::ENOSYS);
    let ended = Going::start_command(command, crawl.folder(), b"").wait();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert_eq!(
        ended.err.matches("timerfd_create").count(),
        1,
        "{}",
        ended.err
    );
}

/// Runs the command under this limit of what it may allocate.
fn with_data(command: &mut Command, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: between fork and exec only one system call is made, with a live struct.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
}

#[test]
fn seeds_wait_at_a_memory_limit_and_none_is_lost() {
    const SEEDS: usize = 40_000;
    let (server, _) = slow(Duration::from_millis(5));
    let crawl = Crawl::of(&["--seeds", "seeds", "--no-warc", "-s", "DOWNLOAD_DELAY=1h"]).aloud();
    let path = "x".repeat(2500);
    let seeds: String = (0..SEEDS)
        .map(|n| server.url(&format!("/{n}/{path}\n")))
        .collect();
    crawl.file("seeds", seeds.as_bytes());
    let mut command = crawl.command();
    with_data(&mut command, 128 << 20);
    let going = Going::start_command(command, crawl.folder(), b"");
    let began = std::time::Instant::now();
    let stats = crawl.folder().join("out/stats.json");
    // It has read what it will once its figures stand still.
    let mut last = (0, 0);
    while last.1 < 8 {
        assert!(began.elapsed() < Duration::from_secs(40), "{last:?}");
        thread::sleep(Duration::from_millis(500));
        let text = fs::read(&stats).unwrap_or_default();
        let figures: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let queued = figures["queued"].as_u64().unwrap_or(0);
        let same = queued > 0 && queued == last.0;
        last = (queued, if same { last.1 + 1 } else { 0 });
    }
    going.signal(rustix::process::Signal::INT);
    let crawled = crawl.left(going.wait().expect(3));
    let limited = said(&crawled, &["128 MiB (RLIMIT_DATA)", "FRONTIER_MEMORY"]);
    assert_eq!(limited.len(), 1, "{}", crawled.ended.err);
    let waits = said(
        &crawled,
        &["of 128 MiB of memory are in use", "reading of seeds paused"],
    );
    assert_eq!(waits.len(), 1, "{}", crawled.ended.err);
    assert!((4000..38_000).contains(&last.0), "{last:?}");
    let pending = crawled.read("pending.jsonl").lines().count();
    assert_eq!(pending + crawled.lines().len(), SEEDS);
}

/// Where the kernel cleared one for a page of 10 MiB it held up a turn by 5 to 20 ms.
#[test]
fn a_crawl_uses_no_huge_pages() {
    let server = Server::new(|_: &Asked| page("a page"));
    let crawl = Crawl::of(&[&server.url("/"), &server.url("/2")]).with(&["-s", "DOWNLOAD_DELAY=1"]);
    let going = crawl.start();
    server.wait_for_requests(2);
    let status = fs::read_to_string(format!("/proc/{}/status", going.id())).expect("it runs");
    going.wait().expect(0);
    let Some(flag) = status
        .lines()
        .find_map(|line| line.strip_prefix("THP_enabled:"))
    else {
        return crate::loud::skip("this kernel does not report which processes use huge pages");
    };
    assert_eq!(flag.trim(), "0");
}
