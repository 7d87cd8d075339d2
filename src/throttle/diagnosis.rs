//! What a scope's figures say at the end: which settings had no effect, and what to do about a
//! pace that is not the wanted one.

use std::time::Duration;

use super::cause::Cause;

/// A scope's figures over a crawl, and what it was told.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Requests that departed.
    pub sends: u64,
    /// From the first departure to the last.
    pub span: Duration,
    /// In flight on average, over that span.
    pub in_flight_mean: f64,
    /// In flight at most.
    pub in_flight_peak: u32,
    /// How long the scope waited, and for what.
    pub waits: Waits,
    /// Final heads and failures.
    pub replies: u64,
    /// Of those, refusals.
    pub refused: u64,
    /// The median latency that the pace followed; `None` without replies.
    pub latency: Option<Duration>,
    /// The median delay before jitter, over the departures.
    pub delay: Duration,
    /// The share of the span during which the delay was at its longest.
    pub at_max: f64,
    /// A block is suspected.
    pub suspected: bool,
    /// What it was told.
    pub told: Told,
}

/// The settings of a scope, as far as they can be without effect.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Requests in flight.
    pub concurrency: u32,
    /// From one send to the next.
    pub delay: Duration,
    /// Units per window.
    pub quota: Option<f64>,
    /// AutoThrottle's target concurrency, where it is on.
    pub target_concurrency: Option<f64>,
    /// AutoThrottle's longest delay.
    pub max_delay: Duration,
    /// `CONCURRENT_REQUESTS`.
    pub concurrent_requests: usize,
    /// Those that the user chose: defaults that have no effect surprise nobody.
    pub chosen: Vec<Setting>,
}

/// The settings that may be without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// `concurrency`.
    Concurrency,
    /// `delay`.
    Delay,
    /// `quota`.
    Quota,
}

/// The setting and its value, or whatever else it was that limited.
fn words(cause: Cause, told: &Told) -> String {
    match cause {
        Cause::Delay => format!("delay = {}", told.delay.as_secs_f64()),
        Cause::Autothrottle => "AutoThrottle".to_owned(),
        Cause::Backoff => "backoff from refusals".to_owned(),
        Cause::Hold => "a pause that the server asked for".to_owned(),
        Cause::Robots => "robots.txt's Crawl-delay".to_owned(),
        Cause::Rampup => "rampup, which looks for the limit from below".to_owned(),
        Cause::Quota => format!("quota = {}", told.quota.unwrap_or(0.0)),
        Cause::Concurrency => format!("concurrency = {}", told.concurrency),
        Cause::GlobalCap => format!("CONCURRENT_REQUESTS = {}", told.concurrent_requests),
        Cause::Queue => "nothing was queued".to_owned(),
    }
}

/// How long a scope waited, by what kept it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits([Duration; Cause::ALL.len()]);

impl Waits {
    /// Adds a wait.
    pub fn add(&mut self, limit: Cause, wait: Duration) {
        let sum = &mut self.0[limit as usize];
        *sum = sum.saturating_add(wait);
    }

    /// How long it was kept by `cause`.
    pub fn of(&self, limit: Cause) -> Duration {
        self.0[limit as usize]
    }

    /// The share of all waiting that was for `cause`; 0 where it never waited.
    pub fn share(&self, limit: Cause) -> f64 {
        let all: f64 = self.0.iter().map(Duration::as_secs_f64).sum();
        if all > 0.0 {
            self.of(limit).as_secs_f64() / all
        } else {
            0.0
        }
    }

    /// What kept it longest; `None` where it never waited.
    pub fn longest(&self) -> Option<Cause> {
        Cause::ALL
            .into_iter()
            .filter(|limit| self.of(*limit) > Duration::ZERO)
            .max_by_key(|limit| self.of(*limit))
    }
}

/// Settings that never had an effect, and what limited the scope in their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Ineffective {
    /// Which.
    pub settings: Vec<Setting>,
    /// What limited.
    pub limit: Cause,
    /// Both, for a person.
    pub words: String,
}

