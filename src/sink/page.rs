//! A finished attempt with everything known about it, as passed to every sink.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::base::stamp::Stamp;
use crate::base::time::{Instant, Wall};
use crate::fetch::body::BodyMode;
use crate::fetch::failure::{Failure, Truncation};
use crate::fetch::timings::{Phase, Timings};
pub use crate::fetch::tls::{Certificates, TlsInfo, TlsVersion};
use crate::frontier::request::PageKind;
use crate::frontier::robots::RobotsResult;
use crate::sink::commit::Epoch;
use crate::sink::filtered::FilteredLinks;
use crate::sink::links::FoundLinks;
pub use crate::throttle::asked::AskedHold;
use crate::wire::directives::DirectiveWords;
use crate::wire::html::fields::Fields;
use crate::wire::http::{Headers, HttpVersion};
use crate::wire::proxy::Route;
use crate::wire::warc::Digest;

/// One finished attempt. Times are on the crawl's clock; `wall_at_start` converts them to
/// wall-clock time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// Number of the attempt, from 1 in order of admission.
    pub id: u64,
    /// Number of the first attempt in its chain of retries and redirects, which was returned when
    /// the request was submitted; its own number if it is the first.
    pub root: u64,
    /// The attempt it came from: the page with the link, the redirect, or the retried attempt.
    pub parent: Option<u64>,
    /// URL of that attempt, if known.
    pub via: Option<Arc<str>>,
    /// Requested by a seed (or the target of a seed's redirect).
    pub seed: bool,
    /// No retry or redirect follows.
    pub is_final: bool,
    /// What was fetched: a page, a robots.txt or a sitemap.
    pub kind: PageKind,
    /// The URL, canonical, without fragment.
    pub url: String,
    /// The method.
    pub method: Cow<'static, str>,
    /// Number of links followed from a seed.
    pub depth: u32,
    /// 1 for the first attempt at this URL.
    pub attempt: u32,
    /// Names of the scopes it was throttled under. Expected costs are not included; the caller can
    /// put them into `tag` or `meta`.
    pub scopes: Vec<String>,
    /// Status of the final head.
    pub status: Option<u16>,
    /// The status that the crawl's [`Classify`](crate::Classify) gave the body, if it did: it counts in place of
    /// `status` for the pace, for retries, and for what is followed.
    pub judged: Option<u16>,
    /// The failure, if any.
    pub failure: Option<Failure>,
    /// Why the body is incomplete, if it is.
    pub truncated: Option<Truncation>,
    /// Target of a redirect, absolute.
    pub redirect: Option<String>,
    /// HTTP version of the final head.
    pub version: Option<HttpVersion>,
    /// The Content-Type field as sent.
    pub content_type: Option<String>,
    /// Address of the peer.
    pub remote: Option<SocketAddr>,
    /// Our own address; `None` also if the sink does not [use](crate::sink::Sink::reads_local) it.
    pub local: Option<SocketAddr>,
    /// The connection had carried an exchange before.
    pub reused: bool,
    /// An earlier run of the crawl had requested it, too, and its result was lost by a crash. That is known
    /// after a kill of the process; it may not be after a crash of the machine, or where there is no `/dev/shm`.
    pub refetched: bool,
    /// The epoch that it belongs to, where results are [pulled](crate::Crawler::acknowledge) in a crawl with
    /// a state: a run that resumes the crawl fetches it again if its last commit is an earlier one.
    pub epoch: Option<Epoch>,
    /// The TLS parameters, if TLS was used.
    pub tls: Option<TlsInfo>,
    /// The certificate chain sent by the server, shared by the pages of a connection; empty without
    /// TLS. Includes a rejected one (`tls.expired`, `tls.name_mismatch`, `tls.untrusted` and
    /// similar): it is **not to be trusted**, and shows only what the server, or someone on the
    /// network path, sent. In this case [`Page::tls`] is `None`.
    pub certificates: Certificates,
    /// Bytes of the final reply on the wire (above TLS).
    pub bytes_wire: u64,
    /// Number of links found, before filters; `None` if the body was not searched.
    pub links: Option<u32>,
    /// The directives of the page: robots meta elements, if its body was searched for links, and `X-Robots-Tag`.
    /// `None` if it has none. Only of final pages.
    pub directives: Option<Box<DirectiveWords>>,
    /// The values of the fields of `EXTRACT`, if they were looked for: in the HTML of a final page.
    pub fields: Option<Box<Fields>>,
    /// The links that were found, if the sink [keeps](crate::DiskSink::keeps_links) them.
    pub(crate) found_links: Option<Box<FoundLinks>>,
    /// The links that filters left out, if the sink [writes](crate::DiskSink::keeps_filtered) them.
    pub(crate) filtered_links: Option<Box<FilteredLinks>>,
    /// When each phase ended.
    pub timings: Timings,
    /// End of the attempt, successful or not: the timeout or failure that ended it, or when we had
    /// read the last byte (`timings.body` is when that arrived). Equals `timings.started` if
    /// nothing was started.
    pub ended: Instant,
    /// The gap that throttling asked for before this request, including jitter: the longest of its
    /// scopes. Zero before a scope's first request; `None` if nothing was sent.
    pub delay: Option<Duration>,
    /// How long the reply asked to wait, if it did and the settings obey that.
    pub hold: Option<Box<AskedHold>>,
    /// The request was exempt from robots.txt ([`Request::ignore_robots`](crate::Request::ignore_robots)).
    pub robots_ignored: bool,
    /// Of a robots.txt: what has been in force for its origin since. `None` where a retry or a redirect follows.
    pub robots: Option<Box<RobotsInForce>>,
    /// Wall-clock time at the start of the crawl.
    pub wall_at_start: Wall,
    /// Its route, if set by its request, inherited from the page that led to it, set for its host (`HOSTS`), or chosen
    /// by scheme or host (`PROXY_HTTPS`, `NO_PROXY`); else as in `PROXY`.
    pub route: Option<Route>,
    /// Whether the route is that of its request, which its links inherit.
    pub(crate) is_route_own: bool,
    pub(crate) meta: Option<Box<RawValue>>,
    /// The caller's number, from the request at the start of its chain of retries and redirects. 0
    /// for robots.txt, sitemaps and links found by the crawl.
    pub tag: u64,
    /// The request as sent, head and body. Empty if nothing was sent.
    pub request_bytes: Vec<u8>,
    /// The final reply as received (above TLS), head and body, framing included. Empty without a
    /// head.
    pub response_bytes: Vec<u8>,
    /// Offset of the body in `response_bytes`.
    pub head_length: usize,
    /// The final reply used the chunked transfer coding.
    pub chunked: bool,
    /// Header fields of the final reply, in order, as sent.
    pub headers: Headers,
    /// The body after content decoding.
    pub body: Vec<u8>,
    /// Mode in which the sink took the body.
    pub body_mode: BodyMode,
    /// Bytes of the body passed to the sink [in pieces](BodyMode::Take).
    pub bytes_taken: u64,
}

