//! The simulated network: distances, splitting, losses, and the queue of what is going to happen.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::socket::Arrival;
use crate::base::disk::DiskJob;
use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::{Instant, nanos};
use crate::io::{Close, Memory, NetError};

/// The other side of the network: every server there is, seen through sockets only.
///
/// Each method is called at the moment when the world would notice, half a round trip after we
/// acted; [`Net::now`] tells it.
pub trait World: Send {
    /// How long a packet takes to an address and back, for the life of a connection.
    fn distance(&mut self, _to: SocketAddr, rng: &mut Rng) -> Duration {
        Duration::from_micros(5_000 + rng.below(45_000))
    }

    /// A connection is asked for.
    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer;

    /// Bytes came in on a connection, in order.
    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net);

    /// We ended a connection or closed a datagram socket; replies to it go nowhere from now on.
    fn closed(&mut self, _conn: ConnId, _how: Close, _net: &mut Net) {}

    /// A datagram came in. It is answered with [`Net::reply`], or [`Net::reset`] where nobody listens.
    fn datagram(&mut self, socket: ConnId, _to: SocketAddr, _bytes: &[u8], net: &mut Net) {
        net.reset(socket, Duration::ZERO);
    }

    /// An alarm set with [`Net::alarm`] goes off.
    fn alarm(&mut self, _what: u64, _net: &mut Net) {}
}

/// A world that a test keeps a hand on.
impl<W: World + Sync> World for Shared<W> {
    fn distance(&mut self, to: SocketAddr, rng: &mut Rng) -> Duration {
        self.borrow_mut().distance(to, rng)
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        self.borrow_mut().connect(conn, to, net)
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        self.borrow_mut().bytes(conn, bytes, net);
    }

    fn closed(&mut self, conn: ConnId, how: Close, net: &mut Net) {
        self.borrow_mut().closed(conn, how, net);
    }

    fn datagram(&mut self, socket: ConnId, to: SocketAddr, bytes: &[u8], net: &mut Net) {
        self.borrow_mut().datagram(socket, to, bytes, net);
    }

    fn alarm(&mut self, what: u64, net: &mut Net) {
        self.borrow_mut().alarm(what, net);
    }
}

/// Names a connection, or a datagram socket, to the world; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What the world says to a connection that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It stands a round trip after it was asked for.
    Accept,
    /// RST: nobody listens there.
    Refuse,
    /// ICMP: there is no way there.
    Unreachable,
    /// Our own machine has no route: no packet leaves, and the connection fails at once.
    NoRoute,
    /// No answer at all, until the kernel gives up.
    Silence,
}

/// A stretch of time in which a volume has no room.
#[derive(Clone, Debug)]
pub struct FullDisk {
    /// Files below this folder are on it.
    pub below: PathBuf,
    /// Since the crawl's start.
    pub from: Duration,
    /// From then on there is room again.
    pub until: Duration,
}

/// What the network and the disk do to what passes through them.
#[derive(Clone, Debug)]
pub struct Faults {
    /// How likely a datagram is lost, each way.
    pub datagram_loss: f64,
    /// The longest piece that a reply arrives in; lengths are drawn from 1 up to it.
    pub piece_bytes_max: usize,
    /// The longest pause between two pieces.
    pub piece_gap_max: Duration,
    /// The longest that the disk takes for a job.
    pub disk_latency_max: Duration,
    /// Bytes that the disk has room for.
    pub disk_room: u64,
    /// What is known of memory from each of these moments on, counted from the start.
    pub memory: Vec<(Duration, Memory)>,
    /// When, and where, there is no room for anything.
    pub disk_full: Vec<FullDisk>,
    /// Local ports that our machine has for connections to one place.
    pub ports_max: usize,
    /// How long our thread is busy where it looks through all of these for a free one. It does once half
    /// of them are taken, as Linux does, which has the other half for servers that choose one.
    pub port_search: Duration,
    /// Sockets that our machine has to give, whatever the settings count on.
    pub sockets_max: usize,
    /// The longest that a system call takes that sends. What it sends leaves at its very end, and
    /// nobody is told that it was held up.
    pub send_max: Duration,
    /// How long our thread is busy with each chunk that it reads, before it gives it back.
    pub chunk_takes: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            datagram_loss: 0.0,
            piece_bytes_max: 8 * 1024,
            piece_gap_max: Duration::from_micros(200),
            disk_latency_max: Duration::from_millis(2),
            disk_room: u64::MAX,
            memory: Vec::new(),
            disk_full: Vec::new(),
            ports_max: usize::MAX,
            port_search: Duration::ZERO,
            sockets_max: usize::MAX,
            send_max: Duration::ZERO,
            chunk_takes: Duration::ZERO,
        }
    }
}

