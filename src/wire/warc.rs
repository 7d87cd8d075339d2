//! Writes WARC/1.1 records (ISO 28500:2017) into a byte vector.
//!
//! A record consists of a few named fields and a block of bytes; the caller compresses each record
//! into a gzip member of its own. This file does not depend on files, pages or clocks.
//!
//! Hand-written: a record is a few lines of text, and the fields that validators disagree on (digests of
//! chunked payloads) are chosen here.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY as SHA1};
use data_encoding::BASE32;

use crate::base::time::Wall;

/// One record: its header fields, and its block.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Type of the record.
    pub kind: RecordKind,
    /// Its own, globally unique id.
    pub id: RecordId,
    /// Start of the capture; the same for all records of one capture (section 5.4).
    pub date: Wall,
    /// The requested URI.
    pub target: Option<&'a str>,
    /// The address of the server.
    pub address: Option<IpAddr>,
    /// Another record of the same capture.
    pub concurrent_to: Option<RecordId>,
    /// The `warcinfo` record of the file this record is written to.
    pub warcinfo: Option<RecordId>,
    /// Protocols used, such as `http/1.1` and `tls/1.3`; one proposed `WARC-Protocol` field each.
    pub protocols: &'a [&'a str],
    /// The TLS cipher suite by its IANA name, in the proposed `WARC-Cipher-Suite` field.
    pub cipher: Option<&'a str>,
    /// Why the block is incomplete: `length`, `time`, `disconnect` or `unspecified`.
    pub truncated: Option<&'static str>,
    /// Name of the file to which this record was first written; for `warcinfo` only.
    pub filename: Option<&'a str>,
    /// Digest of the payload. Leave it out if the block is chunked: readers disagree on whether
    /// chunk framing is part of the payload, and accept a record without it.
    pub payload_digest: Option<Digest>,
    /// Media type of the block; usually [`RecordKind::content_type`].
    pub content_type: &'a str,
    /// The block.
    pub block: &'a [u8],
}

impl<'a> Record<'a> {
    /// A record of `kind` with the fields that every record has.
    pub fn new(kind: RecordKind, id: RecordId, date: Wall, block: &'a [u8]) -> Self {
        Record {
            kind,
            id,
            date,
            target: None,
            address: None,
            concurrent_to: None,
            warcinfo: None,
            protocols: &[],
            cipher: None,
            truncated: None,
            filename: None,
            payload_digest: None,
            content_type: kind.content_type(),
            block,
        }
    }

    /// Appends the complete record: version line, fields, block, and the two line ends after it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.block.len() + 1024);
        self.write_head(Digest::new(self.block), out);
        out.extend_from_slice(self.block);
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends the part before the block, given the block's digest.
    pub(crate) fn write_head(&self, block_digest: Digest, out: &mut Vec<u8>) {
        out.extend_from_slice(b"WARC/1.1\r\n");
        field(out, "WARC-Type", self.kind.name());
        field(out, "WARC-Record-ID", self.id);
        field(out, "WARC-Date", self.date);
        if let Some(name) = self.filename {
            field(out, "WARC-Filename", OneLine(name));
        }
        if let Some(target) = self.target {
            field(out, "WARC-Target-URI", Uri(target));
        }
        if let Some(address) = self.address {
            field(out, "WARC-IP-Address", address);
        }
        if let Some(other) = self.concurrent_to {
            field(out, "WARC-Concurrent-To", other);
        }
        if let Some(info) = self.warcinfo {
            field(out, "WARC-Warcinfo-ID", info);
        }
        for protocol in self.protocols {
            field(out, "WARC-Protocol", OneLine(protocol));
        }
        if let Some(cipher) = self.cipher {
            field(out, "WARC-Cipher-Suite", OneLine(cipher));
        }
        if let Some(reason) = self.truncated {
            field(out, "WARC-Truncated", reason);
        }
        if let Some(digest) = self.payload_digest {
            field(out, "WARC-Payload-Digest", digest);
        }
        field(out, "WARC-Block-Digest", block_digest);
        field(out, "Content-Type", OneLine(self.content_type));
        field(out, "Content-Length", self.block.len());
        out.extend_from_slice(b"\r\n");
    }
}

/// The types of records that are written (section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Describes the program that wrote the file.
    Warcinfo,
    /// A request as sent.
    Request,
    /// A reply as received.
    Response,
    /// What is known about a capture besides its bytes.
    Metadata,
}

