//! The lock of an output directory, which the kernel releases when its owner dies.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::time::Wall;

/// An output directory that no other crawl may write to as long as this lives.
///
/// It is a `flock` on a file in the directory, `.argiope-lock`. The kernel releases it when the process
/// dies, however it dies; the file that is then left behind locks nothing. Dropped, it takes the file
/// away, if it is still its own: where the directory was deleted, another crawl may have locked a new
/// file since.
#[derive(Debug)]
#[must_use = "dropped at once it locks nothing"]
pub struct DirectoryLock {
    path: PathBuf,
    file: File,
    folder: PathBuf,
    /// Kept open, so that no new directory gets the same number.
    directory: File,
}

/// Who holds the lock of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// Its process and its host, as it named them: `process 4711 on crawler.test`. Empty where it
    /// has not written them yet.
    pub name: String,
    /// Since when, by the clock of the file system; the epoch where that does not say.
    pub since: Wall,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => "a process that has just begun",
            name => name,
        };
        write!(f, "{name}, since {}", self.since)
    }
}

/// What came of trying to lock a directory.
#[derive(Debug)]
pub(super) enum Locked {
    /// It is ours.
    Ours(DirectoryLock),
    /// It is another's.
    Others(Owner),
}

impl DirectoryLock {
    /// Locks a directory that exists, without waiting.
    pub(super) fn take(folder: &Path) -> io::Result<Locked> {
        let path = folder.join(NAME);
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::PATH | OFlags::DIRECTORY).bits() as i32)
            .open(folder)?;
        for _ in 0..TRIES {
            let mut file = open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Locked::Others(owner(&mut file)?)),
                Err(error @ (Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS)) => log::warn!(
                    "{} cannot be locked ({error}): nothing keeps a second crawl from writing there",
                    folder.display()
                ),
                Err(error) => return Err(error.into()),
            }
            // Its last owner may have taken it away between opening and locking.
            if is_at(&file, &path)? {
                file.set_len(0)?;
                writeln!(file, "process {} on {}", std::process::id(), host())?;
                return Ok(Locked::Ours(DirectoryLock {
                    path,
                    file,
                    folder: folder.to_owned(),
                    directory,
                }));
            }
        }
        Err(io::Error::other(format!(
            "{NAME} is made and taken away again and again"
        )))
    }

    /// Whether the directory is still ours to write to, at its path. It is not once it was deleted,
    /// moved or replaced, or another crawl has locked it since our file was deleted. That our file alone
    /// was deleted changes nothing.
    ///
    /// Calls the file system and waits for it.
    pub fn is_held(&self) -> bool {
        // What cannot be looked at is left for the writing to fail at.
        let is_there = is_at_or(&self.directory, fs::metadata(&self.folder), false);
        is_there && is_at_or(&self.file, fs::symlink_metadata(&self.path), true)
    }

    /// Where the directory is now, as long as it is ours to write to: it may have been moved.
    ///
    /// Calls the file system and waits for it.
    pub fn folder(&self) -> Option<PathBuf> {
        if self.is_held() {
            return Some(self.folder.clone());
        }
        let descriptor = format!("/proc/self/fd/{}", self.directory.as_raw_fd());
        let moved = fs::read_link(descriptor).ok()?;
        let is_there = is_at(&self.directory, &moved).unwrap_or(false);
        let is_ours = is_at(&self.file, &moved.join(NAME)).unwrap_or(false);
        (is_there && is_ours).then_some(moved)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // While it is still locked: afterwards it may be another's.
        if let Some(folder) = self.folder()
            && is_at(&self.file, &folder.join(NAME)).unwrap_or(false)
        {
            let _ = fs::remove_file(folder.join(NAME));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
}

/// Whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether this is the same file; `missing` where there is none, and true where that cannot be determined.
fn is_at_or(file: &File, there: io::Result<fs::Metadata>, missing: bool) -> bool {
    match (file.metadata(), there) {
        (Ok(ours), Ok(there)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => missing,
        _ => true,
    }
}

fn owner(file: &mut File) -> io::Result<Owner> {
    let mut text = String::new();
    // Whatever else it may be, it is not to be shown.
    let _ = file.take(NAME_BYTES).read_to_string(&mut text);
    let name = text.lines().next().unwrap_or_default();
    let meta = file.metadata()?;
    let since = meta.mtime().saturating_mul(1_000_000_000) + meta.mtime_nsec();
    Ok(Owner {
        name: name.chars().filter(|c| !c.is_control()).collect(),
        since: Wall(u64::try_from(since).unwrap_or(0)),
    })
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// The file that is locked.
pub(super) const NAME: &str = ".argiope-lock";

/// How often it is opened anew where others take it away.
const TRIES: usize = 100;

/// More than a process number and the name of a host take.
const NAME_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &Path) -> Locked {
        DirectoryLock::take(folder).expect("a folder can be locked")
    }

    #[test]
    fn a_directory_has_one_owner_whose_name_others_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let Locked::Ours(lock) = take(folder.path()) else {
            panic!("nobody has it");
        };
        let Locked::Others(owner) = take(folder.path()) else {
            panic!("it has an owner");
        };
        let us = format!("process {} on ", std::process::id());
        assert!(owner.name.starts_with(&us), "{owner}");
        assert!(owner.name.len() > us.len(), "{owner}");
        assert!(owner.since > Wall(1_700_000_000_000_000_000), "{owner}");
        drop(lock);
        assert!(!folder.path().join(NAME).exists());
        assert!(matches!(take(folder.path()), Locked::Ours(_)));
    }

    #[test]
    fn a_file_left_behind_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join(NAME),
            "process 1 on another.test, long ago\n",
        )
        .unwrap();
        let Locked::Ours(_lock) = take(folder.path()) else {
            panic!("its owner is dead");
        };
        let Locked::Others(owner) = take(folder.path()) else {
            panic!("it has an owner");
        };
        assert!(!owner.name.contains("long ago"), "{owner}");
    }

    #[test]
    fn a_directory_that_was_replaced_is_held_no_more_and_its_lock_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("out");
        let locked = || {
            fs::create_dir_all(&folder).unwrap();
            match take(&folder) {
                Locked::Ours(lock) => lock,
                Locked::Others(owner) => panic!("{owner}"),
            }
        };
        // The file alone is deleted: as long as nobody takes it, nothing changes.
        let first = locked();
        assert!(first.is_held());
        fs::remove_file(folder.join(NAME)).unwrap();
        assert!(first.is_held());
        let second = locked();
        assert!(!first.is_held() && second.is_held());
        drop(first);
        assert!(second.is_held() && folder.join(NAME).exists());
        // The whole directory is.
        fs::remove_dir_all(&folder).unwrap();
        assert!(!second.is_held());
        let third = locked();
        assert!(!second.is_held() && third.is_held());
        drop(second);
        assert!(folder.join(NAME).exists());
        drop(third);
        assert!(!folder.join(NAME).exists());
    }

    #[test]
    fn of_many_at_once_one_gets_it_and_none_is_locked_twice() {
        let folder = tempfile::tempdir().unwrap();
        let held = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        if let Locked::Ours(lock) = take(folder.path()) {
                            assert_eq!(held.fetch_add(1, order), 0, "two have it");
                            held.fetch_sub(1, order);
                            drop(lock);
                        }
                    }
                });
            }
        });
    }
}
