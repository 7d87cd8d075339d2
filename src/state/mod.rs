//! The journal of a crawl: what happened to its requests, as bytes. Pure: no file is opened here.
//!
//! ```text
//! crawl ──► Record ──► Framer ──► bytes of a segment          (while it runs)
//! bytes ──► Reader ──► Record                                 (on resume)
//! ```
//!
//! - [`record`]: the records, and their bytes.
//! - [`journal`]: frames with checksums, in segments.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "the crawl uses it from the next commit on")
)]

pub mod journal;
pub mod record;
#[cfg(test)]
mod samples;
