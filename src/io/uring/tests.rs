//! What only a ring can do, and what only a ring can do wrong.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::pinned::{DROPPED, Dropped};
use super::*;
use crate::io::{Clock, Stamp};

/// A back end, unless this kernel has none of this kind for us.
fn uring(settings: Settings) -> Option<Uring> {
    Uring::new(settings)
        .inspect_err(|reason| crate::base::loud::skip(reason))
        .ok()
}

fn token(slot: u32) -> Token {
    Token {
        slot,
        generation: 1,
    }
}

/// A connection and its other end.
fn connected(io: &mut Uring, slot: u32) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    io.connect(token(slot), listener.local_addr().expect("an address"));
    io.submit();
    let (peer, _) = listener.accept().expect("we connect");
    peer.set_nodelay(true).expect("it is a TCP socket");
    let mut events = Vec::new();
    while events.is_empty() {
        io.wait(Some(io.now() + PATIENCE), &mut events);
    }
    io.submit();
    assert!(matches!(events[..], [Event::Connected { .. }]));
    peer
}

/// The next arrivals, until there were so many bytes: their lengths and stamps.
fn arrivals(io: &mut Uring, mut bytes: usize) -> Vec<(usize, Stamp)> {
    let mut told = Vec::new();
    let mut events = Vec::new();
    let patient_until = io.now() + PATIENCE;
    while bytes > 0 {
        assert!(io.now() < patient_until, "waited in vain");
        io.submit();
        io.wait(Some(patient_until), &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, stamp, .. } => {
                    bytes -= io.bytes(&chunk).len();
                    told.push((io.bytes(&chunk).len(), stamp));
                    io.release(chunk);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    told
}

#[test]
fn each_segment_keeps_its_own_stamp_while_we_are_busy() {
    // Where others had the processor all the time segments are found together, and it is told.
    let each_alone = (0..20).any(|_| match uring(Settings::default()) {
        Some(mut io) => busy_while_four_segments_come(&mut io),
        None => true,
    });
    assert!(each_alone);
}

/// Whether four segments were told one by one. What is told as exact has to be.
fn busy_while_four_segments_come(io: &mut Uring) -> bool {
    let mut peer = connected(io, 0);
    let gap = Duration::from_millis(10);
    let talk = thread::spawn(move || {
        for _ in 0..4 {
            thread::sleep(gap);
            peer.write_all(b"!").expect("we listen");
        }
        peer
    });
    // Awake and asleep, but not looking.
    let busy_until = io.now() + gap * 3;
    while io.now() < busy_until {
        std::hint::spin_loop();
    }
    let _peer = talk.join().expect("it talked");
    let told = arrivals(io, 4);
    for (length, stamp) in &told {
        assert_eq!(stamp.clock, Clock::Kernel);
        assert!(*length == 1 || stamp.is_bound(), "{told:?}");
    }
    if told.len() < 4 {
        return false;
    }
    for two in told.windows(2) {
        let apart = two[1].1.at.saturating_since(two[0].1.at);
        assert!(apart >= gap, "{apart:?}");
    }
    told.iter().all(|(_, stamp)| !stamp.is_bound())
}

#[test]
fn what_lay_unseen_while_nobody_received_is_a_bound() {
    let Some(mut io) = uring(Settings::default()) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    io.set_reading(token(0), false);
    io.submit();
    for _ in 0..2 {
        peer.write_all(b"!").expect("we listen, some time");
        thread::sleep(Duration::from_millis(20));
    }
    io.set_reading(token(0), true);
    let [(2, stamp)] = arrivals(&mut io, 2)[..] else {
        panic!("two segments and one look");
    };
    assert_eq!((stamp.clock, stamp.is_bound()), (Clock::Kernel, true));
    // A single one is what it was, whenever it is found.
    io.set_reading(token(0), false);
    io.submit();
    peer.write_all(b"!").expect("we listen, some time");
    thread::sleep(Duration::from_millis(20));
    let found = io.now();
    io.set_reading(token(0), true);
    let [(1, stamp)] = arrivals(&mut io, 1)[..] else {
        panic!("one segment");
    };
    assert_eq!((stamp.clock, stamp.is_bound()), (Clock::Kernel, false));
    assert!(found.saturating_since(stamp.at) >= Duration::from_millis(19));
}

#[test]
fn a_receive_whose_cancel_was_refused_is_cancelled_again() {
    let Some(mut io) = uring(Settings::default()) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    io.set_reading(token(0), false);
    // The kernel cannot do it at this moment.
    let Some(Ask::Cancel(receive)) = io.asks.pop() else {
        panic!("what is not to be read is not to be received");
    };
    let what = What::Cancel;
    io.answers = vec![Answer {
        name: Name { what, ..receive },
        result: Err(libc::EALREADY),
        buffer: None,
        more: false,
    }];
    let mut events = Vec::new();
    io.handle_answers(io.now(), &mut events);
    io.submit();
    peer.write_all(b"!").expect("there is room for it");
    io.wait(Some(io.now() + Duration::from_millis(20)), &mut events);
    let State::Open(connection) = &io.entries[0].state else {
        panic!("it is open");
    };
    assert_eq!(connection.receive, Receive::Off);
    assert!(connection.untold.is_empty(), "nobody received it");
    // What it said is still there.
    io.set_reading(token(0), true);
    assert_eq!(arrivals(&mut io, 1)[0].0, 1);
}

#[test]
fn more_is_asked_for_at_once_than_the_ring_holds() {
    let Some(mut io) = uring(Settings::default()) else {
        return;
    };
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = echo.local_addr().expect("an address");
    let sockets = 1000;
    for slot in 0..sockets {
        io.open_datagram(token(slot), to);
        io.send(token(slot), b"?", false);
    }
    assert_eq!(io.asks.len(), sockets as usize);
    io.submit();
    assert!(io.asks.is_empty());
    assert_eq!(io.receiving, sockets as usize);
    let mut heard = 0;
    let mut events = Vec::new();
    // Not all of them fit into the other side's buffer at once.
    echo.set_read_timeout(Some(Duration::from_millis(50)))
        .expect("it is some time");
    while let Ok((_, from)) = echo.recv_from(&mut [0]) {
        echo.send_to(b"!", from).expect("we are there");
        heard += 1;
    }
    assert!(heard > 100);
    let patient_until = io.now() + PATIENCE;
    while heard > 0 {
        assert!(io.now() < patient_until, "waited in vain");
        io.wait(Some(patient_until), &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => io.release(chunk),
                other => panic!("{other:?}"),
            }
            heard -= 1;
        }
    }
}

#[test]
fn what_came_for_a_slots_former_user_is_not_told_to_the_next() {
    let Some(mut io) = uring(Settings::default()) else {
        return;
    };
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = peer.local_addr().expect("an address");
    io.open_datagram(token(0), to);
    io.send(token(0), b"?", false);
    io.submit();
    let (_, from) = peer.recv_from(&mut [0]).expect("we asked");
    peer.send_to(b"!", from).expect("we are there");
    thread::sleep(Duration::from_millis(20));
    io.close(token(0), Close::Finish);
    let next = Token {
        slot: 0,
        generation: 2,
    };
    io.open_datagram(next, to);
    io.submit();
    let mut events = Vec::new();
    let until = io.now() + Duration::from_millis(50);
    while io.now() < until {
        io.wait(Some(until), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn nothing_is_under_way_when_the_memory_goes() {
    let Some(mut io) = uring(Settings::default()) else {
        return;
    };
    let mut peers: Vec<TcpStream> = (0..20).map(|slot| connected(&mut io, slot)).collect();
    for peer in &mut peers {
        peer.write_all(&[b'x'; 100_000]).expect("we listen");
    }
    assert_eq!(io.receiving, 20);
    assert!(io.quiesce());
    assert_eq!(io.receiving, 0);
}

#[test]
fn the_memory_stays_where_receives_cannot_be_ended() {
    let check = |spoil: fn(&mut Uring), expected: fn(usize) -> Dropped| {
        let Some(mut io) = uring(Settings::default()) else {
            return;
        };
        let mut peer = connected(&mut io, 0);
        peer.write_all(&[b'x'; 100_000]).expect("we listen");
        let blocks = io.buffers.blocks() + 1;
        spoil(&mut io);
        // Whoever drops it, also where another thread asked for the receives.
        let dropped = thread::spawn(move || {
            drop(io);
            DROPPED.take()
        });
        assert_eq!(dropped.join().expect("it is dropped"), expected(blocks));
    };
    let freed = |freed| Dropped { freed, leaked: 0 };
    let leaked = |leaked| Dropped { freed: 0, leaked };
    check(|_| (), freed);
    let interrupted = |io: &mut Uring| {
        let error = io::Error::from_raw_os_error(libc::EINTR);
        io.ring.injected.push_back(error);
    };
    check(interrupted, freed);
    let failing = |io: &mut Uring| {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        io.ring.injected.push_back(error);
    };
    check(failing, leaked);
    // One that never gives its last answer.
    check(|io| io.receiving += 1, leaked);
}

#[test]
fn a_flood_is_told_by_shares_and_comes_to_its_end() {
    let settings = Settings {
        read_budget: 50_000,
        buffer_bytes: 1000,
        ..Settings::default()
    };
    let Some(mut io) = uring(settings) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    io.set_reading(token(0), false);
    io.set_reading(token(0), true);
    io.submit();
    let talk = thread::spawn(move || {
        peer.write_all(&[b'x'; 3_000_000]).expect("we listen");
        peer
    });
    thread::sleep(Duration::from_millis(50));
    let mut events = Vec::new();
    let mut bytes = 0;
    let patient_until = io.now() + PATIENCE;
    while bytes < 3_000_000 {
        assert!(io.now() < patient_until, "waited in vain");
        io.submit();
        io.wait(Some(patient_until), &mut events);
        let before = bytes;
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => {
                    bytes += io.bytes(&chunk).len();
                    io.release(chunk);
                }
                other => panic!("{other:?}"),
            }
        }
        // The last of them may exceed the share.
        assert!(bytes - before < 51_000, "{} in one turn", bytes - before);
    }
    talk.join().expect("it talked");
}

#[test]
fn a_flood_is_not_received_while_more_than_its_share_is_untold() {
    let settings = Settings {
        read_budget: 20_000,
        buffer_bytes: 1000,
        ..Settings::default()
    };
    let Some(mut io) = uring(settings) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    let talk = thread::spawn(move || while peer.write_all(&[b'x'; 100_000]).is_ok() {});
    let mut events = Vec::new();
    let mut stopped = 0;
    let patient_until = io.now() + PATIENCE;
    while stopped < 50 {
        assert!(io.now() < patient_until, "it is received for good");
        io.wait(Some(patient_until), &mut events);
        io.submit();
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => io.release(chunk),
                other => panic!("{other:?}"),
            }
        }
        let State::Open(connection) = &io.entries[0].state else {
            panic!("nobody ended it");
        };
        if connection.untold.bytes() >= 20_000 {
            let received = matches!(connection.receive, Receive::Queued | Receive::Armed);
            assert!(!received, "with {} untold", connection.untold.bytes());
            stopped += 1;
        }
    }
    io.close(token(0), Close::Reset);
    io.submit();
    talk.join().expect("it talked until it was reset");
}

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
