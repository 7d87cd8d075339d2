//! Due times of an open loop's requests, which do not depend on earlier replies.

use std::fmt;
use std::time::Duration;

use crate::base::rng::Rng;
use crate::base::time::Instant;

/// Distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrivals {
    /// All equal.
    #[default]
    Constant,
    /// Exponentially distributed, as for independent users: a Poisson process with the same mean rate.
    Poisson,
}

impl Arrivals {
    /// The word in reports and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Arrivals::Constant => "constant",
            Arrivals::Poisson => "poisson",
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Extent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Length {
    /// All requests due within this time.
    Time(Duration),
    /// This number of requests.
    Requests(u64),
    /// Until the probe is stopped.
    Endless,
}

/// A due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub due: Instant,
    /// Whether it is after the warm-up, and counted.
    pub measured: bool,
}

/// The sequence of due times.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    start: Instant,
    /// The end of the warm-up.
    measured_from: Instant,
    /// The end of the measurement. For a number of requests it is one mean gap after the last of
    /// them; with random gaps, unknown ([`Instant::FAR_FUTURE`]) until the last gap is drawn. Without an end that, too.
    measured_until: Instant,
    length: Length,
    gaps: Gaps,
    next: Option<Arrival>,
    /// Counted arrivals that were taken.
    taken: u64,
}

#[derive(Clone, Debug)]
enum Gaps {
    /// The n-th arrival is n gaps after the start, so that rounding errors do not accumulate.
    Even { gap: f64, count: u64 },
    /// `at`: nanoseconds from the start to the last arrival; `rng` draws the next gap.
    Random { gap: f64, at: f64, rng: Rng },
}

impl Schedule {
    /// Arrivals at `rate` per second from `start` on; those of the warm-up are not counted.
    pub fn new(
        (arrivals, rate): (Arrivals, f64),
        warmup: Duration,
        length: Length,
        rng: Rng,
        start: Instant,
    ) -> Self {
        let gap = 1e9 / rate;
        let measured_from = start + warmup;
        let mut schedule = Schedule {
            start,
            measured_from,
            length,
            measured_until: match (length, arrivals) {
                (Length::Time(span), _) => measured_from + span,
                (Length::Requests(count), Arrivals::Constant) => {
                    measured_from + Duration::from_nanos((gap * count as f64) as u64)
                }
                (Length::Requests(_), Arrivals::Poisson) | (Length::Endless, _) => {
                    Instant::FAR_FUTURE
                }
            },
            gaps: match arrivals {
                Arrivals::Constant => Gaps::Even { gap, count: 0 },
                Arrivals::Poisson => Gaps::Random { gap, at: 0.0, rng },
            },
            next: None,
            taken: 0,
        };
        schedule.step();
        schedule
    }

    /// Shifts all due times so that the schedule starts now. Call it before [`Schedule::take`].
    pub fn begin(&mut self, now: Instant) {
        let by = now.saturating_since(self.start);
        self.start += by;
        self.measured_from += by;
        // An unknown end stays unknown: `FAR_FUTURE` saturates.
        self.measured_until += by;
        if let Some(arrival) = &mut self.next {
            arrival.due += by;
        }
    }

    /// The next arrival, if there is one.
    pub fn next(&self) -> Option<Arrival> {
        self.next
    }

    /// Takes the next arrival, if it is due.
    pub fn take(&mut self, now: Instant) -> Option<Arrival> {
        let arrival = self.next.filter(|arrival| arrival.due <= now)?;
        if arrival.measured {
            self.taken += 1;
        }
        self.step();
        Some(arrival)
    }

    /// Whether every arrival has been taken.
    pub fn is_spent(&self) -> bool {
        self.next.is_none()
    }

    /// When it started.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The end of the warm-up.
    pub fn measured_from(&self) -> Instant {
        self.measured_from
    }

    /// The end of the measurement; [`Instant::FAR_FUTURE`] while the gaps up to it are not drawn.
    pub fn measured_until(&self) -> Instant {
        self.measured_until
    }

