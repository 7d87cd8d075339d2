//! Replies of the control interface.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::base::time::Wall;
use crate::wire::date::to_http_date;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The value of Content-Type.
    pub content_type: &'static str,
    /// Further header fields.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A reply in JSON.
    pub fn json(status: u16, value: &Value) -> Self {
        let mut body = value.to_string().into_bytes();
        body.push(b'\n');
        Response {
            status,
            content_type: "application/json",
            fields: Vec::new(),
            body,
        }
    }

    /// A reply in plain text.
    pub fn text(status: u16, words: &str) -> Self {
        Response::of(
            status,
            "text/plain; charset=utf-8",
            words.as_bytes().to_vec(),
        )
    }

    /// A reply of this type.
    pub fn of(status: u16, content_type: &'static str, body: Vec<u8>) -> Self {
        Response {
            status,
            content_type,
            fields: Vec::new(),
            body,
        }
    }

    /// An error: what was wrong, and how to mend it.
    pub fn error(status: u16, message: &str) -> Self {
        Response::json(status, &json!({"error": message}))
    }

    /// The same with another header field.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Writes it to a connection.
    pub fn write(&self, into: &mut Vec<u8>, without_body: bool, keeps: bool, wall: Wall) {
        self.write_head(into, Some(self.body.len()), keeps, wall);
        if !without_body {
            into.extend_from_slice(&self.body);
        }
    }

    /// Writes it to a connection whose end is that of the body (RFC 9112 section 6.3).
    pub fn write_endless(&self, into: &mut Vec<u8>, wall: Wall) {
        self.write_head(into, None, false, wall);
        into.extend_from_slice(&self.body);
    }

    fn write_head(&self, into: &mut Vec<u8>, length: Option<usize>, keeps: bool, wall: Wall) {
        let (status, reason) = (self.status, reason(self.status));
        // Writing to memory cannot fail.
        let _ = write!(into, "HTTP/1.1 {status} {reason}\r\n");
        let _ = write!(into, "Date: {}\r\n", to_http_date(wall));
        let _ = write!(into, "Content-Type: {}\r\n", self.content_type);
        if let Some(length) = length {
            let _ = write!(into, "Content-Length: {length}\r\n");
        }
        // What is asked for changes all the time, and is nothing for other pages to read.
        into.extend_from_slice(b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
        into.extend_from_slice(b"Cross-Origin-Resource-Policy: same-origin\r\n");
        for (name, value) in &self.fields {
            debug_assert!(!value.contains(['\r', '\n']), "a field has one line");
            let _ = write!(into, "{name}: {value}\r\n");
        }
        if !keeps {
            into.extend_from_slice(b"Connection: close\r\n");
        }
        into.extend_from_slice(b"\r\n");
    }
}

/// The reason phrases of the statuses that are used (RFC 9110 section 15).
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => unreachable!("status {status} has no reason phrase here"),
    }
}
