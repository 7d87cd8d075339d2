//! The beginning of a run's state, written before the run begins.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::error::StateError;
use crate::crawl::journal::rewrite::unfinished_of;
use crate::sink::directory::STATE;

/// The beginning of a run's state: what the run was given.
#[derive(Debug)]
pub struct StateBeginning {
    pub(super) out: PathBuf,
    pub(super) path: PathBuf,
    /// It goes behind so many bytes of the file; the rest of that is cut off. `None`: the file is new.
    pub(super) behind: Option<u64>,
    pub(super) bytes: Vec<u8>,
    pub(super) stale: Vec<PathBuf>,
}

impl StateBeginning {
    /// Writes it into the output directory, once that is prepared or locked: from then on the crawl can be
    /// resumed. Files of earlier runs that hold nothing any more are removed.
    /// The folder is for its owner only. Makes blocking calls to the file system.
    ///
    /// # Errors
    /// A folder or file cannot be made or removed.
    pub fn write(&self) -> Result<(), StateError> {
        let out = &self.out;
        let folder = out.join(STATE);
        let failed = |path: &Path, cause| StateError::Io {
            path: path.to_owned(),
            cause,
        };
        let made = match DirBuilder::new().mode(0o700).create(&folder) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        };
        made.map_err(|cause| failed(&folder, cause))?;
        close_to_others(&folder);
        let path = &self.path;
        self.write_file().map_err(|cause| failed(path, cause))?;
        for folder in [&folder, out] {
            let sync = File::open(folder).and_then(|folder| folder.sync_all());
            sync.map_err(|cause| failed(folder, cause))?;
        }
        for path in &self.stale {
            match fs::remove_file(path) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(path, cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes its file. If that fails the file is as before: it may be written later, once there is space.
    fn write_file(&self) -> io::Result<()> {
        let Some(length) = self.behind else {
            if self.path.try_exists()? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let unfinished = unfinished_of(self.path.clone());
            let mut file = File::create(&unfinished)?;
            let written = file.write_all(&self.bytes).and_then(|()| file.sync_all());
            let named = written.and_then(|()| fs::rename(&unfinished, &self.path));
            return named.inspect_err(|_| drop(fs::remove_file(&unfinished)));
        };
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(length)?;
        let written = file.write_all_at(&self.bytes, length);
        let written = written.and_then(|()| file.sync_all());
        written.inspect_err(|_| drop(file.set_len(length)))
    }

    /// Changes files in memory as [`StateBeginning::write`] changes those on disk.
    #[doc(hidden)]
    pub fn write_to(&self, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
        let file = files.entry(self.path.clone()).or_default();
        file.truncate(self.behind.unwrap_or(0) as usize);
        file.extend_from_slice(&self.bytes);
        for path in &self.stale {
            files.remove(path);
        }
    }
}

/// Makes the folder of a state accessible to its owner only, where it is not: it may have been copied, or
/// restored from a backup.
fn close_to_others(folder: &Path) {
    let close = || {
        let mode = fs::metadata(folder)?.permissions().mode();
        match mode & 0o077 {
            0 => Ok(()),
            _ => fs::set_permissions(folder, Permissions::from_mode(0o700)),
        }
    };
    if let Err(cause) = close() {
        log::warn!(
            "{} can be read by others, and its requests may hold credentials: {cause}",
            folder.display()
        );
    }
}
