//! Results of robots.txt fetches beyond the end of the process: those to be saved, and those of an earlier
//! run of the crawl.
//!
//! ```text
//! result = version (1 byte), labelled fields (base::records)
//! ```
//!
//! A result is for one user agent, and is valid for a time from its fetch. Of an earlier run's results the newest are
//! kept, as many as the rules in memory may take; the origins of the others are asked again. Each is read when its
//! origin is needed, or when it is reviewed: a million would delay the first request of the run.
//!
//! A result is saved once a commit has the line of its page and the sitemaps that it names: if the process ends before,
//! the next run fetches the file again.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::robots::RobotsResult;
use crate::base::named::{NamedValues, Position, Reviewed};
use crate::base::records::{self, Records};
use crate::base::time::{Instant, Wall, nanos};
use crate::wire::robots::Rules;

/// Results to be saved, and those of an earlier run, by origin (`http://a.test:81`).
#[derive(Debug)]
pub(super) struct SavedRobots {
    is_on: bool,
    /// Those whose pages the sink has not got, by attempt.
    arrived: HashMap<u64, Encoded>,
    /// Those whose pages the sink has got since the last commit began.
    reported: Vec<Encoded>,
    /// Those whose pages the commit under way has.
    committing: Vec<Encoded>,
    unsaved: VecDeque<Encoded>,
    /// By origin, each with the time of the system's clock at which it was saved.
    earlier: NamedValues,
    /// Those before it were reviewed.
    reviewed: Position,
    resumed: Resumed,
}

/// The origin of a result, and its bytes.
type Encoded = (String, Vec<u8>);

/// When this run continued the earlier one, also by the system's clock.
#[derive(Clone, Copy, Debug)]
struct Resumed {
    at: Instant,
    wall: Wall,
}

impl SavedRobots {
    pub fn new() -> Self {
        SavedRobots {
            is_on: false,
            arrived: HashMap::new(),
            reported: Vec::new(),
            committing: Vec::new(),
            unsaved: VecDeque::new(),
            earlier: NamedValues::new(),
            reviewed: Position::default(),
            resumed: Resumed {
                at: Instant::START,
                wall: Wall(0),
            },
        }
    }

    /// Saves results from now on.
    pub fn start(&mut self) {
        self.is_on = true;
    }

    /// Whether results are saved.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Adds a result that this attempt brought and that is valid for `lifetime` from now on.
    pub fn add(&mut self, attempt: u64, origin: &str, result: &RobotsResult, fetched: Valid<'_>) {
        let bytes = encode(result, fetched);
        self.arrived.insert(attempt, (origin.to_owned(), bytes));
    }

    /// The sink has the page of an attempt. Returns whether its result is saved by a commit.
    pub fn report(&mut self, attempt: u64) -> bool {
        let arrived = self.arrived.remove(&attempt);
        let is_saved = arrived.is_some();
        self.reported.extend(arrived);
        is_saved
    }

    /// A commit begins of what the sink has got until now.
    pub fn begin_commit(&mut self) {
        self.committing.append(&mut self.reported);
    }

    /// The commit under way is durable.
    pub fn handle_committed(&mut self) {
        self.unsaved.extend(self.committing.drain(..));
    }

    /// Whether results wait for a commit.
    pub fn waits_for_commit(&self) -> bool {
        !self.reported.is_empty() || !self.committing.is_empty()
    }

    /// The next result to be saved, with its origin.
    pub fn poll(&mut self) -> Option<Encoded> {
        self.unsaved.pop_front()
    }

    /// Continues with the results of an earlier run, of which the newest are kept as far as there is room. `now`:
    /// also by the system's clock.
    pub fn restore(&mut self, results: NamedValues, now: (Instant, Wall), bytes_max: u64) {
        self.earlier = results;
        let (at, wall) = now;
        self.resumed = Resumed { at, wall };
        let mut oldest = Position::default();
        while self.earlier.memory() as u64 > bytes_max
            && let Some(named) = self.earlier.next(&mut oldest)
        {
            let name: Box<str> = named.name.into();
            self.earlier.take(&name);
        }
    }

    /// The result of an earlier run for an origin that is new in this one, and until when it is valid.
    pub fn take(&mut self, origin: &str, valid: Valid<'_>) -> Option<(RobotsResult, Instant)> {
        let (at, saved) = self.earlier.remove(origin)?;
        let (result, left) = decode(&saved, valid)?;
        let left = self.resumed.left(left, at, valid)?;
        if at > self.resumed.wall.0 {
            // From now on its time is that of this clock.
            self.unsaved
                .push_back((origin.to_owned(), saved.into_vec()));
        }
        Some((result, self.resumed.at + left))
    }

