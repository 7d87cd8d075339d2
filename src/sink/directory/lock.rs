//! The lock of an output directory, which the kernel releases when its process ends.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::base::time::Wall;

/// Prevents other crawls from writing to an output directory while this value exists.
///
/// It is a `flock` on the directory and on the file `.argiope-lock` in it, which names the process. The kernel
/// releases both when the process ends, even by a crash; a leftover file locks nothing, and the directory
/// stays locked if the file is deleted. A file system that locks no directories, as NFS, has the lock of the file
/// only. Dropping deletes the file if it is still ours: if the directory was deleted, another crawl may have locked
/// a new file since.
#[derive(Debug)]
#[must_use = "if it is dropped, the directory is no longer locked"]
pub struct DirectoryLock {
    path: PathBuf,
    file: File,
    folder: PathBuf,
    /// Locked, if the file system can do that. Kept open, so that no new directory gets the same inode number.
    directory: File,
}

/// The owner of a directory's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// Its process and host, as written by it: `process 4711 on crawler.test`. Empty if it has not
    /// written them yet.
    pub name: String,
    /// Start of ownership by the clock of the file system; the epoch if unknown.
    pub since: Wall,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.name.as_str() {
            "" => "a process that has just started",
            name => name,
        };
        match self.since {
            Wall(0) => f.write_str(name),
            since => write!(f, "{name}, since {since}"),
        }
    }
}

/// The process that has locked a directory, if one has. Nothing is locked or changed.
///
/// A lock file names its process, and remains after a crash: the process counts if it still has the file
/// open. That of another machine, and one whose files may not be looked at, count if they may be running. Without the
/// file, the process that has locked the directory is found among the kernel's locks.
pub(super) fn live_owner(folder: &Path) -> io::Result<Option<Owner>> {
    match owner_by_file(folder)? {
        Some(owner) => Ok(Some(owner)),
        None => Ok(owner_by_directory(&open_directory(folder)?)),
    }
}

fn owner_by_file(folder: &Path) -> io::Result<Option<Owner>> {
    let mut file = match File::open(folder.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let owner = owner(&mut file)?;
    let words: Vec<&str> = owner.name.split(' ').collect();
    let ["process", id, "on", machine] = words[..] else {
        // It has just created the file.
        return Ok(Some(owner));
    };
    if machine != host() {
        return Ok(Some(owner));
    }
    Ok(may_have_open(id, &file.metadata()?).then_some(owner))
}

/// Whether a process of this machine has a file open, as far as that may be looked at.
fn may_have_open(process: &str, file: &fs::Metadata) -> bool {
    let opened = match fs::read_dir(Path::new("/proc").join(process).join("fd")) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return true,
        // It has ended.
        Err(_) => return false,
    };
    let is_it = |entry: io::Result<fs::DirEntry>| {
        let there = entry.and_then(|entry| fs::metadata(entry.path()));
        there.is_ok_and(|there| (there.dev(), there.ino()) == (file.dev(), file.ino()))
    };
    opened.into_iter().any(is_it)
}

/// The process of this machine that has locked a directory.
fn owner_by_directory(directory: &File) -> Option<Owner> {
    let meta = directory.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let id = locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", id, place, ..] = words[..] else {
            return None;
        };
        let inode = place.rsplit(':').next()?.parse::<u64>();
        (inode == Ok(meta.ino()) && may_have_open(id, &meta)).then_some(id)
    })?;
    Some(Owner {
        name: format!("process {id} on {}", host()),
        since: Wall(0),
    })
}

/// Result of trying to lock a directory.
#[derive(Debug)]
pub(super) enum Locked {
    /// Locked by us.
    Ours(DirectoryLock),
    /// Locked by another process.
    Others(Owner),
}

impl DirectoryLock {
    /// Locks an existing directory, without waiting.
    pub(super) fn take(folder: &Path) -> io::Result<Locked> {
        let path = folder.join(NAME);
        let directory = open_directory(folder)?;
        // First, so that one who is refused makes no file.
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Locked::Others(owner_of(folder, &directory))),
            Err(error) => log::debug!("{} is locked by its file only: {error}", folder.display()),
        }
        for _ in 0..TRIES {
            let mut file = open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Locked::Others(owner(&mut file)?)),
                Err(error @ (Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS)) => log::warn!(
                    "{} cannot be locked ({error}): a second crawl could write there too",
                    folder.display()
                ),
                Err(error) => return Err(error.into()),
            }
            // Its last owner may have deleted it between opening and locking.
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
            "{NAME} was created and deleted repeatedly by other processes"
        )))
    }

    /// Returns whether the directory is still ours to write to, at its path: it was not deleted,
    /// moved or replaced, and no other crawl has locked it after our file was deleted. Deleting
    /// only our file changes nothing.
    ///
    /// Makes blocking calls to the file system.
    pub fn is_held(&self) -> bool {
        // If it cannot be checked, writing will fail anyway.
        let is_there = is_at_or(&self.directory, fs::metadata(&self.folder), false);
        is_there && is_at_or(&self.file, fs::symlink_metadata(&self.path), true)
    }

    /// Deletes the lock file, if it is still ours, as dropping does: for a process that is about to exit. The
    /// directory stays locked.
    ///
    /// Makes blocking calls to the file system.
    pub fn remove_file(&self) {
        if let Some(folder) = self.folder()
            && is_at(&self.file, &folder.join(NAME)).unwrap_or(false)
        {
            let _ = fs::remove_file(folder.join(NAME));
        }
    }

    /// The path that was locked.
    pub(super) fn locked_path(&self) -> &Path {
        &self.folder
    }

    /// The present path of the directory while it is ours to write to: it may have been moved.
    ///
    /// Makes blocking calls to the file system.
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
        // While it is still locked: afterwards it may belong to another crawl.
        self.remove_file();
    }
}

