//! The result of an exchange, and its reusable memory.

use crate::base::memory::REUSED_MAX;
use crate::fetch::body::{BodyMode, UndecodedBody};
use crate::fetch::failure::Truncation;
use crate::fetch::timings::Timings;
use crate::wire::http::{Head, Headers};

/// Everything known about an exchange that is over.
#[derive(Debug)]
pub struct Outcome {
    /// When each phase ended.
    pub timings: Timings,
    /// The request as sent, head and body, without credentials for a proxy. Empty if nothing was
    /// handed out.
    pub request_bytes: Vec<u8>,
    /// The final reply as received, framing included; empty without a head, or if it was not to be
    /// kept.
    pub response_bytes: Vec<u8>,
    /// Offset of the body in `response_bytes`.
    pub head_length: usize,
    /// Size of the final reply in bytes, kept or not.
    pub bytes_wire: u64,
    /// The final head.
    pub head: Option<Head>,
    /// The reply used the chunked transfer coding.
    pub chunked: bool,
    /// The body after content decoding; undecoded if a coding is unknown. Without bytes that were
    /// taken while it arrived.
    pub body: Vec<u8>,
    /// The body before content decoding, if that is left to do; `body` is empty then.
    pub undecoded: Option<UndecodedBody>,
    /// Mode of the body.
    pub body_mode: BodyMode,
    /// Bytes of the body that were taken while it arrived.
    pub bytes_taken: u64,
    /// The wanted first bytes of a body that is not kept, after content decoding; `None` if none were wanted.
    pub start: Option<Vec<u8>>,
    /// Why the body is incomplete, if it is.
    pub truncated: Option<Truncation>,
}

/// The emptied buffers of an exchange, for reuse.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) request: Vec<u8>,
    pub(super) wire: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) head: Headers,
}

impl Buffers {
    /// Empties these buffers; those larger than most replies need are freed.
    pub fn of(request: Vec<u8>, wire: Vec<u8>, body: Vec<u8>, head: Headers) -> Self {
        let emptied = |mut bytes: Vec<u8>| {
            bytes.clear();
            if bytes.capacity() > REUSED_MAX {
                Vec::new()
            } else {
                bytes
            }
        };
        Buffers {
            request: emptied(request),
            wire: emptied(wire),
            body: emptied(body),
            head: if head.memory() > REUSED_MAX {
                Headers::default()
            } else {
                head
            },
        }
    }
}

/// Removes the line with the proxy credentials from a request, because the bytes are shown to
/// others.
pub(super) fn without_credentials(mut request: Vec<u8>) -> Vec<u8> {
    const FIELD: &[u8] = b"\r\nProxy-Authorization: ";
    let starts = request.windows(FIELD.len());
    if let Some(start) = starts.clone().position(|window| window == FIELD) {
        let value = start + FIELD.len();
        let rest = request[value..].windows(2);
        let length = rest.clone().position(|window| window == b"\r\n");
        request.drain(start..value + length.unwrap_or(0));
    }
    request
}
