//! The frontier alone: what is next in a lane, and what keeps it.

mod idle_hosts;

use std::sync::Arc;

use std::collections::VecDeque;

use super::*;
use crate::base::ids::{ScopeId, ScopeSet};
use crate::base::secret::Secret;
use crate::frontier::offers::{Admission, LateAnswer, Offer, OfferId};
use crate::frontier::proxies::Proxies;
use crate::wire::proxy::{Proxy, Route};
use crate::wire::robots::Robots as RobotsFile;

/// A frontier whose lanes are released in the order in which they were offered.
struct Bench {
    frontier: Frontier,
    offered: VecDeque<LaneId>,
    /// Numbers of lanes: given so far, and free again.
    lanes: u32,
    free: Vec<LaneId>,
    /// The scopes that each lane was opened under.
    opened: BTreeMap<LaneId, ScopeSet>,
    /// Names of scopes, by number.
    scopes: Vec<String>,
    now: Instant,
}

impl Bench {
    fn new(settings: FrontierSettings) -> Self {
        Bench {
            frontier: Frontier::new(settings, &Secret::from_seed(1)),
            offered: VecDeque::new(),
            lanes: 0,
            free: Vec::new(),
            opened: BTreeMap::new(),
            scopes: Vec::new(),
            now: Instant::START,
        }
    }

    fn scope(&mut self, name: &str) -> ScopeId {
        let known = self.scopes.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.scopes.push(name.to_owned());
            self.scopes.len() - 1
        });
        ScopeId(at as u32)
    }

    /// The lane of this request under these scopes, opened if there is none.
    fn lane_of(&mut self, job: &Job, scopes: &ScopeSet) -> LaneId {
        let query = self.frontier.lane_query(job);
        let is_under = |lane: &LaneId| self.opened.get(lane) == Some(scopes);
        let found = match query.candidate.filter(is_under) {
            Some(lane) => Ok(lane),
            None => self.frontier.lane_for(query, scopes),
        };
        match found {
            Ok(lane) => lane,
            Err(new) => {
                let lane = self.free.pop().unwrap_or(LaneId(self.lanes));
                self.lanes = self.lanes.max(lane.0 + 1);
                self.opened.insert(lane, scopes.clone());
                self.frontier.open_lane(new, lane);
                lane
            }
        }
    }

    /// The same of a URL and its route, under its host's scope.
    fn lane(&mut self, url: &str, route: Option<Route>) -> LaneId {
        let url = CrawlUrl::parse(url).expect(url);
        let scopes = ScopeSet::ordered([self.scope(url.scope_key())]);
        let mut job = Job::seed(0, url);
        job.extra_mut().route = route.map(Box::new);
        self.lane_of(&job, &scopes)
    }

    fn push(&mut self, job: Job) -> LaneId {
        let scopes = ScopeSet::ordered([self.scope(job.url.scope_key())]);
        let lane = self.lane_of(&job, &scopes);
        self.frontier.push(lane, job);
        self.update();
        lane
    }

    /// Does what a throttle does with changes of lanes.
    fn update(&mut self) {
        for change in self.frontier.lane_changes() {
            match change {
                LaneChange::Offer { lane, .. } if self.offered.contains(&lane) => {}
                LaneChange::Offer { lane, .. } => self.offered.push_back(lane),
                LaneChange::Park(lane) => assert!(!self.offered.contains(&lane)),
                LaneChange::Withdraw(lane) => self.offered.retain(|other| *other != lane),
                LaneChange::Close(lane) => {
                    assert!(!self.offered.contains(&lane), "it has something to send");
                    self.free.push(lane);
                }
            }
        }
    }

    fn offer(&mut self, url: &CrawlUrl, depth: u32, priority: i32, seed: bool) -> Admission {
        let offer = Offer {
            url,
            kind: PageKind::Page,
            depth,
            priority,
            nesting: 0,
            seed,
        };
        self.frontier.offer(&offer, self.now)
    }

    /// The next answer of the seen set that came late, when it is due.
    fn answer_next(&mut self) -> LateAnswer {
        let due = self.frontier.next_answer().expect("one waits");
        self.frontier.poll_answer(due).expect("it is due")
    }

    fn admit(&mut self, url: &str, seed: bool) -> Result<(), Filtered> {
        let url = CrawlUrl::parse(url).expect(url);
        let depth = u32::from(!seed);
        match self.offer(&url, depth, 0, seed) {
            Admission::Admitted => {}
            Admission::Duplicate => return Err(Filtered::Duplicate),
            Admission::Filtered(rejection) => return Err(rejection.filter),
            Admission::Later(id) => panic!("{id:?}: nothing puts off answers"),
        }
        let job = Job {
            seed,
            depth,
            ..Job::seed(self.frontier.number(), url)
        };
        self.push(job);
        Ok(())
    }

    /// What comes next in the lane that is released next.
    fn next(&mut self) -> Option<(LaneId, Next)> {
        let lane = self.offered.pop_front()?;
        self.frontier.released(lane, self.now);
        let next = self.frontier.next(lane, self.now);
        self.resume(lane);
        Some((lane, next))
    }

    fn resume(&mut self, lane: LaneId) {
        self.frontier.offer_or_close(lane, self.now);
        self.update();
    }

    fn expire(&mut self) {
        self.frontier.expire(self.now);
        self.update();
    }

    fn robots_arrived(&mut self, origin: u32, result: RobotsResult) {
        self.frontier.robots_arrived(1, origin, result, self.now);
        self.update();
    }

    fn sent(&mut self) -> Option<(LaneId, Job)> {
        loop {
            let (lane, next) = self.next()?;
            if let Next::Send(job) = next {
                return Some((lane, job));
            }
        }
    }

    fn end(&mut self, lane: LaneId, job: &Job, counts: bool) {
        self.frontier.ended(lane, job, counts, self.now);
        self.update();
    }

    /// Answers the robots.txt that is asked for next.
    fn answer_robots(&mut self, file: &str) {
        let (lane, job) = self.sent().expect("robots.txt is asked for");
        assert_eq!(job.kind, PageKind::Robots);
        let origin = job.robots_for();
        let rules = RobotsFile::parse(file.as_bytes()).agent("argiope");
        let origin = origin.expect("it is for an origin");
        self.robots_arrived(origin, RobotsResult::Rules(rules));
        self.end(lane, &job, true);
    }

    fn all_sent(&mut self) -> Vec<String> {
        let mut urls = Vec::new();
        while let Some((lane, job)) = self.sent() {
            urls.push(job.url.as_str().to_owned());
            self.end(lane, &job, true);
        }
        urls
    }
}

