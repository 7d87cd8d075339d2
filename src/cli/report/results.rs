//! Reads the result lines of a crawl. A damaged line is counted and named, and the next line is read.

use std::io;
use std::path::Path;

use argiope::sink::directory::{LineEnd, LineReader};
use serde::Serialize;

use super::line::Line;

/// What was read of the result lines.
#[derive(Default, Serialize)]
pub struct LinesRead {
    /// Intact lines.
    pub lines: u64,
    /// Their bytes, and those of damaged ones, without compression.
    pub bytes: u64,
    /// Whole lines that are not result lines.
    pub bad: u64,
    /// The first of them.
    pub bad_lines: Vec<BadLine>,
    /// The last line has no end: the crawl runs, or was killed.
    pub incomplete: bool,
}

/// A line that is not a result line.
#[derive(Serialize)]
pub struct BadLine {
    /// The name of its file.
    pub file: String,
    /// Its number in the file, from 1 on.
    pub line: u64,
    /// Where it begins in the file, without compression.
    pub byte: u64,
    pub reason: String,
}

/// Most damaged lines that are named.
const BAD_LINES_MAX: usize = 5;
/// Longest line; of a longer one this much is in memory. A line has the `meta` of its request, and a seeds line
/// has at most as much.
const LINE_MAX: u64 = 64 * 1024 * 1024;

/// Reads the lines of the crawl in this directory, and calls `add` with each intact one.
///
/// # Errors
/// A file cannot be opened or read.
pub fn read(folder: &Path, mut add: impl FnMut(&Line<'_>)) -> io::Result<LinesRead> {
    read_raw(folder, |line| {
        let line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        add(&line);
        Ok(())
    })
}

/// The same for other readers of the lines: `add` gets the bytes of each whole line, and returns what is wrong with
/// one that is damaged.
///
/// # Errors
/// A file cannot be opened or read.
pub fn read_raw(
    folder: &Path,
    mut add: impl FnMut(&[u8]) -> Result<(), String>,
) -> io::Result<LinesRead> {
    let mut reader = LineReader::results(folder, LINE_MAX)?;
    let mut found = LinesRead::default();
    while let Some(at) = reader.next()? {
        found.bytes += at.length;
        let line = match at.end {
            LineEnd::Unfinished => {
                found.incomplete = true;
                continue;
            }
            LineEnd::TooLong => Err(format!("it is longer than {LINE_MAX} bytes")),
            LineEnd::Whole => add(at.text),
            _ => Err("it has no end".to_owned()),
        };
        match line {
            Ok(()) => found.lines += 1,
            Err(reason) => {
                found.bad += 1;
                if found.bad_lines.len() < BAD_LINES_MAX {
                    let name = at.file.file_name().unwrap_or_default();
                    found.bad_lines.push(BadLine {
                        file: name.to_string_lossy().into_owned(),
                        line: at.number,
                        byte: at.byte,
                        reason,
                    });
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LINE: &str = "{\"url\": \"http://a.test/\", \"kind\": \"page\", \"final\": true}\n";

    fn read_all(input: &[u8]) -> (Vec<String>, LinesRead) {
        let mut hosts = Vec::new();
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("results.jsonl"), input).expect("a file");
        let found = read(folder.path(), |line| hosts.push(line.host().to_owned()));
        (hosts, found.expect("it is readable"))
    }

    #[test]
    fn a_damaged_line_is_named_and_the_next_one_is_read() {
        let input = format!("{LINE}nonsense\n\0\0\0\n{{}}\n{LINE}");
        let (hosts, found) = read_all(input.as_bytes());
        assert_eq!(hosts, ["a.test", "a.test"]);
        assert_eq!((found.lines, found.bad, found.incomplete), (2, 3, false));
        assert_eq!(found.bytes, input.len() as u64);
        let named: Vec<(u64, u64)> = found.bad_lines.iter().map(|b| (b.line, b.byte)).collect();
        let first = LINE.len() as u64;
        assert_eq!(named, [(2, first), (3, first + 9), (4, first + 13)]);
        assert!(found.bad_lines[2].reason.contains("url"));
    }

    #[test]
    fn a_file_that_ends_within_a_line_is_damaged_unless_it_is_the_last() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        write("results-000001.jsonl", &format!("{LINE}{{")).expect("a file");
        write("results-000002.jsonl.open", &format!("{LINE}{{")).expect("a file");
        let found = read(folder.path(), |_| {}).expect("it is readable");
        assert_eq!((found.lines, found.bad, found.incomplete), (2, 1, true));
        assert_eq!(found.bad_lines[0].file, "results-000001.jsonl");
    }

    #[test]
    fn every_cut_of_the_last_line_is_skipped_and_no_damage() {
        for cut in 1..LINE.len() {
            let input = format!("{LINE}{}", &LINE[..cut]);
            let (hosts, found) = read_all(input.as_bytes());
            assert_eq!((hosts.len(), found.bad, found.incomplete), (1, 0, true));
        }
        let (hosts, found) = read_all(b"");
        assert_eq!((hosts.len(), found.bad, found.incomplete), (0, 0, false));
    }

    #[test]
    fn few_of_many_damaged_lines_are_named() {
        let (_, found) = read_all(&b"?\n".repeat(1000));
        assert_eq!((found.bad, found.bad_lines.len()), (1000, BAD_LINES_MAX));
    }

    #[test]
    fn a_line_over_the_limit_is_damaged_and_the_next_one_is_read() {
        let mut input = vec![b'x'; LINE_MAX as usize + 10];
        input.push(b'\n');
        input.extend(LINE.as_bytes());
        let (hosts, found) = read_all(&input);
        assert_eq!((hosts.len(), found.bad), (1, 1));
        assert!(found.bad_lines[0].reason.contains("longer"));
    }
}
