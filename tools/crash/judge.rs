//! What the servers saw of a crawl over many runs, compared with its files.

use std::collections::BTreeMap;
use std::time::Duration;

use super::files::Output;
use super::web::{Arrival, CRAWL_DELAY, ORDER, ROBOTS, Web, has_crawl_delay};

/// What was promised.
pub struct Promise {
    /// The least time between two requests to a domain.
    pub delay: Duration,
    /// Requests may be made again if their run ended within this time after them.
    pub again_within: Duration,
    /// So many requests that must not be made twice may end without being sent.
    pub unsent_max: usize,
}

/// What the servers saw.
#[derive(Default)]
pub struct Seen {
    /// Requests for pages.
    pub pages: usize,
    /// Those without a line: their results were lost.
    pub lost: usize,
    /// The longest time from one of these to the end of its run.
    pub lost_before: Duration,
    /// Requests for a robots.txt that had been fetched before.
    pub robots_again: usize,
    /// Requests that must not be made twice and of which the outcome is unknown; those that were not sent.
    pub unknown: usize,
    pub unknown_unsent: usize,
    /// The shortest gap between two requests to one domain: within a run, across an end, and across an end
    /// at a domain with a Crawl-delay.
    pub gap_within: Option<Duration>,
    pub gap_across: Option<Duration>,
    pub gap_crawl_delay: Option<Duration>,
    pub wrong: Vec<String>,
}

/// How a request ends that must not be made twice, if its run ended while it was on its way.
pub const OUTCOME_UNKNOWN: &str = "cancelled.outcome_unknown";

/// Stamps of the kernel may be this far apart though the requests were not.
const STAMP_ERROR: Duration = Duration::from_millis(1);

impl Seen {
    /// Compares the requests with the lines. `ends`: when each run but the last ended.
    pub fn of(
        web: &Web,
        mut arrivals: Vec<Arrival>,
        output: &Output,
        ends: &[Duration],
        promise: &Promise,
    ) -> Seen {
        let mut seen = Seen::default();
        // By domain, then by time.
        arrivals.sort();
        for pair in arrivals
            .windows(2)
            .filter(|pair| pair[0].domain == pair[1].domain)
        {
            let gap = pair[1].at - pair[0].at;
            let is_across = ends
                .iter()
                .any(|end| (pair[0].at..pair[1].at).contains(end));
            // Until its robots.txt has come, that has its own gap.
            let is_slow = has_crawl_delay(pair[0].domain) && pair[0].target != ROBOTS;
            let (delay, shortest) = match (is_across, is_slow) {
                (true, true) => (CRAWL_DELAY, &mut seen.gap_crawl_delay),
                (true, false) => (promise.delay, &mut seen.gap_across),
                (false, true) => (CRAWL_DELAY, &mut seen.gap_within),
                (false, false) => (promise.delay, &mut seen.gap_within),
            };
            *shortest = Some(shortest.unwrap_or(gap).min(gap));
            if gap + STAMP_ERROR < delay {
                let place = if is_across {
                    "across an end"
                } else {
                    "within a run"
                };
                let url = web.url(&pair[1]);
                seen.wrong.push(format!(
                    "{url} was requested after a gap of {gap:?}, {place}"
                ));
            }
        }
        let mut lines: BTreeMap<&str, (usize, bool)> = BTreeMap::new();
        for line in output.lines.iter().filter(|line| line.is_sent) {
            let (count, is_refetched) = lines.entry(&line.url).or_default();
            *count += 1;
            *is_refetched |= line.is_refetched;
        }
        let mut asked: BTreeMap<String, Vec<&Arrival>> = BTreeMap::new();
        for arrival in &arrivals {
            asked.entry(web.url(arrival)).or_default().push(arrival);
        }
        for (url, asked) in &asked {
            let (count, is_refetched) = lines.remove(url.as_str()).unwrap_or_default();
            let is_robots = asked[0].target == ROBOTS;
            if asked[0].target == ORDER {
                if asked.len() > 1 {
                    seen.wrong
                        .push(format!("{url} was sent {} times", asked.len()));
                }
                continue;
            }
            // What a robots.txt says may outlive its line.
            let lost = asked
                .len()
                .saturating_sub(if is_robots { 1 } else { count });
            if is_robots {
                seen.robots_again += lost;
            } else {
                seen.pages += asked.len();
                seen.lost += lost;
                if lost > 0 && count > 0 && !is_refetched {
                    seen.wrong
                        .push(format!("{url} was requested again, and no line says so"));
                }
            }
            if count > asked.len() {
                seen.wrong.push(format!(
                    "{url} has {count} lines and was requested {}",
                    asked.len()
                ));
            }
            let Some(last) = lost.checked_sub(1) else {
                continue;
            };
            // Those that were closest to an end are the ones without a line.
            let before = asked.iter().map(|arrival| {
                let next = ends.iter().find(|end| **end >= arrival.at);
                next.map_or(Duration::MAX, |end| *end - arrival.at)
            });
            let mut before: Vec<Duration> = before.collect();
            before.sort();
            seen.lost_before = seen.lost_before.max(before[last]);
            if before[last] > promise.again_within {
                seen.wrong.push(format!(
                    "{url} was requested {} times for {count} lines, one of them {:?} before its run ended",
                    asked.len(),
                    before[last]
                ));
            }
        }
        let outcomes = output.ends();
        let unknown = outcomes.iter().filter(|(_, end)| **end == OUTCOME_UNKNOWN);
        for (url, _) in unknown {
            seen.unknown += 1;
            seen.unknown_unsent += usize::from(!asked.contains_key(*url));
        }
        if seen.unknown_unsent > promise.unsent_max {
            seen.wrong.push(format!(
                "{} requests that were not sent ended as {OUTCOME_UNKNOWN}, more than {}",
                seen.unknown_unsent, promise.unsent_max
            ));
        }
        let unseen = lines.into_keys();
        seen.wrong
            .extend(unseen.map(|url| format!("{url} has a line and was not requested")));
        seen
    }
}