#[test]
fn every_url_of_a_host_waits_for_the_one_robots_txt() {
    let mut bench = Bench::new(FrontierSettings::default());
    for page in 0..10 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    let (lane, job) = bench.sent().expect("robots.txt");
    assert_eq!(job.url.as_str(), "http://a.test/robots.txt");
    assert!(bench.sent().is_none(), "nothing is sent before the verdict");
    let origin = job.robots_for();
    let origin = origin.expect("it is for an origin");
    bench.robots_arrived(origin, RobotsResult::Absent);
    bench.end(lane, &job, false);
    assert_eq!(bench.all_sent().len(), 10);
    assert_eq!(bench.frontier.lanes_open(), 0);
}

#[test]
fn a_disallowed_url_ends_unsent_and_names_the_rule() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.admit("http://a.test/private/x", true).expect("new");
    bench.answer_robots("User-agent: *\nDisallow: /private/\n");
    let unsent = std::iter::from_fn(|| bench.next())
        .find_map(|(_, next)| match next {
            Next::Unsent(_, why) => Some(why),
            _ => None,
        })
        .expect("it ends");
    assert_eq!(unsent, Unsent::Disallowed("/private/".to_owned(), 2));
}

#[test]
fn a_robots_txt_is_fetched_again_after_its_lifetime() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.admit("http://a.test/1", true).expect("new");
    bench.answer_robots("");
    assert_eq!(bench.all_sent(), ["http://a.test/1"]);
    bench.now += Duration::from_secs(23 * 3600);
    bench.admit("http://a.test/2", true).expect("new");
    assert_eq!(bench.all_sent(), ["http://a.test/2"]);
    bench.now += Duration::from_secs(2 * 3600);
    bench.admit("http://a.test/3", true).expect("new");
    bench.answer_robots("");
    assert_eq!(bench.all_sent(), ["http://a.test/3"]);
}

