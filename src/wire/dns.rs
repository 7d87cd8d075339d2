//! DNS messages: the question we ask, and what of a reply may be believed (RFC 1035, 2308, 6891).

mod message;

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use message::{KIND_OPT, Labels, Malformed, Message, Section};
use smallvec::SmallVec;

#[cfg(test)]
pub(crate) mod forge;
#[cfg(test)]
mod tests;

/// An absolute domain name in lower case, as it stands in a message: labels with their lengths.
///
/// Labels are 1 to 63 octets, the whole at most 255 (RFC 1035 §2.3.4).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Reads a host as URLs have it: ASCII (IDNA already done), one dot at its end allowed.
    ///
    /// Underscores and other printable characters pass, because the web uses them; nothing is an
    /// escape. White space, controls and non-ASCII do not pass.
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

    /// A name found in a message; its length was bounded when it was parsed.
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

    /// Whether these are the labels of this name, in whatever case.
    fn is(&self, labels: Labels<'_>) -> bool {
        self.is_below(labels, 0)
    }

    /// Whether these are the last labels of this name, or all.
    fn is_within(&self, zone: Labels<'_>) -> bool {
        let depth = self.labels().count().checked_sub(zone.count());
        depth.is_some_and(|depth| self.is_below(zone, depth))
    }

    /// Whether these are the labels of this name after its first `depth`.
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

/// Without the dot at its end; octets that are not plain are escaped as in zone files.
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

/// Why a host is no domain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameInvalid {
    /// Nothing, or the root alone.
    Empty,
    /// A label is empty or longer than 63 octets.
    LabelLength,
    /// The whole is longer than 255 octets.
    NameLength,
    /// White space, a control, or an octet that is not ASCII.
    Character,
}

/// Which addresses are asked for.
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

/// Which letters of the name are sent in upper case: one bit for each octet of its wire form.
///
/// A server repeats the question as it got it, so that one who forges replies must guess these
/// bits too (draft-vixie-dnsext-dns0x20).
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

/// One question as it is put to a server; what a reply is checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Drawn at random for each query.
    pub id: u16,
    /// Addresses of which family.
    pub kind: Kind,
    /// The letters' case, which the reply must repeat; without it, lower case and any will do.
    pub spelling: Option<Spelling>,
}

impl Asked {
    /// Writes a query for the chain's present name, with recursion desired.
    ///
    /// With `edns` it says that we take datagrams of up to 1232 bytes (RFC 6891 §6.2.3), which
    /// pass unfragmented on any path. A server that answers `FormErr` is asked without.
    pub fn write(&self, chain: &Chain, edns: bool) -> Vec<u8> {
        let name = &chain.current().0;
        let spelling = self.spelling.unwrap_or_default();
        let mut message = Vec::with_capacity(name.len() + 27);
        message.extend(self.id.to_be_bytes());
        // One question, none of the rest.
        for field in [RECURSION_DESIRED, 1, 0, 0, u16::from(edns)] {
            message.extend(field.to_be_bytes());
        }
        let spelled = |(at, octet): (usize, &u8)| spelling.apply(at, *octet);
        message.extend(name.iter().enumerate().map(spelled));
        message.extend(self.kind.code().to_be_bytes());
        message.extend(CLASS_IN.to_be_bytes());
        if edns {
            // The root's, of our payload in the place of a class, with nothing more to say.
            message.push(0);
            message.extend(KIND_OPT.to_be_bytes());
            message.extend(EDNS_PAYLOAD.to_be_bytes());
            message.extend([0; 6]);
        }
        message
    }

    /// Reads a message that may be the reply to this question for the chain's present name.
    ///
    /// Never panics, whatever the bytes. Only records whose owner is a name of the chain count.
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
        let asked = chain.hops();
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
        } else if chain.hops() > asked {
            Reply::Alias(chain)
        } else if denial.referral && !message.recursion_is_available() {
            Reply::Failed(Trouble::Referral)
        } else {
            Reply::NoData { ttl }
        }
    }
}

/// The names passed on the way from the name asked for, by CNAME records (RFC 1034 §3.6.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    names: SmallVec<[Name; 1]>,
    /// Seconds that the weakest link may be kept.
    ttl: u32,
}

