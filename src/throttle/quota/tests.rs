//! What a ledger permits, compared with the count of a server.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_secs(60);

fn at(seconds: f64) -> Instant {
    Instant::START + Duration::from_secs_f64(seconds)
}

fn ledger(units: f64, kind: WindowKind) -> Ledger {
    Ledger::new(Quota {
        units,
        window: WINDOW,
        kind,
        oversize: Oversize::Alone,
    })
}

/// Charges and departs at once.
fn send(ledger: &mut Ledger, cost: f64, now: Instant) -> Charge {
    assert_eq!(ledger.fits_at(cost, now), Fit::Now, "{cost} at {now:?}");
    let charge = ledger.charge(cost);
    ledger.departed(charge, now)
}

fn check_consumed(ledger: &Ledger, now: Instant, expected: f64) {
    assert_eq!(ledger.consumed_units(now), expected);
}

const BOTH: [WindowKind; 2] = [WindowKind::Fixed, WindowKind::Sliding];

#[test]
fn f60_a_quota_of_ten_fits_six_and_three_and_then_waits_for_its_window() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        send(&mut ledger, 6.0, at(0.0));
        send(&mut ledger, 3.0, at(0.0));
        assert_eq!(ledger.fits_at(3.0, at(0.0)), Fit::At(at(60.0)));
        assert_eq!(ledger.fits_at(3.0, at(59.9)), Fit::At(at(60.0)));
        assert_eq!(ledger.fits_at(1.0, at(59.9)), Fit::Now, "one is left");
        send(&mut ledger, 10.0, at(60.0));
    }
}

#[test]
fn f60_only_a_fixed_window_permits_twice_its_quota_around_its_boundary() {
    for (kind, expected) in [
        (WindowKind::Fixed, Fit::Now),
        (WindowKind::Sliding, Fit::At(at(119.0))),
    ] {
        let mut ledger = ledger(10.0, kind);
        // The window begins with the first departure.
        send(&mut ledger, 1.0, at(0.0));
        send(&mut ledger, 9.0, at(59.0));
        assert_eq!(ledger.fits_at(10.0, at(60.0)), expected);
    }
}

#[test]
fn f60_a_fixed_window_begins_with_its_first_departure() {
    let mut ledger = ledger(10.0, WindowKind::Fixed);
    // The connection was being set up until then.
    let charge = ledger.charge(10.0);
    ledger.departed(charge, at(5.0));
    assert_eq!(ledger.fits_at(1.0, at(60.0)), Fit::At(at(65.0)));
    // The next window begins only with its first departure.
    send(&mut ledger, 10.0, at(100.0));
    assert_eq!(ledger.fits_at(1.0, at(125.0)), Fit::At(at(160.0)));
}

#[test]
fn f60_a_window_of_zero_never_blocks() {
    for kind in BOTH {
        let mut ledger = Ledger::new(Quota {
            units: 1.0,
            window: Duration::ZERO,
            kind,
            oversize: Oversize::Refuse,
        });
        for cost in [1.0, 1.0, 999.0, f64::NAN] {
            let charge = send(&mut ledger, cost, at(0.0));
            assert_eq!(ledger.settle(charge, Some(7.0), Some(0.0), at(0.0)), 0.0);
        }
        ledger.remaining(0.0, at(0.0));
        assert_eq!(ledger.fits_at(1.0, at(0.0)), Fit::Now);
        assert!(ledger.is_blank(at(0.0)));
    }
}

#[test]
fn f61_the_fourth_cost_of_three_waits_with_a_quota_of_ten() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        for _ in 0..3 {
            send(&mut ledger, 3.0, at(1.0));
        }
        assert_eq!(ledger.fits_at(3.0, at(2.0)), Fit::At(at(61.0)));
    }
}

#[test]
fn f61_a_reserved_cost_counts_in_the_window_of_its_departure() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        send(&mut ledger, 4.0, at(0.0));
        let slow = ledger.charge(6.0);
        assert_eq!(ledger.fits_at(5.0, at(50.0)), Fit::At(at(110.0)));
        // The window is over; the reserved cost counts in the next one.
        assert_eq!(ledger.fits_at(4.0, at(60.0)), Fit::Now);
        assert_eq!(ledger.fits_at(5.0, at(60.0)), Fit::At(at(120.0)));
        ledger.departed(slow, at(70.0));
        assert_eq!(ledger.fits_at(5.0, at(71.0)), Fit::At(at(130.0)));
        check_consumed(&ledger, at(71.0), 6.0);
    }
}

