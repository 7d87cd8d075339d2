//! The simulated network: round trips, segmentation, losses, and the queue of future events.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::socket::{Arrival, ConnId};
use crate::base::disk::DiskJob;
use crate::base::rng::Rng;
use crate::base::shared::Shared;
use crate::base::time::{Instant, nanos};
use crate::base::worker::WorkerDone;
use crate::io::disk::Place;
use crate::io::{Close, Endpoint, Memory, NetError, Peer};

/// The other side of the network: all servers, as seen through sockets.
///
/// Each method is called when the event reaches the world, half a round trip after we acted;
/// [`Net::now`] returns that moment.
pub trait World: Send {
    /// The round trip to an address, for the life of a connection.
    fn distance(&mut self, _to: SocketAddr, rng: &mut Rng) -> Duration {
        Duration::from_micros(5_000 + rng.below(45_000))
    }

    /// A SYN arrives.
    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer;

    /// Bytes arrive on a connection, in order.
    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net);

    /// We ended a connection or closed a datagram socket; later replies to it are dropped.
    fn closed(&mut self, _conn: ConnId, _how: Close, _net: &mut Net) {}

    /// A datagram arrives. It is answered with [`Net::reply`], or [`Net::reset`] where nothing listens.
    fn datagram(&mut self, socket: ConnId, _to: SocketAddr, _bytes: &[u8], net: &mut Net) {
        net.reset(socket, Duration::ZERO);
    }

    /// A timer set with [`Net::alarm`] fires.
    fn alarm(&mut self, _what: u64, _net: &mut Net) {}
}

/// A world that a test shares.
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

/// The world's answer to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepts: established after one round trip.
    Accept,
    /// RST: nothing listens there.
    Refuse,
    /// ICMP: the host is unreachable.
    Unreachable,
    /// This machine has no route: no packet leaves, and the connection fails at once.
    NoRoute,
    /// No answer, until the kernel gives up.
    Silence,
}

/// A period in which a volume is full, or has little free space.
#[derive(Clone, Debug)]
pub struct FullDisk {
    /// The volume holds the files below this folder.
    pub below: PathBuf,
    /// From this time after the start.
    pub from: Duration,
    /// Until this time after the start.
    pub until: Duration,
    /// Bytes that are free at its beginning.
    pub free: u64,
}

/// Faults of network, disk and machine.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Probability that a datagram is lost, each way.
    pub datagram_loss: f64,
    /// The longest piece in which a reply arrives; lengths are drawn from 1 up to it.
    pub piece_bytes_max: usize,
    /// The longest pause between two pieces.
    pub piece_gap_max: Duration,
    /// The longest latency of a disk job.
    pub disk_latency_max: Duration,
    /// How much longer than other jobs a sync takes at most; meanwhile jobs of other files are done.
    pub sync_delay_max: Duration,
    /// Probability that a disk job fails, with the error of a broken disk.
    pub disk_error: f64,
    /// Free space on the disk, in bytes.
    pub disk_room: u64,
    /// Memory limit and use, each from a time after the start.
    pub memory: Vec<(Duration, Memory)>,
    /// Periods in which volumes are full.
    pub disk_full: Vec<FullDisk>,
    /// Local ports for connections to one destination.
    pub ports_max: usize,
    /// How long our thread takes to search all of them for a free one. It searches once half of them are
    /// taken, as Linux does, which keeps the other half for explicit binds.
    pub port_search: Duration,
    /// Sockets that the machine has, whatever the settings assume.
    pub sockets_max: usize,
    /// The longest duration of a system call that sends. The bytes leave at its end, and the event does
    /// not show the delay.
    pub send_max: Duration,
    /// How long our thread is busy with each chunk before it releases it.
    pub chunk_takes: Duration,
    /// The longest time that a computation of a helper thread takes.
    pub compute_max: Duration,
    /// Probability that a computation panics.
    pub compute_panic: f64,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            datagram_loss: 0.0,
            piece_bytes_max: 8 * 1024,
            piece_gap_max: Duration::from_micros(200),
            disk_latency_max: Duration::from_millis(2),
            sync_delay_max: Duration::ZERO,
            disk_error: 0.0,
            disk_room: u64::MAX,
            memory: Vec::new(),
            disk_full: Vec::new(),
            ports_max: usize::MAX,
            port_search: Duration::ZERO,
            sockets_max: usize::MAX,
            send_max: Duration::ZERO,
            chunk_takes: Duration::ZERO,
            compute_max: Duration::from_millis(3),
            compute_panic: 0.0,
        }
    }
}

