//! The files of the control interface in the output directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::DirectoryLock;

/// Where a crawl listens for orders, and where it records them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlFiles {
    /// The socket, which does not exist.
    pub socket: PathBuf,
    /// `orders.jsonl`.
    pub orders: PathBuf,
    /// Its length in bytes; 0 if it does not exist.
    pub orders_length: u64,
}

impl ControlFiles {
    /// Prepares them in a locked directory: removes the socket that a killed crawl left, and cuts off a line of
    /// orders that it had not written whole.
    ///
    /// Makes blocking calls to the file system.
    ///
    /// # Errors
    /// The system's, with the path.
    pub fn prepare(lock: &DirectoryLock) -> io::Result<Self> {
        let folder = lock.locked_path();
        let (socket, orders) = (folder.join(SOCKET), folder.join(ORDERS));
        let of = |path: &Path, error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        remove_socket(&socket).map_err(|error| of(&socket, error))?;
        let orders_length = trim(&orders).map_err(|error| of(&orders, error))?;
        Ok(ControlFiles {
            socket,
            orders,
            orders_length,
        })
    }

    /// The socket of a crawl that is running in this directory.
    pub fn socket_in(folder: &Path) -> PathBuf {
        folder.join(SOCKET)
    }
}

/// Prepares the log of runs in a locked directory: cuts off a line that a killed crawl had not written whole. Returns
/// its path, and its length in bytes: 0 if it does not exist.
///
/// Makes blocking calls to the file system.
///
/// # Errors
/// The system's, with the path.
pub fn prepare_run_log(lock: &DirectoryLock) -> io::Result<(PathBuf, u64)> {
    let path = lock.locked_path().join(RUNS);
    match trim(&path) {
        Ok(length) => Ok((path, length)),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("{}: {error}", path.display()),
        )),
    }
}

/// Removes a socket; leaves anything else, which the listener will report.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Cuts off what follows the last line end; returns the length. An empty file is removed.
fn trim(path: &Path) -> io::Result<u64> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let length = end_of_last_line(&mut file)?;
    match length {
        0 => fs::remove_file(path)?,
        length => file.set_len(length)?,
    }
    Ok(length)
}

/// The length up to the last line end: lines are short, so it is within the last bytes or there is none.
fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut bytes = vec![0; TAIL];
    while end > 0 {
        let from = end.saturating_sub(TAIL as u64);
        let piece = &mut bytes[..(end - from) as usize];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// Bytes that are searched at once.
const TAIL: usize = 64 << 10;

/// The socket's name.
pub(super) const SOCKET: &str = "control.sock";

/// The name of the log of runs.
pub(super) const RUNS: &str = "runs.jsonl";

/// The name of the file of orders.
pub(super) const ORDERS: &str = "orders.jsonl";

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::{InUse, prepare};
    use super::*;

    #[test]
    fn what_a_killed_crawl_left_is_removed_and_its_whole_lines_are_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = prepare(folder.path(), false, InUse::default()).expect("it is empty");
        let check = |expected| {
            let files = ControlFiles::prepare(&lock).expect("it can be prepared");
            assert_eq!(files.orders_length, expected);
            assert!(!files.socket.exists());
            files
        };
        let files = check(0);
        drop(UnixListener::bind(&files.socket).expect("it is free"));
        fs::write(&files.orders, b"one\ntwo\nthr").expect("it is written");
        check(8);
        assert_eq!(fs::read(&files.orders).expect("it is there"), b"one\ntwo\n");
        fs::write(&files.orders, vec![b'x'; 2 * TAIL]).expect("it is written");
        check(0);
        assert!(!files.orders.exists());
        let long = [b"one\n".as_slice(), &vec![b'x'; 2 * TAIL]].concat();
        fs::write(&files.orders, long).expect("it is written");
        check(4);
    }

    #[test]
    fn a_file_in_the_place_of_the_socket_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let lock = prepare(folder.path(), false, InUse::default()).expect("it is empty");
        let path = ControlFiles::socket_in(folder.path());
        fs::write(&path, b"mine").expect("it is written");
        ControlFiles::prepare(&lock).expect("it can be prepared");
        assert!(path.exists());
    }
}
