//! Reads seeds files and standard input line by line, in bounded memory: plain, gzip or zstd.

mod beginning;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

use argiope::parts::{Budget, CodingError, Decoder};

use self::beginning::{BEGINNING, Content, Origin};

/// The lines of a seeds file with their numbers, from 1.
///
/// An error of one line is followed by the next line; an error of the file is the last item.
/// Reading blocks while its source blocks.
pub struct SeedLines<R> {
    source: R,
    name: String,
    /// Whether the source is a file that is opened again by this name.
    has_path: bool,
    /// The command that reads such lines from its standard input.
    reader: &'static str,
    stage: Stage,
    /// Whether the beginning of the text was checked.
    is_checked: bool,
    decoder: Option<Decoder>,
    /// The tool that does the same as the decoder.
    decompressor: Option<&'static str>,
    block: Box<[u8]>,
    /// Bytes read and not yet returned, from `from` on.
    text: Vec<u8>,
    from: usize,
    /// Position in `text` from which to search for the end of the line.
    searched: usize,
    /// Number of lines started.
    number: u64,
    /// Whether the rest of a line that was too long is being skipped.
    overlong: bool,
    /// Bytes of that line that were skipped.
    skipped: u64,
    /// Maximum of them.
    skipped_max: u64,
    /// The error that ended the source, if any.
    failure: Option<SeedLinesError>,
}

/// `Beginning → Reading → Ended → Over`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first bytes show whether the file is compressed.
    Beginning,
    /// The source may have more bytes.
    Reading,
    /// The source has ended; bytes that were read are still to be returned.
    Ended,
    /// All lines were returned.
    Over,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedLine {
    /// Its number in the file, from 1.
    pub number: u64,
    /// Its text, without the line end.
    pub text: String,
}

/// Error of reading a line.
#[derive(Debug, thiserror::Error)]
pub enum SeedLinesError {
    /// Opening the file failed.
    #[error("cannot read seeds from {name}: {cause}")]
    Open {
        /// The file, as given.
        name: String,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// Reading the file failed.
    #[error("cannot read seeds from {name} after line {number}: {cause}")]
    Read {
        /// The file, as given.
        name: String,
        /// The last line before.
        number: u64,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The compressed file is damaged.
    #[error("cannot read seeds from {name} after line {number}: {cause}")]
    Coding {
        /// The file, as given.
        name: String,
        /// The last line before.
        number: u64,
        /// The error of decoding.
        #[source]
        cause: CodingError,
    },
    /// The file is no list of seeds.
    #[error("{name} is {}, and no list with a seed in each line: {advice}", content.name())]
    NotLines {
        /// The file, as given.
        name: String,
        /// What it is.
        content: Content,
        /// How a list is made of it.
        advice: String,
    },
    /// A line does not end.
    #[error(
        "{name}:{number}: the line is longer than {} MiB, which no line of a list is: give a file with a seed in each \
         line",
        SKIPPED_MAX >> 20
    )]
    Endless {
        /// The file, as given.
        name: String,
        /// The line.
        number: u64,
    },
    /// This line is too long to be a seed.
    #[error("{name}:{number}: the line is longer than {LINE_MAX} bytes")]
    TooLong {
        /// The file, as given.
        name: String,
        /// The line.
        number: u64,
    },
    /// This line is not UTF-8.
    #[error("{name}:{number}: the line is not UTF-8")]
    NotText {
        /// The file, as given.
        name: String,
        /// The line.
        number: u64,
    },
}

impl SeedLinesError {
    /// Whether the error concerns one line, so that the next can be read.
    pub fn is_of_one_line(&self) -> bool {
        match self {
            SeedLinesError::Open { .. }
            | SeedLinesError::Read { .. }
            | SeedLinesError::Coding { .. }
            | SeedLinesError::NotLines { .. }
            | SeedLinesError::Endless { .. } => false,
            SeedLinesError::TooLong { .. } | SeedLinesError::NotText { .. } => true,
        }
    }

    /// Whether the error is of the machine, so that the same file may be read to its end later.
    pub fn is_of_machine(&self) -> bool {
        matches!(
            self,
            SeedLinesError::Open { .. } | SeedLinesError::Read { .. }
        )
    }

    /// File and line of an error of one line, and what is wrong with it.
    pub fn place_and_reason(&self) -> (Option<(&str, u64)>, String) {
        match self {
            SeedLinesError::TooLong { name, number } => {
                let why = format!("the line is longer than {LINE_MAX} bytes");
                (Some((name, *number)), why)
            }
            SeedLinesError::NotText { name, number } => {
                (Some((name, *number)), "the line is not UTF-8".to_owned())
            }
            other => (None, other.to_string()),
        }
    }

    /// The same error of the file, after this line.
    fn after_line(mut self, last: u64) -> Self {
        if let SeedLinesError::Read { number, .. } | SeedLinesError::Coding { number, .. } =
            &mut self
        {
            *number = last;
        }
        self
    }
}

