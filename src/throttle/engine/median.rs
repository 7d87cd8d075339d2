//! A streaming median in twelve bytes: it steps towards each value, by smaller steps each time the
//! direction changes.

use std::time::Duration;

/// An estimated median of durations, within a quarter of the true one if the distribution is
/// stable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Median {
    /// In seconds; 0 before the first.
    value: f32,
    /// The next step multiplies the value by 2 to the power of this.
    step: f32,
    /// The last value was above the estimate.
    rises: bool,
    /// Number of consecutive values on the same side.
    run: u8,
}

impl Median {
    pub fn add(&mut self, span: Duration) {
        let span = span.as_secs_f32().max(LEAST);
        if self.value == 0.0 {
            self.value = span;
            self.step = STEP_MAX;
            return;
        }
        let rises = span > self.value;
        if rises != self.rises {
            self.run = 1;
            self.step = (self.step * SHORTER).max(STEP_MIN);
        } else {
            self.run = self.run.saturating_add(1);
            if self.run > RUN_BY_CHANCE {
                self.step = (self.step * LONGER).min(STEP_MAX);
            }
        }
        self.rises = rises;
        if span == self.value {
            return;
        }
        // Never beyond the value itself, so that equal values give exactly their median.
        self.value = if rises {
            (self.value * self.step.exp2()).min(span)
        } else {
            (self.value / self.step.exp2()).max(span)
        };
    }

    pub fn get(&self) -> Option<Duration> {
        let value = match self.value {
            0.0 => return None,
            LEAST => 0.0,
            value => value,
        };
        Some(Duration::from_secs_f32(value))
    }
}

/// Minimum value in seconds: the steps are factors and could not leave zero.
const LEAST: f32 = 1e-6;
const STEP_MIN: f32 = 0.02;
const STEP_MAX: f32 = 1.0;
/// Longer runs show that the median has moved.
const RUN_BY_CHANCE: u8 = 5;
const SHORTER: f32 = 0.5;
const LONGER: f32 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    fn median_of(spans: impl IntoIterator<Item = f64>) -> f64 {
        let mut median = Median::default();
        for span in spans {
            median.add(Duration::from_secs_f64(span));
        }
        median.get().expect("a value").as_secs_f64()
    }

    #[test]
    fn equal_spans_are_their_median_and_no_span_has_none() {
        assert!(Median::default().get().is_none());
        assert!((median_of([0.2; 50]) - 0.2).abs() < 1e-6);
        assert_eq!(median_of([0.0; 50]), 0.0);
        // A long start is soon forgotten.
        assert_eq!(median_of([5.0].into_iter().chain([0.0; 60])), 0.0);
    }

    #[test]
    fn spans_of_any_spread_have_their_median_within_a_quarter() {
        for seed in 0..20 {
            let mut rng = Rng::from_seed(seed);
            let spans: Vec<f64> = (0..1000).map(|_| rng.range_f64(0.1, 0.3)).collect();
            let median = median_of(spans);
            assert!((0.15..0.25).contains(&median), "seed {seed}: {median}");
            // One in four is a hundred times as slow, which does not affect the median.
            let spans: Vec<f64> = (0..1000)
                .map(|_| match rng.range_f64(0.0, 1.0) < 0.25 {
                    true => 10.0,
                    false => rng.range_f64(0.09, 0.11),
                })
                .collect();
            let median = median_of(spans);
            assert!((0.08..0.13).contains(&median), "seed {seed}: {median}");
        }
    }
}
