//! Writes results to files: result lines, and the WARC records that they refer to.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::disk::{DiskDone, DiskJob, FileId, Written};
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::decisions;
use crate::sink::directory::STDOUT;
use crate::sink::durable::DurableFiles;
use crate::sink::page::Page;
use crate::sink::prepared::{Prepared, PreparedReply, Room};
pub use crate::sink::results::{RecordPlace, write_line};
use crate::sink::results::{write_from_place, write_place, write_resumed_after, write_until_place};
pub use crate::sink::warc::WarcOptions;
use crate::sink::warc::{CLOSE_TAG, WarcFiles, serial_of};
use crate::sink::{DiskSink, Preparation, WriteError, unwritten};
use crate::throttle::decision::Decision;
use crate::wire::warc::Digest;

/// The outputs and their paths: change the fields of [`FileSinkOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileSinkOptions {
    /// The output directory, prepared by [`prepare`](crate::sink::directory::prepare).
    pub folder: PathBuf,
    /// Destination of result lines.
    pub results: Results,
    /// Name of their file, relative to `folder`.
    pub results_name: PathBuf,
    /// Whether decisions about paces are written to `throttle.jsonl`; they exist only with
    /// `AUTOTHROTTLE_DEBUG`.
    pub decisions: bool,
    /// WARC files, if any.
    pub warc: Option<WarcOptions>,
    /// Whether the crawl has a state on disk, from which it can be resumed: a full WARC file then gets its
    /// final name only after a commit that covers it, and else when it is full; and lines on standard output
    /// have sequence numbers.
    pub commits: bool,
    /// Maximum bytes waiting for the disk before the sink asks the crawl to wait. Enough to
    /// compress a hundred pages of the usual size while others arrive.
    pub held_max: usize,
    /// File ids from this one on belong to the sink; a crawl that writes other files uses lower
    /// ones.
    pub files_from: FileId,
}

impl FileSinkOptions {
    /// Result lines to `results.jsonl` in `folder`, without WARC files.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        FileSinkOptions {
            folder: folder.into(),
            results: Results::File,
            results_name: PathBuf::from("results.jsonl"),
            decisions: false,
            warc: None,
            commits: false,
            held_max: 64 << 20,
            files_from: FileId(1 << 16),
        }
    }
}

/// Destination of result lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results {
    /// To [`FileSinkOptions::results_name`], `results.jsonl` by default.
    File,
    /// To standard output, which cannot be cut. With [`FileSinkOptions::commits`] each line has a number,
    /// `seq`, from 1 on. A crawl that is resumed first writes the line `{"resumed_after": SEQ}`: its reader
    /// drops earlier lines with a greater number. The commit has this number as the length of a file `-` in
    /// `folder`.
    Stdout,
    /// Nowhere.
    None,
}

/// Writes result lines in the order in which attempts finished, and their WARC records.
///
/// A line contains the position of its reply's record, so it waits until the disk has written the
/// record, and later lines wait as well. Waiting lines count as held.
///
/// Each commit lists the length of each file whose final length was in none before, and the last WARC file.
/// To resume a crawl, first [`directory::resume`](crate::sink::directory::resume) cuts the files to the
/// commit; [`DiskSink::resumed`] then continues at these lengths, and with the next serial number.
#[derive(Debug)]
pub struct FileSink {
    options: FileSinkOptions,
    warc: Option<WarcFiles>,
    /// What was prepared of the page that is put next, with its number.
    prepared: Option<(u64, Box<Prepared>)>,
    /// Lines that wait for their record or for an earlier line. Their numbers are consecutive.
    waiting: VecDeque<Line>,
    /// Bytes in `waiting`.
    waiting_size: usize,
    /// Number of the next page, also the tag of its reply's record. 0 is unused.
    next: u64,
    /// Complete lines that were not handed to the disk yet.
    batch: Vec<u8>,
    /// The same for decisions.
    decision_batch: Vec<u8>,
    /// Bytes handed to the disk and not reported back yet.
    held: usize,
    /// Batches of result lines on their way to the disk, each by the number of the line after it.
    batches: VecDeque<u64>,
    pending_requests: PendingRequests,
    stage: Stage,
    failure: Option<WriteError>,
    /// Lines that could not be written, or whose record could not.
    unwritten: Vec<u8>,
    /// The epoch that is being committed.
    epoch_end: Option<EpochEnd>,
    durable: DurableFiles,
    resumed: Resumed,
}

