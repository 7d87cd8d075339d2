//! Failures that can be our own network's: suspended until the breaker's verdict, then charged to
//! their hosts or put back as they were.

mod probes;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

use self::probes::ProbeLookup;
use super::flight::Carrier;
use super::origins::Origin;
use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::{Breaker, Cause, Egress, Failed, Judgement, Order, Target};
use crate::crawl::core::Core;
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::resolver::Answer;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::Io;
use crate::throttle::engine::{LaneId, TicketId};
use crate::throttle::scope::ScopeId;
use crate::wire::url::registrable;

/// The breaker, and what waits for its verdict.
pub struct Outage {
    breaker: Breaker,
    /// `OUTAGE_BREAKER`; a probe has none.
    is_on: bool,
    suspects: Vec<Suspect>,
    /// Those with a verdict that was not carried out yet.
    judged: VecDeque<(Suspect, Judgement)>,
    /// The breaker's connections.
    probes: HashMap<u32, Key, Secret>,
    /// Its lookups, and what each is for.
    lookups: HashMap<u32, ProbeLookup, Secret>,
    /// The lane whose host was picked, or was last looked at.
    picked: LaneId,
    /// Lanes that were looked at since the last that was picked.
    passed: usize,
    /// Lanes that wait for an egress to close, and since when, in running time.
    parked: HashMap<LaneId, (Egress, Instant), Secret>,
    /// Those whose egress has closed.
    resuming: Vec<(LaneId, Instant)>,
    /// Requests put back since it opened.
    put_back: u64,
}

/// A failure that waits for a verdict.
#[derive(Debug)]
enum Suspect {
    /// An attempt that has no connection; it holds its places.
    Flight {
        key: Key,
        failure: Failure,
        carrier: Carrier,
        egress: Egress,
        /// Where it has no route to, if the host has addresses of that family alone.
        unrouted: Option<SocketAddr>,
    },
    /// A request whose host has no address.
    Unresolved {
        lane: LaneId,
        job: Box<Job>,
        failure: Failure,
    },
}

/// Suspects whose verdicts are carried out in one turn.
const JUDGED_PER_TURN: usize = 64;
/// Orders of the breaker carried out in one turn: it gives a handful at once.
const ORDERS_PER_TURN: usize = 256;
/// So many suspects may wait at least, however few requests may be in flight.
const SUSPECTS_MIN: usize = 64;
/// Lanes that are resumed in one turn.
const RESUMED_PER_TURN: usize = 256;
/// Lanes that are resumed when their egress closes; those beyond ask behind the next probe.
const PARKED_MAX: usize = 65_536;
/// Lanes that wait for a probe ask this long behind it.
const PARKED_BEHIND_PROBE: Duration = Duration::from_millis(200);

impl Outage {
    pub fn new(is_on: bool, secret: &Secret) -> Self {
        Outage {
            breaker: Breaker::default(),
            is_on,
            suspects: Vec::new(),
            judged: VecDeque::new(),
            probes: HashMap::with_hasher(*secret),
            lookups: HashMap::with_hasher(*secret),
            picked: LaneId(0),
            passed: 0,
            parked: HashMap::with_hasher(*secret),
            resuming: Vec::new(),
            put_back: 0,
        }
    }

    /// The breaker, to be asked.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Requests that are neither queued nor in flight meanwhile.
    pub fn held(&self) -> usize {
        let is_apart = |suspect: &&Suspect| matches!(suspect, Suspect::Unresolved { .. });
        let judged = self.judged.iter().map(|(suspect, _)| suspect);
        self.suspects.iter().chain(judged).filter(is_apart).count()
    }

    /// Whether nothing waits for a verdict.
    pub fn is_idle(&self) -> bool {
        self.suspects.is_empty() && self.judged.is_empty()
    }

    /// Whether nothing is to be released: the breaker is open, or as many wait for its verdict as may be
    /// in flight.
    pub fn stops_releases(&self, in_flight_max: usize) -> bool {
        self.breaker.stops_all()
            || self.suspects.len() + self.judged.len() >= in_flight_max.max(SUSPECTS_MIN)
    }