    /// Reviews the next result of an earlier run whose origin is not in use: it is dropped if it is no longer valid.
    /// `None`: all were reviewed.
    pub fn review(&mut self, valid: Valid<'_>, now: Instant) -> Option<Reviewed> {
        let resumed = self.resumed;
        // What was saved later than now is as of this clock from now on.
        let latest = resumed.wall.0;
        self.earlier.review(&mut self.reviewed, latest, |named| {
            let left = decode(named.value, valid);
            let left = left.and_then(|(_, left)| resumed.left(left, named.at, valid));
            left.is_none_or(|left| resumed.at + left <= now)
        })
    }
}

impl Resumed {
    /// How long a result was valid when this run began that was valid for `left` when it was saved. `None`: it was
    /// not.
    fn left(self, left: Duration, saved_at: u64, valid: Valid<'_>) -> Option<Duration> {
        let elapsed = self.wall.saturating_since(Wall(saved_at));
        let left = left.min(valid.lifetime).saturating_sub(elapsed);
        (!left.is_zero()).then_some(left)
    }
}

/// For whom and how long a result is valid.
#[derive(Clone, Copy, Debug)]
pub struct Valid<'a> {
    /// The user agent.
    pub agent: &'a str,
    /// The longest time; zero if robots.txt is not obeyed.
    pub lifetime: Duration,
    /// The sitemaps that it names are fetched.
    pub has_sitemaps: bool,
}

fn encode(result: &RobotsResult, fetched: Valid<'_>) -> Vec<u8> {
    let mut out = vec![VERSION];
    records::encode_number(LEFT, nanos(fetched.lifetime), &mut out);
    records::encode(AGENT, fetched.agent.as_bytes(), &mut out);
    if !fetched.has_sitemaps {
        records::encode(WITHOUT_SITEMAPS, &[], &mut out);
    }
    match result {
        RobotsResult::Rules(rules) => records::encode(RULES, &rules.to_bytes(), &mut out),
        RobotsResult::Absent => records::encode(ABSENT, &[], &mut out),
        RobotsResult::Unreachable => records::encode(UNREACHABLE, &[], &mut out),
    }
    out
}

/// A result for this agent, and how long it was valid when it was saved.
fn decode(saved: &[u8], valid: Valid<'_>) -> Option<(RobotsResult, Duration)> {
    let (version, fields) = saved.split_first()?;
    if *version != VERSION {
        return None;
    }
    let fields = Records::from_encoded(fields)?;
    let left = fields.number(LEFT).map(Duration::from_nanos)?;
    if fields.get(AGENT)? != valid.agent.as_bytes() {
        return None;
    }
    if valid.has_sitemaps && fields.get(WITHOUT_SITEMAPS).is_some() {
        // Those that it names were not fetched.
        return None;
    }
    let result = match fields.get(RULES) {
        Some(rules) => RobotsResult::Rules(Rules::from_bytes(rules)?),
        None if fields.get(ABSENT).is_some() => RobotsResult::Absent,
        None => fields.get(UNREACHABLE).map(|_| RobotsResult::Unreachable)?,
    };
    Some((result, left))
}

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