impl Chain {
    /// A chain that begins, and so far ends, at a name.
    pub fn new(name: Name) -> Self {
        Chain {
            names: SmallVec::from_buf([name]),
            ttl: u32::MAX,
        }
    }

    /// The name whose addresses are wanted now.
    pub fn current(&self) -> &Name {
        self.names.last().expect("a chain has its first name")
    }

    /// How many aliases were followed.
    pub fn hops(&self) -> usize {
        self.names.len() - 1
    }

    /// The chain with one more name; none if it was there before or the chain would be too long.
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

/// What a server says to a question. Times to live are in seconds, the least of the whole chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Addresses, in the server's order; at least one, at most [`ADDRESSES_MAX`].
    Addresses {
        /// Of the family asked for.
        addresses: SmallVec<[IpAddr; 2]>,
        /// How long they may be kept.
        ttl: u32,
    },
    /// The name is another's alias, and of that one nothing is said: it is to be asked for.
    Alias(Chain),
    /// The name does not exist.
    NoName {
        /// How long that may be kept (RFC 2308 §5); `None` if the server did not say.
        ttl: Option<u32>,
    },
    /// The name exists and has no address of this family.
    NoData {
        /// How long that may be kept; `None` if the server did not say.
        ttl: Option<u32>,
    },
    /// It did not fit: to be asked again over TCP.
    Truncated,
    /// Aliases in a circle, or more than 16 of them.
    Endless,
    /// The server will not or cannot answer.
    Failed(Trouble),
    /// The server's reply, with records that nobody can read.
    Malformed,
}

/// Why a server gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It cannot read the query; perhaps it knows no EDNS.
    FormErr,
    /// It failed.
    ServFail,
    /// It does not know this sort of query.
    NotImplemented,
    /// It will not serve us.
    Refused,
    /// It names other servers instead of asking them: no resolver.
    Referral,
    /// Any other response code, with its extension by EDNS.
    Other(u16),
}

/// Why bytes are not the reply to what was asked. They must not end the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stray {
    /// No message, or no reply.
    NoReply,
    /// Another id.
    Id,
    /// Another question, or none.
    Question,
    /// The right question in the wrong case: a forgery, or a server that does not keep the case.
    Case,
}

/// The records of an answer section that can matter to one question.
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

    /// The addresses of a name, and the least time to live of their records.
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

    /// What a name is an alias of. Of several CNAMEs, which RFC 2181 §10.1 forbids, the first.
    fn alias(&self, name: &Name) -> Option<(Name, u32)> {
        self.0.iter().find_map(|answer| match &answer.data {
            Data::Alias(target) if name.is(answer.owner) => {
                Some((Name::from_labels(*target), answer.ttl))
            }
            _ => None,
        })
    }
}

/// What the authority section says beside an answer without addresses.
#[derive(Default)]
struct Denial {
    /// How long the denial may be kept (RFC 2308 §5), if a zone above the name says so.
    ttl: Option<u32>,
    /// Other servers are named.
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

/// A time to live with its first bit set counts as none (RFC 2181 §8).
fn seconds(seconds: u32) -> u32 {
    if seconds > i32::MAX as u32 {
        0
    } else {
        seconds
    }
}

/// Puts the length before a message, as TCP wants it (RFC 1035 §4.2.2).
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

/// Takes messages out of a TCP stream, however it was cut. Holds at most one message.
#[derive(Debug, Default)]
pub struct Deframer {
    held: Vec<u8>,
}

impl Deframer {
    /// Takes what it can use of the bytes and advances them; a message comes out when it is whole.
    ///
    /// To be called again until it gives none.
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

/// The most addresses of one family that are kept: nobody tries more on the way to one page.
pub const ADDRESSES_MAX: usize = 16;

/// The most aliases followed from one name: what unbound and others follow, more than is in use.
pub const ALIASES_MAX: usize = 16;

/// Longest name and longest label, by RFC 1035 §2.3.4.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// The payload that DNS Flag Day 2020 settled on: fits every path without fragments.
const EDNS_PAYLOAD: u16 = 1232;

/// Records read of a section. What follows is not looked at: it bounds the work of one reply.
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
