//! Recommendations: settings without effect, scopes at a bound, soft blocks, and what limits the crawl.

use std::collections::BTreeMap;

use serde::Serialize;

use super::gaps::Gaps;
use super::hosts::Hosts;
use super::latencies::Latency;
use super::outcomes::Outcomes;
use super::stored::StoredStats;
use super::totals::Totals;

/// What recommendations follow from.
pub struct Evidence<'a> {
    pub totals: &'a Totals,
    pub outcomes: &'a Outcomes,
    pub latency: &'a Latency,
    pub hosts: &'a Hosts,
    pub gaps: &'a Gaps,
    /// `None` without a usable `stats.json`.
    pub stats: Option<&'a StoredStats>,
}

/// What to do, why, and for which scope.
#[derive(Serialize)]
pub struct Advice {
    /// The subject: that of a remark in `stats.json`, or one of this file.
    pub about: String,
    /// The scope or host; null if it is about the whole crawl.
    pub scope: Option<String>,
    pub words: String,
}

/// Recommendations, those of the most urgent subject first.
#[derive(Default, Serialize)]
pub struct Recommendations {
    pub rows: Vec<Advice>,
    /// Number of those that are not listed, by subject.
    pub omitted: BTreeMap<String, u64>,
}

/// The subjects in their order, each with its heading. Others come last.
pub const SUBJECTS: [(&str, &str); 13] = [
    ("short-gaps", "Gaps shorter than promised"),
    ("suspect", "Soft blocks suspected by the crawl"),
    ("same-pages", "Hosts that send one page for all URLs"),
    ("blocked", "Scopes that refuse at every pace"),
    ("slow", "Scopes at the longest delay because they are slow"),
    ("at-longest-delay", "Scopes stuck at the longest delay"),
    ("ineffective", "Settings that never had an effect"),
    ("below-target", "Scopes below AutoThrottle's target"),
    ("unthrottled", "Delays too short to have an effect"),
    ("idle", "Scopes without enough queued"),
    ("limit", "What limits the crawl"),
    ("failures", "Failures"),
    ("lateness", "Lateness"),
];

/// Recommendations of one subject that are listed.
const LISTED: usize = 20;
/// Share of a scope's time at its longest delay from which it is stuck there.
const STUCK: f64 = 0.5;
/// Share of all waits from which a cause limits the crawl.
const MAIN_CAUSE: f64 = 0.5;
/// Shares of attempts from which failures are worth a look.
const TIMEOUTS: f64 = 0.05;
const REFUSALS: f64 = 0.05;
const TRUNCATED: f64 = 0.01;
/// Lateness of one request in a hundred, in seconds, from which this machine is the limit.
const LATE: f64 = 0.01;

impl Recommendations {
    pub fn of(evidence: &Evidence<'_>) -> Self {
        let mut rows = Vec::new();
        if let Some(stats) = evidence.stats {
            of_scopes(stats, &mut rows);
            of_waits(stats, &mut rows);
        }
        of_lines(evidence, &mut rows);
        let rank = |about: &str| SUBJECTS.iter().position(|(name, _)| *name == about);
        rows.sort_by_key(|row: &Advice| rank(&row.about).unwrap_or(SUBJECTS.len()));
        let mut all = Recommendations::default();
        let mut listed: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows {
            let count = listed.entry(row.about.clone()).or_default();
            *count += 1;
            match *count <= LISTED {
                true => all.rows.push(row),
                false => *all.omitted.entry(row.about).or_default() += 1,
            }
        }
        all
    }
}

