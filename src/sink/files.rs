//! Results to files: result lines, and the WARC records that the lines point into.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::disk::{DiskDone, DiskJob, FileId, Written};
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::decisions;
use crate::sink::page::Page;
use crate::sink::prepared::Prepared;
use crate::sink::results::{RecordPlace, write_from_place, write_place, write_until_place};
use crate::sink::warc::WarcFiles;
pub use crate::sink::warc::WarcOptions;
use crate::sink::{Sink, WriteError, unwritten};
use crate::throttle::decision::Decision;
use crate::wire::warc::Digest;

/// What is written, and where.
#[derive(Clone, Debug)]
pub struct FileSinkOptions {
    /// The output directory, prepared by [`prepare`](crate::sink::directory::prepare).
    pub folder: PathBuf,
    /// Where result lines go.
    pub results: Results,
    /// The name of their file, as seen from `folder`.
    pub results_name: PathBuf,
    /// Decisions about paces go to `throttle.jsonl`; there are some with `AUTOTHROTTLE_DEBUG` only.
    pub decisions: bool,
    /// WARC files, unless `None`.
    pub warc: Option<WarcOptions>,
    /// How many bytes may be on their way to the disk before the sink asks the crawl to wait.
    /// Enough for a hundred pages of the usual size to be compressed while others arrive.
    pub held_max: usize,
    /// File ids from here on are the sink's own; a crawl that writes further files takes lower ones.
    pub files_from: FileId,
}

impl FileSinkOptions {
    /// Result lines to `results.jsonl` in `folder`, and no WARC files.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        FileSinkOptions {
            folder: folder.into(),
            results: Results::File,
            results_name: PathBuf::from("results.jsonl"),
            decisions: false,
            warc: None,
            held_max: 64 << 20,
            files_from: FileId(1 << 16),
        }
    }
}

/// Where result lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// To [`FileSinkOptions::results_name`], `results.jsonl` where nothing else is said.
    File,
    /// To standard output.
    Stdout,
    /// Nowhere.
    None,
}

/// Writes result lines in the order in which attempts finished, and their WARC records.
///
/// A line says where its reply's record lies, so it waits until the disk has written that, and
/// the lines behind it wait with it. What waits counts as held.
#[derive(Debug)]
pub struct FileSink {
    options: FileSinkOptions,
    warc: Option<WarcFiles>,
    /// Large replies that are being made ready to be written, by the number of their attempt.
    preparing: BTreeMap<u64, Prepared>,
    /// Lines that wait for their record or behind one that does. Their numbers follow each other.
    waiting: VecDeque<Line>,
    /// Bytes in `waiting`.
    waiting_size: usize,
    /// The number of the next page; it is also the tag of its reply's record. 0 is nobody's.
    next: u64,
    /// Lines that are ready and not yet handed over.
    batch: Vec<u8>,
    /// The same of decisions.
    decided: Vec<u8>,
    /// Bytes handed to the disk and not yet given back.
    held: usize,
    /// Batches of result lines among them, each by the number of the first line behind it.
    batches: VecDeque<u64>,
    asked: Asked,
    stage: Stage,
    failure: Option<WriteError>,
    /// Lines that could not be written, or whose record could not.
    unwritten: Vec<u8>,
}

/// The requests of lines that are not written yet, where they say more than their lines do.
#[derive(Debug, Default)]
struct Asked {
    /// By the numbers of their lines, which rise.
    waiting: VecDeque<(u64, AskedBy)>,
    /// Those whose lines could not be written, by the numbers of their attempts.
    lost: BTreeMap<u64, Box<Request>>,
    /// Bytes in `waiting`.
    size: usize,
}

/// The request of an attempt.
#[derive(Debug)]
struct AskedBy {
    id: u64,
    request: Box<Request>,
}

/// A result line without the value of `warc`.
#[derive(Debug)]
struct Line {
    number: u64,
    text: Vec<u8>,
    /// Where in `text` the value of `warc` belongs.
    place_at: usize,
    record: LineRecord,
}

/// What a line's `warc` will be.
#[derive(Debug)]
enum LineRecord {
    /// Nothing: there is no record.
    None,
    /// It could not be written, so the line is not written either.
    Lost,
    /// The place that the disk will name, in this file.
    Awaited(Arc<str>),
    /// This place.
    At(Arc<str>, Written),
}