/// The network as the world uses it: what it says arrives with us, half a round trip later.
#[derive(Debug)]
pub struct Net {
    now: Instant,
    rng: Rng,
    /// For how long sends take, so that no other chance depends on them.
    sends: Rng,
    faults: Faults,
    paths: BTreeMap<ConnId, Path>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

/// The way between us and the other end of a connection.
#[derive(Debug)]
struct Path {
    to: SocketAddr,
    half: Duration,
    datagram: bool,
    /// When the last thing on its way to us arrives: the next does not overtake it.
    arrived_last: Instant,
    /// The world has ended its side.
    ended: bool,
    /// Bytes that the world said on it and we have not read.
    unread: usize,
}

/// Something that is going to happen.
#[derive(Debug)]
pub(super) enum Happening {
    Syn(ConnId, SocketAddr),
    Told(ConnId, Vec<u8>),
    Datagram(ConnId, SocketAddr, Vec<u8>),
    Closed(ConnId, Close),
    Alarm(u64),
    Disk(DiskJob),
    DiskRetry,
    Established(ConnId),
    Unanswered(ConnId, NetError),
    Arrived(ConnId, Arrival),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Answer,
    Rest,
}

#[derive(Debug)]
struct Scheduled {
    at: Instant,
    /// At one moment, a connection stands before anything comes in on it; else what was scheduled
    /// first happens first.
    rank: (Rank, u64),
    what: Happening,
}

impl Net {
    /// The present moment.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Chance, from the simulation's seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Says something on a connection `after` a while, behind all that was said before; on a
    /// datagram socket, sends a datagram.
    pub fn reply(&mut self, conn: ConnId, after: Duration, bytes: &[u8]) {
        let now = self.now;
        let Some(path) = self.open_path(conn) else {
            return;
        };
        let at = now + after + path.half;
        if path.datagram {
            if !self.rng.chance(self.faults.datagram_loss) {
                let what = Happening::Arrived(conn, Arrival::Bytes(bytes.to_vec()));
                self.schedule(at, what);
            }
            return;
        }
        let mut at = at.max(path.arrived_last);
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = 1 + self.rng.below(self.faults.piece_bytes_max as u64) as usize;
            let (piece, later) = rest.split_at(length.min(rest.len()));
            let what = Happening::Arrived(conn, Arrival::Bytes(piece.to_vec()));
            self.schedule(at, what);
            if let Some(path) = self.paths.get_mut(&conn) {
                path.arrived_last = at;
                path.unread += piece.len();
            }
            at += Duration::from_nanos(self.rng.below(nanos(self.faults.piece_gap_max) + 1));
            rest = later;
        }
    }

    /// Bytes that were said on a connection and that nobody has read: on their way, or waiting with us.
    /// A window is for the world to keep: nothing that it says is ever refused.
    pub fn unread(&self, conn: ConnId) -> usize {
        self.paths.get(&conn).map_or(0, |path| path.unread)
    }

    /// Ends the world's side of a connection, behind all that was said before.
    pub fn end(&mut self, conn: ConnId, after: Duration) {
        self.finish(conn, after, Arrival::End);
    }

    /// Resets a connection, behind all that was said before. For a datagram: nobody listens here.
    pub fn reset(&mut self, conn: ConnId, after: Duration) {
        let datagram = self.paths.get(&conn).is_some_and(|path| path.datagram);
        let error = if datagram {
            NetError::Refused
        } else {
            NetError::Reset
        };
        self.finish(conn, after, Arrival::Failure(error));
    }

    /// Calls [`World::alarm`] with `what` after a while.
    pub fn alarm(&mut self, after: Duration, what: u64) {
        self.schedule(self.now + after, Happening::Alarm(what));
    }