/// A result of fetching the robots.txt of an origin, and for how long it is in force.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RobotsInForce {
    /// Scheme, host, and the port unless it is the usual one: `http://a.test:81`. After a redirect it is not that
    /// of the page's URL.
    pub origin: String,
    /// From when on.
    pub from: Instant,
    /// Until when, unless another is fetched before.
    pub until: Instant,
    /// What it means.
    pub meaning: RobotsMeaning,
}

/// What a reply to a request for robots.txt means (RFC 9309, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RobotsMeaning {
    /// The body has rules.
    Rules,
    /// There is none (4xx, or too many redirects): everything is allowed.
    Absent,
    /// It is unavailable (5xx, 429, no complete answer): nothing is allowed.
    Unreachable,
}

impl RobotsMeaning {
    /// What the last reply means, after at most five redirects, and whether it is complete. `status`: `None` without a
    /// reply.
    pub fn of_reply(status: Option<u16>, is_complete: bool) -> Self {
        match RobotsResult::of_reply(status, is_complete) {
            None | Some(RobotsResult::Rules(_)) => RobotsMeaning::Rules,
            Some(RobotsResult::Absent) => RobotsMeaning::Absent,
            Some(RobotsResult::Unreachable) => RobotsMeaning::Unreachable,
        }
    }

