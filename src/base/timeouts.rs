//! The timeout wheel: one deadline per key, usually cancelled before it is reached.
//!
//! Hand-written: in a heap, a cancelled deadline is either searched for or stays until it would have
//! been due.

use crate::base::time::Instant;

/// Deadlines by small dense keys. Arming, re-arming and cancelling take a few nanoseconds
/// independent of the number of keys, and leave no garbage.
///
/// A deadline is stored in ticks of [`TICK_NANOS`], rounded up: it never fires early and, if the
/// caller sleeps until [`next`](Self::next), at most one tick late.
///
/// Seven levels of 64 slots cover all of time: an entry is on the level of the highest six bits in
/// which its tick differs from the present one. When a slot of an upper level is reached, its list
/// is spread over the levels below; the work is bounded by the number of armed keys, each of which
/// moves down at most six times.
pub struct TimeoutWheel {
    /// The present tick: every earlier deadline was popped or is in the list `DUE`.
    now: u64,
    nodes: Vec<Node>,
    /// The first key of each slot's list, level by level, followed by that of the `DUE` list.
    heads: [u32; LISTS],
    occupied: [u64; LEVELS],
    len: usize,
}

impl TimeoutWheel {
    /// A wheel without armed keys.
    pub fn new(start: Instant) -> Self {
        TimeoutWheel {
            now: start.as_nanos() / TICK_NANOS,
            nodes: Vec::new(),
            heads: [NONE; LISTS],
            occupied: [0; LEVELS],
            len: 0,
        }
    }

    /// Sets the deadline of `key`, replacing an earlier one. [`Instant::FAR_FUTURE`], and times
    /// less than a tick before it, mean none. Uses 16 bytes for each key up to the largest; keys
    /// are below 2³¹.
    pub fn arm(&mut self, key: u32, at: Instant) {
        self.cancel(key);
        let tick = at.as_nanos().div_ceil(TICK_NANOS);
        if tick >> (BITS * LEVELS as u32) != 0 {
            return;
        }
        assert!(key < HEAD, "keys are small and dense");
        if self.nodes.len() <= key as usize {
            self.nodes.resize(key as usize + 1, Node::IDLE);
        }
        self.nodes[key as usize].tick = tick;
        self.link(key);
        self.len += 1;
    }

    /// Removes the deadline of `key`, if it has one.
    pub fn cancel(&mut self, key: u32) {
        if self.is_armed(key) {
            self.unlink(key);
            self.len -= 1;
        }
    }

    /// Returns whether `key` has a deadline.
    pub fn is_armed(&self, key: u32) -> bool {
        self.nodes
            .get(key as usize)
            .is_some_and(|node| node.previous != NONE)
    }

    /// When to call [`expire`](Self::expire) next: when a deadline fires, or earlier when a list
    /// must be spread; later than `now` after `expire(now)` returned `None`.
    pub fn next(&self) -> Option<Instant> {
        let tick = match self.heads[DUE] {
            NONE => self.next_slot()?.2,
            _ => self.now,
        };
        Some(Instant::from_nanos(tick.saturating_mul(TICK_NANOS)))
    }

    /// Takes one key whose deadline is at or before `now`, earlier ticks first; `None` if there are
    /// no more. The key is then no longer armed.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let now = now.as_nanos() / TICK_NANOS;
        loop {
            let key = self.heads[DUE];
            if key != NONE {
                self.cancel(key);
                return Some(key);
            }
            let Some((level, slot, _)) = self.next_slot().filter(|(_, _, tick)| *tick <= now)
            else {
                self.now = self.now.max(now);
                return None;
            };
            self.enter(level, slot);
        }
    }

    /// Number of keys with a deadline.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no key has a deadline.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The occupied slot that is reached first: its level, its index, its first tick.
    ///
    /// Everything on a level is reached before anything on the level above it, and within a level
    /// only slots after the present one are occupied.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|bits| *bits != 0)?;
        let slot = self.occupied[level].trailing_zeros() as usize;
        let shift = level as u32 * BITS;
        let above = self.now >> shift >> BITS << BITS;
        Some((level, slot, (above | slot as u64) << shift))
    }

    /// Moves the present to the start of a slot and spreads its list.
    fn enter(&mut self, level: usize, slot: usize) {
        let shift = level as u32 * BITS;
        let above = self.now >> shift >> BITS << BITS;
        self.now = (above | slot as u64) << shift;
        let mut key = self.heads[level * SLOTS + slot];
        self.heads[level * SLOTS + slot] = NONE;
        self.occupied[level] &= !(1 << slot);
        while key != NONE {
            let next = self.nodes[key as usize].next;
            self.link(key);
            key = next;
        }
    }

    fn link(&mut self, key: u32) {
        let tick = self.nodes[key as usize].tick;
        let list = if tick <= self.now {
            DUE
        } else {
            let highest = 63 - (tick ^ self.now).leading_zeros();
            let level = highest / BITS;
            let slot = (tick >> (level * BITS)) as usize % SLOTS;
            self.occupied[level as usize] |= 1 << slot;
            level as usize * SLOTS + slot
        };
        let next = self.heads[list];
        let node = &mut self.nodes[key as usize];
        node.previous = HEAD | list as u32;
        node.next = next;
        if next != NONE {
            self.nodes[next as usize].previous = key;
        }
        self.heads[list] = key;
    }

    fn unlink(&mut self, key: u32) {
        let Node { previous, next, .. } = self.nodes[key as usize];
        self.nodes[key as usize].previous = NONE;
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous & HEAD == 0 {
            self.nodes[previous as usize].next = next;
            return;
        }
        let list = (previous & !HEAD) as usize;
        self.heads[list] = next;
        if next == NONE && list != DUE {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }
}

