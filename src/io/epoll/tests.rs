//! What only epoll has to see to.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use socket2::SockRef;

use super::*;

#[test]
fn a_stamp_that_nobody_waits_for_is_dropped_and_the_connection_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut io = Epoll::new(Settings::default()).expect("a back end");
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
            assert!(io.now() < soon, "it never comes: {events:?}");
        }
        std::mem::take(&mut events)
    };
    until(&mut io, |event| matches!(event, Event::Connected { .. }));
    for _ in 0..3 {
        let connection = io.entries[0].connection().expect("it is open");
        // As if the packet had been held up on its way to the device until the call was over.
        assert_eq!(connection.socket.send_stamped(b"?"), Ok(Some(1)));
        peer.read_exact(&mut [0]).expect("it was sent");
        peer.write_all(b"!").expect("it is there");
        let told = until(&mut io, |event| matches!(event, Event::Received { .. }));
        assert!(matches!(told[..], [Event::Received { .. }]), "{told:?}");
        let connection = io.entries[0].connection().expect("it is open");
        assert!(connection.socket.departed().is_none(), "one waits");
    }
    SockRef::from(&peer)
        .set_linger(Some(Duration::ZERO))
        .expect("it is a socket");
    let connection = io.entries[0].connection().expect("it is open");
    assert_eq!(connection.socket.send_stamped(b"?"), Ok(Some(1)));
    // A real error is told, with a stamp in front of it, too.
    drop(peer);
    let told = until(&mut io, |event| matches!(event, Event::Failed { .. }));
    let [Event::Failed { error, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(error, NetError::Reset);
}

#[test]
fn a_loop_that_reads_what_came_in_an_earlier_turn_has_no_leisure_from_that() {
    const SOCKETS: u32 = 3 * READS_MAX as u32;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let mut io = Epoll::new(Settings::default()).expect("a back end");
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
    // Others may be given our processor now and then, which is leisure.
    let busy = (0..10).filter(|_| {
        for peer in &mut peers {
            peer.write_all(b"!").expect("it is there");
        }
        io.leisure.begin_turn(io.stamps.now(), usize::MAX);
        let (mut received, mut has_leisure) = (0, false);
        while received < SOCKETS {
            io.wait(None, &mut events);
            has_leisure |= io.leisure.is_there(io.stamps.now());
            for event in events.drain(..) {
                if let Event::Received { chunk, .. } = event {
                    io.release(chunk);
                    received += 1;
                }
            }
        }
        !has_leisure
    });
    assert!(busy.count() >= 3);
}

fn is_connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}
