//! Crawls that together set and fire every timer.

use std::time::Duration;

use super::adversity::FaultyServers;
use super::trial::{calm, config, crawl, crawl_from, get, run_for};
use super::watch::Watch;
use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::crawl::control::feed::{EndedRequest, RequestSource, SourceError, SourcePoll, Wake};
use crate::crawl::journal::state::State;
use crate::crawl::probe::{Length, Probe, ProbeSettings};
use crate::crawl::timer::Timer;
use crate::crawl::{Crawler, Parts, Turn};
use crate::fetch::resolver;
use crate::frontier::request::Request;
use crate::io::sim::{Origins, Sim};
use crate::sink::page::Page;

/// A source of a few requests, one per second.
struct Slow(u32);

impl RequestSource for Slow {
    fn next(&mut self, _wake: &Wake) -> Result<SourcePoll, SourceError> {
        self.0 += 1;
        Ok(match self.0 {
            9.. => SourcePoll::Finished,
            n if n % 2 == 0 => SourcePoll::Later(Duration::from_secs(1)),
            n => SourcePoll::Request(get(1, n)),
        })
    }

    fn ended(&mut self, _ended: &EndedRequest<'_>) {}
}

#[test]
fn every_timer_is_set_and_fires() {
    let mut watch = Watch::default();
    // Refused connections, timeouts, names without an answer, late admission.
    let (mut crawler, _, _) = crawl(FaultyServers::new(8), 1, |config, _| {
        config.throttle.default.delay = Duration::from_millis(300);
        config.frontier.robots_obey = true;
    });
    crawler.delay_admission(1);
    for page in 0..60 {
        crawler.submit(get(page % 9, page)).expect("a request");
    }
    let unknown = Request::get("http://nowhere.test/");
    crawler.submit(unknown).expect("a request");
    watch.run(&mut crawler);
    // A source that has no request at times.
    let source: Box<dyn RequestSource> = Box::new(Slow(0));
    let (mut crawler, _) = crawl_from(Some(source), calm(Duration::from_millis(5)), 1, |_, _| {});
    watch.run(&mut crawler);
    // A redirect with Retry-After, a sink that is full at times, and a time limit.
    let mut origins = Origins::default();
    let later =
        b"HTTP/1.1 302 Found\r\nretry-after: 60\r\nlocation: /99\r\ncontent-length: 0\r\n\r\n";
    let at = "10.0.0.1:80".parse().expect("an address");
    origins.reply(at, "/1", Duration::from_millis(5), later);
    let world = Shared::new(origins);
    let (mut crawler, _, record) = crawl(world, 1, |config, _| {
        config.max_time = Some(Duration::from_secs(100));
        config.throttle.default.delay = Duration::from_secs(7);
    });
    for page in 1..30 {
        crawler.submit(get(1, page)).expect("a request");
    }
    let mut rng = Rng::from_seed(1);
    while watch.turn(&mut crawler, None) == Turn::GoesOn {
        record.change_room(&mut rng);
    }
    // A stop whose grace time is shorter than a reply.
    let (mut crawler, _, _) = crawl(calm(Duration::from_secs(50)), 1, |_, _| {});
    crawler.submit(get(1, 1)).expect("a request");
    run_for(&mut crawler, Duration::from_secs(1));
    crawler.stopper().shutdown(Duration::from_secs(2));
    watch.run(&mut crawler);
    // More bytes than may be received in a second.
    let (mut crawler, _, _) = crawl(calm(Duration::from_millis(5)), 1, |config, _| {
        config.bytes_per_second_max = 10;
    });
    for page in 1..5 {
        crawler.submit(get(1, page)).expect("a request");
    }
    watch.run(&mut crawler);
    // Requests at a fixed rate.
    let settings = ProbeSettings {
        rate: 100.0,
        length: Some(Length::Requests(20)),
        ..ProbeSettings::default()
    };
    let io = Sim::new(1, Box::new(calm(Duration::from_millis(5))));
    let names = resolver::ResolverSettings::default();
    let mut probe = Probe::on(io, names, config(1), settings, &[get(1, 1)], |_: Page| {})
        .expect("it can be set up");
    watch.run(probe.crawler_mut());
    // A state on disk, to which more is recorded before it is handed over again.
    let io = Sim::new(1, Box::new(calm(Duration::from_millis(1))));
    let mut parts = Parts::new(|_: Page| {});
    let state = State::new("out".as_ref(), String::new(), [1; 16]);
    parts.state = Some(state.expect("it is short"));
    let names = resolver::ResolverSettings::default();
    let mut config = config(1);
    config.throttle.default.delay = Duration::from_millis(3);
    config.state_sync = Duration::from_millis(50);
    let mut crawler = Crawler::on(io, config, names, parts).expect("it can be set up");
    for page in 1..300 {
        crawler.submit(get(page % 6, page)).expect("a request");
    }
    watch.run(&mut crawler);
    let missing: Vec<Timer> = Timer::ALL
        .into_iter()
        .filter(|timer| !watch.fired.contains(timer))
        .collect();
    assert_eq!(missing, [], "never set, or never fired");
}
