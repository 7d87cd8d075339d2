//! Decodes a reply's body as it arrives, within its budget.

use super::failure::{Failure, FailureKind};
use crate::wire::coding::{Budget, CodingError, DecodeProgress, Decoder};
use crate::wire::http::Headers;

/// A body that is decoded as it arrives.
///
/// ```text
/// Untouched ─┬► Decoding ─► Stuck
///            ├► AsItCame
///            └► Dropped
/// ```
#[derive(Debug)]
pub(super) struct Body {
    state: State,
    budget: Budget,
    /// Bytes received before content decoding.
    coded: u64,
    /// Received bytes that are not decoded yet, because the requested amount of output was reached.
    paused: Option<Vec<u8>>,
    /// Number of bytes after the end of the body that exceed the limit.
    over: usize,
}

#[derive(Debug)]
enum State {
    /// Nothing was received. If nothing ever is, the content coding does not matter.
    Untouched,
    /// Received bytes are decoded; without a content coding they are copied.
    Decoding(Decoder),
    /// The content coding is unknown: the body is kept undecoded, with this failure.
    Undecoded(Failure),
    /// The body is not wanted: its bytes are only counted.
    Skipped,
    /// The coded form is broken: the output so far is kept, later bytes are only counted.
    Broken(Failure),
}

/// Mode in which a sink takes the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyMode {
    /// Complete, in the page: up to `DOWNLOAD_MAXSIZE` bytes are kept in memory until the end.
    /// Required for links and WARC records.
    #[default]
    Keep,
    /// In pieces, through `Sink::on_body`, after content decoding: at most 64 KiB each, however
    /// much a few bytes decode to. The length is not limited; the page contains only the head, and
    /// no links are found.
    Take,
    /// Not at all. The body is read, so that the connection can be reused, and discarded; one
    /// longer than `DOWNLOAD_MAXSIZE` is cut there, and its connection closed.
    Skip,
    /// Not at all, and not read: the connection is closed, and the page ends as
    /// `cancelled.by_sink`.
    Cancel,
}

/// Result of decoding a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// All of it was consumed.
    All,
    /// The requested amount was decoded; there may be more.
    Some,
    /// The size limit is reached; the last `over` bytes of the piece exceed it.
    Cut { over: usize },
    /// It expands beyond the permitted ratio.
    Bomb(Failure),
}

impl Body {
    pub(super) fn new(budget: Budget) -> Self {
        Body {
            state: State::Untouched,
            budget,
            coded: 0,
            paused: None,
            over: 0,
        }
    }

    /// Sets how the body is wanted, before any of it was received.
    pub(super) fn set_body_mode(&mut self, body_mode: BodyMode) {
        match body_mode {
            BodyMode::Keep | BodyMode::Cancel => {}
            // The body is not stored here, so its length is not limited.
            BodyMode::Take => self.budget.bytes_max = u64::MAX,
            BodyMode::Skip => self.state = State::Skipped,
        }
    }

    /// Returns whether the body may be larger after decoding.
    pub(super) fn expands(&self, headers: &Headers) -> bool {
        match &self.state {
            State::Untouched => headers.get("content-encoding").is_some(),
            State::Decoding(decoder) => !decoder.is_identity(),
            State::Undecoded(_) | State::Skipped | State::Broken(_) => false,
        }
    }

    /// Decodes a piece and appends at most `decoded_max` bytes to `out`. The rest of the piece is
    /// kept for [`Body::resume`]. The size limit applies to both forms.
    pub(super) fn take(
        &mut self,
        piece: &[u8],
        headers: &Headers,
        decoded_max: usize,
        out: &mut Vec<u8>,
    ) -> Taken {
        if let State::Untouched = self.state {
            self.state = match Decoder::new(headers.get_all("content-encoding"), self.budget) {
                Ok(decoder) => State::Decoding(decoder),
                Err(error) => State::Undecoded(failure(&error)),
            };
        }
        let coded_left = self.budget.bytes_max.saturating_sub(self.coded);
        let fits = usize::try_from(coded_left)
            .map_or(piece.len(), |coded_left| coded_left.min(piece.len()));
        let over = piece.len() - fits;
        let mut piece = &piece[..fits];
        self.coded += fits as u64;
        let mut full = over > 0;
        match &mut self.state {
            State::Untouched => unreachable!("decided above"),
            State::Decoding(decoder) => {
                match decoder.write_some(&mut piece, decoded_max as u64, out) {
                    Ok(DecodeProgress::More) => {}
                    Ok(DecodeProgress::Paused) => {
                        self.paused = Some(piece.to_vec());
                        self.over += over;
                        return Taken::Some;
                    }
                    Ok(DecodeProgress::Full) => full = true,
                    Err(error @ CodingError::Bomb) => return Taken::Bomb(failure(&error)),
                    Err(error) => self.state = State::Broken(failure(&error)),
                }
            }
            State::Undecoded(_) => out.extend_from_slice(piece),
            State::Broken(_) | State::Skipped => {}
        }
        if full {
            Taken::Cut { over }
        } else {
            Taken::All
        }
    }

    /// Decodes more of the rest of an earlier piece; `None` if there is no rest.
    pub(super) fn resume(
        &mut self,
        headers: &Headers,
        decoded_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<Taken> {
        let left = self.paused.take()?;
        self.coded -= left.len() as u64;
        let taken = self.take(&left, headers, decoded_max, out);
        Some(match taken {
            Taken::All if self.over > 0 => Taken::Cut { over: self.over },
            Taken::Cut { over } => Taken::Cut {
                over: over + self.over,
            },
            Taken::All | Taken::Some | Taken::Bomb(_) => taken,
        })
    }

    /// Ends a body that is complete on the wire. Returns what was wrong with its coding, if
    /// anything.
    pub(super) fn finish(&mut self) -> Option<Failure> {
        match &mut self.state {
            State::Decoding(decoder) => decoder.finish().err().map(|error| failure(&error)),
            _ => self.coding_failure(),
        }
    }

    /// The failure of its coding so far, for a body that is truncated here.
    pub(super) fn coding_failure(&self) -> Option<Failure> {
        match &self.state {
            State::Undecoded(failure) | State::Broken(failure) => Some(failure.clone()),
            State::Untouched | State::Decoding(_) | State::Skipped => None,
        }
    }
}

fn failure(error: &CodingError) -> Failure {
    Failure::new(
        FailureKind::ContentEncoding,
        error.code(),
        error.to_string(),
    )
}
