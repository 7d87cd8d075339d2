//! Failures in a row, holds and successes of hosts, in one run and in the next.

use super::HostFailure::{Unanswered, Unconnected};
use super::*;

const HOLD_MIN: Duration = Duration::from_secs(5);
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);

/// The default policy, but for when hosts are given up.
fn after(down_after: Duration) -> HostPolicy {
    HostPolicy {
        down_after,
        ..HostPolicy::default()
    }
}

fn one() -> (Hosts, HostPort) {
    let mut hosts = Hosts::new(&Secret::from_seed(1));
    let id = hosts.host("a.test");
    (hosts, (id, 80))
}

fn fail(hosts: &mut Hosts, id: HostPort, times: u32, now: Instant) -> HostVerdict {
    let fail = |_| hosts.failed(id, Unconnected, &after(secs(3600)), now);
    (0..times).map(fail).last().expect("at least one")
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The host in a run that begins `elapsed` after `now`, with its failure.
fn next_run(hosts: &mut Hosts, elapsed: Duration, now: Instant) -> (Hosts, HostPort) {
    let mut next = Hosts::new(&Secret::from_seed(1));
    while let Some((name, saved)) = hosts.poll_failure(now) {
        assert_eq!(name, "a.test:80");
        next.restore_failure(&name, &saved, elapsed, Instant::START);
    }
    let id = next.host("a.test");
    (next, (id, 80))
}

#[test]
fn a_failing_host_continues_to_fail_in_the_next_run() {
    let now = Instant::START + secs(100);
    let first = || {
        let (mut hosts, id) = one();
        hosts.start_saving();
        hosts.hold(id.0);
        (hosts, id)
    };
    let (mut hosts, id) = first();
    assert_eq!(fail(&mut hosts, id, 5, now), HostVerdict::Held(secs(5)));
    let (mut next, id) = next_run(&mut hosts, secs(2), now);
    let until = Instant::START + secs(3);
    assert_eq!(next.health(id, Instant::START), Health::Held(until));
    assert_eq!(next.held(Instant::START), (1, Some(until)));
    next.hold(id.0);
    // The first hold of this run is the second of the row.
    assert_eq!(fail(&mut next, id, 1, until), HostVerdict::Held(secs(10)));
    next.answered(id);
    assert_eq!(next.health(id, until), Health::Up);
    next.release(id.0);
    next.check([].into_iter());

    // The time before counts towards giving it up, and so does that it was.
    let (mut hosts, id) = first();
    fail(&mut hosts, id, 5, now);
    hosts.begin_failing(id, now);
    let later = now + secs(3000);
    let (mut next, id) = next_run(&mut hosts, secs(0), later);
    next.hold(id.0);
    let end = Instant::START + secs(600);
    assert_eq!(
        fail(&mut next, id, 1, end),
        HostVerdict::GivenUp(secs(3600))
    );
    next.start_saving();
    next.begin_failing(id, end);
    let (mut last, id) = next_run(&mut next, secs(60), end);
    assert_eq!(last.health(id, Instant::START), Health::Down);
    let again = Instant::START + HOLD_MAX - secs(60);
    assert_eq!(last.health(id, again), Health::Up);
    last.hold(id.0);
    fail(&mut last, id, 1, again);
    assert_eq!(
        last.health(id, again + HOLD_MAX),
        Health::Down,
        "for twice as long"
    );

    // A success is saved, too.
    let (mut hosts, id) = first();
    fail(&mut hosts, id, 5, now);
    hosts.answered(id);
    let (next, id) = next_run(&mut hosts, secs(0), now);
    assert_eq!(next.health(id, Instant::START), Health::Up);
}

#[test]
fn a_host_takes_at_most_4_bytes() {
    assert!(size_of::<Host>() <= 4);
}

#[test]
fn five_failures_in_a_row_hold_a_host_for_5_s_and_each_later_one_doubles_the_hold() {
    let (mut hosts, id) = one();
    let mut now = Instant::START + secs(7);
    assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
    assert_eq!(hosts.health(id, now), Health::Up);
    for seconds in [5, 10, 20, 40, 80, 160, 320, 640, 900, 900] {
        assert_eq!(
            fail(&mut hosts, id, 1, now),
            HostVerdict::Held(secs(seconds))
        );
        let until = now + secs(seconds);
        assert_eq!(hosts.health(id, now), Health::Held(until));
        assert_eq!(hosts.held(now), (1, Some(until)));
        assert_eq!(fail(&mut hosts, id, 9, now), HostVerdict::Counted);
        now = until;
        assert_eq!(hosts.health(id, now), Health::Up);
        assert_eq!(hosts.held(now), (0, None));
    }
}

#[test]
fn holds_and_the_time_that_a_host_stays_given_up_are_those_of_the_policy() {
    let (mut hosts, id) = one();
    let policy = HostPolicy {
        failures_max: 2,
        hold_min: secs(3),
        hold_max: secs(10),
        down_after: secs(60),
        down_time: secs(100),
        down_time_max: secs(300),
        ..HostPolicy::default()
    };
    let mut now = Instant::START + secs(7);
    let fail = |hosts: &mut Hosts, now| hosts.failed(id, Unconnected, &policy, now);
    assert_eq!(fail(&mut hosts, now), HostVerdict::Counted);
    for seconds in [3, 6, 10, 10, 10, 10, 10] {
        assert_eq!(fail(&mut hosts, now), HostVerdict::Held(secs(seconds)));
        now += secs(seconds);
    }
    // The last hold ends when the time is over.
    assert_eq!(fail(&mut hosts, now), HostVerdict::Held(secs(1)));
    now += secs(1);
    for seconds in [100, 200, 300, 300] {
        assert!(matches!(fail(&mut hosts, now), HostVerdict::GivenUp(_)));
        now += secs(seconds);
        assert_eq!(hosts.health(id, now - secs(1)), Health::Down);
        assert_eq!(hosts.health(id, now), Health::Up);
    }
}

#[test]
fn the_last_try_is_due_at_host_down_after_and_its_failure_fails_the_host() {
    let (mut hosts, id) = one();
    let down_after = secs(120);
    let mut now = Instant::START;
    let mut holds = Vec::new();
    let span = loop {
        match hosts.failed(id, Unanswered, &after(down_after), now) {
            HostVerdict::Held(hold) => holds.push(hold.as_secs()),
            HostVerdict::GivenUp(span) => break span,
            HostVerdict::Counted => panic!("every failure after a hold is a hold or the end"),
        }
        now += Duration::from_secs(*holds.last().expect("just pushed"));
    };
    assert_eq!(holds, [5, 10, 20, 40, 45]);
    assert_eq!(span, down_after);
    assert_eq!(hosts.health(id, now), Health::Down);
    assert_eq!(hosts.held(now), (0, None));
    // 15 min later one request tries again.
    now += HOLD_MAX;
    assert_eq!(hosts.health(id, now), Health::Up);
    let verdict = hosts.failed(id, Unconnected, &after(down_after), now);
    assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
    now += HOLD_MAX;
    assert_eq!(hosts.health(id, now), Health::Down, "for twice as long");
    now += HOLD_MAX;
    hosts.connected(id);
    assert_eq!(
        hosts.health(id, now),
        Health::Up,
        "a connection is not a success, but the host may be tried"
    );
    hosts.answered(id);
    assert_eq!(
        hosts.failed(id, Unconnected, &after(down_after), now),
        HostVerdict::Counted
    );
}

#[test]
fn discounted_time_does_not_count_towards_down_after() {
    let down_after = secs(120);
    let check = |discount: fn(&mut Hosts, HostPort, Instant)| {
        let (mut hosts, id) = one();
        let mut now = Instant::START + secs(1000);
        hosts.failed(id, Unanswered, &after(down_after), now);
        now += secs(300);
        discount(&mut hosts, id, now);
        matches!(
            hosts.failed(id, Unanswered, &after(down_after), now),
            HostVerdict::GivenUp(_)
        )
    };
    assert!(check(|_, _, _| ()));
    assert!(!check(|hosts, _, _| hosts.discount_all(secs(200))));
    assert!(!check(|hosts, id, now| hosts.discount(
        id,
        now - secs(200),
        now
    )));
    assert!(check(|hosts, id, now| hosts.discount(
        id,
        now - secs(100),
        now
    )));
    // A span from before its first failure discounts only the time since that.
    assert!(!check(|hosts, id, now| hosts.discount(
        id,
        now - secs(900),
        now
    )));
}

#[test]
fn the_health_of_a_port_does_not_affect_another_port() {
    let (mut hosts, open) = one();
    let closed = (open.0, 443);
    let mut now = Instant::START;
    for seconds in [5, 10, 20, 40, 45] {
        let verdict = hosts.failed(closed, Unanswered, &after(secs(120)), now);
        assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
        assert_eq!(hosts.health(open, now), Health::Up);
        hosts.answered(open);
        hosts.connected(open);
        now += secs(seconds);
    }
    let verdict = hosts.failed(closed, Unanswered, &after(secs(120)), now);
    assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
}

#[test]
fn a_success_resets_failures_and_holds() {
    let (mut hosts, id) = one();
    let now = Instant::START;
    fail(&mut hosts, id, 4, now);
    hosts.connected(id);
    assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
    assert_eq!(fail(&mut hosts, id, 1, now), HostVerdict::Held(HOLD_MIN));
    hosts.connected(id);
    assert_eq!(hosts.held(now), (0, None));
    assert_eq!(fail(&mut hosts, id, 5, now), HostVerdict::Held(HOLD_MIN));
}

#[test]
fn a_connection_without_an_answer_is_not_a_success() {
    let (mut hosts, id) = one();
    let mut now = Instant::START;
    for seconds in [5, 10, 20] {
        hosts.connected(id);
        let verdict = hosts.failed(id, Unanswered, &after(secs(3600)), now);
        assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
        now += secs(seconds);
    }
    hosts.answered(id);
    let verdict = hosts.failed(id, Unanswered, &after(secs(3600)), now);
    assert_eq!(verdict, HostVerdict::Held(HOLD_MIN));
}

#[test]
fn time_in_which_the_crawl_is_stopped_does_not_count() {
    let (mut hosts, id) = one();
    let at = |seconds| Instant::START + secs(seconds);
    let fail =
        |hosts: &mut Hosts, seconds| hosts.failed(id, Unanswered, &after(secs(120)), at(seconds));
    assert_eq!(fail(&mut hosts, 10), HostVerdict::Held(secs(5)));
    hosts.set_stopped(true, at(12));
    hosts.set_stopped(true, at(400));
    hosts.set_stopped(false, at(500));
    // Five seconds of active time have passed.
    assert_eq!(fail(&mut hosts, 503), HostVerdict::Held(secs(10)));
    hosts.set_stopped(true, at(513));
    assert_eq!(fail(&mut hosts, 700), HostVerdict::Held(secs(20)));
    hosts.set_stopped(false, at(700));
    assert_eq!(fail(&mut hosts, 805), HostVerdict::GivenUp(secs(120)));
}

#[test]
fn a_held_host_is_counted_once() {
    let (mut hosts, id) = one();
    let mut now = Instant::START;
    for seconds in [5, 10, 20] {
        let verdict = hosts.failed(id, Unanswered, &after(secs(3600)), now);
        assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
        assert_eq!(hosts.failures.holds(), 1);
        now += secs(seconds);
    }
    hosts.give_up(id, false, &HostPolicy::default(), now);
    assert_eq!(
        (hosts.failures.holds(), hosts.health(id, now)),
        (0, Health::Down)
    );
}

#[test]
fn expired_holds_are_removed_and_not_counted() {
    let mut hosts = Hosts::new(&Secret::from_seed(1));
    let ids: Vec<HostPort> = (0..3)
        .map(|number| (hosts.host(&format!("h{number}.test")), 80))
        .collect();
    for (number, id) in ids.iter().enumerate() {
        let at = Instant::START + secs(number as u64);
        hosts.failed(*id, Unanswered, &after(secs(3600)), at);
    }
    let now = Instant::START + secs(6);
    assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
    hosts.expire(now);
    assert_eq!(hosts.failures.holds(), 1);
    assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
}
