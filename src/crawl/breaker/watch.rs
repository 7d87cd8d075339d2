//! The state of one egress: its late answers and failures, and whether it is open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::{
    CHECK_EVERY, CHECKED, Cause, Egress, Failed, Judgement, NAME_FOR_ANY_ANSWER, NETWORKS_MIN,
    PROBE_EVERY_MAX, PROBE_EVERY_MIN, PROBE_MAX, Probed, SUSPENDED_MAX, Target, WINDOW,
};
use crate::base::time::Instant;

/// Hosts that answered lately and are remembered, one per network.
const KNOWN_MAX: usize = 16;
/// Failures that are remembered, one per network.
const FAILED_MAX: usize = 64;
/// Networks remembered as tried in an outage: as many as requests are usually in flight.
const TRIED_MAX: usize = 4096;
/// Answers read this soon after a failure may have arrived before it, and prove nothing.
const LEFTOVERS: Duration = Duration::from_millis(50);
/// Shortest time between two answers that are remembered: every page has one, and few are needed.
const REMEMBERED_EVERY: Duration = Duration::from_millis(50);

/// One egress.
#[derive(Debug)]
pub struct Watch {
    pub egress: Egress,
    pub state: State,
    answered_at: Option<Instant>,
    remembered_at: Option<Instant>,
    /// The last check that was answered.
    works: Option<Works>,
    known: VecDeque<Known>,
    failed: VecDeque<Failure>,
    /// Networks on which hosts failed or were probed since it opened, or just before.
    tried: BTreeSet<u64>,
}

/// An answered check. Failures soon after it are charged at once, so that the same hosts are not
/// connected to for every eight failures.
#[derive(Clone, Copy, Debug)]
struct Works {
    until: Instant,
    /// The failures before it were missing routes. A check of other failures does not concern routes.
    despite_routes: bool,
}

#[derive(Debug)]
struct Known {
    network: u64,
    target: Target,
    at: Instant,
    /// A probe in this outage got no answer. It is forgotten when the egress closes.
    is_doubted: bool,
}

#[derive(Debug)]
struct Failure {
    network: u64,
    cause: Cause,
    target: Target,
    at: Instant,
    /// There was a verdict: it counts towards a check, and waits for nothing.
    is_charged: bool,
}

/// Whether the egress is open.
#[derive(Debug)]
pub enum State {
    /// It works. `suspended`: when the first failure without a verdict came.
    Closed { suspended: Option<Instant> },
    /// Hosts that answered before are connected to.
    Checking {
        until: Instant,
        asked: usize,
        is_connected: bool,
        is_looked_up: bool,
    },
    /// It does not work. `by_network`: for name servers, connections failed, too.
    Open {
        since: Instant,
        probe_at: Instant,
        pause: Duration,
        probes: usize,
        /// Probes to hosts that answered or failed before.
        known_probes: usize,
        is_probing: bool,
        by_network: bool,
    },
}

