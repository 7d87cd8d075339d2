//! The seen set: keys of admitted URLs.
//!
//! ```text
//! ask ──┬─► in memory, or found on disk lately ──────────────► seen
//!       ├─► a filter of a run passes it ──► question ──► disk ──► answer: seen or new
//!       └─► no filter passes it ──┬─► memory has room ──────────► new
//!                                 └─► it waits for room
//! memory is full ──► frozen ──► written to a run ──► forgotten
//! ```

pub mod run;
pub mod table;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;

use self::run::Run;
use self::table::Table;
use crate::base::keys::{Keys, UrlKey};
use crate::base::pile::Pile;
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::wire::url::CrawlUrl;

/// Set of keys of admitted URLs.
///
/// 64 bits each: among 100 million URLs the chance that any two collide is 0.03 %, and a collision
/// costs one page. 10 to 12.5 bytes a URL in memory, 10 bits of one on disk. Keys depend on the crawl's
/// secret: no site can craft URLs that collide, or that fall into one bucket.
#[derive(Debug)]
pub struct Seen {
    prints: Table,
    /// Those that are being written to a run.
    frozen: Option<Table>,
    runs: Vec<Arc<Run>>,
    /// Prints in runs that do not count as seen.
    undone: HashSet<u64, Secret>,
    recent: Recent,
    /// `SEEN_MEMORY`; `None`: all are in memory.
    memory_max: Option<u64>,
    questions: VecDeque<u64>,
    /// Answers to questions: whether a run has the key.
    answers: VecDeque<(u64, bool)>,
    /// Keys that wait for room in memory.
    waiting: VecDeque<u64>,
    keys: Keys,
    delays: Option<Delays>,
}

/// The set's answer about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenAnswer {
    /// It was not present, and is now.
    New,
    /// It was present.
    Seen,
    /// The answer comes later, with the URL's key.
    Later,
}

/// Whether a URL is in the set, as far as that is known without reading the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Seen,
    /// A run on disk has its key, but for one chance in a thousand.
    Likely,
    /// It is not.
    New,
}

impl Seen {
    /// Creates an empty set.
    pub fn new(secret: &Secret) -> Self {
        Seen {
            prints: Table::new(SHARD_BITS),
            frozen: None,
            runs: Vec::new(),
            undone: HashSet::with_hasher(*secret),
            recent: Recent::default(),
            memory_max: None,
            questions: VecDeque::new(),
            answers: VecDeque::new(),
            waiting: VecDeque::new(),
            keys: *secret.keys(),
            delays: None,
        }
    }

    /// Keys in memory take at most so many bytes (`SEEN_MEMORY`); the others are in runs. Called while the set
    /// is empty.
    pub fn set_memory_max(&mut self, bytes: u64) {
        debug_assert!(self.is_empty(), "its shards are chosen anew");
        let shards = (bytes / SHARD_BYTES).clamp(1, 1 << SHARD_BITS_MAX);
        self.prints = Table::new(shards.next_power_of_two().ilog2());
        self.memory_max = Some(bytes);
    }

    /// The key of a URL.
    pub fn key(&self, url: &CrawlUrl) -> UrlKey {
        UrlKey(print_of(self.keys.url(url.as_str())))
    }

    /// Adds a URL by its key, unless it is present.
    pub fn ask(&mut self, key: UrlKey, now: Instant) -> SeenAnswer {
        if let Some(delays) = &mut self.delays
            && delays.delay(key, now)
        {
            return SeenAnswer::Later;
        }
        self.look_up(print_of(key))
    }

    fn look_up(&mut self, print: u64) -> SeenAnswer {
        if self.memory_max.is_none() {
            return match self.prints.insert(print) {
                true => SeenAnswer::New,
                false => SeenAnswer::Seen,
            };
        }
        if self.has_in_memory(print) || self.recent.has(print) && !self.undone.contains(&print) {
            return SeenAnswer::Seen;
        }
        if self.may_be_in_runs(print) {
            self.questions.push_back(print);
            return SeenAnswer::Later;
        }
        match self.add(print) {
            true => SeenAnswer::New,
            false => SeenAnswer::Later,
        }
    }

    /// Adds a key that is not present if there is room; otherwise it waits.
    fn add(&mut self, print: u64) -> bool {
        let has_room = self.has_room();
        match has_room {
            true => {
                self.prints.insert(print);
                self.undone.remove(&print);
            }
            false => self.waiting.push_back(print),
        }
        has_room
    }

    fn has_in_memory(&self, print: u64) -> bool {
        let has = |table: &Table| table.contains(print);
        has(&self.prints) || self.frozen.as_ref().is_some_and(has)
    }

