//! Gzip members: what is compressed already is stored in its member, the rest is deflated, unless the level
//! is 0.
//!
//! Deflating a compressed reply again takes many times as long as storing it, and saves little.

use super::Deflater;

/// Makes gzip members, as WARC files consist of: what is compressed already is stored in its member.
#[derive(Debug)]
pub struct Gzip {
    level: u32,
    /// The first member that needs it makes it, as with the other.
    deflating: Option<Deflater>,
    storing: Option<Deflater>,
}

/// Fewer bytes are deflated whatever they are.
const STORED_MIN: usize = 1024;

/// Bytes of a sample, and the number of pieces that it is taken in from the whole.
const SAMPLE: usize = 4096;
const SAMPLE_PIECES: usize = 16;

/// So many bytes are searched for repetitions.
const SEARCHED: usize = 2048;

impl Gzip {
    /// Deflates at this level, 1 to 12, of which higher ones take longer and save more; 0 stores everything.
    pub fn new(level: u32) -> Self {
        Gzip {
            level,
            deflating: None,
            storing: None,
        }
    }

    /// Appends the bytes as one gzip member.
    ///
    /// # Panics
    /// There is no memory for its state, up to some MiB.
    pub fn member(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let is_stored = self.level == 0 || is_even(bytes) && !repeats_itself(bytes);
        let (deflater, level) = match is_stored {
            true => (&mut self.storing, 0),
            false => (&mut self.deflating, self.level),
        };
        let deflater = deflater.get_or_insert_with(|| Deflater::new(level));
        deflater.member(bytes, out);
    }
}

/// Whether a sixteenth of a sample from the middle of the bytes was in it before: they may be even and yet
/// repeat themselves.
fn repeats_itself(bytes: &[u8]) -> bool {
    let start = bytes.len().saturating_sub(SEARCHED) / 2;
    let sample = &bytes[start..bytes.len().min(start + SEARCHED)];
    // The last four bytes with each hash.
    let mut last = [0_u32; 1 << HASH_BITS];
    let mut repeated = 0;
    for four in sample.windows(4) {
        let four = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        // Multiplicative hashing (Knuth, volume 3, 6.4).
        let hash = four.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS);
        let last = &mut last[hash as usize];
        repeated += usize::from(*last == four);
        *last = four;
    }
    repeated > sample.len() / 16
}

/// Hashes of four bytes have so many bits.
const HASH_BITS: u32 = 11;

/// Whether bytes are distributed as those of compressed data: nearly evenly.
///
/// Two bytes of a sample are equal with a probability of 1/256 in such data, of about 1/16 in text and of 1/64 in
/// base64; a quarter more than 1/256 is taken for even, so that the head of a record may be among them.
fn is_even(bytes: &[u8]) -> bool {
    if bytes.len() < STORED_MIN {
        return false;
    }
    let piece = (SAMPLE / SAMPLE_PIECES).min(bytes.len() / SAMPLE_PIECES);
    let last = bytes.len() - piece;
    let mut counts = [0_u32; 256];
    for number in 0..SAMPLE_PIECES {
        let start = last * number / (SAMPLE_PIECES - 1);
        for byte in &bytes[start..start + piece] {
            counts[usize::from(*byte)] += 1;
        }
    }
    let size = (piece * SAMPLE_PIECES) as u64;
    let equal: u64 = counts
        .iter()
        .map(|count| u64::from(*count) * u64::from(count.saturating_sub(1)))
        .sum();
    // Of size * (size - 1) pairs.
    equal * 256 * 4 <= size * (size - 1) * 5
}

/// The content of one gzip member.
#[cfg(test)]
pub(crate) fn gunzip(member: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(member), &mut content)
        .expect("a whole gzip member");
    content
}

