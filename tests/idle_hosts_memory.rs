//! Memory of a host with nothing queued, in the frontier.
//! `cargo test --release --test idle_hosts_memory -- --nocapture` shows the figures; `IDLE_HOSTS=1000000`
//! sets the number of hosts.

#[expect(dead_code, reason = "others ask how often, and how much at the most")]
mod counting;

use std::time::Duration;

use argiope::base::ids::{LaneId, ScopeId, ScopeSet};
use argiope::base::secret::Secret;
use argiope::base::time::Instant;
use argiope::frontier::job::Job;
use argiope::frontier::offers::{Admission, Offer};
use argiope::frontier::request::PageKind;
use argiope::frontier::robots::RobotsResult;
use argiope::frontier::settings::{Follow, FrontierSettings};
use argiope::frontier::{Frontier, LaneChange, Next};
use argiope::wire::url::CrawlUrl;
use counting::{Counting, held};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes of the URL in the seen set: 8, in a table that is half full after it has grown.
const SEEN: f64 = 19.0;

#[test]
fn memory_of_an_idle_host_is_bounded() {
    // The shards of a table grow at different times, so the bounds are for the worst moment: 17 bytes per
    // slot, and half of the slots empty.
    let record = 37.0;
    check("without a record", nothing_counted(), SEEN + 1.0);
    check("with its pages", pages_counted(), SEEN + record);
    let seeds = FrontierSettings {
        follow: Follow::Host,
        ..pages_counted()
    };
    check("with its pages, of a seed", seeds, SEEN + record);
}

#[test]
fn memory_of_cached_robots_txt_is_bounded() {
    let kept = FrontierSettings {
        robots_obey: true,
        robots_memory: 160_000,
        ..nothing_counted()
    };
    // This memory holds a thousand of them, at 160 bytes each.
    check("with a robots.txt", kept.clone(), SEEN + 8.0);
    let kept = FrontierSettings {
        robots_memory: 256 << 20,
        ..kept
    };
    let each = bytes_per_host(&kept, 20_000);
    println!("kept for its robots.txt: {each:.0} bytes a host");
    assert!(each < SEEN + 160.0, "{each:.0}");
}

fn nothing_counted() -> FrontierSettings {
    FrontierSettings {
        follow: Follow::All,
        robots_obey: false,
        ..FrontierSettings::default()
    }
}

fn pages_counted() -> FrontierSettings {
    FrontierSettings {
        pages_per_host_max: 10,
        ..nothing_counted()
    }
}

fn check(name: &str, settings: FrontierSettings, bytes_max: f64) {
    let hosts = std::env::var("IDLE_HOSTS").map_or(100_000, |hosts| hosts.parse().expect("hosts"));
    let each = bytes_per_host(&settings, hosts);
    println!("{name}: {each:.1} bytes a host");
    assert!(each < bytes_max, "{name}: {each:.1} bytes a host");
}

/// Visits this many hosts one after the other, one page each.
fn bytes_per_host(settings: &FrontierSettings, hosts: u32) -> f64 {
    let mut frontier = Frontier::new(settings.clone(), &Secret::from_seed(1));
    let mut now = Instant::START;
    visit(&mut frontier, 0, now);
    let before = held();
    for number in 1..=hosts {
        now += Duration::from_millis(1);
        visit(&mut frontier, number, now);
    }
    (held() - before) as f64 / f64::from(hosts)
}

fn visit(frontier: &mut Frontier, number: u32, now: Instant) {
    let url = CrawlUrl::parse(&format!("http://domain-{number}.test/")).expect("a URL");
    let offer = Offer {
        url: &url,
        kind: PageKind::Page,
        depth: 0,
        priority: 0,
        nesting: 0,
        seed: true,
    };
    assert_eq!(frontier.offer(&offer, now), Admission::Admitted);
    let lane = LaneId(0);
    let scopes = ScopeSet::ordered([ScopeId(number)]);
    let id = frontier.number();
    let job = Job::seed(id, url);
    let query = frontier.lane_query(&job);
    let new = frontier.lane_for(query, &scopes);
    frontier.open_lane(new.expect_err("a lane of its own"), lane);
    frontier.push(lane, job);
    loop {
        frontier.released(lane, now);
        let Next::Send(job) = frontier.next(lane, now) else {
            panic!("nothing holds it");
        };
        if let Some(origin) = job.robots_for() {
            frontier.robots_arrived(1, origin, RobotsResult::Absent, now);
        }
        frontier.ended(lane, &job, true, now);
        frontier.offer_or_close(lane, now);
        let is_closed = |change: LaneChange| matches!(change, LaneChange::Close(_));
        if frontier.lane_changes().any(is_closed) {
            break;
        }
    }
    frontier.update_hosts(false, now);
}
