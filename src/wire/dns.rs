//! DNS messages: writes queries, and validates replies (RFC 1035, 2308, 6891).
//!
//! Names and records are read by hand, for the reason given in `message.rs`.

mod message;

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use message::{KIND_OPT, Labels, Malformed, Message, Section};
use smallvec::SmallVec;

#[cfg(test)]
pub(crate) mod forge;
#[cfg(test)]
mod tests;

/// An absolute domain name in lower case, in wire format: length-prefixed labels.
///
/// Labels have 1 to 63 octets, the whole name at most 255 (RFC 1035 §2.3.4).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Parses a host as in URLs: ASCII (after IDNA), with an optional final dot.
    ///
    /// Underscores and other printable characters are accepted, because they occur on the web;
    /// there are no escapes. White space, control characters and non-ASCII are rejected.
    pub fn parse(host: &str) -> Result<Name, NameInvalid> {
        let host = host.strip_suffix('.').unwrap_or(host);
        if host.is_empty() {
            return Err(NameInvalid::Empty);
        }
        let mut wire = Vec::with_capacity(host.len() + 2);
        for label in host.split('.') {
            if label.is_empty() || label.len() > LABEL_MAX {
                return Err(NameInvalid::LabelLength);
            }
            if !label.bytes().all(|octet| octet.is_ascii_graphic()) {
                return Err(NameInvalid::Character);
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
        }
        wire.push(0);
        if wire.len() > NAME_MAX {
            return Err(NameInvalid::NameLength);
        }
        Ok(Name(wire.into()))
    }

    /// A name from a message; its length was checked when it was parsed.
    fn from_labels(labels: Labels<'_>) -> Name {
        let mut wire = Vec::with_capacity(64);
        for label in labels {
            wire.push(label.len() as u8);
            wire.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        wire.push(0);
        Name(wire.into())
    }

    /// The labels, without the root's empty one.
    fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first()?;
            let (label, after) = after.split_at(usize::from(*length));
            rest = after;
            (!label.is_empty()).then_some(label)
        })
    }

    /// Returns whether these are the labels of this name, ignoring case.
    fn is(&self, labels: Labels<'_>) -> bool {
        self.is_below(labels, 0)
    }

    /// Returns whether these are the last labels of this name, or all.
    fn is_within(&self, zone: Labels<'_>) -> bool {
        let depth = self.labels().count().checked_sub(zone.count());
        depth.is_some_and(|depth| self.is_below(zone, depth))
    }

    /// Returns whether these are the labels of this name after its first `depth`.
    fn is_below(&self, labels: Labels<'_>, depth: usize) -> bool {
        let mut own = self.labels().skip(depth);
        let mut others = labels;
        loop {
            match (own.next(), others.next()) {
                (None, None) => return true,
                (Some(own), Some(other)) if own.eq_ignore_ascii_case(other) => {}
                _ => return false,
            }
        }
    }
}

/// Without the final dot; special octets are escaped as in zone files.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, label) in self.labels().enumerate() {
            if at > 0 {
                f.write_char('.')?;
            }
            for octet in label {
                match octet {
                    b' ' | b'.' | b'\\' => write!(f, "\\{}", char::from(*octet))?,
                    0x20..0x7f => f.write_char(char::from(*octet))?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Why a host is not a domain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameInvalid {
    /// Empty, or the root only.
    Empty,
    /// A label is empty or longer than 63 octets.
    LabelLength,
    /// The whole name is longer than 255 octets.
    NameLength,
    /// White space, a control character, or non-ASCII.
    Character,
}

/// The type of addresses to query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPv4 (RFC 1035).
    A,
    /// IPv6 (RFC 3596).
    Aaaa,
}

impl Kind {
    fn code(self) -> u16 {
        match self {
            Kind::A => KIND_A,
            Kind::Aaaa => KIND_AAAA,
        }
    }
}

/// The letters of the name that are sent in upper case: one bit for each octet in wire format.
///
/// A server repeats the question unchanged, so a forger must guess these bits as well
/// (draft-vixie-dnsext-dns0x20).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spelling(pub [u64; 4]);

impl Spelling {
    fn apply(self, at: usize, octet: u8) -> u8 {
        let upper = self.0[at / 64 % 4] >> (at % 64) & 1 == 1;
        if upper {
            octet.to_ascii_uppercase()
        } else {
            octet
        }
    }
}

/// One query as sent to a server, to validate the reply against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentQuery {
    /// Random for each query.
    pub id: u16,
    /// Address family.
    pub kind: Kind,
    /// The letter case, which the reply must repeat; `None` sends lower case and accepts any.
    pub spelling: Option<Spelling>,
}

