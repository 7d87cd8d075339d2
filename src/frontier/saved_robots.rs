//! Results of robots.txt fetches beyond the end of the process: those to be saved, and those of an earlier
//! run of the crawl.
//!
//! ```text
//! result = version (1 byte), labelled fields (base::records)
//! ```
//!
//! A result is for one user agent, and is valid for a time from its fetch. Of an earlier run's results as
//! many are kept as the rules in memory may take; the origins of the others are asked again.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;

use super::robots::RobotsResult;
use crate::base::records::{self, Records};
use crate::base::secret::Secret;
use crate::base::time::{Instant, nanos};
use crate::wire::robots::Rules;

/// Results to be saved, and those of an earlier run, by origin (`http://a.test:81`).
#[derive(Debug)]
pub(super) struct SavedRobots {
    is_on: bool,
    unsaved: VecDeque<(String, Vec<u8>)>,
    earlier: HashMap<Box<str>, (Box<[u8]>, Instant), Secret>,
    /// Memory of the earlier results.
    bytes: u64,
}

impl SavedRobots {
    pub fn new(secret: &Secret) -> Self {
        SavedRobots {
            is_on: false,
            unsaved: VecDeque::new(),
            earlier: HashMap::with_hasher(*secret),
            bytes: 0,
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

    /// Adds a result that is valid for `lifetime` from now on.
    pub fn add(&mut self, origin: &str, result: &RobotsResult, agent: &str, lifetime: Duration) {
        let bytes = encode(result, agent, lifetime);
        self.unsaved.push_back((origin.to_owned(), bytes));
    }

    /// The next result to be saved, with its origin.
    pub fn poll(&mut self) -> Option<(String, Vec<u8>)> {
        self.unsaved.pop_front()
    }

    /// Adds a result that an earlier run saved `elapsed` ago, if there is room. Returns false if it is no
    /// longer valid, or for another agent.
    pub fn restore(
        &mut self,
        origin: &str,
        saved: &[u8],
        agent: &str,
        age: Age,
        bytes_max: u64,
    ) -> bool {
        let Some((_, left)) = decode(saved, agent) else {
            return false;
        };
        let left = left.min(age.lifetime).saturating_sub(age.elapsed);
        if left.is_zero() {
            return false;
        }
        let bytes = (origin.len() + saved.len() + ENTRY_BYTES) as u64;
        if self.bytes + bytes <= bytes_max {
            self.bytes += bytes;
            let until = age.now + left;
            self.earlier.insert(origin.into(), (saved.into(), until));
        }
        true
    }

    /// The result of an earlier run for an origin that is new in this one, and until when it is valid.
    pub fn take(&mut self, origin: &str, agent: &str) -> Option<(RobotsResult, Instant)> {
        if self.earlier.is_empty() {
            return None;
        }
        let (name, (saved, until)) = self.earlier.remove_entry(origin)?;
        self.bytes -= (name.len() + saved.len() + ENTRY_BYTES) as u64;
        Some((decode(&saved, agent)?.0, until))
    }
}

/// How old a saved result is.
#[derive(Clone, Copy, Debug)]
pub struct Age {
    /// Time since it was saved, by the system's clock.
    pub elapsed: Duration,
    /// The longest time for which a result is valid.
    pub lifetime: Duration,
    pub now: Instant,
}

fn encode(result: &RobotsResult, agent: &str, lifetime: Duration) -> Vec<u8> {
    let mut out = vec![VERSION];
    records::encode_number(LEFT, nanos(lifetime), &mut out);
    records::encode(AGENT, agent.as_bytes(), &mut out);
    match result {
        RobotsResult::Rules(rules) => records::encode(RULES, &rules.to_bytes(), &mut out),
        RobotsResult::Absent => records::encode(ABSENT, &[], &mut out),
        RobotsResult::Unreachable => records::encode(UNREACHABLE, &[], &mut out),
    }
    out
}

/// A result for this agent, and how long it was valid when it was saved.
fn decode(saved: &[u8], agent: &str) -> Option<(RobotsResult, Duration)> {
    let (version, fields) = saved.split_first()?;
    if *version != VERSION {
        return None;
    }
    let fields = Records::from_encoded(fields)?;
    let left = fields.number(LEFT).map(Duration::from_nanos)?;
    if fields.get(AGENT)? != agent.as_bytes() {
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

/// Memory of an earlier result beside its bytes.
const ENTRY_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
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

    fn age(elapsed: Duration) -> Age {
        Age {
            elapsed,
            lifetime: DAY,
            now: Instant::START,
        }
    }

    fn saved() -> SavedRobots {
        SavedRobots::new(&Secret::from_seed(1))
    }

    #[test]
    fn a_result_is_the_same_in_the_next_run_while_it_is_valid() {
        for result in results() {
            let bytes = encode(&result, "argiope", DAY);
            let mut next = saved();
            let hour = Duration::from_secs(3600);
            assert!(next.restore("http://a.test", &bytes, "argiope", age(hour), 10_000));
            let (again, until) = next.take("http://a.test", "argiope").expect("it is there");
            assert!(same(&again, &result), "{result:?}");
            assert_eq!(until, Instant::START + (DAY - hour));
            assert_eq!(
                (next.bytes, next.take("http://a.test", "argiope").is_none()),
                (0, true)
            );
            assert!(!next.restore("http://a.test", &bytes, "argiope", age(DAY), 10_000));
            assert!(!next.restore("http://a.test", &bytes, "other", age(hour), 10_000));
            let shorter = Age {
                lifetime: hour,
                ..age(hour)
            };
            assert!(!next.restore("http://a.test", &bytes, "argiope", shorter, 10_000));
        }
    }

    #[test]
    fn every_cut_and_changed_byte_is_no_result_or_a_sound_one() {
        for result in results() {
            let bytes = encode(&result, "argiope", DAY);
            for at in 0..bytes.len() {
                assert!(
                    decode(&bytes[..at], "argiope").is_none(),
                    "{at}: {result:?}"
                );
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[at] ^= 1 << bit;
                    if let Some((RobotsResult::Rules(rules), _)) = decode(&changed, "argiope") {
                        rules.allowed("/a\u{e4}b/c");
                    }
                }
            }
        }
    }

    #[test]
    fn earlier_results_take_no_more_memory_than_they_may() {
        let mut next = saved();
        let bytes = encode(&RobotsResult::Absent, "argiope", DAY);
        for number in 0..100 {
            let origin = format!("http://h{number:02}.test");
            assert!(next.restore(&origin, &bytes, "argiope", age(Duration::ZERO), 1000));
        }
        assert!(next.bytes <= 1000 && next.bytes > 800, "{}", next.bytes);
        assert!(next.take("http://h00.test", "argiope").is_some());
        assert!(next.take("http://h99.test", "argiope").is_none());
    }
}
