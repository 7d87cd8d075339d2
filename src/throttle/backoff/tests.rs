//! Tests of single rules of backoff; `simulation` tests them together.

use std::time::Duration;

use super::simulation::{Case, Limit};
use super::{Backoff, Learned, Rules, Step};
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::throttle::decision::DecisionEvent;
use crate::throttle::settings::{self, Jitter, Rampup};
use crate::throttle::strategy::Pace;

/// A scope driven by hand: requests depart as its pace allows, one at a time.
struct Scope {
    backoff: Backoff,
    settings: settings::Backoff,
    rampup: Option<Rampup>,
    base: Pace,
    now: Instant,
    last_sent: Option<Instant>,
    latency: Duration,
}

impl Scope {
    fn new(base_s: f64, settings: settings::Backoff) -> Self {
        Scope {
            backoff: Backoff::new(Instant::START),
            settings,
            rampup: None,
            base: Pace {
                delay: secs(base_s),
                concurrency: 1,
            },
            now: Instant::START,
            last_sent: None,
            latency: Duration::from_millis(1),
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            backoff: &self.settings,
            rampup: self.rampup.as_ref(),
            base: self.base,
            concurrency_max: 64,
        }
    }

    fn pace(&self) -> Pace {
        self.backoff.pace(&self.rules())
    }

    fn delay(&self) -> f64 {
        self.pace().delay.as_secs_f64()
    }

    /// Sends as soon as the pace allows and delivers the answer.
    fn send(&mut self, served: bool) -> Option<Step> {
        let sent = self
            .last_sent
            .map_or(self.now, |last| last + self.pace().delay);
        let sent = sent.max(self.now);
        self.last_sent = Some(sent);
        self.answer(sent, sent + self.latency, served)
    }

    fn answer(&mut self, sent: Instant, at: Instant, served: bool) -> Option<Step> {
        self.now = at;
        let latency = Some(self.latency);
        let rules = Rules {
            backoff: &self.settings,
            rampup: self.rampup.as_ref(),
            base: self.base,
            concurrency_max: 64,
        };
        if served {
            self.backoff.success(&rules, sent, latency, at)
        } else {
            self.backoff.refused(&rules, sent, latency, at)
        }
    }

    fn refuse(&mut self, times: u32) -> &mut Self {
        for _ in 0..times {
            self.send(false);
        }
        self
    }

    /// Serves for this many seconds.
    fn serve(&mut self, seconds: f64) -> &mut Self {
        let until = self.now + secs(seconds);
        while self.now < until {
            self.send(true);
        }
        self
    }

