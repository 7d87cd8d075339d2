//! Summary printed at the end of a crawl.

use std::fmt::Write;

use argiope::{
    Filtered, FinishReason, PaceReport, PageKind, Progress, RemarkKind, Spread, Stats, Tally,
};

use super::progress::{bytes, clock, span};

/// Number of slowest and of most refused scopes that are shown.
const SCOPES_NAMED: usize = 5;
/// Of those so many are looked at.
const SCOPES_RANKED: usize = 4 * SCOPES_NAMED;
/// Number of longest waiting scopes that are shown.
const WAITS_NAMED: usize = 3;
/// Kinds of remarks, the most important first, with the maximum shown of each; and the maximum in
/// total.
const REMARKS: [RemarkKind; 6] = [
    RemarkKind::Suspect,
    RemarkKind::Blocked,
    RemarkKind::Slow,
    RemarkKind::Ineffective,
    RemarkKind::BelowTarget,
    RemarkKind::Unthrottled,
];
const REMARKS_EACH: usize = 2;
const REMARKS_IN_ALL: usize = 6;
/// As [`REMARKS`], with `-v`.
const REMARKS_VERBOSE: usize = 100;
/// Number of most frequent errors that are shown with an example.
const ERRORS_EXPLAINED: usize = 3;
/// Maximum characters of a URL that are shown.
const URL_CHARS: usize = 80;

/// The whole summary, several lines; more with `verbose`.
pub fn summary(stats: &Stats, progress: &Progress, pacing: &PaceReport, verbose: bool) -> String {
    let mut out = String::new();
    let seconds = progress.elapsed.as_secs_f64().max(1e-9);
    let reason = progress.finish_reason.map_or("running", ending);
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
    let robots = stats.by_kind.get(&PageKind::Robots).copied().unwrap_or(0);
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
        let bad = format!("{} lines of the seeds were invalid", stats.seeds_bad);
        line(&mut out, "seeds", &bad);
    }
    if let Some(dropped) = progress.filtered.get(&Filtered::FrontierFull) {
        let dropped = format!("{dropped} links dropped, because FRONTIER_MAX requests were queued");
        line(&mut out, "frontier full", &dropped);
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
        "slowest (mean)",
        &scopes(stats.slowest_scopes(SCOPES_RANKED), |tally| {
            tally.latency_mean().map_or_else(String::new, span)
        }),
    );
    line(
        &mut out,
        "most refused",
        &scopes(stats.most_refused_scopes(SCOPES_RANKED), |tally| {
            format!("{} of {}", tally.refused, tally.sent)
        }),
    );
    line(&mut out, "waited longest", &waits(pacing));
    remarks(&mut out, pacing, verbose);
    out
}

/// How it ended, by the flag that says when.
fn ending(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Shutdown => "stopped",
        FinishReason::PageCount => "stopped at --max-pages",
        FinishReason::ByteCount => "stopped at --max-bytes",
        FinishReason::Timeout => "stopped at --max-time",
        FinishReason::ErrorCount => "stopped at CLOSESPIDER_ERRORCOUNT",
        reason => reason.as_str(),
    }
}

/// The scopes that waited longest, their waits, and the main cause of each.
fn waits(pacing: &PaceReport) -> String {
    let waits: Vec<String> = pacing
        .scopes
        .iter()
        .filter_map(|scope| {
            let (cause, _) = scope.waited_most()?;
            let all = scope.waited.values().sum();
            Some(format!("{} {} ({cause})", scope.scope, span(all)))
        })
        .take(WAITS_NAMED)
        .collect();
    joined(&waits)
}

/// Remarks on scopes, with remedies.
fn remarks(out: &mut String, pacing: &PaceReport, verbose: bool) {
    let (each, in_all) = match verbose {
        false => (REMARKS_EACH, REMARKS_IN_ALL),
        true => (REMARKS_VERBOSE, REMARKS_VERBOSE),
    };
    let (mut shown, mut more) = (0, 0);
    for about in REMARKS {
        let mut of_kind = 0;
        for scope in &pacing.scopes {
            for remark in scope.remarks.iter().filter(|remark| remark.about == about) {
                if of_kind < each && shown < in_all {
                    let words = format!("{}: {}", scope.scope, remark.words);
                    line(out, about.as_str(), &words);
                    shown += 1;
                } else {
                    more += 1;
                }
                of_kind += 1;
            }
        }
    }
    if more > 0 {
        line(
            out,
            "",
            &format!("  {:<15}{more} more remarks: -v, stats.json", ""),
        );
    }
}