    /// When the breaker has something to decide.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.breaker.next_timeout()
    }

    /// Decides what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.breaker.handle_timeout(now);
    }

    /// Until when nothing is sent to an address, or through a proxy there.
    pub fn blocked_until(&self, egress: Egress) -> Option<Instant> {
        self.breaker.blocked_until(egress)
    }

    /// While the crawl is paused no probe begins.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.breaker.set_paused(is_paused);
    }

    fn judge(&mut self, wanted: impl Fn(Egress) -> bool, judgement: Judgement) {
        let suspects = std::mem::take(&mut self.suspects);
        for suspect in suspects {
            let egress = match &suspect {
                Suspect::Flight { egress, .. } => *egress,
                Suspect::Unresolved { .. } => Egress::Names,
            };
            if wanted(egress) {
                self.judged.push_back((suspect, judgement));
            } else {
                self.suspects.push(suspect);
            }
        }
    }
}

impl<I: Io> Core<I> {
    /// A host accepted or refused a connection of this origin.
    pub fn on_answered(&mut self, origin: Origin, remote: SocketAddr) {
        if self.outage.is_on {
            let egress = egress_of(matches!(origin, Origin::ByProxy(_)), remote);
            let network = Target::network(remote.ip());
            let target = Target::Address(remote);
            self.outage
                .breaker
                .handle_answer(egress, network, Some(target), self.now);
        }
    }

    /// A lookup that began then is over. One that failed counts now: the lane that asked may be
    /// released much later, behind others.
    pub fn on_looked_up(&mut self, host: &str, result: &Result<Answer, Failure>, began: Instant) {
        if !self.outage.is_on {
            return;
        }
        let target = Target::Name(host.into());
        if is_reply(result) {
            let network = network_of(host);
            // Below a name that does not exist none does, and a cache may know that.
            let target = result.is_ok().then_some(target);
            self.outage
                .breaker
                .handle_answer(Egress::Names, network, target, self.now);
        } else if let Err(failure) = result
            && let Some(cause) = names_cause_of(failure)
        {
            self.judgement_of(Failed {
                egress: Egress::Names,
                network: network_of(host),
                cause,
                began,
                target,
            });
        }
    }

    /// An attempt could not be connected. Whether it waits for a verdict, or was put back: then nothing
    /// else comes of the failure for now.
    pub fn suspects_flight(
        &mut self,
        key: Key,
        failure: &Failure,
        carrier: &Carrier,
        lacks_route: bool,
        unrouted: Option<SocketAddr>,
    ) -> bool {
        let (Some(remote), Some(flight)) = (carrier.remote, self.flights.get(key)) else {
            return false;
        };
        let (lane, released) = (flight.lane, flight.released);
        let by_proxy = self.frontier.proxy_of(lane).is_some();
        let Some(cause) = cause_of(failure, by_proxy, lacks_route) else {
            if failure.code == "refused" {
                let origin = flight.origin;
                self.on_answered(origin, remote);
            }
            return false;
        };
        let egress = egress_of(by_proxy, remote);
        let network = match by_proxy {
            true => network_of(self.frontier.origin_host(lane, &self.throttle)),
            false => Target::network(remote.ip()),
        };
        let judgement = self.judgement_of(Failed {
            egress,
            network,
            cause,
            began: released,
            target: Target::Address(remote),
        });
        match judgement {
            Judgement::Charge => return false,
            Judgement::Suspend => {
                self.deadlines
                    .cancel(crate::crawl::timer::Timer::Flight(key.slot));
                self.outage.suspects.push(Suspect::Flight {
                    key,
                    failure: failure.clone(),
                    carrier: carrier.clone(),
                    egress,
                    unrouted,
                });
            }
            Judgement::PutBack => self.put_back_flight(key, egress),
        }
        true
    }

    /// A released lane's host has no address. Whether that waits for a verdict, or was put back.
    pub fn suspects_names(&mut self, lane: LaneId, ticket: TicketId, failure: &Failure) -> bool {
        let Some(cause) = names_cause_of(failure) else {
            return false;
        };
        let (host, _) = self.frontier.host_and_port(lane, &self.throttle);
        // Behind a proxy its name stands for all hosts.
        let origin = self.frontier.origin_host(lane, &self.throttle);
        let took = self.looked_up.get(&lane).copied().unwrap_or_default();
        let failed = Failed {
            egress: Egress::Names,
            network: network_of(origin),
            cause,
            began: self.now - took,
            target: Target::Name(host.into()),
        };
        match self.judgement_of(failed) {
            Judgement::Charge => return false,
            Judgement::Suspend => {
                self.throttle.cancel(ticket, self.now);
                if let Some(job) = self.frontier.take_front(lane, &self.throttle) {
                    self.outage.suspects.push(Suspect::Unresolved {
                        lane,
                        job: Box::new(job),
                        failure: failure.clone(),
                    });
                }
            }
            Judgement::PutBack => self.park(lane, ticket, Egress::Names),
        }
        true
    }

