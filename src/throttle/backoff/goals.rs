//! What backoff is for, as figures read at simulated servers.

use std::time::Duration;

use super::Step;
use super::simulation::{Case, Figures, Limit};
use crate::throttle::settings::Rampup;
use crate::throttle::strategy::Pace;

/// A few runs of different chance; the worst of each figure from `from` seconds on.
fn worst(case: &Case, from: f64) -> Figures {
    let runs = (1..=2).map(|seed| {
        let case = Case {
            seed,
            ..case.clone()
        };
        case.run().figures(&case, from, case.seconds)
    });
    runs.reduce(|a, b| Figures {
        used: a.used.min(b.used),
        rounds: a.rounds.max(b.rounds),
        refused_share: a.refused_share.max(b.refused_share),
        cv: a.cv.max(b.cv),
    })
    .expect("there are runs")
}

/// What is used at least, and refused at most, once a case has settled.
fn check_settled(case: &Case, used: f64, rounds: f64) {
    let seen = worst(case, case.seconds / 4.0);
    assert!(
        seen.used >= used && seen.rounds <= rounds && seen.cv < 0.1,
        "{seen:?} of {:?}, {} at once, {} s",
        case.limits,
        case.base.concurrency,
        case.round_trip
    );
}

#[test]
fn f41_a_token_bucket_is_used_up_and_hardly_ever_overdrawn() {
    for rate in [0.5, 5.0, 50.0] {
        for burst in [1.0, 5.0, rate, 10.0 * rate] {
            for (concurrency, round_trip) in [(8, 0.02), (16, 0.001), (8, 0.05)] {
                let burst = f64::max(burst, 1.0);
                let limit = Limit::Bucket { rate, burst };
                let case = Case {
                    seconds: 1800.0,
                    ..Case::of(limit, concurrency, round_trip)
                };
                check_settled(&case, 0.95, 1.0);
            }
        }
    }
}

#[test]
fn f41_a_base_faster_than_the_limit_is_where_the_search_begins() {
    for (rate, base) in [
        (0.5, 1.9),
        (0.5, 0.5),
        (5.0, 0.18),
        (5.0, 0.05),
        (50.0, 0.019),
    ] {
        for burst in [1.0, 5.0] {
            let mut case = Case::of(Limit::Bucket { rate, burst }, 8, 0.02);
            case.base.delay = Duration::from_secs_f64(base);
            case.seconds = 3600.0;
            check_settled(&case, 0.95, 1.0);
        }
    }
}

#[test]
fn f41_ten_minutes_from_the_first_request_are_little_less() {
    for (rate, burst, used) in [
        (0.5, 1.0, 0.89),
        (0.5, 5.0, 0.98),
        (5.0, 1.0, 0.94),
        (5.0, 5.0, 0.95),
        (50.0, 1.0, 0.92),
        (50.0, 50.0, 0.95),
        (50.0, 500.0, 0.95),
    ] {
        let case = Case::of(Limit::Bucket { rate, burst }, 8, 0.02);
        let seen = worst(&case, 0.0);
        assert!(seen.used >= used, "{seen:?} of {rate}/s, burst {burst}");
    }
}

#[test]
fn f43_a_limit_that_was_kept_over_idle_time_is_not_overrun() {
    for burst in [1.0, 5.0, 50.0] {
        let case = Case::of(Limit::Bucket { rate: 5.0, burst }, 8, 0.02);
        let learned = case.run().learned;
        assert!(learned.is_some());
        let again = Case { learned, ..case };
        let seen = again.run().figures(&again, 0.0, 120.0);
        assert!(
            seen.used >= 0.93 && seen.refused_share < 0.03,
            "{seen:?}, burst {burst}"
        );
    }
}

#[test]
fn f98_instant_refusals_slow_the_crawl_down() {
    let case = Case::of(
        Limit::Bucket {
            rate: 5.0,
            burst: 5.0,
        },
        8,
        0.0001,
    );
    let seen = worst(&case, 60.0);
    assert!(seen.used >= 0.95 && seen.refused_share < 0.05, "{seen:?}");
}

