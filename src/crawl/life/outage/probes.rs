//! The breaker's probes: connections, lookups, and hosts picked from the queue.

use std::hash::BuildHasher;
use std::net::SocketAddr;

use super::super::flight::Socket;
use super::{Outage, is_reply, network_of};
use crate::crawl::breaker::{Egress, Picked, Probed, Question, Target};
use crate::crawl::core::{Core, token_of};
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{Answer, Lookup, Waiter};
use crate::io::{Close, Io};
use crate::throttle::engine::LaneId;
use crate::wire::url::registrable;

/// What a lookup of the breaker is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProbeLookup {
    /// It is the probe; `any`: each reply is an answer.
    Itself { any: bool },
    /// It gives the address of a host that was picked, which is to be reached by this egress at this
    /// port.
    Picked { egress: Egress, port: u16 },
}

/// Lanes that are looked at for a host to be picked: a millisecond's worth.
const PICKS_MAX: usize = 8192;
/// Numbers above this name the breaker's lookups; others are lanes.
const LOOKUP_WAITER: Waiter = 1 << 32;

impl Outage {
    /// Whether a lookup is waited for by more than the breaker.
    pub fn is_for_lanes(waiters: &[Waiter]) -> bool {
        waiters.iter().any(|waiter| *waiter < LOOKUP_WAITER)
    }

    /// A name below another's registrable domain that was not asked for before.
    fn name_below(&self, name: &str, probe: u32) -> Box<str> {
        let label = self.lookups.hasher().hash_one((name, probe));
        format!("{label:016x}.{}", registrable(name)).into()
    }
}

impl<I: Io> Core<I> {
    pub(super) fn connect_for(&mut self, probe: u32, to: SocketAddr) {
        let socket = self.sockets.insert(Socket::Probe(probe));
        self.outage.probes.insert(probe, socket);
        self.io.connect(token_of(socket), to);
    }

    pub(super) fn look_up_for(&mut self, probe: u32, question: Question) {
        let waiter = LOOKUP_WAITER + Waiter::from(probe);
        let any = matches!(question, Question::Any(_));
        let what = ProbeLookup::Itself { any };
        let name = match question {
            Question::Any(name) | Question::Name(name) => name,
            Question::Below(name) => self.outage.name_below(&name, probe),
        };
        match self.resolver.resolve_anew(&name, 80, waiter, self.now) {
            Lookup::Ready(result) => self.on_probe_resolved(probe, what, &result),
            Lookup::Pending => drop(self.outage.lookups.insert(probe, what)),
            Lookup::Busy => self.on_probed(probe, Probed::Failed),
        }
    }

    /// A probe of the breaker's ended.
    pub fn on_probed(&mut self, probe: u32, ended: Probed) {
        self.close_probe(probe);
        self.outage.breaker.handle_probe(probe, ended, self.now);
    }

    /// A lookup of the breaker's ended, if this waiter is one.
    pub fn is_probes_lookup(&mut self, waiter: Waiter, result: &Result<Answer, Failure>) -> bool {
        let Some(probe) = waiter.checked_sub(LOOKUP_WAITER) else {
            return false;
        };
        if let Some(what) = self.outage.lookups.remove(&(probe as u32)) {
            self.on_probe_resolved(probe as u32, what, result);
        }
        true
    }

    /// A host from the queue for a probe; `None` while its name is looked up. Lanes take turns, the
    /// last one first: its host is the least likely to have been asked before.
    pub(super) fn pick_host(&mut self, probe: u32, egress: Egress) -> Option<Picked> {
        let lanes = self.frontier.lanes_len();
        for _ in 0..lanes.min(PICKS_MAX) {
            let before = self.outage.picked.0 as usize;
            let lane = LaneId((before.min(lanes) + lanes - 1) as u32 % lanes as u32);
            self.outage.picked = lane;
            self.outage.passed += 1;
            if !self.frontier.is_askable(lane, self.now) {
                continue;
            }
            if self.frontier.proxy_of(lane).is_some() {
                continue;
            }
            let (host, port) = self.frontier.host_and_port(lane, &self.throttle);
            if egress == Egress::Names {
                let network = network_of(host);
                if self.outage.breaker.was_tried(egress, network) {
                    continue;
                }
                if self.resolver.is_fixed(host, port) {
                    continue;
                }
                let target = Target::Name(host.into());
                self.outage.passed = 0;
                return Some(Picked::Host { network, target });
            }
            let waiter = LOOKUP_WAITER + Waiter::from(probe);
            match self.resolver.resolve(host, port, waiter, self.now) {
                Lookup::Ready(Ok(answer)) => {
                    if let Some(picked) = self.address_of_picked(egress, port, &answer) {
                        self.outage.passed = 0;
                        return Some(picked);
                    }
                }
                Lookup::Ready(Err(_)) => {}
                Lookup::Pending => {
                    let what = ProbeLookup::Picked { egress, port };
                    self.outage.lookups.insert(probe, what);
                    self.outage.passed = 0;
                    return None;
                }
                Lookup::Busy => return Some(Picked::Failed),
            }
        }
        if self.outage.passed < lanes {
            return Some(Picked::Failed);
        }
        self.outage.passed = 0;
        Some(Picked::Exhausted)
    }

    /// The address of a host that was picked, where it has one that is reached by this egress and was
    /// not tried.
    fn address_of_picked(&self, egress: Egress, port: u16, answer: &Answer) -> Option<Picked> {
        let mut addresses = answer.addresses.iter();
        let address = addresses.find(|address| {
            Egress::of(**address) == egress
                && self.guard.check(**address).is_ok()
                && !self
                    .outage
                    .breaker
                    .was_tried(egress, Target::network(**address))
        })?;
        Some(Picked::Host {
            network: Target::network(*address),
            target: Target::Address(SocketAddr::new(*address, answer.port.unwrap_or(port))),
        })
    }

    fn on_probe_resolved(
        &mut self,
        probe: u32,
        what: ProbeLookup,
        result: &Result<Answer, Failure>,
    ) {
        let any = match what {
            ProbeLookup::Itself { any } => any,
            ProbeLookup::Picked { egress, port } => {
                let answer = result.as_ref().ok();
                let picked = answer.and_then(|a| self.address_of_picked(egress, port, a));
                let picked = picked.unwrap_or(Picked::Failed);
                self.outage.breaker.handle_picked(probe, picked);
                self.unfinished = true;
                return;
            }
        };
        let is_heard = any
            && !result
                .as_ref()
                .is_err_and(|failure| failure.code == "timeout");
        let ended = match is_heard || is_reply(result) {
            true => Probed::Answered,
            false => Probed::Failed,
        };
        self.on_probed(probe, ended);
    }

    pub(super) fn close_probe(&mut self, probe: u32) {
        self.outage.lookups.remove(&probe);
        if let Some(key) = self.outage.probes.remove(&probe) {
            self.sockets.remove(key);
            self.io.close(token_of(key), Close::Reset);
        }
    }
}
