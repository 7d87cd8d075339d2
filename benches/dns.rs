//! What a lookup costs by our own reader of DNS messages and by the crate `domain`, and its share of a page.
//!
//! A crawl sends two queries per host, for both families. The cost of a page is that of a host's first one,
//! which a lookup belongs to: `docs/design/decisions.md` has the figures and what follows from them.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use argiope::wire::dns::{ADDRESSES_MAX, Chain, Kind, Name, Reply, SentQuery};
use domain::base::iana::{Class, Rtype};
use domain::base::{Message, MessageBuilder, Name as KnownName, StaticCompressor, Ttl};
use domain::rdata::{A, Cname};
use smallvec::SmallVec;

const HOST: &str = "www.example-shop.com";
const ID: u16 = 0x1234;
const TTL: u32 = 300;
/// The least that the first page of a new host costs, in processor time, robots.txt and TLS aside.
const PAGE: Duration = Duration::from_micros(50);
const QUERIES_PER_HOST: u32 = 2;
/// Of the time of a crawl: what a crate may cost more before our own code is worth it.
const WORTH: f64 = 0.01;
const CALLS: u32 = 200_000;
const ROUNDS: usize = 7;

type Addresses = SmallVec<[IpAddr; 2]>;

fn main() {
    let chain = Chain::new(Name::parse(HOST).expect("a name"));
    let name: KnownName<Vec<u8>> = HOST.parse().expect("a name");
    let query = SentQuery {
        id: ID,
        kind: Kind::A,
        spelling: None,
    };
    assert_eq!(query.write(&chain, true), known_query(&name));
    let build = compare(
        "build a query",
        || query.write(&chain, true).len(),
        || known_query(&name).len(),
    );
    let mut read = [Duration::ZERO; 2];
    for (what, aliases, addresses) in [
        ("read 1 alias, 2 addresses", 1, 2),
        ("read 1 alias, 26 addresses", 1, 26),
        ("read 4 aliases, 64 addresses", 4, 64),
    ] {
        let reply = reply(&name, aliases, addresses);
        assert_eq!(ours(&query, &chain, &reply), known(&name, &reply));
        let what = format!("{what}: {} bytes", reply.len());
        let took = compare(
            &what,
            || ours(&query, &chain, black_box(&reply)).map(|(found, _)| found.len()),
            || known(&name, black_box(&reply)).map(|(found, _)| found.len()),
        );
        // The first is what most hosts have.
        if read[0].is_zero() {
            read = took;
        }
    }
    worst(&query, &chain, &name);
    let lookup = [0, 1].map(|by| QUERIES_PER_HOST * (build[by] + read[by]));
    let share = |took: Duration| took.as_secs_f64() / PAGE.as_secs_f64();
    println!(
        "a lookup, {QUERIES_PER_HOST} queries with the smallest reply: ours {lookup:.0?}, {:.1} % of a page of {PAGE:?}; \
         domain {:.0?}, {:.1} %",
        100.0 * share(lookup[0]),
        lookup[1],
        100.0 * share(lookup[1]),
        lookup = lookup[0],
    );
    let more = share(lookup[1]) - share(lookup[0]);
    println!(
        "with domain a crawl of new hosts takes {:+.1} % of its time: {} {:.0} % more",
        100.0 * more,
        if more > WORTH { "over" } else { "not over" },
        100.0 * WORTH
    );
}

/// Times the reply that a hostile name server may send over TCP: as many pointers as a name can lead through,
/// and as many names as fit that lead through all of them.
fn worst(query: &SentQuery, chain: &Chain, name: &KnownName<Vec<u8>>) {
    const POINTERS_END: usize = 0x3fff;
    const LONGEST: usize = u16::MAX as usize;
    let mut reply = reply(name, 0, 0);
    let (mut to, mut pointers) = (12, Vec::new());
    // A record of an unassigned type, owned by the root: its data hold the compression pointers.
    reply.extend([0, 0xff, 0xff, 0, 1, 0, 0, 0, 0]);
    let begin = reply.len() + 2;
    while begin + pointers.len() + 2 <= POINTERS_END {
        let at = begin + pointers.len();
        pointers.extend((0xc000 | to as u16).to_be_bytes());
        to = at;
    }
    reply.extend((pointers.len() as u16).to_be_bytes());
    reply.extend(pointers);
    let mut records = 1_u16;
    while reply.len() + 16 <= LONGEST {
        reply.extend((0xc000 | to as u16).to_be_bytes());
        reply.extend([0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 192, 0, 2, 1]);
        records += 1;
    }
    reply[6..8].copy_from_slice(&records.to_be_bytes());
    let once = |call: &mut dyn FnMut()| {
        let began = Instant::now();
        call();
        began.elapsed()
    };
    let ours = once(&mut || drop(black_box(query.read(chain, black_box(&reply)))));
    let known = once(&mut || drop(black_box(known(name, black_box(&reply)))));
    println!("the worst reply of 64 KiB: ours {ours:.0?}, domain {known:.0?}");
}

