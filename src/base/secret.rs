//! The hash secret of a crawl.
//!
//! Most keys that a crawl stores come from remote sites: host names, URLs, ports, addresses, cookies. If
//! the hash function were known, a site could send keys that all collide, which makes each look-up
//! linear in the number of keys, or a URL with the same 64-bit hash as another, which would then count
//! as already seen. Every table with such keys therefore hashes under a random secret, and what is
//! remembered by a hash alone has a [stable key](super::keys). Links that repeat within one page are found
//! by the fast hash alone, under a secret of the process: it is not cryptographic, but its values never
//! leave the process. Only digests of bodies are without a secret: they are compared with those of the same
//! site.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;

use super::keys::Keys;
use super::rng::Rng;

/// The hash secret of one crawl. Copies of it hash alike.
#[derive(Clone, Copy)]
pub struct Secret {
    number: u64,
    /// The multipliers of the hash. If they were known, keys could be made that collide for every
    /// `number`.
    shared: &'static SharedSeed,
    keys: Keys,
}

/// The hasher of tables whose keys come from the user or from this program: fixed answers,
/// `/etc/hosts`, attempt numbers.
pub type Known = foldhash::fast::FixedState;

impl Secret {
    /// A random secret.
    pub fn random() -> Self {
        static SHARED: OnceLock<SharedSeed> = OnceLock::new();
        Secret {
            number: random(),
            shared: SHARED.get_or_init(|| SharedSeed::from_u64(random())),
            keys: Keys::from_halves(random(), random()),
        }
    }

    /// A secret derived from a seed, for simulated crawls that are to be repeatable. Not safe against
    /// hostile keys.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed).fork("keys");
        Secret {
            number: seed,
            shared: SharedSeed::global_fixed(),
            keys: Keys::from_halves(rng.next_u64(), rng.next_u64()),
        }
    }

    /// The same secret with these stable keys.
    pub fn with_keys(self, keys: Keys) -> Self {
        Secret { keys, ..self }
    }

    /// The stable keys of the crawl, by which texts are remembered.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// The secret of this process, for short-lived sets of hashes of texts from remote sites that no crawl owns.
pub fn of_process() -> &'static Secret {
    static SECRET: OnceLock<Secret> = OnceLock::new();
    SECRET.get_or_init(Secret::random)
}

/// 64 unpredictable bits, derived from the kernel's random numbers.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}

impl BuildHasher for Secret {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        FoldHasher::with_seed(self.number, self.shared)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of keys that share the low bits of their hash with the first.
    fn sharing(secret: &Secret, keys: &[String], bits: u32) -> usize {
        let low = |key: &String| secret.hash_one(key.as_str()) & ((1 << bits) - 1);
        keys.iter().filter(|key| low(key) == low(&keys[0])).count()
    }

    #[test]
    fn keys_that_collide_under_one_secret_differ_under_another() {
        let known = Secret::from_seed(7);
        let names = (0..).map(|number| format!("{number}.example.com"));
        let wanted = known.hash_one("0.example.com") & 0xff;
        let crafted: Vec<String> = names
            .filter(|name| known.hash_one(name.as_str()) & 0xff == wanted)
            .take(1000)
            .collect();
        assert_eq!(sharing(&known, &crafted, 8), 1000);
        for other in [Secret::random(), Secret::random(), Secret::from_seed(8)] {
            let sharing = sharing(&other, &crafted, 8);
            assert!(sharing < 50, "{sharing} of 1000, about 4 are expected");
        }
    }

    #[test]
    fn known_multipliers_do_not_make_keys_collide() {
        // A block equal to it makes a product of 0, whatever the other block.
        let differ = |secret: &Secret| {
            let hash = |byte: u8| secret.hash_one([byte; 200]);
            hash(0) != hash(1) && hash(1) != hash(2)
        };
        assert!(differ(&Secret::random()) && differ(&Secret::from_seed(0)));
        let shared = |secret: Secret| secret.shared as *const SharedSeed;
        assert_ne!(shared(Secret::random()), shared(Secret::from_seed(0)));
    }

    #[test]
    fn a_seeded_secret_is_reproducible_and_a_random_one_is_not() {
        let text = "http://a.test/";
        let both = |secret: Secret| (secret.hash_one(text), secret.keys().url(text));
        assert_eq!(both(Secret::from_seed(3)), both(Secret::from_seed(3)));
        assert_ne!(both(Secret::from_seed(3)), both(Secret::from_seed(4)));
        let (one, other) = (both(Secret::random()), both(Secret::random()));
        assert!(one.0 != other.0 && one.1 != other.1);
        assert_eq!(format!("{:?}", Secret::random()), "Secret");
    }
}
