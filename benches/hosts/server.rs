//! A minimal server on the loopback device: one read, one write of the same reply.
//!
//! Not on the test kit's engine, on purpose: crawls are measured against this server, which shares a
//! machine with them. The engine parses each request, copies its reply and reads three clocks per turn;
//! this loop does none of that. Each request must arrive in one read.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::thread;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// Starts the server in a new thread; returns its port.
pub fn start(on: Ipv4Addr, reply: Vec<u8>) -> io::Result<u16> {
    let mut listener = TcpListener::bind((on, 0).into())?;
    let port = listener.local_addr()?.port();
    let mut poll = Poll::new()?;
    let listening = Token(usize::MAX);
    poll.registry()
        .register(&mut listener, listening, Interest::READABLE)?;
    thread::spawn(move || {
        let mut events = Events::with_capacity(256);
        let mut streams: HashMap<Token, TcpStream> = HashMap::new();
        let mut next = 0;
        let mut buffer = [0; 4096];
        loop {
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled.expect("a valid epoll"),
            }
            for event in &events {
                let token = event.token();
                if token == listening {
                    while let Ok((mut stream, _)) = listener.accept() {
                        poll.registry()
                            .register(&mut stream, Token(next), Interest::READABLE)
                            .expect("a new descriptor");
                        streams.insert(Token(next), stream);
                        next += 1;
                    }
                    continue;
                }
                while let Some(stream) = streams.get_mut(&token) {
                    match stream.read(&mut buffer) {
                        Ok(length) if length > 0 => drop(stream.write(&reply)),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        _ => drop(streams.remove(&token)),
                    }
                }
            }
        }
    });
    Ok(port)
}
