//! New files that are made from others: written under a temporary name, and renamed once they are complete.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::files::sync_entry;
use super::reserve::Reserve;
use crate::base::derive::{BrokenOff, Derive, DeriveFiles};
use crate::base::disk::Written;

/// Makes the file `to` from the file `from`. A reader of `to` sees all of it or none.
///
/// # Errors
/// Those of the files, or of `derive`; what was written is removed. [`ErrorKind`](io::ErrorKind)`::ResourceBusy`:
/// another process makes the same file. [`BrokenOff`]: `is_given_up` became true.
pub(in crate::io) fn derive(
    (from, to): (&Path, &Path),
    derive: &mut dyn Derive,
    reserve: &mut Reserve,
    is_given_up: &AtomicBool,
) -> io::Result<Written> {
    let source = File::open(from).map_err(|error| named("cannot open", from, &error))?;
    let reserve = RefCell::new(reserve);
    let guard = Guard {
        reserve: &reserve,
        is_given_up,
    };
    let mut source = Guarded {
        file: source,
        guard,
    };
    let temporary = Temporary::create(to)?;
    let mut scratch = Guarded {
        file: temporary.scratch()?,
        guard,
    };
    let mut written = Guarded {
        file: temporary.file.try_clone()?,
        guard,
    };
    let mut out = BufWriter::with_capacity(WRITTEN_AT_ONCE, &mut written);
    let files = DeriveFiles {
        from: &mut source,
        to: &mut out,
        scratch: &mut scratch,
    };
    let done = derive.derive(files).and_then(|()| out.flush());
    // What is still in it is of no use.
    drop(out.into_parts());
    done.map_err(|error| named("from", from, &error))
        .and_then(|()| temporary.finish(to))
        .map_err(|error| match is_given_up.load(Ordering::Relaxed) {
            // Whatever became of the error on its way.
            true => BrokenOff::error(format_args!("cannot make {}", to.display())),
            false => named("cannot make", to, &error),
        })
}

/// A file under its temporary name. It is removed unless it gets its final one.
#[derive(Debug)]
struct Temporary {
    file: File,
    path: PathBuf,
    is_finished: bool,
}

impl Temporary {
    /// An empty file beside `to`. What a process left there that was killed is replaced.
    fn create(to: &Path) -> io::Result<Self> {
        let path = beside(to, ".tmp");
        let failed = |error: io::Error| named("cannot create", &path, &error);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(failed)?;
        let busy = || {
            let text = "another process makes this file";
            failed(io::Error::new(io::ErrorKind::ResourceBusy, text))
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(busy()),
            Err(error) => return Err(failed(error.into())),
        }
        // It may have been renamed or removed before it was locked.
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let there = fs::symlink_metadata(&path).map(id).ok();
        if there != Some(id(file.metadata().map_err(failed)?)) {
            return Err(busy());
        }
        file.set_len(0).map_err(failed)?;
        Ok(Temporary {
            file,
            path,
            is_finished: false,
        })
    }

    /// A file without a name, so that nothing is left of it.
    fn scratch(&self) -> io::Result<File> {
        let path = beside(&self.path, ".sort");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        // A process that was killed may have left one; a link there leads to the file of another.
        let removed = match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let file = removed.and_then(|()| options.open(&path));
        let file = file.and_then(|file| fs::remove_file(&path).map(|()| file));
        file.map_err(|error| named("cannot create", &path, &error))
    }

    /// Gives it its final name, durably.
    fn finish(mut self, to: &Path) -> io::Result<Written> {
        self.file.sync_all()?;
        let length = self.file.metadata()?.len();
        fs::rename(&self.path, to)?;
        self.is_finished = true;
        sync_entry(to)?;
        Ok(Written { offset: 0, length })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_finished {
            // Its lock is held until it is closed: it is no other's.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What each read and write is checked by.
#[derive(Clone, Copy)]
struct Guard<'a> {
    reserve: &'a RefCell<&'a mut Reserve>,
    is_given_up: &'a AtomicBool,
}

impl Guard<'_> {
    fn check(&self) -> io::Result<()> {
        match self.is_given_up.load(Ordering::Relaxed) {
            true => Err(BrokenOff::error("it is not wanted any more")),
            false => Ok(()),
        }
    }
}

/// A file that is not read or written any more once that is given up, nor written to the last free space.
struct Guarded<'a> {
    file: File,
    guard: Guard<'a>,
}

impl Read for Guarded<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.guard.check()?;
        self.file.read(bytes)
    }
}

impl Write for Guarded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.guard.check()?;
        let length = bytes.len() as u64;
        self.guard.reserve.borrow_mut().take(&self.file, length)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Guarded<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A path with an ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

const WRITTEN_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies the file.
    #[derive(Debug)]
    struct Copy;

    impl Derive for Copy {
        fn derive(&mut self, files: DeriveFiles<'_>) -> io::Result<()> {
            io::copy(files.from, files.to).map(drop)
        }
    }

    /// Fails as a file of a network file system may.
    #[derive(Debug)]
    struct TimesOut;

    impl Derive for TimesOut {
        fn derive(&mut self, _: DeriveFiles<'_>) -> io::Result<()> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    #[test]
    fn a_file_system_that_times_out_is_not_taken_for_a_derivation_that_is_broken_off() {
        for is_given_up in [false, true] {
            let folder = folder();
            let paths = (&*folder.path().join("from"), &*folder.path().join("to"));
            let given_up = AtomicBool::new(is_given_up);
            let mut reserve = Reserve::new(Some(0));
            let made = derive(paths, &mut TimesOut, &mut reserve, &given_up);
            let error = made.expect_err("it fails");
            assert_eq!(BrokenOff::is(&error), is_given_up, "{error}");
            assert!(error.to_string().contains("cannot make"), "{error}");
            assert_eq!(names(folder.path()), ["from"]);
        }
    }

    /// Copies `from` to `to` in a folder, with so much free space reserved.
    fn copy(folder: &Path, free_min: u64) -> io::Result<Written> {
        let paths = (&*folder.join("from"), &*folder.join("to"));
        let mut reserve = Reserve::new(Some(free_min));
        derive(paths, &mut Copy, &mut reserve, &AtomicBool::new(false))
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("from"), b"content").unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_left_is_replaced() {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("to.tmp"), b"longer than the content").unwrap();
        fs::write(path("to.tmp.sort"), b"lines").unwrap();
        fs::write(path("to"), b"an older one").unwrap();
        assert_eq!(copy(folder.path(), 0).unwrap().length, 7);
        assert_eq!(fs::read(path("to")).unwrap(), b"content");
        assert_eq!(names(folder.path()), ["from", "to"]);
    }

    #[test]
    fn two_processes_do_not_make_the_same_file() {
        let folder = folder();
        let other = Temporary::create(&folder.path().join("to")).unwrap();
        let error = copy(folder.path(), 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
        assert!(error.to_string().contains("to.tmp"), "{error}");
        drop(other);
        assert_eq!(names(folder.path()), ["from"]);
        copy(folder.path(), 0).unwrap();
    }

    #[test]
    fn the_reserve_of_free_space_is_not_used() {
        let folder = folder();
        let error = copy(folder.path(), u64::MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(names(folder.path()), ["from"]);
    }
}
