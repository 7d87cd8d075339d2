//! Which scopes a request has: those it names itself, or those that the map gives it.

use smallvec::SmallVec;

use super::core::Core;
use super::mapping::Mapped;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::throttle::map::{Ask, Facts, SCOPES_MAX, Scopes};
use crate::throttle::scope::ScopeId;

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
        let ids: SmallVec<[ScopeId; 4]> = scopes
            .names()
            .map(|name| self.throttle.scope(name))
            .collect();
        let costs = ids.iter().zip(scopes.entries());
        let costs: Vec<_> = costs
            .filter_map(|(id, entry)| Some((*id, entry.cost?)))
            .collect();
        let unordered = !scopes.is_ordered() && ids.len() > 1;
        if unordered || !costs.is_empty() || job.extra.is_some() {
            let extra = job.extra_mut();
            extra.costs = costs;
            extra.unordered = unordered;
        }
        self.frontier.push(job, &ids, &mut self.throttle, self.now);
    }
}
