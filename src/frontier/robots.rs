//! What is known of each origin's robots.txt, and who waits to know it.

use std::time::Duration;

use smallvec::SmallVec;

use crate::base::time::Instant;
use crate::throttle::engine::LaneId;
use crate::wire::robots::Rules;

/// The standing of an origin's robots.txt (RFC 9309, section 2.3.1).
#[derive(Debug, Default)]
pub enum Standing {
    /// Never asked for, or too long ago.
    #[default]
    Unknown,
    /// It is being fetched; these lanes wait. Boxed: few are being fetched at once, and there may
    /// be millions of origins.
    Fetching(Box<SmallVec<[LaneId; 1]>>),
    /// They are kept under this number in the cache of rules.
    Known(u32),
    /// There is none (4xx): all is allowed until the given moment.
    Absent(Instant),
    /// It could not be had (5xx, no answer, 429): nothing is allowed until the given moment.
    Unreachable(Instant),
}

/// What a fetch of robots.txt brought.
#[derive(Clone, Debug)]
pub enum Brought {
    /// A file: its rules for our agent.
    Rules(Rules),
    /// 4xx, or a redirect too far: all is allowed.
    Absent,
    /// 5xx, no whole answer, or 429: nothing is allowed for now.
    Unreachable,
}

/// Whether a URL may be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// A rule forbids it: its text and line.
    Disallowed(String, u32),
    /// The file could not be had.
    Unreachable,
    /// The file must be fetched first.
    Ask,
    /// The file is being fetched.
    Wait,
}

/// How long an origin whose robots.txt cannot be had is left alone.
pub const UNREACHABLE_FOR: Duration = Duration::from_secs(10 * 60);

impl Standing {
    /// Whether there was an answer: rules, or that there are none.
    pub fn is_known(&self) -> bool {
        matches!(self, Standing::Known(_) | Standing::Absent(_))
    }

    /// Until when it need not be asked for again, where it was had or given up.
    pub(super) fn holds_until(&self, cache: &RulesCache) -> Option<Instant> {
        match self {
            Standing::Known(number) => Some(cache.get(*number).until),
            Standing::Absent(until) | Standing::Unreachable(until) => Some(*until),
            Standing::Unknown | Standing::Fetching(_) => None,
        }
    }

    /// Crawl-delay, where it is known and there is one.
    pub(super) fn crawl_delay(&self, cache: &RulesCache) -> Option<Duration> {
        match self {
            Standing::Known(number) => cache.get(*number).rules.crawl_delay(),
            _ => None,
        }
    }
}

/// The rules of all origins that have any, within a bound of bytes: those that were not asked for the
/// longest time go first, and are fetched again when they are needed.
#[derive(Debug)]
pub(super) struct RulesCache {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The one that was used last, and the one whose turn it is to go.
    newest: u32,
    oldest: u32,
    bytes: u64,
    bytes_max: u64,
    /// Comparisons of paths with rules, until somebody asks for them.
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
    /// Rules of so many bytes, or of one origin whatever their size.
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

    /// Bytes that the rules take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether rules may have to go before they are used.
    pub fn is_pressed(&self) -> bool {
        self.bytes > self.bytes_max / 2
    }

    /// Keeps the rules of an origin, until a moment; under which number.
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
        self.put_first(number);
        number
    }

    /// Gives up the rules that were used least lately, if there are too many; of which origin they
    /// were. The newest stay, or nothing could ever be fetched.
    pub fn evict(&mut self) -> Option<u32> {
        if self.bytes <= self.bytes_max || self.oldest == self.newest {
            return None;
        }
        let origin = self.get(self.oldest).origin;
        self.remove(self.oldest);
        Some(origin)
    }

    /// Forgets rules.
    pub fn remove(&mut self, number: u32) {
        self.take_out(number);
        let entry = &mut self.entries[number as usize];
        self.bytes -= entry.bytes();
        entry.rules = Rules::default();
        self.free.push(number);
    }

    /// Whether `target` (path and query) may be fetched at `now` by these rules, which are used.
    pub fn verdict(&mut self, number: u32, target: &str, now: Instant) -> Verdict {
        if self.get(number).until <= now {
            return Verdict::Ask;
        }
        if self.newest != number {
            self.take_out(number);
            self.put_first(number);
        }
        let (verdict, steps) = self.entries[number as usize].rules.decide(target);
        self.steps += steps;
        match (verdict.allowed, verdict.rule) {
            (true, _) => Verdict::Allowed,
            (false, Some(rule)) => Verdict::Disallowed(rule.pattern.to_owned(), rule.line),
            (false, None) => Verdict::Disallowed("/".to_owned(), 0),
        }
    }

    /// How many comparisons there were since this was last asked.
    pub fn take_steps(&mut self) -> usize {
        std::mem::take(&mut self.steps)
    }

    fn get(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    fn take_out(&mut self, number: u32) {
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

    fn put_first(&mut self, number: u32) {
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
    fn what_was_used_least_lately_goes_first_and_the_newest_stays() {
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
        assert!(cache.is_pressed());
        cache.remove(huge);
        assert_eq!((cache.bytes(), cache.evict()), (0, None));
        assert_eq!(cache.free.len(), 3, "{third} is free, too");
        let again = cache.insert(4, rules(10), LATER);
        assert_eq!(
            cache.verdict(again, "/xxxxxxxxxx", Instant::START),
            Verdict::Disallowed("/xxxxxxxxxx".into(), 2)
        );
        assert_eq!(cache.verdict(again, "/", LATER), Verdict::Ask);
        assert!(cache.take_steps() > 0);
        assert_eq!(cache.take_steps(), 0);
    }
}
