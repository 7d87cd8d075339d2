//! Reads the result lines of a crawl, those of all its files, in order.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::line_file::LineFileName;
use super::outputs::{LINKS, RESULTS, ROBOTS, entries};
use crate::base::compression::Compression;
use crate::wire::coding::{Budget, CodingError, Decoder};

/// A file of lines of a crawl: `results.jsonl`, or `results-000001.jsonl.zst` of a crawl that begins new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFile {
    first: PathBuf,
    name: LineFileName,
}

impl LineFile {
    /// The files of result lines in an output directory, in the order of their lines; none if it has none. Makes
    /// blocking calls to the file system.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn results(folder: &Path) -> io::Result<Vec<LineFile>> {
        LineFile::series(&folder.join(RESULTS))
    }

    /// The files of the archive of robots.txt, in the same way.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn robots(folder: &Path) -> io::Result<Vec<LineFile>> {
        LineFile::series(&folder.join(ROBOTS))
    }

    /// The files with the links of pages, in the order of their lines; none if it has none. Makes blocking calls to
    /// the file system.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn links(folder: &Path) -> io::Result<Vec<LineFile>> {
        LineFile::series(&folder.join(LINKS))
    }

    /// The files of the series that begins with this path.
    pub(super) fn series(first: &Path) -> io::Result<Vec<LineFile>> {
        let folder = first.parent().unwrap_or(first);
        let mut files: Vec<LineFile> = entries(folder)
            .map_err(|(_, error)| error)?
            .into_iter()
            .filter_map(|path| LineFile::at(&path, first))
            .collect();
        // One without a number is the first: it has none yet.
        files.sort_by_key(|file| file.name.number);
        Ok(files)
    }

    /// The file at this path, if its name is one of the series that begins with `first`.
    pub fn at(path: &Path, first: &Path) -> Option<LineFile> {
        let name = LineFileName::of(path, first)?;
        let first = first.to_owned();
        Some(LineFile { first, name })
    }

    /// Its path, at the time when the directory was read.
    pub fn path(&self) -> PathBuf {
        self.name.path(&self.first)
    }

    /// Its name while it is written, and after that.
    pub(super) fn name(&self) -> LineFileName {
        self.name
    }

    /// How it is compressed.
    pub fn compression(&self) -> Option<Compression> {
        self.name.compression
    }

    /// Opens it, also if a running crawl has given it its final name since. Reads begin at this offset, that of a
    /// gzip member or zstd frame if it is compressed. Makes blocking calls to the file system.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_at(&self, offset: u64) -> io::Result<LineFileReader> {
        let path = self.path();
        let renamed = match self.name.number {
            Some(_) => self.name.closed(),
            None => LineFileName::numbered(1, self.name.compression),
        };
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                File::open(renamed.path(&self.first)).map_err(|_| error)?
            }
            opened => opened?,
        };
        file.seek(SeekFrom::Start(offset))?;
        let decoder = match self.name.compression {
            Some(compression) => Some(decoder_of(compression)?),
            None => None,
        };
        Ok(LineFileReader {
            file,
            path,
            is_complete: self.name.number.is_some() && !self.name.is_open,
            decoder,
            left: u64::MAX,
            block: vec![0; BLOCK],
            text: Vec::new(),
            position: 0,
            is_at_end: false,
        })
    }
}

impl LineFile {
    /// Opens it, and reads only so many bytes of it.
    pub(super) fn open_until(&self, bytes: u64) -> io::Result<LineFileReader> {
        let mut reader = self.open_at(0)?;
        reader.left = bytes;
        Ok(reader)
    }
}

/// Decodes a file of the user's own disk: its size and ratio need no limit.
fn decoder_of(compression: Compression) -> io::Result<Decoder> {
    let budget = Budget {
        bytes_max: u64::MAX,
        ratio_max: u64::MAX,
    };
    Decoder::new([compression.coding().as_bytes()], budget)
        .map_err(|error| io::Error::new(ErrorKind::Unsupported, error.to_string()))
}

/// The lines of a file, decompressed. Memory is bounded.
///
/// What ends within a gzip member or zstd frame ends there without an error, if the file is not complete: the crawl
/// runs, or was killed.
#[derive(Debug)]
pub struct LineFileReader {
    file: File,
    path: PathBuf,
    /// Whether it has its final name.
    is_complete: bool,
    decoder: Option<Decoder>,
    /// Bytes of the file that are still to be read, at most.
    left: u64,
    block: Vec<u8>,
    /// What was read and decoded last, and how much of it was taken.
    text: Vec<u8>,
    position: usize,
    is_at_end: bool,
}

