//! Reads files of JSON lines. A damaged line is counted and named, and the next one is read.

use std::io::{self, BufRead};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What was read of a file of lines.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Read {
    /// Intact lines.
    pub lines: u64,
    /// Whole lines that are not as they should be.
    pub bad: u64,
    /// The first of them: its number, from 1 on, and the reason.
    pub first_bad: Option<(u64, String)>,
    /// The last line has no end.
    pub incomplete: bool,
}

/// Calls `add` with each line that is a `T`; it returns what is wrong with one, if anything is.
pub(super) fn read<T: DeserializeOwned>(
    mut input: impl BufRead,
    mut add: impl FnMut(T) -> Result<(), String>,
) -> io::Result<Read> {
    let mut found = Read::default();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        number += 1;
        if line.last() != Some(&b'\n') {
            found.incomplete = true;
            return Ok(found);
        }
        let parsed = serde_json::from_slice(&line).map_err(|error| error.to_string());
        match parsed.and_then(&mut add) {
            Ok(()) => found.lines += 1,
            Err(reason) => {
                found.bad += 1;
                found.first_bad.get_or_insert((number, reason));
            }
        }
    }
}
