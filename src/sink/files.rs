//! Writes results to files: result lines, and the WARC records that they refer to.

mod options;
mod pending;

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub use self::options::{FileSinkOptions, Results};
use self::pending::PendingRequests;
pub use crate::base::compression::Compression;
use crate::base::disk::{DiskDone, DiskJob, FileId, Written};
use crate::base::time::Wall;
use crate::frontier::request::Request;
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::decisions;
use crate::sink::directory::{DECISIONS, FILTERED, LINKS, LineFileName, ROBOTS, SERIES, STDOUT};
use crate::sink::durable::DurableFiles;
use crate::sink::indexes::Indexes;
pub use crate::sink::lines::Rotation;
use crate::sink::lines::{LINE_USUAL, LineFiles, Target};
use crate::sink::page::Page;
use crate::sink::prepared::{Prepared, PreparedReply, Room};
pub use crate::sink::results::{RecordPlace, write_line};
use crate::sink::results::{write_from_place, write_place, write_resumed_after, write_until_place};
use crate::sink::robots::RobotsArchive;
pub use crate::sink::warc::WarcOptions;
use crate::sink::warc::{CLOSE_TAG, WarcFiles, serial_of};
use crate::sink::{DiskSink, Preparation, WriteError, unwritten};
use crate::throttle::decision::Decision;
use crate::wire::warc::Digest;

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
    results: Option<LineFiles>,
    decisions: Option<LineFiles>,
    robots: Option<LineFiles>,
    links: Option<LineFiles>,
    filtered: Option<LineFiles>,
    archive: RobotsArchive,
    warc: Option<WarcFiles>,
    /// What was prepared of the page that is put next, with its number.
    prepared: Option<(u64, Box<Prepared>)>,
    /// Lines that wait for their record or for an earlier line. Their numbers are consecutive.
    waiting: VecDeque<Line>,
    /// Bytes in `waiting`.
    waiting_size: usize,
    /// Number of the next page, also the tag of its reply's record. 0 is unused.
    next: u64,
    /// Bytes handed to the disk and not reported back yet.
    held: usize,
    pending_requests: PendingRequests,
    stage: Stage,
    failure: Option<WriteError>,
    /// Lines that could not be written, or whose record could not.
    unwritten: Vec<u8>,
    /// The epoch that is being committed.
    epoch_end: Option<EpochEnd>,
    /// The WARC files.
    durable: DurableFiles,
    /// Of WARC files; `None`: none are made.
    indexes: Option<Indexes>,
    resumed: Resumed,
}

/// The files of an earlier run of the crawl.
#[derive(Debug, Default)]
struct Resumed {
    /// Number of committed lines on standard output.
    sequence: u64,
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

/// A result line without the value of `warc`.
#[derive(Debug)]
struct Line {
    number: u64,
    /// When its attempt ended.
    at: Wall,
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

/// `Fresh → Open → Finishing → Closing → Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The result file is not created yet.
    Fresh,
    /// Pages are accepted.
    Open,
    /// No more pages are accepted; lines still wait for their records.
    Finishing,
    /// All lines were handed to the disk; the result file is being closed.
    Closing,
    /// Everything is written.
    Done,
}

impl FileSink {
    /// A new sink.
    pub fn new(options: FileSinkOptions) -> Self {
        let warc_from = FileId(options.files_from.0 + WARC_OFFSET);
        let warc = options.warc.clone();
        let new = |warc| WarcFiles::new(options.folder.clone(), warc, warc_from, options.commits);
        let lines = |target, rotation, offset| {
            let files_from = FileId(options.files_from.0 + offset);
            LineFiles::new(target, rotation, options.commits, files_from)
        };
        let results = match options.results {
            Results::File => Some(Target::Files(options.folder.join(&options.results_name))),
            Results::Stdout => Some(Target::Stdout),
            Results::None => None,
        };
        let decisions = Target::Files(options.folder.join(DECISIONS));
        let robots = Target::Files(options.folder.join(ROBOTS));
        let links = Target::Files(options.folder.join(LINKS));
        let filtered = Target::Files(options.folder.join(FILTERED));
        let has_indexes = options.warc.as_ref().is_some_and(|warc| warc.cdxj);
        let indexes_from = FileId(options.files_from.0 + INDEXES_OFFSET);
        FileSink {
            results: results.map(|target| lines(target, options.rotation, RESULTS_OFFSET)),
            decisions: (options.decisions)
                .then(|| lines(decisions, Rotation::default(), DECISIONS_OFFSET)),
            robots: (options.robots).then(|| lines(robots, Rotation::default(), ROBOTS_OFFSET)),
            links: (options.links).then(|| lines(links, options.rotation, LINKS_OFFSET)),
            filtered: (options.filtered)
                .then(|| lines(filtered, options.rotation, FILTERED_OFFSET)),
            archive: RobotsArchive::default(),
            warc: warc.map(new),
            prepared: None,
            waiting: VecDeque::new(),
            waiting_size: 0,
            next: 1,
            held: 0,
            pending_requests: PendingRequests::default(),
            stage: Stage::Fresh,
            failure: None,
            unwritten: Vec::new(),
            epoch_end: None,
            durable: DurableFiles::default(),
            indexes: has_indexes.then(|| Indexes::new(indexes_from)),
            resumed: Resumed::default(),
            options,
        }
    }

