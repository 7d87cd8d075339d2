//! The files of blocks: the one that is written, the blocks that count in each, and those to be removed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::SpillStart;
use super::index::{FILES_END, Location, OFFSET_END, length_max};
use crate::base::disk::{DiskJob, FileId};
use crate::sink::WriteError;
use crate::sink::directory::{QUEUE, STATE};
use crate::state::journal::{Framer, record_at};
use crate::state::record::{Entry, Record, SpilledBlock};

/// The files in the state's folder, and the jobs for the disk.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    crawl: u64,
    files: BTreeMap<u64, File>,
    current: Option<Current>,
    next_file: u64,
    /// Files that are removed after the next commit, and after the one under way.
    empty: Vec<u64>,
    removed_next: Vec<u64>,
    jobs: Vec<DiskJob>,
    /// Bytes that were handed to the disk and are not written.
    unwritten: usize,
    /// Syncs under way.
    syncs: u32,
    failure: Option<WriteError>,
}

/// A file with blocks.
#[derive(Debug, Default)]
struct File {
    length: u64,
    /// Blocks that count.
    blocks: u64,
    /// Bytes of these, at most.
    bytes: u64,
    /// Whether it is in line to be moved.
    is_sparse: bool,
}

/// The file that is written.
#[derive(Debug)]
struct Current {
    number: u64,
    framer: Framer,
    is_synced: bool,
}

/// Where a block was framed.
#[derive(Clone, Copy, Debug)]
pub struct Framed {
    /// The number of its file.
    pub file: u64,
    pub offset: u64,
    pub length: u64,
}

/// The file among those of the disk.
pub const FILE: FileId = FileId(1);

/// Tags of disk jobs; reads of blocks have those after `READS`.
pub const APPEND: u64 = 0;
pub const SYNC: u64 = 1;
const REMOVE: u64 = 2;
pub const MOVE: u64 = 3;
pub const READS: u64 = 16;

/// A file with so many bytes takes no more blocks. In tests files are many.
const FILE_BYTES: u64 = if cfg!(test) { 150 } else { OFFSET_END - 1 };
/// The blocks of a file are moved when they are less than one in so many of its bytes. In tests one block less
/// is enough.
const SPARSE: u64 = if cfg!(test) { 1 } else { 4 };

impl Files {
    pub fn new(start: SpillStart) -> Self {
        Files {
            folder: start.folder,
            crawl: start.crawl,
            files: (start.files.iter())
                .map(|number| (*number, File::default()))
                .collect(),
            current: None,
            next_file: start.next_file,
            empty: start.files,
            removed_next: Vec::new(),
            jobs: Vec::new(),
            unwritten: 0,
            syncs: 0,
            failure: None,
        }
    }

    /// The number of the crawl, in each file.
    pub fn crawl(&self) -> u64 {
        self.crawl
    }

    /// A file has one block more.
    pub fn count_in(&mut self, block: &SpilledBlock) {
        let file = self.files.entry(block.file).or_default();
        file.length = file.length.max(block.offset + block.length);
        file.blocks += 1;
        file.bytes += length_max(block.length);
        if file.blocks == 1 {
            self.empty.retain(|number| *number != block.file);
        }
    }

    /// A block with at most so many bytes does not count any more.
    pub fn count_out(&mut self, number: u64, length_max: u64) {
        let file = self.files.get_mut(&number).expect("it has the block");
        file.blocks -= 1;
        file.bytes = file.bytes.saturating_sub(length_max);
        if file.blocks == 0 {
            self.empty.push(number);
        }
    }

    /// Whether the blocks of a file are to be moved, now that one does not count any more: few of its bytes
    /// do. Once only, until [`Files::forget_sparse`].
    pub fn becomes_sparse(&mut self, number: u64) -> bool {
        let is_current = (self.current.as_ref()).is_some_and(|current| current.number == number);
        self.files.get_mut(&number).is_some_and(|file| {
            file.blocks > 0
                && file.bytes * SPARSE < file.length
                && !is_current
                && !std::mem::replace(&mut file.is_sparse, true)
        })
    }

    /// The blocks of a file have been moved, as far as they could be.
    pub fn forget_sparse(&mut self, number: u64) {
        if let Some(file) = self.files.get_mut(&number) {
            file.is_sparse = false;
        }
    }

    /// Bytes of a file, up to the end of its last block; none if it was removed.
    pub fn length(&self, number: u64) -> Option<u64> {
        self.files.get(&number).map(|file| file.length)
    }

    /// Whether a file has blocks that count.
    pub fn has_blocks(&self, number: u64) -> bool {
        (self.files.get(&number)).is_some_and(|file| file.blocks > 0)
    }

    /// Bytes to be read for a block.
    pub fn bytes_at(&self, location: Location) -> usize {
        let length = self.length(location.file).unwrap_or(0);
        location
            .length_max
            .min(length.saturating_sub(location.offset)) as usize
    }

    /// The requests of a block, from its bytes.
    pub fn entries_of(&self, location: Location, bytes: &[u8]) -> io::Result<Vec<Entry>> {
        entries_of(location.file, self.crawl, location.offset, bytes)
    }

