//! The file of `--targets`.

use std::path::Path;

use argiope::Request;

use crate::cli::Usage;
use crate::cli::seeds::{self, SeedLinesError};

/// A target, and the number of its line.
pub struct Line {
    pub number: u64,
    pub target: Request,
}

/// Reads targets, one a line, as in a seeds file: a URL, a bare host, or a JSON object; plain, gzip or zstd. Blank lines
/// and those that begin with `#` are skipped.
pub fn read(path: &Path) -> Result<Vec<Line>, Usage> {
    let shown = path.display();
    let cannot = |cause: &dyn std::fmt::Display| {
        Usage(format!("--targets {shown}: cannot be read: {cause}"))
    };
    let broken = |error: SeedLinesError| match &error {
        SeedLinesError::Open { cause, .. } | SeedLinesError::Read { cause, .. } => cannot(cause),
        SeedLinesError::Coding { cause, .. } => cannot(cause),
        SeedLinesError::TooLong { .. }
        | SeedLinesError::NotText { .. }
        | SeedLinesError::NotLines { .. }
        | SeedLinesError::Endless { .. } => cannot(&error),
    };
    let mut targets = Vec::new();
    let mut first_ignored = None;
    let lines = seeds::open(&path.to_string_lossy(), READER).map_err(broken)?;
    for line in lines {
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
        let has_place = target.priority != 0 || target.depth != 0 || target.sitemap != 0;
        if target.scopes.is_some() || has_place {
            first_ignored.get_or_insert(line.number);
        }
        let number = line.number;
        targets.push(Line { number, target });
        if targets.len() > TARGETS_MAX {
            let what =
                format!("more than {TARGETS_MAX} targets; divide them over several processes");
            return Err(wrong(line.number, what));
        }
    }
    if let Some(number) = first_ignored {
        log::warn!(
            "--targets {shown}: scopes, priority, depth and sitemap have no effect on a probe (line {number} is the \
             first with one of them)"
        );
    }
    match targets.is_empty() {
        false => Ok(targets),
        true => Err(Usage(format!(
            "--targets {shown}: no target in it; write URLs, one a line"
        ))),
    }
}

/// The command that reads targets from standard input.
const READER: &str = "argiope probe --every 15s --targets -";

/// Most targets: some 2 GB of memory.
const TARGETS_MAX: usize = 1_000_000;
