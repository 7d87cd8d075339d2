//! Lanes with higher priorities go first, and the others have an eighth of the turns.

use super::world::*;
use crate::base::ids::LaneId;
use crate::base::rng::Rng;
use crate::base::time::Instant;

/// The lanes of all requests, by their numbers, in the order in which these were sent.
fn order(world: &World) -> Vec<u32> {
    let sent = world.sent.iter();
    let sent = sent.flat_map(|(lane, times)| times.iter().map(|at| (*at, *lane)));
    let mut sent: Vec<(Instant, u32)> = sent.collect();
    sent.sort_unstable();
    sent.into_iter().map(|(_, lane)| lane).collect()
}

/// Lanes with these priorities and names of scopes, each with so many requests.
fn lanes(world: &mut World, of: &[(i32, &str)], requests: usize) -> Vec<LaneId> {
    let open = |(priority, scope): &(i32, &str)| {
        let lane = world.lane(&[scope]);
        world.throttle.set_priority(lane, *priority, world.now);
        world.queue(lane, requests, page(0.01));
        lane
    };
    of.iter().map(open).collect()
}

fn count(order: &[u32], lane: LaneId) -> usize {
    order.iter().filter(|other| **other == lane.0).count()
}

#[test]
fn of_lanes_that_share_a_scope_the_highest_priority_goes_first() {
    let mut world = World::new(pace(1, 1.0, 0.0));
    let of = [(0, "a"), (3, "a"), (-2, "a"), (3, "a")];
    let lanes = lanes(&mut world, &of, 100);
    world.run(at(160.5));
    let order = order(&world);
    // The line began with the lane that came first.
    let later = &order[1..];
    let counts: Vec<usize> = lanes.iter().map(|lane| count(later, *lane)).collect();
    assert_eq!(counts[1] + counts[3], 140, "{counts:?}");
    assert!(counts[1].abs_diff(counts[3]) <= 1, "{counts:?}");
    assert_eq!((counts[0], counts[2]), (10, 10), "an eighth, in turns");
}

#[test]
fn of_scopes_that_wait_for_the_global_cap_the_highest_priority_goes_first() {
    let mut settings = pace(1, 0.0, 0.0);
    settings.concurrent_requests = 1;
    let mut world = World::new(settings);
    let names: Vec<String> = (0..20).map(|i| format!("h{i}.test")).collect();
    let priority = |i: usize| if i < 15 { 0 } else { 4 };
    let of: Vec<(i32, &str)> = (0..20).map(|i| (priority(i), names[i].as_str())).collect();
    let lanes = lanes(&mut world, &of, 10_000);
    world.run(at(20.0));
    let order = order(&world);
    let later = &order[20..];
    let low: usize = lanes[..15].iter().map(|lane| count(later, *lane)).sum();
    let share = low as f64 / later.len() as f64;
    assert!((0.12..0.13).contains(&share), "{share}");
    let of_low = lanes[..15].iter().map(|lane| count(later, *lane));
    assert!(of_low.clone().max() <= of_low.min().map(|least| least + 1));
}

#[test]
fn a_lane_whose_priority_rises_while_it_waits_goes_next() {
    for cap in [false, true] {
        let mut settings = pace(1, if cap { 0.0 } else { 1.0 }, 0.0);
        settings.concurrent_requests = 1;
        let mut world = World::new(settings);
        let names: Vec<String> = (0..100)
            .map(|i| if cap { format!("h{i}") } else { "a".to_owned() })
            .collect();
        let of: Vec<(i32, &str)> = names.iter().map(|name| (0, name.as_str())).collect();
        let lanes = lanes(&mut world, &of, 1);
        let page_or_gap = if cap { 0.01 } else { 1.0 };
        world.run(at(10.5 * page_or_gap));
        let before = order(&world).len();
        world.throttle.set_priority(lanes[70], 1, world.now);
        world.throttle.set_priority(lanes[80], 2, world.now);
        world.run(at(300.0));
        let order = order(&world);
        assert_eq!(order.len(), 100);
        let next: Vec<u32> = order[before..].to_vec();
        let at = |lane: LaneId| next.iter().position(|other| *other == lane.0);
        assert!(
            at(lanes[80]) <= Some(1) && at(lanes[70]) <= Some(2),
            "{next:?}"
        );
    }
}

#[test]
fn lanes_that_go_first_are_before_all_others_and_keep_their_order() {
    for firsts in [1, 3, 10] {
        let mut world = World::new(pace(1, 1.0, 0.0));
        let lanes: Vec<LaneId> = (0..20).map(|_| world.lane(&["shared"])).collect();
        let (usual, first) = lanes.split_at(20 - firsts);
        usual
            .iter()
            .for_each(|lane| world.queue(*lane, 1, page(0.01)));
        for lane in first {
            world.first.insert(lane.0);
            world.queue(*lane, 1, page(0.01));
        }
        // One that comes later is behind those.
        world.queue(usual[0], 1, page(0.01));
        world.run(at(100.0));
        let expected = first.iter().chain(usual).chain(&usual[..1]);
        let expected: Vec<u32> = expected.map(|lane| lane.0).collect();
        assert_eq!(order(&world), expected);
    }
}

#[test]
fn random_lanes_with_random_priorities_and_precedence_send_everything() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut settings = pace(1 + rng.below(2) as u32, rng.below(3) as f64 * 0.1, 0.0);
        settings.concurrent_requests = 1 + rng.below(4) as usize;
        let mut world = World::seeded(settings, seed);
        let mut lanes = Vec::new();
        let mut queued = 0;
        for _ in 0..1 + rng.below(12) {
            let names = ["a", "b", "c", "d"];
            let mut scopes: Vec<&str> = (0..1 + rng.below(3))
                .map(|_| names[rng.below(4) as usize])
                .collect();
            scopes.sort_unstable();
            scopes.dedup();
            lanes.push(world.lane(&scopes));
        }
        for step in 0..100 {
            let lane = lanes[rng.below(lanes.len() as u64) as usize];
            match rng.below(4) {
                0 => {
                    let priority = rng.below(4) as i32 - 1;
                    world.throttle.set_priority(lane, priority, world.now);
                }
                3 => match rng.chance(0.5) {
                    true => drop(world.first.insert(lane.0)),
                    false => drop(world.first.remove(&lane.0)),
                },
                1 => {
                    let count = 1 + rng.below(3) as usize;
                    queued += count;
                    world.queue(lane, count, page(0.05));
                }
                _ => {
                    world.run(at(0.03 * f64::from(step)));
                }
            }
        }
        world.run(at(1000.0));
        assert_eq!(order(&world).len(), queued, "{seed}");
        let checked = world.throttle.scopes_checked();
        assert!(
            checked < 40 * queued as u64 + 1000,
            "{seed}: {checked} of {queued}"
        );
    }
}