    /// Reads bytes of a file.
    pub fn read(&mut self, number: u64, offset: u64, length: usize, tag: u64) {
        self.jobs.push(DiskJob::Read {
            file: FILE,
            path: self.path(number),
            offset,
            bytes: vec![0; length],
            tag,
        });
    }

    /// Adds a frame to `out`, which is appended to the file that is written.
    pub fn frame(
        &mut self,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Framed> {
        let is_full = |current: &Current| current.framer.length() >= FILE_BYTES;
        if self.current.as_ref().is_none_or(is_full) {
            self.append(out);
            self.begin_file(out);
        }
        let current = self.current.as_ref()?;
        let offset = current.framer.length();
        current.framer.frame(out, encode);
        Some(Framed {
            file: current.number,
            offset,
            length: current.framer.length() - offset,
        })
    }

    /// Begins the next file.
    fn begin_file(&mut self, out: &mut Vec<u8>) {
        if let Some(current) = self.current.take() {
            if !current.is_synced {
                self.sync();
            }
            self.jobs.push(DiskJob::Finish {
                file: FILE,
                rename: None,
            });
        }
        let number = self.next_file;
        assert!(number < FILES_END, "2^22 files of 64 MiB");
        self.next_file += 1;
        self.jobs.push(DiskJob::Create {
            file: FILE,
            path: self.path(number),
        });
        let framer = Framer::new(number, self.crawl);
        out.extend_from_slice(&framer.header());
        self.current = Some(Current {
            number,
            framer,
            is_synced: false,
        });
    }

    fn sync(&mut self) {
        self.syncs += 1;
        self.jobs.push(DiskJob::Sync {
            file: FILE,
            tag: SYNC,
        });
    }

    /// Appends what was framed.
    pub fn append(&mut self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        self.unwritten += out.len();
        self.jobs.push(DiskJob::Append {
            file: FILE,
            bytes: std::mem::take(out),
            gzip: false,
            tag: APPEND,
        });
        if let Some(current) = &mut self.current {
            current.is_synced = false;
        }
    }

    /// What was written becomes durable, before a commit is.
    pub fn sync_written(&mut self) {
        if let Some(current) = &mut self.current
            && !std::mem::replace(&mut current.is_synced, true)
        {
            self.sync();
        }
    }

    /// Files without blocks are removed once the commit that begins is durable.
    pub fn begin_removal(&mut self) {
        let current = self.current.as_ref().map(|current| current.number);
        let (removed, kept) = (self.empty.drain(..)).partition(|number| Some(*number) != current);
        self.removed_next = removed;
        self.empty = kept;
    }

    /// The commit is durable.
    pub fn handle_committed(&mut self) {
        for number in std::mem::take(&mut self.removed_next) {
            self.files.remove(&number);
            self.jobs.push(DiskJob::Remove {
                file: FILE,
                path: self.path(number),
                tag: REMOVE,
            });
        }
    }

    /// Jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        std::mem::take(&mut self.jobs)
    }

    /// So many bytes are written.
    pub fn handle_written(&mut self, bytes: usize) {
        self.unwritten = self.unwritten.saturating_sub(bytes);
    }

    /// Bytes that wait for the disk.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// A sync is over.
    pub fn handle_synced(&mut self) {
        self.syncs -= 1;
    }

    /// A job failed.
    pub fn handle_failure(&mut self, error: &io::Error) {
        self.note_failure(self.folder.join(STATE), error);
    }

    /// A block of a file is damaged.
    pub fn handle_damage(&mut self, number: u64, error: &io::Error) {
        self.note_failure(self.path(number), error);
    }

    fn note_failure(&mut self, path: PathBuf, error: &io::Error) {
        self.failure
            .get_or_insert_with(|| WriteError::new(path, error));
    }

    /// The first job that failed.
    pub fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    /// The same, once all requests were taken.
    pub fn take_failure(&mut self) -> Option<WriteError> {
        self.failure.take()
    }

    /// Whether no sync is under way and none failed.
    pub fn is_synced(&self) -> bool {
        self.syncs == 0 && self.failure.is_none()
    }

    /// The path of a file.
    pub fn path(&self, number: u64) -> PathBuf {
        path_of(&self.folder, number)
    }
}

impl Framed {
    /// The block, with its requests.
    pub fn block(self, origin: u64, priority: i32, requests: u64, first: u64) -> SpilledBlock {
        SpilledBlock {
            file: self.file,
            offset: self.offset,
            length: self.length,
            origin,
            priority,
            requests,
            first,
        }
    }
}

/// The requests of a block of a file.
///
/// # Errors
/// It is damaged.
pub fn entries_of(file: u64, crawl: u64, offset: u64, bytes: &[u8]) -> io::Result<Vec<Entry>> {
    match record_at(file, crawl, offset, bytes) {
        Some(Record::Spilled { entries, .. }) => Ok(entries),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "the block at byte {offset} is damaged: restore the file, or continue without it with \
                 --resume --salvage"
            ),
        )),
    }
}

/// The path of a file in the output directory of a crawl.
pub fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(STATE).join(format!("{QUEUE}{number:08}"))
}