// Labels of fields. None is changed or used again.
const LEFT: u8 = 1;
const AGENT: u8 = 2;
const RULES: u8 = 3;
const ABSENT: u8 = 4;
const UNREACHABLE: u8 = 5;
const WITHOUT_SITEMAPS: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::named::NamedValue;
    use crate::wire::robots::Robots;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn results() -> Vec<RobotsResult> {
        let file = b"user-agent: *\ndisallow: /a\xc3\xa4*$\nallow: /b\n\n\ndisallow: /c\ncrawl-delay: 2.5\n";
        vec![
            RobotsResult::Rules(Robots::parse(file).agent("argiope")),
            RobotsResult::Rules(Rules::allow_all()),
            RobotsResult::Rules(Rules::disallow_all()),
            RobotsResult::Absent,
            RobotsResult::Unreachable,
        ]
    }

    fn same(one: &RobotsResult, other: &RobotsResult) -> bool {
        format!("{one:?}") == format!("{other:?}")
    }

    /// Those of an earlier run, saved at the beginning of time; it is continued after this time.
    fn saved(results: &[(&str, &[u8])], elapsed: Duration, bytes_max: u64) -> SavedRobots {
        let mut values = NamedValues::new();
        for (name, value) in results {
            values.insert(NamedValue { name, at: 0, value });
        }
        let mut next = SavedRobots::new();
        let wall = Wall(elapsed.as_nanos() as u64);
        next.restore(values, (Instant::START, wall), bytes_max);
        next
    }

    const OURS: Valid<'_> = Valid {
        agent: "argiope",
        lifetime: DAY,
        has_sitemaps: true,
    };

    #[test]
    fn a_result_is_the_same_in_the_next_run_while_it_is_valid() {
        let hour = Duration::from_secs(3600);
        let origin = "http://a.test";
        for result in results() {
            let bytes = encode(&result, OURS);
            let saved = |elapsed| saved(&[(origin, &bytes)], elapsed, 10_000);
            let mut next = saved(hour);
            assert_eq!(next.review(OURS, Instant::START), Some(None));
            assert_eq!(next.review(OURS, Instant::START), None);
            let (again, until) = next.take(origin, OURS).expect("it is there");
            assert!(same(&again, &result), "{result:?}");
            assert_eq!(until, Instant::START + (DAY - hour));
            assert!(next.take(origin, OURS).is_none());
            let check_over = |elapsed, valid: Valid<'_>| {
                assert!(saved(elapsed).take(origin, valid).is_none());
                let reviewed = saved(elapsed).review(valid, Instant::START);
                assert_eq!(reviewed, Some(Some((origin.into(), Vec::new()))));
            };
            check_over(DAY, OURS);
            let other = Valid {
                agent: "other",
                ..OURS
            };
            check_over(hour, other);
            let shorter = Valid {
                lifetime: hour,
                ..OURS
            };
            check_over(hour, shorter);
            let later = Instant::START + (DAY - hour);
            let reviewed = saved(hour).review(OURS, later);
            assert_eq!(reviewed, Some(Some((origin.into(), Vec::new()))));
        }
    }

    #[test]
    fn a_result_whose_sitemaps_were_not_fetched_is_not_valid_once_they_are() {
        let without = Valid {
            has_sitemaps: false,
            ..OURS
        };
        for result in results() {
            for (fetched, valid, is_valid) in [
                (OURS, OURS, true),
                (OURS, without, true),
                (without, without, true),
                (without, OURS, false),
            ] {
                let bytes = encode(&result, fetched);
                assert_eq!(decode(&bytes, valid).is_some(), is_valid);
            }
        }
    }

    #[test]
    fn a_result_is_saved_once_a_commit_has_its_page() {
        let mut saved = SavedRobots::new();
        for attempt in [1, 2] {
            saved.add(attempt, "http://a.test", &RobotsResult::Absent, OURS);
        }
        assert!(saved.report(1) && !saved.report(3));
        saved.begin_commit();
        assert!(saved.report(2) && saved.waits_for_commit());
        assert_eq!(saved.poll(), None);
        for _ in 0..2 {
            saved.handle_committed();
            assert!(saved.poll().is_some() && saved.poll().is_none());
            saved.begin_commit();
        }
        saved.handle_committed();
        assert!(!saved.waits_for_commit() && saved.poll().is_none());
    }

    #[test]
    fn a_result_of_the_future_is_recorded_anew() {
        let bytes = encode(&RobotsResult::Absent, OURS);
        let mut values = NamedValues::new();
        values.insert(NamedValue {
            name: "http://a.test",
            at: 7,
            value: &bytes,
        });
        let mut next = SavedRobots::new();
        next.restore(values, (Instant::START, Wall(6)), 10_000);
        let reviewed = next.review(OURS, Instant::START);
        assert_eq!(
            reviewed,
            Some(Some(("http://a.test".into(), bytes.clone())))
        );
        assert!(next.take("http://a.test", OURS).is_some());
        assert_eq!(next.poll(), Some(("http://a.test".to_owned(), bytes)));
    }

    #[test]
    fn every_cut_and_changed_byte_is_no_result_or_a_sound_one() {
        for result in results() {
            let bytes = encode(&result, OURS);
            for at in 0..bytes.len() {
                assert!(decode(&bytes[..at], OURS).is_none(), "{at}: {result:?}");
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    if let Some((RobotsResult::Rules(rules), _)) = decode(&changed, OURS) {
                        rules.allowed("/a\u{e4}b/c");
                    }
                }
            }
        }
    }

    #[test]
    fn the_newest_of_the_earlier_results_are_kept_in_the_memory_that_they_may_take() {
        let bytes = encode(&RobotsResult::Absent, OURS);
        let origins: Vec<String> = (0..100)
            .map(|number| format!("http://h{number:02}.test"))
            .collect();
        let results: Vec<(&str, &[u8])> = (origins.iter())
            .map(|origin| (origin.as_str(), &bytes[..]))
            .collect();
        let mut next = saved(&results, Duration::ZERO, 1000);
        let memory = next.earlier.memory();
        assert!((800..=1000).contains(&memory), "{memory}");
        assert!(next.take("http://h99.test", OURS).is_some());
        assert!(next.take("http://h00.test", OURS).is_none());
    }
}
