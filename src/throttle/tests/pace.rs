//! The pace of one scope; nothing bursts.

use super::world::*;
use crate::base::ids::ScopeSet;
use crate::base::time::Instant;
use crate::throttle::cause::WaitCause;
use crate::throttle::engine::{Grant, Throttle};
use crate::throttle::settings::{Jitter, ScopePatch, ThrottleSettings};

#[test]
fn f01_a_scopes_concurrency_is_reached_and_never_exceeded() {
    for cap in [1, 2, 8] {
        let mut world = World::new(pace(cap, 0.0, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 100, page(0.2));
        world.run(at(60.0));
        assert_eq!(world.peak("a.test"), cap);
        assert_eq!(world.sent(lane).len(), 100);
    }
}

#[test]
fn f02_every_gap_is_at_least_the_delay() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 10_000, page(0.03));
    world.run(at(2000.0));
    assert_eq!(world.sent(lane).len(), 10_000);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
    // Nothing is lost to slack: ten per second.
    assert!(world.sent(lane)[9_999] <= at(1000.0));
}

#[test]
fn f02_slow_handshakes_never_bunch_requests() {
    let mut world = World::new(pace(8, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    for setup in [0.9, 0.05, 0.5, 0.0, 0.7, 0.1]
        .into_iter()
        .cycle()
        .take(300)
    {
        world.queue(
            lane,
            1,
            Page {
                setup: secs(setup),
                ..page(0.02)
            },
        );
    }
    world.run(at(300.0));
    assert_eq!(world.sent(lane).len(), 300);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
}

#[test]
fn time_waited_includes_open_waits() {
    let mut world = World::new(pace(1, 10.0, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 3, page(0.0));
    let waited = |world: &World, seconds: f64| {
        let mut causes = world.throttle.waited(at(seconds)).into_iter();
        let (_, waited) = causes
            .find(|(cause, _)| *cause == WaitCause::Delay)
            .expect("a cause");
        waited.as_secs_f64()
    };
    world.run(at(4.0));
    assert_eq!(waited(&world, 4.0), 4.0);
    assert_eq!(waited(&world, 9.0), 9.0);
    world.run(at(14.0));
    assert_eq!(waited(&world, 14.0), 14.0);
}

#[test]
fn releases_run_ahead_so_that_a_constant_handshake_time_does_not_lower_the_pace() {
    let mut world = World::new(pace(8, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    let slow = Page {
        setup: secs(0.25),
        ..page(0.02)
    };
    world.queue(lane, 200, slow);
    world.run(at(60.0));
    let late: Vec<f64> = world.gaps(lane).split_off(20);
    assert!(
        late.iter().all(|gap| (0.1..0.101).contains(gap)),
        "{late:?}"
    );
}

#[test]
fn f03_each_slot_keeps_its_own_delay() {
    let mut world = World::new(pace(3, 0.0, 1.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 60, page(0.05));
    world.run(at(60.0));
    let sent = world.sent(lane);
    assert_eq!(sent.len(), 60);
    assert!(
        sent.windows(4)
            .all(|w| w[3].saturating_since(w[0]) >= secs(1.0))
    );
    assert!(sent[59] <= at(19.1));
}

#[test]
fn f04_the_worked_timeline_of_the_specification() {
    for (takes, third) in [(0.05, 1.0), (1.5, 1.5)] {
        let mut world = World::new(pace(2, 0.3, 1.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 3, page(takes));
        world.run(at(10.0));
        assert_eq!(world.sent(lane), [at(0.0), at(0.3), at(third)]);
    }
}

#[test]
fn f05_the_global_cap_holds_over_all_scopes_and_is_reached() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests = 16;
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..100)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 20, page(0.1));
    }
    world.run(at(60.0));
    assert_eq!(world.total.1, 16);
    assert!(lanes.iter().all(|lane| world.sent(*lane).len() == 20));
}

/// Slots, delay, set-up, time to the answer and cap, with a set-up longer than the gap and a cap
/// below the sum of the slots of two hosts.
const SLOWER_SET_UP_THAN_GAP: [(u32, f64, f64, f64, usize); 4] = [
    (8, 0.1, 0.3, 0.5, 8),
    (8, 0.001, 0.02, 0.05, 2),
    (2, 0.05, 0.06, 1.0, 3),
    (16, 0.01, 2.0, 0.1, 7),
];

/// Two hosts with sixty requests each. The set-up takes its usual time multiplied by these factors
/// in turn. Where they differ, a request that is prepared early waits for its gap.
fn two_hosts(settings: ThrottleSettings, setup: f64, takes: f64, varies: &[f64]) -> World {
    let mut world = World::new(settings);
    for name in ["a.test", "b.test"] {
        let lane = world.lane(&[name]);
        for factor in varies.iter().cycle().take(60) {
            let setup = secs(setup * factor);
            let page = Page {
                setup,
                ..page(takes)
            };
            world.queue(lane, 1, page);
        }
    }
    world
}

/// A constant set-up time, and one with which requests are prepared before their gap is over.
const SET_UPS: [&[f64]; 2] = [&[1.0], &[1.0, 0.1, 1.4, 0.3, 0.8]];

#[test]
fn f05_a_full_cap_does_not_make_the_engine_spin_with_slow_set_up() {
    for (slots, delay, setup, takes, cap) in SLOWER_SET_UP_THAN_GAP {
        for varies in SET_UPS {
            let mut settings = pace(slots, delay, 0.0);
            settings.concurrent_requests = cap;
            let mut world = two_hosts(settings, setup, takes, varies);
            let scopes_checked = world.throttle.scopes_checked();
            world.run(at(600.0));
            assert_eq!(world.sent.values().map(Vec::len).sum::<usize>(), 120);
            assert!(world.total.1 <= cap as u32);
            let scopes_checked = world.throttle.scopes_checked() - scopes_checked;
            assert!(
                scopes_checked < 120 * 20,
                "{scopes_checked} looks for 120 requests"
            );
        }
    }
}

/// A pause, sink backpressure and a low limit on open files stop releases as the cap does.
#[test]
fn the_engine_does_not_spin_while_releases_are_stopped() {
    type Stop = fn(&mut Throttle);
    let ways: [(&str, Stop, Stop); 2] = [
        (
            "paused",
            |throttle| throttle.set_releasing(false),
            |throttle| throttle.set_releasing(true),
        ),
        (
            "few open files",
            |throttle| throttle.set_in_flight_max(1),
            |throttle| throttle.set_in_flight_max(1000),
        ),
    ];
    for (slots, delay, setup, takes, _) in SLOWER_SET_UP_THAN_GAP {
        for (varies, (how, stop, resume)) in SET_UPS
            .iter()
            .flat_map(|set_up| ways.map(|way| (set_up, way)))
        {
            let mut world = two_hosts(pace(slots, delay, 0.0), setup, takes, varies);
            let scopes_checked = world.throttle.scopes_checked();
            let mut turns = 0;
            // Now and then, so that it happens at many stages of a set-up.
            let mut now = 0.0;
            while world.sent.values().map(Vec::len).sum::<usize>() < 120 {
                assert!(now < 600.0, "{how}: it does not end");
                stop(&mut world.throttle);
                now += setup * 1.7;
                turns += world.run(at(now));
                resume(&mut world.throttle);
                now += setup * 0.9;
                turns += world.run(at(now));
            }
            let scopes_checked = world.throttle.scopes_checked() - scopes_checked;
            assert!(
                scopes_checked < 120 * 20,
                "{how}: {scopes_checked} looks for 120 requests"
            );
            assert!(turns < 120 * 20, "{how}: {turns} turns for 120 requests");
        }
    }
}

#[test]
fn all_prepared_and_due_requests_depart_within_a_turn() {
    let mut throttle = Throttle::new(pace(8, 0.0, 0.0), 7, Instant::START);
    let scopes = ["a.test", "b.test"].map(|name| throttle.scope(name));
    let mut tickets = Vec::new();
    for scope in scopes {
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        for _ in 0..3 {
            throttle.offer(lane, at(0.0));
            match throttle.poll(at(0.0)) {
                Some(Grant::Release(_, ticket)) => tickets.push(ticket),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(throttle.poll(at(0.0)), None);
    for ticket in &tickets {
        throttle.ready(*ticket, Some(secs(0.1)), at(0.1));
    }
    let departed: Vec<_> = std::iter::from_fn(|| throttle.poll_departure(at(0.1))).collect();
    assert_eq!(departed.len(), tickets.len());
    assert!(tickets.iter().all(|ticket| departed.contains(ticket)));
}

#[test]
fn f06_a_delay_above_the_response_time_gives_concurrency_one() {
    for (takes, peak) in [(0.05, 1), (1.0, 5)] {
        let mut world = World::new(pace(8, 0.2, 0.0));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 50, page(takes));
        world.run(at(60.0));
        assert_eq!(world.peak("a.test"), peak);
    }
}

#[test]
fn f09_gaps_are_uniformly_distributed_between_the_factors() {
    for jitter in [
        Jitter::default(),
        Jitter::symmetric(0.2),
        Jitter {
            low: -0.1,
            high: 0.3,
        },
        Jitter::NONE,
    ] {
        let mut world = World::new(jittered(0.1, jitter));
        let lane = world.lane(&["a.test"]);
        world.queue(lane, 1001, page(0.01));
        world.run(at(400.0));
        let mut gaps = world.gaps(lane);
        assert_eq!(gaps.len(), 1000);
        gaps.sort_by(f64::total_cmp);
        let (low, high) = (0.1 * (1.0 + jitter.low), 0.1 * (1.0 + jitter.high));
        assert!(gaps[0] >= low - 1e-6 && gaps[999] <= high + 1e-6);
        // Kolmogorov–Smirnov against the uniform distribution, at the 0.1 % level.
        if high > low {
            let distance = gaps.iter().enumerate().fold(0f64, |worst, (i, gap)| {
                let expected = (gap - low) / (high - low);
                worst.max((expected - i as f64 / 1000.0).abs())
            });
            assert!(distance < 1.95 / 1000f64.sqrt(), "{distance}");
        }
    }
}

#[test]
fn f10_the_jittered_mean_is_the_delay() {
    let mut world = World::new(jittered(0.1, Jitter::default()));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1001, page(0.01));
    world.run(at(400.0));
    let gaps = world.gaps(lane);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.098..0.102).contains(&mean), "{mean}");
}

#[test]
fn f10_the_defaults_of_delay_and_slot_delay_have_the_delay_as_their_mean() {
    let mut settings = jittered(1.0, Jitter::default());
    settings.default.delay_per_slot = secs(1.0);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1001, page(0.01));
    world.run(at(2000.0));
    let gaps = world.gaps(lane);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.98..1.02).contains(&mean), "{mean}");
}

