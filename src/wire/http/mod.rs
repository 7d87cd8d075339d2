//! HTTP/1.1 on the wire: reads replies and requests as they arrive, and writes requests.
//!
//! The reader is as lenient as the web requires (lines ended by LF only, bare CR, obsolete folding,
//! a space before a colon, lines that are not a header) and rejects what every client rejects. It
//! never guesses where a reply ends: doubtful framing is an error, or prevents reuse of the
//! connection.

mod chunked;
mod error;
mod framing;
mod head;
mod inbound;
mod request;

pub use error::{ErrorClass, HttpError};
pub use framing::Framing;
pub use head::{Head, Headers, HttpVersion};
pub(crate) use inbound::{InboundReader, InboundRequest};
pub use request::{RequestError, RequestHead, UsualFields, write_request};

use chunked::{Chunks, Step};
use head::{Bounds, HeadBuffer};

/// Limits of the parts of a reply other than its body, because hostile servers send without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a head in bytes, for each interim one as well; 256 KiB, the largest that
    /// browsers accept.
    pub head_bytes_max: usize,
    /// Maximum length of a status line in bytes with its line end; 8 KiB, far beyond any reason
    /// phrase.
    pub status_line_bytes_max: usize,
    /// Maximum length of a header line in bytes with its line end; 64 KiB, where other clients
    /// fail.
    pub header_line_bytes_max: usize,
    /// Maximum number of header lines, continuation lines included; 200, several times the usual
    /// number.
    pub header_lines_max: usize,
    /// Maximum bytes of trailers, and of chunk extensions beyond the data they describe; 64 KiB.
    pub chunk_extras_bytes_max: usize,
    /// Maximum number of interim (1xx) replies before the final one; 10.
    pub interim_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 256 << 10,
            status_line_bytes_max: 8 << 10,
            header_line_bytes_max: 64 << 10,
            header_lines_max: 200,
            chunk_extras_bytes_max: 64 << 10,
            interim_max: 10,
        }
    }
}

/// The parts of a reply in the order of arrival: `Interim* Head Body* Trailers? End`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The head of a 1xx reply; the final one follows (RFC 9110 section 15.2).
    Interim(Head),
    /// The final head.
    Head(Head),
    /// A piece of the body, never empty, without chunk framing but still content-coded.
    Body(&'a [u8]),
    /// Trailer fields, if any (RFC 9112 section 7.1.2).
    Trailers(Headers),
    /// The reply is complete.
    End {
        /// Both sides may use the connection for another exchange.
        ///
        /// Bytes left in the input at this point belong to no request of ours. The reader cannot
        /// know what else has arrived: the caller must close the connection if there are any.
        reusable: bool,
    },
}

/// Reads one reply, of one request, from bytes as they arrive (RFC 9112).
///
/// ```text
/// Head ──1xx──► Head
///   ├──► Length ──┐
///   ├──► Chunks ──┼──► End ──► Done
///   ├──► Close ───┘(finish)
///   └── no body ──► End
/// ```
/// Any state can fail permanently: the same error is then returned again.
#[derive(Debug)]
pub struct ResponseReader {
    state: State,
    limits: Limits,
    method_is_head: bool,
    interim: u32,
    framing: Option<Framing>,
    reusable: bool,
}

impl Default for ResponseReader {
    fn default() -> Self {
        ResponseReader::new(false, Limits::default())
    }
}

#[derive(Debug)]
enum State {
    Head(HeadBuffer),
    Length { left: u64 },
    Chunks(Chunks),
    Close,
    End,
    Done,
    Failed(HttpError),
}

impl ResponseReader {
    /// A reader for the reply to one request; with `method_is_head` there is no body, whatever the
    /// head declares.
    pub fn new(method_is_head: bool, limits: Limits) -> Self {
        ResponseReader {
            state: State::Head(HeadBuffer::default()),
            limits,
            method_is_head,
            interim: 0,
            framing: None,
            reusable: false,
        }
    }

    /// Reuses the memory of old fields for the head.
    pub(crate) fn in_memory_of(mut self, old: Headers) -> Self {
        if let State::Head(buffer) = &mut self.state {
            *buffer = HeadBuffer::in_memory_of(old);
        }
        self
    }

