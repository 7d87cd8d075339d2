//! Serves the demo's web for a crawl in another process, until a signal.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use argiope::Config;

use super::report::Promised;
use super::requests::RequestLog;
use super::web::{DemoOptions, DemoWeb};
use super::{NO_LOOPBACK, of_web};
use crate::cli::signals::Received;
use crate::cli::{Usage, settings, stderr};

/// Serves the web until a signal to stop, then prints the servers' records; returns the exit code: 0 if they have no
/// violation of `promised`.
///
/// `folder` gets the seeds, the settings of a crawl of this web, those of `config` among them, and the servers' log.
pub fn run(
    folder: &Path,
    options: DemoOptions,
    config: Config,
    promised: Promised,
) -> anyhow::Result<i32> {
    // A signal from now on ends the web, and not the process.
    let received = Received::watch()?;
    received.wake_on_signal()?;
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    // Before anything is started or written, so that a refusal leaves nothing.
    for name in [REQUESTS, SEEDS, CONFIG] {
        if folder.join(name).symlink_metadata().is_ok() {
            return Err(refusal(folder, name, ErrorKind::AlreadyExists.into()));
        }
    }
    let log = RequestLog::create(&folder.join(REQUESTS));
    let log = log.map_err(|error| refusal(folder, REQUESTS, error))?;
    let started = DemoWeb::start(options, Some(log)).context(NO_LOOPBACK);
    let web = started.inspect_err(|_| drop(fs::remove_file(folder.join(REQUESTS))))?;
    let seeds = web.seeds();
    write(folder, SEEDS, &(seeds.join("\n") + "\n"))?;
    let config = of_web(config, web.dns())?;
    write(folder, CONFIG, &settings::chosen_toml(&config)?)?;
    let shown = folder.display();
    stderr::write_line(&format!(
        "Serving a web of {} hosts on the loopback device until Ctrl-C. Each request is a line in {shown}/{REQUESTS}. \
         To crawl it:\n  argiope crawl --config {shown}/{CONFIG} --seeds {shown}/{SEEDS} --out {shown}/crawl \
         --contact me@example.org",
        seeds.len()
    ));
    while !received.wait_for_stop(0, Duration::from_secs(3600)) {}
    let report = web.stop(promised)?;
    settings::print(&report.to_string())?;
    Ok(if report.is_polite() { 0 } else { 1 })
}

fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    File::create_new(folder.join(name))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| refusal(folder, name, error))
}

fn refusal(folder: &Path, name: &str, error: io::Error) -> anyhow::Error {
    let path = folder.join(name);
    match error.kind() {
        ErrorKind::AlreadyExists => Usage(format!(
            "{} exists, and is not replaced: name a new directory for --serve",
            path.display()
        ))
        .into(),
        _ => anyhow::Error::new(error).context(format!("{}: cannot be written", path.display())),
    }
}

const SEEDS: &str = "seeds.txt";
const CONFIG: &str = "demo.toml";
const REQUESTS: &str = "requests.jsonl";
