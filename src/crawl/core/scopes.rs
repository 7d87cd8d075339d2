//! Queues a request under its scopes, in the lane that waits for all of them.

use smallvec::SmallVec;

use crate::base::ids::{LaneId, ScopeId, ScopeSet};
use crate::base::scopes::Scopes;
use crate::crawl::core::Core;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::extra::Costs;
use crate::frontier::job::Job;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Queues a request under its scopes; returns its lane, unless it has ended.
    pub fn queue(&mut self, mut job: Job, scopes: &Scopes) -> Option<LaneId> {
        self.work.check_scopes(&job, scopes);
        if self.end_if_cancelled(&job, scopes) {
            return None;
        }
        let mut costs = Costs::new();
        let mut share = 0.0_f32;
        let mut ids: SmallVec<[ScopeId; 4]> = SmallVec::new();
        for entry in scopes.entries() {
            let id = if entry.name == job.url.scope_key() {
                self.throttle.host_scope(&entry.name)
            } else {
                self.throttle.scope(&entry.name)
            };
            ids.push(id);
            costs.extend(entry.cost.map(|cost| (id, cost)));
            let cost = entry.cost.unwrap_or(1.0);
            share = share.max(self.throttle.share(id, cost));
            if self.throttle.never_fits(id, cost, self.now) {
                self.end_oversize(&job, &entry.name, cost, scopes);
                return None;
            }
        }
        job.share = share;
        let set = match scopes.is_ordered() {
            true => ScopeSet::ordered(ids),
            false => ScopeSet::unordered(ids),
        };
        if !costs.is_empty() || job.extra.is_some() {
            job.extra_mut().set_costs(&costs);
        }
        let query = self.frontier.lane_query(&job);
        let is_under = |lane: &_| self.throttle.is_opened_under(*lane, &set);
        let found = match query.candidate.filter(is_under) {
            Some(lane) => Ok(lane),
            None => self.frontier.lane_for(query, &set),
        };
        let lane = match found {
            Ok(lane) => lane,
            Err(new) => {
                let lane = self.throttle.open_lane(&set);
                self.frontier.open_lane(new, lane);
                self.restore_crawl_delay(lane, job.url.scope_key());
                lane
            }
        };
        self.steering.searches().note_queued(&job.url);
        self.frontier.push(lane, job);
        self.update_lanes();
        Some(lane)
    }

    /// Ends a request unsent because its cost exceeds a quota.
    fn end_oversize(&mut self, job: &Job, scope: &str, cost: f64, scopes: &Scopes) {
        let names = scopes.names().map(str::to_owned).collect();
        let detail = format!(
            "its cost of {cost} in the scope {scope} exceeds the quota \
             (QUOTA_OVERSIZE = \"alone\" would send it alone in a window)"
        );
        let failure = Failure::new(FailureKind::Filtered, "over_quota", detail);
        self.work.end(job.clone(), names, failure);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::base::shared::Shared;
    use crate::crawl::config::Config;
    use crate::crawl::work::mapping::WAITING_MAX;
    use crate::crawl::{Crawler, Parts};
    use crate::fetch::resolver;
    use crate::frontier::request::Request;
    use crate::io::sim::{Origins, Sim};
    use crate::sink::function::FunctionSink;
    use crate::sink::page::Page;
    use crate::throttle::map::{DeferredScopes, ScopeMap, ScopeQuery};
    use crate::throttle::settings::{Jitter, MapKind};

    /// The path is a list of scopes; the last one costs 2.5 if the method is POST.
    struct ByPath;

    impl ScopeMap for ByPath {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            let names = query.url().path().trim_matches('/').split('/');
            query.add_all(names.collect::<Scopes>());
            if query.method() == "POST" {
                query.add_cost(
                    query.url().path().rsplit('/').next().unwrap_or_default(),
                    2.5,
                );
            }
        }
    }

    /// Admits a request, and checks its recorded costs by scope; it costs 1 in other scopes.
    fn check(request: Request, expected: &[(&str, f64)]) {
        let io = Sim::new(1, Box::new(Origins::default()));
        let mut parts = Parts::new(|_: Page| {});
        parts.scope_map = Some(Box::new(ByPath));
        let names = resolver::ResolverSettings::default();
        let mut crawler =
            Crawler::on(io, Config::default(), names, parts).expect("it can be set up");
        crawler.submit(request).expect("it is a URL");
        let core = &mut crawler.core;
        let jobs: Vec<Job> = core.frontier.drain(std::iter::empty()).collect();
        let [job] = &jobs[..] else {
            panic!("one was admitted: {jobs:?}");
        };
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, cost)| (core.throttle.scope(name), *cost))
            .collect();
        assert_eq!(job.costs().to_vec(), expected);
    }

    #[test]
    fn f61_a_request_has_a_cost_in_each_of_its_scopes() {
        let get = |path: &str| Request::get(format!("http://a.test{path}"));
        check(get("/a/b"), &[]);
        check(Request::post("http://a.test/a/b", "x"), &[("b", 2.5)]);
        // The map is not queried for a request with its own scopes.
        let own = get("/a").scope("x").scope_cost("y", 0.5);
        check(own, &[("x", 1.0), ("y", 0.5)]);
    }

    /// Crawls a page of each of two hosts at one address. Returns the time between their sends, and the
    /// scopes of the second.
    fn neighbours(scope_map: &[MapKind], per_ip: u32) -> (Duration, Vec<String>) {
        let mut origins = Origins::default();
        let at: SocketAddr = "10.0.0.1:80".parse().expect("an address");
        origins.page(at, "/", "a page");
        let mut config = Config::default();
        config.throttle.scope_map = scope_map.to_vec();
        config.throttle.concurrent_requests_per_ip = per_ip;
        config.throttle.default.jitter = Jitter::NONE;
        config.frontier.robots_obey = false;
        config.allow_net = vec!["10.0.0.0/8".to_owned()];
        config.resolve = vec!["*:80:10.0.0.1".to_owned()];
        let results: Shared<Vec<Page>> = Shared::default();
        let sink_results = Shared::clone(&results);
        let sink = FunctionSink::new(move |page: Page| sink_results.borrow_mut().push(page));
        let io = Sim::new(1, Box::new(origins));
        let names = resolver::ResolverSettings::default();
        let mut crawler =
            Crawler::on(io, config, names, Parts::new(sink)).expect("it can be set up");
        for host in ["a", "b"] {
            let request = Request::get(format!("http://{host}.test/"));
            crawler.submit(request).expect("it is a URL");
        }
        crawler.run();
        let pages = results.take();
        let sent: Vec<_> = pages.iter().map(|page| page.timings.sent).collect();
        let [Some(first), Some(second)] = sent[..] else {
            panic!("both are sent: {sent:?}");
        };
        let scopes = pages[1].scopes.iter().map(ToString::to_string).collect();
        (second.saturating_since(first), scopes)
    }

    #[test]
    fn f29_an_address_returned_by_the_map_is_a_scope_like_others() {
        let address = "ip/10.0.0.1".to_owned();
        let (gap, scopes) = neighbours(&[MapKind::Host], 0);
        assert!(gap < Duration::from_millis(500), "{gap:?}");
        assert!(!scopes.contains(&address));
        let (gap, scopes) = neighbours(&[MapKind::Host, MapKind::Ip], 0);
        assert!(gap >= Duration::from_secs(1), "{gap:?}");
        assert!(scopes.contains(&address), "{scopes:?}");
        // The cap alone does not delay the second request.
        let (gap, scopes) = neighbours(&[MapKind::Host, MapKind::Ip], 2);
        assert!(gap < Duration::from_millis(500), "{gap:?}");
        assert!(scopes.contains(&address), "{scopes:?}");
    }

    /// Keeps every query unanswered.
    struct Keeps(Kept);

    type Kept = Shared<Vec<DeferredScopes>>;

    impl ScopeMap for Keeps {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            self.0.borrow_mut().push(query.later());
        }
    }

    /// A crawler whose scope map answers when the test does.
    fn keeping() -> (Crawler<Sim>, Kept) {
        let unanswered = Kept::default();
        let mut parts = Parts::new(|_: Page| {});
        parts.scope_map = Some(Box::new(Keeps(Shared::clone(&unanswered))));
        let io = Sim::new(1, Box::new(Origins::default()));
        let names = resolver::ResolverSettings::default();
        let crawler = Crawler::on(io, Config::default(), names, parts).expect("it can be set up");
        (crawler, unanswered)
    }

    #[test]
    fn f67_many_answers_at_once_are_taken_in_over_several_turns_without_a_pause() {
        let (mut crawler, unanswered) = keeping();
        for n in 0..600 {
            let request = Request::get(format!("http://a.test/{n}"));
            crawler.submit(request).expect("it is a URL");
        }
        unanswered
            .take()
            .into_iter()
            .for_each(|later| later.answer("one"));
        let core = &mut crawler.core;
        let began = core.network.clock();
        while !core.work.is_empty() {
            core.turn(None);
        }
        assert_eq!(core.network.clock(), began, "it slept");
    }

    #[test]
    fn f67_a_crawl_with_too_many_waiting_requests_admits_none_until_there_are_fewer() {
        let (mut crawler, unanswered) = keeping();
        let number = |number: usize| Request::get(format!("http://a.test/{number}"));
        for n in 0..WAITING_MAX {
            crawler.submit(number(n)).expect("it is a URL");
        }
        let handle = crawler.handle();
        handle
            .try_submit(number(WAITING_MAX))
            .expect("there is room in the inbox");
        for _ in 0..3 {
            crawler.turn(Some(Duration::from_millis(1)));
        }
        assert_eq!(unanswered.borrow().len(), WAITING_MAX, "it is left outside");
        drop(unanswered.borrow_mut().pop());
        for _ in 0..3 {
            crawler.turn(Some(Duration::from_millis(1)));
        }
        assert_eq!(unanswered.borrow().len(), WAITING_MAX, "it has come in");
    }
}
