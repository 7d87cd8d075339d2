//! Ends queued requests that were cancelled, in steps: there may be millions.
//!
//! Until a lane was visited, a request of it that was cancelled ends when its turn comes: nothing is sent.

use std::collections::BTreeSet;

use crate::base::ids::{LaneId, ScopeId};
use crate::crawl::core::Core;
use crate::frontier::Removal;
use crate::io::Io;

/// The cancellation of queued requests that goes on.
#[derive(Debug)]
pub struct Removing {
    progress: Removal,
    /// Numbers of requests.
    numbers: BTreeSet<u64>,
    /// Scopes by their names, each with the last number of its requests that are cancelled. Ids of scopes are used
    /// again.
    scopes: Vec<(String, u64)>,
}

impl<I: Io> Core<I> {
    /// Ends the queued requests of these numbers, and those of these scopes that were cancelled: the first few at once.
    pub fn end_queued(&mut self, numbers: &BTreeSet<u64>, scopes: &[ScopeId]) {
        let names = scopes.iter().map(|scope| self.throttle.scope_name(*scope));
        let named = names.filter_map(|name| {
            let until = self.work.cancelled_until(name)?;
            Some((name.to_owned(), until))
        });
        let scopes = named.collect();
        self.orders.removals.push_back(Removing {
            progress: Removal::default(),
            numbers: numbers.clone(),
            scopes,
        });
        if self.orders.removals.len() > 1 {
            return self.record_cancels(numbers);
        }
        self.advance_removals();
        if self.is_removing() {
            self.record_cancels(numbers);
        }
    }

    /// Whether queued requests that were cancelled may not have ended.
    pub fn is_removing(&self) -> bool {
        !self.orders.removals.is_empty()
    }

    /// Ends the next few.
    pub fn advance_removals(&mut self) {
        let Some(mut removing) = self.orders.removals.pop_front() else {
            return;
        };
        let known = removing.scopes.iter();
        let scopes =
            known.filter_map(|(name, until)| Some((self.throttle.known_scope(name)?, until)));
        let scopes: Vec<_> = scopes.collect();
        let throttle = &self.throttle;
        let until_of = |lane: LaneId| {
            let held = throttle.lane_scopes(lane);
            let named = scopes.iter().filter(|(scope, _)| held.contains(scope));
            named.map(|(_, until)| **until).max()
        };
        let numbers = &removing.numbers;
        let (removed, is_over) = self.frontier.advance_removal(
            &mut removing.progress,
            |number| numbers.contains(&number),
            until_of,
        );
        self.update_lanes();
        for (lane, job) in removed {
            let names = self.lane_scope_names(lane);
            self.end_by_order(job, names, &removing.numbers);
        }
        if !is_over {
            self.orders.removals.push_front(removing);
        }
        self.wakeups.turn_again_if(self.is_removing());
    }

    /// Ends all of them: the crawl ends.
    pub fn finish_removals(&mut self) {
        while self.is_removing() {
            self.advance_removals();
        }
    }

    /// A lane may send its next request: ends those that were cancelled first. Returns whether there may be more.
    pub fn end_cancelled_of(&mut self, lane: LaneId) -> bool {
        let removals = std::mem::take(&mut self.orders.removals);
        let names = self.lane_scope_names(lane);
        let mut has_more = false;
        for removing in &removals {
            let scopes = removing.scopes.iter();
            let named = scopes.filter(|(name, _)| names.contains(name));
            let until = named.map(|(_, until)| *until).max();
            let is_wanted = |number: u64| removing.numbers.contains(&number);
            let mut removed = Vec::new();
            has_more |= (self.frontier).remove_from(
                lane,
                &mut removed,
                is_wanted,
                until,
                REMOVED_PER_RELEASE,
            );
            for (_, job) in removed {
                self.end_by_order(job, names.clone(), &removing.numbers);
            }
        }
        self.orders.removals = removals;
        self.update_lanes();
        has_more
    }
}

/// Requests of a cancelled scope that end when a lane may send one.
const REMOVED_PER_RELEASE: usize = 64;
