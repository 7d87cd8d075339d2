//! Hosts: which are slow, which fail, and which send the same body again and again.

use serde::Serialize;

use super::line::{Line, nanos};
use super::names::{NameId, Names};

/// Counters of each host, by its number.
pub struct HostTable {
    tallies: Vec<HostTally>,
    omitted: u64,
}

#[derive(Clone, Copy, Default)]
struct HostTally {
    attempts: u32,
    errors: u32,
    /// Attempts with a latency.
    replies: u32,
    /// Pages with a status of 2xx and a digest; those whose digest is that of the page before.
    pages: u32,
    repeats: u32,
    last_digest: u32,
    latency_sum: u64,
    latency_max: u64,
}

/// Hosts worth a look.
#[derive(Serialize)]
pub struct Hosts {
    /// Hosts with an attempt, as far as they are counted.
    pub hosts: u64,
    /// Attempts at hosts for which there was no room.
    pub attempts_omitted: u64,
    /// Those with the longest mean latency.
    pub slowest: Vec<HostRow>,
    /// Those with the most errors.
    pub most_errors: Vec<HostRow>,
    /// Those with mostly equal pages, which may be a block.
    pub same_pages: Vec<HostRow>,
}

/// A host and its counters.
#[derive(Serialize)]
pub struct HostRow {
    pub host: String,
    pub attempts: u32,
    pub errors: u32,
    /// In seconds; null without a reply.
    pub server_latency_mean: Option<f64>,
    pub server_latency_max: Option<f64>,
    /// Pages with a status of 2xx and a digest.
    pub pages: u32,
    /// Those whose body is that of the page before.
    pub same_as_before: u32,
}

/// Hosts that are listed.
const LISTED: usize = 20;
/// Pages that a host must have before equal ones are reported, and their share.
const SAME_PAGES_MIN: u32 = 20;
const SAME_SHARE_MIN: f64 = 0.9;

impl HostTable {
    /// Reserves room for hosts with numbers below `most`.
    pub fn new(most: usize) -> Self {
        HostTable {
            tallies: Vec::with_capacity(most),
            omitted: 0,
        }
    }

    /// Counts an attempt at the host with this number; `None`: it has none.
    pub fn add(&mut self, host: Option<NameId>, line: &Line<'_>) {
        let Some(at) = host.map(|id| id as usize) else {
            self.omitted += 1;
            return;
        };
        if self.tallies.len() <= at {
            self.tallies.resize(at + 1, HostTally::default());
        }
        let tally = &mut self.tallies[at];
        tally.attempts = tally.attempts.saturating_add(1);
        tally.errors += u32::from(line.error.is_some());
        if let Some(latency) = line.server_latency.map(nanos) {
            tally.replies += 1;
            tally.latency_sum = tally.latency_sum.saturating_add(latency);
            tally.latency_max = tally.latency_max.max(latency);
        }
        let is_page = &*line.kind.0 == "page" && matches!(line.status, Some(200..300));
        if let Some(digest) = line.digest.as_ref().filter(|_| is_page) {
            let digest = shortened(&digest.0);
            tally.repeats += u32::from(tally.pages > 0 && tally.last_digest == digest);
            tally.pages += 1;
            tally.last_digest = digest;
        }
    }

    pub fn hosts(&self, names: &Names) -> Hosts {
        let is_there = |tally: &&HostTally| tally.attempts > 0;
        let listed = |rank: &dyn Fn(&HostTally) -> u64| self.top(names, rank);
        Hosts {
            hosts: self.tallies.iter().filter(is_there).count() as u64,
            attempts_omitted: self.omitted,
            slowest: listed(&|tally| {
                let mean = tally.latency_sum.checked_div(tally.replies.into());
                mean.unwrap_or(0)
            }),
            most_errors: listed(&|tally| tally.errors.into()),
            same_pages: listed(&|tally| {
                let is_same = tally.pages >= SAME_PAGES_MIN
                    && f64::from(tally.repeats) >= SAME_SHARE_MIN * f64::from(tally.pages - 1);
                u64::from(is_same) * u64::from(tally.pages)
            }),
        }
    }