/// What comes of a page that is admitted now, where a robots.txt that brings this was asked for at the
/// start: whether it is asked for again, or how the page ends.
fn outcome_at(result: &RobotsResult, lifetime: Duration, after: Duration) -> String {
    let mut bench = Bench::new(FrontierSettings {
        robots_lifetime: lifetime,
        ..FrontierSettings::default()
    });
    bench.admit("http://a.test/1", true).expect("new");
    let (lane, job) = bench.sent().expect("robots.txt");
    let origin = job.robots_for().expect("it is for an origin");
    bench.robots_arrived(origin, result.clone());
    bench.end(lane, &job, false);
    while bench.next().is_some() {}
    bench.now += after;
    bench.admit("http://a.test/2", true).expect("new");
    let ended = std::iter::from_fn(|| bench.next()).find_map(|(_, next)| match next {
        Next::Send(job) => Some(format!("{:?} is sent", job.kind)),
        Next::Unsent(_, why) => Some(format!("{why:?}")),
        Next::CrawlDelay(_) | Next::Later => None,
    });
    ended.expect("something comes of it")
}

#[test]
fn an_absent_robots_txt_is_fetched_again_after_its_lifetime() {
    let (day, moment) = (Duration::from_secs(24 * 3600), Duration::from_nanos(1));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (result, lifetime, holds_for, meanwhile) in [
        (
            RobotsResult::Unreachable,
            day,
            minutes(10),
            "RobotsUnreachable",
        ),
        (
            RobotsResult::Unreachable,
            minutes(1),
            minutes(1),
            "RobotsUnreachable",
        ),
        (RobotsResult::Absent, day, day, "Page is sent"),
    ] {
        let outcome = |after| outcome_at(&result, lifetime, after);
        assert_eq!(outcome(Duration::ZERO), meanwhile);
        assert_eq!(outcome(holds_for - moment), meanwhile);
        assert_eq!(outcome(holds_for), "Robots is sent", "{result:?}");
        assert_eq!(outcome(holds_for * 2), "Robots is sent", "{result:?}");
    }
}

#[test]
fn pages_beyond_the_limit_are_not_sent_even_with_many_in_flight() {
    let mut bench = Bench::new(FrontierSettings {
        pages_max: 3,
        robots_obey: false,
        ..FrontierSettings::default()
    });
    for page in 0..10 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    let flying: Vec<_> = std::iter::from_fn(|| bench.sent()).collect();
    assert_eq!(flying.len(), 3);
    // One of them brings no page: its place goes to another.
    for (nth, (lane, job)) in flying.iter().enumerate() {
        bench.end(*lane, job, nth > 0);
    }
    assert!(!bench.frontier.is_page_limit_reached());
    assert_eq!(bench.all_sent().len(), 1);
    assert!(bench.frontier.is_page_limit_reached());
}

/// Lanes that a page limit stops.
fn limited(bench: &Bench) -> usize {
    let lanes = (0..bench.frontier.lanes.len()).map(|lane| &bench.frontier.lanes[lane]);
    lanes
        .filter(|lane| lane.state == LaneState::Limited)
        .count()
}

