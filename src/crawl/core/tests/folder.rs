//! The folder of a crawl that is ended again and again: its files go to a simulated disk and come back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A new folder. Files are synced often: in memory that takes no time.
pub fn in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    folder.expect("a folder")
}

/// The files in a folder and its folders, but for its lock.
pub fn files_of(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else if !path.ends_with(".argiope-lock") {
            files.insert(path.clone(), fs::read(&path).expect("it can be read"));
        }
    }
    files
}

/// Makes the folder's files these.
pub fn put_files(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    let present = files_of(folder).into_keys();
    for path in present.filter(|path| !files.contains_key(path)) {
        fs::remove_file(path).expect("it is there");
    }
    for (path, content) in files {
        let folder = path.parent().expect("it has a folder");
        fs::create_dir_all(folder).expect("it can be made");
        fs::write(path, content).expect("it can be written");
    }
}
