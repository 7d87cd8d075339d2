//! Failures that may be our network's: suspended, then charged to their hosts or requeued, as the breaker
//! decides.

use std::net::SocketAddr;

use crate::base::ids::{LaneId, ScopeId};
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::{Cause, Egress, Failed, Judgement, Target};
use crate::crawl::core::Core;
use crate::crawl::network::origins::Origin;
use crate::crawl::network::socket::Carrier;
use crate::crawl::outage::{OutageTask, Suspect, egress_of, is_reply};
use crate::fetch::failure::{Failure, FailureKind};
use crate::fetch::resolver::Answer;
use crate::frontier::job::Job;
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::throttle::engine::TicketId;

/// Verdicts that are executed in one turn.
const JUDGED_PER_TURN: usize = 64;

/// Orders of the breaker that are executed in one turn: it gives a handful at once.
const ORDERS_PER_TURN: usize = 256;

/// Lanes that are resumed in one turn.
const RESUMED_PER_TURN: usize = 256;

impl<I: Io> Core<I> {
    /// A host accepted or refused a connection of this origin.
    pub fn on_answered(&mut self, origin: Origin, remote: SocketAddr) {
        let by_proxy = matches!(origin, Origin::ByProxy(_));
        self.outage.handle_answer(by_proxy, remote, self.now);
    }

    /// A lookup that began at `began` is over. A failure counts now: the lane that asked may be released
    /// much later.
    pub fn on_looked_up(&mut self, host: &str, result: &Result<Answer, Failure>, began: Instant) {
        if is_reply(result) {
            self.outage.handle_reply(host, result.is_ok(), self.now);
        } else if let Err(failure) = result
            && let Some(cause) = names_cause_of(failure)
        {
            self.handle_failure(Failed {
                egress: Egress::Names,
                network: self.outage.network_of(host),
                cause,
                began,
                target: Target::Name(host.into()),
            });
        }
    }

