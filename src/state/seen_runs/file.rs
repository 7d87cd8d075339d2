//! The file of a run of the seen set: keys of URLs in ascending order.
//!
//! ```text
//! run       = magic (8 bytes), version (4), number of the run (8), crawl (8), checksum (4), blocks, directory
//! block     = checksum (4), number of keys (4), keys (8 each): 511 of them, or fewer in the last block
//! directory = for each part, length (4), checksum (4): number of keys (4), first keys of its blocks (8 each),
//!             filter
//! ```
//!
//! Numbers are little-endian. A part has 64 blocks; the last may have fewer. Checksums cover the crawl, the
//! number of the run and the offset of what they are about. The journal has the number of keys and the length
//! of a run, so that no part of it is read to find another.

use thiserror::Error;

use crate::base::sentence::debug_as_sentence;
use crate::frontier::seen::run::{BLOCK_PRINTS, Filter, PART_BLOCKS, PART_PRINTS, Part, Run};
use crate::state::journal::checksum;
use crate::state::record::RunRecord;

/// Writes a run.
///
/// ```text
/// push … ──► write_part ──► build_filter ──► push … ──► write_directory …
/// ```
#[derive(Debug)]
pub struct RunWriter {
    place: RunPlace,
    /// Keys of the next parts.
    waiting: Vec<u64>,
    /// The part whose filter is to be built, and its keys.
    unfiltered: Option<(Part, Vec<u64>)>,
    run: Run,
    /// Parts that are in the directory.
    listed: usize,
    /// Number of bytes so far.
    length: u64,
}

/// Which run a block belongs to.
#[derive(Clone, Copy, Debug)]
pub struct RunPlace {
    header: [u8; HEADER_BYTES],
    /// Checksum of what comes before the offset, in each block.
    checksum: u32,
    number: u64,
}

/// Why bytes are not those of a run.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The bytes do not begin as a run does.
    #[error("not a run of the seen set")]
    NotARun,
    /// A newer version wrote it.
    #[error(
        "the run has version {version}, and this program reads up to {supported}; use the version of argiope \
         that wrote it, or a later one"
    )]
    Newer {
        /// Its version.
        version: u32,
        /// The newest version that is read.
        supported: u32,
    },
    /// Bytes do not match their checksum.
    #[error("the run of the seen set is damaged at byte {offset}")]
    Damaged {
        /// Offset of the block or of the part of the directory.
        offset: u64,
    },
}

debug_as_sentence!(RunError);

/// Keys of a block, ascending.
#[derive(Clone, Copy, Debug)]
pub struct BlockKeys<'a>(&'a [[u8; 8]]);

impl BlockKeys<'_> {
    /// Whether the block has a key.
    pub fn has(&self, key: u64) -> bool {
        let found = (self.0).binary_search_by_key(&key, |bytes| u64::from_le_bytes(*bytes));
        found.is_ok()
    }
}