/// `Fresh → Open → Finishing → Syncing → Done`; without a result file to sync `Finishing → Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The result file is not created yet.
    Fresh,
    /// Pages come.
    Open,
    /// No more pages come; lines still wait for their records.
    Finishing,
    /// All lines are handed over; the result file is being synced.
    Syncing,
    /// Everything is handed over.
    Done,
}

impl FileSink {
    /// A sink that has written nothing yet.
    pub fn new(options: FileSinkOptions) -> Self {
        let warc_from = FileId(options.files_from.0 + 2);
        let warc = options.warc.clone();
        FileSink {
            warc: warc.map(|warc| WarcFiles::new(options.folder.clone(), warc, warc_from)),
            preparing: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_size: 0,
            next: 1,
            batch: Vec::new(),
            decided: Vec::new(),
            held: 0,
            batches: VecDeque::new(),
            asked: Asked::default(),
            stage: Stage::Fresh,
            failure: None,
            unwritten: Vec::new(),
            options,
        }
    }

    /// Bytes that the sink keeps in memory: on their way to the disk, or waiting for it.
    pub fn held(&self) -> usize {
        let lines = self.waiting_size + self.batch.len();
        self.held + lines + self.decided.len() + self.asked.size
    }

    fn results_file(&self) -> FileId {
        self.options.files_from
    }

    fn decisions_file(&self) -> FileId {
        FileId(self.options.files_from.0 + 1)
    }

    fn decisions_path(&self) -> PathBuf {
        self.options.folder.join("throttle.jsonl")
    }

    fn results_path(&self) -> PathBuf {
        match self.options.results {
            Results::Stdout => PathBuf::from("standard output"),
            Results::File | Results::None => self.options.folder.join(&self.options.results_name),
        }
    }

    fn open(&mut self, disk: &mut Vec<DiskJob>) {
        if self.stage != Stage::Fresh {
            return;
        }
        self.stage = Stage::Open;
        let file = self.results_file();
        match self.options.results {
            Results::File => disk.push(DiskJob::Create {
                file,
                path: self.results_path(),
            }),
            Results::Stdout => disk.push(DiskJob::Stdout { file }),
            Results::None => {}
        }
        if self.options.decisions {
            disk.push(DiskJob::Create {
                file: self.decisions_file(),
                path: self.decisions_path(),
            });
        }
    }

    fn put_line(
        &mut self,
        number: u64,
        page: &Page,
        digest: Option<Digest>,
        record: Option<Arc<str>>,
    ) {
        if record.is_none() && self.waiting.is_empty() {
            if self.batch.capacity() == 0 {
                // Its end is over the mark by a line at most.
                self.batch.reserve(BATCH_SIZE + LINE_USUAL);
            }
            write_until_place(page, digest, &mut self.batch);
            write_place(None, &mut self.batch);
            write_from_place(page, &mut self.batch);
            return;
        }
        let mut text = Vec::with_capacity(LINE_USUAL);
        write_until_place(page, digest, &mut text);
        let place_at = text.len();
        write_from_place(page, &mut text);
        self.waiting_size += text.len();
        self.waiting.push_back(Line {
            number,
            text,
            place_at,
            record: record.map_or(LineRecord::None, LineRecord::Awaited),
        });
    }

    fn record_done(&mut self, tag: u64, result: &io::Result<Written>) {
        let Some(first) = self.waiting.front() else {
            return;
        };
        let line = tag
            .checked_sub(first.number)
            .and_then(|at| self.waiting.get_mut(at as usize));
        if let Some(line) = line
            && let LineRecord::Awaited(file) = &line.record
        {
            line.record = match result {
                Ok(written) => LineRecord::At(file.clone(), *written),
                Err(_) => LineRecord::Lost,
            };
        }
    }

    /// Moves the lines that wait no more to the batch.
    fn settle(&mut self) {
        while let Some(line) = self.waiting.front() {
            let place = match &line.record {
                LineRecord::Awaited(_) => break,
                LineRecord::None | LineRecord::Lost => None,
                LineRecord::At(file, written) => Some(RecordPlace {
                    file,
                    offset: written.offset,
                    length: written.length,
                }),
            };
            let (before, after) = line.text.split_at(line.place_at);
            let lines = match &line.record {
                LineRecord::Lost => {
                    self.asked.lose(line.number);
                    &mut self.unwritten
                }
                _ => &mut self.batch,
            };
            lines.extend_from_slice(before);
            write_place(place, lines);
            lines.extend_from_slice(after);
            self.waiting_size -= line.text.len();
            self.waiting.pop_front();
        }
    }

