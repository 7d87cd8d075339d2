//! Sorts lines by their bytes in bounded memory, as `sort` does in the C locale.
//!
//! Hand-written: sorted runs go to one scratch file that the caller provides, and are merged from there. Crates that
//! sort on disk open files of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::mem;
use std::ops::Range;

/// A file for what does not fit into memory.
pub trait Scratch: Read + Write + Seek {}

impl<T: Read + Write + Seek> Scratch for T {}

/// Lines to be sorted.
#[derive(Debug)]
pub struct LineSorter {
    /// Lines that are in no run yet, each with its end.
    text: Vec<u8>,
    /// Where each of them is.
    lines: Vec<Range<u32>>,
    /// Where each run is in the scratch file, by how often its lines were merged: each time it is written anew, so that
    /// the file has them as many times.
    runs: Vec<Vec<Range<u64>>>,
    /// The end of the last one.
    end: u64,
    memory: usize,
    runs_max: usize,
}

impl LineSorter {
    /// No lines, in memory of about 20 MiB whatever is added.
    pub fn new() -> Self {
        LineSorter::bounded(MEMORY, RUNS_MAX)
    }

    /// Runs of so many bytes, and merges of so many runs.
    fn bounded(memory: usize, runs_max: usize) -> Self {
        LineSorter {
            text: Vec::new(),
            lines: Vec::new(),
            runs: Vec::new(),
            end: 0,
            memory,
            runs_max,
        }
    }

    /// Adds a line that has no line end and at most some MiB. What does not fit into memory goes to `scratch`, which
    /// is the same file each time, empty at first.
    ///
    /// # Errors
    /// `scratch` cannot be written or read.
    pub fn add(&mut self, line: &[u8], scratch: &mut dyn Scratch) -> io::Result<()> {
        // All at once: growing by doubling takes twice as much for a moment.
        self.text.reserve_exact(match self.text.capacity() {
            0 => self.memory,
            _ => 0,
        });
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        // The memory is far below 2³² bytes.
        self.lines.push(start as u32..self.text.len() as u32);
        let size = self.text.len() + size_of_val(&self.lines[..]);
        match size >= self.memory {
            true => self.write_run(scratch),
            false => Ok(()),
        }
    }

    /// Writes all lines to `out` in order, those that are equal once.
    ///
    /// # Errors
    /// A file cannot be written or read.
    pub fn finish(mut self, scratch: &mut dyn Scratch, out: &mut dyn Write) -> io::Result<()> {
        if self.runs.is_empty() {
            return self.write_lines(out);
        }
        self.write_run(scratch)?;
        self.text = Vec::new();
        merge(&self.runs.concat(), scratch, |line, _| out.write_all(line))
    }

    fn write_run(&mut self, scratch: &mut dyn Scratch) -> io::Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let start = scratch.seek(SeekFrom::Start(self.end))?;
        self.write_lines(scratch)?;
        self.end = scratch.stream_position()?;
        let mut run = start..self.end;
        for level in 0.. {
            if self.runs.len() == level {
                self.runs.push(Vec::new());
            }
            self.runs[level].push(run);
            if self.runs[level].len() < self.runs_max {
                break;
            }
            let runs = mem::take(&mut self.runs[level]);
            run = self.merge_runs(&runs, scratch)?;
        }
        Ok(())
    }

    /// Makes one run of several, behind all others.
    fn merge_runs(
        &mut self,
        runs: &[Range<u64>],
        scratch: &mut dyn Scratch,
    ) -> io::Result<Range<u64>> {
        let (start, mut end) = (self.end, self.end);
        let mut merged = Vec::with_capacity(2 * PIECE);
        let mut flush = |merged: &mut Vec<u8>, scratch: &mut dyn Scratch| {
            scratch.seek(SeekFrom::Start(end))?;
            scratch.write_all(merged)?;
            end += merged.len() as u64;
            merged.clear();
            io::Result::Ok(())
        };
        merge(runs, scratch, |line, scratch| {
            merged.extend_from_slice(line);
            match merged.len() >= PIECE {
                true => flush(&mut merged, scratch),
                false => Ok(()),
            }
        })?;
        flush(&mut merged, scratch)?;
        self.end = end;
        Ok(start..end)
    }

    /// Writes the lines in memory, and forgets them.
    fn write_lines<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        let text = &self.text;
        let line = |at: &Range<u32>| &text[at.start as usize..at.end as usize];
        self.lines
            .sort_unstable_by(|one, other| line(one).cmp(line(other)));
        self.lines.dedup_by(|one, other| line(one) == line(other));
        let mut piece = Vec::with_capacity(2 * PIECE);
        for at in &self.lines {
            piece.extend_from_slice(line(at));
            if piece.len() >= PIECE {
                out.write_all(&piece)?;
                piece.clear();
            }
        }
        out.write_all(&piece)?;
        self.lines.clear();
        self.text.clear();
        Ok(())
    }
}

