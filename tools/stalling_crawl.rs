//! A crawl whose thread is busy for some time after each page, for `tools/latency_judge.py`.
//!
//!     cargo run --release --example stalling_crawl -- [-s KEY=VALUE]... BUSY_MS < URLS
//!
//! Prints a line of JSON per page: its measured times and their labels.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use argiope::serde_json::json;
use argiope::{Config, Crawler, Page, Request};

fn main() -> ExitCode {
    match crawl() {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("stalling_crawl: {wrong}");
            // As the command does for wrong usage.
            ExitCode::from(2)
        }
    }
}

fn crawl() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::default()
        .with("ROBOTSTXT_OBEY", false)?
        .with("DOWNLOAD_DELAY", 0)?
        .with("ALLOW_NET", "127.0.0.0/8")?;
    let mut busy = Duration::ZERO;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "-s" {
            let setting = arguments.next().unwrap_or_default();
            let (key, value) = setting.split_once('=').ok_or("-s needs KEY=VALUE")?;
            config = config.with(key, value)?;
        } else {
            busy = Duration::from_secs_f64(argument.parse::<f64>()? / 1000.0);
        }
    }
    let mut out = io::stdout();
    let mut crawler = Crawler::builder(config)
        .sink(move |page: Page| {
            let began = Instant::now();
            let timings = &page.timings;
            let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
            let wall = |at| page.wall_at_start.at(at).0;
            let line = json!({
                "url": &*page.url,
                "error": page.failure.as_ref().map(ToString::to_string),
                "local": page.local.map(|local| local.to_string()),
                "remote": page.remote.map(|remote| remote.to_string()),
                "reused": page.reused,
                "latency": seconds(timings.latency()),
                "server_latency": seconds(timings.server_latency()),
                "label": timings.accuracy().map(argiope::Accuracy::as_str),
                "slack": timings.latency_slack().as_secs_f64(),
                "connect_wall": timings.connect.map(|stamp| wall(stamp.at)),
                "sent_wall": timings.sent.map(wall),
                "headers_wall": timings.headers.map(|stamp| wall(stamp.at)),
            });
            writeln!(out, "{line}").expect("stdout is open");
            while began.elapsed() < busy {
                std::hint::spin_loop();
            }
        })
        .build()?;
    for url in io::stdin().lock().lines() {
        crawler.submit(Request::get(url?))?;
    }
    crawler.run();
    Ok(())
}
