//! The life of a query: it leaves the line, is sent, answered or missed, and settled.

use std::time::Duration;

use super::answer::Fault;
use super::lookup::Outcome;
use super::query::{Flight, Next, Query, State};
use super::sockets::{Lost, Sent, SocketId, Vacated};
use super::{Action, QueryKey, Resolver, Timer, Transport};
use crate::base::time::Instant;
use crate::wire::dns::{Reply, SentQuery, Spelling, Stray, Trouble, frame};

impl Resolver {
    /// Starts queries from the line while there is room.
    pub(super) fn start_queries(&mut self, now: Instant) {
        let has_room = |resolver: &Self| resolver.in_flight < resolver.settings.queries_max.max(1);
        while let Some(key) = match self.urgent.pop_front() {
            None if has_room(self) => self.line.pop_front(),
            urgent => urgent,
        } {
            self.in_flight += 1;
            let order = self.servers.order(&mut self.rng, now);
            self.query(key).begin(order);
            self.query_next(key, now, now);
        }
    }

    /// Asks the next server. If none can be reached, it waits until `until`, when the last try
    /// ends.
    fn query_next(&mut self, key: QueryKey, until: Instant, now: Instant) {
        let attempts = self.settings.attempts;
        let query = self.query(key);
        match query.next(attempts) {
            Next::AskServer { server } => self.send_query(key, server, Transport::Udp, now),
            Next::Pause => {
                query.state = State::Pausing;
                self.timers.insert((until, Timer::Query(key)));
            }
            Next::GiveUp(fault) => self.settle(key, Outcome::Failed(fault), now),
        }
    }

    /// Sends the query to a server.
    fn send_query(&mut self, key: QueryKey, server: usize, transport: Transport, now: Instant) {
        let (socket, new) = self.sockets.pick(server, transport, &mut self.rng, now);
        if new {
            self.actions.push_back(Action::Open {
                socket,
                server: self.servers.address(server),
                transport,
            });
        }
        let random = std::array::from_fn(|_| self.rng.next_u64());
        let id = self.sockets.assign_id(socket, key, &mut self.rng);
        let time = match transport {
            Transport::Udp => self.settings.try_timeout,
            Transport::Tcp => self.settings.try_timeout * 2,
        };

        let query = self.query(key);
        let sent_query = SentQuery {
            id,
            kind: query.kind,
            spelling: match transport {
                // TCP replies cannot be forged, and a server that folds the case may do so there
                // too.
                Transport::Tcp => None,
                Transport::Udp => (!query.plain).then_some(Spelling(random)),
            },
        };
        let message = sent_query.write(&query.chain, query.edns);
        let bytes = match transport {
            Transport::Udp => message,
            Transport::Tcp => frame(&message),
        };
        let sent = self.sockets.send(socket, bytes, now);
        // A query that waits behind another one is asked again when that one is over, which has a
        // timer.
        let until = (sent != Sent::Held).then_some(now + time);
        self.query(key).state = State::InFlight(Flight {
            server,
            transport,
            socket,
            sent_query,
            until,
        });
        if let Some(until) = until {
            self.timers.insert((until, Timer::Query(key)));
            self.stats.queries += 1;
        }
        if let Sent::Now(send) = sent {
            self.actions.push_back(send);
        }
        self.suspect(socket, now);
    }

    /// Starts a timer for a connection that may have given its only reply.
    fn suspect(&mut self, socket: SocketId, now: Instant) {
        if let Some(at) = self.sockets.suspect(socket, now) {
            self.timers.insert((at, Timer::SecondReply(socket)));
        }
    }

    /// A message arrived: finds its query and handles the reply.
    pub(super) fn read(&mut self, socket: SocketId, bytes: &[u8], arrived: Instant, now: Instant) {
        let waiting = match bytes {
            [high, low, ..] => {
                let id = u16::from_be_bytes([*high, *low]);
                self.sockets.waiting(socket, id)
            }
            _ => None,
        };
        let Some(key) = waiting else {
            self.stats.strays += 1;
            return;
        };
        let query = self.query(key);
        let flight = query
            .flight()
            .expect("a query that waits on a socket is in flight");
        let (server, transport) = (flight.server, flight.transport);
        match flight.sent_query.read(&query.chain, bytes) {
            Ok(reply) => {
                self.resolving(key.lookup).record_event(arrived);
                self.servers.answered(server);
                self.sockets.answered(socket);
                let until = self.take_down(key, now);
                self.suspect(socket, now);
                self.on_reply(key, reply, server, transport, until, now);
            }
            // Most likely a server that does not preserve the case, and not one that guessed id and
            // port. TCP decides, since it cannot be forged from afar. If TCP fails, the case is
            // ignored.
            Err(Stray::Case) => {
                self.stats.strays += 1;
                self.query(key).plain = true;
                self.take_down(key, now);
                self.query_by_tcp(key, server, now);
            }
            Err(Stray::NoReply | Stray::Id | Stray::Question) => self.stats.strays += 1,
        }
    }

