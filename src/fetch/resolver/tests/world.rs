//! Simulated name servers in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::*;
use crate::wire::dns::forge::{Forge, question_of};
use crate::wire::dns::{Deframer, frame};

/// A resolver, its servers, and the time.
pub(super) struct World {
    pub(super) resolver: Resolver,
    pub(super) now: Instant,
    /// The queries received by the servers, in order.
    pub(super) received: Vec<ReceivedQuery>,
    /// Results of lookups that were not ready at once.
    pub(super) resolved: Vec<Resolved>,
    /// Maximum number of sockets open at once.
    pub(super) sockets_most: usize,
    /// Whether TCP connections can be established.
    pub(super) tcp: bool,
    /// Delay of every event before it is passed to the resolver, and of every query before it
    /// departs.
    pub(super) lag: Duration,
    server: Server,
    sockets: BTreeMap<SocketId, Socket>,
    /// Events on the way to the resolver, by arrival and order of sending.
    events: BTreeMap<(Instant, u64), (SocketId, Event)>,
    sent: u64,
}

/// Behaviour of the servers.
type Server = Box<dyn FnMut(&ReceivedQuery) -> Vec<Response>>;

/// One query as received by a server.
#[derive(Clone, Debug)]
pub(super) struct ReceivedQuery {
    /// Index of the server in the settings.
    pub(super) server: usize,
    pub(super) transport: Transport,
    pub(super) socket: SocketId,
    /// In lower case.
    pub(super) name: String,
    pub(super) rtype: u16,
    pub(super) message: Vec<u8>,
    pub(super) at: Instant,
}

/// What a server does after a query, and after what time.
pub(super) enum Response {
    Reply(Duration, Vec<u8>),
    /// Ends the socket, like ICMP or FIN.
    End(Duration),
}

#[derive(Debug, PartialEq)]
pub(super) struct Resolved {
    pub(super) host: String,
    pub(super) waiters: Vec<Waiter>,
    /// Addresses as text, or the failure's code.
    pub(super) result: Result<Vec<String>, &'static str>,
    pub(super) at_ms: u64,
    /// Since the departure of its first query.
    pub(super) took_ms: u64,
}

struct Socket {
    server: usize,
    transport: Transport,
    deframer: Deframer,
}

enum Event {
    Connected,
    Bytes(Vec<u8>),
    End,
}

impl ReceivedQuery {
    /// A valid reply after 10 ms.
    pub(super) fn reply(&self, forge: impl FnOnce(Forge) -> Forge) -> Vec<Response> {
        self.reply_after(10, forge)
    }

    pub(super) fn reply_after(&self, ms: u64, forge: impl FnOnce(Forge) -> Forge) -> Vec<Response> {
        let bytes = forge(Forge::reply_to(&self.message)).bytes();
        vec![Response::Reply(Duration::from_millis(ms), bytes)]
    }

    /// The reply of a server that has this address for the name, for either query type.
    pub(super) fn reply_address(&self, address: &str) -> Vec<Response> {
        let of_kind = if address.contains(':') { 28 } else { 1 };
        self.reply(|reply| match self.rtype == of_kind {
            true => reply.address(&self.name, 300, address),
            false => reply.soa("test", 300, 300),
        })
    }
}

impl World {
    /// A world with this many servers, all with this behaviour.
    pub(super) fn new(
        servers: usize,
        change: impl FnOnce(&mut ResolverSettings),
        server: impl FnMut(&ReceivedQuery) -> Vec<Response> + 'static,
    ) -> Self {
        let mut settings = ResolverSettings {
            servers: (0..servers)
                .map(|index| ([192, 0, 2, index as u8], 53).into())
                .collect(),
            ..ResolverSettings::default()
        };
        change(&mut settings);
        World {
            resolver: Resolver::new(settings, Rng::from_seed(7), &Secret::from_seed(7)),
            now: Instant::START,
            received: Vec::new(),
            resolved: Vec::new(),
            sockets_most: 0,
            tcp: true,
            lag: Duration::ZERO,
            server: Box::new(server),
            sockets: BTreeMap::new(),
            events: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Resolves a host on port 80; an immediate result is returned as text.
    pub(super) fn resolve(
        &mut self,
        host: &str,
        who: Waiter,
    ) -> Option<Result<Vec<String>, &'static str>> {
        let lookup = self.resolver.resolve(host, 80, who, self.now);
        self.act();
        match lookup {
            Lookup::Ready(result) => Some(text_of(result)),
            Lookup::Pending => None,
            Lookup::Busy => Some(Err("busy")),
        }
    }

    /// Advances the time until no name is being resolved; returns the results since the last call.
    pub(super) fn run(&mut self) -> Vec<Resolved> {
        while !self.resolver.is_empty() {
            let next = self.next().expect("a lookup in progress has a next event");
            self.step(next);
        }
        std::mem::take(&mut self.resolved)
    }

    /// Advances the time by `span`.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.step(next);
        }
        self.now = end;
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    /// Passes bytes to the resolver at once, from an attacker.
    pub(super) fn inject(&mut self, socket: SocketId, bytes: &[u8]) {
        self.resolver
            .handle_received(socket, bytes, self.now, self.now);
        self.act();
    }

