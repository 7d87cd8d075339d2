//! Decodes a reply's body as it arrives, within its budget.

use std::mem;

use super::failure::{Failure, FailureKind, Truncation};
use crate::base::memory::{Expected, make_room, memory_of};
use crate::wire::coding::{self, Budget, CodingError, DecodeProgress, Decoder};
use crate::wire::http::{Framing, Headers};

/// A body that is decoded as it arrives, or at its end if it is short, here or elsewhere.
///
/// ```text
///            ┌► Held ──┬──► Whole
///            │         ▼
/// Untouched ─┼► Decoding ─► Broken
///            ├► Undecoded
///            └► Skipped
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
    /// This many bytes are held until the end of the body.
    held_max: usize,
    /// Bytes that are expected before content decoding, if they are held.
    expected: Expected,
    /// What is held at the end is decoded elsewhere.
    defers: bool,
    /// The body is complete on the wire; whether its connection can be reused.
    ended: Option<bool>,
}

#[derive(Debug)]
enum State {
    /// Nothing was received. If nothing ever is, the content coding does not matter.
    Untouched,
    /// Received bytes of a gzip body, none of them decoded: at the end they are decoded at once, which takes
    /// half the time.
    Held(Vec<u8>),
    /// A held body was decoded.
    Whole,
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
    /// A body whose end `framing` tells. `defers`: its content coding may be decoded elsewhere, after its end.
    pub(super) fn new(budget: Budget, framing: Option<Framing>, defers: bool) -> Self {
        let most = if defers { DEFERRED_MAX } else { HELD_MAX };
        let (held_max, expected) = match framing {
            Some(Framing::Length(length)) if length <= most as u64 => {
                (most, Expected::Declared(length as usize))
            }
            Some(Framing::Chunked) => (most, Expected::AtMost(most)),
            _ => (0, Expected::AtMost(0)),
        };
        Body {
            held_max,
            expected,
            defers,
            ended: None,
            state: State::Untouched,
            budget,
            coded: 0,
            paused: None,
            over: 0,
        }
    }

    /// Sets how the body is wanted, before any of it was received.
    pub(super) fn set_body_mode(&mut self, body_mode: BodyMode) {
        if body_mode != BodyMode::Keep {
            self.hold_nothing();
        }
        match body_mode {
            BodyMode::Keep | BodyMode::Cancel => {}
            // The body is not stored here, so its length is not limited.
            BodyMode::Take => self.budget.bytes_max = u64::MAX,
            BodyMode::Skip => self.state = State::Skipped,
        }
    }

    /// Each piece is decoded when it arrives.
    pub(super) fn hold_nothing(&mut self) {
        self.held_max = 0;
        self.defers = false;
    }

    /// Returns whether the body may be larger after decoding.
    pub(super) fn expands(&self, headers: &Headers) -> bool {
        match &self.state {
            State::Untouched => headers.get("content-encoding").is_some(),
            State::Decoding(decoder) => !decoder.is_identity(),
            State::Held(_) => true,
            State::Whole | State::Undecoded(_) | State::Skipped | State::Broken(_) => false,
        }
    }

