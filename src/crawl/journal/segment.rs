//! Reads one segment of a journal, and finds what of it is damaged.
//!
//! Bytes that are not intact after the end of the last committed epoch were being written when the crawl
//! ended: a power cut may leave later bytes intact and lose earlier ones. Before that end everything was
//! synced, so that they are damage.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crate::crawl::journal::damage::Damage;
use crate::crawl::journal::progress::{LoadPhase, LoadProgress, Meter};
use crate::state::journal::{Framer, HEADER_BYTES, Pieces, Reader, SegmentError, end_of};
use crate::state::outline::{Outline, Outliner};
use crate::state::record::{Learned, Record, RecordError};
use crate::state::replay::{Facts, Replay, ReplayError, Restored};

/// What a segment leaves.
pub struct Segment {
    /// The number of its crawl.
    pub crawl: u64,
    /// The crawl at its last commit.
    pub restored: Restored,
    /// The damage that was skipped.
    pub damage: Option<Damage>,
    /// Number of bytes at its end that were being written.
    pub unfinished: u64,
    /// Which of its records count, if it can be continued: it has a commit and no damage before that.
    pub outline: Option<Outline>,
}

/// The records of a segment, replayed.
struct Replayed {
    crawl: u64,
    replay: Replay,
    /// Whether its first record is the beginning of a crawl, or was when it was written.
    has_begin: bool,
    damage: Option<Damage>,
    unfinished: u64,
}

/// How damaged segments are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Damage is an error.
    Refuse,
    /// Damaged bytes are skipped.
    Skip,
}

/// The bytes of a segment. It may be too large for memory, and a crawl that runs may append to it, or cut off what
/// could not be appended as a whole.
pub trait SegmentBytes: Sync {
    /// Number of bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads bytes at an offset. Returns their number: there are less at the end.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Reads bytes into memory, up to the end.
    fn read_range(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let length = usize::try_from(range.end.saturating_sub(range.start));
        let mut bytes = vec![0; length.map_err(io::Error::other)?];
        let read = self.read_at(range.start, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Reads all into memory.
    fn whole(&self) -> io::Result<Vec<u8>> {
        self.read_range(0..self.length()?)
    }
}

impl SegmentBytes for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match FileExt::read_at(self, &mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

impl SegmentBytes for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let rest = self.get(start..).unwrap_or_default();
        let read = rest.len().min(bytes.len());
        bytes[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }
}

/// Why a segment cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// A read failed.
    Io(io::Error),
    /// It is not a segment, or of a newer version.
    Segment(SegmentError),
    /// It is damaged.
    Damaged(Damage),
    /// Its records contradict each other.
    Replay(ReplayError),
}

impl ReadError {
    /// Of the record whose frame has this offset.
    fn record(offset: u64, cause: RecordError) -> Self {
        ReadError::Segment(SegmentError::Record { offset, cause })
    }
}

/// What intact segments know of the damaged ones.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// The number of the crawl.
    crawl: Option<u64>,
    /// The first record of a segment.
    begin: Option<Record>,
}

impl Hints {
    /// Adds what a segment knows. Reads its header and its first record.
    ///
    /// # Errors
    /// A read failed.
    pub fn add(&mut self, bytes: &impl SegmentBytes) -> io::Result<()> {
        let length = bytes.length()?;
        let header = bytes.read_range(0..length.min(HEADER_BYTES as u64))?;
        let Ok(reader) = Reader::new(&header) else {
            return Ok(());
        };
        let frames = Frames {
            bytes,
            length,
            number: reader.segment(),
            crawl: reader.crawl(),
        };
        self.crawl = Some(reader.crawl());
        frames.each_until(length, |_, payload| {
            if let Ok(begin @ Record::Begin { .. }) = Record::decode(payload) {
                self.begin = Some(begin);
            }
            false
        })?;
        Ok(())
    }
}

impl Segment {
    /// Reads the segment with this number. `None` if it has not even its beginning.
    pub fn read(
        path: &Path,
        number: u64,
        bytes: &impl SegmentBytes,
        hints: &Hints,
        on_damage: OnDamage,
        watch: &mut impl FnMut(LoadProgress),
    ) -> Result<Option<Self>, ReadError> {
        let (replayed, outline) = match Sound::read(bytes, number, watch)? {
            Some((replayed, outline)) => (Some(replayed), Some(outline)),
            None => {
                let bytes = bytes.whole().map_err(ReadError::Io)?;
                let replayed = Replayed::salvage(path, number, &bytes, hints, on_damage, watch)?;
                (replayed, None)
            }
        };
        let Some(replayed) = replayed else {
            return Ok(None);
        };
        match replayed.replay.finish() {
            // Of what it was given nothing is known.
            Ok(restored) if !replayed.has_begin && restored.commit.is_none() => Ok(None),
            Ok(restored) => Ok(Some(Segment {
                crawl: replayed.crawl,
                restored,
                damage: replayed.damage,
                unfinished: replayed.unfinished,
                outline,
            })),
            Err(ReplayError::NoBegin) => Ok(None),
            Err(cause) => Err(ReadError::Replay(cause)),
        }
    }

