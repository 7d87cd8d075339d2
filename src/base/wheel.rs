//! The pacing wheel: millions of wake-up times, popped in exact order at a few nanoseconds each.
//!
//! Hand-written: re-arming a scope costs 15 ns among a million, against 148 in a heap; see
//! `docs/design/decisions.md`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use crate::base::time::Instant;

use self::ring::{Chunks, Entry, Ring, SLOTS};

mod ring;

/// Stores `(id, time)` entries and returns them in the order of their times, never early.
///
/// Entries are append-only. There is no cancellation: the caller stores the time it last requested
/// and ignores entries with another time. So an insertion is an append to an array, at about eight
/// and a half bytes per entry.
///
/// Three rings of 512 slots hold the future, each slot a list of fixed chunks:
///
/// ```text
///          slot width   ring covers        an entry lies here if it is due
/// fine     66 µs        two middle slots   in the present middle slot or the next one
/// middle   17 ms        two coarse slots   in the present coarse slot or the next one
/// coarse   4.3 s        37 min             within the ring
/// beyond   (a heap)     for ever           later
/// ```
///
/// A ring covers *two* slots of the ring above, so that the next slot can be spread in advance, in
/// instalments, while the present one is processed. No single call has to move a whole slot, and
/// the entries due next are always spread already.
///
/// The width of a coarse slot is 2³² ns: the low half of a time is exact within any slot, so an
/// entry is two `u32`.
pub struct PacingWheel {
    /// The first fine slot that was not loaded, counted from time 0.
    cursor: u64,
    /// Position of the cursor when instalments were last done.
    paid: u64,
    rings: [Ring; 3],
    beyond: BinaryHeap<Reverse<(u64, u32)>>,
    /// The last loaded slot, in descending order, so that the earliest entry is popped from the
    /// end.
    ready: Vec<(u64, u32)>,
    /// Entries inserted behind the cursor, and slots too large to be sorted at once.
    late: BinaryHeap<Reverse<(u64, u32)>>,
    chunks: Chunks,
    len: usize,
}

impl fmt::Debug for PacingWheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacingWheel").finish_non_exhaustive()
    }
}

impl PacingWheel {
    /// An empty wheel. Entries before `start` are permitted; they are due at once.
    pub fn new(start: Instant) -> Self {
        let cursor = start.as_nanos() >> WIDTHS[FINE];
        PacingWheel {
            cursor,
            paid: cursor,
            rings: [Ring::new(), Ring::new(), Ring::new()],
            beyond: BinaryHeap::new(),
            ready: Vec::new(),
            late: BinaryHeap::new(),
            chunks: Chunks::default(),
            len: 0,
        }
    }

    /// Adds an entry. One at [`Instant::FAR_FUTURE`] never fires and is not stored.
    pub fn insert(&mut self, at: Instant, id: u32) {
        if at == Instant::FAR_FUTURE {
            return;
        }
        self.len += 1;
        self.place(at.as_nanos(), id);
    }

    /// When to call [`expire`](Self::expire) next: the time of the earliest entry, or earlier if
    /// many entries must be spread before they are due. Later than `now` once `expire(now)` has
    /// returned `false`. `None` if the wheel is empty.
    pub fn next(&self) -> Option<Instant> {
        let mut next = match (self.first_loaded(), self.first_slotted()) {
            (Some((at, _)), Some(slotted)) => at.min(slotted),
            (Some((at, _)), None) => at,
            (None, slotted) => slotted?,
        };
        for level in [MIDDLE, COARSE] {
            next = self.first_instalment(level).map_or(next, |at| next.min(at));
        }
        Some(Instant::from_nanos(next))
    }

    /// Appends at most `budget` entries that are due at `now` to `due`, earliest first, equal times
    /// by id. Returns `true` if the caller should call again at once, because more may be due: the
    /// budget is used up, or this call has moved its share of entries.
    pub fn expire(&mut self, now: Instant, budget: usize, due: &mut Vec<(u32, Instant)>) -> bool {
        let now = now.as_nanos();
        let mut work = WORK;
        let mut left = budget;
        loop {
            while let Some((at, id)) = self.first_loaded() {
                let still_loading = at >> WIDTHS[FINE] >= self.cursor;
                if at > now || still_loading {
                    break;
                }
                if left == 0 {
                    return true;
                }
                self.pop_loaded();
                self.len -= 1;
                left -= 1;
                due.push((id, Instant::from_nanos(at)));
            }
            match self.first_slotted() {
                Some(at) if at <= now => {
                    if left == 0 {
                        return true;
                    }
                    // There is no entry between the cursor and the earliest one.
                    self.cursor = self.cursor.max(at >> WIDTHS[FINE]);
                    if !self.settle(&mut work) || !self.load(&mut work) {
                        return true;
                    }
                }
                _ => break,
            }
        }
        self.cursor = self.cursor.max(now >> WIDTHS[FINE]);
        self.pay_instalments(work);
        if self.late.is_empty() && self.late.capacity() > LATE_KEPT {
            self.late = BinaryHeap::new();
        }
        false
    }

