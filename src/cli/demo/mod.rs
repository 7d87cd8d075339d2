//! `argiope demo`: starts a web of many hosts on the loopback device, crawls it through real sockets, and
//! checks the servers' records. Or serves that web for another crawl.

mod web;
mod server;
mod site;
mod ledger;
mod report;
mod requests;
mod serving;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use argiope::FinishReason;
use argiope::sink::files::FileSink;
use argiope::{Config, Crawler, Request};

use self::report::Promised;
use self::web::{DemoOptions, DemoWeb};
use super::args::Demo;
use super::crawl::{set_up, sink_options, watch};
use super::settings::{self, CommandValues};
use super::signals::Received;
use super::stderr;

/// Runs the command; returns its exit code: 0 if the servers recorded no violation.
pub fn run(config: Config, args: Demo) -> anyhow::Result<i32> {
    let options = DemoOptions {
        domains: args.domains,
        pages: args.pages,
        seed: args.seed,
    };
    let pace = config.throttle().usual();
    let promised = Promised {
        gap: pace.delay.mul_f64(1.0 + pace.jitter.low),
        in_flight: pace.concurrency,
    };
    if let Some(folder) = args.serve {
        return serving::run(&folder, options, config, promised);
    }
    let web = DemoWeb::start(options, None).context(NO_LOOPBACK)?;
    let seeds = web.seeds();
    stderr::write_line(&format!(
        "Started a web of {} hosts on the loopback device; its name server is {}.",
        seeds.len(),
        web.dns()
    ));
    let config = of_web(config, web.dns())?;
    let folder = Scratch::new()?;
    let sink = FileSink::new(sink_options(&config, Some(&folder.0), false)?);
    let mut crawler = set_up(config, |config| Crawler::builder(config).sink(sink))?;
    for url in seeds {
        crawler.submit(Request::get(url))?;
    }
    let received = Received::watch()?;
    received.stop_on_signal(crawler.stopper())?;
    let watched = watch(&mut crawler, false, &received);
    stderr::write(&watched.summary);
    drop(crawler);
    let report = web.stop(promised)?;
    let shown = settings::print(&report.to_string());
    Ok(match (watched.reason, report.is_polite()) {
        (FinishReason::Shutdown, _) => 3,
        (_, true) => shown.map(|()| 0)?,
        (_, false) => 1,
    })
}

/// The settings of a crawl of the web, whose name server is at this address.
fn of_web(config: Config, dns: SocketAddr) -> anyhow::Result<Config> {
    let config = config.with("DNS_SERVERS", [dns.to_string()])?;
    Ok(config.with("ALLOW_NET", ["loopback"])?)
}

const NO_LOOPBACK: &str = "cannot start the demo's web on the loopback device";

/// Defaults of the demo. Requests to its unresponsive hosts fail after 5 s, so that the demo ends within
/// 20 s.
pub const VALUES: CommandValues = CommandValues {
    command: "demo",
    values: &[("HOST_DOWN_AFTER", "5")],
};

/// A temporary folder for the crawl's files, deleted on drop: the demo reports politeness, not results.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("argiope-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