impl SentQuery {
    /// Writes a query for the chain's present name, with recursion desired.
    ///
    /// With `edns` it advertises datagrams of up to 1232 bytes (RFC 6891 §6.2.3), which pass
    /// unfragmented on any path. A server that replies `FormErr` is asked again without.
    pub fn write(&self, chain: &Chain, edns: bool) -> Vec<u8> {
        let name = &chain.current().0;
        let spelling = self.spelling.unwrap_or_default();
        let mut message = Vec::with_capacity(name.len() + 27);
        message.extend(self.id.to_be_bytes());
        // One question, no records.
        for field in [RECURSION_DESIRED, 1, 0, 0, u16::from(edns)] {
            message.extend(field.to_be_bytes());
        }
        let spelled = |(at, octet): (usize, &u8)| spelling.apply(at, *octet);
        message.extend(name.iter().enumerate().map(spelled));
        message.extend(self.kind.code().to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        if edns {
            // EDNS record: root name, payload size in place of a class, no options.
            message.push(0);
            message.extend(KIND_OPT.to_be_bytes());
            message.extend(EDNS_PAYLOAD.to_be_bytes());
            message.extend([0; 6]);
        }
        message
    }

    /// Parses a message that may be the reply to this query for the chain's present name.
    ///
    /// Never panics on any input. Only records owned by a name of the chain count.
    pub fn read(&self, chain: &Chain, bytes: &[u8]) -> Result<Reply, Stray> {
        let message = Message::read(bytes).map_err(|_| Stray::NoReply)?;
        if !message.is_reply() || message.opcode() != OPCODE_QUERY {
            return Err(Stray::NoReply);
        }
        if message.id() != self.id {
            return Err(Stray::Id);
        }
        self.check_question(chain.current(), message)?;
        if message.is_truncated() {
            return Ok(Reply::Truncated);
        }
        let trouble = match message.extended_rcode() {
            0 | RCODE_NXDOMAIN => return Ok(self.read_sections(chain, message)),
            1 => Trouble::FormErr,
            2 => Trouble::ServFail,
            4 => Trouble::NotImplemented,
            5 => Trouble::Refused,
            code => Trouble::Other(code),
        };
        Ok(Reply::Failed(trouble))
    }

    fn check_question(&self, name: &Name, message: Message<'_>) -> Result<(), Stray> {
        let question = message.sole_question().map_err(|_| Stray::Question)?;
        if question.kind != self.kind.code()
            || question.class != CLASS_IN
            || !name.is(question.name)
        {
            return Err(Stray::Question);
        }
        let Some(spelling) = self.spelling else {
            return Ok(());
        };
        let mut at = 0;
        for label in question.name {
            at += 1;
            for octet in label {
                if *octet != spelling.apply(at, name.0[at]) {
                    return Err(Stray::Case);
                }
                at += 1;
            }
        }
        Ok(())
    }

    fn read_sections(&self, chain: &Chain, message: Message<'_>) -> Reply {
        let Ok(answers) = Answers::read(message, self.kind) else {
            return Reply::Malformed;
        };
        let mut chain = chain.clone();
        let sent_query = chain.hops();
        loop {
            let (addresses, ttl) = answers.addresses(chain.current());
            if !addresses.is_empty() {
                return Reply::Addresses {
                    addresses,
                    ttl: ttl.min(chain.ttl),
                };
            }
            let Some((target, ttl)) = answers.alias(chain.current()) else {
                break;
            };
            match chain.follow(target, ttl) {
                Some(longer) => chain = longer,
                None => return Reply::Endless,
            }
        }
        let Ok(denial) = Denial::read(message, chain.current()) else {
            return Reply::Malformed;
        };
        let ttl = denial.ttl.map(|ttl| ttl.min(chain.ttl));
        if message.rcode() == RCODE_NXDOMAIN {
            Reply::NoName { ttl }
        } else if ttl.is_some() {
            Reply::NoData { ttl }
        } else if chain.hops() > sent_query {
            Reply::Alias(chain)
        } else if denial.referral && !message.recursion_is_available() {
            Reply::Failed(Trouble::Referral)
        } else {
            Reply::NoData { ttl }
        }
    }
}

/// The names from the original one along CNAME records (RFC 1034 §3.6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    names: SmallVec<[Name; 1]>,
    /// Minimum TTL of the chain, in seconds.
    ttl: u32,
}