#[test]
fn f11_nothing_bursts_after_an_idle_time() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.01));
    world.run(at(1.0));
    world.queue(lane, 100, page(0.01));
    world.run(at(20.0));
    assert_eq!(world.sent(lane).len(), 101);
    assert!(world.gaps(lane).iter().all(|gap| *gap >= 0.1));
}

#[test]
fn f11_a_scope_evicted_in_between_keeps_its_gap() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let first = world.lane(&["a.test"]);
    world.queue(first, 1, page(0.01));
    world.run(at(0.5));
    world.throttle.close_lane(first, world.now);
    let second = world.lane(&["a.test"]);
    world.queue(second, 1, page(0.01));
    world.run(at(5.0));
    assert_eq!(world.sent(second).last(), Some(&at(1.0)));
}

#[test]
fn f80_no_wake_up_occurs_while_all_scopes_wait() {
    let mut world = World::new(pace(1, 60.0, 0.0));
    for i in 0..20 {
        let lane = world.lane(&[&format!("h{i}.test")]);
        world.queue(lane, 3, page(0.01));
    }
    world.run(at(1.0));
    assert_eq!(world.run(at(59.999)), 0, "wake-ups while all wait");
    // Each departs when it is due and not later.
    world.run(at(60.002));
    let mut lanes = world.sent.values();
    assert!(lanes.all(|sent| sent[1..] == [at(60.0)]));
}

