//! One name being resolved: its two questions, and when what is known is enough (RFC 8305 §3).

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
    /// When the first query left, as far as that was told.
    pub(super) left: Option<Instant>,
    /// When the last thing came of it: a reply, or the end of a try without one.
    heard: Instant,
    a: Half,
    aaaa: Half,
}

/// What a lookup waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An address of any family.
    Waiting,
    /// The other family, for a moment more: by the loop's clock, which may be late, and by that of
    /// the reply.
    Delaying { until: Instant, over: Instant },
    /// The other family, for the cache: those who waited have what there was.
    Late,
}

/// One family's part.
pub(super) enum Half {
    Unwanted,
    Asking(Query),
    Done(Outcome),
}

/// What came of one question.
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

/// How much is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing that helps.
    Nothing,
    /// Addresses of one family; the other is being asked for.
    Half,
    /// All there is.
    Whole,
}

impl Resolving {
    pub(super) fn new(host: Box<str>, a: Option<Query>, aaaa: Option<Query>) -> Self {
        let half = |query: Option<Query>| query.map_or(Half::Unwanted, Half::Asking);
        Resolving {
            host,
            waiters: Vec::new(),
            stage: Stage::Waiting,
            left: None,
            heard: Instant::START,
            a: half(a),
            aaaa: half(aaaa),
        }
    }

    /// The question of a family, if it is being asked.
    pub(super) fn query(&mut self, kind: Kind) -> Option<&mut Query> {
        match self.half(kind) {
            Half::Asking(query) => Some(query),
            _ => None,
        }
    }

    /// Something came of it at this moment.
    pub(super) fn hear(&mut self, at: Instant) {
        self.heard = self.heard.max(at);
    }

    /// When the last thing did.
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }

    /// A question has its answer.
    pub(super) fn settle(&mut self, kind: Kind, outcome: Outcome) -> Progress {
        *self.half(kind) = Half::Done(outcome);
        match (&self.a, &self.aaaa) {
            (Half::Asking(_), Half::Done(Outcome::Found { .. }))
            | (Half::Done(Outcome::Found { .. }), Half::Asking(_)) => Progress::Half,
            (Half::Asking(_), _) | (_, Half::Asking(_)) => Progress::Nothing,
            _ => Progress::Whole,
        }
    }

    /// What is known so far, as one. What was found wins over what is missing, and not knowing
    /// wins over knowing that there is nothing.
    pub(super) fn outcome(&self, families: Families) -> Outcome {
        match (self.a.outcome(), self.aaaa.outcome()) {
            (Some(a), Some(aaaa)) => join(families, a, aaaa),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => unreachable!("a lookup is judged when something is known"),
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
    fn what_is_found_wins_and_not_knowing_is_no_denial() {
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
    fn an_answer_lives_as_long_as_its_shorter_family() {
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
