//! `stats.json` of a crawl: what result lines do not have.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::Deserialize;

use super::percentiles::Percentiles;

/// The keys of `stats.json` that a report needs. Other keys are ignored, and absent ones empty.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct StoredStats {
    pub finish_reason: Option<String>,
    pub attempts: Option<u64>,
    pub elapsed: Option<f64>,
    /// Durations of phases from their first packet.
    pub phases: BTreeMap<String, Option<Percentiles>>,
    pub waited: BTreeMap<String, f64>,
    pub decisions: BTreeMap<String, u64>,
    pub pacing: Vec<StoredPacing>,
    pub pacing_left_out: u64,
}

/// The pace of a scope.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct StoredPacing {
    pub scope: String,
    pub sent: u64,
    pub refused: u64,
    pub waited: BTreeMap<String, f64>,
    pub at_longest_delay: f64,
    pub remarks: Vec<StoredRemark>,
}

/// A remark on a scope.
#[derive(Deserialize)]
pub struct StoredRemark {
    pub about: String,
    pub words: String,
}

/// What was found of `stats.json`.
pub enum StoredFile {
    Read(Box<StoredStats>),
    Missing,
    /// It cannot be read or is not a JSON object of this kind.
    Unusable(String),
}

/// Longest file: a hundred times what a crawl writes.
const LENGTH_MAX: u64 = 64 * 1024 * 1024;

impl StoredFile {
    pub fn read(path: &Path) -> Self {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| {
            let mut file = file.take(LENGTH_MAX + 1);
            file.read_to_end(&mut text)
        });
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => return StoredFile::Missing,
            Err(error) => return StoredFile::Unusable(error.to_string()),
            Ok(length) if length as u64 > LENGTH_MAX => {
                let reason = format!("it is longer than {LENGTH_MAX} bytes");
                return StoredFile::Unusable(reason);
            }
            Ok(_) => {}
        }
        match serde_json::from_slice(&text) {
            Ok(stats) => StoredFile::Read(Box::new(stats)),
            Err(error) => StoredFile::Unusable(error.to_string()),
        }
    }
}
