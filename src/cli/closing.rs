//! The last lines of a crawl's summary: where its results are, what was left, and the command that continues.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use argiope::parts::UrlCheck;
use argiope::{
    Config, CrawlUrl, Filtered, FinishReason, PageKind, Progress, Request, Stats, Totals,
};
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
        if self.has_no_page()
            && let Some(limit) = self.bytes_max()
        {
            let words = format!(
                "--max-bytes is {limit} bytes, and no page was received before; write a larger one, such as \
                 --max-bytes {BYTES_USUAL}"
            );
            line("limit", &words);
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
                let requests = if left == 1 { "request" } else { "requests" };
                line("still queued", &format!("{left} {requests}"));
                line("continue", &self.command());
            }
        }
        text
    }

    /// Whether the limit of bytes was reached before a page was received.
    fn has_no_page(&self) -> bool {
        self.reason == FinishReason::ByteCount && self.totals.pages == 0
    }

    /// The limit of bytes.
    fn bytes_max(&self) -> Option<u64> {
        Value::from(self.config.get("CLOSESPIDER_BYTECOUNT")?).as_u64()
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
        if self.has_no_page() && reached < BYTES_ENOUGH {
            return Some(format!("{flag}{BYTES_USUAL}"));
        }
        // What was in flight then is completed: if that was much, as much is left as the limit was.
        let is_beyond = reached > limit.saturating_add(limit / 2);
        let higher = limit.saturating_add(if is_beyond { reached } else { limit });
        Some(format!("{flag}{higher}"))
    }
}

/// A limit of bytes for some thousand pages, and the same as a number.
const BYTES_USUAL: &str = "100MB";
const BYTES_ENOUGH: u64 = 100_000_000;

/// A warning if there were seeds or URLs of sitemaps, and each was left out: by which filter, and how it is changed.
/// `urls`: those of the command line; `has_out`: whether there is an output directory.
pub fn warning_of_filters(
    stats: &Stats,
    progress: &Progress,
    (config, urls): (&Config, &[String]),
    has_out: bool,
) -> Option<String> {
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
        let again = match has_out {
            true => "--overwrite --ignore-robots begins anew without it",
            false => "--ignore-robots fetches them",
        };
        by.push(format!(
            "{disallowed} by robots.txt (robots.disallowed; where its operator agrees, {again})"
        ));
    }
    if !is_all || by.is_empty() {
        return None;
    }
    let mut text = format!("{what} was filtered: {}", by.join(", "));
    if progress.filtered.contains_key(&Filtered::NotAllowed) {
        let _ = write!(text, ": {}", cure_of_allow(config, urls));
    }
    Some(text)
}

/// What to change where a seed does not match a pattern of `--allow`. It names the first of these URLs that does not.
fn cure_of_allow(config: &Config, urls: &[String]) -> String {
    let patterns = config.get("ALLOW").map(Value::from).unwrap_or_default();
    let patterns: Vec<&str> = (patterns.as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let mut flags: Vec<String> = (patterns.iter().take(PATTERNS_SHOWN))
        .map(|pattern| format!("--allow {}", quoted(Path::new(pattern))))
        .collect();
    if patterns.len() > PATTERNS_SHOWN {
        flags.push("…".to_owned());
    }
    let flags = flags.join(" ");
    let is_left_out = |url: &CrawlUrl| {
        let check = UrlCheck::new(config).ok();
        let left_out = check.and_then(|check| check.check(url, 0).err());
        left_out.is_some_and(|left_out| left_out.filter == Filtered::NotAllowed.as_str())
    };
    let seed = urls.iter().find_map(|url| {
        let request = Request::from_line(url).ok()??;
        let url = CrawlUrl::parse(&request.url).ok()?;
        is_left_out(&url).then(|| url.to_string())
    });
    match seed {
        Some(seed) => {
            let word = quoted(Path::new(&seed));
            format!(
                "{seed} does not match {flags}: give a seed that does, or a pattern that also matches it; \
                 `argiope url {word} {flags}` explains"
            )
        }
        None => format!(
            "no seed matches {flags}: give seeds that do, or a pattern that also matches them; `argiope url SEED \
             {flags}` explains"
        ),
    }
}

/// Patterns that a warning shows.
const PATTERNS_SHOWN: usize = 3;

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
    use super::*;

    fn closing<'a>(config: &'a Config, reason: FinishReason, left: u64) -> Closing<'a> {
        let mut totals = Totals::default();
        totals.pages = 1;
        Closing {
            out: Path::new("my crawl"),
            to_stdout: false,
            has_state: true,
            left,
            rejected: (0, false),
            reason,
            totals,
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
        totals.pages = 3;
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
    fn a_limit_of_bytes_that_is_reached_before_a_page_is_shown_with_a_larger_one() {
        let config = Config::default().with("CLOSESPIDER_BYTECOUNT", 100);
        let config = config.expect("valid");
        let with_page = closing(&config, FinishReason::ByteCount, 1);
        assert!(!with_page.lines().contains("  limit "));
        let totals = Totals::default();
        let text = Closing {
            totals,
            ..with_page
        };
        let text = text.lines();
        let words =
            "limit          --max-bytes is 100 bytes, and no page was received before; write";
        assert!(text.contains(words), "{text}");
        assert!(text.contains("still queued   1 request\n"), "{text}");
        assert!(
            text.ends_with("--out 'my crawl' --max-bytes 100MB\n"),
            "{text}"
        );
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
                let config = Config::default().with("ALLOW", "/docs/").expect("valid");
                let urls = ["http://a.test/".to_owned()];
                let warning = warning_of_filters(&stats, &progress, (&config, &urls), true);
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
            &[
                "3 by --deny",
                "1 by --allow",
                "filtered.denied",
                "http://a.test/ does not match --allow /docs/: give a seed that does",
                "`argiope url http://a.test/ --allow /docs/` explains",
            ],
        );
        check(
            2,
            &[],
            2,
            &[
                "every seed",
                "2 by robots.txt",
                "--overwrite --ignore-robots",
            ],
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
        let config = Config::default();
        let warning = warning_of_filters(&stats, &progress, (&config, &[]), true);
        let expected = "every URL of the sitemaps was filtered: 7 by --deny";
        assert!(warning.is_some_and(|warning| warning.starts_with(expected)));
    }
}
