//! `argiope probe`: latency at a constant rate, in an open loop.

mod hdr;
mod text;

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use argiope::probe::{Probe, ProbeReport};
use argiope::sink::files::{FileSink, FileSinkOptions, Results};
use argiope::{Config, Page, Request, SetUpError, Sink, Turn};
use serde_json::{Value, json};

use self::hdr::HdrLog;
use super::args::Probe as Asked;
use super::progress::Shown;
use super::{Usage, settings, signals};

/// Runs the command; gives its exit code.
pub fn run(config: Config, args: &Asked) -> anyhow::Result<i32> {
    let targets = args
        .urls
        .iter()
        .map(|url| {
            Request::from_line(url)
                .map_err(|error| Usage(error.to_string()))?
                .ok_or_else(|| Usage(format!("{url:?} is no URL")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut probe = match &args.results {
        None => set_up(config, args, &targets, |_: Page| {})?,
        Some(path) => set_up(config, args, &targets, result_lines(path)?)?,
    };
    let log = match &args.hdr {
        Some(path) => {
            probe.keep_intervals();
            let created = HdrLog::create(path, probe.report().started);
            Some(created.map_err(|error| cannot_write("--hdr", path, &error))?)
        }
        None => None,
    };
    signals::stop_on_signal(probe.stopper())?;
    let reason = watch(&mut probe, args.stall, log.as_ref());
    if let Some(log) = log {
        log.put(probe.take_interval());
        let path = args.hdr.as_deref().unwrap_or(Path::new(""));
        log.finish()
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(error) = probe.write_error() {
        anyhow::bail!("{error}; what was written until then is in place");
    }
    let report = probe.report();
    if reason == "blocked_address" {
        let refused = report.first_errors.values().next();
        let refused = refused.map_or("", |(_, words)| words.as_str());
        anyhow::bail!("nothing is measured: {refused}");
    }
    let faults = faults(&report, args);
    show(&report, &faults, args)?;
    for fault in &faults {
        eprintln!("argiope: {fault}");
    }
    Ok(match reason {
        "shutdown" => 3,
        _ if !faults.is_empty() => 1,
        _ => 0,
    })
}

fn set_up(
    config: Config,
    args: &Asked,
    targets: &[Request],
    sink: impl Sink + 'static,
) -> anyhow::Result<Probe> {
    Probe::new(config, args.settings(), targets, sink).map_err(|error| match error {
        SetUpError::Io(_) => error.into(),
        told => Usage(told.to_string()).into(),
    })
}

/// Writes result lines to a file, which takes the place of one that was there before.
fn result_lines(path: &Path) -> Result<FileSink, Usage> {
    let mut options = FileSinkOptions::new("");
    if path.as_os_str() == "-" {
        options.results = Results::Stdout;
    } else {
        // Tried here, so that it fails before anything is sent.
        fs::File::create(path)
            .and_then(|_| fs::remove_file(path))
            .map_err(|error| cannot_write("--results", path, &error))?;
        options.results_name = path.to_owned();
    }
    Ok(FileSink::new(options))
}

fn cannot_write(flag: &str, path: &Path, error: &io::Error) -> Usage {
    Usage(format!(
        "{flag} {}: cannot be written: {error}; name a file in a folder that is there",
        path.display()
    ))
}

/// Runs a probe to its end and shows how it goes; gives the reason for its end.
fn watch(probe: &mut Probe, stall: Duration, log: Option<&HdrLog>) -> &'static str {
    let mut shown = Shown::new(false);
    let mut interval_ends = Instant::now() + INTERVAL;
    let reason = loop {
        let ended = probe.ended();
        if let Turn::Over(reason) = probe.turn(Some(PATIENCE)) {
            break reason;
        }
        if probe.ended() > ended {
            keep_busy(stall);
        }
        if let Some(log) = log
            && Instant::now() >= interval_ends
        {
            interval_ends += INTERVAL;
            log.put(probe.take_interval());
        }
        shown.tell(|| text::progress(probe.so_far(), probe.elapsed()));
    };
    shown.end();
    reason
}

/// What a handler does that takes its time: the loop stands still meanwhile.
fn keep_busy(span: Duration) {
    let until = Instant::now() + span;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// What makes the command fail, a line each.
fn faults(report: &ProbeReport, args: &Asked) -> Vec<String> {
    let mut faults = Vec::new();
    if report.replies == 0 && report.finish_reason != Some("shutdown") {
        let why = report.first_errors.values().next();
        let why = why.map_or(String::new(), |(url, words)| format!(": {url}: {words}"));
        faults.push(format!("no request was answered{why}"));
    } else if !report.is_rate_reached() && report.finish_reason != Some("shutdown") {
        faults.push(format!(
            "the rate was not reached: {:.1} of {} requests/s had their turn in time ({} of {} due; \
             {} never left)",
            report.rate_reached(),
            report.rate,
            report.begun_in_time,
            report.due,
            report.unsent + report.dropped,
        ));
    }
    for ceiling in &args.fail_above {
        if let Some(words) = ceiling.exceeded_by(report) {
            faults.push(format!("--fail-above {words}"));
        }
    }
    faults
}

/// The report, to where nothing else goes.
fn show(report: &ProbeReport, faults: &[String], args: &Asked) -> io::Result<()> {
    let text = if args.json {
        let mut all = report.to_json();
        all["stall"] = json!(args.stall.as_secs_f64());
        all["faults"] = Value::from(faults.to_vec());
        format!("{all}\n")
    } else {
        text::report(report)
    };
    match &args.results {
        Some(path) if path.as_os_str() == "-" => {
            eprint!("{text}");
            Ok(())
        }
        _ => settings::print(&text),
    }
}

/// How long a turn may wait before there is something to show or to write.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long the intervals of an HDR log are.
const INTERVAL: Duration = Duration::from_secs(1);
