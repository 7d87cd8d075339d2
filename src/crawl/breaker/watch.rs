//! What is known of one way out of our machine, and whether it is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::{
    CHECK_EVERY, Cause, Egress, Failed, Judgement, NAME_FOR_ANY_ANSWER, NETWORKS_MIN,
    PROBE_EVERY_MAX, PROBE_EVERY_MIN, PROBE_MAX, Probed, SUSPENDED_MAX, Target, WINDOW,
};
use crate::base::time::Instant;

/// Who answered lately, each on another network.
const KNOWN_MAX: usize = 16;
/// Who failed lately, each on another network.
const FAILED_MAX: usize = 64;
/// Networks that are known to have been tried in an outage: as many as requests are usually in flight.
const TRIED_MAX: usize = 4096;
/// Answers that come this soon after a failure may have arrived before it: they prove nothing.
const LEFTOVERS: Duration = Duration::from_millis(50);
/// Who answered is remembered so often at most: every page has an answer, and few are needed.
const REMEMBERED_EVERY: Duration = Duration::from_millis(50);

/// One way out of our machine.
#[derive(Debug)]
pub struct Watch {
    pub egress: Egress,
    pub state: State,
    answered_at: Option<Instant>,
    remembered_at: Option<Instant>,
    /// What the last check has shown, where it was answered.
    works: Option<Works>,
    known: VecDeque<Known>,
    failed: VecDeque<Failure>,
    /// Networks on which hosts failed, or were probed, since it opened and just before.
    tried: BTreeSet<u64>,
}

/// Hosts that were asked in a check have answered: what fails soon after is charged at once, so that
/// they are not asked again for every eight failures.
#[derive(Clone, Copy, Debug)]
struct Works {
    until: Instant,
    /// What had failed lacked a route. A check for other failures says nothing of routes lost since.
    despite_routes: bool,
}

#[derive(Debug)]
struct Known {
    network: u64,
    target: Target,
    at: Instant,
    /// A probe in this outage was not answered: no proof of an outage once it is over.
    is_doubted: bool,
}

#[derive(Debug)]
struct Failure {
    network: u64,
    cause: Cause,
    target: Target,
    at: Instant,
}

/// How it stands with it.
#[derive(Debug)]
pub enum State {
    /// It works, as far as is known; `suspended` since the first failure without a verdict.
    Closed { suspended: Option<Instant> },
    /// Hosts that answered before are asked.
    Checking {
        until: Instant,
        asked: usize,
        is_connected: bool,
        is_looked_up: Option<bool>,
    },
    /// It does not work. `by_network`: nor did connections, where name servers failed.
    Open {
        since: Instant,
        probe_at: Instant,
        pause: Duration,
        probes: usize,
        /// Those of them that went to hosts that answered before or that failed.
        known_probes: usize,
        is_probing: bool,
        by_network: bool,
    },
}

/// What a person should know when it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Networks on which hosts failed, and of how.
    pub networks: usize,
    pub causes: BTreeMap<Cause, usize>,
    /// In this span.
    pub span: Duration,
    /// Hosts that answered before, were asked, and did not answer.
    pub asked: usize,
    pub egress: Egress,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<String> = self
            .causes
            .iter()
            .map(|(cause, count)| format!("{}: {count}", cause.name()))
            .collect();
        write!(
            f,
            "{} does not work: {} networks failed within {:.1} s ({}), none answered",
            self.egress.words(),
            self.networks,
            self.span.as_secs_f64(),
            causes.join(", "),
        )?;
        if self.asked > 0 {
            write!(f, ", nor did {} hosts that had answered before", self.asked)?;
        }
        Ok(())
    }
}

