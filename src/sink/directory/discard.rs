//! Removes what a crawl has made that fetched nothing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::outputs::WARCS;
use super::{DirectoryLock, EarlierCrawl, STATE, is_any_of};
use crate::sink::directory::InUse;

/// The folders that do not exist yet on the way to an output directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewFolders {
    /// The innermost first.
    folders: Vec<PathBuf>,
}

impl NewFolders {
    /// Those that [`prepare`](super::prepare) will create.
    ///
    /// Makes blocking calls to the file system.
    pub fn before(folder: &Path) -> Self {
        let missing = |path: &&Path| {
            let found = fs::symlink_metadata(path);
            found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        // The path ends with an empty one if it is relative.
        let named = folder
            .ancestors()
            .filter(|path| !path.as_os_str().is_empty());
        NewFolders {
            folders: named.take_while(missing).map(Path::to_owned).collect(),
        }
    }

    /// Removes them from the innermost on, as far as they are empty.
    ///
    /// Makes blocking calls to the file system.
    pub fn remove_empty(&self) {
        for folder in &self.folders {
            if fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// Deletes the files of the crawl in a locked directory, as [`prepare`](super::prepare) with `overwrite` does, and the
/// lock file; then those of the new folders that are empty. A file that is in use is kept, and so is all that cannot
/// be deleted: nothing depends on it. The crawl must have ended.
///
/// Makes blocking calls to the file system.
pub fn discard(lock: &DirectoryLock, in_use: InUse<'_>, new: &NewFolders) {
    let Some(folder) = lock.folder() else {
        return;
    };
    if let Ok(crawl) = EarlierCrawl::find(&folder) {
        let outputs = in_use.output.map_or(&[][..], std::slice::from_ref);
        let is_kept = |file: &Path| is_any_of(file, in_use.inputs) || is_any_of(file, outputs);
        for file in crawl.files.iter().filter(|file| !is_kept(file)) {
            let _ = fs::remove_file(file);
        }
        for name in [STATE, WARCS] {
            let _ = fs::remove_dir(folder.join(name));
        }
    }
    lock.remove_file();
    new.remove_empty();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::directory::prepare;

    #[test]
    fn a_crawl_that_fetched_nothing_leaves_nothing_but_the_files_of_others() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("a/b");
        let begin = |with: &[&str]| {
            let new = NewFolders::before(&out);
            let lock = prepare(&out, false, InUse::default()).unwrap();
            for file in with {
                let path = out.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            }
            discard(&lock, InUse::default(), &new);
        };
        begin(&[]);
        assert!(!parent.path().join("a").exists());
        begin(&[
            "results.jsonl",
            "stats.json",
            "rejected.jsonl",
            "state/journal-00000001",
            "warc/argiope-1-00000-a.warc.gz.open",
        ]);
        assert!(!parent.path().join("a").exists());
        begin(&["results.jsonl", "warc/mine.txt"]);
        assert!(out.join("warc/mine.txt").exists() && !out.join("results.jsonl").exists());
        assert!(!out.join(".argiope-lock").exists());
        // It was there before.
        fs::remove_dir_all(out.join("warc")).unwrap();
        begin(&["results.jsonl"]);
        assert!(out.exists() && !out.join("results.jsonl").exists());
    }
}
