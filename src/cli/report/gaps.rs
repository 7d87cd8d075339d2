//! Gaps between the departures of a scope, compared with the delay that was promised before each.
//!
//! Lines are in the order of finishing, so departures are put in order first: a departure is compared when
//! [`WINDOW`] later lines were read. It is exact unless more lines than that finished while one request was under
//! way; the number of these is reported.
//!
//! `delay` of a line is the longest that any of its scopes asked for. Of a request with several scopes the longest
//! gap is compared: if even that is shorter, a promise was broken, though some that were broken are not found.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use argiope::Spread;
use argiope::audit::Time;
use serde::Serialize;

use super::names::{NameId, Names};
use super::percentiles::Percentiles;

/// Compares gaps while lines are read.
pub struct GapJudge {
    waiting: BinaryHeap<Reverse<Departure>>,
    window: usize,
    /// The departure that was compared last: those before it come too late.
    compared_until: Time,
    /// Last departure of each scope.
    last: Vec<Option<Time>>,
    found: Gaps,
    delays: Spread,
    gaps: Spread,
    by_ratio: [u64; RATIOS.len()],
}

/// Gaps against what was promised.
#[derive(Default, Serialize)]
pub struct Gaps {
    /// Departures whose gap was compared with a delay.
    pub compared: u64,
    /// Those with a gap that is shorter than the delay.
    pub short: u64,
    /// Those with several scopes, of which the longest gap was compared.
    pub compared_longest: u64,
    /// Departures before which no gap was required: the first of a scope, and those of scopes without a delay.
    pub without_delay: u64,
    /// Departures with a delay before which no other one of their scopes is in the file.
    pub without_predecessor: u64,
    /// Departures of scopes for which there was no room.
    pub omitted: u64,
    /// Departures whose lines came too late to be put in order.
    pub unordered: u64,
    /// The promised delays, and the gaps, of those that were compared.
    pub delay: Option<Percentiles>,
    pub gap: Option<Percentiles>,
    /// The gap as a multiple of the delay.
    pub ratios: Vec<RatioRange>,
    /// The departures with the least ratio, from the least.
    pub tightest: Vec<TightGap>,
}

/// Departures whose gap is in a range of multiples of the delay.
#[derive(Serialize)]
pub struct RatioRange {
    /// The least of the range.
    pub from: f64,
    /// What it ends before; null of the last.
    pub to: Option<f64>,
    pub count: u64,
}

/// A gap that is short in relation to its delay.
#[derive(Serialize)]
pub struct TightGap {
    pub scope: String,
    pub sent: String,
    pub gap: f64,
    pub delay: f64,
}

/// A request that departed.
#[derive(PartialEq, Eq)]
struct Departure {
    sent: Time,
    delay: Duration,
    scopes: DepartureScopes,
}

/// The scopes of a departure, of which there is mostly one.
#[derive(PartialEq, Eq)]
enum DepartureScopes {
    One(NameId),
    Several(Box<[NameId]>),
}

/// Departures that wait for earlier ones: 40 bytes each.
pub const WINDOW: usize = 1 << 20;
/// Gaps that are listed.
const TIGHTEST: usize = 10;
/// The least of each range.
const RATIOS: [f64; 9] = [0.0, 0.9, 1.0, 1.01, 1.1, 1.5, 2.0, 5.0, 10.0];

impl Ord for Departure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sent.cmp(&other.sent)
    }
}

impl PartialOrd for Departure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl GapJudge {
    /// Puts departures in order within so many lines. Reserves room for them, and for scopes with numbers below
    /// `scopes`.
    pub fn new(window: usize, scopes: usize) -> Self {
        GapJudge {
            waiting: BinaryHeap::with_capacity(window + 1),
            window,
            compared_until: Time(0),
            last: Vec::with_capacity(scopes),
            found: Gaps::default(),
            delays: Spread::new(),
            gaps: Spread::new(),
            by_ratio: [0; RATIOS.len()],
        }
    }

