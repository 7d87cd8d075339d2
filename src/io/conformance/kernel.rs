//! The bench of the kernel's back ends: threads on loopback play the peers.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use socket2::SockRef;

use super::{Bench, Seen, Step, Watch, token};
use crate::base::time::Instant;
use crate::io::{Clock, Epoll, Io, Settings, Uring};

pub(super) struct Kernel<I = Epoll> {
    io: I,
    peers: BTreeMap<SocketAddr, Arc<Peer>>,
    folder: tempfile::TempDir,
}

/// What the connections of a listener have come to, all together.
#[derive(Default)]
pub(super) struct Peer {
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Default)]
pub(super) struct Progress {
    /// Connections that stand.
    pub accepted: usize,
    /// Bytes that the kernel was given.
    pub said: usize,
    heard: Vec<u8>,
}

impl Peer {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no peer panicked")
    }

    fn go_on(&self, step: impl FnOnce(&mut Progress)) {
        step(&mut self.lock());
        self.moved.notify_all();
    }
}

/// How long a test waits for what a peer does in a moment.
const PATIENCE: Duration = Duration::from_secs(30);

impl<I: Carried> Kernel<I> {
    /// Waits until a listener has come so far. What it said lies with our sockets then.
    pub(super) fn until(&self, at: SocketAddr, so_far: impl Fn(&Progress) -> bool) {
        let peer = &self.peers[&at];
        let waited = peer
            .moved
            .wait_timeout_while(peer.lock(), PATIENCE, |seen| !so_far(seen));
        let (seen, timeout) = waited.expect("no peer panicked");
        drop(seen);
        assert!(!timeout.timed_out(), "{at} never comes so far");
    }
}

/// A back end that the kernel carries.
pub(super) trait Carried: Io {
    fn start(settings: Settings) -> Self;
}

impl Carried for Epoll {
    fn start(settings: Settings) -> Self {
        Epoll::new(settings).expect("a back end")
    }
}

impl Carried for Uring {
    fn start(settings: Settings) -> Self {
        Uring::new(settings).expect("a back end")
    }
}

/// Whether this kernel has an io_uring for us. A test that needs one says so where there is none.
pub(super) fn has_uring() -> bool {
    let missing = Uring::new(Settings::default()).err();
    if let Some(reason) = &missing {
        crate::base::loud::skip(reason);
    }
    missing.is_none()
}

impl<I: Carried> Bench for Kernel<I> {
    type Io = I;

    fn new(settings: Settings) -> Self {
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
                peer.go_on(|seen| seen.accepted += 1);
                let (script, peer) = (script.clone(), Arc::clone(&peer));
                thread::spawn(move || follow(script, stream, &peer));
            }
        });
        at
    }

    fn refuse(&mut self) -> SocketAddr {
        // Bound for a moment, so that nobody else has it, and then gone.
        TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
    }

    fn heard(&mut self, at: SocketAddr) -> Vec<u8> {
        self.peers[&at].lock().heard.clone()
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

fn follow(script: Vec<Step>, mut stream: TcpStream, peer: &Peer) {
    let mut buffer = vec![0; 65_536];
    for step in script {
        match step {
            Step::Hear(mut wanted) => {
                while wanted > 0 {
                    let room = wanted.min(buffer.len());
                    match stream.read(&mut buffer[..room]) {
                        Ok(0) | Err(_) => return,
                        Ok(length) => {
                            wanted -= length;
                            peer.go_on(|seen| seen.heard.extend_from_slice(&buffer[..length]));
                        }
                    }
                }
            }
            Step::Say(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
                peer.go_on(|seen| seen.said += bytes.len());
            }
            Step::Pause(span) => thread::sleep(span),
            Step::End => {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            Step::Reset => {
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                return;
            }
        }
    }
    // Holds the connection until the other side ends it; what it says then is heard too.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        peer.go_on(|seen| seen.heard.extend_from_slice(&buffer[..length]));
    }
}

fn a_stalled_loop_changes_no_latency<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let peer = watch.bench.listen(vec![
        Step::Hear(1),
        Step::Pause(Duration::from_millis(20)),
        Step::Say(b"!".to_vec()),
    ]);
    let connect_began = watch.io().now();
    watch.io().connect(token(0), peer);
    thread::sleep(Duration::from_millis(50));
    let Seen::Connected { started, stamp, .. } = watch.next() else {
        panic!("a listening peer accepts");
    };
    assert!(started.saturating_since(connect_began) < Duration::from_millis(20));
    assert_eq!(stamp.clock, Clock::Kernel);
    assert!(stamp.at.saturating_since(started) < Duration::from_millis(20));
    watch.io().send(token(0), b"?", true);
    watch.io().submit();
    thread::sleep(Duration::from_millis(150));
    let (Seen::Sent(_, sent), Seen::Received(_, _, stamp)) = (watch.next(), watch.next()) else {
        panic!("the peer answers");
    };
    let latency = stamp.at.saturating_since(sent);
    assert_eq!(stamp.clock, Clock::Kernel);
    assert!(latency >= Duration::from_millis(20), "{latency:?}");
    assert!(latency < Duration::from_millis(100), "{latency:?}");
    // All that it said came in one segment: no other's stamp can have been replaced by this one.
    assert!(!stamp.is_bound());
}

