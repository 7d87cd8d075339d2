//! The bench of the kernel's back ends: threads on loopback are the peers.

use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::time::{ClockId, clock_gettime};
use socket2::{SockAddr, Socket};

use super::{Bench, Seen, Step, Watch, token};
use crate::base::disk::{DiskJob, FileId};
use crate::base::time::Instant;
use crate::io::sockets::listening::ACCEPTED_MAX;
use crate::io::{Clock, Credentials, Endpoint, Epoll, Io, IoSettings, Uring};

pub(super) struct Kernel<I = Epoll> {
    io: I,
    peers: BTreeMap<SocketAddr, Arc<Peer>>,
    folder: tempfile::TempDir,
}

/// Progress of all connections of a listener, or of one client.
#[derive(Default)]
pub(super) struct Peer {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Default)]
pub(super) struct Progress {
    /// Connections established.
    pub accepted: usize,
    /// Bytes passed to the kernel.
    pub sent_bytes: usize,
    /// When the last of them were.
    pub sent_at: Option<std::time::Instant>,
    /// The addresses of a client's TCP connection: its own and the listener's.
    addresses: Option<[SocketAddr; 2]>,
    /// Connections that are over.
    over: usize,
    received: Vec<u8>,
}

impl Peer {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no peer panicked")
    }

    fn advance(&self, step: impl FnOnce(&mut Progress)) {
        step(&mut self.lock());
        self.moved.notify_all();
    }
}

/// How long a test waits for a peer.
const TIMEOUT: Duration = Duration::from_secs(30);

impl<I: KernelBackEnd> Kernel<I> {
    /// Waits until a listener's connections have come so far. What they sent is in our sockets then.
    pub(super) fn until(&self, at: SocketAddr, so_far: impl Fn(&Progress) -> bool) {
        until(&self.peers[&at], so_far).unwrap_or_else(|| panic!("{at} makes no progress"));
    }
}

/// Waits until a peer has come so far; `None` after the timeout.
fn until(peer: &Peer, so_far: impl Fn(&Progress) -> bool) -> Option<()> {
    let waited = peer
        .moved
        .wait_timeout_while(peer.lock(), TIMEOUT, |seen| !so_far(seen));
    let (seen, timeout) = waited.expect("no peer panicked");
    drop(seen);
    (!timeout.timed_out()).then_some(())
}

/// Whether the listener's side of a connection has not had the client's last packet of the handshake, so
/// that nothing can be accepted yet.
fn is_shaking_hands([client, listener]: [SocketAddr; 2]) -> bool {
    let hex = |at: SocketAddr| match at {
        SocketAddr::V4(at) => {
            let address = u32::from_ne_bytes(at.ip().octets());
            format!("{address:08X}:{:04X}", at.port())
        }
        SocketAddr::V6(_) => panic!("tests use IPv4"),
    };
    let shaking = format!(" {} {} {SYN_RECEIVED} ", hex(listener), hex(client));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    table.contains(&shaking)
}

/// A state of `/proc/net/tcp`.
const SYN_RECEIVED: &str = "03";

/// Whether this address names a client.
fn is_client(name: &SocketAddr) -> bool {
    name.ip() == CLIENTS
}

/// Clients are named by addresses that no listener has.
const CLIENTS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// A back end of the kernel.
pub(super) trait KernelBackEnd: Io {
    fn start(settings: IoSettings) -> Self;
}

impl KernelBackEnd for Epoll {
    fn start(settings: IoSettings) -> Self {
        Epoll::new(settings).expect("a back end")
    }
}

impl KernelBackEnd for Uring {
    fn start(settings: IoSettings) -> Self {
        Uring::new(settings).expect("a back end")
    }
}

/// Whether io_uring is available. If not, the test reports that it is skipped.
pub(super) fn has_uring() -> bool {
    let missing = Uring::new(IoSettings::default()).err();
    if let Some(reason) = &missing {
        crate::base::loud::skip(reason);
    }
    missing.is_none()
}

