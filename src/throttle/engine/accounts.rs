//! Statistics of the scopes: requests, waits, and the effective pace beside the configured one.

mod account;
mod name_index;
mod ranks;

use std::sync::Arc;
use std::time::Duration;

pub use self::account::Account;
use self::account::{CAUSES, EVENTS};
use self::name_index::NameIndex;
use self::ranks::RanksKept;

use super::super::cause::WaitCause;
use super::super::decision::DecisionEvent;
use super::super::scope::{NO_INDEX, Profile, Scope};
use super::super::signal::Signal;
use super::open_waits::{OpenWait, OpenWaits};
use super::{FirstInLine, Throttle};
use crate::base::ids::ScopeId;
use crate::base::time::{Instant, nanos};

/// The accounts of all scopes named in the configuration, and of as many others as fit. When full,
/// accounts of evicted scopes with the fewest requests are removed, but for the greatest by refusals, latency, waits and
/// suspicion. Of the live scopes without an account, those that are refused, slow or suspected get that of another
/// which is not among the greatest: its numbers begin then.
#[derive(Debug)]
pub(super) struct Accounts {
    rows: Vec<Account>,
    rows_max: usize,
    free: Vec<u32>,
    /// Rows of evicted scopes that the settings do not name.
    evicted: Vec<u32>,
    /// Those among them that stay because of their ranks.
    kept: Vec<u32>,
    ranks: RanksKept,
    /// The next row that may be given to another scope.
    hand: usize,
    /// The newest account of each name under which something was sent.
    by_name: NameIndex,
    configured: NameIndex,
    /// Waits of scopes without a row.
    open_waits: OpenWaits,
    /// Sums over all scopes with a row, in nanoseconds: of ten thousand, more than 64 bits hold after three weeks.
    waited: [u128; CAUSES],
    /// Sums over all scopes.
    decided: [u64; EVENTS],
}

/// Maximum number of accounts, to bound memory: about 400 bytes each.
const ACCOUNTS_MAX: usize = 10_000;

/// Rows that are looked at for one that may be given to another scope.
const CANDIDATES: usize = 16;

impl Default for Accounts {
    fn default() -> Self {
        Accounts {
            rows: Vec::new(),
            rows_max: ACCOUNTS_MAX,
            free: Vec::new(),
            evicted: Vec::new(),
            kept: Vec::new(),
            ranks: RanksKept::default(),
            hand: 0,
            by_name: NameIndex::default(),
            configured: NameIndex::default(),
            open_waits: OpenWaits::default(),
            waited: [0; CAUSES],
            decided: [0; EVENTS],
        }
    }
}

impl Accounts {
    fn open(&mut self, scope: &str, configured: bool, profile: Arc<Profile>, now: Instant) -> u32 {
        if configured && let Some(row) = self.configured.find(scope, &self.rows) {
            self.rows[row as usize].is_live = true;
            return row;
        }
        if self.is_full() {
            self.sweep(now);
            if self.free.is_empty() && !configured {
                return NO_INDEX;
            }
        }
        let account = Account::new(scope, configured, profile, now);
        let row = match self.free.pop() {
            Some(row) => {
                self.rows[row as usize] = account;
                row
            }
            None => {
                self.rows.push(account);
                (self.rows.len() - 1) as u32
            }
        };
        if configured {
            self.configured.insert(row, &self.rows);
        }
        row
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.rows.len() >= self.rows_max
    }

    /// A row for a live scope that comes late: of an evicted one, or of a live one that is not among the greatest and
    /// has sent least of some. `None` if all that were looked at stay.
    fn row_to_give(&mut self, now: Instant) -> Option<u32> {
        if self.is_full() {
            self.sweep(now);
        }
        if let Some(row) = self.free.pop() {
            return Some(row);
        }
        let mut least: Option<(u64, u32)> = None;
        for _ in 0..CANDIDATES.min(self.rows.len()) {
            self.hand = (self.hand + 1) % self.rows.len();
            let account = &self.rows[self.hand];
            if !account.is_live || self.ranks.keep(account, now) {
                continue;
            }
            let candidate = (account.sent, self.hand as u32);
            least = Some(least.map_or(candidate, |least| least.min(candidate)));
        }
        least.map(|(_, row)| row)
    }