    /// A departure of a request with these scopes; `None`: one of them has no number.
    pub fn add(&mut self, sent: Time, delay: Duration, scopes: Option<&[NameId]>, names: &Names) {
        let scopes = match scopes {
            Some([id]) => DepartureScopes::One(*id),
            Some(several) if !several.is_empty() => DepartureScopes::Several(several.into()),
            _ => {
                self.found.omitted += 1;
                return;
            }
        };
        if sent < self.compared_until {
            self.found.unordered += 1;
            return;
        }
        self.waiting.push(Reverse(Departure {
            sent,
            delay,
            scopes,
        }));
        if self.waiting.len() > self.window {
            self.compare_first(names);
        }
    }

    fn compare_first(&mut self, names: &Names) {
        let Some(Reverse(departure)) = self.waiting.pop() else {
            return;
        };
        self.compared_until = departure.sent;
        let scopes = match &departure.scopes {
            DepartureScopes::One(id) => std::slice::from_ref(id),
            DepartureScopes::Several(ids) => ids,
        };
        let mut longest: Option<(Duration, NameId)> = None;
        for id in scopes {
            let at = *id as usize;
            if self.last.len() <= at {
                self.last.resize(at + 1, None);
            }
            if let Some(last) = self.last[at].replace(departure.sent) {
                let gap = Duration::from_nanos(departure.sent.0 - last.0);
                if longest.is_none_or(|(longest, _)| gap > longest) {
                    longest = Some((gap, *id));
                }
            }
        }
        if departure.delay.is_zero() {
            self.found.without_delay += 1;
            return;
        }
        let Some((gap, id)) = longest else {
            self.found.without_predecessor += 1;
            return;
        };
        self.found.compared += 1;
        self.found.short += u64::from(gap < departure.delay);
        self.found.compared_longest += u64::from(scopes.len() > 1);
        self.delays.record(departure.delay);
        self.gaps.record(gap);
        let ratio = ratio(gap, departure.delay);
        self.by_ratio[RATIOS.partition_point(|from| *from <= ratio) - 1] += 1;
        self.list(ratio, gap, &departure, names.name(id));
    }

    /// Adds a gap to the list of the tightest if it is one.
    fn list(&mut self, least: f64, gap: Duration, departure: &Departure, scope: &str) {
        let tightest = &mut self.found.tightest;
        let at = tightest.partition_point(|other| other.gap / other.delay <= least);
        if at >= TIGHTEST {
            return;
        }
        let listed = TightGap {
            scope: scope.to_owned(),
            sent: departure.sent.to_string(),
            gap: gap.as_secs_f64(),
            delay: departure.delay.as_secs_f64(),
        };
        tightest.insert(at, listed);
        tightest.truncate(TIGHTEST);
    }

    /// The result after the last line.
    pub fn finish(mut self, names: &Names) -> Gaps {
        while !self.waiting.is_empty() {
            self.compare_first(names);
        }
        self.found.delay = Percentiles::of(&self.delays);
        self.found.gap = Percentiles::of(&self.gaps);
        let range = |(at, from): (usize, &f64)| RatioRange {
            from: *from,
            to: RATIOS.get(at + 1).copied(),
            count: self.by_ratio[at],
        };
        self.found.ratios = RATIOS.iter().enumerate().map(range).collect();
        self.found
    }
}