    fn step(&mut self) {
        let after = match &mut self.gaps {
            Gaps::Even { gap, count } => {
                *count += 1;
                *gap * (*count - 1) as f64
            }
            Gaps::Random { gap, at, rng } => {
                // The argument is in (0, 1], because the logarithm of 0 is infinite.
                *at -= *gap * (1.0 - rng.range_f64(0.0, 1.0)).ln();
                *at
            }
        };
        let due = self.start + Duration::from_nanos(after.round() as u64);
        let measured = due >= self.measured_from;
        let has_next = match self.length {
            Length::Time(span) => due < self.measured_from + span,
            Length::Requests(count) => !measured || self.taken < count,
            // A due time cannot be later.
            Length::Endless => due < Instant::FAR_FUTURE,
        };
        self.next = has_next.then_some(Arrival { due, measured });
        let is_last = measured && self.length == Length::Requests(self.taken + 1);
        if let Gaps::Random { gap, .. } = self.gaps
            && is_last
        {
            self.measured_until = due + Duration::from_nanos(gap as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(arrivals: Arrivals, rate: f64, length: Length, seed: u64) -> Schedule {
        let warmup = Duration::from_secs(1);
        let start = Instant::from_nanos(7);
        Schedule::new(
            (arrivals, rate),
            warmup,
            length,
            Rng::from_seed(seed),
            start,
        )
    }

    /// Every arrival: nanoseconds after the start, and whether it counts.
    fn all(mut schedule: Schedule) -> Vec<(u64, bool)> {
        let taken = std::iter::from_fn(|| schedule.take(Instant::FAR_FUTURE));
        taken
            .map(|arrival| (arrival.due.as_nanos() - 7, arrival.measured))
            .collect()
    }

    #[test]
    fn even_gaps_do_not_accumulate_rounding_errors() {
        let arrivals = all(schedule(
            Arrivals::Constant,
            3.0,
            Length::Requests(300_000),
            1,
        ));
        assert_eq!(arrivals.len(), 300_003);
        assert_eq!(arrivals[0], (0, false));
        assert_eq!(arrivals[1], (333_333_333, false));
        assert_eq!(arrivals[3], (1_000_000_000, true));
        assert_eq!(arrivals[300_000], (100_000_000_000_000, true));
    }

    #[test]
    fn a_length_of_time_excludes_its_end() {
        let two = Length::Time(Duration::from_secs(2));
        let arrivals = all(schedule(Arrivals::Constant, 10.0, two, 1));
        assert_eq!(arrivals.iter().filter(|(_, counts)| *counts).count(), 20);
        assert_eq!(arrivals.last(), Some(&(2_900_000_000, true)));
    }

    #[test]
    fn nothing_is_taken_before_it_is_due() {
        let mut schedule = schedule(Arrivals::Constant, 10.0, Length::Requests(1), 1);
        assert_eq!(schedule.take(Instant::from_nanos(6)), None);
        assert!(schedule.take(Instant::from_nanos(7)).is_some());
        assert_eq!(schedule.take(Instant::from_nanos(100_000_006)), None);
        assert!(schedule.take(Instant::from_nanos(100_000_007)).is_some());
    }

    #[test]
    fn random_gaps_repeat_with_their_seed_and_are_exponentially_distributed() {
        let hundred = Length::Time(Duration::from_secs(100));
        let one = all(schedule(Arrivals::Poisson, 1000.0, hundred, 1));
        assert_eq!(one, all(schedule(Arrivals::Poisson, 1000.0, hundred, 1)));
        assert_ne!(one, all(schedule(Arrivals::Poisson, 1000.0, hundred, 2)));
        // 101 000 expected, with a deviation of 318.
        assert!((100_000..102_000).contains(&one.len()), "{}", one.len());
        let gaps: Vec<f64> = one
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let deviation = (variance / gaps.len() as f64).sqrt();
        // An exponential distribution has equal mean and deviation.
        assert!((0.98..1.02).contains(&(deviation / mean)), "{deviation}");
        let long = gaps.iter().filter(|gap| **gap > mean).count() as f64;
        assert!((0.36..0.376).contains(&(long / gaps.len() as f64)));
    }
    #[test]
    fn random_gaps_are_drawn_lazily_and_end_one_mean_gap_after_the_last_arrival() {
        let all = schedule(
            Arrivals::Poisson,
            1e6,
            Length::Requests(100_000_000_000_000),
            1,
        );
        assert_eq!(all.measured_until(), Instant::FAR_FUTURE);
        let mut few = schedule(Arrivals::Poisson, 1000.0, Length::Requests(3), 1);
        few.begin(Instant::from_nanos(1_000_007));
        let taken = std::iter::from_fn(|| {
            let due = few.next()?.due;
            let is_known = few.measured_until() < Instant::FAR_FUTURE;
            few.take(due).map(|arrival| (arrival, is_known))
        });
        let taken: Vec<_> = taken.collect();
        let (last, before) = taken.split_last().expect("there are three at least");
        assert!(before.iter().all(|(_, is_known)| !is_known));
        assert!(last.1, "it is the next");
        let gap = Duration::from_millis(1);
        assert_eq!(few.measured_until(), last.0.due + gap);
        assert_eq!(
            taken.iter().filter(|(arrival, _)| arrival.measured).count(),
            3
        );
    }
}
