//! A probe's report as text.

use std::fmt::Write;
use std::time::Duration;

use argiope::probe::{Measure, ProbeReport, WatchCounts};
use argiope::{FinishReason, Spread};

use crate::cli::progress::{clock, span};

/// The whole report, several lines.
pub fn report(report: &ProbeReport) -> String {
    let mut out = String::new();
    let reason = report.finish_reason.map_or("running", FinishReason::as_str);
    let _ = writeln!(
        out,
        "{reason}: {:.1} of {} requests/s, over {} ({} arrivals, seed {}, {})",
        report.rate_reached(),
        report.rate,
        span(report.span),
        report.arrivals.as_str(),
        report.seed,
        report.io,
    );
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<13}{text}");
    };
    line("requests", requests(report));
    let status = report.by_status.iter();
    let status: Vec<_> = status.map(|(code, n)| format!("{code}: {n}")).collect();
    line("status", joined(&status));
    let errors = report.by_error.iter();
    let errors: Vec<_> = errors.map(|(code, n)| format!("{code}: {n}")).collect();
    line("errors", joined(&errors));
    for (url, words) in report.first_errors.values().take(ERRORS_EXPLAINED) {
        line("", format!("{url}: {words}"));
    }
    line(
        "connections",
        format!(
            "{} opened, at most {} at once",
            report.connections, report.connections_max
        ),
    );
    line(
        "stamps",
        format!(
            "{} exact, {} upper bounds (kernel); {} in user space",
            report.exact, report.bound, report.user
        ),
    );
    if report.replies == 0 {
        return out;
    }
    out.push('\n');
    table(&mut out, report);
    out.push('\n');
    histogram(&mut out, report.spread(Measure::Due));
    out
}

/// Its progress, in one line.
pub fn progress(report: &ProbeReport, elapsed: Duration) -> String {
    let due = report.spread(Measure::Due);
    let quantile = |share| due.quantile(share).map_or("-".to_owned(), span);
    format!(
        "{}  {} due  {} replies  {} errors  p50 {}  p99 {}",
        clock(elapsed),
        report.due,
        report.replies,
        report.errors(),
        quantile(0.5),
        quantile(0.99),
    )
}

/// The progress of a probe of targets that are requested over and over, in one line.
pub fn watched(counts: &WatchCounts, report: &ProbeReport, elapsed: Duration) -> String {
    let lateness = report.spread(Measure::Lateness).quantile(0.99);
    format!(
        "{}  {} targets  {} up  {} pending  {} succeeded  {} failed  {} skipped  lateness p99 {}",
        clock(elapsed),
        counts.targets,
        counts.up,
        counts.pending,
        counts.succeeded,
        counts.failed,
        counts.skipped,
        lateness.map_or("-".to_owned(), span),
    )
}

fn requests(report: &ProbeReport) -> String {
    let mut text = format!(
        "{} due, {} sent, {} replies, {} errors",
        report.due,
        report.sent,
        report.replies,
        report.errors()
    );
    let more = [
        (
            report.retried,
            "repeated because a reused connection was closed",
        ),
        (report.unsent, "not sent, still waiting at the end"),
        (report.dropped, "not sent, dropped because too many waited"),
        (
            report.skipped,
            "not sent, as the one before to the same target was open, the next one due, or requests were held back",
        ),
        (report.warmup, "in the warm-up"),
    ];
    for (count, what) in more {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text
}

/// A row for each measure that has samples.
fn table(out: &mut String, report: &ProbeReport) {
    let _ = write!(out, "{:<12}", "");
    for (name, _) in QUANTILES {
        let _ = write!(out, "{name:>10}");
    }
    let _ = writeln!(out, "{:>10}{:>9}", "max", "count");
    for measure in Measure::ALL {
        let spread = report.spread(measure);
        if spread.count() == 0 {
            continue;
        }
        let _ = write!(out, "{:<12}", measure.as_str());
        for (_, share) in QUANTILES {
            let _ = write!(out, "{:>10}", shown(spread.quantile(*share)));
        }
        let _ = writeln!(
            out,
            "{:>10}{:>9}  {}",
            shown(spread.max()),
            spread.count(),
            meaning(measure)
        );
    }
}

fn meaning(measure: Measure) -> &'static str {
    match measure {
        Measure::Due => "from due to the end of the head: latency for a user",
        Measure::Sent => "from departure to the end of the head: latency of the server",
        Measure::Whole => "from due to the end of the body",
        Measure::Wait => "from due to the start of the request: wait for a connection",
        Measure::Dns => "DNS lookup",
        Measure::Connect => "TCP handshake",
        Measure::Tls => "TLS handshake",
        Measure::FirstByte => "from departure to the first byte",
        Measure::Headers => "from the first byte to the end of the head",
        Measure::Body => "from the end of the head to that of the body",
        Measure::Lateness => "from due and connected to departure: delay by this machine",
        other => other.as_str(),
    }
}