    /// The hosts with the highest rank above 0; ties are ordered by name.
    fn top(&self, names: &Names, rank: &dyn Fn(&HostTally) -> u64) -> Vec<HostRow> {
        let ranked = self.tallies.iter().enumerate();
        let mut ranked: Vec<(u64, NameId)> = ranked
            .map(|(at, tally)| (rank(tally), at as NameId))
            .filter(|(rank, _)| *rank > 0)
            .collect();
        let order = |a: &(u64, NameId), b: &(u64, NameId)| {
            (b.0, names.name(a.1)).cmp(&(a.0, names.name(b.1)))
        };
        if ranked.len() > LISTED {
            ranked.select_nth_unstable_by(LISTED, order);
            ranked.truncate(LISTED);
        }
        ranked.sort_by(order);
        let row = |(_, id): (u64, NameId)| self.tallies[id as usize].row(names.name(id));
        ranked.into_iter().map(row).collect()
    }
}

impl HostTally {
    fn row(&self, host: &str) -> HostRow {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let mean = self.latency_sum.checked_div(self.replies.into());
        HostRow {
            host: host.to_owned(),
            attempts: self.attempts,
            errors: self.errors,
            server_latency_mean: mean.map(seconds),
            server_latency_max: mean.map(|_| seconds(self.latency_max)),
            pages: self.pages,
            same_as_before: self.repeats,
        }
    }
}

/// Some bits of a digest, enough to compare it with the one before.
fn shortened(digest: &str) -> u32 {
    digest.bytes().fold(0, |bits: u32, byte| {
        bits.rotate_left(5) ^ u32::from(byte).wrapping_mul(0x9e37_79b1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(lines: &[String]) -> Hosts {
        let (mut names, mut table) = (Names::new(50), HostTable::new(50));
        for line in lines {
            let line: Line<'_> = serde_json::from_str(line).expect("a line");
            table.add(names.id(line.host()), &line);
        }
        table.hosts(&names)
    }

    fn line(host: &str, latency: f64, digest: &str) -> String {
        format!(
            "{{\"url\": \"http://{host}/\", \"kind\": \"page\", \"final\": true, \"status\": 200, \
             \"server_latency\": {latency}, \"digest\": \"sha1:{digest}\"}}"
        )
    }

    #[test]
    fn the_slowest_hosts_come_first_and_equal_ones_by_name() {
        let lines: Vec<String> = (0..50)
            .map(|number| line(&format!("{number}.test"), f64::from(number % 3), "A"))
            .chain([line("10.test", 8.0, "B"), line("50.test", 99.0, "C")])
            .collect();
        let hosts = hosts_of(&lines);
        assert_eq!((hosts.hosts, hosts.attempts_omitted), (50, 1));
        let slowest: Vec<&str> = hosts.slowest.iter().map(|row| row.host.as_str()).collect();
        assert_eq!(slowest[..3], ["10.test", "11.test", "14.test"]);
        assert_eq!(slowest.len(), LISTED);
        assert_eq!(hosts.slowest[0].server_latency_mean, Some(4.5));
        assert_eq!(hosts.slowest[0].server_latency_max, Some(8.0));
        assert!(hosts.most_errors.is_empty());
    }

    #[test]
    fn a_host_that_sends_one_page_for_all_urls_is_reported() {
        let pages = |host: &str, same: usize, other: usize| -> Vec<String> {
            let same = (0..same).map(|_| line(host, 0.1, "SAME"));
            let other = (0..other).map(|number| line(host, 0.1, &format!("OTHER{number}")));
            same.chain(other).collect()
        };
        let lines = [
            pages("blocked.test", 19, 1),
            pages("few.test", 19, 0),
            pages("mixed.test", 20, 3),
        ];
        let same = hosts_of(&lines.concat()).same_pages;
        let named: Vec<(&str, u32, u32)> = same
            .iter()
            .map(|row| (row.host.as_str(), row.pages, row.same_as_before))
            .collect();
        assert_eq!(named, [("blocked.test", 20, 18)]);
    }
}