impl Chain {
    /// A chain that consists of one name.
    pub fn new(name: Name) -> Self {
        Chain {
            names: SmallVec::from_buf([name]),
            ttl: u32::MAX,
        }
    }

    /// The name whose addresses are queried now.
    pub fn current(&self) -> &Name {
        self.names.last().expect("a chain has at least one name")
    }

    /// Number of aliases followed.
    pub fn hops(&self) -> usize {
        self.names.len() - 1
    }

    /// The chain with one more name; `None` if it is in the chain already or the chain would be too
    /// long.
    fn follow(&self, target: Name, ttl: u32) -> Option<Chain> {
        if self.hops() == ALIASES_MAX || self.names.contains(&target) {
            return None;
        }
        let mut longer = self.clone();
        longer.names.push(target);
        longer.ttl = longer.ttl.min(ttl);
        Some(longer)
    }
}

/// A server's reply to a query. TTLs are in seconds, the minimum over the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Addresses in the server's order; at least one, at most [`ADDRESSES_MAX`].
    Addresses {
        /// Of the queried family.
        addresses: SmallVec<[IpAddr; 2]>,
        /// How long they may be cached.
        ttl: u32,
    },
    /// The name is an alias, and the reply has no addresses of its target, which must be queried.
    Alias(Chain),
    /// The name does not exist.
    NoName {
        /// How long that may be cached (RFC 2308 §5); `None` if the reply did not contain it.
        ttl: Option<u32>,
    },
    /// The name exists but has no address of this family.
    NoData {
        /// How long that may be cached; `None` if the reply did not contain it.
        ttl: Option<u32>,
    },
    /// The reply did not fit: ask again over TCP.
    Truncated,
    /// The aliases form a loop, or there are more than 16.
    Endless,
    /// The server refuses or is unable to answer.
    Failed(Trouble),
    /// The server's reply has malformed records.
    Malformed,
}

/// Why a server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It cannot parse the query; it may not support EDNS.
    FormErr,
    /// It failed.
    ServFail,
    /// It does not support this kind of query.
    NotImplemented,
    /// It refuses to serve us.
    Refused,
    /// It refers to other servers instead of asking them: it is not a recursive resolver.
    Referral,
    /// Any other response code, including EDNS's extension.
    Other(u16),
}

/// Why a message is not the reply to the query. Such messages must not end the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// No DNS message, or not a reply.
    NoReply,
    /// Wrong id.
    Id,
    /// Wrong question, or none.
    Question,
    /// The right question in the wrong letter case: a forgery, or a server that does not preserve
    /// the case.
    Case,
}

/// The records of an answer section that are relevant to one query.
struct Answers<'a>(SmallVec<[Answer<'a>; 8]>);

struct Answer<'a> {
    owner: Labels<'a>,
    ttl: u32,
    data: Data<'a>,
}

enum Data<'a> {
    Address(IpAddr),
    Alias(Labels<'a>),
}

impl<'a> Answers<'a> {
    fn read(message: Message<'a>, kind: Kind) -> Result<Self, Malformed> {
        let mut answers = SmallVec::new();
        for record in message.records(Section::Answer)?.take(RECORDS_MAX) {
            let record = record?;
            if record.class != CLASS_IN {
                continue;
            }
            let data = match (record.kind, kind) {
                (KIND_A, Kind::A) => Data::Address(Ipv4Addr::from(record.octets::<4>()?).into()),
                (KIND_AAAA, Kind::Aaaa) => {
                    Data::Address(Ipv6Addr::from(record.octets::<16>()?).into())
                }
                (KIND_CNAME, _) => Data::Alias(record.name()?),
                _ => continue,
            };
            answers.push(Answer {
                owner: record.owner,
                ttl: seconds(record.ttl),
                data,
            });
        }
        Ok(Answers(answers))
    }