#[test]
fn f109_many_lanes_offered_at_once_keep_the_gap() {
    let mut world = World::new(pace(8, 0.05, 0.0));
    let lanes: Vec<_> = (0..1000).map(|_| world.lane(&["a.test"])).collect();
    for lane in &lanes {
        world
            .queued
            .entry(lane.0)
            .or_default()
            .push_back(page(0.01));
        world.later(at(1.0), WorldEvent::Offered(lane.0));
    }
    world.run(at(100.0));
    let mut all: Vec<Instant> = lanes
        .iter()
        .flat_map(|lane| world.sent(*lane).to_vec())
        .collect();
    all.sort_unstable();
    assert_eq!(all.len(), 1000);
    assert!(gaps(&all).iter().all(|gap| *gap >= 0.05));
}

#[test]
fn departures_are_granted_before_releases() {
    let now = Instant::START;
    let mut throttle = Throttle::new(pace(8, 0.0, 0.0), 1, now);
    for name in ["a.test", "b.test", "c.test"] {
        let scope = throttle.scope(name);
        let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
        throttle.offer(lane, now);
    }
    for _ in 0..3 {
        let Some(Grant::Release(_, ticket)) = throttle.poll(now) else {
            panic!("each lane may go");
        };
        throttle.ready(ticket, None, now);
        assert_eq!(throttle.poll(now), Some(Grant::Depart(ticket)));
    }
    assert_eq!(throttle.poll(now), None);
}