impl LineFileReader {
    fn read_on(&mut self) -> io::Result<()> {
        self.text.clear();
        self.position = 0;
        while self.text.is_empty() && !self.is_at_end {
            let most = self
                .block
                .len()
                .min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let read = match self.file.read(&mut self.block[..most]) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.is_at_end = read == 0;
            self.left -= read as u64;
            let block = &self.block[..read];
            let Some(decoder) = &mut self.decoder else {
                self.text.extend_from_slice(block);
                continue;
            };
            let decoded = match read {
                0 => decoder.finish(),
                _ => decoder.write(block, &mut self.text).map(drop),
            };
            match decoded {
                Err(CodingError::Truncated(_)) if !self.is_complete => {}
                Err(error) => {
                    let message = format!("{}: {error}", self.path.display());
                    return Err(io::Error::new(ErrorKind::InvalidData, message));
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

impl BufRead for LineFileReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position == self.text.len() {
            self.read_on()?;
        }
        Ok(&self.text[self.position..])
    }

    fn consume(&mut self, count: usize) {
        self.position = (self.position + count).min(self.text.len());
    }
}

impl Read for LineFileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

/// Reads all result lines of a crawl, of one file after the other. Memory is bounded by the longest line.
#[derive(Debug)]
pub struct LineReader {
    files: VecDeque<LineFile>,
    open: Option<(PathBuf, LineFileReader)>,
    length_max: u64,
    /// Of the line that was read last.
    number: u64,
    begin: u64,
    end: u64,
    text: Vec<u8>,
}

/// A line, and where it is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LineAt<'a> {
    /// The file.
    pub file: &'a Path,
    /// Its number in the file, from 1 on.
    pub number: u64,
    /// Where it begins in the file, decompressed.
    pub byte: u64,
    /// Number of its bytes, with its end.
    pub length: u64,
    /// The line with its end, or as much of it as was read.
    pub text: &'a [u8],
    /// How it ends.
    pub end: LineEnd,
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineEnd {
    /// It is whole.
    Whole,
    /// It is longer than the limit: only so much of it was kept.
    TooLong,
    /// It is the last of the last file and has no end: the crawl runs, or was killed.
    Unfinished,
    /// It is the last of another file and has no end, which is damage.
    Missing,
}

impl LineReader {
    /// The result lines of the crawl in this directory. Of a line, at most `length_max` bytes are kept. Makes
    /// blocking calls to the file system.
    ///
    /// # Errors
    /// The directory cannot be read. One without result lines is no error.
    pub fn results(folder: &Path, length_max: u64) -> io::Result<LineReader> {
        Ok(LineReader {
            files: LineFile::results(folder)?.into(),
            open: None,
            length_max,
            number: 0,
            begin: 0,
            end: 0,
            text: Vec::new(),
        })
    }

    /// The next line; `None` after the last.
    ///
    /// # Errors
    /// A file cannot be read, or its compression is damaged. The message names it.
    #[expect(
        clippy::should_implement_trait,
        reason = "the line borrows from the reader"
    )]
    pub fn next(&mut self) -> io::Result<Option<LineAt<'_>>> {
        let end = loop {
            let Some((path, reader)) = &mut self.open else {
                let Some(file) = self.files.pop_front() else {
                    return Ok(None);
                };
                let path = file.path();
                let reader = file.open_at(0).map_err(|error| named(&path, &error))?;
                self.open = Some((path, reader));
                (self.number, self.end) = (0, 0);
                continue;
            };
            self.text.clear();
            self.begin = self.end;
            let read = reader
                .by_ref()
                .take(self.length_max)
                .read_until(b'\n', &mut self.text)
                .map_err(|error| named(path, &error))? as u64;
            if read == 0 {
                self.open = None;
                continue;
            }
            self.number += 1;
            self.end += read;
            let mut is_whole = self.text.ends_with(b"\n");
            let is_long = read == self.length_max && !is_whole;
            if is_long {
                is_whole = skip_line(reader, &mut self.end).map_err(|error| named(path, &error))?;
            }
            break match (is_whole, is_long, self.files.is_empty()) {
                (true, false, _) => LineEnd::Whole,
                (true, true, _) => LineEnd::TooLong,
                (false, _, true) => LineEnd::Unfinished,
                (false, _, false) => LineEnd::Missing,
            };
        };
        let file = self.open.as_ref().map_or(Path::new(""), |(path, _)| path);
        Ok(Some(LineAt {
            file,
            number: self.number,
            byte: self.begin,
            length: self.end - self.begin,
            text: &self.text,
            end,
        }))
    }
}

/// Reads to the end of a line; returns whether it has one.
fn skip_line(input: &mut impl BufRead, bytes: &mut u64) -> io::Result<bool> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |at| at + 1);
        input.consume(length);
        *bytes += length as u64;
        if end.is_some() || length == 0 {
            return Ok(end.is_some());
        }
    }
}

/// The error with the file's path, once.
fn named(path: &Path, error: &io::Error) -> io::Error {
    let (path, text) = (path.display().to_string(), error.to_string());
    match text.contains(&path) {
        true => io::Error::new(error.kind(), text),
        false => io::Error::new(error.kind(), format!("{path}: {text}")),
    }
}