    /// Ends a socket at once.
    pub(super) fn end(&mut self, socket: SocketId) {
        if self.sockets.remove(&socket).is_some() {
            self.resolver.handle_ended(socket, self.now);
            self.act();
        }
    }

    pub(super) fn open_sockets(&self) -> Vec<SocketId> {
        self.sockets.keys().copied().collect()
    }

    fn next(&self) -> Option<Instant> {
        let events = self.events.keys().next().map(|(at, _)| *at + self.lag);
        [events, self.resolver.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn step(&mut self, at: Instant) {
        self.now = self.now.max(at);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 + self.lag <= self.now
        {
            let ((arrived, _), (socket, event)) = entry.remove_entry();
            if !self.sockets.contains_key(&socket) {
                continue;
            }
            match event {
                Event::Connected => self.resolver.handle_connected(socket),
                Event::Bytes(bytes) => {
                    self.resolver
                        .handle_received(socket, &bytes, arrived, self.now);
                }
                Event::End => {
                    self.sockets.remove(&socket);
                    self.resolver.handle_ended(socket, self.now);
                }
            }
            self.act();
        }
        self.resolver.handle_timeout(self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.resolver.poll() {
            match action {
                Action::Open {
                    socket,
                    server,
                    transport,
                } => self.open(socket, server, transport),
                Action::Send { socket, bytes } => {
                    self.resolver.handle_sent(socket, self.now + self.lag);
                    self.take(socket, &bytes);
                }
                Action::Close { socket } => {
                    self.sockets.remove(&socket).expect("an open socket closes");
                }
                Action::Resolved {
                    host,
                    waiters,
                    left,
                    over,
                    result,
                } => self.resolved.push(Resolved {
                    host: host.into(),
                    waiters,
                    result: text_of(result),
                    at_ms: self.now.as_nanos() / 1_000_000,
                    took_ms: left
                        .map_or(Duration::ZERO, |left| over.saturating_since(left))
                        .as_millis() as u64,
                }),
            }
        }
        assert_eq!(self.sockets.len(), self.resolver.sockets());
        self.sockets_most = self.sockets_most.max(self.sockets.len());
    }

    fn open(&mut self, socket: SocketId, server: SocketAddr, transport: Transport) {
        let SocketAddr::V4(server) = server else {
            panic!("the servers here have IPv4 addresses");
        };
        let opened = Socket {
            server: usize::from(server.ip().octets()[3]),
            transport,
            deframer: Deframer::default(),
        };
        assert!(self.sockets.insert(socket, opened).is_none());
        if transport == Transport::Tcp {
            let event = if self.tcp {
                Event::Connected
            } else {
                Event::End
            };
            self.schedule(Duration::from_millis(1), socket, event);
        }
    }

    fn take(&mut self, socket: SocketId, mut bytes: &[u8]) {
        let open = self.sockets.get_mut(&socket).expect("sent on open sockets");
        let (server, transport) = (open.server, open.transport);
        let mut messages = Vec::new();
        match transport {
            Transport::Udp => messages.push(bytes.to_vec()),
            Transport::Tcp => {
                while let Some(message) = open.deframer.read(&mut bytes) {
                    messages.push(message);
                }
            }
        }
        for message in messages {
            let (name, rtype) = question_of(&message);
            let received = ReceivedQuery {
                server,
                transport,
                socket,
                name,
                rtype,
                message,
                at: self.now + self.lag,
            };
            let responses = (self.server)(&received);
            self.received.push(received);
            for response in responses {
                match (response, transport) {
                    (Response::End(after), _) => self.schedule(after, socket, Event::End),
                    (Response::Reply(after, bytes), Transport::Udp) => {
                        self.schedule(after, socket, Event::Bytes(bytes));
                    }
                    (Response::Reply(after, bytes), Transport::Tcp) => {
                        for octet in frame(&bytes) {
                            self.schedule(after, socket, Event::Bytes(vec![octet]));
                        }
                    }
                }
            }
        }
    }

    fn schedule(&mut self, after: Duration, socket: SocketId, event: Event) {
        self.sent += 1;
        let at = self.now + self.lag + after;
        self.events.insert((at, self.sent), (socket, event));
    }
}

fn text_of(result: Result<Answer, Failure>) -> Result<Vec<String>, &'static str> {
    match result {
        Ok(answer) => Ok(answer.addresses.iter().map(|one| one.to_string()).collect()),
        Err(failure) => {
            assert_eq!(failure.kind, crate::fetch::failure::FailureKind::Dns);
            Err(failure.name)
        }
    }
}