/// Why an egress opened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Networks on which hosts failed.
    pub networks: usize,
    pub causes: BTreeMap<Cause, usize>,
    /// Since the first of these failures.
    pub span: Duration,
    /// Hosts that answered before, and did not answer the check.
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
            "outage of {}: {} networks failed within {:.1} s ({}), none answered",
            self.egress.label(),
            self.networks,
            self.span.as_secs_f64(),
            causes.join(", "),
        )?;
        if self.asked > 0 {
            write!(
                f,
                ", and {} hosts that had answered before do not answer",
                self.asked
            )?;
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

    /// Whether it is open, and had an answer before.
    pub fn stops_all(&self) -> bool {
        self.is_open() && !self.known.is_empty()
    }

    /// Whether anything was sent by it.
    pub fn is_used(&self) -> bool {
        self.answered_at.is_some() || !self.failed.is_empty() || self.is_open()
    }

    /// Decides what to do with a failure before a check. `is_any_known`: a host answered by this egress or by
    /// the other address family.
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
        // Another host answered in the later half of this attempt.
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
        // A few hosts may all be down. A missing route is reported by the local kernel.
        if hosts < NETWORKS_MIN && !(lacks_route && is_any_known) {
            return Judgement::Charge;
        }
        // Without an earlier answer, down hosts look like a down network, except for these causes.
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
        // One that was charged counts anew.
        self.failed
            .retain(|failure| failure.network != failed.network || !failure.is_charged);
        let is_known = |failure: &Failure| failure.network == failed.network;
        if self.failed.len() < FAILED_MAX && !self.failed.iter().any(is_known) {
            self.failed.push_back(Failure {
                network: failed.network,
                cause: failed.cause,
                target: failed.target.clone(),
                at: now,
                is_charged: false,
            });
        }
    }

    /// The failures that wait for a verdict.
    fn suspended(&self) -> impl Iterator<Item = &Failure> {
        self.failed.iter().filter(|failure| !failure.is_charged)
    }

    /// Whether enough networks failed for a check.
    pub fn is_to_be_checked(&self, now: Instant) -> bool {
        let is_late = |failure: &&Failure| now.saturating_since(failure.at) <= WINDOW;
        matches!(self.state, State::Closed { .. })
            && self.failed.iter().filter(is_late).count() >= NETWORKS_MIN
    }

    /// Whether an answer now may have arrived before the first failure that waits for a verdict.
    pub fn is_leftover(&self, now: Instant) -> bool {
        let first = self.suspended().next().map(|failure| failure.at);
        !self.is_open() && first.is_some_and(|at| now.saturating_since(at) < LEFTOVERS)
    }

    /// Whether it is closed, and knows of no failure: an answer changes nothing then.
    pub fn is_quiet(&self) -> bool {
        matches!(self.state, State::Closed { suspended: None })
            && self.failed.is_empty()
            && self.tried.is_empty()
    }

    /// Whether all failures that wait for a verdict were missing routes.
    pub fn lacks_routes(&self) -> bool {
        let mut suspended = self.suspended().peekable();
        suspended.peek().is_some() && suspended.all(|failure| failure.cause.is_routing())
    }

    /// The same, as reported by the local kernel.
    pub fn has_no_route(&self) -> bool {
        let mut suspended = self.suspended().peekable();
        suspended.peek().is_some() && suspended.all(|failure| failure.cause == Cause::NoRoute)
    }

    /// Whether a host that answered by it is remembered.
    pub fn knows_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Whether there was an answer lately, and no failure since that waits for a verdict.
    pub fn is_known_to_work(&self, now: Instant) -> bool {
        let is_late = |at: Instant| now.saturating_since(at) <= WINDOW;
        matches!(self.state, State::Closed { suspended: None })
            && self.answered_at.is_some_and(is_late)
    }

    /// Whether it had an answer after this moment.
    pub fn has_answered_after(&self, moment: Instant) -> bool {
        self.answered_at.is_some_and(|at| at > moment)
    }

    /// Whether it never had an answer.
    pub fn never_answered(&self) -> bool {
        self.answered_at.is_none()
    }

    /// Records the time of an answer, without a target for probes.
    pub fn answered(&mut self, now: Instant) {
        self.answered_at = Some(now);
    }

    /// Records the time of an answer, and remembers the host for probes. If enough hosts are known, one host
    /// per [`REMEMBERED_EVERY`] is remembered.
    pub fn remember(&mut self, network: u64, target: Target, now: Instant) {
        self.answered_at = Some(now);
        let is_recent = |at: Instant| now.saturating_since(at) < REMEMBERED_EVERY;
        if self.known.len() >= NETWORKS_MIN && self.remembered_at.is_some_and(is_recent) {
            return;
        }
        self.remembered_at = Some(now);
        if let Some(last) = self.known.back_mut()
            && last.network == network
        {
            (last.target, last.at, last.is_doubted) = (target, now, false);
            return;
        }
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

    /// Marks a remembered host that did not answer a probe. While the egress is closed this has no effect.
    pub fn doubt(&mut self, target: &Target) {
        if self.is_open() && !matches!(self.egress, Egress::Proxy(_)) {
            let is_asked = |known: &&mut Known| match (&known.target, target) {
                (Target::Name(known), Target::Below(asked)) => known == asked,
                (known, asked) => known == asked,
            };
            if let Some(known) = self.known.iter_mut().find(is_asked) {
                known.is_doubted = true;
            }
        }
    }

    /// Records that a host on this network was tried.
    pub fn note_tried(&mut self, network: u64) {
        if self.tried.len() < TRIED_MAX {
            self.tried.insert(network);
        }
    }

    /// Whether a host on this network was tried.
    pub fn was_tried(&self, network: u64) -> bool {
        self.tried.contains(&network)
    }

    /// Forgets which networks were tried, once no queued host is left: they may be tried again.
    pub fn forget_tried(&mut self) {
        self.tried.clear();
    }

    /// The addresses that answered, and when.
    pub fn known_addresses(&self) -> impl Iterator<Item = (Instant, Egress, SocketAddr)> + '_ {
        self.known.iter().filter_map(|known| match known.target {
            Target::Address(to) => Some((known.at, self.egress, to)),
            Target::Name(_) | Target::Below(_) => None,
        })
    }

    /// The lookups of a check: up to three, below the names that resolved last.
    pub fn lookups(&self) -> Vec<Target> {
        let count = self.known.len().clamp(1, CHECKED);
        (0..count).map(|before| self.lookup(before)).collect()
    }

    /// Returns a lookup below the name that resolved `before` names before the latest one, in a circle; of
    /// [`NAME_FOR_ANY_ANSWER`], if no name resolved.
    fn lookup(&self, before: usize) -> Target {
        let names = self.known.iter().rev();
        let names = names.filter_map(|known| match &known.target {
            Target::Name(name) => Some(name.clone()),
            Target::Address(_) | Target::Below(_) => None,
        });
        let count = names.clone().count();
        let mut names = names.skip(before % count.max(1));
        match names.next() {
            Some(name) => Target::Below(name),
            None => Target::Name(NAME_FOR_ANY_ANSWER.into()),
        }
    }

    /// Closes; returns the state before.
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

    /// Charges the suspended failures. They count towards a check until [`WINDOW`] is over.
    pub fn charge(&mut self) {
        for failure in &mut self.failed {
            failure.is_charged = true;
        }
        self.state = State::Closed { suspended: None };
    }

    pub fn begin_check(&mut self, asked: usize, until: Instant) {
        self.state = State::Checking {
            until,
            asked,
            is_connected: false,
            is_looked_up: false,
        };
    }

    /// Records the result of a probe. Returns whether the egress works, if that is decided.
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
                match is_lookup {
                    true => *is_looked_up |= answered,
                    false => *is_connected |= answered,
                }
                // For name servers both must succeed: a zone of the local resolver needs no network.
                let works = match is_names {
                    true => *is_looked_up && (*is_connected || *asked == 0),
                    false => answered,
                };
                match works {
                    true => Some(true),
                    false => is_last.then_some(false),
                }
            }
            State::Open {
                probe_at,
                pause,
                is_probing,
                by_network,
                ..
            } => {
                // Without an answer before, only the route was missing.
                let is_routed = self.known.is_empty() && !is_names && ended == Probed::Failed;
                *is_probing = false;
                if ended != Probed::Answered && !is_routed {
                    *probe_at = now + *pause;
                    *pause = (*pause * 2).min(PROBE_EVERY_MAX);
                    return None;
                }
                if is_names && !is_lookup {
                    // The network is back: ask the name servers next.
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

    /// Begins the next probe while it is open, and returns its number.
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

    /// Returns the target of the next probe, alternating between hosts that answered and that failed, and the
    /// number of such probes before it.
    pub fn next_target(&mut self) -> (usize, Target) {
        let State::Open { known_probes, .. } = &mut self.state else {
            unreachable!("only what is open is probed");
        };
        let number = *known_probes;
        *known_probes += 1;
        if self.egress == Egress::Names {
            return (number, self.lookup(number));
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
        let target = target.expect("it opened because hosts failed").clone();
        (number, target)
    }

    /// Makes the next probe due at once if connections failed, too: called for the name servers when an
    /// answer shows that the network works again.
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

    /// Returns when its verdict or its next probe is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Closed { suspended } => suspended.map(|since| since + SUSPENDED_MAX),
            State::Checking { until, .. } => Some(*until),
            State::Open { probe_at, .. } => Some(*probe_at),
        }
    }
}
