//! The kernel's back ends allocate nothing per operation once they are warm.

#[expect(dead_code, reason = "how many bytes are held is others' affair")]
mod counting;
#[path = "../src/base/loud.rs"]
mod loud;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use argiope::io::{Close, Epoll, Event, Io, IoSettings, Token, Uring};
use argiope::testkit::server::{Acceptor, loopback};
use counting::{Counting, asked};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_exchange_on_a_warm_epoll_allocates_nothing() {
    check(Epoll::new(IoSettings::default()).expect("a back end"));
}

#[test]
fn an_exchange_on_a_warm_io_uring_allocates_nothing() {
    match Uring::new(IoSettings::default()) {
        Ok(io) => check(io),
        Err(reason) => loud::skip(reason),
    }
}

fn check(mut io: impl Io) {
    let server = answering();
    let peer = server.address();
    let mut events = Vec::with_capacity(64);
    for generation in 0..200 {
        exchange(&mut io, &mut events, peer, generation);
    }
    let before = asked();
    for generation in 200..700 {
        exchange(&mut io, &mut events, peer, generation);
    }
    assert_eq!(asked() - before, 0);
}

/// Connects, sends a byte, reads the answer, and closes.
fn exchange(io: &mut impl Io, events: &mut Vec<Event>, peer: SocketAddr, generation: u32) {
    let token = Token {
        slot: 0,
        generation,
    };
    io.connect(token, peer);
    let mut answered = false;
    while !answered {
        io.submit();
        io.wait(Some(io.now() + Duration::from_secs(10)), events);
        for event in events.drain(..) {
            match event {
                Event::Connected { token, .. } => io.send(token, b"?", true),
                Event::Received { chunk, .. } => {
                    assert_eq!(io.bytes(&chunk), b"!");
                    io.release(chunk);
                    answered = true;
                }
                Event::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    io.close(token, Close::Reset);
}

/// A server that answers each connection's first byte.
fn answering() -> Acceptor {
    Acceptor::start(loopback(), |mut stream, _| {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        stream.write_all(b"!")?;
        stream.read(&mut byte).map(|_| ())
    })
}
