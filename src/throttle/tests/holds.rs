//! Holds and Crawl-delay, which delay a scope beyond its pace.

use super::world::*;
use crate::base::time::Instant;
use crate::fetch::failure::FailureKind;
use crate::throttle::engine::Throttle;
use crate::throttle::settings::{Jitter, RateLimitHeaders, ScopePatch, ThrottleSettings};

#[test]
fn f51_a_crawl_delay_is_a_strict_minimum_and_runs_from_the_last_request() {
    let mut world = World::new(jittered(1.0, Jitter::default()));
    let lane = world.lane(&["a.test"]);
    world.queue(lane, 1, page(0.05));
    world.run(at(0.1));
    let delayed = world.throttle.crawl_delay_scope("a.test", secs(3.0));
    world.throttle.follow_lane(delayed, lane);
    world.throttle.add_scope(lane, delayed);
    world.queue(lane, 50, page(0.05));
    world.run(at(300.0));
    assert_eq!(world.sent(lane).len(), 51);
    assert!(
        world
            .gaps(lane)
            .iter()
            .all(|gap| (3.0..3.001).contains(gap))
    );
}

#[test]
fn f51_a_crawl_delay_sets_concurrency_one_unless_the_user_keeps_it() {
    for (keeps, peak) in [(false, 1), (true, 3)] {
        let mut settings = pace(4, 0.0, 0.0);
        settings.robotstxt_keep_concurrency = keeps;
        let mut world = World::new(settings);
        let lane = world.lane(&["a.test"]);
        let delayed = world.throttle.crawl_delay_scope("a.test", secs(1.0));
        world.throttle.add_scope(lane, delayed);
        world.queue(lane, 20, page(2.5));
        world.run(at(100.0));
        assert_eq!(world.peak("a.test"), peak);
        assert!(world.gaps(lane).iter().all(|gap| *gap >= 1.0));
    }
}

#[test]
fn a_scopes_own_delay_overrides_a_longer_crawl_delay_with_a_warning_unless_silenced() {
    let mut settings = pace(1, 1.0, 0.0);
    for (name, delay, silent) in [("own.test", 0.1, None), ("quiet.test", 0.1, Some(true))] {
        let patch = ScopePatch {
            delay: Some(secs(delay)),
            ignore_robots_txt: silent,
            ..ScopePatch::default()
        };
        settings.scopes.insert(name.to_owned(), patch);
    }
    let throttle = Throttle::new(settings, 1, Instant::START);
    let overridden = |scope: &str, asked| {
        throttle
            .crawl_delay_overridden_by(scope, secs(asked))?
            .delay
    };
    assert_eq!(overridden("own.test", 1.0), Some(secs(0.1)));
    assert_eq!(overridden("own.test", 0.1), None, "nothing is taken away");
    assert_eq!(overridden("quiet.test", 1.0), None);
    assert_eq!(overridden("other.test", 1.0), None);
    assert!(!throttle.applies_crawl_delay("own.test"));
    assert!(throttle.applies_crawl_delay("other.test"));
}

#[test]
fn hosts_under_one_pattern_share_one_warning() {
    let mut settings = pace(1, 1.0, 0.0);
    for name in ["*.test", "own.test"] {
        let patch = ScopePatch {
            delay: Some(secs(0.1)),
            ..ScopePatch::default()
        };
        settings.scopes.insert(name.to_owned(), patch);
    }
    let mut throttle = Throttle::new(settings, 1, Instant::START);
    let mut warns = |scope: &str| {
        let own = throttle.poll_crawl_delay_warning(scope, secs(1.0));
        own.is_some()
    };
    let hosts = ["a.test", "b.test", "own.test", "a.test", "own.test"];
    assert_eq!(hosts.map(&mut warns), [true, false, true, false, false]);
}

