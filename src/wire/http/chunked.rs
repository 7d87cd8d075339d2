//! Decodes the chunked transfer coding in place (RFC 9112 section 7.1).
//!
//! Hand-written: it decodes in the buffer that the bytes arrived in, at every cut, and stops at the first byte
//! that is no part of the message.

use std::io::BufRead;

use super::head::{Bounds, HeadBuffer};
use super::{Headers, HttpError, Limits};

/// A chunked body being read.
///
/// ```text
/// Size ─► AfterSize ─► Extension ─► Data ─► DataEnd ─► Size
///                         └─ size 0 ─► LastLine ─► Trailers ─► (end)
/// ```
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: State,
    /// Bytes of extensions in excess of the data they came with.
    extras: usize,
}

/// The state is named for what is expected next.
#[derive(Debug)]
enum State {
    /// A digit of the size, or what follows the digits.
    Size { size: u64, digits: u32 },
    /// White space, an extension, or the end of the line.
    AfterSize { size: u64 },
    /// The LF of the size line.
    SizeLf { size: u64 },
    /// The end of an extension, which is skipped.
    Extension { size: u64 },
    /// `left` bytes of data.
    Data { left: u64 },
    /// The line end after the data.
    DataEnd,
    /// The LF after the data.
    DataLf,
    /// The empty line, or the first trailer.
    LastLine,
    /// The LF of the empty line.
    LastLf,
    /// Trailers, up to the empty line.
    Trailers(HeadBuffer),
}

impl Default for State {
    fn default() -> Self {
        State::Size { size: 0, digits: 0 }
    }
}

/// Result of reading.
pub(super) enum Step<'a> {
    /// The input is used up.
    More,
    /// Data, never empty.
    Data(&'a [u8]),
    /// Trailer fields, which complete the body.
    Trailers(Headers),
    /// The body is complete.
    End,
}

impl Chunks {
    pub(super) fn read<'a>(
        &mut self,
        input: &mut &'a [u8],
        limits: &Limits,
    ) -> Result<Step<'a>, HttpError> {
        while let Some((&byte, rest)) = input.split_first() {
            match &mut self.state {
                State::Data { left } => {
                    let here = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                    let (piece, rest) = input.split_at(here);
                    *input = rest;
                    *left -= here as u64;
                    if *left == 0 {
                        self.state = State::DataEnd;
                    }
                    return Ok(Step::Data(piece));
                }
                State::Extension { size } => {
                    let size = *size;
                    let mut rest = *input;
                    // `skip_until` uses the standard library's memchr; reading from a slice cannot
                    // fail.
                    let piece = rest.skip_until(b'\n').unwrap_or(0);
                    self.take_extra(piece, limits)?;
                    if input[..piece].ends_with(b"\n") {
                        self.on_size(size);
                    }
                    *input = rest;
                }
                State::Trailers(buffer) => {
                    let bounds = Bounds::of_trailers(limits, self.extras);
                    let whole = buffer.read(input, &bounds).map_err(|error| match error {
                        HttpError::HeadTooLarge => HttpError::ChunkExtrasTooLarge,
                        other => other,
                    })?;
                    if whole {
                        let fields = std::mem::take(buffer).parse()?.headers;
                        return Ok(Step::Trailers(fields));
                    }
                }
                State::LastLine if !matches!(byte, b'\r' | b'\n') => {
                    // The byte is the first of a trailer, so it stays in the input.
                    self.state = State::Trailers(HeadBuffer::for_trailers());
                }
                _ => {
                    *input = rest;
                    if self.on_byte(byte, limits)? {
                        return Ok(Step::End);
                    }
                }
            }
        }
        Ok(Step::More)
    }

    /// Handles one byte outside the data; returns whether the body is complete.
    fn on_byte(&mut self, byte: u8, limits: &Limits) -> Result<bool, HttpError> {
        match (&mut self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let shifted = size.checked_mul(16).ok_or(HttpError::ChunkSize)?;
                *size = shifted + u64::from(digit);
                *digits += 1;
                if *digits > DIGITS_FREE {
                    self.take_extra(1, limits)?;
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(HttpError::ChunkSize),
            (State::Size { size, .. } | State::AfterSize { size }, b' ' | b'\t') => {
                self.state = State::AfterSize { size: *size };
                self.take_extra(1, limits)?;
            }
            (State::Size { size, .. } | State::AfterSize { size }, b';') => {
                self.state = State::Extension { size: *size };
            }
            (State::Size { size, .. } | State::AfterSize { size }, b'\r') => {
                self.state = State::SizeLf { size: *size };
            }
            (
                State::Size { size, .. } | State::AfterSize { size } | State::SizeLf { size },
                b'\n',
            ) => {
                let size = *size;
                self.on_size(size);
            }
            (State::Size { .. } | State::AfterSize { .. } | State::SizeLf { .. }, _) => {
                return Err(HttpError::ChunkSize);
            }
            (State::DataEnd, b'\r') => self.state = State::DataLf,
            (State::DataEnd | State::DataLf, b'\n') => self.state = State::default(),
            (State::DataEnd | State::DataLf, _) => return Err(HttpError::ChunkEnd),
            (State::LastLine, b'\r') => self.state = State::LastLf,
            (State::LastLine | State::LastLf, b'\n') => return Ok(true),
            (State::LastLine | State::LastLf, _) => return Err(HttpError::Header),
            (State::Extension { .. } | State::Data { .. } | State::Trailers(_), _) => {
                unreachable!("these states are handled by the caller")
            }
        }
        Ok(false)
    }

    /// Handles the end of a size line. Data offsets extensions: legitimate signed chunks have long
    /// ones.
    fn on_size(&mut self, size: u64) {
        self.state = match size {
            0 => State::LastLine,
            left => State::Data { left },
        };
        let paid = usize::try_from(size).unwrap_or(usize::MAX);
        self.extras = self.extras.saturating_sub(paid);
    }

    fn take_extra(&mut self, bytes: usize, limits: &Limits) -> Result<(), HttpError> {
        self.extras = self.extras.saturating_add(bytes);
        if self.extras > limits.chunk_extras_bytes_max {
            return Err(HttpError::ChunkExtrasTooLarge);
        }
        Ok(())
    }
}

/// Digits of a size that are free: 64 bits. More can only be leading zeros.
const DIGITS_FREE: u32 = 16;
