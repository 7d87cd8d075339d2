//! End-of-crawl diagnosis of a scope: which settings had no effect, and why the pace differs from
//! the wanted one.

use std::time::Duration;

use super::cause::WaitCause;

/// A scope's figures over a crawl, and its settings.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Requests that departed.
    pub sends: u64,
    /// Time from the first departure to the last.
    pub span: Duration,
    /// Mean number of requests in flight over that span.
    pub in_flight_mean: f64,
    /// Maximum number of requests in flight.
    pub in_flight_peak: u32,
    /// Time waited, by cause.
    pub waits: Waits,
    /// Final heads and failures.
    pub replies: u64,
    /// Refusals among the replies.
    pub refused: u64,
    /// Median of the latency that the pace follows; `None` without replies.
    pub latency: Option<Duration>,
    /// Median delay before jitter, over the departures.
    pub delay: Duration,
    /// Share of the span during which the delay was at its maximum.
    pub at_max: f64,
    /// A block is suspected.
    pub suspected: bool,
    /// Its settings.
    pub configured: Configured,
}

/// The settings of a scope that can turn out to have no effect.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// Maximum number of requests in flight.
    pub concurrency: u32,
    /// Minimum time from one send to the next.
    pub delay: Duration,
    /// Units per window.
    pub quota: Option<f64>,
    /// AutoThrottle's target concurrency, where it is on.
    pub target_concurrency: Option<f64>,
    /// AutoThrottle's longest delay.
    pub max_delay: Duration,
    /// `CONCURRENT_REQUESTS`.
    pub concurrent_requests: usize,
    /// The settings that the user chose. Defaults without effect are not reported.
    pub chosen: Vec<Setting>,
}

/// The settings that can have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `concurrency`.
    Concurrency,
    /// `delay`.
    Delay,
    /// `quota`.
    Quota,
}

/// The setting with its value, or the name of another limit.
fn describe(cause: WaitCause, configured: &Configured) -> String {
    match cause {
        WaitCause::Delay => format!("delay = {}", configured.delay.as_secs_f64()),
        WaitCause::Autothrottle => "AutoThrottle".to_owned(),
        WaitCause::Backoff => "backoff from refusals".to_owned(),
        WaitCause::Hold => "a hold that the server asked for".to_owned(),
        WaitCause::Robots => "robots.txt's Crawl-delay".to_owned(),
        WaitCause::Rampup => "rampup, which searches for the limit from below".to_owned(),
        WaitCause::Quota => format!("quota = {}", configured.quota.unwrap_or(0.0)),
        WaitCause::Concurrency => format!("concurrency = {}", configured.concurrency),
        WaitCause::GlobalCap => format!("CONCURRENT_REQUESTS = {}", configured.concurrent_requests),
        WaitCause::Queue => "nothing was queued".to_owned(),
    }
}

/// Time that a scope waited, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits([Duration; WaitCause::ALL.len()]);

impl Waits {
    /// Adds a wait.
    pub fn add(&mut self, limit: WaitCause, wait: Duration) {
        let sum = &mut self.0[limit as usize];
        *sum = sum.saturating_add(wait);
    }

    /// Time waited for this cause.
    pub fn of(&self, limit: WaitCause) -> Duration {
        self.0[limit as usize]
    }

    /// Share of all waiting time that is due to this cause; 0 without any waiting.
    pub fn share(&self, limit: WaitCause) -> f64 {
        let all: f64 = self.0.iter().map(Duration::as_secs_f64).sum();
        if all > 0.0 {
            self.of(limit).as_secs_f64() / all
        } else {
            0.0
        }
    }

    /// The cause with the longest waiting time, if the scope ever waited.
    pub fn longest(&self) -> Option<WaitCause> {
        WaitCause::ALL
            .into_iter()
            .filter(|limit| self.of(*limit) > Duration::ZERO)
            .max_by_key(|limit| self.of(*limit))
    }
}

/// Settings that never had an effect, and what limited the scope instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Ineffective {
    /// The settings.
    pub settings: Vec<Setting>,
    /// The limit.
    pub limit: WaitCause,
    /// Both as a message.
    pub message: String,
}

