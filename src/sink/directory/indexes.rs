//! The indexes of WARC files in an output directory: which are missing, and which would be wrong.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::sink::cdxj::index_path;
use crate::sink::directory::outputs::entries;

/// The WARC files in this folder, by their names, that have no index beside them.
pub(super) fn unindexed(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files: BTreeSet<PathBuf> = entries(folder)
        .map_err(|(_, error)| error)?
        .into_iter()
        .collect();
    let lacks = |path: &PathBuf| index_path(path).is_some_and(|index| !files.contains(&index));
    Ok(files.iter().filter(|path| lacks(path)).cloned().collect())
}

/// Whether a crawl makes an index of such a name, or did when it was killed.
pub(super) fn is_index_of_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        let endings = [".cdxj", ".cdxj.tmp", ".cdxj.tmp.sort"];
        name.starts_with("argiope-") && endings.iter().any(|ending| name.ends_with(ending))
    })
}

/// The index of a WARC file, if it has one.
pub(super) fn index_of(warc: &Path) -> Option<PathBuf> {
    index_path(warc).filter(|index| fs::symlink_metadata(index).is_ok())
}

/// Removes the index of a WARC file that is about to be cut or moved, durably: it would be wrong.
pub(super) fn remove(index: &Path) -> io::Result<()> {
    match fs::remove_file(index) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::File::open(index.parent().unwrap_or(index))?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::commit::{Commit, Epoch, FileLength};
    use crate::sink::directory::{lock, resume, salvage};

    /// A directory with these files in `warc`, each of 100 bytes.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("warc")).unwrap();
        for name in names {
            fs::write(folder.path().join("warc").join(name), [b'x'; 100]).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let paths = entries(&folder.join("warc")).unwrap();
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        paths.iter().map(name).collect()
    }

    /// A commit that has so many bytes of a WARC file.
    fn commit(folder: &Path, name: &str, length: u64) -> Commit {
        let path = folder.join("warc").join(name);
        Commit {
            epoch: Epoch(1),
            files: vec![FileLength::new(path, length)],
        }
    }

    #[test]
    fn files_without_an_index_are_found() {
        let folder = folder(&[
            "a.warc.gz",
            "a.cdxj",
            "b.warc.gz",
            "b.cdxj.tmp",
            "c.warc.gz.open",
            "d.txt",
        ]);
        let warcs = folder.path().join("warc");
        assert_eq!(unindexed(&warcs).unwrap(), [warcs.join("b.warc.gz")]);
        assert_eq!(
            unindexed(&warcs.join("missing")).unwrap(),
            [""; 0].map(PathBuf::from)
        );
    }

    #[test]
    fn a_warc_file_that_is_cut_or_moved_has_no_index_any_more() {
        const FIRST: &str = "argiope-1-00001-a.warc.gz";
        const SECOND: &str = "argiope-1-00002-a.warc.gz";
        let indexes = [FIRST, SECOND].map(|name| name.replace(".warc.gz", ".cdxj"));
        let folder = folder(&[FIRST, SECOND, &indexes[0], &indexes[1]]);
        let lock = lock(folder.path()).unwrap();
        // What is whole keeps its index.
        let whole = commit(lock.locked_path(), SECOND, 100);
        resume(&lock, Some(&whole)).unwrap();
        assert_eq!(
            names(folder.path()),
            [&indexes[0], FIRST, &indexes[1], SECOND]
        );
        let cut = commit(lock.locked_path(), SECOND, 60);
        assert!(resume(&lock, Some(&cut)).is_err());
        assert_eq!(
            names(folder.path()).len(),
            4,
            "what is refused changes nothing"
        );
        salvage(&lock, Some(&cut)).unwrap();
        assert_eq!(names(folder.path()), [&indexes[0], FIRST, SECOND]);
        let first = commit(lock.locked_path(), FIRST, 100);
        fs::write(folder.path().join("warc").join(&indexes[1]), b"x").unwrap();
        salvage(&lock, Some(&first)).unwrap();
        assert_eq!(names(folder.path()), [&indexes[0], FIRST]);
    }
}
