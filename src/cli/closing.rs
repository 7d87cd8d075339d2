//! The last lines of a crawl's summary: where its results are, what was left, and the command that continues.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use argiope::{Config, FinishReason, PageKind, Progress, Stats, Totals};
use serde_json::Value;

use super::pending;
use super::rejected::NAME as REJECTED;
use super::shell::quoted;

/// A crawl that has ended.
pub struct Closing<'a> {
    /// Its output directory.
    pub out: &'a Path,
    /// Whether result lines went to standard output.
    pub to_stdout: bool,
    /// Whether it has a state, from which it can be resumed.
    pub has_state: bool,
    /// Number of requests that were left.
    pub left: u64,
    /// Number of seeds that could not be sent, and whether a file has them.
    pub rejected: (u64, bool),
    pub reason: FinishReason,
    /// What limits count.
    pub totals: Totals,
    /// Whether a request was sent, or may have been by an earlier run: what that left must not be given up.
    pub has_sent: bool,
    pub config: &'a Config,
}

impl Closing<'_> {
    /// The lines.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, words: &str| {
            let _ = writeln!(text, "  {name:<15}{words}");
        };
        let shown = self.out.display();
        line("output", &self.files());
        if let (count @ 1.., true) = self.rejected {
            let all = format!("{count} invalid seeds are in {shown}/{REJECTED}");
            line("rejected", &all);
        }
        match self.left {
            0 => {
                line("still queued", "nothing");
                if !self.has_sent {
                    // What prevented it may be mended at once.
                    line(
                        "begin anew",
                        "no request was sent; the corrected command needs --overwrite",
                    );
                }
            }
            left => {
                line("still queued", &format!("{left} requests"));
                line("continue", &self.command());
            }
        }
        text
    }

    /// The directory, and what it has.
    fn files(&self) -> String {
        let mut files = Vec::new();
        if !self.to_stdout {
            files.push("results");
        }
        if self.config.warc_size_max().is_some() {
            files.push("WARC files");
        }
        files.push("statistics");
        format!("{} ({})", self.out.display(), files.join(", "))
    }

    /// The command that continues, with a higher limit if that was reached.
    fn command(&self) -> String {
        let out = self.out;
        if !self.has_state {
            let pending = quoted(&out.join(pending::NAME));
            return format!("the same command with --seeds {pending} and another --out");
        }
        let mut command = format!("argiope crawl --resume --out {}", quoted(out));
        if let Some(limit) = self.raised() {
            let _ = write!(command, " {limit}");
        }
        command
    }

    /// Twice the limit that ended the crawl, since limits are for all its runs.
    fn raised(&self) -> Option<String> {
        let Totals {
            pages,
            errors,
            bytes,
            active,
            ..
        } = self.totals;
        let (flag, name, reached) = match self.reason {
            FinishReason::PageCount => ("--max-pages ", "CLOSESPIDER_PAGECOUNT", pages),
            FinishReason::ByteCount => ("--max-bytes ", "CLOSESPIDER_BYTECOUNT", bytes),
            FinishReason::ErrorCount => (
                "-s CLOSESPIDER_ERRORCOUNT=",
                "CLOSESPIDER_ERRORCOUNT",
                errors,
            ),
            FinishReason::Timeout => {
                let value = Value::from(self.config.get("CLOSESPIDER_TIMEOUT")?);
                let limit = Duration::try_from_secs_f64(value.as_f64()?).ok()?;
                // Of whole seconds, so that it is short.
                let reached = Duration::from_secs(active.as_secs());
                let is_beyond = reached > limit.saturating_add(limit / 2);
                let higher = limit.saturating_add(if is_beyond { reached } else { limit });
                return Some(format!("--max-time {}s", higher.as_secs_f64()));
            }
            _ => return None,
        };
        let limit = Value::from(self.config.get(name)?).as_u64()?;
        // What was in flight then is completed: if that was much, as much is left as the limit was.
        let is_beyond = reached > limit.saturating_add(limit / 2);
        let higher = limit.saturating_add(if is_beyond { reached } else { limit });
        Some(format!("{flag}{higher}"))
    }
}

/// A warning if there were seeds or URLs of sitemaps, and each was left out: by which filter, and how it is changed.
pub fn warning_of_filters(stats: &Stats, progress: &Progress) -> Option<String> {
    let count_of = |name: &str| stats.by_error.get(name).copied().unwrap_or(0);
    let disallowed = count_of("robots.disallowed");
    let of_kind = |kind| stats.by_kind.get(&kind).copied().unwrap_or(0);
    let is_all = of_kind(PageKind::Page) == disallowed && progress.queued == 0;
    // Seeds, too, but not those that were filtered.
    let what = match of_kind(PageKind::Sitemap) {
        0 => "every seed",
        _ => "every URL of the sitemaps",
    };
    let mut by = Vec::new();
    for (filter, count) in &progress.filtered {
        let name = filter.as_str();
        let found = FILTERS.iter().find(|(known, _)| *known == name);
        by.push(match found {
            Some((_, setting)) => format!("{count} by {setting} (filtered.{name})"),
            None => format!("{count} as filtered.{name}"),
        });
    }
    if disallowed > 0 {
        by.push(format!(
            "{disallowed} by robots.txt (robots.disallowed; --ignore-robots)"
        ));
    }
    (is_all && !by.is_empty()).then(|| format!("{what} was filtered: {}", by.join(", ")))
}

