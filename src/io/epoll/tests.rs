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
