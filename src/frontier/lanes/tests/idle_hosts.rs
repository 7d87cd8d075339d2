//! Hosts with nothing queued: they are forgotten, and what must outlive that does.

use super::*;
use crate::frontier::hosts::HostVerdict;
use crate::frontier::settings::HostPolicy;

const HOUR: Duration = Duration::from_secs(3600);

impl Bench {
    /// Ends a turn.
    fn turn(&mut self) {
        self.frontier.update_hosts(false, self.now);
    }

    /// Ends turns until no host is idle.
    fn turns(&mut self) {
        for _ in 0..100 {
            self.turn();
        }
    }

    fn link(&mut self, url: &str) -> Result<(), Filtered> {
        self.admit(url, false)
    }

    fn sitemap(&mut self, url: &str) -> Admission {
        let url = CrawlUrl::parse(url).expect(url);
        let offer = Offer {
            url: &url,
            kind: PageKind::Sitemap,
            depth: 1,
            priority: 0,
            nesting: 1,
            seed: false,
        };
        self.frontier.offer(&offer, self.now)
    }

    /// Crawls a URL and evicts its host.
    fn visit(&mut self, url: &str) {
        self.admit(url, true).expect("new");
        assert_eq!(self.all_sent(), [url]);
        self.turns();
        assert_eq!(self.frontier.hosts_len(), 0);
    }
}

impl Frontier {
    /// Asserts that no host is in memory without a reason; returns how many are about to be forgotten.
    pub(crate) fn check_hosts(&self) -> usize {
        let proxies = self.routes.values().filter_map(|own| own.proxy_host);
        let users = self
            .origins
            .hosts()
            .chain(proxies)
            .chain(self.proxy_hosts.into_iter().flatten());
        self.hosts.check(users)
    }
}

fn without_robots() -> FrontierSettings {
    FrontierSettings {
        robots_obey: false,
        ..FrontierSettings::default()
    }
}

#[test]
fn a_host_is_evicted_once_nothing_is_queued_or_in_flight() {
    let mut bench = Bench::new(without_robots());
    bench.admit("http://a.test/", true).expect("new");
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1, "queued");
    let (lane, job) = bench.sent().expect("it is sent");
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1, "in flight");
    let origin = bench.frontier.hold_origin(lane);
    bench.end(lane, &job, true);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1, "a connection is open");
    bench.frontier.release_origin(origin, bench.now);
    assert_eq!(bench.frontier.hosts_len(), 1, "no turn has ended");
    bench.turn();
    assert_eq!(bench.frontier.hosts_len(), 0);
}

#[test]
fn numbers_of_forgotten_hosts_are_reused_and_few_are_forgotten_per_turn() {
    let mut bench = Bench::new(without_robots());
    for round in 0..10 {
        for number in 0..1000 {
            let url = format!("http://h{number}-{round}.test/");
            bench.admit(&url, true).expect("new");
        }
        assert_eq!(bench.all_sent().len(), 1000);
        bench.turn();
        assert_eq!(bench.frontier.hosts_len(), 1000 - FORGOTTEN_PER_TURN);
        bench.turns();
        assert_eq!(bench.frontier.hosts_len(), 0);
        let last = bench.frontier.hosts.host("last.test");
        assert!(last.0 < 1001);
        bench.frontier.hosts.hold(last);
        bench.frontier.hosts.release(last);
        bench.turn();
    }
}

#[test]
fn pages_of_a_forgotten_host_count_against_its_limit() {
    let mut bench = Bench::new(FrontierSettings {
        pages_per_host_max: 3,
        ..without_robots()
    });
    bench.visit("http://a.test/1");
    bench.visit("http://other.test/");
    bench.visit("http://a.test/2");
    bench.link("http://a.test/3").expect("below the limit");
    bench.admit("http://a.test/4", true).expect("a seed");
    let (lane, job) = bench.sent().expect("the third page");
    assert!(bench.sent().is_none(), "the third is in flight");
    bench.end(lane, &job, true);
    let (_, next) = bench.next().expect("the fourth URL");
    assert!(
        matches!(next, Next::Unsent(_, Unsent::HostPages)),
        "{next:?}"
    );
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 0);
    assert_eq!(bench.link("http://a.test/5"), Err(Filtered::HostPages));
    assert_eq!(bench.frontier.hosts_len(), 0, "a filter adds no host");
    assert_eq!(bench.link("http://other.test/2"), Ok(()));
}

#[test]
fn a_forgotten_host_of_a_seed_is_still_followed_and_no_other_is() {
    let mut bench = Bench::new(without_robots());
    bench.visit("http://a.test/");
    // Another host gets its number.
    bench.visit("http://b.test/");
    assert_eq!(bench.link("http://a.test/1"), Ok(()));
    assert_eq!(bench.all_sent().len(), 1);
    bench.turns();
    assert_eq!(bench.link("http://a.test/2"), Ok(()));
    assert_eq!(bench.link("http://c.test/"), Err(Filtered::Offsite));
    let url = CrawlUrl::parse("http://d.test/").expect("a URL");
    bench.frontier.mark_seen(&url, true);
    assert_eq!(bench.link("http://d.test/1"), Ok(()), "a seed's redirect");
}

