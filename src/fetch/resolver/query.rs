//! One question on its way: which server has it, how, until when, and who is asked next.

use std::net::SocketAddr;

use smallvec::SmallVec;

use super::Transport;
use super::answer::Fault;
use super::sockets::SocketId;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::wire::dns::{Asked, Chain, Kind, Name};

/// The addresses of one family of one name, being asked for.
///
/// ```text
///             ┌── the try is over: the next server, or an alias to ask on for ──┐
///             v                                                                 │
/// Queued ──> Flying by UDP ── truncated, or not in our case ──> Flying by TCP ──┤
///             ^  │                                                              │
///             │  └───────────────────── unreachable at the end of a round ──────┤
///             └──────────────────────── Pausing <───────────────────────────────┘
/// ```
pub(super) struct Query {
    pub(super) kind: Kind,
    pub(super) chain: Chain,
    pub(super) state: State,
    /// Servers in the order to ask them.
    order: ServerOrder,
    /// Tries begun for the chain's present name.
    tries: usize,
    /// Servers that have said that they give no answer, as bits.
    ruled_out: u32,
    /// Whether the server may know EDNS.
    pub(super) edns: bool,
    /// Whether to send the name in lower case: a reply came in the wrong one.
    pub(super) plain: bool,
    /// Whether a connection that ended under several queries may be replaced without costing a try.
    pub(super) may_reconnect: bool,
    /// What went wrong last.
    fault: Fault,
}

/// Where a query is.
pub(super) enum State {
    /// In line: too many are in flight.
    Queued,
    /// A server has it, or is to have it next.
    Flying(Flight),
    /// No server can be reached; the next round begins when this one's time is over.
    Pausing,
}

/// A question that a server has, or that waits behind another one on a connection.
pub(super) struct Flight {
    pub(super) server: usize,
    pub(super) transport: Transport,
    pub(super) socket: SocketId,
    pub(super) asked: Asked,
    /// When the server has had its time; `None` while the question is not sent.
    pub(super) until: Option<Instant>,
}

/// What to do when a try is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Ask {
        server: usize,
    },
    /// Every server was tried and none could be reached: not at once again.
    Pause,
    GiveUp(Fault),
}

impl Query {
    pub(super) fn new(name: Name, kind: Kind) -> Self {
        Query {
            kind,
            chain: Chain::new(name),
            state: State::Queued,
            order: ServerOrder::new(),
            tries: 0,
            ruled_out: 0,
            edns: true,
            plain: false,
            may_reconnect: true,
            fault: Fault::NoServers,
        }
    }

    /// Fixes the order of the servers; called when the query leaves the line.
    pub(super) fn begin(&mut self, order: ServerOrder) {
        self.order = order;
    }

    /// The server to ask now.
    pub(super) fn next(&mut self, attempts: u32) -> Next {
        let tries_max = self.order.len() * attempts.max(1) as usize;
        while self.tries < tries_max {
            let begins_round = self.tries > 0 && self.tries.is_multiple_of(self.order.len());
            if begins_round && self.fault == Fault::Unreachable {
                // Said once: after the pause the round begins.
                self.fault = Fault::Timeout;
                return Next::Pause;
            }
            let server = usize::from(self.order[self.tries % self.order.len()]);
            self.tries += 1;
            if self.ruled_out >> server & 1 == 0 {
                return Next::Ask { server };
            }
        }
        Next::GiveUp(self.fault)
    }

    /// The try brought nothing; the server may be asked again.
    pub(super) fn missed(&mut self, fault: Fault) {
        self.fault = fault;
    }

    /// The server has answered, and that is no answer: it is not asked again.
    pub(super) fn rule_out(&mut self, server: usize, fault: Fault) {
        self.ruled_out |= 1 << server;
        self.fault = fault;
    }

    /// The name is an alias: all servers have their tries again for the next name.
    pub(super) fn ask_on(&mut self, chain: Chain) {
        self.chain = chain;
        self.tries = 0;
        self.ruled_out = 0;
    }

    pub(super) fn flight(&self) -> Option<&Flight> {
        match &self.state {
            State::Flying(flight) => Some(flight),
            _ => None,
        }
    }
}

/// Indices of servers, the one to ask first in front.
pub(super) type ServerOrder = SmallVec<[u8; 4]>;

/// The name servers and whether they answer.
pub(super) struct Servers {
    list: SmallVec<[Server; 4]>,
    rotate: bool,
}

struct Server {
    address: SocketAddr,
    /// Tries without an answer since its last one.
    missed: u32,
    /// Until when the others go before it.
    last_until: Instant,
}