impl<I: KernelBackEnd> Bench for Kernel<I> {
    type Io = I;

    fn new(settings: IoSettings) -> Self {
        Kernel {
            io: I::start(settings),
            peers: BTreeMap::new(),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn io(&mut self) -> &mut I {
        &mut self.io
    }

    fn listen(&mut self, script: Vec<Step>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let peer = Arc::<Peer>::default();
        self.peers.insert(at, Arc::clone(&peer));
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                peer.advance(|seen| seen.accepted += 1);
                let (script, peer) = (script.clone(), Arc::clone(&peer));
                thread::spawn(move || follow(script, stream.into(), &peer));
            }
        });
        at
    }

    fn refuse(&mut self) -> SocketAddr {
        // Bound for a moment, so that nothing else has the port.
        TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
    }

    fn received(&mut self, at: SocketAddr) -> Vec<u8> {
        self.peers[&at].lock().received.clone()
    }

    fn call(&mut self, at: &Endpoint, script: Vec<Step>) -> SocketAddr {
        let name = SocketAddr::from((CLIENTS, self.peers.len() as u16));
        let peer = Arc::<Peer>::default();
        self.peers.insert(name, Arc::clone(&peer));
        let at = at.clone();
        thread::spawn(move || {
            let connected = match at {
                Endpoint::Tcp(address) => TcpStream::connect(address).map(Socket::from),
                Endpoint::Unix { path, .. } => UnixStream::connect(path).map(Socket::from),
            };
            match connected {
                Ok(stream) => {
                    let address = |at: std::io::Result<SockAddr>| at.ok()?.as_socket();
                    let addresses = address(stream.local_addr()).zip(address(stream.peer_addr()));
                    peer.advance(|seen| {
                        seen.addresses = addresses.map(<[_; 2]>::from);
                        seen.accepted += 1;
                    });
                    follow(script, stream, &peer);
                }
                Err(_) => peer.advance(|seen| seen.over += 1),
            }
        });
        name
    }

    fn is_over(&mut self, client: SocketAddr) -> bool {
        self.peers[&client].lock().over == 1
    }

    fn settle(&mut self) {
        for (client, peer) in &self.peers {
            if is_client(client) {
                let has_begun = |seen: &Progress| seen.accepted + seen.over > 0;
                until(peer, has_begun).unwrap_or_else(|| panic!("{client} never connects"));
                let give_up_at = std::time::Instant::now() + TIMEOUT;
                let addresses = peer.lock().addresses;
                while addresses.is_some_and(is_shaking_hands) {
                    assert!(std::time::Instant::now() < give_up_at, "{client} waits");
                    thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    fn credentials(&self) -> Credentials {
        Credentials {
            pid: Some(std::process::id()),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    fn echo(&mut self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let at = socket.local_addr().expect("an address");
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
        at
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn content(&mut self, path: &Path) -> Option<Vec<u8>> {
        std::fs::read(path).ok()
    }
}

fn follow(script: Vec<Step>, stream: Socket, peer: &Peer) {
    follow_to_end(script, stream, peer);
    peer.advance(|seen| seen.over += 1);
}

fn follow_to_end(script: Vec<Step>, mut stream: Socket, peer: &Peer) {
    let mut buffer = vec![0; 65_536];
    for step in script {
        match step {
            Step::Expect(mut wanted) => {
                while wanted > 0 {
                    let room = wanted.min(buffer.len());
                    match stream.read(&mut buffer[..room]) {
                        Ok(0) | Err(_) => return,
                        Ok(length) => {
                            wanted -= length;
                            peer.advance(|seen| seen.received.extend_from_slice(&buffer[..length]));
                        }
                    }
                }
            }
            Step::Send(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
                peer.advance(|seen| {
                    seen.sent_bytes += bytes.len();
                    seen.sent_at = Some(std::time::Instant::now());
                });
            }
            Step::Pause(span) => thread::sleep(span),
            Step::End => {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            Step::Reset => {
                let _ = stream.set_linger(Some(Duration::ZERO));
                return;
            }
        }
    }
    // Holds the connection until the other side ends it, and records what it receives.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        peer.advance(|seen| seen.received.extend_from_slice(&buffer[..length]));
    }
}

fn a_stalled_loop_changes_no_latency<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let peer = watch.bench.listen(vec![
        Step::Expect(1),
        Step::Pause(Duration::from_millis(20)),
        Step::Send(b"!".to_vec()),
    ]);
    let connect_began = watch.io().now();
    watch.io().connect(token(0), peer);
    let connect_returned = watch.io().now();
    watch.bench.until(peer, |seen| seen.accepted == 1);
    let accepted = watch.io().now();
    thread::sleep(Duration::from_millis(50));
    let Seen::Connected { started, stamp, .. } = watch.next() else {
        panic!("a listening peer accepts");
    };
    assert!((connect_began..=connect_returned).contains(&started));
    assert_eq!(stamp.clock, Clock::Kernel);
    // On a busy machine the attempt may have left later than it started: the stamp shows by how much.
    assert!(stamp.at >= started);
    assert!(stamp.at - stamp.slack <= accepted);
    watch.io().send(token(0), b"?", true);
    let submitted = std::time::Instant::now();
    watch.io().submit();
    watch.bench.until(peer, |seen| seen.sent_at.is_some());
    thread::sleep(Duration::from_millis(150));
    let (Seen::Sent(_, sent), Seen::Received(_, _, stamp)) = (watch.next(), watch.next()) else {
        panic!("the peer answers");
    };
    let latency = stamp.at.saturating_since(sent);
    assert_eq!(stamp.clock, Clock::Kernel);
    assert!(latency >= Duration::from_millis(20), "{latency:?}");
    // On a busy machine the peer itself may be late.
    let replied = watch.bench.peers[&peer].lock().sent_at;
    let peer_took = replied.expect("it replied") - submitted;
    let longest = peer_took + Duration::from_millis(30);
    assert!(latency < longest, "{latency:?}, by the peer {peer_took:?}");
    // The reply came in one segment, so its stamp is exact.
    assert!(!stamp.is_bound());
}

fn a_request_that_leaves_in_parts_is_flushed_with_its_last_byte<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let (length, pause) = (12_000_000, Duration::from_millis(60));
    let script = [Step::Pause(pause), Step::Expect(length), Step::End];
    let peer = watch.bench.listen(script.to_vec());
    watch.connect(token(0), peer);
    let established = watch.io().now();
    watch.io().send(token(0), &vec![0; length], true);
    let (Seen::Sent(_, sent), Seen::Flushed(whose, flushed)) = (watch.next(), watch.next()) else {
        panic!("it leaves in parts");
    };
    assert_eq!(whose, token(0));
    // The bytes exceed all buffers, and the peer does not read before its pause is over.
    assert!(flushed > sent && flushed.saturating_since(established) > pause / 2);
    assert!(
        matches!(watch.next(), Seen::Ended(..)),
        "it is reported once"
    );
}

#[test]
fn after_a_stall_the_stamp_of_two_segments_bounds_the_first() {
    let (early, gap) = (Duration::from_millis(20), Duration::from_millis(30));
    let stalled = || thread::sleep(Duration::from_millis(250));
    let mut watch = Watch::<Kernel>::new();
    let two = [
        Step::Expect(1),
        Step::Pause(early),
        Step::Send(b"!".to_vec()),
        Step::Pause(gap),
        Step::Send(b"!".to_vec()),
    ];
    let one = [Step::Expect(1), Step::Send(b"!".to_vec())];
    let script = [two.to_vec(), two.to_vec(), one.to_vec()].concat();
    let peer = watch.bench.listen(script);
    watch.connect(token(0), peer);
    let mut request = |bytes: usize| {
        watch.io().send(token(0), b"?", true);
        watch.io().submit();
        stalled();
        let Seen::Sent(_, sent) = watch.next() else {
            panic!("a marked send is reported");
        };
        let Seen::Received(_, received, stamp) = watch.next() else {
            panic!("the peer answers");
        };
        assert_eq!((received.len(), stamp.clock), (bytes, Clock::Kernel));
        assert!(stamp.at.saturating_since(sent) >= (early + gap) * (bytes as u32 - 1));
        let earliest = stamp.at - stamp.slack;
        (stamp.is_bound(), earliest.saturating_since(sent))
    };
    for _ in 0..2 {
        let (is_bound, earliest) = request(2);
        assert!(is_bound);
        assert!(earliest <= early, "the first came before {earliest:?}");
    }
    // Segments are counted by now, so a single one is recognized.
    assert!(!request(1).0);
}

fn an_arrival_that_ends_a_sleep_has_an_exact_stamp<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let script = [
        Step::Expect(1),
        Step::Pause(Duration::from_millis(15)),
        Step::Send(b"!".to_vec()),
    ];
    let peer = watch.bench.listen(vec![script; 10].concat());
    watch.connect(token(0), peer);
    let exact = (0..10)
        .filter(|_| {
            watch.io().send(token(0), b"?", true);
            assert!(matches!(watch.next(), Seen::Sent(..)));
            match watch.next() {
                Seen::Received(_, _, stamp) => !stamp.is_bound(),
                other => panic!("{other:?}"),
            }
        })
        .count();
    // On a busy machine some wake-ups are late.
    assert!(exact >= 5, "{exact} of 10");
}

fn a_waker_ends_the_wait_from_another_thread<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let waker = watch.io().waker();
    let waker_thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    assert!(matches!(watch.next(), Seen::Woken));
    waker_thread.join().expect("it ends");
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

fn a_wait_polls_only_in_its_tail<I: KernelBackEnd>() {
    let span = Duration::from_millis(60);
    let check = |spin: Duration, awake_for: std::ops::Range<u64>| {
        let mut watch = Watch::<Kernel<I>>::with(IoSettings {
            spin,
            ..IoSettings::default()
        });
        let (io, mut events) = (watch.io(), Vec::new());
        let until = io.now() + span;
        let before = cpu_time();
        while io.now() < until {
            io.wait(Some(until), &mut events);
        }
        let took = (cpu_time() - before).as_millis() as u64;
        assert!(awake_for.contains(&took), "busy for {took} ms of {span:?}");
        assert!(events.is_empty());
    };
    check(Duration::ZERO, 0..5);
    check(Duration::from_millis(1), 0..6);
    // Other processes may have had the processor for most of it.
    check(Duration::from_secs(1), 6..70);
}

fn an_arrival_in_the_tail_of_a_wait_ends_it<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::with(IoSettings {
        spin: Duration::from_secs(60),
        ..IoSettings::default()
    });
    let script = [
        Step::Expect(1),
        Step::Pause(Duration::from_millis(5)),
        Step::Send(b"!".to_vec()),
    ];
    let peer = watch.bench.listen(vec![script; 20].concat());
    watch.connect(token(0), peer);
    let began = watch.io().now();
    // A polled arrival is seen at once, unless other processes had the processor.
    let exact = (0..20).any(|_| {
        watch.io().send(token(0), b"?", true);
        assert!(matches!(watch.next(), Seen::Sent(..)));
        match watch.next() {
            Seen::Received(_, _, stamp) => !stamp.is_bound(),
            other => panic!("{other:?}"),
        }
    });
    assert!(exact);
    assert!(watch.io().now().saturating_since(began) < Duration::from_secs(10));
}

/// Whether a host that polls the descriptor would be woken within `span`.
fn readable(io: &impl Io, span: Duration) -> bool {
    let fd = io.as_fd().expect("a kernel's back end has a descriptor");
    let timeout = Timespec::try_from(span).expect("it fits");
    poll(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)],
        Some(&timeout),
    )
    .expect("poll takes our descriptor")
        > 0
}