impl RunError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            RunError::NotARun => "run.unknown",
            RunError::Newer { .. } => "run.newer",
            RunError::Damaged { .. } => "run.damaged",
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl RunPlace {
    /// Of the run with this number, of this crawl.
    pub fn new(number: u64, crawl: u64) -> Self {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[12..20].copy_from_slice(&number.to_le_bytes());
        header[20..28].copy_from_slice(&crawl.to_le_bytes());
        let checksum = checksum(0, 0, &header[..28]);
        header[28..].copy_from_slice(&checksum.to_le_bytes());
        RunPlace {
            header,
            checksum,
            number,
        }
    }

    /// The number of the run.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first bytes of the file.
    pub fn header(&self) -> Vec<u8> {
        self.header.to_vec()
    }

    /// Checks the first bytes of the file.
    ///
    /// # Errors
    /// They are not those of this run.
    pub fn check_header(&self, bytes: &[u8]) -> Result<(), RunError> {
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(RunError::NotARun);
        }
        let version = bytes.get(8..12).map_or(0, word);
        let is_sound =
            bytes.len() == HEADER_BYTES && word(&bytes[28..]) == checksum(0, 0, &bytes[..28]);
        if is_sound && version > VERSION {
            return Err(RunError::Newer {
                version,
                supported: VERSION,
            });
        }
        match bytes == self.header {
            true => Ok(()),
            false => Err(RunError::Damaged { offset: 0 }),
        }
    }

    /// The keys of a block, ascending.
    ///
    /// # Errors
    /// It is damaged.
    pub fn keys_of<'a>(
        &self,
        block: u64,
        bytes: &'a [u8],
    ) -> Result<impl ExactSizeIterator<Item = u64> + use<'a>, RunError> {
        let keys = self.checked(block, bytes)?;
        let (keys, _) = keys.as_chunks::<8>();
        Ok(keys.iter().copied().map(u64::from_le_bytes))
    }

    /// The keys of a block, to look for some of them.
    ///
    /// # Errors
    /// It is damaged.
    pub fn block<'a>(&self, block: u64, bytes: &'a [u8]) -> Result<BlockKeys<'a>, RunError> {
        let (keys, _) = self.checked(block, bytes)?.as_chunks();
        Ok(BlockKeys(keys))
    }

    /// The bytes of the keys of a block.
    fn checked<'a>(&self, block: u64, bytes: &'a [u8]) -> Result<&'a [u8], RunError> {
        let offset = offset_of(block);
        let damaged = RunError::Damaged { offset };
        let (head, rest) = bytes.split_at_checked(BLOCK_HEAD).ok_or(damaged)?;
        let (expected, count) = (word(&head[..4]), word(&head[4..]));
        let is_intact = rest.len() as u64 == u64::from(count) * 8
            && count > 0
            && checksum(self.checksum, offset, rest) == expected;
        match is_intact {
            true => Ok(rest),
            false => Err(damaged),
        }
    }

    /// Reads the directory of the run, which is all of these bytes.
    ///
    /// # Errors
    /// It is damaged.
    pub fn directory(&self, record: &RunRecord, bytes: &[u8]) -> Result<Run, RunError> {
        let start = directory_offset(record.keys);
        let mut run = Run::default();
        let mut rest = bytes;
        while run.prints() < record.keys {
            let offset = start + (bytes.len() - rest.len()) as u64;
            let damaged = RunError::Damaged { offset };
            let (head, after) = rest.split_at_checked(BLOCK_HEAD).ok_or(damaged)?;
            let length = word(&head[..4]) as usize;
            let (payload, after) = after.split_at_checked(length).ok_or(damaged)?;
            rest = after;
            if checksum(self.checksum, offset, payload) != word(&head[4..]) {
                return Err(damaged);
            }
            let left = record.keys - run.prints();
            let part = decode_part(payload, left).ok_or(damaged)?;
            run.push(part);
        }
        match rest {
            [] => Ok(run),
            _ => Err(RunError::Damaged {
                offset: start + (bytes.len() - rest.len()) as u64,
            }),
        }
    }
}

/// Where the header of a run is: at its start, with so many bytes.
pub const HEADER_BYTES: usize = 32;

/// The offset of a block.
pub fn offset_of(block: u64) -> u64 {
    HEADER_BYTES as u64 + block * BLOCK_BYTES as u64
}

/// The number of blocks of a run with so many keys.
pub fn blocks_of(keys: u64) -> u64 {
    keys.div_ceil(BLOCK_PRINTS as u64)
}

/// The number of bytes of these blocks of a run with so many keys.
pub fn bytes_of(blocks: std::ops::Range<u64>, keys: u64) -> usize {
    (offset_of(blocks.end).min(directory_offset(keys)) - offset_of(blocks.start)) as usize
}

/// The offset of the directory of a run with so many keys.
pub fn directory_offset(keys: u64) -> u64 {
    HEADER_BYTES as u64 + blocks_of(keys) * BLOCK_HEAD as u64 + keys * 8
}

impl RunWriter {
    /// A run with this number, of this crawl.
    pub fn new(number: u64, crawl: u64) -> Self {
        RunWriter {
            place: RunPlace::new(number, crawl),
            waiting: Vec::new(),
            unfiltered: None,
            run: Run::default(),
            listed: 0,
            length: HEADER_BYTES as u64,
        }
    }

    /// The place of its blocks.
    pub fn identity(&self) -> RunPlace {
        self.place
    }

    /// Adds keys: ascending, and greater than those before.
    pub fn push(&mut self, keys: &[u64]) {
        debug_assert!(keys.is_sorted() && self.waiting.last() < keys.first().or(Some(&u64::MAX)));
        self.waiting.extend_from_slice(keys);
    }