fn a_request_that_leaves_in_parts_is_gone_when_its_last_byte_is<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let (length, pause) = (12_000_000, Duration::from_millis(60));
    let script = [Step::Pause(pause), Step::Hear(length), Step::End];
    let peer = watch.bench.listen(script.to_vec());
    watch.connect(token(0), peer);
    let established = watch.io().now();
    watch.io().send(token(0), &vec![0; length], true);
    let (Seen::Sent(_, sent), Seen::Gone(whose, gone)) = (watch.next(), watch.next()) else {
        panic!("it leaves in parts");
    };
    assert_eq!(whose, token(0));
    // No buffers hold all of it, and the peer does not read before its pause is over.
    assert!(gone > sent && gone.saturating_since(established) > pause / 2);
    assert!(matches!(watch.next(), Seen::Ended(..)), "it is told once");
}

#[test]
fn of_two_segments_in_a_stall_the_last_ones_stamp_bounds_the_first() {
    let (early, gap) = (Duration::from_millis(20), Duration::from_millis(30));
    let stalled = || thread::sleep(Duration::from_millis(250));
    let mut watch = Watch::<Kernel>::new();
    let two = [
        Step::Hear(1),
        Step::Pause(early),
        Step::Say(b"!".to_vec()),
        Step::Pause(gap),
        Step::Say(b"!".to_vec()),
    ];
    let one = [Step::Hear(1), Step::Say(b"!".to_vec())];
    let script = [two.to_vec(), two.to_vec(), one.to_vec()].concat();
    let peer = watch.bench.listen(script);
    watch.connect(token(0), peer);
    let mut ask = |bytes: usize| {
        watch.io().send(token(0), b"?", true);
        watch.io().submit();
        stalled();
        let Seen::Sent(_, sent) = watch.next() else {
            panic!("a marked send is told");
        };
        let Seen::Received(_, heard, stamp) = watch.next() else {
            panic!("the peer answers");
        };
        assert_eq!((heard.len(), stamp.clock), (bytes, Clock::Kernel));
        assert!(stamp.at.saturating_since(sent) >= (early + gap) * (bytes as u32 - 1));
        let earliest = stamp.at - stamp.slack;
        (stamp.is_bound(), earliest.saturating_since(sent))
    };
    for _ in 0..2 {
        let (is_bound, earliest) = ask(2);
        assert!(is_bound);
        assert!(earliest <= early, "the first came before {earliest:?}");
    }
    // The sockets are watched by now, so that a single segment is known for one again.
    assert!(!ask(1).0);
}

fn an_arrival_that_ends_our_sleep_is_no_mere_bound<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let script = [
        Step::Hear(1),
        Step::Pause(Duration::from_millis(15)),
        Step::Say(b"!".to_vec()),
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
    // On a machine that is busy with other things we may now and then be woken late.
    assert!(exact >= 5, "{exact} of 10");
}

fn a_waker_ends_the_wait_from_another_thread<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let waker = watch.io().waker();
    let ringer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    assert!(matches!(watch.next(), Seen::Woken));
    ringer.join().expect("it rang");
}

