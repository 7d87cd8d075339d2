//! `argiope cdxj`: makes CDXJ indexes of WARC files, of crawls that were killed or of other origin.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;

use anyhow::Context;
use argiope::sink::cdxj::{Indexer, index_path};
use argiope::sink::directory;
use argiope::{Config, index_warc};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{Usage, out_file};

/// Arguments of the command.
#[derive(Clone, Debug)]
pub struct CdxjArgs {
    /// WARC files, and directories of them or of crawls.
    pub paths: Vec<PathBuf>,
    /// Where one index of all is written, `-` for standard output; without it each file gets its own.
    pub out: Option<PathBuf>,
}

/// Runs the command; returns its exit code.
pub fn run(args: &CdxjArgs) -> anyhow::Result<i32> {
    let warcs = warcs(&args.paths)?;
    match &args.out {
        Some(out) if out.as_os_str() == "-" => {
            match index_all(&warcs, &env::temp_dir(), &mut io::stdout().lock()) {
                // The reader has read enough.
                Err(error) if is_broken_pipe(&error) => Ok(0),
                ended => ended.map(|()| 0),
            }
        }
        Some(out) => index_to(&warcs, out),
        None => index_each(&warcs),
    }
}

/// The WARC files of the crawl in this directory that have no index, if they are to have one.
pub fn missing(config: &Config, out: &Path) -> Vec<PathBuf> {
    if config.warc_size_max().is_none() || !config.warc_cdxj() {
        return Vec::new();
    }
    let folder = out.join(WARCS);
    directory::unindexed(&folder).unwrap_or_else(|error| {
        log::warn!("cannot look for indexes in {}: {error}", folder.display());
        Vec::new()
    })
}

/// Makes the index of a WARC file, or warns. Returns its path.
pub fn make(warc: &Path) -> Option<PathBuf> {
    index_warc(warc)
        .inspect_err(|error| log::error!("{} gets no index: {error}", warc.display()))
        .ok()
}

/// The WARC files of these paths, in order.
fn warcs(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut warcs = Vec::new();
    for path in paths {
        if !path.is_dir() {
            if index_path(path).is_none() {
                return Err(Usage(format!(
                    "{}: the name of a WARC file ends with .warc.gz; others cannot be indexed",
                    path.display()
                ))
                .into());
            }
            warcs.push(path.clone());
            continue;
        }
        let below = path.join(WARCS);
        let folder = if below.is_dir() { &below } else { path };
        let read = || format!("cannot read {}", folder.display());
        let entries = fs::read_dir(folder).with_context(read)?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.with_context(read)?.path();
            found.extend(index_path(&path).map(|_| path));
        }
        if found.is_empty() {
            return Err(Usage(format!(
                "{} has no file named *.warc.gz: name a crawl with WARC files, or a directory of them",
                folder.display()
            ))
            .into());
        }
        found.sort();
        warcs.append(&mut found);
    }
    Ok(warcs)
}

/// Each file without an index gets one. Prints the paths of those that are made.
fn index_each(warcs: &[PathBuf]) -> anyhow::Result<i32> {
    let mut is_failed = false;
    for warc in warcs {
        if index_path(warc).is_some_and(|index| index.exists()) {
            continue;
        }
        match make(warc) {
            Some(index) => writeln!(io::stdout(), "{}", index.display())?,
            None => is_failed = true,
        }
    }
    Ok(i32::from(is_failed))
}

/// One index of all in a new file, which has another name until it is complete.
fn index_to(warcs: &[PathBuf], out: &Path) -> anyhow::Result<i32> {
    // It is known before hours of work.
    out_file::check_new("-o", out)?;
    let mut temporary = out.as_os_str().to_owned();
    temporary.push(format!(".{}.tmp", process::id()));
    let temporary = PathBuf::from(temporary);
    let write = || format!("cannot create {}", temporary.display());
    let file = File::create_new(&temporary).with_context(write)?;
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    index_all(warcs, folder, &mut &file)
        .and_then(|()| file.sync_all().with_context(write))
        .and_then(|()| give_name(&temporary, out))
        .and_then(|()| File::open(folder)?.sync_all().with_context(write))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    Ok(0)
}

/// Gives a file its final name, unless another file has got it meanwhile.
fn give_name(temporary: &Path, out: &Path) -> anyhow::Result<()> {
    let named = renameat_with(CWD, temporary, CWD, out, RenameFlags::NOREPLACE);
    let named = match named.map_err(io::Error::from) {
        // An older kernel, or a file system that does not know how: a link replaces nothing, either.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            fs::hard_link(temporary, out).and_then(|()| fs::remove_file(temporary))
        }
        named => named,
    };
    match named {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(out_file::not_replaced("-o", out).into())
        }
        named => named.with_context(|| format!("cannot create {}", out.display())),
    }
}

/// `folder`: of what does not fit into memory.
fn index_all(warcs: &[PathBuf], folder: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut scratch = Scratch::create(folder)?;
    let mut indexer = Indexer::default();
    for warc in warcs {
        let name = warc.file_name().unwrap_or_default().to_string_lossy();
        let read = || format!("cannot index {}", warc.display());
        let file = File::open(warc).with_context(read)?;
        indexer.add(file, &name, &mut scratch).with_context(read)?;
    }
    let mut out = BufWriter::with_capacity(WRITTEN_AT_ONCE, out);
    let omitted = indexer.finish(&mut scratch, &mut out)?;
    out.flush()?;
    if omitted > 0 {
        log::warn!("{omitted} captures are not in the index: they have heads of more than 256 KiB");
    }
    Ok(())
}

/// A file without a name, whose errors say where it is.
struct Scratch {
    file: File,
    folder: PathBuf,
}

impl Scratch {
    fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("argiope-{}.sort", process::id()));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path);
        let file = file.and_then(|file| fs::remove_file(&path).map(|()| file));
        Ok(Scratch {
            file: file.map_err(|error| named(folder, &error))?,
            folder: folder.to_owned(),
        })
    }
}

fn named(folder: &Path, error: &io::Error) -> io::Error {
    let text = format!("a temporary file in {}: {error}", folder.display());
    io::Error::new(error.kind(), text)
}

impl Read for Scratch {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (self.file.read(bytes)).map_err(|error| named(&self.folder, &error))
    }
}

impl Write for Scratch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.file.write(bytes)).map_err(|error| named(&self.folder, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Scratch {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The folder of WARC files in the directory of a crawl.
const WARCS: &str = "warc";

const WRITTEN_AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appears_while_an_index_is_made_is_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.tmp"), "an index").expect("it is written");
        give_name(&path("a.tmp"), &path("a")).expect("there is none");
        assert_eq!(fs::read(path("a")).expect("it is there"), b"an index");
        assert!(!path("a.tmp").exists());
        fs::write(path("b.tmp"), "an index").expect("it is written");
        fs::write(path("b"), "another file").expect("it is written");
        let error = give_name(&path("b.tmp"), &path("b")).expect_err("there is one");
        assert!(error.to_string().contains("it is not replaced"), "{error}");
        assert_eq!(fs::read(path("b")).expect("it is there"), b"another file");
    }
}