    /// The newest account of a scope under which something was sent.
    pub fn named(&self, name: &str) -> Option<&Account> {
        let row = self.by_name.find(name, &self.rows)?;
        self.rows
            .get(row as usize)
            .filter(|account| account.sent > 0)
    }

    fn close(&mut self, row: u32) {
        if let Some(account) = self.rows.get_mut(row as usize) {
            account.is_live = false;
            if !account.configured {
                self.evicted.push(row);
            }
        }
    }

    /// Frees half of the rows of evicted scopes that are not among the greatest, those with the fewest requests. It does
    /// not scan the other rows, which may be nearly all.
    fn sweep(&mut self, now: Instant) {
        if self.ranks.update(&self.rows, now) {
            // Others may be among the greatest by now.
            self.evicted.append(&mut self.kept);
        }
        let mut evicted = std::mem::take(&mut self.evicted);
        evicted.retain(|row| {
            let stays = self.ranks.keep(&self.rows[*row as usize], now);
            if stays {
                self.kept.push(*row);
            }
            !stays
        });
        evicted.sort_by_key(|row| (self.rows[*row as usize].sent, *row));
        self.evicted = evicted.split_off(evicted.len().div_ceil(2));
        for row in &evicted {
            self.by_name.remove(*row, &self.rows);
            self.rows[*row as usize].sent = 0;
        }
        self.free = evicted;
    }

    /// The account of a scope.
    pub fn of(&self, scope: &Scope) -> Option<&Account> {
        self.rows.get(scope.account as usize)
    }

    fn get_mut(&mut self, row: u32) -> Option<&mut Account> {
        self.rows.get_mut(row as usize)
    }

    pub fn departed(&mut self, scope: &Scope, at: Instant) {
        let row = scope.account;
        if let Some(account) = self.get_mut(row) {
            // The profile rarely changes, and cloning the `Arc` costs more than a comparison.
            if !Arc::ptr_eq(&account.profile, &scope.profile) {
                account.profile = Arc::clone(&scope.profile);
            }
            account.departed(scope.pace(), at);
            if account.sent == 1 {
                self.by_name.insert(row, &self.rows);
            }
        }
    }

    /// Nanoseconds waited, but for the open waits of scopes with a row.
    fn waited_for(&self, cause: WaitCause, now: Instant) -> u128 {
        self.waited[cause as usize] + self.open_waits.total(cause, now)
    }

    pub fn ended(&mut self, scope: &Scope, now: Instant) {
        if let Some(account) = self.get_mut(scope.account) {
            account.on_the_wire(-1, now);
        }
    }
}

