//! The scopes of the engine: how one comes to be, what settings it has, and when it is forgotten.

use std::sync::Arc;
use std::time::Duration;

use super::super::decision::Source;
use super::super::scope::{Hold, Profile, Scope, ScopeId};
use super::super::settings::{Backoff, Jitter, ScopePatch, ScopeSettings, Settings};
use super::super::strategy::Pace;
use super::tickets::USED;
use super::{LaneId, Throttle, TicketId};
use crate::base::intern::Interner;
use crate::base::time::Instant;

impl Throttle {
    /// The scope of a name, if there is one.
    pub fn known_scope(&self, name: &str) -> Option<ScopeId> {
        self.roll.find(name)
    }

    /// The scope of a name, made if it is new.
    pub fn scope(&mut self, name: &str) -> ScopeId {
        if let Some(id) = self.roll.find(name) {
            return id;
        }
        let profile = Arc::clone(self.profile_of(name));
        let custom = self.strategies.of(name, &profile.settings);
        let id = self.roll.add(name, Scope::new(profile, custom));
        let configured = self.profiles.contains_key(name);
        self.open_account(id, configured);
        self.recall(id);
        let known = self.initial.as_ref().and_then(|known| known(name));
        if let Some(known) = known {
            self.hear_of(id, &known, self.clock);
        }
        id
    }

    /// The names of the scopes, among which others may be kept that are mostly the same: the
    /// hosts'.
    pub fn names(&self) -> &Interner {
        &self.roll.names
    }

    /// The same, to keep others there.
    pub fn names_mut(&mut self) -> &mut Interner {
        &mut self.roll.names
    }

    /// Reads what is known of these names, some of [`Throttle::names`], so that it is at hand when it
    /// is asked for. No read waits for another name's: the memory serves them together. The sum of it
    /// means nothing.
    pub fn touch_names(&self, names: &[u32]) -> u64 {
        self.roll.touch(names)
    }

    /// The scope that is named as the host of its request is: a host with a quota is paced as well.
    pub fn host_scope(&mut self, name: &str) -> ScopeId {
        let id = self.scope(name);
        if self.scope_ref(id).profile.only_quota
            && let Some(patch) = self.settings.scopes.get_mut(name)
        {
            // Said of itself, so that it never again passes for a quota alone.
            patch.concurrency = Some(self.settings.default.concurrency);
            let paced = Arc::new(profile(&self.settings, name));
            self.profiles.insert(name.to_owned(), Arc::clone(&paced));
            let strategy = self.strategies.of(name, &paced.settings);
            let now = self.clock;
            self.scope_mut(id).change(paced, strategy, now);
        }
        id
    }

