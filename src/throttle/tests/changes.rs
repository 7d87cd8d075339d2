//! Changes of settings during a crawl.

use super::world::*;
use crate::base::ids::LaneId;
use crate::throttle::engine::{Forgetting, summary_of};
use crate::throttle::settings::{Jitter, ScopePatch};

fn delay(seconds: f64) -> ScopePatch {
    ScopePatch {
        delay: Some(secs(seconds)),
        ..ScopePatch::default()
    }
}

#[test]
fn f11_shortening_the_delay_lets_a_waiting_request_depart_earlier() {
    let mut world = World::new(pace(1, 60.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 4, page(0.01));
    world.run(at(5.0));
    assert_eq!(world.sent(lane).len(), 1);
    world.throttle.set_scope("a.test", delay(8.0), world.now);
    world.run(at(100.0));
    // No burst either: the time waited too long is not made up for.
    let seen: Vec<f64> = world.sent(lane).iter().map(|at| seconds(*at)).collect();
    assert_eq!(differ(&seen, &[0.0, 8.0, 16.0, 24.0]), None);
}

#[test]
fn f11_a_delay_shortened_below_the_elapsed_time_lets_one_request_depart_at_once() {
    let mut world = World::new(pace(4, 60.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 4, page(0.01));
    world.run(at(30.0));
    world.throttle.set_scope("a.test", delay(2.0), world.now);
    world.run(at(100.0));
    let seen: Vec<f64> = world.sent(lane).iter().map(|at| seconds(*at)).collect();
    assert_eq!(differ(&seen, &[0.0, 30.0, 32.0, 34.0]), None);
}

#[test]
fn f81_a_changed_delay_applies_to_the_next_gap() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 9, page(0.01));
    world.run(at(2.5));
    world.throttle.set_scope("a.test", delay(4.0), world.now);
    world.run(at(11.0));
    world.throttle.set_scope("a.test", delay(0.5), world.now);
    world.run(at(60.0));
    let expected = [1.0, 1.0, 4.0, 4.0, 1.0, 0.5, 0.5, 0.5];
    assert_eq!(differ(&world.gaps(lane), &expected), None);
}

#[test]
fn f81_a_changed_pattern_changes_the_scopes_below_it_and_no_other() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let below = world.lane(&["a.example.org"]);
    let other = world.lane(&["a.test"]);
    for lane in [below, other] {
        world.queue(lane, 6, page(0.01));
    }
    world.run(at(0.5));
    let now = world.now;
    world.throttle.set_scope("*.example.org", delay(3.0), now);
    world.run(at(60.0));
    assert_eq!(differ(&world.gaps(below), &[3.0; 5]), None);
    assert_eq!(differ(&world.gaps(other), &[1.0; 5]), None);
}

/// Under many scopes of their own, of which none but the first is visited unless `visits`: the shortest and the longest
/// gap that began before a change and ended after it, in seconds.
fn gaps_over(change: impl FnOnce(&mut World), visits: bool) -> (f64, f64) {
    let mut world = World::new(pace(1, 2.0, 0.0));
    world.throttle.set_units_per_visit(1);
    let names: Vec<String> = (0..40).map(|number| format!("{number}.test")).collect();
    let lanes: Vec<LaneId> = names.iter().map(|name| world.lane(&[name])).collect();
    for lane in &lanes {
        world.queue(*lane, 9, page(0.01));
    }
    world.run(at(3.0));
    change(&mut world);
    while visits && world.throttle.advance_visits(world.now) {}
    world.run(at(60.0));
    let over = lanes.iter().map(|lane| world.gaps(*lane)[1]);
    over.fold((f64::MAX, 0.0), |(least, most), gap| {
        (gap.min(least), gap.max(most))
    })
}

#[test]
fn f81_a_change_of_many_scopes_holds_for_those_that_are_not_visited_yet() {
    let change = |name: &'static str, seconds: f64| {
        move |world: &mut World| {
            let now = world.now;
            world.throttle.set_scope(name, delay(seconds), now);
        }
    };
    for visits in [false, true] {
        for name in ["default", "*.test"] {
            let gaps = gaps_over(change(name, 5.0), visits);
            assert_eq!(
                differ(&[gaps.0, gaps.1], &[5.0, 5.0]),
                None,
                "{name} {visits}"
            );
        }
    }
    // What waits by the settings of before is found when it is visited.
    let gaps = gaps_over(change("default", 1.5), true);
    assert_eq!(differ(&[gaps.0, gaps.1], &[1.5, 1.5]), None);
    // A second change finds scopes that have not had the first.
    let twice = |world: &mut World| {
        change("default", 9.0)(world);
        change("*.test", 4.0)(world);
    };
    let gaps = gaps_over(twice, false);
    assert_eq!(differ(&[gaps.0, gaps.1], &[4.0, 4.0]), None);
}

