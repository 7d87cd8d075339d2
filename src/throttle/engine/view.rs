//! What an operator sees of a scope.

use std::time::Duration;

use super::Throttle;
use super::accounts::Account;
use crate::base::time::Instant;
use crate::throttle::decision::DecisionSource;
use crate::throttle::settings::ScopePatch;
use crate::throttle::strategy::Pace;

/// The present state of a scope.
#[derive(Clone, Debug)]
pub(crate) struct ScopeView {
    /// Requests released and not finished.
    pub in_flight: u32,
    /// Lanes with requests under it, and replies whose verdict is to come.
    pub lanes: u32,
    /// Delay before jitter, and concurrency.
    pub pace: Pace,
    /// When the last request left.
    pub sent: Option<Instant>,
    /// The gap after that, with its jitter.
    pub gap: Duration,
    /// When the next request may leave, by every gap and hold.
    pub next_send: Instant,
    /// Something beyond its pace delays it.
    pub is_held: bool,
    /// The rule that delays it longest.
    pub rule: DecisionSource,
    /// Whether its concurrency permits one more request.
    pub has_free_slot: bool,
}

impl Throttle {
    /// The present state of a scope; `None` if it has none.
    pub(crate) fn view(&self, name: &str, now: Instant) -> Option<ScopeView> {
        let scope = self.scope_table.get(self.scope_table.find(name)?)?;
        let (next_send, gap) = scope.departs_after();
        Some(ScopeView {
            in_flight: scope.in_flight,
            lanes: scope.lanes,
            pace: scope.pace(),
            sent: scope.last_sent(),
            gap,
            next_send,
            is_held: scope.is_held(now),
            rule: scope.slowest_rule(now),
            has_free_slot: scope.has_free_slot(),
        })
    }

    /// The statistics of a scope that is in use, since it is.
    pub(crate) fn live_account(&self, name: &str) -> Option<&Account> {
        let scope = self.scope_table.get(self.scope_table.find(name)?)?;
        self.accounts.of(scope)
    }

    /// The statistics of a scope; `None` if nothing was sent under it, or it has none.
    pub(crate) fn account_of(&self, name: &str) -> Option<&Account> {
        let live = self.live_account(name);
        // Of a scope that was evicted, any account.
        let live = live.filter(|account| account.sent > 0);
        live.or_else(|| self.account_named(name))
    }

    /// What the entry of this name sets: that of a scope, a pattern, or `default`.
    pub(crate) fn entry(&self, name: &str) -> ScopePatch {
        match name {
            "default" => self.default_patch(),
            name => self.settings.scopes.get(name).cloned().unwrap_or_default(),
        }
    }
}
