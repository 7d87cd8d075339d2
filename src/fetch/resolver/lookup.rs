//! The lookup of one name: its two queries, and when the results suffice (RFC 8305 §3).

use super::Waiter;
use super::answer::{Addresses, Fault, in_order};
use super::query::Query;
use super::settings::Families;
use crate::base::time::Instant;
use crate::wire::dns::Kind;

/// A name and what is known of its two families.
///
/// ```text
/// Waiting ── one family found ──> Delaying ── 50 ms ──> Late (the waiters have it)
///    │                               │                    │
///    └────── both families known ────┴────────────────────┴──> over
/// ```
pub(super) struct Resolving {
    pub(super) host: Box<str>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) stage: Stage,
    pub(super) began: Instant,
    /// When the first query departed, as far as reported.
    pub(super) left: Option<Instant>,
    /// Time of the last event: a reply, or the end of a try without one.
    last_event: Instant,
    a: Half,
    aaaa: Half,
}

/// What a lookup waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An address of either family.
    Waiting,
    /// The other family, for a short time: measured by the loop's clock, which may be late, and by
    /// the time of the reply.
    Delaying { until: Instant, over: Instant },
    /// The other family, for the cache only: the waiters already have the first one's addresses.
    Late,
}

/// The state of one family.
pub(super) enum Half {
    Unwanted,
    Asking(Query),
    Done(Outcome),
}

/// The result of one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Found {
        addresses: Addresses,
        expires: Instant,
    },
    Absent {
        fault: Fault,
        expires: Instant,
    },
    Failed(Fault),
}

/// Extent of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// No usable answer.
    Nothing,
    /// Addresses of one family; the query for the other is in progress.
    Half,
    /// Everything.
    Whole,
}

impl Resolving {
    pub(super) fn new(host: Box<str>, a: Option<Query>, aaaa: Option<Query>, now: Instant) -> Self {
        let half = |query: Option<Query>| query.map_or(Half::Unwanted, Half::Asking);
        Resolving {
            host,
            waiters: Vec::new(),
            stage: Stage::Waiting,
            began: now,
            left: None,
            last_event: Instant::START,
            a: half(a),
            aaaa: half(aaaa),
        }
    }

    /// The query of a family, if in progress.
    pub(super) fn query(&mut self, kind: Kind) -> Option<&mut Query> {
        match self.half(kind) {
            Half::Asking(query) => Some(query),
            _ => None,
        }
    }

    /// Records an event at this time.
    pub(super) fn record_event(&mut self, at: Instant) {
        self.last_event = self.last_event.max(at);
    }

    /// Time of the last event.
    pub(super) fn last_event(&self) -> Instant {
        self.last_event
    }

    /// Records the result of a query.
    pub(super) fn settle(&mut self, kind: Kind, outcome: Outcome) -> Progress {
        *self.half(kind) = Half::Done(outcome);
        match (&self.a, &self.aaaa) {
            (Half::Asking(_), Half::Done(Outcome::Found { .. }))
            | (Half::Done(Outcome::Found { .. }), Half::Asking(_)) => Progress::Half,
            (Half::Asking(_), _) | (_, Half::Asking(_)) => Progress::Nothing,
            _ => Progress::Whole,
        }
    }

    /// The combined result so far. Found addresses take precedence over missing ones, and a failure
    /// over the knowledge that there are none.
    pub(super) fn outcome(&self, families: Families) -> Outcome {
        match (self.a.outcome(), self.aaaa.outcome()) {
            (Some(a), Some(aaaa)) => join(families, a, aaaa),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => unreachable!("called only when a result is known"),
        }
    }

    fn half(&mut self, kind: Kind) -> &mut Half {
        match kind {
            Kind::A => &mut self.a,
            Kind::Aaaa => &mut self.aaaa,
        }
    }
}

impl Half {
    fn outcome(&self) -> Option<&Outcome> {
        match self {
            Half::Done(outcome) => Some(outcome),
            Half::Unwanted | Half::Asking(_) => None,
        }
    }
}

fn join(families: Families, a: &Outcome, aaaa: &Outcome) -> Outcome {
    use Outcome::{Absent, Failed, Found};
    match (a, aaaa) {
        (
            Found {
                addresses: v4,
                expires: e4,
            },
            Found {
                addresses: v6,
                expires: e6,
            },
        ) => Found {
            addresses: in_order(families, v4, v6),
            expires: *e4.min(e6),
        },
        (found @ Found { .. }, _) | (_, found @ Found { .. }) => found.clone(),
        (Failed(fault), _) | (_, Failed(fault)) => Failed(*fault),
        (
            Absent {
                fault: f4,
                expires: e4,
            },
            Absent {
                fault: f6,
                expires: e6,
            },
        ) => Absent {
            // Some servers deny the name itself when asked for AAAA (RFC 4074 §4.2).
            fault: if f4 == f6 { *f4 } else { Fault::NoData },
            expires: *e4.min(e6),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn found(text: &str, expires: u64) -> Outcome {
        Outcome::Found {
            addresses: Addresses::from_iter([text.parse().unwrap()]),
            expires: Instant::START + Duration::from_secs(expires),
        }
    }

    fn absent(fault: Fault, expires: u64) -> Outcome {
        Outcome::Absent {
            fault,
            expires: Instant::START + Duration::from_secs(expires),
        }
    }

    #[test]
    fn found_addresses_win_and_a_failure_is_not_an_absence() {
        let check = |a: &Outcome, aaaa: &Outcome, expected: &Outcome| {
            assert_eq!(join(Families::V6First, a, aaaa), *expected);
        };
        let v4 = found("192.0.2.1", 60);
        let no_data = absent(Fault::NoData, 30);
        let no_name = absent(Fault::NxDomain, 20);
        let failed = Outcome::Failed(Fault::ServFail);
        check(&v4, &no_data, &v4);
        check(&v4, &no_name, &v4);
        check(&v4, &failed, &v4);
        check(&no_data, &failed, &failed);
        check(&failed, &no_name, &failed);
        check(&no_data, &no_name, &absent(Fault::NoData, 20));
        check(&no_name, &no_name, &no_name);
    }

    #[test]
    fn an_answer_expires_with_its_shorter_lived_family() {
        let joined = join(
            Families::V6First,
            &found("192.0.2.1", 60),
            &found("::1", 40),
        );
        let Outcome::Found { addresses, expires } = joined else {
            panic!("both were found");
        };
        assert_eq!(addresses.len(), 2);
        assert!(addresses[0].is_ipv6());
        assert_eq!(expires, Instant::START + Duration::from_secs(40));
    }
}
