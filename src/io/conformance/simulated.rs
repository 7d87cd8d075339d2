//! The bench of the simulation, and tests of the simulation alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Bench, Seen, Step, Watch, token};
use crate::base::disk::{DiskJob, FileId};
use crate::base::shared::Shared;
use crate::base::time::Instant;
use crate::io::sim::{Answer, ConnId, Faults, FullDisk, Net, Origins, Sim, World};
use crate::io::{Close, Credentials, Endpoint, Event, Io, IoSettings, NetError};

pub(super) struct Simulated {
    io: Sim,
    world: Shared<Scripted>,
    ports: u16,
}

/// A world whose servers follow scripts.
#[derive(Default)]
struct Scripted {
    scripts: BTreeMap<SocketAddr, Vec<Step>>,
    echoes: Vec<SocketAddr>,
    received: BTreeMap<SocketAddr, Vec<u8>>,
    peers: BTreeMap<ConnId, Peer>,
    /// Clients whose connections are over.
    over: BTreeSet<SocketAddr>,
}

struct Peer {
    at: SocketAddr,
    script: VecDeque<Step>,
    /// Received and not expected yet.
    unread: usize,
    /// How far the script is ahead of the present.
    pauses: Duration,
}

impl World for Scripted {
    fn distance(&mut self, _: SocketAddr, rng: &mut crate::base::rng::Rng) -> Duration {
        // As near as loopback, so that both benches can use the same pauses.
        Duration::from_micros(100 + rng.below(900))
    }

    fn connect(&mut self, conn: ConnId, to: SocketAddr, net: &mut Net) -> Answer {
        let Some(script) = self.scripts.get(&to) else {
            return Answer::Refuse;
        };
        let mut peer = Peer {
            at: to,
            script: script.iter().cloned().collect(),
            unread: 0,
            pauses: Duration::ZERO,
        };
        peer.advance(conn, net);
        self.peers.insert(conn, peer);
        Answer::Accept
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8], net: &mut Net) {
        if let Some(peer) = self.peers.get_mut(&conn) {
            let received = self.received.entry(peer.at).or_default();
            received.extend_from_slice(bytes);
            peer.unread += bytes.len();
            peer.advance(conn, net);
        }
    }

    fn closed(&mut self, conn: ConnId, _: Close, _: &mut Net) {
        if let Some(peer) = self.peers.remove(&conn) {
            self.over.insert(peer.at);
        }
    }

    fn datagram(&mut self, socket: ConnId, to: SocketAddr, bytes: &[u8], net: &mut Net) {
        if self.echoes.contains(&to) {
            net.reply(socket, Duration::ZERO, bytes);
        } else {
            net.reset(socket, Duration::ZERO);
        }
    }
}

impl Peer {
    fn advance(&mut self, conn: ConnId, net: &mut Net) {
        while let Some(step) = self.script.front_mut() {
            match step {
                Step::Expect(wanted) => {
                    let received = self.unread.min(*wanted);
                    self.unread -= received;
                    *wanted -= received;
                    if *wanted > 0 {
                        return;
                    }
                }
                Step::Send(bytes) => net.reply(conn, self.pauses, bytes),
                Step::Pause(span) => self.pauses += *span,
                Step::End => net.end(conn, self.pauses),
                Step::Reset => net.reset(conn, self.pauses),
            }
            self.script.pop_front();
        }
    }
}

impl Simulated {
    fn with(seed: u64, settings: IoSettings, faults: Faults) -> Self {
        let world = Shared::new(Scripted::default());
        Simulated {
            io: Sim::with(seed, settings, faults, Box::new(Shared::clone(&world))),
            world,
            ports: 1000,
        }
    }

    fn address(&mut self) -> SocketAddr {
        self.ports += 1;
        ([198, 51, 100, 1], self.ports).into()
    }
}

impl Bench for Simulated {
    type Io = Sim;

    fn new(settings: IoSettings) -> Self {
        Simulated::with(1, settings, Faults::default())
    }

    fn io(&mut self) -> &mut Sim {
        &mut self.io
    }

    fn listen(&mut self, script: Vec<Step>) -> SocketAddr {
        let at = self.address();
        self.world.borrow_mut().scripts.insert(at, script);
        at
    }

    fn refuse(&mut self) -> SocketAddr {
        self.address()
    }

    fn received(&mut self, at: SocketAddr) -> Vec<u8> {
        let world = self.world.borrow();
        world.received.get(&at).cloned().unwrap_or_default()
    }

