//! The engine's scopes: their creation, settings and eviction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::decision::DecisionSource;
use super::super::scope::{Hold, Profile, Scope};
use super::super::settings::{
    Backoff, DOMAINS, Jitter, ScopePatch, ScopeSettings, ThrottleSettings,
};
use super::super::strategy::Pace;
use super::tickets::TICKET_IN_USE;
use super::{Throttle, TicketId};
use crate::base::ids::{LaneId, ScopeId};
use crate::base::time::Instant;

impl Throttle {
    /// The scope with this name, if it exists.
    pub(crate) fn known_scope(&self, name: &str) -> Option<ScopeId> {
        self.scope_table.find(name)
    }

    /// The scope with this name; created if it does not exist.
    pub fn scope(&mut self, name: &str) -> ScopeId {
        if let Some(id) = self.scope_table.find(name) {
            self.refresh_stale(id, self.clock);
            return id;
        }
        let profile = self.profiles.of(name, &self.settings);
        let custom = self.strategies.of(name, &profile.settings);
        let scope = self.begun(name, Scope::new(profile, custom));
        let id = self.scope_table.add(name, scope);
        let configured = self.settings.scopes.contains_key(name);
        self.open_account(id, configured);
        self.restore_learned(id);
        let known = self.initial.as_ref().and_then(|known| known(name));
        if let Some(known) = known {
            self.report_on(id, &known, self.clock);
        }
        id
    }

    /// Reads the memory that finding the first scopes of these lanes by name reads, one step for all
    /// lanes before the next step for any, so that cache misses overlap. The sum is meaningless.
    pub(crate) fn touch(&self, lanes: &[LaneId]) -> u64 {
        let lanes = lanes.iter().map(|lane| &self.lanes[lane.0 as usize]);
        let scopes = lanes.filter_map(|lane| lane.scopes().first().copied());
        let scopes: SmallVec<[ScopeId; 32]> = scopes.collect();
        self.scope_table.touch(&scopes)
    }

    /// The scope named after a request's host. Unlike other scopes, a host with only a quota is
    /// paced as well.
    pub(crate) fn host_scope(&mut self, name: &str) -> ScopeId {
        let id = self.scope(name);
        if self.scope_ref(id).profile.only_quota
            && let Some(patch) = self.settings.scopes.get_mut(name)
        {
            // Set explicitly, so that the scope never again counts as one with a quota only.
            patch.concurrency = Some(self.settings.default.concurrency);
            let paced = self.profiles.change(name, &self.settings);
            let strategy = self.strategies.of(name, &paced.settings);
            let now = self.clock;
            self.scope_mut(id).change(paced, strategy, now);
        }
        id
    }

    /// The scope of an address (`CONCURRENT_REQUESTS_PER_IP`), if enabled.
    ///
    /// It caps the requests in flight to the address and has no pace, unless it has settings of its
    /// own.
    pub(crate) fn address_scope(&mut self, address: std::net::IpAddr) -> Option<ScopeId> {
        let concurrency = self.settings.concurrent_requests_per_ip;
        if concurrency == 0 && !self.addresses {
            return None;
        }
        let name = format!("ip/{address}");
        if concurrency > 0 && self.settings.entry_of(&name).is_none() {
            return Some(self.implicit_scope(&name, |settings| {
                settings.concurrency = concurrency;
            }));
        }
        Some(self.scope(&name))
    }

    /// The scope `host/NAME` that applies a Crawl-delay; created, or its delay raised.
    ///
    /// The delay is a strict minimum. One request is in flight at a time, unless the user gave the
    /// host a concurrency of its own (F54). The larger of several delays applies (F51).
    pub(crate) fn crawl_delay_scope(&mut self, host: &str, delay: Duration) -> ScopeId {
        let delay = delay.min(self.settings.robotstxt_max_delay);
        let keeps_concurrency = self.settings.robotstxt_keep_concurrency
            || self.settings.patch_by_name(host).concurrency.is_some();
        let id = self.implicit_scope(&format!("host/{host}"), |settings| {
            if keeps_concurrency {
                settings.concurrency = u32::MAX;
            }
        });
        self.scope_mut(id).raise_floor(delay);
        id
    }

