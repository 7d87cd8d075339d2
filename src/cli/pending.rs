//! `pending.jsonl`: the requests that were queued when a crawl ended, as seeds lines.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;
use argiope::Request;

use super::room::is_full;

/// The file's name in the output directory.
pub const NAME: &str = "pending.jsonl";

/// Its mode: for the user alone.
const MODE: u32 = 0o600;

/// Its name while it is being written.
const UNFINISHED: &str = "pending.jsonl.tmp";

/// Writes the requests, one per line, and returns their count. If there are none, or they cannot be written, there
/// is no file: that of an earlier run of the crawl is removed.
///
/// The file gets its final name once it is complete and synced: it replaces that of an earlier run. On a full disk, a write is repeated while
/// `wait` returns true.
///
/// # Errors
/// The file cannot be written. The error contains the number of lines that were written.
pub fn write(
    requests: impl Iterator<Item = Request>,
    folder: &Path,
    wait: &mut dyn FnMut(&io::Error) -> bool,
) -> anyhow::Result<u64> {
    let mut requests = requests.peekable();
    if requests.peek().is_none() {
        return remove(folder).map(|()| 0);
    }
    let unfinished = folder.join(UNFINISHED);
    let count = match replace(requests, &unfinished, &folder.join(NAME), wait) {
        Ok(count) => count,
        // It is not what was queued now.
        Err(error) => match remove(folder) {
            Ok(()) => return Err(error),
            Err(old) => anyhow::bail!("{error:#}; {old:#}, which an earlier run wrote"),
        },
    };
    sync(folder)?;
    Ok(count)
}

/// Syncs the names of a folder.
pub fn sync(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot sync {}", folder.display()))
}

/// Removes the file that an earlier run wrote, if there is one.
///
/// # Errors
/// It cannot be removed.
pub fn remove(folder: &Path) -> anyhow::Result<()> {
    let old = folder.join(NAME);
    match fs::remove_file(&old) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", old.display()))
        }
        _ => Ok(()),
    }
}

/// Writes the requests to a file and gives it its name; returns their count.
pub fn replace(
    requests: impl Iterator<Item = Request>,
    unfinished: &Path,
    path: &Path,
    wait: &mut dyn FnMut(&io::Error) -> bool,
) -> anyhow::Result<u64> {
    // Requests may have logins and headers with secrets, as the state has.
    let create = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(MODE);
        let file = options.open(unfinished)?;
        // One that an earlier run left may have another mode.
        file.set_permissions(Permissions::from_mode(MODE))?;
        Ok(file)
    };
    let file = retried(&mut *wait, create)
        .with_context(|| format!("cannot create {}", unfinished.display()))?;
    let lines = requests.map(|request| request.to_line());
    let (count, written) = write_lines(lines, &file, wait);
    if let Err(error) = written {
        anyhow::bail!(
            "cannot write {}: {error}; the first {count} of what was queued are in it",
            unfinished.display()
        );
    }
    let name = || -> io::Result<()> {
        file.sync_all()?;
        fs::rename(unfinished, path)
    };
    name().with_context(|| {
        let (from, to) = (unfinished.display(), path.display());
        format!("cannot rename {from} to {to}")
    })?;
    Ok(count)
}

/// Removes what [`write`] left unfinished.
pub fn remove_unfinished(folder: &Path) {
    let _ = fs::remove_file(folder.join(UNFINISHED));
}

/// A file with positioned writes.
trait Volume {
    /// Writes some of the bytes at `offset`, and returns how many.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Truncates the file to `length`.
    fn cut(&self, length: u64) -> io::Result<()>;
}

impl Volume for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Writes lines; returns how many are completely in the file, and the error that stopped it, if any. A
/// failed write is retried at the same offset, so that no line is written twice.
fn write_lines(
    lines: impl Iterator<Item = String>,
    file: &impl Volume,
    wait: &mut dyn FnMut(&io::Error) -> bool,
) -> (u64, io::Result<()>) {
    let (mut offset, mut count) = (0, 0);
    let mut piece = Vec::with_capacity(PIECE_BYTES + LINE_USUAL);
    let mut lines_in_piece = 0;
    let mut flush = |piece: &mut Vec<u8>| -> io::Result<()> {
        let mut done = 0;
        while done < piece.len() {
            let at = offset + done as u64;
            match retried(&mut *wait, || file.write_at(&piece[done..], at)) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    // A partial line could be read as a different request.
                    let _ = file.cut(offset);
                    return Err(error);
                }
            }
        }
        offset += piece.len() as u64;
        piece.clear();
        Ok(())
    };
    for line in lines {
        piece.extend_from_slice(line.as_bytes());
        piece.push(b'\n');
        lines_in_piece += 1;
        if piece.len() >= PIECE_BYTES {
            if let Err(error) = flush(&mut piece) {
                return (count, Err(error));
            }
            count += std::mem::take(&mut lines_in_piece);
        }
    }
    match flush(&mut piece) {
        Ok(()) => (count + lines_in_piece, Ok(())),
        Err(error) => (count, Err(error)),
    }
}

