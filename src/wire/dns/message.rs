//! The DNS message format (RFC 1035 §4): header, question, records.
//!
//! Parses lazily and without copies. Compression pointers must point backwards and their number is
//! bounded, which bounds the work for a message.
//!
//! Written by hand: the crate `domain`, the oracle of the tests, follows as many backward pointers in a
//! name as a message holds, some eight thousand, and again at each comparison; a limit on them takes a
//! reader of names in front of it, which is most of this file. `benches/dns.rs` has the worst message. It
//! would also bring ten crates.

/// A message whose header is complete.
#[derive(Clone, Copy)]
pub(super) struct Message<'a> {
    octets: &'a [u8],
}

/// The octets do not follow the format.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A question (§4.1.2).
pub(super) struct Question<'a> {
    pub(super) name: Labels<'a>,
    pub(super) kind: u16,
    pub(super) class: u16,
}

/// A resource record (§4.1.3).
pub(super) struct Record<'a> {
    pub(super) owner: Labels<'a>,
    pub(super) kind: u16,
    pub(super) class: u16,
    /// Seconds.
    pub(super) ttl: u32,
    data: Reader<'a>,
}

/// The sections with records, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Answer = 1,
    Authority = 2,
    Additional = 3,
}

impl<'a> Message<'a> {
    pub(super) fn read(octets: &'a [u8]) -> Result<Self, Malformed> {
        match octets.len() < HEADER_LENGTH {
            true => Err(Malformed),
            false => Ok(Message { octets }),
        }
    }

    pub(super) fn id(self) -> u16 {
        self.header(0)
    }

    pub(super) fn is_reply(self) -> bool {
        self.header(1) & 0x8000 != 0
    }

    /// The operation: 0 for a query.
    pub(super) fn opcode(self) -> u16 {
        self.header(1) >> 11 & 0xf
    }

    pub(super) fn is_truncated(self) -> bool {
        self.header(1) & 0x0200 != 0
    }

    pub(super) fn recursion_is_available(self) -> bool {
        self.header(1) & 0x0080 != 0
    }

    /// The response code of the header, without EDNS's extension.
    pub(super) fn rcode(self) -> u16 {
        self.header(1) & 0xf
    }

    /// The response code extended by EDNS (RFC 6891 §6.1.3).
    pub(super) fn extended_rcode(self) -> u16 {
        let option = self.records(Section::Additional).ok();
        let option = option
            .and_then(|mut records| records.find(|r| !matches!(r, Ok(r) if r.kind != KIND_OPT)));
        let extension = match option {
            Some(Ok(option)) => (option.ttl >> 24) as u16,
            _ => 0,
        };
        extension << 4 | self.rcode()
    }

    /// The question, if there is exactly one.
    pub(super) fn sole_question(self) -> Result<Question<'a>, Malformed> {
        match self.header(2) {
            1 => self.sections().question(),
            _ => Err(Malformed),
        }
    }

    /// The records of a section, up to and including the first malformed one.
    pub(super) fn records(
        self,
        section: Section,
    ) -> Result<impl Iterator<Item = Result<Record<'a>, Malformed>>, Malformed> {
        let mut reader = self.sections();
        for _ in 0..self.header(2) {
            reader.question()?;
        }
        for passed in [Section::Answer, Section::Authority] {
            if passed < section {
                for _ in 0..self.count(passed) {
                    reader.skip_record()?;
                }
            }
        }
        let mut left = self.count(section);
        Ok(std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let record = reader.record();
            if record.is_err() {
                left = 0;
            }
            Some(record)
        }))
    }

    fn count(self, section: Section) -> u16 {
        self.header(2 + section as usize)
    }

    fn sections(self) -> Reader<'a> {
        Reader {
            message: self.octets,
            at: HEADER_LENGTH,
        }
    }

    fn header(self, field: usize) -> u16 {
        u16::from_be_bytes([self.octets[2 * field], self.octets[2 * field + 1]])
    }
}

