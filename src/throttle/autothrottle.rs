//! AutoThrottle as in Scrapy: the delay follows the latency (rules 1 to 5 of Scrapy's
//! documentation).

use std::time::Duration;

use super::settings::AutoThrottle;
use super::signal::Signal;

/// The delay a scope starts with: the start delay, but at least the scope's own `floor` (rule 1).
pub fn start_delay(settings: &AutoThrottle, floor: Duration) -> Duration {
    settings.start_delay.max(floor)
}

/// The delay that gives the target concurrency at this latency (rule 2).
pub fn target(settings: &AutoThrottle, latency: Duration) -> Duration {
    // Clamped before the conversion to `Duration`: a tiny target concurrency would overflow it.
    let target = latency.as_secs_f64() / settings.target_concurrency;
    Duration::from_secs_f64(target.min(DELAY_MAX.as_secs_f64()))
}

/// The latency at which this delay gives the target concurrency; the inverse of [`target`].
pub fn latency_at(settings: &AutoThrottle, delay: Duration) -> Duration {
    let latency = delay.as_secs_f64() * settings.target_concurrency;
    Duration::from_secs_f64(latency.min(DELAY_MAX.as_secs_f64()))
}

/// Upper bound of a computed delay, longer than any sensible setting.
const DELAY_MAX: Duration = Duration::from_secs(1_000_000_000);

/// Returns the delay after a signal, from the delay before it.
///
/// The target is latency ÷ target concurrency (rule 2). The new delay is the mean of old delay and
/// target, or the target at once if that is larger (rule 3; Scrapy's code raises the delay without
/// averaging, although its documentation does not mention it). A latency known only as an interval
/// moves the delay only as far as the interval excludes the latency that the old delay stands for.
/// An unsuccessful answer never lowers the delay (rule 4), and a signal without an answer leaves it
/// unchanged. The result stays between the scope's `floor` and `max_delay` (rule 5).
pub fn adjusted_delay(
    settings: &AutoThrottle,
    floor: Duration,
    old: Duration,
    signal: &Signal,
) -> Duration {
    let Some(latency) = settings
        .latency_from
        .choose(signal.latency, signal.server_latency)
        .filter(|_| signal.status.is_some())
    else {
        return old;
    };
    let ceiling = settings.max_delay.max(floor);
    let latency = signal.believed(latency, latency_at(settings, old));
    let target = target(settings, latency).min(ceiling);
    let mean = (old + target) / 2;
    let new = target.max(mean).max(floor).min(ceiling);
    if !signal.is_success(true) && new <= old {
        return old;
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn settings(target_concurrency: f64, max: f64) -> AutoThrottle {
        AutoThrottle {
            target_concurrency,
            max_delay: secs(max),
            ..AutoThrottle::default()
        }
    }

    fn check_with(status: u16, vector: (f64, f64, f64), bounds: (f64, f64), expected: f64) {
        let (latency, target_concurrency, old) = vector;
        let signal = Signal {
            status: Some(status),
            server_latency: Some(secs(latency)),
            ..Signal::default()
        };
        let settings = settings(target_concurrency, bounds.1);
        let new = adjusted_delay(&settings, secs(bounds.0), secs(old), &signal);
        assert_eq!(new, secs(expected), "{vector:?} within {bounds:?}");
    }

    #[test]
    fn f89_a_latency_interval_moves_the_delay_only_as_far_as_it_excludes_it() {
        let check = |old: f64, slack: f64, expected: f64| {
            let signal = Signal {
                status: Some(200),
                latency: Some(secs(0.2)),
                server_latency: Some(secs(0.2)),
                slack: secs(slack),
                ..Signal::default()
            };
            let settings = settings(2.0, 60.0);
            let new = adjusted_delay(&settings, Duration::ZERO, secs(old), &signal);
            assert_eq!(new, secs(expected), "from {old} with slack {slack}");
        };
        // Exact: the target is 0.1.
        check(0.02, 0.0, 0.1);
        check(0.3, 0.0, 0.2);
        // The latency is between 40 and 200 ms, which includes the old one: no change.
        check(0.05, 0.16, 0.05);
        check(0.01, 0.16, 0.02);
        check(0.3, 0.16, 0.2);
    }

    #[test]
    fn f85_scrapys_vectors_give_the_same_delays() {
        let check = |vector, expected| check_with(200, vector, (0.0, 60.0), expected);
        check((2.0, 2.0, 1.0), 1.0);
        check((1.0, 2.0, 1.0), 0.75);
        check((4.0, 2.0, 1.0), 2.0);
        check((2.0, 1.0, 1.0), 2.0);
        check((2.0, 4.0, 1.0), 0.75);
        check((2.0, 2.0, 0.5), 1.0);
        check((2.0, 2.0, 2.0), 1.5);
    }

    #[test]
    fn f87_the_delay_stays_between_the_floor_and_the_ceiling() {
        let check = |bounds, expected| {
            check_with(200, (2.0, 2.0, 1.0), bounds, expected);
        };
        check((0.5, 2.0), 1.0);
        check((0.25, 0.5), 0.5);
        check((2.0, 4.0), 2.0);
    }

    #[test]
    fn f86_a_failed_answer_never_lowers_the_delay() {
        let check = |vector, expected| check_with(400, vector, (0.0, 60.0), expected);
        check((2.0, 2.0, 1.0), 1.0);
        check((1.0, 2.0, 1.0), 1.0);
        check((4.0, 2.0, 1.0), 2.0);
        check((2.0, 1.0, 0.5), 2.0);
    }

    #[test]
    fn f85_fast_pages_halve_the_delay_down_to_the_target() {
        let signal = Signal {
            status: Some(200),
            server_latency: Some(secs(0.1)),
            ..Signal::default()
        };
        let mut delay = secs(5.0);
        for expected in [2.55, 1.325, 0.7125, 0.40625, 0.253125] {
            delay = adjusted_delay(&settings(1.0, 60.0), Duration::ZERO, delay, &signal);
            assert_eq!(delay, secs(expected));
        }
    }

    #[test]
    fn f83_the_start_delay_is_never_below_the_floor() {
        let check = |start: f64, floor: f64, expected: f64| {
            let settings = AutoThrottle {
                start_delay: secs(start),
                ..AutoThrottle::default()
            };
            assert_eq!(start_delay(&settings, secs(floor)), secs(expected));
        };
        check(5.0, 0.0, 5.0);
        check(5.0, 4.0, 5.0);
        check(5.0, 6.0, 6.0);
        check(4.0, 0.0, 4.0);
        check(6.0, 7.0, 7.0);
        check(7.0, 6.0, 7.0);
    }

    #[test]
    fn an_answer_without_latency_changes_nothing() {
        let signal = Signal::default();
        let old = secs(1.5);
        assert_eq!(
            adjusted_delay(&settings(1.0, 60.0), Duration::ZERO, old, &signal),
            old
        );
    }

    #[test]
    fn a_tiny_target_concurrency_gives_the_maximum_delay() {
        check_with(200, (1.0, 1e-300, 5.0), (0.0, 60.0), 60.0);
    }
}
