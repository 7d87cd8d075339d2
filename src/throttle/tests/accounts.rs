//! Accounts when there are more scopes than rows for them.

use std::time::Duration;

use super::world::*;
use crate::base::ids::{LaneId, ScopeSet};
use crate::base::time::Instant;
use crate::throttle::engine::{Account, Throttle};
use crate::throttle::signal::{BodySignal, Signal};

fn good(millis: u64) -> Signal {
    let latency = Some(Duration::from_millis(millis));
    Signal {
        status: Some(200),
        server_latency: latency,
        latency,
        ..Signal::default()
    }
}

fn refused() -> Signal {
    Signal {
        status: Some(429),
        ..good(100)
    }
}

/// Sends one request under a scope, which gets this answer. Returns its lane, which is open.
fn visit(throttle: &mut Throttle, name: &str, signal: &Signal, now: Instant) -> LaneId {
    let scope = throttle.scope(name);
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    throttle.offer(lane, now);
    answer_all(throttle, now, |throttle, ticket| {
        throttle.answer(ticket, 7, signal, now);
    });
    lane
}

/// The names of the scopes that come first, in order.
fn first(throttle: &Throttle, count: usize, rank: impl Fn(&Account) -> u64) -> Vec<String> {
    let mut accounts: Vec<&Account> = throttle.accounts().collect();
    accounts.sort_by_key(|account| (std::cmp::Reverse(rank(account)), account.scope.clone()));
    let names = accounts.iter().map(|account| account.scope.clone());
    let mut first: Vec<String> = names.take(count).collect();
    first.sort();
    first
}

const SCOPES: u64 = 50_000;
const GREATEST: u64 = 20;

/// Visits many scopes, some of which, from this one on, have another answer. If they are in use all the time, their
/// lanes stay open.
fn visit_many(greatest: u64, signal: &Signal, are_used: bool) -> Throttle {
    let mut throttle = Throttle::new(pace(1, 1.0, 0.0), 1, Instant::START);
    for number in 0..SCOPES {
        let now = Instant::START + Duration::from_millis(number);
        let usual = good(10 + number % 90);
        let is_great = (greatest..greatest + GREATEST).contains(&number);
        let signal = if is_great { signal } else { &usual };
        let lane = visit(&mut throttle, &format!("{number:05}.test"), signal, now);
        if !are_used {
            throttle.close_lane(lane, now);
        }
    }
    throttle
}

fn names(greatest: u64) -> Vec<String> {
    let numbers = greatest..greatest + GREATEST;
    numbers.map(|number| format!("{number:05}.test")).collect()
}

#[test]
fn the_slowest_and_most_refused_of_many_scopes_are_listed_whenever_they_come() {
    for greatest in [0, 30_000, SCOPES - GREATEST] {
        for are_used in [true, false] {
            let throttle = visit_many(greatest, &good(5_000), are_used);
            let latency = |account: &Account| account.latency().unwrap_or_default().as_nanos();
            let slowest = first(&throttle, 20, |account| latency(account) as u64);
            assert_eq!(slowest, names(greatest), "{greatest} {are_used}");
            let throttle = visit_many(greatest, &refused(), are_used);
            let most = first(&throttle, 20, |account| account.refused);
            assert_eq!(most, names(greatest), "{greatest} {are_used}");
            assert!(throttle.accounts().count() <= 10_000);
        }
    }
}

#[test]
fn a_scope_that_is_refused_often_is_among_the_first_though_many_were_refused_once() {
    let mut throttle = Throttle::new(pace(1, 0.0, 0.0), 1, Instant::START);
    throttle.set_accounts_max(3_000);
    let at = |number: u64| Instant::START + Duration::from_millis(number);
    for number in 0..20_000 {
        visit(
            &mut throttle,
            &format!("{number}.test"),
            &good(10),
            at(number),
        );
    }
    for number in 0..20_000 {
        let now = at(20_000 + number);
        visit(&mut throttle, &format!("{number}.test"), &refused(), now);
        if number % 50 == 0 {
            visit(&mut throttle, "often.test", &refused(), now);
        }
    }
    assert_eq!(
        first(&throttle, 1, |account| account.refused),
        ["often.test"]
    );
    let often = throttle.account_of("often.test").expect("it has one");
    // Its backoff lets few requests leave.
    assert!(often.refused >= 4, "{}", often.refused);
}

#[test]
fn a_refusal_that_only_the_body_shows_is_one_reply() {
    let mut throttle = Throttle::new(pace(1, 0.0, 0.0), 1, Instant::START);
    let scope = throttle.scope("a.test");
    let lane = throttle.open_lane(&ScopeSet::ordered([scope]));
    let mut replies = 0;
    for number in 0..10 {
        let now = Instant::START + Duration::from_secs(1000 * number);
        throttle.offer(lane, now);
        answer_all(&mut throttle, now, |throttle, ticket| {
            throttle.answer(ticket, number, &good(10), now);
            let body = BodySignal::nothing().status(429);
            throttle.answer_body(ticket, number, &good(10), None, &body, now);
            replies += 1;
        });
    }
    let account = throttle.account_of("a.test").expect("it has one");
    assert!(replies > 1);
    assert_eq!((account.replies, account.refused), (replies, replies));
}

/// The time waited, in seconds, of scopes with a delay and scopes under a cap of all, with so many accounts.
fn waited(accounts: usize) -> f64 {
    let mut settings = pace(1, 2.0, 0.0);
    settings.concurrent_requests = 3;
    let mut world = World::new(settings);
    world.throttle.set_accounts_max(accounts);
    for number in 0..10 {
        let lane = world.lane(&[&format!("{number}.test")]);
        world.queue(lane, 20, page(1.5));
    }
    world.run(at(30.0));
    let waited = world.throttle.waited(world.now);
    waited.iter().map(|(_, waited)| waited.as_secs_f64()).sum()
}

#[test]
fn the_sum_of_all_waits_has_those_of_scopes_without_an_account() {
    let all = waited(10_000);
    assert!(all > 200.0, "{all}");
    for accounts in [0, 1, 5] {
        let some = waited(accounts);
        assert!(
            (some - all).abs() < 0.01 * all,
            "{accounts}: {some} of {all}"
        );
    }
}

#[test]
fn an_account_is_found_by_its_name_also_after_its_scope_was_evicted() {
    let throttle = visit_many(0, &refused(), false);
    for name in names(0) {
        let account = throttle.account_of(&name).expect("it was kept");
        assert_eq!(
            (account.scope.as_str(), account.refused),
            (name.as_str(), 1)
        );
        assert_eq!(
            throttle.live_account(&name).map(|account| account.sent),
            None
        );
    }
    assert!(throttle.account_of("other.test").is_none());
    let listed: Vec<&Account> = throttle.accounts().collect();
    for account in listed {
        let found = throttle.account_of(&account.scope);
        assert_eq!(found.map(|found| &found.scope), Some(&account.scope));
    }
}
