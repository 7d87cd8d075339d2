//! What the servers saw of a crawl over many runs, compared with its files.

use std::collections::BTreeMap;
use std::time::Duration;

use super::files::Output;
use super::web::{Arrival, ORDER, Web};

/// What was promised.
pub struct Promise {
    /// The least time between two requests to a domain.
    pub delay: Duration,
    /// Requests may be made again if their run ended within this time after them.
    pub again_within: Duration,
}

/// What the servers saw.
#[derive(Default)]
pub struct Seen {
    /// Requests for pages.
    pub pages: usize,
    /// Those without a line: their results were lost.
    pub lost: usize,
    /// URLs of these that no line says were requested again.
    pub unmarked: usize,
    /// The shortest gap between two requests to one domain, within a run and across an end.
    pub gap_within: Option<Duration>,
    pub gap_across: Option<Duration>,
    pub wrong: Vec<String>,
}

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
            let shortest = match is_across {
                true => &mut seen.gap_across,
                false => &mut seen.gap_within,
            };
            *shortest = Some(shortest.unwrap_or(gap).min(gap));
            if gap + STAMP_ERROR < promise.delay {
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
        for line in output
            .lines
            .iter()
            .filter(|line| line.is_page && line.is_sent)
        {
            let (count, is_refetched) = lines.entry(&line.url).or_default();
            *count += 1;
            *is_refetched |= line.is_refetched;
        }
        let mut asked: BTreeMap<String, Vec<&Arrival>> = BTreeMap::new();
        for arrival in arrivals
            .iter()
            .filter(|arrival| arrival.target != "/robots.txt")
        {
            asked.entry(web.url(arrival)).or_default().push(arrival);
        }
        for (url, asked) in &asked {
            seen.pages += asked.len();
            let (count, is_refetched) = lines.remove(url.as_str()).unwrap_or_default();
            let lost = asked.len().saturating_sub(count);
            seen.lost += lost;
            seen.unmarked += usize::from(lost > 0 && count > 0 && !is_refetched);
            if count > asked.len() {
                seen.wrong.push(format!(
                    "{url} has {count} lines and was requested {}",
                    asked.len()
                ));
            }
            if asked[0].target == ORDER && asked.len() > 1 {
                seen.wrong
                    .push(format!("{url} was sent {} times", asked.len()));
            }
            for arrival in &asked[..lost] {
                let next = ends.iter().find(|end| **end >= arrival.at);
                let is_promised = next.is_some_and(|end| *end - arrival.at <= promise.again_within);
                if !is_promised && asked[0].target != ORDER {
                    seen.wrong.push(format!(
                        "{url} was requested twice, long before its run ended"
                    ));
                }
            }
        }
        let unseen = lines.into_keys();
        seen.wrong
            .extend(unseen.map(|url| format!("{url} has a line and was not requested")));
        seen
    }
}
