//! A custom strategy, and the specification's vectors for scopes run against the built-in one.

use std::sync::Arc;
use std::time::Duration;

use super::world::*;
use crate::base::named::{NamedValue, NamedValues};
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::base::time::Wall;
use crate::throttle::settings::{Jitter, ScopePatch, ScopeSettings, ThrottleSettings};
use crate::throttle::signal::{ExchangeEnd, Feedback};
use crate::throttle::strategies::Strategies;
use crate::throttle::strategy::{Observation, Pace, Strategy};

/// The calls that a strategy received, and its answers.
#[derive(Default)]
struct Record {
    calls: Shared<Vec<String>>,
    delay: Shared<f64>,
    departs_at: Shared<Instant>,
    forgettable_at: Shared<Option<Instant>>,
}

struct Recorder(Arc<Record>);

impl Recorder {
    fn note(&self, what: String) {
        self.0.calls.borrow_mut().push(what);
    }

    fn pace(&self) -> Pace {
        Pace {
            delay: secs(self.0.delay.get()),
            concurrency: 2,
        }
    }
}

impl Strategy for Recorder {
    fn start(&mut self, settings: &ScopeSettings) -> Pace {
        self.note(format!("start {:?}", settings.delay));
        self.pace()
    }

    fn answer(
        &mut self,
        _: &ScopeSettings,
        _: Pace,
        observation: &Observation<'_>,
        _: Instant,
    ) -> Pace {
        let (status, refused) = (observation.signal.status, observation.refused);
        self.note(format!("answer {status:?} refused {refused}"));
        self.pace()
    }

    fn ended(&mut self, _: &ScopeSettings, _: Pace, ending: &ExchangeEnd, _: Instant) -> Pace {
        self.note(format!("ended {:?}", ending.failure));
        self.pace()
    }

    fn sent(&mut self, at: Instant) {
        self.note(format!("sent {}", seconds(at)));
    }

    fn departs_at(&self) -> Instant {
        self.0.departs_at.get()
    }

    fn feedback(&mut self, feedback: &Feedback, _: Instant) {
        self.note(format!("feedback {:?}", feedback.remaining));
    }

    fn forgettable_at(&self) -> Option<Instant> {
        self.0.forgettable_at.get()
    }

    fn save(&self, _: Instant) -> Option<Vec<u8>> {
        Some(self.0.delay.get().to_le_bytes().to_vec())
    }

    fn restore(
        &mut self,
        _: &ScopeSettings,
        saved: &[u8],
        elapsed: Duration,
        _: Instant,
    ) -> Option<Pace> {
        self.note(format!("restore {elapsed:?}"));
        let saved = saved.try_into().ok()?;
        self.0.delay.set(f64::from_le_bytes(saved));
        Some(self.pace())
    }
}

/// A world in which the scope `own.test` is paced by a recorder.
fn recorded() -> (World, Arc<Record>) {
    let mut world = World::new(pace(8, 0.25, 0.0));
    let record = Arc::new(Record::default());
    let theirs = Arc::clone(&record);
    let mut strategies = Strategies::default();
    strategies.choose(Box::new(move |name| {
        let recorder = || Box::new(Recorder(Arc::clone(&theirs))) as Box<dyn Strategy>;
        (name == "own.test").then(recorder)
    }));
    world.throttle.set_strategies(strategies);
    (world, record)
}

#[test]
fn f71_a_strategy_is_called_for_every_event_of_its_scope() {
    let (mut world, record) = recorded();
    record.delay.set(1.0);
    let feedback = Reply::new(200, 0.1).feedback(Feedback::new("own.test").remaining(3.0));
    let mut breaks = Reply::new(200, 0.1);
    breaks.breaks = true;
    let lane = world.origin("own.test", script([feedback, Reply::new(429, 0.1), breaks]));
    let other = world.lane(&["other.test"]);
    world.queue(lane, 3, page(0.1));
    world.queue(other, 3, page(0.1));
    world.run(at(10.0));
    let expected = [
        "start 250ms",
        "sent 0",
        "answer Some(200) refused false",
        "feedback Some(3.0)",
        "ended None",
        "sent 1",
        "answer Some(429) refused true",
        "ended None",
        "sent 2",
        "answer Some(200) refused false",
        "answer Some(200) refused true",
        "ended Some(Truncated)",
    ];
    assert_eq!(*record.calls.borrow(), expected);
}

#[test]
fn f71_the_strategy_sets_the_pace_and_holds_only_make_it_slower() {
    let (mut world, record) = recorded();
    let lane = world.origin("own.test", script([]));
    world.queue(lane, 2, page(1.0));
    world.run(at(0.5));
    // No delay, two in flight; then a delay longer than the configured one.
    assert_eq!(world.arrivals("own.test"), [0.0, 0.0]);
    record.delay.set(3.0);
    world.run(at(5.0));
    world.queue(lane, 2, page(0.1));
    world.run(at(9.0));
    assert_eq!(world.arrivals("own.test")[2..], [5.0, 8.0]);
    let scope = world.throttle.scope("own.test");
    world.throttle.hold(scope, at(20.0), world.now);
    world.queue(lane, 1, page(0.1));
    world.run(at(60.0));
    assert_eq!(world.arrivals("own.test")[4..], [20.0]);
}