fn the_descriptor_is_readable_at_the_armed_deadline<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let io = watch.io();
    let mut events = Vec::new();
    for _ in 0..3 {
        let until = io.now() + Duration::from_millis(5);
        io.arm(Some(until));
        assert!(!readable(io, Duration::ZERO) || io.now() >= until);
        assert!(readable(io, TIMEOUT));
        assert!(io.now() >= until, "a deadline is never early");
        io.wait(Some(until), &mut events);
        assert!(events.is_empty());
        assert!(!readable(io, Duration::ZERO), "the deadline was reported");
        // A deadline that has passed and is armed again is reported again.
        io.arm(Some(until));
        assert!(readable(io, TIMEOUT));
        io.wait(Some(until), &mut events);
    }
    io.arm(Some(io.now() + Duration::from_millis(5)));
    io.arm(None);
    assert!(!readable(io, Duration::from_millis(30)));
    io.arm(Some(Instant::FAR_FUTURE));
    assert!(!readable(io, Duration::from_millis(30)));
}

fn the_descriptor_shows_arrivals_and_has_pending_the_rest<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::with(IoSettings {
        read_budget: 1000,
        buffer_bytes: 1000,
        ..IoSettings::default()
    });
    let peer = watch.bench.listen(vec![
        Step::Expect(1),
        Step::Pause(Duration::from_millis(20)),
        Step::Send(vec![7; 5000]),
    ]);
    watch.connect(token(0), peer);
    let io = watch.io();
    assert!(!io.has_pending());
    io.send(token(0), b"?", true);
    io.submit();
    assert!(
        io.has_pending(),
        "a marked send makes an event that no descriptor shows"
    );
    let mut events = Vec::new();
    io.wait(None, &mut events);
    assert!(!io.has_pending());
    assert!(readable(io, TIMEOUT));
    io.wait(None, &mut events);
    assert!(io.has_pending(), "the budget left bytes behind");
    assert!(!readable(io, Duration::ZERO));
}