    /// Number of entries, including obsolete ones.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory used, including spare capacity.
    pub fn memory(&self) -> usize {
        let wide = size_of::<(u64, u32)>();
        size_of::<Self>()
            + self.rings.iter().map(Ring::memory).sum::<usize>()
            + self.chunks.memory()
            + wide * (self.ready.capacity() + self.late.capacity() + self.beyond.capacity())
    }

    /// The earliest of the loaded entries.
    fn first_loaded(&self) -> Option<(u64, u32)> {
        match (self.ready.last(), self.late.peek()) {
            (Some(ready), Some(Reverse(late))) => Some(*ready.min(late)),
            (Some(ready), None) => Some(*ready),
            (None, late) => late.map(|Reverse(late)| *late),
        }
    }

    fn pop_loaded(&mut self) {
        let from_late = match (self.ready.last(), self.late.peek()) {
            (Some(ready), Some(Reverse(late))) => late < ready,
            (ready, _) => ready.is_none(),
        };
        if from_late {
            self.late.pop();
        } else {
            self.ready.pop();
        }
    }

    /// The exact time of the earliest entry that was not loaded.
    ///
    /// A slot keeps its minimum while it is emptied chunk by chunk. It stays exact: its entry
    /// cannot leave the wheel before the slot is empty.
    fn first_slotted(&self) -> Option<u64> {
        let beyond = self.beyond.peek().map(|Reverse((at, _))| *at);
        let slotted = [FINE, MIDDLE, COARSE].into_iter().filter_map(|level| {
            let number = self.rings[level].first_from(self.present(level))?;
            Some(high(level, number) | u64::from(self.rings[level].slot(number).min))
        });
        slotted.chain(beyond).min()
    }

    /// The number of the slot of `level` that contains the cursor, counted from time 0.
    fn present(&self, level: usize) -> u64 {
        self.cursor >> (WIDTHS[level] - WIDTHS[FINE])
    }

    /// When the next heavy slot of `level` needs an instalment, from the start of the slot before
    /// it. Checking two slots suffices: before a later one is reached, the entries of the first
    /// wake the caller.
    fn first_instalment(&self, level: usize) -> Option<u64> {
        let ring = &self.rings[level];
        let first = ring.first_from(self.present(level))?;
        let heavy = [first, first + 1]
            .into_iter()
            .find(|number| ring.slot(*number).len as usize > HEAVY)?;
        let ratio = WIDTHS[level] - WIDTHS[FINE];
        let instalment = self.cursor + (1 << ratio) / INSTALMENTS;
        let start = heavy.saturating_sub(1) << ratio;
        Some(instalment.max(start) << WIDTHS[FINE])
    }

    fn place(&mut self, at: u64, id: u32) {
        let [fine, middle, coarse] = WIDTHS.map(|width| at >> width);
        let (level, number) = if fine < self.cursor {
            self.late.push(Reverse((at, id)));
            return;
        } else if middle - self.present(MIDDLE) <= 1 {
            (FINE, fine)
        } else if coarse - self.present(COARSE) <= 1 {
            (MIDDLE, middle)
        } else if coarse - self.present(COARSE) < SLOTS as u64 {
            (COARSE, coarse)
        } else {
            self.beyond.push(Reverse((at, id)));
            return;
        };
        let entry = Entry { id, low: at as u32 };
        self.rings[level].append(number, entry, &mut self.chunks);
    }

    /// Completes the fine slot at the cursor by spreading the entries for it in the slots above.
    /// Returns `false` if the work budget was used up first.
    fn settle(&mut self, work: &mut usize) -> bool {
        while let Some(&Reverse((at, id))) = self.beyond.peek()
            && at >> WIDTHS[COARSE] <= self.present(COARSE)
        {
            if *work == 0 {
                return false;
            }
            *work -= 1;
            self.beyond.pop();
            self.place(at, id);
        }
        [COARSE, MIDDLE].into_iter().all(|level| {
            let number = self.present(level);
            while self.rings[level].slot(number).len > 0 {
                if *work == 0 {
                    return false;
                }
                *work = work.saturating_sub(self.spread_chunk(level, number));
            }
            true
        })
    }