impl Default for LineSorter {
    fn default() -> Self {
        LineSorter::new()
    }
}

/// Calls `each` with each line of the runs in order, those that are equal once.
fn merge(
    runs: &[Range<u64>],
    scratch: &mut dyn Scratch,
    mut each: impl FnMut(&[u8], &mut dyn Scratch) -> io::Result<()>,
) -> io::Result<()> {
    let mut readers: Vec<RunReader> = runs.iter().cloned().map(RunReader::new).collect();
    let mut first = BinaryHeap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        let mut line = Vec::new();
        if reader.next_line(scratch, &mut line)? {
            first.push(Reverse((line, number)));
        }
    }
    let mut last = Vec::new();
    while let Some(mut least) = first.peek_mut() {
        let Reverse((line, number)) = &mut *least;
        if *line != last {
            each(line, scratch)?;
            mem::swap(&mut last, line);
        }
        if !readers[*number].next_line(scratch, line)? {
            PeekMut::pop(least);
        }
    }
    Ok(())
}

/// The lines of a run.
#[derive(Debug)]
struct RunReader {
    /// What is not read yet.
    rest: Range<u64>,
    piece: Vec<u8>,
    /// The next line's start in `piece`.
    at: usize,
}

impl RunReader {
    fn new(run: Range<u64>) -> Self {
        RunReader {
            rest: run,
            piece: Vec::new(),
            at: 0,
        }
    }

    /// Replaces `line` by the next one with its end; `false` if there is none.
    fn next_line(&mut self, scratch: &mut dyn Scratch, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        loop {
            let mut piece = &self.piece[self.at..];
            self.at += piece.read_until(b'\n', line)?;
            if line.ends_with(b"\n") {
                return Ok(true);
            }
            let length = (self.rest.end - self.rest.start).min(PIECE as u64);
            if length == 0 {
                // A run ends with a line end.
                return Ok(!line.is_empty());
            }
            self.piece.resize(length as usize, 0);
            self.at = 0;
            scratch.seek(SeekFrom::Start(self.rest.start))?;
            scratch.read_exact(&mut self.piece)?;
            self.rest.start += length;
        }
    }
}

/// Bytes of the lines in memory.
const MEMORY: usize = 12 << 20;

/// Runs that are merged at once: each takes [`PIECE`] of memory and a line.
const RUNS_MAX: usize = 64;

/// Bytes that are read or written at once.
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::base::rng::Rng;

    fn check(lines: &[Vec<u8>], memory: usize, runs_max: usize) {
        let mut sorter = LineSorter::bounded(memory, runs_max);
        let mut scratch = Cursor::new(Vec::new());
        for line in lines {
            sorter.add(line, &mut scratch).unwrap();
            let runs = sorter.runs.iter().map(Vec::len).max().unwrap_or(0);
            let size = sorter.text.len();
            assert!(
                runs < runs_max && size < memory,
                "{runs} runs, {size} bytes"
            );
        }
        // Each level has the lines once.
        let total: usize = lines.iter().map(|line| line.len() + 1).sum();
        assert!(scratch.get_ref().len() <= (total + memory) * sorter.runs.len().max(1));
        let mut out = Vec::new();
        sorter.finish(&mut scratch, &mut out).unwrap();
        let mut expected: Vec<Vec<u8>> = lines
            .iter()
            .map(|line| [line, &b"\n"[..]].concat())
            .collect();
        expected.sort();
        expected.dedup();
        assert!(out == expected.concat(), "{memory} bytes, {runs_max} runs");
    }

    #[test]
    fn lines_are_in_the_order_of_their_bytes_whatever_memory_they_have() {
        let mut rng = Rng::from_seed(3);
        let lines: Vec<Vec<u8>> = (0..3000)
            .map(|_| {
                let length = rng.below(40) as usize;
                (0..length)
                    .map(|_| b"ab ~\x01\xff"[rng.below(6) as usize])
                    .collect()
            })
            .collect();
        for (memory, runs_max) in [(1 << 20, 2), (2000, 1000), (2000, 2), (2000, 7), (100, 3)] {
            check(&lines, memory, runs_max);
        }
        check(&[], 100, 2);
        check(&[Vec::new()], 100, 2);
    }

    #[test]
    fn long_lines_are_merged_in_pieces() {
        let lines: Vec<Vec<u8>> = (0..20_u8)
            .map(|n| vec![b'a' + n % 7; 90_000 + usize::from(n)])
            .collect();
        check(&lines, 200_000, 3);
    }
}
