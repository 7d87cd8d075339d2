//! A circuit breaker for the whole crawl: an outage of the local network or of the name servers pauses
//! the crawl, and no URL is lost.
//!
//! A state machine without sockets or clock. Its driver reports failures ([`Breaker::handle_failure`])
//! and answers ([`Breaker::handle_answer`]), carries out the [`Order`]s of [`Breaker::poll`], and calls
//! [`Breaker::handle_timeout`] when [`Breaker::next_timeout`] is due.
//!
//! Each way out of this machine ([`Egress`]) has its own state:
//!
//! ```text
//!          8 networks failed in 10 s,         none of up to 3 hosts that
//!          none answered                      answered before answers now
//! Closed ─────────────────────────► Checking ────────────────────────────► Open
//!  ▲  ▲                                │                                    │
//!  │  └── one answers: failures count ◄┘                                    │
//!  └──────────── a single probe is answered: all resume ◄───────────────────┘
//! ```
//!
//! While it is open, probes alternate between hosts that answered or failed before and queued hosts
//! that were not tried in this outage: the former may be down permanently.
//!
//! If fewer networks fail, only missing routes open it, after 3 s without an answer.
//!
//! A failure is *suspended* until the verdict, for at most 5 s. Then it is charged to its host, or the
//! request is requeued unchanged.

mod watch;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use self::watch::{State, Watch};
use crate::base::address::is_global;
use crate::base::time::Instant;

pub use self::watch::Report;

/// Networks on which hosts must have failed. With fewer open hosts, only missing routes count.
const NETWORKS_MIN: usize = 8;
/// The span in which they failed.
const WINDOW: Duration = Duration::from_secs(10);
/// A failure without a verdict is charged to its host after this.
const SUSPENDED_MAX: Duration = Duration::from_secs(3);
/// Time limit for the answers to a check.
const CHECK_MAX: Duration = Duration::from_secs(2);
/// For this long after an answered check failures are charged without another one.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Hosts that a check connects to; each answered before.
const CHECKED: usize = 3;
/// The first pause between probes while it is open; each further one is twice as long.
const PROBE_EVERY_MIN: Duration = Duration::from_secs(1);
/// The longest pause between probes.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(30);
/// Time limit for the answer to a probe.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Looked up where no name is known to resolve: every resolver starts from the root's name servers
/// (RFC 8109), and any reply shows that one listens.
const NAME_FOR_ANY_ANSWER: &str = "a.root-servers.net";
/// Egresses that are watched. Failures through further proxies are charged at once.
const WATCHES_MAX: usize = 64;

/// A way out of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Egress {
    /// To globally routable addresses by IPv4.
    Global4,
    /// The same by IPv6.
    Global6,
    /// To addresses that are not globally routable.
    Local,
    /// Through a proxy at this address.
    Proxy(SocketAddr),
    /// To the name servers.
    Names,
}

impl Egress {
    /// The way to an address without a proxy.
    pub fn of(address: IpAddr) -> Self {
        match address {
            _ if !is_global(address) => Egress::Local,
            IpAddr::V4(_) => Egress::Global4,
            IpAddr::V6(_) => Egress::Global6,
        }
    }

    /// Its name in log lines.
    pub fn label(self) -> String {
        match self {
            Egress::Global4 => "the network (IPv4)".to_owned(),
            Egress::Global6 => "the network (IPv6)".to_owned(),
            Egress::Local => "the network (local addresses)".to_owned(),
            Egress::Proxy(address) => format!("the proxy at {address}"),
            Egress::Names => "name resolution".to_owned(),
        }
    }

    fn other_family(self) -> Option<Egress> {
        match self {
            Egress::Global4 => Some(Egress::Global6),
            Egress::Global6 => Some(Egress::Global4),
            Egress::Local | Egress::Proxy(_) | Egress::Names => None,
        }
    }
}

