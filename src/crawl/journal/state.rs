//! The state of a crawl as files: begun, or read to continue the crawl.

mod beginning;
mod error;
mod salvage;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use self::beginning::StateBeginning;
use self::error::SETTINGS_MAX;
pub use self::error::StateError;
use crate::base::keys::Keys;
use crate::crawl::config::SettingValue;
use crate::crawl::journal::damage::Damage;
use crate::crawl::journal::departures;
use crate::crawl::journal::progress::LoadProgress;
use crate::crawl::journal::rewrite::unfinished_of;
use crate::crawl::journal::seen::SeenStart;
use crate::crawl::journal::seen::runs::path_of as seen_path;
use crate::crawl::journal::segment::{Hints, OnDamage, Segment, SegmentBytes};
use crate::crawl::journal::start::{Continuation, JournalStart};
use crate::crawl::overrides::reloaded_value;
use crate::crawl::spill::SpillStart;
use crate::io::{left_in_memory, remove_from_memory};
use crate::sink::commit::{Commit, Epoch, FileLength};
use crate::sink::directory::{self, JOURNAL, QUEUE, SEEN, STATE};
use crate::state::journal::{Framer, Reader};
use crate::state::outline::Outline;
use crate::state::record::{About, Record, SpilledBlock};
use crate::state::replay::{Facts, Restored};

/// The state of a crawl on disk: what is still to be fetched, and what was seen.
///
/// It is in `state/` of the output directory, readable by its owner only: requests may hold credentials.
/// A crawl writes it while it runs, and commits it together with its results every `STATE_SYNC`.
#[derive(Debug)]
pub struct State {
    pub(in crate::crawl) start: JournalStart,
    pub(in crate::crawl) restored: Option<Restored>,
    /// Files with requests.
    pub(in crate::crawl) spill: SpillStart,
    commit: Option<Commit>,
    /// The segment that is continued, where it is not as on disk: bytes before the beginning of this run.
    rewritten: Option<Vec<u8>>,
    /// Files of earlier runs that hold nothing once the beginning is written.
    stale: Vec<PathBuf>,
    damages: Vec<Damage>,
    /// URLs of lost requests that count as new.
    renewed: u64,
    /// Files that end with bytes that are not intact, and how many: they were being written.
    unfinished: Vec<(PathBuf, u64)>,
}

/// The segment with the beginning of a crawl alone. That of its first run follows.
const FIRST_SEGMENT: u64 = 0;

/// Keys in one record.
const KEYS_PER_RECORD: usize = 4096;

/// Position of the end of a list of seeds: all were taken.
pub const ALL_SEEDS: u64 = u64::MAX;

impl State {
    /// The state of a new crawl with this output directory. `settings`: any text, for [`State::settings`] of
    /// the run that resumes it. `secret`: unpredictable bytes, from which the keys of URLs are made.
    ///
    /// # Errors
    /// [`StateError::Settings`]: more than 32 MiB.
    pub fn new(out: &Path, settings: String, secret: [u8; 16]) -> Result<Self, StateError> {
        let keys = Keys::from_bytes(secret);
        let segment = FIRST_SEGMENT + 1;
        let crawl = keys.scope("number of the crawl").0;
        Ok(State {
            spill: SpillStart::new(out, crawl),
            start: JournalStart {
                folder: out.to_owned(),
                path: path_of(out, segment),
                segment,
                crawl,
                epoch: 0,
                keys,
                settings: checked(settings)?,
                seeds_taken: 0,
                continues: None,
                seen: SeenStart::default(),
            },
            restored: None,
            commit: None,
            rewritten: None,
            stale: Vec::new(),
            damages: Vec::new(),
            renewed: 0,
            unfinished: Vec::new(),
        })
    }

    /// Reads the state in an output directory.
    ///
    /// # Errors
    /// There is none, or it cannot be read. [`StateError::Damaged`]: a file is damaged before the last
    /// commit. What was being written when the crawl ended is no damage.
    pub fn load(out: &Path) -> Result<Self, StateError> {
        State::load_watched(out, |_| {})
    }

    /// As [`State::load`]; it says how far it has come, some hundred times at most.
    ///
    /// # Errors
    /// As [`State::load`].
    pub fn load_watched(out: &Path, watch: impl FnMut(LoadProgress)) -> Result<Self, StateError> {
        State::load_with(out, watch, left_in_memory)
    }