    /// Returns the next item and advances `input` past the consumed bytes. `None` asks for more
    /// bytes.
    ///
    /// Call it until it returns `None`, even if `input` is empty: the end of a reply needs no
    /// further byte. Nothing is consumed beyond the end of the reply. Pieces of the body borrow
    /// from `input`.
    ///
    /// # Errors
    /// The reply is not valid HTTP, or exceeds its limits. Items returned before stay valid.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, HttpError> {
        self.advance(input)
            .inspect_err(|&error| self.state = State::Failed(error))
    }

    /// The connection ended in an orderly way (not reset), which ends a close-delimited body.
    ///
    /// # Errors
    /// Everything else is truncated: [`ErrorClass::Truncated`].
    pub fn finish(&mut self) -> Result<Item<'static>, HttpError> {
        let cut = match &self.state {
            State::Close | State::End | State::Done => {
                self.state = State::Done;
                return Ok(Item::End { reusable: false });
            }
            State::Head(buffer) if buffer.is_empty() => HttpError::NoReply,
            State::Head(_) => HttpError::TruncatedHead,
            State::Length { left } => HttpError::TruncatedBody { missing: *left },
            State::Chunks(_) => HttpError::TruncatedChunks,
            State::Failed(error) => *error,
        };
        self.state = State::Failed(cut);
        Err(cut)
    }

    /// How the body is delimited, once the final head is known.
    pub fn framing(&self) -> Option<Framing> {
        self.framing
    }

    /// Returns whether the first byte of the expected head has arrived. Reset by an interim reply:
    /// the final head has its own first byte. Blank lines before a head do not count.
    pub fn has_begun(&self) -> bool {
        match &self.state {
            State::Head(buffer) => !buffer.is_empty(),
            _ => true,
        }
    }

    fn advance<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, HttpError> {
        match &mut self.state {
            State::Head(buffer) => {
                if !buffer.read(input, &Bounds::of_head(&self.limits))? {
                    return Ok(None);
                }
                let head = std::mem::take(buffer).parse()?;
                self.on_head(head).map(Some)
            }
            State::Length { left } => {
                if input.is_empty() {
                    return Ok(None);
                }
                let here = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                let (piece, rest) = input.split_at(here);
                *input = rest;
                *left -= here as u64;
                if *left == 0 {
                    self.state = State::End;
                }
                Ok(Some(Item::Body(piece)))
            }
            State::Close => {
                let piece = std::mem::take(input);
                Ok((!piece.is_empty()).then_some(Item::Body(piece)))
            }
            State::Chunks(chunks) => match chunks.read(input, &self.limits)? {
                Step::More => Ok(None),
                Step::Data(piece) => Ok(Some(Item::Body(piece))),
                Step::Trailers(fields) => {
                    self.state = State::End;
                    Ok(Some(Item::Trailers(fields)))
                }
                Step::End => {
                    self.state = State::Done;
                    Ok(Some(Item::End {
                        reusable: self.reusable,
                    }))
                }
            },
            State::End => {
                self.state = State::Done;
                Ok(Some(Item::End {
                    reusable: self.reusable,
                }))
            }
            State::Done => Ok(None),
            State::Failed(error) => Err(*error),
        }
    }

    fn on_head(&mut self, head: Head) -> Result<Item<'static>, HttpError> {
        if head.status == 101 {
            // No upgrade was requested, so what follows would not be HTTP.
            return Err(HttpError::SwitchingProtocols);
        }
        if head.status < 200 {
            self.interim += 1;
            if self.interim > self.limits.interim_max {
                return Err(HttpError::TooManyInterim);
            }
            return Ok(Item::Interim(head));
        }
        let (framing, reusable) = framing::of(&head, self.method_is_head)?;
        self.framing = Some(framing);
        self.reusable = reusable;
        self.state = match framing {
            Framing::None | Framing::Length(0) => State::End,
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Chunks(Chunks::default()),
            Framing::Close => State::Close,
        };
        Ok(Item::Head(head))
    }
}

#[cfg(test)]
mod tests;
