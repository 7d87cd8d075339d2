//! Tests of the io_uring back end alone.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::pinned::{DROPPED, Dropped};
use super::probe::INJECTED;
use super::*;
use crate::io::{Clock, Stamp};

/// A back end, unless io_uring is unavailable.
fn uring(settings: IoSettings) -> Option<Uring> {
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

/// A connection and its peer.
fn connected(io: &mut Uring, slot: u32) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    io.connect(token(slot), listener.local_addr().expect("an address"));
    io.submit();
    let (peer, _) = listener.accept().expect("we connect");
    peer.set_nodelay(true).expect("it is a TCP socket");
    let mut events = Vec::new();
    while events.is_empty() {
        io.wait(Some(io.now() + TIMEOUT), &mut events);
    }
    io.submit();
    assert!(matches!(events[..], [Event::Connected { .. }]));
    peer
}

/// The next arrivals, up to so many bytes: lengths and stamps.
fn arrivals(io: &mut Uring, mut bytes: usize) -> Vec<(usize, Stamp)> {
    let mut reported = Vec::new();
    let mut events = Vec::new();
    let give_up_at = io.now() + TIMEOUT;
    while bytes > 0 {
        assert!(io.now() < give_up_at, "timed out");
        io.submit();
        io.wait(Some(give_up_at), &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, stamp, .. } => {
                    bytes -= io.bytes(&chunk).len();
                    reported.push((io.bytes(&chunk).len(), stamp));
                    io.release(chunk);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    reported
}

#[test]
fn each_segment_keeps_its_own_stamp_while_the_thread_is_busy() {
    // Where other processes keep the processor, segments are found together, and the stamp is marked as a bound.
    let each_alone = (0..20).any(|_| match uring(IoSettings::default()) {
        Some(mut io) => busy_while_four_segments_come(&mut io),
        None => true,
    });
    assert!(each_alone);
}

/// Whether four segments were reported one by one. Those reported as exact must be.
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
    // On the processor, without looking.
    let busy_until = io.now() + gap * 3;
    while io.now() < busy_until {
        std::hint::spin_loop();
    }
    let _peer = talk.join().expect("it talked");
    let reported = arrivals(io, 4);
    for (length, stamp) in &reported {
        assert_eq!(stamp.clock, Clock::Kernel);
        assert!(*length == 1 || stamp.is_bound(), "{reported:?}");
    }
    if reported.len() < 4 {
        return false;
    }
    for two in reported.windows(2) {
        let apart = two[1].1.at.saturating_since(two[0].1.at);
        assert!(apart >= gap, "{apart:?}");
    }
    reported.iter().all(|(_, stamp)| !stamp.is_bound())
}

#[test]
fn the_stamp_of_segments_that_waited_without_a_receive_is_a_bound() {
    let Some(mut io) = uring(IoSettings::default()) else {
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
    // The stamp of a single segment is exact, however late it is found.
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
fn a_receive_whose_cancel_failed_is_cancelled_again() {
    let Some(mut io) = uring(IoSettings::default()) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    io.set_reading(token(0), false);
    // The kernel cannot cancel at this moment.
    let Some(Submission::Cancel(receive)) = io.submissions.pop() else {
        panic!("what is not to be read is not to be received");
    };
    let what = OpKind::CancelReceive;
    io.completions = vec![Completion {
        name: OpId { what, ..receive },
        result: Err(libc::EALREADY),
        buffer: None,
        more: false,
    }];
    let mut events = Vec::new();
    io.handle_completions(io.now(), &mut events);
    io.submit();
    peer.write_all(b"!").expect("there is room for it");
    io.wait(Some(io.now() + Duration::from_millis(20)), &mut events);
    let Some(connection) = io.sockets.at(0).open() else {
        panic!("it is open");
    };
    assert_eq!(connection.input.receive, Receive::Off);
    assert!(
        connection.input.unreported.is_empty(),
        "no receive is active"
    );
    // The bytes are still there.
    io.set_reading(token(0), true);
    assert_eq!(arrivals(&mut io, 1)[0].0, 1);
}

#[test]
fn the_failed_cancel_of_a_listener_cancels_that_again_and_nothing_else() {
    let Some(mut io) = uring(IoSettings::default()) else {
        return;
    };
    let _peer = connected(&mut io, 0);
    // A socket in the slot that is the listener's index, whose receive is being cancelled.
    io.set_reading(token(0), false);
    io.submissions.clear();
    let serial = io.sockets.at(0).serial();
    let mut check = |errno, expected: &[OpKind]| {
        io.completions = vec![Completion {
            name: OpId {
                what: OpKind::CancelListener,
                slot: 0,
                serial,
            },
            result: Err(errno),
            buffer: None,
            more: false,
        }];
        io.handle_completions(io.now(), &mut Vec::new());
        let cancelled = io.submissions.drain(..).map(|submission| match submission {
            Submission::Cancel(name) => name.what,
            Submission::Start(name) => panic!("{name:?} is started"),
        });
        assert_eq!(cancelled.collect::<Vec<_>>(), expected, "{errno}");
    };
    check(libc::ENOENT, &[]);
    check(libc::EALREADY, &[OpKind::Listener]);
}

#[test]
fn more_operations_are_submitted_than_the_ring_holds() {
    let Some(mut io) = uring(IoSettings::default()) else {
        return;
    };
    let echo = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = echo.local_addr().expect("an address");
    let sockets = 1000;
    for slot in 0..sockets {
        io.open_datagram(token(slot), to);
        io.send(token(slot), b"?", false);
    }
    assert_eq!(io.submissions.len(), sockets as usize);
    io.submit();
    assert!(io.submissions.is_empty());
    assert_eq!(io.receiving, sockets as usize);
    let mut received = 0;
    let mut events = Vec::new();
    // The peer's buffer may not hold all of them at once.
    echo.set_read_timeout(Some(Duration::from_millis(50)))
        .expect("it is some time");
    while let Ok((_, from)) = echo.recv_from(&mut [0]) {
        echo.send_to(b"!", from).expect("the socket is open");
        received += 1;
    }
    assert!(received > 100);
    let give_up_at = io.now() + TIMEOUT;
    while received > 0 {
        assert!(io.now() < give_up_at, "timed out");
        io.wait(Some(give_up_at), &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => io.release(chunk),
                other => panic!("{other:?}"),
            }
            received -= 1;
        }
    }
}

#[test]
fn bytes_for_a_slots_former_socket_are_not_reported_for_the_next() {
    let Some(mut io) = uring(IoSettings::default()) else {
        return;
    };
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = peer.local_addr().expect("an address");
    io.open_datagram(token(0), to);
    io.send(token(0), b"?", false);
    io.submit();
    let (_, from) = peer.recv_from(&mut [0]).expect("a request was sent");
    peer.send_to(b"!", from).expect("the socket is open");
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
fn no_receive_is_active_when_the_buffers_are_freed() {
    let Some(mut io) = uring(IoSettings::default()) else {
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

/// All blocks were freed, after their ring was closed.
fn freed(freed: usize) -> Dropped {
    Dropped {
        ring: true,
        freed,
        ..Dropped::default()
    }
}

/// The ring was closed, and no block was freed.
fn leaked(leaked: usize) -> Dropped {
    Dropped {
        ring: true,
        leaked,
        ..Dropped::default()
    }
}

#[test]
fn the_buffers_outlive_a_ring_whose_probe_fails_during_a_receive() {
    let check = |cancellations: Vec<i32>, expected: fn(usize) -> Dropped| {
        let Some(io) = uring(IoSettings::default()) else {
            return;
        };
        let blocks = io.buffers.blocks() + 1;
        drop(io);
        DROPPED.take();
        let errors = cancellations
            .into_iter()
            .map(io::Error::from_raw_os_error)
            .collect();
        INJECTED.set(Some(errors));
        let failure = Uring::new(IoSettings::default()).expect_err("the probe fails");
        assert!(matches!(failure, Unavailable::Lacks(_)), "{failure}");
        assert_eq!(DROPPED.take(), expected(blocks));
    };
    check(vec![], freed);
    check(vec![libc::EINTR], freed);
    check(vec![libc::EINVAL], leaked);
}

#[test]
fn the_buffers_are_leaked_when_receives_cannot_be_ended() {
    let check = |spoil: fn(&mut Uring), expected: fn(usize) -> Dropped| {
        let Some(mut io) = uring(IoSettings::default()) else {
            return;
        };
        let mut peer = connected(&mut io, 0);
        peer.write_all(&[b'x'; 100_000]).expect("we listen");
        let blocks = io.buffers.blocks() + 1;
        spoil(&mut io);
        // On another thread than the one that submitted the receives.
        let dropped = thread::spawn(move || {
            drop(io);
            DROPPED.take()
        });
        assert_eq!(dropped.join().expect("it is dropped"), expected(blocks));
    };
    check(|_| (), freed);
    let interrupted = |io: &mut Uring| {
        let error = io::Error::from_raw_os_error(libc::EINTR);
        io.ring.injected.push_back(error);
    };
    check(interrupted, freed);
    let interrupted_for_ever = |io: &mut Uring| {
        for _ in 0..super::ring::INTERRUPTED_MAX {
            let error = io::Error::from_raw_os_error(libc::EINTR);
            io.ring.injected.push_back(error);
        }
    };
    check(interrupted_for_ever, leaked);
    let failing = |io: &mut Uring| {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        io.ring.injected.push_back(error);
    };
    check(failing, leaked);
    // A receive that never completes for the last time.
    check(|io| io.receiving += 1, leaked);
}

#[test]
fn a_flood_is_reported_in_shares_until_its_end() {
    let settings = IoSettings {
        read_budget: 50_000,
        buffer_bytes: 1000,
        ..IoSettings::default()
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
    let give_up_at = io.now() + TIMEOUT;
    while bytes < 3_000_000 {
        assert!(io.now() < give_up_at, "timed out");
        io.submit();
        io.wait(Some(give_up_at), &mut events);
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
        // The last buffer may exceed the share.
        assert!(bytes - before < 51_000, "{} in one turn", bytes - before);
    }
    talk.join().expect("it talked");
}

#[test]
fn a_flood_is_not_received_while_more_than_its_share_is_unreported() {
    let settings = IoSettings {
        read_budget: 20_000,
        buffer_bytes: 1000,
        ..IoSettings::default()
    };
    let Some(mut io) = uring(settings) else {
        return;
    };
    let mut peer = connected(&mut io, 0);
    let talk = thread::spawn(move || while peer.write_all(&[b'x'; 100_000]).is_ok() {});
    let mut events = Vec::new();
    let mut stopped = 0;
    let give_up_at = io.now() + TIMEOUT;
    while stopped < 50 {
        assert!(io.now() < give_up_at, "the receive never stops");
        io.wait(Some(give_up_at), &mut events);
        io.submit();
        for event in events.drain(..) {
            match event {
                Event::Received { chunk, .. } => io.release(chunk),
                other => panic!("{other:?}"),
            }
        }
        let Some(connection) = io.sockets.at(0).open() else {
            panic!("it is open");
        };
        if connection.input.unreported.bytes() >= 20_000 {
            let received = matches!(connection.input.receive, Receive::Queued | Receive::Armed);
            assert!(
                !received,
                "with {} unreported",
                connection.input.unreported.bytes()
            );
            stopped += 1;
        }
    }
    io.close(token(0), Close::Reset);
    io.submit();
    talk.join().expect("it talked until it was reset");
}

/// Longer than any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
