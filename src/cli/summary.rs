//! What a person reads at the end of a crawl.

use std::fmt::Write;

use argiope::{Progress, Spread, Stats, Tally};

use super::progress::{bytes, clock, span};

/// How many of the slowest and of the most refused scopes are named.
const SCOPES_NAMED: usize = 5;
/// How many of the commonest errors are explained by an example.
const ERRORS_EXPLAINED: usize = 3;
/// How much of a URL is shown.
const URL_CHARS: usize = 80;

/// The whole summary, several lines.
pub fn summary(stats: &Stats, progress: &Progress) -> String {
    let mut out = String::new();
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    let reason = progress.finish_reason.unwrap_or("running");
    line(
        &mut out,
        "",
        &format!(
            "{reason} after {}: {} pages, {:.1} pages/s, {} over the wire",
            clock(progress.elapsed),
            stats.pages,
            stats.pages as f64 / seconds,
            bytes(stats.bytes_wire),
        ),
    );
    let robots = stats.by_kind.get("robots").copied().unwrap_or(0);
    let filtered: u64 = progress.filtered.values().sum();
    line(
        &mut out,
        "attempts",
        &format!(
            "{} ({robots} robots.txt), {} connections, {} reused; {} links, {filtered} filtered, {} queued",
            stats.attempts, stats.connections, stats.reused, stats.links, progress.queued
        ),
    );
    if stats.seeds_bad > 0 {
        let bad = format!(
            "{} lines of the seeds were no URL to fetch",
            stats.seeds_bad
        );
        line(&mut out, "seeds", &bad);
    }
    let status: Vec<String> = stats
        .by_status
        .iter()
        .map(|(status, count)| format!("{status}: {count}"))
        .collect();
    line(&mut out, "status", &joined(&status));
    let errors: Vec<String> = stats
        .by_error
        .iter()
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    line(&mut out, "errors", &joined(&errors));
    for (url, words) in commonest_errors(stats) {
        line(
            &mut out,
            "",
            &format!("  {:<15}{}: {words}", "", shortened(url)),
        );
    }
    line(&mut out, "latency", &spread(&stats.latency));
    line(&mut out, "server latency", &spread(&stats.server_latency));
    line(&mut out, "lateness", &spread(&stats.lateness));
    line(
        &mut out,
        "slowest",
        &scopes(&stats.slowest_scopes(SCOPES_NAMED), |tally| {
            tally.latency_mean().map_or_else(String::new, span)
        }),
    );
    line(
        &mut out,
        "most refused",
        &scopes(&stats.most_refused_scopes(SCOPES_NAMED), |tally| {
            format!("{} of {}", tally.refused, tally.sent)
        }),
    );
    out
}

/// The first URL and words of each of the commonest errors, commonest first.
fn commonest_errors(stats: &Stats) -> Vec<(&str, &str)> {
    let mut ranked: Vec<_> = stats.by_error.iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    ranked
        .into_iter()
        .take(ERRORS_EXPLAINED)
        .filter_map(|(name, _)| stats.first_errors.get(name))
        .map(|(url, words)| (&**url, words.as_str()))
        .collect()
}

/// A URL as far as it fits on a line with what is said of it.
fn shortened(url: &str) -> String {
    match url.char_indices().nth(URL_CHARS) {
        Some((end, _)) => format!("{}…", &url[..end]),
        None => url.to_owned(),
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    if name.is_empty() {
        let _ = writeln!(out, "{text}");
    } else {
        let _ = writeln!(out, "  {name:<15}{text}");
    }
}

fn joined(parts: &[String]) -> String {
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join("  ")
    }
}

fn spread(spread: &Spread) -> String {
    let at = |share: f64| spread.quantile(share).map_or_else(String::new, span);
    if spread.count() == 0 {
        return "none measured".to_owned();
    }
    format!(
        "p50 {}  p90 {}  p99 {}  max {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    )
}

fn scopes(list: &[(&str, Tally)], told: impl Fn(&Tally) -> String) -> String {
    let parts: Vec<String> = list
        .iter()
        .map(|(name, tally)| format!("{name} {}", told(tally)))
        .collect();
    joined(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_errors_are_explained_by_their_first_example() {
        let mut stats = Stats::new();
        let long = format!("http://a.test/{}", "x".repeat(200));
        for (name, count, url) in [
            ("connect.refused", 2, "http://b.test/"),
            ("dns.nxdomain", 9, &*long),
            ("reset.reset", 1, "http://c.test/"),
            ("timeout.connect", 5, "http://d.test/"),
        ] {
            stats.by_error.insert(name.to_owned(), count);
            let first = (url.into(), format!("words of {name}"));
            stats.first_errors.insert(name.to_owned(), first);
        }
        let told = summary(&stats, &Progress::default());
        let explained: Vec<&str> = told.lines().filter(|line| line.contains("words")).collect();
        let expected = ["dns.nxdomain", "timeout.connect", "connect.refused"];
        assert_eq!(explained.len(), expected.len(), "{told}");
        for (line, name) in explained.iter().zip(expected) {
            assert!(line.ends_with(&format!(": words of {name}")), "{told}");
            assert!(line.chars().count() < 140, "{told}");
        }
    }
}
