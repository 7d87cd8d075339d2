//! Counts of limits beyond the end of the process, as labelled numbers.

use std::collections::BTreeSet;

use crate::base::records::{self, Records};

/// The counts that changed since they were saved, by what they are of.
#[derive(Debug, Default)]
pub(super) struct ChangedCounts {
    is_on: bool,
    names: BTreeSet<CountOf>,
}

/// What counts are of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CountOf {
    Host(Box<str>),
    /// A registrable domain.
    Domain(Box<str>),
}

/// Counts of a host, of a domain, or of the crawl; zero where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub pages: u64,
    pub sitemaps: u64,
    pub bytes: u64,
    /// Requests that failed for good.
    pub errors: u64,
    /// Nanoseconds in which the crawl ran.
    pub active: u64,
}

impl ChangedCounts {
    /// Notes changes from now on.
    pub fn start(&mut self) {
        self.is_on = true;
    }

    /// Whether changes are noted.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    pub fn add(&mut self, of: CountOf) {
        self.names.insert(of);
    }

    /// Number of hosts and domains whose counts changed.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn poll(&mut self) -> Option<CountOf> {
        self.names.pop_first()
    }
}

impl CountOf {
    /// Its name in the state: `host/a.test`, `domain/a.test`.
    pub fn name(&self) -> String {
        match self {
            CountOf::Host(name) => format!("{HOST}{name}"),
            CountOf::Domain(name) => format!("{DOMAIN}{name}"),
        }
    }

    /// Reads such a name.
    pub fn of_name(name: &str) -> Option<Self> {
        let host = name
            .strip_prefix(HOST)
            .map(|name| CountOf::Host(name.into()));
        host.or_else(|| {
            name.strip_prefix(DOMAIN)
                .map(|name| CountOf::Domain(name.into()))
        })
    }
}

impl Counts {
    /// These counts as bytes; none if all are zero.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        let counts = [
            self.pages,
            self.sitemaps,
            self.bytes,
            self.errors,
            self.active,
        ];
        for (label, count) in (1..).zip(counts).filter(|(_, count)| *count > 0) {
            records::encode_number(label, count, &mut out);
        }
        out
    }

    /// Reads what [`Counts::to_bytes`] wrote. Unknown counts are skipped.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let records = Records::from_encoded(bytes)?;
        let count = |label| records.number(label).unwrap_or(0);
        Some(Counts {
            pages: count(1),
            sitemaps: count(2),
            bytes: count(3),
            errors: count(4),
            active: count(5),
        })
    }
}

const HOST: &str = "host/";
const DOMAIN: &str = "domain/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_names_are_read_again() {
        let counts = Counts {
            pages: 300,
            sitemaps: 0,
            bytes: u64::MAX,
            errors: 1,
            active: 5,
        };
        let bytes = counts.to_bytes();
        assert_eq!(
            bytes,
            b"\x01\x02\x2c\x01\x03\x08\xff\xff\xff\xff\xff\xff\xff\xff\x04\x01\x01\x05\x01\x05"
        );
        assert_eq!(Counts::from_bytes(&bytes), Some(counts));
        assert_eq!(Counts::from_bytes(&[]), Some(Counts::default()));
        assert_eq!(Counts::from_bytes(&bytes[..3]), None);
        assert!(Counts::default().to_bytes().is_empty());
        for of in [CountOf::Host("a/b".into()), CountOf::Domain("a".into())] {
            assert_eq!(CountOf::of_name(&of.name()), Some(of));
        }
        assert_eq!(CountOf::of_name(""), None);
    }
}