#[test]
fn f61_a_cost_that_never_departed_is_given_back() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let charge = ledger.charge(8.0);
        ledger.give_back(charge, at(1.0));
        assert!(ledger.is_blank(at(1.0)));
        // A departed charge can be given back as well.
        let charge = send(&mut ledger, 8.0, at(1.0));
        ledger.give_back(charge, at(2.0));
        check_consumed(&ledger, at(2.0), 0.0);
        send(&mut ledger, 10.0, at(2.0));
    }
}

#[test]
fn f61_a_charge_of_the_previous_ledger_is_harmless() {
    for kind in BOTH {
        let mut before = ledger(100.0, kind);
        let (leaves, stays) = (before.charge(50.0), before.charge(50.0));
        let mut now = ledger(10.0, kind);
        now.give_back(stays, at(0.0));
        // A departed cost is spent in the new ledger, although the old one reserved it.
        let left = now.departed(leaves, at(1.0));
        check_consumed(&now, at(1.0), 50.0);
        now.settle(left, Some(4.0), None, at(2.0));
        check_consumed(&now, at(2.0), 4.0);
        assert_eq!(now.blank_at(), at(61.0));
    }
}

#[test]
fn f62_the_difference_from_the_estimate_is_reconciled() {
    for kind in BOTH {
        let check = |actual, difference, consumed| {
            let mut ledger = ledger(10.0, kind);
            let charge = send(&mut ledger, 2.0, at(0.0));
            assert_eq!(ledger.settle(charge, actual, None, at(1.0)), difference);
            check_consumed(&ledger, at(1.0), consumed);
        };
        check(Some(2.5), 0.5, 2.5);
        check(Some(1.5), -0.5, 1.5);
        check(Some(0.0), -2.0, 0.0);
        check(None, 0.0, 2.0);
        check(Some(f64::NAN), 0.0, 2.0);
        check(Some(f64::INFINITY), 0.0, 2.0);
        check(Some(-1.0), 0.0, 2.0);
    }
}

#[test]
fn f62_an_excess_counts_now_and_a_rest_is_not_refunded_in_a_later_window() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let dear = send(&mut ledger, 2.0, at(0.0));
        let cheap = send(&mut ledger, 8.0, at(0.0));
        send(&mut ledger, 3.0, at(60.0));
        ledger.settle(cheap, Some(1.0), None, at(61.0));
        check_consumed(&ledger, at(61.0), 3.0);
        ledger.settle(dear, Some(6.0), None, at(61.0));
        check_consumed(&ledger, at(61.0), 7.0);
    }
}

#[test]
fn f63_spending_is_limited_to_what_the_server_reports_as_remaining() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let charge = send(&mut ledger, 1.0, at(0.0));
        ledger.settle(charge, None, Some(3.0), at(1.0));
        check_consumed(&ledger, at(1.0), 7.0);
        assert_eq!(ledger.fits_at(3.0, at(1.0)), Fit::Now);
        assert!(matches!(ledger.fits_at(3.1, at(1.0)), Fit::At(_)));
        let charge = send(&mut ledger, 3.0, at(2.0));
        assert!(matches!(ledger.fits_at(0.1, at(2.0)), Fit::At(_)));
        // An answer without a count leaves it unchanged.
        ledger.settle(charge, None, None, at(3.0));
        check_consumed(&ledger, at(3.0), 10.0);
        assert_eq!(ledger.fits_at(10.0, at(62.0)), Fit::Now, "{kind:?}");
    }
}

#[test]
fn f63_a_larger_remaining_quota_than_ours_permits_nothing_more() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let charge = send(&mut ledger, 9.0, at(0.0));
        ledger.settle(charge, None, Some(8.0), at(1.0));
        check_consumed(&ledger, at(1.0), 9.0);
    }
}

