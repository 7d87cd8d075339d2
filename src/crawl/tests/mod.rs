//! Whole crawls in virtual time.

pub mod trial;
pub mod adversity;
mod handshakes;