/// The crawl's own remarks, and scopes at their longest delay without one.
fn of_scopes(stats: &StoredStats, rows: &mut Vec<Advice>) {
    for scope in &stats.pacing {
        let name = Some(scope.scope.clone());
        for remark in &scope.remarks {
            rows.push(Advice {
                about: remark.about.clone(),
                scope: name.clone(),
                words: remark.words.clone(),
            });
        }
        let is_explained = ["slow", "blocked", "suspect"]
            .iter()
            .any(|about| scope.remarks.iter().any(|remark| remark.about == *about));
        if scope.at_longest_delay >= STUCK && !is_explained {
            rows.push(Advice {
                about: "at-longest-delay".to_owned(),
                scope: name,
                words: format!(
                    "at its longest delay for {:.0} % of its time, with {} refusals of {} requests; a longer \
                     BACKOFF_MAX_DELAY or AUTOTHROTTLE_MAX_DELAY is more polite, fewer URLs of it end sooner",
                    scope.at_longest_delay * 100.0,
                    scope.refused,
                    scope.sent
                ),
            });
        }
    }
}

/// The cause of most waits, if a setting decides on it.
fn of_waits(stats: &StoredStats, rows: &mut Vec<Advice>) {
    let all: f64 = stats.waited.values().sum();
    let main = stats.waited.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let Some((cause, waited)) = main.filter(|(_, waited)| **waited > MAIN_CAUSE * all) else {
        return;
    };
    let remedy = match cause.as_str() {
        "global_cap" => {
            "a higher CONCURRENT_REQUESTS sends more at once, if open files and this machine allow it"
        }
        "delay" => {
            "more hosts at once make the crawl faster; a shorter delay needs their permission"
        }
        "concurrency" => {
            "more hosts at once make the crawl faster; more requests per host need its permission"
        }
        "robots" => "sites ask for it with Crawl-delay; more hosts at once make the crawl faster",
        "backoff" => "servers refuse: look at the most refused scopes, and ask for less",
        "hold" => "servers ask for pauses: look at the most refused scopes, and ask for less",
        "quota" => "a larger quota, if the service sells one, makes the crawl faster",
        _ => return,
    };
    rows.push(Advice {
        about: "limit".to_owned(),
        scope: None,
        words: format!(
            "{:.0} % of all waits of scopes are for {cause}: {remedy}",
            waited / all * 100.0
        ),
    });
}

