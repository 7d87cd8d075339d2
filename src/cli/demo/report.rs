//! Report of the servers' records: totals, politeness, and a verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Limits that the client's settings promise, for comparison with the servers' records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// The smallest gap between two requests to one host: the delay minus the largest reduction by
    /// jitter. A larger `Crawl-delay` is applied by the report.
    pub gap: Duration,
    /// Maximum concurrent requests to one host.
    pub in_flight: u32,
}

/// Report of all servers.
#[derive(Clone, Debug)]
pub struct WebReport {
    /// Promised limits.
    pub promised: Promised,
    /// Every host, by number, also those without requests.
    pub scopes: Vec<ScopeReport>,
    /// Connections accepted.
    pub connections: u64,
    /// Requests for robots.txt, redirected ones included.
    pub robots: u64,
    /// Replies by status; 0 counts connections reset on purpose.
    pub statuses: BTreeMap<u16, u64>,
    /// Malformed requests, and requests to unknown hosts.
    pub strange: u64,
    /// Queries that the name server answered.
    pub queries: u64,
    /// Bytes of replies.
    pub bytes: u64,
    /// From the first arrival to the end of the last visit.
    pub span: Duration,
}

/// Record of one host.
#[derive(Clone, Debug)]
pub struct ScopeReport {
    /// The host.
    pub scope: String,
    /// Requests that arrived, of any kind.
    pub requests: u64,
    /// Complete pages with status 200.
    pub pages: u64,
    /// The first few paths requested in violation of its robots.txt.
    pub forbidden: Vec<String>,
    /// Number of requests in violation of its robots.txt.
    pub forbidden_count: u64,
    /// The gap between two arrivals with the smallest margin; `None` with fewer than two arrivals.
    pub tightest: Option<Gap>,
    /// Maximum number of overlapping requests.
    pub in_flight_peak: u32,
}

/// A gap between two arrivals, and its lower bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The measured gap.
    pub seen: Duration,
    /// The lower bound: the promised gap, or the `Crawl-delay` if that is larger.
    pub allowed: Duration,
}

impl Gap {
    /// The margin above the lower bound; negative if the gap is smaller.
    pub fn spare_nanos(&self) -> i128 {
        self.seen.as_nanos() as i128 - self.allowed.as_nanos() as i128
    }

    fn is_kept(&self) -> bool {
        self.seen + TOLERANCE >= self.allowed
    }
}

impl WebReport {
    /// Whether all limits were kept and no request violated robots.txt.
    pub fn is_polite(&self) -> bool {
        self.violations().is_empty()
    }

    /// Violations, one line each.
    pub fn violations(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for scope in &self.scopes {
            let name = &scope.scope;
            if scope.forbidden_count > 0 {
                let (count, paths) = (scope.forbidden_count, scope.forbidden.join(" "));
                lines.push(format!("{name}: {count} against robots.txt: {paths}"));
            }
            if let Some(gap) = scope.tightest.filter(|gap| !gap.is_kept()) {
                lines.push(format!("{name}: {gap}"));
            }
            if scope.in_flight_peak > self.promised.in_flight {
                let (peak, most) = (scope.in_flight_peak, self.promised.in_flight);
                lines.push(format!("{name}: {peak} in flight, {most} promised"));
            }
        }
        lines
    }

    /// Complete pages of all hosts.
    pub fn pages(&self) -> u64 {
        self.scopes.iter().map(|scope| scope.pages).sum()
    }

    /// Requests in violation of robots.txt.
    pub fn forbidden(&self) -> u64 {
        self.scopes.iter().map(|scope| scope.forbidden_count).sum()
    }

    /// The host with the smallest margin, and its gap.
    pub fn tightest(&self) -> Option<(&ScopeReport, Gap)> {
        self.scopes
            .iter()
            .filter_map(|scope| Some((scope, scope.tightest?)))
            .min_by_key(|(_, gap)| gap.spare_nanos())
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [seen, allowed] = [self.seen, self.allowed].map(|span| span.as_secs_f64());
        write!(f, "a gap of {seen:.4} s, {allowed:.4} s allowed")
    }
}

