//! The state of each origin's robots.txt, with the lanes that wait for it, and a cache of rules.

use std::time::Duration;

use smallvec::SmallVec;

use crate::base::ids::LaneId;
use crate::base::time::Instant;
use crate::wire::robots::Rules;

/// State of an origin's robots.txt (RFC 9309, section 2.3.1).
#[derive(Debug, Default)]
pub enum RobotsState {
    /// Never fetched, or expired.
    #[default]
    Unknown,
    /// Being fetched; these lanes wait. Boxed: few are fetched at once, and there may be millions of
    /// origins.
    Fetching(Box<SmallVec<[LaneId; 1]>>),
    /// Its rules have this number in the cache.
    Known(u32),
    /// There is none (4xx): everything is allowed until this time.
    Absent(Instant),
    /// Unavailable (5xx, no answer, 429): nothing is allowed until this time.
    Unreachable(Instant),
}

/// Result of a robots.txt fetch.
#[derive(Clone, Debug)]
pub enum RobotsResult {
    /// A file: its rules for this crawler's user agent.
    Rules(Rules),
    /// 4xx, or too many redirects: everything is allowed.
    Absent,
    /// 5xx, 429, or no complete answer: nothing is allowed for [`UNREACHABLE_FOR`].
    Unreachable,
}

impl RobotsResult {
    /// The result of a reply without a file that can be read (RFC 9309, 2.3.1.2 to 2.3.1.4). `complete`: the
    /// reply did not fail. `None`: 2xx and complete, so that its body is the file.
    pub fn of_reply(status: Option<u16>, complete: bool) -> Option<Self> {
        match status {
            Some(200..=299) if complete => None,
            // Redirects that were not followed mean that there is no file.
            Some(300..=399) => Some(RobotsResult::Absent),
            // The server refuses it for now, although a 4xx otherwise means that there is none.
            Some(429) => Some(RobotsResult::Unreachable),
            Some(400..=499) if complete => Some(RobotsResult::Absent),
            _ => Some(RobotsResult::Unreachable),
        }
    }
}

/// Whether a URL may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed.
    Allowed,
    /// Disallowed by a rule: its text and line.
    Disallowed(String, u32),
    /// robots.txt unavailable.
    Unreachable,
    /// robots.txt must be fetched first.
    NeedsFetch,
    /// robots.txt is being fetched.
    Wait,
}

/// Hold of an origin whose robots.txt is unavailable.
pub const UNREACHABLE_FOR: Duration = Duration::from_secs(10 * 60);

impl RobotsState {
    /// Returns whether a fetch got rules, or the answer that there are none.
    pub fn is_known(&self) -> bool {
        matches!(self, RobotsState::Known(_) | RobotsState::Absent(_))
    }

    /// Expiry of the last result; `None` if there is none.
    pub(super) fn valid_until(&self, cache: &RulesCache) -> Option<Instant> {
        match self {
            RobotsState::Known(number) => Some(cache.get(*number).until),
            RobotsState::Absent(until) | RobotsState::Unreachable(until) => Some(*until),
            RobotsState::Unknown | RobotsState::Fetching(_) => None,
        }
    }

    /// Crawl-delay, if the rules are known and have one.
    pub(super) fn crawl_delay(&self, cache: &RulesCache) -> Option<Duration> {
        match self {
            RobotsState::Known(number) => cache.get(*number).rules.crawl_delay(),
            _ => None,
        }
    }
}

/// LRU cache of the rules of all origins, bounded in bytes. Evicted rules are fetched again when they
/// are needed.
#[derive(Debug)]
pub(super) struct RulesCache {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Most recently used entry, and the one to be evicted next.
    newest: u32,
    oldest: u32,
    bytes: u64,
    bytes_max: u64,
    /// Comparisons of paths with rules since [`RulesCache::take_steps`].
    steps: usize,
}

#[derive(Debug)]
struct Entry {
    rules: Rules,
    until: Instant,
    origin: u32,
    newer: u32,
    older: u32,
}

/// No entry has this number.
const NONE: u32 = u32::MAX;

impl RulesCache {
    /// Creates a cache of at most `bytes_max`; the newest rules are kept whatever their size.
    pub fn new(bytes_max: u64) -> Self {
        RulesCache {
            entries: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            bytes_max,
            steps: 0,
        }
    }

    /// Memory of the rules, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether more than half of `bytes_max` is used: new rules may be evicted before use.
    pub fn is_half_full(&self) -> bool {
        self.bytes > self.bytes_max / 2
    }

