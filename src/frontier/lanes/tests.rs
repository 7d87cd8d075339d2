//! The frontier alone: what is next in a lane, and what keeps it.

use std::sync::Arc;

use std::collections::VecDeque;

use super::*;
use crate::base::secret::Secret;
use crate::throttle::engine::{Grant, TicketId};
use crate::throttle::settings::{Jitter, ScopeSettings, Settings as Pace};
use crate::wire::proxy::{Proxy, Route};
use crate::wire::robots::Robots as RobotsFile;

/// A frontier with a throttle that keeps nobody waiting.
struct Bench {
    frontier: Frontier,
    throttle: Throttle,
    now: Instant,
}

impl Bench {
    fn new(settings: Settings) -> Self {
        let pace = Pace {
            default: ScopeSettings {
                concurrency: 100,
                delay: Duration::ZERO,
                delay_per_slot: Duration::ZERO,
                jitter: Jitter::NONE,
                ..ScopeSettings::default()
            },
            ..Pace::default()
        };
        Bench {
            frontier: Frontier::new(settings, &Secret::from_seed(1)),
            throttle: Throttle::new(pace, 1, Instant::START),
            now: Instant::START,
        }
    }

    fn admit(&mut self, url: &str, seed: bool) -> Result<(), Filtered> {
        let url = CrawlUrl::parse(url).expect(url);
        let depth = u32::from(!seed);
        self.frontier.check(&url, depth, seed, &mut self.throttle)?;
        let scope = self.throttle.scope(url.scope_key());
        let job = Job {
            seed,
            depth,
            ..Job::seed(self.frontier.number(), url)
        };
        self.frontier.push(
            job,
            &ScopeSet::ordered([scope]),
            &mut self.throttle,
            self.now,
        );
        Ok(())
    }

    /// The next thing that happens: what the frontier says to the throttle's next release.
    fn next(&mut self) -> Option<(LaneId, TicketId, Next)> {
        match self.throttle.poll(self.now)? {
            Grant::Release(lane, ticket) => {
                self.frontier.released(lane, self.now);
                let next = self.frontier.next(lane, &self.throttle, self.now);
                if !matches!(next, Next::Send(_)) {
                    self.throttle.cancel(ticket, self.now);
                }
                self.frontier
                    .offer_or_close(lane, &mut self.throttle, self.now);
                Some((lane, ticket, next))
            }
            Grant::Depart(_) => unreachable!("nothing is made ready here"),
        }
    }

    fn sent(&mut self) -> Option<(LaneId, TicketId, Job)> {
        loop {
            let (lane, ticket, next) = self.next()?;
            if let Next::Send(job) = next {
                return Some((lane, ticket, job));
            }
        }
    }

    fn end(&mut self, lane: LaneId, ticket: TicketId, job: &Job, counts: bool) {
        self.throttle.finish(ticket, self.now);
        self.frontier
            .ended(lane, job, counts, &mut self.throttle, self.now);
    }

    /// Answers the robots.txt that is asked for next.
    fn answer_robots(&mut self, file: &str) {
        let (lane, ticket, job) = self.sent().expect("robots.txt is asked for");
        assert_eq!(job.kind, Kind::Robots);
        let origin = job.robots_for();
        let rules = RobotsFile::parse(file.as_bytes()).agent("argiope");
        self.frontier.robots_arrived(
            origin.expect("it is for an origin"),
            Brought::Rules(rules),
            &mut self.throttle,
            self.now,
        );
        self.end(lane, ticket, &job, true);
    }

    fn all_sent(&mut self) -> Vec<String> {
        let mut urls = Vec::new();
        while let Some((lane, ticket, job)) = self.sent() {
            urls.push(job.url.as_str().to_owned());
            self.end(lane, ticket, &job, true);
        }
        urls
    }
}