    /// Makes a scope's gap run from the last departure of the lane's other scopes: the lane sent
    /// requests before the scope was added to it.
    pub(crate) fn follow_lane(&mut self, scope: ScopeId, lane: LaneId) {
        let scopes = self.lanes[lane.0 as usize].scopes();
        let sent = scopes
            .iter()
            .filter_map(|id| self.scope_ref(*id).last_sent());
        if let Some(sent) = sent.max() {
            self.scope_mut(scope).follow(sent);
        }
    }

    /// Counts a departure for scopes that were added to the lane after its release, so that their
    /// gap runs from it as well.
    pub(crate) fn follow_departure(&mut self, lane: LaneId, ticket: TicketId, sent: Instant) {
        let held = &self.tickets.get(ticket.0).expect(TICKET_IN_USE).held;
        let scopes = self.lanes[lane.0 as usize].scopes();
        // The common case: one scope, and none added since.
        if let ([scope], [held]) = (scopes, &held[..])
            && *scope == held.id
        {
            return;
        }
        for id in scopes {
            if held.iter().all(|held| held.id != *id) {
                let scope = self.scope_table.get_mut(*id);
                scope.expect("a lane's scopes exist").follow(sent);
            }
        }
    }

    /// The user's settings of a scope that are less polite than its robots.txt: a shorter delay, or
    /// more than one request in flight. They cause a warning, unless the scope sets
    /// `ignore_robots_txt` (F54). Called once per lane.
    pub(crate) fn crawl_delay_overridden_by(
        &self,
        scope: &str,
        asked: Duration,
    ) -> Option<ScopePatch> {
        let patch = self.settings.patch_by_name(scope);
        let silenced = patch.ignore_robots_txt.unwrap_or(false);
        if silenced || !self.settings.robotstxt_obey {
            return None;
        }
        let keeps_concurrency = self.settings.robotstxt_keep_concurrency;
        let bolder = ScopePatch {
            delay: patch.delay.filter(|own| *own < asked),
            concurrency: patch
                .concurrency
                .filter(|own| *own > 1 && !keeps_concurrency),
            ..ScopePatch::default()
        };
        (bolder != ScopePatch::default()).then_some(bolder)
    }

    /// The same, the first time for each entry of the settings, so that a crawl of many hosts under one
    /// pattern remembers and reports one.
    pub(crate) fn poll_crawl_delay_warning(
        &mut self,
        scope: &str,
        asked: Duration,
    ) -> Option<ScopePatch> {
        let own = self.crawl_delay_overridden_by(scope, asked)?;
        let entry = self.settings.entry_of(scope)?;
        if self.crawl_delay_warned.contains(entry) {
            return None;
        }
        self.crawl_delay_warned.insert(entry.to_owned());
        Some(own)
    }

    /// Returns whether Crawl-delay applies to this scope. A delay that the user gave to the scope
    /// replaces it (F54).
    pub(crate) fn applies_crawl_delay(&self, scope: &str) -> bool {
        self.settings.robotstxt_obey && self.settings.patch_by_name(scope).delay.is_none()
    }

    pub(super) fn implicit_scope(
        &mut self,
        name: &str,
        adjust: impl FnOnce(&mut ScopeSettings),
    ) -> ScopeId {
        if let Some(id) = self.scope_table.find(name) {
            return id;
        }
        let mut settings = unpaced(1);
        adjust(&mut settings);
        let profile = Arc::new(Profile {
            is_implicit: true,
            held_until: self.profiles.of(name, &self.settings).held_until,
            ..Profile::of(settings)
        });
        let scope = self.begun(name, Scope::new(profile, None));
        let id = self.scope_table.add(name, scope);
        self.open_account(id, false);
        id
    }