/// What sets a filter.
const FILTERS: [(&str, &str); 8] = [
    ("url_length", "URLLENGTH_LIMIT"),
    ("depth", "--max-depth"),
    ("denied", "--deny"),
    ("not_allowed", "--allow"),
    ("excluded", "--exclude"),
    ("max_pages_per_host", "--max-pages-per-host"),
    ("max_pages_per_domain", "PAGES_PER_DOMAIN_MAX"),
    ("max_bytes_per_domain", "BYTES_PER_DOMAIN_MAX"),
];

#[cfg(test)]
mod tests {
    use argiope::Filtered;

    use super::*;

    fn closing<'a>(config: &'a Config, reason: FinishReason, left: u64) -> Closing<'a> {
        Closing {
            out: Path::new("my crawl"),
            to_stdout: false,
            has_state: true,
            left,
            rejected: (0, false),
            reason,
            totals: Totals::default(),
            has_sent: true,
            config,
        }
    }

    #[test]
    fn the_command_that_continues_raises_the_limit_that_was_reached() {
        let check = |reason, setting: (&str, &str), expected: &str| {
            let config = Config::default().with(setting.0, setting.1).expect("valid");
            let text = closing(&config, reason, 3).lines();
            let command = format!("argiope crawl --resume --out 'my crawl'{expected}\n");
            assert!(text.ends_with(&command), "{text}");
            assert!(text.contains("still queued   3 requests\n"), "{text}");
        };
        let pages = ("CLOSESPIDER_PAGECOUNT", "50");
        check(FinishReason::PageCount, pages, " --max-pages 100");
        let bytes = ("CLOSESPIDER_BYTECOUNT", "1KiB");
        check(FinishReason::ByteCount, bytes, " --max-bytes 2048");
        let time = ("CLOSESPIDER_TIMEOUT", "1500ms");
        check(FinishReason::Timeout, time, " --max-time 3s");
        let errors = ("CLOSESPIDER_ERRORCOUNT", "2");
        check(
            FinishReason::ErrorCount,
            errors,
            " -s CLOSESPIDER_ERRORCOUNT=4",
        );
        check(FinishReason::Shutdown, pages, "");
        // A limit that the next run has reached ends it at once.
        let mut totals = Totals::default();
        totals.bytes = 10_000_000;
        totals.active = Duration::from_millis(9400);
        let raised = |reason, (name, value): (&str, &str)| {
            let config = Config::default().with(name, value).expect("valid");
            let closing = Closing {
                totals,
                ..closing(&config, reason, 3)
            };
            closing.raised()
        };
        let found = raised(FinishReason::ByteCount, bytes);
        assert_eq!(found.as_deref(), Some("--max-bytes 10001024"));
        let found = raised(FinishReason::Timeout, time);
        assert_eq!(found.as_deref(), Some("--max-time 10.5s"));
    }

    #[test]
    fn where_results_are_and_what_was_left_is_said_in_each_case() {
        let config = Config::default();
        let finished = closing(&config, FinishReason::Finished, 0);
        assert_eq!(
            finished.lines(),
            "  output         my crawl (results, WARC files, statistics)\n  still queued   nothing\n"
        );
        let stateless = Closing {
            has_state: false,
            to_stdout: true,
            rejected: (12, true),
            left: 1,
            ..finished
        };
        let text = stateless.lines();
        assert!(text.contains("my crawl (WARC files, statistics)"), "{text}");
        assert!(
            text.contains("12 invalid seeds are in my crawl/rejected.jsonl"),
            "{text}"
        );
        assert!(
            text.contains("--seeds 'my crawl/pending.jsonl' and another --out"),
            "{text}"
        );
    }

    #[test]
    fn a_warning_names_the_filters_only_if_every_seed_was_left_out() {
        let check =
            |pages: u64, filters: &[(Filtered, u64)], disallowed: u64, expected: &[&str]| {
                let mut stats = Stats::new();
                stats.by_kind.insert(PageKind::Page, pages);
                if disallowed > 0 {
                    stats
                        .by_error
                        .insert("robots.disallowed".to_owned(), disallowed);
                }
                let mut progress = Progress::default();
                progress.filtered.extend(filters.iter().copied());
                let warning = warning_of_filters(&stats, &progress);
                assert_eq!(warning.is_some(), !expected.is_empty(), "{warning:?}");
                for part in expected {
                    assert!(
                        warning.as_deref().unwrap_or("").contains(part),
                        "{warning:?}"
                    );
                }
            };
        check(0, &[], 0, &[]);
        check(1, &[(Filtered::Denied, 3)], 0, &[]);
        let both = [(Filtered::Denied, 3), (Filtered::NotAllowed, 1)];
        check(
            0,
            &both,
            0,
            &["3 by --deny", "1 by --allow", "filtered.denied"],
        );
        check(
            2,
            &[],
            2,
            &["every seed", "2 by robots.txt", "--ignore-robots"],
        );
        check(3, &[], 2, &[]);
        check(
            0,
            &[(Filtered::Duplicate, 1)],
            0,
            &["1 as filtered.duplicate"],
        );
        let mut stats = Stats::new();
        stats.by_kind.insert(PageKind::Sitemap, 1);
        let mut progress = Progress::default();
        progress.filtered.insert(Filtered::Denied, 7);
        let warning = warning_of_filters(&stats, &progress);
        let expected = "every URL of the sitemaps was filtered: 7 by --deny";
        assert!(warning.is_some_and(|warning| warning.starts_with(expected)));
    }
}
