//! Name servers of our own, over real sockets, that are hard to ask.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::run::Crawl;
use crate::server::{Server, page};

/// What a name server does with a connection on which it has answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Ends,
    /// It reads and says nothing more.
    IsSilent,
}

/// A name server that answers by TCP alone, one question per connection: every name is 127.0.0.1.
fn once_per_connection(then: Then) -> SocketAddr {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it is bound");
        // The same port may be taken for datagrams.
        if let Ok(socket) = UdpSocket::bind(at) {
            break (listener, socket);
        }
    };
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            // A response, truncated, recursion desired and available; one question.
            let answer = reply(&query[..length], [0x83, 0x80], &[]);
            let _ = socket.send_to(&answer, from);
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves is no fault of a name server's.
            thread::spawn(move || answer_once(stream, then));
        }
    });
    at
}

fn answer_once(mut stream: TcpStream, then: Then) -> io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut query)?;
    let is_a = query[question_end(&query) - 4..][..2] == [0, 1];
    // The question's name, A, IN, five minutes, four bytes.
    const RECORD: [u8; 16] = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 127, 0, 0, 1];
    let record: &[u8] = if is_a { &RECORD } else { &[] };
    let answer = reply(&query, [0x81, 0x80], record);
    let length = u16::try_from(answer.len()).expect("it is short");
    stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
    if then == Then::IsSilent {
        while stream.read(&mut [0; 512])? > 0 {}
    }
    Ok(())
}

/// A reply to a query with these flags, and this record or none.
fn reply(query: &[u8], flags: [u8; 2], record: &[u8]) -> Vec<u8> {
    let records = u8::from(!record.is_empty());
    let counts = [0, 1, 0, records, 0, 0, 0, 0];
    let question = &query[12..question_end(query)];
    [&query[..2], &flags, &counts, question, record].concat()
}

/// Where a query's question ends: with the name's empty label, its type and its class.
fn question_end(query: &[u8]) -> usize {
    let name = query[12..].iter().position(|byte| *byte == 0);
    12 + name.expect("a name ends") + 1 + 4
}

#[test]
fn a_name_server_that_answers_once_per_connection_delays_no_name() {
    const NAMES: usize = 10;
    for then in [Then::Ends, Then::IsSilent] {
        let server = Server::new(|_| page("there"));
        let names = once_per_connection(then).to_string();
        let port = server.port();
        let urls: Vec<String> = (0..NAMES)
            .map(|number| format!("http://host{number}.test:{port}/"))
            .collect();
        let mut args: Vec<&str> = urls.iter().map(String::as_str).collect();
        args.extend(["--dns", &names]);
        let crawled = Crawl::of(&args).run();
        for url in &urls {
            let line = crawled.line(url);
            assert_eq!(line["status"], 200, "{then:?}: {line}");
        }
        let took = crawled.ended.took;
        let most = Duration::from_secs(3);
        assert!(took < most, "{then:?}: {NAMES} names took {took:?}");
    }
}
