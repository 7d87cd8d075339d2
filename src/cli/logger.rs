//! Writes the library's log messages to stderr as plain lines.
//!
//! Hand-written: it is one `match`, and its lines go through the same escaping as all other text on
//! stderr.

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::stderr;

/// Starts logging: warnings by default, each `-v` adds a level; `--quiet` logs errors only.
pub fn start(verbose: u8, quiet: bool) {
    let level = match (verbose, quiet) {
        (0, true) => LevelFilter::Error,
        (0, false) => LevelFilter::Warn,
        (1, _) => LevelFilter::Info,
        (2, _) => LevelFilter::Debug,
        (_, _) => LevelFilter::Trace,
    };
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}

/// Writes every record; the `log` crate's maximum level filters them.
struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        stderr::write_line(&match record.level() {
            Level::Error => format!("error: {}", record.args()),
            Level::Warn => format!("warning: {}", record.args()),
            Level::Info => record.args().to_string(),
            Level::Debug | Level::Trace => format!("{}: {}", record.target(), record.args()),
        });
    }

    fn flush(&self) {}
}