    /// The name in `robots.jsonl`.
    pub const fn as_str(self) -> &'static str {
        match self {
            RobotsMeaning::Rules => "rules",
            RobotsMeaning::Absent => "absent",
            RobotsMeaning::Unreachable => "unreachable",
        }
    }
}

impl Page {
    /// The caller's JSON, from the request at the start of its chain of retries and redirects
    /// ([`Request::meta`](crate::Request::meta)).
    pub fn meta(&self) -> Option<&str> {
        self.meta.as_deref().map(RawValue::get)
    }

    /// Whether it is the result of a request or of a link: of a page, or of a sitemap that was submitted, and no retry or
    /// redirect follows. A robots.txt, a sitemap that the crawl finds and reads for itself, and earlier attempts are none.
    pub fn is_result(&self) -> bool {
        let is_wanted = match self.kind {
            PageKind::Page => true,
            PageKind::Sitemap => self.seed,
            PageKind::Robots => false,
        };
        self.is_final && is_wanted
    }

    /// The status that counts: that of the body, where the crawl's `Classify` gave one, else that of the head.
    pub fn judged_status(&self) -> Option<u16> {
        self.judged.or(self.status)
    }

    /// The body of the final reply as received, with framing and content codings.
    pub fn raw_body(&self) -> &[u8] {
        let head = self.head_length.min(self.response_bytes.len());
        &self.response_bytes[head..]
    }

    /// Returns whether the final reply can have a body (RFC 9110, 6.4.1).
    pub(crate) fn may_have_body(&self) -> bool {
        let without = matches!(self.status, None | Some(204 | 304));
        !without && &*self.method != "HEAD"
    }

    /// The digest of the payload: the received body without chunk framing, but with content
    /// codings. `None` if the reply cannot have a body, or the body was not kept.
    pub fn digest(&self) -> Option<Digest> {
        self.has_digest()
            .then(|| Digest::from_payload(self.raw_body(), self.chunked))
    }

    /// Returns whether there is a digest.
    pub(crate) fn has_digest(&self) -> bool {
        self.may_have_body() && self.body_mode == BodyMode::Keep
    }

