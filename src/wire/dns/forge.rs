//! Builds valid and forged replies for tests here and of the resolver.

use std::net::IpAddr;

/// A reply under construction. Answer records must be added before authority records.
#[derive(Clone)]
pub(crate) struct Forge(Vec<u8>);

impl Forge {
    /// An empty, valid reply: the query's id and question unchanged.
    pub(crate) fn reply_to(query: &[u8]) -> Self {
        let question_end = 12 + name_length(&query[12..]) + 4;
        let mut bytes = query[..question_end].to_vec();
        bytes[2..4].copy_from_slice(&[0x81, 0x80]);
        bytes[6..12].fill(0);
        Forge(bytes)
    }

    pub(crate) fn rcode(mut self, code: u8) -> Self {
        self.0[3] |= code;
        self
    }

    pub(crate) fn truncated(mut self) -> Self {
        self.0[2] |= 2;
        self
    }

    pub(crate) fn no_recursion(mut self) -> Self {
        self.0[3] &= 0x7f;
        self
    }

    pub(crate) fn id(mut self, id: u16) -> Self {
        self.0[..2].copy_from_slice(&id.to_be_bytes());
        self
    }

    /// Converts the question to lower case, as some servers do.
    pub(crate) fn folded(mut self) -> Self {
        let end = 12 + name_length(&self.0[12..]);
        self.0[12..end].make_ascii_lowercase();
        self
    }

    pub(crate) fn address(self, owner: &str, ttl: u32, address: &str) -> Self {
        match address.parse().expect("an address") {
            IpAddr::V4(address) => self.record(6, owner, 1, ttl, &address.octets()),
            IpAddr::V6(address) => self.record(6, owner, 28, ttl, &address.octets()),
        }
    }

    pub(crate) fn cname(self, owner: &str, ttl: u32, target: &str) -> Self {
        self.record(6, owner, 5, ttl, &wire_name(target))
    }

    pub(crate) fn soa(self, owner: &str, ttl: u32, minimum: u32) -> Self {
        let mut data = [wire_name("ns.test"), wire_name("root.test")].concat();
        for number in [1, 2, 3, 4, minimum] {
            data.extend(u32::to_be_bytes(number));
        }
        self.record(8, owner, 6, ttl, &data)
    }

    pub(crate) fn ns(self, owner: &str, target: &str) -> Self {
        self.record(8, owner, 2, 60, &wire_name(target))
    }

    /// Any record; `count` is the offset of its section's count in the header.
    pub(crate) fn record(
        mut self,
        count: usize,
        owner: &str,
        rtype: u16,
        ttl: u32,
        data: &[u8],
    ) -> Self {
        let records = u16::from_be_bytes([self.0[count], self.0[count + 1]]) + 1;
        self.0[count..count + 2].copy_from_slice(&records.to_be_bytes());
        self.0.extend(wire_name(owner));
        self.0.extend(rtype.to_be_bytes());
        self.0.extend([0, 1]);
        self.0.extend(ttl.to_be_bytes());
        self.0.extend((data.len() as u16).to_be_bytes());
        self.0.extend(data);
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The question of a query: its name in lower case, and its type.
pub(crate) fn question_of(query: &[u8]) -> (String, u16) {
    let length = name_length(&query[12..]);
    let mut labels = Vec::new();
    let mut rest = &query[12..12 + length - 1];
    while let [size, after @ ..] = rest {
        let (label, next) = after.split_at(usize::from(*size));
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        rest = next;
    }
    let at = 12 + length;
    let rtype = u16::from_be_bytes([query[at], query[at + 1]]);
    (labels.join("."), rtype)
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(label.len() as u8);
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}

fn name_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes[at] != 0 {
        at += 1 + usize::from(bytes[at]);
    }
    at + 1
}
