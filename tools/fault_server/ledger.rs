//! What an origin saw, and what that says about the crawler: the judge's own figures.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::limit::Limit;

/// So much of what the limit made must be used in a stretch that counts as settled.
const SETTLED_SHARE: f64 = 0.95;
/// Stretches are one window long, and one begins this often in a window.
const STEPS: u32 = 10;
/// The least that undercuts a hold: clocks read one after the other are not this far apart.
const HOLD_GRAIN: Duration = Duration::from_millis(1);
/// More requests than this are answered and not recorded.
const ARRIVALS_MAX: usize = 10_000_000;

/// What was done about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page by the origin.
    Served,
    /// A page by the cache before it.
    Hit,
    /// Refused by the limit.
    Refused,
    /// Any page is refused by now, whatever the limit.
    Blocked,
    /// The client is refused, whatever it does.
    Banned,
    /// A page that goes wrong.
    Fault,
    Robots,
}

/// A request, stamped when it had been read.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Duration,
    /// When its reply was with the kernel, or its client had gone.
    pub ended: Option<Duration>,
    pub kind: Kind,
    /// What it took of the limit.
    pub units: f64,
    /// How long its reply asks to be left alone.
    pub hold: Option<Duration>,
    /// How many were in flight with it.
    pub in_flight: usize,
}

impl Arrival {
    pub fn new(at: Duration, kind: Kind, units: f64) -> Self {
        Arrival {
            at,
            ended: None,
            kind,
            units,
            hold: None,
            in_flight: 0,
        }
    }
}

/// How a record is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// What refusals are counted per.
    pub window: Duration,
    /// A request that came this long after a refusal left was sent in knowledge of it.
    pub round_trip: Duration,
    /// When the watch ended.
    pub end: Duration,
}

/// The record of one origin.
#[derive(Default)]
pub struct Ledger {
    arrivals: Vec<Arrival>,
    in_flight: usize,
    unrecorded: u64,
}

impl Ledger {
    /// Takes note of a request and gives its number.
    pub fn arrive(&mut self, mut arrival: Arrival) -> usize {
        self.in_flight += 1;
        arrival.in_flight = self.in_flight;
        if self.arrivals.len() < ARRIVALS_MAX {
            self.arrivals.push(arrival);
            self.arrivals.len() - 1
        } else {
            self.unrecorded += 1;
            usize::MAX
        }
    }

    pub fn end(&mut self, number: usize, now: Duration) {
        self.in_flight -= 1;
        if let Some(arrival) = self.arrivals.get_mut(number) {
            arrival.ended = Some(now);
        }
    }

    #[cfg(test)]
    pub fn kind(&self, number: usize) -> Kind {
        self.arrivals[number].kind
    }

    /// All figures. The limit tells what there was to use.
    pub fn report(&self, limit: Option<&Limit>, reading: Reading) -> Value {
        let pages: Vec<&Arrival> = self.pages().collect();
        let robots = self.arrivals.len() - pages.len();
        let Some(first) = pages.first() else {
            return json!({"requests": 0, "robots": robots, "in_flight": self.in_flight});
        };
        let watch = Watch::new(&pages, limit, reading);
        let whole = watch.stretch(first.at, reading.end);
        let mut report = whole.figures();
        let more = json!({
            "robots": robots,
            "unrecorded": self.unrecorded,
            "first": first.at.as_secs_f64(),
            "in_flight": self.in_flight,
            "kinds": whole.kinds(),
            "rounds": watch.rounds.len(),
            "largest_round": watch.rounds.iter().map(|round| round.refusals).max().unwrap_or(0),
            "phases": watch.phases(),
            "windows": watch.windows(),
            "holds": holds(&pages, reading.round_trip),
            "before_block": watch.before_block(),
            "after_block": watch.after_block(),
        });
        merge(&mut report, more);
        report
    }