fn descriptors_sent_by_a_client_are_not_installed<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let path = watch.bench.folder().join("control.sock");
    let at = Endpoint::Unix {
        path: path.clone(),
        mode: 0o600,
    };
    watch
        .io()
        .listen(token(9), &at)
        .expect("the endpoint is free");
    let client = UnixStream::connect(path).expect("it listens");
    let Seen::Accepted(_, connection, _) = watch.next() else {
        panic!("the client connects");
    };
    watch.io().accept(token(0), connection);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [writer.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = [IoSlice::new(b"?")];
    sendmsg(&client, &bytes, &mut control, SendFlags::empty()).expect("there is room");
    assert!(matches!(watch.next(), Seen::Received(_, bytes, _) if bytes == b"?"));
    drop(writer);
    // Once no process holds the write end, the pipe reports a hang-up.
    let mut read = PollFd::new(&reader, PollFlags::IN);
    let timeout = Timespec::try_from(TIMEOUT).expect("it fits");
    poll(std::slice::from_mut(&mut read), Some(&timeout)).expect("poll works");
    assert!(read.revents().contains(PollFlags::HUP), "we have it");
    assert_eq!(reader.read(&mut [0]).expect("it has ended"), 0);
}

fn a_host_is_woken_for_connections_to_a_listener<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let at = Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let io = watch.io();
    io.listen(token(9), &at).expect("a port");
    let to = io.local(token(9)).expect("it listens");
    io.arm(None);
    assert!(!readable(io, Duration::from_millis(20)));
    let _client = TcpStream::connect(to).expect("it listens");
    assert!(readable(io, TIMEOUT));
    let mut events = Vec::new();
    let until = io.now() + TIMEOUT;
    io.wait(Some(until), &mut events);
    assert!(matches!(events[..], [crate::io::Event::Accepted { .. }]));
    assert!(!io.has_pending());
}

