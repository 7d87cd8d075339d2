//! The course of a question: it leaves the line, is sent, answered or missed, and settled.

use std::time::Duration;

use super::answer::Fault;
use super::lookup::Outcome;
use super::query::{Flight, Next, Query, State};
use super::sockets::{Lost, Sent, SocketId, Vacated};
use super::{Action, QueryKey, Resolver, Timer, Transport};
use crate::base::time::Instant;
use crate::wire::dns::{Asked, Reply, Spelling, Stray, Trouble, frame};

impl Resolver {
    /// Lets questions leave the line while there is room for them.
    pub(super) fn leave_line(&mut self, now: Instant) {
        let has_room = |resolver: &Self| resolver.in_flight < resolver.settings.queries_max.max(1);
        while let Some(key) = match self.urgent.pop_front() {
            None if has_room(self) => self.line.pop_front(),
            urgent => urgent,
        } {
            self.in_flight += 1;
            let order = self.servers.order(&mut self.rng, now);
            self.query(key).begin(order);
            self.ask_next(key, now, now);
        }
    }

    /// Asks the next server. If none can be reached, that is after `until`, when the last try ends.
    fn ask_next(&mut self, key: QueryKey, until: Instant, now: Instant) {
        let attempts = self.settings.attempts;
        let query = self.query(key);
        match query.next(attempts) {
            Next::Ask { server } => self.ask(key, server, Transport::Udp, now),
            Next::Pause => {
                query.state = State::Pausing;
                self.timers.insert((until, Timer::Query(key)));
            }
            Next::GiveUp(fault) => self.settle(key, Outcome::Failed(fault), now),
        }
    }

    /// Puts the question to a server.
    fn ask(&mut self, key: QueryKey, server: usize, transport: Transport, now: Instant) {
        let (socket, new) = self.sockets.pick(server, transport, &mut self.rng, now);
        if new {
            self.actions.push_back(Action::Open {
                socket,
                server: self.servers.address(server),
                transport,
            });
        }
        let random = std::array::from_fn(|_| self.rng.next_u64());
        let id = self.sockets.enlist(socket, key, &mut self.rng);
        let time = match transport {
            Transport::Udp => self.settings.try_timeout,
            Transport::Tcp => self.settings.try_timeout * 2,
        };

        let query = self.query(key);
        let asked = Asked {
            id,
            kind: query.kind,
            spelling: match transport {
                // Nobody forges a TCP connection, and what folds the case may do it there too.
                Transport::Tcp => None,
                Transport::Udp => (!query.plain).then_some(Spelling(random)),
            },
        };
        let message = asked.write(&query.chain, query.edns);
        let bytes = match transport {
            Transport::Udp => message,
            Transport::Tcp => frame(&message),
        };
        let sent = self.sockets.send(socket, bytes, now);
        // What waits behind another query asks anew when that one is over, which has a timer.
        let until = (sent != Sent::Behind).then_some(now + time);
        self.query(key).state = State::Flying(Flight {
            server,
            transport,
            socket,
            asked,
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

    /// Sees to it that a connection that may have given its only reply is looked at.
    fn suspect(&mut self, socket: SocketId, now: Instant) {
        if let Some(at) = self.sockets.suspect(socket, now) {
            self.timers.insert((at, Timer::SecondReply(socket)));
        }
    }

    /// A message arrived: whose reply is it, and what does it say?
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
        let flight = query.flight().expect("who waits on a socket is in flight");
        let (server, transport) = (flight.server, flight.transport);
        match flight.asked.read(&query.chain, bytes) {
            Ok(reply) => {
                self.resolving(key.lookup).hear(arrived);
                self.servers.answered(server);
                self.sockets.answered(socket);
                let until = self.land(key, now);
                self.suspect(socket, now);
                self.on_reply(key, reply, server, transport, until, now);
            }
            // More likely a server that does not keep the case than one who guessed id and port.
            // TCP tells: it cannot be forged from afar. Without it, the case is given up.
            Err(Stray::Case) => {
                self.stats.strays += 1;
                self.query(key).plain = true;
                self.land(key, now);
                self.ask_by_tcp(key, server, now);
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
                self.query(key).ask_on(chain);
                return self.ask_next(key, until, now);
            }
            Reply::Truncated if transport == Transport::Udp => {
                return self.ask_by_tcp(key, server, now);
            }
            Reply::Failed(Trouble::FormErr | Trouble::NotImplemented)
                if std::mem::take(&mut self.query(key).edns) =>
            {
                return self.ask(key, server, transport, now);
            }
            Reply::Failed(trouble) => {
                self.query(key).rule_out(server, fault_of(trouble));
                return self.ask_next(key, until, now);
            }
            Reply::Truncated | Reply::Malformed => {
                self.query(key).rule_out(server, Fault::Malformed);
                return self.ask_next(key, until, now);
            }
        };
        self.settle(key, outcome, now);
    }

    fn ask_by_tcp(&mut self, key: QueryKey, server: usize, now: Instant) {
        self.stats.tcp_fallbacks += 1;
        self.ask(key, server, Transport::Tcp, now);
    }

    /// A try has had its time, or a pause is over.
    pub(super) fn on_try_over(&mut self, key: QueryKey, now: Instant) {
        if let Some(flight) = self.query(key).flight() {
            let server = flight.server;
            self.resolving(key.lookup).hear(now);
            self.stats.timeouts += 1;
            self.servers.missed(server, now);
            self.land(key, now);
            self.query(key).missed(Fault::Timeout);
        }
        self.ask_next(key, now, now);
    }

    /// The socket on which a question was waiting is gone.
    pub(super) fn on_lost(&mut self, key: QueryKey, lost: &Lost, now: Instant) {
        let flight = self.query(key).flight();
        let is_unsent = flight.is_some_and(|flight| flight.until.is_none());
        let until = self.land(key, now);
        self.resolving(key.lookup).hear(now);
        let query = self.query(key);
        // What was not sent has cost nothing. A connection that served others has shown that the server is
        // there, however often it ends; one that ended under several queries without an answer has done so
        // once.
        let again = is_unsent
            || lost.outlived
            || lost.was_shared && std::mem::take(&mut query.may_reconnect);
        if again {
            self.ask(key, lost.server, Transport::Tcp, now);
            return;
        }
        query.missed(Fault::Unreachable);
        self.servers.missed(lost.server, now);
        self.ask_next(key, until, now);
    }

    /// Takes a question out of its socket and off the clock; gives when its try would have ended, which
    /// is now if it was not sent.
    fn land(&mut self, key: QueryKey, now: Instant) -> Instant {
        let flight = self.query(key).flight();
        let (socket, id, until) = flight
            .map(|flight| (flight.socket, flight.asked.id, flight.until))
            .expect("only what is in flight lands");
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
            .expect("a question lives until it is settled")
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

/// How long the absence of a name is believed where no SOA says it (RFC 2308 §5 would have none).
const NEGATIVE_TTL: Duration = Duration::from_secs(60);

/// The least time the absence of a name is believed: all URLs of a host ask at about one time.
const NEGATIVE_TTL_MIN: Duration = Duration::from_secs(30);
