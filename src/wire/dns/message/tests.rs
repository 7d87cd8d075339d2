//! Compares the parser with a DNS library.

use domain::base::{Message as Known, ParsedName};
use domain::rdata::{A, Aaaa, Cname, Soa};
use proptest::prelude::*;

use super::super::forge::Forge;
use super::super::{Chain, Kind, Name, SentQuery};
use super::*;

/// Everything in a message that the parser can return; an error ends a section.
#[derive(Debug, Default, PartialEq)]
struct Found {
    question: Option<(String, u16, u16)>,
    rcode: u16,
    records: Vec<Option<(String, u16, u16, u32)>>,
    data: Vec<Option<String>>,
}

fn written<'a>(labels: impl Iterator<Item = &'a [u8]>) -> String {
    labels
        .map(|label| label.escape_ascii().to_string() + ".")
        .collect()
}

fn ours(octets: &[u8]) -> Found {
    let Ok(message) = Message::read(octets) else {
        return Found::default();
    };
    let mut found = Found {
        rcode: message.extended_rcode(),
        ..Found::default()
    };
    if let Ok(question) = message.sole_question() {
        found.question = Some((written(question.name), question.kind, question.class));
    }
    for section in [Section::Answer, Section::Authority] {
        let Ok(records) = message.records(section) else {
            continue;
        };
        for record in records {
            let Ok(record) = record else {
                found.records.push(None);
                continue;
            };
            found.records.push(Some((
                written(record.owner),
                record.kind,
                record.class,
                record.ttl,
            )));
            found.data.push(match record.kind {
                1 => record.octets::<4>().ok().map(|data| format!("{data:?}")),
                28 => record.octets::<16>().ok().map(|data| format!("{data:?}")),
                5 => record.name().ok().map(written),
                6 => record.soa_minimum().ok().map(|minimum| minimum.to_string()),
                _ => None,
            });
        }
    }
    found
}

fn theirs(octets: &[u8]) -> Found {
    fn written_name(name: &ParsedName<&[u8]>) -> String {
        written(
            name.iter()
                .map(|label| label.as_slice())
                .filter(|label| !label.is_empty()),
        )
    }
    let Ok(message) = Known::from_slice(octets) else {
        return Found::default();
    };
    let mut found = Found {
        rcode: message.opt_rcode().to_int(),
        ..Found::default()
    };
    if let Ok(question) = message.sole_question() {
        let name = written_name(question.qname());
        found.question = Some((name, question.qtype().to_int(), question.qclass().to_int()));
    }
    for section in [message.answer(), message.authority()] {
        let Ok(records) = section else {
            continue;
        };
        for record in records {
            let Ok(record) = record else {
                found.records.push(None);
                continue;
            };
            let owner = written_name(&record.owner().deref_octets());
            let kind = record.rtype().to_int();
            let (class, ttl) = (record.class().to_int(), record.ttl().as_secs());
            found.records.push(Some((owner, kind, class, ttl)));
            found.data.push(match kind {
                1 => record
                    .to_record::<A>()
                    .ok()
                    .flatten()
                    .map(|a| format!("{:?}", a.data().addr().octets())),
                28 => record
                    .to_record::<Aaaa>()
                    .ok()
                    .flatten()
                    .map(|a| format!("{:?}", a.data().addr().octets())),
                5 => {
                    let alias = record
                        .to_record::<Cname<ParsedName<&[u8]>>>()
                        .ok()
                        .flatten();
                    alias.map(|alias| written_name(alias.data().cname()))
                }
                6 => {
                    let soa = record.to_record::<Soa<ParsedName<&[u8]>>>().ok().flatten();
                    soa.map(|soa| soa.data().minimum().as_secs().to_string())
                }
                _ => None,
            });
        }
    }
    found
}

fn query() -> Vec<u8> {
    let sent_query = SentQuery {
        id: 7,
        kind: Kind::A,
        spelling: None,
    };
    sent_query.write(&Chain::new(Name::parse("www.a.test").unwrap()), true)
}

/// A reply with every kind of record, some with compressed names.
fn reply() -> Vec<u8> {
    Forge::reply_to(&query())
        .cname("www.a.test", 30, "b.test")
        .record(6, "b.test", 5, 60, &[1, b'c', 0xc0, 0x10])
        .address("c.a.test", 60, "192.0.2.1")
        .address("b.test", 60, "2001:db8::1")
        .soa("a.test", 30, 60)
        .ns("test", "ns.test")
        .bytes()
}

#[test]
fn a_written_message_is_parsed_correctly() {
    let found = ours(&reply());
    assert_eq!(found, theirs(&reply()));
    assert_eq!(found.question, Some(("www.a.test.".to_owned(), 1, 1)));
    assert_eq!(found.data[1], Some("c.a.test.".to_owned()));
    assert_eq!((found.records.len(), found.data.len()), (6, 6));
    assert!(found.records.iter().all(Option::is_some));
}

#[test]
fn a_response_code_is_extended_by_edns() {
    let mut reply = query();
    reply[2] = 0x80;
    reply[3] = 1;
    let ttl = reply.len() - 6;
    reply[ttl] = 1;
    assert_eq!(Message::read(&reply).unwrap().extended_rcode(), 17);
    assert_eq!(theirs(&reply).rcode, 17);
}

#[test]
fn a_name_with_too_many_pointers_is_malformed() {
    // Each pointer points to the one before it, the first to the root.
    let mut octets = vec![0; HEADER_LENGTH + 1];
    for at in 0..2 * POINTERS_MAX {
        let to = match at {
            0 => HEADER_LENGTH,
            _ => HEADER_LENGTH + 1 + 2 * (at - 1),
        };
        octets.extend((0xc000 | to as u16).to_be_bytes());
    }
    let name_at = |pointers: usize| {
        let mut reader = Reader {
            message: &octets,
            at: HEADER_LENGTH + 1 + 2 * (pointers - 1),
        };
        reader.name().map(Iterator::count)
    };
    assert_eq!(name_at(POINTERS_MAX), Ok(0));
    assert_eq!(name_at(POINTERS_MAX + 1), Err(Malformed));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn damaged_replies_are_parsed_as_by_the_library(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in 0_usize..40,
    ) {
        let mut octets = reply();
        for (at, octet) in damage {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        octets.truncate(octets.len() - cut / 2 * usize::from(cut % 2 == 0));
        prop_assert_eq!(ours(&octets), theirs(&octets));
    }

    #[test]
    fn any_bytes_are_parsed_as_by_the_library(
        octets in prop::collection::vec(
            prop_oneof![Just(0), Just(1), Just(0xc0), Just(12), Just(5), Just(28), any::<u8>()],
            0..120,
        ),
    ) {
        let mut reply = query();
        reply[6..12].copy_from_slice(&[0, 3, 0, 3, 0, 0]);
        reply.truncate(28);
        reply.extend(octets);
        prop_assert_eq!(ours(&reply), theirs(&reply));
    }
}