    fn may_be_in_runs(&self, print: u64) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| run.block_of(print).is_some()) && !self.undone.contains(&print)
    }

    /// Memory of keys, in bytes.
    fn bytes(&self) -> u64 {
        self.prints.bytes() + self.frozen.as_ref().map_or(0, Table::bytes)
    }

    fn has_room(&self) -> bool {
        self.memory_max
            .is_none_or(|max| self.bytes() < max || self.prints.is_empty())
    }

    /// Number of keys whose presence on disk is to be checked.
    pub fn questions(&self) -> usize {
        self.questions.len()
    }

    /// Keys whose presence on disk is to be checked, so many at most; [`Seen::handle_answer`] takes the
    /// answers.
    pub fn take_questions(&mut self, max: usize) -> Vec<u64> {
        let count = self.questions.len().min(max);
        self.questions.drain(..count).collect()
    }

    /// Handles an answer: whether any run has the key.
    pub fn handle_answer(&mut self, print: u64, is_present: bool) {
        self.answers.push_back((print, is_present));
    }

    /// A later answer that is due: the URL and whether it is new.
    pub fn poll_answer(&mut self, now: Instant) -> Option<(UrlKey, bool)> {
        while let Some((print, is_present)) = self.answers.pop_front() {
            if is_present {
                self.recent.add(print);
                return Some((UrlKey(print), false));
            }
            // It may have been added meanwhile.
            if self.has_in_memory(print) {
                return Some((UrlKey(print), false));
            }
            if self.add(print) {
                return Some((UrlKey(print), true));
            }
        }
        while self.has_room()
            && let Some(print) = self.waiting.pop_front()
        {
            if let Some(answer) = settled(print, self.look_up(print)) {
                return Some(answer);
            }
        }
        while let Some(key) = self.delays.as_mut().and_then(|delays| delays.take_due(now)) {
            let print = print_of(key);
            if let Some((_, is_new)) = settled(print, self.look_up(print)) {
                return Some((key, is_new));
            }
        }
        None
    }

    /// When the next later answer is due.
    pub fn next_answer(&self) -> Option<Instant> {
        let is_due = !self.answers.is_empty() || !self.waiting.is_empty() && self.has_room();
        match is_due {
            true => Some(Instant::START),
            false => Some(self.delays.as_ref()?.due.first()?.0),
        }
    }

    /// Whether no answer comes unless keys in memory become a run: all that are asked for wait for room.
    pub fn is_full(&self) -> bool {
        let is_writing = self.frozen.is_some();
        let is_asked = !self.questions.is_empty() || !self.answers.is_empty();
        let is_delayed = self
            .delays
            .as_ref()
            .is_some_and(|delays| !delays.due.is_empty());
        !is_writing && !is_asked && !is_delayed && !self.has_room()
    }

    /// Delays half of all answers by up to 5 s, by chance, as a set on disk would: for tests.
    pub fn delay_by_chance(&mut self, seed: u64) {
        self.delays = Some(Delays {
            rng: Rng::from_seed(seed),
            due: BTreeSet::new(),
        });
    }

    /// Adds a URL by its key at once, whether or not there is room; returns false if it was present in memory.
    pub fn insert(&mut self, key: UrlKey) -> bool {
        let print = print_of(key);
        if !self.undone.is_empty() {
            self.undone.remove(&print);
        }
        let is_frozen = self
            .frozen
            .as_ref()
            .is_some_and(|table| table.contains(print));
        !is_frozen && self.prints.insert(print)
    }

    /// Returns whether the URL is present, or may be present on disk.
    pub fn contains(&self, key: UrlKey) -> bool {
        let print = print_of(key);
        self.has_in_memory(print) || self.may_be_in_runs(print)
    }

    /// Whether the URL is present.
    pub fn presence(&self, key: UrlKey) -> Presence {
        let print = print_of(key);
        if self.has_in_memory(print) || self.recent.has(print) && !self.undone.contains(&print) {
            return Presence::Seen;
        }
        match self.may_be_in_runs(print) {
            true => Presence::Likely,
            false => Presence::New,
        }
    }

    /// Number of URLs.
    pub fn len(&self) -> usize {
        let frozen = self.frozen.as_ref().map_or(0, Table::len);
        let in_runs: u64 = self.runs.iter().map(|run| run.prints()).sum();
        self.prints.len() + frozen + in_runs as usize
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether memory is so full that its keys are to be written to a run.
    pub fn is_to_be_frozen(&self) -> bool {
        let is_full = |max: u64| self.prints.bytes() >= max - max / 4 && !self.prints.is_empty();
        self.frozen.is_none() && self.memory_max.is_some_and(is_full)
    }

    /// Freezes the keys in memory, to be written to a run. New ones have the rest of the memory.
    pub fn freeze(&mut self) {
        debug_assert!(self.frozen.is_none(), "one at a time");
        let empty = Table::like(&self.prints);
        self.frozen = Some(std::mem::replace(&mut self.prints, empty));
    }

    /// Number of pieces in which the frozen keys are taken.
    pub fn frozen_pieces(&self) -> usize {
        self.frozen.as_ref().map_or(0, Table::shards)
    }

    /// A piece of the frozen keys, ascending. The next piece follows.
    pub fn frozen_piece(&self, piece: usize) -> Vec<u64> {
        let frozen = self.frozen.as_ref();
        frozen.map_or_else(Vec::new, |table| table.sorted(piece))
    }

    /// The runs on disk from now on. `has_frozen`: one of them has the frozen keys.
    pub fn set_runs(&mut self, runs: Vec<Arc<Run>>, has_frozen: bool) {
        self.runs = runs;
        self.recent.enable();
        if has_frozen {
            self.frozen = None;
        }
    }

    /// Adds the keys of URLs that an earlier process had in memory, whether or not there is room. Some may be there
    /// twice.
    pub fn restore_keys(&mut self, keys: Pile<u64>) {
        self.prints
            .reserve(keys.iter().map(|key| print_of(UrlKey(*key))));
        for key in keys.into_pieces().flatten() {
            self.insert(UrlKey(key));
        }
        self.prints.shrink();
    }

    /// Adds the runs of an earlier process. `undone`: keys in them that do not count as seen until they are
    /// added again.
    pub fn restore(&mut self, runs: Vec<Arc<Run>>, undone: &[u64]) {
        if !runs.is_empty() {
            self.set_runs(runs, false);
            let undone = undone.iter().map(|key| print_of(UrlKey(*key)));
            self.undone.extend(undone);
        }
    }
}

