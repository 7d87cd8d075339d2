//! Record of the servers: arrival and duration of each request, and violations of robots.txt.

use std::collections::BTreeMap;
use std::time::Duration;

use argiope::testkit::ledger::{self, ArrivalId};

use super::report::{Gap, Promised, ScopeReport, WebReport};
use super::site::answer::{Before, Content};
use super::site::{Site, World, is_robots};

/// All requests to all hosts, in the order of recording.
#[derive(Default)]
pub struct Ledger {
    /// Connections accepted.
    pub connections: u64,
    /// Queries that the name server answered.
    pub queries: u64,
    /// Malformed requests, and requests to unknown hosts.
    pub strange: u64,
    /// Replies by status; 0 counts connections reset on purpose.
    statuses: BTreeMap<u16, u64>,
    bytes: u64,
    /// Indexed by the host's number minus 1.
    hosts: Vec<Host>,
}

#[derive(Default)]
struct Host {
    visits: ledger::Ledger<()>,
    pages: u64,
    robots: u64,
    /// The first few paths requested in violation of robots.txt.
    forbidden: Vec<String>,
    forbidden_count: u64,
    /// Time when robots.txt had been sent to the client.
    ruled: Option<Duration>,
}

/// A visit: the host's number minus 1, and the visit's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitId(usize, ArrivalId);

impl Ledger {
    /// A ledger for `domains` hosts.
    pub fn new(domains: usize) -> Ledger {
        Ledger {
            hosts: (0..domains).map(|_| Host::default()).collect(),
            ..Ledger::default()
        }
    }

    /// Records a request that arrived at `came`; returns the host's state before it.
    pub fn arrive(&mut self, site: &Site, path: &str, came: Duration) -> (VisitId, Before) {
        let index = site.number as usize - 1;
        let host = &mut self.hosts[index];
        let visits = host.visits.arrivals();
        let before = Before {
            requests: visits.len() - host.robots as usize,
            since: visits.last().map(|last| came.saturating_sub(last.at)),
        };
        host.robots += u64::from(is_robots(path));
        if site.forbids(path) {
            host.forbidden_count += 1;
            if host.forbidden.len() < FORBIDDEN_KEPT {
                host.forbidden.push(path.to_owned());
            }
        }
        (VisitId(index, host.visits.arrive(came, ())), before)
    }

    /// Records that a visit's reply was written at `left`: its status and length, or a reset.
    pub fn reply(
        &mut self,
        visit: VisitId,
        content: Content,
        status: u16,
        bytes: usize,
        left: Duration,
    ) {
        self.leave(visit, left);
        *self.statuses.entry(status).or_default() += 1;
        self.bytes += bytes as u64;
        let host = &mut self.hosts[visit.0];
        match content {
            Content::Page => host.pages += 1,
            Content::Rules => host.ruled = host.ruled.or(Some(left)),
            Content::Other => {}
        }
    }

    /// Records that a visit ended at `left`, with or without a reply.
    pub fn leave(&mut self, visit: VisitId, left: Duration) {
        self.hosts[visit.0].visits.end(visit.1, left);
    }

    /// Compares the recorded requests with the promised limits.
    pub fn report(mut self, world: &World, promised: Promised) -> WebReport {
        for host in &mut self.hosts {
            host.visits.sort();
        }
        let all = || self.hosts.iter().flat_map(|host| host.visits.arrivals());
        let first = all().map(|visit| visit.at).min();
        let last = all().map(|visit| visit.ended.unwrap_or(visit.at)).max();
        let scopes = world
            .sites()
            .iter()
            .zip(&self.hosts)
            .map(|(site, host)| ScopeReport {
                scope: site.host(),
                requests: host.visits.arrivals().len() as u64,
                pages: host.pages,
                forbidden: host.forbidden.clone(),
                forbidden_count: host.forbidden_count,
                tightest: host.tightest(promised.gap, site.crawl_delay()),
                in_flight_peak: host.visits.overlap_max() as u32,
            });
        WebReport {
            promised,
            scopes: scopes.collect(),
            connections: self.connections,
            robots: self.hosts.iter().map(|host| host.robots).sum(),
            statuses: self.statuses.clone(),
            strange: self.strange,
            queries: self.queries,
            bytes: self.bytes,
            span: last
                .unwrap_or_default()
                .saturating_sub(first.unwrap_or_default()),
        }
    }
}

