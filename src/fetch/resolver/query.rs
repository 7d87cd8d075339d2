//! One query: which server has it, by which transport, until when, and which server is next.

use std::net::SocketAddr;

use smallvec::SmallVec;

use super::Transport;
use super::answer::Fault;
use super::sockets::SocketId;
use crate::base::rng::Rng;
use crate::base::time::Instant;
use crate::wire::dns::{Chain, Kind, Name, SentQuery};

/// A query for the addresses of one family of a name.
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
    /// Indices of servers in the order to ask them.
    order: ServerOrder,
    /// Tries started for the present name of the alias chain.
    tries: usize,
    /// Bit set of servers that refused to answer.
    ruled_out: u32,
    /// Whether the server may support EDNS.
    pub(super) edns: bool,
    /// Whether to send the name in lower case, after a reply with the wrong case.
    pub(super) plain: bool,
    /// Whether a connection that ended during several queries may be replaced without counting a
    /// try.
    pub(super) may_reconnect: bool,
    /// The last fault.
    fault: Fault,
}

/// State of a query.
pub(super) enum State {
    /// Waits in line: too many are in flight.
    Queued,
    /// A server has it, or will have it next.
    InFlight(Flight),
    /// No server can be reached; the next round starts when the time of this one is over.
    Pausing,
}

/// A query that a server has, or that waits behind another one on a connection.
pub(super) struct Flight {
    pub(super) server: usize,
    pub(super) transport: Transport,
    pub(super) socket: SocketId,
    pub(super) sent_query: SentQuery,
    /// When the server's time is over; `None` while the query is not sent.
    pub(super) until: Option<Instant>,
}

/// Next action after a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    AskServer {
        server: usize,
    },
    /// Every server was tried and none could be reached: wait before the next round.
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

    /// Sets the order of the servers, when the query leaves the line.
    pub(super) fn begin(&mut self, order: ServerOrder) {
        self.order = order;
    }

    /// The next step.
    pub(super) fn next(&mut self, attempts: u32) -> Next {
        let tries_max = self.order.len() * attempts.max(1) as usize;
        while self.tries < tries_max {
            let begins_round = self.tries > 0 && self.tries.is_multiple_of(self.order.len());
            if begins_round && self.fault == Fault::Unreachable {
                // Reported once: the next round starts after the pause.
                self.fault = Fault::Timeout;
                return Next::Pause;
            }
            let server = usize::from(self.order[self.tries % self.order.len()]);
            self.tries += 1;
            if self.ruled_out >> server & 1 == 0 {
                return Next::AskServer { server };
            }
        }
        Next::GiveUp(self.fault)
    }

    /// Records a try without result; the server may be asked again.
    pub(super) fn missed(&mut self, fault: Fault) {
        self.fault = fault;
    }

    /// Records that the server refused to answer; it is not asked again.
    pub(super) fn rule_out(&mut self, server: usize, fault: Fault) {
        self.ruled_out |= 1 << server;
        self.fault = fault;
    }

    /// Continues with the target of an alias; all servers may be tried again for it.
    pub(super) fn follow_alias(&mut self, chain: Chain) {
        self.chain = chain;
        self.tries = 0;
        self.ruled_out = 0;
    }

    pub(super) fn flight(&self) -> Option<&Flight> {
        match &self.state {
            State::InFlight(flight) => Some(flight),
            _ => None,
        }
    }
}

/// Indices of servers in the order to ask them.
pub(super) type ServerOrder = SmallVec<[u8; 4]>;

/// The name servers, and whether they respond.
pub(super) struct Servers {
    list: SmallVec<[Server; 4]>,
    rotate: bool,
}

struct Server {
    address: SocketAddr,
    /// Tries without an answer since its last one.
    missed: u32,
    /// Until when it is asked after the others.
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

    /// The order for one query: as configured, or starting at a random server; silent ones last.
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

/// Maximum number of name servers, more than is ever configured; each has one bit in a query.
const SERVERS_MAX: usize = 16;

/// Consecutive tries without an answer after which a server is asked last. Names whose own servers
/// are dead cause a few in a row at a working server, but rarely this many.
const SILENT_AFTER: u32 = 10;

/// How long a silent server is asked last before it is tried in its normal position again.
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
    fn servers_are_tried_in_rounds() {
        let mut query = query(2);
        for server in [0, 1, 0, 1] {
            assert_eq!(query.next(2), Next::AskServer { server });
            query.missed(Fault::Timeout);
        }
        assert_eq!(query.next(2), Next::GiveUp(Fault::Timeout));
    }

    #[test]
    fn a_server_that_refused_is_not_asked_again() {
        let mut query = query(2);
        assert_eq!(query.next(2), Next::AskServer { server: 0 });
        query.rule_out(0, Fault::Refused);
        assert_eq!(query.next(2), Next::AskServer { server: 1 });
        query.missed(Fault::Timeout);
        assert_eq!(query.next(2), Next::AskServer { server: 1 });
        query.rule_out(1, Fault::ServFail);
        assert_eq!(query.next(2), Next::GiveUp(Fault::ServFail));
    }

    #[test]
    fn unreachable_servers_are_retried_after_a_pause() {
        let mut query = query(2);
        for server in [0, 1] {
            assert_eq!(query.next(2), Next::AskServer { server });
            query.missed(Fault::Unreachable);
        }
        assert_eq!(query.next(2), Next::Pause);
        assert_eq!(query.next(2), Next::AskServer { server: 0 });
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
    fn rotation_starts_at_every_server() {
        let addresses = ["192.0.2.1:53", "192.0.2.2:53"].map(|text| text.parse().unwrap());
        let servers = Servers::new(&addresses, true);
        let mut rng = Rng::from_seed(1);
        let firsts: Vec<u8> = (0..20)
            .map(|_| servers.order(&mut rng, Instant::START)[0])
            .collect();
        assert!(firsts.contains(&0) && firsts.contains(&1));
    }
}
