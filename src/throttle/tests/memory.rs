//! Eviction of unused scopes.

use std::time::Duration;

use super::world::*;
use crate::base::ids::ScopeSet;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::engine::Throttle;
use crate::throttle::settings::{Oversize, Quota, WindowKind};
use crate::throttle::signal::Signal;

/// Fetches one page of each of `hosts` hosts, a millisecond apart; returns the peak number of
/// scopes.
fn visit_hosts(throttle: &mut Throttle, hosts: u32) -> usize {
    let mut now = Instant::START;
    let mut most = 0;
    let signal = Signal {
        status: Some(200),
        ..Signal::default()
    };
    for host in 0..hosts {
        now += Duration::from_millis(1);
        let scope = throttle.scope(&format!("h{host}.test"));
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        throttle.offer(lane, now);
        answer_all(throttle, now, |throttle, ticket| {
            throttle.answer(ticket, u64::from(host), &signal, now);
        });
        throttle.close_lane(lane, now);
        most = most.max(throttle.scopes_len());
    }
    most
}

#[test]
fn f76_of_a_million_consecutive_hosts_only_those_within_their_gap_are_kept() {
    let mut throttle = Throttle::new(pace(1, 1.0, 0.0), 1, Instant::START);
    let most = visit_hosts(&mut throttle, 1_000_000);
    // A thousand of them per second, and a gap of 1 s.
    assert!((900..=1100).contains(&most), "{most}");
}

#[test]
fn f76_a_hold_outlives_its_lane() {
    let mut world = World::new(pace(1, 0.0, 0.0));
    let lane = world.origin("a.test", script([Reply::new(429, 0.0).retry_after(100.0)]));
    world.queue(lane, 1, page(0.0));
    world.run(at(1.0));
    world.leave(lane);
    world.run(at(50.0));
    let lane = world.lane_again("a.test");
    world.queue(lane, 1, page(0.0));
    world.run(at(200.0));
    assert_eq!(world.arrivals("a.test"), [0.0, 100.0]);
    world.leave(lane);
    world.run(at(20_000.0));
    assert_eq!(world.throttle.scopes_len(), 0);
}

#[test]
fn f76_a_spent_quota_outlives_its_lane() {
    let mut settings = pace(1, 0.0, 0.0);
    settings.default.quota = Some(Quota {
        units: 2.0,
        window: secs(60.0),
        kind: WindowKind::Fixed,
        oversize: Oversize::Alone,
    });
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([]));
    world.queue(lane, 2, page(0.0));
    world.run(at(1.0));
    world.leave(lane);
    world.run(at(30.0));
    let lane = world.lane_again("a.test");
    world.queue(lane, 1, page(0.0));
    world.run(at(200.0));
    assert_eq!(world.arrivals("a.test"), [0.0, 0.0, 60.0]);
    world.leave(lane);
    world.run(at(1000.0));
    assert_eq!(world.throttle.scopes_len(), 0);
}

#[test]
fn f76_a_learned_limit_is_restored_with_its_scope() {
    let mut world = World::new(pace(8, 0.0, 0.0));
    let lane = world.origin("a.test", bucket(5.0, 1.0));
    world.queue(lane, 1500, page(0.02));
    world.run(at(1000.0));
    let before = world.delay("a.test");
    assert!((0.19..0.25).contains(&before), "{before}");
    world.leave(lane);
    world.run(at(10_000.0));
    assert_eq!(world.throttle.scopes_len(), 0, "only the record is left");
    let lane = world.lane_again("a.test");
    assert_eq!(world.delay("a.test"), before);
    world.queue(lane, 1500, page(0.02));
    world.run(at(10_120.0));
    let (from, to) = (at(10_000.0), at(10_120.0));
    let served = world.served("a.test", from, to);
    let refused = world.visits("a.test").iter();
    let refused = refused
        .filter(|v| v.at >= from && v.status != Some(200))
        .count();
    assert!(served >= 540 && refused <= 4, "{served} and {refused}");
}

#[test]
fn a_learned_limit_of_an_evicted_scope_is_forgotten_with_those_of_its_pattern() {
    let check = |forgotten: &str, expected: bool| {
        let mut world = World::new(pace(8, 0.0, 0.0));
        let lane = world.origin("a.test", bucket(5.0, 1.0));
        world.queue(lane, 1500, page(0.02));
        world.run(at(1000.0));
        world.leave(lane);
        world.run(at(10_000.0));
        assert_eq!(world.throttle.scopes_len(), 0, "only the record is left");
        world.throttle.forget(forgotten, world.now);
        let lane = world.lane_again("a.test");
        world.queue(lane, 1500, page(0.02));
        assert_eq!(world.delay("a.test") == 0.0, expected, "{forgotten}");
        // What it learns after the order is kept.
        world.run(at(11_000.0));
        let learned = world.delay("a.test");
        world.leave(lane);
        world.run(at(20_000.0));
        assert_eq!(world.throttle.scopes_len(), 0);
        world.lane_again("a.test");
        assert_eq!(world.delay("a.test"), learned);
    };
    check("*.test", true);
    check("default", true);
    check("*.other.test", false);
    check("ip/*", false);
}

#[test]
fn each_answer_is_counted_once_for_any_end_of_its_body() {
    let mut world = World::new(pace(1, 0.1, 0.0));
    let mut silent = Reply::new(200, 0.01);
    silent.signal.status = None;
    silent.signal.failure = Some(FailureKind::Reset);
    let mut broken = Reply::new(200, 0.01);
    broken.breaks = true;
    let mut refused = Reply::new(503, 0.01);
    refused.breaks = true;
    let good = [200, 404].map(|status| Reply::new(status, 0.01));
    let lane = world.origin(
        "a.test",
        script(good.into_iter().chain([silent, broken, refused])),
    );
    world.queue(lane, 5, page(0.01));
    world.run(at(60.0));
    assert_eq!(world.visits("a.test").len(), 5);
    let accounts = world.throttle.accounts();
    let counts: Vec<(u64, u64)> = accounts.map(|a| (a.replies, a.refused)).collect();
    assert_eq!(counts, [(5, 3)], "replies, and refusals among them");
}