#[test]
fn the_work_per_end_is_bounded_when_a_page_limit_stops_many_lanes() {
    const LANES: usize = 100;
    let crawl = FrontierSettings {
        pages_max: LANES as u64,
        ..FrontierSettings::default()
    };
    let host = FrontierSettings {
        pages_per_host_max: 1,
        ..FrontierSettings::default()
    };
    // The end of a page changes nothing for another host.
    for (limit, looks_max) in [(crawl, LANES), (host, 0)] {
        let mut bench = Bench::new(FrontierSettings {
            robots_obey: false,
            ..limit
        });
        for lane in 0..LANES {
            for page in 0..2 {
                let url = format!("http://host{lane}.test/{page}");
                bench.admit(&url, true).expect("new");
            }
        }
        // One page of each is under way, and the other waits for what comes of that.
        let mut flying: VecDeque<_> = std::iter::from_fn(|| bench.sent()).collect();
        assert_eq!((flying.len(), limited(&bench)), (LANES, LANES));
        let mut sent = LANES;
        while let Some((lane, job)) = flying.pop_front() {
            let before = limited(&bench);
            bench.end(lane, &job, false);
            let offered = before - limited(&bench);
            assert!(offered <= 8, "{offered} lanes were offered");
            // The others are checked one by one, until they may no longer be stopped.
            let mut looks = 0;
            while bench.frontier.next_wake().is_some() {
                let before = limited(&bench);
                bench.expire();
                assert!(before - limited(&bench) <= 1);
                looks += 1;
            }
            assert!(looks <= looks_max, "{looks} looks");
            // The place of what ended goes to another, while there is one.
            let next: Vec<_> = std::iter::from_fn(|| bench.sent()).collect();
            assert_eq!(next.len(), usize::from(sent < 2 * LANES));
            sent += next.len();
            flying.extend(next);
        }
        assert_eq!((sent, limited(&bench)), (2 * LANES, 0));
    }
}

#[test]
fn requests_of_a_host_beyond_its_page_limit_end_unsent() {
    let mut bench = Bench::new(FrontierSettings {
        pages_per_host_max: 2,
        robots_obey: false,
        ..FrontierSettings::default()
    });
    for page in 0..4 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    bench.admit("http://b.test/", true).expect("new");
    let mut sent = Vec::new();
    let mut unsent = 0;
    while let Some((lane, next)) = bench.next() {
        match next {
            Next::Send(job) => {
                sent.push(job.url.as_str().to_owned());
                bench.end(lane, &job, true);
            }
            Next::Unsent(_, why) => {
                assert_eq!(why, Unsent::HostPages);
                unsent += 1;
            }
            Next::CrawlDelay(_) | Next::Later => {}
        }
    }
    sent.sort();
    assert_eq!(
        sent,
        ["http://a.test/0", "http://a.test/1", "http://b.test/"]
    );
    assert_eq!(unsent, 2);
}

#[test]
fn links_are_filtered_by_follow_and_dropped_by_a_full_frontier() {
    let mut bench = Bench::new(FrontierSettings {
        queued_max: 2,
        ..FrontierSettings::default()
    });
    bench.admit("http://a.test/", true).expect("new");
    assert_eq!(bench.admit("http://b.test/", false), Err(Filtered::Offsite));
    bench
        .admit("http://a.test/1", false)
        .expect("on the seed's host");
    assert_eq!(
        bench.admit("http://a.test/2", false),
        Err(Filtered::FrontierFull)
    );
    assert_eq!(
        bench.admit("http://a.test/1", false),
        Err(Filtered::Duplicate),
        "nothing is lost by that"
    );
    assert!(!bench.frontier.has_room());
    assert_eq!(bench.frontier.filtered()[&Filtered::FrontierFull], 1);
    assert_eq!(
        bench.admit("http://a.test/", true),
        Err(Filtered::Duplicate)
    );
}

#[test]
fn a_host_that_fails_is_held_and_its_lane_resumes_by_itself() {
    let mut bench = Bench::new(FrontierSettings {
        robots_obey: false,
        ..FrontierSettings::default()
    });
    for page in 0..6 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    for _ in 0..5 {
        let (lane, job) = bench.sent().expect("it is asked");
        bench.frontier.host_failed(lane, bench.now);
        bench.end(lane, &job, false);
    }
    assert!(bench.sent().is_none(), "it is held");
    let until = bench.frontier.next_wake().expect("and comes back");
    assert_eq!(until, Instant::START + Duration::from_secs(5));
    bench.now = until;
    bench.expire();
    assert!(bench.sent().is_some());
}

#[test]
fn a_robots_txt_that_could_not_be_sent_after_all_is_sent_later() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.admit("http://a.test/1", true).expect("new");
    let (lane, job) = bench.sent().expect("robots.txt");
    bench.frontier.put_back(lane, job, bench.now);
    bench.update();
    let until = bench.now + Duration::from_secs(1);
    bench.frontier.pause(lane, until);
    bench.update();
    assert!(bench.sent().is_none(), "the lane pauses");
    assert_eq!(bench.frontier.next_wake(), Some(until));
    bench.now = until;
    bench.expire();
    bench.answer_robots("");
    assert_eq!(bench.all_sent(), ["http://a.test/1"]);
}

