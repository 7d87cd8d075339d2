//! Control of a running crawl by the embedding program: submissions, sources, commands, stopping.

pub mod error;
pub mod feed;
pub mod found;
pub mod handle;
pub mod inbox;
pub mod pending;
pub mod phase;
pub mod shared;
pub mod snapshot;
pub mod unsent;
