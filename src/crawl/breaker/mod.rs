//! A breaker for the whole crawl: failures that can be our own network's or name servers' pause it,
//! and cost no URL.
//!
//! A state machine without sockets or clock. Its driver reports failures ([`Breaker::handle_failure`])
//! and answers ([`Breaker::handle_answer`]), carries out the [`Order`]s of [`Breaker::poll`], and calls
//! [`Breaker::handle_timeout`] when [`Breaker::next_timeout`] is due.
//!
//! Each way out of our machine ([`Egress`]) is judged by itself:
//!
//! ```text
//!          8 networks failed in 10 s,         none of up to 3 hosts that
//!          none answered                      answered before answers now
//! Closed ─────────────────────────► Checking ────────────────────────────► Open
//!  ▲  ▲                                │                                    │
//!  │  └── one answers: failures count ◄┘                                    │
//!  └──────────── a single probe is answered: all goes on ◄──────────────────┘
//! ```
//!
//! While it is open, probes go by turns to hosts that answered before or that failed, and to hosts
//! from the queue that were not tried in this outage: the first two may be gone for ever.
//!
//! Where fewer fail, a missing route alone opens it, after 3 s in which nobody answered.
//!
//! A failure is *suspended* until the verdict, for at most 5 s: it is charged to its host, or what
//! failed is put back as it was.

mod watch;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use self::watch::{State, Watch};
use crate::base::address::is_global;
use crate::base::time::Instant;

pub use self::watch::Report;

/// Hosts on different networks that must have failed, and hosts there must be at all.
const NETWORKS_MIN: usize = 8;
/// The span in which they failed.
const WINDOW: Duration = Duration::from_secs(10);
/// A failure without a verdict is charged to its host after this.
const SUSPENDED_MAX: Duration = Duration::from_secs(3);
/// What was asked of hosts that answered before is answered in this, or not.
const CHECK_MAX: Duration = Duration::from_secs(2);
/// What such a check has shown holds for so long: nobody is asked more often.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Hosts that answered before which are asked.
const CHECKED: usize = 3;
/// The first pause between probes while it is open; each further one is twice as long.
const PROBE_EVERY_MIN: Duration = Duration::from_secs(1);
/// The longest pause between probes.
const PROBE_EVERY_MAX: Duration = Duration::from_secs(30);
/// A probe that is not answered after this is not answered.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Asked where no name is known to resolve: every resolver begins with the root's name servers
/// (RFC 8109), and any reply at all shows that one listens.
const NAME_FOR_ANY_ANSWER: &str = "a.root-servers.net";
/// Ways out that are watched: of proxies beyond these each failure is its hosts' at once.
const WATCHES_MAX: usize = 64;

/// A way out of our machine.
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

    /// What it is, in words for the log.
    pub fn words(self) -> String {
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

/// How a host failed, where that can be our own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Our machine has no route there.
    NoRoute,
    /// Somebody on the way reported that host or network cannot be reached.
    Unreachable,
    /// Nothing came back.
    TimedOut,
    /// Our own proxy refused the connection.
    Refused,
    /// No name server answered.
    NamesSilent,
    /// The name servers answered that they failed (SERVFAIL).
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

/// Whom to ask whether the network works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Who listens there.
    Address(SocketAddr),
    /// The name servers, for this name.
    Name(Box<str>),
}

impl Target {
    /// What counts as a network of its own: an IPv4 address's /24, an IPv6 address's /48. Names are
    /// told apart by [`Failed::network`].
    pub fn network(address: IpAddr) -> u64 {
        match address {
            IpAddr::V4(address) => u64::from(u32::from(address) >> 8),
            IpAddr::V6(address) => 1 << 63 | (u128::from(address) >> 80) as u64,
        }
    }
}

/// A failure that can be our own.
#[derive(Clone, Debug)]
pub struct Failed {
    pub egress: Egress,
    /// What is likely to fail by itself, as one number: the host's /24 or /48; behind a proxy or where
    /// the name servers failed, a hash of its registrable domain.
    pub network: u64,
    pub cause: Cause,
    /// When the attempt began.
    pub began: Instant,
    pub target: Target,
}

/// What becomes of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is the host's.
    Charge,
    /// To be decided: an order to charge or to put back follows within 5 s.
    Suspend,
    /// It is ours: what failed is put back as it was.
    PutBack,
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// There was an answer: a connection, a reply.
    Answered,
    /// The connection was refused: an answer, except from a proxy.
    Refused,
    /// Our machine has no route there.
    NoRoute,
    /// Anything else.
    Failed,
}

/// What came of [`Order::Pick`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked {
    /// This host; `network` is told as in [`Failed`].
    Host { network: u64, target: Target },
    /// There is no host in the queue that was not tried.
    Exhausted,
    /// None was found in time.
    Failed,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Connect to this address, send nothing, and report what came of it.
    Connect { probe: u32, to: SocketAddr },
    /// Ask the name servers for this name, whatever is remembered of it, and report. `any`: each reply
    /// is an answer, also that they failed.
    Lookup {
        probe: u32,
        name: Box<str>,
        any: bool,
    },
    /// Pick a host from the queue that is reached by this egress and was not
    /// [tried](Breaker::was_tried), for [`Breaker::handle_picked`].
    Pick { probe: u32, egress: Egress },
    /// Nobody waits for this probe any more.
    Abandon { probe: u32 },
    /// What is suspended of this egress counts against its hosts.
    Charge(Egress),
    /// It has opened: what is suspended is put back, and nothing is sent.
    Open(Egress, Report),
    /// It has closed after so long: all goes on.
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
}

