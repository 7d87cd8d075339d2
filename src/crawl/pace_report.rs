//! Report of the paces: what each scope did, what it waited for, and remarks on it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::time::{Instant, nanos};
use crate::throttle::cause::WaitCause;
use crate::throttle::decision::DecisionEvent;
use crate::throttle::diagnosis::Finding;
use crate::throttle::engine::{Account, Throttle};
use crate::throttle::strategy::Pace;

/// Report on the pace of a crawl's scopes so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PaceReport {
    /// Time waited over all scopes, by cause. Causes without a wait are left out.
    pub waited: BTreeMap<WaitCause, Duration>,
    /// Decisions over all scopes, by kind. Kinds without a decision are left out.
    pub decided: BTreeMap<DecisionEvent, u64>,
    /// The scopes worth a look, those that waited longest first: those that the configuration
    /// names, those that waited longest, sent most and were refused most, and those whose answers
    /// are suspected to be a block's.
    pub scopes: Vec<ScopePacing>,
    /// Number of known scopes that are not among them.
    pub left_out: usize,
}

/// Pacing of one scope.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ScopePacing {
    /// Its name.
    pub scope: String,
    /// The configuration names it.
    pub configured: bool,
    /// Departures.
    pub sent: u64,
    /// Answers that were refusals of this scope.
    pub refused: u64,
    /// Departures per second, from the first to the last.
    pub rate: Option<f64>,
    /// The mean gap between departures.
    pub gap: Option<Duration>,
    /// Mean number of requests on the wire, from the first departure to the last end.
    pub concurrency: Option<f64>,
    /// Most requests on the wire at once.
    pub peak: u32,
    /// Time waited, by cause. Time in which several requests waited is counted once.
    pub waited: BTreeMap<WaitCause, Duration>,
    /// Decisions about it, by kind.
    pub decided: BTreeMap<DecisionEvent, u32>,
    /// The configured pace.
    pub configured_pace: Pace,
    /// The present pace, or the last it had.
    pub pace: Pace,
    /// The most requests per second that it accepts, if refusals have shown that.
    pub learned_rate: Option<f64>,
    /// Estimate of the median latency.
    pub latency: Option<Duration>,
    /// Share of the time in which its delay was at its maximum.
    pub at_longest_delay: f64,
    /// Remarks on it.
    pub remarks: Vec<Remark>,
}

impl ScopePacing {
    /// A scope under which nothing was sent.
    pub fn new(scope: impl Into<String>, pace: Pace) -> Self {
        ScopePacing {
            scope: scope.into(),
            configured: false,
            sent: 0,
            refused: 0,
            rate: None,
            gap: None,
            concurrency: None,
            peak: 0,
            waited: BTreeMap::new(),
            decided: BTreeMap::new(),
            configured_pace: pace,
            pace,
            learned_rate: None,
            latency: None,
            at_longest_delay: 0.0,
            remarks: Vec::new(),
        }
    }
}

/// A remark on a scope, for its operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Remark {
    /// Its subject.
    pub about: RemarkKind,
    /// The observation, and possible remedies.
    pub words: String,
}

impl Remark {
    /// A remark in these words.
    pub fn new(about: RemarkKind, words: impl Into<String>) -> Self {
        Remark {
            about,
            words: words.into(),
        }
    }
}

/// Subject of a [`Remark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemarkKind {
    /// Answers are suspected to be block pages.
    Suspect,
    /// The server refuses at every pace: slowing down does not help.
    Blocked,
    /// The delay is at its maximum because the server is slow.
    Slow,
    /// A setting had no effect.
    Ineffective,
    /// Fewer requests are in flight than AutoThrottle's target.
    BelowTarget,
    /// The same, because too few requests are queued.
    Idle,
    /// The delay is so short that it does not limit anything.
    Unthrottled,
}

impl RemarkKind {
    /// The name in `stats.json`.
    pub const fn as_str(self) -> &'static str {
        match self {
            RemarkKind::Suspect => "suspect",
            RemarkKind::Blocked => "blocked",
            RemarkKind::Slow => "slow",
            RemarkKind::Ineffective => "ineffective",
            RemarkKind::BelowTarget => "below-target",
            RemarkKind::Idle => "idle",
            RemarkKind::Unthrottled => "unthrottled",
        }
    }

    fn of(finding: Finding) -> Self {
        match finding {
            Finding::Slow => RemarkKind::Slow,
            Finding::Blocked => RemarkKind::Blocked,
            Finding::Unthrottled => RemarkKind::Unthrottled,
            Finding::BelowTarget(WaitCause::Queue) => RemarkKind::Idle,
            Finding::BelowTarget(_) => RemarkKind::BelowTarget,
        }
    }
}

