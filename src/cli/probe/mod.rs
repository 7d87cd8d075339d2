//! `argiope probe`: latency at a constant rate, in an open loop.

mod output;
mod targets;
mod lines;
mod hdr;
mod text;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use argiope::FinishReason;
use argiope::probe::{Probe, ProbeReport};
use argiope::sink::NullSink;
use argiope::{Config, DiskSink, Request, SetUpError, Turn};
use serde_json::{Value, json};

use self::hdr::HdrLog;
use self::lines::{Writer, lines};
use self::output::Output;
use super::args::Probe as Asked;
use super::progress::Shown;
use super::signals::Received;
use super::{Usage, admin, hints, settings, stderr};

/// Runs the command; returns its exit code.
pub fn run(config: Config, args: &Asked) -> anyhow::Result<i32> {
    let mut targets = args
        .urls
        .iter()
        .map(|url| {
            Request::from_line(url)
                .map_err(|error| Usage(error.to_string()))?
                .ok_or_else(|| {
                    Usage(format!(
                        "{url:?} is not a valid URL; write one like https://example.com/"
                    ))
                })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut numbers = Vec::new();
    if let Some(path) = &args.targets {
        for line in targets::read(path)? {
            numbers.push(line.number);
            targets.push(line.target);
        }
    }
    let (mut probe, writer) = match &args.results {
        None => (set_up(config, args, &targets, &numbers, NullSink)?, None),
        Some(_) => {
            let (lines, writer) = lines();
            let probe = set_up(config, args, &targets, &numbers, lines)?;
            (probe, Some(writer))
        }
    };
    let urls = targets.iter().map(|target| target.url.as_str());
    if let Some(hint) = hints::of_targets(urls) {
        log::warn!("{hint}");
    }
    let log = begin_files(&mut probe, writer, args)?;
    if let Some(at) = args.admin {
        admin::listen(at, args.admin_token_file.as_deref(), |admin| {
            probe.serve(admin)
        })?;
    }
    let reason = watch(&mut probe, args.stall, log.as_ref());
    let lost = finish_files(&mut probe, log);
    let report = probe.report();
    if reason == FinishReason::BlockedAddress {
        let refused = report.first_errors.values().next();
        let refused = refused.map_or("", |(_, words)| words.as_str());
        anyhow::bail!("nothing was measured: {refused}");
    }
    let is_lost = !lost.is_empty();
    let faults = [lost, faults(&report, args)].concat();
    let shown = show(&report, &faults, args);
    for fault in &faults {
        stderr::write_line(&format!("argiope: {fault}"));
    }
    // A stop is how a probe without an end does end: what was found until then counts.
    let is_usual = args.every().is_some();
    Ok(match reason {
        FinishReason::Shutdown if faults.is_empty() || !is_usual && !is_lost => 3,
        _ if !faults.is_empty() => 1,
        _ => shown.map(|()| 0)?,
    })
}

/// `numbers`: the lines of the targets that were read from a file, which are the last ones.
fn set_up(
    config: Config,
    args: &Asked,
    targets: &[Request],
    numbers: &[u64],
    sink: impl DiskSink + 'static,
) -> anyhow::Result<Probe> {
    let line_of = |number: usize| numbers.get(number.checked_sub(args.urls.len())?).copied();
    Probe::new(config, args.settings(), targets, sink).map_err(|error| match error {
        // Its message already contains its cause.
        SetUpError::Io(_) => anyhow::Error::msg(error.to_string()),
        SetUpError::Setting { setting, reason } => {
            let named = args.option_of(setting).unwrap_or(setting);
            Usage(format!("{named}: {reason}")).into()
        }
        SetUpError::Target {
            number,
            earlier,
            reason,
        } => {
            let lines = (earlier.and_then(line_of), line_of(number));
            let path = args.targets.as_deref().unwrap_or(Path::new("")).display();
            Usage(match lines {
                (_, None) => format!("URL: {reason}"),
                (Some(first), Some(line)) => {
                    format!("--targets {path}, lines {first} and {line}: {reason}")
                }
                (None, Some(line)) => format!("--targets {path}, line {line}: {reason}"),
            })
            .into()
        }
        error => Usage(error.to_string()).into(),
    })
}

/// Opens the files of `--results` and `--hdr`, and starts their writers; returns the HDR log. Existing
/// files are truncated here, after all checks have passed.
fn begin_files(
    probe: &mut Probe,
    writer: Option<Writer>,
    args: &Asked,
) -> anyhow::Result<Option<HdrLog>> {
    let results = match &args.results {
        Some(path) if is_stdout(path) => Some(Output::stdout()?),
        Some(path) => Some(Output::open("--results", path)?),
        None => None,
    };
    let log = match &args.hdr {
        Some(path) => Some(Output::open("--hdr", path)?),
        None => None,
    };
    if let (Some(results), Some(log)) = (&results, &log)
        && results.is_same_file(log)?
    {
        let path = log.path().display();
        let words = format!("--hdr {path}: also the file of --results; name another file");
        return Err(Usage(words).into());
    }
    // After the files are open: opening a pipe waits for its reader, and Ctrl-C must end that.
    Received::watch()?.stop_on_signal(probe.stopper())?;
    for output in results.iter().chain(&log) {
        output.empty()?;
    }
    if let (Some(writer), Some(results)) = (writer, results) {
        writer.start(results)?;
    }
    let Some(log) = log else {
        return Ok(None);
    };
    probe.keep_intervals();
    Ok(Some(HdrLog::begin(log, probe.report().started)?))
}

/// Writes the remaining output; returns a line for each file that could not be written.
fn finish_files(probe: &mut Probe, log: Option<HdrLog>) -> Vec<String> {
    let mut errors: Vec<String> = probe
        .write_error()
        .map(ToString::to_string)
        .into_iter()
        .collect();
    if let Some(log) = log {
        log.put(probe.take_interval());
        errors.extend(log.finish().err().map(|error| error.to_string()));
    }
    let so_far = |error| format!("{error}; output written before is kept");
    errors.into_iter().map(so_far).collect()
}

/// Whether result lines use stdout; the report then goes to stderr.
fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Runs a probe to its end and shows its progress; returns the finish reason.
fn watch(probe: &mut Probe, stall: Duration, log: Option<&HdrLog>) -> FinishReason {
    let mut shown = Shown::new(false);
    let mut interval_ends = Instant::now() + INTERVAL;
    let reason = loop {
        let ended = probe.ended();
        if let Turn::Over(reason) = probe.turn(Some(PATIENCE)) {
            break reason;
        }
        if probe.ended() > ended {
            keep_busy(stall, probe);
        }
        if let Some(log) = log
            && Instant::now() >= interval_ends
        {
            interval_ends += INTERVAL;
            log.put(probe.take_interval());
        }
        shown.show_line(|| match probe.watch_counts() {
            Some(counts) => text::watched(&counts, probe.so_far(), probe.elapsed()),
            None => text::progress(probe.so_far(), probe.elapsed()),
        });
    };
    shown.end();
    reason
}

/// Simulates a slow handler: blocks the event loop for this time, or until the probe is stopped.
fn keep_busy(span: Duration, probe: &Probe) {
    let began = Instant::now();
    while began.elapsed() < span && !probe.is_stopping() {
        std::hint::spin_loop();
    }
}

/// Reasons for the command to fail, one line each.
fn faults(report: &ProbeReport, args: &Asked) -> Vec<String> {
    let mut faults = Vec::new();
    let is_cut_short = matches!(
        report.finish_reason,
        Some(FinishReason::Shutdown | FinishReason::SinkFailed)
    );
    if report.replies == 0 && !is_cut_short {
        let why = report.first_errors.values().next();
        let why = why.map_or(String::new(), |(url, words)| format!(": {url}: {words}"));
        faults.push(format!("no request was answered{why}"));
    } else if !report.is_rate_reached() && !is_cut_short && args.every().is_none() {
        faults.push(format!(
            "the rate was not reached: {:.1} of {} requests/s started in time ({} of {} due; \
             {} were not sent)",
            report.rate_reached(),
            report.rate,
            report.begun_in_time,
            report.due,
            report.unsent + report.dropped,
        ));
    }
    for ceiling in &args.fail_above {
        if let Some(exceeded) = ceiling.exceeded_by(report) {
            faults.push(format!("--fail-above {exceeded}"));
        }
    }
    faults
}

/// Writes the report to stdout, or to stderr if the result lines use stdout.
fn show(report: &ProbeReport, faults: &[String], args: &Asked) -> io::Result<()> {
    let text = if args.json {
        let mut all: Value = report.to_json().parse().expect("the report is JSON");
        all["stall"] = json!(args.stall.as_secs_f64());
        all["faults"] = Value::from(faults.to_vec());
        format!("{all}\n")
    } else {
        text::report(report)
    };
    match &args.results {
        Some(path) if is_stdout(path) => {
            stderr::write(&text);
            Ok(())
        }
        _ => settings::print(&text),
    }
}

/// Maximum wait of a turn, so that progress and intervals are on time.
const PATIENCE: Duration = Duration::from_millis(100);
/// Length of an interval in the HDR log.
const INTERVAL: Duration = Duration::from_secs(1);
