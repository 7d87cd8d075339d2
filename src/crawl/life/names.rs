//! Names to addresses: lanes that wait for one, and the resolver's sockets.

use std::net::IpAddr;

use super::flight::Socket;
use crate::base::slab::Key;
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

/// The address that a host is, where it is no name.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

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
        match self
            .resolver
            .resolve(host, port, u64::from(lane.0), self.now)
        {
            Lookup::Ready(Ok(answer)) => self.admit_addresses(lane, ticket, &answer, port),
            Lookup::Ready(Err(failure)) => {
                self.end_front(lane, ticket, failure, true);
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
        let literal = match is_proxy {
            true => literal(self.frontier.origin_host(lane, &self.throttle)),
            false => None,
        };
        if let Some(address) = literal
            && let Err(failure) = self.guard.check(address)
        {
            self.end_front(lane, ticket, failure, false);
            return Resolved::Later;
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
        let Some(first) = addresses.first() else {
            let failure = refused.expect("an answer has at least one address");
            self.end_front(lane, ticket, failure, false);
            return Resolved::Later;
        };
        if let Some(scope) = self.throttle.address_scope(*first)
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
            self.frontier.go_on(lane, &mut self.throttle, self.now);
            return Resolved::Later;
        }
        Resolved::Found(Found {
            addresses,
            port: answer.port.unwrap_or(port),
        })
    }

    /// The front request of a lane ends because its host has no address to connect to.
    fn end_front(&mut self, lane: LaneId, ticket: TicketId, failure: Failure, by_dns: bool) {
        self.throttle.cancel(ticket, self.now);
        if by_dns {
            self.frontier.host_failed(lane, self.now);
        }
        if let Some(job) = self.frontier.take_front(lane, &self.throttle) {
            self.end_unconnected(&job, lane, failure);
        }
    }

    /// Does what the resolver wants done.
    pub fn resolve_on(&mut self) {
        while let Some(action) = self.resolver.poll() {
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
                    ..
                } => {
                    for lane in waiters {
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
                        self.frontier.go_on(lane, &mut self.throttle, self.now);
                    }
                    self.offer_unresolved();
                }
            }
        }
    }

    /// Lanes that the resolver had no room for ask again.
    pub fn offer_unresolved(&mut self) {
        for lane in std::mem::take(&mut self.unresolved) {
            self.frontier.go_on(lane, &mut self.throttle, self.now);
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