#[derive(Clone, Debug)]
struct Probe {
    id: u32,
    /// What it is to decide.
    decides: Egress,
    /// The way it goes.
    by: Egress,
    /// The host it goes to; none while one is picked.
    target: Option<Target>,
    until: Instant,
}

impl Breaker {
    /// A host could not be reached. `hosts` have something to fetch: where they are few, no eight can
    /// fail.
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

    /// Whether what has no route by this egress will have none: nobody ever answered by it, and the
    /// other address family works.
    pub fn is_without_route(&self, egress: Egress, now: Instant) -> bool {
        let other = egress.other_family().and_then(|other| self.find(other));
        let works = other.is_some_and(|other| self.watches[other].is_known_to_work(now));
        let own = self.find(egress).map(|own| &self.watches[own]);
        works && own.is_none_or(Watch::never_answered)
    }

    /// A host accepted or refused a connection, or a name server answered. `network` is told as in
    /// [`Failed`].
    pub fn handle_answer(&mut self, egress: Egress, network: u64, target: Target, now: Instant) {
        let Some(index) = self.watch(egress) else {
            return;
        };
        self.watches[index].remember(network, target, now);
        if !self.watches[index].is_leftover(now) {
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

    /// A probe has ended.
    pub fn handle_probe(&mut self, id: u32, ended: Probed, now: Instant) {
        let Some(at) = self.probes.iter().position(|probe| probe.id == id) else {
            return;
        };
        let probe = self.probes.swap_remove(at);
        let ended = match (ended, probe.by) {
            (Probed::Refused, Egress::Proxy(_)) => Probed::Failed,
            (Probed::Refused, _) => Probed::Answered,
            // That there is a route by the other family says nothing of this one.
            (Probed::Failed, by) if Some(by) == probe.decides.other_family() => Probed::NoRoute,
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

    /// A host was picked for a probe, or none. Without one the probe goes to a host that answered
    /// before or that failed.
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

    /// Whether a host was tried by this egress since it opened, or another on its network; `network`
    /// is told as in [`Failed`].
    pub fn was_tried(&self, egress: Egress, network: u64) -> bool {
        self.find(egress)
            .is_some_and(|index| self.watches[index].was_tried(network))
    }

    /// When [`Breaker::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let watches = self.watches.iter().filter_map(Watch::next_timeout);
        let probes = self.probes.iter().map(|probe| probe.until);
        watches.chain(probes).min()
    }

    /// Decides what is due.
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
            if self.watches[index].next_timeout().is_none_or(|at| at > now) {
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

    /// The next thing to do, if there is any.
    pub fn poll(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Until when nothing is to be sent by this egress, where it is open.
    pub fn blocked_until(&self, egress: Egress) -> Option<Instant> {
        let watch = &self.watches[self.find(egress)?];
        watch.next_timeout().filter(|_| watch.is_open())
    }

    /// Whether nothing is to be sent at all: every way that was used is open, and each of them had worked.
    /// Where one never did, another that was not tried yet may work.
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

    /// Whether any way is open.
    pub fn is_open(&self) -> bool {
        self.watches.iter().any(Watch::is_open)
    }

    /// For how long it has been open, and until the next probe; `None` while it is closed.
    pub fn open_for(&self, now: Instant) -> Option<(Duration, Duration)> {
        let open = self.watches.iter().filter_map(|watch| match watch.state {
            State::Open {
                since, probe_at, ..
            } => Some((now.saturating_since(since), probe_at.saturating_since(now))),
            _ => None,
        });
        open.max()
    }

    /// How often it opened, and for how long in all.
    pub fn totals(&self, now: Instant) -> (u64, Duration) {
        let present = self.open_for(now).map_or(Duration::ZERO, |(span, _)| span);
        (self.opened, self.open_for + present)
    }

    fn find(&self, egress: Egress) -> Option<usize> {
        self.watches.iter().position(|watch| watch.egress == egress)
    }

    /// The watch over an egress, new if need be; `None` for a proxy beyond the bound, which is not
    /// watched.
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

    /// Somebody answered: what failed is not our network's fault.
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

    /// Asks hosts that answered before, or decides at once where there is none.
    fn check(&mut self, index: usize, now: Instant) {
        let egress = self.watches[index].egress;
        let known = self.known_addresses(egress);
        let name = (egress == Egress::Names).then(|| self.watches[index].name_to_ask(0));
        let lookups = name.is_some();
        if known.is_empty() && !lookups {
            // Only what lacks a route was suspended.
            return self.open(index, now);
        }
        self.watches[index].begin_check(known.len(), now + CHECK_MAX);
        for (by, to) in known {
            let id = self.next_probe();
            self.ask(id, egress, by, Target::Address(to), now + CHECK_MAX);
        }
        if let Some(name) = name {
            let id = self.next_probe();
            let target = Target::Name(name);
            self.ask(id, egress, Egress::Names, target, now + CHECK_MAX);
        }
    }

    /// Up to three addresses that answered before: by this egress; by any, where name servers failed;
    /// by the other family, too, where this one may have no route because there is none.
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

    /// A single probe while it is open: by turns to a host that is known, and to one from the queue.
    /// All that goes through a proxy asks the proxy.
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

    /// Whom to ask of those that answered before or that failed, and the way there.
    fn known_target(&mut self, index: usize) -> (Egress, Target) {
        let egress = self.watches[index].egress;
        let by_network = self.watches[index].is_by_network();
        let (number, target) = self.watches[index].next_target();
        // A family without a route may have none for good: then the other one's answers end the outage.
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
            Target::Name(name) => Order::Lookup {
                probe: id,
                name: name.clone(),
                any: **name == *NAME_FOR_ANY_ANSWER,
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
