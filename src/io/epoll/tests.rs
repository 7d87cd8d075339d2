//! Tests of the epoll back end alone.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use socket2::SockRef;

use super::*;

#[test]
fn an_unused_departure_stamp_is_dropped_and_the_connection_stays_open() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut io = Epoll::new(IoSettings::default()).expect("a back end");
    let token = Token {
        slot: 0,
        generation: 1,
    };
    io.connect(token, listener.local_addr().expect("an address"));
    let (mut peer, _) = listener.accept().expect("it connects");
    let mut events = Vec::new();
    let mut until = |io: &mut Epoll, is_it: fn(&Event) -> bool| {
        while !events.iter().any(is_it) {
            let soon = io.now() + Duration::from_secs(30);
            io.wait(Some(soon), &mut events);
            assert!(io.now() < soon, "timed out: {events:?}");
        }
        std::mem::take(&mut events)
    };
    until(&mut io, |event| matches!(event, Event::Connected { .. }));
    for _ in 0..3 {
        let connection = io.sockets.at(0).connection().expect("it is open");
        // As if the packet had reached its device after the call.
        assert_eq!(connection.socket.send_stamped(b"?"), Ok(Some(1)));
        peer.read_exact(&mut [0]).expect("it was sent");
        peer.write_all(b"!").expect("it is there");
        let reported = until(&mut io, |event| matches!(event, Event::Received { .. }));
        assert!(
            matches!(reported[..], [Event::Received { .. }]),
            "{reported:?}"
        );
        let connection = io.sockets.at(0).connection().expect("it is open");
        assert!(connection.socket.departed().is_none(), "a stamp is left");
    }
    SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .expect("it is a socket");
    let connection = io.sockets.at(0).connection().expect("it is open");
    assert_eq!(connection.socket.send_stamped(b"?"), Ok(Some(1)));
    // An actual error behind a stamp is reported.
    drop(peer);
    let reported = until(&mut io, |event| matches!(event, Event::Failed { .. }));
    let [Event::Failed { error, .. }] = reported[..] else {
        panic!("{reported:?}");
    };
    assert_eq!(error, NetError::Reset);
}

#[test]
fn reading_what_an_earlier_turn_found_is_not_idle_time() {
    const SOCKETS: u32 = 3 * READS_MAX as u32;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let mut io = Epoll::new(IoSettings::default()).expect("a back end");
    let (mut events, mut peers) = (Vec::new(), Vec::new());
    for slot in 0..SOCKETS {
        let token = Token {
            slot,
            generation: 1,
        };
        io.connect(token, at);
        peers.push(listener.accept().expect("it connects").0);
    }
    let mut connected = 0;
    while connected < SOCKETS {
        io.wait(None, &mut events);
        connected += events.drain(..).filter(is_connected).count() as u32;
    }
    // Other processes may take the processor now and then, which counts as idle time.
    let busy = (0..10).filter(|_| {
        for peer in &mut peers {
            peer.write_all(b"!").expect("it is there");
        }
        io.idle_time.begin_turn(io.stamps.now(), usize::MAX);
        let (mut received, mut has_idle_time) = (0, false);
        while received < SOCKETS {
            io.wait(None, &mut events);
            has_idle_time |= io.idle_time.is_available(io.stamps.now());
            for event in events.drain(..) {
                if let Event::Received { chunk, .. } = event {
                    io.release(chunk);
                    received += 1;
                }
            }
        }
        !has_idle_time
    });
    assert!(busy.count() >= 3);
}

fn is_connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}