/// The network as the world sees it: what it sends arrives with us half a round trip later.
#[derive(Debug)]
pub struct Net {
    now: Instant,
    rng: Rng,
    /// Draws durations of sends, separate from other random choices.
    sends: Rng,
    faults: Faults,
    paths: BTreeMap<ConnId, Path>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    /// Connections and datagram sockets so far.
    connections: u64,
}

/// The path between us and the other end of a connection.
#[derive(Debug)]
struct Path {
    to: SocketAddr,
    half: Duration,
    datagram: bool,
    /// When the last thing sent to us arrives; the next does not overtake it.
    arrived_last: Instant,
    /// The world has ended its side.
    ended: bool,
    /// Bytes that the world sent and we have not read.
    unread: usize,
}

/// A scheduled event.
#[derive(Debug)]
pub(super) enum SimEvent {
    Syn(ConnId, SocketAddr),
    Bytes(ConnId, Vec<u8>),
    Datagram(ConnId, SocketAddr, Vec<u8>),
    Closed(ConnId, Close),
    Alarm(u64),
    Disk(Place, DiskJob),
    DiskRetry,
    Computed(WorkerDone),
    ClientSyn(ConnId, Endpoint, Peer),
    Established(ConnId),
    ConnectFailed(ConnId, NetError),
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
    /// Among events of one moment, a connection is established before its bytes arrive; otherwise the
    /// first scheduled comes first.
    rank: (Rank, u64),
    what: SimEvent,
}