    /// Bytes in memory: on their way to the disk, or waiting for it.
    pub fn held(&self) -> usize {
        let batches = self.line_files().map(LineFiles::waiting);
        self.held + self.waiting_size + batches.sum::<usize>() + self.pending_requests.size()
    }

    /// The files of lines of each kind.
    fn line_files(&self) -> impl Iterator<Item = &LineFiles> {
        [
            &self.results,
            &self.decisions,
            &self.robots,
            &self.links,
            &self.filtered,
        ]
        .into_iter()
        .flatten()
    }

    fn line_files_mut(&mut self) -> impl Iterator<Item = &mut LineFiles> {
        [
            &mut self.results,
            &mut self.decisions,
            &mut self.robots,
            &mut self.links,
            &mut self.filtered,
        ]
        .into_iter()
        .flatten()
    }

    /// Those beside the result lines.
    fn other_lines_mut(&mut self) -> impl Iterator<Item = &mut LineFiles> {
        [
            &mut self.decisions,
            &mut self.robots,
            &mut self.links,
            &mut self.filtered,
        ]
        .into_iter()
        .flatten()
    }

    /// Adds lines about what filters left out.
    fn add_filtered(
        &mut self,
        at: Wall,
        disk: &mut Vec<DiskJob>,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(lines) = &mut self.filtered {
            lines.add(0, at, disk, write);
            lines.hand_over_full(disk);
        }
    }

    fn first_warc_file(&self) -> FileId {
        FileId(self.options.files_from.0 + WARC_OFFSET)
    }