/// Opens a seeds file; `-` is standard input. `reader`: the command that reads such lines from standard input, for
/// messages.
///
/// Compression is detected from the first bytes, so standard input may be compressed, too.
///
/// # Errors
/// The file cannot be opened.
pub fn open(name: &str, reader: &'static str) -> Result<SeedLines<File>, SeedLinesError> {
    let has_path = !is_read_last(Path::new(name));
    let (name, file) = match name {
        "-" => (
            STDIN,
            io::stdin().as_fd().try_clone_to_owned().map(File::from),
        ),
        name => (name, File::open(name)),
    };
    let file = file.and_then(|file| {
        let kind = file.metadata()?.file_type();
        // A directory can be opened but not read: report that at once.
        match kind.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok((file, kind.is_file())),
        }
    });
    match file {
        Ok((file, is_regular)) => Ok(SeedLines {
            has_path,
            reader,
            // A regular file has an end.
            skipped_max: if is_regular { u64::MAX } else { SKIPPED_MAX },
            ..SeedLines::new(file, name)
        }),
        Err(cause) => Err(SeedLinesError::Open {
            name: name.to_owned(),
            cause,
        }),
    }
}

/// Whether an input is read after all files, and not again by a run that resumes the crawl: standard input, also if it is
/// a file, other open files by their number, and everything but a regular file. A regular file may be anywhere, as in
/// /dev/shm.
pub fn is_read_last(path: &Path) -> bool {
    let is_open_file = ["-", "/dev/stdin", "/dev/fd", "/proc"]
        .iter()
        .any(|root| path.starts_with(root));
    is_open_file || !is_regular(path)
}

/// Whether there is a regular file at this path.
pub fn is_regular(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file())
}

impl SeedLines<File> {
    /// Checks a regular file as [`SeedLines::check_beginning`] does, and returns its lines from the first on, without the
    /// text and the decoder of the check: of many files one is read at a time.
    ///
    /// # Errors
    /// It is something else.
    pub fn checked(mut self) -> Result<Self, SeedLinesError> {
        self.check_beginning()?;
        if let Err(cause) = self.source.rewind() {
            let name = self.name;
            return Err(SeedLinesError::Open { name, cause });
        }
        Ok(SeedLines {
            has_path: self.has_path,
            reader: self.reader,
            skipped_max: self.skipped_max,
            is_checked: true,
            ..SeedLines::new(self.source, self.name)
        })
    }

    /// The lines of a file that an earlier run of the crawl has begun to read: its beginning is not checked.
    pub fn unchecked(self) -> Self {
        SeedLines {
            is_checked: true,
            ..self
        }
    }
}

impl<R: Read> SeedLines<R> {
    /// The lines of `source`; errors contain `name`.
    pub fn new(source: R, name: impl Into<String>) -> Self {
        SeedLines {
            source,
            name: name.into(),
            has_path: false,
            reader: "argiope crawl --seeds -",
            stage: Stage::Beginning,
            is_checked: false,
            decoder: None,
            decompressor: None,
            block: vec![0; BLOCK_SIZE].into(),
            text: Vec::new(),
            from: 0,
            searched: 0,
            number: 0,
            overlong: false,
            skipped: 0,
            skipped_max: SKIPPED_MAX,
            failure: None,
        }
    }

    /// Checks that the source is a list of lines, as far as its beginning shows. Reads blocks up to the one in which the
    /// first line ends, or [`BEGINNING`] bytes of text.
    ///
    /// # Errors
    /// It is something else. No line follows.
    fn check_beginning(&mut self) -> Result<(), SeedLinesError> {
        if std::mem::replace(&mut self.is_checked, true) {
            return Ok(());
        }
        while matches!(self.stage, Stage::Beginning | Stage::Reading)
            && self.text.len() < BEGINNING
            && !self.text.contains(&b'\n')
        {
            self.read_or_fail();
        }
        let beginning = &self.text[..self.text.len().min(BEGINNING)];
        let Some(content) = Content::of(beginning) else {
            return Ok(());
        };
        self.stage = Stage::Over;
        self.text.clear();
        let origin = Origin {
            path: self.has_path.then(|| Path::new(&self.name)),
            decompressor: self.decompressor,
            reader: self.reader,
        };
        Err(SeedLinesError::NotLines {
            advice: content.advice(origin),
            name: self.name.clone(),
            content,
        })
    }

    /// Name of the source, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Source of the lines.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// Returns whether the next line, or the end, is available without another read.
    pub fn is_at_hand(&self) -> bool {
        match self.stage {
            Stage::Ended | Stage::Over => true,
            Stage::Beginning | Stage::Reading => self.text[self.searched..].contains(&b'\n'),
        }
    }

    /// Position of the next line end in `text`.
    fn line_end(&mut self) -> Option<usize> {
        let found = self.text[self.searched..].iter().position(|&b| b == b'\n');
        let end = found.map(|at| self.searched + at);
        self.searched = end.map_or(self.text.len(), |end| end + 1);
        end
    }