    /// Every arrival as a JSON line.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_arrivals(&self, origin: &str, out: &mut impl Write) -> io::Result<()> {
        for arrival in &self.arrivals {
            let line = json!({
                "origin": origin,
                "at": arrival.at.as_secs_f64(),
                "ended": arrival.ended.map(|ended| ended.as_secs_f64()),
                "kind": name(arrival.kind),
                "units": arrival.units,
                "hold": arrival.hold.map(|hold| hold.as_secs_f64()),
                "in_flight": arrival.in_flight,
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn pages(&self) -> impl Iterator<Item = &Arrival> {
        let all = self.arrivals.iter();
        all.filter(|arrival| arrival.kind != Kind::Robots)
    }
}

/// The refusals of requests that were sent before the first of them was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    at: Duration,
    refusals: usize,
}

fn rounds(pages: &[&Arrival], round_trip: Duration) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    let mut known = Duration::ZERO;
    for refusal in pages.iter().filter(|page| page.kind == Kind::Refused) {
        match rounds.last_mut() {
            Some(round) if refusal.at < known => round.refusals += 1,
            _ => {
                known = refusal.ended.unwrap_or(Duration::MAX - round_trip) + round_trip;
                rounds.push(Round {
                    at: refusal.at,
                    refusals: 1,
                });
            }
        }
    }
    rounds
}

/// Who came although a reply had asked to be left alone.
fn holds(pages: &[&Arrival], round_trip: Duration) -> Value {
    let mut asked: Vec<(Duration, Duration)> = pages
        .iter()
        .filter_map(|page| {
            let (ended, hold) = (page.ended?, page.hold?);
            Some((ended + round_trip, ended + hold))
        })
        .collect();
    asked.sort_unstable();
    let (mut next, mut until) = (0, Duration::ZERO);
    let (mut undercut, mut worst) = (0, Duration::ZERO);
    for page in pages {
        while let Some((_, end)) = asked.get(next).filter(|(known, _)| *known < page.at) {
            until = until.max(*end);
            next += 1;
        }
        if page.at + HOLD_GRAIN < until {
            undercut += 1;
            worst = worst.max(until - page.at);
        }
    }
    json!({"asked": asked.len(), "undercut": undercut, "worst": worst.as_secs_f64()})
}

/// A record with what is derived from it once.
struct Watch<'a> {
    pages: &'a [&'a Arrival],
    rounds: Vec<Round>,
    limit: Option<&'a Limit>,
    first: Duration,
    reading: Reading,
}

/// A part of the record and its time.
struct Stretch<'a> {
    pages: &'a [&'a Arrival],
    rounds: usize,
    /// What the limit made in this time, and what the limit held when it began.
    offered: Option<f64>,
    seconds: f64,
    windows: f64,
}

