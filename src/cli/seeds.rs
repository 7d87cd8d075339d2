//! Seeds files line by line, in bounded memory: plain, gzip or zstd, or standard input.

use std::fs::File;
use std::io::{self, Read};

use argiope::wire::coding::{Budget, CodingError, Decoder};

/// The lines of a seeds file with their numbers, from 1.
///
/// An error of one line is followed by the next line; an error of the file is the last item.
/// Reading blocks as long as its source does.
pub struct SeedLines<R> {
    source: R,
    name: String,
    stage: Stage,
    decoder: Option<Decoder>,
    block: Box<[u8]>,
    /// What was read and not yet returned, from `from` on.
    text: Vec<u8>,
    from: usize,
    /// Where in `text` to look on for the end of the line.
    searched: usize,
    /// Lines begun so far.
    number: u64,
    /// The rest of a line that was too long is being passed over.
    overlong: bool,
    /// Why the source has no more, where that is not its end.
    failure: Option<SeedLinesError>,
}

/// `Beginning → Reading → Ended → Over`: whether the source has more, and then whether we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The first bytes tell whether the file is compressed.
    Beginning,
    /// The source may have more.
    Reading,
    /// The source has no more; what was read is still being returned.
    Ended,
    /// Everything was returned.
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

/// Why there is no next line.
#[derive(Debug, thiserror::Error)]
pub enum SeedLinesError {
    /// The file cannot be read, or not further.
    #[error("cannot read seeds from {name}: {cause}")]
    Read {
        /// The file, as it was given.
        name: String,
        /// What the machine said.
        #[source]
        cause: io::Error,
    },
    /// The compressed file is damaged.
    #[error("cannot read seeds from {name}: {cause}")]
    Coding {
        /// The file, as it was given.
        name: String,
        /// What is wrong with it.
        #[source]
        cause: CodingError,
    },
    /// This line is too long to be a seed.
    #[error("{name}:{number}: the line is longer than {LINE_MAX} bytes")]
    TooLong {
        /// The file, as it was given.
        name: String,
        /// The line.
        number: u64,
    },
    /// This line is not UTF-8.
    #[error("{name}:{number}: the line is not UTF-8")]
    NotText {
        /// The file, as it was given.
        name: String,
        /// The line.
        number: u64,
    },
}

impl SeedLinesError {
    /// Whether it concerns one line, so that the next can still be read.
    pub fn is_of_one_line(&self) -> bool {
        match self {
            SeedLinesError::Read { .. } | SeedLinesError::Coding { .. } => false,
            SeedLinesError::TooLong { .. } | SeedLinesError::NotText { .. } => true,
        }
    }
}

/// Opens a seeds file; `-` is standard input.
///
/// Whether it is compressed is seen from its first bytes, so standard input may be, too.
///
/// # Errors
/// The file cannot be opened.
pub fn open(name: &str) -> Result<SeedLines<Box<dyn Read>>, SeedLinesError> {
    if name == "-" {
        return Ok(SeedLines::new(Box::new(io::stdin()), "standard input"));
    }
    let file = File::open(name).and_then(|file| {
        // A directory can be opened; that it cannot be read is better said now.
        match file.metadata()?.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(file),
        }
    });
    match file {
        Ok(file) => Ok(SeedLines::new(Box::new(file), name)),
        Err(cause) => Err(SeedLinesError::Read {
            name: name.to_owned(),
            cause,
        }),
    }
}

impl<R: Read> SeedLines<R> {
    /// The lines of `source`, which errors call `name`.
    pub fn new(source: R, name: impl Into<String>) -> Self {
        SeedLines {
            source,
            name: name.into(),
            stage: Stage::Beginning,
            decoder: None,
            block: vec![0; BLOCK_SIZE].into(),
            text: Vec::new(),
            from: 0,
            searched: 0,
            number: 0,
            overlong: false,
            failure: None,
        }
    }

    /// The next line end's place in `text`.
    fn line_end(&mut self) -> Option<usize> {
        let found = self.text[self.searched..].iter().position(|&b| b == b'\n');
        let end = found.map(|at| self.searched + at);
        self.searched = end.map_or(self.text.len(), |end| end + 1);
        end
    }

    /// Takes the line that ends at `end`. `None` is the end of a line already complained about.
    fn take(&mut self, end: usize) -> Option<<Self as Iterator>::Item> {
        let line = self.from..end;
        self.from = self.searched;
        if std::mem::take(&mut self.overlong) {
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

    /// Reads a block more; the end of the source changes the stage.
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
                    let name = self.name.clone();
                    return Err(SeedLinesError::Read { name, cause });
                }
            }
        }
        let read = &self.block[..filled];
        if beginning {
            self.decoder = decoder_for(read);
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
            cause,
        })
    }
}

impl<R: Read> Iterator for SeedLines<R> {
    type Item = Result<SeedLine, SeedLinesError>;