/// The gap as a multiple of the delay. Rounding makes none of a shorter gap 1.
fn ratio(gap: Duration, delay: Duration) -> f64 {
    let ratio = gap.as_secs_f64() / delay.as_secs_f64();
    match gap < delay {
        true => ratio.min(1.0 - f64::EPSILON),
        false => ratio.max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of departures: time and delay in milliseconds, and scopes.
    fn judged(window: usize, departures: &[(u64, u64, &[&str])]) -> Gaps {
        let mut names = Names::new(100);
        let mut judge = GapJudge::new(window, 100);
        for (sent, delay, scopes) in departures {
            let ids: Vec<NameId> = scopes.iter().filter_map(|name| names.id(name)).collect();
            let sent = Time((1000 + sent) * 1_000_000);
            judge.add(sent, Duration::from_millis(*delay), Some(&ids), &names);
        }
        judge.finish(&names)
    }

    fn check(departures: &[(u64, u64, &[&str])], compared: u64, short: u64) {
        let found = judged(100, departures);
        assert_eq!((found.compared, found.short), (compared, short));
    }

    #[test]
    fn a_gap_is_from_one_departure_of_a_scope_to_the_next() {
        let (a, b): (&[&str], &[&str]) = (&["a"], &["b"]);
        check(&[(0, 0, a), (10, 10, a), (15, 0, b), (20, 10, a)], 2, 0);
        check(&[(0, 0, a), (10, 10, a), (15, 0, a), (20, 10, a)], 2, 1);
    }

    #[test]
    fn departures_are_compared_in_their_order_and_not_in_that_of_their_lines() {
        let a: &[&str] = &["a"];
        check(&[(20, 10, a), (0, 0, a), (30, 10, a), (10, 10, a)], 3, 0);
        check(&[(19, 10, a), (0, 0, a), (30, 10, a), (10, 10, a)], 3, 1);
    }

    #[test]
    fn a_departure_whose_line_comes_too_late_is_counted_and_not_compared() {
        let a: &[&str] = &["a"];
        let lines = [(10, 0, a), (20, 10, a), (30, 10, a), (5, 10, a)];
        let found = judged(1, &lines);
        let counts = (found.compared, found.unordered, found.without_delay);
        assert_eq!(counts, (2, 1, 1));
        assert_eq!(judged(3, &lines).unordered, 0);
    }

    #[test]
    fn of_several_scopes_the_longest_gap_is_compared() {
        let (both, b): (&[&str], &[&str]) = (&["a", "b"], &["b"]);
        check(&[(0, 0, both), (7, 0, b), (10, 10, both)], 1, 0);
        check(&[(0, 0, both), (7, 0, b), (9, 10, both)], 1, 1);
        assert_eq!(
            judged(9, &[(0, 0, both), (10, 10, both)]).compared_longest,
            1
        );
    }

    #[test]
    fn without_a_promise_or_a_predecessor_nothing_is_compared() {
        let (a, none): (&[&str], &[&str]) = (&["a"], &[]);
        let found = judged(9, &[(0, 10, a), (1, 0, a), (2, 10, none)]);
        assert_eq!(found.compared, 0);
        let counts = [
            found.without_predecessor,
            found.without_delay,
            found.omitted,
        ];
        assert_eq!(counts, [1, 1, 1]);
        assert!(found.gap.is_none() && found.tightest.is_empty());
    }

    #[test]
    fn the_tightest_gaps_are_listed_from_the_least() {
        let a: &[&str] = &["a"];
        let mut departures = vec![(0, 0, a)];
        let mut at = 0;
        for gap in [30, 20, 5, 10, 15].iter().cycle().take(60) {
            at += gap;
            departures.push((at, 10, a));
        }
        let found = judged(100, &departures);
        let gaps: Vec<f64> = found.tightest.iter().map(|gap| gap.gap).collect();
        assert_eq!(gaps, [0.005; TIGHTEST]);
        let counts: Vec<u64> = found.ratios.iter().map(|range| range.count).collect();
        assert_eq!(counts, [12, 0, 12, 0, 0, 12, 24, 0, 0]);
        assert_eq!(found.short, 12);
    }

    #[test]
    fn a_gap_that_lacks_a_nanosecond_is_short() {
        let mut names = Names::new(1);
        let id = names.id("a").expect("room");
        let mut judge = GapJudge::new(9, 1);
        let hour = 3_600_000_000_000;
        for (sent, delay) in [(1, 0), (hour, hour), (2 * hour, hour)] {
            let delay = Duration::from_nanos(delay);
            judge.add(Time(sent), delay, Some(&[id]), &names);
        }
        let found = judge.finish(&names);
        assert_eq!((found.compared, found.short), (2, 1));
        assert_eq!((found.ratios[1].count, found.ratios[2].count), (1, 1));
    }
}