    /// Returns whether a request of this cost can never be sent under this scope: it exceeds the
    /// whole quota, and such requests are refused.
    pub(crate) fn never_fits(&self, scope: ScopeId, cost: f64, now: Instant) -> bool {
        self.scope_ref(scope).never_fits(cost, now)
    }

    /// The share of a scope's quota that a request of this cost takes, at most 1; 0 without a
    /// quota.
    pub(crate) fn share(&self, scope: ScopeId, cost: f64) -> f32 {
        let quota = self.scope_ref(scope).profile.settings.quota;
        let share = quota.map_or(0.0, |quota| cost / quota.units);
        // A cost that is not a valid number of units counts as the whole quota.
        if share.is_nan() {
            1.0
        } else {
            share.clamp(0.0, 1.0) as f32
        }
    }

    /// Replaces the configured settings of a scope from now on; an empty patch removes them.
    /// Learned state is kept where it still applies.
    ///
    /// Checks one scope; if the name [covers many scopes](covers_many_scopes), all existing ones: the next few by each
    /// `advance_visits`, and any before something is sent under it.
    pub fn set_scope(&mut self, name: &str, patch: ScopePatch, now: Instant) {
        if name == "default" {
            self.settings.change_default(patch);
        } else if patch == ScopePatch::default() {
            self.settings.scopes.remove(name);
            self.profiles.remove(name);
        } else {
            self.settings.scopes.insert(name.to_owned(), patch);
        }
        if !covers_many_scopes(name) {
            if self.settings.scopes.contains_key(name) {
                self.profiles.change(name, &self.settings);
            }
            if let Some(id) = self.scope_table.find(name) {
                self.refresh(id, now);
            }
            return;
        }
        // Other scopes may inherit from this entry: those below a pattern, or all.
        self.profiles.change_all(&self.settings);
        self.begin_refresh(now);
    }

    /// Restores the configured settings of a scope, a pattern or `default`, whose order is not among `ordered` any more.
    pub(crate) fn withdraw_scope(
        &mut self,
        name: &str,
        configured: &ThrottleSettings,
        ordered: &BTreeMap<String, ScopePatch>,
        now: Instant,
    ) {
        let own = configured.scopes.get(name).cloned().unwrap_or_default();
        if name == "default" || is_only_quota(name, &own) {
            self.change_settings(configured, ordered, now);
            self.refresh_named(name, now);
        } else {
            self.set_scope(name, own, now);
        }
    }

    /// Replaces the configured settings of all scopes from now on, but for `ordered`, the entries that were set since:
    /// these hold over them. The bound on requests in flight stays. What scopes have learned is kept.
    ///
    /// Checks all existing scopes if any setting differs, as [`Throttle::set_scope`] does.
    pub(crate) fn change_settings(
        &mut self,
        configured: &ThrottleSettings,
        ordered: &BTreeMap<String, ScopePatch>,
        now: Instant,
    ) {
        let mut settings = ThrottleSettings {
            concurrent_requests: self.settings.concurrent_requests,
            started: self.settings.started,
            ..configured.clone()
        };
        for (name, patch) in ordered {
            if name == "default" {
                settings.change_default(patch.clone());
            } else if *patch == ScopePatch::default() {
                settings.scopes.remove(name);
            } else {
                settings.scopes.insert(name.clone(), patch.clone());
            }
        }
        self.keep_paced_hosts(&mut settings, now);
        if settings == self.settings {
            return;
        }
        self.settings = settings;
        self.profiles.replace(&self.settings);
        self.begin_refresh(now);
    }

