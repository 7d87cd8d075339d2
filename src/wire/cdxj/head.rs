//! Heads of records and of replies, split as `warcio` splits them: whatever was received is in the file.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

/// Reads up to the end of the first blank line, or of what there is. Returns false if that is longer than this.
pub(super) fn read_head(
    input: &mut impl BufRead,
    head: &mut Vec<u8>,
    length_max: usize,
) -> io::Result<bool> {
    let mut rest = input.take(length_max as u64);
    loop {
        let start = head.len();
        if rest.read_until(b'\n', head)? == 0 {
            return Ok(rest.limit() > 0 || rest.into_inner().fill_buf()?.is_empty());
        }
        let is_ended = head.ends_with(b"\n");
        if is_ended && is_blank(&head[start..]) {
            return Ok(true);
        }
    }
}

/// The fields behind the first line, up to the first blank line: names and values.
pub(super) fn fields(head: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, String)> {
    let mut lines = head
        .split(|byte| *byte == b'\n')
        .take_while(|line| !is_blank(line));
    lines.next();
    let mut lines = lines.map(decoded).peekable();
    std::iter::from_fn(move || {
        loop {
            let line = lines.next()?;
            let mut field = line.split_once(':').map(|(name, value)| {
                let name = name.trim_end_matches([' ', '\t']).to_owned();
                let value = trim_end(value).trim_start_matches(is_space);
                (name, value.to_owned())
            });
            while let Some(more) = lines.next_if(|next| next.starts_with([' ', '\t'])) {
                if let Some((_, value)) = &mut field {
                    value.push_str(trim_end(&more));
                }
            }
            if let Some((name, value)) = field {
                return Some((Cow::Owned(name), value));
            }
        }
    })
}

/// UTF-8, or else Latin-1.
pub(super) fn decoded(line: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(line) {
        Ok(text) => text.into(),
        Err(_) => line
            .iter()
            .map(|byte| char::from(*byte))
            .collect::<String>()
            .into(),
    }
}

pub(super) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// White space of Python: that of Unicode, and four separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

fn is_blank(line: &[u8]) -> bool {
    match line.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => true,
        Some(byte) if byte.is_ascii_graphic() => false,
        Some(_) => trim_end(&decoded(line)).is_empty(),
    }
}