#[test]
fn f63_unanswered_costs_are_added_to_the_servers_count() {
    let mut ledger = ledger(100.0, WindowKind::Fixed);
    let first = send(&mut ledger, 1.0, at(0.0));
    let second = send(&mut ledger, 1.0, at(0.0));
    // Another client spends the same quota.
    ledger.settle(first, None, Some(50.0), at(1.0));
    check_consumed(&ledger, at(1.0), 51.0);
    ledger.settle(second, None, Some(50.0), at(1.0));
    check_consumed(&ledger, at(1.0), 50.0);
}

#[test]
fn f63_of_reordered_answers_the_smallest_remaining_quota_applies() {
    let mut ledger = ledger(100.0, WindowKind::Fixed);
    let first = send(&mut ledger, 1.0, at(0.0));
    let second = send(&mut ledger, 1.0, at(0.0));
    ledger.settle(second, None, Some(40.0), at(1.0));
    ledger.settle(first, None, Some(41.0), at(1.0));
    check_consumed(&ledger, at(1.0), 60.0);
}

#[test]
fn f62_a_departure_before_the_window_is_reconciled_in_it() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let answered_at_ = ledger.charge(4.0);
        send(&mut ledger, 4.0, at(1.0));
        let charge = ledger.departed(answered_at_, at(0.9));
        ledger.settle(charge, Some(1.0), None, at(2.0));
        check_consumed(&ledger, at(2.0), 5.0);
    }
}

#[test]
fn f63_an_answer_of_the_previous_window_does_not_affect_this_one() {
    let mut ledger = ledger(10.0, WindowKind::Fixed);
    let late = send(&mut ledger, 1.0, at(59.0));
    send(&mut ledger, 1.0, at(119.0));
    ledger.settle(late, None, Some(0.0), at(119.1));
    check_consumed(&ledger, at(119.2), 1.0);
}

#[test]
fn f63_the_remaining_quota_can_be_set_before_the_first_request() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        ledger.remaining(1.0, at(0.0));
        send(&mut ledger, 1.0, at(2.0));
        assert!(matches!(ledger.fits_at(1.0, at(3.0)), Fit::At(_)));
        // A server's report never gives back what was spent.
        ledger.remaining(f64::NAN, at(3.0));
        ledger.remaining(-1.0, at(3.0));
        check_consumed(&ledger, at(3.0), 10.0);
    }
}

#[test]
fn f65_an_oversize_request_runs_alone_and_uses_the_whole_window() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        send(&mut ledger, 0.5, at(0.0));
        assert_eq!(ledger.fits_at(999.0, at(1.0)), Fit::At(at(60.0)));
        let charge = send(&mut ledger, 999.0, at(60.0));
        assert_eq!(ledger.fits_at(0.1, at(61.0)), Fit::At(at(120.0)));
        assert_eq!(ledger.fits_at(999.0, at(61.0)), Fit::At(at(120.0)));
        // It cost less in the end: the rest is available.
        ledger.settle(charge, Some(4.0), None, at(62.0));
        send(&mut ledger, 6.0, at(62.0));
    }
}

#[test]
fn f65_an_oversize_request_never_fits_if_it_is_refused() {
    let ledger = Ledger::new(Quota {
        units: 10.0,
        window: WINDOW,
        kind: WindowKind::Fixed,
        oversize: Oversize::Refuse,
    });
    assert_eq!(ledger.fits_at(10.0, at(0.0)), Fit::Now);
    assert_eq!(ledger.fits_at(10.1, at(0.0)), Fit::Never);
}

#[test]
fn f65_two_oversize_requests_never_share_a_window() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        let first = ledger.charge(999.0);
        assert_eq!(ledger.fits_at(999.0, at(0.0)), Fit::At(at(60.0)));
        ledger.departed(first, at(7.0));
        assert_eq!(ledger.fits_at(999.0, at(60.0)), Fit::At(at(67.0)));
        assert_eq!(ledger.fits_at(999.0, at(67.0)), Fit::Now);
    }
}

#[test]
fn f65_an_invalid_cost_counts_as_more_than_any_window_holds() {
    for cost in [f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY] {
        let mut ledger = ledger(f64::MAX, WindowKind::Fixed);
        send(&mut ledger, cost, at(0.0));
        assert_eq!(ledger.fits_at(1.0, at(0.0)), Fit::At(at(60.0)), "{cost}");
    }
    let mut free = ledger(10.0, WindowKind::Fixed);
    send(&mut free, 10.0, at(0.0));
    assert_eq!(free.fits_at(0.0, at(0.0)), Fit::Now);
    assert_eq!(free.fits_at(-0.0, at(0.0)), Fit::Now);
}