    /// Whether there are keys for a whole part.
    pub fn has_part(&self) -> bool {
        self.waiting.len() >= PART_PRINTS
    }

    /// Whether keys are in no part yet.
    pub fn has_keys(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes the next part, if there are keys for one. Only the last may be smaller than others.
    pub fn write_part(&mut self) -> Vec<u8> {
        debug_assert!(self.unfiltered.is_none(), "its filter comes first");
        let count = self.waiting.len().min(PART_PRINTS);
        let rest = self.waiting.split_off(count);
        let keys = std::mem::replace(&mut self.waiting, rest);
        let first = (self.run.parts().len() * PART_BLOCKS) as u64;
        let mut out = Vec::with_capacity(count * 8 + PART_BLOCKS * BLOCK_HEAD);
        for (block, keys) in (first..).zip(keys.chunks(BLOCK_PRINTS)) {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&(keys.len() as u32).to_le_bytes());
            out.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            let sum = checksum(
                self.place.checksum,
                offset_of(block),
                &out[start + BLOCK_HEAD..],
            );
            out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
        }
        self.unfiltered = (count > 0).then(|| (Part::new(&keys), keys));
        self.length += out.len() as u64;
        out
    }

    /// Builds the filter of the part that was written last; returns false if it is built.
    pub fn build_filter(&mut self) -> bool {
        let Some((mut part, keys)) = self.unfiltered.take() else {
            return false;
        };
        part.filter = Filter::new(&keys);
        self.run.push(part);
        true
    }

    /// Writes a piece of the directory, once all keys are written. `None`: it is complete.
    pub fn write_directory(&mut self) -> Option<Vec<u8>> {
        debug_assert!(self.waiting.is_empty() && self.unfiltered.is_none());
        let mut out = Vec::new();
        while out.len() < DIRECTORY_PIECE
            && let Some(part) = self.run.parts().get(self.listed)
        {
            self.listed += 1;
            let start = out.len();
            let offset = self.length + start as u64;
            out.extend_from_slice(&[0; BLOCK_HEAD]);
            out.extend_from_slice(&part.prints.to_le_bytes());
            out.extend(part.firsts.iter().flat_map(|key| key.to_le_bytes()));
            if let Some(filter) = &part.filter {
                filter.encode(&mut out);
            }
            let (head, payload) = out[start..].split_at_mut(BLOCK_HEAD);
            head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            let sum = checksum(self.place.checksum, offset, payload);
            head[4..].copy_from_slice(&sum.to_le_bytes());
        }
        self.length += out.len() as u64;
        (!out.is_empty()).then_some(out)
    }

    /// The run, which is complete, and its record.
    pub fn finish(self) -> (Run, RunRecord) {
        let record = RunRecord {
            number: self.place.number,
            keys: self.run.prints(),
            length: self.length,
        };
        (self.run, record)
    }
}

/// A part of the directory of a run with so many keys from here on.
fn decode_part(payload: &[u8], left: u64) -> Option<Part> {
    let (head, rest) = payload.split_first_chunk::<4>()?;
    let prints = u32::from_le_bytes(*head);
    // Only the last part may be smaller.
    if u64::from(prints) != left.min(PART_PRINTS as u64) {
        return None;
    }
    let firsts = (prints as usize).div_ceil(BLOCK_PRINTS) * 8;
    let (firsts, filter) = rest.split_at_checked(firsts)?;
    let (firsts, _) = firsts.as_chunks::<8>();
    Some(Part {
        prints,
        firsts: firsts.iter().copied().map(u64::from_le_bytes).collect(),
        filter: match filter {
            [] => None,
            bytes => Some(Filter::decode(bytes)?),
        },
    })
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
}