#[test]
fn each_scope_is_visited_though_others_are_added_meanwhile() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let throttle = &mut world.throttle;
    throttle.set_units_per_visit(1);
    let ids: Vec<_> = (0..6)
        .map(|number| throttle.scope(&format!("{number}.test")))
        .collect();
    let now = world.now;
    throttle.set_scope("default", delay(2.0), now);
    (0..3).for_each(|_| assert!(throttle.advance_visits(now)));
    throttle.set_scope("default", delay(3.0), now);
    for number in 6..20 {
        throttle.scope(&format!("{number}.test"));
    }
    while throttle.advance_visits(now) {}
    for id in ids {
        assert_eq!(throttle.pace(id).delay, secs(3.0));
    }
}

#[test]
fn what_was_learned_of_many_scopes_is_forgotten_in_steps() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    world.throttle.set_units_per_visit(1);
    let names: Vec<String> = (0..9).map(|number| format!("{number}.test")).collect();
    for name in &names {
        let lane = world.lane(&[name]);
        let refused = Page {
            status: 429,
            ..page(0.01)
        };
        world.queue(lane, 3, refused);
    }
    world.run(at(0.5));
    let now = world.now;
    assert_eq!(world.throttle.forget("0.test", now), Forgetting::Done(1));
    let Forgetting::Going(first) = world.throttle.forget("*.test", now) else {
        panic!("it is over at once");
    };
    let Forgetting::Going(second) = world.throttle.forget("default", now) else {
        panic!("it goes before the first");
    };
    while world.throttle.advance_visits(now) {}
    let over = world.throttle.poll_forgotten().expect("it is over");
    assert_eq!(
        (over.id, over.name.as_str(), over.scopes),
        (first, "*.test", 9)
    );
    let over = world.throttle.poll_forgotten().expect("it is over");
    assert_eq!((over.id, over.name.as_str()), (second, "default"));
}

#[test]
fn what_was_learned_of_a_scope_that_is_evicted_before_its_visit_is_forgotten() {
    let mut world = World::new(pace(8, 0.0, 0.0));
    world.throttle.save_scopes();
    world.throttle.set_units_per_visit(1);
    let mut ids = Vec::new();
    for number in 0..5 {
        let id = world.throttle.scope(&format!("{number}.test"));
        world.throttle.hold(id, at(1e6), world.now);
        ids.push(id);
    }
    let lane = world.origin("a.test", bucket(5.0, 1.0));
    world.queue(lane, 1500, page(0.02));
    world.run(at(1000.0));
    assert!(world.delay("a.test") > 0.1);
    let held = world.throttle.scope("a.test");
    world.throttle.hold(held, at(5000.0), world.now);
    world.leave(lane);
    let saved_gap = |world: &mut World| {
        world.throttle.begin_save();
        let throttle = &mut world.throttle;
        let now = world.now;
        let next = || throttle.poll_urgent(now).or_else(|| throttle.poll_due(now));
        let saved = std::iter::from_fn(next).filter(|(name, _)| &**name == "a.test");
        let states = saved.map(|(_, state)| summary_of(&state, secs(0.0), false));
        states.last().map(|state| state.and_then(|state| state.gap))
    };
    assert!(
        saved_gap(&mut world).flatten().is_some(),
        "an earlier run has it"
    );
    let forgetting = world.throttle.forget("default", world.now);
    assert!(matches!(forgetting, Forgetting::Going(_)), "{forgetting:?}");
    world.run(at(10_000.0));
    assert_eq!(world.throttle.scopes_len(), ids.len(), "it is evicted");
    assert_eq!(saved_gap(&mut world), Some(None), "and is saved without it");
    while world.throttle.advance_visits(world.now) {}
    let over = world.throttle.poll_forgotten().expect("it is over");
    assert_eq!(over.scopes, ids.len() + 1);
    let again = world.lane_again("a.test");
    world.queue(again, 1, page(0.02));
    assert_eq!(world.delay("a.test"), 0.0);
}

