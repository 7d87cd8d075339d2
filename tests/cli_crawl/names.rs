//! Misbehaving name servers, over real sockets.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use argiope::testkit::dns;
use argiope::testkit::server::Acceptor;

use crate::run::Crawl;
use crate::server::{Server, page};

/// What a name server does with a connection on which it has answered once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Ends,
    /// It reads and sends nothing more.
    IsSilent,
}

/// A name server that answers by TCP alone, one question per connection: every name is 127.0.0.1.
fn once_per_connection(then: Then) -> Acceptor {
    let (listener, socket) = dns::sockets();
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let Some(answer) = dns::reply(&query[..length], |_| dns::Answer::Truncated) else {
                continue;
            };
            let _ = socket.send_to(&answer, from);
        }
    });
    Acceptor::start(listener, move |stream, _| answer_once(stream, then))
}

fn answer_once(mut stream: TcpStream, then: Then) -> io::Result<()> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut query)?;
    let address = dns::Answer::Address(Ipv4Addr::LOCALHOST);
    let answer = dns::reply(&query, |_| address).expect("it is a query");
    let length = u16::try_from(answer.len()).expect("it is short");
    stream.write_all(&[&length.to_be_bytes()[..], &answer].concat())?;
    if then == Then::IsSilent {
        while stream.read(&mut [0; 512])? > 0 {}
    }
    Ok(())
}

#[test]
fn a_name_server_that_answers_once_per_connection_delays_no_name() {
    const NAMES: usize = 10;
    for then in [Then::Ends, Then::IsSilent] {
        let server = Server::new(|_| page("there"));
        let name_server = once_per_connection(then);
        let names = name_server.address().to_string();
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