    fn judgement_of(&mut self, failed: Failed) -> Judgement {
        if !self.outage.is_on || !self.is_running() {
            return Judgement::Charge;
        }
        let hosts = self.frontier.lanes_open();
        self.outage.breaker.handle_failure(failed, hosts, self.now)
    }

    /// A released lane waits until the breaker's next probe; its ticket is given back.
    pub fn park(&mut self, lane: LaneId, ticket: TicketId, egress: Egress) {
        self.throttle.cancel(ticket, self.now);
        self.looked_up.remove(&lane);
        let until = self.parked_until(lane, egress);
        self.frontier
            .pause(lane, until, &mut self.throttle, self.now);
    }

    /// When a lane that waits for an egress asks again, unless that closes before: behind the next
    /// probe.
    fn parked_until(&mut self, lane: LaneId, egress: Egress) -> Instant {
        let Some(probe) = self.outage.blocked_until(egress) else {
            return self.now;
        };
        if self.outage.parked.len() < PARKED_MAX {
            let since = self.frontier.running(self.now);
            self.outage.parked.entry(lane).or_insert((egress, since)).0 = egress;
        }
        probe.max(self.now) + PARKED_BEHIND_PROBE
    }

    fn put_back_flight(&mut self, key: Key, egress: Egress) {
        self.outage.put_back += 1;
        let flight = self.flights.get(key).expect("the caller found it");
        let until = self.parked_until(flight.lane, egress);
        self.requeue_at(key, until);
    }

    /// Carries out what the breaker decided: called once a turn.
    pub fn attend_outage(&mut self) {
        for _ in 0..ORDERS_PER_TURN {
            let Some(order) = self.outage.breaker.poll() else {
                break;
            };
            self.carry_out(order);
            // What it began is sent, and what it lets go released, in a turn that follows at once.
            self.unfinished = true;
        }
        for _ in 0..RESUMED_PER_TURN {
            let Some((lane, since)) = self.outage.resuming.pop() else {
                break;
            };
            self.frontier.excuse_host(lane, since, self.now);
            self.frontier.resume(lane, &mut self.throttle, self.now);
        }
        self.unfinished |= !self.outage.resuming.is_empty();
        for _ in 0..JUDGED_PER_TURN {
            let Some((suspect, judgement)) = self.outage.judged.pop_front() else {
                return;
            };
            match judgement {
                Judgement::Charge => self.charge_suspect(suspect),
                Judgement::PutBack | Judgement::Suspend => self.put_back_suspect(suspect),
            }
        }
        self.unfinished = true;
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Connect { probe, to } => self.connect_for(probe, to),
            Order::Lookup { probe, question } => self.look_up_for(probe, question),
            Order::Pick { probe, egress } => {
                if let Some(picked) = self.pick_host(probe, egress) {
                    self.outage.breaker.handle_picked(probe, picked);
                }
            }
            Order::Abandon { probe } => self.close_probe(probe),
            Order::Charge(egress) => self.outage.judge(|of| of == egress, Judgement::Charge),
            Order::Open(egress, report) => {
                self.outage.put_back = 0;
                self.outage.judge(|of| of == egress, Judgement::PutBack);
                log::warn!(
                    "{report}. The crawl waits, and no request is lost; single probes go out every \
                     1 to 30 s"
                );
                if self.outage.breaker.stops_all() {
                    // What has a connection and was about to depart goes back, too.
                    self.cancel_unsent();
                }
            }
            Order::Close(egress, span) => {
                self.resolver.forget_failures(self.now);
                let parked = self.outage.parked.extract_if(|_, (of, _)| *of == egress);
                let resuming = parked.map(|(lane, (_, since))| (lane, since));
                self.outage.resuming.extend(resuming);
                // The last goes on first: of the lanes of one host, the one that waited longest.
                let resuming = &mut self.outage.resuming;
                resuming.sort_unstable_by_key(|(_, since)| std::cmp::Reverse(*since));
                log::warn!(
                    "{} works again after {:.0} s: the crawl goes on; {} failed attempts were put back \
                     and not counted",
                    egress.words(),
                    span.as_secs_f64(),
                    self.outage.put_back
                );
            }
        }
    }

    fn charge_suspect(&mut self, suspect: Suspect) {
        match suspect {
            Suspect::Flight {
                key,
                failure,
                carrier,
                unrouted,
                ..
            } => {
                let Some(flight) = self.flights.get(key) else {
                    // It was taken back in the meantime.
                    return;
                };
                let lane = flight.lane;
                self.on_connect_charged(lane, unrouted, &failure);
                self.end_connecting(key, failure, &carrier);
            }
            Suspect::Unresolved { lane, job, failure } => {
                self.on_host_failed(lane, &failure);
                self.end_unconnected(&job, lane, failure);
            }
        }
    }

    fn put_back_suspect(&mut self, suspect: Suspect) {
        match suspect {
            Suspect::Flight { key, egress, .. } => {
                if self.flights.get(key).is_some() {
                    self.put_back_flight(key, egress);
                }
            }
            Suspect::Unresolved { lane, job, .. } => {
                self.outage.put_back += 1;
                self.looked_up.remove(&lane);
                self.frontier
                    .put_back(lane, *job, &mut self.throttle, self.now);
                if self.outage.blocked_until(Egress::Names).is_some() {
                    let until = self.parked_until(lane, Egress::Names);
                    self.frontier
                        .pause(lane, until, &mut self.throttle, self.now);
                }
            }
        }
    }

    /// Of what waits for a verdict these requests, and all under these scopes, go back to where they
    /// were queued. `is_named` is asked first.
    pub fn put_back_suspects_of(&mut self, is_named: impl Fn(&Job) -> bool, scopes: &[ScopeId]) {
        let is_meant = |job: &Job, mut under: Box<dyn Iterator<Item = ScopeId> + '_>| {
            is_named(job) || job.kind != Kind::Robots && under.any(|scope| scopes.contains(&scope))
        };
        let (flights, throttle) = (&self.flights, &self.throttle);
        let is_wanted = |suspect: &Suspect| match suspect {
            Suspect::Flight { key, .. } => flights.get(*key).is_some_and(|flight| {
                let under = throttle.ticket_scopes(flight.ticket);
                is_meant(&flight.job, Box::new(under))
            }),
            Suspect::Unresolved { lane, job, .. } => {
                let under = throttle.lane_scopes(*lane).iter().copied();
                is_meant(job, Box::new(under))
            }
        };
        let outage = &mut self.outage;
        let waiting = outage.suspects.extract_if(.., |suspect| is_wanted(suspect));
        let mut meant: Vec<Suspect> = waiting.collect();
        for (suspect, judgement) in std::mem::take(&mut outage.judged) {
            match is_wanted(&suspect) {
                true => meant.push(suspect),
                false => outage.judged.push_back((suspect, judgement)),
            }
        }
        for suspect in meant {
            self.put_back_suspect(suspect);
        }
    }

    /// Nothing waits for a verdict any more: all goes back to where it was queued.
    pub fn put_back_suspects(&mut self) {
        self.outage.judge(|_| true, Judgement::PutBack);
        while let Some((suspect, _)) = self.outage.judged.pop_front() {
            self.put_back_suspect(suspect);
        }
    }
}