#[test]
fn fractions_without_a_binary_form_never_block_a_ledger() {
    for kind in BOTH {
        for (units, times, cost) in [(11.0, 10, 1.1), (8.06, 2, 4.03)] {
            let mut ledger = ledger(units, kind);
            let charges: Vec<Charge> = (0..times)
                .map(|_| send(&mut ledger, cost, at(0.0)))
                .collect();
            assert_eq!(ledger.fits_at(0.000_001, at(0.0)), Fit::At(at(60.0)));
            for charge in charges {
                ledger.settle(charge, Some(0.0), None, at(1.0));
            }
            assert!(ledger.is_blank(at(1.0)));
        }
    }
}

#[test]
fn a_ledger_is_blank_once_no_cost_counts() {
    for kind in BOTH {
        let mut ledger = ledger(10.0, kind);
        assert!(ledger.is_blank(at(0.0)));
        let charge = ledger.charge(1.0);
        assert_eq!(ledger.blank_at(), Instant::FAR_FUTURE);
        ledger.departed(charge, at(3.0));
        assert_eq!(ledger.blank_at(), at(63.0));
        assert!(!ledger.is_blank(at(62.9)));
        assert!(ledger.is_blank(at(63.0)));
    }
}

#[test]
fn a_sliding_log_stays_small_and_drops_nothing_too_early() {
    let mut ledger = ledger(1e9, WindowKind::Sliding);
    let mut last = Instant::START;
    for step in 0..50_000 {
        last = at(f64::from(step) * 0.005);
        send(&mut ledger, 1.0, last);
    }
    let Spent::Sliding { log, .. } = &ledger.spent else {
        unreachable!("it slides");
    };
    assert!(log.len() <= SLICES as usize + 2, "{}", log.len());
    // 200 per second for a minute, plus what is kept a little longer.
    let consumed = ledger.consumed_units(last);
    assert!((12_000.0..=12_100.0).contains(&consumed), "{consumed}");
}

#[test]
fn f104_no_more_than_sixty_requests_arrive_in_any_minute() {
    // Every request is either as late as the margin allows, or not late at all.
    let mut ledger = Ledger::per_minute(60.0);
    let mut now = Instant::START;
    let mut arrivals = Vec::new();
    let mut random = 1_u32;
    while now < at(900.0) {
        match ledger.fits_at(1.0, now) {
            Fit::Now => {
                let charge = ledger.charge(1.0);
                let charge = ledger.departed(charge, now);
                ledger.settle(charge, None, None, now);
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let late = Duration::from_nanos(u64::from(random) % 1_000_000_000);
                arrivals.push(now + late);
                now += Duration::from_millis(u64::from(random >> 22));
            }
            Fit::At(later) => {
                assert!(later > now);
                now = later;
            }
            Fit::Never => unreachable!("a request is one unit"),
        }
    }
    arrivals.sort_unstable();
    for span in arrivals.windows(61) {
        let took = span[60].saturating_since(span[0]);
        assert!(took >= MINUTE, "61 in {took:?}");
    }
    assert!(arrivals.len() > 850, "{} in 15 minutes", arrivals.len());
}

#[test]
fn f104_a_fractional_limit_is_never_exceeded() {
    let check = |limit, at_once: usize, again_at: f64| {
        let mut ledger = Ledger::per_minute(limit);
        for _ in 0..at_once {
            send(&mut ledger, 1.0, at(0.0));
        }
        assert_eq!(ledger.fits_at(1.0, at(0.0)), Fit::At(at(again_at)));
    };
    check(2.9, 2, 61.0);
    check(1.0, 1, 61.0);
    check(0.5, 1, 121.0);
    check(f64::NAN, 1, 61.0);
    for limit in [0.0, -1.0] {
        let mut ledger = Ledger::per_minute(limit);
        send(&mut ledger, 1.0, at(0.0));
        assert_eq!(ledger.fits_at(1.0, at(1e9)), Fit::At(Instant::FAR_FUTURE));
    }
}