impl Watch {
    pub fn new(egress: Egress) -> Self {
        Watch {
            egress,
            state: State::Closed { suspended: None },
            answered_at: None,
            remembered_at: None,
            works: None,
            known: VecDeque::new(),
            failed: VecDeque::new(),
            tried: BTreeSet::new(),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Whether it is open, and somebody had answered by it before.
    pub fn stops_all(&self) -> bool {
        self.is_open() && !self.known.is_empty()
    }

    /// Whether anybody was asked by it.
    pub fn is_used(&self) -> bool {
        self.answered_at.is_some() || !self.failed.is_empty() || self.is_open()
    }

    /// What becomes of a failure, before anybody is asked. `is_any_known`: somebody has answered by this
    /// way or by the other family.
    pub fn judge(
        &mut self,
        failed: &Failed,
        hosts: usize,
        is_any_known: bool,
        now: Instant,
    ) -> Judgement {
        if self.is_open() {
            self.note_tried(failed.network);
            return Judgement::PutBack;
        }
        // Somebody answered while the later half of the attempt was on its way.
        let middle = failed.began + now.saturating_since(failed.began) / 2;
        let took = now.saturating_since(failed.began);
        if took >= LEFTOVERS && self.answered_at.is_some_and(|at| at >= middle) {
            return Judgement::Charge;
        }
        let lacks_route = failed.cause == Cause::NoRoute;
        let is_shown = |works: Works| now < works.until && (works.despite_routes || !lacks_route);
        if self.works.is_some_and(is_shown) {
            return Judgement::Charge;
        }
        // Few hosts may all be dead; that a route is missing is our own machine's word.
        if hosts < NETWORKS_MIN && !(lacks_route && is_any_known) {
            return Judgement::Charge;
        }
        // Where nobody has answered yet, dead hosts look like a dead network, except for these.
        let is_telling = matches!(failed.cause, Cause::NoRoute | Cause::NamesSilent);
        if !is_telling && self.known.is_empty() {
            return Judgement::Charge;
        }
        self.note(failed, now);
        if let State::Closed { suspended } = &mut self.state {
            suspended.get_or_insert(now);
        }
        Judgement::Suspend
    }

    fn note(&mut self, failed: &Failed, now: Instant) {
        self.failed
            .retain(|failure| now.saturating_since(failure.at) <= WINDOW);
        let is_known = |failure: &Failure| failure.network == failed.network;
        if self.failed.len() < FAILED_MAX && !self.failed.iter().any(is_known) {
            self.failed.push_back(Failure {
                network: failed.network,
                cause: failed.cause,
                target: failed.target.clone(),
                at: now,
            });
        }
    }

    /// Whether enough have failed to ask hosts that answered before.
    pub fn is_to_be_checked(&self, now: Instant) -> bool {
        let is_late = |failure: &&Failure| now.saturating_since(failure.at) <= WINDOW;
        matches!(self.state, State::Closed { .. })
            && self.failed.iter().filter(is_late).count() >= NETWORKS_MIN
    }

    /// Whether an answer now may have arrived before the first failure that waits for a verdict.
    pub fn is_leftover(&self, now: Instant) -> bool {
        let first = self.failed.front().map(|failure| failure.at);
        !self.is_open() && first.is_some_and(|at| now.saturating_since(at) < LEFTOVERS)
    }

    /// Whether all that failed lacked a route.
    pub fn lacks_routes(&self) -> bool {
        !self.failed.is_empty() && self.failed.iter().all(|failure| failure.cause.is_routing())
    }

    /// Whether our own machine said of all that failed that there is no route.
    pub fn has_no_route(&self) -> bool {
        let mut failed = self.failed.iter();
        !self.failed.is_empty() && failed.all(|failure| failure.cause == Cause::NoRoute)
    }

    /// Whether anybody has answered by it and may be asked again.
    pub fn knows_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Whether somebody answered lately, and nothing has failed since that waits for a verdict.
    pub fn is_known_to_work(&self, now: Instant) -> bool {
        let is_late = |at: Instant| now.saturating_since(at) <= WINDOW;
        matches!(self.state, State::Closed { suspended: None })
            && self.answered_at.is_some_and(is_late)
    }

    /// Whether nobody ever answered by it.
    pub fn never_answered(&self) -> bool {
        self.answered_at.is_none()
    }

    /// Somebody answered who is known to.
    pub fn answered(&mut self, now: Instant) {
        self.answered_at = Some(now);
    }

    /// Somebody answered.
    pub fn remember(&mut self, network: u64, target: Target, now: Instant) {
        self.answered_at = Some(now);
        let is_recent = |at: Instant| now.saturating_since(at) < REMEMBERED_EVERY;
        if self.known.len() >= NETWORKS_MIN && self.remembered_at.is_some_and(is_recent) {
            return;
        }
        self.remembered_at = Some(now);
        self.known.retain(|known| known.network != network);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Known {
            network,
            target,
            at: now,
            is_doubted: false,
        });
    }

    /// Whoever is known to answer did not, while it was open.
    pub fn doubt(&mut self, target: &Target) {
        if self.is_open() && !matches!(self.egress, Egress::Proxy(_)) {
            let mut known = self.known.iter_mut();
            if let Some(known) = known.find(|known| known.target == *target) {
                known.is_doubted = true;
            }
        }
    }

    /// A host on this network was tried.
    pub fn note_tried(&mut self, network: u64) {
        if self.tried.len() < TRIED_MAX {
            self.tried.insert(network);
        }
    }

    /// Whether a host on this network was tried.
    pub fn was_tried(&self, network: u64) -> bool {
        self.tried.contains(&network)
    }

    /// All were tried, and are tried again.
    pub fn forget_tried(&mut self) {
        self.tried.clear();
    }

    /// The addresses that answered, and when.
    pub fn known_addresses(&self) -> impl Iterator<Item = (Instant, Egress, SocketAddr)> + '_ {
        self.known.iter().filter_map(|known| match known.target {
            Target::Address(to) => Some((known.at, self.egress, to)),
            Target::Name(_) => None,
        })
    }

