//! States of scopes beyond the end of the process: which changed and are to be saved, and those that an
//! earlier run of the crawl saved.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashSet;

use super::super::scope::{Restoring, SavedRules, SavedSummary, Scope, Unsaved};
use super::super::settings::DOMAINS;
use super::Throttle;
use crate::base::ids::ScopeId;
use crate::base::named::{NamedValue, NamedValues, Position, Reviewed};
use crate::base::secret::Secret;
use crate::base::time::{Instant, Wall};

/// Scopes whose state changed since it was saved, each at most once per queue.
#[derive(Debug, Default)]
pub(super) struct UnsavedScopes {
    /// Whether states are saved at all.
    is_on: bool,
    /// With a new hold.
    urgent: VecDeque<ScopeId>,
    others: VecDeque<ScopeId>,
    /// Scopes that were evicted before they were saved: name and state.
    evicted: VecDeque<(Box<str>, Vec<u8>)>,
    /// Number of scopes that are to be saved since [`Throttle::begin_save`].
    due: usize,
}

/// States of scopes that do not exist yet in this run.
#[derive(Debug)]
pub(super) struct SavedScopes {
    resumed: Resumed,
    /// Nothing was sent after the states were saved.
    is_complete: bool,
    /// By name, each with the time of the system's clock at which it was saved.
    states: NamedValues,
    /// Those before it were reviewed.
    reviewed: Position,
    /// Names of those whose gap after their last send was not over, if nothing was sent after the states were
    /// saved.
    open_gaps: HashSet<Box<str>, Secret>,
}

/// When this run continued an earlier one, if it did, and by the system's clock.
#[derive(Clone, Copy, Debug)]
struct Resumed {
    at: Option<Instant>,
    wall: Wall,
}

/// How long sends count that an earlier run may have made in a scope, if its end did not record them.
const UNKNOWN_COUNT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

impl UnsavedScopes {
    /// The state of this scope has changed.
    pub fn mark(&mut self, id: ScopeId, scope: &mut Scope) {
        if self.is_on && scope.unsaved == Unsaved::No {
            scope.unsaved = Unsaved::Yes;
            self.others.push_back(id);
        }
    }
}

impl SavedScopes {
    pub fn new(secret: &Secret) -> Self {
        SavedScopes {
            resumed: Resumed {
                at: None,
                wall: Wall(0),
            },
            is_complete: false,
            states: NamedValues::new(),
            reviewed: Position::default(),
            open_gaps: HashSet::with_hasher(*secret),
        }
    }
}

impl Resumed {
    /// Time since a state was saved, at this moment of the run.
    fn elapsed(self, saved_at: u64, now: Instant) -> Duration {
        let before = self.wall.saturating_since(Wall(saved_at));
        before + now.saturating_since(self.at.unwrap_or(now))
    }

    /// Whether a state has no effect any more, or cannot be read.
    fn is_over(self, named: NamedValue<'_>, now: Instant) -> bool {
        let rules = SavedRules::decode(named.value);
        rules.is_none_or(|rules| rules.is_over(self.elapsed(named.at, now)))
    }
}

/// What a saved state has of its scope; `None` if it cannot be read, or has no effect any more.
///
/// `is_forgotten`: what it has learned was to be forgotten since.
pub fn summary_of(state: &[u8], elapsed: Duration, is_forgotten: bool) -> Option<SavedSummary> {
    let saved = match is_forgotten {
        true => SavedRules::decode(&SavedRules::without_learned(state))?,
        false => SavedRules::decode(state)?,
    };
    (!saved.is_over(elapsed)).then(|| saved.summary())
}

impl Throttle {
    /// Saves the states of scopes from now on.
    pub(crate) fn save_scopes(&mut self) {
        self.unsaved.is_on = true;
    }