impl Throttle {
    /// The statistics of the scopes, in arbitrary order. A scope that was evicted and created again
    /// has two accounts.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        let rows = self.accounts.rows.iter();
        rows.filter(|account| account.sent > 0)
    }

    pub(super) fn open_account(&mut self, id: ScopeId, configured: bool) {
        let now = self.advanced.unwrap_or(Instant::START);
        let profile = Arc::clone(&self.scope_ref(id).profile);
        let name = self.scope_table.name(id);
        let row = self.accounts.open(name, configured, profile, now);
        if let Some(account) = self.accounts.get_mut(row) {
            account.id = id;
        }
        self.scope_mut(id).account = row;
    }

    pub(super) fn close_account(&mut self, row: u32, now: Instant) {
        match OpenWait::of_row(row) {
            Some(wait) => self.accounts.open_waits.change(wait, OpenWait::No, now),
            None => self.accounts.close(row),
        }
    }

    /// The newest account of a scope under which something was sent, in use or not.
    pub(super) fn account_named(&self, name: &str) -> Option<&Account> {
        self.accounts.named(name)
    }

    /// The row of a scope. One without a row, to which something was sent, gets it if it may come into a list: that of
    /// a scope which is in none.
    fn row_of(&mut self, id: ScopeId, may_be_listed: impl FnOnce(&RanksKept) -> bool) -> u32 {
        let row = self.scope_ref(id).account;
        let Some(wait) = OpenWait::of_row(row) else {
            return row;
        };
        if !may_be_listed(&self.accounts.ranks) {
            return row;
        }
        let now = self.advanced.unwrap_or(self.clock);
        let Some(row) = self.accounts.row_to_give(now) else {
            return row;
        };
        let loser = &self.accounts.rows[row as usize];
        if loser.is_live {
            let (loser, parked, waits) = (loser.id, loser.parked, loser.waiting);
            self.account_waited(loser, now);
            let wait = match (waits, parked) {
                (None, _) => OpenWait::No,
                (Some((WaitCause::GlobalCap, _)), 1..) => OpenWait::Parked,
                (Some((cause, _)), _) => OpenWait::For(cause),
            };
            self.accounts.open_waits.change(OpenWait::No, wait, now);
            self.scope_mut(loser).account = wait.to_row();
            self.accounts.by_name.remove(row, &self.accounts.rows);
        }
        let scope = self.scope_ref(id);
        let profile = Arc::clone(&scope.profile);
        let (pace, sent) = (scope.pace(), scope.last_sent());
        let mut account = Account::new(self.scope_table.name(id), false, profile, now);
        account.id = id;
        account.pace = pace;
        (account.sent, account.first, account.last) = (1, sent, sent);
        if let Some(cause) = wait.cause() {
            account.waiting = Some((cause, now));
            account.parked = u32::from(wait == OpenWait::Parked);
        }
        self.accounts.open_waits.change(wait, OpenWait::No, now);
        self.accounts.rows[row as usize] = account;
        self.accounts.by_name.insert(row, &self.accounts.rows);
        self.scope_mut(id).account = row;
        row
    }

    /// Most accounts.
    #[cfg(test)]
    pub(in crate::throttle) fn set_accounts_max(&mut self, most: usize) {
        self.accounts.rows_max = most;
    }

    /// Records the answer to a request of the scope, by its head, or that it failed without one.
    pub(super) fn account_answered(&mut self, id: ScopeId, signal: &Signal) {
        let auto = self.scope_ref(id).profile.settings.autothrottle.as_ref();
        let latency = auto.map_or(signal.server_latency, |auto| {
            auto.latency_from
                .choose(signal.latency, signal.server_latency)
        });
        let latency = latency.filter(|_| signal.sure_latency().is_some());
        let is_slow =
            |ranks: &RanksKept| latency.is_some_and(|latency| ranks.keeps_latency(nanos(latency)));
        let row = self.row_of(id, is_slow);
        if let Some(account) = self.accounts.get_mut(row) {
            account.replies += 1;
            if let Some(latency) = latency {
                account.latency.add(latency);
            }
        }
    }

    /// Counts a decision about the scope, even if decisions are not recorded.
    pub(super) fn account_decided(&mut self, id: ScopeId, event: DecisionEvent) {
        self.accounts.decided[event as usize] += 1;
        let scope = self.scope_ref(id);
        let (row, pace) = (scope.account, scope.pace());
        if let Some(account) = self.accounts.get_mut(row) {
            account.decided[event as usize] = account.decided[event as usize].saturating_add(1);
            account.pace = pace;
        }
    }

    /// Records that a suspicion of the scope was raised or cleared.
    pub(super) fn account_suspected(&mut self, id: ScopeId, reason: &str) {
        let is_suspected = self.scope_ref(id).is_suspected();
        let row = self.row_of(id, |_| is_suspected);
        if let Some(account) = self.accounts.get_mut(row) {
            account.suspected = is_suspected.then(|| reason.to_owned());
        }
    }

    /// Time waited until `now` by cause, over all scopes.
    pub(crate) fn waited(&self, now: Instant) -> [(WaitCause, Duration); CAUSES] {
        let mut waited = WaitCause::ALL.map(|cause| self.accounts.waited_for(cause, now));
        for account in &self.accounts.rows {
            if let Some((cause, since)) = account.waiting {
                let since = since.max(account.waited_until);
                waited[cause as usize] += u128::from(nanos(now.saturating_since(since)));
            }
        }
        let duration_of = |nanos: u128| {
            let seconds = u64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(u64::MAX);
            Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32)
        };
        WaitCause::ALL.map(|cause| (cause, duration_of(waited[cause as usize])))
    }

    /// Number of decisions of this kind over all scopes.
    pub(crate) fn decided(&self, event: DecisionEvent) -> u64 {
        self.accounts.decided[event as usize]
    }

    pub(super) fn account_refused(&mut self, id: ScopeId) {
        let row = self.row_of(id, |_| true);
        if let Some(account) = self.accounts.get_mut(row) {
            account.refused += 1;
        }
    }

    /// Records that a prepared request of a scope has waited. `previous`: the departure before it.
    pub(super) fn account_wait(
        &mut self,
        id: ScopeId,
        cause: WaitCause,
        (from, to): (Instant, Instant),
        previous: Option<Instant>,
    ) {
        if from >= to {
            return;
        }
        let row = self.scope_ref(id).account;
        if OpenWait::of_row(row) == Some(OpenWait::No) {
            // Requests that wait together do so one after the other, but for the first.
            let from = previous.map_or(from, |previous| from.max(previous));
            let waited = nanos(to.saturating_since(from));
            self.accounts.open_waits.add(cause, waited);
        }
        if let Some(account) = self.accounts.rows.get_mut(row as usize) {
            // Time of lanes that wait together counts once, for the first of them.
            if let Some((cause, since)) = account.waiting {
                self.accounts.waited[cause as usize] += u128::from(account.wait(cause, since, to));
            }
            self.accounts.waited[cause as usize] += u128::from(account.wait(cause, from, to));
        }
    }

    /// Records what the first lane in a scope's line waits for from now on, in the scope's `row`.
    /// Must be called wherever that may have changed.
    pub(super) fn account_waiting(
        &mut self,
        id: ScopeId,
        row: u32,
        first: Option<FirstInLine>,
        now: Instant,
    ) {
        if let Some(wait) = OpenWait::of_row(row) {
            return self.change_wait(id, wait, first, now);
        }
        let account = &self.accounts.rows[row as usize];
        if first.is_none() && account.waiting.is_none() {
            return;
        }
        let first = first.filter(|first| first.is_offered);
        let cause = match account.parked > 0 {
            true if first.is_none() => Some(WaitCause::GlobalCap),
            _ => first.and_then(|first| self.waits_for(id, first, now)),
        };
        let account = &mut self.accounts.rows[row as usize];
        let spends = Some(WaitCause::Quota);
        let comes_to_spend = cause == spends && account.waiting.map(|(cause, _)| cause) != spends;
        match (&mut account.waiting, cause) {
            // The last cause counts for the whole wait: without the others it would not have ended
            // earlier.
            (Some((present, _)), Some(cause)) => *present = cause,
            (None, Some(cause)) => account.waiting = Some((cause, now)),
            (Some(_), None) => self.account_waited(id, now),
            (None, None) => {}
        }
        if comes_to_spend && let Some(first) = first {
            self.note_quota(id, first.cost, now);
        }
    }

    /// The same of a scope without an account, with its present wait.
    fn change_wait(
        &mut self,
        id: ScopeId,
        present: OpenWait,
        first: Option<FirstInLine>,
        now: Instant,
    ) {
        let first = first.filter(|first| first.is_offered);
        let wait = match first {
            None if present == OpenWait::Parked => present,
            None => OpenWait::No,
            Some(first) => {
                let cause = self.waits_for(id, first, now);
                cause.map_or(OpenWait::No, OpenWait::For)
            }
        };
        self.set_wait(id, present, wait, now);
        let spends = OpenWait::For(WaitCause::Quota);
        if wait == spends
            && present != spends
            && let Some(first) = first
        {
            self.note_quota(id, first.cost, now);
        }
    }

    /// A scope without an account waits otherwise from now on.
    fn set_wait(&mut self, id: ScopeId, present: OpenWait, wait: OpenWait, now: Instant) {
        if wait != present {
            self.accounts.open_waits.change(present, wait, now);
            self.scope_mut(id).account = wait.to_row();
        }
    }

    /// Records that a lane of a scope is parked, or not any more.
    pub(super) fn account_parked(&mut self, id: ScopeId, is_parked: bool, now: Instant) {
        let row = self.scope_ref(id).account;
        if let Some(present) = OpenWait::of_row(row) {
            match (present, is_parked) {
                (OpenWait::No, true) => self.set_wait(id, present, OpenWait::Parked, now),
                (OpenWait::Parked, false) => {
                    self.set_wait(id, present, OpenWait::No, now);
                    self.schedule_check(id, now);
                }
                _ => {}
            }
            return;
        }
        let account = &mut self.accounts.rows[row as usize];
        account.parked = match is_parked {
            true => account.parked + 1,
            // Its row may be younger than the lane's wait.
            false => account.parked.saturating_sub(1),
        };
        match is_parked {
            true if account.waiting.is_none() => {
                account.waiting = Some((WaitCause::GlobalCap, now));
            }
            true => {}
            false => self.schedule_check(id, now),
        }
    }

    /// Records that the first lane in a scope's line waits for the global cap, which its scopes do
    /// not know.
    pub(super) fn account_capped(&mut self, id: ScopeId, now: Instant) {
        let scope = self.scope_ref(id);
        let waiting = self.first_waiting(scope);
        let first = self.lanes.get(waiting as usize).map(|lane| FirstInLine {
            lane: waiting,
            is_offered: lane.is_offered(),
            cost: lane.cost(id),
            releases: scope.releases_at(lane.cost(id), now),
        });
        self.account_waiting(id, scope.account, first, now);
    }

    /// Ends the wait of the first lane in a scope's line.
    pub(super) fn account_waited(&mut self, id: ScopeId, now: Instant) {
        let row = self.scope_ref(id).account;
        if let Some(present) = OpenWait::of_row(row) {
            return self.set_wait(id, present, OpenWait::No, now);
        }
        if let Some(account) = self.accounts.rows.get_mut(row as usize)
            && let Some((cause, since)) = account.waiting.take()
        {
            self.accounts.waited[cause as usize] += u128::from(account.wait(cause, since, now));
        }
    }

    /// What the first lane in a scope's line waits for; `None` without one, or if it waits for this
    /// machine.
    fn waits_for(&self, id: ScopeId, first: FirstInLine, now: Instant) -> Option<WaitCause> {
        match first.releases {
            Some(at) if at <= now => {
                let full = self.in_flight >= self.settings.concurrent_requests;
                full.then_some(WaitCause::GlobalCap)
            }
            at => Some(self.cause(id, first.cost, at.is_none(), now)),
        }
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::account::fixtures::{profile, secs};
    use super::*;

    #[test]
    fn a_configured_scope_that_returns_keeps_its_account() {
        let mut accounts = Accounts::default();
        let first = accounts.open("a.test", true, profile(), Instant::START);
        let other = accounts.open("b.test", false, profile(), Instant::START);
        accounts.close(first);
        accounts.close(other);
        let again = accounts.open("a.test", true, profile(), secs(9));
        assert_eq!(again, first);
        assert!(accounts.rows[first as usize].is_live);
        assert_ne!(accounts.open("b.test", false, profile(), secs(9)), other);
    }

    #[test]
    fn evicted_accounts_with_the_fewest_sends_are_removed_first() {
        let mut accounts = Accounts::default();
        for number in 0..ACCOUNTS_MAX as u64 {
            let name = format!("{number}.test");
            let row = accounts.open(&name, number == 0, profile(), Instant::START);
            accounts.rows[row as usize].sent = 1 + number;
            if number < 100 {
                accounts.close(row);
            }
        }
        let row = accounts.open("new.test", false, profile(), secs(1));
        // The one named in the settings stays, although it sent least.
        assert!((1..=50).contains(&row), "{row}");
        assert_eq!(accounts.rows[0].sent, 1);
        assert!(!accounts.free.contains(&0));
        assert_eq!(accounts.rows.len(), ACCOUNTS_MAX);
        accounts.evicted.clear();
        accounts.free.clear();
        let row = accounts.open("late.test", false, profile(), secs(2));
        assert_eq!(row, NO_INDEX);
        let row = accounts.open("named.test", true, profile(), secs(2));
        assert_eq!(row as usize, ACCOUNTS_MAX);
    }
}