    fn next(&mut self) -> Option<Self::Item> {
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
                        return Some(Err(failure));
                    }
                    // The last line may lack its end.
                    if self.from < self.text.len() {
                        return self.take(self.text.len());
                    }
                }
                Stage::Beginning | Stage::Reading => {
                    if self.text.len() - self.from > LINE_MAX {
                        self.from = self.text.len();
                        if !std::mem::replace(&mut self.overlong, true) {
                            self.number += 1;
                            return Some(Err(self.too_long()));
                        }
                    }
                    if let Err(error) = self.read_on() {
                        self.stage = Stage::Ended;
                        self.failure = Some(error);
                    }
                }
            }
        }
    }
}

/// What undoes the compression that the first bytes of a file tell of. No text begins like that.
fn decoder_for(beginning: &[u8]) -> Option<Decoder> {
    let coding: &[u8] = match beginning {
        [0x1f, 0x8b, ..] => b"gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => b"zstd",
        _ => return None,
    };
    // The file is the user's own and is read in blocks: neither its size nor its ratio is a threat.
    let budget = Budget {
        bytes_max: u64::MAX,
        ratio_max: u64::MAX,
    };
    Some(Decoder::new([coding], budget).expect("a coding that is known"))
}

/// A block of the source. Compressed a thousandfold, as far as gzip goes, it becomes 16 MiB.
const BLOCK_SIZE: usize = 16 << 10;

/// Longer lines are mistakes: a seed is a URL, or an object with a body to be posted.
const LINE_MAX: usize = 4 << 20;

/// How many bytes tell whether a file is compressed.
const MAGIC_SIZE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that gives a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(count);
            buffer[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    /// Every line as `number:text`, every error as it is told.
    fn read(bytes: &[u8], step: usize) -> Vec<String> {
        SeedLines::new(Slow(bytes, step), "seeds.txt")
            .map(|line| match line {
                Ok(line) => format!("{}:{}", line.number, line.text),
                Err(error) if error.is_of_one_line() => error.to_string(),
                Err(error) => format!("the end: {error}"),
            })
            .collect()
    }

    #[test]
    fn lines_are_numbered_however_the_source_is_cut() {
        let check = |text: &str, expected: &[&str]| {
            for step in [1, 2, 3, 5, 1000] {
                assert_eq!(read(text.as_bytes(), step), expected, "{text:?} by {step}");
            }
        };
        check("", &[]);
        check("a", &["1:a"]);
        check(
            "a.test\nb.test\r\n\n# c\nlast",
            &["1:a.test", "2:b.test", "3:", "4:# c", "5:last"],
        );
        check("a\n", &["1:a"]);
        check("\n\n", &["1:", "2:"]);
    }

    #[test]
    fn compressed_files_are_known_by_their_first_bytes() {
        let text: String = (0..50_000).map(|n| format!("host-{n}.test\n")).collect();
        let gzip = argiope::wire::coding::gzip(text.as_bytes());
        let two_members = [gzip.as_slice(), &gzip].concat();
        for step in [7, 1 << 20] {
            let lines = read(&two_members, step);
            assert_eq!(lines.len(), 100_000);
            assert_eq!(lines[99_999], "100000:host-49999.test");
        }
        let zstd = b"\x28\xb5\x2f\xfd\x04\x58\x71\0\0a.test\nb.test\n\x90\xad\x13\xd3";
        assert_eq!(read(zstd, 3), ["1:a.test", "2:b.test"]);
    }

    #[test]
    fn a_damaged_file_gives_its_lines_and_then_says_so() {
        let gzip = argiope::wire::coding::gzip(b"a.test\nb.test\n");
        let lines = read(&gzip[..gzip.len() - 4], 1000);
        assert_eq!(
            lines,
            [
                "1:a.test",
                "2:b.test",
                "the end: cannot read seeds from seeds.txt: the gzip stream ends too early"
            ]
        );
    }

    #[test]
    fn a_line_that_cannot_be_a_seed_does_not_end_the_file() {
        let mut bytes = b"a.test\n\xff\xfe\n".to_vec();
        bytes.extend(vec![b'x'; 3 * LINE_MAX]);
        bytes.extend(b"\nb.test\n");
        assert_eq!(
            read(&bytes, 1 << 20),
            [
                "1:a.test".to_owned(),
                "seeds.txt:2: the line is not UTF-8".to_owned(),
                format!("seeds.txt:3: the line is longer than {LINE_MAX} bytes"),
                "4:b.test".to_owned(),
            ]
        );
    }

    #[test]
    fn memory_is_bounded_by_a_line_and_not_by_the_file() {
        let bytes = vec![b'x'; 8 * LINE_MAX];
        let mut lines = SeedLines::new(bytes.as_slice(), "seeds.txt");
        while lines.next().is_some() {}
        assert!(lines.text.capacity() <= 2 * LINE_MAX + BLOCK_SIZE);
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let check = |name: &str, expected: &str| {
            let told = open(name).err().expect("an error").to_string();
            assert!(told.starts_with(expected), "{told}");
        };
        check(
            "/nowhere/seeds.txt",
            "cannot read seeds from /nowhere/seeds.txt: No such file",
        );
        check("/", "cannot read seeds from /: is a directory");
    }
}