#[test]
fn the_gap_runs_from_the_send_and_not_from_the_grant() {
    let now = Instant::START;
    let mut throttle = Throttle::new(pace(2, 1.0, 0.0), 1, now);
    let scope = throttle.scope("a.test");
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    throttle.offer(lane, now);
    let Some(Grant::Release(_, first)) = throttle.poll(now) else {
        panic!("the first may go");
    };
    throttle.offer(lane, now);
    throttle.ready(first, None, now);
    assert_eq!(throttle.poll(now), Some(Grant::Depart(first)));
    // The socket accepted it a little later; of two reports the later time applies.
    throttle.sent(first, at(0.1));
    throttle.sent(first, at(0.3));
    let next = throttle
        .next_wake()
        .expect("the next one waits for its gap");
    assert_eq!(throttle.poll(at(1.29)), None, "{next:?}");
    let Some(Grant::Release(_, second)) = throttle.poll(at(1.3)) else {
        panic!("the second may go a gap after the first was gone");
    };
    throttle.ready(second, None, at(1.3));
    assert_eq!(throttle.poll(at(1.3)), Some(Grant::Depart(second)));
}

#[test]
fn f105_many_small_sites_without_a_delay_run_at_full_speed() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests = 100;
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..1000)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 3, page(0.1));
    }
    world.run(at(60.0));
    assert_eq!(world.total.1, 100);
    let last = lanes.iter().map(|lane| world.sent(*lane)[2]).max();
    // 3000 pages of 0.1 s, a hundred in flight.
    assert_eq!(last, Some(at(2.9)));
}

#[test]
fn f107_each_host_keeps_its_own_rate_exactly() {
    let mut settings = pace(8, 1.0, 0.0);
    for i in 0..100 {
        let patch = ScopePatch {
            delay: Some(secs(1.0 / f64::from(1 << (i % 4)))),
            ..ScopePatch::default()
        };
        settings.scopes.insert(format!("h{i}.test"), patch);
    }
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..100)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 1000, page(0.3));
    }
    world.run(at(59.99));
    for (i, lane) in lanes.iter().enumerate() {
        assert_eq!(world.sent(*lane).len(), 60 << (i % 4), "h{i}.test");
    }
    let all: usize = lanes.iter().map(|lane| world.sent(*lane).len()).sum();
    assert_eq!(all, 25 * 15 * 60);
}

#[test]
fn f108_early_requests_wait_and_are_never_dropped() {
    let mut world = World::new(pace(4, 0.05, 0.0));
    let lanes: Vec<_> = (0..20)
        .map(|i| world.origin(&format!("h{i}.test"), bucket(2.0 + f64::from(i), 1.0)))
        .collect();
    for (i, lane) in lanes.iter().enumerate() {
        let rough = Page {
            fails_setup: i % 5 == 0,
            setup: secs(0.02),
            ..page(0.01)
        };
        world.queue(*lane, 100, rough);
        world.queue(*lane, 150, page(0.03));
    }
    world.run(at(20_000.0));
    assert!(lanes.iter().all(|lane| world.sent(*lane).len() == 250));
    assert_eq!(world.throttle.in_flight(), 0);
}

#[test]
fn f110_a_name_without_an_entry_has_the_default() {
    let mut settings = pace(4, 0.5, 0.0);
    let join_words = ScopePatch {
        delay: Some(secs(0.125)),
        ..ScopePatch::default()
    };
    settings.scopes.insert("listed.test".to_owned(), join_words);
    let mut world = World::new(settings);
    for (name, gap) in [("listed.test", 0.125), ("unlisted.test", 0.5)] {
        let lane = world.lane(&[name]);
        world.queue(lane, 5, page(0.01));
        world.run(world.now + secs(10.0));
        assert_eq!(differ(&world.gaps(lane), &[gap; 4]), None, "{name}");
    }
}

#[test]
fn f111_the_rate_is_measured_from_start_to_start() {
    let mut world = World::new(pace(2, 0.5, 0.0));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 200, page(0.5));
    world.run(at(59.9));
    assert_eq!(world.sent(lane).len(), 120);
}
