//! Record and report of one origin: rates, gaps, refusals and holds of the crawler.

use std::io::{self, Write};
use std::time::Duration;

use argiope::testkit::ledger::{self, ArrivalId, gaps};
use serde_json::{Value, json};

use super::limit::Limit;

/// The least share of the limit that is used in a settled stretch.
const SETTLED_SHARE: f64 = 0.95;
/// Stretches are one window long; this many begin per window.
const STEPS: u32 = 10;
/// A hold is undercut by more than this: two clocks read in sequence differ by less.
const HOLD_GRAIN: Duration = Duration::from_millis(1);

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page from the origin.
    Served,
    /// A page from its cache.
    Hit,
    /// Refused by the limit.
    Refused,
    /// Refused by the block, whatever the limit.
    Blocked,
    /// Refused for a header of the client.
    Banned,
    /// An injected fault.
    Fault,
    Robots,
}

/// A request, stamped after it was read.
type Arrival = ledger::Arrival<Answered>;

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answered {
    pub kind: Kind,
    /// Units charged to the limit.
    pub units: f64,
    /// The Retry-After of the reply.
    pub hold: Option<Duration>,
}

/// Parameters of a report.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Refusals are reported per window of this length.
    pub window: Duration,
    /// A request that arrives later than this after a refusal was sent after the client had read it.
    pub round_trip: Duration,
    /// End of the measurement.
    pub end: Duration,
}

/// The record of one origin.
#[derive(Default)]
pub struct Ledger {
    record: ledger::Ledger<Answered>,
}

impl Ledger {
    /// Records a request; returns its number.
    pub fn arrive(&mut self, at: Duration, answered: Answered) -> ArrivalId {
        self.record.arrive(at, answered)
    }

    pub fn end(&mut self, id: ArrivalId, now: Duration) {
        self.record.end(id, now);
    }

    #[cfg(test)]
    pub fn last_kind(&self) -> Option<Kind> {
        Some(self.record.arrivals().last()?.note.kind)
    }