/// The way by which an address is reached.
pub fn egress_of(by_proxy: bool, remote: SocketAddr) -> Egress {
    match by_proxy {
        true => Egress::Proxy(remote),
        false => Egress::of(remote.ip()),
    }
}

/// Hosts of one registrable domain are likely to share their name servers.
fn network_of(host: &str) -> u64 {
    xxh3_64(registrable(host).as_bytes())
}

/// Whether the name servers did their work: there are addresses, or there are none.
fn is_reply(result: &Result<Answer, Failure>) -> bool {
    match result {
        Ok(_) => true,
        Err(failure) => matches!(failure.code, "nxdomain" | "nodata"),
    }
}

/// How a lookup failed, where that can be our own name servers' fault.
fn names_cause_of(failure: &Failure) -> Option<Cause> {
    match failure.code {
        "timeout" => Some(Cause::NamesSilent),
        "servfail" | "refused" => Some(Cause::NamesFailed),
        _ => None,
    }
}

/// How a failure can be our own; `None` where it is an answer.
fn cause_of(failure: &Failure, by_proxy: bool, lacks_route: bool) -> Option<Cause> {
    match (failure.kind, failure.code) {
        (FailureKind::Connect, "unreachable") if lacks_route => Some(Cause::NoRoute),
        (FailureKind::Connect, "unreachable") => Some(Cause::Unreachable),
        (FailureKind::Connect, "timed_out") | (FailureKind::Timeout, "connect") => {
            Some(Cause::TimedOut)
        }
        (FailureKind::Connect, "refused") if by_proxy => Some(Cause::Refused),
        _ => None,
    }
}
