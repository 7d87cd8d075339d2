//! A stub resolver (names to addresses) as a state machine without sockets or clock.
//!
//! Its driver calls [`Resolver::resolve`], performs the [`Action`]s from [`Resolver::poll`], passes
//! in what arrives on the sockets it opened, and calls [`Resolver::handle_timeout`] when
//! [`Resolver::next_timeout`] is due. Every `handle_*` may produce actions: poll until there are
//! none. UDP and TCP use the same calls, as do the events of the `io` floor; the resolver knows the
//! kind of each of its sockets.
//!
//! A reply counts only with the right id, on the right socket, for the right question with the
//! right mixture of upper and lower case. Anything else is dropped and the query continues.
//!
//! Hand-written: resolvers in libraries are asynchronous and open their sockets through a runtime, and
//! everything in `fetch` takes bytes and the time as arguments.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;

use self::answer::Fault;
use self::cache::Cache;
use self::fixed::Fixed;
use self::hosts::plain_host;
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
pub use self::hosts::Hosts;
pub use self::settings::{Families, Override, OverrideInvalid, ResolverSettings, parse_server};
pub use self::sockets::SocketId;
pub use self::system::{apply_resolv_conf, read_settings};

mod settings;
mod hosts;
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

/// A caller that waits for a name, numbered by the caller itself.
pub type Waiter = u64;

/// The resolver.
pub struct Resolver {
    settings: ResolverSettings,
    fixed: Fixed,
    cache: Cache,
    servers: Servers,
    sockets: Sockets,
    lookups: Slab<Resolving>,
    by_host: HashMap<Box<str>, Key, Secret>,
    /// Queries that wait until fewer are in flight.
    line: VecDeque<QueryKey>,
    /// Queries that are sent before those in `line`, regardless of the limit; there are few.
    urgent: VecDeque<QueryKey>,
    /// Queries that left the line and are not settled.
    in_flight: usize,
    /// Number of waiting callers, over all names.
    waiting: usize,
    timers: BTreeSet<(Instant, Timer)>,
    actions: VecDeque<Action>,
    rng: Rng,
    stats: Stats,
}

/// Immediate result of `resolve`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The answer, or why there is none (kind `dns`).
    Ready(Result<Answer, Failure>),
    /// It follows as [`Action::Resolved`] with this caller.
    Pending,
    /// `pending_max` names or callers are waiting; ask again after an [`Action::Resolved`].
    Busy,
}

/// What a resolver knows of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameView {
    /// Nothing.
    Unknown,
    /// It is being looked up.
    LookingUp,
    /// Its addresses, or why there are none.
    Known {
        /// The answer.
        answer: Result<Answer, Failure>,
        /// When it expires; `None` if it is not from a name server.
        until: Option<Instant>,
    },
}

/// Action for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a socket: UDP on an unpredictable port, or a TCP connection.
    ///
    /// UDP can be used at once; for TCP wait until it is connected and call
    /// [`Resolver::handle_connected`]; nothing is sent before that.
    Open {
        /// The resolver's id for it.
        socket: SocketId,
        /// The name server's address.
        server: SocketAddr,
        /// UDP or TCP.
        transport: Transport,
    },
    /// Send one datagram, or the next bytes of a stream, and report when they departed
    /// ([`Resolver::handle_sent`]).
    Send {
        /// The socket to send on.
        socket: SocketId,
        /// The bytes to send.
        bytes: Vec<u8>,
    },
    /// Close a socket that is no longer needed.
    Close {
        /// The socket to close.
        socket: SocketId,
    },
    /// A lookup is complete.
    Resolved {
        /// The requested host, in lower case.
        host: Box<str>,
        /// The callers, in the order of their requests.
        waiters: Vec<Waiter>,
        /// When its first query departed, from [`Resolver::handle_sent`]; `None` if none did.
        left: Option<Instant>,
        /// When it was complete: the arrival of the last reply that it needed, or the end of the
        /// wait for one.
        over: Instant,
        /// The result (a failure has kind `dns`).
        result: Result<Answer, Failure>,
    },
}

/// Transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One message per datagram.
    Udp,
    /// Length-prefixed messages in a stream.
    Tcp,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `resolve`, without those that returned `Busy`.
    pub lookups: u64,
    /// Lookups answered by an override, an address or the hosts file.
    pub fixed: u64,
    /// Lookups answered from the cache, failures included.
    pub hits: u64,
    /// Lookups that joined one in progress.
    pub joined: u64,
    /// Queries sent over UDP or TCP, retries included.
    pub queries: u64,
    /// Tries without a reply in time.
    pub timeouts: u64,
    /// Queries that switched to TCP.
    pub tcp_fallbacks: u64,
    /// Messages dropped because they were not a valid reply to a query on their socket.
    pub strays: u64,
}

/// One of the two queries of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueryKey {
    lookup: Key,
    kind: Kind,
}

/// The timers of the resolver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A try or a pause ends.
    Query(QueryKey),
    /// The wait for the second family ends.
    Delay(Key),
    /// A socket may have been idle for too long.
    Idle(SocketId),
    /// The wait for a second reply on a connection ends.
    SecondReply(SocketId),
}

impl Resolver {
    /// A resolver with an empty cache.
    ///
    /// The generator chooses ids, ports and letter cases, and names are hashed under the secret: a
    /// crawl seeds both from the system, a test with a fixed seed.
    pub fn new(settings: ResolverSettings, rng: Rng, secret: &Secret) -> Self {
        let fixed = Fixed::new(
            &settings.overrides,
            settings.hosts.clone(),
            settings.families,
        );
        let servers = Servers::new(&settings.servers, settings.rotate);
        Resolver {
            fixed,
            cache: Cache::new(settings.cache_max, settings.backoff_max, secret),
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

    /// Requests the addresses of a host as written in a URL.
    ///
    /// `port` is the URL's, since overrides are for a host and a port. Unless the answer is ready,
    /// `who` is named in [`Action::Resolved`].
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

    /// Queries the name servers for a host's addresses, ignoring the cache and ahead of the line. A
    /// failure does not replace a cached answer. Overrides are answered at once.
    pub fn resolve_anew(&mut self, host: &str, port: u16, who: Waiter, now: Instant) -> Lookup {
        let host = plain_host(host);
        match self.fixed.get(&host, port) {
            Some(answer) => Lookup::Ready(answer.map_err(Fault::failure)),
            None => self.join(&host, true, who, now),
        }
    }

    /// Waits for the lookup of a host; starts one if there is none.
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
                Ok(name) => self.begin(host, name, is_urgent, now),
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
        self.start_queries(now);
        Lookup::Pending
    }

    /// Returns whether [`Resolver::resolve`] would answer at once.
    pub fn knows(&self, host: &str, port: u16, now: Instant) -> bool {
        let host = plain_host(host);
        self.fixed.get(&host, port).is_some() || self.cache.knows(&host, now)
    }

    /// What is known of a host now, without looking it up.
    pub fn view(&self, host: &str, port: u16, now: Instant) -> NameView {
        let host = plain_host(host);
        if let Some(answer) = self.fixed.get(&host, port) {
            return NameView::Known {
                answer: answer.map_err(Fault::failure),
                until: None,
            };
        }
        match self.cache.peek(&host, now) {
            Some(known) => NameView::Known {
                answer: known.answer(),
                until: Some(known.until()),
            },
            None if self.by_host.contains_key(&*host) => NameView::LookingUp,
            None => NameView::Unknown,
        }
    }

    /// Returns whether an override answers for a host, so that no name server is queried.
    pub fn is_fixed(&self, host: &str, port: u16) -> bool {
        self.fixed.get(&plain_host(host), port).is_some()
    }

    /// What answers for a host without a name server: an override, the hosts file, or the host itself if it is an address.
    pub fn fixed_answer(&self, host: &str, port: u16) -> Option<Answer> {
        self.fixed.get(&plain_host(host), port)?.ok()
    }

    /// Forgets all failed lookups, because the name servers did not work and now do.
    pub fn forget_failures(&mut self, now: Instant) {
        self.cache.forget_failures(now);
    }

    /// The next action for the driver, if any.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); changes with every call.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles due timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        // The rest stays due.
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
                        Stage::Waiting | Stage::Late => {
                            unreachable!("this timer is set only in stage Delaying")
                        }
                    };
                    self.deliver(lookup, over, now);
                }
                Timer::Idle(socket) => {
                    let vacated = self.sockets.check_idle(socket, now);
                    self.on_vacated(socket, vacated, now);
                }
                Timer::SecondReply(socket) => {
                    let vacated = self.sockets.check_second_reply(socket, now);
                    self.on_vacated(socket, vacated, now);
                }
            }
        }
        self.start_queries(now);
    }

    /// A TCP connection was established.
    pub fn handle_connected(&mut self, socket: SocketId) {
        for bytes in self.sockets.connected(socket) {
            self.actions.push_back(Action::Send { socket, bytes });
        }
    }

    /// Reports the departure of the bytes of one [`Action::Send`]: the first one on this socket
    /// that was not reported yet.
    pub fn handle_sent(&mut self, socket: SocketId, at: Instant) {
        if let Some(query) = self.sockets.left(socket)
            && let Some(resolving) = self.lookups.get_mut(query.lookup)
        {
            resolving.left.get_or_insert(at);
        }
    }

    /// Handles one datagram, or any part of a stream, that arrived at `arrived`.
    ///
    /// Ignored if the socket is closed.
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
        self.start_queries(now);
    }

    /// A socket failed or was closed by its peer; the driver closes it, and no [`Action::Close`]
    /// follows.
    ///
    /// Queries that wait on it go to the next server. Ignored if the socket is closed.
    pub fn handle_ended(&mut self, socket: SocketId, now: Instant) {
        if let Some(lost) = self.sockets.remove(socket, now) {
            for key in &lost.waiting {
                self.on_lost(*key, &lost, now);
            }
        }
        self.start_queries(now);
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Number of names being resolved.
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// Returns whether no name is being resolved.
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// Number of cached names.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Number of open sockets.
    pub fn sockets(&self) -> usize {
        self.sockets.len()
    }
}

