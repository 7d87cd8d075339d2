//! Stable keys: hosts, origins, URLs and scopes as 64 bits. The only file that imports `siphasher`.
//!
//! A key is the SipHash-2-4 of the text under the key secret of the crawl. It is the same after a restart
//! and on another machine, as long as the secret is; so state on disk and the shards of a crawl can name
//! things by it. Without the secret no two texts can be made that share a key; two others share one with
//! a probability of 2⁻⁶⁴.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// The key secret of a crawl, shared by its shards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    bytes: [u8; 16],
}

/// A host by its name, in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(pub u64);

/// An origin by its text, as `https://example.com:8443`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginKey(pub u64);

/// A URL by its canonical text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlKey(pub u64);

/// A scope by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeKey(pub u64);

impl Keys {
    /// Keys under this secret, as [`Keys::to_bytes`] gave it.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Keys { bytes }
    }

    /// The secret, for the state of the crawl. Anyone who knows it can make keys that collide.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.bytes
    }

    /// Keys under a secret of these two halves.
    pub fn from_halves(low: u64, high: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        Keys { bytes }
    }

    /// The key of a host.
    pub fn host(&self, name: &str) -> HostKey {
        HostKey(self.hash(name))
    }

    /// The key of an origin.
    pub fn origin(&self, origin: &str) -> OriginKey {
        OriginKey(self.hash(origin))
    }

    /// The key of a URL.
    pub fn url(&self, url: &str) -> UrlKey {
        UrlKey(self.hash(url))
    }

    /// The key of a scope.
    pub fn scope(&self, name: &str) -> ScopeKey {
        ScopeKey(self.hash(name))
    }

    fn hash(&self, text: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.bytes);
        hasher.write(text.as_bytes());
        hasher.finish()
    }
}

/// The secret is not printed.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of SipHash-2-4's authors: the key 00 01 … 0f, and texts of 0 to 7 bytes 00 01 ….
    #[test]
    fn keys_are_siphash_2_4_and_so_the_same_everywhere() {
        let mut bytes = [0; 16];
        for (at, byte) in (0..).zip(&mut bytes) {
            *byte = at;
        }
        let keys = Keys::from_bytes(bytes);
        assert_eq!(keys.to_bytes(), bytes);
        let vectors = [
            0x726f_db47_dd0e_0e31,
            0x74f8_39c5_93dc_67fd,
            0x0d6c_8009_d9a9_4f5a,
            0x8567_6696_d7fb_7e2d,
            0xcf27_94e0_2771_87b7,
            0x1876_5564_cd99_a68d,
            0xcbc9_466e_58fe_e3ce,
            0xab02_00f5_8b01_d137,
        ];
        for (length, expected) in vectors.into_iter().enumerate() {
            let text: String = (0..length as u8).map(char::from).collect();
            assert_eq!(keys.url(&text), UrlKey(expected), "{length} bytes");
            assert_eq!(keys.host(&text).0, expected);
            assert_eq!(keys.origin(&text).0, expected);
            assert_eq!(keys.scope(&text).0, expected);
        }
    }

    #[test]
    fn another_secret_gives_other_keys_and_none_is_printed() {
        let (one, other) = (Keys::from_halves(1, 2), Keys::from_halves(2, 1));
        assert_ne!(one.host("a.test"), other.host("a.test"));
        assert_eq!(format!("{one:?}"), "Keys");
    }
}
