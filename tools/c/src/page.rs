//! A finished attempt, as C sees it.

use std::ptr;

use argiope::Page;

use crate::error::guarded;

/// A finished attempt.
pub struct ArgiopePage {
    page: Page,
    /// `kind.code` of what went wrong.
    error: String,
}

/// Bytes that belong to something else. No zero stands behind them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopeBytes {
    /// The first; null where there is nothing.
    pub data: *const u8,
    /// How many.
    pub length: usize,
}

/// What is known of a page. Its bytes hold until the page is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArgiopeView {
    /// Number of the attempt.
    pub id: u64,
    /// Number of the request that it descends from by retries and redirects.
    pub root: u64,
    /// What that was tagged with.
    pub tag: u64,
    /// No retry or redirect goes on from here.
    pub is_final: bool,
    /// The status of the reply; 0 where there was none.
    pub status: u16,
    /// From departure to the last byte of the head, in nanoseconds; -1 where it did not happen.
    pub server_latency: i64,
    /// `page`, `robots` or `sitemap`.
    pub kind: ArgiopeBytes,
    /// The URL, canonical.
    pub url: ArgiopeBytes,
    /// The body, decoded.
    pub body: ArgiopeBytes,
    /// The Content-Type field.
    pub content_type: ArgiopeBytes,
    /// What went wrong, as `kind.code` (`dns.nxdomain`); nothing where nothing did.
    pub error: ArgiopeBytes,
    /// The reply as it came, head and body.
    pub response: ArgiopeBytes,
    /// The JSON that the request had for `meta`.
    pub meta: ArgiopeBytes,
}

impl From<Page> for ArgiopePage {
    fn from(page: Page) -> Self {
        let failure = page.failure.as_ref();
        let error = failure.map(|failure| format!("{}.{}", failure.kind.as_str(), failure.code));
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

/// What is known of a page; nothing of a null.
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
    }
}

/// Gives a page back.
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
