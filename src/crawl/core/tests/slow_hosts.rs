//! Hosts with long delays leave memory to others that wait on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::base::keys::OriginKey;
use crate::crawl::config::Config;
use crate::crawl::core::tests::trial::{config, run_for, web_resolver};
use crate::crawl::journal::state::State;
use crate::crawl::{Crawler, Parts, Turn};
use crate::frontier::LongestQueues;
use crate::frontier::request::Request;
use crate::io::sim::web::{Reply, Web};
use crate::io::sim::{Faults, Sim};
use crate::io::{Io, IoSettings};
use crate::sink::NullSink;
use crate::throttle::settings::ScopePatch;

const SLOW: u64 = 40;
const FAST: u64 = 4;
const PAGES: u64 = 40;

/// A crawl with a state and little memory.
fn crawl(web: &Web, edit: impl FnOnce(&mut Config)) -> Crawler<Sim> {
    let mut config = config(1);
    config.frontier.robots_obey = false;
    config.frontier.memory_max = 20_000;
    config.throttle.default.delay = Duration::from_millis(500);
    config.throttle.default.concurrency = 1;
    edit(&mut config);
    let state = State::new(Path::new("out"), "{}".to_owned(), [3; 16]).expect("it is short");
    let mut io = Sim::with(1, IoSettings::default(), Faults::default(), web.world());
    let mut files = BTreeMap::new();
    state.beginning().write_to(&mut files);
    io.put_files(files);
    let resolver = web_resolver();
    let mut parts = Parts::new(NullSink);
    parts.state = Some(state);
    let config = config.finish().expect("a sound config");
    Crawler::on(io, config, resolver, parts).expect("a crawler")
}

/// How many requests each host had after so long, none of them twice, when the slow ones have this delay and came first.
fn asked_after(time: Duration, delay: Duration) -> BTreeMap<String, u64> {
    let web = Web::new(|_| Reply::text(""));
    let mut crawler = crawl(&web, |config| {
        for host in 0..SLOW {
            let patch = ScopePatch {
                delay: Some(delay),
                ..ScopePatch::default()
            };
            let scopes = &mut config.throttle.scopes;
            scopes.insert(format!("slow{host}.test"), patch);
        }
    });
    let slow = (0..SLOW).map(|host| format!("slow{host}.test"));
    let hosts: Vec<String> = slow
        .chain((0..FAST).map(|host| format!("fast{host}.test")))
        .collect();
    for host in &hosts {
        for page in 0..PAGES {
            let request = Request::get(format!("http://{host}/{page}"));
            crawler.submit(request).expect("it is a URL");
        }
    }
    let end = crawler.io().now() + time;
    while crawler.io().now() < end && crawler.turn(None) == Turn::GoesOn {}
    let mut pages = BTreeSet::new();
    let mut counts = BTreeMap::new();
    for asked in web.asked() {
        let is_new = pages.insert((asked.host.clone(), asked.target.clone()));
        assert!(is_new, "{}{} is asked once", asked.host, asked.target);
        *counts.entry(asked.host).or_default() += 1;
    }
    counts
}

#[test]
fn requests_that_left_memory_are_sent_once_each() {
    let delay = Duration::from_secs(60);
    let counts = asked_after(delay * (PAGES as u32 + 10), delay);
    assert_eq!(counts.len() as u64, SLOW + FAST);
    assert!(counts.values().all(|count| *count == PAGES), "{counts:?}");
}

#[test]
fn hosts_on_disk_keep_their_pace_beside_many_with_long_delays() {
    for delay in [Duration::from_secs(60), Duration::from_secs(3600)] {
        let counts = asked_after(Duration::from_secs(300), delay);
        for host in 0..FAST {
            let count = counts.get(&format!("fast{host}.test")).copied();
            assert_eq!(count, Some(PAGES), "{delay:?}: {counts:?}");
        }
        let slow = (0..SLOW).map(|host| counts.get(&format!("slow{host}.test")));
        let least = slow.map(|count| count.copied().unwrap_or(0)).min();
        let due = 300 / delay.as_secs() * 3 / 4;
        assert!(least >= Some(due.max(1)), "{delay:?}: {counts:?}");
    }
}

#[test]
fn what_rests_in_a_file_goes_on_once_the_pace_that_was_learned_is_forgotten() {
    for name in ["busy.test", "*.test", "default"] {
        let mut is_first = true;
        let web = Web::new(move |asked| {
            let is_refused = asked.host == "busy.test" && std::mem::take(&mut is_first);
            match is_refused {
                true => Reply::status(429),
                false => Reply::text(""),
            }
        });
        let mut crawler = crawl(&web, |config| {
            let backoff = &mut config.throttle.default.backoff;
            backoff.min_delay = Duration::from_secs(3600);
            backoff.max_delay = Duration::from_secs(7200);
        });
        let handle = crawler.handle();
        let busy = |page: u64| Request::get(format!("http://busy.test/{page}"));
        for page in 0..PAGES {
            crawler.submit(busy(page)).expect("it is a URL");
        }
        for page in 0..PAGES {
            for host in 0..SLOW {
                let request = Request::get(format!("http://other{host}.test/{page}"));
                crawler.submit(request).expect("it is a URL");
            }
        }
        run_for(&mut crawler, Duration::from_secs(10));
        let sent = |web: &Web| {
            web.asked()
                .iter()
                .filter(|asked| asked.host == "busy.test")
                .count()
        };
        assert_eq!(sent(&web), 1, "{name}: its delay is long");
        let core = &crawler.core;
        let resting = core.spill.len();
        assert!(resting > PAGES as usize, "{name}: {resting} wait in files");
        handle.forget(name).expect("it is a scope");
        run_for(&mut crawler, Duration::from_secs(60));
        assert_eq!(sent(&web), PAGES as usize + 1, "{name}");
    }
}

#[test]
fn the_longest_queue_is_that_with_most_requests_in_memory_and_in_files() {
    let web = Web::new(|_| Reply::text("").after(Duration::from_secs(5)));
    let mut crawler = crawl(&web, |_| {});
    let many = (0..2_000).map(|page| format!("http://many.test/{page}"));
    let few =
        (0..20).flat_map(|host| (0..30).map(move |page| format!("http://few{host}.test/{page}")));
    for url in few.chain(many) {
        crawler.submit(Request::get(url)).expect("it is a URL");
    }
    run_for(&mut crawler, Duration::from_secs(60));
    let core = &crawler.core;
    let in_files = |origin: OriginKey| core.spill.requests_of(origin.0);
    let mut search = LongestQueues::new(3);
    while !(core.frontier).advance_longest(&mut search, |_| true, Some(&in_files)) {}
    let queues = core.frontier.longest(search, |_| true, Some(&in_files));
    assert_eq!(queues[0].origin, "http://many.test", "{queues:?}");
    let queued = core.frontier.lane_view(queues[0].lane).queued;
    let all = queued as u64 + queues[0].elsewhere;
    assert!(queued < 1_000, "most wait in files: {queued}");
    assert!((1_000..3_000).contains(&all), "{all}");
}