impl RecordKind {
    /// The value of `WARC-Type`.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::Warcinfo => "warcinfo",
            RecordKind::Request => "request",
            RecordKind::Response => "response",
            RecordKind::Metadata => "metadata",
        }
    }

    /// The usual media type of such a record's block.
    pub const fn content_type(self) -> &'static str {
        match self {
            RecordKind::Warcinfo | RecordKind::Metadata => "application/warc-fields",
            RecordKind::Request => "application/http;msgtype=request",
            RecordKind::Response => "application/http;msgtype=response",
        }
    }
}

/// A record's id: a version 4 UUID, written `<urn:uuid:…>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordId([u8; 16]);

impl RecordId {
    /// A UUID from 128 random bits, six of which are replaced by version and variant (RFC 9562,
    /// 5.4).
    pub fn from_random(mut bits: [u8; 16]) -> Self {
        bits[6] = bits[6] & 0x0f | 0x40;
        bits[8] = bits[8] & 0x3f | 0x80;
        RecordId(bits)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        write!(
            f,
            "<urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}>",
            bits >> 96,
            bits >> 80 & 0xffff,
            bits >> 64 & 0xffff,
            bits >> 48 & 0xffff,
            bits & 0xffff_ffff_ffff,
        )
    }
}

/// A deterministic stream of record ids from one seed.
#[derive(Clone, Debug)]
pub struct RecordIds {
    seed: [u8; 16],
    drawn: u64,
}

impl RecordIds {
    /// Ids derived from `seed`. Two crawls must not share a seed, or their records share ids.
    pub fn new(seed: [u8; 16]) -> Self {
        RecordIds { seed, drawn: 0 }
    }

    /// The next id.
    pub fn draw(&mut self) -> RecordId {
        let mut seeded = [0; 24];
        seeded[..16].copy_from_slice(&self.seed);
        seeded[16..].copy_from_slice(&self.drawn.to_be_bytes());
        self.drawn += 1;
        let mut bits = [0; 16];
        bits.copy_from_slice(&Digest::new(&seeded).0[..16]);
        RecordId::from_random(bits)
    }
}

/// A SHA-1 digest, displayed as `sha1:` and base32, as in web archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; 20]);

impl Digest {
    /// The digest of some bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Digest::made(&digest::digest(&SHA1, bytes))
    }

    /// The digest of a payload: the body without chunk framing, but with content codings.
    ///
    /// `body` is everything after the head. If chunk framing is broken or truncated, the digest
    /// covers the data up to there.
    pub fn from_payload(body: &[u8], chunked: bool) -> Self {
        if !chunked {
            return Digest::new(body);
        }
        let mut payload = PayloadDigest::new(chunked);
        while !payload.step(body, usize::MAX) {}
        payload.finish()
    }

    /// The same text as its `Display` form.
    pub fn text(&self) -> [u8; 37] {
        let mut text = *b"sha1:00000000000000000000000000000000";
        BASE32.encode_mut(&self.0, &mut text[5..]);
        text
    }

    fn made(digest: &digest::Digest) -> Self {
        Digest(digest.as_ref().try_into().expect("SHA-1 has 20 octets"))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.text()).expect("base32 is ASCII"))
    }
}

/// A block of `application/warc-fields`: named values, one per line.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Appends a field. Line ends in the value become spaces.
    pub fn push(&mut self, name: &str, value: impl fmt::Display) {
        field(&mut self.0, name, OneLine(&value.to_string()));
    }

    /// The block.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A digest computed in pieces.
pub(crate) struct Hashing(digest::Context);

impl Hashing {
    /// The digest of no bytes.
    pub fn new() -> Self {
        Hashing(digest::Context::new(&SHA1))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Digest {
        Digest::made(&self.0.finish())
    }
}

/// The digest of a payload, computed in bounded steps.
pub(crate) struct PayloadDigest {
    hash: Hashing,
    chunked: bool,
    /// Offset up to which the body was read.
    at: usize,
    /// Remaining bytes of the present chunk.
    left: usize,
}

impl PayloadDigest {
    /// `chunked`: the body uses the chunked coding.
    pub fn new(chunked: bool) -> Self {
        PayloadDigest {
            hash: Hashing::new(),
            chunked,
            at: 0,
            left: if chunked { 0 } else { usize::MAX },
        }
    }

