//! A finished attempt, for C.

use std::ptr;

use argiope::Page;

use crate::error::guarded;

/// A finished attempt.
pub struct ArgiopePage {
    page: Page,
    /// `kind.code` of the failure.
    error: String,
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
}

impl From<Page> for ArgiopePage {
    fn from(page: Page) -> Self {
        let failure = page.failure.as_ref();
        let error = failure.map(|failure| format!("{}.{}", failure.kind.as_str(), failure.name));
        let error = error.unwrap_or_default();
        ArgiopePage { page, error }
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
    let ArgiopePage { page, error } = unsafe { page.as_ref() }.unwrap_or(&nothing);
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