/// Lookups: from a name to its two queries and back.
impl Resolver {
    fn begin(&mut self, host: &str, name: Name, is_urgent: bool, now: Instant) -> Key {
        let (a, aaaa) = match self.settings.families {
            Families::V4 => (true, false),
            Families::V6 => (false, true),
            Families::V4First | Families::V6First => (true, true),
        };
        let query = |wanted: bool, kind| wanted.then(|| Query::new(name.clone(), kind));
        let (a, aaaa) = (query(a, Kind::A), query(aaaa, Kind::Aaaa));
        let kinds = [aaaa.as_ref(), a.as_ref()].map(|query| query.map(|query| query.kind));

        let lookup = self
            .lookups
            .insert(Resolving::new(host.into(), a, aaaa, now));
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

    /// Handles the result of a query: delivers the lookup if that is enough.
    fn settle(&mut self, key: QueryKey, outcome: Outcome, now: Instant) {
        self.in_flight -= 1;
        let lookup = key.lookup;
        let resolving = self.resolving(lookup);
        match (resolving.settle(key.kind, outcome), resolving.stage) {
            (Progress::Nothing, _) => {}
            (Progress::Half, _) => {
                let until = now + RESOLUTION_DELAY;
                let over = resolving.last_event() + RESOLUTION_DELAY;
                resolving.stage = Stage::Delaying { until, over };
                self.timers.insert((until, Timer::Delay(lookup)));
            }
            (Progress::Whole, stage) => {
                if let Stage::Delaying { until, .. } = stage {
                    self.timers.remove(&(until, Timer::Delay(lookup)));
                }
                let over = self.resolving(lookup).last_event();
                self.deliver(lookup, over, now);
                let settled = self
                    .lookups
                    .remove(lookup)
                    .expect("the lookup was present above");
                self.by_host.remove(&settled.host);
            }
        }
    }

    /// Caches the result and delivers it to the waiters; it was known at `over`.
    fn deliver(&mut self, lookup: Key, over: Instant, now: Instant) {
        let families = self.settings.families;
        let resolving = self.resolving(lookup);
        let left = resolving.left;
        let outcome = resolving.outcome(families);
        let waiters = std::mem::take(&mut resolving.waiters);
        let host = resolving.host.clone();
        let began = resolving.began;
        self.cache.put(&host, &outcome, now);
        if let Some(most) = self.settings.retried_after {
            self.cache.retry_by(&host, began + most);
        }
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
            .expect("a lookup exists until both its queries are settled")
    }
}

/// Maximum number of timers handled per call of [`Resolver::handle_timeout`].
const TIMERS_AT_ONCE: usize = 256;

/// How long to wait for the second family after the first is known (RFC 8305 §3, §8).
///
/// The RFC waits only after an A answer. Here either family waits, because an answer is delivered
/// once, and a host with broken IPv6 needs its IPv4 address in it.
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
