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
//! - [`seen_runs`]: files of keys of the seen set, and their merges.
//! - [`outline`]: which records of a segment count.
//! - [`replay`]: the state of the crawl at its last commit.
//! - [`compaction`]: a segment without what has ended.

pub mod compaction;
pub mod journal;
pub mod outline;
pub mod record;
pub mod replay;
pub mod seen_runs;
#[cfg(test)]
mod samples;
