//! Whole crawls in virtual time.

pub mod trial;
mod log;
mod full_sinks;
mod large_pages;
mod many_rules;
pub mod adversity;
mod handshakes;
