//! Names to addresses: lanes that wait for one, and the resolver's sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smallvec::{SmallVec, smallvec};

use super::flight::Socket;
use super::outage::{Outage, egress_of};
use crate::base::slab::Key;
use crate::crawl::breaker::Egress;
use crate::crawl::core::{Core, token_of};
use crate::fetch::failure::Failure;
use crate::fetch::resolver::{Action, Addresses, Answer, Lookup, SocketId, Transport};
use crate::io::{Close, Io};
use crate::throttle::engine::{LaneId, TicketId};

/// What came of looking a lane's host up.
pub enum Resolved {
    /// Where it is.
    Found(Found),
    /// Its lane waits for the answer, or was offered anew; the ticket is given back.
    Later,
}

/// Addresses that may be connected to.
#[derive(Clone, Debug)]
pub struct Found {
    pub addresses: Addresses,
    pub port: u16,
}

/// The addresses that a host has wherever it is asked for: itself where it is one, and this machine's own
/// where it is one of the names of that (RFC 6761, section 6.3).
fn known_addresses(host: &str) -> SmallVec<[IpAddr; 2]> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse() {
        return smallvec![address];
    }
    let name = host.trim_end_matches('.');
    let is_below = |domain: &str| {
        let rest = name.len().checked_sub(domain.len());
        let (rest, end) = match rest.and_then(|at| name.split_at_checked(at)) {
            Some(parts) => parts,
            None => return false,
        };
        end.eq_ignore_ascii_case(domain) && (rest.is_empty() || rest.ends_with('.'))
    };
    match LOCAL_NAMES.into_iter().any(is_below) {
        true => smallvec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        false => SmallVec::new(),
    }
}

/// Names of this machine: the reserved one, and those that common files of hosts give it.
const LOCAL_NAMES: [&str; 6] = [
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
];

/// What the resolver wants done in one turn: a packet each, or the lanes that waited for a name.
const ACTIONS_PER_TURN: usize = 1024;

impl<I: Io> Core<I> {
    /// Looks up the host of a lane that has been released. No place is held while it waits.
    pub fn resolve(&mut self, lane: LaneId, ticket: TicketId) -> Resolved {
        if !self.frontier.has_queued(lane) {
            // `next` will say so, and needs no address.
            return Resolved::Found(Found {
                addresses: Addresses::new(),
                port: 0,
            });
        }
        let (host, port) = self.frontier.host_and_port(lane, &self.throttle);
        if self.outage.blocked_until(Egress::Names).is_some()
            && !self.resolver.knows(host, port, self.now)
        {
            self.park(lane, ticket, Egress::Names);
            return Resolved::Later;
        }
        match self
            .resolver
            .resolve(host, port, u64::from(lane.0), self.now)
        {
            Lookup::Ready(Ok(answer)) => self.admit_addresses(lane, ticket, &answer, port),
            Lookup::Ready(Err(failure)) => {
                let is_hosts_fault = failure.is_unconnected();
                if is_hosts_fault && self.suspects_names(lane, ticket, &failure) {
                    return Resolved::Later;
                }
                self.end_front(lane, ticket, failure, is_hosts_fault);
                Resolved::Later
            }
            Lookup::Pending => {
                self.throttle.cancel(ticket, self.now);
                self.resolving += 1;
                // Not the turn's moment: the lookup that it joins may go on in this very turn.
                self.asked.insert(lane, self.io.now());
                Resolved::Later
            }
            Lookup::Busy => {
                self.throttle.cancel(ticket, self.now);
                self.unresolved.push_back(lane);
                Resolved::Later
            }
        }
    }