    fn on_reply(
        &mut self,
        key: QueryKey,
        reply: Reply,
        server: usize,
        transport: Transport,
        until: Instant,
        now: Instant,
    ) {
        let settings = &self.settings;
        let negative = |ttl: Option<u32>| {
            let seconds = ttl.map_or(NEGATIVE_TTL, |ttl| Duration::from_secs(ttl.into()));
            now + seconds.max(NEGATIVE_TTL_MIN).min(settings.negative_ttl_max)
        };
        let outcome = match reply {
            Reply::Addresses { addresses, ttl } => {
                let ttl = Duration::from_secs(ttl.into());
                Outcome::Found {
                    addresses,
                    expires: now + ttl.max(settings.ttl_min).min(settings.ttl_max),
                }
            }
            Reply::NoName { ttl } => Outcome::Absent {
                fault: Fault::NxDomain,
                expires: negative(ttl),
            },
            Reply::NoData { ttl } => Outcome::Absent {
                fault: Fault::NoData,
                expires: negative(ttl),
            },
            Reply::Endless => Outcome::Failed(Fault::CnameLoop),
            Reply::Alias(chain) => {
                self.query(key).follow_alias(chain);
                return self.query_next(key, until, now);
            }
            Reply::Truncated if transport == Transport::Udp => {
                return self.query_by_tcp(key, server, now);
            }
            Reply::Failed(Trouble::FormErr | Trouble::NotImplemented)
                if std::mem::take(&mut self.query(key).edns) =>
            {
                return self.send_query(key, server, transport, now);
            }
            Reply::Failed(trouble) => {
                self.query(key).rule_out(server, fault_of(trouble));
                return self.query_next(key, until, now);
            }
            Reply::Truncated | Reply::Malformed => {
                self.query(key).rule_out(server, Fault::Malformed);
                return self.query_next(key, until, now);
            }
        };
        self.settle(key, outcome, now);
    }

    fn query_by_tcp(&mut self, key: QueryKey, server: usize, now: Instant) {
        self.stats.tcp_fallbacks += 1;
        self.send_query(key, server, Transport::Tcp, now);
    }

    /// A try has timed out, or a pause is over.
    pub(super) fn on_try_over(&mut self, key: QueryKey, now: Instant) {
        if let Some(flight) = self.query(key).flight() {
            let server = flight.server;
            self.resolving(key.lookup).record_event(now);
            self.stats.timeouts += 1;
            self.servers.missed(server, now);
            self.take_down(key, now);
            self.query(key).missed(Fault::Timeout);
        }
        self.query_next(key, now, now);
    }

    /// The socket on which a query was waiting is gone.
    pub(super) fn on_lost(&mut self, key: QueryKey, lost: &Lost, now: Instant) {
        let flight = self.query(key).flight();
        let is_unsent = flight.is_some_and(|flight| flight.until.is_none());
        let until = self.take_down(key, now);
        self.resolving(key.lookup).record_event(now);
        let query = self.query(key);
        // No try is counted for a query that was not sent, nor if the connection had answered
        // others, because then the server works, however often it closes connections. If it ended
        // during several queries without an answer, the first such end counts no try either.
        let again = is_unsent
            || lost.had_answered
            || lost.was_shared && std::mem::take(&mut query.may_reconnect);
        if again {
            self.send_query(key, lost.server, Transport::Tcp, now);
            return;
        }
        query.missed(Fault::Unreachable);
        self.servers.missed(lost.server, now);
        self.query_next(key, until, now);
    }

    /// Removes a query from its socket and its timer; returns when its try would have ended, which
    /// is now if it was not sent.
    fn take_down(&mut self, key: QueryKey, now: Instant) -> Instant {
        let flight = self.query(key).flight();
        let (socket, id, until) = flight
            .map(|flight| (flight.socket, flight.sent_query.id, flight.until))
            .expect("the query is in flight");
        if let Some(until) = until {
            self.timers.remove(&(until, Timer::Query(key)));
        }
        let vacated = self.sockets.leave(socket, id, now);
        self.on_vacated(socket, vacated, now);
        until.unwrap_or(now)
    }

    pub(super) fn on_vacated(&mut self, socket: SocketId, vacated: Vacated, now: Instant) {
        match vacated {
            Vacated::Nothing => {}
            Vacated::Watch(until) => {
                self.timers.insert((until, Timer::Idle(socket)));
            }
            Vacated::Close => self.actions.push_back(Action::Close { socket }),
            Vacated::Replace(lost) => {
                self.actions.push_back(Action::Close { socket });
                for key in &lost.waiting {
                    self.on_lost(*key, &lost, now);
                }
            }
        }
    }

    fn query(&mut self, key: QueryKey) -> &mut Query {
        self.resolving(key.lookup)
            .query(key.kind)
            .expect("a query exists until it is settled")
    }
}

fn fault_of(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::ServFail => Fault::ServFail,
        Trouble::Refused => Fault::Refused,
        Trouble::Referral => Fault::Referral,
        Trouble::FormErr => Fault::Code(1),
        Trouble::NotImplemented => Fault::Code(4),
        Trouble::Other(code) => Fault::Code(code),
    }
}

/// How long the absence of a name is cached without an SOA record (RFC 2308 §5 would not cache it).
const NEGATIVE_TTL: Duration = Duration::from_secs(60);

/// Minimum time that the absence of a name is cached: all URLs of a host are looked up at about the
/// same time.
const NEGATIVE_TTL_MIN: Duration = Duration::from_secs(30);