    /// The scope of an address (`CONCURRENT_REQUESTS_PER_IP`), if that is switched on.
    ///
    /// It caps what is in flight there and paces nothing else, unless it has settings of its own.
    pub fn address_scope(&mut self, address: std::net::IpAddr) -> Option<ScopeId> {
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

    /// The scope `host/NAME` that honours a Crawl-delay, or the host's present one made slower.
    ///
    /// The delay is never undercut; one request is in flight at a time, unless the user gave the
    /// host a concurrency of its own (F54). The larger of several delays holds (F51).
    pub fn crawl_delay_scope(&mut self, host: &str, delay: Duration) -> ScopeId {
        let delay = delay.min(self.settings.robotstxt_max_delay);
        let keeps = self.settings.robotstxt_keep_concurrency
            || self.settings.patch_by_name(host).concurrency.is_some();
        let id = self.implicit_scope(&format!("host/{host}"), |settings| {
            if keeps {
                settings.concurrency = u32::MAX;
            }
        });
        self.scope_mut(id).raise_floor(delay);
        id
    }

    /// Makes a scope's gap run from the last departure of a lane's scopes: the lane was sent from
    /// before this scope was known to be one of its own.
    pub fn follow_lane(&mut self, scope: ScopeId, lane: LaneId) {
        let scopes = self.lanes[lane.0 as usize].scopes();
        let sent = scopes
            .iter()
            .filter_map(|id| self.scope_ref(*id).last_sent());
        if let Some(sent) = sent.max() {
            self.scope_mut(scope).follow(sent);
        }
    }

    /// Counts a departure to the scopes that its lane gained after it was released: their gap runs
    /// from it, too.
    pub fn follow_departure(&mut self, lane: LaneId, ticket: TicketId, sent: Instant) {
        let held = &self.tickets.get(ticket.0).expect(USED).held;
        let scopes = self.lanes[lane.0 as usize].scopes();
        // One scope and no other since, as mostly.
        if let ([scope], [held]) = (scopes, &held[..])
            && *scope == held.id
        {
            return;
        }
        for id in scopes {
            if held.iter().all(|held| held.id != *id) {
                let scope = self.roll.get_mut(*id);
                scope.expect("a lane's scopes exist").follow(sent);
            }
        }
    }

    /// What the user gave a scope in place of what its robots.txt asks for, as far as it is less
    /// polite: a shorter delay, more than one request in flight. That is worth a warning, unless
    /// the scope says `ignore_robots_txt` (F54). Called once per lane.
    pub fn overrules_crawl_delay(&self, scope: &str, asked: Duration) -> Option<ScopePatch> {
        let said = self.settings.patch_by_name(scope);
        let silenced = said.ignore_robots_txt.unwrap_or(false);
        if silenced || !self.settings.robotstxt_obey {
            return None;
        }
        let keeps = self.settings.robotstxt_keep_concurrency;
        let bolder = ScopePatch {
            delay: said.delay.filter(|own| *own < asked),
            concurrency: said.concurrency.filter(|own| *own > 1 && !keeps),
            ..ScopePatch::default()
        };
        (bolder != ScopePatch::default()).then_some(bolder)
    }

    /// Whether Crawl-delay is honoured for this scope. Where the user gave the scope a delay of its
    /// own that holds instead (F54).
    pub fn heeds_crawl_delay(&self, scope: &str) -> bool {
        self.settings.robotstxt_obey && self.settings.patch_by_name(scope).delay.is_none()
    }

    pub(super) fn implicit_scope(
        &mut self,
        name: &str,
        adjust: impl FnOnce(&mut ScopeSettings),
    ) -> ScopeId {
        if let Some(id) = self.roll.find(name) {
            return id;
        }
        let mut settings = unpaced(1);
        adjust(&mut settings);
        let profile = Arc::new(Profile {
            is_implicit: true,
            ..Profile::of(settings)
        });
        let id = self.roll.add(name, Scope::new(profile, None));
        self.open_account(id, false);
        id
    }

    /// Whether a request of this cost could never be sent under this scope: it is more than the
    /// quota ever holds, and that is refused.
    pub fn never_fits(&self, scope: ScopeId, cost: f64, now: Instant) -> bool {
        self.scope_ref(scope).never_fits(cost, now)
    }

    /// The share of a scope's quota that a request of this cost takes, up to 1; 0 where there is no
    /// quota.
    pub fn share(&self, scope: ScopeId, cost: f64) -> f32 {
        let quota = self.scope_ref(scope).profile.settings.quota;
        let share = quota.map_or(0.0, |quota| cost / quota.units);
        // What is no number of units counts as all of it.
        if share.is_nan() {
            1.0
        } else {
            share.clamp(0.0, 1.0) as f32
        }
    }

    /// Says something else of a scope from now on, in place of what the configuration said of it; a
    /// patch that says nothing takes back what was said. What it has learned stays learned, where it
    /// still applies.
    ///
    /// This looks at one scope; where the name [stands for others](says_of_many), at all that there are.
    pub fn set_scope(&mut self, name: &str, patch: ScopePatch, now: Instant) {
        if name == "default" {
            self.settings.default = self.settings.scope(&patch);
        } else if patch == ScopePatch::default() {
            self.settings.scopes.remove(name);
            self.profiles.remove(name);
        } else {
            self.settings.scopes.insert(name.to_owned(), patch);
        }
        if !says_of_many(name) {
            if self.settings.scopes.contains_key(name) {
                let fresh = profile(&self.settings, name);
                self.profiles.insert(name.to_owned(), Arc::new(fresh));
            }
            if let Some(id) = self.roll.find(name) {
                self.refresh(id, now);
            }
            return;
        }
        // What an entry says may stand in others, too: those below a pattern, or all.
        self.default = Arc::new(default_profile(&self.settings));
        let entries: Vec<String> = self.settings.scopes.keys().cloned().collect();
        for entry in entries {
            let fresh = profile(&self.settings, &entry);
            let known = self.profiles.get(&entry);
            if known.is_none_or(|known| known.settings != fresh.settings) {
                self.profiles.insert(entry, Arc::new(fresh));
            }
        }
        for id in self.roll.ids() {
            self.refresh(id, now);
        }
    }

    /// Lets a scope follow the present settings, where they are others than it has.
    fn refresh(&mut self, id: ScopeId, now: Instant) {
        let Some(scope) = self.roll.get(id) else {
            return;
        };
        let name = self.roll.name(id);
        let is_implicit = scope.profile.is_implicit;
        let fresh = Arc::clone(self.profile_of(name));
        if is_implicit || fresh.settings == scope.profile.settings {
            return;
        }
        let strategy = self.strategies.of(name, &fresh.settings);
        self.scope_mut(id).change(fresh, strategy, now);
        self.look_at(id, now);
    }

    fn profile_of(&self, name: &str) -> &Arc<Profile> {
        let entry = self.settings.entry_of(name);
        let profile = entry.and_then(|entry| self.profiles.get(entry));
        profile.unwrap_or(&self.default)
    }

    /// The name of a scope.
    pub fn scope_name(&self, scope: ScopeId) -> &str {
        self.roll.name(scope)
    }

    /// The present pace of a scope: delay before jitter, and concurrency.
    pub fn pace(&self, scope: ScopeId) -> Pace {
        self.scope_ref(scope).pace()
    }

    /// Nothing of this scope departs before `until`. Holds combine by the latest.
    pub fn hold(&mut self, scope: ScopeId, until: Instant, now: Instant) {
        self.scope_mut(scope).hold(Hold {
            until,
            source: Source::User,
            probes: false,
        });
        self.look_at(scope, now);
    }

    /// A scope that comes again begins with the limits it had learned.
    fn recall(&mut self, id: ScopeId) {
        if self.learned.is_empty() {
            return;
        }
        let key = self.secret.print(self.roll.name(id));
        if let Some(learned) = self.learned.remove(&key) {
            let now = self.advanced.unwrap_or(Instant::START);
            self.scope_mut(id).recall(learned, now);
        }
    }

    /// Forgets a scope of which nothing is left. Whether it is gone.
    pub(super) fn forget_if_blank(&mut self, id: ScopeId, now: Instant) -> bool {
        let Some(scope) = self.roll.get(id) else {
            return true;
        };
        if !scope.is_blank(now) {
            return false;
        }
        let row = scope.account;
        if let Some(learned) = scope.learned() {
            let name = self.roll.name(id);
            self.learned.insert(self.secret.print(name), learned);
        }
        self.close_account(row);
        self.roll.remove(id);
        true
    }

    /// Scopes that there is state for.
    pub fn scopes_len(&self) -> usize {
        self.roll.len()
    }

    /// Scopes with a lane that waits for them.
    pub fn scopes_waiting(&self) -> usize {
        self.lines
    }

    pub(super) fn scope_ref(&self, id: ScopeId) -> &Scope {
        self.roll.get(id).expect("a scope that is named exists")
    }

    pub(super) fn scope_mut(&mut self, id: ScopeId) -> &mut Scope {
        self.roll.get_mut(id).expect("a scope that is named exists")
    }
}

/// Whether what is said under this name holds for other scopes, too: those below a pattern, or all.
pub fn says_of_many(name: &str) -> bool {
    name == "default" || name.contains('*')
}

/// The profile of the scopes of which the configuration says nothing.
pub(super) fn default_profile(settings: &Settings) -> Profile {
    Profile {
        concurrency_max: u32::try_from(settings.concurrent_requests).unwrap_or(u32::MAX),
        ..Profile::of(settings.default.clone())
    }
}

/// The profile of a scope that the configuration names.
pub(super) fn profile(settings: &Settings, name: &str) -> Profile {
    let mut own = settings.of(name);
    let patch = settings.scopes.get(name);
    let only_quota = patch.is_some_and(|patch| is_only_quota(name, patch));
    if only_quota {
        own = ScopeSettings {
            quota: own.quota,
            requests_per_minute: own.requests_per_minute,
            ..unpaced(u32::MAX)
        };
    }
    Profile {
        only_quota,
        concurrency_max: default_profile(settings).concurrency_max,
        ..Profile::of(own)
    }
}

/// A scope that caps what is in flight and does nothing else.
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
    }
}

