//! No scope starves.

use super::world::*;
use crate::throttle::settings::ScopePatch;

#[test]
fn f08_throttled_scopes_never_starve_ready_ones() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.concurrent_requests = 16;
    for i in 0..50 {
        let slow = ScopePatch {
            delay: Some(secs(5.0)),
            ..ScopePatch::default()
        };
        settings.scopes.insert(format!("slow{i}.test"), slow);
    }
    let mut world = World::new(settings);
    let slow: Vec<_> = (0..50)
        .map(|i| world.lane(&[&format!("slow{i}.test")]))
        .collect();
    for lane in &slow {
        world.queue(*lane, 20, page(0.05));
    }
    let free = world.lane(&["free.test"]);
    world.queue(free, 20_000, page(0.05));
    world.run(at(60.0));
    // Alone: 8 in flight of 50 ms, 160 per second.
    let rate = world.sent(free).len() as f64 / 60.0;
    assert!(rate >= 0.95 * 160.0, "{rate} of 160 a second");
    let sent: usize = slow.iter().map(|lane| world.sent(*lane).len()).sum();
    assert!(sent as f64 >= 0.99 * 600.0, "{sent} of 600");
}

#[test]
fn f08_scopes_that_wait_for_the_global_cap_are_served_in_order() {
    let mut settings = pace(1, 0.0, 0.0);
    settings.concurrent_requests = 3;
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..20)
        .map(|i| world.lane(&[&format!("h{i}.test")]))
        .collect();
    for lane in &lanes {
        world.queue(*lane, 1000, page(0.01));
    }
    world.run(at(10.0));
    let counts: Vec<usize> = lanes.iter().map(|lane| world.sent(*lane).len()).collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(most.copied() <= least.map(|least| least + 1), "{counts:?}");
}

#[test]
fn f08_ten_thousand_slow_scopes_cost_a_fast_one_nothing() {
    let mut settings = pace(1, 60.0, 0.0);
    let fast = ScopePatch {
        delay: Some(secs(0.005)),
        concurrency: Some(8),
        ..ScopePatch::default()
    };
    settings.scopes.insert("fast.test".to_owned(), fast);
    let mut world = World::new(settings);
    for i in 0..10_000 {
        let lane = world.lane(&[&format!("h{i}.test")]);
        world.queue(lane, 2, page(0.01));
    }
    let fast = world.lane(&["fast.test"]);
    world.queue(fast, 4000, page(0.01));
    world.run(at(10.0));
    assert!(world.sent(fast).len() >= 1960, "{}", world.sent(fast).len());
}

#[test]
fn f28_a_request_with_many_busy_scopes_is_sent_within_its_fair_share() {
    let mut world = World::new(pace(1, 0.0, 0.0));
    let crowd = 3;
    let takes = [("a", 0.113), ("b", 0.126), ("c", 0.139)];
    for (name, takes) in takes {
        for _ in 0..crowd {
            // The frontier would use one lane for lanes with the same scopes; here they stand for
            // many.
            let lane = world.lane(&[name]);
            world.queue(lane, 1000, page(takes));
        }
    }
    let many = world.lane(&["a", "b", "c"]);
    world.queue(many, 20, page(0.1));
    world.run(at(60.0));
    // One turn in the line of each of its scopes, in which each other lane has one as well.
    let fair = takes.iter().map(|(_, takes)| f64::from(crowd) * takes);
    let fair = fair.sum::<f64>() + 0.1;
    let sent = world.sent(many);
    assert_eq!(sent.len(), 20, "in {:?}", world.gaps(many));
    let waited = [seconds(sent[0])].into_iter().chain(world.gaps(many));
    for waited in waited {
        assert!(waited <= 1.2 * fair, "{waited} s, a fair share is {fair} s");
    }
}

#[test]
fn f08_ten_thousand_scopes_that_are_held_or_back_off_cost_a_fast_one_nothing() {
    let mut settings = pace(1, 0.0, 0.0);
    let fast = ScopePatch {
        delay: Some(secs(0.005)),
        concurrency: Some(8),
        ..ScopePatch::default()
    };
    settings.scopes.insert("fast.test".to_owned(), fast);
    let mut world = World::new(settings);
    for i in 0..10_000 {
        let refuses: Policy = Box::new(move |_, _, page| {
            let refusal = Reply::new(429, page.takes.as_secs_f64());
            match i % 2 {
                0 => refusal.retry_after(60.0),
                _ => refusal,
            }
        });
        let lane = world.origin(&format!("h{i}.test"), refuses);
        world.queue(lane, 20, page(0.01));
    }
    // Each was refused once or twice, and waits.
    world.run(at(1.5));
    let fast = world.lane(&["fast.test"]);
    world.queue(fast, 4000, page(0.01));
    world.run(at(11.5));
    assert!(world.sent(fast).len() >= 1960, "{}", world.sent(fast).len());
}
