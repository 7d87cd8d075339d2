//! Whole crawls in virtual time.

pub mod trial;
mod log;
mod full_sinks;
pub mod adversity;
mod handshakes;
