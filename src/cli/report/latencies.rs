//! Latencies, durations of phases and lateness.

use std::time::Duration;

use argiope::Spread;
use serde::Serialize;

use super::line::{Line, PHASES, nanos};
use super::percentiles::Percentiles;

/// Distributions over all attempts that have the value.
pub struct Latencies {
    server_latency: Spread,
    latency: Spread,
    lateness: Spread,
    phases: [Spread; PHASES.len()],
}

/// Percentiles of latencies, in seconds; null where nothing was measured.
#[derive(Serialize)]
pub struct Latency {
    pub server_latency: Option<Percentiles>,
    pub latency: Option<Percentiles>,
    pub lateness: Option<Percentiles>,
    pub phases: Vec<PhaseLatency>,
    /// Distribution of `server_latency`.
    pub distribution: Vec<LatencyBin>,
}

/// The time from the end of the phase before, or from the start of the attempt.
#[derive(Serialize)]
pub struct PhaseLatency {
    pub phase: &'static str,
    pub seconds: Option<Percentiles>,
}

/// Latencies in a range.
#[derive(Serialize)]
pub struct LatencyBin {
    /// The longest of the range; null of the last, which has no end.
    pub to: Option<f64>,
    pub count: u64,
}

/// Bounds of the ranges, in seconds.
const BOUNDS: [f64; 18] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 50.0,
];

impl Latencies {
    pub fn new() -> Self {
        Latencies {
            server_latency: Spread::new(),
            latency: Spread::new(),
            lateness: Spread::new(),
            phases: std::array::from_fn(|_| Spread::new()),
        }
    }

    pub fn add(&mut self, line: &Line<'_>) {
        let values = [
            (&mut self.server_latency, line.server_latency),
            (&mut self.latency, line.latency),
            (&mut self.lateness, line.lateness),
        ];
        for (spread, value) in values {
            if let Some(seconds) = value {
                spread.record(Duration::from_nanos(nanos(seconds)));
            }
        }
        let mut before = 0;
        for (spread, end) in self.phases.iter_mut().zip(line.phase_ends()) {
            if let Some(end) = end {
                let end = nanos(end);
                spread.record(Duration::from_nanos(end.saturating_sub(before)));
                before = end;
            }
        }
    }

    pub fn latency(&self) -> Latency {
        let phase = |(phase, spread): (&&'static str, &Spread)| PhaseLatency {
            phase,
            seconds: Percentiles::of(spread),
        };
        Latency {
            server_latency: Percentiles::of(&self.server_latency),
            latency: Percentiles::of(&self.latency),
            lateness: Percentiles::of(&self.lateness),
            phases: PHASES.iter().zip(&self.phases).map(phase).collect(),
            distribution: distribution(&self.server_latency),
        }
    }
}

/// The ranges from the first with a latency to the last.
fn distribution(spread: &Spread) -> Vec<LatencyBin> {
    let mut counts = [0; BOUNDS.len() + 1];
    for (span, count) in spread.buckets() {
        counts[BOUNDS.partition_point(|bound| *bound < span.as_secs_f64())] += count;
    }
    let first = counts.iter().position(|count| *count > 0);
    let last = counts.iter().rposition(|count| *count > 0);
    let (Some(first), Some(last)) = (first, last) else {
        return Vec::new();
    };
    let bin = |at: usize| LatencyBin {
        to: BOUNDS.get(at).copied(),
        count: counts[at],
    };
    (first..=last).map(bin).collect()
}
