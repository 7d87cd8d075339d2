//! Which scopes a request has: those it names itself, or those that the map gives it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::core::Core;
use super::mapping::Mapped;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::io::Io;
use crate::throttle::map::{Ask, Facts, SCOPES_MAX, Scopes};
use crate::throttle::scope::{ScopeId, ScopeSet};

impl<I: Io> Core<I> {
    /// A request and its scopes; `None` where they are told later, and it waits for them.
    pub fn map(&mut self, job: Job) -> Option<(Job, Scopes)> {
        if let Some(known) = job.own_scopes() {
            return Some((job, known));
        }
        let number = self.mapping.number();
        let mut answers = 0;
        let inbox = &self.inbox;
        let mut defer = || {
            answers += 1;
            inbox.later(number, answers - 1)
        };
        let extra = job.extra.as_deref();
        let facts = Facts {
            method: job.method(),
            headers: extra.map_or(&[], |extra| &extra.headers),
            meta: extra.and_then(|extra| extra.meta.as_deref()),
        };
        let mut ask = Ask::new(&job.url, facts, &mut defer);
        self.scope_map.scopes(&mut ask);
        let scopes = ask.into_scopes();
        if answers == 0 {
            return Some((job, scopes));
        }
        if self.mapping.wait(number, job, scopes, answers) {
            log::warn!(
                "{} requests wait at once for the scope map to tell their scopes \
                 (DELAYED_REQUESTS_WARN_THRESHOLD): each is held in memory until it does",
                self.mapping.len()
            );
        }
        None
    }

    /// The scopes of a request were told.
    pub fn on_mapped(&mut self, mapped: Mapped) {
        let Some((mut job, scopes)) = self.mapping.answered(mapped) else {
            return;
        };
        // It is not asked again when the request is tried again.
        job.extra_mut().mapped = Some(Box::new(scopes.clone()));
        self.queue(job, &scopes);
    }

    /// Queues a request under its scopes.
    pub fn queue(&mut self, mut job: Job, scopes: &Scopes) {
        if self.mapping.warns_of_cut(scopes) {
            log::warn!(
                "{}: the scope map gives it more than {SCOPES_MAX} scopes; the first of them hold",
                job.url
            );
        }
        let mut costs = Vec::new();
        let mut share = 0.0_f32;
        let mut ids: SmallVec<[ScopeId; 4]> = SmallVec::new();
        for entry in scopes.entries() {
            let id = self.throttle.scope(&entry.name);
            ids.push(id);
            costs.extend(entry.cost.map(|cost| (id, cost)));
            let cost = entry.cost.unwrap_or(1.0);
            share = share.max(self.throttle.share(id, cost));
            if self.throttle.never_fits(id, cost, self.now) {
                return self.end_oversize(&job, &entry.name, cost, scopes);
            }
        }
        job.share = share;
        let set = match scopes.is_ordered() {
            true => ScopeSet::ordered(ids),
            false => ScopeSet::unordered(ids),
        };
        if !costs.is_empty() || job.extra.is_some() {
            job.extra_mut().costs = costs;
        }
        self.frontier.push(job, &set, &mut self.throttle, self.now);
    }

    /// A request ends unsent because a quota never has as much as it costs.
    fn end_oversize(&mut self, job: &Job, scope: &str, cost: f64, scopes: &Scopes) {
        let names = scopes.names().map(Arc::from).collect();
        let detail = format!(
            "it costs {cost} of the scope {scope}, more than its quota ever holds \
             (QUOTA_OVERSIZE = \"alone\" would send it by itself)"
        );
        let failure = Failure::new(FailureKind::Filtered, "over_quota", detail);
        self.end_unqueued(job, names, failure);
    }
}