    /// Serves until the delay changes and returns the seconds that took.
    fn serve_until_step(&mut self) -> f64 {
        let (from, old) = (self.now, self.pace());
        while self.pace() == old {
            self.send(true);
            assert!(
                self.now.saturating_since(from) < secs(10_000.0),
                "{:?} lasts for ever",
                self.backoff
            );
        }
        self.now.saturating_since(from).as_secs_f64()
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn defaults() -> settings::Backoff {
    settings::Backoff::default()
}

/// Asserts the delays after consecutive refusals.
fn check_growth(base: f64, settings: settings::Backoff, expected: &[f64]) {
    let mut scope = Scope::new(base, settings);
    for delay in expected {
        scope.refuse(1);
        assert_eq!(scope.delay(), *delay, "of {expected:?}");
    }
}

#[test]
fn f32_each_round_doubles_the_delay_up_to_the_cap() {
    let doubled = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
    check_growth(0.0, defaults(), &[&doubled[..], &[300.0, 300.0]].concat());
    let capped = settings::Backoff {
        max_delay: secs(5.0),
        ..defaults()
    };
    check_growth(0.0, capped, &[1.0, 2.0, 4.0, 5.0, 5.0]);
}

#[test]
fn f33_the_first_step_sets_the_minimum_delay_or_twice_the_base() {
    check_growth(0.0, defaults(), &[1.0]);
    check_growth(0.3, defaults(), &[1.0]);
    check_growth(3.0, defaults(), &[6.0]);
}

#[test]
fn f37_factor_floor_and_cap_are_the_scopes_own() {
    let own = settings::Backoff {
        delay_factor: 1.5,
        min_delay: secs(4.0),
        max_delay: secs(10.0),
        ..defaults()
    };
    check_growth(0.0, own, &[4.0, 6.0, 9.0, 10.0]);
}

#[test]
fn a_base_beyond_the_cap_is_never_undercut() {
    let short = settings::Backoff {
        max_delay: secs(5.0),
        ..defaults()
    };
    check_growth(8.0, short, &[8.0, 8.0]);
}

#[test]
fn f41_without_a_known_rate_each_step_halves_the_remaining_delay() {
    let mut scope = Scope::new(0.0, defaults());
    scope.refuse(4);
    assert_eq!(scope.delay(), 8.0);
    let took = scope.serve_until_step();
    assert!((60.0..70.0).contains(&took), "{took}");
    assert_eq!(
        scope.delay(),
        6.0,
        "between 8 (not refused) and 4 (refused)"
    );
    scope.refuse(1);
    assert_eq!(scope.delay(), 8.0, "back to the delay without refusals");
    scope.refuse(1);
    assert_eq!(scope.delay(), 16.0, "which is refused now");
}

#[test]
fn each_step_names_its_delay() {
    let mut scope = Scope::new(0.3, defaults());
    let mut reason = |served| scope.send(served).map(|step| step.reason.into_owned());
    assert_eq!(reason(false).as_deref(), Some("refused at 0.3 s"));
    assert_eq!(reason(false).as_deref(), Some("refused at 1 s"));
}

#[test]
fn f35_a_pace_of_a_few_requests_per_hour_recovers_with_each_answer() {
    let mut scope = Scope::new(0.0, defaults());
    // An answer in between, so the refusals concern the pace.
    scope.refuse(8).send(true);
    scope.refuse(4);
    assert_eq!(scope.delay(), 300.0);
    for most in [300.0, 150.0, 75.0, 40.0] {
        // Both the refused and the working delay are at the cap: more answers prove nothing.
        let took = scope.serve_until_step();
        assert!(took <= 2.0 * most, "{took} s to less than {most} s");
        assert!(scope.delay() < most, "{} of {most}", scope.delay());
    }
}

#[test]
fn f41_an_outage_never_makes_a_slow_pace_faster() {
    let mut scope = Scope::new(0.0, defaults());
    scope.settings.window = secs(10.0);
    scope.refuse(2).serve(1.0).refuse(1).serve(90.0);
    assert!(matches!(scope.backoff.state, super::State::Following(_)));
    let before = scope.delay();
    assert!(before > 1.3, "slower than an eighth of a window: {before}");
    for _ in 0..6 {
        scope.refuse(1);
        assert!(scope.delay() >= before, "{} after {before}", scope.delay());
    }
}

#[test]
fn f36_windows_without_refusals_restore_the_base_and_leave_no_state() {
    for base in [0.0, 0.4, 1.0, 3.0] {
        for (refusals, quiet) in [(1, 600.0), (4, 6000.0)] {
            let mut scope = Scope::new(base, defaults());
            scope.refuse(refusals).serve(quiet);
            assert_eq!(scope.delay(), base, "after {refusals} refusals");
            assert!(scope.backoff.is_calm() && scope.backoff.compact().is_none());
        }
    }
}

#[test]
fn f41_the_average_over_an_outage_becomes_the_known_rate() {
    let mut meter = super::Meter::new(Instant::START);
    meter.serving = 7_000_000_000;
    let bracket = super::Bracket::after_outage(500_000_000, &meter, Instant::START);
    let gaps = [bracket.gap, bracket.resume_gap, bracket.server_gap];
    assert_eq!(gaps, [500_000_000; 3], "in nanoseconds");
    assert_eq!((bracket.outage_ms, bracket.refused), (7000, 0));
}

#[test]
fn f41_a_supposed_token_bucket_is_dropped_once_a_faster_pace_works() {
    let after = |bucket_gap| {
        let mut scope = Scope::new(0.0, defaults());
        let mut bracket = super::Bracket::from_learned(100_000_000, 90_000_000, 0, scope.now);
        bracket.bucket_gap = bucket_gap;
        bracket.is_bucket = true;
        scope.backoff.state = super::State::Following(bracket);
        loop {
            scope.send(true);
            match &scope.backoff.state {
                // Enough answers to show that it works.
                super::State::Following(bracket) if bracket.worked > 0 => {
                    return (bracket.bucket_gap, bracket.is_bucket);
                }
                super::State::Following(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    // The server serves more than its supposed limit, and a token bucket does not explain that.
    assert_eq!(after(200_000_000), (0, false));
    assert_eq!(after(104_000_000), (0, false));
    // A difference this small may be chance.
    assert_eq!(after(102_000_000), (102_000_000, true));
}

#[test]
fn f41_above_the_old_limit_each_step_lasts_until_a_burst_is_used_up() {
    let took = |server_gap| {
        let mut scope = Scope::new(0.0, defaults());
        let mut bracket = super::Bracket::from_learned(10_000_000, 0, 0, scope.now);
        bracket.server_gap = server_gap;
        scope.backoff.state = super::State::Following(bracket);
        scope.serve_until_step()
    };
    let (unknown, above) = (took(0), took(20_000_000));
    assert!(unknown < 1.0, "{unknown}");
    assert!(
        (3.7..4.2).contains(&above),
        "a sixteenth of a window: {above}"
    );
}

#[test]
fn f41_beyond_a_refused_gap_two_short_steps_precede_those_of_a_window() {
    let took = |steps_up| {
        let mut scope = Scope::new(0.0, defaults());
        let mut bracket = super::Bracket::from_learned(10_000_000, 20_000_000, 0, scope.now);
        bracket.steps_up = steps_up;
        scope.backoff.state = super::State::Following(bracket);
        // So far the server served less than was refused: what it serves now can be a burst.
        let meter = &mut scope.backoff.meter;
        meter.anchor(scope.now + Duration::from_nanos(1));
        (meter.served, meter.serving) = (10_000, 400_000_000_000);
        scope.serve_until_step()
    };
    for (steps_up, least) in [(1, 7.5), (2, 7.5), (3, 60.0)] {
        let took = took(steps_up);
        assert!((least..least + 0.1).contains(&took), "{steps_up}: {took}");
    }
}

#[test]
fn f41_one_refusal_per_window_keeps_a_working_pace() {
    let after = |served: f64| {
        let mut scope = Scope::new(0.0, defaults());
        let bracket = super::Bracket::from_learned(100_000_000, 97_000_000, 0, scope.now);
        scope.backoff.state = super::State::Following(bracket);
        scope.serve(served).refuse(1);
        scope.delay()
    };
    assert_eq!(after(60.5), 0.1);
    let early = after(50.0);
    assert!(early > 0.1, "{early}");
}

#[test]
fn f41_three_rounds_of_refusals_without_an_answer_are_an_outage() {
    let scope = Scope::new(0.1, defaults());
    for (further, was_closed) in [(0, false), (1, false), (2, true), (3, true)] {
        let (mut guess, _) = super::Guess::first(100_000_000, &scope.rules());
        for _ in 0..further {
            guess.refused(false, &scope.rules());
        }
        assert_eq!(guess.was_closed(), was_closed, "{further} after the first");
    }
}

#[test]
fn f44_after_a_long_hold_a_probe_needs_four_times_the_answers() {
    let answers = |hold_ms| {
        let mut scope = Scope::new(0.0, defaults());
        let mut bracket = super::Bracket::from_learned(100_000_000, 0, 0, scope.now);
        bracket.worked = 104_000_000;
        bracket.hold_ms = hold_ms;
        scope.backoff.state = super::State::Following(bracket);
        let probed = scope.pace();
        let mut answers = 0;
        while scope.pace() == probed {
            scope.send(true);
            answers += 1;
        }
        answers
    };
    let usual = answers(0);
    assert!((45..55).contains(&usual), "{usual}");
    assert_eq!(answers(1), 4 * usual);
}

#[test]
fn f36_jitter_never_shortens_a_gap_below_the_base() {
    let mut scope = Scope::new(1.0, defaults());
    for (gap, low) in [
        (1.0005, -0.0005),
        (1.002, -0.002),
        (1.004, -0.003),
        (2.0, -0.003),
    ] {
        let learned = Learned {
            gap: (gap * 1e9) as u64,
            refused: 0,
            known: true,
            cuts: 0,
            lanes: 0,
        };
        scope.backoff = Backoff::from_learned(learned, scope.now);
        let jitter = scope.backoff.jitter(&scope.rules()).expect("it binds");
        assert!(
            gap * (1.0 + jitter.low) >= 1.0 - 1e-9,
            "{jitter:?} of {gap}"
        );
        assert!((jitter.low - low).abs() < 1e-5, "{jitter:?} of {gap}");
        assert_eq!(jitter.high, 0.003);
    }
}

#[test]
fn f35_a_recovery_step_takes_a_window_that_a_refusal_restarts() {
    let mut scope = Scope::new(0.0, defaults());
    scope.refuse(5);
    assert_eq!(scope.delay(), 16.0);
    let took = scope.serve_until_step();
    assert!((60.0..80.0).contains(&took), "{took}");
    assert_eq!(scope.delay(), 12.0);
    scope.serve(40.0).refuse(1);
    assert_eq!(scope.delay(), 16.0);
    let took = scope.serve_until_step();
    assert!((60.0..80.0).contains(&took), "{took}");
}

#[test]
fn f42_a_burst_of_refusals_is_one_round() {
    let mut scope = Scope::new(0.0, defaults());
    let sent: Vec<_> = (0..8).map(Instant::from_nanos).collect();
    let back = Instant::START + secs(0.05);
    let steps = sent
        .iter()
        .filter_map(|sent| scope.answer(*sent, back, false));
    assert_eq!(steps.count(), 1);
    assert_eq!(scope.delay(), 1.0);
    // A refusal of a request that departed after the step is another round.
    assert!(scope.answer(back, back + secs(0.05), false).is_some());
    assert_eq!(scope.delay(), 2.0);
}

#[test]
fn f43_idle_windows_do_not_count_as_quiet() {
    let mut scope = Scope::new(0.0, defaults());
    scope.refuse(4);
    scope.now += secs(300.0);
    assert_eq!(scope.delay(), 8.0);
    scope.send(true);
    assert_eq!(
        scope.delay(),
        6.0,
        "one step for the one answer, five windows or not"
    );
    scope.serve(50.0);
    assert_eq!(scope.delay(), 6.0);
}

#[test]
fn f43_idle_time_restores_no_concurrency() {
    let mut scope = Scope::new(0.0, defaults());
    scope.settings.max_delay = secs(2.0);
    scope.settings.window = secs(10.0);
    scope.base.concurrency = 8;
    scope.refuse(3);
    let early = scope.last_sent.expect("it was sent");
    scope.refuse(1);
    let cut = scope.pace();
    assert!(cut.concurrency < 8, "{cut:?}");
    scope.now += secs(300.0);
    assert_eq!(scope.pace(), cut, "thirty idle windows");
    // An answer to a request sent before the cut proves nothing about the present pace.
    let now = scope.now;
    scope.answer(early, now, true);
    assert_eq!(scope.pace(), cut, "an answer of before");
    // One answer at the present pace allows one step, however long the scope was idle.
    scope.send(true);
    let one_step = scope.pace().concurrency;
    assert!(one_step <= 2 * cut.concurrency, "{one_step} after {cut:?}");
    scope.send(true);
    assert_eq!(scope.pace().concurrency, one_step, "and no second one");
}

#[test]
fn f43_after_idle_time_a_known_limit_is_not_exceeded() {
    let case = Case {
        idle: Some((120.0, 420.0)),
        ..Case::of(
            Limit::Bucket {
                rate: 5.0,
                burst: 1.0,
            },
            8,
            0.02,
        )
    };
    let seen = case.run();
    let after = seen.figures(&case, 420.0, 480.0);
    assert!(after.refused_share < 0.02, "{after:?}");
}

#[test]
fn f34_backoff_has_its_own_jitter_which_is_small_at_a_known_limit() {
    let mut scope = Scope::new(0.0, defaults());
    let jitter = |scope: &Scope| scope.backoff.jitter(&scope.rules());
    assert_eq!(jitter(&scope), None);
    scope.refuse(1);
    assert_eq!(jitter(&scope), Some(Jitter::symmetric(0.1)));
    scope.serve(15.0);
    let known = jitter(&scope).expect("it still backs off");
    assert!(known.high <= 0.02 && known.low >= -0.02, "{known:?}");
    scope.serve(600.0);
    assert_eq!(jitter(&scope), None);
}

#[test]
fn f39_at_the_longest_delay_concurrency_is_halved_and_restored_by_quiet_windows() {
    let settings = settings::Backoff {
        max_delay: secs(0.5),
        min_delay: secs(0.1),
        window: secs(2.0),
        ..defaults()
    };
    let mut scope = Scope::new(0.0, settings);
    scope.base.concurrency = 8;
    let mut seen = vec![8];
    for _ in 0..10 {
        scope.refuse(1);
        seen.push(scope.pace().concurrency);
    }
    seen.dedup();
    assert_eq!(seen, [8, 4, 2, 1]);
    assert_eq!(scope.delay(), 0.5);
    let mut seen = vec![1];
    while seen.last() != Some(&8) {
        assert_eq!(scope.delay(), 0.5, "the delay waits for the concurrency");
        let took = scope.serve_until_step();
        assert!(took >= 1.9, "{took}");
        seen.push(scope.pace().concurrency);
    }
    assert_eq!(seen, [1, 2, 4, 8]);
    scope.base.concurrency = 1;
    scope.serve(60.0);
    assert_eq!(scope.delay(), 0.0);
}

#[test]
fn f39_a_server_that_refuses_everything_gets_ever_fewer_requests() {
    let case = Case {
        seconds: 3600.0,
        ..Case::of(Limit::All, 8, 0.02)
    };
    let requests = case.run().arrivals.len();
    assert!(requests <= 40, "{requests} requests in an hour");
}

#[test]
fn a_known_rate_backs_off_relative_to_itself() {
    let mut scope = Scope::new(0.02, defaults());
    scope.serve(1.0).refuse(1);
    assert!((0.03..0.05).contains(&scope.delay()), "{}", scope.delay());
}

#[test]
fn f50_backoff_may_begin_before_the_first_request() {
    let mut scope = Scope::new(0.0, defaults());
    scope.backoff = Backoff::starting_at(secs(2.0), Instant::START);
    assert_eq!(scope.delay(), 2.0);
    scope.refuse(1);
    assert_eq!(scope.delay(), 4.0);
}

#[test]
fn f76_the_limits_of_an_idle_scope_fit_in_a_few_bytes() {
    assert!(size_of::<Learned>() <= 24, "{}", size_of::<Learned>());
    assert!(size_of::<Backoff>() <= 216, "{}", size_of::<Backoff>());
    let mut scope = Scope::new(0.0, defaults());
    for refusals in [2, 10] {
        scope.refuse(refusals);
        let learned = scope.backoff.compact().expect("it backs off");
        let restart = Backoff::from_learned(learned, scope.now);
        assert_eq!(restart.pace(&scope.rules()), scope.pace());
        assert_eq!(restart.compact(), Some(learned));
        scope.serve(200.0);
    }
}

#[test]
fn backoff_is_never_faster_than_a_changing_base() {
    let mut scope = Scope::new(0.0, defaults());
    for turn in 0..2000_u32 {
        scope.base.delay = secs(f64::from(turn % 7) * 0.4);
        scope.base.concurrency = 1 + turn % 5;
        let served = turn % 11 != 0;
        let step = scope.send(served);
        let pace = scope.pace();
        assert!(pace.delay >= scope.base.delay, "turn {turn}");
        assert!((1..=scope.base.concurrency).contains(&pace.concurrency));
        if let Some(step) = step {
            assert!(
                step.event != DecisionEvent::Backoff || !served,
                "turn {turn}"
            );
            assert_eq!(step.after, pace);
        }
    }
}

#[test]
fn the_pace_stays_within_its_bounds_for_any_settings_and_answers() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut span = |most: f64| secs(rng.range_f64(0.0, 1.0).powi(4) * most);
        let settings = settings::Backoff {
            max_delay: span(300.0),
            min_delay: span(10.0),
            window: span(60.0),
            ..defaults()
        };
        let mut scope = Scope::new(0.0, settings);
        scope.base.delay = span(2.0);
        scope.latency = span(0.5);
        let settings = &mut scope.settings;
        settings.delay_factor = rng.range_f64(1.01, 4.0);
        settings.concurrency_factor = rng.range_f64(0.05, 0.95);
        scope.base.concurrency = 1 + rng.below(16) as u32;
        let refusals = rng.range_f64(0.0, 0.6);
        let longest = scope.settings.max_delay.max(scope.base.delay);
        for turn in 0..1000 {
            scope.send(!rng.chance(refusals));
            if rng.chance(0.02) {
                scope.now += secs(rng.range_f64(0.0, 100.0));
                scope.backoff.held(scope.now);
            }
            let pace = scope.pace();
            assert!(
                (scope.base.delay..=longest).contains(&pace.delay)
                    && (1..=scope.base.concurrency).contains(&pace.concurrency),
                "seed {seed}, turn {turn}: {pace:?} of {:?}",
                scope.settings
            );
        }
    }
}
