//! Hidden rate limits: token buckets, fixed windows, sliding logs.

use std::collections::VecDeque;
use std::time::Duration;

/// Tolerance for rounding: above any rounding error, and far below any real cost.
const GRAIN: f64 = 1e-9;

/// Rates in units per second, each from a start time.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// In order of time; the first begins at zero.
    steps: Vec<(Duration, f64)>,
}

/// Size of a bucket.
#[derive(Clone, Copy, Debug)]
pub enum Burst {
    Units(f64),
    /// What the current rate refills in this time, at least one unit.
    Span(Duration),
}

/// Limit, remaining units and reset, for rate-limit headers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    pub limit: f64,
    pub remaining: f64,
    /// Time until more units are available.
    pub reset: Duration,
    /// The period of the limit.
    pub period: Duration,
}

/// A limit and its usage. Times are relative to the origin's first request.
#[derive(Clone, Debug)]
pub struct Limit {
    shape: Shape,
    /// Refused requests are charged too, so that further requests prolong the refusal.
    strict: bool,
}

#[derive(Clone, Debug)]
enum Shape {
    Bucket {
        rates: Schedule,
        burst: Burst,
        level: f64,
        at: Duration,
    },
    Fixed {
        units: f64,
        period: Duration,
        used: f64,
        /// The window that `used` counts.
        window: u128,
    },
    Sliding {
        units: f64,
        period: Duration,
        log: VecDeque<(Duration, f64)>,
        used: f64,
    },
}

impl Limit {
    /// A bucket that is full at the start.
    pub fn bucket(rates: Schedule, burst: Burst, strict: bool) -> Self {
        let level = burst.units(rates.rate(Duration::ZERO));
        Limit {
            shape: Shape::Bucket {
                rates,
                burst,
                level,
                at: Duration::ZERO,
            },
            strict,
        }
    }

    /// A number of units per window; the first window begins with the first request.
    pub fn fixed(units: f64, period: Duration, strict: bool) -> Self {
        Limit {
            shape: Shape::Fixed {
                units,
                period,
                used: 0.0,
                window: 0,
            },
            strict,
        }
    }

    /// A number of units in any period of this length.
    pub fn sliding(units: f64, period: Duration, strict: bool) -> Self {
        Limit {
            shape: Shape::Sliding {
                units,
                period,
                log: VecDeque::new(),
                used: 0.0,
            },
            strict,
        }
    }

    /// Takes the cost if enough units are left; returns whether it did.
    pub fn take(&mut self, cost: f64, now: Duration) -> bool {
        let granted = self.left(now) + GRAIN >= cost;
        if granted || self.strict {
            self.charge(cost, now);
        }
        granted
    }

    pub fn standing(&mut self, now: Duration) -> Standing {
        let remaining = self.left(now).max(0.0);
        let (limit, period) = match &self.shape {
            Shape::Bucket { rates, burst, .. } => {
                let rate = rates.rate(now);
                let limit = burst.units(rate);
                (limit, Duration::from_secs_f64(limit / rate))
            }
            Shape::Fixed { units, period, .. } | Shape::Sliding { units, period, .. } => {
                (*units, *period)
            }
        };
        let reset = match &self.shape {
            Shape::Bucket { .. } if remaining < 1.0 => self.until(1.0, now),
            Shape::Bucket { rates, .. } => {
                Duration::from_secs_f64((limit - remaining) / rates.rate(now))
            }
            Shape::Fixed { .. } | Shape::Sliding { .. } => self.until(limit, now),
        };
        Standing {
            limit,
            remaining,
            reset,
            period,
        }
    }

    /// Time until the cost is available, if no other request takes it and the rate stays.
    pub fn until(&mut self, cost: f64, now: Duration) -> Duration {
        let missing = cost - self.left(now);
        if missing <= GRAIN {
            return Duration::ZERO;
        }
        match &self.shape {
            Shape::Bucket { rates, .. } => Duration::from_secs_f64(missing / rates.rate(now)),
            Shape::Fixed { period, window, .. } => end_of(*window, *period).saturating_sub(now),
            Shape::Sliding { period, log, .. } => {
                let mut freed = 0.0;
                log.iter()
                    .find(|(_, units)| {
                        freed += units;
                        freed + GRAIN >= missing
                    })
                    .map_or(*period, |(at, _)| (*at + *period).saturating_sub(now))
            }
        }
    }

    /// The units that the limit adds between two times, without its initial level.
    pub fn offered(&self, from: Duration, to: Duration) -> f64 {
        match &self.shape {
            Shape::Bucket { rates, .. } => rates.produced(from, to),
            Shape::Fixed { units, period, .. } | Shape::Sliding { units, period, .. } => {
                units * to.saturating_sub(from).as_secs_f64() / period.as_secs_f64()
            }
        }
    }

