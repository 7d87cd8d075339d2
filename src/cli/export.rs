//! `argiope export`: writes fields of the result lines of a crawl as a table. It changes no file of the crawl.

mod csv;
mod fields;

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::sink::directory::{LineEnd, LineFile, LineReader};

use self::csv::Csv;
use self::fields::{Field, Row};
use super::Usage;

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct ExportArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// The columns of a CSV file, in order.
    pub csv: Vec<String>,
    /// Where the table is written; standard output without it, or for `-`.
    pub out: Option<PathBuf>,
}

/// What rows are written to.
trait Table {
    /// Adds a row.
    fn add(&mut self, row: &Row<'_>) -> io::Result<()>;

    /// Writes what is left.
    fn finish(&mut self) -> io::Result<()>;
}

/// Runs the command; returns its exit code.
pub fn run(args: &ExportArgs) -> anyhow::Result<i32> {
    let fields: Vec<Field> = (args.csv.iter())
        .map(|name| Field::parse(name))
        .collect::<Result<_, _>>()?;
    let folder = args.folder.as_path();
    check_crawl(folder)?;
    let is_file = |out: &&PathBuf| out.as_os_str() != "-";
    let Some(out) = args.out.as_ref().filter(is_file) else {
        let mut table = Csv::new(io::stdout().lock(), &fields);
        return match export(folder, &mut table) {
            // The reader has read enough.
            Err(Failure::Write(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
            ended => ended
                .map(|()| 0)
                .map_err(|failure| failure.at("standard output")),
        };
    };
    let file = match File::create_new(out) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Usage(format!(
                "-o {}: there is such a file, and it is not replaced; delete it, or give another name",
                out.display()
            ))
            .into());
        }
        created => created.with_context(|| format!("{}: cannot be written", out.display()))?,
    };
    let ended = export(folder, &mut Csv::new(BufWriter::new(file), &fields));
    if let Err(failure) = ended {
        // A part of a table looks like a whole one.
        let _ = fs::remove_file(out);
        return Err(failure.at(&out.display().to_string()));
    }
    Ok(0)
}

/// Why a table is not whole.
enum Failure {
    Read(io::Error),
    Write(io::Error),
}

impl Failure {
    /// The error, of a table that goes there.
    fn at(self, out: &str) -> anyhow::Error {
        match self {
            Failure::Read(error) => anyhow::Error::new(error).context("cannot read result lines"),
            Failure::Write(error) => {
                anyhow::Error::new(error).context(format!("cannot write to {out}"))
            }
        }
    }
}

/// Adds each result line to a table. Warns of damaged lines, which are left out.
fn export(folder: &Path, table: &mut impl Table) -> Result<(), Failure> {
    let mut reader = LineReader::results(folder, LINE_MAX).map_err(Failure::Read)?;
    let (mut bad, mut first_bad) = (0_u64, None);
    while let Some(line) = reader.next().map_err(Failure::Read)? {
        let row = match line.end {
            LineEnd::Unfinished => {
                log::warn!(
                    "the last line of {} has no end and is left out: the crawl runs, or it was killed",
                    line.file.display()
                );
                continue;
            }
            LineEnd::Whole => Row::parse(line.text),
            LineEnd::TooLong => Err(format!("it is longer than {LINE_MAX} bytes")),
            _ => Err("it has no end".to_owned()),
        };
        match row {
            Ok(row) => table.add(&row).map_err(Failure::Write)?,
            Err(reason) => {
                bad += 1;
                let place = || format!("line {} of {}: {reason}", line.number, line.file.display());
                first_bad.get_or_insert_with(place);
            }
        }
    }
    if let Some(first) = first_bad {
        log::warn!("{bad} damaged lines are left out; the first is {first}");
    }
    table.finish().map_err(Failure::Write)
}

/// Checks that a directory has the result lines of a crawl.
fn check_crawl(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(Usage(format!(
            "{shown} is not a directory: name the output directory of a crawl"
        ))
        .into());
    }
    let files = LineFile::results(folder).with_context(|| format!("{shown}: cannot be read"))?;
    match files.is_empty() {
        false => Ok(()),
        true => Err(Usage(format!(
            "{shown} has no results.jsonl: name the output directory of a crawl"
        ))
        .into()),
    }
}

/// Longest line that is read.
const LINE_MAX: u64 = 64 * 1024 * 1024;