    /// A name that the name servers should have an answer for: of those that are known the last one,
    /// or so many before it.
    pub fn name_to_ask(&self, before: usize) -> Box<str> {
        let names = self.known.iter().rev();
        let names = names.filter_map(|known| match &known.target {
            Target::Name(name) => Some(name.clone()),
            Target::Address(_) => None,
        });
        let count = names.clone().count();
        let mut names = names.skip(before % count.max(1));
        names.next().unwrap_or(NAME_FOR_ANY_ANSWER.into())
    }

    /// Goes back to being closed; gives what it was.
    pub fn close(&mut self, now: Instant) -> State {
        if let State::Checking { .. } = self.state {
            self.works = Some(Works {
                until: now + CHECK_EVERY,
                despite_routes: self.lacks_routes(),
            });
        }
        self.failed.clear();
        self.tried.clear();
        self.known.retain(|known| !known.is_doubted);
        std::mem::replace(&mut self.state, State::Closed { suspended: None })
    }

    /// What is suspended is charged, and counts as failed for as long as the window.
    pub fn charge(&mut self) {
        self.state = State::Closed { suspended: None };
    }

    pub fn begin_check(&mut self, asked: usize, until: Instant) {
        self.state = State::Checking {
            until,
            asked,
            is_connected: false,
            is_looked_up: None,
        };
    }