/// 20, 5 and 40 requests per second, ten minutes each.
fn moving(burst: f64, rampup: Option<Rampup>) -> Case {
    let limits = [(0.0, 20.0), (600.0, 5.0), (1200.0, 40.0)];
    let delay = Duration::from_secs(u64::from(rampup.is_some()));
    Case {
        limits: limits
            .map(|(from, rate)| (from, Limit::Bucket { rate, burst }))
            .to_vec(),
        seconds: 1800.0,
        rampup,
        base: Pace {
            delay,
            concurrency: 8,
        },
        ..Case::of(Limit::None, 8, 0.02)
    }
}

/// So many windows after each change, `used` of the limit is used.
fn check_follows(case: &Case, windows: f64, used: f64) {
    for seed in 1..=2 {
        let case = Case {
            seed,
            ..case.clone()
        };
        let seen = case.run();
        for from in [0.0, 600.0, 1200.0] {
            let after = seen.figures(&case, from + windows * 60.0, from + 600.0);
            assert!(after.used >= used, "{after:?} after {from} s, seed {seed}");
        }
    }
}

#[test]
fn f41_a_limit_that_moves_is_followed() {
    for burst in [1.0, 5.0, 50.0] {
        check_follows(&moving(burst, None), 4.0, 0.93);
    }
}

#[test]
fn f59_rampup_finds_and_follows_a_hidden_limit() {
    for burst in [1.0, 5.0, 50.0] {
        check_follows(&moving(burst, Some(Rampup::default())), 3.0, 0.92);
    }
}