#[test]
fn an_origin_is_stored_once_although_its_lane_closes_often() {
    let mut bench = Bench::new(FrontierSettings::default());
    for n in 0..5 {
        bench
            .admit(&format!("http://a.test/{n}"), true)
            .expect("new");
        if n == 0 {
            bench.answer_robots("");
        }
        assert_eq!(bench.all_sent().len(), 1);
        assert_eq!(bench.frontier.lanes_open(), 0);
    }
    assert_eq!(bench.frontier.origins_kept.len(), 1);
}

#[test]
fn the_number_of_an_origin_that_is_held_is_given_to_no_other() {
    let mut bench = Bench::new(FrontierSettings {
        robots_obey: false,
        ..FrontierSettings::default()
    });
    // Its lane opens, sends one request and closes; its origin is held meanwhile.
    let mut pages = 0;
    let mut hold = |bench: &mut Bench, host: &str| {
        pages += 1;
        let url = CrawlUrl::parse(&format!("http://{host}/")).expect("a URL");
        let lane = bench.push(Job::seed(pages, url));
        let number = bench.frontier.hold_origin(lane);
        assert_eq!(bench.all_sent().len(), 1);
        assert_eq!(bench.frontier.lanes_open(), 0);
        number
    };
    let first = hold(&mut bench, "a.test");
    let second = hold(&mut bench, "b.test");
    assert_ne!(first, second);
    bench.frontier.hold_origin_again(first);
    bench.frontier.release_origin(first, bench.now);
    let third = hold(&mut bench, "c.test");
    assert_ne!(first, third, "it was held twice");
    bench.frontier.release_origin(first, bench.now);
    assert_eq!(hold(&mut bench, "d.test"), first);
}

#[test]
fn lanes_of_one_origin_are_distinguished_by_their_scopes() {
    let mut bench = Bench::new(FrontierSettings::default());
    let job = Job::seed(1, CrawlUrl::parse("http://a.test/").expect("a URL"));
    let ids = ["a", "b", "c"].map(|name| bench.scope(name));
    let sets = [
        ScopeSet::ordered([ids[0]]),
        ScopeSet::unordered([ids[0]]),
        ScopeSet::ordered([ids[1], ids[0]]),
        ScopeSet::ordered(ids),
        ScopeSet::unordered([]),
    ];
    let lanes: Vec<LaneId> = sets.iter().map(|set| bench.lane_of(&job, set)).collect();
    assert_eq!(lanes, (0..5).map(LaneId).collect::<Vec<_>>());
    // The first goes, and another, and comes again: the others stay who they are.
    bench.resume(lanes[0]);
    bench.resume(lanes[2]);
    assert_eq!(bench.frontier.lanes_open(), 3);
    assert_eq!(bench.lane_of(&job, &sets[2]), lanes[2]);
    for (set, lane) in sets.iter().zip(&lanes).skip(1) {
        assert_eq!(bench.lane_of(&job, set), *lane);
    }
    for lane in &lanes[1..] {
        bench.resume(*lane);
    }
    assert_eq!(bench.frontier.lanes_open(), 0);
    assert!(bench.frontier.lane_of.is_empty());
}

/// The proxy of all requests.
fn of_all(proxy: Proxy) -> Proxies {
    Proxies {
        usual: Some(Arc::new(proxy)),
        ..Proxies::default()
    }
}