    /// A probe ended: whether that is a verdict, and whether it is that all works.
    pub fn probed(
        &mut self,
        ended: Probed,
        is_lookup: bool,
        is_last: bool,
        now: Instant,
    ) -> Option<bool> {
        let is_names = self.egress == Egress::Names;
        match &mut self.state {
            State::Closed { .. } => None,
            State::Checking {
                asked,
                is_connected,
                is_looked_up,
                ..
            } => {
                let answered = ended == Probed::Answered;
                if is_lookup {
                    *is_looked_up = Some(answered);
                } else {
                    *is_connected |= answered;
                }
                if !is_names {
                    return match answered {
                        true => Some(true),
                        false => is_last.then_some(false),
                    };
                }
                // Names are found again once a lookup is answered by a network that works.
                match (*is_looked_up, *is_connected || *asked == 0) {
                    (Some(true), true) => Some(true),
                    (Some(false), true) => Some(false),
                    _ => is_last.then_some(false),
                }
            }
            State::Open {
                probe_at,
                pause,
                is_probing,
                by_network,
                ..
            } => {
                // Without anybody who answered before it is the route alone that was missed.
                let is_routed = self.known.is_empty() && !is_names && ended == Probed::Failed;
                *is_probing = false;
                if ended != Probed::Answered && !is_routed {
                    *probe_at = now + *pause;
                    *pause = (*pause * 2).min(PROBE_EVERY_MAX);
                    return None;
                }
                if is_names && !is_lookup {
                    // The network is back; the name servers are asked next.
                    (*by_network, *probe_at) = (false, now);
                    return None;
                }
                Some(true)
            }
        }
    }

    pub fn open(&mut self, now: Instant) -> Report {
        let (asked, by_network) = match &self.state {
            State::Checking {
                asked,
                is_connected,
                ..
            } => (*asked, *asked > 0 && !is_connected),
            _ => (0, true),
        };
        let mut causes = BTreeMap::new();
        for failure in &self.failed {
            *causes.entry(failure.cause).or_default() += 1;
        }
        let first = self.failed.front().map_or(now, |failure| failure.at);
        self.tried = self.failed.iter().map(|failure| failure.network).collect();
        self.state = State::Open {
            since: now,
            probe_at: now + PROBE_EVERY_MIN,
            pause: PROBE_EVERY_MIN * 2,
            probes: 0,
            known_probes: 0,
            is_probing: false,
            by_network,
        };
        Report {
            networks: self.failed.len(),
            causes,
            span: now.saturating_since(first),
            asked,
            egress: self.egress,
        }
    }

    pub fn is_by_network(&self) -> bool {
        matches!(
            self.state,
            State::Open {
                by_network: true,
                ..
            }
        )
    }

    /// The number of the next probe while it is open.
    pub fn begin_probe(&mut self, now: Instant) -> usize {
        let State::Open {
            probes,
            is_probing,
            probe_at,
            ..
        } = &mut self.state
        else {
            unreachable!("only what is open is probed");
        };
        let number = *probes;
        *probes += 1;
        *is_probing = true;
        *probe_at = now + PROBE_MAX;
        number
    }

    /// The host for the next probe of those that answered before and those that failed, by turns, and
    /// how many there were before it.
    pub fn next_target(&mut self) -> (usize, Target) {
        let State::Open { known_probes, .. } = &mut self.state else {
            unreachable!("only what is open is probed");
        };
        let number = *known_probes;
        *known_probes += 1;
        if self.egress == Egress::Names {
            return (number, Target::Name(self.name_to_ask(number)));
        }
        let known = self.known.iter().rev().map(|known| &known.target);
        let failed = self.failed.iter().map(|failure| &failure.target);
        let pick = |count: usize| (number / 2) % count.max(1);
        let target = match (self.known.len(), self.failed.len()) {
            (known_len, failed_len) if failed_len == 0 || number % 2 == 0 && known_len > 0 => {
                known.into_iter().nth(pick(known_len))
            }
            (_, failed_len) => failed.into_iter().nth(pick(failed_len)),
        };
        let target = target.expect("it opened because somebody failed").clone();
        (number, target)
    }

    /// The network is back, as somebody's answer shows: name servers that failed with it are asked.
    pub fn probe_soon(&mut self, now: Instant) {
        if let State::Open {
            probe_at,
            is_probing: false,
            by_network,
            ..
        } = &mut self.state
            && std::mem::take(by_network)
        {
            *probe_at = now;
        }
    }

    /// When it is to be decided upon, or probed.
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Closed { suspended } => suspended.map(|since| since + SUSPENDED_MAX),
            State::Checking { until, .. } => Some(*until),
            State::Open { probe_at, .. } => Some(*probe_at),
        }
    }
}