/// The fingerprint of a key: 0 is none.
fn print_of(UrlKey(key): UrlKey) -> u64 {
    key.max(1)
}

/// The later answer to a question that is answered now.
fn settled(print: u64, answer: SeenAnswer) -> Option<(UrlKey, bool)> {
    match answer {
        SeenAnswer::Later => None,
        SeenAnswer::New => Some((UrlKey(print), true)),
        SeenAnswer::Seen => Some((UrlKey(print), false)),
    }
}

/// Keys that were found on disk lately: pages of a site have the same links again and again.
#[derive(Debug, Default)]
struct Recent {
    /// By their lowest bits; empty until there are runs.
    prints: Vec<u64>,
}

impl Recent {
    fn enable(&mut self) {
        if self.prints.is_empty() {
            self.prints = vec![0; RECENT];
        }
    }

    fn has(&self, print: u64) -> bool {
        self.prints.get(print as usize % RECENT) == Some(&print)
    }

    fn add(&mut self, print: u64) {
        if let Some(slot) = self.prints.get_mut(print as usize % RECENT) {
            *slot = print;
        }
    }
}

/// Keys found lately that are kept: 1 MiB.
const RECENT: usize = 1 << 17;

/// Shards of a set in memory: one of a hundred million keys grows in less than a millisecond.
const SHARD_BITS: u32 = 10;

/// Memory of a shard is about so many bytes, up to 2^`SHARD_BITS_MAX` shards: it is sorted in a millisecond.
const SHARD_BYTES: u64 = 256 << 10;
const SHARD_BITS_MAX: u32 = 16;

/// Answers that come later, by chance.
#[derive(Debug)]
struct Delays {
    rng: Rng,
    due: BTreeSet<(Instant, UrlKey)>,
}

/// Longest delay of an answer.
const DELAY_MAX: Duration = Duration::from_secs(5);

impl Delays {
    /// Draws whether the answer about a URL comes later; half of them do.
    fn delay(&mut self, key: UrlKey, now: Instant) -> bool {
        let drawn = self.rng.next_u64();
        let nanos = DELAY_MAX.as_nanos() as u64;
        // Most of them are short, as those of a disk.
        let share = drawn >> 2 & 0b1111;
        let is_late = drawn & 1 == 1;
        if is_late {
            let delay = Duration::from_nanos(((drawn >> 8) % nanos) >> share);
            self.due.insert((now + delay, key));
        }
        is_late
    }

    /// A URL whose answer is due.
    fn take_due(&mut self, now: Instant) -> Option<UrlKey> {
        let (at, _) = self.due.first()?;
        if *at > now {
            return None;
        }
        self.due.pop_first().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_insert_returns_false() {
        let mut seen = Seen::new(&Secret::random());
        let keys = seen.keys;
        let url = |text: &str| keys.url(text);
        assert!(seen.insert(url("http://a.test/7")));
        assert!(!seen.insert(url("http://a.test/7")));
        assert!(seen.contains(url("http://a.test/7")));
        assert!(!seen.contains(url("http://a.test/8")));
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn urls_crafted_to_share_a_bucket_do_not_share_it_under_another_secret() {
        let low = |seen: &Seen, url: &str| seen.keys.url(url).0 >> 56;
        let known = Seen::new(&Secret::from_seed(0));
        let wanted = low(&known, "http://a.test/0");
        let urls = (0..).map(|number| format!("http://a.test/{number}"));
        let crafted = urls.filter(|url| low(&known, url) == wanted).take(500);
        let crafted: Vec<String> = crafted.collect();
        let other = Seen::new(&Secret::random());
        let first = low(&other, &crafted[0]);
        let shared = crafted.iter().filter(|url| low(&other, url) == first);
        assert!(shared.count() < 30, "chance has 2");
    }
}