/// A directory, to be locked; where it may not be read, as a place only.
fn open_directory(folder: &Path) -> io::Result<File> {
    let open = |more: OFlags| {
        let flags = (more | OFlags::DIRECTORY).bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags).open(folder)
    };
    match open(OFlags::empty()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open(OFlags::PATH),
        opened => opened,
    }
}

/// The owner of a directory that is locked: nameless if it cannot be found.
fn owner_of(folder: &Path, directory: &File) -> Owner {
    let by_file = || owner(&mut File::open(folder.join(NAME)).ok()?).ok();
    let named = by_file().filter(|owner| !owner.name.is_empty());
    let found = match (named, owner_by_directory(directory)) {
        // The file may be that of a process that was killed.
        (Some(named), Some(found)) if named.name.trim() != found.name => Some(found),
        (named, found) => named.or(found),
    };
    found.unwrap_or(Owner {
        name: String::new(),
        since: Wall(0),
    })
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

/// Returns whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether this is the same file; `missing` if there is none, and true if that cannot be
/// determined.
fn is_at_or(file: &File, there: io::Result<fs::Metadata>, missing: bool) -> bool {
    match (file.metadata(), there) {
        (Ok(ours), Ok(there)) => (there.dev(), there.ino()) == (ours.dev(), ours.ino()),
        (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => missing,
        _ => true,
    }
}

fn owner(file: &mut File) -> io::Result<Owner> {
    let mut text = String::new();
    // If the content is not text, it is not displayed.
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

/// Name of the locked file.
pub(super) const NAME: &str = ".argiope-lock";

/// Number of tries if other processes keep deleting the file.
const TRIES: usize = 100;

/// Longer than a process id with a host name.
const NAME_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &Path) -> Locked {
        DirectoryLock::take(folder).expect("a folder can be locked")
    }

    #[test]
    fn a_directory_has_one_owner_and_others_get_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let Locked::Ours(lock) = take(folder.path()) else {
            panic!("it is not locked");
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
    fn the_live_owner_is_found_without_a_lock() {
        let folder = tempfile::tempdir().unwrap();
        let found = || live_owner(folder.path()).expect("it can be read");
        assert_eq!(found(), None);
        let Locked::Ours(lock) = take(folder.path()) else {
            panic!("it is not locked");
        };
        let us = format!("process {} on ", std::process::id());
        assert!(found().expect("an owner").name.starts_with(&us));
        drop(lock);
        assert_eq!(found(), None);
        // After a crash the file remains; and another process may have its number.
        let mut other = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .unwrap();
        for id in [other.id(), u32::MAX] {
            let text = format!("process {id} on {}\n", host());
            fs::write(folder.path().join(NAME), text).unwrap();
            assert_eq!(found(), None);
        }
        other.kill().and_then(|()| other.wait()).unwrap();
        fs::write(folder.path().join(NAME), "process 1 on another.test\n").unwrap();
        let owner = found().expect("it may be running");
        assert_eq!(owner.name, "process 1 on another.test");
    }

    #[test]
    fn a_leftover_lock_file_does_not_lock() {
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
    fn a_replaced_directory_is_no_longer_held_and_its_lock_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("out");
        let locked = || {
            fs::create_dir_all(&folder).unwrap();
            match take(&folder) {
                Locked::Ours(lock) => lock,
                Locked::Others(owner) => panic!("{owner}"),
            }
        };
        // The file alone is deleted: nothing changes.
        let first = locked();
        assert!(first.is_held());
        fs::remove_file(folder.join(NAME)).unwrap();
        assert!(first.is_held());
        let us = format!("process {} on {}", std::process::id(), host());
        let Locked::Others(owner) = take(&folder) else {
            panic!("it is locked");
        };
        assert_eq!(owner.to_string(), us);
        assert_eq!(live_owner(&folder).unwrap(), Some(owner));
        assert!(first.is_held() && !folder.join(NAME).exists());
        // A process that locks the file only.
        fs::write(folder.join(NAME), "process 1 on another.test").unwrap();
        assert!(!first.is_held());
        drop(first);
        assert!(folder.join(NAME).exists());
        let second = locked();
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
    fn of_many_concurrent_lockers_one_at_a_time_succeeds() {
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
