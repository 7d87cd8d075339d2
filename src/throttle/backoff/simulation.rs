//! Runs `Backoff` against simulated servers. All figures are measured at the server.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::{Backoff, Learned, Rules, Step};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::throttle::settings::{self, Jitter, Rampup};
use crate::throttle::strategy::Pace;

/// The rule by which a server refuses.
#[derive(Clone, Debug)]
pub(super) enum Limit {
    /// A token bucket: `rate` per second, `burst` tokens.
    Bucket { rate: f64, burst: f64 },
    /// Fixed window: `count` requests per `span` seconds from the first request of the window.
    Fixed { count: u32, span: f64 },
    /// Sliding window: at most `count` requests in any `span` seconds.
    Sliding { count: usize, span: f64 },
    /// At most this many requests at a time.
    InFlight { slots: u32 },
    /// Nothing is refused.
    None,
    /// Everything is refused.
    All,
}

impl Limit {
    /// Requests per second that the limit serves in the long run.
    fn rate(&self, service: f64) -> f64 {
        match self {
            Limit::Bucket { rate, .. } => *rate,
            Limit::Fixed { count, span } => f64::from(*count) / span,
            Limit::Sliding { count, span } => *count as f64 / span,
            Limit::InFlight { slots } => f64::from(*slots) / service,
            Limit::None => f64::INFINITY,
            Limit::All => 0.0,
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The limits, each with the second from which it applies.
    pub limits: Vec<(f64, Limit)>,
    /// A refusal carries the time at which the server will serve again (`Retry-After`).
    pub sends_reset: bool,
    /// `Retry-After` of every refusal in seconds; 0: none.
    pub retry_after: f64,
    /// Share of answers that are refusals regardless of the pace.
    pub noise: f64,
    pub base: Pace,
    pub settings: settings::Backoff,
    pub rampup: Option<Rampup>,
    pub concurrency_max: u32,
    /// Seconds from departure to answer; the request reaches the server after half of them.
    pub round_trip: f64,
    /// Upper bound of the random delay in seconds with which a busy machine sends; most are far
    /// shorter.
    pub lateness: f64,
    pub seconds: f64,
    pub seed: u64,
    /// The learned state at the start.
    pub learned: Option<Learned>,
    /// Interval in seconds in which no requests are sent.
    pub idle: Option<(f64, f64)>,
}

/// Observations at the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Arrivals in seconds, and whether each was served.
    pub arrivals: Vec<(f64, bool)>,
    /// The steps of backoff and their times.
    pub steps: Vec<(f64, Step)>,
    /// The gap asked for, sampled each second.
    pub gaps: Vec<f64>,
    pub peak: u32,
    /// The learned state at the end.
    pub learned: Option<Learned>,
}

impl Case {
    pub fn of(limit: Limit, concurrency: u32, round_trip: f64) -> Self {
        Case {
            limits: vec![(0.0, limit)],
            sends_reset: false,
            retry_after: 0.0,
            noise: 0.0,
            base: Pace {
                delay: Duration::ZERO,
                concurrency,
            },
            settings: settings::Backoff::default(),
            rampup: None,
            concurrency_max: 1000,
            round_trip,
            lateness: 0.0,
            seconds: 600.0,
            seed: 1,
            learned: None,
            idle: None,
        }
    }

    pub fn rate_at(&self, second: f64) -> f64 {
        let limit = self.limits.iter().rev().find(|(from, _)| *from <= second);
        let rate = limit.map_or(0.0, |(_, limit)| limit.rate(self.round_trip * 0.8));
        let fastest = f64::from(self.base.concurrency) / self.round_trip;
        if self.rampup.is_some() {
            rate
        } else {
            rate.min(fastest)
        }
    }

