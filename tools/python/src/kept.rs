//! The state of a crawl in a directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use argiope::sink::directory::{self, DirectoryLock};
use argiope::{State, StateError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A state that is locked.
pub struct Kept {
    pub state: State,
    /// Kept until the crawl writes no more.
    pub lock: DirectoryLock,
}

impl Kept {
    /// Begins a state in this directory, or reads the one that is there.
    pub fn open(folder: &Path) -> PyResult<Self> {
        fs::create_dir_all(folder)
            .map_err(|cause| failed(&format!("{}: {cause}", folder.display())))?;
        let lock = directory::lock(folder).map_err(|error| failed(&error))?;
        let state = match State::load(folder) {
            Err(StateError::None(_)) => State::new(folder, String::new(), secret()?),
            state => state,
        };
        let state = state.map_err(|error| failed(&error))?;
        if !state.settings().is_empty() {
            let message = format!("the state in {} is of another program", folder.display());
            return Err(PyValueError::new_err(message));
        }
        let written = state.beginning().write();
        written.map_err(|error| failed(&error))?;
        Ok(Kept { state, lock })
    }

    /// The epoch of the last commit; 0 if there was none.
    pub fn epoch(&self) -> u64 {
        self.state.commit().map_or(0, |commit| commit.epoch.0)
    }
}

fn failed(why: &dyn ToString) -> PyErr {
    PyOSError::new_err(why.to_string())
}

/// Unpredictable bytes: servers must not be able to choose URLs with equal keys.
fn secret() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
