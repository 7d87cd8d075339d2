//! Which accounts stay when there are more scopes than rows: the greatest of each list.

use super::Account;
use crate::base::time::{Instant, nanos};

/// By how much an account ranks in each list, beside that by requests.
type Ranks = [u64; 4];

/// Accounts above one of these ranks stay.
#[derive(Debug, Default)]
pub(super) struct RanksKept {
    above: Ranks,
    /// Rows that were wanted since these were determined.
    wanted: usize,
    is_known: bool,
}

/// Accounts that stay of each list, at most: as many as a list has at most.
const KEPT: usize = 1000;

/// The ranks are determined anew when so many rows were wanted: that reads all rows.
const WANTED_MAX: usize = 1250;

impl RanksKept {
    /// Counts a row that is wanted while there is none. Returns whether the ranks were determined anew.
    pub fn update(&mut self, rows: &[Account], now: Instant) -> bool {
        self.wanted += 1;
        if self.is_known && self.wanted < WANTED_MAX {
            return false;
        }
        (self.wanted, self.is_known) = (0, true);
        // One list after another, so that little memory is needed at once.
        let mut ranks = Vec::with_capacity(rows.len());
        for (list, above) in self.above.iter_mut().enumerate() {
            ranks.clear();
            ranks.extend(rows.iter().map(|account| rank_of(account, list, now)));
            *above = match ranks.len() > KEPT {
                true => {
                    let at = ranks.len() - 1 - KEPT;
                    *ranks.select_nth_unstable(at).1
                }
                false => 0,
            };
        }
        true
    }

    /// Whether an account stays.
    pub fn keep(&self, account: &Account, now: Instant) -> bool {
        let is_among = |(list, above): (usize, &u64)| rank_of(account, list, now) > *above;
        account.configured || self.above.iter().enumerate().any(is_among)
    }

    /// Whether an account of this latency, in nanoseconds, would stay.
    pub fn keeps_latency(&self, latency: u64) -> bool {
        latency > self.above[LATENCY]
    }
}

const REFUSED: usize = 0;
const LATENCY: usize = 1;
const WAITED: usize = 2;

/// The rank of an account in a list.
fn rank_of(account: &Account, list: usize, now: Instant) -> u64 {
    match list {
        REFUSED => account.refused,
        LATENCY => account.latency().map_or(0, nanos),
        WAITED => nanos(account.waited_total(now)),
        // Those that are suspected, by requests.
        _ => u64::from(account.suspected.is_some()) * account.sent,
    }
}