#[test]
fn every_url_of_a_host_waits_for_the_one_robots_txt() {
    let mut bench = Bench::new(Settings::default());
    for page in 0..10 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    let (lane, ticket, job) = bench.sent().expect("robots.txt");
    assert_eq!(job.url.as_str(), "http://a.test/robots.txt");
    assert!(bench.sent().is_none(), "nothing is sent before the verdict");
    let origin = job.robots_for();
    bench.frontier.robots_arrived(
        origin.expect("it is for an origin"),
        Brought::Absent,
        &mut bench.throttle,
        bench.now,
    );
    bench.end(lane, ticket, &job, false);
    assert_eq!(bench.all_sent().len(), 10);
    assert_eq!(bench.frontier.lanes_open(), 0);
}

#[test]
fn a_disallowed_url_ends_unsent_and_names_the_rule() {
    let mut bench = Bench::new(Settings::default());
    bench.admit("http://a.test/private/x", true).expect("new");
    bench.answer_robots("User-agent: *\nDisallow: /private/\n");
    let unsent = std::iter::from_fn(|| bench.next())
        .find_map(|(_, _, next)| match next {
            Next::Unsent(_, why) => Some(why),
            _ => None,
        })
        .expect("it ends");
    assert_eq!(unsent, Unsent::Disallowed("/private/".to_owned(), 2));
}

