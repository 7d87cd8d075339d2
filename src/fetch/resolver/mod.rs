//! Names to addresses: a stub resolver as a state machine without sockets or clock.
//!
//! Its driver calls [`Resolver::resolve`], performs the [`Action`]s that [`Resolver::poll`] gives,
//! hands over what arrives on the sockets it opened, and calls [`Resolver::handle_timeout`] when
//! [`Resolver::next_timeout`] is due. Every `handle_*` may leave actions: poll until there are none.
//! UDP and TCP arrive by the same calls, as the `io` floor's events do; the resolver knows which
//! of its sockets is which.
//!
//! A reply counts only with the right id, on the right socket, for the right question in the
//! right mixture of cases. Anything else is dropped and the query goes on.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;

use self::answer::Fault;
use self::cache::Cache;
use self::fixed::{Fixed, plain_host};
use self::lookup::{Outcome, Progress, Resolving, Stage};
use self::query::{Query, Servers};
use self::sockets::{Message, Sockets};
use crate::base::rng::Rng;
use crate::base::secret::Secret;
use crate::base::slab::{Key, Slab};
use crate::base::time::Instant;
use crate::fetch::failure::Failure;
use crate::wire::dns::{Kind, Name};

pub use self::answer::{Addresses, Answer, Source};
pub use self::settings::{Families, Override, OverrideInvalid, Settings, parse_server};
pub use self::sockets::SocketId;
pub use self::system::{Hosts, apply_resolv_conf, read_settings};

mod settings;
mod system;
mod answer;
mod fixed;
mod cache;
mod lookup;
mod tries;
mod query;
mod sockets;

#[cfg(test)]
mod tests;

/// Whoever waits for a name, in the caller's own numbering.
pub type Waiter = u64;

/// The resolver.
pub struct Resolver {
    settings: Settings,
    fixed: Fixed,
    cache: Cache,
    servers: Servers,
    sockets: Sockets,
    lookups: Slab<Resolving>,
    by_host: HashMap<Box<str>, Key, Secret>,
    /// Questions that wait until fewer are in flight.
    line: VecDeque<QueryKey>,
    /// Queries that go ahead of the line, however many are in flight: few.
    urgent: VecDeque<QueryKey>,
    /// Questions that do not wait in line.
    in_flight: usize,
    /// Callers waiting, over all names.
    waiting: usize,
    timers: BTreeSet<(Instant, Timer)>,
    actions: VecDeque<Action>,
    rng: Rng,
    stats: Stats,
}

/// What `resolve` can say at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The answer, or why there is none (kind `dns`).
    Ready(Result<Answer, Failure>),
    /// It comes as [`Action::Resolved`], which names this caller.
    Pending,
    /// `pending_max` names or callers wait already; to be asked again after a [`Action::Resolved`].
    Busy,
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a socket: UDP on an unpredictable port, or a TCP connection.
    ///
    /// UDP may be sent on at once; for TCP wait with [`Resolver::handle_connected`], before which
    /// nothing is sent.
    Open {
        /// What the resolver will call it.
        socket: SocketId,
        /// Where it leads.
        server: SocketAddr,
        /// Of which sort.
        transport: Transport,
    },
    /// Send: one datagram, or the next bytes of a stream, and tell when they left
    /// ([`Resolver::handle_sent`]).
    Send {
        /// On which socket.
        socket: SocketId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Close a socket; nothing of it is wanted any more.
    Close {
        /// Which.
        socket: SocketId,
    },
    /// A lookup is over.
    Resolved {
        /// The host asked for, in lower case.
        host: Box<str>,
        /// Who asked, in the order of asking.
        waiters: Vec<Waiter>,
        /// When its first query left, by [`Resolver::handle_sent`]; `None` if none did.
        left: Option<Instant>,
        /// When it was over: the last reply that it needed arrived, or was waited for in vain.
        over: Instant,
        /// What came of it (a failure's kind is `dns`).
        result: Result<Answer, Failure>,
    },
}

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One message a datagram.
    Udp,
    /// Messages with their lengths in a stream.
    Tcp,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `resolve`, `Busy` ones left out.
    pub lookups: u64,
    /// Of those, answered by an override, an address or the hosts table.
    pub fixed: u64,
    /// Of those, answered from the cache, failures included.
    pub hits: u64,
    /// Of those, joined to a lookup on its way.
    pub joined: u64,
    /// Queries sent, over UDP or TCP, repeated ones included.
    pub queries: u64,
    /// Tries that got no reply in time.
    pub timeouts: u64,
    /// Questions that went over to TCP.
    pub tcp_fallbacks: u64,
    /// Messages dropped because they were not the reply to what was asked there.
    pub strays: u64,
}

/// One of the two questions of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueryKey {
    lookup: Key,
    kind: Kind,
}

/// What can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A try or a pause is over.
    Query(QueryKey),
    /// The second family has had its moment.
    Delay(Key),
    /// A socket may have been idle for long.
    Idle(SocketId),
    /// A connection has had its time for a second reply.
    SecondReply(SocketId),
}