/// The first bytes of a run.
const MAGIC: [u8; 8] = *b"argseen\n";
/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;
/// Bytes of a block before its keys, and of a part of the directory.
const BLOCK_HEAD: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: usize = BLOCK_HEAD + 8 * BLOCK_PRINTS;
/// About so many bytes of the directory are written at once.
const DIRECTORY_PIECE: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;

    const CRAWL: u64 = 5;

    fn keys(count: usize) -> Vec<u64> {
        let mut rng = Rng::from_seed(count as u64);
        let mut keys: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn written(keys: &[u64]) -> (Vec<u8>, Run, RunRecord) {
        let mut writer = RunWriter::new(3, CRAWL);
        let mut bytes = writer.identity().header();
        for piece in keys.chunks(10_000) {
            writer.push(piece);
            while writer.has_part() {
                bytes.extend(writer.write_part());
                assert!(writer.build_filter());
            }
        }
        bytes.extend(writer.write_part());
        writer.build_filter();
        while let Some(piece) = writer.write_directory() {
            bytes.extend(piece);
        }
        let (run, record) = writer.finish();
        assert_eq!(
            (record.keys, record.length),
            (keys.len() as u64, bytes.len() as u64)
        );
        (bytes, run, record)
    }

    /// The keys of a file, and its directory.
    fn read(bytes: &[u8], record: &RunRecord) -> Result<(Vec<u64>, Run), RunError> {
        let place = RunPlace::new(record.number, CRAWL);
        place.check_header(&bytes[..HEADER_BYTES.min(bytes.len())])?;
        let mut found = Vec::new();
        for block in 0..blocks_of(record.keys) {
            let start = offset_of(block) as usize;
            let length = bytes_of(block..block + 1, record.keys);
            let bytes = bytes.get(start..start + length).unwrap_or_default();
            found.extend(place.keys_of(block, bytes)?);
        }
        let directory = bytes.get(directory_offset(record.keys) as usize..);
        let run = place.directory(record, directory.unwrap_or_default())?;
        Ok((found, run))
    }

    #[test]
    fn a_run_is_read_back_and_has_its_keys_where_they_are_looked_for() {
        for count in [1, BLOCK_PRINTS, BLOCK_PRINTS + 1, PART_PRINTS, 70_000] {
            let keys = keys(count);
            let (bytes, written, record) = written(&keys);
            let (found, run) = read(&bytes, &record).expect("its own bytes");
            assert_eq!(found, keys);
            let place = RunPlace::new(3, CRAWL);
            for key in keys.iter().step_by(7) {
                let block = run.block_of(*key).expect("it is there");
                assert_eq!(written.block_of(*key), Some(block));
                let start = offset_of(block) as usize;
                let block_bytes = &bytes[start..start + bytes_of(block..block + 1, record.keys)];
                let block_keys = place.block(block, block_bytes).expect("it is sound");
                assert!(block_keys.has(*key));
                let is_next = keys.contains(&(key + 1));
                assert_eq!(block_keys.has(key + 1), is_next);
            }
        }
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error() {
        let keys = keys(1_100);
        let (bytes, _, record) = written(&keys);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], &record).is_err(), "{cut}");
        }
        let mut changed = bytes.clone();
        for at in 0..bytes.len() {
            changed[at] ^= 1 << (at % 8);
            assert!(read(&changed, &record).is_err(), "byte {at}");
            changed[at] = bytes[at];
        }
        assert!(read(&[&bytes[..], &[0]].concat(), &record).is_err());
    }

    #[test]
    fn a_block_of_another_place_run_or_crawl_is_damaged() {
        let (bytes, _, record) = written(&keys(1_100));
        let block = |number: u64| {
            let start = offset_of(number) as usize;
            &bytes[start..start + bytes_of(number..number + 1, record.keys)]
        };
        let place = RunPlace::new(3, CRAWL);
        assert!(place.keys_of(1, block(1)).is_ok());
        let check = |place: RunPlace, number: u64, bytes: &[u8]| {
            let offset = offset_of(number);
            let error = place.keys_of(number, bytes).map(|keys| keys.len());
            assert_eq!(error, Err(RunError::Damaged { offset }));
        };
        check(place, 1, block(0));
        check(RunPlace::new(4, CRAWL), 1, block(1));
        check(RunPlace::new(3, CRAWL + 1), 1, block(1));
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut header = RunPlace::new(3, CRAWL).header();
        header[8] = 2;
        let sum = checksum(0, 0, &header[..28]);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        let error = RunPlace::new(3, CRAWL).check_header(&header);
        let newer = RunError::Newer {
            version: 2,
            supported: 1,
        };
        assert_eq!(error, Err(newer));
        header[0] = 0;
        let error = RunPlace::new(3, CRAWL).check_header(&header);
        assert_eq!(error, Err(RunError::NotARun));
    }
}
