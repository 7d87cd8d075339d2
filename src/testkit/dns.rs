//! A name server: one question in, one answer out (RFC 1035).
//!
//! Hand-written, and apart from the crawler's own messages: a test server must not share the reader's
//! errors.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::thread;

use super::server::loopback;

/// Answer of a name server for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has this address, and none of IPv6.
    Address(Ipv4Addr),
    /// It does not exist.
    Nonexistent,
    /// The server fails (SERVFAIL).
    Failure,
    /// The answer is too long for a datagram: ask again by TCP.
    Truncated,
}

/// The reply to a query. `answer` is asked about the name, in lower case without its last dot. `None`
/// for bytes that are not a query: they get no reply.
///
/// The question goes back as it came, octet for octet, so that a resolver that varies the case of
/// letters recognises its own.
pub fn reply(query: &[u8], answer: impl FnOnce(&str) -> Answer) -> Option<Vec<u8>> {
    let flags = query.get(2..4)?;
    let is_query = flags[0] & 0x80 == 0;
    if !is_query || query.get(4..6)? != [0, 1] {
        return None;
    }
    let (name, end) = name(query)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let question = query.get(HEADER..end + 4)?;
    let answer = answer(&name);
    let record = match answer {
        Answer::Address(address) if kind == A => Some(address),
        _ => None,
    };
    let code = match answer {
        Answer::Address(_) | Answer::Truncated => 0,
        Answer::Failure => SERVFAIL,
        Answer::Nonexistent => NXDOMAIN,
    };
    let truncated = u8::from(answer == Answer::Truncated) << 1;
    let count = u8::from(record.is_some());
    let mut reply = query[..2].to_vec();
    // A response, authoritative, with the recursion that was asked for.
    reply.extend([0x84 | truncated | flags[0] & 1, 0x80 | code]);
    reply.extend([0, 1, 0, count, 0, 0, 0, 0]);
    reply.extend(question);
    if let Some(address) = record {
        // The name as a pointer to the question's.
        reply.extend([0xc0, HEADER as u8, 0, A as u8, 0, 1]);
        reply.extend(TTL_SECONDS.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
}

/// A name server on 127.0.0.1, by UDP, that lasts as long as the process.
pub fn serve(mut answer: impl FnMut(&str) -> Answer + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    let at = socket.local_addr().expect("it is bound");
    thread::spawn(move || {
        let mut query = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            if let Some(reply) = reply(&query[..length], &mut answer) {
                // A full buffer drops the reply, as a network would; the resolver asks again.
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    at
}

/// A name server's two sockets, on one port of 127.0.0.1 that is free for both.
pub fn sockets() -> (TcpListener, UdpSocket) {
    loop {
        let listener = loopback();
        let at = listener.local_addr().expect("it is bound");
        if let Ok(socket) = UdpSocket::bind(at) {
            return (listener, socket);
        }
    }
}

/// The question's name and where it ends. A question has no pointer to follow.
fn name(query: &[u8]) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = *query.get(at)? as usize;
        at += 1;
        match length {
            0 => return Some((name, at)),
            1..64 => {
                let label = query.get(at..at + length)?;
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(&std::str::from_utf8(label).ok()?.to_ascii_lowercase());
                at += length;
            }
            _ => return None,
        }
    }
}

const HEADER: usize = 12;
const A: u16 = 1;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;
/// Longer than a demo or a test runs.
const TTL_SECONDS: u32 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend(label.bytes());
        }
        query.push(0);
        query.extend(kind.to_be_bytes());
        query.extend([0, 1]);
        query
    }

    fn find(name: &str) -> Answer {
        match name {
            "site-0001.test" => Answer::Address(Ipv4Addr::new(127, 0, 0, 2)),
            "fails.test" => Answer::Failure,
            "long.test" => Answer::Truncated,
            _ => Answer::Nonexistent,
        }
    }

    #[test]
    fn a_known_name_has_its_address_and_keeps_the_case_it_was_asked_in() {
        let asked = query("sItE-0001.TEST", A);
        let reply = reply(&asked, find).expect("a reply");
        assert_eq!(
            reply[..12],
            [0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]
        );
        assert_eq!(reply[12..asked.len()], asked[12..]);
        assert_eq!(reply[asked.len()..][..2], [0xc0, 12]);
        assert!(reply.ends_with(&[0, 4, 127, 0, 0, 2]));
    }

    #[test]
    fn a_known_name_without_such_a_record_is_not_an_unknown_name() {
        let reply_of = |name, kind| reply(&query(name, kind), find).expect("a reply");
        let aaaa = reply_of("site-0001.test", 28);
        assert_eq!((aaaa[3] & 15, aaaa[7]), (0, 0));
        let unknown = reply_of("elsewhere.test", A);
        assert_eq!((unknown[3] & 15, unknown[7]), (NXDOMAIN, 0));
        let fails = reply_of("fails.test", A);
        assert_eq!((fails[3] & 15, fails[7]), (SERVFAIL, 0));
        let long = reply_of("long.test", A);
        assert_eq!((long[2] & 2, long[3] & 15, long[7]), (2, 0, 0));
    }

    #[test]
    fn what_is_no_query_gets_no_reply() {
        let whole = query("site-0001.test", A);
        for cut in 0..whole.len() {
            assert_eq!(reply(&whole[..cut], find), None);
        }
        let mut response = whole.clone();
        response[2] |= 0x80;
        assert_eq!(reply(&response, find), None);
        let mut pointing = whole;
        pointing[12] = 0xc0;
        assert_eq!(reply(&pointing, find), None);
    }
}