    fn finish(&mut self, conn: ConnId, after: Duration, how: Arrival) {
        let now = self.now;
        let Some(path) = self.open_path(conn) else {
            return;
        };
        path.ended = true;
        let at = (now + after + path.half).max(path.arrived_last);
        self.schedule(at, Happening::Arrived(conn, how));
    }

    fn open_path(&mut self, conn: ConnId) -> Option<&mut Path> {
        self.paths.get_mut(&conn).filter(|path| !path.ended)
    }

    pub(super) fn new(rng: Rng, faults: Faults) -> Self {
        Net {
            now: Instant::START,
            sends: rng.fork("sends"),
            rng,
            faults,
            paths: BTreeMap::new(),
            queue: BinaryHeap::new(),
            scheduled: 0,
        }
    }

    pub(super) fn open(&mut self, conn: ConnId, to: SocketAddr, round: Duration, datagram: bool) {
        let half = round / 2;
        self.paths.insert(
            conn,
            Path {
                to,
                half,
                datagram,
                arrived_last: self.now,
                ended: false,
                unread: 0,
            },
        );
        if !datagram {
            self.schedule(self.now + half, Happening::Syn(conn, to));
        }
    }

    /// Carries the world's answer to a connection that was asked for.
    pub(super) fn answer(&mut self, conn: ConnId, answer: Answer) {
        let now = self.now;
        let Some(path) = self.paths.get_mut(&conn) else {
            return;
        };
        let at = now + path.half;
        // What the world said while it accepted comes behind the acceptance.
        path.arrived_last = path.arrived_last.max(at);
        let what = match answer {
            Answer::Accept => Happening::Established(conn),
            Answer::Refuse => Happening::Unanswered(conn, NetError::Refused),
            Answer::Unreachable => Happening::Unanswered(conn, NetError::Unreachable),
            Answer::NoRoute => Happening::Unanswered(conn, NetError::NoRoute),
            Answer::Silence => {
                let given_up = now - path.half + SYN_PATIENCE;
                let what = Happening::Unanswered(conn, NetError::TimedOut);
                return self.schedule(given_up, what);
            }
        };
        self.schedule(at, what);
    }

    /// How long a system call takes that sends.
    pub(super) fn send_takes(&mut self) -> Duration {
        match self.faults.send_max {
            Duration::ZERO => Duration::ZERO,
            most => Duration::from_nanos(self.sends.below(nanos(most) + 1)),
        }
    }

    /// How long our thread is busy with a chunk.
    pub(super) fn chunk_takes(&self) -> Duration {
        self.faults.chunk_takes
    }

    /// Carries bytes to the world.
    pub(super) fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(path) = self.paths.get(&conn) else {
            return;
        };
        let (at, to) = (self.now + path.half, path.to);
        let what = if !path.datagram {
            Happening::Told(conn, bytes.to_vec())
        } else if self.rng.chance(self.faults.datagram_loss) {
            return;
        } else {
            Happening::Datagram(conn, to, bytes.to_vec())
        };
        self.schedule(at, what);
    }

    /// We have read so many bytes of a connection.
    pub(super) fn read(&mut self, conn: ConnId, bytes: usize) {
        if let Some(path) = self.paths.get_mut(&conn) {
            path.unread -= bytes;
        }
    }

    /// Carries the news that we have ended a connection.
    pub(super) fn close(&mut self, conn: ConnId, how: Close) {
        if let Some(path) = self.paths.get(&conn) {
            self.schedule(self.now + path.half, Happening::Closed(conn, how));
        }
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.paths.remove(&conn);
    }

    pub(super) fn schedule(&mut self, at: Instant, what: Happening) {
        let rank = match what {
            Happening::Established(_) | Happening::Unanswered(..) => Rank::Answer,
            _ => Rank::Rest,
        };
        let rank = (rank, self.scheduled);
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at, rank, what }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }

    /// Goes to the moment of what happens next, and takes it.
    pub(super) fn pop(&mut self) -> Happening {
        let Reverse(next) = self.queue.pop().expect("something is going to happen");
        self.advance(next.at);
        next.what
    }

    /// Goes to a moment, unless it has passed.
    pub(super) fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.rank).cmp(&(other.at, other.rank))
    }
}

/// When Linux gives up on a SYN that nobody answers: after six retries.
const SYN_PATIENCE: Duration = Duration::from_secs(127);