    fn hand_over_batch(&mut self, disk: &mut Vec<DiskJob>) {
        if !self.batch.is_empty() {
            self.batches
                .push_back(self.next - self.waiting.len() as u64);
        }
        hand_over(self.results_file(), &mut self.batch, disk);
    }

    /// Does what has become due: a full batch, a line that somebody may wait for, the end.
    fn advance(&mut self, disk: &mut Vec<DiskJob>) {
        self.settle();
        // Whoever reads a pipe may wait for this line before he says more. Others gather while it
        // is being written, so that a busy crawl still writes batches.
        let awaited = self.options.results == Results::Stdout && self.batches.is_empty();
        if awaited || self.batch.len() >= BATCH_SIZE {
            self.hand_over_batch(disk);
        }
        if self.stage == Stage::Finishing && self.waiting.is_empty() {
            self.hand_over_batch(disk);
            let file = self.results_file();
            self.stage = match self.options.results {
                Results::File => {
                    disk.push(DiskJob::Sync {
                        file,
                        tag: SYNC_TAG,
                    });
                    disk.push(DiskJob::Finish { file, rename: None });
                    Stage::Syncing
                }
                Results::Stdout | Results::None => Stage::Done,
            };
        }
    }

    /// Accounts for the jobs pushed since `disk` was `before` long.
    fn account(&mut self, before: usize, disk: &[DiskJob]) {
        self.held += disk[before..].iter().map(DiskJob::held).sum::<usize>();
    }

    /// The file's path, if it is ours.
    fn path(&self, file: FileId) -> Option<PathBuf> {
        if file == self.results_file() {
            return Some(self.results_path());
        }
        if file == self.decisions_file() {
            return Some(self.decisions_path());
        }
        self.warc.as_ref()?.path(file)
    }
}

impl Sink for FileSink {
    fn keeps_codings(&self) -> bool {
        self.options.warc.is_some()
    }

    fn prepare(&mut self, page: &Page, units: &mut u64) -> bool {
        let has_record = self.warc.is_some();
        let is_wanted = has_record || self.options.results != Results::None;
        if !is_wanted || page.response_bytes.is_empty() {
            return true;
        }
        if self.preparing.is_empty() || !self.preparing.contains_key(&page.id) {
            // Most replies cost less than is left, and are written as they are.
            let cost = page.response_bytes.len() as u64 * if has_record { 2 } else { 1 };
            if cost <= *units && page.response_bytes.len() <= WRITTEN_AT_ONCE {
                *units -= cost;
                return true;
            }
            let head = self.warc.as_ref().map(|warc| warc.head_length(page));
            self.preparing.insert(page.id, Prepared::new(page, head));
        }
        let prepared = self.preparing.get_mut(&page.id);
        prepared.is_none_or(|prepared| prepared.step(page, units))
    }

    fn asked_by(&mut self, id: u64, request: &dyn Fn() -> Request) {
        if self.options.results != Results::None {
            let request = Box::new(request());
            self.asked.add(self.next, AskedBy { id, request });
        }
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        let number = self.next;
        self.next += 1;
        let prepared = match self.preparing.is_empty() {
            true => None,
            false => self.preparing.remove(&page.id),
        };
        let (digest, reply) = match prepared {
            Some(prepared) => prepared.finish(),
            None => (page.digest(), None),
        };
        let warc = self.warc.as_mut();
        let record = warc.and_then(|warc| warc.put(page, digest, reply, number, disk));
        if self.options.results != Results::None {
            self.put_line(number, page, digest, record);
        }
        self.advance(disk);
        self.account(before, disk);
    }

