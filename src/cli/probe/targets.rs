//! The file of `--targets`, and the settings for them.

use std::path::Path;
use std::time::Duration;

use argiope::settings::SettingSource;
use argiope::{Config, Request};

use crate::cli::Usage;
use crate::cli::seeds::{self, SeedLinesError};

/// Reads targets, one a line, as in a seeds file: a URL, a bare host, or a JSON object; plain, gzip or zstd. Blank lines
/// and those that begin with `#` are skipped.
pub fn read(path: &Path) -> Result<Vec<Request>, Usage> {
    let shown = path.display();
    let cannot = |cause: &dyn std::fmt::Display| {
        Usage(format!("--targets {shown}: cannot be read: {cause}"))
    };
    let broken = |error: SeedLinesError| match &error {
        SeedLinesError::Open { cause, .. } | SeedLinesError::Read { cause, .. } => cannot(cause),
        SeedLinesError::Coding { cause, .. } => cannot(cause),
        SeedLinesError::TooLong { .. } | SeedLinesError::NotText { .. } => cannot(&error),
    };
    let mut targets = Vec::new();
    let mut first_ignored = None;
    for line in seeds::open(&path.to_string_lossy()).map_err(broken)? {
        let wrong =
            |number: u64, what: String| Usage(format!("--targets {shown}, line {number}: {what}"));
        let line = line.map_err(|error| match error.place_and_reason() {
            (Some((_, number)), what) => wrong(number, what),
            (None, _) => broken(error),
        })?;
        let target = Request::from_line(&line.text)
            .map_err(|error| wrong(line.number, error.to_string()))?;
        let Some(target) = target else {
            continue;
        };
        if target.scopes.is_some() || target.priority != 0 || target.depth != 0 {
            first_ignored.get_or_insert(line.number);
        }
        targets.push(target);
        if targets.len() > TARGETS_MAX {
            let what =
                format!("more than {TARGETS_MAX} targets; divide them over several processes");
            return Err(wrong(line.number, what));
        }
    }
    if let Some(number) = first_ignored {
        log::warn!(
            "--targets {shown}: scopes, priority and depth have no effect on a probe (line {number} is the first with \
             one of them)"
        );
    }
    match targets.is_empty() {
        false => Ok(targets),
        true => Err(Usage(format!(
            "--targets {shown}: no target in it; write URLs, one a line"
        ))),
    }
}

/// The settings for so many targets that are requested once in `every`: a request ends before the next one to its
/// target is due, unless another timeout is set.
pub fn prepared(config: Config, every: Duration, targets: usize) -> anyhow::Result<Config> {
    let mut config = config;
    const TIMEOUT: &str = "DOWNLOAD_TIMEOUT";
    if *config.source(TIMEOUT) == SettingSource::Default {
        let timeout = TIMEOUT_MAX
            .min(every.mul_f64(0.9))
            .max(Duration::from_millis(1));
        config.set(TIMEOUT, timeout.as_secs_f64(), SettingSource::Default)?;
    }
    let files = argiope::raise_open_files();
    if (targets + FILES_OTHER) as u64 > files {
        log::warn!(
            "{targets} targets may need as many open files, and this process may have {files}: where many do not \
             answer, others wait; raise the limit (ulimit -n {})",
            targets + FILES_OTHER
        );
    }
    Ok(config)
}

/// Most targets: some 2 GB of memory.
const TARGETS_MAX: usize = 1_000_000;

/// The usual timeout of a scrape.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Open files besides connections.
const FILES_OTHER: usize = 64;
