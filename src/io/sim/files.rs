//! The files of the simulated disk, and what of them survives a power cut.
//!
//! Of the bytes behind a file's last sync any part survives, in any order of its sectors. A failed sync
//! loses the bytes that it was for: no later sync makes them durable. What happened to the entries of a
//! folder since that was synced is undone from its end, back to any point.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::base::rng::Rng;

/// Files by path.
#[derive(Debug, Default)]
pub(super) struct Files {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    /// Of each file.
    durable: BTreeMap<PathBuf, Durable>,
    /// Changes of the entries of each folder since it was synced.
    changes: BTreeMap<PathBuf, Vec<Change>>,
}

/// How much of a file survives a power cut.
#[derive(Clone, Debug, Default)]
struct Durable {
    /// Bytes up to its last sync.
    synced: usize,
    /// Those of them for which a sync had failed before.
    lost: Vec<Range<usize>>,
}

/// A change of a folder's entries.
#[derive(Debug)]
enum Change {
    Created(PathBuf),
    Renamed {
        from: PathBuf,
        to: PathBuf,
    },
    /// A file was removed, or replaced by another.
    Removed(PathBuf, Vec<u8>, Durable),
}

impl Files {
    /// The present content of each file.
    pub(super) fn contents(&self) -> &BTreeMap<PathBuf, Vec<u8>> {
        &self.contents
    }

    /// The content of one file.
    pub(super) fn get(&self, path: &Path) -> Option<&Vec<u8>> {
        self.contents.get(path)
    }

    /// Adds an empty file.
    pub(super) fn create(&mut self, path: &Path) {
        self.contents.insert(path.to_owned(), Vec::new());
        self.durable.insert(path.to_owned(), Durable::default());
        self.change(path, Change::Created(path.to_owned()));
    }

    /// Writes bytes at an offset, over what is there.
    pub(super) fn write(&mut self, path: &Path, offset: usize, bytes: &[u8]) {
        if let Some(content) = self.contents.get_mut(path) {
            content.truncate(offset);
            content.extend_from_slice(bytes);
        }
    }

    /// Makes a file durable up to this length, and the entries of its folder.
    pub(super) fn sync(&mut self, path: &Path, length: usize) {
        if let Some(durable) = self.durable.get_mut(path) {
            durable.synced = length;
        }
        self.sync_folder(path);
    }

    /// A sync failed: the bytes that it was for are taken as written, and are not.
    pub(super) fn fail_sync(&mut self, path: &Path, length: usize) {
        if let Some(durable) = self.durable.get_mut(path)
            && durable.synced < length
        {
            durable.lost.push(durable.synced..length);
        }
    }

    /// Makes the entries of the folder of a file durable.
    pub(super) fn sync_folder(&mut self, path: &Path) {
        self.changes.remove(&folder_of(path));
    }

    /// Gives a file another name, in the same folder.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.take(to);
        let (content, durable) = self.take(from).unwrap_or_default();
        self.contents.insert(to.to_owned(), content);
        self.durable.insert(to.to_owned(), durable);
        let change = Change::Renamed {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        self.change(to, change);
    }

    /// Replaces a file by another, which is synced.
    pub(super) fn replace(&mut self, path: &Path, bytes: &[u8]) {
        self.remove(path);
        self.create(path);
        self.write(path, 0, bytes);
        if let Some(durable) = self.durable.get_mut(path) {
            durable.synced = bytes.len();
        }
    }

    /// Removes a file; returns its length.
    pub(super) fn remove(&mut self, path: &Path) -> u64 {
        let Some((content, durable)) = self.take(path) else {
            return 0;
        };
        let length = content.len() as u64;
        self.change(path, Change::Removed(path.to_owned(), content, durable));
        length
    }

    /// Bytes of a file that survive a power cut.
    pub(super) fn synced(&self, path: &Path) -> usize {
        self.durable.get(path).map_or(0, |durable| durable.synced)
    }

    /// The machine loses its power: what is left of the files.
    pub(super) fn cut(mut self, rng: &mut Rng) -> BTreeMap<PathBuf, Vec<u8>> {
        for (path, content) in &mut self.contents {
            tear(content, &self.durable[path], rng);
        }
        for (_, mut changes) in std::mem::take(&mut self.changes) {
            let kept = rng.below(changes.len() as u64 + 1) as usize;
            for change in changes.drain(kept..).rev() {
                match change {
                    Change::Created(path) => drop(self.contents.remove(&path)),
                    Change::Renamed { from, to } => {
                        if let Some(content) = self.contents.remove(&to) {
                            self.contents.insert(from, content);
                        }
                    }
                    Change::Removed(path, mut content, durable) => {
                        tear(&mut content, &durable, rng);
                        self.contents.insert(path, content);
                    }
                }
            }
        }
        self.contents
    }

    fn take(&mut self, path: &Path) -> Option<(Vec<u8>, Durable)> {
        let content = self.contents.remove(path)?;
        let durable = self.durable.remove(path).unwrap_or_default();
        Some((content, durable))
    }

    fn change(&mut self, path: &Path, change: Change) {
        let changes = self.changes.entry(folder_of(path)).or_default();
        changes.push(change);
    }
}

/// Files that are durable.
impl From<BTreeMap<PathBuf, Vec<u8>>> for Files {
    fn from(contents: BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let durable = |content: &Vec<u8>| Durable {
            synced: content.len(),
            lost: Vec::new(),
        };
        let all = contents.iter();
        Files {
            durable: all
                .map(|(path, content)| (path.clone(), durable(content)))
                .collect(),
            contents,
            changes: BTreeMap::new(),
        }
    }
}

/// Keeps some of the bytes that are not durable; sectors among them were not written. They hold zeros, and
/// elsewhere than at the start of a file also other bytes.
fn tear(content: &mut Vec<u8>, durable: &Durable, rng: &mut Rng) {
    for lost in &durable.lost {
        content[lost.clone()].fill(0);
    }
    let synced = durable.synced.min(content.len());
    let rest = (content.len() - synced) as u64;
    content.truncate(synced + rng.below(rest + 1) as usize);
    if rng.chance(0.5) {
        return;
    }
    let mut from = synced;
    while from < content.len() {
        let until = content.len().min((from / SECTOR + 1) * SECTOR);
        if rng.chance(0.3) {
            let others = if from < SECTOR { 1 } else { 3 };
            content[from..until].fill([0, b'x', b'\n'][rng.below(others) as usize]);
        }
        from = until;
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

/// A disk writes so many bytes wholly or not at all.
const SECTOR: usize = 512;