/// The content of each gzip member of a file.
#[cfg(test)]
pub(crate) fn gunzip_members(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut members = Vec::new();
    while !bytes.is_empty() {
        let mut decoder = flate2::bufread::GzDecoder::new(bytes);
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut decoder, &mut content).expect("a whole gzip member");
        members.push(content);
        bytes = decoder.into_inner();
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    /// Bytes as even as those of compressed data.
    fn dense(length: usize) -> Vec<u8> {
        let mut rng = Rng::from_seed(length as u64);
        (0..length).map(|_| rng.next_u64() as u8).collect()
    }

    fn member_of(gzip: &mut Gzip, bytes: &[u8]) -> Vec<u8> {
        let mut member = Vec::new();
        gzip.member(bytes, &mut member);
        member
    }

    /// A record: its head, that of a reply, and a body.
    fn record(body: &[u8]) -> Vec<u8> {
        let head = "WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: https://a.test/page\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n";
        [head.repeat(4).as_bytes(), body].concat()
    }

    #[test]
    fn the_level_decides_the_size_of_a_member() {
        // Few words in random order, as the higher levels find longer matches in text alone.
        let words = [
            "the ", "crawl ", "record ", "member ", "of ", "a page", "<p>", "\n",
        ];
        let text: Vec<u8> = dense(20_000)
            .iter()
            .flat_map(|byte| words[usize::from(byte % 8)].bytes())
            .collect();
        let sizes: Vec<usize> = [0, 1, 6, 12, 100]
            .iter()
            .map(|level| {
                let mut gzip = Gzip::new(*level);
                // Its state is used for each member.
                member_of(&mut gzip, b"another");
                let member = member_of(&mut gzip, &text);
                assert!(gunzip(&member) == text, "level {level}");
                member.len()
            })
            .collect();
        let [stored, fast, usual, best, highest] = sizes[..] else {
            unreachable!("five levels");
        };
        assert!(stored > text.len() && fast < text.len() / 2, "{sizes:?}");
        assert!(
            usual < fast && best <= usual && highest == best,
            "{sizes:?}"
        );
    }

    #[test]
    fn compressed_bytes_are_stored_and_others_are_deflated() {
        let mut gzip = Gzip::new(6);
        let text = "<p>Each reply has a record, and each record a member.</p>\n".repeat(300);
        let prose: Vec<u8> = text
            .bytes()
            .zip(dense(text.len()))
            .map(|(byte, noise)| byte ^ (noise & 1))
            .collect();
        let hex: Vec<u8> = dense(20_000)
            .iter()
            .map(|byte| b"0123456789abcdef"[usize::from(byte & 15)])
            .collect();
        let compressed = member_of(&mut Gzip::new(6), &prose);
        for (name, bytes, is_stored) in [
            ("nothing", Vec::new(), false),
            ("few bytes", b"a".repeat(STORED_MIN - 1), false),
            ("even bytes", dense(STORED_MIN), true),
            (
                "even bytes in order",
                (0..300_000_u32).map(|number| number as u8).collect(),
                false,
            ),
            ("more even bytes", dense(300_000), true),
            ("text", text.clone().into_bytes(), false),
            ("digits", hex, false),
            ("a record of text", record(text.as_bytes()), false),
            (
                "a record of a compressed reply",
                record(&dense(15_000)),
                true,
            ),
            (
                "a record of text that is compressed",
                record(&compressed),
                true,
            ),
            (
                "half of each",
                [text.as_bytes(), &dense(text.len())].concat(),
                false,
            ),
        ] {
            let member = member_of(&mut gzip, &bytes);
            assert!(gunzip(&member) == bytes, "{name}");
            // A header, a trailer, and five bytes for each block.
            let stored = bytes.len() + 18 + 5 * (1 + bytes.len() / 16_000);
            let is_as_long = (bytes.len() + 18..=stored).contains(&member.len());
            let is_nothing = bytes.is_empty();
            assert!(
                is_nothing || is_as_long == is_stored,
                "{name}: {} of {}",
                member.len(),
                bytes.len()
            );
        }
    }
}
