//! Bytes to values and back, pure and bounded.

pub mod http;
pub mod coding;
