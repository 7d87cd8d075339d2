//! Scopes, and when each may send.

pub mod settings;
