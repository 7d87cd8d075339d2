//! What every back end must do, as one suite of sentences that all of them pass.
//!
//! A [`Bench`] brings a back end together with peers that follow a script. The suite sees nothing
//! else, so a new back end is checked by writing its bench.

mod kernel;
mod crowd;
mod overtaken;
mod simulated;
mod suite;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Close, Event, Io, NetError, Settings, Stamp, Token};
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::time::Instant;

/// A back end and the peers it can talk to.
pub(super) trait Bench {
    type Io: Io;

    fn new(settings: Settings) -> Self;

    fn io(&mut self) -> &mut Self::Io;

    /// An address where each connection is treated by the script.
    fn listen(&mut self, script: Vec<Step>) -> SocketAddr;

    /// An address that refuses connections.
    fn refuse(&mut self) -> SocketAddr;

    /// All that peers at this address have been told so far.
    fn heard(&mut self, at: SocketAddr) -> Vec<u8>;

    /// An address that sends each datagram back.
    fn echo(&mut self) -> SocketAddr;

    /// A folder to write files in.
    fn folder(&self) -> PathBuf;

    /// What a file holds; `None` if there is no such file.
    fn content(&mut self, path: &Path) -> Option<Vec<u8>>;
}

/// What a scripted peer does next. After the last step it holds the connection open.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Waits until it was told this many more bytes.
    Hear(usize),
    Say(Vec<u8>),
    Pause(Duration),
    End,
    Reset,
}

/// An event whose bytes have been copied out and whose chunk was given back.
#[derive(Debug)]
pub(super) enum Seen {
    Connected {
        token: Token,
        started: Instant,
        stamp: Stamp,
    },
    Failed(Token, NetError),
    Sent(Token, Instant),
    Gone(Token, Instant),
    Received(Token, Vec<u8>, Stamp),
    Ended(Token, Stamp),
    Disk(DiskDone),
    DiskFull(String),
    DiskRoom,
    Woken,
}

/// A bench under observation.
pub(super) struct Watch<B> {
    pub(super) bench: B,
    /// What was seen and not asked for yet.
    seen: VecDeque<Seen>,
    events: Vec<Event>,
}

impl<B: Bench> Watch<B> {
    pub(super) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> Self {
        Watch {
            bench: B::new(settings),
            seen: VecDeque::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn io(&mut self) -> &mut B::Io {
        self.bench.io()
    }

    /// One turn: submits, and waits for news for at most `span`.
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
                    token, at, gone, ..
                } => {
                    assert!(at <= gone && gone <= io.now(), "{at:?} {gone:?}");
                    Seen::Sent(token, at)
                }
                Event::Gone { token, at } => Seen::Gone(token, at),
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
                Event::Disk(done) => Seen::Disk(done),
                Event::DiskFull(error) => Seen::DiskFull(error.to_string()),
                Event::DiskRoom => Seen::DiskRoom,
                Event::Woken => Seen::Woken,
            });
        }
    }

    /// The next thing seen. Nothing at all for `PATIENCE` is a failure.
    pub(super) fn next(&mut self) -> Seen {
        let patient_until = self.io().now() + PATIENCE;
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return seen;
            }
            assert!(self.io().now() < patient_until, "waited in vain for news");
            self.turn(PATIENCE);
        }
    }

    /// Turns until `span` has passed, and all that was seen in it.
    pub(super) fn during(&mut self, span: Duration) -> Vec<Seen> {
        let until = self.io().now() + span;
        while self.io().now() < until {
            let left = until.saturating_since(self.io().now());
            self.turn(left);
        }
        self.seen.drain(..).collect()
    }

    /// Connects and waits until it is done.
    pub(super) fn connect(&mut self, token: Token, to: SocketAddr) {
        self.io().connect(token, to);
        match self.next() {
            Seen::Connected { token: whose, .. } if whose == token => {}
            other => panic!("connected expected, not {other:?}"),
        }
    }

    /// Everything that a connection receives until it ends or fails, and which of them.
    pub(super) fn read_to_end(&mut self, token: Token) -> (Vec<u8>, Option<NetError>) {
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                Seen::Received(whose, more, _) if whose == token => bytes.extend(more),
                Seen::Ended(whose, _) if whose == token => return (bytes, None),
                Seen::Failed(whose, error) if whose == token => return (bytes, Some(error)),
                Seen::Sent(..) | Seen::Gone(..) => {}
                other => panic!("an arrival for {token:?} expected, not {other:?}"),
            }
        }
    }

    /// Does a disk job that reports, and waits for the report.
    pub(super) fn disk(&mut self, job: DiskJob) -> DiskDone {
        self.io().disk(job);
        match self.next() {
            Seen::Disk(done) => done,
            other => panic!("a report of the disk expected, not {other:?}"),
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

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
