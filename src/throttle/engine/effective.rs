//! Settings in effect, for a log: those of all scopes without an entry, and those of each entry.

use super::super::settings::{ScopeSettings, ThrottleSettings};
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
