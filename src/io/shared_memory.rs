//! Memory that outlives the process, but not the power of the machine: files in memory, which are mapped.

#![expect(unsafe_code, reason = "a file is mapped")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::geteuid;

/// Where Linux has its file system in memory.
const FOLDER: &str = "/dev/shm";

/// Words that a later process finds as this one left them, also after `kill -9`.
#[derive(Debug)]
pub enum SharedMemory {
    /// A file in memory.
    Mapped(Mapping),
    /// Memory of a simulated machine.
    Simulated(Arc<[AtomicU64]>),
}

/// A mapped file, which no other process maps meanwhile.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    start: NonNull<AtomicU64>,
    words: usize,
    /// Keeps the lock.
    _file: File,
}

// SAFETY: the mapping is of the process and no other value has its address: any thread may use and unmap it.
unsafe impl Send for Mapping {}

impl SharedMemory {
    /// The file of this name in the machine's memory.
    ///
    /// # Errors
    /// As [`Io::shared_memory`](crate::io::Io::shared_memory).
    pub(super) fn open(name: &str, words: usize) -> io::Result<Self> {
        Mapping::open(Path::new(FOLDER).join(name), words).map(SharedMemory::Mapped)
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        match self {
            SharedMemory::Mapped(mapping) => mapping.words(),
            SharedMemory::Simulated(words) => words,
        }
    }

    /// No later process finds it.
    pub fn remove(&self) {
        match self {
            // If it fails, the file is found again.
            SharedMemory::Mapped(mapping) => drop(fs::remove_file(&mapping.path)),
            SharedMemory::Simulated(words) => {
                words
                    .iter()
                    .for_each(|word| word.store(0, Ordering::Relaxed));
            }
        }
    }
}

/// Removes what an earlier process left in memory under a name, if there is something, and no process has it.
pub fn remove_from_memory(name: &str) {
    drop(remove(&Path::new(FOLDER).join(name)));
}

fn remove(path: &Path) -> io::Result<()> {
    let file = options().open(path)?;
    check_ours(&file)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::remove_file(path)
}

/// What an earlier process left in memory under a name.
///
/// # Errors
/// The system's: there is nothing, a process has it, or it is not ours, or not so long.
pub fn left_in_memory(name: &str, words: usize) -> io::Result<Vec<u64>> {
    read(&Path::new(FOLDER).join(name), words)
}

fn read(path: &Path, words: usize) -> io::Result<Vec<u64>> {
    let mut file = options().open(path)?;
    let bytes = words * size_of::<u64>();
    if check_ours(&file)? != bytes as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // A crawl runs whose directory was copied.
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    let mut content = vec![0; bytes];
    file.read_exact(&mut content)?;
    let (words, _) = content.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// Opens no other file than the named one, and does not wait for the other end of a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

/// The length of a file. An error unless it is a regular one that belongs to the user and has one name.
fn check_ours(file: &File) -> io::Result<u64> {
    let found = file.metadata()?;
    let is_ours = found.is_file() && found.uid() == geteuid().as_raw() && found.nlink() == 1;
    match is_ours {
        true => Ok(found.len()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file is not this user's",
        )),
    }
}

impl Mapping {
    fn open(path: PathBuf, words: usize) -> io::Result<Self> {
        let length = words * size_of::<u64>();
        let mut options = options();
        options.write(true).create(true).mode(0o600);
        let file = options.open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let found = check_ours(&file)?;
        if found != length as u64 {
            file.set_len(0)?;
        }
        // Without its pages a write to the mapping ends the process where the file system is full.
        let allocated = fallocate(&file, FallocateFlags::empty(), 0, length as u64);
        if let Err(error) = allocated {
            drop(fs::remove_file(&path));
            return Err(error.into());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, &file, 0)? };
        Ok(Mapping {
            path,
            start: NonNull::new(start.cast()).expect("nothing is mapped at 0"),
            words,
            _file: file,
        })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped at that page until `self` is dropped, readable and writable, and
        // any bytes are valid words. Others that write to the file do so beside atomic accesses only, and
        // its pages are there unless the user cuts it off.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let length = self.words * size_of::<u64>();
        // SAFETY: it was mapped with this length, and no reference to its words is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), length) };
        debug_assert!(unmapped.is_ok(), "the mapping is there");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn open(path: &Path, words: usize) -> io::Result<SharedMemory> {
        Mapping::open(path.to_owned(), words).map(SharedMemory::Mapped)
    }

    fn store(memory: &SharedMemory, value: u64) {
        let words = memory.words();
        words[words.len() - 1].store(value, Ordering::Release);
    }

    #[test]
    fn words_are_found_by_a_later_process_until_they_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("words");
        let memory = open(&path, 1000).expect("it can be made");
        assert_eq!(
            fs::metadata(&path).expect("it is there").mode() & 0o777,
            0o600
        );
        assert!(
            memory
                .words()
                .iter()
                .all(|word| word.load(Ordering::Acquire) == 0)
        );
        store(&memory, 7);
        assert!(open(&path, 1000).is_err(), "one at a time");
        assert!(read(&path, 1000).is_err(), "it is in use");
        assert!(remove(&path).is_err() && path.exists());
        drop(memory);
        assert_eq!(read(&path, 1000).expect("it can be read")[999], 7);
        let memory = open(&path, 1000).expect("it is there");
        assert_eq!(memory.words()[999].load(Ordering::Acquire), 7);
        memory.remove();
        assert!(!path.exists());
        assert!(read(&path, 1000).is_err());
        drop(open(&path, 1000).expect("it can be made"));
        remove(&path).expect("it is not in use");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_another_length_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("words");
        for length in [0, 9, 7999, 8001, 100_000] {
            fs::write(&path, vec![1; length]).expect("it can be written");
            assert!(read(&path, 1000).is_err(), "{length}");
            let memory = open(&path, 1000).expect("it can be used");
            assert!(
                memory
                    .words()
                    .iter()
                    .all(|word| word.load(Ordering::Acquire) == 0)
            );
            store(&memory, 1);
            assert_eq!(fs::metadata(&path).expect("it is there").len(), 8000);
        }
    }

    #[test]
    fn links_folders_and_pipes_are_not_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["target", "link", "named", "hard", "pipe"];
        let [target, path, named, hard, pipe] = names.map(|name| folder.path().join(name));
        for file in [&target, &named] {
            fs::write(file, vec![1; 80]).expect("it can be written");
        }
        symlink(&target, &path).expect("a link");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .expect("a pipe");
        fs::hard_link(&named, &hard).expect("a link");
        for path in [&path, &hard, &pipe, &folder.path().to_owned()] {
            assert!(open(path, 5).is_err(), "{}", path.display());
            assert!(read(path, 10).is_err(), "{}", path.display());
        }
        for file in [&target, &named] {
            assert_eq!(fs::read(file).expect("it is there"), vec![1; 80]);
        }
    }

    #[test]
    fn memory_that_is_full_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("words");
        assert!(open(&path, 1 << 58).is_err(), "no machine has so much");
        assert!(!path.exists());
        let nowhere = folder.path().join("nowhere/words");
        assert!(open(&nowhere, 10).is_err());
    }
}
