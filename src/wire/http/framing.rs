//! Determines where a reply's body ends, and whether its connection can be reused.
//!
//! Hand-written: `httparse` reads heads and leaves the body to its caller, and the rules are few. Where
//! they conflict, the choice is made here.

use super::{Head, HttpError, HttpVersion};
use crate::wire::octets::{any, equal};

/// How a reply's body is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body, whatever the head declares.
    None,
    /// This many bytes.
    Length(u64),
    /// Chunks, ended by an empty one.
    Chunked,
    /// Everything until the connection ends.
    Close,
}

/// The framing declared by a final head, and whether the connection can be reused after the reply.
pub(super) fn of(head: &Head, method_is_head: bool) -> Result<(Framing, bool), HttpError> {
    let persistent = persistent(head);
    if method_is_head || matches!(head.status, 204 | 304) {
        return Ok((Framing::None, persistent));
    }
    if chunked(head)? {
        // With a length besides, or with a version without chunks, sender and receiver may disagree
        // about the end (RFC 9112 section 6.1): read the body, and do not reuse the connection.
        let doubtful =
            head.version == HttpVersion::Http10 || head.headers.get("content-length").is_some();
        return Ok((Framing::Chunked, persistent && !doubtful));
    }
    match content_length(head)? {
        Some(length) => Ok((Framing::Length(length), persistent)),
        None => Ok((Framing::Close, false)),
    }
}

/// Returns whether the connection stays open after the reply (RFC 9112 section 9.3). A proxy's
/// `Proxy-Connection` is used only if it closes the connection.
pub(super) fn persistent(head: &Head) -> bool {
    let lists = |name, token: &str| {
        let mut values = head.headers.get_all(name);
        values.any(|value| has_member(value, token.as_bytes()))
    };
    if lists("connection", "close") || lists("proxy-connection", "close") {
        return false;
    }
    match head.version {
        HttpVersion::Http11 => true,
        HttpVersion::Http10 => lists("connection", "keep-alive"),
    }
}

/// Returns whether the body is chunked. A repeated `chunked` counts once, as it occurs on the web;
/// `identity` is an obsolete name for no coding.
pub(super) fn chunked(head: &Head) -> Result<bool, HttpError> {
    let mut chunked = false;
    let values = head.headers.get_all("transfer-encoding");
    for coding in values.flat_map(members) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked = true;
        } else if chunked || !coding.eq_ignore_ascii_case(b"identity") {
            return Err(HttpError::TransferEncoding);
        }
    }
    Ok(chunked)
}

/// The declared length: equal repeated values count as one, and an empty field as none.
pub(super) fn content_length(head: &Head) -> Result<Option<u64>, HttpError> {
    let mut length = None;
    for value in head.headers.get_all("content-length") {
        // Fast path: nearly all are one number, and most replies have one.
        if length.is_none() && value.first().is_some_and(u8::is_ascii_digit) {
            length = decimal(value);
            if length.is_some() {
                continue;
            }
        }
        for member in members(value) {
            let value = decimal(member).ok_or(HttpError::ContentLength)?;
            if length.is_some_and(|before| before != value) {
                return Err(HttpError::ContentLength);
            }
            length = Some(value);
        }
    }
    Ok(length)
}

/// Digits only: no sign, no fraction, at most 64 bits.
fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns whether one line of a list field contains this member, in any case.
fn has_member(value: &[u8], wanted: &[u8]) -> bool {
    // Fast path for a list with one member, as nearly all are.
    if !any(value, |word| equal(word, b',')) {
        return value.eq_ignore_ascii_case(wanted);
    }
    members(value).any(|member| member.eq_ignore_ascii_case(wanted))
}

/// The members of one line of a list field, without empty ones (RFC 9110 section 5.6.1).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|member| !member.is_empty())
}
