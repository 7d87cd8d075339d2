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
        let mut columns: [Vec<u64>; 4] = Default::default();
        for account in rows {
            for (column, rank) in columns.iter_mut().zip(ranks_of(account, now)) {
                column.push(rank);
            }
        }
        self.above = columns.map(|mut column| match column.len() > KEPT {
            true => {
                let at = column.len() - 1 - KEPT;
                *column.select_nth_unstable(at).1
            }
            false => 0,
        });
        true
    }

    /// Whether an account stays.
    pub fn keep(&self, account: &Account, now: Instant) -> bool {
        let ranks = ranks_of(account, now).into_iter().zip(self.above);
        account.configured || ranks.into_iter().any(|(rank, above)| rank > above)
    }

    /// Whether an account of this latency, in nanoseconds, would stay.
    pub fn keeps_latency(&self, latency: u64) -> bool {
        latency > self.above[LATENCY]
    }
}

const LATENCY: usize = 1;

fn ranks_of(account: &Account, now: Instant) -> Ranks {
    [
        account.refused,
        account.latency().map_or(0, nanos),
        nanos(account.waited_total(now)),
        u64::from(account.suspected.is_some()) * account.sent,
    ]
}
