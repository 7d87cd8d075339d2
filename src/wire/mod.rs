//! Bytes to values and back, pure and bounded.

pub mod warc;