    /// Adds the rules of an origin, valid until `until`; returns their number.
    pub fn insert(&mut self, origin: u32, rules: Rules, until: Instant) -> u32 {
        let entry = Entry {
            rules,
            until,
            origin,
            newer: NONE,
            older: NONE,
        };
        self.bytes += entry.bytes();
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("at most 2^32 origins are held")
            }
        };
        self.link_newest(number);
        number
    }

    /// If the cache is over `bytes_max`, evicts the least recently used rules and returns their origin.
    /// The newest are never evicted, or nothing could ever be fetched.
    pub fn evict(&mut self) -> Option<u32> {
        if self.bytes <= self.bytes_max || self.oldest == self.newest {
            return None;
        }
        let origin = self.get(self.oldest).origin;
        self.remove(self.oldest);
        Some(origin)
    }

    /// Removes rules.
    pub fn remove(&mut self, number: u32) {
        self.unlink(number);
        let entry = &mut self.entries[number as usize];
        self.bytes -= entry.bytes();
        entry.rules = Rules::default();
        self.free.push(number);
    }

    /// Returns whether `target` (path and query) may be fetched at `now`, and marks the rules as most
    /// recently used.
    pub fn verdict(&mut self, number: u32, target: &str, now: Instant) -> Verdict {
        if self.get(number).until <= now {
            return Verdict::NeedsFetch;
        }
        if self.newest != number {
            self.unlink(number);
            self.link_newest(number);
        }
        let (verdict, steps) = self.entries[number as usize].rules.decide(target);
        self.steps += steps;
        match (verdict.allowed, verdict.rule) {
            (true, _) => Verdict::Allowed,
            (false, Some(rule)) => Verdict::Disallowed(rule.pattern.to_owned(), rule.line),
            (false, None) => Verdict::Disallowed("/".to_owned(), 0),
        }
    }

    /// Whether rules allow a URL, without counting that as use.
    pub fn allows(&self, number: u32, target: &str) -> bool {
        self.get(number).rules.allowed(target).allowed
    }

    /// Counts comparisons of another kind that take as long.
    pub fn add_steps(&mut self, steps: usize) {
        self.steps += steps;
    }

    /// Number of comparisons since the last call.
    pub fn take_steps(&mut self) -> usize {
        std::mem::take(&mut self.steps)
    }

    fn get(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    fn unlink(&mut self, number: u32) {
        let Entry { newer, older, .. } = *self.get(number);
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let second = std::mem::replace(&mut self.newest, number);
        let entry = &mut self.entries[number as usize];
        (entry.newer, entry.older) = (NONE, second);
        match second {
            NONE => self.oldest = number,
            second => self.entries[second as usize].newer = number,
        }
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        (size_of::<Entry>() + self.rules.heap_size()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::robots::Robots;

    const LATER: Instant = Instant::from_nanos(1000);

    fn rules(length: usize) -> Rules {
        let file = format!("User-agent: *\nDisallow: /{}\n", "x".repeat(length));
        Robots::parse(file.as_bytes()).agent("argiope")
    }

    #[test]
    fn the_status_of_a_reply_decides_whether_there_is_a_file() {
        for (status, complete, expected) in [
            (Some(200), true, "a file"),
            (Some(200), false, "unreachable"),
            (Some(301), true, "absent"),
            (Some(301), false, "absent"),
            (Some(403), true, "absent"),
            (Some(404), false, "unreachable"),
            (Some(429), true, "unreachable"),
            (Some(503), true, "unreachable"),
            (None, false, "unreachable"),
        ] {
            let result = match RobotsResult::of_reply(status, complete) {
                None => "a file",
                Some(RobotsResult::Absent) => "absent",
                Some(RobotsResult::Unreachable) => "unreachable",
                Some(RobotsResult::Rules(_)) => "rules",
            };
            assert_eq!(result, expected, "{status:?}, complete: {complete}");
        }
    }

    #[test]
    fn the_least_recently_used_rules_are_evicted_first_and_the_newest_stay() {
        let mut cache = RulesCache::new(2500);
        let numbers = [0, 1].map(|origin| cache.insert(origin, rules(1000), LATER));
        assert_eq!(cache.evict(), None);
        cache.verdict(numbers[0], "/", Instant::START);
        let third = cache.insert(2, rules(1000), LATER);
        assert_eq!((cache.evict(), cache.evict()), (Some(1), None));
        let huge = cache.insert(3, rules(10_000), LATER);
        assert_eq!(
            [cache.evict(), cache.evict(), cache.evict()],
            [Some(0), Some(2), None]
        );
        assert_eq!(cache.get(huge).origin, 3);
        assert!(cache.is_half_full());
        cache.remove(huge);
        assert_eq!((cache.bytes(), cache.evict()), (0, None));
        assert_eq!(cache.free.len(), 3, "{third} is free, too");
        let again = cache.insert(4, rules(10), LATER);
        assert_eq!(
            cache.verdict(again, "/xxxxxxxxxx", Instant::START),
            Verdict::Disallowed("/xxxxxxxxxx".into(), 2)
        );
        assert_eq!(cache.verdict(again, "/", LATER), Verdict::NeedsFetch);
        assert!(cache.take_steps() > 0);
        assert_eq!(cache.take_steps(), 0);
    }
}