    fn decision(&mut self, decision: &Decision, at: Wall, disk: &mut Vec<DiskJob>) {
        let more = matches!(self.stage, Stage::Fresh | Stage::Open);
        if !more || !self.options.decisions {
            return;
        }
        let before = disk.len();
        self.open(disk);
        decisions::write_line(decision, at, &mut self.decided);
        if self.decided.len() >= BATCH_SIZE {
            hand_over(self.decisions_file(), &mut self.decided, disk);
        }
        self.account(before, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        let Some((file, path)) = done.file.and_then(|file| Some((file, self.path(file)?))) else {
            return;
        };
        let before = disk.len();
        self.held = self.held.saturating_sub(done.held);
        if let Err(error) = &done.result
            && self.failure.is_none()
        {
            let cause = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            self.failure = Some(WriteError { path, cause });
        }
        if file == self.results_file() {
            match done.tag {
                SYNC_TAG => self.stage = Stage::Done,
                // Of a file that could not be created or closed.
                _ if done.held == 0 => {}
                _ => {
                    if let Some(end) = self.batches.pop_front() {
                        self.asked.end(end, done.result.is_ok());
                    }
                    self.unwritten.extend_from_slice(&done.unwritten);
                }
            }
        } else if file != self.decisions_file() {
            if let Some(warc) = &mut self.warc {
                warc.disk_done(done);
            }
            self.record_done(done.tag, &done.result);
        }
        self.advance(disk);
        self.account(before, disk);
    }

    fn is_ready(&self) -> bool {
        self.held() <= self.options.held_max
    }

    fn flush(&mut self, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        self.hand_over_batch(disk);
        hand_over(self.decisions_file(), &mut self.decided, disk);
        self.account(before, disk);
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        if let Some(warc) = &mut self.warc {
            warc.finish(disk);
        }
        if self.stage == Stage::Open {
            self.stage = Stage::Finishing;
            if self.options.decisions {
                let file = self.decisions_file();
                hand_over(file, &mut self.decided, disk);
                disk.push(DiskJob::Finish { file, rename: None });
            }
        }
        self.advance(disk);
        self.account(before, disk);
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Done && self.held == 0
    }

    fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        let known = std::mem::take(&mut self.asked.lost);
        unwritten::requests(&std::mem::take(&mut self.unwritten), known)
    }
}

impl Asked {
    fn add(&mut self, number: u64, asked: AskedBy) {
        self.size += asked.size();
        self.waiting.push_back((number, asked));
    }

    /// The line of this number cannot be written.
    fn lose(&mut self, number: u64) {
        if let Ok(at) = self
            .waiting
            .binary_search_by_key(&number, |(line, _)| *line)
            && let Some((_, asked)) = self.waiting.remove(at)
        {
            self.size -= asked.size();
            self.lost.insert(asked.id, asked.request);
        }
    }

    /// The lines below this number are written, or cannot be.
    fn end(&mut self, number: u64, is_written: bool) {
        let count = self.waiting.partition_point(|(line, _)| *line < number);
        for (_, asked) in self.waiting.drain(..count) {
            self.size -= asked.size();
            if !is_written {
                self.lost.insert(asked.id, asked.request);
            }
        }
    }
}

impl AskedBy {
    /// Bytes of memory, about.
    fn size(&self) -> usize {
        let request = &*self.request;
        let fields = request.headers.iter();
        let fields = fields.map(|(name, value)| name.len() + value.len());
        let meta = request.meta.as_ref().map_or(0, |meta| meta.get().len());
        let scopes = request.scopes.iter().flatten().map(String::len);
        size_of::<(u64, AskedBy)>()
            + size_of::<Request>()
            + request.url.len()
            + request.body.len()
            + meta
            + fields.sum::<usize>()
            + scopes.sum::<usize>()
    }
}

/// Gives the lines that are ready to the disk.
fn hand_over(file: FileId, lines: &mut Vec<u8>, disk: &mut Vec<DiskJob>) {
    if !lines.is_empty() {
        disk.push(DiskJob::Append {
            file,
            bytes: std::mem::take(lines),
            gzip: false,
            tag: 0,
        });
    }
}

/// A batch of lines goes to the disk when it is this long, or when it is flushed, each second. Where
/// one processor serves both threads, each change between them costs the crawl microseconds: with
/// quarters of this they change places several times as often.
const BATCH_SIZE: usize = 256 << 10;

/// Replies up to this are digested and copied at once.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Most lines are shorter.
const LINE_USUAL: usize = 1024;

/// The tag of the job that syncs the result file. Pages are numbered from 1.
const SYNC_TAG: u64 = u64::MAX;

#[cfg(test)]
mod tests;