    /// The entry of a host with a quota alone keeps the pace that it was given when it became known as a host.
    fn keep_paced_hosts(&mut self, settings: &mut ThrottleSettings, now: Instant) {
        let concurrency = settings.default.concurrency;
        let entries = settings.scopes.iter_mut();
        for (name, patch) in entries.filter(|(name, patch)| is_only_quota(name, patch)) {
            self.refresh_named(name, now);
            let scope = self.scope_table.find(name);
            let scope = scope.and_then(|id| self.scope_table.get(id));
            if scope.is_some_and(|scope| !scope.profile.only_quota) {
                patch.concurrency = Some(concurrency);
            }
        }
    }

    /// All patches of the default so far in one.
    pub(crate) fn default_patch(&self) -> ScopePatch {
        self.settings.default_patch()
    }

    /// The settings of the entries for a scope.
    #[cfg(test)]
    pub(crate) fn patch_of(&self, scope: &str) -> ScopePatch {
        self.settings.patch_of(scope)
    }

    /// Applies the present settings to a scope if they differ from its own.
    pub(super) fn refresh(&mut self, id: ScopeId, now: Instant) {
        let Some(scope) = self.scope_table.get(id) else {
            return;
        };
        let name = self.scope_table.name(id);
        let mut fresh = self.profiles.of(name, &self.settings);
        if scope.profile.is_implicit {
            if fresh.held_until == scope.profile.held_until {
                return;
            }
            // Of all settings only a hold applies to it.
            fresh = Arc::new(Profile {
                settings: scope.profile.settings.clone(),
                only_quota: scope.profile.only_quota,
                is_implicit: true,
                concurrency_max: scope.profile.concurrency_max,
                held_until: fresh.held_until,
            });
        } else if fresh.settings == scope.profile.settings {
            return;
        }
        let strategy = self.strategies.of(name, &fresh.settings);
        self.scope_mut(id).change(fresh, strategy, now);
        self.schedule_check(id, now);
    }

    /// The name of a scope.
    pub fn scope_name(&self, scope: ScopeId) -> &str {
        self.scope_table.name(scope)
    }

    /// The present pace of a scope: delay before jitter, and concurrency.
    pub fn pace(&self, scope: ScopeId) -> Pace {
        self.scope_ref(scope).pace()
    }

    /// Holds this scope: nothing departs before `until`. The latest of several holds applies.
    pub fn hold(&mut self, scope: ScopeId, until: Instant, now: Instant) {
        self.scope_mut(scope).hold(Hold {
            until,
            source: DecisionSource::User,
            probes: false,
        });
        self.mark_held(scope);
        self.schedule_check(scope, now);
    }

    /// Restores the learned limits of a scope that was evicted before.
    fn restore_learned(&mut self, id: ScopeId) {
        if self.learned.is_empty() {
            return;
        }
        let name = self.scope_table.name(id);
        let key = self.secret.keys().scope(name);
        let now = self.advanced.unwrap_or(Instant::START);
        let Some((learned, orders)) = self.learned.take(key, now) else {
            return;
        };
        let is_domain = || self.settings.covers(DOMAINS, name);
        if !self.forgotten.has_evicted(name, orders, is_domain) {
            self.scope_mut(id).restore_learned(learned, now);
        }
    }

    /// Evicts a scope that holds no state. Returns whether it is gone.
    pub(in crate::throttle) fn evict_if_blank(&mut self, id: ScopeId, now: Instant) -> bool {
        if self.scope_table.get(id).is_none() {
            return true;
        }
        // By the gap of before, the next request would come too soon.
        self.refresh_stale(id, now);
        let scope = self.scope_ref(id);
        if !scope.is_blank(now) {
            return false;
        }
        let row = scope.account;
        self.forget_evicted(id);
        self.save_evicted(id, now);
        let scope = self.scope_ref(id);
        if let Some(learned) = scope.learned() {
            let key = self.secret.keys().scope(self.scope_table.name(id));
            let orders = self.forgotten.orders();
            self.learned.insert(key, learned, orders, now);
        }
        self.close_account(row, now);
        self.scope_table.remove(id);
        true
    }