impl Net {
    /// The present moment.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Random numbers from the simulation's seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// Sends bytes on a connection after a while, behind all that was sent before; on a datagram socket,
    /// sends a datagram.
    pub fn reply(&mut self, conn: ConnId, after: Duration, bytes: &[u8]) {
        let now = self.now;
        let Some(path) = self.open_path(conn) else {
            return;
        };
        let at = now + after + path.half;
        if path.datagram {
            if !self.rng.chance(self.faults.datagram_loss) {
                let what = SimEvent::Arrived(conn, Arrival::Bytes(bytes.to_vec()));
                self.schedule(at, what);
            }
            return;
        }
        let mut at = at.max(path.arrived_last);
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = 1 + self.rng.below(self.faults.piece_bytes_max as u64) as usize;
            let (piece, later) = rest.split_at(length.min(rest.len()));
            let what = SimEvent::Arrived(conn, Arrival::Bytes(piece.to_vec()));
            self.schedule(at, what);
            if let Some(path) = self.paths.get_mut(&conn) {
                path.arrived_last = at;
                path.unread += piece.len();
            }
            at += Duration::from_nanos(self.rng.below(nanos(self.faults.piece_gap_max) + 1));
            rest = later;
        }
    }

    /// Bytes that were sent on a connection and not read: in flight or in our buffer. The world keeps
    /// the window itself: nothing that it sends is refused.
    pub fn unread(&self, conn: ConnId) -> usize {
        self.paths.get(&conn).map_or(0, |path| path.unread)
    }

    /// Ends the world's side of a connection, behind all that was sent before.
    pub fn end(&mut self, conn: ConnId, after: Duration) {
        self.finish(conn, after, Arrival::End);
    }

    /// Resets a connection, behind all that was sent before. For a datagram socket: port unreachable.
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
        self.schedule(self.now + after, SimEvent::Alarm(what));
    }

    /// Opens a client's connection to a listener of ours, one round trip away. Bytes sent on it arrive
    /// behind it. If nothing listens, [`World::closed`] is called.
    pub fn connect_client(&mut self, at: &Endpoint, from: Peer, round: Duration) -> ConnId {
        let to = match from {
            Peer::Tcp(address) => address,
            Peer::Unix(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let conn = self.new_path(to, round, false);
        let arrives = self.now + round / 2;
        if let Some(path) = self.paths.get_mut(&conn) {
            path.arrived_last = arrives;
        }
        self.schedule(arrives, SimEvent::ClientSyn(conn, at.clone(), from));
        conn
    }

    fn finish(&mut self, conn: ConnId, after: Duration, how: Arrival) {
        let now = self.now;
        let Some(path) = self.open_path(conn) else {
            return;
        };
        path.ended = true;
        let at = (now + after + path.half).max(path.arrived_last);
        self.schedule(at, SimEvent::Arrived(conn, how));
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
            connections: 0,
        }
    }

    pub(super) fn open(&mut self, to: SocketAddr, round: Duration, datagram: bool) -> ConnId {
        let conn = self.new_path(to, round, datagram);
        if !datagram {
            self.schedule(self.now + round / 2, SimEvent::Syn(conn, to));
        }
        conn
    }

    fn new_path(&mut self, to: SocketAddr, round: Duration, datagram: bool) -> ConnId {
        self.connections += 1;
        let conn = ConnId(self.connections);
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
        conn
    }

    /// Delivers the world's answer to a SYN.
    pub(super) fn answer(&mut self, conn: ConnId, answer: Answer) {
        let now = self.now;
        let Some(path) = self.paths.get_mut(&conn) else {
            return;
        };
        let at = now + path.half;
        // Bytes that the world sent while it accepted come behind the acceptance.
        path.arrived_last = path.arrived_last.max(at);
        let what = match answer {
            Answer::Accept => SimEvent::Established(conn),
            Answer::Refuse => SimEvent::ConnectFailed(conn, NetError::Refused),
            Answer::Unreachable => SimEvent::ConnectFailed(conn, NetError::Unreachable),
            Answer::NoRoute => SimEvent::ConnectFailed(conn, NetError::NoRoute),
            Answer::Silence => {
                let given_up = now - path.half + SYN_TIMEOUT;
                let what = SimEvent::ConnectFailed(conn, NetError::TimedOut);
                return self.schedule(given_up, what);
            }
        };
        self.schedule(at, what);
    }

    /// Duration of a system call that sends.
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

    /// Sends bytes to the world.
    pub(super) fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(path) = self.paths.get(&conn) else {
            return;
        };
        let (at, to) = (self.now + path.half, path.to);
        let what = if !path.datagram {
            SimEvent::Bytes(conn, bytes.to_vec())
        } else if self.rng.chance(self.faults.datagram_loss) {
            return;
        } else {
            SimEvent::Datagram(conn, to, bytes.to_vec())
        };
        self.schedule(at, what);
    }

    /// We have read so many bytes of a connection.
    pub(super) fn read(&mut self, conn: ConnId, bytes: usize) {
        if let Some(path) = self.paths.get_mut(&conn) {
            path.unread -= bytes;
        }
    }

    /// Reports to the world that we have closed a connection.
    pub(super) fn close(&mut self, conn: ConnId, how: Close) {
        if let Some(path) = self.paths.get(&conn) {
            self.schedule(self.now + path.half, SimEvent::Closed(conn, how));
        }
    }

    #[cfg(test)]
    pub(super) fn turns_take_time(&self) -> bool {
        let faults = &self.faults;
        let times = [faults.port_search, faults.send_max, faults.chunk_takes];
        times.iter().any(|time| !time.is_zero())
    }

    pub(super) fn forget(&mut self, conn: ConnId) {
        self.paths.remove(&conn);
    }

    pub(super) fn schedule(&mut self, at: Instant, what: SimEvent) {
        let rank = match what {
            SimEvent::ClientSyn(..) | SimEvent::Established(_) | SimEvent::ConnectFailed(..) => {
                Rank::Answer
            }
            _ => Rank::Rest,
        };
        let rank = (rank, self.scheduled);
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at, rank, what }));
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }

    /// Advances to the next event and takes it.
    pub(super) fn pop(&mut self) -> SimEvent {
        let Reverse(next) = self.queue.pop().expect("an event is scheduled");
        self.advance(next.at);
        next.what
    }

    /// Advances to a moment, unless it has passed.
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

/// When Linux gives up on an unanswered SYN: after six retries.
const SYN_TIMEOUT: Duration = Duration::from_secs(127);