impl Resolver {
    /// A resolver with nothing in its cache.
    ///
    /// The generator draws ids, ports and cases, and names are hashed under the secret: a crawl has both
    /// from the system, a test at will.
    pub fn new(settings: Settings, rng: Rng, secret: &Secret) -> Self {
        let fixed = Fixed::new(
            &settings.overrides,
            settings.hosts.clone(),
            settings.families,
        );
        let servers = Servers::new(&settings.servers, settings.rotate);
        Resolver {
            fixed,
            cache: Cache::new(settings.cache_max, secret),
            sockets: Sockets::new(servers.len(), settings.ports_max),
            servers,
            lookups: Slab::new(),
            by_host: HashMap::with_hasher(*secret),
            line: VecDeque::new(),
            urgent: VecDeque::new(),
            in_flight: 0,
            waiting: 0,
            timers: BTreeSet::new(),
            actions: VecDeque::new(),
            rng,
            stats: Stats::default(),
            settings,
        }
    }

    /// Asks for the addresses of a host as a URL has it.
    ///
    /// `port` is the URL's: overrides are for a host and a port. Unless the answer is ready, `who`
    /// is named when it is.
    pub fn resolve(&mut self, host: &str, port: u16, who: Waiter, now: Instant) -> Lookup {
        let host = plain_host(host);
        if let Some(answer) = self.fixed.get(&host, port) {
            self.stats.lookups += 1;
            self.stats.fixed += 1;
            return Lookup::Ready(answer.map_err(Fault::failure));
        }
        if let Some(known) = self.cache.get(&host, now) {
            self.stats.lookups += 1;
            self.stats.hits += 1;
            return Lookup::Ready(known.answer());
        }
        self.join(&host, false, who, now)
    }

    /// Asks the name servers for a host's addresses, whatever is remembered of it, ahead of all that is in
    /// line. A failure leaves a remembered answer in place. Overrides are answered at once.
    pub fn resolve_anew(&mut self, host: &str, port: u16, who: Waiter, now: Instant) -> Lookup {
        let host = plain_host(host);
        match self.fixed.get(&host, port) {
            Some(answer) => Lookup::Ready(answer.map_err(Fault::failure)),
            None => self.join(&host, true, who, now),
        }
    }

    /// Waits for the lookup of a host, begun if there is none under way.
    fn join(&mut self, host: &str, is_urgent: bool, who: Waiter, now: Instant) -> Lookup {
        let joined = self.by_host.get(host).copied();
        let lookup = match joined {
            _ if self.waiting >= self.settings.pending_max => return Lookup::Busy,
            Some(lookup) => lookup,
            None if self.servers.len() == 0 => {
                self.stats.lookups += 1;
                return Lookup::Ready(Err(Fault::NoServers.failure()));
            }
            None if self.lookups.len() >= self.settings.pending_max => return Lookup::Busy,
            None => match Name::parse(host) {
                Ok(name) => self.begin(host, name, is_urgent),
                Err(_) => {
                    self.stats.lookups += 1;
                    return Lookup::Ready(Err(Fault::NameInvalid.failure()));
                }
            },
        };
        self.stats.lookups += 1;
        self.stats.joined += u64::from(joined.is_some());
        self.waiting += 1;
        self.resolving(lookup).waiters.push(who);
        self.leave_line(now);
        Lookup::Pending
    }

    /// Whether [`Resolver::resolve`] would answer at once.
    pub fn knows(&self, host: &str, port: u16, now: Instant) -> bool {
        let host = plain_host(host);
        self.fixed.get(&host, port).is_some() || self.cache.knows(&host, now)
    }

    /// Whether no name server is asked for a host, because an override answers.
    pub fn is_fixed(&self, host: &str, port: u16) -> bool {
        self.fixed.get(&plain_host(host), port).is_some()
    }

    /// Forgets what could not be found out so far: the name servers did not work, and now they do.
    pub fn forget_failures(&mut self, now: Instant) {
        self.cache.forget_failures(now);
    }

