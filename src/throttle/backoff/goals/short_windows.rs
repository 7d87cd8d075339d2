//! Backoff with short windows: the server's, ours, or both.

use super::*;

#[test]
fn f41_a_servers_quota_per_window_is_used_with_any_window_of_ours() {
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
fn f41_a_settled_pace_is_refused_at_most_once_per_window_of_any_length() {
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
fn f41_a_small_rise_of_the_limit_is_used() {
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
fn f44_holds_as_long_as_a_window_are_not_provoked_repeatedly() {
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

/// The servers of the table of servers with short windows.
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
    let server_gap = Case {
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
    add("5/s, Retry-After 10".into(), server_gap, 120.0, 8);
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
fn trace_of_one_short_window() {
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
