//! A reply's body on its way from its coded form to what is kept, within its budget.

use super::body_mode::BodyMode;
use super::failure::{Failure, FailureKind};
use crate::wire::coding::{Budget, CodingError, Decoder, Progress};
use crate::wire::http::Headers;

/// A body that is being decoded as it comes.
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
    /// Bytes of its coded form so far.
    coded: u64,
    /// What came and was not decoded yet, since as much was as had been asked for.
    paused: Option<Vec<u8>>,
    /// Bytes behind it that are over the limit.
    over: usize,
}

#[derive(Debug)]
enum State {
    /// Nothing has come. Where nothing ever does, it does not matter how it would be coded.
    Untouched,
    /// What comes is decoded; without a coding it passes as it is.
    Decoding(Decoder),
    /// A coding that nobody here knows: kept undecoded, which serves better than nothing.
    AsItCame(Failure),
    /// Nobody wants it: it is only counted.
    Dropped,
    /// The coded form is broken: what was decoded stays, the rest is only counted.
    Stuck(Failure),
}

/// What became of a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// All of it was taken.
    All,
    /// As much was decoded as was asked for; there may be more.
    Some,
    /// The limit is reached; so many bytes at the piece's end are over it.
    Cut { over: usize },
    /// It expands beyond what is allowed.
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

    /// Takes up what is wanted of it, before anything came.
    pub(super) fn set_body_mode(&mut self, body_mode: BodyMode) {
        match body_mode {
            BodyMode::Keep | BodyMode::Cancel => {}
            // Nothing of it is kept here, so it may be of any length.
            BodyMode::Take => self.budget.bytes_max = u64::MAX,
            BodyMode::Skip => self.state = State::Dropped,
        }
    }

    /// Whether what comes may become more than it is.
    pub(super) fn expands(&self, headers: &Headers) -> bool {
        match &self.state {
            State::Untouched => headers.get("content-encoding").is_some(),
            State::Decoding(decoder) => !decoder.is_identity(),
            State::AsItCame(_) | State::Dropped | State::Stuck(_) => false,
        }
    }

    /// Decodes a piece and appends it to `out`, at most `decoded_max` bytes. What is left of it then is
    /// kept, for [`Body::go_on`]. The limit holds for both forms.
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
                Err(error) => State::AsItCame(failure(&error)),
            };
        }
        let room = self.budget.bytes_max.saturating_sub(self.coded);
        let fits = usize::try_from(room).map_or(piece.len(), |room| room.min(piece.len()));
        let over = piece.len() - fits;
        let mut piece = &piece[..fits];
        self.coded += fits as u64;
        let mut full = over > 0;
        match &mut self.state {
            State::Untouched => unreachable!("decided above"),
            State::Decoding(decoder) => {
                match decoder.write_some(&mut piece, decoded_max as u64, out) {
                    Ok(Progress::More) => {}
                    Ok(Progress::Paused) => {
                        self.paused = Some(piece.to_vec());
                        self.over += over;
                        return Taken::Some;
                    }
                    Ok(Progress::Full) => full = true,
                    Err(error @ CodingError::Bomb) => return Taken::Bomb(failure(&error)),
                    Err(error) => self.state = State::Stuck(failure(&error)),
                }
            }
            State::AsItCame(_) => out.extend_from_slice(piece),
            State::Stuck(_) | State::Dropped => {}
        }
        if full {
            Taken::Cut { over }
        } else {
            Taken::All
        }
    }

    /// Decodes as much again of what is left of an earlier piece; `None` where nothing is.
    pub(super) fn go_on(
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

    /// The body is complete on the wire: what was wrong with its coding.
    pub(super) fn finish(&mut self) -> Option<Failure> {
        match &mut self.state {
            State::Decoding(decoder) => decoder.finish().err().map(|error| failure(&error)),
            _ => self.trouble(),
        }
    }

    /// What was wrong with its coding so far, for a body that is cut here.
    pub(super) fn trouble(&self) -> Option<Failure> {
        match &self.state {
            State::AsItCame(failure) | State::Stuck(failure) => Some(failure.clone()),
            State::Untouched | State::Decoding(_) | State::Dropped => None,
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