#[test]
fn f71_a_strategy_can_delay_the_next_departure() {
    let (mut world, record) = recorded();
    record.departs_at.set(at(7.0));
    let lane = world.origin("own.test", script([]));
    world.queue(lane, 1, page(0.1));
    world.run(at(60.0));
    assert_eq!(world.arrivals("own.test"), [7.0]);
}

#[test]
fn f71_a_strategy_is_evicted_no_earlier_than_it_permits() {
    for (forgettable, kept_until) in [(Some(at(30.0)), Some(30.0)), (None, None)] {
        let (mut world, record) = recorded();
        record.forgettable_at.set(forgettable);
        let lane = world.origin("own.test", script([]));
        world.queue(lane, 1, page(0.1));
        world.run(at(1.0));
        world.leave(lane);
        let live = |world: &World| world.throttle.scopes_len();
        world.run(at(29.0));
        assert_eq!(live(&world), 1);
        world.run(at(100_000.0));
        assert_eq!(live(&world), usize::from(kept_until.is_none()));
    }
}

// The vectors: no jitter, minimum delay 1 s, factor 2, cap 300 s, window 60 s.

/// A scope with one slot, and a switch for whether it is refused.
fn vector(delay: f64, edit: impl FnOnce(&mut ThrottleSettings)) -> (World, Shared<bool>) {
    let mut settings = pace(1, delay, 0.0);
    settings.default.backoff.jitter = Jitter::NONE;
    edit(&mut settings);
    let mut world = World::new(settings);
    let refuses = Shared::new(true);
    let switch = Shared::clone(&refuses);
    let policy: Policy = Box::new(move |_, _, page| match switch.get() {
        true => Reply::new(429, 0.0),
        false => Reply::of(page),
    });
    let lane = world.origin("a.test", policy);
    world.queue(lane, 100_000, page(0.0));
    (world, refuses)
}

/// Runs until this many more requests were answered.
fn answered(world: &mut World, more: usize) -> f64 {
    let goal = world.visits("a.test").len() + more;
    while world.visits("a.test").len() < goal {
        let next = world.now + secs(0.25);
        world.run(next);
    }
    world.delay("a.test")
}

#[test]
fn f71_vector_each_refusal_doubles_the_delay_up_to_the_cap() {
    for (cap, expected) in [(300.0, [1.0, 2.0, 4.0, 8.0]), (5.0, [1.0, 2.0, 4.0, 5.0])] {
        let (mut world, _) = vector(0.0, |settings| {
            settings.default.backoff.max_delay = secs(cap);
        });
        let seen = [0; 4].map(|_| answered(&mut world, 1));
        assert_eq!(seen, expected);
    }
}

#[test]
fn f71_vector_a_quiet_window_halves_the_remaining_delay_and_refusals_restore_it() {
    let (mut world, refuses) = vector(0.0, |_| {});
    assert_eq!(answered(&mut world, 4), 8.0);
    refuses.set(false);
    let from = seconds(world.now);
    while world.delay("a.test") == 8.0 {
        answered(&mut world, 1);
    }
    assert!(seconds(world.now) - from >= 60.0);
    assert_eq!(world.delay("a.test"), 6.0);
    refuses.set(true);
    assert_eq!(answered(&mut world, 1), 8.0);
    assert_eq!(answered(&mut world, 1), 16.0);
}

#[test]
fn f71_vector_long_quiet_restores_the_base() {
    for (refusals, quiet) in [(1, 600.0), (4, 6000.0)] {
        let (mut world, refuses) = vector(0.5, |_| {});
        answered(&mut world, refusals);
        refuses.set(false);
        world.run(world.now + secs(quiet));
        assert_eq!(world.delay("a.test"), 0.5);
    }
}

#[test]
fn f71_vector_a_third_request_waits_for_one_of_two_slots_and_a_raise_wakes_it() {
    let mut world = World::new(pace(2, 0.0, 0.0));
    let lane = world.origin("a.test", script([]));
    world.queue(lane, 4, page(10.0));
    world.run(at(4.0));
    assert_eq!(world.arrivals("a.test").len(), 2);
    let more = ScopePatch {
        concurrency: Some(3),
        ..ScopePatch::default()
    };
    world.throttle.set_scope("a.test", more, world.now);
    world.run(at(60.0));
    assert_eq!(world.arrivals("a.test"), [0.0, 0.0, 4.0, 10.0]);
}

