//! A finished attempt, with all that is known about it: what every sink receives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::base::time::Wall;
use crate::fetch::failure::{Failure, Truncation};
use crate::fetch::timings::Timings;
pub use crate::fetch::tls::TlsInfo;

/// One finished attempt. Times are on the crawl's clock; `wall_at_start` makes wall time of them.
#[derive(Clone, Debug)]
pub struct Page {
    /// Number of the attempt, from 1 in order of admission.
    pub id: u64,
    /// The attempt it came from: a page with the link, a redirect, an attempt retried.
    pub parent: Option<u64>,
    /// Asked for by a seed (or the target of a seed's redirect).
    pub seed: bool,
    /// No retry or redirect goes on from here.
    pub final_: bool,
    /// `page`, `robots` or `sitemap`.
    pub kind: &'static str,
    /// The URL, canonical, without fragment.
    pub url: Arc<str>,
    /// The method.
    pub method: Arc<str>,
    /// Links followed from a seed.
    pub depth: u32,
    /// 1 for the first attempt at this URL.
    pub attempt: u32,
    /// Names of the scopes it was throttled under.
    pub scopes: Vec<Arc<str>>,
    /// Status of the final head.
    pub status: Option<u16>,
    /// What went wrong.
    pub failure: Option<Failure>,
    /// Why the body is not whole.
    pub truncated: Option<Truncation>,
    /// Where a redirect leads, absolute.
    pub redirect: Option<String>,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: Option<&'static str>,
    /// The Content-Type field as sent.
    pub content_type: Option<String>,
    /// The peer.
    pub remote: Option<SocketAddr>,
    /// Our end.
    pub local: Option<SocketAddr>,
    /// The connection had carried an exchange before.
    pub reused: bool,
    /// TLS, where there was any.
    pub tls: Option<TlsInfo>,
    /// Bytes of the final reply as they came over the wire (above TLS).
    pub bytes_wire: u64,
    /// Links found, before filters; `None` where none were looked for.
    pub links: Option<u32>,
    /// When each phase ended.
    pub timings: Timings,
    /// The gap that throttling asked for before this request.
    pub delay: Option<Duration>,
    /// Wall time when the crawl began.
    pub wall_at_start: Wall,
    /// The caller's own JSON.
    pub meta: Option<Box<RawValue>>,
    /// The caller's own number.
    pub tag: u64,
    /// The request as it left, head and body. Empty where nothing left.
    pub request_bytes: Vec<u8>,
    /// The final reply as it came (above TLS), head and body, framing included. Empty where no head came.
    pub response_bytes: Vec<u8>,
    /// Where in `response_bytes` the body begins.
    pub head_length: usize,
    /// The final reply used the chunked coding.
    pub chunked: bool,
    /// Header fields of the final reply, in order, as sent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body after the content codings.
    pub body: Vec<u8>,
}
