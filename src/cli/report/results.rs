//! Reads `results.jsonl` line by line. A damaged line is counted and named, and the next line is read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use super::line::Line;

/// What was read of `results.jsonl`.
#[derive(Default, Serialize)]
pub struct LinesRead {
    /// Intact lines.
    pub lines: u64,
    /// Bytes of the file.
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
    /// Its number, from 1 on.
    pub line: u64,
    /// Where it begins.
    pub byte: u64,
    pub reason: String,
}

/// Most damaged lines that are named.
const BAD_LINES_MAX: usize = 5;
/// Longest line; of a longer one this much is in memory. A line has the `meta` of its request, and a seeds line
/// has at most as much.
const LINE_MAX: u64 = 64 * 1024 * 1024;
const BUFFER: usize = 256 * 1024;

/// Reads a file, and calls `add` with each intact line.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read(path: &Path, add: impl FnMut(&Line<'_>)) -> io::Result<LinesRead> {
    read_from(BufReader::with_capacity(BUFFER, File::open(path)?), add)
}

fn read_from(mut input: impl BufRead, mut add: impl FnMut(&Line<'_>)) -> io::Result<LinesRead> {
    let mut found = LinesRead::default();
    let mut buffer = Vec::new();
    let mut number = 0;
    loop {
        buffer.clear();
        let begin = found.bytes;
        let length = (&mut input).take(LINE_MAX).read_until(b'\n', &mut buffer)? as u64;
        if length == 0 {
            return Ok(found);
        }
        number += 1;
        found.bytes += length;
        let mut is_whole = buffer.ends_with(b"\n");
        let is_long = length == LINE_MAX && !is_whole;
        if is_long {
            is_whole = skip_line(&mut input, &mut found.bytes)?;
        }
        if !is_whole {
            found.incomplete = true;
            return Ok(found);
        }
        let line = match is_long {
            true => Err(format!("it is longer than {LINE_MAX} bytes")),
            false => serde_json::from_slice(&buffer).map_err(|error| error.to_string()),
        };
        match line {
            Ok(line) => {
                add(&line);
                found.lines += 1;
            }
            Err(reason) => {
                found.bad += 1;
                if found.bad_lines.len() < BAD_LINES_MAX {
                    found.bad_lines.push(BadLine {
                        line: number,
                        byte: begin,
                        reason,
                    });
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"url\": \"http://a.test/\", \"kind\": \"page\", \"final\": true}\n";

    fn read_all(input: &[u8]) -> (Vec<String>, LinesRead) {
        let mut hosts = Vec::new();
        let found = read_from(input, |line| hosts.push(line.host().to_owned()));
        (hosts, found.expect("memory is readable"))
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