/// What the result lines show.
fn of_lines(evidence: &Evidence<'_>, rows: &mut Vec<Advice>) {
    let mut add = |about: &str, scope: Option<&str>, words: String| {
        rows.push(Advice {
            about: about.to_owned(),
            scope: scope.map(str::to_owned),
            words,
        });
    };
    let share = |count: u64| count as f64 / evidence.totals.sent.max(1) as f64;
    let gaps = evidence.gaps;
    if gaps.short > 0 {
        let words = format!(
            "{} of {} gaps are shorter than the delay of their line; the tightest are listed with the gaps. The crawler keeps \
             every gap, so this is a defect or a changed file: please report it with these lines",
            gaps.short, gaps.compared
        );
        add("short-gaps", None, words);
    }
    for host in &evidence.hosts.same_pages {
        let words = format!(
            "{} of {} pages are equal to the page before: if its URLs differ, this is a block, a login or an error \
             page with status 2xx; look at one, then slow down, or exclude the host",
            host.same_as_before, host.pages
        );
        add("same-pages", Some(&host.host), words);
    }
    let timeouts = evidence.outcomes.errors_of("timeout.");
    if share(timeouts) >= TIMEOUTS {
        let words = format!(
            "{timeouts} timeouts, {:.1} % of the requests: if they are of many hosts, send fewer at once \
             (CONCURRENT_REQUESTS) and check the network; if of few, exclude these",
            share(timeouts) * 100.0
        );
        add("failures", None, words);
    }
    let status = &evidence.outcomes.status;
    let refused: u64 = [429, 503].iter().filter_map(|code| status.get(code)).sum();
    if share(refused) >= REFUSALS {
        let words = format!(
            "{refused} replies with 429 or 503, {:.1} % of the requests: a longer DOWNLOAD_DELAY for these hosts \
             wastes fewer requests",
            share(refused) * 100.0
        );
        add("failures", None, words);
    }
    let truncated = evidence.outcomes.truncated.get("length").copied();
    if let Some(count) = truncated.filter(|count| share(*count) >= TRUNCATED) {
        let words = format!(
            "{count} bodies were cut at DOWNLOAD_MAXSIZE: raise it if the rest is needed, or filter such URLs"
        );
        add("failures", None, words);
    }
    if let Some(lateness) = &evidence.latency.lateness
        && lateness.p99 >= LATE
    {
        let words = format!(
            "one request in a hundred departed {:.1} ms or more after it could: this machine was the limit; use a \
             less busy one, or a lower CONCURRENT_REQUESTS",
            lateness.p99 * 1e3
        );
        add("lateness", None, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::report::gaps::GapJudge;
    use crate::cli::report::hosts::HostTable;
    use crate::cli::report::latencies::Latencies;
    use crate::cli::report::names::Names;

    fn recommendations(stats: &str) -> Recommendations {
        let stats: StoredStats = serde_json::from_str(stats).expect("stats");
        let mut rows = Vec::new();
        of_scopes(&stats, &mut rows);
        of_waits(&stats, &mut rows);
        Recommendations {
            rows,
            omitted: BTreeMap::new(),
        }
    }

    fn check(stats: &str, expected: &[(&str, Option<&str>)]) {
        let all = recommendations(stats);
        let found: Vec<(&str, Option<&str>)> = all
            .rows
            .iter()
            .map(|row| (row.about.as_str(), row.scope.as_deref()))
            .collect();
        assert_eq!(found, expected, "{stats}");
    }

    #[test]
    fn a_scope_at_its_longest_delay_is_reported_once() {
        check(
            r#"{"pacing": [{"scope": "a", "at_longest_delay": 0.6}]}"#,
            &[("at-longest-delay", Some("a"))],
        );
        check(
            r#"{"pacing": [{"scope": "a", "at_longest_delay": 0.6, "remarks": [{"about": "slow", "words": "x"}]}]}"#,
            &[("slow", Some("a"))],
        );
        check(
            r#"{"pacing": [{"scope": "a", "at_longest_delay": 0.4}]}"#,
            &[],
        );
    }

    #[test]
    fn the_main_cause_of_waits_is_reported_if_it_has_most_of_them() {
        check(
            r#"{"waited": {"global_cap": 6, "delay": 4}}"#,
            &[("limit", None)],
        );
        check(r#"{"waited": {"global_cap": 5, "delay": 5}}"#, &[]);
        check("{}", &[]);
    }

    #[test]
    fn the_most_urgent_subjects_come_first_and_few_of_many_are_listed() {
        let names = Names::new(0);
        let mut gaps = GapJudge::new(0, 0).finish(&names);
        (gaps.compared, gaps.short) = (9, 1);
        let remarks = (0..25).map(|_| r#"{"about": "slow", "words": "x"}"#);
        let remarks = remarks.collect::<Vec<_>>().join(",");
        let stats = format!(
            r#"{{"pacing": [{{"scope": "a", "remarks": [{remarks}, {{"about": "new", "words": "x"}}]}},
                {{"scope": "b", "remarks": [{{"about": "suspect", "words": "x"}}]}}]}}"#
        );
        let stats: StoredStats = serde_json::from_str(&stats).expect("stats");
        let all = Recommendations::of(&Evidence {
            totals: &Totals::default(),
            outcomes: &Outcomes::default(),
            latency: &Latencies::new().latency(),
            hosts: &HostTable::new(0).hosts(&names),
            gaps: &gaps,
            stats: Some(&stats),
        });
        let abouts: Vec<&str> = all.rows.iter().map(|row| row.about.as_str()).collect();
        let expected: Vec<&str> = ["short-gaps", "suspect"]
            .into_iter()
            .chain([&"slow"; LISTED].map(|about| *about))
            .chain(["new"])
            .collect();
        assert_eq!(abouts, expected);
        assert_eq!(all.omitted, BTreeMap::from([("slow".to_owned(), 5)]));
    }
}