/// Returns the settings that the user chose for a scope and that never had an effect.
///
/// Nothing is reported while at least one chosen setting has an effect: a concurrency of 1000
/// beside a delay that paces the scope is an unused bound, not a mistake.
pub fn ineffective(facts: &Facts) -> Option<Ineffective> {
    let configured = &facts.configured;
    if facts.sends < SENDS_MIN || configured.chosen.is_empty() {
        return None;
    }
    let limit_of = |setting: &Setting| match setting {
        Setting::Concurrency => WaitCause::Concurrency,
        Setting::Delay => WaitCause::Delay,
        Setting::Quota => WaitCause::Quota,
    };
    let effective = |limit| facts.waits.share(limit) >= EFFECTIVE;
    // AutoThrottle counts as chosen as well; delay and concurrency are its bounds then.
    if configured.chosen.iter().map(limit_of).any(effective) || effective(WaitCause::Autothrottle) {
        return None;
    }
    let limit = facts.waits.longest().filter(|l| *l != WaitCause::Queue)?;
    let named: Vec<String> = configured
        .chosen
        .iter()
        .map(|setting| match setting {
            Setting::Concurrency => format!("concurrency {}", configured.concurrency),
            Setting::Delay => format!("delay {}", configured.delay.as_secs_f64()),
            Setting::Quota => format!("quota {}", configured.quota.unwrap_or(0.0)),
        })
        .collect();
    Some(Ineffective {
        settings: configured.chosen.clone(),
        limit,
        message: format!(
            "{} never had effect: {} limited",
            join_words(&named),
            describe(limit, configured)
        ),
    })
}

/// Why a scope's pace is what it is, if that is worth reporting.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The finding.
    pub finding: Finding,
    /// What was observed and what can be done, as a message.
    pub message: String,
}

/// The possible findings about a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The delay is at its maximum because the server is slow.
    Slow,
    /// The server refuses, or sends block pages: slowing down does not help.
    Blocked,
    /// The delay is so short that it does not limit anything.
    Unthrottled,
    /// Fewer requests are in flight than AutoThrottle's target.
    BelowTarget(WaitCause),
}

impl Finding {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Finding::Slow => "slow",
            Finding::Blocked => "blocked",
            Finding::Unthrottled => "unthrottled",
            Finding::BelowTarget(WaitCause::Queue) => "idle",
            Finding::BelowTarget(_) => "below-target",
        }
    }
}

/// Returns the most important finding, if any.
pub fn diagnose(facts: &Facts) -> Option<Diagnosis> {
    if facts.sends < SENDS_MIN {
        return None;
    }
    let target = facts.configured.target_concurrency;
    blocked(facts)
        .or_else(|| slow(facts, target?))
        .or_else(|| unthrottled(facts, target?))
        .or_else(|| below_target(facts, target?))
}

fn blocked(facts: &Facts) -> Option<Diagnosis> {
    let refused = facts.refused as f64 / facts.replies.max(1) as f64;
    let held_back = facts.at_max >= MOSTLY;
    let message = if facts.suspected {
        "answers are block pages: slowing down does not help; changing what requests look like may"
            .to_owned()
    } else if held_back && refused >= MOSTLY {
        format!(
            "{:.0} % of the answers are refusals, even at the longest delay: slowing down does not \
             help; changing what requests look like may",
            refused * 100.0
        )
    } else {
        return None;
    };
    Some(Diagnosis {
        finding: Finding::Blocked,
        message,
    })
}

fn slow(facts: &Facts, target: f64) -> Option<Diagnosis> {
    let latency = facts.latency?.as_secs_f64();
    let max = facts.configured.max_delay.as_secs_f64();
    // Half the median latency suffices: a few much slower replies raise the mean.
    let explains = latency / target >= max / 2.0;
    (facts.at_max >= MOSTLY && explains).then(|| Diagnosis {
        finding: Finding::Slow,
        message: format!(
            "the server takes {latency:.3} s and the delay is at its maximum of {max} s: if the \
             server is always this slow, raise AUTOTHROTTLE_MAX_DELAY",
        ),
    })
}

fn unthrottled(facts: &Facts, target: f64) -> Option<Diagnosis> {
    let delay = facts.delay;
    (delay <= NEAR_ZERO).then(|| Diagnosis {
        finding: Finding::Unthrottled,
        message: format!(
            "the delay is {:.1} ms: the server, or a cache in front of it, is very fast; set \
             `delay` to spare its origin, or lower the target of {target}",
            delay.as_secs_f64() * 1000.0
        ),
    })
}