    /// Reads about `most` more bytes of the body; returns whether it is finished.
    ///
    /// Chunks (RFC 9112, 7.1) are parsed leniently: bare LF, spaces around the size, and extensions
    /// are accepted.
    pub fn step(&mut self, body: &[u8], most: usize) -> bool {
        let mut rest = most;
        while self.at < body.len() && rest > 0 {
            if self.left == 0 {
                let Some((length, size)) = chunk_size(&body[self.at..]) else {
                    self.at = body.len();
                    break;
                };
                self.at += length;
                self.left = size;
                rest = rest.saturating_sub(length + CHUNK_COST);
                continue;
            }
            let length = self.left.min(rest).min(body.len() - self.at);
            self.hash.update(&body[self.at..self.at + length]);
            self.at += length;
            rest -= length;
            if !self.chunked {
                continue;
            }
            self.left -= length;
            if self.left == 0 {
                self.at += match &body[self.at..] {
                    [b'\r', b'\n', ..] => 2,
                    [b'\n', ..] => 1,
                    broken => broken.len(),
                };
            }
        }
        self.at == body.len()
    }

    /// The digest of the bytes read.
    pub fn finish(self) -> Digest {
        self.hash.finish()
    }
}

/// Cost of a chunk besides its bytes, in bytes.
const CHUNK_COST: usize = 16;

/// The lengths of the line that starts a chunk, and of the chunk; `None` if there is none, or it is
/// the last.
fn chunk_size(body: &[u8]) -> Option<(usize, usize)> {
    let end = body.iter().position(|&byte| byte == b'\n')?;
    let line = body[..end].trim_ascii_start();
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let digits = &line[..digits.count()];
    let size = usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (size > 0).then_some((end + 1, size))
}

fn field(out: &mut Vec<u8>, name: &str, value: impl fmt::Display) {
    write!(out, "{name}: {value}\r\n").expect("writing to a Vec does not fail");
}

/// A value that cannot contain a line end.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self.0.split(|c: char| c.is_control());
        f.write_str(parts.next().unwrap_or(""))?;
        parts.try_for_each(|part| write!(f, " {part}"))
    }
}

/// A URI as one word of ASCII.
struct Uri<'a>(&'a str);

