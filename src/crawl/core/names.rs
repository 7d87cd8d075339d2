//! Names to addresses: lanes that wait for one, and the resolver's sockets.

use std::net::{IpAddr, SocketAddr};

use crate::base::ids::LaneId;
use crate::crawl::breaker::Egress;
use crate::crawl::core::Core;
use crate::crawl::network;
use crate::crawl::outage::{Probes, egress_of};
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{Addresses, Answer, Lookup};
use crate::frontier::job::Job;
use crate::io::Io;
use crate::throttle::engine::TicketId;
use crate::wire::url::CrawlUrl;

/// Result of looking up a lane's host.
pub enum Resolved {
    /// Its addresses.
    Found(Found),
    /// Its lane waits for the answer, or was offered again; the ticket is returned.
    Later,
}

/// Addresses that may be connected to.
#[derive(Clone, Debug)]
pub struct Found {
    pub addresses: Addresses,
    pub port: u16,
}

/// Actions of the resolver in one turn: a packet each, or the lanes that waited for a name.
const ACTIONS_PER_TURN: usize = 1024;

impl<I: Io> Core<I> {
    /// Looks up the host of a lane that was released. It holds no slot while it waits.
    pub fn resolve(&mut self, lane: LaneId, ticket: TicketId) -> Resolved {
        if !self.frontier.has_queued(lane) {
            // `next` will report that, and needs no address.
            return Resolved::Found(Found {
                addresses: Addresses::new(),
                port: 0,
            });
        }
        let (host, port) = self.frontier.host_and_port(lane);
        if self.outage.blocked_until(Egress::Names).is_some()
            && !self.network.names().knows(host, port, self.now)
        {
            self.park(lane, ticket, Egress::Names);
            return Resolved::Later;
        }
        match self.network.look_up(lane, host, port, self.now) {
            Lookup::Ready(Ok(answer)) => self.admit_addresses(lane, ticket, &answer, port),
            Lookup::Ready(Err(failure)) => {
                let is_hosts_fault = failure.is_unconnected();
                if is_hosts_fault && self.suspend_lookup(lane, ticket, &failure) {
                    return Resolved::Later;
                }
                if is_hosts_fault {
                    self.on_host_failed(lane, &failure);
                }
                // What is looked up is the proxy, if there is one.
                let failure = self.name_proxy(lane, failure);
                self.end_front(lane, ticket, failure);
                Resolved::Later
            }
            Lookup::Pending | Lookup::Busy => {
                self.throttle.cancel(ticket, self.now);
                Resolved::Later
            }
        }
    }

    /// The addresses of a host that may be connected to; the scope of the first joins the lane.
    fn admit_addresses(
        &mut self,
        lane: LaneId,
        ticket: TicketId,
        answer: &Answer,
        port: u16,
    ) -> Resolved {
        // The user named the proxy, so its address is allowed.
        let is_proxy = self.frontier.proxy_of(lane).is_some();
        let allowed = match is_proxy {
            true => {
                let checked = self
                    .network
                    .names()
                    .check_host(self.frontier.origin_host(lane));
                checked.map(|()| answer.addresses.clone())
            }
            false => self.network.names().allowed_of(answer),
        };
        let mut addresses = match allowed {
            Ok(addresses) => addresses,
            Err(failure) => {
                self.end_front(lane, ticket, failure);
                return Resolved::Later;
            }
        };
        let preferred = *addresses
            .first()
            .expect("an answer has at least one address");
        // If one address family does not work the other is used, unless only that one never did.
        let egress =
            |to: IpAddr| egress_of(is_proxy, SocketAddr::new(to, answer.port.unwrap_or(port)));
        let is_blocked = |to: &IpAddr| self.outage.blocked_until(egress(*to)).is_some();
        let mut first = preferred;
        if let Some(blocked) = addresses.iter().copied().find(is_blocked) {
            let has_worked = |to: &IpAddr| self.outage.breaker().has_answered(egress(*to));
            let is_known_good = has_worked(&blocked);
            addresses.retain(|to| !is_blocked(to) && (has_worked(to) || !is_known_good));
            match addresses.first() {
                Some(usable) => first = *usable,
                None => {
                    self.park(lane, ticket, egress(blocked));
                    return Resolved::Later;
                }
            }
        }
        if !is_proxy && self.requests.counts_at(first) {
            let host = self.frontier.origin_host(lane);
            if let Err(failure) = self.requests.check_public_at(host, first) {
                self.end_front(lane, ticket, failure);
                return Resolved::Later;
            }
        }
        if let Some(scope) = self.throttle.address_scope(first)
            && !self.throttle.lane_scopes(lane).contains(&scope)
        {
            // The address is one scope more: the lane is offered again under it.
            self.throttle.cancel(ticket, self.now);
            let old = self.throttle.joined_scopes(lane).iter().copied();
            let old = old.filter(|id| self.throttle.scope_name(*id).starts_with("ip/"));
            for stale in old.collect::<Vec<_>>() {
                self.throttle.remove_scope(lane, stale, self.now);
            }
            self.throttle.add_scope(lane, scope);
            self.offer_or_close(lane);
            return Resolved::Later;
        }
        Resolved::Found(Found {
            addresses,
            port: answer.port.unwrap_or(port),
        })
    }

    /// The front request of a lane ends because its host has no address to connect to.
    fn end_front(&mut self, lane: LaneId, ticket: TicketId, failure: Failure) {
        self.throttle.cancel(ticket, self.now);
        if let Some(job) = self.frontier.take_front(lane) {
            self.end_unconnected(&job, lane, failure);
        }
    }

    /// Checks that one of these requests at least may go to an address that is allowed.
    ///
    /// # Errors
    /// None may: the first, and why not.
    pub fn check_any_allowed(
        &self,
        jobs: impl Iterator<Item = Job>,
    ) -> Result<(), (CrawlUrl, Failure)> {
        let names = self.network.names();
        let mut first = None;
        for job in jobs {
            let host = job.url.host_str();
            // A proxy resolves the name itself, and its own address is allowed, as the user named it.
            let checked = match self.frontier.is_proxied(&job) {
                true => names.check_host(host),
                false => names.check_fixed(host, job.url.port()),
            };
            match checked {
                Err(failure) => {
                    first.get_or_insert((job.url, failure));
                }
                Ok(()) => return Ok(()),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Reports the lookups that ended to their lanes, and sends the resolver's queries.
    pub fn update_lookups(&mut self) {
        let mut steps = ACTIONS_PER_TURN;
        while let Some(resolved) = self.network.poll_resolved(&mut steps) {
            let network::Resolved {
                host,
                waiters,
                left,
                over,
                result,
            } = resolved;
            // The breaker judges its own lookups by their probes.
            if Probes::is_for_lanes(&waiters) {
                self.on_looked_up(&host, &result, left.unwrap_or(over));
            }
            for lane in waiters {
                if self.end_probe_lookup(lane, &result) {
                    continue;
                }
                let lane = LaneId(lane as u32);
                self.network.end_lookup(lane, left, over);
                self.offer_or_close(lane);
            }
            self.offer_unresolved();
        }
        self.wakeups.turn_again_if(steps == 0);
    }

    /// Offers the lanes again that the resolver had no room for.
    pub fn offer_unresolved(&mut self) {
        for lane in self.network.take_refused_lookups() {
            self.offer_or_close(lane);
        }
    }
}