    fn call(&mut self, at: &Endpoint, script: Vec<Step>) -> SocketAddr {
        let name = self.address();
        let from = match at {
            Endpoint::Tcp(_) => crate::io::Peer::Tcp(name),
            Endpoint::Unix { .. } => crate::io::Peer::Unix(self.credentials()),
        };
        let conn = self
            .io
            .net()
            .connect_client(at, from, Duration::from_micros(100));
        let mut peer = Peer {
            at: name,
            script: script.into(),
            unread: 0,
            pauses: Duration::ZERO,
        };
        peer.advance(conn, self.io.net());
        self.world.borrow_mut().peers.insert(conn, peer);
        name
    }

    fn is_over(&mut self, client: SocketAddr) -> bool {
        self.world.borrow().over.contains(&client)
    }

    fn settle(&mut self) {}

    fn credentials(&self) -> Credentials {
        Credentials {
            pid: Some(7),
            uid: 1000,
            gid: 100,
        }
    }

    fn echo(&mut self) -> SocketAddr {
        let at = self.address();
        self.world.borrow_mut().echoes.push(at);
        at
    }

    fn folder(&self) -> PathBuf {
        PathBuf::from("/simulated")
    }

    fn content(&mut self, path: &Path) -> Option<Vec<u8>> {
        self.io.files().get(path).cloned()
    }
}

