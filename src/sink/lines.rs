//! The files of one kind of line, such as results: the open one, and when it is closed for the next.
//!
//! A crawl that begins new files gives them numbers, and a complete file its final name as WARC files get theirs: in
//! a crawl with a state after the commit that has all of it, so that it never changes again.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::compression::Compression;
use crate::base::disk::{DiskDone, DiskJob, FileId};
use crate::base::time::Wall;
use crate::sink::commit::FileLength;
use crate::sink::directory::LineFileName;
use crate::sink::durable::DurableFiles;
use crate::sink::warc::CLOSE_TAG;

/// When a file of lines is closed and another begun, and how they are compressed: change the fields of
/// [`Rotation::default`], which does neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rotation {
    /// `RESULTS_SIZE_MAX`: maximum size of a file in bytes. A line is never split over two files, so a longer one
    /// has a file of its own. Of compressed lines, those that are not written yet count uncompressed.
    pub size_max: Option<u64>,
    /// `RESULTS_TIME_MAX`: for how long lines are added to a file, from its first one on.
    pub time_max: Option<Duration>,
    /// `RESULTS_COMPRESSION`: how the files are compressed. Each write is a gzip member or zstd frame.
    pub compression: Option<Compression>,
}

/// Where lines go.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// To files; the path of the first, `results.jsonl`.
    Files(PathBuf),
    /// To standard output, which is one file and not compressed.
    Stdout,
}

/// The files of one kind of line, and lines on their way to them.
#[derive(Debug)]
pub(super) struct LineFiles {
    target: Target,
    rotation: Rotation,
    /// Whether a complete file gets its final name after a commit that has it, and else at once.
    commits: bool,
    /// Id of the first file; the others follow.
    files_from: FileId,
    /// Number of the first file; the others follow.
    first_number: u32,
    /// The first file while it has no number in its name.
    unnumbered: Option<LineFileName>,
    /// Whether the first file got its number since the last epoch began: the commit of that epoch may have it without.
    is_numbered_since: bool,
    /// The compression of the first file: that of an earlier run may be another.
    first_compression: Option<Compression>,
    /// Number of files begun.
    begun: u32,
    open: Option<OpenFile>,
    /// The time of the first line of the open file, or of the next one.
    since: Option<Wall>,
    stage: Stage,
    /// Complete lines that were not handed to the disk yet.
    batch: Vec<u8>,
    /// The numbers of the lines since the last batch was handed over.
    numbers: Range<u64>,
    /// Batches on their way to the disk.
    batches: VecDeque<Batch>,
    durable: DurableFiles,
    /// The length of the file of an earlier run that is continued.
    continued: Option<FileLength>,
    /// The last complete file of earlier runs. Commits list it until another is begun, for its number.
    last: Option<FileLength>,
}

/// The file to which lines are added.
#[derive(Clone, Copy, Debug)]
struct OpenFile {
    id: FileId,
    /// Its size, as far as that is known.
    size: u64,
    /// Bytes on their way to it, before compression.
    in_flight: u64,
}

/// Lines that were handed to the disk together.
#[derive(Debug)]
struct Batch {
    file: FileId,
    numbers: Range<u64>,
}

/// `Fresh → Open → Closing → Closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// No file is begun.
    Fresh,
    /// Lines are accepted.
    Open,
    /// The last file is being synced.
    Closing(FileId),
    /// All is written.
    Closed,
}

/// What became of a batch of lines.
#[derive(Debug)]
pub(super) struct BatchDone {
    /// Their numbers.
    pub(super) numbers: Range<u64>,
    /// Whether they were written.
    pub(super) is_written: bool,
}

impl LineFiles {
    /// Lines to `target`, in files with ids from `files_from` on.
    pub(super) fn new(
        target: Target,
        rotation: Rotation,
        commits: bool,
        files_from: FileId,
    ) -> Self {
        let rotation = match target {
            Target::Files(_) => rotation,
            Target::Stdout => Rotation::default(),
        };
        let is_rotated = rotation.size_max.is_some() || rotation.time_max.is_some();
        let unnumbered = LineFileName::unnumbered(rotation.compression);
        LineFiles {
            target,
            rotation,
            commits,
            files_from,
            first_number: 1,
            unnumbered: (!is_rotated).then_some(unnumbered),
            is_numbered_since: false,
            first_compression: rotation.compression,
            begun: 0,
            open: None,
            since: None,
            stage: Stage::Fresh,
            batch: Vec::new(),
            numbers: 0..0,
            batches: VecDeque::new(),
            durable: DurableFiles::default(),
            continued: None,
            last: None,
        }
    }