/// Whether a scope only bounds what is spent: one of the user's own that says nothing of a pace has
/// none. A host's own scope always has one, since nobody asked for it to be faster.
fn is_only_quota(name: &str, patch: &ScopePatch) -> bool {
    let others = ScopePatch {
        quota: None,
        window: None,
        window_kind: None,
        requests_per_minute: None,
        ignore_robots_txt: None,
        ..patch.clone()
    };
    patch.quota.is_some() && others == ScopePatch::default() && !name.contains(['.', ':', '/'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_one_scope_costs_no_look_at_the_others_and_is_forgotten_when_taken_back() {
        let mut throttle = Throttle::new(Settings::default(), 1, Instant::START);
        let configured = throttle.settings.scopes.len();
        let delay = |seconds| ScopePatch {
            delay: Some(Duration::from_secs(seconds)),
            ..ScopePatch::default()
        };
        let other = |throttle: &Throttle| Arc::as_ptr(throttle.profile_of("key-0"));
        throttle.set_scope("key-0", delay(3), Instant::START);
        let before = other(&throttle);
        // A look at it would make it anew.
        throttle.settings.default.concurrency += 1;
        throttle.set_scope("key-1", delay(3), Instant::START);
        assert_eq!(other(&throttle), before);
        throttle.set_scope("*.example.org", delay(3), Instant::START);
        assert_ne!(other(&throttle), before, "it may stand below a pattern");
        for name in ["key-0", "key-1", "*.example.org"] {
            throttle.set_scope(name, ScopePatch::default(), Instant::START);
        }
        assert_eq!(throttle.settings.scopes.len(), configured);
        assert_eq!(throttle.profiles.len(), configured);
    }
}