    /// Of the addresses of a host those that may be connected to; the first one's scope joins the lane.
    fn admit_addresses(
        &mut self,
        lane: LaneId,
        ticket: TicketId,
        answer: &Answer,
        port: u16,
    ) -> Resolved {
        let mut refused = None;
        let mut addresses = Addresses::new();
        // Whoever names a proxy wants it. What lies behind it is not seen from here, unless the URL says
        // it itself.
        let is_proxy = self.frontier.proxy_of(lane).is_some();
        if is_proxy {
            let known = known_addresses(self.frontier.origin_host(lane, &self.throttle));
            let mut verdicts = known.iter().map(|address| self.guard.check(*address));
            let first = verdicts.next().unwrap_or(Ok(()));
            // One of them that may be asked is enough, as it is without a proxy.
            if let Err(failure) = first
                && !verdicts.any(|verdict| verdict.is_ok())
            {
                self.end_front(lane, ticket, failure, false);
                return Resolved::Later;
            }
        }
        for address in &answer.addresses {
            if is_proxy {
                addresses.push(*address);
                continue;
            }
            match self.guard.check(*address) {
                Ok(()) => addresses.push(*address),
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
        let Some(preferred) = addresses.first().copied() else {
            let failure = refused.expect("an answer has at least one address");
            self.end_front(lane, ticket, failure, false);
            return Resolved::Later;
        };
        // Where one address family does not work the other is used, unless that alone never did.
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
        if !is_proxy && self.public_hosts.counts_at(first) {
            let host = self.frontier.origin_host(lane, &self.throttle).to_owned();
            if let Err(failure) = self.may_ask_at(&host, first) {
                self.end_front(lane, ticket, failure, false);
                return Resolved::Later;
            }
        }
        if let Some(scope) = self.throttle.address_scope(first)
            && !self.throttle.lane_scopes(lane).contains(&scope)
        {
            // The address is one scope more that must allow: the lane is offered again under it.
            self.throttle.cancel(ticket, self.now);
            let old = self.throttle.joined_scopes(lane).iter().copied();
            let old = old.filter(|id| self.throttle.scope_name(*id).starts_with("ip/"));
            for stale in old.collect::<Vec<_>>() {
                self.throttle.remove_scope(lane, stale, self.now);
            }
            self.throttle.add_scope(lane, scope);
            self.frontier
                .offer_or_close(lane, &mut self.throttle, self.now);
            return Resolved::Later;
        }
        Resolved::Found(Found {
            addresses,
            port: answer.port.unwrap_or(port),
        })
    }

    /// The front request of a lane ends because its host has no address to connect to.
    fn end_front(
        &mut self,
        lane: LaneId,
        ticket: TicketId,
        failure: Failure,
        is_hosts_fault: bool,
    ) {
        self.throttle.cancel(ticket, self.now);
        if is_hosts_fault {
            self.on_host_failed(lane, &failure);
        }
        if let Some(job) = self.frontier.take_front(lane, &self.throttle) {
            self.end_unconnected(&job, lane, failure);
        }
    }

    /// Does what the resolver wants done.
    pub fn resolve_on(&mut self) {
        for _ in 0..ACTIONS_PER_TURN {
            let Some(action) = self.resolver.poll() else {
                return;
            };
            match action {
                Action::Open {
                    socket,
                    server,
                    transport,
                } => {
                    let key = self.sockets.insert(Socket::Dns(socket));
                    self.dns_sockets.insert(socket, key);
                    match transport {
                        Transport::Udp => self.io.open_datagram(token_of(key), server),
                        Transport::Tcp => self.io.connect(token_of(key), server),
                    }
                }
                Action::Send { socket, bytes } => {
                    if let Some(key) = self.dns_sockets.get(&socket) {
                        self.io.send(token_of(*key), &bytes, true);
                    }
                }
                Action::Close { socket } => {
                    if let Some(key) = self.dns_sockets.remove(&socket) {
                        self.sockets.remove(key);
                        self.io.close(token_of(key), Close::Finish);
                    }
                }
                Action::Resolved {
                    waiters,
                    left,
                    over,
                    host,
                    result,
                } => {
                    // The breaker judges its own lookups by their probes.
                    if Outage::is_for_lanes(&waiters) {
                        self.on_looked_up(&host, &result, left.unwrap_or(over));
                    }
                    for lane in waiters {
                        if self.is_probes_lookup(lane, &result) {
                            continue;
                        }
                        self.resolving -= 1;
                        let lane = LaneId(lane as u32);
                        if let Some(asked) = self.asked.remove(&lane) {
                            // The lane's next attempt counts the lookup as its own, from the query's
                            // departure, or as much of it as there still was to wait for.
                            let from = left.map_or(asked, |left| left.max(asked));
                            let took = over.saturating_since(from);
                            if !took.is_zero() {
                                self.looked_up.insert(lane, took);
                            }
                        }
                        self.frontier
                            .offer_or_close(lane, &mut self.throttle, self.now);
                    }
                    self.offer_unresolved();
                }
            }
        }
        self.unfinished = true;
    }

    /// Lanes that the resolver had no room for ask again.
    pub fn offer_unresolved(&mut self) {
        for lane in std::mem::take(&mut self.unresolved) {
            self.frontier
                .offer_or_close(lane, &mut self.throttle, self.now);
        }
    }

    /// A socket of the resolver's has ended or failed.
    pub fn on_dns_ended(&mut self, key: Key, socket: SocketId) {
        self.sockets.remove(key);
        self.dns_sockets.remove(&socket);
        self.io.close(token_of(key), Close::Reset);
        self.resolver.handle_ended(socket, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::url::CrawlUrl;

    #[test]
    fn a_host_is_known_as_this_machine_in_every_form_that_names_it() {
        let local = |url: &str| {
            let url = CrawlUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let known = known_addresses(url.host_str());
            !known.is_empty() && known.iter().all(|a| !crate::base::address::is_global(*a))
        };
        for url in [
            "http://localhost/",
            "http://LOCALHOST./",
            "http://localhost:8080/",
            "http://a.b.localhost/",
            "http://a.localhost./",
            "http://localhost.localdomain/",
            "http://ip6-localhost/",
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://0/",
            "http://%31%32%37.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
        ] {
            assert!(local(url), "{url}");
        }
        for url in [
            "http://localhost.example/",
            "http://notlocalhost/",
            "http://example.com/",
            "http://8.8.8.8/",
        ] {
            assert!(!local(url), "{url}");
        }
    }
}