    /// An attempt could not be connected. Returns whether it waits for a verdict or was requeued: then
    /// nothing else is done about the failure for now.
    pub fn suspend_flight(
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
            if failure.name == "refused" {
                let origin = flight.origin;
                self.on_answered(origin, remote);
            }
            return false;
        };
        let egress = egress_of(by_proxy, remote);
        let network = match by_proxy {
            true => self.outage.network_of(self.frontier.origin_host(lane)),
            false => Target::network(remote.ip()),
        };
        let judgement = self.handle_failure(Failed {
            egress,
            network,
            cause,
            began: released,
            target: Target::Address(remote),
        });
        match judgement {
            Judgement::Charge => return false,
            Judgement::Suspend => {
                self.outage.suspend(Suspect::Flight {
                    key,
                    failure: failure.clone(),
                    carrier: carrier.clone(),
                    egress,
                    unrouted,
                });
            }
            Judgement::PutBack => self.requeue_flight(key, egress),
        }
        true
    }

    /// A released lane's host has no address. Returns whether its request waits for a verdict or was
    /// requeued.
    pub fn suspend_lookup(&mut self, lane: LaneId, ticket: TicketId, failure: &Failure) -> bool {
        let Some(cause) = names_cause_of(failure) else {
            return false;
        };
        let (host, _) = self.frontier.host_and_port(lane);
        // The name of a proxy stands for all hosts behind it.
        let origin = self.frontier.origin_host(lane);
        let took = self.network.lookup_took(lane);
        let failed = Failed {
            egress: Egress::Names,
            network: self.outage.network_of(origin),
            cause,
            began: self.now - took,
            target: Target::Name(host.into()),
        };
        match self.handle_failure(failed) {
            Judgement::Charge => return false,
            Judgement::Suspend => {
                self.throttle.cancel(ticket, self.now);
                if let Some(job) = self.frontier.take_front(lane) {
                    self.outage.suspend(Suspect::Unresolved {
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

    fn handle_failure(&mut self, failed: Failed) -> Judgement {
        if !self.is_running() {
            return Judgement::Charge;
        }
        let hosts = self.frontier.lanes_open();
        self.outage.handle_failure(failed, hosts, self.now)
    }

    /// A released lane waits until the breaker's next probe; its ticket is returned.
    pub fn park(&mut self, lane: LaneId, ticket: TicketId, egress: Egress) {
        self.throttle.cancel(ticket, self.now);
        self.network.take_lookup(lane);
        let until = self.parked_until(lane, egress);
        self.pause_lane(lane, until);
    }

    /// When a lane that waits for an egress is offered again, unless that closes before: after the next
    /// probe.
    fn parked_until(&mut self, lane: LaneId, egress: Egress) -> Instant {
        let since = self.frontier.active_time(self.now);
        self.outage.park(lane, egress, since, self.now)
    }

    fn requeue_flight(&mut self, key: Key, egress: Egress) {
        self.outage.count_put_back();
        let flight = self.flights.get(key).expect("the caller found it");
        let until = self.parked_until(flight.lane, egress);
        self.requeue_at(key, until);
    }

    /// Executes what the breaker decided: called once a turn.
    pub fn update_outage(&mut self) {
        for _ in 0..ORDERS_PER_TURN {
            let Some(order) = self.outage.poll_order() else {
                break;
            };
            self.execute(order);
            // Probes are sent, and lanes released, in a turn that follows at once.
            self.wakeups.turn_again();
        }
        for _ in 0..RESUMED_PER_TURN {
            let Some((lane, since)) = self.outage.poll_resuming() else {
                break;
            };
            self.frontier.discount_host_time(lane, since, self.now);
            self.frontier.resume(lane);
            self.update_lanes();
        }
        self.wakeups.turn_again_if(self.outage.has_resuming());
        for _ in 0..JUDGED_PER_TURN {
            let Some((suspect, judgement)) = self.outage.poll_verdict() else {
                return;
            };
            // This turn's releases were decided before there was room for more.
            self.wakeups.turn_again();
            match judgement {
                Judgement::Charge => self.charge_suspect(suspect),
                Judgement::PutBack | Judgement::Suspend => self.requeue_suspect(suspect),
            }
        }
    }

    fn execute(&mut self, task: OutageTask) {
        match task {
            OutageTask::Connect { probe, to } => self.connect_for(probe, to),
            OutageTask::Lookup { probe, question } => self.look_up_for(probe, question),
            OutageTask::Pick { probe, egress } => {
                if let Some(picked) = self.pick_host(probe, egress) {
                    self.outage.handle_picked(probe, picked);
                }
            }
            OutageTask::Abandon { probe } => self.close_probe(probe),
            OutageTask::Opened { stops_all: true } => {
                // Requests that are connected and have not departed are requeued, too.
                self.cancel_unsent();
            }
            OutageTask::Opened { stops_all: false } => {}
            OutageTask::Closed => self.network.forget_failed_lookups(self.now),
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
                    // An attempt that was cancelled in the meantime.
                    return;
                };
                let lane = flight.lane;
                let failure = self.name_proxy(lane, failure);
                self.on_connect_charged(lane, unrouted, &failure);
                self.end_connecting(key, failure, &carrier);
            }
            Suspect::Unresolved { lane, job, failure } => {
                self.on_host_failed(lane, &failure);
                let failure = self.name_proxy(lane, failure);
                self.end_unconnected(&job, lane, failure);
            }
        }
    }

    fn requeue_suspect(&mut self, suspect: Suspect) {
        match suspect {
            Suspect::Flight { key, egress, .. } => {
                if self.flights.get(key).is_some() {
                    self.requeue_flight(key, egress);
                }
            }
            Suspect::Unresolved { lane, job, .. } => {
                self.outage.count_put_back();
                self.network.take_lookup(lane);
                self.return_to_lane(lane, *job);
                if self.outage.blocked_until(Egress::Names).is_some() {
                    let until = self.parked_until(lane, Egress::Names);
                    self.pause_lane(lane, until);
                }
            }
        }
    }

    /// Requeues the suspects that `is_named` names, and all under these scopes.
    pub fn requeue_suspects_of(&mut self, is_named: impl Fn(&Job) -> bool, scopes: &[ScopeId]) {
        let is_meant = |job: &Job, mut under: Box<dyn Iterator<Item = ScopeId> + '_>| {
            is_named(job)
                || job.kind != PageKind::Robots && under.any(|scope| scopes.contains(&scope))
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
        for suspect in self.outage.take_suspects(is_wanted) {
            self.requeue_suspect(suspect);
        }
    }

    /// Requeues all suspects.
    pub fn requeue_suspects(&mut self) {
        for suspect in self.outage.take_suspects(|_| true) {
            self.requeue_suspect(suspect);
        }
    }
}

/// Kind of a lookup's failure, if the configured name servers may have caused it.
fn names_cause_of(failure: &Failure) -> Option<Cause> {
    match failure.name {
        "timeout" => Some(Cause::NamesSilent),
        "servfail" | "refused" => Some(Cause::NamesFailed),
        _ => None,
    }
}

/// Kind of a failure that the local network may have caused; `None` if it is the host's answer.
fn cause_of(failure: &Failure, by_proxy: bool, lacks_route: bool) -> Option<Cause> {
    match (failure.kind, failure.name) {
        (FailureKind::Connect, "unreachable") if lacks_route => Some(Cause::NoRoute),
        (FailureKind::Connect, "unreachable") => Some(Cause::Unreachable),
        (FailureKind::Connect, "timed_out") | (FailureKind::Timeout, "connect") => {
            Some(Cause::TimedOut)
        }
        (FailureKind::Connect, "refused") if by_proxy => Some(Cause::Refused),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::crawl::core::tests::trial::{calm, crawl};

    #[test]
    fn a_turn_follows_a_charge_for_releases_may_have_waited_for_it() {
        let (mut crawler, ..) = crawl(calm(Duration::ZERO), 1, |_, _| ());
        let core = &mut crawler.core;
        let now = core.now;
        let failed = Failed {
            egress: Egress::Names,
            network: core.outage.network_of("a.test"),
            cause: Cause::NamesSilent,
            began: now,
            target: Target::Name("a.test".into()),
        };
        let judgement = core.outage.handle_failure(failed, 1000, now);
        assert_eq!(judgement, Judgement::Suspend);
        core.outage.suspend(Suspect::Flight {
            // An attempt that was cancelled in the meantime.
            key: Key {
                slot: 0,
                generation: 0,
            },
            failure: Failure::new(FailureKind::Dns, "timeout", ""),
            carrier: Carrier::default(),
            egress: Egress::Names,
            unrouted: None,
        });
        // Discards the breaker's orders, such as probes.
        while core.outage.poll_order().is_some() {}
        let later = now + Duration::from_secs(3);
        core.outage.handle_reply("a.test", true, later);
        core.wakeups.begin_work();
        core.update_outage();
        assert!(core.outage.is_idle(), "it was charged");
        assert!(core.wakeups.is_unfinished());
    }
}
