//! The file of `--targets`, and the settings for them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use argiope::settings::SettingSource;
use argiope::{Config, Request};

use crate::cli::Usage;

/// Reads targets, one a line, as in a seeds file: a URL, a bare host, or a JSON object. Blank lines and those
/// that begin with `#` are skipped.
pub fn read(path: &Path) -> Result<Vec<Request>, Usage> {
    let shown = path.display();
    let cannot = |error: io::Error| Usage(format!("--targets {shown}: cannot be read: {error}"));
    let file: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(cannot)?),
    };
    let mut reader = BufReader::new(file);
    let mut targets = Vec::new();
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        // A longer one ends there, and is refused.
        let mut bounded = (&mut reader).take(LINE_MAX);
        if bounded.read_line(&mut line).map_err(cannot)? == 0 {
            break;
        }
        let wrong = |what: String| Usage(format!("--targets {shown}, line {number}: {what}"));
        if line.len() as u64 == LINE_MAX {
            return Err(wrong(format!("longer than {LINE_MAX} bytes; shorten it")));
        }
        match Request::from_line(line.trim_end_matches(['\r', '\n'])) {
            Ok(target) => targets.extend(target),
            Err(error) => return Err(wrong(error.to_string())),
        }
        if targets.len() > TARGETS_MAX {
            return Err(wrong(format!(
                "more than {TARGETS_MAX} targets; divide them over several processes"
            )));
        }
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

/// Longest line, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// Most targets: some 2 GB of memory.
const TARGETS_MAX: usize = 1_000_000;

/// The usual timeout of a scrape.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// Open files besides connections.
const FILES_OTHER: usize = 64;