    /// The phases and their ends, in order.
    pub fn phases(&self) -> [(Phase, Option<Instant>); 7] {
        let timings = &self.timings;
        let at = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.at);
        [
            (Phase::Dns, timings.dns),
            (Phase::Connect, at(timings.connect)),
            (Phase::TlsHandshake, at(timings.tls_handshake())),
            (Phase::Request, timings.sent),
            (Phase::FirstByte, at(timings.first_byte)),
            (Phase::Headers, at(timings.headers)),
            (Phase::Body, at(timings.body)),
        ]
    }

    /// The phases whose end is an upper bound.
    pub fn bounds(&self) -> impl Iterator<Item = Phase> {
        let timings = &self.timings;
        let arrivals = [
            (Phase::Connect, timings.connect),
            (Phase::TlsHandshake, timings.tls_handshake()),
            (Phase::FirstByte, timings.first_byte),
            (Phase::Headers, timings.headers),
            (Phase::Body, timings.body),
        ];
        arrivals
            .into_iter()
            .filter(|(_, arrival)| arrival.is_some_and(|arrival| arrival.is_bound()))
            .map(|(phase, _)| phase)
    }

    /// Wall-clock time of the capture: the departure of the request, or else the start of the
    /// attempt.
    pub fn captured_at(&self) -> Wall {
        let at = self.timings.sent.unwrap_or(self.timings.started);
        self.wall_at_start.at(at)
    }

    /// Wall-clock time of the last phase that happened.
    pub fn finished_at(&self) -> Wall {
        let ends = self.phases().into_iter().filter_map(|(_, end)| end);
        let last = ends.max().unwrap_or_default().max(self.timings.started);
        self.wall_at_start.at(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stamp::Clock;

    #[test]
    fn a_page_lists_the_phases_with_an_upper_bound_as_their_end() {
        let bounds = |page: &Page| page.bounds().map(Phase::as_str).collect::<Vec<_>>();
        let by_us = |stamp: &mut Option<Stamp>| {
            let at = stamp.map_or(Instant::START, |stamp| stamp.at);
            let clock = Clock::User;
            *stamp = Some(Stamp {
                at,
                clock,
                slack: Duration::ZERO,
            });
        };
        let mut page = samples::page(7);
        assert_eq!(bounds(&page), [""; 0]);
        by_us(&mut page.timings.connect);
        by_us(&mut page.timings.body);
        // The handshake of another attempt is not a phase of this one.
        by_us(&mut page.timings.secured);
        assert_eq!(bounds(&page), ["connect", "body"]);
        page.timings.secured = page.timings.connect;
        by_us(&mut page.timings.first_byte);
        by_us(&mut page.timings.headers);
        let all = ["connect", "tls_handshake", "first_byte", "headers", "body"];
        assert_eq!(bounds(&page), all);
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Sample pages for the tests of sinks.

    use super::*;

    /// A typical successful page.
    pub(crate) fn page(id: u64) -> Page {
        reply(id, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello")
    }

    /// A robots.txt that is in force for a day.
    pub(crate) fn robots() -> RobotsInForce {
        RobotsInForce {
            origin: "http://a.test".to_owned(),
            from: Instant::from_nanos(8_000_000_000),
            until: Instant::from_nanos(86_408_000_000_000),
            meaning: RobotsMeaning::Rules,
        }
    }

    /// A page with this reply.
    pub(crate) fn reply(id: u64, head: &str, body: &[u8]) -> Page {
        let at = |micros: u64| Some(Instant::from_nanos(id * 1_000_000_000 + micros * 1000));
        let stamp = |micros| at(micros).map(Stamp::exact);
        Page {
            id,
            root: id,
            parent: None,
            via: None,
            seed: true,
            is_final: true,
            kind: PageKind::Page,
            url: format!("http://a.test/{id}"),
            method: "GET".into(),
            depth: 0,
            attempt: 1,
            scopes: vec!["a.test".into()],
            status: Some(200),
            judged: None,
            failure: None,
            truncated: None,
            refetched: false,
            epoch: None,
            redirect: None,
            version: Some(HttpVersion::Http11),
            content_type: None,
            remote: Some(([127, 0, 0, 1], 80).into()),
            local: Some(([127, 0, 0, 1], 40112).into()),
            reused: false,
            tls: None,
            certificates: Certificates::default(),
            bytes_wire: (head.len() + body.len()) as u64,
            links: None,
            directives: None,
            fields: None,
            found_links: None,
            filtered_links: None,
            timings: Timings {
                started: at(0).unwrap_or_default(),
                due: at(0),
                connect: stamp(30),
                ready: at(30),
                sent: at(40),
                first_byte: stamp(20_100),
                headers: stamp(20_200),
                body: stamp(20_300),
                ..Timings::default()
            },
            ended: at(20_300).unwrap_or_default(),
            delay: Some(Duration::from_millis(250)),
            hold: None,
            robots_ignored: false,
            robots: None,
            wall_at_start: Wall(1_795_219_200_000_000_000),
            route: None,
            is_route_own: false,
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