/// Times both in turn; the least of several rounds, which others on the machine disturb least.
fn compare<A, B>(
    what: &str,
    mut ours: impl FnMut() -> A,
    mut known: impl FnMut() -> B,
) -> [Duration; 2] {
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        least[0] = least[0].min(time(&mut ours));
        least[1] = least[1].min(time(&mut known));
    }
    println!("{what}: ours {:.0?}, domain {:.0?}", least[0], least[1]);
    least
}

/// The time of one call.
fn time<T>(call: &mut impl FnMut() -> T) -> Duration {
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    began.elapsed() / CALLS
}

fn known_query(name: &KnownName<Vec<u8>>) -> Vec<u8> {
    let mut message = MessageBuilder::new_vec();
    message.header_mut().set_id(ID);
    message.header_mut().set_rd(true);
    let mut message = message.question();
    message.push((name, Rtype::A)).expect("it has room");
    let mut message = message.additional();
    message
        .opt(|opt| {
            opt.set_udp_payload_size(1232);
            Ok(())
        })
        .expect("it has room");
    message.finish()
}

/// A reply to [`known_query`]: aliases, then addresses of the last of them.
fn reply(name: &KnownName<Vec<u8>>, aliases: usize, addresses: u8) -> Vec<u8> {
    let target = StaticCompressor::new(Vec::new());
    let mut message = MessageBuilder::from_target(target).expect("it has room");
    message.header_mut().set_id(ID);
    message.header_mut().set_qr(true);
    message.header_mut().set_ra(true);
    let mut message = message.question();
    message.push((name, Rtype::A)).expect("it has room");
    let mut message = message.answer();
    let mut owner = name.clone();
    for number in 0..aliases {
        let next = format!("edge{number}.example-cdn.net");
        let next: KnownName<Vec<u8>> = next.parse().expect("a name");
        let record = (owner, Class::IN, TTL, Cname::new(next.clone()));
        message.push(record).expect("it has room");
        owner = next;
    }
    for number in 0..addresses {
        let address = A::new(Ipv4Addr::new(192, 0, 2, number));
        let record = (&owner, Class::IN, TTL, address);
        message.push(record).expect("it has room");
    }
    message.finish().into_target()
}

fn ours(query: &SentQuery, chain: &Chain, reply: &[u8]) -> Option<(Addresses, u32)> {
    match query.read(chain, reply) {
        Ok(Reply::Addresses { addresses, ttl }) => Some((addresses, ttl)),
        _ => None,
    }
}

/// The same by `domain`: the reply is to this query, and its addresses are those of the last alias.
fn known(name: &KnownName<Vec<u8>>, reply: &[u8]) -> Option<(Addresses, u32)> {
    let message = Message::from_octets(reply).ok()?;
    let header = message.header();
    if !header.qr() || header.id() != ID || header.tc() {
        return None;
    }
    let question = message.sole_question().ok()?;
    if question.qtype() != Rtype::A || question.qclass() != Class::IN || question.qname() != name {
        return None;
    }
    let mut current = question.into_qname();
    let mut addresses = Addresses::new();
    let mut least = Ttl::from_secs(u32::MAX);
    // Aliases come in order and ahead of the addresses, as from every resolver of note.
    for record in message.answer().ok()? {
        let record = record.ok()?;
        if record.class() != Class::IN || record.owner() != current {
            continue;
        }
        match record.rtype() {
            Rtype::CNAME => {
                let alias = record.to_record::<Cname<_>>().ok()??;
                least = least.min(alias.ttl());
                current = alias.into_data().into_cname();
            }
            Rtype::A if addresses.len() < ADDRESSES_MAX => {
                let address = record.to_record::<A>().ok()??;
                least = least.min(address.ttl());
                addresses.push(address.data().addr().into());
            }
            _ => {}
        }
    }
    (!addresses.is_empty()).then(|| (addresses, least.as_secs()))
}