#[test]
fn the_proxy_of_a_lane_is_chosen_by_scheme_and_host() {
    let proxies = Proxies {
        https: Some(Route::Proxy(Arc::new(
            "http://other.test:3129".parse().expect("a proxy"),
        ))),
        except: vec!["direct.test".parse().expect("a host")],
        ..of_all("http://usual.test:3128".parse().expect("a proxy"))
    };
    let mut bench = Bench::new(FrontierSettings {
        proxies,
        ..FrontierSettings::default()
    });
    for (url, host, port) in [
        ("http://a.test/", "usual.test", 3128),
        ("https://a.test/", "other.test", 3129),
        ("http://direct.test/", "direct.test", 80),
        ("https://www.direct.test/", "www.direct.test", 443),
    ] {
        let lane = bench.lane(url, None);
        let found = bench.frontier.host_and_port(lane);
        assert_eq!(found, (host, port), "{url}");
        // A failure to connect is that of the proxy, or else of the host.
        for _ in 0..5 {
            bench.frontier.host_failed(lane, Instant::START);
        }
        assert!(
            !bench.frontier.released(lane, Instant::START),
            "{url}: {host} is held"
        );
    }
    // Each of them was held by itself.
    assert_eq!(bench.frontier.hosts_held(Instant::START).0, 4);
    let direct = bench.lane("http://direct.test/2", Some(Route::Direct));
    assert_eq!(
        direct,
        bench.lane("http://direct.test/3", None),
        "the same route"
    );
}

#[test]
fn requests_by_another_proxy_have_their_own_lane() {
    let usual: Proxy = "http://usual.test:3128".parse().expect("a proxy");
    let own: Proxy = "socks5://own.test:1080".parse().expect("a proxy");
    let mut bench = Bench::new(FrontierSettings {
        proxies: of_all(usual.clone()),
        ..FrontierSettings::default()
    });
    let routes = [
        None,
        Some(Route::Direct),
        Some(Route::Proxy(Arc::new(own))),
        // The same settings again.
        Some(Route::Proxy(Arc::new(usual))),
    ];
    let lanes = |bench: &mut Bench| {
        let lane = |route: &Option<Route>| bench.lane("http://a.test/", route.clone());
        routes.iter().map(lane).collect::<Vec<_>>()
    };
    let first = lanes(&mut bench);
    assert_eq!(first, [0, 1, 2, 0].map(LaneId));
    let places = first.iter().map(|lane| {
        let (host, port) = bench.frontier.host_and_port(*lane);
        (host.to_owned(), port)
    });
    let places: Vec<_> = places.collect();
    let usual = ("usual.test".to_owned(), 3128);
    let expected = [
        usual.clone(),
        ("a.test".to_owned(), 80),
        ("own.test".to_owned(), 1080),
        usual,
    ];
    assert_eq!(places, expected);
    assert_eq!(lanes(&mut bench), first, "found again");
    // A reused lane number has no state of its previous lane.
    for lane in first[..3].iter().rev() {
        bench.resume(*lane);
    }
    assert_eq!(bench.frontier.lanes_open(), 0);
    let again = lanes(&mut bench);
    assert_eq!(bench.frontier.lanes_open(), 3);
    assert_eq!(bench.frontier.host_and_port(again[0]).0, "usual.test");
    assert!(bench.frontier.proxy_of(again[1]).is_none());
}

#[test]
fn a_failing_proxy_holds_its_lanes_and_a_failing_host_behind_it_only_its_own() {
    let proxy: Proxy = "http://proxy.test:3128".parse().expect("a proxy");
    let mut bench = Bench::new(FrontierSettings {
        proxies: of_all(proxy),
        ..FrontierSettings::default()
    });
    let now = Instant::START;
    let a = bench.lane("http://a.test/", None);
    let b = bench.lane("http://b.test/", None);
    let direct = bench.lane("http://a.test/", Some(Route::Direct));
    let frontier = &mut bench.frontier;
    let up = |frontier: &mut Frontier| [a, b, direct].map(|lane| frontier.released(lane, now));
    for _ in 0..5 {
        frontier.origin_failed(a, now);
    }
    assert_eq!(up(frontier), [false, true, false]);
    for _ in 0..5 {
        frontier.host_failed(b, now);
    }
    assert_eq!(up(frontier), [false, false, false]);
    let later = now + Duration::from_secs(16 * 60);
    assert!(frontier.released(a, later));
    // Lanes without the proxy are not affected.
    for _ in 0..5 {
        frontier.host_failed(a, later);
    }
    assert!(!frontier.released(a, later));
    assert!(frontier.released(direct, later));
}

/// Offers URLs to a frontier that defers some answers, until one is deferred: its URL and number.
fn defer(bench: &mut Bench) -> (CrawlUrl, OfferId) {
    for number in 0..100 {
        let url = CrawlUrl::parse(&format!("http://a.test/{number}")).expect("a URL");
        if let Admission::Later(id) = bench.offer(&url, 3, 1, true) {
            return (url, id);
        }
    }
    panic!("half of all answers are deferred");
}

