//! The frontier alone: what is next in a lane, and what keeps it.

use std::sync::Arc;

use super::*;
use crate::throttle::engine::{Grant, TicketId};
use crate::throttle::settings::{Jitter, ScopeSettings, Settings as Pace};
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
            frontier: Frontier::new(settings),
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
                self.frontier.go_on(lane, &mut self.throttle, self.now);
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
        let origin = job.extra.as_ref().and_then(|extra| extra.robots_for);
        let rules = RobotsFile::parse(file.as_bytes()).agent("argiope");
        self.frontier.robots_arrived(
            origin.expect("it is for an origin"),
            Brought::Rules(Arc::new(rules)),
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
    let origin = job.extra.as_ref().and_then(|extra| extra.robots_for);
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
        bench.admit("http://a.test/1", false),
        Err(Filtered::FrontierFull)
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
    assert_eq!(until, Instant::START + Duration::from_secs(15 * 60));
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
    let mut frontier = Frontier::new(Settings::default());
    let mut throttle = Throttle::new(Pace::default(), 1, now);
    let scope = throttle.scope("a.test");
    for n in 0..5 {
        let url = CrawlUrl::parse(&format!("http://a.test/{n}")).expect("a URL");
        let job = Job::seed(n + 1, url);
        frontier.push(job, &ScopeSet::ordered([scope]), &mut throttle, now);
        let url = CrawlUrl::parse("http://a.test/").expect("a URL");
        let lane = frontier.lane(&url, &ScopeSet::ordered([scope]), &mut throttle);
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
fn lanes_of_one_origin_are_told_apart_by_their_scopes_and_found_again() {
    let now = Instant::START;
    let mut frontier = Frontier::new(Settings::default());
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
        .map(|set| frontier.lane(&url, set, &mut throttle))
        .collect();
    assert_eq!(lanes, (0..5).map(LaneId).collect::<Vec<_>>());
    // The first goes, and another, and comes again: the others stay who they are.
    frontier.go_on(lanes[0], &mut throttle, now);
    frontier.go_on(lanes[2], &mut throttle, now);
    assert_eq!(frontier.lanes_open(), 3);
    let again = frontier.lane(&url, &sets[2], &mut throttle);
    assert_eq!(again, lanes[2]);
    for (set, lane) in sets.iter().zip(&lanes).skip(1) {
        assert_eq!(frontier.lane(&url, set, &mut throttle), *lane);
    }
    for lane in &lanes[1..] {
        frontier.go_on(*lane, &mut throttle, now);
    }
    assert_eq!(frontier.lanes_open(), 0);
    assert!(frontier.lane_of.is_empty());
}
