//! The seen set on disk: sorted runs of keys, each in a file of its own.

pub mod file;
pub mod merge;
