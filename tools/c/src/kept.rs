//! The state of a crawl in a directory.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use argiope::sink::directory::{self, DirectoryLock};
use argiope::{State, StateError};

/// A state that is locked.
pub struct Kept {
    pub state: State,
    /// Kept until the crawl writes no more.
    pub lock: DirectoryLock,
}

impl Kept {
    /// Begins a state in this directory, or reads the one that is there.
    pub fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(folder).map_err(|cause| format!("{}: {cause}", folder.display()))?;
        let lock = directory::lock(folder)?;
        let state = match State::load(folder) {
            Err(StateError::None(_)) => State::new(folder, String::new(), secret()?)?,
            state => state?,
        };
        if !state.settings().is_empty() {
            let folder = folder.display();
            return Err(format!("the state in {folder} is of another program").into());
        }
        state.beginning().write()?;
        Ok(Kept { state, lock })
    }

    /// The epoch of the last commit; 0 if there was none.
    pub fn epoch(&self) -> u64 {
        self.state.commit().map_or(0, |commit| commit.epoch.0)
    }
}

/// Unpredictable bytes: servers must not be able to choose URLs with equal keys.
fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