    /// The bytes of a segment with this number that leaves what a damaged one leaves.
    pub fn rewrite(
        path: &Path,
        number: u64,
        bytes: &[u8],
        hints: &Hints,
        to: u64,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let skip = OnDamage::Skip;
        let replayed = Replayed::salvage(path, number, bytes, hints, skip, &mut |_| {})?;
        Ok(replayed.and_then(|replayed| written(replayed.replay, to, replayed.crawl)))
    }

    /// The bytes of a segment with these changes to what it leaves. `None`: it has no commit.
    pub fn amend(bytes: &[u8], changes: Vec<Record>) -> Result<Option<Vec<u8>>, ReadError> {
        let mut reader = Reader::new(bytes).map_err(ReadError::Segment)?;
        let mut replay = Replay::new();
        for record in reader.by_ref() {
            let record = record.map_err(ReadError::Segment)?;
            replay.push(record).map_err(ReadError::Replay)?;
        }
        replay.amend(changes);
        Ok(written(replay, reader.segment(), reader.crawl()))
    }
}

/// The bytes of the segment with this number, of this crawl, that leaves the same. `None`: there was no commit.
fn written(replay: Replay, segment: u64, crawl: u64) -> Option<Vec<u8>> {
    let framer = Framer::new(segment, crawl);
    let mut out = framer.header();
    let mut left = replay.into_left()?;
    while let Some(step) = left.step() {
        if let Some(record) = step {
            framer.frame(&mut out, |out| record.encode(out));
        }
    }
    Some(out)
}

/// How often a segment is read again because its last commit was cut off meanwhile: a crawl appends it again after
/// a second at the earliest.
const READ_TRIES: u32 = 10;

/// Bytes that are read at once: the cache of a processor has room for them. In tests a frame is in several pieces.
const PIECE: u64 = if cfg!(test) { 100 } else { 256 << 10 };

/// The frames of a segment.
struct Frames<'a, B> {
    bytes: &'a B,
    /// Its length when it was opened.
    length: u64,
    number: u64,
    crawl: u64,
}

/// A segment with a commit, and without damage before that.
struct Sound<'a, B> {
    frames: &'a Frames<'a, B>,
    length: u64,
    outline: Outline,
}

impl<'a, B: SegmentBytes> Frames<'a, B> {
    /// Of the segment with this number. `None`: it is not one of these.
    fn open(bytes: &'a B, number: u64) -> io::Result<Option<Self>> {
        let length = bytes.length()?;
        let header = bytes.read_range(0..length.min(HEADER_BYTES as u64))?;
        let reader = Reader::new(&header).ok();
        let reader = reader.filter(|reader| reader.segment() == number);
        Ok(reader.map(|reader| Frames {
            bytes,
            length,
            number,
            crawl: reader.crawl(),
        }))
    }

    /// Passes the frames up to this length on, until one is not intact or `take` returns false. Returns where the
    /// last one ended that is intact.
    fn each_until(
        &self,
        length: u64,
        take: impl FnMut(Range<u64>, &[u8]) -> bool,
    ) -> io::Result<u64> {
        let mut pieces = Pieces::new(self.number, self.crawl);
        self.each_of(&mut pieces, length, |_| false, take)?;
        Ok(pieces.offset())
    }

    /// The same from where these pieces end. A payload that `is_known` to be intact is not checked.
    fn each_of(
        &self,
        pieces: &mut Pieces,
        length: u64,
        is_known: impl Fn(&[u8]) -> bool,
        mut take: impl FnMut(Range<u64>, &[u8]) -> bool,
    ) -> io::Result<()> {
        let mut goes_on = true;
        while goes_on && pieces.position() < length {
            let position = pieces.position();
            let piece = (length - position).min(PIECE) as usize;
            let read = pieces.read(piece, |piece| self.bytes.read_at(position, piece))?;
            if read == 0 {
                // It is shorter now.
                break;
            }
            let read = pieces.each_while_unless(&is_known, |offset, payload| {
                goes_on = take(offset..end_of(offset, payload), payload);
                goes_on
            });
            goes_on &= read.is_some();
        }
        Ok(())
    }