impl fmt::Display for WebReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visited = self
            .scopes
            .iter()
            .filter(|scope| scope.requests > 0)
            .count();
        let requests: u64 = self.scopes.iter().map(|scope| scope.requests).sum();
        let replies: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| match status {
                0 => format!("reset {count}"),
                _ => format!("{status} {count}"),
            })
            .collect();
        let mut row = |name: &str, value: String| writeln!(f, "  {name:<28}{value}");
        row("hosts asked", format!("{visited} of {}", self.scopes.len()))?;
        row("connections", self.connections.to_string())?;
        row(
            "requests",
            format!("{requests}, {} for robots.txt", self.robots),
        )?;
        row("pages served", self.pages().to_string())?;
        row("replies", replies.join(", "))?;
        row("bytes sent", format!("{:.1} MB", self.bytes as f64 / 1e6))?;
        row("names answered", self.queries.to_string())?;
        row("first to last", format!("{:.1} s", self.span.as_secs_f64()))?;
        if self.strange > 0 {
            row("not understood", self.strange.to_string())?;
        }
        row("against robots.txt", self.forbidden().to_string())?;
        if let Some((scope, gap)) = self.tightest() {
            row("tightest gap", format!("{gap} ({})", scope.scope))?;
        }
        let peak = self.scopes.iter().map(|scope| scope.in_flight_peak).max();
        let most = self.promised.in_flight;
        let peak = peak.unwrap_or_default();
        row(
            "in flight on a host",
            format!("{peak} at most, {most} promised"),
        )?;

        let violations = self.violations();
        for line in violations.iter().take(VIOLATIONS_SHOWN) {
            writeln!(f, "  ! {line}")?;
        }
        if let Some(more @ 1..) = violations.len().checked_sub(VIOLATIONS_SHOWN) {
            writeln!(f, "  ! and {more} more")?;
        }
        let verdict = match violations.len() {
            0 => "polite: every gap kept, every rule obeyed".to_owned(),
            count => format!("IMPOLITE: {count} violations"),
        };
        let tolerance = TOLERANCE.as_millis();
        writeln!(
            f,
            "  {verdict} (gaps to {tolerance} ms, by the kernel's receive stamps)"
        )
    }
}

/// Error of the servers' clock when it measures a gap.
pub const TOLERANCE: Duration = Duration::from_millis(1);
/// Maximum violations shown, so that the totals stay visible.
const VIOLATIONS_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seen_micros: u64, forbidden: &[&str], in_flight_peak: u32) -> WebReport {
        let second = Duration::from_secs(1);
        WebReport {
            promised: Promised {
                gap: second,
                in_flight: 1,
            },
            scopes: vec![ScopeReport {
                scope: "site-0001.test".into(),
                requests: 3,
                pages: 2,
                forbidden: forbidden.iter().map(|path| path.to_string()).collect(),
                forbidden_count: forbidden.len() as u64,
                tightest: Some(Gap {
                    seen: Duration::from_micros(seen_micros),
                    allowed: second,
                }),
                in_flight_peak,
            }],
            connections: 3,
            robots: 1,
            statuses: [(0, 1), (200, 2)].into(),
            strange: 0,
            queries: 1,
            bytes: 2_500_000,
            span: Duration::from_millis(2345),
        }
    }

    #[test]
    fn a_gap_is_compared_with_the_clocks_tolerance() {
        assert!(report(1_000_000, &[], 1).is_polite());
        assert!(report(999_000, &[], 1).is_polite());
        assert!(!report(998_999, &[], 1).is_polite());
    }

    #[test]
    fn each_violation_is_listed_by_its_scope() {
        let rude = report(500_000, &["/private/1"], 2);
        assert_eq!(
            rude.violations(),
            [
                "site-0001.test: 1 against robots.txt: /private/1",
                "site-0001.test: a gap of 0.5000 s, 1.0000 s allowed",
                "site-0001.test: 2 in flight, 1 promised",
            ]
        );
        let text = rude.to_string();
        assert!(text.contains("\n  ! site-0001.test: 2 in flight"));
        assert!(text.contains("IMPOLITE: 3 violations"));
    }

    #[test]
    fn the_report_of_a_polite_crawl_takes_a_dozen_lines() {
        let text = report(1_000_100, &[], 1).to_string();
        assert!(text.contains("replies                     reset 1, 200 2\n"));
        assert!(text.contains("a gap of 1.0001 s, 1.0000 s allowed (site-0001.test)\n"));
        assert!(text.ends_with("polite: every gap kept, every rule obeyed (gaps to 1 ms, by the kernel's receive stamps)\n"));
        assert_eq!(text.lines().count(), 12);
    }
}
