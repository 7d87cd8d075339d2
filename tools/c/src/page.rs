//! A finished attempt, for C.

use std::ptr;

use argiope::serde_json::json;
use argiope::{Instant, Page};

use crate::error::guarded;

/// A finished attempt.
pub struct ArgiopePage {
    /// Boxed, so that its bytes stay where they are.
    page: Box<Page>,
    /// `kind.code` of the failure.
    error: String,
    /// The peer's address and port.
    remote: String,
    /// The fields of `EXTRACT`, as JSON.
    extracted: String,
    /// The header fields, whose bytes are the page's.
    fields: Vec<ArgiopeField>,
}

/// Borrowed bytes, not zero-terminated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopeBytes {
    /// The first byte; null if there are none.
    pub data: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// A header field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopeField {
    /// Its name, as sent.
    pub name: ArgiopeBytes,
    /// Its value, without surrounding white space.
    pub value: ArgiopeBytes,
}

/// When each phase of an attempt ended, in nanoseconds after its start; -1: it did not happen. The keys of the
/// same names in `results.jsonl` mean the same.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopePhases {
    /// The name lookup.
    pub dns: i64,
    /// TCP was established.
    pub connect: i64,
    /// The TLS handshake was complete.
    pub tls_handshake: i64,
    /// The request departed.
    pub request: i64,
    /// The first byte of the final reply arrived.
    pub first_byte: i64,
    /// The last byte of its head arrived.
    pub headers: i64,
    /// The last byte of its body arrived.
    pub body: i64,
    /// The attempt ended, with success or failure.
    pub ended: i64,
}

/// The values of a page. Its bytes are valid until the page is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopeView {
    /// Number of the attempt.
    pub id: u64,
    /// Number of the submitted request that retries and redirects led here from.
    pub root: u64,
    /// Tag of that request.
    pub tag: u64,
    /// No retry or redirect follows.
    pub is_final: bool,
    /// The status of the reply; 0 if there was none.
    pub status: u16,
    /// From departure to the last byte of the head, in nanoseconds; -1 if no head arrived.
    pub server_latency: i64,
    /// `page`, `robots` or `sitemap`.
    pub kind: ArgiopeBytes,
    /// The canonical URL.
    pub url: ArgiopeBytes,
    /// The decoded body.
    pub body: ArgiopeBytes,
    /// The Content-Type header.
    pub content_type: ArgiopeBytes,
    /// The failure as `kind.code` (`dns.nxdomain`); empty on success.
    pub error: ArgiopeBytes,
    /// The raw reply, head and body.
    pub response: ArgiopeBytes,
    /// The request's `meta`, as JSON.
    pub meta: ArgiopeBytes,
    /// The epoch whose commit covers it, in a crawl with a state; 0 without one.
    pub epoch: u64,
    /// The header fields of the reply, in order; null if there are none.
    pub fields: *const ArgiopeField,
    /// Number of these.
    pub field_count: usize,
    /// The start of the attempt, in nanoseconds since the Unix epoch, by the system's clock.
    pub started: u64,
    /// When each phase ended.
    pub phases: ArgiopePhases,
    /// Address and port of the peer: the proxy's if one was used; empty without a connection.
    pub remote: ArgiopeBytes,
    /// Target of a redirect, absolute; empty if the reply is none.
    pub redirect: ArgiopeBytes,
    /// The fields of `EXTRACT`, as a JSON object of texts and nulls; empty if none were looked for.
    pub extracted: ArgiopeBytes,
}

