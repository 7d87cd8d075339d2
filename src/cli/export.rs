//! `argiope export`: writes fields of the result lines of a crawl as a table. It changes no file of the crawl.

mod csv;
mod fields;
#[cfg(feature = "parquet")]
mod parquet_file;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use argiope::sink::directory::{LineEnd, LineFile, LineReader};

use self::csv::Csv;
pub use self::fields::is_key;
use self::fields::{Field, Missing, Row, may_be_extracted};
#[cfg(feature = "parquet")]
use self::parquet_file::ParquetFile;
use super::shell::quoted;
use super::{Usage, out_file};

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct ExportArgs {
    /// The output directory of the crawl.
    pub folder: PathBuf,
    /// What the table is written as.
    pub format: Format,
    /// The columns, in order.
    pub fields: Vec<String>,
    /// Every result line is a row, and not only the last one of each page.
    pub all: bool,
    /// Only lines with a status are rows.
    pub replied: bool,
    /// Where the table is written; standard output without it, or for `-`.
    pub out: Option<PathBuf>,
}

/// Formats of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RFC 4180.
    Csv,
    /// Apache Parquet. Builds without the feature `parquet` refuse it.
    Parquet,
}

/// What rows are written to.
trait Table {
    /// Adds a row.
    fn add(&mut self, row: &Row<'_>) -> Result<(), AddError>;

    /// Writes what is left.
    fn finish(&mut self) -> io::Result<()>;
}

/// Why a row was not added.
#[derive(Debug)]
enum AddError {
    /// What is wrong with a value. The table is as it was before.
    Value(String),
    /// The table cannot be written.
    Write(io::Error),
}

impl From<io::Error> for AddError {
    fn from(error: io::Error) -> AddError {
        AddError::Write(error)
    }
}

/// Runs the command; returns its exit code.
pub fn run(args: &ExportArgs) -> anyhow::Result<i32> {
    let folder = args.folder.as_path();
    let is_file = |out: &&PathBuf| out.as_os_str() != "-";
    let out = args.out.as_ref().filter(is_file);
    if let Some(out) = out {
        out_file::check_new("-o", out)?;
    }
    check_crawl(folder)?;
    let extracted = extracted_in(folder, &args.fields)?;
    let fields: Vec<Field> = (args.fields.iter())
        .map(|name| {
            Field::parse(name, &extracted)
                .map_err(|error| of_directory(name, args.format).unwrap_or(error))
        })
        .collect::<Result<_, _>>()?;
    check_format(args.format, &fields)?;
    let Some(out) = out else {
        if args.format == Format::Parquet && io::stdout().is_terminal() {
            return Err(
                Usage("--parquet: a terminal cannot show it; give -o FILE".to_owned()).into(),
            );
        }
        return match write_table(args, &fields, io::stdout()) {
            // The reader has read enough. Of Parquet it has nothing without the end.
            Err(Failure::Write(error))
                if error.kind() == ErrorKind::BrokenPipe && args.format == Format::Csv =>
            {
                Ok(0)
            }
            ended => ended
                .map(|()| 0)
                .map_err(|failure| failure.at("standard output")),
        };
    };
    let file = match File::create_new(out) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(out_file::not_replaced("-o", out).into());
        }
        created => created.with_context(|| format!("{}: cannot be written", out.display()))?,
    };
    if let Err(failure) = write_table(args, &fields, file) {
        // A part of a table looks like a whole one.
        let _ = fs::remove_file(out);
        return Err(failure.at(&out.display().to_string()));
    }
    Ok(0)
}

/// The error of a directory among the fields.
fn of_directory(name: &str, format: Format) -> Option<Usage> {
    let path = Path::new(name);
    let flag = match format {
        Format::Csv => "--csv",
        Format::Parquet => "--parquet",
    };
    let error = || {
        let folder = quoted(path);
        Usage(format!(
            "{name:?} is a directory, and no field: a table is of one crawl, as by argiope export {folder} {flag} url"
        ))
    };
    path.is_dir().then(error)
}

