//! Totals over all lines.

use std::collections::BTreeMap;

use argiope::audit::Time;
use serde::Serialize;

use super::line::Line;

/// Numbers of attempts, and of bytes.
#[derive(Default, Serialize)]
pub struct Totals {
    /// Result lines.
    pub attempts: u64,
    /// Those whose request was sent.
    pub sent: u64,
    /// Those after which no retry or redirect follows.
    pub finals: u64,
    /// Final lines of pages with a status.
    pub pages: u64,
    pub robots: u64,
    pub sitemaps: u64,
    /// Those that are not the first at their URL.
    pub retries: u64,
    pub redirects: u64,
    /// Those that a crash made the crawl repeat.
    pub refetched: u64,
    pub bytes_wire: u64,
    pub bytes_body: u64,
    /// When the first and the last request departed, and the seconds between; null if none did.
    pub first_sent: Option<String>,
    pub last_sent: Option<String>,
    pub seconds: Option<f64>,
    pub sent_per_second: Option<f64>,
    pub bytes_wire_per_second: Option<f64>,
    /// Attempts by the number of links followed from a seed; what is deeper than [`DEPTH_MAX`] counts as that.
    pub depth: BTreeMap<u32, u64>,
    #[serde(skip)]
    departures: Option<(Time, Time)>,
}

/// The greatest depth that is counted by itself.
const DEPTH_MAX: u32 = 1000;

impl Totals {
    pub fn add(&mut self, line: &Line<'_>) {
        self.attempts += 1;
        self.finals += u64::from(line.is_final);
        match &*line.kind.0 {
            "robots" => self.robots += 1,
            "sitemap" => self.sitemaps += 1,
            _ => self.pages += u64::from(line.is_final && line.status.is_some()),
        }
        self.retries += u64::from(line.attempt > 1);
        self.redirects += u64::from(line.redirect.is_some());
        self.refetched += u64::from(line.refetched);
        self.bytes_wire += line.bytes_wire;
        self.bytes_body += line.bytes_body;
        *self.depth.entry(line.depth.min(DEPTH_MAX)).or_default() += 1;
        if let Some(sent) = line.sent {
            self.sent += 1;
            let (first, last) = self.departures.unwrap_or((sent, sent));
            self.departures = Some((first.min(sent), last.max(sent)));
        }
    }

    /// With the figures that follow from the others.
    pub fn finished(mut self) -> Self {
        let Some((first, last)) = self.departures else {
            return self;
        };
        self.first_sent = Some(first.to_string());
        self.last_sent = Some(last.to_string());
        let seconds = (last.0 - first.0) as f64 / 1e9;
        self.seconds = Some(seconds);
        if seconds > 0.0 {
            self.sent_per_second = Some(self.sent as f64 / seconds);
            self.bytes_wire_per_second = Some(self.bytes_wire as f64 / seconds);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals_of(lines: &[&str]) -> Totals {
        let mut totals = Totals::default();
        for rest in lines {
            let line = format!(
                "{{\"url\": \"http://a.test/\", \"kind\": \"page\", \"final\": true, \"bytes_wire\": 30{rest}}}"
            );
            totals.add(&serde_json::from_str(&line).expect("a line"));
        }
        totals.finished()
    }

    #[test]
    fn rates_are_from_the_first_departure_to_the_last_in_any_order_of_lines() {
        let at = |second| format!(", \"sent\": \"2026-11-21T00:00:0{second}.000000000Z\"");
        let totals = totals_of(&[&at(5), &at(3), "", &at(9)]);
        assert_eq!((totals.attempts, totals.sent), (4, 3));
        let first = totals.first_sent.as_deref();
        assert_eq!(first, Some("2026-11-21T00:00:03.000000000Z"));
        assert_eq!(totals.seconds, Some(6.0));
        assert_eq!(totals.sent_per_second, Some(0.5));
        assert_eq!(totals.bytes_wire_per_second, Some(20.0));
    }

    #[test]
    fn one_departure_has_no_rate() {
        let totals = totals_of(&[", \"sent\": \"2026-11-21T00:00:00.000000000Z\""]);
        assert_eq!((totals.seconds, totals.sent_per_second), (Some(0.0), None));
        assert_eq!(totals_of(&[""]).seconds, None);
    }

    #[test]
    fn great_depths_are_counted_as_one() {
        let depths = [999, 1000, 1001, 4_000_000_000_u32];
        let lines = depths.map(|depth| format!(", \"depth\": {depth}"));
        let totals = totals_of(&lines.each_ref().map(String::as_str));
        assert_eq!(totals.depth, BTreeMap::from([(999, 1), (DEPTH_MAX, 3)]));
    }
}
