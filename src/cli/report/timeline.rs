//! Departures over time, in a bounded number of equal intervals.

use std::collections::VecDeque;

use argiope::audit::Time;
use serde::Serialize;

use super::line::{Line, nanos};

/// Counts by the time of departure. The intervals begin as tenths of a second; when there would be more than
/// [`INTERVALS_MAX`], each pair becomes one.
pub struct Timeline {
    width: u64,
    /// Number of the first interval since the Unix epoch.
    first: u64,
    intervals: VecDeque<Tally>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    sent: u64,
    errors: u64,
    bytes_wire: u64,
    latency_sum: f64,
    replies: u64,
}

/// Requests that departed in an interval.
#[derive(Serialize)]
pub struct Interval {
    /// Its beginning.
    pub at: String,
    pub sent: u64,
    /// Those that ended with an error.
    pub errors: u64,
    pub bytes_wire: u64,
    /// Null without replies.
    pub server_latency_mean: Option<f64>,
}

/// Departures over time.
#[derive(Serialize)]
pub struct Throughput {
    /// Length of an interval.
    pub interval_seconds: f64,
    pub intervals: Vec<Interval>,
}

/// Most intervals: more than one per pixel or two cannot be seen.
const INTERVALS_MAX: u64 = 400;
const SHORTEST: u64 = 100_000_000;

impl Timeline {
    pub fn new() -> Self {
        Timeline {
            width: SHORTEST,
            first: 0,
            intervals: VecDeque::new(),
        }
    }

    pub fn add(&mut self, line: &Line<'_>) {
        let Some(sent) = line.sent else {
            return;
        };
        let tally = self.interval(sent);
        tally.sent += 1;
        tally.errors += u64::from(line.error.is_some());
        tally.bytes_wire += line.bytes_wire;
        if let Some(latency) = line.server_latency {
            tally.latency_sum += latency;
            tally.replies += 1;
        }
    }

    /// The interval of a time, after as many doublings as it takes. Lines are not in the order of departure, so the
    /// time may be before all others.
    fn interval(&mut self, at: Time) -> &mut Tally {
        loop {
            let number = at.0 / self.width;
            if self.intervals.is_empty() {
                self.first = number;
            }
            let end = self.first + self.intervals.len() as u64;
            let (first, end) = (self.first.min(number), end.max(number + 1));
            if end - first > INTERVALS_MAX {
                self.double();
                continue;
            }
            while self.first > first {
                self.intervals.push_front(Tally::default());
                self.first -= 1;
            }
            self.intervals
                .resize((end - first) as usize, Tally::default());
            return &mut self.intervals[(number - first) as usize];
        }
    }

    fn double(&mut self) {
        let mut doubled = VecDeque::new();
        let first = self.first / 2;
        for (at, tally) in self.intervals.iter().enumerate() {
            let at = ((self.first + at as u64) / 2 - first) as usize;
            doubled.resize(at + 1, Tally::default());
            let sum: &mut Tally = &mut doubled[at];
            sum.sent += tally.sent;
            sum.errors += tally.errors;
            sum.bytes_wire += tally.bytes_wire;
            sum.latency_sum += tally.latency_sum;
            sum.replies += tally.replies;
        }
        self.width *= 2;
        self.first = first;
        self.intervals = doubled;
    }

    /// The intervals in order, from the first departure to the last.
    pub fn throughput(&self) -> Throughput {
        let interval = |(at, tally): (usize, &Tally)| Interval {
            at: Time((self.first + at as u64) * self.width).to_string(),
            sent: tally.sent,
            errors: tally.errors,
            bytes_wire: tally.bytes_wire,
            server_latency_mean: (tally.replies > 0)
                .then(|| tally.latency_sum / tally.replies as f64),
        };
        Throughput {
            interval_seconds: self.width as f64 / nanos(1.0) as f64,
            intervals: self.intervals.iter().enumerate().map(interval).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(nanos: &[u64]) -> Vec<(String, u64)> {
        let mut timeline = Timeline::new();
        for at in nanos {
            timeline.interval(Time(*at)).sent += 1;
        }
        let intervals = timeline.throughput().intervals;
        assert!(intervals.len() as u64 <= INTERVALS_MAX);
        let counts = intervals.into_iter().map(|found| (found.at, found.sent));
        counts.filter(|(_, sent)| *sent > 0).collect()
    }

    #[test]
    fn departures_in_any_order_are_counted_in_their_interval() {
        let second = 1_000_000_000;
        let found = counts_of(&[7 * second, 7 * second + 1, 5 * second, 9 * second]);
        let seconds = ["05", "07", "09"].map(|at| format!("1970-01-01T00:00:{at}.000000000Z"));
        let [five, seven, nine] = seconds;
        assert_eq!(found, [(five, 1), (seven, 2), (nine, 1)]);
    }

    #[test]
    fn intervals_double_until_a_long_crawl_fits() {
        let day = 86_400_000_000_000;
        let times: Vec<u64> = (0..10_000)
            .map(|at| 20_000 * day + at * day / 100)
            .collect();
        let mut backwards = times.clone();
        backwards.reverse();
        let found = counts_of(&times);
        assert_eq!(found.iter().map(|(_, sent)| sent).sum::<u64>(), 10_000);
        assert_eq!(found, counts_of(&backwards));
        assert!(found.len() > 100, "{}", found.len());
    }
}