/// How long this thread has been on a processor.
fn awake() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

fn a_wait_stays_awake_for_its_tail_alone<I: Carried>() {
    let span = Duration::from_millis(60);
    let check = |spin: Duration, awake_for: std::ops::Range<u64>| {
        let mut watch = Watch::<Kernel<I>>::with(Settings {
            spin,
            ..Settings::default()
        });
        let (io, mut events) = (watch.io(), Vec::new());
        let until = io.now() + span;
        let before = awake();
        while io.now() < until {
            io.wait(Some(until), &mut events);
        }
        let took = (awake() - before).as_millis() as u64;
        assert!(awake_for.contains(&took), "awake for {took} ms of {span:?}");
        assert!(events.is_empty());
    };
    check(Duration::ZERO, 0..5);
    check(Duration::from_millis(1), 0..6);
    // Others may have had the processor for most of it.
    check(Duration::from_secs(1), 6..70);
}

fn what_arrives_in_the_tail_of_a_wait_ends_it<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::with(Settings {
        spin: Duration::from_secs(60),
        ..Settings::default()
    });
    let script = [
        Step::Hear(1),
        Step::Pause(Duration::from_millis(5)),
        Step::Say(b"!".to_vec()),
    ];
    let peer = watch.bench.listen(vec![script; 20].concat());
    watch.connect(token(0), peer);
    let began = watch.io().now();
    // What was looked for again and again was seen when it came, unless others had the processor.
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
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: span.as_nanos() as _,
    };
    poll(
        &mut [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)],
        Some(&timeout),
    )
    .expect("poll takes our descriptor")
        > 0
}

fn the_descriptor_alone_carries_the_deadline<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::new();
    let io = watch.io();
    let mut events = Vec::new();
    for _ in 0..3 {
        let until = io.now() + Duration::from_millis(5);
        io.arm(Some(until));
        assert!(!readable(io, Duration::ZERO) || io.now() >= until);
        assert!(readable(io, Duration::from_millis(900)));
        assert!(io.now() >= until, "a deadline is never early");
        io.wait(Some(until), &mut events);
        assert!(events.is_empty());
        assert!(!readable(io, Duration::ZERO), "the deadline was told");
        // Armed again though it has passed, it is told again.
        io.arm(Some(until));
        assert!(readable(io, Duration::from_millis(900)));
        io.wait(Some(until), &mut events);
    }
    io.arm(Some(io.now() + Duration::from_millis(5)));
    io.arm(None);
    assert!(!readable(io, Duration::from_millis(30)));
    io.arm(Some(Instant::FAR_FUTURE));
    assert!(!readable(io, Duration::from_millis(30)));
}

fn the_descriptor_shows_arrivals_and_has_news_the_rest<I: Carried>() {
    let mut watch = Watch::<Kernel<I>>::with(Settings {
        read_budget: 1000,
        buffer_bytes: 1000,
        ..Settings::default()
    });
    let peer = watch.bench.listen(vec![
        Step::Hear(1),
        Step::Pause(Duration::from_millis(20)),
        Step::Say(vec![7; 5000]),
    ]);
    watch.connect(token(0), peer);
    let io = watch.io();
    assert!(!io.has_news());
    io.send(token(0), b"?", true);
    io.submit();
    assert!(
        io.has_news(),
        "a marked send is news that no descriptor shows"
    );
    let mut events = Vec::new();
    io.wait(None, &mut events);
    assert!(!io.has_news());
    assert!(readable(io, Duration::from_millis(900)));
    io.wait(None, &mut events);
    assert!(io.has_news(), "the budget left bytes behind");
    assert!(!readable(io, Duration::ZERO));
}

/// The sentences of a file about each of the kernel's back ends.
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
    a_request_that_leaves_in_parts_is_gone_when_its_last_byte_is
    an_arrival_that_ends_our_sleep_is_no_mere_bound
    a_waker_ends_the_wait_from_another_thread
    a_wait_stays_awake_for_its_tail_alone
    what_arrives_in_the_tail_of_a_wait_ends_it
    the_descriptor_alone_carries_the_deadline
    the_descriptor_shows_arrivals_and_has_news_the_rest
}
