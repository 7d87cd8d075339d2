//! Reads the settings of a running crawl anew: its `--config` and `--exclude` files, under the flags of its start.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use argiope::{Config, ReloadAnswer};
use serde_json::{Map, Value};

use super::args::Crawl;
use super::settings::{load_resumed, with_workers};
use super::{Usage, full_message, one_line};

/// The sources of a crawl's settings.
#[derive(Clone)]
pub struct Sources {
    /// Flags and `-s`, which stay as they were given.
    pub args: Arc<Crawl>,
    /// The settings of the crawl that was resumed, if one was.
    pub stored: Option<Map<String, Value>>,
}

impl Sources {
    /// What answers requests for the settings. A thread reads the files, since a read may never return; while it has
    /// not, further requests are refused.
    pub fn answers(self) -> impl Fn(ReloadAnswer) + Send + 'static {
        let is_reading = Arc::new(AtomicBool::new(false));
        move |answer| {
            if is_reading.swap(true, Ordering::SeqCst) {
                return answer.give(Err(UNREAD.to_owned()));
            }
            let (sources, reading) = (self.clone(), Reading(Arc::clone(&is_reading)));
            let reader = thread::Builder::new().name("reload".to_owned());
            let started = reader.spawn(move || {
                let read = sources.read();
                drop(reading);
                answer.give(read.map_err(|error| one_line(&full_message(&error))));
            });
            if let Err(error) = started {
                log::warn!("no thread can be started to read the settings: {error}");
            }
        }
    }

    fn read(&self) -> anyhow::Result<Config> {
        let configured = self.args.configured();
        if configured.config.is_none() && self.args.filters.exclude.is_empty() {
            let words = "the crawl was started with neither --config nor --exclude: there is no file to be read again";
            return Err(Usage(words.to_owned()).into());
        }
        if let Some(path) = &configured.config {
            check(path, CONFIG_MAX)?;
        }
        for path in &self.args.filters.exclude {
            check(path, EXCLUDE_MAX)?;
        }
        // Also a crawl that was not resumed is continued by what is read now.
        let stored = self.stored.clone().unwrap_or_default();
        let config = load_resumed(Some(&stored), configured, &self.args.given()?)?;
        with_workers(config)
    }
}

/// The files are being read.
struct Reading(Arc<AtomicBool>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Checks that a file can be read again, and is not too long.
fn check(path: &Path, bytes_max: u64) -> Result<(), Usage> {
    let shown = path.display();
    let metadata = fs::metadata(path)
        .map_err(|error| Usage(format!("{shown}: cannot be read: {error}; put it back")))?;
    let length = metadata.len();
    match () {
        () if !metadata.is_file() => Err(Usage(format!(
            "{shown}: not a regular file, which alone can be read again"
        ))),
        () if length > bytes_max => Err(Usage(format!(
            "{shown}: has {length} bytes; a running crawl reads at most {bytes_max}"
        ))),
        () => Ok(()),
    }
}

/// Bytes of the file of `--config`.
const CONFIG_MAX: u64 = 1 << 20;

/// Bytes of a file of `--exclude`: a million hosts.
const EXCLUDE_MAX: u64 = 32 << 20;

const UNREAD: &str =
    "the files of the settings are still being read since the last order to reload";