    /// A file of an earlier run is in the last commit. Returns false if it is none of this kind.
    pub(super) fn resume(&mut self, file: &FileLength) -> bool {
        let Target::Files(first) = &self.target else {
            return false;
        };
        let Some(name) = LineFileName::of(&file.path, first) else {
            return false;
        };
        match name.number {
            // Another is begun in its place.
            None if file.length == 0 && name.compression != self.rotation.compression => {}
            None => {
                self.continued = Some(file.clone());
                self.unnumbered = Some(name);
                self.first_compression = name.compression;
            }
            Some(number) if number >= self.first_number => {
                self.unnumbered = None;
                let has_lines = file.length > 0;
                self.first_number = number.saturating_add(has_lines.into());
                self.last = Some(file.clone()).filter(|_| has_lines);
            }
            Some(_) => {}
        }
        true
    }

    /// The first file of a crawl that does not begin new ones is there from the beginning; one that has a number is
    /// begun with its first line.
    pub(super) fn begin(&mut self, disk: &mut Vec<DiskJob>) {
        if self.stage != Stage::Fresh {
            return;
        }
        self.stage = Stage::Open;
        if self.unnumbered.is_some() || matches!(self.target, Target::Stdout) {
            self.open_next(disk);
        }
        // An earlier run compressed its lines in another way.
        if self.first_compression != self.rotation.compression {
            self.rotate(disk);
        }
    }

    /// Adds a line, which `write` appends. Lines are numbered in order.
    pub(super) fn add(
        &mut self,
        number: u64,
        now: Wall,
        disk: &mut Vec<DiskJob>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.close_aged(now, disk);
        if self.batch.capacity() == 0 {
            // The batch exceeds its mark by at most one line.
            self.batch.reserve(BATCH_SIZE + LINE_USUAL);
        }
        let before = self.batch.len();
        write(&mut self.batch);
        if self.is_too_long(before) {
            let line = self.batch.split_off(before);
            self.rotate(disk);
            self.batch.extend_from_slice(&line);
        }
        if self.numbers.is_empty() {
            self.numbers.start = number;
        }
        self.numbers.end = number + 1;
        self.since.get_or_insert(now);
    }