    /// The times at which the rate changes, beginning with the start, and the rate from each on.
    pub fn phases(&self) -> Vec<(Duration, f64)> {
        match &self.shape {
            Shape::Bucket { rates, .. } => rates.steps.clone(),
            Shape::Fixed { units, period, .. } | Shape::Sliding { units, period, .. } => {
                vec![(Duration::ZERO, units / period.as_secs_f64())]
            }
        }
    }

    fn left(&mut self, now: Duration) -> f64 {
        match &mut self.shape {
            Shape::Bucket {
                rates,
                burst,
                level,
                at,
            } => {
                // Per piece: if the burst depends on the rate, a change of rate changes the size.
                for (from, to, rate) in rates.pieces(*at, now) {
                    *level += rate * (to - from).as_secs_f64();
                    *level = level.min(burst.units(rates.rate(to)));
                }
                *at = now.max(*at);
                *level
            }
            Shape::Fixed {
                units,
                period,
                used,
                window,
            } => {
                let present = now.as_nanos() / period.as_nanos();
                if present != *window {
                    (*window, *used) = (present, 0.0);
                }
                *units - *used
            }
            Shape::Sliding {
                units,
                period,
                log,
                used,
            } => {
                while let Some((at, cost)) = log.front().copied()
                    && at + *period <= now
                {
                    *used -= cost;
                    log.pop_front();
                }
                if log.is_empty() {
                    *used = 0.0;
                }
                *units - *used
            }
        }
    }

    fn charge(&mut self, cost: f64, now: Duration) {
        match &mut self.shape {
            // The debt is at most one bucket.
            Shape::Bucket {
                rates,
                burst,
                level,
                ..
            } => *level = (*level - cost).max(-burst.units(rates.rate(now))),
            Shape::Fixed { used, .. } => *used += cost,
            Shape::Sliding { log, used, .. } => {
                log.push_back((now, cost));
                *used += cost;
            }
        }
    }
}

impl Schedule {
    /// The steps in order of time; the first must begin at zero, and no rate may be zero.
    pub fn new(steps: Vec<(Duration, f64)>) -> Self {
        assert!(
            steps.first().is_some_and(|(from, _)| from.is_zero())
                && steps.is_sorted_by(|a, b| a.0 < b.0)
                && steps.iter().all(|(_, rate)| *rate > 0.0),
            "a schedule begins at zero, is in order, and has no rate of zero"
        );
        Schedule { steps }
    }

    fn rate(&self, at: Duration) -> f64 {
        let next = self.steps.partition_point(|(from, _)| *from <= at);
        self.steps[next - 1].1
    }

    fn produced(&self, from: Duration, to: Duration) -> f64 {
        self.pieces(from, to)
            .map(|(from, to, rate)| rate * (to - from).as_secs_f64())
            .sum()
    }

    /// The time between two moments, split where the rate changes.
    fn pieces(
        &self,
        from: Duration,
        to: Duration,
    ) -> impl Iterator<Item = (Duration, Duration, f64)> {
        self.steps
            .iter()
            .enumerate()
            .filter_map(move |(index, (begin, rate))| {
                let end = self.steps.get(index + 1).map_or(to, |next| next.0);
                let (begin, end) = (from.max(*begin), to.min(end));
                (begin < end).then_some((begin, end, *rate))
            })
    }
}

impl Burst {
    fn units(self, rate: f64) -> f64 {
        match self {
            Burst::Units(units) => units,
            Burst::Span(span) => (rate * span.as_secs_f64()).max(1.0),
        }
    }
}

