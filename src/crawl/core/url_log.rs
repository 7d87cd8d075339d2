//! The log of single URLs (`-vv`): a line when one is admitted, left out, released, sent, answered and retried.
//!
//! The lines are written where these things happen. Nothing is formatted unless the level is enabled.

use crate::sink::page::Page;

/// The target of these lines.
pub const URL_LOG: &str = "url";

/// The end of an attempt that was sent.
pub fn log_answer(page: &Page) {
    if page.timings.sent.is_some() {
        log::debug!(
            target: URL_LOG,
            "{} {}: {} {} ({}, {} bytes)",
            if page.status.is_some() { "answered" } else { "failed" },
            page.id,
            page.method,
            page.url,
            how_it_ended(page),
            page.bytes_wire
        );
    }
}

/// The end of an attempt that was not sent.
pub fn log_unsent(page: &Page) {
    if page.timings.sent.is_none() {
        log::debug!(
            target: URL_LOG,
            "not sent {}: {} {} ({})",
            page.id,
            page.method,
            page.url,
            how_it_ended(page)
        );
    }
}

/// The status, and the error.
fn how_it_ended(page: &Page) -> String {
    let status = page.status.map(|status| status.to_string());
    let failure = page.failure.as_ref();
    let failure = failure.map(|failure| format!("{}: {}", failure.code(), failure.detail));
    let both: Vec<String> = status.into_iter().chain(failure).collect();
    both.join(", ")
}
