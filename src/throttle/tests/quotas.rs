//! Quotas, as counted at the origin.

use super::world::*;
use crate::base::ids::{ScopeId, ScopeSet};
use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::throttle::decision::DecisionEvent;
use crate::throttle::engine::{Account, Grant, Throttle, TicketId};
use crate::throttle::settings::{Oversize, Quota, ScopePatch, ThrottleSettings, WindowKind};
use crate::throttle::signal::Feedback;

/// A quota and no pace.
fn spending(units: f64, window: f64, kind: WindowKind) -> ThrottleSettings {
    let mut settings = pace(1, 0.0, 0.0);
    settings.default.quota = Some(Quota {
        units,
        window: secs(window),
        kind,
        oversize: Oversize::Alone,
    });
    settings
}

fn costing(cost: f64) -> Page {
    Page { cost, ..page(0.01) }
}

/// The maximum number of arrivals in any span of this length.
fn most_within(arrivals: &[f64], span: f64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, at) in arrivals.iter().enumerate() {
        while at - arrivals[first] >= span - 1e-9 {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[test]
fn f60_no_window_takes_more_than_its_quota() {
    for (kind, most) in [(WindowKind::Fixed, 20), (WindowKind::Sliding, 10)] {
        for setup in [0.0, 0.3] {
            let mut settings = spending(10.0, 1.0, kind);
            settings.default.concurrency = 8;
            let mut world = World::new(settings);
            let lane = world.origin("a.test", script([]));
            let slow = Page {
                setup: secs(setup),
                ..page(0.01)
            };
            world.queue(lane, 100, slow);
            world.run(at(60.0));
            let seen = world.arrivals("a.test");
            assert_eq!(seen.len(), 100);
            assert!(seen[99] <= 16.0, "{seen:?}");
            // Around the boundary of two fixed windows twice as many may pass, never more.
            assert!(most_within(&seen, 1.0) <= most, "{kind:?}: {seen:?}");
            if kind == WindowKind::Fixed {
                let mut began = seen[0];
                let mut used = 0;
                for at in &seen {
                    if *at >= began + 1.0 {
                        (began, used) = (*at, 0);
                    }
                    used += 1;
                    assert!(used <= 10, "{seen:?}");
                }
            }
        }
    }
}

#[test]
fn f61_the_expected_cost_is_charged_at_release() {
    let mut settings = spending(10.0, 60.0, WindowKind::Fixed);
    settings.default.concurrency = 8;
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([]));
    // None of them is answered when the fourth is due.
    let long = Page {
        takes: secs(5.0),
        ..costing(3.0)
    };
    world.queue(lane, 4, long);
    world.run(at(100.0));
    let seen = world.arrivals("a.test");
    assert_eq!(differ(&seen, &[0.0, 0.0, 0.0, 60.0]), None);
}

#[test]
fn f61_a_failed_set_up_is_charged_as_a_send() {
    let mut world = World::new(spending(3.0, 60.0, WindowKind::Fixed));
    let lane = world.lane(&["a.test"]);
    let broken = Page {
        fails_setup: true,
        ..page(0.01)
    };
    world.queue(lane, 4, broken);
    world.run(at(100.0));
    assert_eq!(world.sent(lane).len(), 4);
    assert_eq!(world.sent(lane)[3], at(60.0));
}

#[test]
fn f62_the_actual_cost_replaces_the_estimate() {
    for (actual, per_window) in [(Some(2.5), 4), (Some(1.5), 6), (None, 5)] {
        let mut world = World::new(spending(10.0, 60.0, WindowKind::Fixed));
        let policy: Policy = Box::new(move |_, _, page| match actual {
            Some(units) => Reply::of(page).feedback(Feedback::new("a.test").actual(units)),
            None => Reply::of(page),
        });
        let lane = world.origin("a.test", policy);
        world.queue(lane, 100, costing(2.0));
        world.run(at(59.0));
        let seen = world.arrivals("a.test").len();
        assert_eq!(seen, per_window, "{actual:?}");
    }
}

#[test]
fn f63_spending_is_limited_to_what_the_server_reports_as_remaining() {
    let mut world = World::new(spending(10.0, 60.0, WindowKind::Fixed));
    let reply = Reply::new(200, 0.01).feedback(Feedback::new("a.test").remaining(3.0));
    let lane = world.origin("a.test", script([reply]));
    world.queue(lane, 100, page(0.01));
    world.run(at(59.0));
    assert_eq!(world.arrivals("a.test").len(), 1 + 3);
}

#[test]
fn f64_the_servers_ledger_never_exceeds_the_cap_by_more_than_the_error_in_flight() {
    for kind in [WindowKind::Fixed, WindowKind::Sliding] {
        let mut settings = spending(100.0, 6.0, kind);
        settings.default.concurrency = 4;
        let mut world = World::new(settings);
        let mut rng = Rng::from_seed(5);
        let actual = Shared::new(Vec::new());
        let ledger = Shared::clone(&actual);
        let charges: Policy = Box::new(move |now, _, page| {
            let units = page.cost * rng.range_f64(0.7, 1.3);
            ledger.borrow_mut().push((seconds(now), units));
            Reply::of(page).feedback(Feedback::new("a.test").actual(units))
        });
        let lane = world.origin("a.test", charges);
        for i in 0..400 {
            world.queue(lane, 1, costing(1.0 + f64::from(i % 5)));
        }
        world.run(at(60.0));
        let ledger = actual.borrow();
        let mut began = f64::MIN;
        let mut spent = 0.0;
        let mut total = 0.0;
        for (at, units) in ledger.iter() {
            if *at >= began + 6.0 {
                (began, spent) = (*at, 0.0);
            }
            spent += units;
            total += units;
            // Four in flight, each of cost 5 at most and wrong by 30 %.
            assert!(spent <= 100.0 + 4.0 * 5.0 * 0.3, "{kind:?}: {spent}");
        }
        assert!(total >= 0.9 * 1000.0, "{kind:?}: {total} of 1000");
    }
}

#[test]
fn f65_an_oversize_request_runs_alone_in_its_own_window() {
    let mut world = World::new(spending(10.0, 60.0, WindowKind::Fixed));
    let lane = world.origin("a.test", script([]));
    world.queue(lane, 1, page(0.01));
    world.queue(lane, 1, costing(999.0));
    world.queue(lane, 1, page(0.01));
    world.run(at(300.0));
    let seen = world.arrivals("a.test");
    assert_eq!(differ(&seen, &[0.0, 60.0, 120.0]), None);
}

#[test]
fn f65_an_oversize_request_is_known_never_to_fit_if_refused() {
    let mut settings = spending(10.0, 60.0, WindowKind::Fixed);
    settings.default.quota.as_mut().expect("a quota").oversize = Oversize::Refuse;
    let mut world = World::new(settings);
    let scope = world.throttle.scope("a.test");
    assert!(world.throttle.never_fits(scope, 999.0, at(0.0)));
    assert!(!world.throttle.never_fits(scope, 10.0, at(0.0)));
}

#[test]
fn f66_a_big_request_is_not_starved_by_small_ones() {
    let mut settings = spending(10.0, 10.0, WindowKind::Fixed);
    settings.default.concurrency = 8;
    let mut world = World::new(settings);
    let small = world.lane(&["api"]);
    let big = world.lane(&["api"]);
    world.queue(small, 200, page(0.01));
    world.run(at(1.0));
    world.queue(big, 1, costing(9.0));
    world.run(at(200.0));
    let sent = world.sent(big).first().copied().expect("it is sent");
    assert!(sent <= at(20.1), "{sent:?}");
}

#[test]
fn f104_no_minute_at_the_origin_holds_more_than_sixty() {
    let mut settings = pace(8, 0.0, 0.0);
    settings.default.requests_per_minute = Some(60.0);
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([]));
    let mut rng = Rng::from_seed(3);
    for _ in 0..1000 {
        let slow = Page {
            setup: secs(rng.range_f64(0.0, 0.5)),
            ..page(0.2)
        };
        world.queue(lane, 1, slow);
    }
    world.run(at(600.0));
    let seen = world.arrivals("a.test");
    assert_eq!(most_within(&seen, 60.0), 60);
    assert!(seen.len() >= 588, "{} in ten minutes", seen.len());
}