    pub fn run(&self) -> Observed {
        let mut rng = Rng::from_seed(self.seed);
        let mut backoff = match self.learned {
            Some(learned) => Backoff::from_learned(learned, Instant::from_nanos(1)),
            None => Backoff::new(Instant::START),
        };
        let mut seen = Observed::default();
        let mut server = Server::default();
        // (answered at, order, sent at, served)
        let mut flying: BinaryHeap<Reverse<(u64, u64, u64, bool)>> = BinaryHeap::new();
        let mut now = 0u64;
        let mut may_send = 0u64;
        let mut sends = 0u64;
        let rules = Rules {
            backoff: &self.settings,
            rampup: self.rampup.as_ref(),
            base: self.base,
            concurrency_max: self.concurrency_max,
        };
        let end = (self.seconds * 1e9) as u64;
        let mut last_sent = None;
        let mut factor = 1.0;
        let mut held_until = 0;
        while now < end {
            while seen.gaps.len() as f64 * 1e9 <= now as f64 {
                seen.gaps.push(backoff.pace(&rules).delay.as_secs_f64());
            }
            let pace = backoff.pace(&rules);
            if let Some(last) = last_sent {
                may_send = last + (pace.delay.as_nanos() as f64 * factor) as u64;
            }
            may_send = may_send.max(held_until);
            let second = now as f64 / 1e9;
            let idle = self
                .idle
                .is_some_and(|(from, to)| (from..to).contains(&second));
            let has_slot = (flying.len() as u32) < pace.concurrency;
            if has_slot && may_send <= now && !idle {
                sends += 1;
                last_sent = Some(now);
                let jitter = backoff.jitter(&rules).unwrap_or(Jitter::NONE);
                factor = 1.0 + rng.range_f64(jitter.low, jitter.high);
                let trip = self.round_trip * rng.range_f64(0.95, 1.05);
                let late = rng.range_f64(0.0, 1.0).powi(4) * self.lateness;
                let arrives = second + trip * 0.1 + late;
                let limit = self.limits.iter().rev().find(|(from, _)| *from <= second);
                let (_, limit) = limit.expect("a rule holds from the start");
                let served = server.accepts(limit, arrives, trip * 0.8) && !rng.chance(self.noise);
                seen.arrivals.push((arrives, served));
                let took = if served { trip } else { trip * 0.3 };
                flying.push(Reverse((now + (took * 1e9) as u64, sends, now, served)));
                seen.peak = seen.peak.max(flying.len() as u32);
                continue;
            }
            let answered = flying.peek().map(|Reverse((at, ..))| *at);
            let next_send = if has_slot && !idle {
                may_send.max(now)
            } else {
                u64::MAX
            };
            let idle_end = if idle {
                (self.idle.unwrap().1 * 1e9) as u64
            } else {
                u64::MAX
            };
            now = answered
                .unwrap_or(u64::MAX)
                .min(next_send)
                .min(idle_end)
                .max(now);
            if now == u64::MAX {
                break;
            }
            while let Some(&Reverse((at, _, sent, served))) = flying.peek() {
                if at > now {
                    break;
                }
                flying.pop();
                let (sent, at) = (Instant::from_nanos(sent), Instant::from_nanos(at));
                let latency = Some(at.saturating_since(sent));
                let step = if served {
                    backoff.success(&rules, sent, latency, at)
                } else {
                    backoff.refused(&rules, sent, latency, at)
                };
                let served_at = match server.window_end() {
                    Some(until) if self.sends_reset => until,
                    _ => now as f64 / 1e9 + self.retry_after,
                };
                let until = (served_at * 1e9) as u64;
                if !served && until > now {
                    held_until = held_until.max(until);
                    backoff.held(Instant::from_nanos(held_until));
                }
                seen.steps.extend(step.map(|step| (now as f64 / 1e9, step)));
            }
        }
        seen.learned = backoff.compact();
        seen
    }
}

#[derive(Default)]
struct Server {
    level: f64,
    counted: f64,
    started: bool,
    window: f64,
    span: f64,
    used: u32,
    log: VecDeque<f64>,
    busy: VecDeque<f64>,
}

impl Server {
    /// The end of the present fixed window.
    fn window_end(&self) -> Option<f64> {
        (self.span > 0.0).then_some(self.window + self.span)
    }

    fn accepts(&mut self, limit: &Limit, now: f64, service: f64) -> bool {
        match *limit {
            Limit::Bucket { rate, burst } => {
                if !self.started {
                    self.started = true;
                    self.level = burst;
                    self.counted = now;
                }
                self.level = (self.level + (now - self.counted).max(0.0) * rate).min(burst);
                self.counted = self.counted.max(now);
                let served = self.level >= 1.0 - 1e-9;
                if served {
                    self.level -= 1.0;
                }
                served
            }
            Limit::Fixed { count, span } => {
                self.span = span;
                if now >= self.window + span {
                    self.window = (now / span).floor() * span;
                    self.used = 0;
                }
                self.used += 1;
                self.used <= count
            }
            Limit::Sliding { count, span } => {
                while self.log.front().is_some_and(|at| *at + span <= now) {
                    self.log.pop_front();
                }
                let served = self.log.len() < count;
                if served {
                    self.log.push_back(now);
                }
                served
            }
            Limit::InFlight { slots } => {
                self.busy.retain(|until| *until > now);
                let served = (self.busy.len() as u32) < slots;
                if served {
                    self.busy.push_back(now + service);
                }
                served
            }
            Limit::None => true,
            Limit::All => false,
        }
    }
}

/// The figures of a run between two seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Served requests as a share of the limit.
    pub used: f64,
    /// Rounds of refusals per window.
    pub rounds: f64,
    pub refused_share: f64,
    /// Coefficient of variation of the gap asked for.
    pub cv: f64,
}

impl Observed {
    pub fn figures(&self, case: &Case, from: f64, to: f64) -> Figures {
        let within = |at: f64| (from..to).contains(&at);
        let all = self.arrivals.iter().filter(|(at, _)| within(*at));
        let (served, refused) = all.fold(
            (0.0, 0.0),
            |(s, r), (_, ok)| {
                if *ok { (s + 1.0, r) } else { (s, r + 1.0) }
            },
        );
        let due: f64 = (from as usize..to as usize)
            .map(|second| case.rate_at(second as f64))
            .sum();
        let backoffs = self.steps.iter().filter(|(at, step)| {
            within(*at) && step.event == crate::throttle::decision::DecisionEvent::Backoff
        });
        let windows = (to - from) / case.settings.window.as_secs_f64();
        let gaps =
            &self.gaps[(from as usize).min(self.gaps.len())..(to as usize).min(self.gaps.len())];
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        Figures {
            used: served / due,
            rounds: backoffs.count() as f64 / windows,
            refused_share: refused / (served + refused),
            cv: spread.sqrt() / mean,
        }
    }

    /// Returns the second from which on every 30 s (in steps of ten) use at least `share` of the
    /// limit, counted from `from`.
    pub fn settles(&self, case: &Case, from: f64, to: f64, share: f64) -> f64 {
        let mut at = to - 30.0;
        while at >= from {
            let used = self.figures(case, at, at + 30.0).used;
            if used < share {
                return at + 30.0 - from;
            }
            at -= 10.0;
        }
        0.0
    }
}