    /// Loads the fine slot at the cursor, now complete, and moves the cursor past it. Returns
    /// `false` if the work budget was used up first.
    fn load(&mut self, work: &mut usize) -> bool {
        let high = high(FINE, self.cursor);
        let to_sort = self.rings[FINE].slot(self.cursor).len as usize <= SORTED_AT_ONCE
            && self.ready.is_empty();
        while self.rings[FINE].slot(self.cursor).len > 0 {
            if *work == 0 && !to_sort {
                return false;
            }
            let (entries, count) = self.rings[FINE].take_chunk(self.cursor, &mut self.chunks);
            *work = work.saturating_sub(count);
            let wide = entries[..count]
                .iter()
                .map(|e| (high | u64::from(e.low), e.id));
            if to_sort {
                self.ready.extend(wide);
            } else {
                self.late.extend(wide.map(Reverse));
            }
        }
        if to_sort {
            self.ready.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.cursor += 1;
        true
    }

    /// Spreads the share of the coming slots for the time since the last call.
    fn pay_instalments(&mut self, mut work: usize) {
        let passed = self.cursor - self.paid;
        if passed == 0 {
            return;
        }
        self.paid = self.cursor;
        if !self.settle(&mut work) {
            return;
        }
        for level in [MIDDLE, COARSE] {
            let width = 1 << (WIDTHS[level] - WIDTHS[FINE]);
            let ahead = width - self.cursor % width;
            let passed = passed.min(width);
            let number = self.present(level) + 1;
            let held = u64::from(self.rings[level].slot(number).len);
            let mut share = (held * passed).div_ceil(passed + ahead) as usize;
            while share > 0 && work > 0 {
                let moved = self.spread_chunk(level, number);
                share = share.saturating_sub(moved);
                work = work.saturating_sub(moved);
            }
        }
        while let Some(&Reverse((at, id))) = self.beyond.peek()
            && (at >> WIDTHS[COARSE]) - self.present(COARSE) < SLOTS as u64
            && work > 0
        {
            work -= 1;
            self.beyond.pop();
            self.place(at, id);
        }
    }

    /// Moves one chunk of a slot to the present places of its entries. Returns their number.
    fn spread_chunk(&mut self, level: usize, number: u64) -> usize {
        let (entries, count) = self.rings[level].take_chunk(number, &mut self.chunks);
        let high = high(level, number);
        for entry in &entries[..count] {
            self.place(high | u64::from(entry.low), entry.id);
        }
        count
    }
}

/// The common high half of the times in a slot.
fn high(level: usize, number: u64) -> u64 {
    number >> (WIDTHS[COARSE] - WIDTHS[level]) << WIDTHS[COARSE]
}

const FINE: usize = 0;
const MIDDLE: usize = 1;
const COARSE: usize = 2;
/// Log₂ of a slot's width in nanoseconds, by level. Each ring has twice as many slots as the
/// ratio of its width to the next one's.
const WIDTHS: [u32; 3] = [16, 24, 32];
/// Number of entries that one call of `expire` moves between levels before it must be called again:
/// about 0.1 ms.
const WORK: usize = 8192;
/// A fine slot with up to this many entries is sorted; a larger one goes through the heap, chunk by
/// chunk, so that a million entries for one time block nothing.
const SORTED_AT_ONCE: usize = 1024;
/// A coming slot with more entries than this causes a wake-up before it is due; smaller ones are
/// spread within ten microseconds when needed.
const HEAVY: usize = 1024;
/// Number of wake-ups over which a heavy slot is spread.
const INSTALMENTS: u64 = 64;
/// Capacity of the heap of late entries that is kept when it is empty.
const LATE_KEPT: usize = 16_384;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// All entries due at `now`, taken with small budgets.
    fn expire_all(wheel: &mut PacingWheel, now: u64, budget: usize) -> Vec<(u32, Instant)> {
        let mut due = Vec::new();
        loop {
            let before = due.len();
            let more = wheel.expire(at(now), budget, &mut due);
            assert!(due.len() - before <= budget, "the budget is never exceeded");
            if !more {
                return due;
            }
        }
    }