/// The events of three origins and a disk under a seed.
fn trace(seed: u64) -> Vec<String> {
    let faults = Faults {
        datagram_loss: 0.3,
        ..Faults::default()
    };
    let mut watch = Watch {
        bench: Simulated::with(seed, IoSettings::default(), faults),
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    let echo = watch.bench.echo();
    watch.io().open_datagram(token(9), echo);
    for slot in 0..3 {
        let peer = watch.bench.listen(vec![
            Step::Expect(10),
            Step::Pause(Duration::from_millis(3)),
            Step::Send(vec![slot as u8; 40_000]),
            Step::End,
        ]);
        watch.io().connect(token(slot), peer);
        watch.io().send(token(slot), &[b'x'; 10], true);
        watch.io().send(token(9), &[slot as u8; 3], true);
        watch.io().disk(DiskJob::Replace {
            path: PathBuf::from("/simulated/state"),
            bytes: vec![0; 100],
            tag: u64::from(slot),
        });
    }
    let seen = watch.during(Duration::from_secs(2));
    seen.into_iter().map(|seen| format!("{seen:?}")).collect()
}

#[test]
fn equal_seeds_give_equal_traces() {
    let first = trace(7);
    assert!(first.len() > 20);
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
}

#[test]
fn waiting_takes_no_time_and_ends_at_its_deadline_exactly() {
    let mut sim = Sim::new(0, Box::new(Origins::default()));
    let day = Instant::START + Duration::from_secs(86_400);
    sim.wait(Some(day), &mut Vec::new());
    assert_eq!(sim.now(), day);
    assert!(sim.is_idle());
    sim.wait(None, &mut Vec::new());
    assert_eq!(sim.now(), day);
}

/// A bench whose sockets have received what their peers sent, and were not read. Their replies have these
/// lengths.
fn unread(settings: IoSettings, replies: &[usize]) -> Watch<Simulated> {
    let mut watch: Watch<Simulated> = Watch::with(settings);
    for (slot, length) in replies.iter().enumerate() {
        let token = token(slot as u32);
        let peer = watch.bench.listen(vec![Step::Send(vec![7; *length])]);
        watch.io().connect(token, peer);
        watch.io().set_reading(token, false);
    }
    let seen = watch.during(Duration::from_secs(1));
    assert_eq!(seen.len(), replies.len(), "they are connected");
    (0..replies.len()).for_each(|slot| watch.io().set_reading(token(slot as u32), true));
    watch
}

/// The bytes read in the next turn, by slot.
fn read_in_a_turn(io: &mut Sim) -> Vec<(u32, usize)> {
    let mut events = Vec::new();
    io.wait(None, &mut events);
    let read = events.into_iter().map(|event| match event {
        Event::Received { token, chunk, .. } => {
            let length = chunk.length as usize;
            io.release(chunk);
            (token.slot, length)
        }
        other => panic!("a reply expected, not {other:?}"),
    });
    read.collect()
}

#[test]
fn a_simulated_turn_reads_a_bounded_number_of_bytes_and_of_sockets() {
    let settings = IoSettings {
        read_budget: 20_000,
        ..IoSettings::default()
    };
    let most = settings.read_budget + settings.buffer_bytes;
    let began = Instant::START + Duration::from_secs(1);
    let mut watch = unread(settings, &[30_000; 8]);
    let mut left = 8 * 30_000;
    while left > 0 {
        assert!((0..8).any(|slot| watch.io().has_unread(token(slot))));
        let read = read_in_a_turn(watch.io());
        let bytes = read.iter().map(|(_, bytes)| bytes).sum::<usize>();
        assert!(0 < bytes && bytes <= most, "{read:?}");
        left -= bytes;
    }
    assert_eq!(watch.io().now(), began, "none had to be waited for");
    assert!((0..8).all(|slot| !watch.io().has_unread(token(slot))));
    let mut watch = unread(IoSettings::default(), &[1; 40]);
    let turns: Vec<usize> = (0..3).map(|_| read_in_a_turn(watch.io()).len()).collect();
    assert_eq!(turns, [16, 16, 8]);
}

#[test]
fn a_simulated_turn_reads_short_replies_first() {
    let settings = IoSettings {
        read_budget: 20_000,
        ..IoSettings::default()
    };
    let mut watch = unread(settings, &[100_000, 100_000, 100_000, 100_000, 10]);
    let short = token(4);
    watch.io().set_reading(short, false);
    // Of each, more than a short reply has come.
    for _ in 0..6 {
        let read = read_in_a_turn(watch.io());
        assert!(read.iter().all(|(slot, _)| *slot != short.slot), "{read:?}");
    }
    assert!(!watch.io().has_unread(short));
    watch.io().set_reading(short, true);
    assert!(watch.io().has_unread(short));
    let read = read_in_a_turn(watch.io());
    assert_eq!(read.first(), Some(&(short.slot, 10)), "{read:?}");
}

#[test]
fn what_is_allocated_is_there_when_the_disk_is_full() {
    let faults = Faults {
        disk_room: 100,
        ..Faults::default()
    };
    let settings = IoSettings {
        disk_free_min: Some(10),
        ..IoSettings::default()
    };
    let mut watch = Watch {
        bench: Simulated::with(0, settings, faults),
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    for file in 1..3 {
        let path = watch.bench.folder().join(file.to_string());
        watch.io().disk(DiskJob::Create {
            file: FileId(file),
            path,
        });
    }
    let append = |file, length| DiskJob::Append {
        file: FileId(file),
        bytes: vec![7; length],
        gzip: false,
        tag: 0,
    };
    let allocate = |bytes| DiskJob::Allocate {
        file: FileId(1),
        bytes,
    };
    watch.io().disk(allocate(60));
    watch.disk(append(2, 30)).result.expect("there is room");
    // There is none for more, which is no error.
    watch.io().disk(allocate(70));
    watch.disk(append(1, 59)).result.expect("it is allocated");
    watch.io().disk(append(2, 1));
    assert!(matches!(watch.next(), Seen::DiskFull(_)));
}

/// A bench with these disk faults, and one file on its disk.
fn disk_under(faults: Faults) -> (Watch<Simulated>, impl Fn(&[u8]) -> DiskJob, PathBuf) {
    let mut watch = Watch {
        bench: Simulated::with(0, IoSettings::default(), faults),
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    let path = watch.bench.folder().join("results");
    let file = FileId(0);
    watch.io().disk(DiskJob::Create {
        file,
        path: path.clone(),
    });
    let append = move |bytes: &[u8]| DiskJob::Append {
        file,
        bytes: bytes.to_vec(),
        gzip: false,
        tag: 0,
    };
    (watch, append, path)
}

#[test]
fn a_full_disk_fails_stalled_writes_and_keeps_its_content() {
    let (mut watch, append, path) = disk_under(Faults {
        disk_room: 10,
        ..Faults::default()
    });
    assert!(watch.disk(append(b"12345678")).result.is_ok());
    watch.io().disk(append(b"90a"));
    watch.io().disk(append(b"b"));
    let seen = watch.during(Duration::from_secs(100));
    let [Seen::DiskFull(error)] = &seen[..] else {
        panic!("one report expected, not {seen:?}");
    };
    assert!(error.contains("/simulated/results"), "{error}");
    watch.io().fail_stalled_writes();
    let Seen::Disk(done) = watch.next() else {
        panic!("it was given up");
    };
    let error = done.result.expect_err("three bytes in the room of two");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("/simulated/results"));
    assert!(matches!(watch.next(), Seen::Disk(done) if done.result.is_ok()));
    assert_eq!(watch.bench.content(&path), Some(b"12345678b".to_vec()));
}

#[test]
fn a_disk_with_space_again_does_all_jobs_in_order() {
    let (mut watch, append, path) = disk_under(Faults {
        disk_full: vec![FullDisk {
            below: PathBuf::from("/simulated"),
            from: Duration::from_secs(1),
            until: Duration::from_secs(9),
            free: 0,
        }],
        ..Faults::default()
    });
    assert!(watch.disk(append(b"1")).result.is_ok());
    watch.during(Duration::from_secs(2));
    for bytes in [b"2", b"3", b"4"] {
        watch.io().disk(append(bytes));
        watch.during(Duration::from_secs(1));
    }
    assert_eq!(watch.bench.content(&path), Some(b"1".to_vec()));
    assert!(matches!(watch.next(), Seen::DiskRoom));
    for offset in 1..=3 {
        let Seen::Disk(done) = watch.next() else {
            panic!("a report expected");
        };
        assert_eq!(done.result.expect("there is room").offset, offset);
    }
    assert_eq!(watch.bench.content(&path), Some(b"1234".to_vec()));
    assert!(watch.io().now() >= Instant::START + Duration::from_secs(9));
}

#[test]
fn datagrams_are_lost_with_the_given_probability() {
    let faults = Faults {
        datagram_loss: 0.5,
        ..Faults::default()
    };
    let mut watch = Watch {
        bench: Simulated::with(5, IoSettings::default(), faults),
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    let echo = watch.bench.echo();
    watch.io().open_datagram(token(0), echo);
    for _ in 0..1000 {
        watch.io().send(token(0), b"?", false);
    }
    let back = watch.during(Duration::from_secs(1)).len();
    // Half are lost on the way there, and half of the others on the way back.
    assert!((180..320).contains(&back), "{back} of 1000");
}

#[test]
fn a_later_reply_does_not_overtake_an_earlier_one() {
    struct Hasty;
    impl World for Hasty {
        fn connect(&mut self, conn: ConnId, _: SocketAddr, net: &mut Net) -> Answer {
            net.reply(conn, Duration::from_millis(10), b"first ");
            net.reply(conn, Duration::ZERO, b"second");
            net.end(conn, Duration::ZERO);
            Answer::Accept
        }
        fn bytes(&mut self, _: ConnId, _: &[u8], _: &mut Net) {}
    }
    let mut watch = Watch {
        bench: Simulated {
            io: Sim::new(2, Box::new(Hasty)),
            world: Shared::default(),
            ports: 0,
        },
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    watch.connect(token(0), ([198, 51, 100, 1], 80).into());
    let received = watch.read_to_end(token(0));
    assert_eq!(received, (b"first second".to_vec(), None));
}

#[test]
fn an_address_that_never_answers_times_out() {
    struct Hole;
    impl World for Hole {
        fn connect(&mut self, _: ConnId, _: SocketAddr, _: &mut Net) -> Answer {
            Answer::Silence
        }
        fn bytes(&mut self, _: ConnId, _: &[u8], _: &mut Net) {}
    }
    let mut sim = Sim::new(0, Box::new(Hole));
    sim.connect(token(0), ([198, 51, 100, 1], 80).into());
    let mut events = Vec::new();
    sim.wait(None, &mut events);
    assert!(matches!(
        events[..],
        [Event::Failed { error: NetError::TimedOut, at, .. }]
            if at == Instant::START + Duration::from_secs(127)
    ));
    assert!(sim.is_idle());
}

#[test]
fn scripted_origins_reply_and_log_requests() {
    let world = Shared::new(Origins::default());
    let at = SocketAddr::from(([198, 51, 100, 7], 80));
    let last = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbye".to_vec();
    let think = Duration::from_millis(40);
    world
        .borrow_mut()
        .page(at, "/", "<a href=/last>")
        .reply(at, "/last", think, last.clone());
    let bench = Simulated {
        io: Sim::new(3, Box::new(Shared::clone(&world))),
        world: Shared::default(),
        ports: 0,
    };
    let mut watch = Watch {
        bench,
        seen: VecDeque::new(),
        events: Vec::new(),
    };
    watch.connect(token(0), at);
    watch.io().send(
        token(0),
        b"GET /missing HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n",
        false,
    );
    watch
        .io()
        .send(token(0), b"host: a\r\n\r\nGET /last HTTP/1.1\r\n\r\n", true);
    let sent = watch.io().now();
    let (bytes, failure) = watch.read_to_end(token(0));
    assert_eq!(failure, None);
    assert!(bytes.starts_with(b"HTTP/1.1 404"));
    assert!(bytes.ends_with(&last));
    assert!(watch.io().now() >= sent + think);
    let heads: Vec<String> = world
        .borrow()
        .hits()
        .iter()
        .map(|hit| hit.head.clone())
        .collect();
    assert_eq!(
        heads,
        [
            "GET /missing HTTP/1.1",
            "GET / HTTP/1.1\r\nhost: a",
            "GET /last HTTP/1.1"
        ]
    );
    watch.close(token(0));
    assert_eq!(world.borrow().connections(), 1);
    watch.during(Duration::from_secs(1));
    assert_eq!(world.borrow().connections(), 0);
    // An address without replies.
    watch.io().connect(token(1), ([198, 51, 100, 8], 80).into());
    assert!(matches!(watch.next(), Seen::Failed(_, NetError::Refused)));
}