#[test]
fn a_robots_txt_holds_for_its_lifetime_and_is_then_asked_for_again() {
    let mut bench = Bench::new(Settings::default());
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
fn outcome_at(brought: &Brought, lifetime: Duration, after: Duration) -> String {
    let mut bench = Bench::new(Settings {
        robots_lifetime: lifetime,
        ..Settings::default()
    });
    bench.admit("http://a.test/1", true).expect("new");
    let (lane, ticket, job) = bench.sent().expect("robots.txt");
    let origin = job.robots_for().expect("it is for an origin");
    let (throttle, now) = (&mut bench.throttle, bench.now);
    let frontier = &mut bench.frontier;
    frontier.robots_arrived(origin, brought.clone(), throttle, now);
    bench.end(lane, ticket, &job, false);
    while bench.next().is_some() {}
    bench.now += after;
    bench.admit("http://a.test/2", true).expect("new");
    let ended = std::iter::from_fn(|| bench.next()).find_map(|(_, _, next)| match next {
        Next::Send(job) => Some(format!("{:?} is sent", job.kind)),
        Next::Unsent(_, why) => Some(format!("{why:?}")),
        Next::CrawlDelay(_) | Next::Later => None,
    });
    ended.expect("something comes of it")
}

#[test]
fn what_no_robots_txt_means_holds_for_its_time_and_is_then_asked_for_again() {
    let (day, moment) = (Duration::from_secs(24 * 3600), Duration::from_nanos(1));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (brought, lifetime, holds_for, meanwhile) in [
        (Brought::Unreachable, day, minutes(10), "RobotsUnreachable"),
        (
            Brought::Unreachable,
            minutes(1),
            minutes(1),
            "RobotsUnreachable",
        ),
        (Brought::Absent, day, day, "Page is sent"),
    ] {
        let outcome = |after| outcome_at(&brought, lifetime, after);
        assert_eq!(outcome(Duration::ZERO), meanwhile);
        assert_eq!(outcome(holds_for - moment), meanwhile);
        assert_eq!(outcome(holds_for), "Robots is sent", "{brought:?}");
        assert_eq!(outcome(holds_for * 2), "Robots is sent", "{brought:?}");
    }
}

#[test]
fn pages_beyond_the_limit_are_not_sent_even_with_many_in_flight() {
    let mut bench = Bench::new(Settings {
        pages_max: 3,
        robots_obey: false,
        ..Settings::default()
    });
    for page in 0..10 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    let flying: Vec<_> = std::iter::from_fn(|| bench.sent()).collect();
    assert_eq!(flying.len(), 3);
    // One of them brings no page: its place goes to another.
    for (nth, (lane, ticket, job)) in flying.iter().enumerate() {
        bench.end(*lane, *ticket, job, nth > 0);
    }
    assert!(!bench.frontier.is_spent());
    assert_eq!(bench.all_sent().len(), 1);
    assert!(bench.frontier.is_spent());
}

/// Lanes that a page limit stops.
fn limited(bench: &Bench) -> usize {
    let lanes = (0..bench.frontier.lanes.len()).map(|lane| &bench.frontier.lanes[lane]);
    lanes.filter(|lane| lane.stands == Stands::Limited).count()
}

#[test]
fn however_many_lanes_a_page_limit_stops_each_end_looks_at_a_few() {
    const LANES: usize = 100;
    let crawl = Settings {
        pages_max: LANES as u64,
        ..Settings::default()
    };
    let host = Settings {
        pages_per_host_max: 1,
        ..Settings::default()
    };
    // The end of a page changes nothing for another host.
    for (limit, looks_max) in [(crawl, LANES), (host, 0)] {
        let mut bench = Bench::new(Settings {
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
        while let Some((lane, ticket, job)) = flying.pop_front() {
            let before = limited(&bench);
            bench.end(lane, ticket, &job, false);
            let offered = before - limited(&bench);
            assert!(offered <= 8, "{offered} lanes were offered");
            // The others are looked at one by one, as long as they may be stopped no more.
            let mut looks = 0;
            while bench.frontier.next_wake().is_some() {
                let before = limited(&bench);
                bench.frontier.expire(&mut bench.throttle, bench.now);
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
fn a_host_that_has_had_its_pages_ends_the_rest_unsent() {
    let mut bench = Bench::new(Settings {
        pages_per_host_max: 2,
        robots_obey: false,
        ..Settings::default()
    });
    for page in 0..4 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    bench.admit("http://b.test/", true).expect("new");
    let mut sent = Vec::new();
    let mut unsent = 0;
    while let Some((lane, ticket, next)) = bench.next() {
        match next {
            Next::Send(job) => {
                sent.push(job.url.as_str().to_owned());
                bench.end(lane, ticket, &job, true);
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
fn links_lead_where_follow_allows_and_a_full_frontier_drops_and_counts_them() {
    let mut bench = Bench::new(Settings {
        queued_max: 2,
        ..Settings::default()
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
fn a_host_that_fails_is_held_and_its_lane_goes_on_by_itself() {
    let mut bench = Bench::new(Settings {
        robots_obey: false,
        ..Settings::default()
    });
    for page in 0..6 {
        bench
            .admit(&format!("http://a.test/{page}"), true)
            .expect("new");
    }
    for _ in 0..5 {
        let (lane, ticket, job) = bench.sent().expect("it is asked");
        bench.frontier.host_failed(lane, bench.now);
        bench.end(lane, ticket, &job, false);
    }
    assert!(bench.sent().is_none(), "it is held");
    let until = bench.frontier.next_wake().expect("and comes back");
    assert_eq!(until, Instant::START + Duration::from_secs(5));
    bench.now = until;
    bench.frontier.expire(&mut bench.throttle, bench.now);
    assert!(bench.sent().is_some());
}

#[test]
fn a_robots_txt_that_could_not_be_sent_after_all_is_sent_later() {
    let mut bench = Bench::new(Settings::default());
    bench.admit("http://a.test/1", true).expect("new");
    let (lane, ticket, job) = bench.sent().expect("robots.txt");
    bench.throttle.cancel(ticket, bench.now);
    bench
        .frontier
        .put_back(lane, job, &mut bench.throttle, bench.now);
    let until = bench.now + Duration::from_secs(1);
    bench
        .frontier
        .pause(lane, until, &mut bench.throttle, bench.now);
    assert!(bench.sent().is_none(), "the lane pauses");
    assert_eq!(bench.frontier.next_wake(), Some(until));
    bench.now = until;
    bench.frontier.expire(&mut bench.throttle, bench.now);
    bench.answer_robots("");
    assert_eq!(bench.all_sent(), ["http://a.test/1"]);
}

#[test]
fn an_origin_is_remembered_once_however_often_its_lane_closes() {
    let now = Instant::START;
    let mut frontier = Frontier::new(Settings::default(), &Secret::from_seed(1));
    let mut throttle = Throttle::new(Pace::default(), 1, now);
    let scope = throttle.scope("a.test");
    for n in 0..5 {
        let url = CrawlUrl::parse(&format!("http://a.test/{n}")).expect("a URL");
        let job = Job::seed(n + 1, url);
        frontier.push(job, &ScopeSet::ordered([scope]), &mut throttle, now);
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        let lane = frontier.lane(&url, None, &ScopeSet::ordered([scope]), &mut throttle);
        if n == 0 {
            frontier.released(lane, now);
            let Next::Send(robots) = frontier.next(lane, &throttle, now) else {
                panic!("robots.txt comes first");
            };
            let origin = frontier.lanes[lane.0 as usize].origin;
            frontier.robots_arrived(origin, Brought::Absent, &mut throttle, now);
            frontier.ended(lane, &robots, false, &mut throttle, now);
        }
        throttle.withdraw(lane, now);
        frontier.released(lane, now);
        let Next::Send(page) = frontier.next(lane, &throttle, now) else {
            panic!("all is allowed");
        };
        frontier.ended(lane, &page, true, &mut throttle, now);
        assert_eq!(frontier.lanes_open(), 0);
    }
    assert_eq!(frontier.origins_kept.len(), 1);
}

#[test]
fn the_number_of_an_origin_that_is_held_is_given_to_no_other() {
    let now = Instant::START;
    let mut frontier = Frontier::new(
        Settings {
            robots_obey: false,
            ..Settings::default()
        },
        &Secret::from_seed(1),
    );
    let mut throttle = Throttle::new(Pace::default(), 1, now);
    let mut id = 0;
    // Its lane opens, sends one request and closes; somebody holds its origin meanwhile.
    let mut hold = |frontier: &mut Frontier, host: &str| {
        id += 1;
        let scopes = ScopeSet::ordered([throttle.scope(host)]);
        let url = CrawlUrl::parse(&format!("http://{host}/")).expect("a URL");
        frontier.push(Job::seed(id, url.clone()), &scopes, &mut throttle, now);
        let lane = frontier.lane(&url, None, &scopes, &mut throttle);
        let number = frontier.hold_origin(lane);
        throttle.withdraw(lane, now);
        frontier.released(lane, now);
        let Next::Send(page) = frontier.next(lane, &throttle, now) else {
            panic!("nothing stands in its way");
        };
        frontier.ended(lane, &page, true, &mut throttle, now);
        assert_eq!(frontier.lanes_open(), 0);
        number
    };
    let first = hold(&mut frontier, "a.test");
    let second = hold(&mut frontier, "b.test");
    assert_ne!(first, second);
    frontier.hold_origin_again(first);
    frontier.let_origin_go(first, now);
    let third = hold(&mut frontier, "c.test");
    assert_ne!(first, third, "it was held twice");
    frontier.let_origin_go(first, now);
    assert_eq!(hold(&mut frontier, "d.test"), first);
}

#[test]
fn lanes_of_one_origin_are_told_apart_by_their_scopes_and_found_again() {
    let now = Instant::START;
    let mut frontier = Frontier::new(Settings::default(), &Secret::from_seed(1));
    let mut throttle = Throttle::new(Pace::default(), 1, now);
    let url = CrawlUrl::parse("http://a.test/").expect("a URL");
    let ids: Vec<_> = ["a", "b", "c"].map(|name| throttle.scope(name)).into();
    let sets = [
        ScopeSet::ordered([ids[0]]),
        ScopeSet::unordered([ids[0]]),
        ScopeSet::ordered([ids[1], ids[0]]),
        ScopeSet::ordered(ids.clone()),
        ScopeSet::unordered([]),
    ];
    let lanes: Vec<LaneId> = sets
        .iter()
        .map(|set| frontier.lane(&url, None, set, &mut throttle))
        .collect();
    assert_eq!(lanes, (0..5).map(LaneId).collect::<Vec<_>>());
    // The first goes, and another, and comes again: the others stay who they are.
    frontier.offer_or_close(lanes[0], &mut throttle, now);
    frontier.offer_or_close(lanes[2], &mut throttle, now);
    assert_eq!(frontier.lanes_open(), 3);
    let again = frontier.lane(&url, None, &sets[2], &mut throttle);
    assert_eq!(again, lanes[2]);
    for (set, lane) in sets.iter().zip(&lanes).skip(1) {
        assert_eq!(frontier.lane(&url, None, set, &mut throttle), *lane);
    }
    for lane in &lanes[1..] {
        frontier.offer_or_close(*lane, &mut throttle, now);
    }
    assert_eq!(frontier.lanes_open(), 0);
    assert!(frontier.lane_of.is_empty());
}

#[test]
fn requests_that_go_another_way_have_a_lane_of_their_own() {
    let mut throttle = Throttle::new(Pace::default(), 1, Instant::START);
    let usual: Proxy = "http://usual.test:3128".parse().expect("a proxy");
    let own: Proxy = "socks5://own.test:1080".parse().expect("a proxy");
    let mut frontier = Frontier::new(
        Settings {
            proxy: Some(Arc::new(usual.clone())),
            ..Settings::default()
        },
        &Secret::from_seed(1),
    );
    let url = CrawlUrl::parse("http://a.test/").expect("a URL");
    let routes = [
        None,
        Some(Route::Direct),
        Some(Route::Proxy(Arc::new(own))),
        // As the settings say, said once more.
        Some(Route::Proxy(Arc::new(usual))),
    ];
    let lanes = |frontier: &mut Frontier, throttle: &mut Throttle| {
        let set = ScopeSet::ordered([throttle.scope("a.test")]);
        let lane = |route: &Option<Route>| frontier.lane(&url, route.as_ref(), &set, throttle);
        routes.iter().map(lane).collect::<Vec<_>>()
    };
    let first = lanes(&mut frontier, &mut throttle);
    assert_eq!(first, [0, 1, 2, 0].map(LaneId));
    let places = first.iter().map(|lane| {
        let (host, port) = frontier.host_and_port(*lane, &throttle);
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
    assert_eq!(lanes(&mut frontier, &mut throttle), first, "found again");
    // A lane's number that is used again knows nothing of who had it before.
    let now = Instant::START;
    for lane in first[..3].iter().rev() {
        frontier.offer_or_close(*lane, &mut throttle, now);
    }
    assert_eq!(frontier.lanes_open(), 0);
    let again = lanes(&mut frontier, &mut throttle);
    assert_eq!(frontier.lanes_open(), 3);
    assert_eq!(frontier.host_and_port(again[0], &throttle).0, "usual.test");
    assert!(frontier.proxy_of(again[1]).is_none());
}

#[test]
fn a_proxy_that_fails_holds_what_goes_through_it_and_a_host_behind_it_itself_alone() {
    let mut throttle = Throttle::new(Pace::default(), 1, Instant::START);
    let proxy: Proxy = "http://proxy.test:3128".parse().expect("a proxy");
    let mut frontier = Frontier::new(
        Settings {
            proxy: Some(Arc::new(proxy)),
            ..Settings::default()
        },
        &Secret::from_seed(1),
    );
    let now = Instant::START;
    let mut lane = |url: &str, route: Option<Route>| {
        let url = CrawlUrl::parse(url).expect("a URL");
        let set = ScopeSet::ordered([throttle.scope(url.scope_key())]);
        frontier.lane(&url, route.as_ref(), &set, &mut throttle)
    };
    let a = lane("http://a.test/", None);
    let b = lane("http://b.test/", None);
    let direct = lane("http://a.test/", Some(Route::Direct));
    let up = |frontier: &mut Frontier| [a, b, direct].map(|lane| frontier.released(lane, now));
    for _ in 0..5 {
        frontier.origin_failed(a, now);
    }
    assert_eq!(up(&mut frontier), [false, true, false]);
    for _ in 0..5 {
        frontier.host_failed(b, now);
    }
    assert_eq!(up(&mut frontier), [false, false, false]);
    let later = now + Duration::from_secs(16 * 60);
    assert!(frontier.released(a, later));
    // What leads to no proxy does not mind its fate.
    for _ in 0..5 {
        frontier.host_failed(a, later);
    }
    assert!(!frontier.released(a, later));
    assert!(frontier.released(direct, later));
}