impl<'a> Watch<'a> {
    fn new(pages: &'a [&'a Arrival], limit: Option<&'a Limit>, reading: Reading) -> Self {
        Watch {
            pages,
            rounds: rounds(pages, reading.round_trip),
            limit,
            first: pages[0].at,
            reading,
        }
    }

    fn stretch(&self, from: Duration, to: Duration) -> Stretch<'a> {
        let begin = self.pages.partition_point(|page| page.at < from);
        let end = self.pages.partition_point(|page| page.at < to);
        let rounds = self.rounds.iter();
        let seconds = to.saturating_sub(from).as_secs_f64();
        Stretch {
            pages: &self.pages[begin..end.max(begin)],
            rounds: rounds
                .filter(|round| (from..to).contains(&round.at))
                .count(),
            offered: self
                .limit
                .map(|limit| limit.offered(from - self.first, to - self.first)),
            seconds,
            windows: seconds / self.reading.window.as_secs_f64(),
        }
    }

    /// For each rate of the limit: when the crawler settled at it, and how it did from then on.
    fn phases(&self) -> Vec<Value> {
        let starts = match self.limit {
            Some(limit) => limit.phases(),
            None => vec![(Duration::ZERO, 0.0)],
        };
        let mut phases = Vec::new();
        for (index, (from, rate)) in starts.iter().enumerate() {
            let from = self.first + *from;
            let end = starts.get(index + 1).map(|(end, _)| self.first + *end);
            let end = end.unwrap_or(self.reading.end).min(self.reading.end);
            if from >= end {
                break;
            }
            let settled = self.settled(from, end);
            let half = from + (end - from) / 2;
            let mut phase = self.stretch(from, end).figures();
            let more = json!({
                "from": (from - self.first).as_secs_f64(),
                "rate": self.limit.map(|_| rate),
                "settled_after": settled.map(|at| (at - from).as_secs_f64()),
                "settled": settled.map(|at| self.stretch(at, end).figures()),
                "last_half": self.stretch(half, end).figures(),
            });
            merge(&mut phase, more);
            phases.push(phase);
        }
        phases
    }

    /// The first moment from which every stretch of one window, begun at any tenth of one, used 95 %
    /// of what the limit made, and every stretch of two saw two rounds of refusals at most. One
    /// request less is forgiven, for it may come a little later.
    fn settled(&self, from: Duration, end: Duration) -> Option<Duration> {
        self.limit?;
        let window = self.reading.window;
        let step = window / STEPS;
        let mut begin = from;
        let mut settled = None;
        while begin + window <= end {
            let stretch = self.stretch(begin, begin + window);
            let most = stretch
                .pages
                .iter()
                .map(|page| page.units)
                .fold(1.0, f64::max);
            let offered = stretch.offered.expect("there is a limit");
            let used = stretch.used() + most >= offered * SETTLED_SHARE;
            let two = self.stretch(begin, (begin + 2 * window).min(end));
            let good = used && two.rounds <= 2;
            settled = good.then(|| settled.unwrap_or(begin));
            begin += step;
        }
        settled
    }

    fn windows(&self) -> Vec<Value> {
        let window = self.reading.window;
        let mut begin = self.first;
        let mut windows = Vec::new();
        while begin + window <= self.reading.end {
            windows.push(self.stretch(begin, begin + window).figures());
            begin += window;
        }
        windows
    }

    fn block(&self) -> Option<Duration> {
        let mut pages = self.pages.iter();
        let first = pages.find(|page| page.kind == Kind::Blocked)?;
        Some(first.at)
    }

    fn before_block(&self) -> Option<Value> {
        let block = self.block()?;
        Some(self.stretch(self.first, block).figures())
    }

    /// How hard the crawler went on, at first and in all, once every page was blocked.
    fn after_block(&self) -> Option<Value> {
        let block = self.block()?;
        let mut figures = self.stretch(block, self.reading.end).figures();
        let within = |seconds| {
            let stretch = self.stretch(block, block + Duration::from_secs(seconds));
            stretch.count(Kind::Blocked)
        };
        let half = block + (self.reading.end.saturating_sub(block)) / 2;
        let more = json!({
            "blocked_in_first_second": within(1),
            "blocked_in_first_ten_seconds": within(10),
            "last_half": self.stretch(half, self.reading.end).figures(),
        });
        merge(&mut figures, more);
        Some(figures)
    }
}

impl Stretch<'_> {
    fn count(&self, kind: Kind) -> usize {
        self.pages.iter().filter(|page| page.kind == kind).count()
    }

    fn used(&self) -> f64 {
        // The sum of nothing would be -0.
        self.pages.iter().fold(0.0, |sum, page| sum + page.units)
    }

    fn figures(&self) -> Value {
        let per = |count: usize, amount: f64| (amount > 0.0).then(|| count as f64 / amount);
        let refused = self.count(Kind::Refused);
        let origin = self.count(Kind::Served) + self.count(Kind::Fault);
        json!({
            "seconds": self.seconds,
            "requests": self.pages.len(),
            "requests_per_second": per(self.pages.len(), self.seconds),
            "accepted_per_second": per(origin, self.seconds),
            "share": self.offered.filter(|offered| *offered > 0.0)
                .map(|offered| self.used() / offered),
            "refused": refused,
            "refused_share": per(refused, self.pages.len() as f64),
            "refused_per_window": per(refused, self.windows),
            "rounds_per_window": per(self.rounds, self.windows),
            "peak_in_flight": self.pages.iter().map(|page| page.in_flight).max().unwrap_or(0),
            "gap": self.gaps(),
        })
    }

    fn kinds(&self) -> Value {
        use Kind::*;
        let all = [Served, Hit, Refused, Blocked, Banned, Fault];
        let counts = all.map(|kind| (name(kind).to_owned(), json!(self.count(kind))));
        Value::Object(counts.into_iter().collect())
    }

    /// Between neighbours, in seconds.
    fn gaps(&self) -> Option<Value> {
        let pairs = self.pages.windows(2);
        let gaps: Vec<f64> = pairs
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64())
            .collect();
        if gaps.is_empty() {
            return None;
        }
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        let cv = (mean > 0.0).then(|| variance.sqrt() / mean);
        let least = gaps.iter().copied().fold(f64::INFINITY, f64::min);
        let most = gaps.iter().copied().fold(0.0, f64::max);
        Some(json!({"min": least, "mean": mean, "max": most, "cv": cv}))
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Served => "served",
        Kind::Hit => "hit",
        Kind::Refused => "refused",
        Kind::Blocked => "blocked",
        Kind::Banned => "banned",
        Kind::Fault => "fault",
        Kind::Robots => "robots",
    }
}