/// Size of the blocks in which files are read.
const BLOCK: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::compression::Compressor;

    fn compressed(compression: Compression, pieces: &[&str]) -> Vec<u8> {
        let (mut compressor, mut out) = (Compressor::default(), Vec::new());
        for piece in pieces {
            compressor
                .compress(compression, piece.as_bytes(), &mut out)
                .expect("it is built");
        }
        out
    }

    /// The lines in a directory with these files: name of the file, number, offset, text and end.
    fn read(files: &[(&str, &[u8])], length_max: u64) -> Vec<(String, u64, u64, String, LineEnd)> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let mut reader = LineReader::results(folder.path(), length_max).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            lines.push((
                line.file.file_name().unwrap().display().to_string(),
                line.number,
                line.byte,
                String::from_utf8(line.text.to_vec()).unwrap(),
                line.end,
            ));
        }
        lines
    }

    fn texts(files: &[(&str, &[u8])]) -> Vec<String> {
        let lines = read(files, 100);
        lines.into_iter().map(|(_, _, _, text, _)| text).collect()
    }

    #[test]
    fn the_lines_of_all_files_are_read_in_order() {
        let gzip = compressed(Compression::Gzip, &["c\nd\n", "e\n"]);
        let mut files: Vec<(&str, &[u8])> = vec![
            ("results-000010.jsonl.open", b"f\n"),
            ("results-000009.jsonl.gz", &gzip),
            ("results-000002.jsonl", b"b\n"),
            ("results-000001.jsonl", b"a\n"),
            ("results.jsonl.bak", b"no\n"),
            ("links.jsonl", b"no\n"),
        ];
        assert_eq!(texts(&files).concat(), "a\nb\nc\nd\ne\nf\n");
        // It has not got its number 1 yet.
        files[3].0 = "results.jsonl";
        assert_eq!(texts(&files).concat(), "a\nb\nc\nd\ne\nf\n");
        assert!(texts(&[]).is_empty());
    }

    #[test]
    fn a_line_is_named_by_its_file_and_place() {
        let files: [(&str, &[u8]); 2] = [
            ("results-000001.jsonl", b"one\ntwo\nthr"),
            ("results-000002.jsonl.open", b"toolong\nend"),
        ];
        let (first, second) = ("results-000001.jsonl", "results-000002.jsonl.open");
        let line = |file: &str, number, byte, text: &str, end| {
            (file.to_owned(), number, byte, text.to_owned(), end)
        };
        let expected = [
            line(first, 1, 0, "one\n", LineEnd::Whole),
            line(first, 2, 4, "two\n", LineEnd::Whole),
            line(first, 3, 8, "thr", LineEnd::Missing),
            line(second, 1, 0, "toolo", LineEnd::TooLong),
            line(second, 2, 8, "end", LineEnd::Unfinished),
        ];
        assert_eq!(read(&files, 5), expected);
    }

    #[test]
    fn every_cut_of_a_compressed_file_has_the_lines_before_it() {
        for compression in Compression::ALL.into_iter().filter(|c| c.is_built()) {
            let whole = compressed(compression, &["one\n", "two\n"]);
            let first = compressed(compression, &["one\n"]).len();
            let name = format!("results.jsonl{}", compression.extension());
            for cut in 0..whole.len() {
                let lines = texts(&[(&name, &whole[..cut])]);
                let whole_lines = lines.iter().filter(|line| line.ends_with('\n'));
                // The end of a member is its checksum: its bytes may be there without it.
                let least = usize::from(cut >= first);
                assert!((least..=least + 1).contains(&whole_lines.count()), "{cut}");
            }
            // In a complete file it is damage.
            let folder = tempfile::tempdir().unwrap();
            let name = format!("results-000001.jsonl{}", compression.extension());
            fs::write(folder.path().join(&name), &whole[..whole.len() - 1]).unwrap();
            let mut reader = LineReader::results(folder.path(), 100).unwrap();
            let error = loop {
                match reader.next() {
                    Ok(line) => assert!(line.is_some(), "the damage is found"),
                    Err(error) => break error,
                }
            };
            assert!(error.to_string().contains(&name), "{error}");
        }
    }

    #[test]
    fn a_file_that_got_its_final_name_is_opened_under_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["results-000002.jsonl.open", "results.jsonl"];
        let renamed = ["results-000002.jsonl", "results-000001.jsonl"];
        let path = |name: &str| folder.path().join(name);
        for name in names {
            fs::write(path(name), "one\n").unwrap();
        }
        let files = LineFile::results(folder.path()).unwrap();
        for (from, to) in names.iter().zip(renamed) {
            fs::rename(path(from), path(to)).unwrap();
        }
        for file in files {
            let mut text = String::new();
            let mut reader = file.open_at(2).unwrap();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "e\n");
        }
    }
}
