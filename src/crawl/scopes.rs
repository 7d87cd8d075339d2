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
            if ask.header("X-Order").is_some_and(|value| value == "none") {
                ask.unordered();
            }
        }
    }

    /// Admits a request; gives the names and costs of its scopes as its lane's turn will see them,
    /// and whether none is the most specific.
    fn check(request: Request, expected: &[(&str, f64)], unordered: bool) {
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
        for (name, cost) in expected {
            assert_eq!(job.cost(core.throttle.scope(name)), *cost, "{name}");
        }
        let has_none = job.extra.as_ref().is_some_and(|extra| extra.unordered);
        assert_eq!(has_none, unordered);
    }

    #[test]
    fn f61_a_request_knows_its_cost_in_each_of_its_scopes() {
        let get = |path: &str| Request::get(format!("http://a.test{path}"));
        check(get("/a/b"), &[("a", 1.0), ("b", 1.0)], false);
        let post = Request::post("http://a.test/a/b", "x");
        check(post, &[("a", 1.0), ("b", 2.5)], false);
        // What the request says itself, the map is not asked for.
        let own = get("/a").scope("x").scope_cost("y", 0.5);
        check(own, &[("x", 1.0), ("y", 0.5), ("a", 1.0)], false);
    }

    #[test]
    fn f69_a_request_knows_whether_its_scopes_have_an_order() {
        let none =
            |path: &str| Request::get(format!("http://a.test{path}")).header("X-Order", "none");
        check(none("/a/b"), &[], true);
        // One scope alone is the most specific.
        check(none("/a"), &[], false);
    }
}