impl fmt::Display for Uri<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.bytes().position(|byte| !byte.is_ascii_graphic()) {
            f.write_str(&rest[..at])?;
            let strange = rest[at..].chars().next().expect("a character begins here");
            for byte in strange.encode_utf8(&mut [0; 4]).bytes() {
                write!(f, "%{byte:02X}")?;
            }
            rest = &rest[at + strange.len_utf8()..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &Record<'_>) -> String {
        let mut out = Vec::new();
        record.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn id(byte: u8) -> RecordId {
        RecordId::from_random([byte; 16])
    }

    #[test]
    fn a_response_record_is_written_field_by_field() {
        let block = b"HTTP/1.1 200 OK\r\n\r\nhello";
        let record = Record {
            target: Some("https://a.test/x"),
            address: Some([127, 0, 0, 1].into()),
            concurrent_to: Some(id(2)),
            warcinfo: Some(id(3)),
            protocols: &["http/1.1", "tls/1.3"],
            cipher: Some("TLS_AES_128_GCM_SHA256"),
            truncated: Some("length"),
            payload_digest: Some(Digest::new(b"hello")),
            ..Record::new(RecordKind::Response, id(1), Wall(1_000_000_007), block)
        };
        assert_eq!(
            text(&record),
            "WARC/1.1\r\n\
             WARC-Type: response\r\n\
             WARC-Record-ID: <urn:uuid:01010101-0101-4101-8101-010101010101>\r\n\
             WARC-Date: 1970-01-01T00:00:01.000000007Z\r\n\
             WARC-Target-URI: https://a.test/x\r\n\
             WARC-IP-Address: 127.0.0.1\r\n\
             WARC-Concurrent-To: <urn:uuid:02020202-0202-4202-8202-020202020202>\r\n\
             WARC-Warcinfo-ID: <urn:uuid:03030303-0303-4303-8303-030303030303>\r\n\
             WARC-Protocol: http/1.1\r\n\
             WARC-Protocol: tls/1.3\r\n\
             WARC-Cipher-Suite: TLS_AES_128_GCM_SHA256\r\n\
             WARC-Truncated: length\r\n\
             WARC-Payload-Digest: sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N\r\n\
             WARC-Block-Digest: sha1:IORUMWLIBUO53GZZJS7FEOU3IDD3AFBH\r\n\
             Content-Type: application/http;msgtype=response\r\n\
             Content-Length: 24\r\n\
             \r\n\
             HTTP/1.1 200 OK\r\n\r\nhello\r\n\r\n"
        );
    }

    #[test]
    fn a_digest_is_sha1_in_base32() {
        let check = |bytes: &[u8], expected| assert_eq!(Digest::new(bytes).to_string(), expected);
        check(b"", "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ");
        check(b"abc", "sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5");
    }

    #[test]
    fn the_payload_of_a_chunked_body_is_its_data() {
        let check = |body: &str, data: &str| {
            assert_eq!(
                Digest::from_payload(body.as_bytes(), true),
                Digest::new(data.as_bytes()),
                "{body:?}"
            );
        };
        check(
            "5\r\nhello\r\n6;x=\"y\"\r\n world\r\n0\r\n\r\n",
            "hello world",
        );
        check("5\nhello\n0\n\n", "hello");
        check(" 5 \r\nhello\r\n0\r\nTrailer: 1\r\n\r\n", "hello");
        check("0005\r\nhello\r\nA\r\nbroken off", "hellobroken off");
        check("5\r\nhelloXX3\r\nabc\r\n", "hello");
        check("ffffffffffffffffffff\r\nhello", "");
        check("xyz\r\nhello", "");
        check("5", "");
        check("", "");
    }

    #[test]
    fn a_digest_computed_in_steps_equals_that_of_the_whole() {
        let chunked = b"5\r\nhello\r\n1;x=y\n \n6\r\nworld!\r\n0\r\n\r\n";
        for (body, is_chunked) in [
            (&chunked[..], true),
            (&chunked[..], false),
            (b"", true),
            (b"", false),
        ] {
            for cut in 0..=body.len() {
                let body = &body[..cut];
                for most in [1, 3, usize::MAX] {
                    let mut digest = PayloadDigest::new(is_chunked);
                    while !digest.step(body, most) {}
                    assert_eq!(digest.finish(), Digest::from_payload(body, is_chunked));
                }
            }
        }
        let mut digest = PayloadDigest::new(true);
        assert!(digest.step(chunked, usize::MAX));
        assert_eq!(digest.finish(), Digest::new(b"hello world!"));
        let tiny = b"1\r\nx\r\n".repeat(1000);
        let mut digest = PayloadDigest::new(true);
        let mut steps = 1;
        while !digest.step(&tiny, 100) {
            steps += 1;
        }
        assert!(steps > 100, "chunks cost more than their bytes: {steps}");
    }

    #[test]
    fn every_cut_of_a_chunked_body_has_the_data_that_arrived() {
        let body = b"5\r\nhello\r\n6;x\r\n world\r\n0\r\n\r\n";
        let mut longest = 0;
        for cut in 0..=body.len() {
            let digest = Digest::from_payload(&body[..cut], true);
            let length = (0..=11).find(|length| Digest::new(&b"hello world"[..*length]) == digest);
            let length = length.unwrap_or_else(|| panic!("cut at {cut}"));
            assert!(length >= longest, "cut at {cut}");
            longest = length;
        }
        assert_eq!(longest, 11);
    }

    #[test]
    fn no_value_can_forge_a_field() {
        let mut record = Record::new(RecordKind::Metadata, id(1), Wall(0), b"");
        record.target = Some("http://a.test/\r\nWARC-Type: request é");
        let text = text(&record);
        assert!(
            text.contains("WARC-Target-URI: http://a.test/%0D%0AWARC-Type:%20request%20%C3%A9\r\n"),
            "{text}"
        );
        let mut fields = Fields::default();
        fields.push("failure", "one\r\ntwo");
        assert_eq!(fields.as_bytes(), b"failure: one  two\r\n");
    }

    #[test]
    fn ids_of_a_seed_are_unique_version_4_and_reproducible() {
        let draw = |seed| {
            let mut ids = RecordIds::new(seed);
            (0..100).map(|_| ids.draw().to_string()).collect::<Vec<_>>()
        };
        let first = draw([7; 16]);
        assert_eq!(first, draw([7; 16]));
        assert_ne!(first[0], draw([8; 16])[0]);
        let mut different = first.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 100);
        for id in first {
            assert_eq!(&id[24..25], "4", "{id}");
            assert!("89ab".contains(&id[29..30]), "{id}");
        }
    }
}