fn end_of(window: u128, period: Duration) -> Duration {
    let nanos = (window + 1) * period.as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one unit at each of these milliseconds; returns which were granted.
    fn granted(limit: &mut Limit, at: impl IntoIterator<Item = u64>) -> Vec<bool> {
        at.into_iter()
            .map(|at| limit.take(1.0, Duration::from_millis(at)))
            .collect()
    }

    fn count(limit: &mut Limit, at: impl IntoIterator<Item = u64>) -> usize {
        granted(limit, at)
            .iter()
            .filter(|granted| **granted)
            .count()
    }

    fn steady(rate: f64, burst: Burst) -> Limit {
        let rates = Schedule::new(vec![(Duration::ZERO, rate)]);
        Limit::bucket(rates, burst, false)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_its_rate() {
        let mut limit = steady(5.0, Burst::Units(5.0));
        assert_eq!(count(&mut limit, std::iter::repeat_n(0, 20)), 5);
        assert_eq!(
            granted(&mut limit, [199, 200, 201, 399, 400]),
            [false, true, false, false, true]
        );
    }

    #[test]
    fn requests_exactly_at_the_rate_are_never_refused() {
        let mut limit = steady(50.0, Burst::Units(1.0));
        assert_eq!(count(&mut limit, (0..10_000).map(|i| i * 20)), 10_000);
    }

    #[test]
    fn a_bucket_never_holds_more_than_its_burst() {
        let mut limit = steady(5.0, Burst::Units(3.0));
        assert_eq!(count(&mut limit, std::iter::repeat_n(60_000, 20)), 3);
    }

    #[test]
    fn requests_above_the_rate_get_exactly_the_rate() {
        let mut limit = steady(5.0, Burst::Units(5.0));
        assert_eq!(count(&mut limit, 0..60_000), 5 + 300 - 1);
    }

    #[test]
    fn strict_bucket_refuses_constant_requests() {
        let rates = Schedule::new(vec![(Duration::ZERO, 5.0)]);
        let mut limit = Limit::bucket(rates, Burst::Units(5.0), true);
        assert_eq!(count(&mut limit, (0..60_000).step_by(10)), 5);
        assert_eq!(granted(&mut limit, [59_990 + 1_300]), [true]);
    }

    #[test]
    fn a_moving_limit_follows_its_schedule() {
        let rates = vec![(0, 20.0), (60, 5.0), (120, 40.0)];
        let rates = rates.into_iter().map(|(s, r)| (SECOND * s, r)).collect();
        let mut limit = Limit::bucket(Schedule::new(rates), Burst::Units(1.0), false);
        assert_eq!(count(&mut limit, 1..=60_000), 1200);
        assert_eq!(count(&mut limit, 60_001..=120_000), 300);
        assert_eq!(count(&mut limit, 120_001..=130_000), 400);
        assert!((limit.offered(SECOND * 59, SECOND * 122) - 400.0).abs() < 1e-6);
        assert_eq!(limit.phases().len(), 3);
    }

    #[test]
    fn burst_given_as_time_follows_the_rate() {
        let rates = Schedule::new(vec![(Duration::ZERO, 20.0), (SECOND * 10, 5.0)]);
        let mut limit = Limit::bucket(rates, Burst::Span(SECOND), false);
        assert_eq!(count(&mut limit, std::iter::repeat_n(9_000, 99)), 20);
        assert_eq!(count(&mut limit, std::iter::repeat_n(20_000, 99)), 5);
        let mut slow = steady(0.5, Burst::Span(SECOND));
        assert_eq!(count(&mut slow, [0, 0]), 1);
    }

    #[test]
    fn a_fixed_window_refuses_until_it_ends() {
        let mut limit = Limit::fixed(3.0, SECOND, false);
        assert_eq!(
            granted(&mut limit, [0, 1, 2, 3, 999, 1000, 1001, 1002, 1003]),
            [true, true, true, false, false, true, true, true, false]
        );
        assert_eq!(
            limit.until(1.0, Duration::from_millis(1003)),
            Duration::from_millis(997)
        );
    }

    #[test]
    fn fixed_window_grants_double_at_its_boundary_and_sliding_log_does_not() {
        let asked = || (900..1100).step_by(5);
        assert_eq!(count(&mut Limit::fixed(10.0, SECOND, false), asked()), 20);
        assert_eq!(count(&mut Limit::sliding(10.0, SECOND, false), asked()), 10);
    }

    #[test]
    fn a_sliding_log_frees_each_unit_after_its_period() {
        let mut limit = Limit::sliding(2.0, SECOND, false);
        assert_eq!(
            granted(&mut limit, [0, 400, 999, 1000, 1001, 1400]),
            [true, true, false, true, false, true]
        );
        assert_eq!(
            limit.until(1.0, Duration::from_millis(1401)),
            Duration::from_millis(599)
        );
    }

    #[test]
    fn a_sliding_log_never_has_more_than_its_units_in_any_stretch() {
        let mut limit = Limit::sliding(60.0, SECOND * 6, false);
        let granted: Vec<u64> = (0..60_000)
            .step_by(7)
            .filter(|at| limit.take(1.0, Duration::from_millis(*at)))
            .collect();
        assert!(granted.windows(61).all(|w| w[60] - w[0] >= 6000));
        assert!(granted.len() >= 590, "{} granted", granted.len());
    }

    #[test]
    fn fractional_costs_are_charged_exactly() {
        let mut limit = Limit::fixed(10.0, SECOND, false);
        let mut take = |cost| limit.take(cost, Duration::ZERO);
        assert!(take(2.5) && take(2.5) && take(2.5));
        assert!(!take(2.6), "only 2.5 are left");
        assert!(take(2.5));
    }

    #[test]
    fn standing_reports_limit_remaining_and_reset() {
        let mut limit = steady(5.0, Burst::Units(5.0));
        let standing = limit.standing(Duration::ZERO);
        assert_eq!((standing.limit, standing.remaining), (5.0, 5.0));
        assert_eq!((standing.reset, standing.period), (Duration::ZERO, SECOND));
        assert_eq!(count(&mut limit, [0; 9]), 5);
        let standing = limit.standing(Duration::from_millis(100));
        assert!(standing.remaining < 1.0);
        assert_eq!(standing.reset, Duration::from_millis(100));
        let mut limit = Limit::fixed(3.0, SECOND * 2, false);
        assert!(limit.take(1.0, Duration::from_millis(500)));
        let standing = limit.standing(Duration::from_millis(500));
        assert_eq!((standing.limit, standing.remaining), (3.0, 2.0));
        assert_eq!(standing.reset, Duration::from_millis(1500));
    }
}
