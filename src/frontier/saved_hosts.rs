//! Failures of hosts beyond the end of the process: those to be saved, and those of an earlier run.
//!
//! ```text
//! failure = version, failures, holds, times given up, unresponsive (1 byte each), span, left (8 bytes each)
//! ```
//!
//! That this machine has no route to a host is not saved: the next run may be on another network.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::{Instant, nanos};

/// Failures to be saved, and those of hosts that do not exist yet in this run.
#[derive(Debug)]
pub(super) struct SavedHosts {
    is_on: bool,
    changed: BTreeSet<(Box<str>, u16)>,
    /// By host: ports.
    earlier: HashMap<Box<str>, Vec<EarlierFailure>, Secret>,
}

/// A host's failure as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedFailure {
    /// Failures since the last success.
    pub failures: u8,
    /// Holds since the last success.
    pub holds: u8,
    /// Number of times it was given up.
    pub given_up: u8,
    pub is_unresponsive: bool,
    /// Time since the first failure in the row, in which the crawl could send.
    pub span: Duration,
    /// How long its hold has left, or the time that it stays given up.
    pub left: Duration,
}

/// A failure of an earlier run.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlierFailure {
    pub port: u16,
    pub failure: SavedFailure,
    /// The end of its hold.
    pub until: Instant,
    /// When this run was begun.
    pub resumed_at: Instant,
}

/// The hold of a host as it was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSummary {
    /// Failures since the last success.
    pub failures: u8,
    /// Number of times that it was given up.
    pub given_up: u8,
    /// How long it is still not to be asked.
    pub left: Duration,
}

impl HoldSummary {
    /// Of what was saved `elapsed` ago; `None` if it may be asked again.
    pub fn of(saved: &[u8], elapsed: Duration) -> Option<Self> {
        let failure = SavedFailure::decode(saved)?;
        let left = failure.left.saturating_sub(elapsed);
        (!left.is_zero()).then_some(HoldSummary {
            failures: failure.failures,
            given_up: failure.given_up,
            left,
        })
    }
}

impl SavedHosts {
    pub fn new(secret: &Secret) -> Self {
        SavedHosts {
            is_on: false,
            changed: BTreeSet::new(),
            earlier: HashMap::with_hasher(*secret),
        }
    }

    /// Saves failures from now on.
    pub fn start(&mut self) {
        self.is_on = true;
    }

    /// The failure of a host and port has changed, or is over.
    pub fn add(&mut self, name: &str, port: u16) {
        if self.is_on {
            self.changed.insert((name.into(), port));
        }
    }

    /// The next host and port whose failure changed since it was saved.
    pub fn poll(&mut self) -> Option<(Box<str>, u16)> {
        self.changed.pop_first()
    }

    /// A failure that an earlier run saved `elapsed` ago under this name. Returns false if it has no effect
    /// any more: `kept_for` after its hold.
    pub fn restore(
        &mut self,
        name: &str,
        saved: &[u8],
        elapsed: Duration,
        kept_for: Duration,
        now: Instant,
    ) -> bool {
        let port = name
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (Some((host, port)), Some(failure)) = (port, SavedFailure::decode(saved)) else {
            return false;
        };
        if elapsed >= failure.left + kept_for {
            return false;
        }
        let earlier = EarlierFailure {
            port,
            failure,
            until: now + failure.left.saturating_sub(elapsed),
            resumed_at: now,
        };
        self.earlier.entry_ref(host).or_default().push(earlier);
        true
    }

    /// The failures of an earlier run of a host that is new in this one.
    pub fn take(&mut self, host: &str) -> Vec<EarlierFailure> {
        match self.earlier.is_empty() {
            true => Vec::new(),
            false => self.earlier.remove(host).unwrap_or_default(),
        }
    }
}

impl SavedFailure {
    pub fn encode(&self) -> Vec<u8> {
        let unresponsive = u8::from(self.is_unresponsive);
        let mut out = vec![
            VERSION,
            self.failures,
            self.holds,
            self.given_up,
            unresponsive,
        ];
        out.extend(nanos(self.span).to_le_bytes());
        out.extend(nanos(self.left).to_le_bytes());
        out
    }

    fn decode(saved: &[u8]) -> Option<Self> {
        let (head, rest) = saved.split_first_chunk::<5>()?;
        let [VERSION, failures, holds, given_up, unresponsive] = *head else {
            return None;
        };
        let (span, rest) = rest.split_first_chunk()?;
        let (left, _) = rest.split_first_chunk()?;
        let time = |nanos: &[u8; 8]| Duration::from_nanos(u64::from_le_bytes(*nanos));
        Some(SavedFailure {
            failures,
            holds,
            given_up,
            is_unresponsive: unresponsive != 0,
            span: time(span),
            left: time(left),
        })
    }
}

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_again_and_every_cut_of_it_is_none() {
        let failure = SavedFailure {
            failures: 5,
            holds: 2,
            given_up: 1,
            is_unresponsive: true,
            span: Duration::from_secs(7),
            left: Duration::from_secs(40),
        };
        let bytes = failure.encode();
        assert_eq!(SavedFailure::decode(&bytes), Some(failure));
        for cut in 0..bytes.len() {
            assert_eq!(SavedFailure::decode(&bytes[..cut]), None);
        }
        let mut newer = bytes;
        newer[0] += 1;
        assert_eq!(SavedFailure::decode(&newer), None);
    }

    #[test]
    fn a_hold_is_shown_until_it_is_over() {
        let failure = SavedFailure {
            failures: 5,
            holds: 2,
            given_up: 1,
            is_unresponsive: false,
            span: Duration::from_secs(7),
            left: Duration::from_secs(40),
        };
        let left_after = |seconds| {
            let summary = HoldSummary::of(&failure.encode(), Duration::from_secs(seconds));
            summary.map(|summary| summary.left.as_secs())
        };
        assert_eq!(left_after(0), Some(40));
        assert_eq!(left_after(39), Some(1));
        assert_eq!(left_after(40), None);
        assert_eq!(left_after(41), None);
    }
}