fn below_target(facts: &Facts, target: f64) -> Option<Diagnosis> {
    if facts.in_flight_mean >= target * REACHED {
        return None;
    }
    let configured = &facts.configured;
    let limit = if f64::from(configured.concurrency) < target {
        WaitCause::Concurrency
    } else if (configured.concurrent_requests as f64) < target {
        WaitCause::GlobalCap
    } else {
        // AutoThrottle's own delay is how the target is approached, so it is not a reason to miss it.
        facts
            .waits
            .longest()
            .filter(|l| *l != WaitCause::Autothrottle)?
    };
    Some(Diagnosis {
        finding: Finding::BelowTarget(limit),
        message: format!(
            "{:.1} in flight on average, at a target of {target}: limited by {}",
            facts.in_flight_mean,
            match limit {
                WaitCause::Queue => "an empty queue".to_owned(),
                limit => describe(limit, configured),
            }
        ),
    })
}

/// Joins words: "a", "a and b", "a, b and c".
fn join_words(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// With fewer sends than this no finding is made.
const SENDS_MIN: u64 = 20;
/// A rule that caused this share of the waiting time had an effect.
const EFFECTIVE: f64 = 0.01;
/// Share of the time or of the replies that counts as most.
const MOSTLY: f64 = 0.5;
/// Delays up to this one do not limit anything: a hundred requests per second.
const NEAR_ZERO: Duration = Duration::from_millis(10);
/// This share of the target counts as reached: jitter and the first seconds reduce the mean.
const REACHED: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn waits(waits: &[(WaitCause, f64)]) -> Waits {
        let mut sum = Waits::default();
        for (limit, seconds) in waits {
            sum.add(*limit, secs(*seconds));
        }
        sum
    }

    /// The specification's example: concurrency 1000, delay 0.08 s.
    fn endpoint(limits: &[(WaitCause, f64)]) -> Facts {
        Facts {
            sends: 1000,
            span: secs(100.0),
            replies: 1000,
            waits: waits(limits),
            configured: Configured {
                concurrency: 1000,
                delay: secs(0.08),
                concurrent_requests: 16,
                chosen: vec![Setting::Concurrency, Setting::Delay],
                ..Configured::default()
            },
            ..Facts::default()
        }
    }

    /// AutoThrottle with this target and pages of 200 ms.
    fn throttled(target: f64) -> Facts {
        Facts {
            sends: 1000,
            span: secs(100.0),
            replies: 1000,
            in_flight_mean: target,
            latency: Some(secs(0.2)),
            delay: secs(0.2 / target),
            waits: waits(&[(WaitCause::Autothrottle, 90.0)]),
            configured: Configured {
                concurrency: 8,
                target_concurrency: Some(target),
                max_delay: secs(60.0),
                concurrent_requests: 4096,
                ..Configured::default()
            },
            ..Facts::default()
        }
    }

    #[track_caller]
    fn check_ineffective(facts: &Facts, expected: Option<&str>) {
        let found = ineffective(facts).map(|found| found.message);
        assert_eq!(found.as_deref(), expected);
    }

    #[track_caller]
    fn check(facts: &Facts, expected: Option<Finding>) {
        let found = diagnose(facts);
        assert_eq!(found.as_ref().map(|d| d.finding), expected, "{found:?}");
    }

    #[test]
    fn f77_settings_made_ineffective_by_the_global_cap_are_reported_with_it() {
        check_ineffective(
            &endpoint(&[(WaitCause::GlobalCap, 90.0), (WaitCause::Queue, 5.0)]),
            Some(
                "concurrency 1000 and delay 0.08 never had effect: CONCURRENT_REQUESTS = 16 limited",
            ),
        );
    }

    #[test]
    fn f77_nothing_is_reported_while_one_setting_has_an_effect() {
        check_ineffective(
            &endpoint(&[(WaitCause::Delay, 50.0), (WaitCause::GlobalCap, 90.0)]),
            None,
        );
        check_ineffective(
            &endpoint(&[(WaitCause::Concurrency, 2.0), (WaitCause::GlobalCap, 90.0)]),
            None,
        );
        check_ineffective(&endpoint(&[(WaitCause::Autothrottle, 90.0)]), None);
    }

    #[test]
    fn f77_the_scopes_own_defaults_may_be_what_limits() {
        let mut facts = endpoint(&[(WaitCause::Delay, 90.0)]);
        facts.configured.delay = secs(1.0);
        facts.configured.chosen = vec![Setting::Concurrency];
        check_ineffective(
            &facts,
            Some("concurrency 1000 never had effect: delay = 1 limited"),
        );
        facts.configured.chosen = vec![Setting::Delay];
        facts.configured.concurrency = 1;
        facts.waits = waits(&[(WaitCause::Concurrency, 90.0)]);
        check_ineffective(
            &facts,
            Some("delay 1 never had effect: concurrency = 1 limited"),
        );
        facts.waits = waits(&[(WaitCause::Robots, 90.0)]);
        check_ineffective(
            &facts,
            Some("delay 1 never had effect: robots.txt's Crawl-delay limited"),
        );
    }

    #[test]
    fn f77_nothing_is_reported_for_few_sends_or_without_limit_or_chosen_setting() {
        let limited = endpoint(&[(WaitCause::GlobalCap, 90.0)]);
        check_ineffective(
            &Facts {
                sends: 19,
                ..limited.clone()
            },
            None,
        );
        check_ineffective(&endpoint(&[]), None);
        check_ineffective(
            &endpoint(&[(WaitCause::Queue, 90.0), (WaitCause::GlobalCap, 9.0)]),
            None,
        );
        let mut defaults = limited;
        defaults.configured.chosen.clear();
        check_ineffective(&defaults, None);
    }

    #[test]
    fn f100_a_delay_at_its_longest_is_a_slow_server_or_a_block() {
        let stuck = Facts {
            at_max: 0.95,
            latency: Some(secs(90.0)),
            delay: secs(60.0),
            ..throttled(1.0)
        };
        check(&stuck, Some(Finding::Slow));
        let refused = Facts {
            refused: 800,
            latency: Some(secs(0.01)),
            ..stuck.clone()
        };
        check(&refused, Some(Finding::Blocked));
        // Slow and refusing: the refusals are reported.
        check(
            &Facts {
                refused: 800,
                ..stuck.clone()
            },
            Some(Finding::Blocked),
        );
        // Only for part of the time.
        check(
            &Facts {
                at_max: 0.2,
                ..stuck
            },
            None,
        );
    }

    #[test]
    fn f101_a_delay_near_zero_is_reported_as_unthrottled() {
        let quick = Facts {
            delay: secs(0.001),
            latency: Some(secs(0.001)),
            ..throttled(1.0)
        };
        check(&quick, Some(Finding::Unthrottled));
        check(&throttled(1.0), None);
        // Without AutoThrottle a delay near zero is expected.
        let mut off = quick;
        off.configured.target_concurrency = None;
        check(&off, None);
    }

    #[test]
    fn f102_the_limit_that_keeps_concurrency_below_its_target_is_named() {
        let below = |concurrency, limit| {
            let mut facts = throttled(4.0);
            facts.in_flight_mean = 1.0;
            facts.configured.concurrency = concurrency;
            facts.waits = waits(&[(limit, 90.0)]);
            facts
        };
        let found = Some(Finding::BelowTarget(WaitCause::Concurrency));
        check(&below(1, WaitCause::Autothrottle), found);
        for limit in [
            WaitCause::GlobalCap,
            WaitCause::Robots,
            WaitCause::Backoff,
            WaitCause::Queue,
        ] {
            check(&below(8, limit), Some(Finding::BelowTarget(limit)));
        }
        check(&below(8, WaitCause::Autothrottle), None);
        check(&throttled(4.0), None);
        // Nearly reached counts as reached.
        let mut almost = below(8, WaitCause::Queue);
        almost.in_flight_mean = 3.5;
        check(&almost, None);
        let message = diagnose(&below(1, WaitCause::Queue)).map(|found| found.message);
        assert_eq!(
            message.as_deref(),
            Some("1.0 in flight on average, at a target of 4: limited by concurrency = 1")
        );
    }

    #[test]
    fn each_finding_has_a_distinct_name_in_files() {
        let findings = [
            (Finding::Slow, "slow"),
            (Finding::Blocked, "blocked"),
            (Finding::Unthrottled, "unthrottled"),
            (Finding::BelowTarget(WaitCause::Queue), "idle"),
            (Finding::BelowTarget(WaitCause::Robots), "below-target"),
        ];
        for (finding, word) in findings {
            assert_eq!(finding.name(), word);
        }
    }

    #[test]
    fn f103_a_block_is_reported_with_autothrottle_on_or_off() {
        let mut facts = endpoint(&[(WaitCause::Backoff, 90.0)]);
        facts.suspected = true;
        check(&facts, Some(Finding::Blocked));
        facts.suspected = false;
        check(&facts, None);
        facts.at_max = 0.9;
        facts.refused = 990;
        check(&facts, Some(Finding::Blocked));
        // Refused at first, then no more: backoff has found a rate limit.
        facts.refused = 30;
        check(&facts, None);
    }
}