    /// The next thing to do, if there is any.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called; it changes with every call.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        // What is left stays due.
        for _ in 0..TIMERS_AT_ONCE {
            let Some((at, timer)) = self.timers.first().copied() else {
                break;
            };
            if at > now {
                break;
            }
            self.timers.pop_first();
            match timer {
                Timer::Query(key) => self.on_try_over(key, now),
                Timer::Delay(lookup) => {
                    let stage = &mut self.resolving(lookup).stage;
                    let over = match std::mem::replace(stage, Stage::Late) {
                        Stage::Delaying { over, .. } => over,
                        Stage::Waiting | Stage::Late => unreachable!("only a delay has its timer"),
                    };
                    self.deliver(lookup, over, now);
                }
                Timer::Idle(socket) => {
                    let vacated = self.sockets.look_after(socket, now);
                    self.on_vacated(socket, vacated, now);
                }
                Timer::SecondReply(socket) => {
                    let vacated = self.sockets.look_for_second_reply(socket, now);
                    self.on_vacated(socket, vacated, now);
                }
            }
        }
        self.leave_line(now);
    }

    /// A TCP connection is established.
    pub fn handle_connected(&mut self, socket: SocketId) {
        for bytes in self.sockets.connected(socket) {
            self.actions.push_back(Action::Send { socket, bytes });
        }
    }

    /// What one [`Action::Send`] handed over left at this moment: the first of which that was not
    /// told yet, on its socket.
    pub fn handle_sent(&mut self, socket: SocketId, at: Instant) {
        if let Some(query) = self.sockets.left(socket)
            && let Some(resolving) = self.lookups.get_mut(query.lookup)
        {
            resolving.left.get_or_insert(at);
        }
    }

    /// One datagram, or bytes of a stream however they were cut, which arrived at `arrived`.
    ///
    /// For a socket that is closed it does nothing.
    pub fn handle_received(
        &mut self,
        socket: SocketId,
        mut bytes: &[u8],
        arrived: Instant,
        now: Instant,
    ) {
        while let Some(message) = self.sockets.message(socket, &mut bytes) {
            match message {
                Message::Datagram(bytes) => self.read(socket, bytes, arrived, now),
                Message::Framed(bytes) => self.read(socket, &bytes, arrived, now),
            }
        }
        self.leave_line(now);
    }

    /// A socket failed, or its peer ended it: the driver closes it, no [`Action::Close`] follows.
    ///
    /// Whoever waited on it asks the next server. For a socket that is closed it does nothing.
    pub fn handle_ended(&mut self, socket: SocketId, now: Instant) {
        if let Some(lost) = self.sockets.remove(socket, now) {
            for key in &lost.waiting {
                self.on_lost(*key, &lost, now);
            }
        }
        self.leave_line(now);
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Names being resolved.
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// Whether no name is being resolved.
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Names remembered.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Sockets open.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }
}

/// From a name to its two questions and back.
impl Resolver {
    fn begin(&mut self, host: &str, name: Name, is_urgent: bool) -> Key {
        let (a, aaaa) = match self.settings.families {
            Families::V4 => (true, false),
            Families::V6 => (false, true),
            Families::V4First | Families::V6First => (true, true),
        };
        let query = |wanted: bool, kind| wanted.then(|| Query::new(name.clone(), kind));
        let (a, aaaa) = (query(a, Kind::A), query(aaaa, Kind::Aaaa));
        let kinds = [aaaa.as_ref(), a.as_ref()].map(|query| query.map(|query| query.kind));

        let lookup = self.lookups.insert(Resolving::new(host.into(), a, aaaa));
        self.by_host.insert(host.into(), lookup);
        let line = match is_urgent {
            true => &mut self.urgent,
            false => &mut self.line,
        };
        for kind in kinds.into_iter().flatten() {
            line.push_back(QueryKey { lookup, kind });
        }
        lookup
    }

    /// A question has its answer: is that enough for those who wait?
    fn settle(&mut self, key: QueryKey, outcome: Outcome, now: Instant) {
        self.in_flight -= 1;
        let lookup = key.lookup;
        let resolving = self.resolving(lookup);
        match (resolving.settle(key.kind, outcome), resolving.stage) {
            (Progress::Nothing, _) => {}
            (Progress::Half, _) => {
                let until = now + RESOLUTION_DELAY;
                let over = resolving.heard() + RESOLUTION_DELAY;
                resolving.stage = Stage::Delaying { until, over };
                self.timers.insert((until, Timer::Delay(lookup)));
            }
            (Progress::Whole, stage) => {
                if let Stage::Delaying { until, .. } = stage {
                    self.timers.remove(&(until, Timer::Delay(lookup)));
                }
                let over = self.resolving(lookup).heard();
                self.deliver(lookup, over, now);
                let settled = self.lookups.remove(lookup).expect("settled just now");
                self.by_host.remove(&settled.host);
            }
        }
    }

    /// Remembers what is known and gives it to those who wait; it was known at `over`.
    fn deliver(&mut self, lookup: Key, over: Instant, now: Instant) {
        let families = self.settings.families;
        let resolving = self.resolving(lookup);
        let left = resolving.left;
        let outcome = resolving.outcome(families);
        let waiters = std::mem::take(&mut resolving.waiters);
        let host = resolving.host.clone();
        self.cache.put(&host, &outcome, now);
        if waiters.is_empty() {
            return;
        }
        self.waiting -= waiters.len();
        let result = match outcome {
            Outcome::Found { addresses, expires } => Ok(Answer {
                addresses,
                port: None,
                expires,
                source: Source::Query,
            }),
            Outcome::Absent { fault, .. } | Outcome::Failed(fault) => Err(fault.failure()),
        };
        self.actions.push_back(Action::Resolved {
            host,
            waiters,
            left,
            over,
            result,
        });
    }

    fn resolving(&mut self, lookup: Key) -> &mut Resolving {
        self.lookups
            .get_mut(lookup)
            .expect("a lookup lives until both its questions are settled")
    }
}

/// Timers that fire per call of [`Resolver::handle_timeout`].
const TIMERS_AT_ONCE: usize = 256;

/// How long the second family is waited for once the first is there (RFC 8305 §3, §8).
///
/// There it follows an A answer alone. Here it follows either, because an answer is given once
/// and a host whose IPv6 is broken needs its IPv4 address in it.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