impl fmt::Display for RemarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Most scopes reported among those that the configuration names.
const CONFIGURED_MAX: usize = 100;
/// Scopes reported of each ranking.
pub(super) const MOST: usize = 50;
/// The same while the crawl runs: the event loop is blocked during the report.
pub(super) const MOST_RUNNING: usize = 10;

impl PaceReport {
    /// The report of a throttle at `now`.
    pub(super) fn of(throttle: &Throttle, most: usize, now: Instant) -> Self {
        let accounts: Vec<&Account> = throttle.accounts().collect();
        let waited = throttle.waited(now);
        let decided = |event: &DecisionEvent| (*event, throttle.decided(*event));
        let chosen = chosen(&accounts, most, now);
        let mut scopes: Vec<ScopePacing> = chosen
            .iter()
            .map(|at| ScopePacing::of(throttle, accounts[*at], now))
            .collect();
        scopes.sort_by(|a, b| {
            let waited = |scope: &ScopePacing| scope.waited.values().sum::<Duration>();
            (waited(b), &a.scope).cmp(&(waited(a), &b.scope))
        });
        PaceReport {
            waited: waited.into_iter().filter(some_time).collect(),
            decided: DecisionEvent::ALL
                .iter()
                .map(decided)
                .filter(|(_, count)| *count > 0)
                .collect(),
            left_out: accounts.len() - scopes.len(),
            scopes,
        }
    }

    /// The keys of `stats.json` that are about paces.
    pub(super) fn to_json(&self) -> [(&'static str, Value); 4] {
        let scopes: Vec<Value> = self.scopes.iter().map(ScopePacing::to_json).collect();
        [
            ("waited", seconds(&self.waited)),
            ("decisions", counts(&self.decided)),
            ("pacing", Value::Array(scopes)),
            ("pacing_left_out", json!(self.left_out)),
        ]
    }
}

/// Indices of the accounts to report: the largest of each kind, up to a maximum.
fn chosen(accounts: &[&Account], most: usize, now: Instant) -> BTreeSet<usize> {
    // There may be thousands, each of some hundred bytes: one pass over them.
    let mut ranks: [Vec<(Reverse<u64>, usize)>; 5] = Default::default();
    for (at, account) in accounts.iter().enumerate() {
        let by = [
            u64::from(account.configured) * account.sent,
            nanos(account.waited_total(now)),
            account.sent,
            account.refused,
            u64::from(account.suspected.is_some()),
        ];
        for (ranks, rank) in ranks.iter_mut().zip(by) {
            if rank > 0 {
                ranks.push((Reverse(rank), at));
            }
        }
    }
    let counts = [CONFIGURED_MAX, most, most, most, most];
    let mut chosen = BTreeSet::new();
    for (mut ranked, count) in ranks.into_iter().zip(counts) {
        if ranked.len() > count {
            ranked.select_nth_unstable(count);
            ranked.truncate(count);
        }
        chosen.extend(ranked.into_iter().map(|(_, at)| at));
    }
    chosen
}

impl ScopePacing {
    /// The pacing of the scope of this name; `None` if nothing was sent under it.
    pub(super) fn named(throttle: &Throttle, name: &str, now: Instant) -> Option<Self> {
        let account = throttle.account_of(name)?;
        Some(ScopePacing::of(throttle, account, now))
    }

    /// The pacing of scopes whose names are wanted, those of the greatest rank first; those of equal rank by name.
    pub(super) fn list(
        throttle: &Throttle,
        is_wanted: impl Fn(&str) -> bool,
        rank: impl Fn(&Account) -> Option<u64>,
        most: usize,
        now: Instant,
    ) -> Vec<Self> {
        let wanted = throttle
            .accounts()
            .filter(|account| is_wanted(&account.scope));
        let ranked = wanted.filter_map(|account| Some((Reverse(rank(account)?), account)));
        let mut ranked: Vec<(Reverse<u64>, &Account)> = ranked.collect();
        let order = |a: &(Reverse<u64>, &Account), b: &(Reverse<u64>, &Account)| {
            (a.0, &a.1.scope).cmp(&(b.0, &b.1.scope))
        };
        if ranked.len() > most {
            ranked.select_nth_unstable_by(most, order);
            ranked.truncate(most);
        }
        ranked.sort_by(order);
        let listed = ranked.into_iter();
        listed
            .map(|(_, account)| ScopePacing::of(throttle, account, now))
            .collect()
    }

