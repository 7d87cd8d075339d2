//! How scopes were paced: what each did, what it waited for, and what is to be said of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::time::Instant;
use crate::throttle::decision::Event;
use crate::throttle::diagnosis::Finding;
use crate::throttle::engine::{Account, Cause, Throttle};
use crate::throttle::strategy::Pace;

/// How the scopes of a crawl were paced so far.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    /// Time waited over all scopes, by cause. Causes of which there was none are left out.
    pub waited: BTreeMap<&'static str, Duration>,
    /// Decisions over all scopes, by kind. Kinds of which there was none are left out.
    pub decided: BTreeMap<&'static str, u64>,
    /// The scopes worth a look, those that waited longest first: those that the configuration
    /// names, those that waited longest, sent most and were refused most, and those whose answers
    /// are suspected to be a block's.
    pub scopes: Vec<ScopePacing>,
    /// Scopes that are known and not among them.
    pub left_out: usize,
}

/// How one scope was paced.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopePacing {
    /// Its name.
    pub scope: String,
    /// The configuration speaks of it by name.
    pub configured: bool,
    /// Departures.
    pub sent: u64,
    /// Answers that were refusals of this scope.
    pub refused: u64,
    /// Departures per second, from the first to the last.
    pub rate: Option<f64>,
    /// The mean gap between departures.
    pub gap: Option<Duration>,
    /// Requests on the wire in the mean, from the first departure to the last end.
    pub concurrency: Option<f64>,
    /// Requests on the wire at most.
    pub peak: u32,
    /// Time waited, by cause. Of requests that waited together the time is counted once.
    pub waited: BTreeMap<&'static str, Duration>,
    /// Decisions about it, by kind.
    pub decided: BTreeMap<&'static str, u32>,
    /// The pace that the configuration asks for.
    pub configured_pace: Pace,
    /// The present pace, or the last it had.
    pub pace: Pace,
    /// The most requests per second that it takes, where refusals have shown that.
    pub learned_rate: Option<f64>,
    /// The latency in the middle: an estimate.
    pub latency: Option<Duration>,
    /// The share of the time during which its delay was the longest it may be.
    pub at_longest_delay: f64,
    /// What a person should know of it.
    pub remarks: Vec<Remark>,
}

/// Something about a scope that a person should know.
#[derive(Clone, Debug, PartialEq)]
pub struct Remark {
    /// `suspect`, `blocked`, `slow`, `ineffective`, `below-target`, `idle` or `unthrottled`.
    pub about: &'static str,
    /// What was seen, and what may be done.
    pub words: String,
}

/// Of the scopes that the configuration names, so many are told of.
const CONFIGURED_MAX: usize = 100;
/// Of those that are most of something, so many.
const MOST: usize = 50;

impl Pacing {
    /// What the throttle can tell by `now`.
    pub(crate) fn of(throttle: &Throttle, now: Instant) -> Self {
        let accounts: Vec<&Account> = throttle.accounts().collect();
        let waited = |cause: &Cause| (cause.name(), throttle.waited(*cause, now));
        let decided = |event: &Event| (event.name(), throttle.decided(*event));
        let chosen = chosen(&accounts, now);
        let mut scopes: Vec<ScopePacing> = chosen
            .iter()
            .map(|at| ScopePacing::of(throttle, accounts[*at], now))
            .collect();
        scopes.sort_by(|a, b| {
            let waited = |scope: &ScopePacing| scope.waited.values().sum::<Duration>();
            (waited(b), &a.scope).cmp(&(waited(a), &b.scope))
        });
        Pacing {
            waited: Cause::ALL.iter().map(waited).filter(some_time).collect(),
            decided: Event::ALL
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
            ("decisions", json!(self.decided)),
            ("pacing", Value::Array(scopes)),
            ("pacing_left_out", json!(self.left_out)),
        ]
    }
}

/// The places of the accounts that are told of.
fn chosen(accounts: &[&Account], now: Instant) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    let mut take = |count: usize, rank: &dyn Fn(&Account) -> u128| {
        let mut ranked: Vec<(Reverse<u128>, usize)> = accounts
            .iter()
            .enumerate()
            .map(|(at, account)| (Reverse(rank(account)), at))
            .filter(|(rank, _)| rank.0 > 0)
            .collect();
        if ranked.len() > count {
            // There may be thousands, and this is done every few seconds.
            ranked.select_nth_unstable(count);
            ranked.truncate(count);
        }
        chosen.extend(ranked.into_iter().map(|(_, at)| at));
    };
    take(CONFIGURED_MAX, &|account| {
        if account.configured {
            u128::from(account.sent)
        } else {
            0
        }
    });
    take(MOST, &|account| account.waited_in_all(now).as_nanos());
    take(MOST, &|account| u128::from(account.sent));
    take(MOST, &|account| u128::from(account.refused));
    take(MOST, &|account| u128::from(account.suspected.is_some()));
    chosen
}

impl ScopePacing {
    fn of(throttle: &Throttle, account: &Account, now: Instant) -> Self {
        let waited = |cause: &Cause| (cause.name(), account.waited(*cause, now));
        let decided = |event: &Event| (event.name(), account.decided(*event));
        ScopePacing {
            scope: account.scope.clone(),
            configured: account.configured,
            sent: account.sent,
            refused: account.refused,
            rate: account.rate(),
            gap: account.gap(),
            concurrency: account.concurrency(now),
            peak: account.peak,
            waited: Cause::ALL.iter().map(waited).filter(some_time).collect(),
            decided: Event::ALL
                .iter()
                .map(decided)
                .filter(|(_, count)| *count > 0)
                .collect(),
            configured_pace: account.configured_pace(),
            pace: account.pace,
            learned_rate: throttle.learned_rate(&account.scope),
            latency: account.latency(),
            at_longest_delay: account.at_longest(),
            remarks: remarks(throttle, account, now),
        }
    }

    /// What it waited for longest, and how long.
    pub fn waited_most(&self) -> Option<(&'static str, Duration)> {
        let longest = self.waited.iter().max_by_key(|(_, waited)| **waited)?;
        Some((longest.0, *longest.1))
    }

    fn to_json(&self) -> Value {
        let pace = |pace: Pace| json!({"delay": pace.delay.as_secs_f64(), "concurrency": pace.concurrency});
        let span = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        let remarks: Vec<Value> = self
            .remarks
            .iter()
            .map(|remark| json!({"about": remark.about, "words": remark.words}))
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
            "decisions": self.decided,
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
        about: Event::Suspect.name(),
        words: format!("{reason}; what the request looks like may be the reason"),
    });
    let ineffective = ineffective.map(|found| Remark {
        about: Event::Ineffective.name(),
        words: found.words,
    });
    // A suspicion says of what kind the block is, which is more.
    let diagnosis =
        diagnosis.filter(|found| suspected.is_none() || found.finding != Finding::Blocked);
    let diagnosis = diagnosis.map(|found| Remark {
        about: found.finding.name(),
        words: found.words,
    });
    [suspected, diagnosis, ineffective]
        .into_iter()
        .flatten()
        .collect()
}

fn some_time((_, waited): &(&'static str, Duration)) -> bool {
    !waited.is_zero()
}

fn seconds(spans: &BTreeMap<&'static str, Duration>) -> Value {
    let spans = spans.iter();
    let spans = spans.map(|(name, span)| ((*name).to_owned(), json!(span.as_secs_f64())));
    Value::Object(spans.collect::<Map<String, Value>>())
}