    #[test]
    fn a_single_entry_is_announced_exactly_at_any_distance() {
        for shift in 0..64 {
            let moment = (1u64 << shift) | 1;
            let mut wheel = PacingWheel::new(Instant::START);
            wheel.insert(at(moment), 7);
            assert_eq!(wheel.next(), Some(at(moment)));
            assert_eq!(expire_all(&mut wheel, moment - 1, 9), []);
            assert_eq!(wheel.next(), Some(at(moment)));
            assert_eq!(expire_all(&mut wheel, moment, 9), [(7, at(moment))]);
            assert_eq!(wheel.next(), None);
        }
    }

    #[test]
    fn an_entry_in_the_far_future_is_not_stored() {
        let mut wheel = PacingWheel::new(Instant::START);
        wheel.insert(Instant::FAR_FUTURE, 1);
        assert!(wheel.is_empty());
        assert_eq!(wheel.next(), None);
        assert_eq!(expire_all(&mut wheel, u64::MAX, 1), []);
    }

    #[test]
    fn a_million_entries_for_one_time_are_spread_over_short_calls() {
        let mut wheel = PacingWheel::new(Instant::START);
        let moment = 100 * SECOND + 12_345;
        for id in 0..1_000_000 {
            wheel.insert(at(moment), id);
        }
        let mut due = Vec::new();
        let mut calls = 0;
        while wheel.expire(at(moment), 10_000, &mut due) {
            calls += 1;
        }
        assert!(calls > 100, "no call moved more than its share");
        assert!(due.iter().map(|(id, _)| *id).eq(0..1_000_000));
    }

    #[test]
    fn sleeping_until_next_spreads_the_coming_slot_in_time() {
        let mut wheel = PacingWheel::new(Instant::START);
        let moment = 100 * SECOND + 40_000_000;
        for id in 0..200_000 {
            wheel.insert(at(moment + u64::from(id)), id);
        }
        let mut due = Vec::new();
        let mut now = 0;
        while now < moment {
            let next = wheel.next().expect("entries are left").as_nanos();
            assert!(next > now && next <= moment, "{next} after {now}");
            now = next;
            if now < moment {
                assert!(!wheel.expire(at(now), 1, &mut due));
            }
        }
        let unspread: u32 = [MIDDLE, COARSE]
            .iter()
            .flat_map(|level| wheel.rings[*level].slots.iter())
            .map(|slot| slot.len)
            .sum();
        assert!(unspread < 8192, "{unspread} of 200 000 are left");
    }

    #[test]
    fn entries_cost_less_than_nine_bytes() {
        let mut wheel = PacingWheel::new(Instant::START);
        for id in 0..1_000_000u32 {
            wheel.insert(at(u64::from(id) * 9973), id);
        }
        let each = wheel.memory() as f64 / wheel.len() as f64;
        assert!(each < 9.0, "{each} bytes an entry");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        Sleep(u64),
        Follow,
    }

    /// Durations of every order of magnitude, so that every level and every boundary is tested.
    fn span() -> impl Strategy<Value = u64> {
        (0..50u32, any::<u64>()).prop_map(|(bits, noise)| noise & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => span().prop_map(Step::Insert),
            2 => span().prop_map(Step::Sleep),
            1 => Just(Step::Follow),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn a_wheel_behaves_like_a_heap(
            start in span(),
            steps in prop::collection::vec(step(), 1..300),
            budget in 1..40usize,
        ) {
            let mut wheel = PacingWheel::new(at(start));
            let mut model = BinaryHeap::new();
            let mut now = start;
            for (id, step) in (0u32..).zip(steps) {
                match step {
                    Step::Insert(ahead) => {
                        // Half a millisecond back: a caller may insert late.
                        let moment = (now + ahead).saturating_sub(500_000);
                        wheel.insert(at(moment), id);
                        model.push(Reverse((moment, id)));
                        continue;
                    }
                    Step::Sleep(span) => now += span,
                    Step::Follow => now = wheel.next().map_or(now, |next| now.max(next.as_nanos())),
                }
                let due = expire_all(&mut wheel, now, budget);
                let mut expected = Vec::new();
                while let Some(&Reverse((moment, id))) = model.peek() && moment <= now {
                    model.pop();
                    expected.push((id, at(moment)));
                }
                prop_assert_eq!(due, expected);
                prop_assert_eq!(wheel.len(), model.len());
                let earliest = model.peek().map(|Reverse((moment, _))| at(*moment));
                // Too few entries for instalments: `next` is exact.
                prop_assert_eq!(wheel.next(), earliest);
            }
            let rest = expire_all(&mut wheel, u64::MAX, budget);
            let expected: Vec<_> = std::iter::from_fn(|| model.pop())
                .map(|Reverse((moment, id))| (id, at(moment)))
                .collect();
            prop_assert_eq!(rest, expected);
        }
    }
}