/// Length of a tick in nanoseconds: 4.2 ms, fine enough for timeouts of seconds.
pub const TICK_NANOS: u64 = 1 << 22;

#[derive(Clone, Copy)]
struct Node {
    tick: u64,
    /// The previous key; `HEAD` plus the list's number for the first one; `NONE` if not armed.
    previous: u32,
    next: u32,
}

impl Node {
    const IDLE: Node = Node {
        tick: 0,
        previous: NONE,
        next: NONE,
    };
}

/// 2⁶⁴ ns are 2⁴² ticks: seven levels of six bits.
const LEVELS: usize = 7;
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// The list of due keys comes after the slots' lists.
const DUE: usize = LEVELS * SLOTS;
const LISTS: usize = DUE + 1;
/// Marks the absence of a key; keys are below `HEAD`.
const NONE: u32 = u32::MAX;
const HEAD: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_deadline_fires_within_one_tick_and_never_early() {
        for shift in 0..63 {
            let deadline = (1u64 << shift) + 1;
            let mut wheel = TimeoutWheel::new(Instant::START);
            wheel.arm(3, at(deadline));
            let mut now = 0;
            while wheel.expire(at(now)).is_none() {
                let next = wheel.next().expect("it is still armed").as_nanos();
                assert!(next > now, "`next` is after the present");
                now = next;
            }
            assert!(now >= deadline && now - deadline < TICK_NANOS);
            assert_eq!(wheel.next(), None);
        }
    }

    #[test]
    fn a_cancelled_deadline_leaves_nothing_to_wake_for() {
        let mut wheel = TimeoutWheel::new(Instant::START);
        wheel.arm(0, at(1 << 40));
        wheel.arm(1, Instant::START);
        wheel.cancel(0);
        wheel.cancel(1);
        wheel.cancel(99);
        wheel.arm(2, Instant::FAR_FUTURE);
        wheel.arm(2, Instant::FAR_FUTURE - std::time::Duration::from_nanos(1));
        assert_eq!(wheel.next(), None);
        assert_eq!(wheel.expire(at(u64::MAX - 1)), None);
        assert!(wheel.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arm(u32, u64),
        Cancel(u32),
        Sleep(u64),
        Follow,
    }

    fn span() -> impl Strategy<Value = u64> {
        (0..58u32, any::<u64>()).prop_map(|(bits, noise)| noise & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0..40u32, span()).prop_map(|(key, span)| Step::Arm(key, span)),
            1 => (0..45u32).prop_map(Step::Cancel),
            2 => span().prop_map(Step::Sleep),
            2 => Just(Step::Follow),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn a_timeout_wheel_behaves_like_a_map_of_deadlines(
            start in span(),
            steps in prop::collection::vec(step(), 1..300),
        ) {
            let mut wheel = TimeoutWheel::new(at(start));
            let mut model = BTreeMap::new();
            let mut now = start;
            for step in steps {
                match step {
                    Step::Arm(key, ahead) => {
                        let deadline = (now + ahead).saturating_sub(TICK_NANOS);
                        wheel.arm(key, at(deadline));
                        model.insert(key, deadline.div_ceil(TICK_NANOS));
                    }
                    Step::Cancel(key) => {
                        wheel.cancel(key);
                        model.remove(&key);
                    }
                    Step::Sleep(span) => now += span,
                    Step::Follow => now = wheel.next().map_or(now, |next| now.max(next.as_nanos())),
                }
                prop_assert_eq!(wheel.len(), model.len());
                let mut fired = Vec::new();
                if matches!(step, Step::Sleep(_) | Step::Follow) {
                    while let Some(key) = wheel.expire(at(now)) {
                        fired.push((model.remove(&key).expect("an armed key fires"), key));
                    }
                    prop_assert!(fired.iter().all(|(tick, _)| tick * TICK_NANOS <= now));
                    let all_due_fired = model.values().all(|tick| tick * TICK_NANOS > now);
                    prop_assert!(all_due_fired, "left behind at {}: {:?}", now, model);
                    let next = wheel.next().map(Instant::as_nanos);
                    prop_assert_eq!(next.is_none(), model.is_empty());
                    prop_assert!(next.is_none_or(|next| next > now));
                    let earliest = model.values().min();
                    prop_assert!(next.is_none_or(|n| n <= earliest.unwrap() * TICK_NANOS));
                }
            }
        }
    }
}