    /// This run continues an earlier one of the crawl, which may have sent until now: from now on the first
    /// request of a scope waits for a full gap, and all of a quota may have been used. `is_complete`: nothing
    /// was sent after its scopes were saved. Then only those wait whose gap was not over:
    /// [`Throttle::restore_open_gap`].
    pub(crate) fn continue_from(&mut self, is_complete: bool, now: Instant) {
        self.saved.resumed.at = Some(now);
        self.saved.is_complete = is_complete;
    }

    /// The states that the earlier run saved, each for when its scope is created. `wall`: now, by the system's clock.
    pub(crate) fn restore_scopes(&mut self, states: NamedValues, wall: Wall) {
        self.saved.states = states;
        self.saved.resumed.wall = wall;
    }

    /// Reviews the next state that the earlier run saved and whose scope was not created: it is dropped if it has no
    /// effect any more. `None`: all were reviewed.
    pub(crate) fn review_saved(&mut self, now: Instant) -> Option<Reviewed> {
        let saved = &mut self.saved;
        let resumed = saved.resumed;
        // What was saved later than now is as of this clock from now on.
        let is_over = |named: NamedValue<'_>| resumed.is_over(named, now);
        let reviewed = saved
            .states
            .review(&mut saved.reviewed, resumed.wall.0, is_over)?;
        Some(reviewed.map(|(name, state)| {
            // It gets a time after all orders so far. Of an earlier run, those count whose clock was ahead, too.
            let at = Wall(resumed.wall.0.saturating_add(1));
            let is_domain = || self.settings.covers(DOMAINS, &name);
            match self.forgotten.has_saved(&name, at, is_domain) {
                true => (name, SavedRules::without_learned(&state)),
                false => (name, state),
            }
        }))
    }

    /// An earlier run was to forget, at this time, what was learned of the scopes that a pattern matches, or of all
    /// (`default`). Returns whether there is room for it.
    pub(crate) fn restore_forgotten(&mut self, name: &str, at: Wall) -> bool {
        let has_room = self.forgotten.has_room_for(name);
        if has_room {
            self.forgotten.restore(name, at);
        }
        has_room
    }

    /// Whether all sends that may still count are those of scopes in this run, or were recorded by an earlier one.
    pub(crate) fn knows_all_sends(&self, now: Instant) -> bool {
        let saved = &self.saved;
        let resumed_at = saved.resumed.at.filter(|_| !saved.is_complete);
        resumed_at.is_none_or(|at| now.saturating_since(at) >= UNKNOWN_COUNT_FOR)
    }

    /// The names of the scopes in which the sends so far still count, if all others have no state: a later run
    /// waits for a full gap in these. The system's clock may be set meanwhile, so that no time is saved.
    pub(crate) fn open_gaps(&self, now: Instant) -> impl Iterator<Item = &str> {
        let scopes = self.scope_table.iter();
        let open = scopes.filter(move |(_, scope)| !scope.is_spent(now));
        let earlier = self.saved.open_gaps.iter().map(|name| &**name);
        open.map(|(name, _)| name).chain(earlier)
    }

    /// A scope was one of [`Throttle::open_gaps`] when nothing more was sent.
    pub(crate) fn restore_open_gap(&mut self, name: &str) {
        self.saved.open_gaps.insert(name.into());
    }

