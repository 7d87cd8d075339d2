//! A finished attempt, with all that is known about it: what every sink receives.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::base::time::{Instant, Wall};
use crate::fetch::failure::{Failure, Truncation};
use crate::fetch::timings::Timings;
pub use crate::fetch::tls::{Certificates, TlsInfo};
use crate::sink::reply::BodyMode;
use crate::wire::http::Headers;
use crate::wire::proxy::Route;
use crate::wire::warc::Digest;

/// One finished attempt. Times are on the crawl's clock; `wall_at_start` makes wall time of them.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Number of the attempt, from 1 in order of admission.
    pub id: u64,
    /// The attempt that it descends from by retries and redirects, whose number whoever submitted it
    /// was given: its own number where it is the first of them.
    pub root: u64,
    /// The attempt it came from: a page with the link, a redirect, an attempt retried.
    pub parent: Option<u64>,
    /// The URL of that attempt, where it is known.
    pub via: Option<Arc<str>>,
    /// Asked for by a seed (or the target of a seed's redirect).
    pub seed: bool,
    /// No retry or redirect goes on from here.
    pub is_final: bool,
    /// `page`, `robots` or `sitemap`.
    pub kind: &'static str,
    /// The URL, canonical, without fragment.
    pub url: String,
    /// The method.
    pub method: Cow<'static, str>,
    /// Links followed from a seed.
    pub depth: u32,
    /// 1 for the first attempt at this URL.
    pub attempt: u32,
    /// Names of the scopes it was throttled under. What it was expected to cost them is the caller's to
    /// know: its `tag` or `meta` tells.
    pub scopes: Vec<String>,
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
    /// Our end; `None` also where the sink does not [read](crate::sink::Sink::reads_local) it.
    pub local: Option<SocketAddr>,
    /// The connection had carried an exchange before.
    pub reused: bool,
    /// TLS, where there was any.
    pub tls: Option<TlsInfo>,
    /// The certificate chain that the server showed, shared by the pages of a connection; none without
    /// TLS. Also the one that was refused (`tls.expired`, `tls.name_mismatch`, `tls.untrusted` and their
    /// like): it is **not to be trusted**, and says only what the server, or somebody on the way,
    /// sent. [`Page::tls`] is `None` then.
    pub certificates: Certificates,
    /// Bytes of the final reply as they came over the wire (above TLS).
    pub bytes_wire: u64,
    /// Links found, before filters; `None` where none were looked for.
    pub links: Option<u32>,
    /// When each phase ended.
    pub timings: Timings,
    /// When the attempt ended, well or not: since `timings.started` it took so long, until the timeout or
    /// the refusal that ended it, or until we had read the last byte (`timings.body` says when that
    /// arrived). Where nothing was begun the two are the same moment.
    pub ended: Instant,
    /// The gap that throttling asked for before this request, jitter included: the longest of its
    /// scopes'. Zero before a scope's first; `None` where nothing was sent.
    pub delay: Option<Duration>,
    /// Wall time when the crawl began.
    pub wall_at_start: Wall,
    /// How it went, where its request said that, or the page that led to it: else as `PROXY` says.
    pub route: Option<Route>,
    /// The caller's own JSON: that of the request it descends from by retries and redirects.
    pub meta: Option<Box<RawValue>>,
    /// The caller's own number: that of the request it descends from by retries and redirects. 0 with
    /// robots.txt, sitemaps and links that were found.
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
    pub headers: Headers,
    /// The body after the content codings.
    pub body: Vec<u8>,
    /// What the sink wanted of the body.
    pub body_mode: BodyMode,
    /// Bytes of the body that it was given [piece by piece](BodyMode::Take).
    pub bytes_taken: u64,
}

impl Page {
    /// The body of the final reply as it came: framing and content codings included.
    pub fn raw_body(&self) -> &[u8] {
        let head = self.head_length.min(self.response_bytes.len());
        &self.response_bytes[head..]
    }

    /// Whether the final reply can have a body at all (RFC 9110, 6.4.1).
    pub fn may_have_body(&self) -> bool {
        let without = matches!(self.status, None | Some(204 | 304));
        !without && &*self.method != "HEAD"
    }

    /// The digest of the payload: the body without chunk framing, content codings left as they
    /// are, as far as it came. `None` where the reply can have none, or was not kept.
    pub fn digest(&self) -> Option<Digest> {
        self.has_digest()
            .then(|| Digest::of_payload(self.raw_body(), self.chunked))
    }

