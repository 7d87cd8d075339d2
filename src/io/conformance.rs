//! The conformance suite that all back ends pass.
//!
//! A [`Bench`] combines a back end with peers that follow a script. The suite uses nothing else, so a
//! new back end needs only a bench.

mod kernel;
mod crowd;
mod disk;
mod overtaken;
mod simulated;
mod suite;
mod listening;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{
    Accepted, Close, Credentials, Endpoint, Event, Io, IoSettings, NetError, Peer, Stamp, Token,
};
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Instant;
use crate::base::worker::WorkerDone;

/// A back end and its peers.
pub(super) trait Bench {
    type Io: Io;

    fn new(settings: IoSettings) -> Self;

    fn io(&mut self) -> &mut Self::Io;

    /// An address whose connections follow the script.
    fn listen(&mut self, script: Vec<Step>) -> SocketAddr;

    /// An address that refuses connections.
    fn refuse(&mut self) -> SocketAddr;

    /// All bytes that peers at this address have received.
    fn received(&mut self, at: SocketAddr) -> Vec<u8>;

    /// Opens a client to a listener of ours, which follows the script. The address returned names it for
    /// [`Bench::received`].
    fn call(&mut self, at: &Endpoint, script: Vec<Step>) -> SocketAddr;

    /// Whether a client's connection is over or was refused.
    fn is_over(&mut self, client: SocketAddr) -> bool;

    /// Waits until all clients have connected, as far as that needs no turn of ours.
    fn settle(&mut self);

    /// The credentials of clients of Unix sockets.
    fn credentials(&self) -> Credentials;

    /// An address that sends each datagram back.
    fn echo(&mut self) -> SocketAddr;

    /// A folder for files.
    fn folder(&self) -> PathBuf;

    /// The content of a file; `None` if there is none.
    fn content(&mut self, path: &Path) -> Option<Vec<u8>>;
}

/// A step of a scripted peer. After the last step it holds the connection open.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Waits until it has received this many more bytes.
    Expect(usize),
    Send(Vec<u8>),
    Pause(Duration),
    End,
    Reset,
}

/// An event whose bytes were copied out and whose chunk was released.
#[derive(Debug)]
pub(super) enum Seen {
    Connected {
        token: Token,
        started: Instant,
        stamp: Stamp,
    },
    Failed(Token, NetError),
    Sent(Token, Instant),
    Flushed(Token, Instant),
    Received(Token, Vec<u8>, Stamp),
    Ended(Token, Stamp),
    Accepted(Token, Accepted, Peer),
    Disk(DiskDone),
    DiskFull(String),
    DiskRoom,
    Computed(WorkerDone),
    Woken,
}

/// A bench and its events.
pub(super) struct Watch<B> {
    pub(super) bench: B,
    /// Events that were not taken yet.
    seen: VecDeque<Seen>,
    events: Vec<Event>,
}

impl<B: Bench> Watch<B> {
    pub(super) fn new() -> Self {
        Self::with(IoSettings::default())
    }

    pub(super) fn with(settings: IoSettings) -> Self {
        Watch {
            bench: B::new(settings),
            seen: VecDeque::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn io(&mut self) -> &mut B::Io {
        self.bench.io()
    }

    /// One turn: submits, and waits for at most `span`.
    pub(super) fn turn(&mut self, span: Duration) {
        let io = self.bench.io();
        io.submit();
        let until = io.now() + span;
        io.wait(Some(until), &mut self.events);
        for event in self.events.drain(..) {
            self.seen.push_back(match event {
                Event::Connected {
                    token,
                    started,
                    stamp,
                } => Seen::Connected {
                    token,
                    started,
                    stamp,
                },
                Event::Failed { token, error, .. } => Seen::Failed(token, error),
                Event::Sent {
                    token, at, left_by, ..
                } => {
                    assert!(at <= left_by && left_by <= io.now(), "{at:?} {left_by:?}");
                    Seen::Sent(token, at)
                }
                Event::Flushed { token, at } => Seen::Flushed(token, at),
                Event::Received {
                    token,
                    chunk,
                    stamp,
                } => {
                    let bytes = io.bytes(&chunk).to_vec();
                    io.release(chunk);
                    Seen::Received(token, bytes, stamp)
                }
                Event::Ended { token, stamp } => Seen::Ended(token, stamp),
                Event::Accepted {
                    listener,
                    accepted,
                    peer,
                    at,
                } => {
                    assert!(at <= io.now(), "{at:?}");
                    Seen::Accepted(listener, accepted, peer)
                }
                Event::Disk(done) => Seen::Disk(done),
                Event::DiskFull(error) => Seen::DiskFull(error.to_string()),
                Event::DiskRoom => Seen::DiskRoom,
                Event::Computed(done) => Seen::Computed(done),
                Event::Woken => Seen::Woken,
            });
        }
    }

    /// The next event. None for `TIMEOUT` is a failure.
    pub(super) fn next(&mut self) -> Seen {
        let give_up_at = self.io().now() + TIMEOUT;
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return seen;
            }
            assert!(
                self.io().now() < give_up_at,
                "timed out waiting for an event"
            );
            self.turn(TIMEOUT);
        }
    }

    /// Takes turns until `span` has passed; returns all events.
    pub(super) fn during(&mut self, span: Duration) -> Vec<Seen> {
        let until = self.io().now() + span;
        while self.io().now() < until {
            let left = until.saturating_since(self.io().now());
            self.turn(left);
        }
        self.seen.drain(..).collect()
    }

    /// Connects and waits for `Connected`.
    pub(super) fn connect(&mut self, token: Token, to: SocketAddr) {
        self.io().connect(token, to);
        match self.next() {
            Seen::Connected { token: whose, .. } if whose == token => {}
            other => panic!("connected expected, not {other:?}"),
        }
    }

    /// The bytes that a connection receives until it ends or fails, and the failure.
    pub(super) fn read_to_end(&mut self, token: Token) -> (Vec<u8>, Option<NetError>) {
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Seen::Received(whose, more, _) if whose == token => bytes.extend(more),
                Seen::Ended(whose, _) if whose == token => return (bytes, None),
                Seen::Failed(whose, error) if whose == token => return (bytes, Some(error)),
                Seen::Sent(..) | Seen::Flushed(..) => {}
                other => panic!("an arrival for {token:?} expected, not {other:?}"),
            }
        }
    }

    /// Does a disk job that reports, and waits for its result.
    pub(super) fn disk(&mut self, job: DiskJob) -> DiskDone {
        self.io().disk(job);
        match self.next() {
            Seen::Disk(done) => done,
            other => panic!("a disk result expected, not {other:?}"),
        }
    }

    pub(super) fn close(&mut self, token: Token) {
        self.io().close(token, Close::Finish);
    }
}

pub(super) fn token(slot: u32) -> Token {
    Token {
        slot,
        generation: 1,
    }
}

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