impl Host {
    /// The gap with the smallest margin. `Crawl-delay` applies from when the rules were sent.
    fn tightest(&self, promised: Duration, crawl_delay: Duration) -> Option<Gap> {
        let gaps = ledger::gaps(self.visits.arrivals().iter()).map(|(visit, gap)| {
            let knew = self.ruled.is_some_and(|ruled| visit.at >= ruled);
            Gap {
                seen: gap,
                allowed: match knew {
                    true => promised.max(crawl_delay),
                    false => promised,
                },
            }
        });
        gaps.min_by_key(Gap::spare_nanos)
    }
}

/// Maximum forbidden paths in a host's report.
const FORBIDDEN_KEPT: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::demo::site::Robots;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The report on one host with requests for `path` that arrived at `came` and were answered at
    /// `left`, in milliseconds; the first visit gets the rules.
    fn check(wanted: impl Fn(&Site) -> bool, visits: &[(&str, u64, u64)]) -> ScopeReport {
        let world = World::draw(500, 3, 1, 80);
        let site = world
            .sites()
            .iter()
            .find(|site| wanted(site))
            .expect("one is");
        let mut ledger = Ledger::new(500);
        for (path, came, left) in visits {
            let content = match *path {
                "/robots.txt" => Content::Rules,
                _ => Content::Page,
            };
            let (visit, _) = ledger.arrive(site, path, millis(*came));
            ledger.reply(visit, content, 200, 100, millis(*left));
        }
        let promised = Promised {
            gap: millis(1000),
            in_flight: 1,
        };
        let number = site.number as usize;
        ledger
            .report(&world, promised)
            .scopes
            .swap_remove(number - 1)
    }

    fn plain(site: &Site) -> bool {
        matches!(site.robots, Robots::Rules { delay: None, .. })
    }

    fn delayed(site: &Site) -> bool {
        site.crawl_delay() == millis(2000)
    }

    #[test]
    fn the_tightest_gap_is_found_if_visits_are_recorded_out_of_order() {
        let report = check(
            plain,
            &[
                ("/robots.txt", 0, 10),
                ("/b", 2900, 2910),
                ("/a", 1500, 1510),
            ],
        );
        let gap = report.tightest.expect("a gap");
        assert_eq!((gap.seen, gap.allowed), (millis(1400), millis(1000)));
    }

    #[test]
    fn crawl_delay_applies_once_the_rules_were_sent() {
        let report = check(
            delayed,
            &[
                ("/robots.txt", 0, 10),
                ("/", 1000, 1010),
                ("/a", 3000, 3010),
            ],
        );
        let gap = report.tightest.expect("a gap");
        assert_eq!(gap.spare_nanos(), 0);
        let report = check(
            delayed,
            &[
                ("/robots.txt", 0, 10),
                ("/", 1000, 1010),
                ("/a", 2999, 3010),
            ],
        );
        let gap = report.tightest.expect("a gap");
        assert_eq!((gap.seen, gap.allowed), (millis(1999), millis(2000)));
    }

    #[test]
    fn visits_that_overlap_are_in_flight_together() {
        let peak = |visits| check(plain, visits).in_flight_peak;
        assert_eq!(peak(&[("/a", 0, 10), ("/b", 10, 20)]), 1);
        assert_eq!(peak(&[("/a", 0, 11), ("/b", 10, 20), ("/c", 11, 12)]), 2);
        assert_eq!(peak(&[]), 0);
    }

    #[test]
    fn a_violation_of_the_rules_is_recorded_with_its_path() {
        let report = check(plain, &[("/robots.txt", 0, 1), ("/private/7", 1000, 1001)]);
        assert_eq!(report.forbidden, ["/private/7"]);
        assert_eq!(report.forbidden_count, 1);
    }

    #[test]
    fn the_previous_requests_of_a_host_are_returned() {
        let world = World::draw(1, 3, 1, 80);
        let mut ledger = Ledger::new(1);
        let mut arrive = |path, at| ledger.arrive(&world.sites()[0], path, millis(at)).1;
        assert_eq!(arrive("/robots.txt", 5).since, None);
        let second = arrive("/", 25);
        assert_eq!((second.requests, second.since), (0, Some(millis(20))));
        assert_eq!(arrive("/", 26).requests, 1);
    }
}
