//! `argiope audit`: judges from the files of a crawl whether it was polite. It changes none of them.

mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::audit::{
    Attempt, Auditor, Evidence, Orders, Read, ReceiptMaker, RobotsLog, RunLog, Verdict,
};
use argiope::sink::directory::LineFile;
use serde::Serialize;

use super::Usage;
use super::json_lines::put_line;
use super::report::results::{self, LinesRead};
use super::report::{now, write_page};

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct AuditArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// Make a receipt for this host.
    pub site: Option<String>,
    /// Print JSON.
    pub json: bool,
    /// Where the JSON or the receipt is written.
    pub out: Option<PathBuf>,
}

/// The result lines.
const RESULTS: &str = "results.jsonl";
/// The log of runs.
const RUNS: &str = "runs.jsonl";
/// The archive of robots.txt.
const ROBOTS: &str = "robots.jsonl";
/// The orders.
const ORDERS: &str = "orders.jsonl";

/// A request violated a limit.
const VIOLATED: i32 = 1;

/// What was read and found, as JSON.
#[derive(Serialize)]
struct Audited<'a> {
    directory: String,
    made: String,
    version: &'static str,
    read: FilesRead,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

/// What was read of each file; null if there is none.
#[derive(Serialize)]
struct FilesRead {
    results: LinesRead,
    runs: Read,
    robots: Option<Read>,
    orders: Option<Read>,
}

/// Runs the command; returns its exit code.
pub fn run(args: &AuditArgs) -> anyhow::Result<i32> {
    let folder = &args.folder;
    check_crawl(folder)?;
    if let Some(out) = &args.out {
        check_out(out, folder)?;
    }
    let runs = read(folder, RUNS, RunLog::read)?.unwrap_or_default();
    if runs.is_empty() {
        return Err(Usage(format!(
            "{}: it has no start of a run, so that no settings are known",
            folder.join(RUNS).display()
        ))
        .into());
    }
    let robots = read_robots(folder).with_context(|| format!("{ROBOTS} cannot be read"))?;
    let orders = read(folder, ORDERS, Orders::read)?;
    let of_runs = runs.read_lines().clone();
    let of_robots = robots.as_ref().map(|robots| robots.read_lines().clone());
    let of_orders = orders.as_ref().map(|orders| orders.read_lines().clone());
    let mut auditor = Auditor::new(Evidence {
        runs,
        orders: orders.unwrap_or_default(),
        robots: robots.unwrap_or_default(),
    });
    let mut receipt = args.site.as_deref().map(ReceiptMaker::new);
    let of_results = results::read_raw(folder, |line| {
        let attempt = Attempt::parse(line)?;
        auditor.add(&attempt);
        if let Some(receipt) = &mut receipt {
            receipt.add(&attempt, line);
        }
        Ok(())
    });
    let of_results = of_results.with_context(|| format!("{}: cannot be read", folder.display()))?;
    let (verdict, evidence) = auditor.finish();
    let read = FilesRead {
        results: of_results,
        runs: of_runs,
        robots: of_robots,
        orders: of_orders,
    };
    let made = now().to_string();
    let is_violated = verdict.violated > 0;
    if let Some(receipt) = receipt {
        let site = args.site.as_deref().unwrap_or_default();
        if receipt.is_empty() {
            return Err(Usage(format!(
                "--site {site}: no request was sent to it; give a host as it is in the URLs of {RESULTS}"
            ))
            .into());
        }
        let receipt = receipt.finish(&verdict, &evidence, made);
        put_json(&receipt, args.out.as_deref().unwrap_or(Path::new("-")))?;
        return Ok(if receipt.is_kept() { 0 } else { VIOLATED });
    }
    let audited = Audited {
        directory: folder.display().to_string(),
        made,
        version: env!("CARGO_PKG_VERSION"),
        read,
        verdict: &verdict,
    };
    match &args.out {
        Some(out) => put_json(&audited, out)?,
        None if args.json => put_json(&audited, Path::new("-"))?,
        None => {}
    }
    let is_on_stdout = args.json || args.out.as_deref() == Some(Path::new("-"));
    if !is_on_stdout {
        super::settings::print(&text::of(&verdict, &audited.read))?;
    }
    Ok(if is_violated { VIOLATED } else { 0 })
}

/// Checks that a directory has the files of a crawl that can be judged.
fn check_crawl(folder: &Path) -> Result<(), Usage> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(Usage(format!(
            "{shown} is not a directory: name the output directory of a crawl"
        )));
    }
    let has_results = LineFile::results(folder).is_ok_and(|files| !files.is_empty());
    if !has_results {
        return Err(Usage(format!(
            "{shown} has no {RESULTS}: name the output directory of a crawl; if --results - sent its lines to standard \
             output, save them as {shown}/{RESULTS}"
        )));
    }
    match folder.join(RUNS).exists() {
        true => Ok(()),
        false => Err(Usage(format!(
            "{shown} has no {RUNS}: an earlier version made it, whose settings are not known; crawl again to have it \
             judged"
        ))),
    }
}

/// Checks that the output replaces no file of the crawl.
fn check_out(out: &Path, folder: &Path) -> Result<(), Usage> {
    let same = |name: &str| {
        let of = |path: &Path| std::fs::canonicalize(path).ok();
        of(out).is_some_and(|out| Some(out) == of(&folder.join(name)))
    };
    let files = [RESULTS, RUNS, ROBOTS, ORDERS, "stats.json", "pending.jsonl"];
    match files.into_iter().find(|name| same(name)) {
        None => Ok(()),
        Some(name) => Err(Usage(format!(
            "-o {}: this is the crawl's {name}; give another file",
            out.display()
        ))),
    }
}

/// Reads the archive of robots.txt, if it is there.
fn read_robots(folder: &Path) -> io::Result<Option<RobotsLog>> {
    let mut files: Box<dyn BufRead> = Box::new(io::empty());
    let mut is_there = false;
    for file in LineFile::robots(folder)? {
        is_there = true;
        files = Box::new(files.chain(file.open_at(0)?));
    }
    Ok(match is_there {
        true => Some(RobotsLog::read(files)?),
        false => None,
    })
}

/// Reads a file of the crawl, if it is there.
fn read<T>(
    folder: &Path,
    name: &str,
    read: impl FnOnce(Box<dyn BufRead>) -> io::Result<T>,
) -> anyhow::Result<Option<T>> {
    let path = folder.join(name);
    let read = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.and_then(|file| read(Box::new(BufReader::new(file)))),
    };
    let read = read.with_context(|| format!("{}: cannot be read", path.display()))?;
    Ok(Some(read))
}

/// Writes a value to a file as a whole; `-` is standard output.
fn put_json(value: &impl Serialize, out: &Path) -> anyhow::Result<()> {
    if out == Path::new("-") {
        let mut stdout = io::stdout().lock();
        put_line(&mut stdout, &serde_json::to_string(value)?)?;
        return stdout.flush().map_err(Into::into);
    }
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    write_page(out, &text).with_context(|| format!("{}: cannot be written", out.display()))
}
