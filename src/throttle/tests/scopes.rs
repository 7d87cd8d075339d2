//! Several scopes, and several scopes of one request.

use std::time::Duration;

use super::world::*;
use crate::base::ids::ScopeSet;
use crate::throttle::engine::{Grant, Throttle};
use crate::throttle::settings::{ScopePatch, ThrottleSettings};

#[test]
fn f07_an_apex_and_its_subdomains_are_paced_apart() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lanes = ["a.test", "b.a.test", "c.a.test"].map(|name| world.lane(&[name]));
    for lane in lanes {
        world.queue(lane, 10, page(0.05));
    }
    world.run(at(9.0));
    assert!(lanes.iter().all(|lane| world.sent(*lane).len() == 10));
}

#[test]
fn f76_an_unused_scope_is_evicted_once_its_gap_is_over() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.01));
    world.run(at(0.5));
    world.throttle.close_lane(lane, world.now);
    assert_eq!(world.throttle.scopes_len(), 1);
    world.run(at(0.9));
    assert_eq!(world.throttle.scopes_len(), 1);
    world.run(at(1.1));
    assert_eq!(world.throttle.scopes_len(), 0);
}

#[test]
fn f12_keys_missing_in_a_scope_come_from_the_globals() {
    let mut settings = pace(3, 1.0, 0.0);
    let patch = ScopePatch {
        delay: Some(Duration::ZERO),
        ..ScopePatch::default()
    };
    settings.scopes.insert("a.test".to_owned(), patch);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 30, page(0.1));
    world.run(at(10.0));
    assert_eq!(world.peak("a.test"), 3);
}

#[test]
fn f13_the_example_scope_has_sixteen_slots_and_no_delay() {
    let mut world = World::new(ThrottleSettings::default());
    let lane = world.lane(&["quotes.toscrape.com"]);
    let other = world.lane(&["other.test"]);
    world.queue(lane, 100, page(0.1));
    world.queue(other, 3, page(0.1));
    world.run(at(4.0));
    assert_eq!(world.peak("quotes.toscrape.com"), 16);
    assert_eq!(world.sent(lane).len(), 100);
    assert_eq!(world.peak("other.test"), 1);
}

#[test]
fn f16_a_request_waits_for_the_slower_of_its_scopes() {
    let mut settings = pace(8, 0.0, 0.0);
    let slow = ScopePatch {
        delay: Some(secs(0.5)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("users".to_owned(), slow);
    let mut world = World::new(settings);
    let both = world.lane(&["api", "users"]);
    let one = world.lane(&["api"]);
    world.queue(both, 10, page(0.01));
    world.queue(one, 100, page(0.01));
    world.run(at(10.0));
    assert!(
        world
            .gaps(both)
            .iter()
            .all(|gap| (0.5..0.501).contains(gap))
    );
    assert_eq!(world.sent(one).len(), 100);
}

#[test]
fn f18_without_scopes_only_the_global_cap_holds() {
    let mut settings = pace(1, 1.0, 1.0);
    settings.concurrent_requests = 5;
    let mut world = World::new(settings);
    let lane = world.lane(&[]);
    world.queue(lane, 100, page(0.1));
    world.run(at(3.0));
    assert_eq!(world.sent(lane).len(), 100);
    assert_eq!(world.total.1, 5);
}

#[test]
fn f21_slots_in_several_scopes_are_taken_together_and_none_leaks() {
    let mut settings = pace(3, 0.001, 0.0);
    settings.concurrent_requests = 20;
    let mut world = World::new(settings);
    let mut rng = crate::base::rng::Rng::from_seed(11);
    let mut lanes = Vec::new();
    for _ in 0..100 {
        let count = 2 + rng.below(4);
        let names: Vec<String> = (0..count).map(|_| format!("s{}", rng.below(12))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        lanes.push(world.lane(&names));
    }
    for lane in &lanes {
        for _ in 0..100 {
            let random = Page {
                setup: secs(rng.range_f64(0.0, 0.01)),
                takes: secs(rng.range_f64(0.0, 0.02)),
                fails_setup: rng.chance(0.1),
                ..page(0.0)
            };
            world.queue(*lane, 1, random);
        }
    }
    world.run(at(600.0));
    let sent: usize = lanes.iter().map(|lane| world.sent(*lane).len()).sum();
    assert_eq!(sent, 10_000);
    assert_eq!(world.throttle.in_flight(), 0);
    for (name, (now, peak)) in &world.in_flight {
        assert_eq!(*now, 0, "{name}");
        assert!(*peak <= 3, "{name}");
    }
}

#[test]
fn f29_an_address_caps_all_names_on_it() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests_per_ip = 2;
    let mut world = World::new(settings);
    let address = "127.0.0.9".parse().expect("an address");
    for i in 0..10 {
        let host = world.throttle.scope(&format!("h{i}.test"));
        let ip = world.throttle.address_scope(address).expect("it is on");
        let lane = world.throttle.open_lane(&ScopeSet::ordered([host, ip]));
        world.queue(lane, 10, page(0.05));
    }
    world.run(at(10.0));
    assert_eq!(world.peak("ip/127.0.0.9"), 2);
}

#[test]
fn the_next_lanes_are_released_next_and_listing_them_changes_nothing() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lanes = ["c.test", "a.test", "b.test"].map(|name| world.lane(&[name]));
    for lane in lanes {
        world.queue(lane, 2, page(0.01));
    }
    world.run(at(0.5));
    let later = at(1.5);
    for _ in 0..2 {
        assert!(world.throttle.coming(later).eq(lanes));
    }
    for lane in lanes {
        let released = world.throttle.poll(later);
        assert!(matches!(released, Some(Grant::Release(next, _)) if next == lane));
    }
    assert_eq!(world.throttle.coming(later).count(), 0);
}

#[test]
fn a_scope_is_added_to_a_released_request_only_with_a_free_slot() {
    let now = at(0.0);
    let mut throttle = Throttle::new(pace(1, 0.0, 0.0), 1, now);
    let [first, second] = ["first", "second"].map(|name| throttle.scope(name));
    let mut released = Vec::new();
    for id in [first, second] {
        let lane = throttle.open_lane(&ScopeSet::ordered([id]));
        throttle.offer(lane, now);
        match throttle.poll(now) {
            Some(Grant::Release(_, ticket)) => released.push(ticket),
            other => panic!("nothing keeps it: {other:?}"),
        }
    }
    let further = throttle.scope("further");
    assert!(throttle.try_add(released[0], further, now));
    assert!(
        throttle.try_add(released[0], further, now),
        "it has it already"
    );
    assert!(
        !throttle.try_add(released[1], further, now),
        "its slot is taken"
    );
    assert!(!throttle.try_add(released[1], first, now));
    throttle.cancel(released[0], now);
    // Scopes without state are evicted.
    let [first, further] = ["first", "further"].map(|name| throttle.scope(name));
    assert!(
        throttle.try_add(released[1], further, now),
        "it was given back"
    );
    assert!(throttle.try_add(released[1], first, now));
}