fn a_place_freed_by_another_thread_lets_a_listener_accept<I: KernelBackEnd>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let at = Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let io = watch.io();
    io.listen(token(9), &at).expect("a port");
    let to = io.local(token(9)).expect("it listens");
    let _clients: Vec<TcpStream> = (0..=ACCEPTED_MAX)
        .map(|_| TcpStream::connect(to).expect("it listens"))
        .collect();
    let mut events = Vec::new();
    while events.len() < ACCEPTED_MAX {
        let until = io.now() + TIMEOUT;
        io.wait(Some(until), &mut events);
    }
    assert!(!io.has_pending(), "all places are taken");
    let dropped = events.pop().expect("it was accepted");
    let dropping = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        drop(dropped);
    });
    let _held = std::mem::take(&mut events);
    let until = io.now() + TIMEOUT;
    while events.is_empty() && io.now() < until {
        io.wait(Some(until), &mut events);
    }
    assert!(io.now() < until, "the wait has not ended early");
    assert!(matches!(events[..], [crate::io::Event::Accepted { .. }]));
    dropping.join().expect("it ends");
}

/// There is no space in the first file, and what is written to the second is no number.
fn each_member_that_could_not_be_written_with_others_comes_back<I: KernelBackEnd>() {
    for (path, is_full) in [("/dev/full", true), ("/proc/self/oom_score_adj", false)] {
        fail_to_append::<I>(path, is_full);
    }
}

