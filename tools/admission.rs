//! How long a million seeds on a million domains take to be admitted, and how much memory.
//!
//! `cargo run --release --example admission [SEEDS]`. Nothing is sent: the crawl takes no turn.

use std::time::Instant;

use argiope::crawl::config::Config;
use argiope::crawl::{Crawler, Parts};
use argiope::frontier::request::Request;
use argiope::sink::page::Page;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let argument = std::env::args().nth(1);
    let seeds: u64 = argument.map_or(1_000_000, |text| text.parse().expect("a number of seeds"));
    let parts = Parts::new(argiope::sink::function::FunctionSink::new(|_: Page| {}));
    let mut crawler = Crawler::new(Config::default(), parts).expect("the machine has an epoll");
    let (before, began) = (resident("VmRSS"), Instant::now());
    for number in 0..seeds {
        crawler
            .submit(Request::get(format!("http://domain-{number}.test/")))
            .expect("each is a new URL");
    }
    let (now, peak) = (resident("VmRSS"), resident("VmHWM"));
    println!(
        "{seeds} seeds in {:.2} s; {} MB, at most {} MB, {:.0} bytes a seed",
        began.elapsed().as_secs_f64(),
        now / 1_000_000,
        peak / 1_000_000,
        (now - before) as f64 / seeds as f64,
    );
}

/// A line of the kernel's account of this process, in bytes.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has procfs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("a size in KiB")
        * 1024
}