#[test]
fn f54_a_scopes_own_concurrency_overrides_that_of_a_crawl_delay_with_a_warning_unless_silenced() {
    let check = |own, silent, keeps, expected| {
        let mut settings = pace(1, 0.0, 0.0);
        settings.robotstxt_keep_concurrency = keeps;
        let patch = ScopePatch {
            concurrency: Some(own),
            ignore_robots_txt: silent,
            ..ScopePatch::default()
        };
        settings.scopes.insert("a.test".to_owned(), patch);
        let mut world = World::new(settings);
        let overridden = world
            .throttle
            .crawl_delay_overridden_by("a.test", secs(1.0));
        assert_eq!(overridden.and_then(|own| own.concurrency), expected);
        assert!(world.throttle.applies_crawl_delay("a.test"));
        let lane = world.lane(&["a.test"]);
        let delayed = world.throttle.crawl_delay_scope("a.test", secs(1.0));
        world.throttle.add_scope(lane, delayed);
        world.queue(lane, 20, page(2.5));
        world.run(at(100.0));
        assert_eq!(world.peak("a.test"), own.min(3));
        assert!(world.gaps(lane).iter().all(|gap| *gap >= 1.0));
    };
    check(8, None, false, Some(8));
    check(8, Some(true), false, None);
    check(8, None, true, None);
    check(1, None, false, None);
}

#[test]
fn nothing_departs_before_the_end_of_a_hold() {
    let mut world = World::new(pace(4, 0.1, 0.0));
    let scope = world.throttle.scope("a.test");
    let lane = world.lane(&["a.test"]);
    world.throttle.hold(scope, at(20.0), world.now);
    world.throttle.hold(scope, at(10.0), world.now);
    world.queue(lane, 3, page(0.05));
    world.run(at(60.0));
    assert_eq!(world.sent(lane), [at(20.0), at(20.1), at(20.2)]);
}

/// Settings under which only holds matter: a refusal costs a millisecond.
fn holding(concurrency: u32, max_delay: f64) -> ThrottleSettings {
    let mut settings = pace(concurrency, 0.0, 0.0);
    let backoff = &mut settings.default.backoff;
    backoff.jitter = Jitter::NONE;
    backoff.min_delay = secs(0.001);
    backoff.max_delay = secs(max_delay);
    settings
}

/// Times at which an origin was visited that sends these replies and then pages of 10 ms.
fn visited(settings: ThrottleSettings, requests: usize, replies: Vec<Reply>) -> Vec<f64> {
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script(replies));
    world.queue(lane, requests, page(0.01));
    world.run(at(1000.0));
    world.arrivals("a.test")
}

fn refusal() -> Reply {
    Reply::new(429, 0.01)
}

#[test]
fn f44_retry_after_holds_once_and_does_not_change_the_pace() {
    let seen = visited(pace(1, 0.0, 0.0), 4, vec![refusal().retry_after(2.0)]);
    assert_eq!(seen[..2], [0.0, 2.01]);
    // The step of backoff that goes with it has its own delay: 1 s, not 2.
    let later = seen[2] - seen[1];
    assert!((0.9..1.1).contains(&later), "{seen:?}");
}

#[test]
fn f44_retry_after_zero_causes_a_step_and_no_hold() {
    let seen = visited(holding(1, 300.0), 2, vec![refusal().retry_after(0.0)]);
    assert_eq!(differ(&seen, &[0.0, 0.01]), None);
}

#[test]
fn f47_retry_after_takes_precedence_over_the_reset_of_the_same_reply() {
    let both = refusal().retry_after(1.0).reset(3.0);
    let seen = visited(holding(1, 300.0), 2, vec![both]);
    assert_eq!(differ(&seen, &[0.0, 1.01]), None);
    let seen = visited(holding(1, 300.0), 2, vec![refusal().reset(3.0)]);
    assert_eq!(differ(&seen, &[0.0, 3.01]), None);
}

#[test]
fn f47_the_latest_of_several_holds_applies() {
    for asked in [[1.0, 3.0], [3.0, 1.0]] {
        let replies = asked.map(|wait| refusal().retry_after(wait));
        let seen = visited(holding(2, 300.0), 3, replies.to_vec());
        assert_eq!(differ(&seen, &[0.0, 0.0, 3.01]), None);
    }
}

#[test]
fn f47_a_capped_hold_is_recorded_as_capped() {
    let mut world = World::new(holding(1, 2.0));
    world.throttle.set_tracing(true);
    let lane = world.origin("a.test", script([refusal().retry_after(9999.0)]));
    world.queue(lane, 2, page(0.01));
    world.run(at(100.0));
    assert_eq!(differ(&world.arrivals("a.test"), &[0.0, 2.01]), None);
    let mut decisions = world.throttle.take_decisions();
    assert!(decisions.any(|decision| decision.reason.contains("capped at 2s")));
}

#[test]
fn f47_a_hold_is_obeyed_in_full_with_retry_after_obey() {
    let mut settings = holding(1, 2.0);
    settings.obey_fully = true;
    let seen = visited(settings, 2, vec![refusal().retry_after(500.0)]);
    assert_eq!(differ(&seen, &[0.0, 500.01]), None);
}