/// Histogram of the latencies from due, with steps 1-2-5 per decade.
fn histogram(out: &mut String, spread: &Spread) {
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for (span, count) in spread.buckets() {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let mut top = steps
            .last()
            .map_or_else(|| first_step(nanos), |(top, _)| *top);
        if steps.is_empty() {
            steps.push((top, 0));
        }
        while top < nanos {
            top = next_step(top);
            steps.push((top, 0));
        }
        if let Some((_, counted)) = steps.last_mut() {
            *counted += count;
        }
    }
    let most = steps.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let _ = writeln!(out, "latency from due");
    let mut below = 0;
    for (top, count) in steps {
        below += count;
        let share = 100.0 * below as f64 / spread.count() as f64;
        let top = span(Duration::from_nanos(top));
        let _ = writeln!(
            out,
            "  <= {top:>8} {count:>9} {share:>7.2} %  {}",
            bar(count, most)
        );
    }
}

/// The first 1-2-5 step of at least `nanos`.
fn first_step(nanos: u64) -> u64 {
    let mut step = 1000;
    while step < nanos {
        step = next_step(step);
    }
    step
}

fn next_step(step: u64) -> u64 {
    let mut digit = step;
    while digit >= 10 {
        digit /= 10;
    }
    match digit {
        2 => step / 2 * 5,
        _ => step.saturating_mul(2),
    }
}

/// A bar of length `count / most`, in eighths of a column; at least one eighth if `count` is not 0.
fn bar(count: u64, most: u64) -> String {
    if count == 0 {
        return String::new();
    }
    let share = count as f64 / most as f64;
    let eighths = ((share * BAR_COLUMNS as f64 * 8.0).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    let rest = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    bar.extend((eighths % 8).checked_sub(1).map(|at| rest[at]));
    bar
}

fn shown(value: Option<Duration>) -> String {
    value.map_or_else(|| "-".to_owned(), span)
}

fn joined(parts: &[String]) -> String {
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join("  "),
    }
}

const QUANTILES: &[(&str, f64)] = &[("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Maximum error codes that are shown with an example.
const ERRORS_EXPLAINED: usize = 3;
const BAR_COLUMNS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_one_two_and_five_of_each_decade() {
        let steps: Vec<u64> = std::iter::successors(Some(1000), |step| Some(next_step(*step)))
            .take(7)
            .collect();
        assert_eq!(steps, [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]);
        assert_eq!(first_step(1), 1000);
        assert_eq!(first_step(20_001), 50_000);
    }

    #[test]
    fn a_bar_has_the_length_of_its_share_and_at_least_one_eighth() {
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(10, 10).chars().count(), BAR_COLUMNS);
        assert_eq!(bar(5, 10).chars().count(), BAR_COLUMNS / 2);
        assert_eq!(bar(1, 1_000_000), "▏");
    }

    #[test]
    fn a_histogram_has_a_row_for_each_step_from_shortest_to_longest() {
        let mut spread = Spread::new();
        for _ in 0..30 {
            spread.record(Duration::from_micros(1500));
        }
        spread.record(Duration::from_millis(9));
        let mut out = String::new();
        histogram(&mut out, &spread);
        let rows: Vec<Vec<&str>> = out
            .lines()
            .skip(1)
            .map(|row| row.split_whitespace().take(4).collect())
            .collect();
        assert_eq!(rows[0], ["<=", "2.0", "ms", "30"]);
        assert_eq!(rows[1], ["<=", "5.0", "ms", "0"]);
        assert_eq!(rows[2], ["<=", "10.0", "ms", "1"]);
        assert_eq!(rows.len(), 3);
        assert!(out.contains("100.00 %"), "{out}");
    }
}
