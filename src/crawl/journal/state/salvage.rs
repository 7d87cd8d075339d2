//! Salvages requests in files: what is intact of them, and what is known of the rest.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::{State, StateError};
use crate::crawl::journal::progress::{LoadPhase, LoadProgress, Meter};
use crate::crawl::journal::segment::{Hints, OnDamage, ReadError, Segment};
use crate::crawl::journal::start::Continuation;
use crate::sink::commit::Commit;
use crate::state::record::{Entry, Record, SpilledBlock};
use crate::state::replay::Restored;

/// Keys in one record: for each record all that were admitted are looked through.
const UNDONE_PER_RECORD: usize = 1 << 20;

impl State {
    /// Leaves out the blocks of requests that are not intact, and requests that the journal has, or another
    /// block. `read` fills bytes from a file; `committed_urls` passes on the URLs of the lines that a commit has.
    pub(super) fn salvage_blocks(
        &mut self,
        read: impl Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
        committed_urls: impl FnOnce(&Commit, &mut dyn FnMut(&str)) -> io::Result<bool>,
        watch: impl FnMut(LoadProgress),
    ) -> Result<(), StateError> {
        let mut known = self.restored.as_mut().and_then(Restored::take_known);
        let mut taken = Vec::new();
        let (keys, mut queued) = (self.start.keys, Vec::new());
        let length = self.blocks().map(|block| block.length).sum();
        let mut meter = Meter::new(LoadPhase::Requests, length, watch);
        let mut position = 0;
        let dropped = self.drop_blocks_unless(|spill, block| {
            position += block.length;
            meter.note(position);
            let path = spill.path_of(block.file);
            let Ok(length) = usize::try_from(block.length) else {
                return false;
            };
            let mut bytes = vec![0; length];
            let read = read(&path, block.offset, &mut bytes);
            let entries = read.and_then(|()| spill.entries_of(block, &bytes));
            if let Ok(entries) = &entries {
                let urls = entries.iter().map(|entry| entry.job.url.as_str());
                queued.extend(urls.map(|url| keys.url(url).0));
            }
            if let (Ok(entries), Some(known)) = (&entries, &mut known)
                && let Some(entries) = known.take_block(entries)
            {
                taken.push((*block, entries));
            }
            entries.is_ok()
        });
        let is_lost = !dropped.is_empty();
        if !taken.is_empty() {
            let dropped = dropped.into_iter().map(|block| (block, Vec::new()));
            let path = self.start.path.clone();
            self.read_blocks(dropped.chain(taken))
                .map_err(|cause| StateError::in_file(&path, cause))?;
        }
        match is_lost {
            true => self.undo_lost(queued, committed_urls),
            false => Ok(()),
        }
    }

    /// Has the URLs of lost requests count as new. They are the admitted URLs that have no line and do not wait. Those
    /// whose keys are in runs are not looked for. `queued`: keys of requests in blocks.
    fn undo_lost(
        &mut self,
        queued: Vec<u64>,
        committed_urls: impl FnOnce(&Commit, &mut dyn FnMut(&str)) -> io::Result<bool>,
    ) -> Result<(), StateError> {
        let (Some(left), Some(commit)) = (&mut self.restored, &self.commit) else {
            return Ok(());
        };
        let keys = self.start.keys;
        let mut known: HashSet<u64> = queued.into_iter().collect();
        let entries = left.admitted.iter().chain(left.offered.iter());
        known.extend(entries.map(|entry| keys.url(entry.job.url.as_str()).0));
        let has_lines = committed_urls(commit, &mut |url| {
            known.insert(keys.url(url).0);
        });
        let has_lines = has_lines.map_err(|cause| StateError::Io {
            path: self.start.folder.clone(),
            cause,
        })?;
        if !has_lines {
            return Ok(());
        }
        let lost = left.seen.iter().filter(|key| !known.contains(key));
        let lost: HashSet<u64> = lost.copied().collect();
        left.undo(&lost);
        self.renewed = lost.len() as u64;
        let lost: Vec<u64> = lost.into_iter().collect();
        for keys in lost.chunks(UNDONE_PER_RECORD) {
            self.start.add_record(Record::SeenUndone(keys.to_vec()));
        }
        Ok(())
    }

    /// The journal has these requests in place of their blocks: it is damaged, and thus rewritten.
    fn read_blocks(
        &mut self,
        blocks: impl Iterator<Item = (SpilledBlock, Vec<Entry>)>,
    ) -> Result<(), ReadError> {
        let changes = blocks.flat_map(|(SpilledBlock { file, offset, .. }, entries)| {
            let admitted = entries.into_iter().map(Record::Admitted);
            [Record::Unspilled { file, offset }]
                .into_iter()
                .chain(admitted)
        });
        let (Some(before), Some(rewritten)) = (&mut self.restored, &mut self.rewritten) else {
            return Ok(());
        };
        let Some(bytes) = Segment::amend(rewritten, changes.collect())? else {
            return Ok(());
        };
        *rewritten = bytes;
        let segment = Segment::read(
            &self.start.path,
            self.start.segment,
            &rewritten.as_slice(),
            &Hints::default(),
            OnDamage::Refuse,
            &mut |_| {},
        )?;
        if let Some(Segment {
            restored,
            outline: Some(outline),
            ..
        }) = segment
            && let Some(commit) = &restored.commit
            && let Some(continues) = &mut self.start.continues
        {
            let left = restored.bytes_in_journal();
            let records = std::mem::take(&mut continues.records);
            *continues = Continuation::new(&outline, commit.clone(), left);
            continues.records = records;
            // Newer segments have some of these.
            *before = Restored {
                facts: std::mem::take(&mut before.facts),
                requested: std::mem::take(&mut before.requested),
                ..restored
            };
        }
        Ok(())
    }
}