fn fail_to_append<I: KernelBackEnd>(path: &str, is_full: bool) {
    let mut watch = Watch::<Kernel<I>>::with(IoSettings {
        disk_free_min: Some(0),
        ..IoSettings::default()
    });
    let file = FileId(1);
    watch.io().disk(DiskJob::Open {
        file,
        path: path.into(),
        length: 0,
    });
    for tag in 1..=5 {
        watch.io().disk(DiskJob::Append {
            file,
            bytes: vec![tag as u8; 100],
            gzip: true,
            tag,
        });
    }
    if is_full {
        assert!(matches!(watch.next(), Seen::DiskFull(_)));
        watch.io().fail_stalled_writes();
    }
    for tag in 1..=5 {
        let Seen::Disk(done) = watch.next() else {
            panic!("an append is over");
        };
        assert!(done.tag == tag && done.result.is_err(), "{done:?}");
        assert_eq!(done.unwritten, [tag as u8; 100]);
    }
}

/// The tests of a file for each of the kernel's back ends.
macro_rules! kernels {
    ($($name:ident)*) => {
        mod epoll {
            $(#[test] fn $name() { super::$name::<crate::io::Epoll>(); })*
        }

        mod uring {
            $(#[test] fn $name() {
                if $crate::io::conformance::kernel::has_uring() {
                    super::$name::<crate::io::Uring>();
                }
            })*
        }
    };
}

pub(super) use kernels;

kernels! {
    a_stalled_loop_changes_no_latency
    a_request_that_leaves_in_parts_is_flushed_with_its_last_byte
    an_arrival_that_ends_a_sleep_has_an_exact_stamp
    a_waker_ends_the_wait_from_another_thread
    a_wait_polls_only_in_its_tail
    an_arrival_in_the_tail_of_a_wait_ends_it
    the_descriptor_is_readable_at_the_armed_deadline
    the_descriptor_shows_arrivals_and_has_pending_the_rest
    descriptors_sent_by_a_client_are_not_installed
    a_host_is_woken_for_connections_to_a_listener
    a_place_freed_by_another_thread_lets_a_listener_accept
    each_member_that_could_not_be_written_with_others_comes_back
}
