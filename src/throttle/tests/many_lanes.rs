//! Very many lanes that wait: what a request of another costs, and what a scope that they share does.
//!
//! Costs are counted in steps: scopes and lanes looked at, entries of the wheel included.

use std::time::Duration;

use super::world::{at, pace, secs};
use crate::base::ids::{LaneId, ScopeId, ScopeSet};
use crate::base::time::Instant;
use crate::throttle::engine::{Grant, Throttle};
use crate::throttle::settings::{ScopePatch, ThrottleSettings};
use crate::throttle::signal::Signal;

/// How many lanes wait; the ignored tests have a million.
const MANY: usize = 100_000;

/// Grants all that is due now; each request ends at once. Returns the lanes that were released, and the most
/// steps of one poll.
fn grant_all(throttle: &mut Throttle, now: Instant) -> (Vec<LaneId>, u64) {
    let signal = Signal {
        status: Some(200),
        ..Signal::default()
    };
    let (mut released, mut most) = (Vec::new(), 0);
    // A poll that ends at its bound is followed by another.
    while throttle.next_wake().is_some_and(|wake| wake <= now) {
        loop {
            let before = throttle.steps();
            let grant = throttle.poll(now);
            most = most.max(throttle.steps() - before);
            match grant {
                None => break,
                Some(Grant::Release(lane, ticket)) => {
                    released.push(lane);
                    throttle.ready(ticket, None, now);
                }
                Some(Grant::Depart(ticket)) => {
                    throttle.sent(ticket, now);
                    throttle.answer(ticket, 0, &signal, now);
                    throttle.finish(ticket, now);
                }
            }
        }
    }
    (released, most)
}

/// Steps for 2000 requests of a host, one each 5 ms, while so many others wait for a minute each.
fn steps_of_a_ready_host(waiting: usize) -> u64 {
    let mut settings: ThrottleSettings = pace(1, 600.0, 0.0);
    let fast = ScopePatch {
        delay: Some(secs(0.005)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("fast.test".to_owned(), fast);
    let mut throttle = Throttle::new(settings, 1, Instant::START);
    let mut now = at(1.0);
    for number in 0..waiting {
        let scope = throttle.scope(&format!("h{number}.test"));
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        throttle.set_priority(lane, number as i32 % 3, now);
        throttle.offer(lane, now);
        grant_all(&mut throttle, now);
        // Its next waits for the gap.
        throttle.offer(lane, now);
    }
    let scope = throttle.scope("fast.test");
    let fast = throttle.open_lane(&ScopeSet::ordered([scope]));
    grant_all(&mut throttle, now);
    let before = throttle.steps();
    let mut sent = 0;
    while sent < 2000 {
        throttle.offer(fast, now);
        let (released, _) = grant_all(&mut throttle, now);
        assert!(released.iter().all(|lane| *lane == fast));
        sent += released.len();
        now += Duration::from_millis(5);
    }
    throttle.steps() - before
}

/// A line of so many lanes, each with a scope of its own, which wait for one that they share.
fn lanes_that_share_a_scope(count: usize, priorities: usize) -> (Throttle, Vec<LaneId>, ScopeId) {
    let mut settings: ThrottleSettings = pace(1, 0.0, 0.0);
    let slow = ScopePatch {
        delay: Some(secs(1.0)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("address".to_owned(), slow);
    let mut throttle = Throttle::new(settings, 1, Instant::START);
    let address = throttle.scope("address");
    let now = at(1.0);
    let lanes = (0..count).map(|number| {
        let own = throttle.scope(&format!("h{number}.test"));
        let lane = throttle.open_lane(&ScopeSet::ordered([address, own]));
        throttle.set_priority(lane, (number % priorities) as i32, now);
        throttle.offer(lane, now);
        lane
    });
    let lanes = lanes.collect();
    (throttle, lanes, address)
}

fn check_shared(count: usize) {
    for priorities in [1, 4] {
        let (mut throttle, lanes, _) = lanes_that_share_a_scope(count, priorities);
        let most_bytes = if priorities == 1 { 0 } else { 24 * count };
        assert!(
            throttle.mixed_bytes() <= most_bytes,
            "{}",
            throttle.mixed_bytes()
        );
        let before = throttle.steps();
        let mut most = 0;
        for second in 1..=100 {
            let (released, steps) = grant_all(&mut throttle, at(f64::from(second)));
            assert_eq!(released.len(), 1);
            most = most.max(steps);
        }
        let steps = throttle.steps() - before;
        assert!(steps <= 10 * 100 && most <= 10, "{steps}, {most}");
        // A lane in the middle gets a higher priority: in steps, too.
        let raised = lanes[count / 2];
        let before = throttle.steps();
        throttle.set_priority(raised, 9, at(100.5));
        assert!(
            throttle.steps() - before <= 300,
            "{}",
            throttle.steps() - before
        );
        let (_, most) = grant_all(&mut throttle, at(100.5));
        assert!(most <= 300, "{most}");
        let (first, _) = grant_all(&mut throttle, at(101.5));
        let (second, _) = grant_all(&mut throttle, at(103.0));
        assert!(
            first == [raised] || second == [raised],
            "{first:?} {second:?}"
        );
        assert!(
            throttle.mixed_bytes() <= 24 * count,
            "{}",
            throttle.mixed_bytes()
        );
    }
}

#[test]
fn a_hundred_thousand_waiting_hosts_take_no_step_of_a_ready_one() {
    let (few, many) = (steps_of_a_ready_host(10), steps_of_a_ready_host(MANY));
    assert!(few <= 10 * 2000, "{few}");
    assert!(many <= few + few / 100, "{many} with many, {few} with few");
}

#[test]
#[ignore = "takes ten seconds in a debug build"]
fn a_million_waiting_hosts_take_no_step_of_a_ready_one() {
    let (few, many) = (steps_of_a_ready_host(10), steps_of_a_ready_host(10 * MANY));
    assert!(many <= few + few / 100, "{many} with many, {few} with few");
}

#[test]
fn a_scope_with_a_hundred_thousand_lanes_releases_one_in_a_few_steps() {
    check_shared(MANY);
}

#[test]
#[ignore = "takes ten seconds in a debug build"]
fn a_scope_with_a_million_lanes_releases_one_in_a_few_steps() {
    check_shared(10 * MANY);
}
