//! Performance goals of backoff, measured at simulated servers.

mod rampup;
mod short_windows;

use std::time::Duration;

use super::Step;
use super::simulation::{Case, Figures, Limit};
use crate::throttle::settings::Rampup;
use crate::throttle::strategy::Pace;

/// Runs the case with two seeds and returns the worst of each figure from second `from` on.
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

/// Asserts the least used share and the most rounds of refusals after a case has settled.
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
fn f41_a_token_bucket_is_used_fully_and_rarely_overdrawn() {
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
fn f41_the_search_starts_at_a_base_faster_than_the_limit() {
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
fn f41_the_first_ten_minutes_use_nearly_as_much() {
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
fn f43_a_limit_restored_after_idle_time_is_not_exceeded() {
    for burst in [1.0, 5.0, 50.0] {
        let case = Case::of(Limit::Bucket { rate: 5.0, burst }, 8, 0.02);
        let learned = case.run().learned;
        assert!(learned.is_some());
        let restart = Case { learned, ..case };
        let seen = restart.run().figures(&restart, 0.0, 120.0);
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

/// Asserts that `used` of the limit is used from `windows` windows after each change.
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
fn f44_a_fixed_window_with_a_reported_end_costs_one_round_at_most() {
    for (count, span) in [(5, 10.0), (50, 10.0), (300, 60.0), (3000, 60.0)] {
        let case = Case {
            sends_reset: true,
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
fn f44_probes_are_rare_if_each_refusal_costs_a_hold() {
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
fn windows_without_a_reported_end_are_mostly_used() {
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
fn a_concurrency_limit_is_used_almost_fully() {
    for slots in [1, 2, 4] {
        let case = Case::of(Limit::InFlight { slots }, 8, 0.05);
        let seen = worst(&case, 150.0);
        assert!(
            seen.used >= 0.83 && seen.rounds <= 1.5,
            "{seen:?} of {slots}"
        );
    }
}

#[test]
fn refusals_independent_of_the_pace_do_not_stop_the_crawl() {
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

/// One row of the printed table.
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
            sends_reset: true,
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
    for slots in [1, 2, 4] {
        let case = Case::of(Limit::InFlight { slots }, 8, 0.05);
        println!("{}", row(&format!("{slots} at once, cap 8, 50 ms"), &case));
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
