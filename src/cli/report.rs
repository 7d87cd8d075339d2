//! `argiope report`: makes one page with plots from the files of a crawl. It changes none of them.

mod advice;
mod bodies;
mod connections;
mod counts;
mod figures;
mod gaps;
mod hosts;
mod html;
mod latencies;
mod line;
mod names;
mod outcomes;
mod percentiles;
pub(super) mod results;
mod stored;
mod timeline;
mod totals;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::Wall;
use argiope::sink::directory::LineFile;

use super::Usage;
use super::json_lines::put_line;
use super::stderr;

use self::figures::{RESULTS, Report, STATS};
use self::hosts::{HostRow, Hosts};

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct ReportArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// Where the page is written; `-` is standard output.
    pub out: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

/// Hosts of a list that are printed.
const HOSTS_NAMED: usize = 5;

/// The page's file in the output directory.
const PAGE: &str = "report.html";

/// Runs the command; returns its exit code.
pub fn run(args: &ReportArgs) -> anyhow::Result<i32> {
    let folder = &args.folder;
    check_crawl(folder)?;
    let is_stdout = args.out.as_deref() == Some(Path::new("-"));
    let page = match (&args.out, args.json) {
        (Some(_), true) if is_stdout => {
            return Err(Usage(
                "-o -: standard output has the JSON of --json; give -o a file, or leave one out"
                    .to_owned(),
            )
            .into());
        }
        (Some(path), _) => Some(path.clone()),
        (None, false) => Some(folder.join(PAGE)),
        (None, true) => None,
    };
    if let Some(page) = page.as_ref().filter(|_| !is_stdout) {
        check_page(page, folder)?;
    }
    let report = Report::read(folder, now().to_string())
        .with_context(|| format!("{}: cannot be read", folder.display()))?;
    if report.results.lines == 0
        && let Some(bad) = report.results.bad_lines.first()
    {
        return Err(Usage(format!(
            "{}: none of its {} lines is a result line (line {}: {}); name the output directory of a crawl, or restore \
             the file from a backup",
            folder.join(&bad.file).display(),
            report.results.bad,
            bad.line,
            bad.reason
        ))
        .into());
    }
    if let Some(page) = &page {
        let text = html::page(&report);
        if is_stdout {
            super::settings::print(&text)?;
        } else {
            write_page(page, &text)
                .with_context(|| format!("{}: cannot be written", page.display()))?;
        }
    }
    let mut stdout = io::stdout().lock();
    match &page {
        _ if args.json => put_line(&mut stdout, &serde_json::to_string(&report)?)?,
        Some(page) if !is_stdout => put_line(&mut stdout, &page.display().to_string())?,
        _ => true,
    };
    if !args.json && !is_stdout {
        stderr::write(&hosts_text(&report.hosts));
    }
    Ok(0)
}

/// The first of the lists of hosts, for those who do not open the page now.
fn hosts_text(hosts: &Hosts) -> String {
    let mut text = String::new();
    let mut line = |name: &str, parts: Vec<String>| {
        if !parts.is_empty() {
            let _ = writeln!(text, "  {name:<15}{}", parts.join("  "));
        }
    };
    let slowest = hosts.slowest.iter().take(HOSTS_NAMED);
    let mean = |host: &HostRow| Some(format!("{} {:.3} s", host.host, host.server_latency_mean?));
    line("slowest", slowest.filter_map(mean).collect());
    let failing = hosts.most_errors.iter().take(HOSTS_NAMED);
    let errors = |host: &HostRow| format!("{} {} of {}", host.host, host.errors, host.attempts);
    line("most errors", failing.map(errors).collect());
    text
}

/// Checks that a directory has the result lines of a crawl.
fn check_crawl(folder: &Path) -> Result<(), Usage> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(Usage(format!(
            "{shown} is not a directory: name the output directory of a crawl"
        )));
    }
    match LineFile::results(folder) {
        Ok(files) if !files.is_empty() => return Ok(()),
        Err(error) => return Err(Usage(format!("{shown}: cannot be read: {error}"))),
        Ok(_) => {}
    }
    Err(Usage(format!(
        "{shown} has no {RESULTS}: name the output directory of a crawl; if --results - sent its lines to standard \
         output, save them as {shown}/{RESULTS}"
    )))
}

/// Checks that the page replaces no file but an earlier page: not one of the crawl, and no other.
fn check_page(page: &Path, folder: &Path) -> Result<(), Usage> {
    let Ok(file) = fs::metadata(page) else {
        return Ok(());
    };
    let identity = |file: &fs::Metadata| (file.dev(), file.ino());
    let lines = LineFile::results(folder).unwrap_or_default();
    let lines = lines.iter().map(LineFile::path);
    for input in lines.chain([folder.join(STATS)]) {
        if fs::metadata(&input).is_ok_and(|other| identity(&other) == identity(&file)) {
            return Err(Usage(format!(
                "-o {}: this is the crawl's {}; give another file",
                page.display(),
                input.file_name().unwrap_or_default().display()
            )));
        }
    }
    if !file.is_file() || file.len() == 0 || begins_as_page(page).unwrap_or(true) {
        return Ok(());
    }
    Err(Usage(format!(
        "-o {}: this file is no HTML page, and is not replaced; delete it, or give another file",
        page.display()
    )))
}

fn begins_as_page(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let file = fs::File::open(path)?;
    file.take(html::BEGINNING.len() as u64)
        .read_to_end(&mut beginning)?;
    Ok(beginning.eq_ignore_ascii_case(html::BEGINNING.as_bytes()))
}

/// Replaces a page as a whole. What is no file, such as a pipe, is written to.
pub(super) fn write_page(page: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(page) {
        Ok(file) if !file.is_file() => return fs::write(page, text),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let page = fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    let mut name = page.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let next = page.with_file_name(name);
    let mut file = fs::File::create_new(&next)?;
    let written = file.write_all(text.as_bytes());
    drop(file);
    let replaced = written.and_then(|()| fs::rename(&next, &page));
    if replaced.is_err() {
        let _ = fs::remove_file(&next);
    }
    replaced
}

pub(super) fn now() -> Wall {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Wall(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
