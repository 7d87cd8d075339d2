//! What an exchange that is over leaves: all that is known of it, and its memory.

use crate::fetch::body_mode::BodyMode;
use crate::fetch::failure::Truncation;
use crate::fetch::timings::Timings;
use crate::wire::http::{Head, Headers};

/// All that is known about an exchange that is over.
#[derive(Debug)]
pub struct Outcome {
    /// When each phase ended.
    pub timings: Timings,
    /// The request as it left, head and body, but for what it said to a proxy of who we are. Empty
    /// where nothing was handed out.
    pub request_bytes: Vec<u8>,
    /// The final reply as it came, framing included; empty without a head, or if it was not to be kept.
    pub response_bytes: Vec<u8>,
    /// Where in `response_bytes` the body begins.
    pub head_length: usize,
    /// Bytes of the final reply, kept or not.
    pub bytes_wire: u64,
    /// The final head.
    pub head: Option<Head>,
    /// The reply used the chunked coding.
    pub chunked: bool,
    /// The body after the content codings; as it came where they are unknown. What was taken while it
    /// came is not in it.
    pub body: Vec<u8>,
    /// What was wanted of the body.
    pub body_mode: BodyMode,
    /// Bytes of the body that were taken while it came.
    pub bytes_taken: u64,
    /// Why the body is not whole.
    pub truncated: Option<Truncation>,
}

/// The memory of an exchange that is over, for another one. What was in it is gone.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(super) request: Vec<u8>,
    pub(super) wire: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) head: Headers,
}

impl Buffers {
    /// The memory of these; what is larger than most replies need is let go.
    pub fn of(request: Vec<u8>, wire: Vec<u8>, body: Vec<u8>, head: Headers) -> Self {
        let emptied = |mut bytes: Vec<u8>| {
            bytes.clear();
            if bytes.capacity() > BUFFER_KEPT {
                Vec::new()
            } else {
                bytes
            }
        };
        Buffers {
            request: emptied(request),
            wire: emptied(wire),
            body: emptied(body),
            head: if head.memory() > BUFFER_KEPT {
                Headers::default()
            } else {
                head
            },
        }
    }
}

/// A request as it left, without the line that says to a proxy who we are: what is kept of an
/// exchange is shown to others.
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

/// Memory that is kept for other exchanges, in each of their buffers.
const BUFFER_KEPT: usize = 32 * 1024;
