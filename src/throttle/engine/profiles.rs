//! The profiles of the entries of the settings. Of ten thousands each is made anew when a scope needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::scope::Profile;
use super::super::settings::ThrottleSettings;
use super::scopes::{default_profile, profile};

/// Profiles by the names of their entries, and that of scopes without one.
#[derive(Debug)]
pub(super) struct Profiles {
    default: Arc<Profile>,
    by_entry: BTreeMap<String, Made>,
    /// Number of changes that may have changed several entries.
    changes: u64,
}

#[derive(Debug)]
struct Made {
    profile: Arc<Profile>,
    /// Number of such changes until then.
    changes: u64,
}

impl Profiles {
    /// Those of these settings.
    pub fn new(settings: &ThrottleSettings) -> Self {
        let mut profiles = Profiles {
            default: Arc::new(default_profile(settings)),
            by_entry: BTreeMap::new(),
            changes: 0,
        };
        for entry in settings.scopes.keys() {
            profiles.change(entry, settings);
        }
        profiles
    }

    /// The profile of the scope with this name.
    pub fn of(&mut self, name: &str, settings: &ThrottleSettings) -> Arc<Profile> {
        let Some(entry) = settings.entry_of(name) else {
            return Arc::clone(&self.default);
        };
        match self.by_entry.get_mut(entry) {
            Some(made) => {
                if made.changes != self.changes {
                    let fresh = profile(settings, entry);
                    // Scopes whose settings are the same share a profile with those that were not visited.
                    if made.profile.settings != fresh.settings {
                        made.profile = Arc::new(fresh);
                    }
                    made.changes = self.changes;
                }
                Arc::clone(&made.profile)
            }
            None => self.change(entry, settings),
        }
    }

    /// An entry has changed, and no other.
    pub fn change(&mut self, entry: &str, settings: &ThrottleSettings) -> Arc<Profile> {
        let made = Made {
            profile: Arc::new(profile(settings, entry)),
            changes: self.changes,
        };
        let profile = Arc::clone(&made.profile);
        self.by_entry.insert(entry.to_owned(), made);
        profile
    }

    /// An entry is gone.
    pub fn remove(&mut self, entry: &str) {
        self.by_entry.remove(entry);
    }

    /// Any entry may have changed.
    pub fn change_all(&mut self, settings: &ThrottleSettings) {
        self.changes += 1;
        self.default = Arc::new(default_profile(settings));
    }

    /// The same, and entries may be gone.
    pub fn replace(&mut self, settings: &ThrottleSettings) {
        let is_there = |entry: &String| settings.scopes.contains_key(entry);
        self.by_entry.retain(|entry, _| is_there(entry));
        self.change_all(settings);
    }

    /// Number of entries whose profiles are looked at anew when a scope needs them.
    #[cfg(test)]
    pub fn stale(&self) -> usize {
        let made = self.by_entry.values();
        made.filter(|made| made.changes != self.changes).count()
    }

    /// Number of entries with a profile.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_entry.len()
    }
}