#[cfg(test)]
mod tests {
    use super::super::limit::{Burst, Schedule};
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Plays requests at these milliseconds against a limit; each takes a millisecond to answer.
    fn play(limit: &mut Limit, at: impl IntoIterator<Item = u64>) -> Ledger {
        let mut ledger = Ledger::default();
        let mut first = None;
        for at in at {
            let at = MS * at as u32;
            let granted = limit.take(1.0, at - *first.get_or_insert(at));
            let (kind, units) = match granted {
                true => (Kind::Served, 1.0),
                false => (Kind::Refused, 0.0),
            };
            let number = ledger.arrive(Arrival::new(at, kind, units));
            ledger.end(number, at + MS);
        }
        ledger
    }

    fn bucket(rates: &[(u64, f64)], burst: f64) -> Limit {
        let steps = rates.iter();
        let steps = steps.map(|(s, rate)| (Duration::from_secs(*s), *rate));
        Limit::bucket(Schedule::new(steps.collect()), Burst::Units(burst), false)
    }

    fn read(ledger: &Ledger, limit: &Limit, end: u64) -> Value {
        let reading = Reading {
            window: Duration::from_secs(10),
            round_trip: MS * 5,
            end: MS * end as u32,
        };
        ledger.report(Some(limit), reading)
    }

    fn about(value: &Value, expected: f64) {
        let found = value.as_f64().expect("a number");
        assert!((found - expected).abs() < 0.005, "{found}, not {expected}");
    }