#[test]
fn equal_offers_that_wait_merge_into_the_least_depth_and_the_highest_priority() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.frontier.delay_admission(1);
    let (url, id) = defer(&mut bench);
    assert_eq!(bench.offer(&url, 2, 0, true), Admission::Duplicate);
    assert_eq!(bench.offer(&url, 5, 7, true), Admission::Duplicate);
    let answer = bench.answer_next();
    let expected = LateAnswer {
        id,
        is_admitted: true,
        depth: 2,
        priority: 7,
        seed: true,
    };
    assert_eq!(answer, expected);
}

#[test]
fn a_link_that_waits_becomes_a_seed_with_an_equal_seed() {
    let mut bench = Bench::new(FrontierSettings {
        follow: crate::frontier::settings::Follow::Host,
        ..FrontierSettings::default()
    });
    let seed = CrawlUrl::parse("http://a.test/").expect("a URL");
    bench.frontier.mark_seen(&seed, true);
    bench.frontier.delay_admission(1);
    let link = (0..100).find_map(|number| {
        let url = CrawlUrl::parse(&format!("http://a.test/{number}")).expect("a URL");
        let is_late = matches!(bench.offer(&url, 3, 1, false), Admission::Later(_));
        is_late.then_some(url)
    });
    let link = link.expect("half of all answers come late");
    assert_eq!(bench.offer(&link, 0, 0, true), Admission::Duplicate);
    let answer = bench.answer_next();
    assert!(answer.is_admitted && answer.seed);
}

#[test]
fn an_answer_from_outside_ends_the_wait_of_its_offer_alone() {
    for is_new in [true, false] {
        let mut bench = Bench::new(FrontierSettings::default());
        bench.frontier.delay_admission(1);
        let (url, id) = defer(&mut bench);
        let keys = *Secret::from_seed(1).keys();
        let other = keys.url("http://b.test/");
        assert_eq!(bench.frontier.handle_answer(other, is_new), None);
        let key = keys.url(url.as_str());
        let answer = bench.frontier.handle_answer(key, is_new);
        let answer = answer.expect("it waits");
        assert_eq!((answer.id, answer.is_admitted), (id, is_new));
        assert_eq!(bench.frontier.handle_answer(key, is_new), None);
        let due = bench.frontier.next_answer().expect("it was to come");
        assert_eq!(
            bench.frontier.poll_answer(due),
            None,
            "it has been answered"
        );
    }
}

#[test]
fn a_deferred_answer_comes_when_it_is_due() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.frontier.delay_admission(1);
    let (_, id) = defer(&mut bench);
    let due = bench.frontier.next_answer().expect("one waits");
    let before = Instant::from_nanos(due.as_nanos() - 1);
    assert_eq!(bench.frontier.poll_answer(before), None);
    let answer = bench.frontier.poll_answer(due).expect("it is due");
    assert_eq!(answer.id, id);
    assert_eq!(bench.frontier.next_answer(), None);
}

#[test]
fn a_url_that_is_fetched_unfiltered_meanwhile_is_a_duplicate_in_the_end() {
    let mut bench = Bench::new(FrontierSettings::default());
    bench.frontier.delay_admission(1);
    let (url, _) = defer(&mut bench);
    bench.frontier.mark_seen(&url, false);
    let answer = bench.answer_next();
    assert!(!answer.is_admitted);
    assert_eq!(bench.frontier.filtered()[&Filtered::Duplicate], 1);
}

#[test]
fn links_to_the_host_of_a_seed_are_followed_while_the_seed_waits_for_its_answer() {
    let mut bench = Bench::new(FrontierSettings {
        follow: crate::frontier::settings::Follow::Host,
        ..FrontierSettings::default()
    });
    bench.frontier.delay_admission(1);
    let _ = defer(&mut bench);
    let link = CrawlUrl::parse("http://a.test/link").expect("a URL");
    let admission = bench.offer(&link, 1, 0, false);
    assert!(
        !matches!(admission, Admission::Filtered(_)),
        "{admission:?}"
    );
}
