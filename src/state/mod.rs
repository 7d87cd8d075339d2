//! The journal of a crawl: what happened to its requests, as bytes, and what is left of the crawl after
//! them. Pure: no file is opened here.
//!
//! ```text
//! crawl ──► Record ──► Framer ──► bytes of a segment          (while it runs)
//! bytes ──► Reader ──► Record ──► Replay ──► Restored         (on resume)
//! ```
//!
//! - [`record`]: the records, and their bytes.
//! - [`journal`]: frames with checksums, in segments.
//! - [`replay`]: the state of the crawl at its last commit.
//! - [`compaction`]: a segment without what has ended.

pub mod compaction;
pub mod journal;
pub mod record;
pub mod replay;
#[cfg(test)]
mod samples;
