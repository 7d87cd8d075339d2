//! Settings in effect, for a log: those of all scopes without an entry, and those of each entry.

use std::ops::Bound;

use super::super::settings::{ScopePatch, ScopeSettings, ThrottleSettings};
use super::Throttle;
use super::scopes::{default_profile, profile};

/// Settings of the scopes under an entry.
#[derive(Clone, Debug)]
pub(crate) struct EntrySettings {
    pub settings: ScopeSettings,
    /// A delay was given for their names: no Crawl-delay applies to them.
    pub has_own_delay: bool,
    /// A concurrency was given for their names: a Crawl-delay does not reduce it.
    pub has_own_concurrency: bool,
}

impl Throttle {
    /// The settings of the crawl, with what has been changed since it began.
    pub(crate) fn settings(&self) -> &ThrottleSettings {
        &self.settings
    }

    /// Those of scopes without an entry.
    pub(crate) fn default_settings(&self) -> EntrySettings {
        EntrySettings {
            settings: default_profile(&self.settings).settings,
            has_own_delay: false,
            has_own_concurrency: false,
        }
    }

    /// The names of the entries after this one, in order.
    pub(crate) fn entries_after(&self, last: Option<&str>) -> impl Iterator<Item = &str> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self
            .settings
            .scopes
            .range::<str, _>((from, Bound::Unbounded));
        entries.map(|(name, _)| name.as_str())
    }

    /// Whether an order about a pattern or `default` may have changed what limits the scopes under an entry. `patch`:
    /// what it has set; `None`: it was withdrawn.
    pub(crate) fn may_have_changed(
        &self,
        entry: &str,
        order: &str,
        patch: Option<&ScopePatch>,
    ) -> bool {
        if order != "default" {
            return self.settings.covers(order, entry);
        }
        // Which pace is the usual one depends on this switch.
        let Some(patch) = patch.filter(|patch| patch.autothrottle.enabled.is_none()) else {
            return true;
        };
        let own = self.settings.patch_of(entry);
        own.clone().over(patch) != own
    }

    /// Those of scopes under an entry; `None` if there is none of this name.
    pub(crate) fn entry_settings(&self, entry: &str) -> Option<EntrySettings> {
        self.settings.scopes.get(entry)?;
        let named = self.settings.patch_by_name(entry);
        Some(EntrySettings {
            settings: profile(&self.settings, entry).settings,
            has_own_delay: named.delay.is_some(),
            has_own_concurrency: named.concurrency.is_some(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::base::time::Instant;

    fn random_patch(rng: &mut Rng) -> ScopePatch {
        let keys = [
            format!(r#""delay": {}"#, rng.below(3)),
            format!(r#""concurrency": {}"#, 1 + rng.below(3)),
            format!(r#""delay_per_slot": {}"#, rng.below(3)),
            format!(r#""requests_per_minute": {}"#, 1 + rng.below(3)),
            format!(r#""backoff": {{"max_delay": {}}}"#, 600 + rng.below(3)),
            format!(r#""backoff": {{"enabled": {}}}"#, rng.chance(0.5)),
            format!(r#""autothrottle": {{"enabled": {}}}"#, rng.chance(0.5)),
            format!(r#""rampup": {}"#, rng.chance(0.5)),
            r#""hold_until": "2100-01-01T00:00:00Z""#.to_owned(),
        ];
        let mut chosen: Vec<&str> = Vec::new();
        for key in &keys {
            let label = key.split(':').next().unwrap_or_default();
            let is_new = chosen.iter().all(|other| !other.starts_with(label));
            if is_new && rng.chance(0.3) {
                chosen.push(key);
            }
        }
        format!("{{{}}}", chosen.join(", "))
            .parse()
            .expect("a patch")
    }

    #[test]
    fn whatever_an_order_changes_is_among_the_entries_that_may_have_changed() {
        let names = [
            "a.test",
            "b.a.test",
            "*.a.test",
            "*.test",
            "key-0",
            "ip/*",
            "ip/192.0.2.1",
        ];
        let (mut changed, mut spared) = (0, 0);
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let mut throttle = Throttle::new(ThrottleSettings::default(), seed, Instant::START);
            for name in names {
                if rng.chance(0.7) {
                    throttle.set_scope(name, random_patch(&mut rng), Instant::START);
                }
            }
            for _ in 0..4 {
                let order = ["default", "*.a.test", "*.test", "ip/*"][rng.below(4) as usize];
                let patch = random_patch(&mut rng);
                let effective = |throttle: &Throttle| -> Vec<(String, String)> {
                    let entries = throttle.entries_after(None);
                    let shown = |name: &str| format!("{:?}", throttle.entry_settings(name));
                    entries.map(|name| (name.to_owned(), shown(name))).collect()
                };
                let before = effective(&throttle);
                throttle.set_scope(order, patch.clone(), Instant::START);
                for (name, now) in effective(&throttle) {
                    let was = before.iter().find(|(other, _)| *other == name);
                    let has_changed = was.is_some_and(|(_, was)| *was != now);
                    let may_have = throttle.may_have_changed(&name, order, Some(&patch));
                    assert!(
                        may_have || !has_changed,
                        "seed {seed}: {order} {patch:?}: {name}"
                    );
                    changed += usize::from(has_changed);
                    spared += usize::from(!may_have);
                }
            }
        }
        assert!(changed > 500 && spared > 500, "{changed} {spared}");
    }
}
