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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::config::Config;
    use crate::crawl::{Crawler, Parts};
    use crate::fetch::resolver;
    use crate::frontier::request::Request;
    use crate::io::sim::{Origins, Sim};
    use crate::sink::page::Page;
    use crate::throttle::map::ScopeMap;

    /// Each path is a list of scopes; the last of them costs 2.5 where the method is POST.
    struct ByPath;

    impl ScopeMap for ByPath {
        fn scopes(&self, ask: &mut Ask<'_>) {
            let names = ask.url().path().trim_matches('/').split('/');
            ask.add_all(names.collect::<Scopes>());
            if ask.method() == "POST" {
                ask.add_cost(ask.url().path().rsplit('/').next().unwrap_or_default(), 2.5);
            }
        }
    }

    /// Admits a request and checks what it is expected to cost of which scopes; the others cost 1.
    fn check(request: Request, expected: &[(&str, f64)]) {
        let io = Sim::new(1, Box::new(Origins::default()));
        let mut parts = Parts::new(|_: Page| {});
        parts.scope_map = Some(Box::new(ByPath));
        let names = resolver::Settings::default();
        let mut crawler =
            Crawler::on(io, Config::default(), names, parts).expect("it can be set up");
        crawler.submit(request).expect("it is a URL");
        let core = &mut crawler.core;
        let jobs = core.frontier.drain();
        let [job] = &jobs[..] else {
            panic!("one was admitted: {jobs:?}");
        };
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, cost)| (core.throttle.scope(name), *cost))
            .collect();
        assert_eq!(job.costs(), expected);
    }

    #[test]
    fn f61_a_request_knows_what_it_costs_of_its_scopes() {
        let get = |path: &str| Request::get(format!("http://a.test{path}"));
        check(get("/a/b"), &[]);
        check(Request::post("http://a.test/a/b", "x"), &[("b", 2.5)]);
        // What the request says itself, the map is not asked for.
        let own = get("/a").scope("x").scope_cost("y", 0.5);
        check(own, &[("x", 1.0), ("y", 0.5)]);
    }
}
