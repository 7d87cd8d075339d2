//! Goals of rampup: it finds an unknown limit and follows it.

use super::*;

#[test]
fn f59_rampup_finds_and_follows_a_hidden_limit() {
    for burst in [1.0, 5.0, 50.0] {
        check_follows(&moving(burst, Some(Rampup::default())), 3.0, 0.92);
    }
}

/// Rampup from one slot and a delay of one second.
fn ramping(limit: Limit, rampup: Rampup) -> Case {
    Case {
        base: Pace {
            delay: Duration::from_secs(1),
            concurrency: 1,
        },
        rampup: Some(rampup),
        concurrency_max: 64,
        ..Case::of(limit, 1, 0.1)
    }
}

#[test]
fn f56_without_a_limit_rampup_lowers_the_delay_and_then_raises_concurrency_to_the_cap() {
    let case = Case {
        seconds: 120.0,
        ..ramping(Limit::None, Rampup::default())
    };
    let seen = case.run();
    let reaches = |step: &&(f64, Step)| step.1.after.concurrency == 64;
    let (at, _) = seen.steps.iter().find(reaches).expect("the cap is reached");
    assert!(*at <= 60.0, "{at} s are more than a window");
    assert_eq!(seen.peak, 64);
    let first = &seen.steps[0].1;
    assert!(first.after.delay < first.before.delay && first.after.concurrency == 1);
}

#[test]
fn f57_rampup_is_refused_as_often_as_its_target() {
    for (wanted, least, most) in [((1, 1), 0.7, 1.6), ((1, 3), 1.0, 3.5)] {
        let rampup = Rampup {
            backoff_target: wanted,
            ..Rampup::default()
        };
        let limit = Limit::Bucket {
            rate: 20.0,
            burst: 5.0,
        };
        let case = Case {
            seconds: 1800.0,
            ..ramping(limit, rampup)
        };
        let seen = case.run().figures(&case, 300.0, 1800.0);
        assert!(
            (least..=most).contains(&seen.rounds),
            "{seen:?} for {wanted:?}"
        );
        assert!(seen.used >= 0.93, "{seen:?}");
    }
}

#[test]
fn f58_rampup_steps_by_its_factor_and_never_below_its_minimum_delay() {
    for factor in [1.5, 2.0, 4.0] {
        let rampup = Rampup {
            delay_factor: factor,
            min_delay: Duration::from_millis(50),
            ..Rampup::default()
        };
        let case = Case {
            seconds: 200.0,
            ..ramping(Limit::None, rampup)
        };
        let seen = case.run();
        let first = &seen.steps[0].1;
        let ratio = first.before.delay.as_secs_f64() / first.after.delay.as_secs_f64();
        assert!((ratio - factor).abs() < 0.01, "{ratio}");
        let delays = seen.steps.iter().map(|(_, step)| step.after.delay);
        assert_eq!(delays.min(), Some(Duration::from_millis(50)));
    }
}

#[test]
#[ignore = "it prints figures for a reader"]
fn table_of_rampup() {
    for (rate, burst) in [
        (0.5, 1.0),
        (5.0, 1.0),
        (5.0, 5.0),
        (50.0, 1.0),
        (50.0, 50.0),
        (500.0, 500.0),
        (500.0, 5.0),
    ] {
        let case = Case {
            base: Pace {
                delay: Duration::from_secs(1),
                concurrency: 1,
            },
            rampup: Some(Rampup::default()),
            ..Case::of(Limit::Bucket { rate, burst }, 1, 0.05)
        };
        println!(
            "{}",
            row(&format!("rampup, bucket {rate}/s burst {burst}"), &case)
        );
    }
    for (max, target) in [(64, (1, 1)), (1024, (1, 3))] {
        let case = Case {
            base: Pace {
                delay: Duration::from_secs(1),
                concurrency: 1,
            },
            rampup: Some(Rampup {
                backoff_target: target,
                ..Rampup::default()
            }),
            concurrency_max: max,
            seconds: 120.0,
            ..Case::of(Limit::None, 1, 0.1)
        };
        let seen = case.run();
        let full = seen
            .steps
            .iter()
            .find(|(_, step)| step.after.concurrency == max);
        println!(
            "rampup without limit to {max}: {:?} s, peak {}",
            full.map(|(at, _)| *at),
            seen.peak
        );
    }
}
