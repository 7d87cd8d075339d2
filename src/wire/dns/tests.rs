//! Which parts of a reply are accepted.

use proptest::prelude::*;

use super::forge::{Forge, question_of};
use super::*;

fn sent_query() -> SentQuery {
    SentQuery {
        id: 0x1234,
        kind: Kind::A,
        spelling: Some(Spelling([0x5555_5555_5555_5555; 4])),
    }
}

fn chain() -> Chain {
    Chain::new(Name::parse("www.a.test").unwrap())
}

/// Reads the reply that `forge` makes to an A query for `www.a.test`.
fn read(forge: impl FnOnce(Forge) -> Forge) -> Result<Reply, Stray> {
    let query = sent_query().write(&chain(), true);
    sent_query().read(&chain(), &forge(Forge::reply_to(&query)).bytes())
}

fn check(forge: impl FnOnce(Forge) -> Forge, expected: Reply) {
    assert_eq!(read(forge), Ok(expected));
}

fn addresses(texts: &[&str], ttl: u32) -> Reply {
    Reply::Addresses {
        addresses: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ttl,
    }
}

#[test]
fn a_query_is_written_as_the_rfcs_specify() {
    let mut query = sent_query();
    query.spelling = None;
    let mut expected = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    expected.extend(b"\x03www\x01a\x04test\x00\x00\x01\x00\x01");
    assert_eq!(query.write(&chain(), false), expected);
    expected[11] = 1;
    expected.extend([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(query.write(&chain(), true), expected);
    query.kind = Kind::Aaaa;
    assert_eq!(
        question_of(&query.write(&chain(), true)),
        ("www.a.test".to_owned(), 28)
    );
}

#[test]
fn the_letter_case_is_as_chosen() {
    let query = sent_query().write(&chain(), false);
    assert_eq!(&query[12..24], b"\x03wWw\x01a\x04tEsT\x00");
}

#[test]
fn names_are_parsed_as_in_urls() {
    let check = |host: &str, expected: Result<&str, NameInvalid>| {
        let read = Name::parse(host).map(|name| name.to_string());
        assert_eq!(read, expected.map(str::to_owned), "{host:?}");
    };
    check("Example.COM", Ok("example.com"));
    check("example.com.", Ok("example.com"));
    check("_dmarc.a-b.test", Ok("_dmarc.a-b.test"));
    check("", Err(NameInvalid::Empty));
    check(".", Err(NameInvalid::Empty));
    check("a..b", Err(NameInvalid::LabelLength));
    check(".a", Err(NameInvalid::LabelLength));
    check(&"x".repeat(64), Err(NameInvalid::LabelLength));
    check("a b", Err(NameInvalid::Character));
    check("bücher.test", Err(NameInvalid::Character));
    let longest = [&"x".repeat(63)[..]; 3].join(".") + "." + &"y".repeat(61);
    check(&longest, Ok(&longest));
    check(&(longest.clone() + "y"), Err(NameInvalid::NameLength));
    SentQuery {
        id: 1,
        kind: Kind::A,
        spelling: None,
    }
    .write(&Chain::new(Name::parse(&longest).unwrap()), true);
}

#[test]
fn addresses_keep_the_servers_order_and_have_the_minimum_ttl() {
    check(
        |reply| {
            reply
                .address("www.a.test", 60, "192.0.2.2")
                .address("WWW.a.TEST", 40, "192.0.2.1")
                .address("www.a.test", 10, "192.0.2.2")
        },
        addresses(&["192.0.2.2", "192.0.2.1"], 40),
    );
}

#[test]
fn addresses_of_another_name_or_family_are_ignored() {
    let nothing = Reply::NoData { ttl: None };
    check(
        |reply| reply.address("b.test", 60, "192.0.2.1"),
        nothing.clone(),
    );
    check(
        |reply| reply.address("a.test", 60, "192.0.2.1"),
        nothing.clone(),
    );
    check(
        |reply| reply.address("www.a.test", 60, "2001:db8::1"),
        nothing.clone(),
    );
    check(
        |reply| {
            reply
                .cname("x.test", 60, "y.test")
                .address("y.test", 60, "192.0.2.1")
        },
        nothing,
    );
}

#[test]
fn aliases_are_followed_in_any_record_order() {
    check(
        |reply| {
            reply
                .address("c.test", 60, "192.0.2.1")
                .cname("b.test", 50, "c.test")
                .cname("www.a.test", 30, "b.test")
        },
        addresses(&["192.0.2.1"], 30),
    );
}

#[test]
fn an_alias_without_addresses_must_be_queried() {
    let Ok(Reply::Alias(longer)) = read(|reply| reply.cname("www.a.test", 30, "B.Test")) else {
        panic!("an alias without addresses");
    };
    assert_eq!(longer.current().to_string(), "b.test");
    assert_eq!(longer.hops(), 1);

    let query = sent_query().write(&longer, true);
    assert_eq!(question_of(&query).0, "b.test");
    let reply = Forge::reply_to(&query).address("b.test", 60, "192.0.2.1");
    let reply = sent_query().read(&longer, &reply.bytes());
    assert_eq!(reply, Ok(addresses(&["192.0.2.1"], 30)), "the least of all");
}

#[test]
fn a_loop_of_aliases_is_an_error() {
    check(
        |reply| reply.cname("www.a.test", 30, "www.a.test"),
        Reply::Endless,
    );
    check(
        |reply| {
            reply
                .cname("www.a.test", 30, "b.test")
                .cname("b.test", 30, "www.a.test")
        },
        Reply::Endless,
    );
}

#[test]
fn sixteen_aliases_are_followed_and_no_more() {
    let aliases = |count: usize| {
        move |mut reply: Forge| {
            let mut owner = "www.a.test".to_owned();
            for number in 0..count {
                let target = format!("{number}.test");
                reply = reply.cname(&owner, 60, &target);
                owner = target;
            }
            reply.address(&owner, 60, "192.0.2.1")
        }
    };
    check(aliases(16), addresses(&["192.0.2.1"], 60));
    check(aliases(17), Reply::Endless);
}

#[test]
fn a_denial_is_cached_for_the_time_set_by_its_zone() {
    let no_data = |ttl| Reply::NoData { ttl };
    check(|reply| reply.soa("a.test", 300, 60), no_data(Some(60)));
    check(|reply| reply.soa("a.test", 30, 60), no_data(Some(30)));
    check(|reply| reply.soa("", 300, 60), no_data(Some(60)));
    check(|reply| reply.soa("b.test", 300, 60), no_data(None));
    check(|reply| reply, no_data(None));
    check(
        |reply| reply.rcode(3).soa("test", 300, 60),
        Reply::NoName { ttl: Some(60) },
    );
    check(|reply| reply.rcode(3), Reply::NoName { ttl: None });
    check(
        |reply| reply.cname("www.a.test", 10, "b.test").soa("test", 300, 60),
        no_data(Some(10)),
    );
    check(
        |reply| {
            reply
                .rcode(3)
                .cname("www.a.test", 10, "b.test")
                .soa("test", 300, 60)
        },
        Reply::NoName { ttl: Some(10) },
    );
}

#[test]
fn a_ttl_beyond_31_bits_is_zero() {
    check(
        |reply| reply.address("www.a.test", 0x8000_0000, "192.0.2.1"),
        addresses(&["192.0.2.1"], 0),
    );
}

#[test]
fn each_failure_code_of_a_server_is_reported() {
    let check_code = |code, trouble| check(|reply| reply.rcode(code), Reply::Failed(trouble));
    check_code(1, Trouble::FormErr);
    check_code(2, Trouble::ServFail);
    check_code(4, Trouble::NotImplemented);
    check_code(5, Trouble::Refused);
    check_code(9, Trouble::Other(9));
    check(
        |reply| reply.no_recursion().ns("test", "ns.test"),
        Reply::Failed(Trouble::Referral),
    );
    check(Forge::truncated, Reply::Truncated);
}

#[test]
fn a_message_that_is_not_the_reply_is_stray() {
    let stray = |forge: fn(Forge) -> Forge| read(forge).unwrap_err();
    assert_eq!(stray(|reply| reply.id(0x1235)), Stray::Id);
    assert_eq!(stray(Forge::folded), Stray::Case);
    let check = |change: fn(&mut Vec<u8>), expected| {
        let mut bytes = Forge::reply_to(&sent_query().write(&chain(), true)).bytes();
        change(&mut bytes);
        assert_eq!(sent_query().read(&chain(), &bytes), Err(expected));
    };
    check(|bytes| bytes[2] &= 0x7f, Stray::NoReply);
    check(|bytes| bytes[2] |= 0x28, Stray::NoReply);
    check(|bytes| bytes.truncate(11), Stray::NoReply);
    check(|bytes| bytes[5] = 0, Stray::Question);
    check(|bytes| bytes[5] = 2, Stray::Question);
    check(|bytes| bytes[13] = b'x', Stray::Question);
    check(|bytes| *bytes.last_mut().unwrap() = 3, Stray::Question);
    check(
        |bytes| *bytes.iter_mut().rev().nth(2).unwrap() = 28,
        Stray::Question,
    );
}

#[test]
fn a_server_asked_in_lower_case_may_answer_in_any() {
    let lax = SentQuery {
        spelling: None,
        ..sent_query()
    };
    let reply = Forge::reply_to(&sent_query().write(&chain(), true));
    assert_eq!(
        lax.read(&chain(), &reply.bytes()),
        Ok(Reply::NoData { ttl: None })
    );
}

#[test]
fn broken_records_are_malformed() {
    check(
        |reply| reply.record(6, "www.a.test", 1, 60, &[192, 0, 2]),
        Reply::Malformed,
    );
    check(
        |reply| reply.record(6, "www.a.test", 1, 60, &[192, 0, 2, 1, 7]),
        Reply::Malformed,
    );
    check(
        |reply| reply.record(6, "www.a.test", 5, 60, &[0xc0, 0xff]),
        Reply::Malformed,
    );
    check(
        |reply| reply.record(8, "a.test", 6, 60, &[0]),
        Reply::Malformed,
    );
}

#[test]
fn the_number_of_records_read_is_bounded() {
    let Ok(Reply::Addresses { addresses, .. }) = read(|mut reply| {
        for number in 0..2000_u32 {
            let text = std::net::Ipv4Addr::from(0x0a00_0000 + number).to_string();
            reply = reply.address("www.a.test", 60, &text);
        }
        reply
    }) else {
        panic!("there are addresses");
    };
    assert_eq!(addresses.len(), ADDRESSES_MAX);
}

#[test]
fn no_truncated_reply_counts_as_an_answer() {
    let query = sent_query().write(&chain(), true);
    let whole = Forge::reply_to(&query)
        .cname("www.a.test", 30, "b.test")
        .address("b.test", 60, "192.0.2.1")
        .bytes();
    for end in 0..whole.len() {
        match sent_query().read(&chain(), &whole[..end]) {
            Ok(Reply::Malformed) | Err(Stray::NoReply | Stray::Question) => {}
            other => panic!("cut at {end}: {other:?}"),
        }
    }
}

#[test]
fn messages_are_extracted_from_a_stream_with_any_split() {
    let messages: [&[u8]; 4] = [b"first", b"", b"x", &[7; 300]];
    let stream: Vec<u8> = messages.iter().flat_map(|message| frame(message)).collect();
    let deframe = |pieces: &[&[u8]]| {
        let mut deframer = Deframer::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut piece = *piece;
            while let Some(message) = deframer.read(&mut piece) {
                found.push(message);
            }
            assert!(piece.is_empty());
        }
        found
    };
    for cut in 0..=stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(deframe(&[head, tail]), messages);
    }
    let octets: Vec<&[u8]> = stream.chunks(1).collect();
    assert_eq!(deframe(&octets), messages);
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        // With a valid beginning, so that the records are reached, and without.
        let query = sent_query().write(&chain(), true);
        let mut reply = Forge::reply_to(&query).bytes();
        reply[6..12].copy_from_slice(&[0, 9, 0, 9, 0, 9]);
        reply.extend(&bytes);
        let _ = sent_query().read(&chain(), &reply);
        let _ = sent_query().read(&chain(), &bytes);
    }

    #[test]
    fn no_flipped_octet_makes_the_reader_panic(at in 0_usize..120, octet: u8) {
        let mut reply = Forge::reply_to(&sent_query().write(&chain(), true))
            .cname("www.a.test", 30, "b.test")
            .address("b.test", 60, "192.0.2.1")
            .soa("a.test", 30, 60)
            .bytes();
        let at = at % reply.len();
        reply[at] = octet;
        let _ = sent_query().read(&chain(), &reply);
    }
}