    /// The addresses of a name, and the minimum TTL of their records.
    fn addresses(&self, name: &Name) -> (SmallVec<[IpAddr; 2]>, u32) {
        let mut addresses = SmallVec::new();
        let mut least = u32::MAX;
        for answer in &self.0 {
            if let Data::Address(address) = answer.data
                && addresses.len() < ADDRESSES_MAX
                && !addresses.contains(&address)
                && name.is(answer.owner)
            {
                addresses.push(address);
                least = least.min(answer.ttl);
            }
        }
        (addresses, least)
    }

    /// The target of an alias. Of several CNAMEs, which RFC 2181 §10.1 forbids, the first.
    fn alias(&self, name: &Name) -> Option<(Name, u32)> {
        self.0.iter().find_map(|answer| match &answer.data {
            Data::Alias(target) if name.is(answer.owner) => {
                Some((Name::from_labels(*target), answer.ttl))
            }
            _ => None,
        })
    }
}

/// The authority section of an answer without addresses.
#[derive(Default)]
struct Denial {
    /// How long the denial may be cached (RFC 2308 §5), if a zone above the name sets it.
    ttl: Option<u32>,
    /// It names other servers.
    referral: bool,
}

impl Denial {
    fn read(message: Message<'_>, name: &Name) -> Result<Self, Malformed> {
        let mut denial = Denial::default();
        for record in message.records(Section::Authority)?.take(RECORDS_MAX) {
            let record = record?;
            denial.referral |= record.kind == KIND_NS;
            if record.class == CLASS_IN && record.kind == KIND_SOA {
                let minimum = record.soa_minimum()?;
                if name.is_within(record.owner) {
                    denial.ttl = Some(seconds(record.ttl).min(seconds(minimum)));
                }
            }
        }
        Ok(denial)
    }
}

/// A TTL with its first bit set counts as zero (RFC 2181 §8).
fn seconds(seconds: u32) -> u32 {
    if seconds > i32::MAX as u32 {
        0
    } else {
        seconds
    }
}

/// Prefixes a message with its length, as required over TCP (RFC 1035 §4.2.2).
///
/// # Panics
///
/// If the message is longer than 65 535 bytes; our queries are not.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("a query is shorter than 64 KiB");
    let mut framed = Vec::with_capacity(message.len() + 2);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// Extracts messages from a TCP stream split at any points. Buffers at most one message.
#[derive(Debug, Default)]
pub struct Deframer {
    held: Vec<u8>,
}

impl Deframer {
    /// Consumes bytes and returns a message once it is complete.
    ///
    /// Call it until it returns `None`.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        while !bytes.is_empty() {
            let wanted = match self.held[..] {
                [high, low, ..] => 2 + usize::from(u16::from_be_bytes([high, low])),
                _ => 2,
            };
            let (now, rest) = bytes.split_at(bytes.len().min(wanted - self.held.len()));
            self.held.extend_from_slice(now);
            *bytes = rest;
            if self.held.len() >= 2 && self.is_whole() {
                let message = self.held.split_off(2);
                self.held.clear();
                return Some(message);
            }
        }
        None
    }

    fn is_whole(&self) -> bool {
        self.held.len() == 2 + usize::from(u16::from_be_bytes([self.held[0], self.held[1]]))
    }
}

/// Maximum number of addresses of one family: no more are tried for one page.
pub const ADDRESSES_MAX: usize = 16;

/// Maximum number of aliases followed from one name: the limit of unbound and others, more than is
/// in use.
pub const ALIASES_MAX: usize = 16;

/// Maximum length of a name and of a label, by RFC 1035 §2.3.4.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// The payload size recommended by DNS Flag Day 2020: fits every path without fragmentation.
const EDNS_PAYLOAD: u16 = 1232;

/// Maximum number of records read per section, which bounds the work for one reply.
const RECORDS_MAX: usize = 128;

/// RFC 1035 §4.1.1.
const OPCODE_QUERY: u16 = 0;
const RECURSION_DESIRED: u16 = 0x0100;
const RCODE_NXDOMAIN: u16 = 3;

/// RFC 1035 §3.2.2, RFC 3596 §2.1.
const KIND_A: u16 = 1;
const KIND_NS: u16 = 2;
const KIND_CNAME: u16 = 5;
const KIND_SOA: u16 = 6;
const KIND_AAAA: u16 = 28;

/// RFC 1035 §3.2.4.
const CLASS_IN: u16 = 1;