/// Kind of a failure that the local network may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// This machine has no route there.
    NoRoute,
    /// A router reported that the host or network is unreachable.
    Unreachable,
    /// There was no reply.
    TimedOut,
    /// The configured proxy refused the connection.
    Refused,
    /// No name server replied.
    NamesSilent,
    /// The name servers replied with SERVFAIL or REFUSED.
    NamesFailed,
}

impl Cause {
    fn is_routing(self) -> bool {
        matches!(self, Cause::NoRoute | Cause::Unreachable)
    }

    fn name(self) -> &'static str {
        match self {
            Cause::NoRoute => "no route",
            Cause::Unreachable => "unreachable",
            Cause::TimedOut => "timed out",
            Cause::Refused => "refused by the proxy",
            Cause::NamesSilent => "name servers silent",
            Cause::NamesFailed => "name servers failed",
        }
    }
}

/// Destination of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A TCP endpoint.
    Address(SocketAddr),
    /// The name servers, with a query for this name.
    Name(Box<str>),
    /// The name servers, with a query for a new name below this one's registrable domain. No cache has
    /// it, so a reply shows that other name servers are reached (except with resolvers that derive
    /// non-existence from signed zones, RFC 8198).
    Below(Box<str>),
}

impl Target {
    /// The network of an address: its /24 (IPv4) or /48 (IPv6). For names see [`Failed::network`].
    pub fn network(address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => u64::from(u32::from(address) >> 8),
            IpAddr::V6(address) => 1 << 63 | (u128::from(address) >> 80) as u64,
        }
    }
}

/// A failure that the local network may have caused.
#[derive(Clone, Debug)]
pub struct Failed {
    pub egress: Egress,
    /// The network whose hosts are likely to fail together: the host's /24 or /48; behind a proxy, or if
    /// the name servers failed, a hash of its registrable domain.
    pub network: u64,
    pub cause: Cause,
    /// When the attempt began.
    pub began: Instant,
    pub target: Target,
}

/// Verdict on a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Charge it to the host.
    Charge,
    /// Undecided: an order to charge or to requeue follows within 5 s.
    Suspend,
    /// Caused by the local network: requeue the request unchanged.
    PutBack,
}

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// There was an answer: a connection, a reply.
    Answered,
    /// The connection was refused: an answer, except from a proxy.
    Refused,
    /// This machine has no route there.
    NoRoute,
    /// Anything else.
    Failed,
}

/// The query of a probe of name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// This name. Each reply is an answer, also SERVFAIL.
    Any(Box<str>),
    /// This name. An address or its absence is an answer.
    Name(Box<str>),
    /// The same for a new name below this one's registrable domain.
    Below(Box<str>),
}

/// Result of [`Order::Pick`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked {
    /// This host; `network` is as in [`Failed`].
    Host { network: u64, target: Target },
    /// There is no host in the queue that was not tried.
    Exhausted,
    /// None was found in time.
    Failed,
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Connect to this address, send nothing, and report the result.
    Connect { probe: u32, to: SocketAddr },
    /// Look a name up without the local cache, and report the result.
    Lookup { probe: u32, question: Question },
    /// Pick a host from the queue that is reached by this egress and was not
    /// [tried](Breaker::was_tried), for [`Breaker::handle_picked`].
    Pick { probe: u32, egress: Egress },
    /// The result of this probe is no longer needed.
    Abandon { probe: u32 },
    /// Charge what is suspended of this egress to its hosts.
    Charge(Egress),
    /// The egress is open: requeue what is suspended, and send nothing.
    Open(Egress, Report),
    /// The egress is closed again, after it was open for this long: resume.
    Close(Egress, Duration),
}

/// The breaker.
#[derive(Debug, Default)]
pub struct Breaker {
    watches: Vec<Watch>,
    orders: VecDeque<Order>,
    probes: Vec<Probe>,
    probes_made: u32,
    opened: u64,
    open_for: Duration,
    /// No probe of an open egress begins.
    is_paused: bool,
}