    /// The same with any way to read departures in memory, by its name and length.
    pub(in crate::crawl) fn load_with(
        out: &Path,
        watch: impl FnMut(LoadProgress),
        read_memory: impl FnOnce(&str, usize) -> io::Result<Vec<u64>>,
    ) -> Result<Self, StateError> {
        let state = State::read_folder(out, OnDamage::Refuse, watch)?;
        let length_of = |path: &Path| fs::metadata(path).ok().map(|file| file.len());
        let mut state = state.refuse_short_files(length_of)?;
        state.open_runs(OnDamage::Refuse)?;
        state.note_lost(read_memory)?;
        state.warn();
        Ok(state)
    }

    /// The same, without the damaged parts of its files: [`State::damages`] has what is missing.
    ///
    /// # Errors
    /// There is none, or it cannot be read; or the damage leaves nothing to continue.
    pub fn salvage(out: &Path) -> Result<Self, StateError> {
        State::salvage_watched(out, |_| {})
    }

    /// As [`State::salvage`]; it says how far it has come, some hundred times at most.
    ///
    /// # Errors
    /// As [`State::salvage`].
    pub fn salvage_watched(
        out: &Path,
        mut watch: impl FnMut(LoadProgress),
    ) -> Result<Self, StateError> {
        let mut state = State::read_folder(out, OnDamage::Skip, &mut watch)?;
        let read =
            |path: &Path, offset, bytes: &mut [u8]| File::open(path)?.read_exact_at(bytes, offset);
        let committed_urls =
            |last: &Commit, each: &mut dyn FnMut(&str)| directory::committed_urls(out, last, each);
        state.salvage_blocks(read, committed_urls, watch)?;
        state.open_runs(OnDamage::Skip)?;
        state.note_lost(left_in_memory)?;
        state.warn();
        Ok(state)
    }

    /// An error if a file of requests is too short for its blocks. Their content is read when it is needed.
    fn refuse_short_files(
        mut self,
        length_of: impl Fn(&Path) -> Option<u64>,
    ) -> Result<Self, StateError> {
        let mut lengths: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        self.drop_blocks_unless(|spill, block| {
            let length = lengths.entry(block.file);
            let length = length.or_insert_with(|| length_of(&spill.path_of(block.file)));
            let end = block.offset.saturating_add(block.length);
            length.is_some_and(|length| length >= end)
        });
        match self.damages.pop() {
            Some(damage) => Err(StateError::Damaged(Box::new(damage))),
            None => Ok(self),
        }
    }

    /// Opens the runs of the seen set.
    fn open_runs(&mut self, on_damage: OnDamage) -> Result<(), StateError> {
        let files = numbers(&self.start.folder, SEEN)?;
        self.set_runs(&files, on_damage, |path, offset, bytes| {
            File::open(path)?.read_exact_at(bytes, offset)
        })
    }

    /// The same with any way to read files; these are there.
    fn set_runs(
        &mut self,
        files: &[u64],
        on_damage: OnDamage,
        read: impl Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), StateError> {
        let named = self.restored.as_ref().map_or(&[][..], |left| &left.runs);
        let place = (&*self.start.folder, self.start.crawl);
        let opened = SeenStart::open(named, files, place, on_damage, read);
        self.start.seen = opened.map_err(|(path, cause)| StateError::SeenRun { path, cause })?;
        let runs = self.start.seen.records();
        if runs != named {
            self.start.add_record(Record::SeenRuns(runs));
        }
        self.stale
            .extend(SeenStart::stale(named, files, &self.start.folder));
        Ok(())
    }

