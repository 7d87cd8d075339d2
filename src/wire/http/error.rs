//! Faults of a reply, with stable codes.

use crate::base::sentence::debug_as_sentence;

/// A fault of a reply. Variants name the fact; the caller decides on the consequences.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection ended before the first byte of the head.
    #[error("the connection ended before the first byte of a reply")]
    NoReply,
    /// The connection ended within a head.
    #[error("the connection ended within the head")]
    TruncatedHead,
    /// The connection ended before Content-Length was reached.
    #[error("the connection ended {missing} bytes before the declared length")]
    TruncatedBody {
        /// Number of declared bytes that did not arrive.
        missing: u64,
    },
    /// The connection ended before the last chunk or its trailers.
    #[error("the connection ended before the last chunk")]
    TruncatedChunks,
    /// The first bytes are not `HTTP/`.
    #[error("the reply does not begin with HTTP/")]
    NotHttp,
    /// The version is neither 1.0 nor 1.1.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// The status is not a three-digit number from 100 up, or its line contains a control
    /// character.
    #[error("the status line is malformed")]
    Status,
    /// A header line or a trailer contains NUL.
    #[error("a header field is malformed")]
    Header,
    /// Content-Length is not a number, or several values differ (RFC 9112 section 6.3).
    #[error("Content-Length is not a number, or several values differ")]
    ContentLength,
    /// A transfer coding other than chunked (RFC 9112 section 6.1); none was requested.
    #[error("a transfer coding other than chunked")]
    TransferEncoding,
    /// A chunk size is not a hexadecimal number, or exceeds 64 bits.
    #[error("a chunk size is malformed")]
    ChunkSize,
    /// Chunk data is not followed by a line end.
    #[error("chunk data is longer than its size")]
    ChunkEnd,
    /// Status 101 although no upgrade was requested.
    #[error("status 101 Switching Protocols although no upgrade was requested")]
    SwitchingProtocols,
    /// The status line is longer than its limit.
    #[error("the status line is too long")]
    StatusLineTooLong,
    /// A header line is longer than its limit.
    #[error("a header line is too long")]
    HeaderLineTooLong,
    /// More header lines than the limit.
    #[error("too many header lines")]
    TooManyHeaderLines,
    /// The head is larger than its limit.
    #[error("the head is too large")]
    HeadTooLarge,
    /// Chunk extensions and trailers are larger than their limit.
    #[error("chunk extensions or trailers are too large")]
    ChunkExtrasTooLarge,
    /// More interim replies than the limit.
    #[error("too many interim replies")]
    TooManyInterim,
}

debug_as_sentence!(HttpError);

/// The kinds of [`HttpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Larger than its limits.
    TooLarge,
    /// It ended before the end given by its framing.
    Truncated,
    /// Not valid HTTP.
    Protocol,
}

impl HttpError {
    /// The stable code within its class: `body` of `truncated.body`.
    pub const fn code(self) -> &'static str {
        match self {
            HttpError::NoReply => "no_reply",
            HttpError::TruncatedHead => "head",
            HttpError::TruncatedBody { .. } => "body",
            HttpError::TruncatedChunks => "chunks",
            HttpError::NotHttp => "not_http",
            HttpError::Version => "version",
            HttpError::Status => "status",
            HttpError::Header => "header",
            HttpError::ContentLength => "content_length",
            HttpError::TransferEncoding => "transfer_encoding",
            HttpError::ChunkSize => "chunk_size",
            HttpError::ChunkEnd => "chunk_end",
            HttpError::SwitchingProtocols => "switching_protocols",
            HttpError::StatusLineTooLong => "status_line",
            HttpError::HeaderLineTooLong => "header_line",
            HttpError::TooManyHeaderLines => "header_lines",
            HttpError::HeadTooLarge => "head",
            HttpError::ChunkExtrasTooLarge => "chunk_extras",
            HttpError::TooManyInterim => "interim",
        }
    }

    /// Returns whether a retry may succeed: a truncated reply may be complete the next time.
    pub const fn is_retryable(self) -> bool {
        matches!(self.class(), ErrorClass::Truncated)
    }

    /// The class it belongs to.
    pub(crate) const fn class(self) -> ErrorClass {
        match self {
            HttpError::NoReply
            | HttpError::TruncatedHead
            | HttpError::TruncatedBody { .. }
            | HttpError::TruncatedChunks => ErrorClass::Truncated,
            HttpError::StatusLineTooLong
            | HttpError::HeaderLineTooLong
            | HttpError::TooManyHeaderLines
            | HttpError::HeadTooLarge
            | HttpError::ChunkExtrasTooLarge
            | HttpError::TooManyInterim => ErrorClass::TooLarge,
            HttpError::NotHttp
            | HttpError::Version
            | HttpError::Status
            | HttpError::Header
            | HttpError::ContentLength
            | HttpError::TransferEncoding
            | HttpError::ChunkSize
            | HttpError::ChunkEnd
            | HttpError::SwitchingProtocols => ErrorClass::Protocol,
        }
    }
}