#[test]
fn f48_a_hold_outlasts_windows_and_is_never_shortened() {
    let mut settings = holding(2, 300.0);
    settings.default.backoff.window = secs(1.0);
    let seen = visited(settings.clone(), 3, vec![refusal().retry_after(5.0)]);
    // The second was on its way and carries no information about the hold.
    assert_eq!(differ(&seen, &[0.0, 0.0, 5.01]), None);
    let mut late = refusal().retry_after(1.0);
    late.takes = secs(2.0);
    let seen = visited(settings, 3, vec![refusal().retry_after(5.0), late]);
    assert_eq!(differ(&seen, &[0.0, 0.0, 5.01]), None);
}

#[test]
fn after_a_capped_hold_one_request_probes_and_is_held_again_if_refused() {
    let mut world = World::new(holding(8, 10.0));
    let unwilling: Policy = Box::new(|now, _, page| match now < at(25.0) {
        true => Reply::new(429, 0.5).retry_after(3600.0),
        false => Reply::of(page),
    });
    let lane = world.origin("a.test", unwilling);
    world.queue(lane, 100, page(0.5));
    world.run(at(60.0));
    let seen = world.arrivals("a.test");
    let count = |from: f64, to: f64| seen.iter().filter(|at| (from..to).contains(*at)).count();
    assert_eq!(count(0.0, 0.5), 8);
    // Answered at 0.5 and 11.0, held for 10 s each; the probe at 21.5 is the last that fails.
    assert_eq!(count(0.5, 10.5), 0);
    assert_eq!((count(10.5, 10.6), count(10.6, 21.0)), (1, 0), "{seen:?}");
    assert_eq!((count(21.0, 21.1), count(21.1, 31.5)), (1, 0), "{seen:?}");
    assert_eq!((count(31.5, 31.6), count(31.6, 32.0)), (1, 0), "{seen:?}");
}

#[test]
fn the_first_good_answer_to_a_probe_ends_the_probing() {
    let mut settings = holding(8, 300.0);
    settings.default.backoff.window = secs(1.0);
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script([refusal().retry_after(2.0)]));
    world.queue(lane, 1, page(0.5));
    world.run(at(1.0));
    world.queue(lane, 100, page(0.5));
    world.run(at(20.0));
    let seen = world.arrivals("a.test");
    assert_eq!(differ(&seen[1..2], &[2.01]), None);
    assert!(seen[2] >= 2.5, "{seen:?}");
    // All slots are used again, except for the millisecond that the refusal cost.
    let at_once = seen[2..].iter().filter(|at| **at < seen[2] + 0.4);
    assert_eq!(at_once.count(), 8, "{seen:?}");
}

#[test]
fn f44_an_older_success_does_not_end_a_probe() {
    let mut settings = holding(8, 300.0);
    settings.default.concurrency = 2;
    // Sent before the hold, and answered after its end.
    let older = Reply::new(200, 3.0);
    let replies = vec![refusal().retry_after(2.0), older];
    let mut world = World::new(settings);
    let lane = world.origin("a.test", script(replies));
    world.queue(lane, 2, page(2.0));
    world.run(at(1.0));
    world.queue(lane, 10, page(2.0));
    world.run(at(20.0));
    let seen = world.arrivals("a.test");
    assert_eq!(differ(&seen[..3], &[0.0, 0.0, 3.0]), None);
    assert!(seen[3] >= 5.0, "sent beside the probe: {seen:?}");
    assert!(seen[4] < 5.1, "the probe was answered: {seen:?}");
}

#[test]
fn a_probe_without_an_answer_is_followed_by_a_single_other() {
    let mut world = World::new(holding(8, 300.0));
    let mut silent = Reply::new(200, 0.5);
    silent.signal.status = None;
    silent.signal.failure = Some(FailureKind::Protocol);
    let replies = vec![refusal().retry_after(2.0), silent];
    let lane = world.origin("a.test", script(replies));
    world.queue(lane, 1, page(0.5));
    world.run(at(1.0));
    world.queue(lane, 20, page(0.5));
    world.run(at(20.0));
    let seen = world.arrivals("a.test");
    assert_eq!(differ(&seen[..3], &[0.0, 2.01, 2.51]), None);
    assert!(seen[3] >= 3.01, "the second probe was alone: {seen:?}");
}