    /// Whether nothing of the body is decoded before its end, and that elsewhere: no room is needed for it here.
    pub(super) fn needs_no_room(&self) -> bool {
        self.defers && matches!(self.state, State::Held(_))
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
            let codings = || headers.get_all("content-encoding");
            let may_be_held = self.held_max > 0;
            let is_held = may_be_held
                && match self.defers {
                    true => coding::only(codings()).is_some(),
                    false => coding::is_gzip(codings()),
                };
            self.state = match is_held {
                true => State::Held(Vec::new()),
                false => self.decoding(headers),
            };
        }
        let coded_left = self.budget.bytes_max.saturating_sub(self.coded);
        let fits = usize::try_from(coded_left)
            .map_or(piece.len(), |coded_left| coded_left.min(piece.len()));
        let over = piece.len() - fits;
        let mut piece = &piece[..fits];
        self.coded += fits as u64;
        let mut full = over > 0;
        let held;
        if let State::Held(bytes) = &mut self.state {
            make_room(bytes, piece.len(), self.expected);
            bytes.extend_from_slice(piece);
            if bytes.len() <= self.held_max && !full {
                return Taken::All;
            }
            held = mem::take(bytes);
            piece = &held;
            self.state = self.decoding(headers);
        }
        match &mut self.state {
            State::Untouched | State::Held(_) => unreachable!("decided above"),
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
            State::Broken(_) | State::Skipped | State::Whole => {}
        }
        if full {
            Taken::Cut { over }
        } else {
            Taken::All
        }
    }

    fn decoding(&self, headers: &Headers) -> State {
        match Decoder::new(headers.get_all("content-encoding"), self.budget) {
            Ok(decoder) => State::Decoding(decoder),
            Err(error) => State::Undecoded(failure(&error)),
        }
    }

    /// The body is complete on the wire. Decodes what was held until now, as [`Body::take`] does; `None` if
    /// nothing was.
    pub(super) fn end(
        &mut self,
        reusable: bool,
        headers: &Headers,
        decoded_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<Taken> {
        self.ended = Some(reusable);
        match &self.state {
            State::Held(bytes) if !self.is_deferred(bytes) => {
                Some(self.decode_whole(headers, WHOLE_MAX, decoded_max, out))
            }
            _ => None,
        }
    }

    fn is_deferred(&self, held: &[u8]) -> bool {
        self.defers && held.len() >= DEFERRED_MIN
    }

    /// Decodes what was held, all of it at once if it is usual and decodes to no more than `whole_max` bytes.
    fn decode_whole(
        &mut self,
        headers: &Headers,
        whole_max: usize,
        decoded_max: usize,
        out: &mut Vec<u8>,
    ) -> Taken {
        let budget = self.budget;
        let most_of = |coded: &[u8]| {
            let most = budget.decoded_max(coded.len() as u64);
            usize::try_from(most).unwrap_or(usize::MAX).min(whole_max)
        };
        if let State::Held(bytes) = &self.state
            && coding::is_gzip(headers.get_all("content-encoding"))
            && coding::inflate(bytes, most_of(bytes), out)
        {
            self.state = State::Whole;
            return Taken::All;
        }
        self.release(headers, decoded_max, out)
            .unwrap_or(Taken::All)
    }

    /// Takes a body whose coding is to be decoded elsewhere. Nothing more arrives of it.
    pub(super) fn take_undecoded(&mut self) -> Option<UndecodedBody> {
        let State::Held(bytes) = &self.state else {
            return None;
        };
        if !self.is_deferred(bytes) {
            return None;
        }
        let is_complete = self.ended.is_some();
        let body = mem::replace(self, Body::new(self.budget, None, false));
        Some(UndecodedBody { body, is_complete })
    }

    /// Whether the body is complete on the wire, and whether its connection can be reused then.
    pub(super) fn ended(&self) -> Option<bool> {
        self.ended
    }

    /// Decodes what was held until now as if it had just arrived, because no more will arrive; `None` if
    /// nothing was held.
    pub(super) fn release(
        &mut self,
        headers: &Headers,
        decoded_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<Taken> {
        let State::Held(bytes) = &mut self.state else {
            return None;
        };
        let bytes = mem::take(bytes);
        self.state = self.decoding(headers);
        self.coded -= bytes.len() as u64;
        Some(self.take(&bytes, headers, decoded_max, out))
    }

    /// Bytes of memory of what is held or not decoded yet.
    pub(super) fn memory(&self) -> usize {
        let held = match &self.state {
            State::Held(bytes) => memory_of(bytes),
            _ => 0,
        };
        held + self.paused.as_ref().map_or(0, Vec::capacity)
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
            State::Untouched
            | State::Held(_)
            | State::Whole
            | State::Decoding(_)
            | State::Skipped => None,
        }
    }
}

/// A body that has ended, whose content coding is not decoded yet.
#[derive(Debug)]
pub struct UndecodedBody {
    body: Body,
    /// It is complete on the wire.
    is_complete: bool,
}

/// How a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEnd {
    /// What went wrong, if anything.
    pub failure: Option<Failure>,
    /// Why the body is incomplete, if it is.
    pub truncated: Option<Truncation>,
}

impl UndecodedBody {
    /// Bytes of memory of its coded form.
    pub fn memory(&self) -> usize {
        self.body.memory()
    }

    /// Bytes that it is expected to decode to.
    pub fn memory_decoded(&self) -> usize {
        let State::Held(bytes) = &self.body.state else {
            return 0;
        };
        let most = self.body.budget.decoded_max(bytes.len() as u64);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        // A gzip member ends with its length.
        let length = match *bytes.as_slice() {
            [0x1f, 0x8b, .., a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => EXPANDED * bytes.len(),
        };
        length.min(most)
    }

    /// Appends the decoded body to `out`. `headers`: of its reply, which ended as in `end` on the wire. Returns
    /// how it ended in all. The same as if it had been decoded while it arrived.
    pub fn decode(mut self, headers: &Headers, end: BodyEnd, out: &mut Vec<u8>) -> BodyEnd {
        let body = &mut self.body;
        let mut taken = match self.is_complete {
            true => body.decode_whole(headers, usize::MAX, usize::MAX, out),
            false => {
                let released = body.release(headers, usize::MAX, out);
                released.expect("it was held until now")
            }
        };
        while taken == Taken::Some {
            let resumed = body.resume(headers, usize::MAX, out);
            taken = resumed.expect("there is a rest");
        }
        let failure = end.failure.as_ref();
        if failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled) {
            return end;
        }
        match taken {
            Taken::Cut { .. } => BodyEnd {
                failure: body.coding_failure(),
                truncated: Some(Truncation::Length),
            },
            Taken::Bomb(bomb) => BodyEnd {
                failure: Some(bomb),
                truncated: Some(Truncation::Length),
            },
            Taken::All | Taken::Some if self.is_complete => BodyEnd {
                failure: body.finish(),
                ..end
            },
            Taken::All | Taken::Some => end,
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

/// Coded bytes of a body that are held until its end: few pages have more. In the worst case they decode to
/// 200 times as many in one step, if the connection fails.
const HELD_MAX: usize = 32 << 10;

/// How many times as long as its coded form a body is expected to be where that does not say.
const EXPANDED: usize = 6;

/// Coded bytes of a body that is decoded elsewhere.
const DEFERRED_MAX: usize = 1 << 20;

/// Fewer coded bytes are decoded here: that takes less time than passing them on.
const DEFERRED_MIN: usize = 1 << 10;

/// Decoded bytes of a body that is decoded at once: as many as take the time of one step of a long body.
const WHOLE_MAX: usize = 256 << 10;
