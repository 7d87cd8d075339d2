//! Opens the runs of an earlier process.

use std::io;
use std::path::{Path, PathBuf};

use crate::crawl::journal::seen::SeenStart;
use crate::crawl::journal::seen::runs::{RunFailure, RunFile, path_of};
use crate::crawl::journal::segment::OnDamage;
use crate::state::record::RunRecord;

impl SeenStart {
    /// Opens the runs that the journal of a crawl names. `files`: the numbers of those that there are. A run
    /// that cannot be read is left out if damage is skipped: its URLs are fetched again where a page links to
    /// them.
    ///
    /// # Errors
    /// A run cannot be read.
    pub fn open(
        named: &[RunRecord],
        files: &[u64],
        (out, crawl): (&Path, u64),
        on_damage: OnDamage,
        read: impl Fn(&Path, u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Self, RunFailure> {
        let mut runs = Vec::new();
        for record in named {
            match RunFile::open(*record, out, crawl, &read) {
                Ok(run) => runs.push(run),
                Err(failure) if on_damage == OnDamage::Refuse => return Err(failure),
                Err((path, error)) => log::error!(
                    "{}: {error}; {} URLs count as new, and are fetched again where a page links to them",
                    path.display(),
                    record.keys
                ),
            }
        }
        let numbers = named.iter().map(|record| record.number);
        let last = numbers.chain(files.iter().copied()).max();
        Ok(SeenStart {
            runs,
            next_number: last.map_or(0, |last| last + 1),
        })
    }

    /// The records of the runs.
    pub fn records(&self) -> Vec<RunRecord> {
        self.runs.iter().map(RunFile::record).collect()
    }

    /// The files of runs that the journal does not name.
    pub fn stale<'a>(
        named: &'a [RunRecord],
        files: &'a [u64],
        out: &'a Path,
    ) -> impl Iterator<Item = PathBuf> + 'a {
        let is_named = |number: u64| named.iter().any(|record| record.number == number);
        let stale = files.iter().filter(move |number| !is_named(**number));
        stale.map(|number| path_of(out, *number))
    }
}