    fn of(throttle: &Throttle, account: &Account, now: Instant) -> Self {
        let waited = |cause: &WaitCause| (*cause, account.waited(*cause, now));
        let decided = |event: &DecisionEvent| (*event, account.decided(*event));
        ScopePacing {
            scope: account.scope.clone(),
            configured: account.configured,
            sent: account.sent,
            refused: account.refused,
            rate: account.rate(),
            gap: account.gap(),
            concurrency: account.concurrency(now),
            peak: account.peak,
            waited: WaitCause::ALL
                .iter()
                .map(waited)
                .filter(some_time)
                .collect(),
            decided: DecisionEvent::ALL
                .iter()
                .map(decided)
                .filter(|(_, count)| *count > 0)
                .collect(),
            configured_pace: account.configured_pace(),
            pace: account.pace,
            learned_rate: throttle.learned_rate(&account.scope),
            latency: account.latency(),
            at_longest_delay: account.at_max_delay(),
            remarks: remarks(throttle, account, now),
        }
    }

    /// Its longest wait: cause and duration.
    pub fn waited_most(&self) -> Option<(WaitCause, Duration)> {
        let longest = self.waited.iter().max_by_key(|(_, waited)| **waited)?;
        Some((*longest.0, *longest.1))
    }

    /// As in `stats.json`.
    pub(super) fn to_json(&self) -> Value {
        let pace = |pace: Pace| json!({"delay": pace.delay.as_secs_f64(), "concurrency": pace.concurrency});
        let span = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        let remarks: Vec<Value> = self
            .remarks
            .iter()
            .map(|remark| json!({"about": remark.about.as_str(), "words": remark.words}))
            .collect();
        json!({
            "scope": self.scope,
            "configured": self.configured,
            "sent": self.sent,
            "refused": self.refused,
            "rate": self.rate,
            "gap": span(self.gap),
            "concurrency": self.concurrency,
            "concurrency_max": self.peak,
            "waited": seconds(&self.waited),
            "decisions": counts(&self.decided),
            "configured_pace": pace(self.configured_pace),
            "pace": pace(self.pace),
            "learned_rate": self.learned_rate,
            "latency_median": span(self.latency),
            "at_longest_delay": self.at_longest_delay,
            "remarks": remarks,
        })
    }
}

fn remarks(throttle: &Throttle, account: &Account, now: Instant) -> Vec<Remark> {
    let (ineffective, diagnosis) = throttle.findings(account, now);
    let suspected = account.suspected.as_ref().map(|reason| Remark {
        about: RemarkKind::Suspect,
        words: format!("{reason}; the headers or the rate of the requests may be the cause"),
    });
    let ineffective = ineffective.map(|found| Remark {
        about: RemarkKind::Ineffective,
        words: found.message,
    });
    // A suspicion names the kind of the block, which is more specific.
    let diagnosis =
        diagnosis.filter(|found| suspected.is_none() || found.finding != Finding::Blocked);
    let diagnosis = diagnosis.map(|found| Remark {
        about: RemarkKind::of(found.finding),
        words: found.message,
    });
    [suspected, diagnosis, ineffective]
        .into_iter()
        .flatten()
        .collect()
}

fn some_time((_, waited): &(WaitCause, Duration)) -> bool {
    !waited.is_zero()
}

fn counts<N: Copy + Into<u64>>(decided: &BTreeMap<DecisionEvent, N>) -> Value {
    let counts = decided.iter();
    let counts = counts.map(|(event, count)| (event.as_str().to_owned(), json!((*count).into())));
    Value::Object(counts.collect::<Map<String, Value>>())
}

fn seconds(spans: &BTreeMap<WaitCause, Duration>) -> Value {
    let spans = spans.iter();
    let spans = spans.map(|(cause, span)| (cause.as_str().to_owned(), json!(span.as_secs_f64())));
    Value::Object(spans.collect::<Map<String, Value>>())
}