#[test]
fn sitemaps_of_a_forgotten_host_count_against_its_limit() {
    let mut bench = Bench::new(FrontierSettings {
        sitemaps_per_host_max: 2,
        ..without_robots()
    });
    bench.visit("http://a.test/");
    for number in 0..2 {
        let url = format!("http://a.test/{number}.xml");
        assert_eq!(bench.sitemap(&url), Admission::Admitted);
        bench.visit(&format!("http://a.test/{number}"));
    }
    let last = bench.sitemap("http://a.test/2.xml");
    assert_eq!(last, Admission::Filtered(Filtered::HostSitemaps.into()));
}

#[test]
fn failures_of_an_idle_host_are_kept_for_15_min_after_its_hold() {
    let mut bench = Bench::new(FrontierSettings {
        hosts: HostPolicy {
            down_after: HOUR,
            ..HostPolicy::default()
        },
        ..without_robots()
    });
    bench.admit("http://a.test/", true).expect("new");
    let (lane, job) = bench.sent().expect("it is sent");
    for _ in 0..4 {
        let verdict = bench.frontier.host_failed(lane, bench.now);
        assert_eq!(verdict, HostVerdict::Counted);
    }
    let held = bench.frontier.host_failed(lane, bench.now);
    assert_eq!(held, HostVerdict::Held(Duration::from_secs(5)));
    bench.end(lane, &job, false);
    let began = bench.now;
    bench.now = began + Duration::from_secs(15 * 60 + 4);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1);
    bench.admit("http://a.test/2", true).expect("new");
    let (lane, job) = bench.sent().expect("its hold is over");
    let held = bench.frontier.host_failed(lane, bench.now);
    assert_eq!(held, HostVerdict::Held(Duration::from_secs(10)), "doubled");
    bench.now += 10 * HOUR;
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1, "it is in use");
    bench.end(lane, &job, false);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1, "looked at every 15 min");
    bench.now += Duration::from_secs(15 * 60);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 0);
    bench.admit("http://a.test/3", true).expect("new");
    let (lane, _) = bench.sent().expect("it is sent");
    let verdict = bench.frontier.host_failed(lane, bench.now);
    assert_eq!(verdict, HostVerdict::Counted, "a new row of failures");
}

#[test]
fn a_failed_host_is_not_evicted_while_it_is_unresponsive() {
    let mut bench = Bench::new(without_robots());
    bench.admit("http://a.test/", true).expect("new");
    let (lane, job) = bench.sent().expect("it is sent");
    bench.frontier.host_unroutable(lane, bench.now);
    bench.end(lane, &job, false);
    bench.now += Duration::from_secs(30 * 60 - 1);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 1);
    bench.now += Duration::from_secs(1);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 0);
}

#[test]
fn a_proxy_of_a_lane_is_held_with_it() {
    let mut bench = Bench::new(without_robots());
    let proxy = Arc::new("http://p.test:1".parse::<Proxy>().expect("a proxy"));
    let url = CrawlUrl::parse("http://a.test/").expect("a URL");
    let mut job = Job::seed(1, url);
    job.extra_mut().route = Some(Box::new(Route::Proxy(proxy)));
    bench.push(job);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 2);
    let (lane, job) = bench.sent().expect("it is sent");
    bench.frontier.host_connected(lane);
    bench.end(lane, &job, true);
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 0);
}

#[test]
fn origins_kept_for_their_robots_txt_are_forgotten_when_it_expires_and_before_when_too_many() {
    let mut bench = Bench::new(FrontierSettings {
        robots_memory: 1,
        ..FrontierSettings::default()
    });
    for number in 0..300 {
        let url = format!("http://h{number}.test/");
        bench.admit(&url, true).expect("new");
        let (lane, job) = bench.sent().expect("robots.txt");
        let origin = job.robots_for().expect("it is for an origin");
        bench.robots_arrived(origin, RobotsResult::Absent);
        bench.end(lane, &job, false);
        assert_eq!(bench.all_sent(), [url]);
        bench.now += Duration::from_secs(1);
        bench.turn();
    }
    assert_eq!(bench.frontier.hosts_len(), 256);
    assert_eq!(bench.link("http://h299.test/again"), Ok(()));
    assert_eq!(
        bench.all_sent(),
        ["http://h299.test/again"],
        "without a robots.txt"
    );
    bench.now += 24 * HOUR;
    // No other lane closes.
    bench.turns();
    assert_eq!(bench.frontier.hosts_len(), 0);
}
