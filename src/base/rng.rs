//! A seeded random number generator, for reproducible randomness.
//!
//! Hand-written: a seed must give the same crawl in every version, and generators of libraries may change
//! with theirs.

/// A stream of pseudo-random numbers: xoshiro256++ 1.0 by Blackman and Vigna, seeded with their
/// splitmix64, both in the public domain (<https://prng.di.unimi.it>).
///
/// The same seed gives the same stream on every machine. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The stream of a seed; all seeds are equally good.
    pub fn from_seed(seed: u64) -> Self {
        let mut counter = seed;
        Rng {
            state: std::array::from_fn(|_| splitmix64(&mut counter)),
        }
    }

    /// An independent stream for `label`. It depends on the label and on how many numbers were
    /// drawn from this stream before. This stream does not advance: adding a consumer does not
    /// change the numbers of the others.
    pub fn fork(&self, label: impl AsRef<[u8]>) -> Rng {
        let mut mixed = self.state[0] ^ self.state[3].rotate_left(32);
        for byte in label.as_ref() {
            mixed ^= u64::from(*byte);
            mixed = splitmix64(&mut mixed);
        }
        Rng::from_seed(mixed)
    }

    /// 64 bits, each 0 or 1 with equal chance.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }

    /// A uniformly distributed integer from 0 to `bound` − 1. `bound` is at least 1.
    ///
    /// Lemire, "Fast Random Integer Generation in an Interval" (2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound is at least 1");
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            let low = wide as u64;
            // Of 2^64 draws, 2^64 mod `bound` would favour some numbers. These have the smallest
            // low halves and are drawn again; the division is rarely needed to detect them.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return (wide >> 64) as u64;
            }
        }
    }

    /// A uniformly distributed number from `low` (inclusive) to `high` (reached only by rounding).
    pub fn range_f64(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// `true` with a probability from 0 (never) to 1 (always).
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// From 0 (included) to 1 (excluded), in steps of 2⁻⁵³.
    fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The next number of the splitmix64 stream with this state.
fn splitmix64(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*counter ^ (*counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the authors' C code for the state 1, 2, 3, 4.
    #[test]
    fn the_generator_is_xoshiro256_plus_plus() {
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        let drawn: [u64; 10] = std::array::from_fn(|_| rng.next_u64());
        assert_eq!(
            drawn,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386,
                9_228_616_714_210_784_205,
                9_973_669_472_204_895_162,
                14_011_001_112_246_962_877,
                12_406_186_145_184_390_807,
                15_849_039_046_786_891_736,
                10_450_023_813_501_588_000,
            ]
        );
    }

    /// The first outputs of the authors' C code for the seed 1234567.
    #[test]
    fn the_state_is_seeded_by_splitmix64() {
        assert_eq!(
            Rng::from_seed(1_234_567).state,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
            ]
        );
    }

    #[test]
    fn a_fork_is_reproducible_and_does_not_advance_its_parent() {
        let mut parent = Rng::from_seed(1);
        let mut same = [parent.fork("dns"), Rng::from_seed(1).fork("dns")];
        assert_eq!(same[0].next_u64(), same[1].next_u64());
        assert_eq!(parent.next_u64(), Rng::from_seed(1).next_u64());
        let first: Vec<u64> = ["", "dns", "dnt", "sdn"]
            .map(|label| Rng::from_seed(1).fork(label).next_u64())
            .to_vec();
        for (index, drawn) in first.iter().enumerate() {
            assert!(!first[..index].contains(drawn), "streams are independent");
        }
    }

    #[test]
    fn draws_cover_exactly_their_range() {
        let mut rng = Rng::from_seed(2);
        let mut counts = [0; 6];
        for _ in 0..6000 {
            counts[rng.below(6) as usize] += 1;
            let real = rng.range_f64(-2.0, 3.0);
            assert!((-2.0..3.0).contains(&real));
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)));
        assert!(!rng.chance(0.0) && rng.chance(1.0));
        let heads = (0..10_000).filter(|_| rng.chance(0.3)).count();
        assert!((2800..3200).contains(&heads));
        assert_eq!(rng.below(1), 0);
        // Of four draws that would map to three numbers, one is drawn again.
        let thirds = (0..10_000)
            .filter(|_| rng.below(3 << 62).is_multiple_of(3))
            .count();
        assert!((3133..3533).contains(&thirds));
    }
}