#[test]
fn f81_requests_of_the_last_minute_count_under_a_changed_limit() {
    let per_minute = |limit| ScopePatch {
        requests_per_minute: Some(limit),
        delay: Some(secs(0.0)),
        ..ScopePatch::default()
    };
    let mut settings = pace(1, 0.0, 0.0);
    settings
        .scopes
        .insert("a.test".to_owned(), per_minute(60.0));
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([]));
    world.queue(lane, 300, page(0.01));
    world.run(at(5.0));
    let now = world.now;
    world.throttle.set_scope("a.test", per_minute(59.0), now);
    world.run(at(150.0));
    let seen = world.arrivals("a.test");
    assert!(most_within(&seen, 60.0) <= 60, "{seen:?}");
    assert!(seen.len() > 110, "{}", seen.len());
}

#[test]
fn f63_a_report_about_an_ended_window_does_not_reduce_the_next() {
    let mut world = World::new(spending(10.0, 60.0, WindowKind::Fixed));
    let late = Reply::new(200, 2.0).feedback(Feedback::new("a.test").remaining(0.0));
    let lane = world.origin("a.test", script([Reply::new(200, 0.01), late]));
    world.queue(lane, 1, page(0.01));
    world.run(at(59.0));
    world.queue(lane, 2, page(0.01));
    world.run(at(200.0));
    // Sent at 59 s, answered at 61 s.
    assert_eq!(differ(&world.arrivals("a.test"), &[0.0, 59.0, 61.0]), None);
}