    /// Takes the line that ends at `end`. `None` at the end of a line already reported as too long.
    fn take(&mut self, end: usize) -> Option<<Self as Iterator>::Item> {
        let line = self.from..end;
        self.from = self.searched;
        if std::mem::take(&mut self.overlong) {
            self.skipped = 0;
            return None;
        }
        self.number += 1;
        if line.len() > LINE_MAX {
            return Some(Err(self.too_long()));
        }
        let text = match str::from_utf8(&self.text[line]) {
            Ok(text) => text.strip_suffix('\r').unwrap_or(text).to_owned(),
            Err(_) => {
                return Some(Err(SeedLinesError::NotText {
                    name: self.name.clone(),
                    number: self.number,
                }));
            }
        };
        Some(Ok(SeedLine {
            number: self.number,
            text,
        }))
    }

    fn too_long(&self) -> SeedLinesError {
        SeedLinesError::TooLong {
            name: self.name.clone(),
            number: self.number,
        }
    }

    /// Reads the next block. An error is the last item, after the lines that were read before it.
    fn read_or_fail(&mut self) {
        if let Err(error) = self.read_on() {
            self.stage = Stage::Ended;
            self.failure = Some(error);
        }
    }

    /// Reads the next block; the end of the source changes the stage.
    fn read_on(&mut self) -> Result<(), SeedLinesError> {
        self.text.drain(..self.from);
        self.searched -= self.from;
        self.from = 0;
        let beginning = self.stage == Stage::Beginning;
        let least = if beginning { MAGIC_SIZE } else { 1 };
        let mut filled = 0;
        while filled < least {
            match self.source.read(&mut self.block[filled..]) {
                Ok(0) => {
                    self.stage = Stage::Ended;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(SeedLinesError::Read {
                        name: self.name.clone(),
                        number: self.number,
                        cause,
                    });
                }
            }
        }
        let read = &self.block[..filled];
        if beginning {
            let coding = coding_of(read);
            self.decoder = coding.map(|coding| decoder_for(coding.as_bytes()));
            // The tools have the names of the codings.
            self.decompressor = coding;
            if self.stage == Stage::Beginning {
                self.stage = Stage::Reading;
            }
        }
        let Some(decoder) = &mut self.decoder else {
            self.text.extend_from_slice(read);
            return Ok(());
        };
        let decoded = decoder.write(read, &mut self.text);
        let decoded = decoded.and_then(|_| match self.stage {
            Stage::Ended => decoder.finish(),
            _ => Ok(()),
        });
        decoded.map_err(|cause| SeedLinesError::Coding {
            name: self.name.clone(),
            number: self.number,
            cause,
        })
    }
}

impl<R: Read> Iterator for SeedLines<R> {
    type Item = Result<SeedLine, SeedLinesError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.check_beginning() {
            return Some(Err(error));
        }
        loop {
            while let Some(end) = self.line_end() {
                if let Some(line) = self.take(end) {
                    return Some(line);
                }
            }
            match self.stage {
                Stage::Over => return None,
                Stage::Ended => {
                    self.stage = Stage::Over;
                    if let Some(failure) = self.failure.take() {
                        // Lines that were read before it were returned since.
                        return Some(Err(failure.after_line(self.number)));
                    }
                    // The last line may have no line end.
                    if self.from < self.text.len() {
                        return self.take(self.text.len());
                    }
                }
                Stage::Beginning | Stage::Reading => {
                    if self.text.len() - self.from > LINE_MAX {
                        self.skipped += (self.text.len() - self.from) as u64;
                        self.from = self.text.len();
                        if self.skipped > self.skipped_max {
                            self.stage = Stage::Over;
                            return Some(Err(SeedLinesError::Endless {
                                name: self.name.clone(),
                                number: self.number,
                            }));
                        }
                        if !std::mem::replace(&mut self.overlong, true) {
                            self.number += 1;
                            return Some(Err(self.too_long()));
                        }
                    }
                    self.read_or_fail();
                }
            }
        }
    }
}

/// The compression detected from the first bytes of a file. No text starts with these bytes.
fn coding_of(beginning: &[u8]) -> Option<&'static str> {
    match beginning {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        _ => None,
    }
}

/// Decoder for a compression.
fn decoder_for(coding: &'static [u8]) -> Decoder {
    // The user's own file, decoded in blocks: its size and ratio need no limit.
    let budget = Budget {
        bytes_max: u64::MAX,
        ratio_max: u64::MAX,
    };
    Decoder::new([coding], budget).expect("a known coding")
}

/// Size of a block. At gzip's maximum ratio of 1000, it decodes to 16 MiB.
const BLOCK_SIZE: usize = 16 << 10;

/// Maximum length of a line: a seed is a URL, or an object with a body to be posted.
const LINE_MAX: usize = 4 << 20;

/// Bytes of a line that are skipped before it counts as endless, in what is no regular file.
const SKIPPED_MAX: u64 = 64 << 20;

/// Name of standard input in messages and in `rejected.jsonl`.
const STDIN: &str = "standard input";

/// Number of bytes that show whether a file is compressed.
const MAGIC_SIZE: usize = 4;

#[cfg(test)]
mod tests;