    /// The facts that need no commit. `checked`: up to where frames were found to be intact, while that is done.
    /// `None`: these were cut off meanwhile.
    fn facts(&self, checked: impl IntoIterator<Item = u64>) -> Result<Option<Facts>, ReadError> {
        let mut facts = Facts::default();
        let mut pieces = Pieces::new(self.number, self.crawl);
        for until in checked {
            let mut added = Ok(());
            let add = |frame: Range<u64>, payload: &[u8]| {
                if Learned::is(payload) {
                    added = Learned::decode(payload)
                        .map(|learned| facts.learn_unsettled(learned))
                        .map_err(|cause| ReadError::record(frame.start, cause));
                }
                added.is_ok()
            };
            let read = self.each_of(&mut pieces, until, |_| true, add);
            read.map_err(ReadError::Io)?;
            added?;
            if pieces.offset() < until {
                return Ok(None);
            }
        }
        facts.settle();
        Ok(Some(facts))
    }
}

impl<'a, B: SegmentBytes> Sound<'a, B> {
    /// The records of the segment with this number, and which of them count. `None`: it is not one of these.
    ///
    /// A thread of its own reads what was learned: of a million hosts that takes as long as the rest.
    fn read(
        bytes: &B,
        number: u64,
        watch: &mut impl FnMut(LoadProgress),
    ) -> Result<Option<(Replayed, Outline)>, ReadError> {
        for _ in 0..READ_TRIES {
            let frames = Frames::open(bytes, number).map_err(ReadError::Io)?;
            let Some(frames) = frames else {
                return Ok(None);
            };
            let (read, facts) = thread::scope(|scope| {
                let (note_checked, checked) = mpsc::channel();
                let reader = thread::Builder::new();
                let facts = reader.spawn_scoped(scope, || frames.facts(checked));
                let read = Sound::read_without_facts(&frames, note_checked, watch);
                let join = |facts: thread::ScopedJoinHandle<'_, _>| {
                    (facts.join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
                };
                (read, facts.map(join))
            });
            let Some((replayed, outline)) = read? else {
                return Ok(None);
            };
            let facts = match facts {
                Ok(facts) => facts?,
                // The system has no room for a thread.
                Err(_) => frames.facts([outline.intact])?,
            };
            if let (Some(mut replayed), Some(facts)) = (replayed, facts) {
                replayed.replay.add_facts(facts);
                return Ok(Some((replayed, outline)));
            }
        }
        Err(ReadError::Io(io::Error::new(
            io::ErrorKind::InvalidData,
            "its last commit was cut off each time it was read: read it again later",
        )))
    }

    /// The same without what was learned; no records: the last commit was cut off meanwhile.
    fn read_without_facts(
        frames: &'a Frames<'a, B>,
        note_checked: mpsc::Sender<u64>,
        watch: &mut impl FnMut(LoadProgress),
    ) -> Result<Option<(Option<Replayed>, Outline)>, ReadError> {
        let sound = Sound::open(frames, note_checked, &mut *watch).map_err(ReadError::Io)?;
        let Some(sound) = sound else {
            return Ok(None);
        };
        let replayed = sound.replay(watch)?;
        Ok(Some((replayed, sound.outline)))
    }

    /// With these frames. `None`: it is not one of these.
    fn open(
        frames: &'a Frames<'a, B>,
        note_checked: mpsc::Sender<u64>,
        watch: &mut impl FnMut(LoadProgress),
    ) -> io::Result<Option<Self>> {
        let length = frames.length;
        let mut meter = Meter::new(LoadPhase::Check, length, watch);
        let mut outliner = Outliner::default();
        let mut has_outline = true;
        let mut noted = 0;
        let intact = frames.each_until(length, |frame, payload| {
            meter.note(frame.start);
            if frame.start >= noted + PIECE {
                noted = frame.start;
                // A fact that cannot be read ends the other thread.
                let _ = note_checked.send(noted);
            }
            has_outline &= outliner.push(frame, payload).is_some();
            has_outline
        })?;
        let _ = note_checked.send(intact);
        drop(note_checked);
        if !has_outline {
            return Ok(None);
        }
        let rest = frames.bytes.read_range(intact..length)?;
        let length = intact + rest.len() as u64;
        let rest = Reader::of_rest(frames.number, frames.crawl, intact, &rest);
        Ok(outliner.finish(rest).map(|outline| Sound {
            frames,
            length,
            outline,
        }))
    }