    /// Number of scopes with state.
    pub(crate) fn scopes_len(&self) -> usize {
        self.scope_table.len()
    }

    /// Number of scopes with a waiting lane.
    pub(crate) fn scopes_waiting(&self) -> usize {
        self.lines
    }

    pub(super) fn scope_ref(&self, id: ScopeId) -> &Scope {
        self.scope_table
            .get(id)
            .expect("a scope that is named exists")
    }

    pub(super) fn scope_mut(&mut self, id: ScopeId) -> &mut Scope {
        self.scope_table
            .get_mut(id)
            .expect("a scope that is named exists")
    }
}

/// Returns whether settings under this name apply to several scopes: those below a pattern, or all.
pub fn covers_many_scopes(name: &str) -> bool {
    name == "default" || name.contains('*')
}

/// The profile of scopes that the configuration does not name.
pub(super) fn default_profile(settings: &ThrottleSettings) -> Profile {
    Profile {
        concurrency_max: u32::try_from(settings.concurrent_requests).unwrap_or(u32::MAX),
        held_until: settings.held_until(&settings.default),
        ..Profile::of(settings.default.clone())
    }
}

/// The profile of a scope that the configuration names.
pub(super) fn profile(settings: &ThrottleSettings, name: &str) -> Profile {
    let mut own = settings.of(name);
    let patch = settings.scopes.get(name);
    let only_quota = patch.is_some_and(|patch| is_only_quota(name, patch));
    if only_quota {
        own = ScopeSettings {
            quota: own.quota,
            requests_per_minute: own.requests_per_minute,
            hold_until: own.hold_until,
            bytes_per_second: own.bytes_per_second,
            ..unpaced(u32::MAX)
        };
    }
    Profile {
        only_quota,
        concurrency_max: default_profile(settings).concurrency_max,
        held_until: settings.held_until(&own),
        ..Profile::of(own)
    }
}

/// Settings of a scope that only caps the requests in flight.
fn unpaced(concurrency: u32) -> ScopeSettings {
    ScopeSettings {
        concurrency,
        delay: Duration::ZERO,
        delay_per_slot: Duration::ZERO,
        jitter: Jitter::NONE,
        autothrottle: None,
        backoff: Backoff {
            enabled: false,
            ..Backoff::default()
        },
        rampup: None,
        quota: None,
        requests_per_minute: None,
        manager: None,
        hold_until: None,
        bytes_per_second: None,
    }
}

