//! Measures time and memory to admit seeds, each on its own domain.
//!
//! `cargo run --release --example admission [SEEDS]`. The crawl takes no turn, so nothing is sent. Each
//! output line has the memory of all seeds so far, and the processor time of those since the last line.

use std::time::Duration;

use argiope::crawl::config::Config;
use argiope::crawl::{Crawler, Parts};
use argiope::frontier::request::Request;
use argiope::sink::page::Page;

#[expect(dead_code, reason = "freed memory is not returned to the system here")]
#[path = "../src/cli/allocator.rs"]
mod allocator;

/// Numbers of seeds at which a line is printed, besides the last.
const MARKS: [u64; 3] = [100_000, 1_000_000, 10_000_000];

fn main() {
    allocator::prepare();
    let argument = std::env::args().nth(1);
    let seeds: u64 = argument.map_or(1_000_000, |text| text.parse().expect("a number of seeds"));
    let parts = Parts::new(argiope::sink::function::FunctionSink::new(|_: Page| {}));
    let mut crawler = Crawler::new(Config::default(), parts).expect("a crawler");
    let before = resident("VmRSS");
    println!("    seeds  resident      peak  bytes each  µs each  longest");
    let mut number = 0;
    let marks = MARKS.into_iter().filter(|mark| *mark < seeds);
    for mark in marks.chain([seeds]) {
        let (first, began) = (number, thread_time());
        let mut longest = Duration::ZERO;
        while number < mark {
            let one_began = thread_time();
            crawler
                .submit(Request::get(format!("http://domain-{number}.test/")))
                .expect("each is a new URL");
            longest = longest.max(thread_time() - one_began);
            number += 1;
        }
        let took = (thread_time() - began).as_secs_f64();
        let (now, peak) = (resident("VmRSS"), resident("VmHWM"));
        println!(
            "{mark:>9} {:>6} MB {:>6} MB {:>11.0} {:>8.2} {:>5.1} ms",
            now / 1_000_000,
            peak / 1_000_000,
            (now - before) as f64 / mark as f64,
            took * 1e6 / (mark - first) as f64,
            longest.as_secs_f64() * 1e3,
        );
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A field of /proc/self/status, in bytes.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a size in KiB")
        * 1024
}
