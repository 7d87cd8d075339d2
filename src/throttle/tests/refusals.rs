//! Effects of refusals on the pace.

use super::world::*;
use crate::base::ids::ScopeSet;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::decision::DecisionEvent;
use crate::throttle::engine::{Grant, Throttle};
use crate::throttle::settings::{Backoff, Jitter, Rampup, ThrottleSettings};
use crate::throttle::signal::Signal;

/// One pace for all scopes, and backoff without jitter.
fn backing(concurrency: u32, delay: f64, edit: impl FnOnce(&mut Backoff)) -> ThrottleSettings {
    let mut settings = pace(concurrency, delay, 0.0);
    settings.default.backoff.jitter = Jitter::NONE;
    edit(&mut settings.default.backoff);
    settings
}

/// The delay after one page, from 0.2 s before it.
fn delay_after(one: Page) -> f64 {
    let mut world = World::new(backing(1, 0.2, |_| {}));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, one);
    world.run(at(30.0));
    world.delay("a.test")
}

fn answering(status: u16) -> Page {
    Page {
        status,
        ..page(0.01)
    }
}

#[test]
fn f30_only_the_listed_statuses_slow_down() {
    for status in [429, 502, 503, 504, 520, 521, 522, 523, 524] {
        assert_eq!(delay_after(answering(status)), 1.0, "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 408, 500, 501, 525] {
        assert_eq!(delay_after(answering(status)), 0.2, "{status}");
    }
}

#[test]
fn f31_only_the_listed_failures_slow_down_and_each_once() {
    for kind in [
        FailureKind::Timeout,
        FailureKind::Reset,
        FailureKind::Truncated,
    ] {
        assert_eq!(delay_after(failing(kind, 0.01)), 1.0, "{kind:?}");
    }
    for kind in [FailureKind::Dns, FailureKind::Connect] {
        let refused = Page {
            fails_setup: true,
            ..failing(kind, 0.01)
        };
        assert_eq!(delay_after(refused), 0.2, "{kind:?}");
    }
}

#[test]
fn f32_consecutive_refusals_double_the_gap_up_to_the_cap() {
    let mut world = World::new(backing(1, 0.0, |_| {}));
    let lane = world.origin("a.test", until(Instant::FAR_FUTURE, 429));
    world.queue(lane, 12, page(0.01));
    world.run(at(3600.0));
    let expected = [
        1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0,
    ];
    assert_eq!(differ(&world.gaps(lane), &expected), None);
}

#[test]
fn f33_the_gap_after_the_first_refusal_is_the_minimum_delay() {
    let mut world = World::new(backing(8, 0.0, |_| {}));
    let lane = world.origin("a.test", script([Reply::new(429, 0.0)]));
    world.queue(lane, 1, page(0.01));
    world.run(at(0.01));
    world.queue(lane, 1, page(0.01));
    world.run(at(10.0));
    assert_eq!(differ(&world.gaps(lane), &[1.0]), None);
}

#[test]
fn f34_gaps_have_a_tenth_of_jitter_in_backoff_and_the_configured_one_after() {
    let mut settings = jittered(1.0, Jitter::default());
    settings.default.backoff.window = secs(10.0);
    let mut world = World::new(settings);
    let lanes: Vec<_> = (0..40)
        .map(|i| {
            let name = format!("h{i}.test");
            let lane = world.origin(&name, script([Reply::new(429, 0.01)]));
            world.queue(lane, 400, page(0.01));
            lane
        })
        .collect();
    world.run(at(1000.0));
    let within = |gaps: &[f64], low: f64, high: f64| {
        let (least, most) = gaps
            .iter()
            .fold((f64::MAX, 0f64), |(a, b), gap| (a.min(*gap), b.max(*gap)));
        // The whole range is used, too.
        let used = (most - least) / (high - low);
        assert!(
            least >= low - 1e-3 && most <= high + 1e-3 && used > 0.9,
            "{least} to {most}, not {low} to {high}"
        );
    };
    let gaps: Vec<Vec<f64>> = lanes.iter().map(|lane| world.gaps(*lane)).collect();
    let first: Vec<f64> = gaps.iter().flat_map(|gaps| gaps[..4].to_vec()).collect();
    let last: Vec<f64> = gaps.iter().flat_map(|gaps| gaps[300..].to_vec()).collect();
    within(&first, 1.8, 2.2);
    within(&last, 0.5, 1.5);
}

#[test]
fn f35_each_recovery_step_takes_a_window_that_a_refusal_restarts() {
    let mut world = World::new(backing(1, 0.0, |backoff| {
        backoff.window = secs(1.0);
        backoff.min_delay = secs(0.3);
        backoff.max_delay = secs(0.3);
        backoff.delay_factor = 1.5;
    }));
    let mut refusals = [0, 9].into_iter().peekable();
    let refuse_some: Policy =
        Box::new(
            move |_, before, page| match refusals.next_if_eq(&before).is_some() {
                true => Reply::new(429, 0.0),
                false => Reply::of(page),
            },
        );
    let lane = world.origin("a.test", refuse_some);
    world.queue(lane, 200, page(0.0));
    let mut steps = vec![(0.0, world.delay("a.test"))];
    for i in 1..600 {
        let now = f64::from(i) / 100.0;
        world.run(at(now));
        let delay = world.delay("a.test");
        if delay != steps.last().expect("a step").1 {
            steps.push((now, delay));
        }
    }
    let refused = seconds(world.visits("a.test")[9].at);
    let ups: Vec<f64> = steps
        .windows(2)
        .filter(|pair| pair[1].1 < pair[0].1)
        .map(|pair| pair[1].0)
        .collect();
    assert!(ups[0] >= 1.0, "{steps:?}");
    let next = ups.iter().find(|up| **up > refused).expect("it recovers");
    assert!(next - refused >= 1.0, "{steps:?}, refused at {refused}");
    assert!(
        ups.windows(2).all(|pair| pair[1] - pair[0] >= 0.99),
        "{steps:?}"
    );
}

#[test]
fn f36_recovery_ends_at_the_configured_delay_and_is_never_faster() {
    for delay in [0.0, 0.25, 3.0] {
        let mut world = World::new(backing(1, delay, |backoff| backoff.window = secs(5.0)));
        let lane = world.origin("a.test", until(at(20.0), 503));
        world.queue(lane, 100_000, page(0.05));
        world.run(at(900.0));
        assert_eq!(world.delay("a.test"), delay);
        let gaps = world.gaps(lane);
        assert!(gaps.iter().all(|gap| *gap >= delay - 1e-9));
        let last = gaps[gaps.len() - 10..].iter().copied();
        assert!(last.fold(0.0, f64::max) <= delay.max(0.05) + 1e-6);
    }
}

#[test]
fn f41_the_working_rate_is_known_at_the_first_refusal() {
    // The number of the refused request, and the delay after it: a guess, or twice the gap that
    // worked.
    for (number, delay) in [(2, 1.0), (60, 0.2)] {
        let mut world = World::new(backing(1, 0.0, |_| ()));
        let policy: Policy = Box::new(move |_, before, page| match before == number {
            true => Reply::new(429, 0.1),
            false => Reply::of(page),
        });
        let lane = world.origin("a.test", policy);
        world.queue(lane, number + 1, page(0.1));
        world.run(at(20.0));
        assert_eq!(world.visits("a.test").len(), number + 1);
        let found = world.delay("a.test");
        assert!((found / delay - 1.0).abs() < 0.1, "{found} s, not {delay}");
    }
}

#[test]
fn f38_the_slot_that_is_refused_slows_down_alone() {
    let mut world = World::new(backing(4, 0.0, |backoff| backoff.per_slot = true));
    let one_is_refused: Policy = Box::new(|_, _, page| match page.slot {
        0 => Reply::new(429, 0.1),
        _ => Reply::of(page),
    });
    let lane = world.origin("a.test", one_is_refused);
    world.queue(lane, 10_000, page(0.1));
    world.run(at(20.0));
    let of_slot = |slot: u16| {
        let visits = world.visits("a.test").iter();
        visits.filter(|visit| visit.slot == slot).count()
    };
    let visits = world.visits("a.test").iter();
    let refused: Vec<f64> = visits
        .filter(|visit| visit.slot == 0)
        .map(|visit| seconds(visit.at))
        .collect();
    assert_eq!(differ(&refused, &[0.0, 1.0, 3.0, 7.0, 15.0]), None);
    for slot in 1..4 {
        let sent = of_slot(slot);
        assert!(sent >= 195, "slot {slot} sent {sent} of 200");
    }
}

/// The concurrencies of a scope that is refused for `refused_for` seconds and then not.
fn concurrencies(settings: ThrottleSettings, refused_for: f64) -> Vec<u32> {
    let mut world = World::new(settings);
    let lane = world.origin("a.test", until(at(refused_for), 429));
    world.queue(lane, 100_000, page(0.01));
    let mut seen = vec![world.concurrency("a.test")];
    let mut end = 0.0;
    while end < 60.0 {
        end += 0.01;
        world.run(at(end));
        seen.push(world.concurrency("a.test"));
    }
    seen.dedup();
    seen
}

// Not refused for so long that it counts as a block, which has a pace of its own.

#[test]
fn f39_a_scope_at_its_longest_delay_has_its_concurrency_halved_and_restored() {
    let settings = backing(8, 0.0, |backoff| {
        backoff.min_delay = secs(0.1);
        backoff.max_delay = secs(0.5);
        backoff.window = secs(5.0);
    });
    // However long it lasts: a long one counts as a block, and backoff is slow enough for that.
    for outage in [4.0, 30.0] {
        let seen = concurrencies(settings.clone(), outage);
        assert_eq!(seen, [8, 4, 2, 1, 2, 4, 8]);
    }
}

#[test]
fn f39_slots_that_back_off_separately_are_halved_per_round() {
    let settings = backing(4, 0.0, |backoff| {
        backoff.per_slot = true;
        backoff.min_delay = secs(0.25);
        backoff.max_delay = secs(0.5);
        backoff.window = secs(5.0);
    });
    let seen = concurrencies(settings, 1.6);
    assert_eq!(seen, [4, 2, 1, 2, 4]);
}

#[test]
fn f41_a_buckets_rate_is_used_and_rarely_overdrawn() {
    for (rate, concurrency, takes) in [
        (0.5, 8, 0.02),
        (5.0, 8, 0.02),
        (50.0, 16, 0.02),
        (500.0, 32, 0.02),
    ] {
        let mut world = World::new(pace(concurrency, 0.0, 0.0));
        let lane = world.origin("a.test", bucket(rate, f64::max(rate, 1.0)));
        // A faster limit is found sooner.
        let windows = if rate > 100.0 { 2.0 } else { 10.0 };
        let (from, to) = (60.0 + windows * 24.0, 60.0 + windows * 84.0);
        world.queue(lane, (rate * to * 1.5) as usize, page(takes));
        world.run(at(to));
        let used = world.served("a.test", at(from), at(to)) as f64 / (rate * (to - from));
        let rounds = world.rounds("a.test", at(from), at(to), 1.0);
        assert!(
            used >= 0.95 && rounds as f64 <= windows,
            "{used} of {rate} a second, {rounds} rounds in {windows} windows"
        );
    }
}

#[test]
fn f42_eight_refusals_at_once_are_one_step() {
    let mut world = World::new(backing(8, 0.0, |_| {}));
    let lane = world.origin("a.test", until(at(0.5), 429));
    world.queue(lane, 8, page(0.05));
    world.run(at(0.9));
    assert_eq!(world.visits("a.test").len(), 8);
    assert_eq!(world.delay("a.test"), 1.0);
}

#[test]
fn f42_refusals_among_the_first_good_answers_are_a_step() {
    let mut world = World::new(backing(8, 0.0, |_| {}));
    let half: Policy = Box::new(|_, before, page| match before % 2 {
        0 => Reply::of(page),
        _ => Reply::new(429, 0.1),
    });
    let lane = world.origin("a.test", half);
    world.queue(lane, 8, page(0.05));
    world.run(at(0.9));
    assert_eq!(world.visits("a.test").len(), 8);
    assert_eq!(world.delay("a.test"), 1.0);
}

#[test]
fn f43_the_first_window_after_idle_time_probes_without_a_burst() {
    let mut world = World::new(pace(8, 0.0, 0.0));
    let lane = world.origin("a.test", bucket(5.0, 5.0));
    // As many as are sent before the load ends.
    world.queue(lane, 600, page(0.02));
    world.run(at(500.0));
    assert_eq!(world.sent(lane).len(), 600);
    world.queue(lane, 2000, page(0.02));
    world.run(at(560.0));
    let refused = world.visits("a.test").len() - 600 - world.served("a.test", at(500.0), at(560.0));
    assert!(refused <= 3, "{refused} refusals");
    assert!(world.served("a.test", at(500.0), at(560.0)) >= 240);
}

#[test]
fn f43_the_first_window_after_a_refusal_and_five_idle_windows_probes() {
    for (rate, burst) in [(2.0, 1.0), (0.5, 1.0), (5.0, 5.0)] {
        let mut world = World::new(pace(8, 0.0, 0.0));
        let lane = world.origin("a.test", bucket(rate, burst));
        // As many as it takes to be refused.
        world.queue(lane, 12, page(0.02));
        world.run(at(60.0));
        let before = world.visits("a.test").len();
        assert!(world.served("a.test", at(0.0), at(60.0)) < before, "{rate}");
        let paced = world.delay("a.test");
        let (from, to) = (at(360.0), at(420.0));
        world.run(from);
        assert_eq!(world.delay("a.test"), paced, "idle windows change nothing");
        world.queue(lane, 1000, page(0.02));
        world.run(to);
        let visits = &world.visits("a.test")[before..];
        let first = visits[1].at.saturating_since(visits[0].at).as_secs_f64();
        // One answer allows one step, which at most halves the delay.
        assert!(
            first >= 0.45 * paced,
            "{first} s after the first, {paced} s"
        );
        let served = visits.iter().filter(|visit| visit.status == Some(200));
        let served = served.count();
        let refused = visits.len() - served;
        let most = usize::max(4, visits.len() * 3 / 100);
        assert!(refused <= most, "{refused} of {} refused", visits.len());
        let in_a_row = visits.windows(3);
        let burst = in_a_row.filter(|three| three.iter().all(|one| one.status == Some(429)));
        assert_eq!(burst.count(), 0, "a burst of refusals at {rate} a second");
        // It probes: it does not stay at the pace that the refusal set.
        assert!(served as f64 >= 0.5 * 60.0 * rate, "{served} at {rate}");
    }
}

#[test]
fn f43_idle_windows_do_not_change_a_guess() {
    let mut world = World::new(backing(8, 0.0, |_| {}));
    let lane = world.origin(
        "a.test",
        script([429, 429, 429].map(|code| Reply::new(code, 0.01))),
    );
    world.queue(lane, 3, page(0.01));
    world.run(at(400.0));
    let before = world.sent(lane).len();
    world.queue(lane, 100, page(0.01));
    world.run(at(420.0));
    // Idle time gains nothing: one step after the first answer, and the next after ten more.
    let gaps = gaps(&world.sent(lane)[before..]);
    assert!(gaps[..10].iter().all(|gap| *gap >= 0.49), "{gaps:?}");
}

#[test]
fn f98_instant_refusals_leave_most_of_the_rate_in_use() {
    let mut world = World::new(pace(8, 0.0, 0.0));
    let lane = world.origin("a.test", bucket(5.0, 5.0));
    world.queue(lane, 20_000, page(0.0004));
    world.run(at(600.0));
    let (from, to) = (at(120.0), at(600.0));
    let served = world.served("a.test", from, to) as f64;
    let visits = world.visits("a.test").iter();
    let all = visits.filter(|visit| visit.at >= from).count() as f64;
    assert!(served >= 0.95 * 5.0 * 480.0, "{served} served");
    assert!(
        (all - served) / all < 0.05,
        "{} of {all} refused",
        all - served
    );
}

mod blame {
    //! Which scopes of a request a refusal concerns.

    use super::*;
    use crate::base::ids::ScopeSet;
    use crate::throttle::settings::ScopePatch;

    const REFUSED: Page = Page {
        setup: std::time::Duration::ZERO,
        takes: std::time::Duration::ZERO,
        status: 429,
        fails_setup: false,
        failure: None,
        cost: 1.0,
        slot: 0,
    };

    fn delays(world: &mut World, scopes: &[&str]) -> Vec<f64> {
        scopes.iter().map(|scope| world.delay(scope)).collect()
    }

    #[test]
    fn a_refusal_concerns_the_most_specific_of_ordered_scopes() {
        let mut world = World::new(backing(8, 0.0, |_| {}));
        let lane = world.lane(&["wide", "middle", "narrow"]);
        world.queue(lane, 1, REFUSED);
        world.run(at(0.1));
        let seen = delays(&mut world, &["wide", "middle", "narrow"]);
        assert_eq!(seen, [0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_refusal_concerns_all_unordered_scopes() {
        let mut world = World::new(backing(8, 0.0, |_| {}));
        let ids = ["x", "y"].map(|name| world.throttle.scope(name));
        let lane = world.throttle.open_lane(&ScopeSet::unordered(ids));
        world.queue(lane, 1, REFUSED);
        world.run(at(0.1));
        assert_eq!(delays(&mut world, &["x", "y"]), [1.0, 1.0]);
    }

    #[test]
    fn a_parent_is_blamed_if_two_children_are_refused_within_a_window() {
        for (second, after, joins) in [("b", 10.0, true), ("a", 10.0, false), ("b", 70.0, false)] {
            let mut world = World::new(backing(8, 0.0, |_| {}));
            let first = world.lane(&["parent", "a"]);
            let then = world.lane(&["parent", second]);
            world.queue(first, 1, REFUSED);
            world.run(at(after));
            assert_eq!(world.delay("parent"), 0.0);
            world.queue(then, 1, REFUSED);
            world.run(at(after + 5.0));
            let delay = world.delay("parent");
            assert_eq!(delay > 0.0, joins, "{second} after {after} s");
        }
    }

    #[test]
    fn a_refusal_never_concerns_a_scope_with_only_a_quota() {
        let mut settings = backing(8, 0.0, |_| {});
        let quota = ScopePatch {
            quota: Some(100.0),
            ..ScopePatch::default()
        };
        settings.scopes.insert("cost".to_owned(), quota);
        for scopes in [["a.test", "cost"], ["cost", "a.test"]] {
            let mut world = World::new(settings.clone());
            let lane = world.lane(&scopes);
            world.queue(lane, 1, REFUSED);
            world.run(at(0.1));
            assert_eq!(delays(&mut world, &["a.test", "cost"]), [1.0, 0.0]);
        }
    }
}

#[test]
fn f56_rampup_exceeds_the_default_pace() {
    let mut settings = ThrottleSettings {
        concurrent_requests: 64,
        ..ThrottleSettings::default()
    };
    settings.default.rampup = Some(Rampup::default());
    settings.default.backoff.window = secs(2.0);
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([]));
    world.queue(lane, 100_000, page(0.1));
    world.run(at(120.0));
    let late = world.served("a.test", at(110.0), at(120.0));
    // 64 in flight, a tenth of a second each.
    assert!(late as f64 >= 0.9 * 6400.0, "{late} in ten seconds");
}

#[test]
fn f41_a_rise_to_full_speed_keeps_the_limit_until_a_faster_pace_is_proven() {
    let settings = backing(32, 0.0, |backoff| backoff.window = secs(5.0));
    let mut world = World::new(settings);
    // For most of a second the burst hides that 1600 per second are too many.
    let lane = world.origin("a.test", bucket(500.0, 500.0));
    world.queue(lane, 60_000, page(0.02));
    world.run(at(60.0));
    let used = world.served("a.test", at(25.0), at(60.0)) as f64 / (500.0 * 35.0);
    assert!(used >= 0.95, "{used} of the limit");
}

#[test]
fn f79_a_step_is_recorded_only_if_decisions_are_recorded() {
    for wanted in [true, false] {
        let mut world = World::new(backing(1, 0.2, |_| {}));
        world.throttle.set_tracing(wanted);
        let lane = world.origin("a.test", script([Reply::new(429, 0.01)]));
        world.queue(lane, 1, page(0.01));
        world.run(at(10.0));
        let steps: Vec<_> = world
            .throttle
            .take_decisions()
            .filter(|decision| decision.event == DecisionEvent::Backoff)
            .map(|decision| (decision.scope, decision.status, decision.delay))
            .collect();
        let step = ("a.test".to_owned(), Some(429), [secs(0.2), secs(1.0)]);
        assert_eq!(steps, if wanted { vec![step] } else { Vec::new() });
    }
}

#[test]
fn a_pace_that_recovers_during_a_body_applies_at_once() {
    let mut settings = pace(2, 0.0, 0.0);
    settings.default.backoff.min_delay = secs(8.0);
    settings.default.backoff.window = secs(1.0);
    settings.default.backoff.jitter = Jitter::NONE;
    let mut throttle = Throttle::new(settings, 1, at(0.0));
    let scope = throttle.scope("a.test");
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    let send = |throttle: &mut Throttle, now| {
        throttle.offer(lane, now);
        let Some(Grant::Release(_, ticket)) = throttle.poll(now) else {
            panic!("one may go at {now:?}");
        };
        throttle.ready(ticket, None, now);
        assert_eq!(throttle.poll(now), Some(Grant::Depart(ticket)));
        ticket
    };
    let refused = send(&mut throttle, at(0.0));
    let status = |status| Signal {
        status: Some(status),
        ..Signal::default()
    };
    throttle.answer(refused, 1, &status(429), at(0.0));
    throttle.finish(refused, at(0.0));
    assert_eq!(throttle.poll(at(7.9)), None);
    let served = send(&mut throttle, at(8.0));
    throttle.offer(lane, at(8.0));
    assert_eq!(throttle.poll(at(8.0)), None);
    assert_eq!(throttle.next_wake(), Some(at(16.0)));
    // Its head arrived, and a window was quiet: half the delay. Its body takes long.
    throttle.answer(served, 2, &status(200), at(9.5));
    assert_eq!(throttle.next_wake(), Some(at(12.0)));
    assert!(matches!(
        throttle.poll(at(12.0)),
        Some(Grant::Release(_, _))
    ));
}

#[test]
fn f103_a_suspicion_of_refusals_that_backoff_handles_does_not_limit_concurrency() {
    let mut settings = backing(8, 0.0, |_| ());
    settings.default.backoff.max_delay = secs(1000.0);
    let mut world = World::new(settings);
    let lane = world.origin("a.test", Box::new(|_, _, _| Reply::new(429, 0.01)));
    world.queue(lane, 1000, page(0.01));
    // Seven rounds at increasing delays: slowing down does not help.
    world.run(at(200.0));
    assert_eq!(world.delay("a.test"), 128.0);
    assert_eq!(world.concurrency("a.test"), 8);
}