/// Rampup from one slot and a second.
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
fn f57_rampup_is_refused_as_often_as_is_wanted() {
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
fn f58_rampups_factor_is_its_step_and_its_least_delay_is_never_undercut() {
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
fn f44_a_fixed_window_whose_end_is_said_costs_one_round_at_most() {
    for (count, span) in [(5, 10.0), (50, 10.0), (300, 60.0), (3000, 60.0)] {
        let case = Case {
            says_when: true,
            seconds: 1800.0,
            ..Case::of(Limit::Fixed { count, span }, 8, 0.02)
        };
        let seen = worst(&case, 600.0);
        assert!(
            seen.used >= 0.95 && seen.rounds <= 1.1,
            "{seen:?} of {count} per {span} s"
        );
    }
}

#[test]
fn f44_where_each_refusal_costs_a_hold_probes_are_rare() {
    for burst in [1.0, 5.0] {
        let case = Case {
            retry_after: 10.0,
            seconds: 3600.0,
            ..Case::of(Limit::Bucket { rate: 5.0, burst }, 8, 0.02)
        };
        let seen = worst(&case, 600.0);
        assert!(seen.used >= 0.92 && seen.rounds <= 0.5, "{seen:?}");
    }
}

#[test]
fn windows_whose_end_is_not_said_are_used_for_the_most_part() {
    for (count, span) in [(5, 10.0), (50, 10.0), (300, 60.0)] {
        let sliding = Limit::Sliding {
            count: count as usize,
            span,
        };
        for limit in [Limit::Fixed { count, span }, sliding] {
            let case = Case {
                seconds: 1800.0,
                ..Case::of(limit, 8, 0.02)
            };
            let seen = worst(&case, 900.0);
            assert!(
                seen.used >= 0.9 && seen.refused_share < 0.08,
                "{seen:?} of {case:?}"
            );
        }
    }
}

#[test]
fn a_server_that_takes_so_many_at_once_is_kept_about_full() {
    for places in [1, 2, 4] {
        let case = Case::of(Limit::AtOnce { places }, 8, 0.05);
        let seen = worst(&case, 150.0);
        assert!(
            seen.used >= 0.83 && seen.rounds <= 1.5,
            "{seen:?} of {places}"
        );
    }
}

#[test]
fn refusals_that_come_at_any_pace_do_not_stop_the_crawl() {
    let bucket = |rate| Limit::Bucket { rate, burst: rate };
    for (limit, used) in [
        (Limit::None, 0.95),
        (bucket(5.0), 0.7),
        (bucket(50.0), 0.85),
    ] {
        let case = Case {
            noise: 0.01,
            seconds: 1200.0,
            ..Case::of(limit, 8, 0.02)
        };
        let seen = worst(&case, 300.0);
        assert!(
            seen.used >= used && seen.refused_share < 0.08,
            "{seen:?} of {case:?}"
        );
    }
}

/// A line of the table.
fn row(name: &str, case: &Case) -> String {
    let seen = case.run();
    let whole = seen.figures(case, 0.0, case.seconds);
    let late = seen.figures(case, case.seconds / 2.0, case.seconds);
    let settled = seen.settles(case, 0.0, case.seconds, 0.93);
    format!(
        "{name:<44} {:6.1} {:6.1} {:6.2} {:6.2} {:7.2} {:6.3} {settled:7.0}",
        whole.used * 100.0,
        late.used * 100.0,
        whole.rounds,
        late.rounds,
        whole.refused_share * 100.0,
        late.cv,
    )
}

/// `cargo test --lib throttle::backoff -- --ignored --nocapture table` prints the figures.
#[test]
#[ignore = "it prints figures for a reader"]
fn table() {
    println!(
        "{:<44} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7}",
        "server", "all %", "late %", "r/w", "late", "429 %", "cv", "settle"
    );
    for rate in [0.5, 5.0, 50.0, 500.0] {
        for (word, burst) in [("1", 1.0), ("5", 5.0), ("1 s", rate), ("10 s", rate * 10.0)] {
            let burst = f64::max(burst, 1.0);
            for (concurrency, trip) in [(8, 0.02), (16, 0.02), (16, 0.001), (8, 0.05)] {
                let case = Case::of(Limit::Bucket { rate, burst }, concurrency, trip);
                println!(
                    "{}",
                    row(
                        &format!("bucket {rate}/s burst {word}, cap {concurrency}, rtt {trip}"),
                        &case
                    )
                );
            }
        }
    }
    for (count, span) in [(50, 10.0), (300, 60.0), (5, 10.0), (3000, 60.0)] {
        let case = Case {
            seconds: 1200.0,
            ..Case::of(Limit::Fixed { count, span }, 8, 0.02)
        };
        println!("{}", row(&format!("fixed {count} per {span} s"), &case));
        let case = Case {
            says_when: true,
            ..case
        };
        println!(
            "{}",
            row(&format!("fixed {count} per {span} s, and says when"), &case)
        );
        let case = Case {
            seconds: 1200.0,
            ..Case::of(
                Limit::Sliding {
                    count: count as usize,
                    span,
                },
                8,
                0.02,
            )
        };
        println!("{}", row(&format!("sliding {count} per {span} s"), &case));
    }
    for places in [1, 2, 4] {
        let case = Case::of(Limit::AtOnce { places }, 8, 0.05);
        println!("{}", row(&format!("{places} at once, cap 8, 50 ms"), &case));
    }
    for rate in [5.0, 50.0] {
        let case = Case {
            noise: 0.01,
            ..Case::of(Limit::Bucket { rate, burst: rate }, 8, 0.02)
        };
        println!("{}", row(&format!("bucket {rate}/s and 1 % noise"), &case));
    }
    let case = Case {
        noise: 0.01,
        ..Case::of(Limit::None, 8, 0.02)
    };
    println!("{}", row("no limit and 1 % noise", &case));
    for burst in [1.0, 5.0, 50.0] {
        let moving = vec![
            (0.0, Limit::Bucket { rate: 20.0, burst }),
            (600.0, Limit::Bucket { rate: 5.0, burst }),
            (1200.0, Limit::Bucket { rate: 40.0, burst }),
        ];
        for rampup in [None, Some(Rampup::default())] {
            let name = format!(
                "20, 5, 40 burst {burst}{}",
                if rampup.is_some() { " rampup" } else { "" }
            );
            let delay = Duration::from_secs(u64::from(rampup.is_some()));
            let case = Case {
                limits: moving.clone(),
                seconds: 1800.0,
                rampup,
                base: Pace {
                    delay,
                    concurrency: 8,
                },
                ..Case::of(Limit::None, 8, 0.02)
            };
            println!("{}", row(&name, &case));
            let seen = case.run();
            for from in [0.0, 600.0, 1200.0] {
                let part = seen.figures(&case, from, from + 600.0);
                println!(
                    "   from {from}: used {:.1} settles in {:.0} s, rounds/w {:.2}",
                    part.used * 100.0,
                    seen.settles(&case, from, from + 600.0, 0.9),
                    part.rounds
                );
            }
        }
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

#[test]
fn f41_what_a_server_gives_per_window_of_its_own_is_used_however_short_ours_is() {
    for (count, span) in [(60, 6.0), (20, 10.0), (300, 60.0)] {
        let sliding = Limit::Sliding {
            count: count as usize,
            span,
        };
        for limit in [Limit::Fixed { count, span }, sliding] {
            for window in [10, 60] {
                let mut case = Case::of(limit.clone(), 8, 0.02);
                case.settings.window = Duration::from_secs(window);
                case.lateness = 0.001;
                case.seconds = 600.0;
                let seen = worst(&case, 240.0);
                assert!(
                    seen.used >= 0.83 && seen.refused_share < 0.12,
                    "{seen:?} of {:?}, window {window} s",
                    case.limits
                );
            }
        }
    }
}

#[test]
fn f41_a_settled_pace_is_refused_once_in_a_window_at_most_however_short_that_is() {
    for (name, case) in short_windows().into_iter().take(7) {
        let seen = worst(&case, case.seconds / 3.0);
        let used = if name == "50/s burst 1" { 0.92 } else { 0.95 };
        assert!(
            seen.used >= used && seen.rounds <= 1.0,
            "{seen:?} of {name}"
        );
    }
}

#[test]
fn f41_a_limit_that_rises_a_little_is_used_too() {
    for (burst, used) in [(5.0, 0.94), (50.0, 0.95)] {
        let limit = |rate| Limit::Bucket { rate, burst };
        let mut case = Case::of(limit(50.0), 8, 0.02);
        case.limits.push((60.0, limit(54.0)));
        case.settings.window = Duration::from_secs(10);
        case.seconds = 300.0;
        let seen = worst(&case, 150.0);
        assert!(
            seen.used >= used && seen.rounds <= 1.0,
            "{seen:?}, burst {burst}"
        );
    }
}

#[test]
fn f44_a_hold_as_long_as_a_window_is_not_asked_for_again_and_again() {
    let limit = Limit::Bucket {
        rate: 5.0,
        burst: 5.0,
    };
    let mut case = Case {
        retry_after: 10.0,
        seconds: 300.0,
        ..Case::of(limit, 8, 0.02)
    };
    case.settings.window = Duration::from_secs(10);
    let seen = worst(&case, 60.0);
    assert!(seen.used >= 0.8 && seen.refused_share < 0.01, "{seen:?}");
}

/// Servers as the table of the real ones has them.
fn short_windows() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    let mut add = |name: String, case: Case, seconds: f64, cap: u32| {
        let mut case = Case {
            seconds,
            lateness: 0.001,
            ..case
        };
        case.base.concurrency = cap;
        case.settings.window = Duration::from_secs(10);
        cases.push((name, case));
    };
    for (rate, burst, cap) in [
        (5.0, 1.0, 8),
        (5.0, 5.0, 8),
        (50.0, 1.0, 8),
        (50.0, 5.0, 8),
        (50.0, 50.0, 8),
        (500.0, 5.0, 32),
        (500.0, 500.0, 32),
    ] {
        let case = Case::of(Limit::Bucket { rate, burst }, 8, 0.02);
        add(format!("{rate}/s burst {burst}"), case, 120.0, cap);
    }
    add(
        "20, 5, 40".into(),
        {
            let mut case = moving(5.0, None);
            for (at, second) in [0.0, 180.0, 360.0].into_iter().enumerate() {
                case.limits[at].0 = second;
            }
            case
        },
        540.0,
        8,
    );
    for (burst, more) in [(1.0, 54.0), (5.0, 54.0), (50.0, 54.0), (5.0, 80.0)] {
        let mut case = Case::of(Limit::Bucket { rate: 50.0, burst }, 8, 0.02);
        case.limits
            .push((60.0, Limit::Bucket { rate: more, burst }));
        add(format!("50, {more}/s burst {burst}"), case, 240.0, 8);
    }
    for (count, span) in [(60, 6.0), (20, 10.0), (5, 10.0), (300, 60.0)] {
        let fixed = Limit::Fixed { count, span };
        add(
            format!("fixed {count} per {span}"),
            Case::of(fixed, 8, 0.02),
            120.0 + 5.0 * span,
            8,
        );
        let sliding = Limit::Sliding {
            count: count as usize,
            span,
        };
        add(
            format!("sliding {count} per {span}"),
            Case::of(sliding, 8, 0.02),
            120.0 + 5.0 * span,
            8,
        );
    }
    let told = Case {
        retry_after: 10.0,
        ..Case::of(
            Limit::Bucket {
                rate: 5.0,
                burst: 5.0,
            },
            8,
            0.02,
        )
    };
    add("5/s, Retry-After 10".into(), told, 120.0, 8);
    cases
}

#[test]
#[ignore = "it prints figures for a reader"]
fn table_of_short_windows() {
    println!(
        "{:<28} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "server, window", "all %", "late %", "least", "rounds", "429 %"
    );
    for (name, short) in short_windows() {
        for window in [10, 60] {
            let mut case = short.clone();
            case.settings.window = Duration::from_secs(window);
            if window == 60 {
                case.seconds *= 5.0;
                for limit in &mut case.limits {
                    limit.0 *= 5.0;
                }
            }
            let (mut all, mut late, mut least, mut rounds, mut refused) =
                (0.0, 0.0, 9.0_f64, 0.0, 0.0);
            let runs = 6;
            for seed in 1..=runs {
                let case = Case {
                    seed,
                    ..case.clone()
                };
                let seen = case.run();
                let n = f64::from(runs as u32);
                let whole = seen.figures(&case, 0.0, case.seconds);
                let part = seen.figures(&case, case.seconds / 3.0, case.seconds);
                all += whole.used / n;
                late += part.used / n;
                rounds += part.rounds / n;
                refused += whole.refused_share / n;
                least = least.min(part.used);
            }
            println!(
                "{name:<22} {window:>4}  {:6.1} {:6.1} {:6.1} {rounds:6.2} {:6.2}",
                all * 100.0,
                late * 100.0,
                least * 100.0,
                refused * 100.0
            );
        }
    }
}

/// `NAME="fixed 60 per 6" cargo test --lib throttle::backoff -- --ignored --nocapture trace_of_one`
#[test]
#[ignore = "it prints steps for a reader"]
fn trace_of_one_of_the_short_windows() {
    let name = std::env::var("NAME").expect("NAME says which case");
    let mut cases = short_windows().into_iter();
    let (_, case) = cases.find(|(known, _)| *known == name).expect("a case");
    let seen = case.run();
    let mut last = 0.0;
    for (at, step) in &seen.steps {
        let since = seen
            .arrivals
            .iter()
            .filter(|(arrived, _)| (last..*at).contains(arrived));
        let (served, refused): (Vec<&(f64, bool)>, Vec<_>) = since.partition(|(_, served)| *served);
        println!(
            "{at:8.2} +{:4} -{:3} {:9.5} -> {:9.5} {:?} {}",
            served.len(),
            refused.len(),
            step.before.delay.as_secs_f64(),
            step.after.delay.as_secs_f64(),
            step.event,
            step.reason
        );
        last = *at;
    }
}