    fn open(&mut self, disk: &mut Vec<DiskJob>) {
        if self.stage == Stage::Fresh {
            self.stage = Stage::Open;
            self.line_files_mut().for_each(|lines| lines.begin(disk));
            let unindexed = self.options.warc.iter().flat_map(|warc| &warc.unindexed);
            let ours = unindexed.filter(|path| serial_of(&self.options.folder, path).is_some());
            if let Some(indexes) = &mut self.indexes {
                indexes.make_older(ours.cloned().collect(), disk);
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
        disk: &mut Vec<DiskJob>,
    ) {
        let sequence = self.sequence(number);
        if record.is_none()
            && self.waiting.is_empty()
            && let Some(results) = &mut self.results
        {
            results.add(number, page.finished_at(), disk, |batch| {
                write_until_place(page, digest, batch);
                write_place(None, batch);
                write_from_place(page, sequence, batch);
            });
            return;
        }
        let mut text = Vec::with_capacity(LINE_USUAL);
        write_until_place(page, digest, &mut text);
        let insert_at = text.len();
        write_from_place(page, sequence, &mut text);
        self.waiting_size += text.len();
        self.waiting.push_back(Line {
            number,
            at: page.finished_at(),
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
    fn settle(&mut self, end: u64, disk: &mut Vec<DiskJob>) {
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
            let write = |lines: &mut Vec<u8>| {
                lines.extend_from_slice(before);
                write_place(place, lines);
                lines.extend_from_slice(after);
            };
            match (&line.record, &mut self.results) {
                (LineRecord::Lost, _) => {
                    self.pending_requests.mark_lost(line.number);
                    write(&mut self.unwritten);
                }
                (_, Some(results)) => results.add(line.number, line.at, disk, write),
                (_, None) => {}
            }
            self.waiting_size -= line.text.len();
            self.waiting.pop_front();
        }
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
        self.settle(until, disk);
        let waits = self.waiting.front().is_some_and(|line| line.number < until);
        if waits || until == u64::MAX {
            return;
        }
        if let Some(results) = &mut self.results {
            results.end_epoch(EPOCH_TAG, disk);
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
        self.settle(self.batched_until(), disk);
        let is_pipe = self.options.results == Results::Stdout;
        if let Some(results) = &mut self.results {
            // The reader of a pipe may wait for this line before it continues. Other lines accumulate
            // while it is being written, so that a busy crawl still writes batches.
            match is_pipe && !results.is_writing() {
                true => results.hand_over(disk),
                false => results.hand_over_full(disk),
            }
        }
        if self.stage == Stage::Finishing && self.waiting.is_empty() {
            self.stage = Stage::Closing;
            if let Some(results) = &mut self.results {
                results.finish(disk);
            }
        }
        if self.stage == Stage::Closing && self.results.as_ref().is_none_or(LineFiles::is_closed) {
            self.stage = Stage::Done;
        }
    }

    /// Counts the bytes of the jobs added since `disk` had `before` entries.
    fn account(&mut self, before: usize, disk: &[DiskJob]) {
        self.held += disk[before..].iter().map(DiskJob::held).sum::<usize>();
    }

    /// The file's path, if it is one of this sink.
    fn path(&self, file: FileId) -> Option<PathBuf> {
        let of_lines = self.line_files().find_map(|lines| lines.path(file));
        of_lines.or_else(|| self.warc.as_ref()?.path(file))
    }
}

impl DiskSink for FileSink {
    fn keeps_codings(&self) -> bool {
        self.options.warc.is_some()
    }

    fn keeps_links(&self) -> bool {
        self.links.is_some()
    }

    fn keeps_filtered(&self) -> bool {
        self.filtered.is_some()
    }

    fn filtered(&mut self, line: &[u8], at: Wall, disk: &mut Vec<DiskJob>) {
        if !matches!(self.stage, Stage::Fresh | Stage::Open) {
            return;
        }
        let before = disk.len();
        self.open(disk);
        self.add_filtered(at, disk, |batch| batch.extend_from_slice(line));
        self.account(before, disk);
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
            self.pending_requests
                .add(self.next, id, Box::new(request()));
        }
    }

    fn put(&mut self, page: &mut Page, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        let number = self.next;
        self.next += 1;
        if let (Some(robots), Some(lines)) = (&page.robots, &mut self.robots) {
            lines.add(0, page.finished_at(), disk, |batch| {
                self.archive.write(page, robots, batch);
            });
            lines.hand_over_full(disk);
        }
        if let (Some(found), Some(lines)) = (&page.found_links, &mut self.links) {
            lines.add(0, page.finished_at(), disk, |batch| {
                found.write_line(page.id, &page.url, batch);
            });
            lines.hand_over_full(disk);
        }
        if let Some(filtered) = page.filtered_links.take() {
            self.add_filtered(page.finished_at(), disk, |batch| {
                filtered.write_lines(&page.url, batch);
            });
        }
        let prepared = self.prepared.take().filter(|(id, _)| *id == page.id);
        let (digest, reply, room) = match prepared {
            Some((_, prepared)) => prepared.finish(),
            None => (page.digest(), None, None),
        };
        let record = self.put_records(page, digest, (reply, room), number, disk);
        if self.options.results != Results::None {
            self.put_line(number, page, digest, record, disk);
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
        if let Some(decisions) = &mut self.decisions {
            decisions.add(0, at, disk, |batch| {
                decisions::write_line(decision, at, batch);
            });
            decisions.hand_over_full(disk);
        }
        self.account(before, disk);
    }

    fn disk_done(&mut self, done: &DiskDone, disk: &mut Vec<DiskJob>) {
        let mut indexes = self.indexes.iter_mut();
        if let Some(file) = done.file
            && indexes.any(|indexes| indexes.handle_done(file, &done.result, disk))
        {
            return;
        }
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
        if let Some(results) = &mut self.results
            && results.owns(file)
        {
            if let Some(batch) = results.disk_done(done, file) {
                self.pending_requests.end(batch.numbers, batch.is_written);
                self.unwritten.extend_from_slice(&done.unwritten);
            }
        } else if let Some(lines) = self.line_files_mut().find(|lines| lines.owns(file)) {
            lines.disk_done(done, file);
        } else if let Some(warc) = &mut self.warc {
            match (&done.result, done.tag) {
                (Ok(synced), CLOSE_TAG | EPOCH_TAG) => {
                    self.durable.handle_synced(file, synced.offset);
                }
                // The only job without bytes and tag that succeeds.
                (result, 0) if done.held == 0 => {
                    self.durable.handle_renamed(file, result.is_ok());
                    let indexes = self.indexes.as_mut().filter(|_| result.is_ok());
                    if let (Some(indexes), Some(warc)) = (indexes, warc.path(file)) {
                        indexes.make(warc, disk);
                    }
                }
                _ => {}
            }
            warc.disk_done(done);
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
        self.line_files_mut().for_each(|lines| lines.flush(disk));
        self.account(before, disk);
    }

    fn on_time(&mut self, now: Wall, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.line_files_mut()
            .for_each(|lines| lines.close_aged(now, disk));
        self.account(before, disk);
    }

    fn rotate(&mut self, disk: &mut Vec<DiskJob>) -> Vec<String> {
        let before = disk.len();
        let lines = self.line_files_mut();
        let mut closed: Vec<PathBuf> = lines.filter_map(|lines| lines.rotate(disk)).collect();
        if let Some(warc) = &mut self.warc
            && let Some(open) = warc.close_open(disk)
        {
            self.durable.complete(open);
            closed.extend(warc.path(open));
        }
        self.account(before, disk);
        let name = |path: &PathBuf| {
            let below = path.strip_prefix(&self.options.folder).unwrap_or(path);
            below.to_string_lossy().into_owned()
        };
        closed.iter().map(name).collect()
    }

    fn finish(&mut self, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        if let Some(warc) = &mut self.warc
            && let Some(open) = warc.finish(disk)
        {
            self.durable.complete(open);
        }
        if self.stage == Stage::Open {
            self.stage = Stage::Finishing;
            self.other_lines_mut().for_each(|lines| lines.finish(disk));
        }
        self.advance(disk);
        self.account(before, disk);
    }

    fn is_done(&self) -> bool {
        let is_renaming = self.line_files().any(LineFiles::is_renaming);
        let is_renaming = is_renaming || self.durable.is_renaming();
        let has_indexes = self.indexes.as_ref().is_none_or(Indexes::is_done);
        self.stage == Stage::Done && self.held == 0 && !is_renaming && has_indexes
    }

    fn failure(&self) -> Option<&WriteError> {
        self.failure.as_ref()
    }

    fn prepare(&mut self, epoch: Epoch, disk: &mut Vec<DiskJob>) {
        let before = disk.len();
        self.open(disk);
        let first_warc = self.first_warc_file();
        self.durable.begin(first_warc);
        self.line_files_mut().for_each(LineFiles::begin_epoch);
        self.other_lines_mut()
            .for_each(|lines| lines.end_epoch(EPOCH_TAG, disk));
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
        let warcs = self.durable.lengths()?;
        let mut files = Vec::new();
        for lines in self.line_files() {
            files.extend(lines.lengths()?);
        }
        let lines = self.sequence(end.line - 1);
        files.extend(lines.map(|lines| FileLength::new(self.options.folder.join(STDOUT), lines)));
        let has_warc = !warcs.is_empty();
        let last_warc = self.resumed.warc.iter().filter(|_| !has_warc);
        let warcs = warcs.into_iter();
        files.extend(
            warcs.filter_map(|(file, length)| Some(FileLength::new(self.path(file)?, length))),
        );
        files.extend(self.resumed.others.iter().chain(last_warc).cloned());
        Some(files)
    }

    fn committed(&mut self, _epoch: Epoch, disk: &mut Vec<DiskJob>) {
        self.epoch_end = None;
        self.line_files_mut()
            .for_each(|lines| lines.committed(disk));
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
        let stdout = self.options.folder.join(STDOUT);
        let series = SERIES.map(|name| self.options.folder.join(name));
        let mut last_serial = 0;
        for file in files {
            let is_line = |first: &PathBuf| LineFileName::of(&file.path, first).is_some();
            if self.line_files_mut().any(|lines| lines.resume(file)) {
                // It is continued, or another after it begun.
            } else if file.path == stdout && self.is_numbered() {
                self.resumed.sequence = file.length;
            } else if let Some(serial) = serial_of(&self.options.folder, &file.path) {
                if let Some(warc) = &mut self.warc {
                    warc.resume_after(serial);
                }
                if self.resumed.warc.is_none() || serial >= last_serial {
                    last_serial = serial;
                    self.resumed.warc = Some(file.clone());
                }
            } else if file.path == stdout || series.iter().any(is_line) {
                self.resumed.others.push(file.clone());
            }
        }
        let (is_numbered, sequence) = (self.is_numbered(), self.resumed.sequence);
        if let Some(results) = self.results.as_mut().filter(|_| is_numbered) {
            results.add_unnumbered(|batch| write_resumed_after(sequence, batch));
        }
    }

    fn take_unwritten(&mut self) -> Vec<Request> {
        let known = self.pending_requests.take_lost();
        unwritten::requests(&std::mem::take(&mut self.unwritten), known)
    }
}

/// Replies up to this size are digested and copied in one step.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Tag of the jobs that sync the open files for a commit. Pages are numbered from 1.
const EPOCH_TAG: u64 = CLOSE_TAG - 1;

/// The ids of each kind of file begin here: a crawl writes far fewer than 2²⁸ of one kind.
const WARC_OFFSET: u32 = 0;
const RESULTS_OFFSET: u32 = 1 << 28;
const DECISIONS_OFFSET: u32 = 2 << 28;
const ROBOTS_OFFSET: u32 = 3 << 28;
const LINKS_OFFSET: u32 = 4 << 28;
const INDEXES_OFFSET: u32 = 5 << 28;
const FILTERED_OFFSET: u32 = 6 << 28;

#[cfg(test)]
mod tests;
