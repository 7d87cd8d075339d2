//! Departures whose records the file of the journal may lack, in memory that outlives the process.
//!
//! A departure is stored before a byte of its request leaves, and is dropped once the disk has reported its
//! record as written. Nothing whose result was committed is among those that are left: its record was
//! synced before that commit was recorded.
//!
//! The memory is a ring of keys of URLs, in words of 64 bits in the machine's order:
//!
//! ```text
//! 0        kind and version of the layout
//! 1        number of the crawl
//! 2        head: how many keys were stored
//! 3        tail: how many of them were dropped
//! 4 to 7   unused
//! 8 to     key n is in word 8 + n % CAPACITY
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::io::SharedMemory;

/// Departures whose records may not be written.
#[derive(Debug)]
pub struct Departures {
    memory: SharedMemory,
    head: u64,
    tail: u64,
    /// The records of so many departures were handed to the disk.
    handed_over: u64,
    /// The same, as of each batch that is not written.
    batches: VecDeque<u64>,
}

/// Most departures that are not written. If there are more, because the disk has not answered for long, the
/// newest are not stored.
const CAPACITY: usize = if cfg!(test) { 1 << 7 } else { 1 << 18 };

const KIND: usize = 0;
const CRAWL: usize = 1;
const HEAD: usize = 2;
const TAIL: usize = 3;
const KEYS: usize = 8;

/// Length of the memory.
pub const WORDS: usize = KEYS + CAPACITY;

/// The kind of the memory, and the version of its layout.
const KIND_1: u64 = u64::from_le_bytes(*b"argiope\x01");

/// The name of the memory.
pub fn name_of(crawl: u64) -> String {
    format!("argiope-{crawl:016x}")
}

/// Keys of the URLs of departures that an earlier process left in this memory; none if it is not the crawl's.
pub fn left_in(words: &[u64], crawl: u64) -> Vec<u64> {
    let Some((head, tail)) = bounds(words, crawl) else {
        return Vec::new();
    };
    (tail..head).map(|number| words[slot(number)]).collect()
}

/// Head and tail of a sound ring of this crawl.
fn bounds(words: &[u64], crawl: u64) -> Option<(u64, u64)> {
    let &[KIND_1, of, head, tail, ..] = words else {
        return None;
    };
    let left = head.checked_sub(tail)?;
    let is_count = head < u64::MAX / 2;
    let is_sound = words.len() == WORDS && of == crawl && left <= CAPACITY as u64 && is_count;
    is_sound.then_some((head, tail))
}

fn slot(number: u64) -> usize {
    KEYS + number as usize % CAPACITY
}

impl Departures {
    /// Departures in this memory, of [`WORDS`]. `continues`: those are kept that an earlier run left.
    pub fn new(memory: SharedMemory, crawl: u64, continues: bool) -> Self {
        let words = memory.words();
        let load = |word: &AtomicU64| word.load(Ordering::Acquire);
        let header: Vec<u64> = words.iter().map(load).collect();
        let found = bounds(&header, crawl).filter(|_| continues);
        let (head, tail) = found.unwrap_or_default();
        if found.is_none() {
            // It counts for nothing until it is complete.
            let header = [
                (KIND, 0),
                (CRAWL, crawl),
                (HEAD, head),
                (TAIL, tail),
                (KIND, KIND_1),
            ];
            for (word, value) in header {
                words[word].store(value, Ordering::Release);
            }
        }
        Departures {
            memory,
            head,
            tail,
            handed_over: head,
            batches: VecDeque::new(),
        }
    }

    /// A request to the URL of this key departs.
    pub fn push(&mut self, key: u64) {
        if self.head - self.tail < CAPACITY as u64 {
            let words = self.memory.words();
            words[slot(self.head)].store(key, Ordering::Relaxed);
            self.head += 1;
            words[HEAD].store(self.head, Ordering::Release);
        }
    }

    /// A batch of records is handed to the disk. `has_all`: with it, those of all departures so far are.
    pub fn hand_over(&mut self, has_all: bool) {
        if has_all {
            self.handed_over = self.head;
        }
        self.batches.push_back(self.handed_over);
    }

    /// The oldest of these batches is written.
    pub fn handle_written(&mut self) {
        if let Some(tail) = self.batches.pop_front() {
            self.tail = tail;
            self.memory.words()[TAIL].store(tail, Ordering::Release);
        }
    }
}