#[derive(Clone, Debug)]
struct Probe {
    id: u32,
    /// The egress whose state it decides.
    decides: Egress,
    /// The egress it uses.
    by: Egress,
    /// The host it goes to; none while one is picked.
    target: Option<Target>,
    until: Instant,
}

impl Breaker {
    /// Called when a host could not be reached. Returns what to do with the failure, and begins a check once
    /// enough networks have failed. `hosts` is the number of hosts with something to fetch.
    pub fn handle_failure(&mut self, failed: Failed, hosts: usize, now: Instant) -> Judgement {
        let Some(index) = self.watch(failed.egress) else {
            return Judgement::Charge;
        };
        let other = failed.egress.other_family().and_then(|it| self.find(it));
        let mut ways = [Some(index), other].into_iter().flatten();
        let is_any_known = ways.any(|way| self.watches[way].knows_any());
        let judgement = self.watches[index].judge(&failed, hosts, is_any_known, now);
        if judgement == Judgement::Suspend && self.watches[index].is_to_be_checked(now) {
            self.check(index, now);
            if self.watches[index].is_open() {
                return Judgement::PutBack;
            }
        }
        judgement
    }

    /// Whether this egress permanently lacks routes: it never had an answer, and the other address family
    /// works.
    pub fn is_without_route(&self, egress: Egress, now: Instant) -> bool {
        let other = egress.other_family().and_then(|other| self.find(other));
        let works = other.is_some_and(|other| self.watches[other].is_known_to_work(now));
        let own = self.find(egress).map(|own| &self.watches[own]);
        works && own.is_none_or(Watch::never_answered)
    }

    /// Called when a host accepted or refused a connection, or a name server answered. Closes the egress,
    /// unless the answer may be older than the failures. Remembers `target` for probes; none where a probe of
    /// it would prove nothing. `network` is as in [`Failed`].
    pub fn handle_answer(
        &mut self,
        egress: Egress,
        network: u64,
        target: Option<Target>,
        now: Instant,
    ) {
        let Some(index) = self.watch(egress) else {
            return;
        };
        match target {
            Some(target) => self.watches[index].remember(network, target, now),
            None => self.watches[index].answered(now),
        }
        let watch = &self.watches[index];
        if !watch.is_quiet() && !watch.is_leftover(now) {
            self.settle(index, now);
        }
        if let Some(other) = egress.other_family()
            && let Some(other) = self.find(other)
            && self.watches[other].lacks_routes()
            && !self.watches[other].is_leftover(now)
        {
            // One family works: what has only the other one is not reached from here.
            self.settle(other, now);
        }
        if egress != Egress::Names
            && let Some(names) = self.find(Egress::Names)
        {
            self.watches[names].probe_soon(now);
        }
    }

    /// Called when a probe has ended. Opens or closes the egress whose state the probe decides, if its
    /// result suffices.
    pub fn handle_probe(&mut self, id: u32, ended: Probed, now: Instant) {
        let Some(at) = self.probes.iter().position(|probe| probe.id == id) else {
            return;
        };
        let probe = self.probes.swap_remove(at);
        let ended = match (ended, probe.by) {
            (Probed::Refused, Egress::Proxy(_)) => Probed::Failed,
            (Probed::Refused, _) => Probed::Answered,
            // A route by the other address family does not imply one by this family.
            (Probed::Failed, by) if Some(by) == probe.decides.other_family() => Probed::NoRoute,
            // No host was picked in time: nothing was tried.
            (Probed::Failed, _) if probe.target.is_none() => Probed::NoRoute,
            _ => ended,
        };
        let by = self.find(probe.by).expect("what is asked is watched");
        match (&probe.target, probe.by, ended) {
            (Some(Target::Address(_)), Egress::Proxy(_), Probed::Answered) => {
                self.watches[by].answered(now);
                self.settle(by, now);
            }
            (Some(Target::Address(to)), _, Probed::Answered) => {
                let network = Target::network(to.ip());
                self.watches[by].remember(network, Target::Address(*to), now);
                self.settle(by, now);
            }
            (Some(target), _, Probed::Failed) => self.watches[by].doubt(target),
            _ => {}
        }
        let index = self.find(probe.decides).expect("what asks is watched");
        let is_last = !self
            .probes
            .iter()
            .any(|other| other.decides == probe.decides);
        let is_lookup = probe.by == Egress::Names;
        match self.watches[index].probed(ended, is_lookup, is_last, now) {
            None => {}
            Some(true) => self.settle(index, now),
            Some(false) => self.open(index, now),
        }
    }