/// Repeats an operation while the disk is full and `wait` returns true.
fn retried<T>(
    wait: &mut dyn FnMut(&io::Error) -> bool,
    mut what: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match what() {
            Err(error) if is_full(&error) && wait(&error) => {}
            result => return result,
        }
    }
}

/// Size of a write, and so the size of the buffer.
const PIECE_BYTES: usize = 256 << 10;
/// Room reserved for a line; most are shorter.
const LINE_USUAL: usize = 1024;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A file on a volume with limited space, which accepts a limited number of bytes per write.
    struct Small {
        bytes: RefCell<Vec<u8>>,
        room: Cell<usize>,
        at_once: usize,
    }

    impl Volume for Small {
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
            let mut file = self.bytes.borrow_mut();
            assert_eq!(offset, file.len() as u64, "without gap and overlap");
            let takes = bytes
                .len()
                .min(self.at_once)
                .min(self.room.get() - file.len());
            if takes == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            file.extend_from_slice(&bytes[..takes]);
            Ok(takes)
        }

        fn cut(&self, length: u64) -> io::Result<()> {
            self.bytes.borrow_mut().truncate(length as usize);
            Ok(())
        }
    }

    fn small(room: usize) -> Small {
        Small {
            bytes: RefCell::default(),
            room: Cell::new(room),
            at_once: 70_001,
        }
    }

    fn lines() -> impl Iterator<Item = String> {
        (0..20_000).map(|n| format!("http://a.test/{n}/{}", "x".repeat(n % 90)))
    }

    #[test]
    fn a_full_volume_delays_writing_and_no_line_is_lost_doubled_or_torn() {
        let file = small(1000);
        let mut waits = 0;
        let (count, written) = write_lines(lines(), &file, &mut |_| {
            waits += 1;
            file.room.set(file.room.get() + 33_333);
            true
        });
        written.expect("space becomes free");
        assert_eq!(count, 20_000);
        assert!(waits > 20, "{waits}");
        let text = String::from_utf8(file.bytes.into_inner()).expect("lines are text");
        assert!(text.lines().eq(lines()));
    }

    #[test]
    fn the_file_of_an_earlier_run_does_not_stay_when_a_new_one_cannot_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let of = |number: u64| Request::get(format!("http://a.test/{number}"));
        let written = write([of(1)].into_iter(), folder.path(), &mut |_| false);
        assert_eq!(written.expect("there is room"), 1);
        let written = write([of(2), of(3)].into_iter(), folder.path(), &mut |_| false);
        assert_eq!(written.expect("there is room"), 2);
        let text = fs::read_to_string(&path).expect("it was written");
        assert_eq!(text, "http://a.test/2\nhttp://a.test/3\n");
        let mode = fs::metadata(&path).expect("it was written").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "for the user alone");
        // No file can be created there.
        fs::create_dir(folder.path().join(UNFINISHED)).expect("it can be made");
        let failed = write([of(4)].into_iter(), folder.path(), &mut |_| false);
        let failed = failed.expect_err("there is a folder").to_string();
        assert!(failed.contains(UNFINISHED), "{failed}");
        assert!(!path.exists(), "what it names was queued before");
    }

    #[test]
    fn an_abandoned_file_ends_with_a_complete_line() {
        let file = small(700_001);
        let (count, written) = write_lines(lines(), &file, &mut |_| false);
        let error = written.expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let text = String::from_utf8(file.bytes.into_inner()).expect("lines are text");
        assert!(text.ends_with('\n'));
        assert!(text.lines().eq(lines().take(count as usize)));
        assert!(count > 5000, "{count}");
    }
}