    /// Adds what is no numbered line.
    pub(super) fn add_unnumbered(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.batch);
    }

    /// Whether the file exceeds its size with the batch and does not without what follows `before` in it.
    fn is_too_long(&self, before: usize) -> bool {
        let Some(size_max) = self.rotation.size_max else {
            return false;
        };
        let written = self.open.map_or(0, |open| open.size + open.in_flight);
        let is_first = written == 0 && before == 0;
        !is_first && written + self.batch.len() as u64 > size_max
    }

    /// Closes a file that has been written to for long enough.
    pub(super) fn close_aged(&mut self, now: Wall, disk: &mut Vec<DiskJob>) {
        if let (Some(time_max), Some(since)) = (self.rotation.time_max, self.since)
            && now.saturating_since(since) >= time_max
        {
            self.rotate(disk);
        }
    }

    /// Bytes that were not handed to the disk yet.
    pub(super) fn waiting(&self) -> usize {
        self.batch.len()
    }

    /// Whether a batch is on its way to the disk.
    pub(super) fn is_writing(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Hands over a batch that is full.
    pub(super) fn hand_over_full(&mut self, disk: &mut Vec<DiskJob>) {
        if self.batch.len() >= BATCH_SIZE {
            self.hand_over(disk);
        }
    }

    /// Called every second: hands over what has accumulated.
    pub(super) fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        self.hand_over(disk);
    }

    /// Hands the complete lines to the disk.
    pub(super) fn hand_over(&mut self, disk: &mut Vec<DiskJob>) {
        if self.batch.is_empty() {
            return;
        }
        if self.open.is_none() {
            self.open_next(disk);
        }
        let Some(open) = &mut self.open else {
            return;
        };
        let bytes = std::mem::take(&mut self.batch);
        open.in_flight += bytes.len() as u64;
        let file = open.id;
        self.durable.append(file);
        disk.push(match self.rotation.compression {
            Some(compression) => DiskJob::AppendCompressed {
                file,
                bytes,
                compression,
                tag: 0,
            },
            None => DiskJob::Append {
                file,
                bytes,
                gzip: false,
                tag: 0,
            },
        });
        let numbers = self.numbers.clone();
        self.numbers.start = self.numbers.end;
        self.batches.push_back(Batch { file, numbers });
    }

    /// Closes the open file, unless it has no line. The next line begins another. Returns the name that the file
    /// gets.
    pub(super) fn rotate(&mut self, disk: &mut Vec<DiskJob>) -> Option<PathBuf> {
        if self.is_pipe() || self.stage != Stage::Open {
            return None;
        }
        self.hand_over(disk);
        let is_empty = |open: &OpenFile| open.size + open.in_flight == 0;
        let open = self.open.take_if(|open| !is_empty(open))?;
        self.since = None;
        if open.id == self.files_from {
            self.is_numbered_since |= self.unnumbered.take().is_some();
        }
        self.complete(open.id, disk);
        self.final_name(open.id)
    }

    /// No more lines come: closes the last file.
    pub(super) fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        if !matches!(self.stage, Stage::Fresh | Stage::Open) {
            return;
        }
        self.begin(disk);
        self.hand_over(disk);
        let open = self.open.take().filter(|_| !self.is_pipe());
        let Some(OpenFile { id, .. }) = open else {
            self.stage = Stage::Closed;
            return;
        };
        self.stage = Stage::Closing(id);
        match self.is_unnumbered(id) {
            true => {
                self.durable.sync(id);
                disk.push(DiskJob::Sync {
                    file: id,
                    tag: CLOSE_TAG,
                });
                disk.push(DiskJob::Finish {
                    file: id,
                    rename: None,
                });
            }
            false => self.complete(id, disk),
        }
    }

    /// Whether all is written, or cannot be.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Whether a file is about to get its final name.
    pub(super) fn is_renaming(&self) -> bool {
        self.durable.is_renaming()
    }

    /// Handles a finished job of one of the files. Returns what became of a batch, if it is one.
    pub(super) fn disk_done(&mut self, done: &DiskDone, file: FileId) -> Option<BatchDone> {
        match (&done.result, done.tag) {
            (Ok(synced), tag) if tag != 0 => self.durable.handle_synced(file, synced.offset),
            // The only job without bytes and tag that succeeds.
            (result, 0) if done.held == 0 => self.durable.handle_renamed(file, result.is_ok()),
            _ => {}
        }
        if done.tag == CLOSE_TAG && self.stage == Stage::Closing(file) {
            self.stage = Stage::Closed;
        }
        if done.held == 0 {
            return None;
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.id == file) {
            open.in_flight = open.in_flight.saturating_sub(done.held as u64);
            if let Ok(written) = &done.result {
                open.size = open.size.max(written.offset + written.length);
            }
        }
        // Those of each file are done in order.
        let at = self.batches.iter().position(|batch| batch.file == file)?;
        let batch = self.batches.remove(at)?;
        Some(BatchDone {
            numbers: batch.numbers,
            is_written: done.result.is_ok(),
        })
    }

    /// A commit begins.
    pub(super) fn begin_epoch(&mut self) {
        self.is_numbered_since = false;
        self.durable.begin(self.files_from);
    }

    /// All lines of the epoch were added: hands them over, with a sync behind them.
    pub(super) fn end_epoch(&mut self, tag: u64, disk: &mut Vec<DiskJob>) {
        self.hand_over(disk);
        if self.is_pipe() && self.stage != Stage::Open {
            // The sink is done only when all is written.
            return;
        }
        for file in self.durable.files_from(self.files_from) {
            self.durable.add_synced(file, tag, disk);
        }
    }

    /// The files of the epoch and their lengths, once all are durable.
    pub(super) fn lengths(&self) -> Option<Vec<FileLength>> {
        let lengths = self.durable.lengths()?;
        if self.is_pipe() {
            return Some(Vec::new());
        }
        // Without a line yet, the next file is listed as an empty one: its lines are in no other.
        let next = || Some(FileLength::new(self.final_name(self.files_from)?, 0));
        let last = self.last.clone().or_else(next);
        let last = last.filter(|_| lengths.is_empty());
        let own = lengths.into_iter();
        let own =
            own.filter_map(|(file, length)| Some(FileLength::new(self.final_name(file)?, length)));
        Some(own.chain(last).collect())
    }

    /// The epoch is committed: complete files that it has get their final names.
    pub(super) fn committed(&mut self, disk: &mut Vec<DiskJob>) {
        for file in self.durable.end() {
            match self.commits {
                // With the next commit, which has its new name: a crash before that would find a file that is newer
                // than the state.
                true if self.is_numbered_since && file == self.files_from => {
                    self.durable.handle_renamed(file, false);
                }
                true => disk.extend(self.rename(file)),
                // It was renamed when it was complete.
                false => self.durable.handle_renamed(file, true),
            }
        }
    }

    /// Whether a file is one of these.
    pub(super) fn owns(&self, file: FileId) -> bool {
        let index = file.0.checked_sub(self.files_from.0);
        index.is_some_and(|index| index < self.begun)
    }

    /// The path of a file, if it is one of these.
    pub(super) fn path(&self, file: FileId) -> Option<PathBuf> {
        self.owns(file).then(|| self.final_name(file))?
    }

    fn is_pipe(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    fn is_unnumbered(&self, file: FileId) -> bool {
        file == self.files_from && self.unnumbered.is_some()
    }

    /// The path that a file has when it is complete.
    fn final_name(&self, file: FileId) -> Option<PathBuf> {
        match &self.target {
            Target::Stdout => Some(PathBuf::from("standard output")),
            Target::Files(first) => Some(self.name(file).path(first)),
        }
    }

    fn name(&self, file: FileId) -> LineFileName {
        let index = file.0.saturating_sub(self.files_from.0);
        let compression = match index {
            0 => self.first_compression,
            _ => self.rotation.compression,
        };
        match self.unnumbered {
            Some(name) if index == 0 => name,
            _ => LineFileName::numbered(self.first_number.saturating_add(index), compression),
        }
    }

    fn open_next(&mut self, disk: &mut Vec<DiskJob>) {
        let file = FileId(self.files_from.0 + self.begun);
        let mut size = 0;
        match (&self.target, self.continued.take()) {
            (Target::Stdout, _) => {
                disk.push(DiskJob::Stdout { file });
                self.durable.append(file);
            }
            (Target::Files(_), Some(FileLength { path, length })) => {
                disk.push(DiskJob::Open { file, path, length });
                self.durable.resume(file, length);
                size = length;
            }
            (Target::Files(first), None) => {
                let path = self.name(file).open().path(first);
                disk.push(DiskJob::Create { file, path });
                self.durable.append(file);
                if let Some(compression) = self.rotation.compression {
                    // Tools take no bytes for a file that is cut short.
                    let (bytes, tag) = (Vec::new(), 0);
                    disk.push(DiskJob::AppendCompressed {
                        file,
                        bytes,
                        compression,
                        tag,
                    });
                }
            }
        }
        self.begun += 1;
        self.open = Some(OpenFile {
            id: file,
            size,
            in_flight: 0,
        });
    }

    /// A file has its last line: it is synced, and gets its final name.
    fn complete(&mut self, file: FileId, disk: &mut Vec<DiskJob>) {
        disk.push(DiskJob::Sync {
            file,
            tag: CLOSE_TAG,
        });
        self.durable.complete(file);
        if !self.commits {
            disk.extend(self.rename(file));
        }
    }

    fn rename(&self, file: FileId) -> Option<DiskJob> {
        let rename = Some(self.final_name(file)?);
        Some(DiskJob::Finish { file, rename })
    }
}

/// Size at which a batch of lines is handed to the disk; a flush, each second, hands over smaller
/// ones. If both threads share one processor, each switch between them costs the crawl
/// microseconds: with a quarter of this size they switch several times as often.
pub(super) const BATCH_SIZE: usize = 256 << 10;

/// Typical maximum length of a line.
pub(super) const LINE_USUAL: usize = 1024;