/// The settings that the user chose for a scope and that never had an effect.
///
/// As long as one of them has, the others are bounds that were not needed: a concurrency of 1000
/// beside a delay that paces the scope is no mistake.
pub fn ineffective(facts: &Facts) -> Option<Ineffective> {
    let told = &facts.told;
    if facts.sends < SENDS || told.chosen.is_empty() {
        return None;
    }
    let limit_of = |setting: &Setting| match setting {
        Setting::Concurrency => Cause::Concurrency,
        Setting::Delay => Cause::Delay,
        Setting::Quota => Cause::Quota,
    };
    let effective = |limit| facts.waits.share(limit) >= EFFECTIVE;
    // AutoThrottle is asked for as well: delay and concurrency are its bounds then.
    if told.chosen.iter().map(limit_of).any(effective) || effective(Cause::Autothrottle) {
        return None;
    }
    let limit = facts.waits.longest().filter(|l| *l != Cause::Queue)?;
    let named: Vec<String> = told
        .chosen
        .iter()
        .map(|setting| match setting {
            Setting::Concurrency => format!("concurrency {}", told.concurrency),
            Setting::Delay => format!("delay {}", told.delay.as_secs_f64()),
            Setting::Quota => format!("quota {}", told.quota.unwrap_or(0.0)),
        })
        .collect();
    Some(Ineffective {
        settings: told.chosen.clone(),
        limit,
        words: format!(
            "{} never had effect: {} limited",
            listed(&named),
            words(limit, told)
        ),
    })
}

/// Why a scope's pace is what it is, where that is worth a word.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// What is the matter.
    pub finding: Finding,
    /// What was seen, and what may be done, for a person.
    pub words: String,
}

/// What may be the matter with a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The delay is at its longest because the server takes so long.
    Slow,
    /// The server refuses, or answers in its pages' place: slowing down does not help.
    Blocked,
    /// The delay is so short that it spares nobody.
    Unthrottled,
    /// Less is in flight than AutoThrottle's target.
    BelowTarget(Cause),
}

impl Finding {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Finding::Slow => "slow",
            Finding::Blocked => "blocked",
            Finding::Unthrottled => "unthrottled",
            Finding::BelowTarget(Cause::Queue) => "idle",
            Finding::BelowTarget(_) => "below-target",
        }
    }
}

/// The most pressing thing that a scope's figures say, if any.
pub fn diagnose(facts: &Facts) -> Option<Diagnosis> {
    if facts.sends < SENDS {
        return None;
    }
    let target = facts.told.target_concurrency;
    blocked(facts)
        .or_else(|| slow(facts, target?))
        .or_else(|| unthrottled(facts, target?))
        .or_else(|| below_target(facts, target?))
}

fn blocked(facts: &Facts) -> Option<Diagnosis> {
    let refused = facts.refused as f64 / facts.replies.max(1) as f64;
    let held_back = facts.at_max >= MOSTLY;
    let words = if facts.suspected {
        "answers are a block's: slowing down does not help, what the request looks like may"
            .to_owned()
    } else if held_back && refused >= MOSTLY {
        format!(
            "{:.0} % of the answers are refusals, even at the longest delay: slowing down does not \
             help, what the request looks like may",
            refused * 100.0
        )
    } else {
        return None;
    };
    Some(Diagnosis {
        finding: Finding::Blocked,
        words,
    })
}

fn slow(facts: &Facts, target: f64) -> Option<Diagnosis> {
    let latency = facts.latency?.as_secs_f64();
    let max = facts.told.max_delay.as_secs_f64();
    // Half the usual latency would do for what a mean makes of a few much slower replies.
    let explains = latency / target >= max / 2.0;
    (facts.at_max >= MOSTLY && explains).then(|| Diagnosis {
        finding: Finding::Slow,
        words: format!(
            "the server takes {latency:.3} s, and the delay is at its longest of {max} s: where \
             that is its nature, raise AUTOTHROTTLE_MAX_DELAY",
        ),
    })
}

fn unthrottled(facts: &Facts, target: f64) -> Option<Diagnosis> {
    let delay = facts.delay;
    (delay <= NEAR_ZERO).then(|| Diagnosis {
        finding: Finding::Unthrottled,
        words: format!(
            "the delay is {:.1} ms: the server is very quick, or a cache in front of it is; set a \
             delay where its origin is to be spared, or lower the target of {target}",
            delay.as_secs_f64() * 1000.0
        ),
    })
}

