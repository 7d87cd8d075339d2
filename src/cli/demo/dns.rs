//! The demo web's name server: one question in, one answer out (RFC 1035).

use std::net::Ipv4Addr;

/// The reply to a query. `find` is asked for the name's address, the name in lower case without
/// its last dot. `None` for what is no query: it gets no reply.
///
/// The question goes back as it came, octet for octet, so that a resolver that plays with the
/// case of letters recognises its own.
pub fn reply(query: &[u8], find: impl Fn(&str) -> Option<Ipv4Addr>) -> Option<Vec<u8>> {
    let flags = query.get(2..4)?;
    let is_query = flags[0] & 0x80 == 0;
    if !is_query || query.get(4..6)? != [0, 1] {
        return None;
    }
    let (name, end) = name(query)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let question = query.get(HEADER..end + 4)?;
    let address = find(&name);
    let (code, answers) = match address {
        None => (NXDOMAIN, 0),
        Some(_) => (0, u8::from(kind == A)),
    };
    let mut reply = query[..2].to_vec();
    // A response, authoritative, the recursion asked for said to be available.
    reply.extend([
        0x84 | flags[0] & 1,
        0x80 | code,
        0,
        1,
        0,
        answers,
        0,
        0,
        0,
        0,
    ]);
    reply.extend(question);
    if let (Some(address), 1) = (address, answers) {
        // The name as a pointer to the question's.
        reply.extend([0xc0, HEADER as u8, 0, A as u8, 0, 1]);
        reply.extend(TTL_SECONDS.to_be_bytes());
        reply.extend([0, 4]);
        reply.extend(address.octets());
    }
    Some(reply)
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
const NXDOMAIN: u8 = 3;
/// Longer than a demo runs.
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

    fn find(name: &str) -> Option<Ipv4Addr> {
        (name == "site-0001.test").then_some(Ipv4Addr::new(127, 0, 0, 2))
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