    /// Whether there is one.
    pub(crate) fn has_digest(&self) -> bool {
        self.may_have_body() && self.body_mode == BodyMode::Keep
    }

    /// Each phase's name in result lines and its end, in the order they happen.
    pub fn phases(&self) -> [(&'static str, Option<Instant>); 7] {
        [
            ("dns", self.timings.dns),
            ("connect", self.timings.connect),
            ("tls_handshake", self.timings.tls_handshake),
            ("request", self.timings.sent),
            ("first_byte", self.timings.first_byte),
            ("headers", self.timings.headers),
            ("body", self.timings.body),
        ]
    }

    /// Those of them whose end is an upper bound.
    pub fn bounds(&self) -> impl Iterator<Item = &'static str> {
        let timings = &self.timings;
        let tls = timings.tls_by_user || !timings.tls_slack.is_zero();
        let bounds = [
            ("connect", timings.connect_bound),
            ("tls_handshake", tls && timings.tls_handshake.is_some()),
            ("first_byte", timings.first_byte_bound),
            ("headers", timings.headers_bound),
            ("body", timings.body_bound),
        ];
        bounds
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(name, _)| name)
    }

    /// Wall time of the capture: when the request left, or when the attempt began.
    pub fn captured_at(&self) -> Wall {
        let at = self.timings.sent.unwrap_or(self.timings.started);
        self.wall_at_start.at(at)
    }

    /// Wall time of the last phase that happened.
    pub fn finished_at(&self) -> Wall {
        let ends = self.phases().into_iter().filter_map(|(_, end)| end);
        let last = ends.max().unwrap_or_default().max(self.timings.started);
        self.wall_at_start.at(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_phases_whose_end_is_an_upper_bound() {
        let bounds = |page: &Page| page.bounds().collect::<Vec<_>>();
        let mut page = samples::page(7);
        assert_eq!(bounds(&page), [""; 0]);
        page.timings.connect_bound = true;
        page.timings.body_bound = true;
        // A handshake of another attempt is no phase of this one.
        page.timings.tls_by_user = true;
        assert_eq!(bounds(&page), ["connect", "body"]);
        page.timings.tls_handshake = page.timings.connect;
        page.timings.first_byte_bound = true;
        page.timings.headers_bound = true;
        let all = ["connect", "tls_handshake", "first_byte", "headers", "body"];
        assert_eq!(bounds(&page), all);
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Pages for the tests of sinks.

    use super::*;

    /// A page that went well, with nothing special about it.
    pub(crate) fn page(id: u64) -> Page {
        reply(id, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello")
    }

    /// A page with this reply.
    pub(crate) fn reply(id: u64, head: &str, body: &[u8]) -> Page {
        let at = |micros: u64| Some(Instant::from_nanos(id * 1_000_000_000 + micros * 1000));
        Page {
            id,
            root: id,
            parent: None,
            via: None,
            seed: true,
            is_final: true,
            kind: "page",
            url: format!("http://a.test/{id}"),
            method: "GET".into(),
            depth: 0,
            attempt: 1,
            scopes: vec!["a.test".into()],
            status: Some(200),
            failure: None,
            truncated: None,
            redirect: None,
            version: Some("HTTP/1.1"),
            content_type: None,
            remote: Some(([127, 0, 0, 1], 80).into()),
            local: Some(([127, 0, 0, 1], 40112).into()),
            reused: false,
            tls: None,
            certificates: Certificates::default(),
            bytes_wire: (head.len() + body.len()) as u64,
            links: None,
            timings: Timings {
                started: at(0).unwrap_or_default(),
                due: at(0),
                connect: at(30),
                ready: at(30),
                sent: at(40),
                first_byte: at(20_100),
                headers: at(20_200),
                body: at(20_300),
                kernel: true,
                ..Timings::default()
            },
            ended: at(20_300).unwrap_or_default(),
            delay: Some(Duration::from_millis(250)),
            wall_at_start: Wall(1_795_219_200_000_000_000),
            route: None,
            meta: None,
            tag: 0,
            request_bytes: format!("GET /{id} HTTP/1.1\r\nHost: a.test\r\n\r\n").into(),
            response_bytes: [head.as_bytes(), body].concat(),
            head_length: head.len(),
            chunked: false,
            headers: Headers::default(),
            body: body.to_vec(),
            body_mode: BodyMode::Keep,
            bytes_taken: 0,
        }
    }
}