/// Writes the result lines of a crawl as a table.
fn write_table(args: &ExportArgs, fields: &[Field], out: impl Write + Send) -> Result<(), Failure> {
    let out = BufWriter::new(out);
    match args.format {
        Format::Csv => export(args, &mut Csv::new(out, fields)),
        #[cfg(feature = "parquet")]
        Format::Parquet => {
            let mut table = ParquetFile::new(out, fields).map_err(Failure::Write)?;
            export(args, &mut table)
        }
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => unreachable!("check_format refuses it"),
    }
}

/// Checks that a format has columns of these fields, and that this build has the format.
fn check_format(format: Format, fields: &[Field]) -> Result<(), Usage> {
    if format == Format::Csv {
        return Ok(());
    }
    if cfg!(not(feature = "parquet")) {
        return Err(Usage(
            "--parquet: this argiope was built without it; build one with `cargo install --locked --path . \
             --features parquet`, or use --csv"
                .to_owned(),
        ));
    }
    let mut names = HashSet::new();
    match fields.iter().find(|field| !names.insert(&field.name)) {
        None => Ok(()),
        Some(field) => Err(Usage(format!(
            "--parquet: {:?} is given twice; the columns of a Parquet file have different names",
            field.name
        ))),
    }
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

/// Adds the last result line of each page, or every result line, to a table. Warns of damaged lines, which are left out.
fn export(args: &ExportArgs, table: &mut impl Table) -> Result<(), Failure> {
    let mut reader = LineReader::results(&args.folder, LINE_MAX).map_err(Failure::Read)?;
    let (mut bad, mut first_bad) = (0_u64, None);
    let mut missing = Missing::of(&args.fields);
    while let Some(line) = reader.next().map_err(Failure::Read)? {
        let added = match line.end {
            LineEnd::Unfinished => {
                log::warn!(
                    "the last line of {} has no end and is left out: the crawl runs, or it was killed",
                    line.file.display()
                );
                continue;
            }
            LineEnd::Whole => Row::parse(line.text)
                .map_err(AddError::Value)
                .and_then(|row| {
                    missing.see(&row);
                    let is_row = args.all || row.is_page();
                    match is_row && !(args.replied && row.has_no_reply()) {
                        true => table.add(&row),
                        false => Ok(()),
                    }
                }),
            LineEnd::TooLong => Err(AddError::Value(format!(
                "it is longer than {LINE_MAX} bytes"
            ))),
            _ => Err(AddError::Value("it has no end".to_owned())),
        };
        match added {
            Ok(()) => {}
            Err(AddError::Write(error)) => return Err(Failure::Write(error)),
            Err(AddError::Value(reason)) => {
                bad += 1;
                let place = || format!("line {} of {}: {reason}", line.number, line.file.display());
                first_bad.get_or_insert_with(place);
            }
        }
    }
    if let Some(first) = first_bad {
        log::warn!("{bad} damaged lines are left out; the first is {first}");
    }
    if let Some(warning) = missing.warning() {
        log::warn!("{warning}");
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
        true if folder.join("state").is_dir() => Err(Usage(format!(
            "{shown} has no result lines: with --results - they went to standard output, where they can be kept as \
             DIR/results.jsonl; otherwise there are none yet"
        ))
        .into()),
        true => Err(Usage(format!(
            "{shown} has no results.jsonl: name the output directory of a crawl"
        ))
        .into()),
    }
}

/// The names of what the crawl extracted from pages. Looks for those among `wanted`, and reads all lines only where one is
/// not found: a crawl that was resumed may extract other fields than it did before.
fn extracted_in(folder: &Path, wanted: &[String]) -> anyhow::Result<Vec<String>> {
    const WHAT: &str = "cannot read result lines";
    let mut missing: BTreeSet<&str> = (wanted.iter())
        .map(String::as_str)
        .filter(|name| may_be_extracted(name))
        .collect();
    let mut extracted = BTreeSet::new();
    let mut reader = LineReader::results(folder, LINE_MAX).context(WHAT)?;
    while !missing.is_empty()
        && let Some(line) = reader.next().context(WHAT)?
    {
        if let LineEnd::Whole = line.end
            && let Some(found) = Row::parse(line.text).ok().and_then(|row| row.extracted())
        {
            missing.retain(|name| !found.iter().any(|own| own == name));
            extracted.extend(found);
        }
    }
    Ok(extracted.into_iter().collect())
}

/// Longest line that is read.
const LINE_MAX: u64 = 64 * 1024 * 1024;
