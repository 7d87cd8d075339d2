//! What is in memory of a sorted run of fingerprints on disk: a filter, and where each block begins. The only
//! file that imports `xorf`.

use xorf::{BinaryFuse8, DmaSerializable, Filter as _};

/// Fingerprints in a block of a run: all but the last have so many.
pub const BLOCK_PRINTS: usize = 511;

/// Blocks in a part of a run: all parts but the last have so many. A filter is built over a part, which takes
/// 1 to 2 ms and 9.7 bits for each fingerprint.
pub const PART_BLOCKS: usize = 64;

/// Fingerprints in a part.
pub const PART_PRINTS: usize = PART_BLOCKS * BLOCK_PRINTS;

/// A run: fingerprints in ascending order, in blocks on disk.
#[derive(Debug, Default)]
pub struct Run {
    /// The first fingerprint of each part.
    starts: Vec<u64>,
    parts: Vec<Part>,
    prints: u64,
}

/// A part of a run.
#[derive(Clone, Debug)]
pub struct Part {
    /// Number of fingerprints.
    pub prints: u32,
    /// The first fingerprint of each block.
    pub firsts: Box<[u64]>,
    /// Passes all of its fingerprints, and 0.4 % of others. `None` passes all.
    pub filter: Option<Filter>,
}

/// A filter of fingerprints.
#[derive(Clone, Debug)]
pub struct Filter(BinaryFuse8);

impl Run {
    /// Adds the next part, whose fingerprints are greater.
    pub fn push(&mut self, part: Part) {
        self.starts.push(part.firsts[0]);
        self.prints += u64::from(part.prints);
        self.parts.push(part);
    }

    /// Number of fingerprints.
    pub fn prints(&self) -> u64 {
        self.prints
    }

    /// Its parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The block that may have a fingerprint. `None`: the run does not have it.
    pub fn block_of(&self, print: u64) -> Option<u64> {
        let number = self.count_until(print).checked_sub(1)?;
        let part = &self.parts[number];
        if part
            .filter
            .as_ref()
            .is_some_and(|filter| !filter.passes(print))
        {
            return None;
        }
        let block = part.firsts.partition_point(|first| *first <= print) - 1;
        Some((number * PART_BLOCKS + block) as u64)
    }

    /// Number of parts that start at or before a fingerprint. These are evenly distributed, so that the
    /// search begins where it most likely ends.
    fn count_until(&self, print: u64) -> usize {
        let parts = self.starts.len();
        let is_until = |start: &u64| *start <= print;
        let guess = ((u128::from(print) * parts as u128) >> u64::BITS) as usize;
        let (low, high) = (
            guess.saturating_sub(GUESS_OFF),
            parts.min(guess + GUESS_OFF),
        );
        let is_above = low == 0 || is_until(&self.starts[low - 1]);
        let is_below = high == parts || !is_until(&self.starts[high]);
        match is_above && is_below {
            true => low + self.starts[low..high].partition_point(is_until),
            false => self.starts.partition_point(is_until),
        }
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> u64 {
        let of_part = |part: &Part| {
            let filter = part
                .filter
                .as_ref()
                .map_or(0, |filter| filter.0.fingerprints.len());
            size_of::<Part>() + size_of::<u64>() * (1 + part.firsts.len()) + filter
        };
        self.parts.iter().map(of_part).sum::<usize>() as u64
    }
}

impl Part {
    /// A part of these fingerprints, ascending, without its filter.
    pub fn new(prints: &[u64]) -> Self {
        Part {
            prints: prints.len() as u32,
            firsts: prints.chunks(BLOCK_PRINTS).map(|block| block[0]).collect(),
            filter: None,
        }
    }
}

impl Filter {
    /// Builds a filter of distinct fingerprints. `None`: it cannot be built, which has a chance of less than
    /// 2⁻¹⁰⁰.
    pub fn new(prints: &[u64]) -> Option<Self> {
        BinaryFuse8::try_from(prints).ok().map(Filter)
    }

    /// Whether the set may have a fingerprint.
    pub fn passes(&self, print: u64) -> bool {
        self.0.contains(&print)
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + BinaryFuse8::DESCRIPTOR_LEN, 0);
        self.0.dma_copy_descriptor_to(&mut out[start..]);
        out.extend_from_slice(&self.0.fingerprints);
    }

    /// Reads a filter, which is all of these bytes. `None`: they are not one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, fingerprints) = bytes.split_first_chunk::<HEAD>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let seed = u64::from(word(0)) | u64::from(word(4)) << 32;
        let (segment_length, segment_length_mask, segment_count_length) =
            (word(8), word(12), word(16));
        // Three segments follow each other for each fingerprint.
        let is_whole = segment_length.is_power_of_two()
            && segment_length_mask == segment_length - 1
            && fingerprints.len() as u64
                == u64::from(segment_count_length) + 2 * u64::from(segment_length);
        // The library names the type of this field nowhere.
        let mut filter = BinaryFuse8::try_from(&[1, 2, 3][..]).ok()?;
        filter.descriptor.seed = seed;
        filter.descriptor.segment_length = segment_length;
        filter.descriptor.segment_length_mask = segment_length_mask;
        filter.descriptor.segment_count_length = segment_count_length;
        filter.fingerprints = fingerprints.into();
        is_whole.then_some(Filter(filter))
    }
}

/// Parts around the likely one that are searched first.
const GUESS_OFF: usize = 4;

/// Bytes of a filter before its fingerprints.
const HEAD: usize = BinaryFuse8::DESCRIPTOR_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    fn prints(count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::from_seed(seed);
        let mut prints: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
        prints.sort_unstable();
        prints.dedup();
        prints
    }

    #[test]
    fn a_filter_passes_its_prints_and_few_others_and_is_read_back() {
        for count in [1, 2, 3, 10, 100, 5_000, PART_PRINTS] {
            let prints = prints(count, 1);
            let filter = Filter::new(&prints).expect("it can be built");
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            let read = Filter::decode(&bytes).expect("its own bytes");
            for print in &prints {
                assert!(filter.passes(*print) && read.passes(*print));
            }
            let mut rng = Rng::from_seed(2);
            let passed = (0..20_000).filter(|_| read.passes(rng.next_u64())).count();
            assert!(passed < 20_000 / 100, "{count}: {passed}");
            for cut in [0, HEAD - 1, HEAD, bytes.len() - 1] {
                assert!(Filter::decode(&bytes[..cut]).is_none(), "{count}: {cut}");
            }
        }
    }

    #[test]
    fn memory_is_at_most_10_bits_a_print() {
        let prints = prints(PART_PRINTS, 3);
        let mut run = Run::default();
        let mut part = Part::new(&prints);
        part.filter = Filter::new(&prints);
        run.push(part);
        assert!(run.bytes() * 8 <= 10 * run.prints(), "{}", run.bytes());
    }

    #[test]
    fn a_print_is_looked_for_in_the_block_that_has_it() {
        let prints = prints(PART_PRINTS * 2 + 1_000, 4);
        let mut run = Run::default();
        for part in prints.chunks(PART_PRINTS) {
            let mut part = Part {
                filter: Filter::new(part),
                ..Part::new(part)
            };
            // Without a filter each has a block.
            if run.parts().len() == 1 {
                part.filter = None;
            }
            run.push(part);
        }
        for (number, print) in prints.iter().enumerate() {
            let block = (number / BLOCK_PRINTS) as u64;
            assert_eq!(run.block_of(*print), Some(block));
        }
        assert_eq!(run.block_of(prints[0] - 1), None);
        assert_eq!(run.prints(), prints.len() as u64);
    }
}