/// A request as the server sees it: departure, actual cost, time of the answer.
type Flying = (Instant, f64, Instant, Charge);

/// Sends for ten windows with wrong estimates; returns departures with actual costs.
fn spend_ten_windows(
    kind: WindowKind,
    costs: &[(f64, f64)],
    concurrency: usize,
    latency: Duration,
) -> Vec<(Instant, f64)> {
    let mut ledger = ledger(100.0, kind);
    let mut now = Instant::START;
    let mut flying: VecDeque<Flying> = VecDeque::new();
    let mut left = Vec::new();
    let mut costs = costs.iter().cycle();
    let mut next = costs.next();
    while now < at(600.0) {
        while let Some(&(_, actual, answered_at, charge)) = flying.front()
            && answered_at <= now
        {
            ledger.settle(charge, Some(actual), None, answered_at);
            flying.pop_front();
        }
        let &(estimate, factor) = next.expect("they go round");
        let answered_at = flying.front().map(|flying| flying.2);
        if flying.len() == concurrency {
            now = answered_at.expect("a request is in flight");
            continue;
        }
        match ledger.fits_at(estimate, now) {
            Fit::Now => {
                let charge = ledger.charge(estimate);
                let charge = ledger.departed(charge, now);
                flying.push_back((now, estimate * factor, now + latency, charge));
                left.push((now, estimate * factor));
                next = costs.next();
            }
            Fit::At(later) => now = answered_at.map_or(later, |answered_at| later.min(answered_at)),
            Fit::Never => unreachable!("oversize runs alone"),
        }
    }
    left
}

proptest! {
    #[test]
    fn f64_no_window_spends_more_than_its_cap_and_the_errors_in_flight(
        costs in prop::collection::vec((1.0_f64..20.0, 0.7_f64..1.3), 1..40),
        concurrency in 1_usize..5,
        latency in 1_u64..5_000,
    ) {
        let latency = Duration::from_millis(latency);
        let error = costs
            .iter()
            .map(|(estimate, factor)| (estimate * (factor - 1.0)).max(0.0))
            .fold(0.0, f64::max);
        let bound = 100.0 + error * concurrency as f64 + 0.001;
        let sliding = spend_ten_windows(WindowKind::Sliding, &costs, concurrency, latency);
        for (number, (first, _)) in sliding.iter().enumerate() {
            let spent: f64 = sliding[number..]
                .iter()
                .take_while(|(left, _)| *left < *first + WINDOW)
                .map(|(_, cost)| cost)
                .sum();
            prop_assert!(spent <= bound, "{spent} in a minute, {bound} allowed");
        }
        let fixed = spend_ten_windows(WindowKind::Fixed, &costs, concurrency, latency);
        let (mut began, mut spent) = (fixed[0].0, 0.0);
        for (left, cost) in fixed {
            if left >= began + WINDOW {
                began = left;
                spent = 0.0;
            }
            spent += cost;
            prop_assert!(spent <= bound, "{spent} in a window, {bound} allowed");
        }
    }
}

#[test]
fn a_window_runs_from_when_its_costs_were_on_the_wire() {
    for kind in BOTH {
        let mut ledger = ledger(2.0, kind);
        // Both are charged at the start of a turn, and depart during it.
        let charges = [at(0.0), at(0.0)].map(|now| send(&mut ledger, 1.0, now));
        ledger.reached_wire(charges[0], at(0.002));
        ledger.reached_wire(charges[1], at(0.004));
        assert_eq!(ledger.fits_at(1.0, at(1.0)), Fit::At(at(60.004)));
        // The unused part of the estimate is given back all the same.
        for charge in charges {
            ledger.settle(charge, Some(0.0), None, at(1.0));
        }
        check_consumed(&ledger, at(1.0), 0.0);
    }
}

#[test]
fn a_departure_that_left_late_counts_longer_than_later_ones() {
    let mut ledger = ledger(2.0, WindowKind::Sliding);
    let charge = send(&mut ledger, 1.0, at(0.0));
    send(&mut ledger, 1.0, at(1.0));
    ledger.reached_wire(charge, at(2.0));
    assert_eq!(ledger.fits_at(2.0, at(3.0)), Fit::At(at(62.0)));
}