    /// Called with the result of [`Order::Pick`]. Orders the probe of the picked host; without one, of a
    /// host that answered or failed before.
    pub fn handle_picked(&mut self, id: u32, picked: Picked) {
        let Some(probe) = self.probes.iter().find(|probe| probe.id == id) else {
            return;
        };
        let (egress, until) = (probe.decides, probe.until);
        let index = self.find(egress).expect("what asks is watched");
        let (by, target) = match picked {
            Picked::Host { network, target } => {
                self.watches[index].note_tried(network);
                (egress, target)
            }
            Picked::Exhausted => {
                self.watches[index].forget_tried();
                self.known_target(index)
            }
            Picked::Failed => self.known_target(index),
        };
        self.probes.retain(|probe| probe.id != id);
        self.ask(id, egress, by, target, until);
    }

    /// Whether a host on this network was tried by this egress since it opened; `network` is as in
    /// [`Failed`].
    pub fn was_tried(&self, egress: Egress, network: u64) -> bool {
        self.find(egress)
            .is_some_and(|index| self.watches[index].was_tried(network))
    }

    /// Returns when [`Breaker::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let watches = self
            .watches
            .iter()
            .filter_map(|watch| self.timeout_of(watch));
        let probes = self.probes.iter().map(|probe| probe.until);
        watches.chain(probes).min()
    }

    /// Ends the probes that are overdue, charges suspended failures, opens egresses whose check had no
    /// answer, and begins the probes that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let late: Vec<u32> = self
            .probes
            .iter()
            .filter(|probe| probe.until <= now)
            .map(|probe| probe.id)
            .collect();
        for id in late {
            self.orders.push_back(Order::Abandon { probe: id });
            self.handle_probe(id, Probed::Failed, now);
        }
        for index in 0..self.watches.len() {
            let timeout = self.timeout_of(&self.watches[index]);
            if timeout.is_none_or(|at| at > now) {
                continue;
            }
            match &self.watches[index].state {
                // However few lack a route: hosts that answered before show whether all do.
                State::Closed { .. } if self.watches[index].has_no_route() => {
                    match self.known_addresses(self.watches[index].egress).is_empty() {
                        true => self.charge(index),
                        false => self.check(index, now),
                    }
                }
                State::Closed { .. } => self.charge(index),
                State::Checking { .. } => self.open(index, now),
                State::Open { .. } => self.probe(index, now),
            }
        }
    }

    /// Sets whether the crawl is paused: no probe of an open egress begins while it is.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    fn timeout_of(&self, watch: &Watch) -> Option<Instant> {
        let is_held = self.is_paused && watch.is_open();
        watch.next_timeout().filter(|_| !is_held)
    }

    /// The next order, if any.
    pub fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Returns when the next probe of this egress is due, if it is open. Nothing may be sent by it until
    /// then.
    pub fn blocked_until(&self, egress: Egress) -> Option<Instant> {
        let watch = &self.watches[self.find(egress)?];
        watch.next_timeout().filter(|_| watch.is_open())
    }

    /// Whether nothing may be sent at all: every egress that was used is open, and each had an answer before.
    /// If one never had an answer, another egress that was not tried yet may work.
    pub fn stops_all(&self) -> bool {
        let mut ways = self
            .watches
            .iter()
            .filter(|watch| watch.egress != Egress::Names && watch.is_used());
        match ways.next() {
            // Without addresses nothing was ever connected to.
            None => self.blocked_until(Egress::Names).is_some(),
            Some(first) => first.stops_all() && ways.all(Watch::stops_all),
        }
    }

    /// Whether an egress had an answer.
    pub fn has_answered(&self, egress: Egress) -> bool {
        let watch = self.find(egress).map(|index| &self.watches[index]);
        watch.is_some_and(|watch| !watch.never_answered())
    }

    /// Whether an egress is open and there was no answer by any since the first one opened.
    pub fn is_all_silent(&self) -> bool {
        let open = self.watches.iter().filter_map(|watch| match watch.state {
            State::Open { since, .. } => Some(since),
            _ => None,
        });
        let Some(since) = open.min() else {
            return false;
        };
        let mut watches = self.watches.iter();
        !watches.any(|watch| watch.has_answered_after(since))
    }

    /// Returns for how long it has been open, and the time until the next probe; `None` while it is closed.
    pub fn open_for(&self, now: Instant) -> Option<(Duration, Duration)> {
        let open = self.watches.iter().filter_map(|watch| match watch.state {
            State::Open {
                since, probe_at, ..
            } => Some((now.saturating_since(since), probe_at.saturating_since(now))),
            _ => None,
        });
        open.max()
    }

    /// Number of times it opened, and the total time.
    pub fn totals(&self, now: Instant) -> (u64, Duration) {
        let present = self.open_for(now).map_or(Duration::ZERO, |(span, _)| span);
        (self.opened, self.open_for + present)
    }

    fn find(&self, egress: Egress) -> Option<usize> {
        self.watches.iter().position(|watch| watch.egress == egress)
    }

    /// Returns the index of the watch of an egress, and adds the watch if there is none. `None` for a proxy
    /// beyond [`WATCHES_MAX`].
    fn watch(&mut self, egress: Egress) -> Option<usize> {
        if let Some(index) = self.find(egress) {
            return Some(index);
        }
        if matches!(egress, Egress::Proxy(_)) && self.watches.len() >= WATCHES_MAX {
            return None;
        }
        self.watches.push(Watch::new(egress));
        Some(self.watches.len() - 1)
    }

    /// Closes an egress after an answer: charges its suspended failures to their hosts, or ends the outage.
    fn settle(&mut self, index: usize, now: Instant) {
        let egress = self.watches[index].egress;
        let before = self.watches[index].close(now);
        match before {
            State::Closed { suspended: None } => return,
            State::Closed { suspended: Some(_) } | State::Checking { .. } => {
                self.orders.push_back(Order::Charge(egress));
            }
            State::Open { since, .. } => {
                let span = now.saturating_since(since);
                self.open_for += span;
                self.orders.push_back(Order::Close(egress, span));
            }
        }
        self.abandon(egress);
    }

    fn charge(&mut self, index: usize) {
        self.watches[index].charge();
        let egress = self.watches[index].egress;
        self.orders.push_back(Order::Charge(egress));
    }

    fn open(&mut self, index: usize, now: Instant) {
        if self.watches[index].is_open() {
            return;
        }
        let egress = self.watches[index].egress;
        self.abandon(egress);
        let report = self.watches[index].open(now);
        self.opened += 1;
        self.orders.push_back(Order::Open(egress, report));
    }

    fn abandon(&mut self, egress: Egress) {
        let orders = &mut self.orders;
        self.probes.retain(|probe| {
            let is_wanted = probe.decides != egress;
            if !is_wanted {
                orders.push_back(Order::Abandon { probe: probe.id });
            }
            is_wanted
        });
    }

    /// Connects to hosts that answered before; opens at once where there are none.
    fn check(&mut self, index: usize, now: Instant) {
        let egress = self.watches[index].egress;
        let known = self.known_addresses(egress);
        let lookups = match egress {
            Egress::Names => self.watches[index].lookups(),
            _ => Vec::new(),
        };
        if known.is_empty() && lookups.is_empty() {
            // Only what lacks a route was suspended.
            return self.open(index, now);
        }
        self.watches[index].begin_check(known.len(), now + CHECK_MAX);
        for (by, to) in known {
            let id = self.next_probe();
            self.ask(id, egress, by, Target::Address(to), now + CHECK_MAX);
        }
        for target in lookups {
            let id = self.next_probe();
            self.ask(id, egress, Egress::Names, target, now + CHECK_MAX);
        }
    }

    /// Up to three addresses that answered before, by this egress. Where name servers failed, by any;
    /// where all failures are missing routes, by the other family, too.
    fn known_addresses(&self, egress: Egress) -> Vec<(Egress, SocketAddr)> {
        let routes = self
            .find(egress)
            .map(|own| self.watches[own].lacks_routes());
        let other = egress.other_family().filter(|_| routes == Some(true));
        let ways = self.watches.iter().filter(|watch| match egress {
            Egress::Names => watch.egress != Egress::Names,
            _ => watch.egress == egress || Some(watch.egress) == other,
        });
        let mut known: Vec<_> = ways.flat_map(Watch::known_addresses).collect();
        known.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        known.truncate(CHECKED);
        known.into_iter().map(|(_, by, to)| (by, to)).collect()
    }

    /// Begins the next probe of an open egress. Every other one goes to a queued host, except by a proxy,
    /// where each goes to the proxy.
    fn probe(&mut self, index: usize, now: Instant) {
        let egress = self.watches[index].egress;
        let number = self.watches[index].begin_probe(now);
        let (id, until) = (self.next_probe(), now + PROBE_MAX);
        if number % 2 == 1 && !matches!(egress, Egress::Proxy(_)) {
            self.probes.push(Probe {
                id,
                decides: egress,
                by: egress,
                target: None,
                until,
            });
            self.orders.push_back(Order::Pick { probe: id, egress });
        } else {
            let (by, target) = self.known_target(index);
            self.ask(id, egress, by, target, until);
        }
    }

    /// The next target of those that answered or failed before, and the egress to it.
    fn known_target(&mut self, index: usize) -> (Egress, Target) {
        let egress = self.watches[index].egress;
        let by_network = self.watches[index].is_by_network();
        let (number, target) = self.watches[index].next_target();
        // A family may permanently lack a route: then the other one's answers end the outage.
        let other = egress.other_family().and_then(|other| self.find(other));
        if number % 2 == 0
            && self.watches[index].lacks_routes()
            && let Some(other) = other
            && let known = self.watches[other].known_addresses().collect::<Vec<_>>()
            && !known.is_empty()
        {
            let (_, by, to) = known[known.len() - 1 - number / 2 % known.len()];
            return (by, Target::Address(to));
        }
        let known = match egress {
            Egress::Names if by_network => self.known_addresses(egress),
            _ => Vec::new(),
        };
        match known.get(number % (known.len() + 1)) {
            Some((by, to)) => (*by, Target::Address(*to)),
            None => (egress, target),
        }
    }

    fn next_probe(&mut self) -> u32 {
        self.probes_made = self.probes_made.wrapping_add(1);
        self.probes_made
    }

    fn ask(&mut self, id: u32, decides: Egress, by: Egress, target: Target, until: Instant) {
        self.orders.push_back(match &target {
            Target::Address(to) => Order::Connect { probe: id, to: *to },
            Target::Name(name) | Target::Below(name) => Order::Lookup {
                probe: id,
                question: match &target {
                    Target::Below(_) => Question::Below(name.clone()),
                    _ if **name == *NAME_FOR_ANY_ANSWER => Question::Any(name.clone()),
                    _ => Question::Name(name.clone()),
                },
            },
        });
        self.probes.push(Probe {
            id,
            decides,
            by,
            target: Some(target),
            until,
        });
    }
}

#[cfg(test)]
mod tests;