/// Returns whether a scope only has a quota: a custom scope without any pace setting has no pace. A
/// host's scope always has one, since the default pace protects the host.
fn is_only_quota(name: &str, patch: &ScopePatch) -> bool {
    let others = ScopePatch {
        quota: None,
        window: None,
        window_kind: None,
        requests_per_minute: None,
        ignore_robots_txt: None,
        hold_until: None,
        bytes_per_second: None,
        ..patch.clone()
    };
    patch.quota.is_some() && others == ScopePatch::default() && !name.contains(['.', ':', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changing_one_scope_checks_no_other_and_can_be_undone() {
        let mut throttle = Throttle::new(ThrottleSettings::default(), 1, Instant::START);
        let configured = throttle.settings.scopes.len();
        let delay = |seconds| ScopePatch {
            delay: Some(Duration::from_secs(seconds)),
            ..ScopePatch::default()
        };
        let other = |throttle: &mut Throttle| {
            let profile = throttle.profiles.of("key-0", &throttle.settings);
            Arc::as_ptr(&profile)
        };
        throttle.set_scope("key-0", delay(3), Instant::START);
        let before = other(&mut throttle);
        // A check would rebuild its profile.
        throttle.settings.default.concurrency += 1;
        throttle.set_scope("key-1", delay(3), Instant::START);
        assert_eq!(other(&mut throttle), before);
        throttle.set_scope("*.example.org", delay(3), Instant::START);
        assert_ne!(other(&mut throttle), before, "it may match a pattern");
        for name in ["key-0", "key-1", "*.example.org"] {
            throttle.set_scope(name, ScopePatch::default(), Instant::START);
        }
        assert_eq!(throttle.settings.scopes.len(), configured);
        assert_eq!(throttle.profiles.len(), configured);
    }

    #[test]
    fn new_settings_keep_the_pace_of_a_host_with_a_quota_alone_and_what_was_ordered() {
        let quota = |units| ScopePatch::default().quota(units);
        let with = |units| {
            let mut settings = ThrottleSettings::default();
            settings.scopes.insert("intranet".to_owned(), quota(units));
            settings
        };
        let mut throttle = Throttle::new(with(5.0), 1, Instant::START);
        let id = throttle.host_scope("intranet");
        let paced = throttle.pace(id);
        assert!(paced.delay > Duration::ZERO);
        let slow = ScopePatch::default().delay(Duration::from_secs(9));
        let ordered = BTreeMap::from([("key-0".to_owned(), slow)]);
        throttle.change_settings(&with(7.0), &ordered, Instant::START);
        assert_eq!(throttle.pace(id), paced);
        assert_eq!(throttle.patch_of("intranet").quota, Some(7.0));
        let scope = throttle.scope("key-0");
        assert_eq!(throttle.pace(scope).delay, Duration::from_secs(9));
    }
    #[test]
    fn an_order_about_a_pattern_makes_the_profiles_of_entries_when_their_scopes_need_them() {
        let mut settings = ThrottleSettings::default();
        let delay = |seconds| ScopePatch::default().delay(Duration::from_secs(seconds));
        for number in 0..1000 {
            let name = format!("{number}.example.com");
            let own = match number % 2 {
                0 => delay(1 + number),
                _ => ScopePatch::default().concurrency(3),
            };
            settings.scopes.insert(name, own);
        }
        let mut throttle = Throttle::new(settings, 1, Instant::START);
        let ids: Vec<ScopeId> = (0..20)
            .map(|number| throttle.scope(&format!("{number}.example.com")))
            .collect();
        throttle.set_units_per_visit(1);
        throttle.set_scope("*.example.com", delay(7), Instant::START);
        assert!(
            throttle.profiles.stale() > 990,
            "{}",
            throttle.profiles.stale()
        );
        while throttle.advance_visits(Instant::START) {}
        for (number, id) in ids.into_iter().enumerate() {
            let expected = if number % 2 == 0 {
                1 + number as u64
            } else {
                7
            };
            assert_eq!(throttle.pace(id).delay, Duration::from_secs(expected));
        }
        assert!(
            throttle.profiles.stale() > 970,
            "{}",
            throttle.profiles.stale()
        );
        let later = throttle.scope("999.example.com");
        assert_eq!(throttle.pace(later).delay, Duration::from_secs(7));
    }

    #[test]
    fn a_pattern_that_is_withdrawn_leaves_what_is_configured() {
        let delay = |seconds| ScopePatch::default().delay(Duration::from_secs(seconds));
        let mut configured = ThrottleSettings::default();
        configured
            .scopes
            .insert("*.example.com".to_owned(), delay(2));
        let mut throttle = Throttle::new(configured.clone(), 1, Instant::START);
        let scope = throttle.scope("a.example.com");
        for (name, left) in [("*.example.com", 2), ("a.example.com", 2)] {
            throttle.set_scope(name, delay(9), Instant::START);
            assert_eq!(throttle.pace(scope).delay, Duration::from_secs(9));
            throttle.withdraw_scope(name, &configured, &BTreeMap::new(), Instant::START);
            assert_eq!(throttle.pace(scope).delay, Duration::from_secs(left));
        }
        assert_eq!(throttle.settings.scopes, configured.scopes);
    }
}
