//! Count and percentiles of durations, with the keys that a spread of `stats.json` has.

use argiope::Spread;
use serde::{Deserialize, Serialize};

/// In seconds.
#[derive(Clone, Deserialize, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Percentiles {
    /// `None` if nothing was recorded.
    pub fn of(spread: &Spread) -> Option<Self> {
        let at = |share: f64| Some(spread.quantile(share)?.as_secs_f64());
        Some(Percentiles {
            count: spread.count(),
            mean: spread.mean()?.as_secs_f64(),
            min: at(0.0)?,
            p50: at(0.5)?,
            p90: at(0.9)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
            max: spread.max()?.as_secs_f64(),
        })
    }
}