#[test]
fn f81_concurrency_follows_a_change_at_once() {
    let mut world = World::new(pace(2, 0.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1000, page(1.0));
    let patch = |concurrency| ScopePatch {
        concurrency: Some(concurrency),
        ..ScopePatch::default()
    };
    let mut before = 0;
    let mut sent_in = Vec::new();
    for (from, concurrency) in [(0.0, 2), (10.0, 6), (20.0, 1)] {
        if from > 0.0 {
            world
                .throttle
                .set_scope("a.test", patch(concurrency), world.now);
        }
        world.run(at(from + 9.95));
        sent_in.push(world.sent(lane).len() - before);
        before = world.sent(lane).len();
    }
    assert_eq!(world.peak("a.test"), 6);
    // Four more slots at once, then six per second; and at most one in the seconds after the last
    // of those six have ended.
    assert_eq!(sent_in, [20, 64, 10]);
}

#[test]
fn f81_spent_costs_count_under_a_changed_quota() {
    let quota = |units| ScopePatch {
        delay: Some(secs(0.0)),
        concurrency: Some(1),
        quota: Some(units),
        window: Some(secs(60.0)),
        ..ScopePatch::default()
    };
    for (units, more) in [(8.0, 3), (4.0, 0)] {
        let mut settings = pace(1, 0.0, 0.0);
        settings.scopes.insert("a.test".to_owned(), quota(5.0));
        let mut world = World::new(settings);
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 100, page(0.01));
        world.run(at(10.0));
        assert_eq!(world.sent(lane).len(), 5);
        world.throttle.set_scope("a.test", quota(units), world.now);
        world.run(at(20.0));
        assert_eq!(world.sent(lane).len(), 5 + more, "a quota of {units}");
    }
}

#[test]
fn f81_a_hold_and_backoff_survive_a_change_of_delay() {
    let mut world = World::new(pace(1, 0.0, 0.0));
    let lane = world.origin("a.test", script([Reply::new(429, 0.0).retry_after(20.0)]));
    world.queue(lane, 3, page(0.01));
    world.run(at(1.0));
    world.throttle.set_scope("a.test", delay(0.1), world.now);
    world.run(at(60.0));
    let seen = world.arrivals("a.test");
    assert_eq!(seen[..2], [0.0, 20.0]);
    assert!(seen[2] - seen[1] >= 0.9, "{seen:?}");
}

#[test]
fn f81_an_empty_patch_removes_earlier_settings() {
    for pattern in [None, Some("*.example.org")] {
        let mut settings = pace(1, 1.0, 0.0);
        let below = pattern.map(|pattern| (pattern.to_owned(), delay(2.0)));
        settings.scopes.extend(below);
        let usual = if pattern.is_some() { 2.0 } else { 1.0 };
        let mut world = World::new(settings);
        let lane = world.lane(&["a.example.org"]);
        world.queue(lane, 8, page(0.01));
        world.run(at(0.5));
        let now = world.now;
        world.throttle.set_scope("a.example.org", delay(3.0), now);
        world.run(at(7.0));
        let now = world.now;
        world
            .throttle
            .set_scope("a.example.org", ScopePatch::default(), now);
        world.run(at(60.0));
        let expected = [3.0, 3.0, usual, usual, usual, usual, usual];
        assert_eq!(differ(&world.gaps(lane), &expected), None);
    }
}

#[test]
fn f81_a_change_of_the_default_reaches_all_scopes_without_entry() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 6, page(0.01));
    world.run(at(0.5));
    let now = world.now;
    world.throttle.set_scope("default", delay(3.0), now);
    world.run(at(60.0));
    assert_eq!(differ(&world.gaps(lane), &[3.0; 5]), None);
}

#[test]
fn a_scope_that_was_not_visited_yet_is_not_evicted_by_the_gap_of_before() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    world.throttle.set_units_per_visit(1);
    let names = ["first.test", "a.test", "b.test"];
    let lanes = names.map(|name| world.lane(&[name]));
    for lane in lanes {
        world.queue(lane, 1, page(0.01));
    }
    world.run(at(0.5));
    for lane in lanes {
        world.throttle.close_lane(lane, world.now);
    }
    world.throttle.set_scope("default", delay(60.0), world.now);
    world.run(at(5.0));
    let again = world.lane(&["b.test"]);
    world.queue(again, 1, page(0.01));
    world.run(at(100.0));
    let last = world.sent(again).last().map(|at| seconds(*at));
    assert_eq!(differ(last.as_slice(), &[60.0]), None);
}

#[test]
fn a_gap_that_is_running_follows_a_change_of_jitter() {
    let low = Jitter {
        low: -0.5,
        high: -0.5,
    };
    let mut world = World::new(jittered(10.0, low));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 2, page(0.01));
    world.run(at(1.0));
    let exact = ScopePatch {
        jitter: Some(Jitter::NONE),
        ..ScopePatch::default()
    };
    world.throttle.set_scope("default", exact, world.now);
    world.run(at(100.0));
    assert_eq!(differ(&world.gaps(lane), &[10.0]), None);
}
