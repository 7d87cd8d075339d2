//! Executes the breaker's probes: connections and lookups.

use std::net::SocketAddr;

use crate::crawl::breaker::{Egress, Picked, Probed, Question, Target};
use crate::crawl::core::Core;
use crate::crawl::outage::{LOOKUP_WAITER, ProbeLookup, is_reply};
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{Answer, Lookup, Waiter};
use crate::io::Io;

/// Lanes that are checked for a host to be picked, in about 1 ms.
const PICKS_MAX: usize = 8192;

impl<I: Io> Core<I> {
    pub(super) fn connect_for(&mut self, probe: u32, to: SocketAddr) {
        let socket = self.network.open_probe(probe, to);
        self.outage.probes().add_connection(probe, socket);
    }

    pub(super) fn look_up_for(&mut self, probe: u32, question: Question) {
        let waiter = LOOKUP_WAITER + Waiter::from(probe);
        let any = matches!(question, Question::Any(_));
        let what = ProbeLookup::Itself { any };
        let name = match question {
            Question::Any(name) | Question::Name(name) => name,
            Question::Below(name) => self.outage.probes().name_below(&name, probe),
        };
        match self.network.look_up_anew(&name, 80, waiter, self.now) {
            Lookup::Ready(result) => self.on_probe_resolved(probe, what, &result),
            Lookup::Pending => self.outage.probes().add_lookup(probe, what),
            Lookup::Busy => self.on_probed(probe, Probed::Failed),
        }
    }

    /// A probe of the breaker has ended.
    pub fn on_probed(&mut self, probe: u32, ended: Probed) {
        self.close_probe(probe);
        self.outage.handle_probe(probe, ended, self.now);
    }

    /// Ends a probe's lookup; returns whether this waiter is a probe.
    pub fn end_probe_lookup(&mut self, waiter: Waiter, result: &Result<Answer, Failure>) -> bool {
        let Some(probe) = waiter.checked_sub(LOOKUP_WAITER) else {
            return false;
        };
        if let Some(what) = self.outage.probes().end_lookup(probe as u32) {
            self.on_probe_resolved(probe as u32, what, result);
        }
        true
    }

    /// A host from the queue for a probe; `None` while its name is looked up.
    pub(super) fn pick_host(&mut self, probe: u32, egress: Egress) -> Option<Picked> {
        let lanes = self.frontier.lanes_len();
        for _ in 0..lanes.min(PICKS_MAX) {
            let lane = self.outage.probes().next_lane(lanes);
            if !self.frontier.is_reachable(lane, self.now) {
                continue;
            }
            if self.frontier.proxy_of(lane).is_some() {
                continue;
            }
            let (host, port) = self.frontier.host_and_port(lane);
            if egress == Egress::Names {
                let network = self.outage.network_of(host);
                if self.outage.breaker().was_tried(egress, network) {
                    continue;
                }
                if self.network.names().is_fixed(host, port) {
                    continue;
                }
                let target = Target::Name(host.into());
                self.outage.probes().restart_count();
                return Some(Picked::Host { network, target });
            }
            let waiter = LOOKUP_WAITER + Waiter::from(probe);
            match self.network.look_up_for_probe(host, port, waiter, self.now) {
                Lookup::Ready(Ok(answer)) => {
                    if let Some(picked) = self.address_of_picked(egress, port, &answer) {
                        self.outage.probes().restart_count();
                        return Some(picked);
                    }
                }
                Lookup::Ready(Err(_)) => {}
                Lookup::Pending => {
                    let what = ProbeLookup::Picked { egress, port };
                    self.outage.probes().add_lookup(probe, what);
                    self.outage.probes().restart_count();
                    return None;
                }
                Lookup::Busy => return Some(Picked::Failed),
            }
        }
        if self.outage.probes().passed() < lanes {
            return Some(Picked::Failed);
        }
        self.outage.probes().restart_count();
        Some(Picked::Exhausted)
    }

    /// The address of a host that was picked, where it has one that is reached by this egress and was
    /// not tried.
    fn address_of_picked(&self, egress: Egress, port: u16, answer: &Answer) -> Option<Picked> {
        let mut addresses = answer.addresses.iter();
        let address = addresses.find(|address| {
            Egress::of(**address) == egress
                && self.network.names().check(**address).is_ok()
                && !self
                    .outage
                    .breaker()
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
                self.outage.handle_picked(probe, picked);
                self.wakeups.turn_again();
                return;
            }
        };
        let has_response = any
            && !result
                .as_ref()
                .is_err_and(|failure| failure.name == "timeout");
        let ended = match has_response || is_reply(result) {
            true => Probed::Answered,
            false => Probed::Failed,
        };
        self.on_probed(probe, ended);
    }

    pub(super) fn close_probe(&mut self, probe: u32) {
        if let Some(key) = self.outage.probes().end(probe) {
            self.network.close_probe(key);
        }
    }
}
