//! Blocks of spilled requests as bytes.

use super::codec::{Input, put_number, put_signed};
use super::{ADMITTED_TO_BLOCK, Record, RecordError, SPILL, SPILL_IN_ORDER, SPILLED, put_counter};

/// A block of a file of spilled requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpilledBlock {
    /// The number of the file.
    pub file: u64,
    /// The offset of its frame in the file.
    pub offset: u64,
    /// Bytes of the frame.
    pub length: u64,
    /// The key of the origin.
    pub origin: u64,
    /// The priority of its requests.
    pub priority: i32,
    /// How many there are.
    pub requests: u64,
    /// The number of its first request: blocks of one origin and priority are in this order. 0: not known.
    pub first: u64,
}

/// What the journal keeps of requests that were admitted to a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockAdmission {
    /// The number of each, and the key of its URL.
    pub requests: Vec<(u64, u64)>,
    /// Keys of the host and of the registrable domain, if one of them is a seed.
    pub seed_host: Option<(u64, u64)>,
}

/// A block that was written.
#[derive(Debug)]
pub struct WrittenBlock {
    /// Where it is.
    pub block: SpilledBlock,
    /// What its requests were before.
    pub origin: BlockOrigin,
}

/// Where the requests of a block come from.
#[derive(Debug)]
pub enum BlockOrigin {
    /// They are new: the journal does not have them.
    Admitted {
        /// The number of each, and the key of its URL.
        requests: Vec<(u64, u64)>,
        /// The host, if one of them is a seed.
        seed_host: Option<String>,
    },
    /// The journal has them.
    Journal {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// Another block has them.
    Block {
        /// The number of its file.
        file: u64,
        /// Its offset.
        offset: u64,
    },
}

/// Appends the bytes of [`Record::Spilled`], from those of its requests, one after the other.
pub fn encode_spilled(origin: u64, count: u64, requests: &[u8], out: &mut Vec<u8>) {
    out.push(SPILLED);
    out.extend_from_slice(&origin.to_le_bytes());
    put_number(count, out);
    out.extend_from_slice(requests);
}

/// Appends the bytes of [`Record::Spill`].
pub fn encode_spill(block: &SpilledBlock, numbers: &[u64], out: &mut Vec<u8>) {
    match block.first {
        0 => out.push(SPILL),
        first => put_counter(SPILL_IN_ORDER, first, out),
    }
    encode_block(block, out);
    encode_numbers(0, numbers.iter().copied(), out);
}

pub(super) fn decode_spill(first: u64, input: &mut Input<'_>) -> Result<Record, RecordError> {
    let block = decode_block(first, input)?;
    let numbers = decode_numbers(0, input)?;
    Ok(Record::Spill { block, numbers })
}

/// Appends the bytes of [`Record::AdmittedToBlock`].
pub fn encode_admitted_to_block(
    block: &SpilledBlock,
    admission: &BlockAdmission,
    out: &mut Vec<u8>,
) {
    put_counter(ADMITTED_TO_BLOCK, block.first, out);
    encode_block(block, out);
    let numbers = admission.requests.iter().map(|(number, _)| *number);
    encode_numbers(block.first, numbers, out);
    let keys = admission.requests.iter().map(|(_, key)| key);
    out.extend(keys.flat_map(|key| key.to_le_bytes()));
    out.push(admission.seed_host.is_some().into());
    let host = admission.seed_host.iter();
    let host = host.flat_map(|(host, domain)| [host, domain]);
    out.extend(host.flat_map(|key| key.to_le_bytes()));
}

pub(super) fn decode_admitted_to_block(input: &mut Input<'_>) -> Result<Record, RecordError> {
    let block = decode_block(input.number("first")?, input)?;
    let numbers = decode_numbers(block.first, input)?;
    let key_of = |number| Ok((number, u64::from_le_bytes(input.array("keys")?)));
    let requests = numbers.into_iter().map(key_of);
    let requests = requests.collect::<Result<_, _>>()?;
    let seed_host = match input.byte("has seed host")? {
        0 => None,
        1 => {
            let [host, domain] = [input.array("seed host")?, input.array("seed host")?];
            Some((u64::from_le_bytes(host), u64::from_le_bytes(domain)))
        }
        _ => return Err(RecordError::Value("has seed host")),
    };
    let admission = BlockAdmission {
        requests,
        seed_host,
    };
    Ok(Record::AdmittedToBlock { block, admission })
}

/// Appends a block, but for the number of its first request.
fn encode_block(block: &SpilledBlock, out: &mut Vec<u8>) {
    for number in [block.file, block.offset, block.length] {
        put_number(number, out);
    }
    out.extend_from_slice(&block.origin.to_le_bytes());
    put_signed(block.priority.into(), out);
    put_number(block.requests, out);
}

fn decode_block(first: u64, input: &mut Input<'_>) -> Result<SpilledBlock, RecordError> {
    let (file, offset) = (input.number("file")?, input.number("offset")?);
    let length = input.number("length")?;
    let origin = u64::from_le_bytes(input.array("origin")?);
    let priority = input.signed("priority")?;
    Ok(SpilledBlock {
        file,
        offset,
        length,
        origin,
        priority: i32::try_from(priority).map_err(|_| RecordError::Value("priority"))?,
        requests: input.number("requests")?,
        first,
    })
}

/// Appends numbers, which are mostly in order, and near. The first is mostly near `before`.
fn encode_numbers(before: u64, numbers: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    put_number(numbers.len() as u64, out);
    let mut last = before;
    for number in numbers {
        put_signed(number.wrapping_sub(last) as i64, out);
        last = number;
    }
}

fn decode_numbers(before: u64, input: &mut Input<'_>) -> Result<Vec<u64>, RecordError> {
    let count: u64 = input.number("numbers")?;
    let mut last = before;
    let numbers = (0..count).map(|_| {
        last = last.wrapping_add(input.signed("number")? as u64);
        Ok(last)
    });
    numbers.collect()
}