#[test]
fn f71_vector_a_hold_set_by_the_program_is_not_capped() {
    let (mut world, refuses) = vector(0.0, |settings| {
        settings.default.backoff.max_delay = secs(10.0);
    });
    refuses.set(false);
    let wait = Feedback::new("a.test").delay(secs(999.0));
    world.throttle.feedback(&wait, world.now);
    answered(&mut world, 1);
    assert_eq!(world.arrivals("a.test")[0], 999.0);
}

#[test]
fn f71_vector_a_third_partys_minimum_only_rises() {
    let mut world = World::new(pace(1, 0.0, 0.0));
    let lane = world.lane(&["a.test"]);
    for (asked, gap) in [(5.0, 5.0), (2.0, 5.0), (8.0, 8.0)] {
        let delayed = world.throttle.crawl_delay_scope("a.test", secs(asked));
        world.throttle.add_scope(lane, delayed);
        world.queue(lane, 3, page(0.0));
        world.run(world.now + secs(100.0));
        let gaps = world.gaps(lane);
        assert_eq!(gaps[gaps.len() - 2..], [gap, gap], "{asked}");
    }
}

#[test]
fn a_strategy_continues_with_what_it_saved() {
    let (mut world, record) = recorded();
    let now = world.now;
    world.throttle.save_scopes();
    let lane = world.lane(&["own.test"]);
    record.delay.set(0.5);
    world.queue(lane, 2, page(0.1));
    world.run(at(3.0));
    world.throttle.begin_save();
    let (name, state) = world.throttle.poll_due(world.now).expect("it has sent");
    assert_eq!((&*name, world.throttle.poll_due(now)), ("own.test", None));
    assert_eq!(world.throttle.poll_urgent(now), None);

    let (mut next, record) = recorded();
    record.delay.set(9.0);
    next.throttle.continue_from(false, next.now);
    let mut states = NamedValues::new();
    states.insert(NamedValue {
        name: &name,
        at: 0,
        value: &state,
    });
    next.throttle.restore_scopes(states, Wall(7_000_000_000));
    let scope = next.throttle.scope("own.test");
    assert_eq!(next.throttle.pace(scope).delay, secs(0.5));
    let calls = record.calls.borrow();
    assert_eq!(calls.last().map(String::as_str), Some("restore 7s"));
}

#[test]
fn a_scope_that_is_evicted_before_a_commit_is_saved() {
    let mut world = World::new(pace(1, 0.25, 0.0));
    world.throttle.save_scopes();
    let scope = world.throttle.scope("a.test");
    world.throttle.hold(scope, world.now + secs(1.0), world.now);
    // It is saved in this turn.
    let (name, state) = world.throttle.poll_urgent(world.now).expect("a hold");
    assert_eq!((&*name, state.is_empty()), ("a.test", false));
    world.throttle.hold(scope, world.now + secs(2.0), world.now);
    let later = world.now + secs(3.0);
    assert!(world.throttle.evict_if_blank(scope, later));
    let (name, state) = world.throttle.poll_urgent(later).expect("it had changed");
    assert_eq!((&*name, &*state), ("a.test", &[][..]));
    assert_eq!(world.throttle.poll_urgent(later), None);
}

#[test]
fn states_of_an_earlier_run_are_reviewed_once_and_dropped_if_they_are_over() {
    let hour = 3_600_000_000_000;
    let saved_hold = |hours: f64| {
        let mut world = World::new(pace(1, 0.25, 0.0));
        world.throttle.save_scopes();
        let scope = world.throttle.scope("a.test");
        let until = world.now + secs(3600.0 * hours);
        world.throttle.hold(scope, until, world.now);
        world.throttle.poll_urgent(world.now).expect("a hold").1
    };
    let mut states = NamedValues::new();
    // The last one was saved when the clock was ahead.
    let saved = [("over", 1.0, 0), ("held", 3.0, 0), ("ahead", 1.0, 3 * hour)];
    for (name, hours, at) in saved {
        states.insert(NamedValue {
            name,
            at,
            value: &saved_hold(hours),
        });
    }
    states.insert(NamedValue {
        name: "nothing",
        at: 0,
        value: &[],
    });
    let mut next = World::new(pace(1, 0.25, 0.0));
    next.throttle.save_scopes();
    next.throttle.continue_from(true, next.now);
    next.throttle.restore_scopes(states, Wall(2 * hour));
    let now = next.now;
    let mut review = || next.throttle.review_saved(now);
    assert_eq!(review(), Some(Some(("over".into(), Vec::new()))));
    assert_eq!(review(), Some(None));
    assert_eq!(review(), Some(Some(("ahead".into(), saved_hold(1.0)))));
    assert_eq!(review(), Some(None));
    assert_eq!(review(), None);
    let sent = ["over", "nothing", "held", "ahead"].map(|name| {
        let lane = next.lane(&[name]);
        next.queue(lane, 1, page(0.1));
        lane
    });
    next.run(at(60.0));
    assert_eq!(sent.map(|lane| next.sent(lane).len()), [1, 1, 0, 0]);
}
