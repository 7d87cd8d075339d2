//! Complete runs of the seen set, as files.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::disk::{DiskJob, FileId};
use crate::frontier::seen::run::Run;
use crate::sink::directory::{SEEN, STATE};
use crate::state::record::RunRecord;
use crate::state::seen_runs::file::{
    BlockKeys, HEADER_BYTES, RunError, RunPlace, blocks_of, bytes_of, directory_offset, offset_of,
};

/// A run in a file.
#[derive(Clone, Debug)]
pub struct RunFile {
    run: Arc<Run>,
    record: RunRecord,
    place: RunPlace,
    path: PathBuf,
}

/// A file that cannot be read.
pub type RunFailure = (PathBuf, io::Error);

impl RunFile {
    /// A run that was written to the state of the crawl in this output directory.
    pub fn new(run: Run, record: RunRecord, out: &Path, crawl: u64) -> Self {
        RunFile {
            run: Arc::new(run),
            record,
            place: RunPlace::new(record.number, crawl),
            path: path_of(out, record.number),
        }
    }

    /// Opens a run of an earlier process. `read` fills bytes from an offset of a file.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn open(
        record: RunRecord,
        out: &Path,
        crawl: u64,
        read: impl Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, RunFailure> {
        let path = path_of(out, record.number);
        let place = RunPlace::new(record.number, crawl);
        let open = || {
            let mut header = vec![0; HEADER_BYTES];
            read(&path, 0, &mut header)?;
            place.check_header(&header).map_err(damaged)?;
            let start = directory_offset(record.keys);
            let length = record.length.checked_sub(start);
            let length = length.ok_or_else(|| damaged(RunError::Damaged { offset: start }))?;
            let mut directory = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            read(&path, start, &mut directory)?;
            place.directory(&record, &directory).map_err(damaged)
        };
        match open() {
            Ok(run) => Ok(RunFile::new(run, record, out, crawl)),
            Err(error) => Err((path, error)),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.record.number
    }

    /// Its record.
    pub fn record(&self) -> RunRecord {
        self.record
    }

    /// What is in memory of it.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of its blocks.
    pub fn blocks(&self) -> u64 {
        blocks_of(self.record.keys)
    }

    /// The job that reads these blocks.
    pub fn read(&self, owner: FileId, blocks: Range<u64>, tag: u64) -> DiskJob {
        DiskJob::Read {
            file: owner,
            path: self.path.clone(),
            offset: offset_of(blocks.start),
            bytes: vec![0; bytes_of(blocks, self.record.keys)],
            tag,
        }
    }

    /// The keys in these blocks, from their bytes.
    pub fn keys_in(&self, blocks: Range<u64>, bytes: &[u8]) -> Result<Vec<u64>, RunFailure> {
        let mut keys = Vec::new();
        for block in blocks.clone() {
            let of_block = self.bytes_of(block, &blocks, bytes);
            let found = self.place.keys_of(block, of_block);
            keys.extend(found.map_err(|error| self.failure(error))?);
        }
        Ok(keys)
    }

    /// The keys of a block; `bytes`: those of all `blocks`.
    pub fn block<'a>(
        &self,
        block: u64,
        blocks: &Range<u64>,
        bytes: &'a [u8],
    ) -> Result<BlockKeys<'a>, RunFailure> {
        let of_block = self.bytes_of(block, blocks, bytes);
        let keys = self.place.block(block, of_block);
        keys.map_err(|error| self.failure(error))
    }

    /// The bytes of a block among those of some.
    fn bytes_of<'a>(&self, block: u64, blocks: &Range<u64>, bytes: &'a [u8]) -> &'a [u8] {
        let start = (offset_of(block) - offset_of(blocks.start)) as usize;
        let length = bytes_of(block..block + 1, self.record.keys);
        bytes.get(start..start + length).unwrap_or_default()
    }

    fn failure(&self, error: RunError) -> RunFailure {
        (self.path.clone(), damaged(error))
    }
}

/// Whether a run has a key: some blocks of its file are read, and nothing else.
///
/// # Errors
/// It cannot be read, or is damaged.
pub fn file_has(
    record: &RunRecord,
    out: &Path,
    crawl: u64,
    key: u64,
    read: impl Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let path = path_of(out, record.number);
    let place = RunPlace::new(record.number, crawl);
    let mut blocks = 0..blocks_of(record.keys);
    while !blocks.is_empty() {
        let middle = blocks.start + (blocks.end - blocks.start) / 2;
        let mut bytes = vec![0; bytes_of(middle..middle + 1, record.keys)];
        read(&path, offset_of(middle), &mut bytes)?;
        let keys: Vec<u64> = place.keys_of(middle, &bytes).map_err(damaged)?.collect();
        match (keys.first(), keys.last()) {
            (Some(first), _) if key < *first => blocks.end = middle,
            (_, Some(last)) if key > *last => blocks.start = middle + 1,
            _ => return Ok(keys.binary_search(&key).is_ok()),
        }
    }
    Ok(false)
}

/// The path of a run in the output directory of a crawl.
pub fn path_of(out: &Path, number: u64) -> PathBuf {
    out.join(STATE).join(format!("{SEEN}{number:08}"))
}

fn damaged(error: RunError) -> io::Error {
    let kind = match error.is_retryable() {
        true => io::ErrorKind::Interrupted,
        false => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("{error} ({})", error.code()))
}