    /// Notes URLs that were requested though the journal may not say so: those of departures in memory, and those of
    /// result lines beyond the commit, which are there after a crash of the machine. Once the next run has begun,
    /// only its beginning has them.
    fn note_lost(
        &mut self,
        read_memory: impl FnOnce(&str, usize) -> io::Result<Vec<u64>>,
    ) -> Result<(), StateError> {
        let Some(left) = &mut self.restored else {
            return Ok(());
        };
        let (out, keys, crawl) = (&self.start.folder, self.start.keys, self.start.crawl);
        let name = departures::name_of(crawl);
        let memory = read_memory(&name, departures::WORDS);
        // After a run that ended in order there is none.
        let memory = memory.inspect_err(|error| log::debug!("{name} in shared memory: {error}"));
        let mut lost = departures::left_in(&memory.unwrap_or_default(), crawl);
        let note = |url: &str| lost.push(keys.url(url).0);
        let read = directory::trimmed_urls(out, self.commit.as_ref(), note);
        read.map_err(|cause| StateError::Io {
            path: out.clone(),
            cause,
        })?;
        lost.sort_unstable();
        lost.dedup();
        lost.retain(|key| left.requested.binary_search(key).is_err());
        for keys in lost.chunks(KEYS_PER_RECORD) {
            self.start.add_record(Record::Requested(keys.to_vec()));
        }
        left.requested.append(&mut lost);
        Ok(())
    }

    /// Leaves out blocks of requests, and remembers them as damage. Returns them.
    pub(in crate::crawl) fn drop_blocks_unless(
        &mut self,
        mut is_intact: impl FnMut(&SpillStart, &SpilledBlock) -> bool,
    ) -> Vec<SpilledBlock> {
        let Some(restored) = &mut self.restored else {
            return Vec::new();
        };
        let mut damaged: Vec<SpilledBlock> = Vec::new();
        // Intact blocks of the file of the block before.
        let mut of_file = (u64::MAX, 0);
        for block in restored.spilled.iter() {
            if of_file.0 != block.file {
                of_file = (block.file, 0);
            }
            let path = || self.spill.path_of(block.file);
            let is_intact = is_intact(&self.spill, &block);
            let is_known = damaged.last().is_some_and(|last| last.file == block.file);
            of_file.1 += u64::from(is_intact);
            match (is_intact, is_known) {
                (true, false) => {}
                (true, true) => {
                    if let Some(damage) = self.damages.last_mut() {
                        damage.records_after += 1;
                    }
                }
                (false, is_known) => {
                    if !is_known {
                        let path = path();
                        let file = fs::metadata(&path);
                        let is_missing =
                            matches!(&file, Err(error) if error.kind() == io::ErrorKind::NotFound);
                        self.damages.push(Damage {
                            length: file.map_or(0, |file| file.len()),
                            is_missing,
                            path,
                            ranges: Vec::new(),
                            records_before: of_file.1,
                            records_after: 0,
                            unknown_ends: 0,
                            requests: 0,
                        });
                    }
                    if let Some(damage) = self.damages.last_mut() {
                        damage.add_block(&block);
                    }
                    damaged.push(block);
                }
            }
        }
        for SpilledBlock { file, offset, .. } in damaged.iter().copied() {
            restored.spilled.remove(file, offset);
            self.start.add_record(Record::Unspilled { file, offset });
        }
        damaged
    }

    /// Reads it while the crawl may be running.
    pub(in crate::crawl) fn read_folder(
        out: &Path,
        on_damage: OnDamage,
        watch: impl FnMut(LoadProgress),
    ) -> Result<Self, StateError> {
        let read = |segment| {
            let path = path_of(out, segment);
            File::open(&path).map_err(|cause| StateError::Io { path, cause })
        };
        let (journals, queues) = (numbers(out, JOURNAL)?, numbers(out, QUEUE)?);
        State::load_segments(out, journals, queues, read, on_damage, watch)
    }

    /// The paths of the segments of its journal, and of files with requests, in order.
    pub(in crate::crawl) fn file_paths(out: &Path) -> Result<Vec<PathBuf>, StateError> {
        let segments = numbers(out, JOURNAL)?.into_iter();
        let segments = segments.map(|segment| path_of(out, segment));
        let queues = numbers(out, QUEUE)?.into_iter();
        let spill = SpillStart::new(out, 0);
        let queues = queues.map(|queue| spill.path_of(queue));
        let runs = numbers(out, SEEN)?.into_iter();
        let runs = runs.map(|run| seen_path(out, run));
        Ok(segments.chain(queues).chain(runs).collect())
    }