/// The files of an earlier run of the crawl.
#[derive(Debug, Default)]
struct Resumed {
    /// Length of the result lines.
    results: Option<u64>,
    /// Number of committed lines on standard output.
    sequence: u64,
    /// Length of the decisions.
    decisions: Option<u64>,
    /// The last WARC file. Commits list it until another is begun, for its serial number.
    warc: Option<FileLength>,
    /// Files to which this run adds nothing.
    others: Vec<FileLength>,
}

/// The end of an epoch, until it is committed.
#[derive(Debug)]
struct EpochEnd {
    epoch: Epoch,
    /// The first line of the next epoch. Earlier ones may still wait for their records.
    line: u64,
    /// Whether all of its lines, and a sync behind them, were handed to the disk.
    is_handed_over: bool,
}

/// The requests of unwritten lines, if they contain more than their lines.
#[derive(Debug, Default)]
struct PendingRequests {
    /// By line number, ascending.
    waiting: VecDeque<(u64, PendingRequest)>,
    /// Requests whose lines could not be written, by attempt number.
    lost: BTreeMap<u64, Box<Request>>,
    /// Bytes in `waiting`.
    size: usize,
}

/// The request of an attempt.
#[derive(Debug)]
struct PendingRequest {
    id: u64,
    request: Box<Request>,
}

/// A result line without the value of `warc`.
#[derive(Debug)]
struct Line {
    number: u64,
    text: Vec<u8>,
    /// Offset in `text` at which the value of `warc` is inserted.
    insert_at: usize,
    record: LineRecord,
}

/// The state of a line's `warc`.
#[derive(Debug)]
enum LineRecord {
    /// There is no record.
    None,
    /// The record could not be written, so the line is not written either.
    Lost,
    /// The position is not known yet; the record is in this file.
    Awaited(Arc<str>),
    /// The record is at this position.
    At(Arc<str>, Written),
}

/// `Fresh → Open → Finishing → Syncing → Done`; without a result file to sync `Finishing → Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The result file is not created yet.
    Fresh,
    /// Pages are accepted.
    Open,
    /// No more pages are accepted; lines still wait for their records.
    Finishing,
    /// All lines were handed to the disk; the result file is being synced.
    Syncing,
    /// Everything is written.
    Done,
}

impl FileSink {
    /// A new sink.
    pub fn new(options: FileSinkOptions) -> Self {
        let warc_from = FileId(options.files_from.0 + WARC_OFFSET);
        let warc = options.warc.clone();
        let new = |warc| WarcFiles::new(options.folder.clone(), warc, warc_from, options.commits);
        FileSink {
            warc: warc.map(new),
            prepared: None,
            waiting: VecDeque::new(),
            waiting_size: 0,
            next: 1,
            batch: Vec::new(),
            decision_batch: Vec::new(),
            held: 0,
            batches: VecDeque::new(),
            pending_requests: PendingRequests::default(),
            stage: Stage::Fresh,
            failure: None,
            unwritten: Vec::new(),
            epoch_end: None,
            durable: DurableFiles::default(),
            resumed: Resumed::default(),
            options,
        }
    }

    /// Bytes in memory: on their way to the disk, or waiting for it.
    pub fn held(&self) -> usize {
        let lines = self.waiting_size + self.batch.len();
        self.held + lines + self.decision_batch.len() + self.pending_requests.size
    }

    fn results_file(&self) -> FileId {
        self.options.files_from
    }

