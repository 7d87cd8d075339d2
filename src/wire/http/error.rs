//! What can be wrong with a reply, as facts with stable names.

/// What is wrong with a reply. Variants name the fact; what follows from it is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The connection ended before the first byte of the awaited head.
    #[error("the connection ended before the first byte of a reply")]
    NoReply,
    /// The connection ended within a head.
    #[error("the connection ended within the head")]
    TruncatedHead,
    /// The connection ended before Content-Length was reached.
    #[error("the connection ended {missing} bytes before the declared length")]
    TruncatedBody {
        /// Bytes that were declared and did not come.
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
    /// The status is not three digits from 100 up, or a control character stands in its line.
    #[error("the status line is malformed")]
    Status,
    /// A header line or a trailer that nobody can read: NUL stands in it.
    #[error("a header field is malformed")]
    Header,
    /// Content-Length is no number, or several differ (RFC 9112 section 6.3).
    #[error("Content-Length is no number, or contradicts itself")]
    ContentLength,
    /// A transfer coding other than chunked (RFC 9112 section 6.1); we asked for none.
    #[error("a transfer coding other than chunked")]
    TransferEncoding,
    /// A chunk size that is no hexadecimal number, or beyond 64 bits.
    #[error("a chunk size is malformed")]
    ChunkSize,
    /// Chunk data is not followed by a line end.
    #[error("chunk data is longer than its size")]
    ChunkEnd,
    /// 101 though no upgrade was asked for.
    #[error("101 Switching Protocols, though no upgrade was asked for")]
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

/// The families of [`HttpError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Larger than its limits.
    TooLarge,
    /// It ended before its framing said so.
    Truncated,
    /// Not HTTP as anyone reads it.
    Protocol,
}

impl HttpError {
    /// The stable name within its class: `body` of `truncated.body`.
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

    /// Whether another try may end otherwise: what was cut off may come whole.
    pub const fn is_retryable(self) -> bool {
        matches!(self.class(), ErrorClass::Truncated)
    }

    /// The family it belongs to.
    pub const fn class(self) -> ErrorClass {
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