#[test]
fn a_success_with_quota_left_never_holds() {
    for status in [200, 301, 404] {
        let seen = visited(
            holding(1, 300.0),
            2,
            vec![Reply::new(status, 0.01).reset(7.0)],
        );
        assert_eq!(differ(&seen, &[0.0, 0.01]), None, "{status}");
    }
}

#[test]
fn an_exhausted_quota_holds_until_the_reset_unless_disabled() {
    for (applies, second) in [
        (RateLimitHeaders::Always, 7.01),
        (RateLimitHeaders::Backoff, 0.01),
        (RateLimitHeaders::Off, 0.01),
    ] {
        let mut settings = holding(1, 300.0);
        settings.rate_limit_headers = applies;
        let seen = visited(settings, 2, vec![Reply::new(200, 0.01).exhausted(7.0)]);
        assert_eq!(differ(&seen, &[0.0, second]), None, "{applies:?}");
    }
    for (applies, second) in [
        (RateLimitHeaders::Always, 7.01),
        (RateLimitHeaders::Backoff, 7.01),
        (RateLimitHeaders::Off, 0.01),
    ] {
        let mut settings = holding(1, 300.0);
        settings.rate_limit_headers = applies;
        let seen = visited(settings, 2, vec![refusal().reset(7.0)]);
        assert_eq!(differ(&seen, &[0.0, second]), None, "{applies:?}, refused");
    }
}

#[test]
fn f52_a_crawl_delay_is_capped() {
    let mut settings = pace(4, 0.1, 0.0);
    settings.robotstxt_max_delay = secs(0.5);
    let mut world = World::new(settings);
    let lane = world.lane(&["a.test"]);
    let delayed = world.throttle.crawl_delay_scope("a.test", secs(9999.0));
    world.throttle.add_scope(lane, delayed);
    world.queue(lane, 5, page(0.01));
    world.run(at(60.0));
    assert_eq!(differ(&world.gaps(lane), &[0.5; 4]), None);
}

#[test]
fn an_exhausted_quota_holds_only_the_most_specific_scope() {
    let mut world = World::new(pace(1, 0.1, 0.0));
    let spent = || script([Reply::new(200, 0.01).exhausted(5.0)]);
    let both = world.lane(&["x.test", "a.x.test"]);
    let sibling = world.lane(&["x.test", "b.x.test"]);
    let unpaced = world.lane(&[]);
    let other = world.lane(&[]);
    world.serve(both, "a.x.test", spent());
    world.serve(unpaced, "free.test", spent());
    world.queue(both, 2, page(0.01));
    world.queue(unpaced, 1, page(0.01));
    world.run(at(0.05));
    for lane in [sibling, other] {
        world.queue(lane, 2, page(0.01));
    }
    world.run(at(20.0));
    assert!(world.arrivals("a.x.test")[1] >= 5.0);
    for lane in [sibling, other] {
        let last = world.sent(lane)[1];
        assert!(last < at(1.0), "a neighbour waited until {last:?}");
    }
}

#[test]
fn requests_prepared_before_a_hold_wait_for_its_probe() {
    let mut world = World::new(holding(8, 300.0));
    // The first is refused while the others' connections are being set up.
    let replies = [Reply::new(429, 0.1).retry_after(2.0), Reply::new(200, 0.5)];
    let lane = world.origin("a.test", script(replies));
    world.queue(lane, 1, page(0.1));
    let slow = Page {
        setup: secs(0.3),
        ..page(0.1)
    };
    world.queue(lane, 7, slow);
    world.run(at(20.0));
    let seen = world.arrivals("a.test");
    assert_eq!(seen.len(), 8);
    assert!(seen[1] >= 2.1 && seen[2] >= seen[1] + 0.5, "{seen:?}");
}

#[test]
fn a_probing_scope_still_probes_after_a_pause() {
    let mut world = World::new(holding(8, 2.0));
    let lane = world.origin("a.test", script([Reply::new(429, 0.1).retry_after(1000.0)]));
    world.queue(lane, 1, page(0.1));
    world.run(at(10.0));
    world.leave(lane);
    world.run(at(60.0));
    let lane = world.lane_again("a.test");
    world.queue(lane, 6, page(0.5));
    world.run(at(100.0));
    let seen = world.arrivals("a.test");
    assert!(seen[2] >= seen[1] + 0.5, "one at a time: {seen:?}");
}