/// The run is over, or did not begin: a later one needs what is not written alone.
impl Drop for Departures {
    fn drop(&mut self) {
        if self.head == self.tail {
            self.memory.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use std::sync::Arc;

    const CRAWL_A: u64 = 0xa;

    fn memory() -> Arc<[AtomicU64]> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn departures(memory: &Arc<[AtomicU64]>, crawl: u64, continues: bool) -> Departures {
        let memory = SharedMemory::Simulated(Arc::clone(memory));
        Departures::new(memory, crawl, continues)
    }

    fn left(memory: &[AtomicU64], crawl: u64) -> Vec<u64> {
        let words = memory.iter().map(|word| word.load(Ordering::Relaxed));
        left_in(&words.collect::<Vec<u64>>(), crawl)
    }

    #[test]
    fn departures_are_left_until_their_records_are_written_also_by_later_runs() {
        let mut rng = Rng::from_seed(3);
        let memory = memory();
        let mut departures = departures(&memory, CRAWL_A, false);
        let (mut key, mut handed_over) = (0, 0);
        let mut expected: VecDeque<u64> = VecDeque::new();
        let mut batches: VecDeque<u64> = VecDeque::new();
        let (mut most, mut dropped) = (0, 0);
        for step in 0..100_000 {
            // The disk answers, and at times does not.
            let answers = step % 1000 < 800;
            match rng.below(20) {
                0..10 => {
                    key += 1;
                    departures.push(key);
                    if expected.len() < CAPACITY {
                        expected.push_back(key);
                    } else {
                        dropped += 1;
                    }
                }
                10..14 => {
                    let has_all = rng.chance(0.5);
                    departures.hand_over(has_all);
                    if has_all {
                        handed_over = expected.back().copied().unwrap_or(handed_over);
                    }
                    batches.push_back(handed_over);
                }
                14..19 if answers => {
                    departures.handle_written();
                    if let Some(written) = batches.pop_front() {
                        expected.retain(|key| *key > written);
                    }
                }
                19 if rng.below(100) == 0 => {
                    drop(departures);
                    departures = self::departures(&memory, CRAWL_A, true);
                    batches.clear();
                    handed_over = expected.back().copied().unwrap_or(handed_over);
                }
                _ => {}
            }
            most = most.max(expected.len());
            assert_eq!(expected, left(&memory, CRAWL_A));
        }
        assert_eq!(most, CAPACITY);
        assert!(dropped > 0 && dropped < key / 2, "{dropped} of {key}");
    }

    #[test]
    fn memory_of_another_crawl_or_in_disorder_is_begun_anew() {
        let wrong: [&[(usize, u64)]; 6] = [
            &[(KIND, KIND_1 + 1)],
            &[(CRAWL, 0xb)],
            &[(HEAD, 3), (TAIL, 4)],
            &[(HEAD, u64::MAX)],
            &[(TAIL, u64::MAX)],
            &[(HEAD, CAPACITY as u64 + 6)],
        ];
        for changes in wrong {
            let memory = memory();
            let mut before = departures(&memory, CRAWL_A, false);
            (1..9).for_each(|key| before.push(key));
            assert_eq!(left(&memory, CRAWL_A).len(), 8);
            memory[TAIL].store(5, Ordering::Relaxed);
            assert_eq!(left(&memory, CRAWL_A), [6, 7, 8]);
            for (word, value) in changes {
                memory[*word].store(*value, Ordering::Relaxed);
            }
            assert_eq!(left(&memory, CRAWL_A), [0; 0], "{changes:?}");
            let mut departures = departures(&memory, CRAWL_A, true);
            departures.push(77);
            assert_eq!(left(&memory, CRAWL_A), [77], "{changes:?}");
        }
        let cut: Vec<u64> = vec![KIND_1, CRAWL_A, 1, 0];
        assert_eq!(left_in(&cut, CRAWL_A), [0; 0]);
    }

    #[test]
    fn a_new_crawl_keeps_no_departures_and_its_end_removes_those_that_are_written() {
        let memory = memory();
        drop(departures(&memory, CRAWL_A, false));
        assert_eq!(memory[KIND].load(Ordering::Relaxed), 0, "there are none");
        departures(&memory, CRAWL_A, false).push(1);
        let mut next = departures(&memory, CRAWL_A, false);
        assert_eq!(left(&memory, CRAWL_A), [0; 0]);
        next.push(2);
        next.hand_over(true);
        drop(next);
        assert_eq!(left(&memory, CRAWL_A), [2], "it may not be written");
        let mut next = departures(&memory, CRAWL_A, true);
        next.hand_over(false);
        next.handle_written();
        drop(next);
        assert_eq!(memory[KIND].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_ring_with_impossible_counts_is_begun_anew() {
        let memory = memory();
        drop(departures(&memory, CRAWL_A, false));
        for (word, value) in [
            (KIND, KIND_1),
            (CRAWL, CRAWL_A),
            (HEAD, u64::MAX),
            (TAIL, u64::MAX),
        ] {
            memory[word].store(value, Ordering::Relaxed);
        }
        let mut departures = departures(&memory, CRAWL_A, true);
        departures.push(77);
        departures.push(78);
        assert_eq!(left(&memory, CRAWL_A), [77, 78]);
    }
}
