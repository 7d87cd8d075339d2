//! AutoThrottle in the engine.

use super::world::*;
use crate::base::ids::ScopeSet;
use crate::throttle::settings::{AutoThrottle, AutoThrottleMode, ScopePatch, ThrottleSettings};

fn auto(target_concurrency: f64, concurrency: u32, floor: f64) -> ThrottleSettings {
    let mut settings = pace(concurrency, floor, 0.0);
    settings.default.autothrottle = Some(AutoThrottle {
        start_delay: secs(0.5),
        target_concurrency,
        ..AutoThrottle::default()
    });
    settings
}

#[test]
fn f82_latency_changes_nothing_with_autothrottle_off() {
    let mut world = World::new(pace(1, 0.2, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 50, page(0.001));
    world.run(at(60.0));
    assert!(
        world
            .gaps(lane)
            .iter()
            .all(|gap| (0.2..0.2001).contains(gap))
    );
}

#[test]
fn f83_the_first_request_departs_at_once_and_the_second_after_the_start_delay() {
    let mut settings = auto(1.0, 8, 0.0);
    settings.default.autothrottle = Some(AutoThrottle::default());
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    // No answer arrives before the second is due: it waits for the start delay.
    world.queue(lane, 2, page(30.0));
    world.run(at(60.0));
    assert_eq!(world.sent(lane), [at(0.0), at(5.0)]);
}

#[test]
fn f84_the_rate_settles_at_target_concurrency_over_latency() {
    for (target, rate) in [(1.0, 10.0), (2.0, 20.0), (4.0, 40.0), (0.5, 5.0)] {
        let mut world = World::new(auto(target, 8, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 10_000, page(0.1));
        world.run(at(20.0));
        let before = world.sent(lane).len();
        world.run(at(60.0));
        let settled = (world.sent(lane).len() - before) as f64 / 40.0;
        assert!((settled / rate - 1.0).abs() < 0.02, "{settled} of {rate}");
    }
}

#[test]
fn f86_fast_errors_do_not_speed_up_and_slow_ones_slow_down() {
    let mut settings = auto(1.0, 8, 0.0);
    let auto = settings.default.autothrottle.as_mut();
    auto.expect("it is on").mode = AutoThrottleMode::Scrapy;
    settings.default.backoff.enabled = false;
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    let scope = world.throttle.scope("a.test");
    let error = Page {
        status: 503,
        ..page(0.001)
    };
    world.queue(lane, 20, error);
    world.run(at(30.0));
    assert_eq!(world.throttle.pace(scope).delay, secs(0.5));
    world.queue(
        lane,
        1,
        Page {
            status: 503,
            ..page(2.0)
        },
    );
    world.run(at(60.0));
    assert_eq!(world.throttle.pace(scope).delay, secs(2.0));
}

#[test]
fn f88_a_target_above_the_cap_is_limited_by_the_cap() {
    let mut world = World::new(auto(16.0, 8, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 5000, page(0.1));
    world.run(at(60.0));
    assert_eq!(world.peak("a.test"), 8);
}

#[test]
fn f91_a_scopes_own_delay_is_the_floor_of_autothrottle() {
    let mut settings = auto(1.0, 8, 0.0);
    let patch = ScopePatch {
        delay: Some(secs(1.0)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("a.test".to_owned(), patch);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 60, page(0.001));
    world.run(at(120.0));
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 1.0));
}

#[test]
fn f93_autothrottle_stays_below_the_caps_of_host_and_address() {
    let mut settings = auto(8.0, 2, 0.0);
    settings.concurrent_requests_per_ip = 3;
    let mut world = World::new(settings);
    let address = "127.0.0.9".parse().expect("an address");
    for i in 0..4 {
        let host = world.throttle.scope(&format!("h{i}.test"));
        let ip = world.throttle.address_scope(address).expect("it is on");
        let lane = world.throttle.open_lane(&ScopeSet::ordered([host, ip]));
        world.queue(lane, 200, page(0.1));
    }
    world.run(at(30.0));
    assert_eq!(world.peak("ip/127.0.0.9"), 3);
    assert!((0..4).all(|i| world.peak(&format!("h{i}.test")) <= 2));
}