    /// The report, with shares of `limit`.
    pub fn report(&self, limit: Option<&Limit>, reading: Reading) -> Value {
        let pages: Vec<&Arrival> = self.pages().collect();
        let in_flight = self.record.in_flight();
        let robots = self.record.arrivals().len() - pages.len();
        let Some(first) = pages.first() else {
            return json!({"requests": 0, "robots": robots, "in_flight": in_flight});
        };
        let watch = Watch::new(&pages, limit, reading);
        let whole = watch.stretch(first.at, reading.end);
        let mut report = whole.figures();
        let more = json!({
            "robots": robots,
            "unrecorded": self.record.unrecorded(),
            "first": first.at.as_secs_f64(),
            "in_flight": in_flight,
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
        for arrival in self.record.arrivals() {
            let Answered { kind, units, hold } = &arrival.note;
            let line = json!({
                "origin": origin,
                "at": arrival.at.as_secs_f64(),
                "ended": arrival.ended.map(|ended| ended.as_secs_f64()),
                "kind": name(*kind),
                "units": units,
                "hold": hold.map(|hold| hold.as_secs_f64()),
                "in_flight": arrival.in_flight,
            });
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn pages(&self) -> impl Iterator<Item = &Arrival> {
        let all = self.record.arrivals().iter();
        all.filter(|arrival| arrival.note.kind != Kind::Robots)
    }
}

/// The refusals of requests that were sent before the client had read the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    at: Duration,
    refusals: usize,
}

fn rounds(pages: &[&Arrival], round_trip: Duration) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    let mut known = Duration::ZERO;
    for refusal in pages.iter().filter(|page| page.note.kind == Kind::Refused) {
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

/// Requests sent during a Retry-After.
fn holds(pages: &[&Arrival], round_trip: Duration) -> Value {
    let mut asked: Vec<(Duration, Duration)> = pages
        .iter()
        .filter_map(|page| {
            let (ended, hold) = (page.ended?, page.note.hold?);
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

/// A record and the values derived from it.
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
    /// Units that the limit added in this time.
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

    /// For each rate of the limit: when the crawler settled, and its figures since then.
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

    /// The first time from which every stretch of one window, beginning at any tenth of a window, used
    /// 95 % of the limit, and every stretch of two windows had at most two rounds of refusals. A stretch may
    /// lack one request, which can arrive just after it.
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
                .map(|page| page.note.units)
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
        let first = pages.find(|page| page.note.kind == Kind::Blocked)?;
        Some(first.at)
    }

    fn before_block(&self) -> Option<Value> {
        let block = self.block()?;
        Some(self.stretch(self.first, block).figures())
    }

    /// Requests after the block began: in the first seconds, and in total.
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
        self.pages
            .iter()
            .filter(|page| page.note.kind == kind)
            .count()
    }

    fn used(&self) -> f64 {
        // An empty `sum` is -0.
        self.pages
            .iter()
            .fold(0.0, |sum, page| sum + page.note.units)
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

    /// Gaps between consecutive requests, in seconds.
    fn gaps(&self) -> Option<Value> {
        let gaps: Vec<f64> = gaps(self.pages.iter().copied())
            .map(|(_, gap)| gap.as_secs_f64())
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

    fn answered(kind: Kind, units: f64) -> Answered {
        Answered {
            kind,
            units,
            hold: None,
        }
    }

    /// Sends requests at these milliseconds to a limit; each takes a millisecond to answer.
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
            let id = ledger.arrive(at, answered(kind, units));
            ledger.end(id, at + MS);
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
    fn slow_start_settles_later_and_a_slow_crawl_never() {
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
    fn three_rounds_in_two_windows_are_not_settled() {
        // 4 % too fast for half a minute: the excess is refused, each in its own round.
        let hasty = (0..150).map(|i| i * 192);
        let calm = (0..160).map(|i| 28_800 + i * 200);
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, hasty.chain(calm));
        let report = read(&ledger, &limit, 60_000);
        let settled = report["phases"][0]["settled_after"].as_f64();
        assert!(settled > Some(10.0) && settled < Some(30.0), "{settled:?}");
    }

    #[test]
    fn crawl_that_stops_early_is_not_settled() {
        let mut limit = bucket(&[(0, 5.0)], 1.0);
        let ledger = play(&mut limit, (0..200).map(|i| i * 200));
        let report = read(&ledger, &limit, 60_000);
        assert_eq!(report["phases"][0]["settled_after"], Value::Null);
        about(&report["share"], 200.0 / 300.0);
    }

    #[test]
    fn each_rate_of_a_changing_limit_has_its_own_phase() {
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
    fn requests_sent_before_a_refusal_was_read_belong_to_its_round() {
        let mut limit = bucket(&[(0, 1.0)], 1.0);
        // The first refusal is known at 10 + 1 + 5 ms.
        let ledger = play(&mut limit, [0, 10, 11, 12, 15, 16, 17, 500]);
        let report = read(&ledger, &limit, 10_000);
        assert_eq!(report["refused"], 7);
        assert_eq!(report["rounds"], 3);
        assert_eq!(report["largest_round"], 4);
    }

    #[test]
    fn constant_refusals_are_one_round_per_round_trip() {
        let mut limit = bucket(&[(0, 1.0)], 1.0);
        let ledger = play(&mut limit, 0..1000);
        let report = read(&ledger, &limit, 1000);
        // One every 1 + 5 ms.
        assert_eq!(report["rounds"], 167);
    }

    #[test]
    fn requests_during_a_retry_after_are_counted() {
        let mut ledger = Ledger::default();
        let mut come = |at: u64, hold: Option<u64>| {
            let mut answered = answered(Kind::Refused, 0.0);
            answered.hold = hold.map(Duration::from_secs);
            let id = ledger.arrive(MS * at as u32, answered);
            ledger.end(id, MS * at as u32);
        };
        come(0, Some(2));
        // Sent before the client had read the hold.
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
    fn requests_are_in_flight_until_their_reply_ends() {
        let mut ledger = Ledger::default();
        let arrive = |ledger: &mut Ledger, at| ledger.arrive(MS * at, answered(Kind::Served, 1.0));
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
    fn requests_after_a_block_are_reported_separately() {
        let mut ledger = Ledger::default();
        for at in 0..30u32 {
            let kind = if at < 10 { Kind::Served } else { Kind::Blocked };
            let id = ledger.arrive(MS * 100 * at, answered(kind, 0.0));
            ledger.end(id, MS * 100 * at);
        }
        let report = read(&ledger, &bucket(&[(0, 1.0)], 1.0), 3000);
        assert_eq!(report["before_block"]["requests"], 10);
        assert_eq!(report["after_block"]["requests"], 20);
        assert_eq!(report["after_block"]["blocked_in_first_second"], 10);
    }
}