impl From<Page> for ArgiopePage {
    fn from(page: Page) -> Self {
        let failure = page.failure.as_ref();
        let error = failure.map(|failure| format!("{}.{}", failure.kind.as_str(), failure.name));
        let error = error.unwrap_or_default();
        let remote = page.remote.map(|remote| remote.to_string());
        let extracted = page.fields.as_ref().map(|fields| {
            let pairs = fields.iter();
            let pairs = pairs.map(|(name, value)| format!("{}: {}", json!(name), json!(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        });
        let page = Box::new(page);
        let fields = page.headers.iter().map(|(name, value)| ArgiopeField {
            name: name.into(),
            value: value.into(),
        });
        ArgiopePage {
            error,
            remote: remote.unwrap_or_default(),
            extracted: extracted.unwrap_or_default(),
            fields: fields.collect(),
            page,
        }
    }
}

impl From<&Page> for ArgiopePhases {
    fn from(page: &Page) -> Self {
        let after_start = |end: Option<Instant>| {
            end.map_or(-1, |end| {
                let span = end.saturating_since(page.timings.started);
                i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
            })
        };
        let [
            dns,
            connect,
            tls_handshake,
            request,
            first_byte,
            headers,
            body,
        ] = page.phases().map(|(_, end)| after_start(end));
        ArgiopePhases {
            dns,
            connect,
            tls_handshake,
            request,
            first_byte,
            headers,
            body,
            ended: after_start(Some(page.ended)),
        }
    }
}

impl From<&[u8]> for ArgiopeBytes {
    fn from(bytes: &[u8]) -> Self {
        let data = if bytes.is_empty() {
            ptr::null()
        } else {
            bytes.as_ptr()
        };
        let length = bytes.len();
        ArgiopeBytes { data, length }
    }
}

impl From<&str> for ArgiopeBytes {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

/// The values of a page; empty if `page` is null.
///
/// # Safety
/// `page` is null, or comes from `argiope_next` and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_view(page: *const ArgiopePage) -> ArgiopeView {
    let nothing = ArgiopePage::from(Page::default());
    // SAFETY: the caller's promise.
    let ArgiopePage {
        page,
        error,
        remote,
        extracted,
        fields,
    } = unsafe { page.as_ref() }.unwrap_or(&nothing);
    let latency = page.timings.server_latency();
    ArgiopeView {
        id: page.id,
        root: page.root,
        tag: page.tag,
        is_final: page.is_final,
        status: page.status.unwrap_or(0),
        server_latency: latency.map_or(-1, |latency| latency.as_nanos() as i64),
        kind: page.kind.as_str().into(),
        url: page.url.as_str().into(),
        body: page.body.as_slice().into(),
        content_type: page.content_type.as_deref().unwrap_or("").into(),
        error: error.as_str().into(),
        response: page.response_bytes.as_slice().into(),
        meta: page.meta().unwrap_or_default().into(),
        epoch: page.epoch.map_or(0, |epoch| epoch.0),
        fields: match fields.is_empty() {
            true => ptr::null(),
            false => fields.as_ptr(),
        },
        field_count: fields.len(),
        started: page.wall_at_start.at(page.timings.started).0,
        phases: ArgiopePhases::from(&**page),
        remote: remote.as_str().into(),
        redirect: page.redirect.as_deref().unwrap_or("").into(),
        extracted: extracted.as_str().into(),
    }
}

/// Frees a page.
///
/// # Safety
/// As `argiope_view`, or null; neither it nor its bytes are used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn argiope_page_free(page: *mut ArgiopePage) {
    guarded((), || {
        if !page.is_null() {
            // SAFETY: it came from `Box::into_raw`, and is given back once.
            drop(unsafe { Box::from_raw(page) });
        }
    });
}

#[cfg(test)]
mod tests {
    use argiope::sim::{Reply, Web};
    use argiope::{Config, Crawler, Request};

    use super::*;

    #[test]
    fn a_page_has_its_extracted_fields() {
        let web = Web::new(|_| Reply::page("<title>Tea</title>"));
        let config = Config::default().with("EXTRACT", "title,h1");
        let mut crawler = Crawler::builder(config.expect("built-in fields"))
            .build_in(&web, 1)
            .expect("a crawler");
        let request = Request::get("http://a.test/");
        crawler.submit(request).expect("it is a URL");
        let page = crawler.next_result().expect("a page");
        let page = ArgiopePage::from(page);
        // SAFETY: the page lives longer than its view.
        let view = unsafe { argiope_view(&raw const page) };
        let ArgiopeBytes { data, length } = view.extracted;
        // SAFETY: as above.
        let extracted = unsafe { std::slice::from_raw_parts(data, length) };
        assert_eq!(extracted, br#"{"title": "Tea", "h1": null}"#);
    }
}