    fn decisions_file(&self) -> FileId {
        FileId(self.options.files_from.0 + 1)
    }

    fn first_warc_file(&self) -> FileId {
        FileId(self.options.files_from.0 + WARC_OFFSET)
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
            Results::File => {
                self.open_lines(file, self.results_path(), self.resumed.results, disk);
            }
            Results::Stdout => {
                disk.push(DiskJob::Stdout { file });
                self.durable.append(file);
            }
            Results::None => {}
        }
        if self.options.decisions {
            let (file, path) = (self.decisions_file(), self.decisions_path());
            self.open_lines(file, path, self.resumed.decisions, disk);
        }
    }

    /// Creates a file of lines, or continues it at this length.
    fn open_lines(
        &mut self,
        file: FileId,
        path: PathBuf,
        length: Option<u64>,
        disk: &mut Vec<DiskJob>,
    ) {
        match length {
            Some(length) => {
                disk.push(DiskJob::Open { file, path, length });
                self.durable.resume(file, length);
            }
            None => {
                disk.push(DiskJob::Create { file, path });
                self.durable.append(file);
            }
        }
    }

    /// Writes a page's records; returns the name of their file if the page has a reply.
    fn put_records(
        &mut self,
        page: &Page,
        digest: Option<Digest>,
        reply: (Option<PreparedReply>, Option<Room>),
        number: u64,
        disk: &mut Vec<DiskJob>,
    ) -> Option<Arc<str>> {
        let warc = self.warc.as_mut()?;
        let (before, jobs) = (warc.open_file(), disk.len());
        let record = warc.put(page, digest, reply, number, disk);
        if disk.len() > jobs {
            let now = warc.open_file();
            if let Some(full) = before.filter(|_| before != now) {
                self.durable.complete(full);
            }
            now.into_iter().for_each(|file| self.durable.append(file));
        }
        record
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
                // The batch exceeds its mark by at most one line.
                self.batch.reserve(BATCH_SIZE + LINE_USUAL);
            }
            write_until_place(page, digest, &mut self.batch);
            write_place(None, &mut self.batch);
            write_from_place(page, self.sequence(number), &mut self.batch);
            return;
        }
        let mut text = Vec::with_capacity(LINE_USUAL);
        write_until_place(page, digest, &mut text);
        let insert_at = text.len();
        write_from_place(page, self.sequence(number), &mut text);
        self.waiting_size += text.len();
        self.waiting.push_back(Line {
            number,
            text,
            insert_at,
            record: record.map_or(LineRecord::None, LineRecord::Awaited),
        });
    }

    /// The number on standard output of the line with this number, if lines have one.
    fn sequence(&self, number: u64) -> Option<u64> {
        self.is_numbered().then(|| self.resumed.sequence + number)
    }

    /// Whether lines go to standard output, and a crawl that is resumed names the last that counts.
    fn is_numbered(&self) -> bool {
        self.options.commits && self.options.results == Results::Stdout
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

    /// Moves completed lines below this number to the batch.
    fn settle(&mut self, end: u64) {
        while let Some(line) = self.waiting.front()
            && line.number < end
        {
            let place = match &line.record {
                LineRecord::Awaited(_) => break,
                LineRecord::None | LineRecord::Lost => None,
                LineRecord::At(file, written) => Some(RecordPlace {
                    file,
                    offset: written.offset,
                    length: written.length,
                }),
            };
            let (before, after) = line.text.split_at(line.insert_at);
            let lines = match &line.record {
                LineRecord::Lost => {
                    self.pending_requests.mark_lost(line.number);
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
        let file = self.results_file();
        hand_over(file, &mut self.batch, &mut self.durable, disk);
    }

    fn hand_over_decisions(&mut self, disk: &mut Vec<DiskJob>) {
        let file = self.decisions_file();
        hand_over(file, &mut self.decision_batch, &mut self.durable, disk);
    }

    /// Syncs a file of lines, and closes it.
    fn close_lines(&mut self, file: FileId, disk: &mut Vec<DiskJob>) {
        self.durable.sync(file);
        disk.push(DiskJob::Sync {
            file,
            tag: CLOSE_TAG,
        });
        disk.push(DiskJob::Finish { file, rename: None });
    }

    /// The lines below this number may enter the batch.
    fn batched_until(&self) -> u64 {
        let end = self.epoch_end.as_ref().filter(|end| !end.is_handed_over);
        end.map_or(u64::MAX, |end| end.line)
    }

    /// Hands the last lines of the epoch to the disk, with a sync behind them, once none of them waits for
    /// its record. Lines of the next epoch follow.
    fn hand_over_epoch(&mut self, disk: &mut Vec<DiskJob>) {
        let until = self.batched_until();
        self.settle(until);
        let waits = self.waiting.front().is_some_and(|line| line.number < until);
        if waits || until == u64::MAX {
            return;
        }
        self.hand_over_batch(disk);
        let file = self.results_file();
        match (self.options.results, self.stage) {
            (Results::None, _) => {}
            (_, Stage::Open) => self.durable.add_synced(file, EPOCH_TAG, disk),
            (Results::File, _) => self.durable.add(file),
            // The sink is done only when all is written.
            (Results::Stdout, _) => {}
        }
        if let Some(end) = &mut self.epoch_end {
            end.is_handed_over = true;
        }
    }

    /// Handles whatever is due: a full batch, a line for a waiting reader, the end.
    fn advance(&mut self, disk: &mut Vec<DiskJob>) {
        if self.epoch_end.is_some() {
            self.hand_over_epoch(disk);
        }
        self.settle(self.batched_until());
        // The reader of a pipe may wait for this line before it continues. Other lines accumulate
        // while it is being written, so that a busy crawl still writes batches.
        let awaited = self.options.results == Results::Stdout && self.batches.is_empty();
        if awaited || self.batch.len() >= BATCH_SIZE {
            self.hand_over_batch(disk);
        }
        if self.stage == Stage::Finishing && self.waiting.is_empty() {
            self.hand_over_batch(disk);
            let file = self.results_file();
            self.stage = match self.options.results {
                Results::File => {
                    self.close_lines(file, disk);
                    Stage::Syncing
                }
                Results::Stdout | Results::None => Stage::Done,
            };
        }
    }

    /// Counts the bytes of the jobs added since `disk` had `before` entries.
    fn account(&mut self, before: usize, disk: &[DiskJob]) {
        self.held += disk[before..].iter().map(DiskJob::held).sum::<usize>();
    }

    /// The file's path, if it is one of this sink.
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

impl DiskSink for FileSink {
    fn keeps_codings(&self) -> bool {
        self.options.warc.is_some()
    }

    fn preparation(&mut self, page: &Page, units: &mut u64) -> Option<Box<dyn Preparation>> {
        let has_record = self.warc.is_some();
        let is_wanted = has_record || self.options.results != Results::None;
        if !is_wanted || page.response_bytes.is_empty() {
            return None;
        }
        // Most replies cost less than what is left, and are written directly.
        let cost = page.response_bytes.len() as u64 * if has_record { 2 } else { 1 };
        if cost <= *units && page.response_bytes.len() <= WRITTEN_AT_ONCE {
            *units -= cost;
            return None;
        }
        let place = self.warc.as_mut().and_then(|warc| warc.reserve(page));
        Some(Box::new(Prepared::new(page, has_record, place)))
    }

    fn prepared_page(&mut self, id: u64, prepared: Box<dyn Preparation>) {
        let prepared: Box<dyn Any> = prepared;
        self.prepared = prepared.downcast().ok().map(|prepared| (id, prepared));
    }

    fn on_request(&mut self, id: u64, request: &dyn Fn() -> Request) {
        if self.options.results != Results::None {
            let request = Box::new(request());
            self.pending_requests
                .add(self.next, PendingRequest { id, request });
        }
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        let number = self.next;
        self.next += 1;
        let prepared = self.prepared.take().filter(|(id, _)| *id == page.id);
        let (digest, reply, room) = match prepared {
            Some((_, prepared)) => prepared.finish(),
            None => (page.digest(), None, None),
        };
        let record = self.put_records(page, digest, (reply, room), number, disk);
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
        decisions::write_line(decision, at, &mut self.decision_batch);
        if self.decision_batch.len() >= BATCH_SIZE {
            self.hand_over_decisions(disk);
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
            self.failure = Some(WriteError::new(path, error));
        }
        match (&done.result, done.tag) {
            (Ok(synced), CLOSE_TAG | EPOCH_TAG) => {
                self.durable.handle_synced(file, synced.offset);
            }
            // The only job without bytes and tag that succeeds.
            (result, 0) if done.held == 0 => self.durable.handle_renamed(file, result.is_ok()),
            _ => {}
        }
        if file == self.results_file() {
            match done.tag {
                CLOSE_TAG => self.stage = Stage::Done,
                // A sync for a commit, or a file that could not be created or closed.
                _ if done.held == 0 => {}
                _ => {
                    if let Some(end) = self.batches.pop_front() {
                        self.pending_requests.end(end, done.result.is_ok());
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
        self.hand_over_decisions(disk);
        self.account(before, disk);
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        if let Some(warc) = &mut self.warc
            && let Some(open) = warc.open_file()
        {
            warc.finish(disk);
            self.durable.complete(open);
        }
        if self.stage == Stage::Open {
            self.stage = Stage::Finishing;
            if self.options.decisions {
                self.hand_over_decisions(disk);
                self.close_lines(self.decisions_file(), disk);
            }
        }
        self.advance(disk);
        self.account(before, disk);
    }

    fn is_done(&self) -> bool {
        self.stage == Stage::Done && self.held == 0 && !self.durable.is_renaming()
    }

    fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    fn prepare(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        let first_warc = self.first_warc_file();
        self.durable.begin(first_warc);
        if self.options.decisions {
            self.hand_over_decisions(disk);
            self.durable
                .add_synced(self.decisions_file(), EPOCH_TAG, disk);
        }
        for file in self.durable.files_from(first_warc) {
            self.durable.add_synced(file, EPOCH_TAG, disk);
        }
        self.epoch_end = Some(EpochEnd {
            epoch,
            line: self.next,
            is_handed_over: false,
        });
        self.advance(disk);
        self.account(before, disk);
    }

    fn prepared(&self, epoch: Epoch) -> Option<Vec<FileLength>> {
        let end = self.epoch_end.as_ref()?;
        let is_written = self.stage == Stage::Open || self.is_done();
        let is_over = end.epoch == epoch && end.is_handed_over && is_written;
        if !is_over || self.failure.is_some() {
            return None;
        }
        let lengths = self.durable.lengths()?;
        let has_warc = lengths
            .iter()
            .any(|(file, _)| *file >= self.first_warc_file());
        let is_pipe = |file| file == self.results_file() && self.options.results == Results::Stdout;
        let files = lengths.into_iter().filter(|(file, _)| !is_pipe(*file));
        let files =
            files.filter_map(|(file, length)| Some(FileLength::new(self.path(file)?, length)));
        let lines = self.sequence(end.line - 1);
        let lines = lines.map(|lines| FileLength::new(self.options.folder.join(STDOUT), lines));
        let last_warc = self.resumed.warc.iter().filter(|_| !has_warc);
        let earlier = self.resumed.others.iter().chain(last_warc).cloned();
        Some(files.chain(lines).chain(earlier).collect())
    }

    fn committed(&mut self, _epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.epoch_end = None;
        for file in self.durable.end() {
            match &self.warc {
                Some(warc) if self.options.commits => disk.push(warc.rename(file)),
                // It was renamed when it was full.
                _ => self.durable.handle_renamed(file, true),
            }
        }
    }

    fn resumed(&mut self, last: Option<&Commit>, _disk: &mut Vec<DiskJob>) {
        let files = last.into_iter().flat_map(|commit| &commit.files);
        let (results, decisions) = (self.results_path(), self.decisions_path());
        let stdout = self.options.folder.join(STDOUT);
        let mut last_serial = 0;
        for file in files {
            if file.path == results && self.options.results == Results::File {
                self.resumed.results = Some(file.length);
            } else if file.path == stdout && self.is_numbered() {
                self.resumed.sequence = file.length;
            } else if file.path == decisions && self.options.decisions {
                self.resumed.decisions = Some(file.length);
            } else if let Some(serial) = serial_of(&self.options.folder, &file.path) {
                if let Some(warc) = &mut self.warc {
                    warc.resume_after(serial);
                }
                if self.resumed.warc.is_none() || serial >= last_serial {
                    last_serial = serial;
                    self.resumed.warc = Some(file.clone());
                }
            } else if [&results, &decisions, &stdout].contains(&&file.path) {
                self.resumed.others.push(file.clone());
            }
        }
        if self.is_numbered() {
            write_resumed_after(self.resumed.sequence, &mut self.batch);
        }
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        let known = std::mem::take(&mut self.pending_requests.lost);
        unwritten::requests(&std::mem::take(&mut self.unwritten), known)
    }
}

impl PendingRequests {
    fn add(&mut self, number: u64, pending: PendingRequest) {
        self.size += pending.size();
        self.waiting.push_back((number, pending));
    }

    /// The line with this number cannot be written.
    fn mark_lost(&mut self, number: u64) {
        if let Ok(at) = self
            .waiting
            .binary_search_by_key(&number, |(line, _)| *line)
            && let Some((_, pending)) = self.waiting.remove(at)
        {
            self.size -= pending.size();
            self.lost.insert(pending.id, pending.request);
        }
    }

    /// The lines below this number were written, or cannot be.
    fn end(&mut self, number: u64, is_written: bool) {
        let count = self.waiting.partition_point(|(line, _)| *line < number);
        for (_, pending) in self.waiting.drain(..count) {
            self.size -= pending.size();
            if !is_written {
                self.lost.insert(pending.id, pending.request);
            }
        }
    }
}

impl PendingRequest {
    /// Approximate memory in bytes.
    fn size(&self) -> usize {
        let request = &*self.request;
        let fields = request.headers.iter();
        let fields = fields.map(|(name, value)| name.len() + value.len());
        let meta = request.meta.as_ref().map_or(0, |meta| meta.get().len());
        let scopes = request.scopes.iter().flatten().map(String::len);
        size_of::<(u64, PendingRequest)>()
            + size_of::<Request>()
            + request.url.len()
            + request.body.len()
            + meta
            + fields.sum::<usize>()
            + scopes.sum::<usize>()
    }
}

/// Hands the complete lines to the disk.
fn hand_over(
    file: FileId,
    lines: &mut Vec<u8>,
    durable: &mut DurableFiles,
    disk: &mut Vec<DiskJob>,
) {
    if !lines.is_empty() {
        durable.append(file);
        disk.push(DiskJob::Append {
            file,
            bytes: std::mem::take(lines),
            gzip: false,
            tag: 0,
        });
    }
}

/// Size at which a batch of lines is handed to the disk; a flush, each second, hands over smaller
/// ones. If both threads share one processor, each switch between them costs the crawl
/// microseconds: with a quarter of this size they switch several times as often.
const BATCH_SIZE: usize = 256 << 10;

/// Replies up to this size are digested and copied in one step.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Typical maximum length of a line.
const LINE_USUAL: usize = 1024;

/// Tag of the jobs that sync the open files for a commit. Pages are numbered from 1.
const EPOCH_TAG: u64 = CLOSE_TAG - 1;

/// The WARC files' ids begin here, after those of result lines and decisions.
const WARC_OFFSET: u32 = 2;

#[cfg(test)]
mod tests;