    /// Replays its records, but for what was learned. What was being written is left out, and what was cut off
    /// meanwhile. `None`: the last commit was.
    fn replay(&self, watch: &mut impl FnMut(LoadProgress)) -> Result<Option<Replayed>, ReadError> {
        let outline = &self.outline;
        let replay = Replay::with_committed(outline.committed, &outline.voids);
        let mut replay = replay.without_facts();
        let mut meter = Meter::new(LoadPhase::Records, outline.intact, watch);
        let mut pushed = Ok(());
        let push = |frame: Range<u64>, payload: &[u8]| {
            let offset = frame.start;
            meter.note(offset);
            pushed = replay
                .push_bytes(offset, payload)
                .map_err(|cause| match cause {
                    ReplayError::Record(cause) => ReadError::record(offset, cause),
                    cause => ReadError::Replay(cause),
                });
            pushed.is_ok()
        };
        let mut pieces = Pieces::new(self.frames.number, self.frames.crawl);
        let is_fact = Learned::is;
        let read = (self.frames).each_of(&mut pieces, outline.intact, is_fact, push);
        pushed?;
        read.map_err(ReadError::Io)?;
        let is_whole = pieces.offset() >= outline.marked;
        Ok(is_whole.then_some(Replayed {
            crawl: self.frames.crawl,
            replay,
            has_begin: true,
            damage: None,
            unfinished: self.length - outline.intact,
        }))
    }
}

impl Replayed {
    /// Of a segment that has no commit, or is damaged. `None` if it has not even its beginning.
    fn salvage(
        path: &Path,
        number: u64,
        bytes: &[u8],
        hints: &Hints,
        on_damage: OnDamage,
        watch: &mut impl FnMut(LoadProgress),
    ) -> Result<Option<Self>, ReadError> {
        let mut meter = Meter::new(LoadPhase::Records, bytes.len() as u64, watch);
        // The damaged bytes, and the number of records before each.
        let mut damaged = Vec::new();
        let mut reader = match Reader::new(bytes) {
            Ok(reader) => reader,
            Err(SegmentError::Incomplete { .. }) => return Ok(None),
            Err(cause @ (SegmentError::NotAJournal | SegmentError::Damaged)) => {
                let reader = Reader::without_header(bytes, number, hints.crawl);
                let reader = reader.ok_or(ReadError::Segment(cause))?;
                damaged.push((0..reader.intact(), 0));
                reader
            }
            Err(cause) => return Err(ReadError::Segment(cause)),
        };
        if reader.segment() != number {
            return Err(ReadError::Segment(SegmentError::Damaged));
        }
        let mut replay = Replay::new();
        let mut records = 0_u64;
        let mut has_begin = true;
        loop {
            while let Some(record) = reader.next() {
                meter.note(reader.intact());
                let record = record.map_err(ReadError::Segment)?;
                let mut record = Some(record);
                if records == 0 && !damaged.is_empty() {
                    let begin =
                        match record.take_if(|record| matches!(record, Record::Begin { .. })) {
                            Some(begin) => begin,
                            None => {
                                has_begin = false;
                                hints.begin_or_any(on_damage)?
                            }
                        };
                    replay.push(begin).map_err(ReadError::Replay)?;
                    damaged.iter().for_each(|_| replay.skip());
                }
                records += 1;
                if let Some(record) = record {
                    replay.push(record).map_err(ReadError::Replay)?;
                }
            }
            let start = reader.intact();
            if reader.skip_damage().is_none() {
                break;
            }
            damaged.push((start..reader.intact(), records));
            if records > 0 {
                replay.skip();
            }
        }
        let losses = replay.losses();
        let tail = damaged.split_off(losses.gaps);
        let end = tail
            .first()
            .map_or(reader.intact(), |(range, _)| range.start);
        let unfinished = bytes.len() as u64 - end;
        let damage = damaged.first().map(|(_, records_before)| Damage {
            path: path.to_owned(),
            length: bytes.len() as u64,
            is_missing: false,
            ranges: damaged.iter().map(|(range, _)| range.clone()).collect(),
            records_before: *records_before,
            records_after: records - records_before,
            unknown_ends: losses.unknown_ends,
            requests: 0,
        });
        let damage = match (damage, on_damage) {
            (Some(damage), OnDamage::Refuse) => return Err(ReadError::Damaged(damage)),
            (damage, _) => damage,
        };
        Ok(Some(Replayed {
            crawl: reader.crawl(),
            replay,
            has_begin,
            damage,
            unfinished,
        }))
    }
}

impl Hints {
    /// The first record for a segment that has lost its own. Where damage is refused, any will do.
    fn begin_or_any(&self, on_damage: OnDamage) -> Result<Record, ReadError> {
        let any = || Record::Begin {
            keys: [0; 16],
            settings: String::new(),
        };
        match (&self.begin, on_damage) {
            (Some(begin), _) => Ok(begin.clone()),
            (None, OnDamage::Refuse) => Ok(any()),
            (None, OnDamage::Skip) => Err(ReadError::Replay(ReplayError::NoBegin)),
        }
    }
}

#[cfg(test)]
mod tests;
