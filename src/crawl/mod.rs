//! The loop, where the floors meet.

pub mod config;