    /// A new scope, as far as an earlier run determines its state.
    pub(super) fn begun(&mut self, name: &str, mut scope: Scope) -> Scope {
        let Some(resumed_at) = self.saved.resumed.at else {
            return scope;
        };
        let open_gaps = &mut self.saved.open_gaps;
        let may_have_sent = !self.saved.is_complete || open_gaps.remove(name);
        if may_have_sent {
            scope.follow(resumed_at);
        }
        scope.begin_after(resumed_at, self.saved.is_complete);
        let now = self.clock.max(resumed_at);
        if let Some((at, state)) = self.saved.states.remove(name)
            && !state.is_empty()
        {
            let elapsed = self.saved.resumed.elapsed(at, now);
            let rules = SavedRules::decode(&state).filter(|rules| !rules.is_over(elapsed));
            let is_domain = || self.settings.covers(DOMAINS, name);
            let is_forgotten = self.forgotten.has_saved(name, Wall(at), is_domain);
            let state = match is_forgotten {
                true => SavedRules::without_learned(&state).into(),
                false => state,
            };
            let rules = rules.and_then(|rules| match is_forgotten {
                true => SavedRules::decode(&state),
                false => Some(rules),
            });
            if rules.is_none() || at > self.saved.resumed.wall.0 {
                // It will not be reviewed.
                let left = rules.is_some().then(|| state.into_vec());
                let changed = (Box::from(name), left.unwrap_or_default());
                self.unsaved.evicted.push_back(changed);
            }
            if let Some(rules) = rules {
                let restoring = Restoring {
                    elapsed,
                    is_complete: self.saved.is_complete,
                    now,
                };
                scope.restore(&rules, restoring);
            }
        }
        scope
    }

    /// The state of a scope has changed.
    pub(super) fn mark_changed(&mut self, id: ScopeId) {
        let scope = self.scope_table.get_mut(id);
        self.unsaved
            .mark(id, scope.expect("a scope that is named exists"));
    }

    /// A scope has a new hold.
    pub(super) fn mark_held(&mut self, id: ScopeId) {
        if !self.unsaved.is_on {
            return;
        }
        let scope = self
            .scope_table
            .get_mut(id)
            .expect("a scope that is named exists");
        if scope.unsaved != Unsaved::Urgent {
            scope.unsaved = Unsaved::Urgent;
            self.unsaved.urgent.push_back(id);
        }
    }

    /// A scope is about to be evicted.
    pub(super) fn save_evicted(&mut self, id: ScopeId, now: Instant) {
        let scope = self.scope_ref(id);
        if scope.unsaved == Unsaved::No {
            return;
        }
        let mut state = Vec::new();
        scope.save(now, &mut state);
        let name = self.scope_table.name(id).into();
        self.unsaved.evicted.push_back((name, state));
    }

    /// What changed until now is to be saved.
    pub(crate) fn begin_save(&mut self) {
        self.unsaved.due = self.unsaved.others.len();
    }

    /// Name and state of the next scope that has a new hold, or was evicted since it changed. The state is
    /// empty if it is that of a new scope.
    pub(crate) fn poll_urgent(&mut self, now: Instant) -> Option<(Box<str>, Vec<u8>)> {
        if let Some(evicted) = self.unsaved.evicted.pop_front() {
            return Some(evicted);
        }
        while let Some(id) = self.unsaved.urgent.pop_front() {
            if let Some(saved) = self.save_if(id, Unsaved::Urgent, now) {
                return Some(saved);
            }
        }
        None
    }

    /// The same of a scope that had changed when [`Throttle::begin_save`] was called.
    pub(crate) fn poll_due(&mut self, now: Instant) -> Option<(Box<str>, Vec<u8>)> {
        while self.unsaved.due > 0 {
            self.unsaved.due -= 1;
            let id = self.unsaved.others.pop_front()?;
            if let Some(saved) = self.save_if(id, Unsaved::Yes, now) {
                return Some(saved);
            }
        }
        None
    }

    /// Whether [`Throttle::poll_due`] has more.
    pub(crate) fn has_due(&self) -> bool {
        self.unsaved.due > 0
    }

    /// Saves a scope. Entries of evicted ones are void, as are those of scopes that were saved since.
    fn save_if(&mut self, id: ScopeId, is: Unsaved, now: Instant) -> Option<(Box<str>, Vec<u8>)> {
        let scope = self.scope_table.get_mut(id)?;
        if scope.unsaved != is {
            return None;
        }
        scope.unsaved = Unsaved::No;
        let mut state = Vec::new();
        scope.save(now, &mut state);
        Some((self.scope_table.name(id).into(), state))
    }
}