    /// As [`State::load`], of files in memory, by their paths.
    #[doc(hidden)]
    pub fn load_from(out: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<Self, StateError> {
        let state = State::read_files(out, files, OnDamage::Refuse)?;
        state.refuse_short_files(|path| files.get(path).map(|bytes| bytes.len() as u64))
    }

    /// As [`State::salvage`], of files in memory.
    #[cfg(test)]
    pub(in crate::crawl) fn salvage_from(
        out: &Path,
        files: &BTreeMap<PathBuf, Vec<u8>>,
    ) -> Result<Self, StateError> {
        let mut state = State::read_files(out, files, OnDamage::Skip)?;
        let read = |path: &Path, offset, bytes: &mut [u8]| {
            let content = files.get(path).and_then(|content| {
                let offset = usize::try_from(offset).ok()?;
                content.get(offset..)?.get(..bytes.len())
            });
            bytes.copy_from_slice(content.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        state.salvage_blocks(read, |_, _| Ok(false), |_| {})?;
        Ok(state)
    }

    /// The same with any treatment of damage.
    pub(in crate::crawl) fn read_files(
        out: &Path,
        files: &BTreeMap<PathBuf, Vec<u8>>,
        on_damage: OnDamage,
    ) -> Result<Self, StateError> {
        let folder = out.join(STATE);
        let numbers = |kind| -> Vec<u64> {
            let ours = files.keys().filter(|path| path.starts_with(&folder));
            let numbers = ours.filter_map(|path| number_of(path.file_name()?.to_str()?, kind));
            numbers.collect()
        };
        let read = |segment| Ok(files[&path_of(out, segment)].as_slice());
        let (journals, queues) = (numbers(JOURNAL), numbers(QUEUE));
        let mut state = State::load_segments(out, journals, queues, read, on_damage, |_| {})?;
        state.set_runs(&numbers(SEEN), on_damage, |path, offset, bytes| {
            let of_file = |file: &Vec<u8>| {
                let found = file.get(offset as usize..)?.get(..bytes.len())?;
                bytes.copy_from_slice(found);
                Some(())
            };
            let read = files.get(path).and_then(of_file);
            read.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        })?;
        Ok(state)
    }

    fn load_segments<B: SegmentBytes>(
        out: &Path,
        segments: Vec<u64>,
        queues: Vec<u64>,
        open: impl Fn(u64) -> Result<B, StateError>,
        on_damage: OnDamage,
        mut watch: impl FnMut(LoadProgress),
    ) -> Result<Self, StateError> {
        let newest = segments.last().copied();
        let newest = newest.ok_or_else(|| StateError::None(out.to_owned()))?;
        let whole = |segment| {
            let path = path_of(out, segment);
            let bytes = open(segment)?.whole();
            bytes.map_err(|cause| StateError::Io { path, cause })
        };
        let mut hints = Hints::default();
        if on_damage == OnDamage::Skip {
            for segment in &segments {
                let added = hints.add(&open(*segment)?);
                added.map_err(|cause| StateError::Io {
                    path: path_of(out, *segment),
                    cause,
                })?;
            }
        }
        // The newest has no commit if the run that began it ended too early: then the one before holds, but
        // for what that run was given.
        let mut found = None;
        let mut given = None;
        let mut holds = newest;
        // Facts need no commit: newer segments without one have some, too, and are kept for them.
        let mut newer_facts = Facts::default();
        let mut damages = Vec::new();
        let mut unfinished = Vec::new();
        // Later runs requested more, though they committed nothing.
        let mut requested = Vec::new();
        for segment in segments.iter().copied().rev() {
            let path = path_of(out, segment);
            let left = Segment::read(
                &path,
                segment,
                &open(segment)?,
                &hints,
                on_damage,
                &mut watch,
            );
            let mut left = left.map_err(|cause| StateError::in_file(&path, cause))?;
            if let Some(left) = &mut left {
                let restored = &mut left.restored;
                requested.append(&mut restored.requested);
                given.get_or_insert_with(|| (restored.settings.clone(), restored.seeds_taken));
                damages.extend(left.damage.take());
                if left.unfinished > 0 {
                    unfinished.push((path, left.unfinished));
                }
                let mut facts = std::mem::take(&mut left.restored.facts);
                facts.extend(newer_facts);
                newer_facts = facts;
                left.restored.is_quiet &= segment == newest;
            }
            let has_commit = left
                .as_ref()
                .is_some_and(|left| left.restored.commit.is_some());
            if has_commit || found.is_none() {
                found = left.or(found);
                holds = segment;
            }
            if has_commit {
                break;
            }
        }
        let none = || StateError::None(out.to_owned());
        let Segment {
            crawl,
            mut restored,
            outline,
            ..
        } = found.ok_or_else(none)?;
        restored.facts = newer_facts;
        requested.sort_unstable();
        requested.dedup();
        restored.requested = requested;
        let (settings, seeds_taken) = given.ok_or_else(none)?;
        let outline = outline.filter(|_| holds == newest);
        let segment = match outline {
            Some(_) => newest,
            None => newest + 1,
        };
        let mut start = JournalStart {
            folder: out.to_owned(),
            path: path_of(out, segment),
            segment,
            crawl,
            epoch: restored.commit.as_ref().map_or(0, |commit| commit.epoch),
            keys: Keys::from_bytes(restored.keys),
            settings,
            seeds_taken,
            continues: None,
            seen: SeenStart::default(),
        };
        let mut rewritten = None;
        let left = restored.bytes_in_journal();
        start.continues = Some(match (outline, &restored.commit) {
            (Some(outline), Some(commit)) => Continuation::new(&outline, commit.clone(), left),
            (_, Some(commit)) => {
                let path = path_of(out, holds);
                let bytes = Segment::rewrite(&path, holds, &whole(holds)?, &hints, segment);
                let bytes = bytes.map_err(|cause| StateError::in_file(&path, cause))?;
                let bytes = bytes.ok_or_else(none)?;
                let outline = Reader::new(&bytes).ok().and_then(Outline::of);
                let outline = outline.ok_or_else(none)?;
                rewritten = Some(bytes);
                Continuation::new(&outline, commit.clone(), left)
            }
            (_, None) => Continuation::default(),
        });
        // What newer segments have, and what a beginning without a commit had.
        if holds != newest || restored.commit.is_none() {
            restored
                .learned()
                .for_each(|record| start.add_record(record));
        }
        let commit = restored.commit.as_ref().map(|commit| Commit {
            epoch: Epoch(commit.epoch),
            files: (commit.files.iter())
                .map(|(name, length)| FileLength::new(out.join(name), *length))
                .collect(),
        });
        Ok(State {
            spill: SpillStart {
                next_file: queues.last().map_or(0, |last| last + 1),
                files: queues,
                ..SpillStart::new(out, crawl)
            },
            start,
            restored: Some(restored),
            commit,
            rewritten,
            // The first one stays: it is what a damaged journal is salvaged with.
            stale: (segments.into_iter())
                .filter(|other| ![segment, FIRST_SEGMENT].contains(other))
                .map(|segment| path_of(out, segment))
                .chain([unfinished_of(path_of(out, newest + 1))])
                .collect(),
            damages,
            renewed: 0,
            unfinished,
        })
    }

    /// The beginning of the state of this run, to be written before it runs.
    pub fn beginning(&self) -> StateBeginning {
        let start = &self.start;
        let (of_run, _) = start.beginning();
        let (path, behind, bytes) = match (&start.continues, &self.rewritten) {
            // The run makes a segment of its own.
            (None, _) => {
                let framer = Framer::new(FIRST_SEGMENT, start.crawl);
                let mut bytes = framer.header();
                for record in start.first_records() {
                    framer.frame(&mut bytes, |out| record.encode(out));
                }
                (path_of(&start.folder, FIRST_SEGMENT), None, bytes)
            }
            (Some(_), Some(rewritten)) => {
                let bytes = [&**rewritten, &*of_run].concat();
                (start.path.clone(), None, bytes)
            }
            (Some(continues), None) => {
                let behind = continues.is_behind().then_some(continues.length);
                (start.path.clone(), behind, of_run)
            }
        };
        StateBeginning {
            out: start.folder.clone(),
            path,
            behind,
            bytes,
            stale: self.stale.clone(),
        }
    }

    /// The secret of the crawl's stable keys.
    pub(in crate::crawl) fn keys(&self) -> Keys {
        self.start.keys
    }

    /// The settings, as they were given to [`State::new`].
    pub fn settings(&self) -> &str {
        &self.start.settings
    }

    /// The settings that were changed by a reload while the crawl ran, as they were given last; null: not at all.
    pub fn reloaded_settings(&self) -> Vec<(String, SettingValue)> {
        let facts = self
            .restored
            .iter()
            .flat_map(|left| left.facts.about(About::Setting));
        let reloaded = facts.filter_map(|fact| {
            let value = reloaded_value(fact.value)?;
            Some((fact.name.to_owned(), value.into()))
        });
        reloaded.collect()
    }

    /// Sets what a later run is told: the settings of this run, and how far its list of seeds was taken by
    /// earlier ones.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn set_inputs(&mut self, settings: String, seeds_taken: u64) -> Result<(), StateError> {
        self.start.settings = checked(settings)?;
        self.start.seeds_taken = seeds_taken;
        Ok(())
    }

    /// The last commit, to which the output files are cut; `None` if there was none.
    pub fn commit(&self) -> Option<&Commit> {
        self.commit.as_ref()
    }

    /// Number of requests that are still to be fetched.
    pub fn queued(&self) -> usize {
        let restored = self.restored.as_ref();
        restored.map_or(0, |left| {
            left.admitted.len() + left.offered.len() + left.spilled.requests() as usize
        })
    }

    /// Blocks of requests that wait in files.
    pub(in crate::crawl) fn blocks(&self) -> impl Iterator<Item = SpilledBlock> {
        self.restored.iter().flat_map(|left| left.spilled.iter())
    }

    /// URLs of the requests that are still to be fetched, of files in memory: [`State::load_from`].
    #[doc(hidden)]
    pub fn queued_urls(&self, files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<String> {
        let Some(left) = &self.restored else {
            return Vec::new();
        };
        let block = |block: SpilledBlock| {
            let bytes = &files[&self.spill.path_of(block.file)][block.offset as usize..];
            self.spill.entries_of(&block, bytes).expect("a whole block")
        };
        let spilled = self.blocks().flat_map(block);
        let entries = left
            .admitted
            .iter()
            .chain(left.offered.iter())
            .chain(spilled);
        entries.map(|entry| entry.job.url.to_string()).collect()
    }

    /// No run continues the crawl, as nothing is left of it: removes what it may have in shared memory.
    pub fn end(self) {
        remove_from_memory(&departures::name_of(self.start.crawl));
    }

    /// The damaged parts of its files, which [`State::salvage`] left out.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Logs what of its files is not intact.
    fn warn(&self) {
        for damage in &self.damages {
            if damage.requests > 0 {
                log::error!(
                    "{damage}. They are lost; give the seeds among them again with --seeds. In all, {} URLs without a \
                     line in results.jsonl count as new; the others of these requests count as seen, so that only a \
                     new crawl with another --out fetches them",
                    self.renewed
                );
                continue;
            }
            log::error!(
                "{damage}. Requests that were admitted in the damaged part are missing, unless a page that \
                 is fetched again links to them; those that ended in it are fetched again; {} ended whose \
                 URLs are not known, and which are fetched again where a page links to them",
                damage.unknown_ends
            );
        }
        for (path, bytes) in &self.unfinished {
            log::warn!(
                "{}: the last {bytes} bytes are not intact and were dropped: they were being written when \
                 the crawl ended",
                path.display()
            );
        }
    }

    /// Entries of the list of seeds that were taken, from its start; `None` if all were.
    pub fn seeds_taken(&self) -> Option<u64> {
        let taken = self.start.seeds_taken;
        (taken != ALL_SEEDS).then_some(taken)
    }
}

pub(super) fn path_of(out: &Path, segment: u64) -> PathBuf {
    out.join(STATE).join(format!("{JOURNAL}{segment:08}"))
}

/// The numbers of the files of a kind, ascending.
pub(super) fn numbers(out: &Path, kind: &str) -> Result<Vec<u64>, StateError> {
    let folder = out.join(STATE);
    let entries = match fs::read_dir(&folder) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => {
            return Err(StateError::Io {
                path: folder,
                cause,
            });
        }
        Ok(entries) => entries,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|cause| StateError::Io {
            path: folder.clone(),
            cause,
        })?;
        let name = entry.file_name();
        numbers.extend(name.to_str().and_then(|name| number_of(name, kind)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a crawl was given, if it is short enough.
fn checked(settings: String) -> Result<String, StateError> {
    match settings.len() {
        0..=SETTINGS_MAX => Ok(settings),
        bytes => Err(StateError::Settings { bytes }),
    }
}

fn number_of(name: &str, kind: &str) -> Option<u64> {
    name.strip_prefix(kind)?.parse().ok()
}