    #[test]
    fn a_crawler_exactly_at_the_limit_is_settled_from_the_start() {
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, (0..300).map(|i| 1000 + i * 200));
        let report = read(&ledger, &limit, 61_000);
        about(&report["share"], 1.0);
        about(&report["phases"][0]["settled_after"], 0.0);
        about(&report["phases"][0]["settled"]["rounds_per_window"], 0.0);
        about(&report["gap"]["cv"], 0.0);
        assert_eq!(report["windows"].as_array().map(Vec::len), Some(6));
    }

    #[test]
    fn who_is_slow_at_first_settles_later_and_who_stays_slow_never() {
        let slow = (0..20).map(|i| i * 1000);
        let fast = (0..200).map(|i| 20_000 + i * 200);
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, slow.chain(fast));
        let report = read(&ledger, &limit, 60_000);
        about(&report["phases"][0]["settled_after"], 20.0);
        about(&report["phases"][0]["settled"]["share"], 1.0);
        about(&report["share"], 220.0 / 300.0);
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, (0..60).map(|i| i * 1000));
        let report = read(&ledger, &limit, 60_000);
        assert_eq!(report["phases"][0]["settled_after"], Value::Null);
        about(&report["phases"][0]["last_half"]["share"], 0.2);
    }

    #[test]
    fn who_is_refused_three_times_in_two_windows_is_not_settled_before_that_is_over() {
        // 4 % too fast for half a minute: what is too much is refused, each in a round of its own.
        let hasty = (0..150).map(|i| i * 192);
        let calm = (0..160).map(|i| 28_800 + i * 200);
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, hasty.chain(calm));
        let report = read(&ledger, &limit, 60_000);
        let settled = report["phases"][0]["settled_after"].as_f64();
        assert!(settled > Some(10.0) && settled < Some(30.0), "{settled:?}");
    }

    #[test]
    fn a_crawler_that_stops_is_not_settled_however_well_it_did() {
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, (0..200).map(|i| i * 200));
        let report = read(&ledger, &limit, 60_000);
        assert_eq!(report["phases"][0]["settled_after"], Value::Null);
        about(&report["share"], 200.0 / 300.0);
    }

    #[test]
    fn each_rate_of_a_moving_limit_is_judged_by_itself() {
        let fast = (0..800).map(|i| i * 50);
        let slow = (0..200).map(|i| 40_000 + i * 200);
        let mut limit = bucket(&[(0, 20.0), (40, 5.0)], 1.0);
        let ledger = play(&mut limit, fast.chain(slow));
        let report = read(&ledger, &limit, 80_000);
        for (phase, rate) in [(0, 20.0), (1, 5.0)] {
            let phase = &report["phases"][phase];
            about(&phase["rate"], rate);
            about(&phase["share"], 1.0);
            about(&phase["settled_after"], 0.0);
        }
    }

    #[test]
    fn refusals_of_one_moment_are_one_round_and_those_in_knowledge_of_it_are_more() {
        let mut limit = bucket(&[(0, 1.0)], 1.0);
        // The first refusal is known at 10 + 1 + 5 ms.
        let ledger = play(&mut limit, [0, 10, 11, 12, 15, 16, 17, 500]);
        let report = read(&ledger, &limit, 10_000);
        assert_eq!(report["refused"], 7);
        assert_eq!(report["rounds"], 3);
        assert_eq!(report["largest_round"], 4);
    }

    #[test]
    fn steady_refusals_are_as_many_rounds_as_there_were_chances_to_learn() {
        let mut limit = bucket(&[(0, 1.0)], 1.0);
        let ledger = play(&mut limit, 0..1000);
        let report = read(&ledger, &limit, 1000);
        // One every 1 + 5 ms.
        assert_eq!(report["rounds"], 167);
    }

    #[test]
    fn who_comes_before_the_time_that_was_asked_for_undercuts_it() {
        let mut ledger = Ledger::default();
        let mut come = |at: u64, hold: Option<u64>| {
            let mut arrival = Arrival::new(MS * at as u32, Kind::Refused, 0.0);
            arrival.hold = hold.map(Duration::from_secs);
            let number = ledger.arrive(arrival);
            ledger.end(number, MS * at as u32);
        };
        come(0, Some(2));
        // Under way when the hold was not known yet.
        come(4, None);
        come(1500, None);
        come(2000, Some(1));
        come(2998, None);
        come(3000, None);
        let report = read(&ledger, &bucket(&[(0, 1.0)], 1.0), 4000);
        let holds = &report["holds"];
        assert_eq!(
            (&holds["asked"], &holds["undercut"]),
            (&json!(2), &json!(2))
        );
        about(&holds["worst"], 0.5);
    }

    #[test]
    fn in_flight_is_counted_to_the_end_of_each_reply() {
        let mut ledger = Ledger::default();
        let arrive =
            |ledger: &mut Ledger, at| ledger.arrive(Arrival::new(MS * at, Kind::Served, 1.0));
        let first = arrive(&mut ledger, 0);
        let second = arrive(&mut ledger, 1);
        ledger.end(first, MS * 2);
        let third = arrive(&mut ledger, 3);
        ledger.end(second, MS * 4);
        let report = read(&ledger, &bucket(&[(0, 1.0)], 1.0), 10);
        assert_eq!(
            (&report["peak_in_flight"], &report["in_flight"]),
            (&json!(2), &json!(1))
        );
        ledger.end(third, MS * 5);
    }

    #[test]
    fn the_time_after_a_block_is_told_apart() {
        let mut ledger = Ledger::default();
        for at in 0..30u32 {
            let kind = if at < 10 { Kind::Served } else { Kind::Blocked };
            let number = ledger.arrive(Arrival::new(MS * 100 * at, kind, 0.0));
            ledger.end(number, MS * 100 * at);
        }
        let report = read(&ledger, &bucket(&[(0, 1.0)], 1.0), 3000);
        assert_eq!(report["before_block"]["requests"], 10);
        assert_eq!(report["after_block"]["requests"], 20);
        assert_eq!(report["after_block"]["blocked_in_first_second"], 10);
    }
}