/// The first URL and detail of each of the most frequent errors, most frequent first.
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

/// A URL, shortened to fit on a line with its remark.
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

/// The scope of a Crawl-delay has the requests of its host, and would stand there a second time.
fn scopes(list: Vec<(&str, Tally)>, value: impl Fn(&Tally) -> String) -> String {
    let own = list.iter().filter(|(name, _)| !name.starts_with("host/"));
    let parts: Vec<String> = own
        .take(SCOPES_NAMED)
        .map(|(name, tally)| format!("{name} {}", value(tally)))
        .collect();
    joined(&parts)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use argiope::{Pace, Remark, ScopePacing, WaitCause};

    use super::*;

    /// A scope that waited `seconds`, with a remark of each of these kinds.
    fn scope(name: &str, seconds: u64, remarks: &[RemarkKind]) -> ScopePacing {
        let pace = Pace {
            delay: Duration::ZERO,
            concurrency: 1,
        };
        let mut pacing = ScopePacing::new(name, pace);
        pacing
            .waited
            .insert(WaitCause::Delay, Duration::from_secs(seconds));
        pacing
            .waited
            .insert(WaitCause::Robots, Duration::from_secs(1));
        pacing.remarks.extend(
            remarks
                .iter()
                .map(|&about| Remark::new(about, format!("words of {about}"))),
        );
        pacing
    }

    #[test]
    fn remarks_take_ten_lines_at_most_and_the_most_important_come_first() {
        let kinds = [
            RemarkKind::Unthrottled,
            RemarkKind::Idle,
            RemarkKind::Slow,
            RemarkKind::Blocked,
            RemarkKind::Ineffective,
        ];
        let scopes: Vec<ScopePacing> = (0..40)
            .map(|number| scope(&format!("{number}.test"), 100 - number, &kinds))
            .collect();
        let mut pacing = PaceReport::default();
        pacing.scopes = scopes;
        let shown = |pacing: &PaceReport, verbose| {
            let all = summary(&Stats::new(), &Progress::default(), pacing, verbose);
            let (_, scopes) = all.split_once("  slowest").expect("scopes come last");
            scopes.to_owned()
        };
        let text = shown(&pacing, false);
        assert_eq!(text.lines().count(), 10, "{text}");
        assert!(
            text.contains("  waited longest 0.test 101.00 s (delay)  1.test"),
            "{text}"
        );
        let blocked = text.find("blocked").expect("it is reported");
        assert!(
            blocked < text.find("slow  ").expect("it is reported"),
            "{text}"
        );
        assert!(text.contains("0.test: words of ineffective"), "{text}");
        assert!(text.contains("154 more remarks"), "{text}");
        // An idle scope gets no line.
        assert!(!text.contains("idle"), "{text}");
        assert!(shown(&pacing, true).lines().count() > 100);

        pacing.scopes.truncate(1);
        pacing.scopes[0].remarks.clear();
        assert_eq!(shown(&pacing, false).lines().count(), 3);
    }

    #[test]
    fn the_most_frequent_errors_are_shown_with_their_first_example() {
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
        let text = summary(&stats, &Progress::default(), &PaceReport::default(), false);
        let explained: Vec<&str> = text.lines().filter(|line| line.contains("words")).collect();
        let expected = ["dns.nxdomain", "timeout.connect", "connect.refused"];
        assert_eq!(explained.len(), expected.len(), "{text}");
        for (line, name) in explained.iter().zip(expected) {
            assert!(line.ends_with(&format!(": words of {name}")), "{text}");
            assert!(line.chars().count() < 140, "{text}");
        }
    }
}