#[test]
fn a_cheaper_request_that_becomes_first_departs_at_once() {
    let mut world = World::new(spending(10.0, 60.0, WindowKind::Fixed));
    let lane = world.origin("a.test", script([]));
    let scope = world.throttle.scope("a.test");
    world.queue(lane, 1, costing(9.0));
    world.run(at(1.0));
    world.throttle.expect(lane, &[(scope, 9.0)], world.now);
    world.queue(lane, 1, costing(1.0));
    world.throttle.expect(lane, &[(scope, 9.0)], world.now);
    world.run(at(2.0));
    assert_eq!(world.arrivals("a.test").len(), 1);
    world.throttle.expect(lane, &[], world.now);
    world.run(at(3.0));
    assert_eq!(world.arrivals("a.test").len(), 2);
}

#[test]
fn a_host_with_a_quota_is_paced_like_any_host() {
    let quota = ScopePatch {
        quota: Some(1000.0),
        ..ScopePatch::default()
    };
    let mut settings = pace(1, 1.0, 0.0);
    settings
        .scopes
        .insert("localhost".to_owned(), quota.clone());
    settings.scopes.insert("cost".to_owned(), quota.clone());
    let slotted = ScopePatch {
        delay_per_slot: Some(secs(2.0)),
        ..quota
    };
    settings.scopes.insert("api".to_owned(), slotted);
    let mut world = World::new(settings);
    world.throttle.host_scope("localhost");
    for (name, gap) in [("localhost", 1.0), ("api", 2.0), ("cost", 0.0)] {
        let lane = world.lane(&[name]);
        world.queue(lane, 5, page(0.0));
        world.run(world.now + secs(20.0));
        assert!(
            world
                .gaps(lane)
                .iter()
                .all(|seen| (seen - gap).abs() < 0.01),
            "{name}"
        );
    }
}

/// A scope with ten units per minute, with one released request of expected cost three.
fn released() -> (Throttle, ScopeId, TicketId) {
    let mut settings = spending(10.0, 60.0, WindowKind::Fixed);
    settings.default.concurrency = 8;
    let mut throttle = Throttle::new(settings, 1, Instant::START);
    let scope = throttle.scope("a.test");
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    throttle.expect(lane, &[(scope, 3.0)], Instant::START);
    throttle.offer(lane, Instant::START);
    let Some(Grant::Release(_, ticket)) = throttle.poll(Instant::START) else {
        panic!("nothing keeps it");
    };
    (throttle, scope, ticket)
}