impl<'a> Record<'a> {
    /// The data, which must have exactly `N` octets.
    pub(super) fn octets<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        let mut data = self.data;
        let octets = data.array()?;
        data.ended()?;
        Ok(octets)
    }

    /// The data, which must be a name.
    pub(super) fn name(&self) -> Result<Labels<'a>, Malformed> {
        let mut data = self.data;
        let name = data.name()?;
        data.ended()?;
        Ok(name)
    }

    /// The last number of the data, which must be an SOA record: the TTL of denials, in seconds
    /// (§3.3.13).
    pub(super) fn soa_minimum(&self) -> Result<u32, Malformed> {
        let mut data = self.data;
        data.name()?;
        data.name()?;
        let numbers: [u8; 20] = data.array()?;
        data.ended()?;
        let [.., a, b, c, d] = numbers;
        Ok(u32::from_be_bytes([a, b, c, d]))
    }
}

/// The labels of a name that was validated before, without the root's empty one.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut reader = Reader {
            message: self.message,
            at: self.at,
        };
        let label = loop {
            match reader.part().ok()? {
                Part::Label([]) => return None,
                Part::Label(label) => break label,
                Part::Pointer(to) => reader.at = to,
            }
        };
        self.at = reader.at;
        Some(label)
    }
}

/// A position in a message or in a record's data.
#[derive(Clone, Copy)]
struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

/// An element of a name.
enum Part<'a> {
    Label(&'a [u8]),
    /// Offset at which the name continues (§4.1.4).
    Pointer(usize),
}

impl<'a> Reader<'a> {
    fn question(&mut self) -> Result<Question<'a>, Malformed> {
        Ok(Question {
            name: self.name()?,
            kind: self.u16()?,
            class: self.u16()?,
        })
    }

    fn record(&mut self) -> Result<Record<'a>, Malformed> {
        let owner = self.name()?;
        let (kind, class) = (self.u16()?, self.u16()?);
        let ttl = u32::from_be_bytes(self.array()?);
        let length = usize::from(self.u16()?);
        let start = self.at;
        self.take(length)?;
        Ok(Record {
            owner,
            kind,
            class,
            ttl,
            data: Reader {
                message: &self.message[..self.at],
                at: start,
            },
        })
    }

    /// Skips a record; pointers in its owner name are not followed.
    fn skip_record(&mut self) -> Result<(), Malformed> {
        while !matches!(self.part()?, Part::Label([]) | Part::Pointer(_)) {}
        self.take(8)?;
        let length = usize::from(self.u16()?);
        self.take(length).map(|_| ())
    }

    /// A name of at most 255 octets whose pointers all point backwards.
    fn name(&mut self) -> Result<Labels<'a>, Malformed> {
        let labels = Labels {
            message: self.message,
            at: self.at,
        };
        let mut length = 1;
        let mut reader = *self;
        let mut end = None;
        let mut pointers = 0;
        loop {
            let from = reader.at;
            match reader.part()? {
                Part::Label([]) => break,
                Part::Label(label) => length += label.len() + 1,
                Part::Pointer(to) if to < from && pointers < POINTERS_MAX => {
                    pointers += 1;
                    end.get_or_insert(reader.at);
                    reader.at = to;
                }
                Part::Pointer(_) => return Err(Malformed),
            }
            if length > super::NAME_MAX {
                return Err(Malformed);
            }
        }
        self.at = end.unwrap_or(reader.at);
        Ok(labels)
    }

    fn part(&mut self) -> Result<Part<'a>, Malformed> {
        let [first] = self.array()?;
        match first {
            0..=0x3f => Ok(Part::Label(self.take(usize::from(first))?)),
            0xc0.. => {
                let [second] = self.array()?;
                Ok(Part::Pointer(
                    usize::from(first & 0x3f) << 8 | usize::from(second),
                ))
            }
            _ => Err(Malformed),
        }
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let octets = self.message.get(self.at..).ok_or(Malformed)?;
        let octets = octets.first_chunk().ok_or(Malformed)?;
        self.at += N;
        Ok(*octets)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at + length;
        let octets = self.message.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(octets)
    }

    fn ended(self) -> Result<(), Malformed> {
        match self.at == self.message.len() {
            true => Ok(()),
            false => Err(Malformed),
        }
    }
}

const HEADER_LENGTH: usize = 12;

/// Maximum number of pointers in a name: there are fewer labels, and one pointer per label
/// suffices.
const POINTERS_MAX: usize = 127;

/// The pseudo-record of EDNS (RFC 6891 §6.1.1).
pub(super) const KIND_OPT: u16 = 41;

#[cfg(test)]
mod tests;
