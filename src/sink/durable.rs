//! How much of each output file is durable, for the epochs of a sink that writes files.

use std::collections::BTreeMap;

use crate::base::disk::{DiskJob, FileId};

/// The output files that belong to a commit, and the lengths of the epoch that is being committed.
///
/// A file is synced for an epoch only if it was appended to since its last sync.
#[derive(Debug, Default)]
pub(super) struct DurableFiles {
    files: BTreeMap<FileId, DurableFile>,
    /// The files of the epoch; a length is `None` until its sync is reported.
    epoch: Vec<(FileId, Option<u64>)>,
}

#[derive(Debug, Default)]
struct DurableFile {
    /// Its length as of the last sync that was reported.
    synced: Option<u64>,
    /// Whether it was created or appended to since the last sync was handed over.
    is_dirty: bool,
    /// Syncs that were handed over and not reported.
    syncs: u32,
    stage: Stage,
}

/// `Open → Complete → Renaming → Named`: a file is renamed after the commit that covers its final length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It grows.
    #[default]
    Open,
    /// It has its final length.
    Complete,
    /// That length is committed, and the job that gives it its final name was handed over.
    Renaming,
    /// It has its final name, so later commits need not list it.
    Named,
}

impl DurableFile {
    /// Its length, if all of it is durable.
    fn length(&self) -> Option<u64> {
        let is_durable = !self.is_dirty && self.syncs == 0;
        self.synced.filter(|_| is_durable)
    }
}

impl DurableFiles {
    /// The file is created or appended to.
    pub(super) fn append(&mut self, file: FileId) {
        self.files.entry(file).or_default().is_dirty = true;
    }

    /// The file of an earlier run is continued at this length, which is durable.
    pub(super) fn resume(&mut self, file: FileId, length: u64) {
        let file = self.files.entry(file).or_default();
        file.synced = Some(length);
    }

    /// The file is synced by a job that was handed over.
    pub(super) fn sync(&mut self, file: FileId) {
        let file = self.files.entry(file).or_default();
        file.is_dirty = false;
        file.syncs += 1;
    }

    /// The file has its final length, is synced by a job that was handed over, and is renamed after a
    /// commit.
    pub(super) fn complete(&mut self, file: FileId) {
        self.sync(file);
        self.files.entry(file).or_default().stage = Stage::Complete;
    }

    /// The files from this one on.
    pub(super) fn files_from(&self, first: FileId) -> Vec<FileId> {
        self.files.range(first..).map(|(file, _)| *file).collect()
    }

    /// An epoch begins to be committed. Files from `first` on that have their final names are forgotten,
    /// except the last one: the commit names it for its number.
    pub(super) fn begin(&mut self, first: FileId) {
        self.epoch.clear();
        let last = self.files.last_key_value().map(|(file, _)| *file);
        self.files.retain(|file, state| {
            *file < first || Some(*file) == last || state.stage != Stage::Named
        });
    }

    /// Adds a file to the epoch, at its present end: syncs it with this tag if need be.
    pub(super) fn add_synced(&mut self, file: FileId, tag: u64, disk: &mut Vec<DiskJob>) {
        if self.files.get(&file).is_some_and(|state| state.is_dirty) {
            disk.push(DiskJob::Sync { file, tag });
            self.sync(file);
        }
        self.add(file);
    }

    /// Adds a file to the epoch, that is or will be synced by another job.
    pub(super) fn add(&mut self, file: FileId) {
        let length = self.files.get(&file).and_then(DurableFile::length);
        self.epoch.push((file, length));
    }

    /// A sync was reported, at this length of the file.
    pub(super) fn handle_synced(&mut self, file: FileId, length: u64) {
        if let Some(state) = self.files.get_mut(&file) {
            state.syncs = state.syncs.saturating_sub(1);
            state.synced = Some(length);
        }
        let mut files = self.epoch.iter_mut();
        if let Some((_, awaited @ None)) = files.find(|(other, _)| *other == file) {
            *awaited = Some(length);
        }
    }

    /// The epoch's files and their lengths, once all are durable.
    pub(super) fn lengths(&self) -> Option<Vec<(FileId, u64)>> {
        let files = self.epoch.iter();
        files
            .map(|(file, length)| Some((*file, (*length)?)))
            .collect()
    }

    /// The epoch is committed: returns the complete files whose final length it has, to be renamed.
    pub(super) fn end(&mut self) -> Vec<FileId> {
        let mut covered = Vec::new();
        for (file, length) in std::mem::take(&mut self.epoch) {
            if let Some(state) = self.files.get_mut(&file)
                && state.stage == Stage::Complete
                && length.is_some()
                && state.length() == length
            {
                state.stage = Stage::Renaming;
                covered.push(file);
            }
        }
        covered
    }

    /// The file has its final name, or it could not be given.
    pub(super) fn handle_renamed(&mut self, file: FileId, is_named: bool) {
        if let Some(state) = self.files.get_mut(&file)
            && state.stage == Stage::Renaming
        {
            state.stage = match is_named {
                true => Stage::Named,
                false => Stage::Complete,
            };
        }
    }

    /// Whether a file is about to get its final name.
    pub(super) fn is_renaming(&self) -> bool {
        let mut files = self.files.values();
        files.any(|state| state.stage == Stage::Renaming)
    }
}