/// Returns whether a request of this cost fits beside what is reserved.
fn fits(mut throttle: Throttle, scope: ScopeId, cost: f64) -> bool {
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    throttle.expect(lane, &[(scope, cost)], Instant::START);
    throttle.offer(lane, Instant::START);
    let granted = throttle.poll(Instant::START);
    matches!(granted, Some(Grant::Release(released, _)) if released == lane)
}

#[test]
fn f61_a_substituted_request_reserves_exactly_its_own_cost() {
    for cost in [1.0, 3.0, 8.0, 10.0] {
        for other in 1..=10 {
            let (mut throttle, scope, ticket) = released();
            assert!(throttle.recharge(ticket, &[(scope, cost)], Instant::START));
            let expected = cost + f64::from(other) <= 10.0;
            let fits = fits(throttle, scope, other.into());
            assert_eq!(fits, expected, "{other} beside {cost}");
        }
        let (mut throttle, scope, ticket) = released();
        assert!(throttle.recharge(ticket, &[(scope, cost)], Instant::START));
        throttle.cancel(ticket, Instant::START);
        assert!(fits(throttle, scope, 10.0), "{cost} was given back");
    }
}

#[test]
fn f61_a_costlier_request_that_does_not_fit_leaves_nothing_reserved() {
    for (another, expected) in [(6.0, true), (7.0, false)] {
        let (mut throttle, scope, ticket) = released();
        let beside = throttle.open_lane(&ScopeSet::ordered([scope]));
        throttle.expect(beside, &[(scope, 4.0)], Instant::START);
        throttle.offer(beside, Instant::START);
        let granted = throttle.poll(Instant::START);
        assert!(granted.is_some(), "seven of ten fit");
        assert!(!throttle.recharge(ticket, &[(scope, 7.0)], Instant::START));
        throttle.cancel(ticket, Instant::START);
        // The other request's four units are still reserved.
        assert_eq!(fits(throttle, scope, another), expected, "{another}");
    }
}

#[test]
fn f66_a_requests_share_of_its_quota_is_its_cost_and_at_most_all() {
    let settings = [spending(10.0, 60.0, WindowKind::Fixed), pace(1, 0.0, 0.0)];
    let [mut api, mut free] = settings.map(|one| Throttle::new(one, 1, Instant::START));
    for (cost, share) in [
        (0.0, 0.0),
        (2.5, 0.25),
        (10.0, 1.0),
        (999.0, 1.0),
        (f64::NAN, 1.0),
    ] {
        let scope = api.scope("api");
        assert_eq!(api.share(scope, cost), share, "{cost}");
        let scope = free.scope("api");
        assert_eq!(free.share(scope, cost), 0.0, "{cost}");
    }
}

#[test]
fn f79_waiting_for_quota_is_recorded_as_a_decision() {
    for wanted in [true, false] {
        let mut world = World::new(spending(3.0, 60.0, WindowKind::Fixed));
        world.throttle.set_tracing(wanted);
        let lane = world.origin("a.test", script([]));
        world.queue(lane, 4, page(0.01));
        world.run(at(10.0));
        let decided = |account: &Account| account.decided(DecisionEvent::Quota);
        let decided: u32 = world.throttle.accounts().map(decided).sum();
        assert_eq!(decided, 1, "it is counted");
        let mut kept = world.throttle.take_decisions();
        let kept = kept.find(|decision| decision.event == DecisionEvent::Quota);
        assert_eq!(kept.is_some(), wanted);
        assert!(kept.is_none_or(|decision| decision.reason.contains("quota is used up")));
    }
}

#[test]
fn f50_initial_knowledge_counts_from_the_creation_of_the_scope() {
    let mut throttle = Throttle::new(pace(1, 0.0, 0.0), 1, Instant::START);
    let delay = Some(secs(2.0));
    throttle.set_initial(Box::new(move |name| {
        Some(Feedback {
            delay,
            ..Feedback::new(name)
        })
    }));
    throttle.set_clock(at(100.0));
    let scope = throttle.scope("a.test");
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    throttle.offer(lane, at(100.0));
    assert_eq!(throttle.poll(at(101.9)), None);
    let granted = throttle.poll(at(102.0));
    assert!(matches!(granted, Some(Grant::Release(..))), "{granted:?}");
}