impl Servers {
    pub(super) fn new(addresses: &[SocketAddr], rotate: bool) -> Self {
        Servers {
            list: addresses
                .iter()
                .take(SERVERS_MAX)
                .map(|address| Server {
                    address: *address,
                    missed: 0,
                    last_until: Instant::START,
                })
                .collect(),
            rotate,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn address(&self, server: usize) -> SocketAddr {
        self.list[server].address
    }

    /// The order for one query: as configured, or from a random one on; silent ones last.
    pub(super) fn order(&self, rng: &mut Rng, now: Instant) -> ServerOrder {
        let count = self.list.len();
        let first = if self.rotate && count > 1 {
            rng.below(count as u64) as usize
        } else {
            0
        };
        let mut order: ServerOrder = (0..count)
            .map(|turn| ((first + turn) % count) as u8)
            .collect();
        order.sort_by_key(|server| self.list[usize::from(*server)].last_until > now);
        order
    }

    pub(super) fn answered(&mut self, server: usize) {
        self.list[server].missed = 0;
        self.list[server].last_until = Instant::START;
    }

    pub(super) fn missed(&mut self, server: usize, now: Instant) {
        let server = &mut self.list[server];
        server.missed += 1;
        if server.missed >= SILENT_AFTER {
            server.last_until = now + SILENT_FOR;
        }
    }
}

/// More name servers than anyone has configured; one bit each in a query.
const SERVERS_MAX: usize = 16;

/// Tries in a row without an answer after which a server is asked last. Names whose own servers
/// are dead cost a healthy one a few in a row, hardly so many without an answer in between.
const SILENT_AFTER: u32 = 10;

/// How long a silent server is asked last, before one query in order tries it again.
const SILENT_FOR: std::time::Duration = std::time::Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn query(servers: u8) -> Query {
        let mut query = Query::new(Name::parse("a.test").unwrap(), Kind::A);
        query.begin((0..servers).collect());
        query
    }

    #[test]
    fn servers_have_their_tries_in_rounds() {
        let mut query = query(2);
        for server in [0, 1, 0, 1] {
            assert_eq!(query.next(2), Next::Ask { server });
            query.missed(Fault::Timeout);
        }
        assert_eq!(query.next(2), Next::GiveUp(Fault::Timeout));
    }

    #[test]
    fn a_server_that_refused_is_not_asked_again() {
        let mut query = query(2);
        assert_eq!(query.next(2), Next::Ask { server: 0 });
        query.rule_out(0, Fault::Refused);
        assert_eq!(query.next(2), Next::Ask { server: 1 });
        query.missed(Fault::Timeout);
        assert_eq!(query.next(2), Next::Ask { server: 1 });
        query.rule_out(1, Fault::ServFail);
        assert_eq!(query.next(2), Next::GiveUp(Fault::ServFail));
    }

    #[test]
    fn unreachable_servers_are_not_asked_in_a_storm() {
        let mut query = query(2);
        for server in [0, 1] {
            assert_eq!(query.next(2), Next::Ask { server });
            query.missed(Fault::Unreachable);
        }
        assert_eq!(query.next(2), Next::Pause);
        assert_eq!(query.next(2), Next::Ask { server: 0 });
    }

    #[test]
    fn a_silent_server_is_asked_last_for_a_while() {
        let addresses = ["192.0.2.1:53", "192.0.2.2:53"].map(|text| text.parse().unwrap());
        let mut servers = Servers::new(&addresses, false);
        let mut rng = Rng::from_seed(1);
        let now = Instant::START;
        for _ in 1..SILENT_AFTER {
            servers.missed(0, now);
        }
        assert_eq!(servers.order(&mut rng, now)[..], [0, 1]);
        servers.missed(0, now);
        assert_eq!(servers.order(&mut rng, now)[..], [1, 0]);
        assert_eq!(servers.order(&mut rng, now + SILENT_FOR)[..], [0, 1]);
        servers.answered(0);
        assert_eq!(servers.order(&mut rng, now)[..], [0, 1]);
    }

    #[test]
    fn rotation_begins_with_every_server() {
        let addresses = ["192.0.2.1:53", "192.0.2.2:53"].map(|text| text.parse().unwrap());
        let servers = Servers::new(&addresses, true);
        let mut rng = Rng::from_seed(1);
        let firsts: Vec<u8> = (0..20)
            .map(|_| servers.order(&mut rng, Instant::START)[0])
            .collect();
        assert!(firsts.contains(&0) && firsts.contains(&1));
    }
}
