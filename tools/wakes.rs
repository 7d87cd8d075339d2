//! Time for each command of a handle to wake a sleeping crawl: from before the call to the end of the
//! resulting turn, on the crawl's thread.
//!
//! ```sh
//! cargo run --release --example wakes -- [--io epoll|uring] [TRIES]
//! ```
//!
//! The target is one millisecond at the 99th percentile. No network is used.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use argiope::settings::ScopePatch;
use argiope::{Config, Crawler, Feedback, Handle, Page, Request, Turn};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut io, mut tries) = ("auto".to_owned(), 1000);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--io" => io = arguments.next().ok_or("--io takes a name")?,
            number => tries = number.parse().map_err(|_| "wakes [--io NAME] [TRIES]")?,
        }
    }
    let config = Config::default().with("IO", io)?;
    let mut crawler = Crawler::builder(config).sink(|_: Page| {}).build()?;
    let handle = crawler.handle();
    println!("{}, {tries} tries each, µs:", crawler.progress().io);
    let (woke, wakes) = channel();
    let driver = thread::spawn(move || {
        loop {
            let turn = crawler.turn(None);
            if woke.send(Instant::now()).is_err() || turn != Turn::GoesOn {
                return;
            }
        }
    });
    println!("{:14} {:>8} {:>8} {:>8}", "", "p50", "p99", "max");
    for (name, command) in COMMANDS {
        let mut took: Vec<f64> = Vec::with_capacity(tries);
        for _ in 0..tries {
            // The crawl has been asleep for a while.
            thread::sleep(Duration::from_millis(2));
            while wakes.try_recv().is_ok() {}
            let called = Instant::now();
            command(&handle);
            let woke = wakes.recv()?;
            took.push(woke.saturating_duration_since(called).as_secs_f64() * 1e6);
        }
        took.sort_by(f64::total_cmp);
        let at = |share: f64| took[((tries - 1) as f64 * share) as usize];
        println!("{name:14} {:8.1} {:8.1} {:8.1}", at(0.5), at(0.99), at(1.0));
    }
    handle.shutdown(Duration::ZERO);
    driver.join().expect("no panic");
    Ok(())
}

type Command = fn(&Handle);

/// The calls of a handle. Their results do not matter here, only the wake.
const COMMANDS: &[(&str, Command)] = &[
    ("try_submit", |handle| {
        // Not a public address: refused, so that no reply wakes the crawl again.
        let request = Request::get("http://0.0.0.0/");
        handle.try_submit(request).expect("there is room");
    }),
    ("cancel", |handle| handle.cancel(1).expect("it goes on")),
    ("cancel_scope", |handle| {
        handle.cancel_scope("a.test").expect("it goes on");
    }),
    ("set_scope", |handle| {
        let patch = ScopePatch::default();
        handle.set_scope("a.test", patch).expect("it goes on");
    }),
    ("feedback", |handle| {
        let nothing = Feedback::new("a.test");
        handle.feedback(nothing).expect("it goes on");
    }),
    ("pause", Handle::pause),
    ("resume", Handle::resume),
    ("stats", |handle| drop(handle.stats())),
    ("clone, drop", |handle| drop(handle.clone())),
];