fn below_target(facts: &Facts, target: f64) -> Option<Diagnosis> {
    if facts.in_flight_mean >= target * REACHED {
        return None;
    }
    let told = &facts.told;
    let limit = if f64::from(told.concurrency) < target {
        Cause::Concurrency
    } else if (told.concurrent_requests as f64) < target {
        Cause::GlobalCap
    } else {
        // AutoThrottle's own delay is how the target is approached: no reason to miss it.
        facts
            .waits
            .longest()
            .filter(|l| *l != Cause::Autothrottle)?
    };
    Some(Diagnosis {
        finding: Finding::BelowTarget(limit),
        words: format!(
            "{:.1} in flight on average, at a target of {target}: limited by {}",
            facts.in_flight_mean,
            match limit {
                Cause::Queue => "a queue that was empty".to_owned(),
                limit => words(limit, told),
            }
        ),
    })
}

/// "a", "a and b", "a, b and c".
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Fewer sends show nothing about a pace.
const SENDS: u64 = 20;
/// A rule that kept the scope for this share of its waiting had an effect.
const EFFECTIVE: f64 = 0.01;
/// What is so for this share is so on the whole.
const MOSTLY: f64 = 0.5;
/// A delay that spares nobody: a hundred requests a second.
const NEAR_ZERO: Duration = Duration::from_millis(10);
/// This share of the target counts as reached: jitter and the first seconds cost some.
const REACHED: f64 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn waits(waits: &[(Cause, f64)]) -> Waits {
        let mut sum = Waits::default();
        for (limit, seconds) in waits {
            sum.add(*limit, secs(*seconds));
        }
        sum
    }

    /// The seeds' example: 1000 at once, 0.08 s apart.
    fn endpoint(limits: &[(Cause, f64)]) -> Facts {
        Facts {
            sends: 1000,
            span: secs(100.0),
            replies: 1000,
            waits: waits(limits),
            told: Told {
                concurrency: 1000,
                delay: secs(0.08),
                concurrent_requests: 16,
                chosen: vec![Setting::Concurrency, Setting::Delay],
                ..Told::default()
            },
            ..Facts::default()
        }
    }

    /// AutoThrottle at a target, 200 ms pages.
    fn throttled(target: f64) -> Facts {
        Facts {
            sends: 1000,
            span: secs(100.0),
            replies: 1000,
            in_flight_mean: target,
            latency: Some(secs(0.2)),
            delay: secs(0.2 / target),
            waits: waits(&[(Cause::Autothrottle, 90.0)]),
            told: Told {
                concurrency: 8,
                target_concurrency: Some(target),
                max_delay: secs(60.0),
                concurrent_requests: 4096,
                ..Told::default()
            },
            ..Facts::default()
        }
    }

    #[track_caller]
    fn check_ineffective(facts: &Facts, expected: Option<&str>) {
        let found = ineffective(facts).map(|found| found.words);
        assert_eq!(found.as_deref(), expected);
    }

    #[track_caller]
    fn check(facts: &Facts, expected: Option<Finding>) {
        let found = diagnose(facts);
        assert_eq!(found.as_ref().map(|d| d.finding), expected, "{found:?}");
    }

    #[test]
    fn f77_settings_that_the_global_cap_leaves_without_effect_are_named_with_it() {
        check_ineffective(
            &endpoint(&[(Cause::GlobalCap, 90.0), (Cause::Queue, 5.0)]),
            Some(
                "concurrency 1000 and delay 0.08 never had effect: CONCURRENT_REQUESTS = 16 limited",
            ),
        );
    }

    #[test]
    fn f77_nothing_is_reported_as_long_as_one_of_them_has_an_effect() {
        check_ineffective(
            &endpoint(&[(Cause::Delay, 50.0), (Cause::GlobalCap, 90.0)]),
            None,
        );
        check_ineffective(
            &endpoint(&[(Cause::Concurrency, 2.0), (Cause::GlobalCap, 90.0)]),
            None,
        );
        check_ineffective(&endpoint(&[(Cause::Autothrottle, 90.0)]), None);
    }

    #[test]
    fn f77_the_scopes_own_defaults_may_be_what_limits() {
        let mut facts = endpoint(&[(Cause::Delay, 90.0)]);
        facts.told.delay = secs(1.0);
        facts.told.chosen = vec![Setting::Concurrency];
        check_ineffective(
            &facts,
            Some("concurrency 1000 never had effect: delay = 1 limited"),
        );
        facts.told.chosen = vec![Setting::Delay];
        facts.told.concurrency = 1;
        facts.waits = waits(&[(Cause::Concurrency, 90.0)]);
        check_ineffective(
            &facts,
            Some("delay 1 never had effect: concurrency = 1 limited"),
        );
        facts.waits = waits(&[(Cause::Robots, 90.0)]);
        check_ineffective(
            &facts,
            Some("delay 1 never had effect: robots.txt's Crawl-delay limited"),
        );
    }

    #[test]
    fn f77_nothing_is_reported_where_little_was_sent_or_nothing_limited_or_nothing_was_chosen() {
        let limited = endpoint(&[(Cause::GlobalCap, 90.0)]);
        check_ineffective(
            &Facts {
                sends: 19,
                ..limited.clone()
            },
            None,
        );
        check_ineffective(&endpoint(&[]), None);
        check_ineffective(
            &endpoint(&[(Cause::Queue, 90.0), (Cause::GlobalCap, 9.0)]),
            None,
        );
        let mut defaults = limited;
        defaults.told.chosen.clear();
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
        // Slow and refusing: it is the refusals that must end.
        check(
            &Facts {
                refused: 800,
                ..stuck.clone()
            },
            Some(Finding::Blocked),
        );
        // Only for a while.
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
        // Where nobody asked for AutoThrottle, no delay is no surprise.
        let mut off = quick;
        off.told.target_concurrency = None;
        check(&off, None);
    }

    #[test]
    fn f102_what_keeps_concurrency_below_its_target_is_named() {
        let below = |concurrency, limit| {
            let mut facts = throttled(4.0);
            facts.in_flight_mean = 1.0;
            facts.told.concurrency = concurrency;
            facts.waits = waits(&[(limit, 90.0)]);
            facts
        };
        let found = Some(Finding::BelowTarget(Cause::Concurrency));
        check(&below(1, Cause::Autothrottle), found);
        for limit in [
            Cause::GlobalCap,
            Cause::Robots,
            Cause::Backoff,
            Cause::Queue,
        ] {
            check(&below(8, limit), Some(Finding::BelowTarget(limit)));
        }
        check(&below(8, Cause::Autothrottle), None);
        check(&throttled(4.0), None);
        // Almost there is there.
        let mut almost = below(8, Cause::Queue);
        almost.in_flight_mean = 3.5;
        check(&almost, None);
        let words = diagnose(&below(1, Cause::Queue)).map(|found| found.words);
        assert_eq!(
            words.as_deref(),
            Some("1.0 in flight on average, at a target of 4: limited by concurrency = 1")
        );
    }

    #[test]
    fn each_finding_has_its_own_word_in_files() {
        let words = [
            (Finding::Slow, "slow"),
            (Finding::Blocked, "blocked"),
            (Finding::Unthrottled, "unthrottled"),
            (Finding::BelowTarget(Cause::Queue), "idle"),
            (Finding::BelowTarget(Cause::Robots), "below-target"),
        ];
        for (finding, word) in words {
            assert_eq!(finding.name(), word);
        }
    }

    #[test]
    fn f103_a_block_is_told_whether_or_not_autothrottle_is_on() {
        let mut facts = endpoint(&[(Cause::Backoff, 90.0)]);
        facts.suspected = true;
        check(&facts, Some(Finding::Blocked));
        facts.suspected = false;
        check(&facts, None);
        facts.at_max = 0.9;
        facts.refused = 990;
        check(&facts, Some(Finding::Blocked));
        // Refused at once, and then no more: a rate limit that backing off has met.
        facts.refused = 30;
        check(&facts, None);
    }
}
