//! The loop, where the floors meet: a crawler, and how to run, embed, feed and stop it.

mod life;
mod carry;
mod reading;
mod scopes;
mod names;
mod follow;
mod report;
mod stop;
mod core;
mod drive;
mod pull;
mod flight;
mod timer;
mod guard;
mod hearing;
#[cfg(feature = "cookies")]
mod cookies;
mod decisions;
mod origins;
mod room;
mod spare;
mod mapping;
mod delayed;
mod admission;
mod handle;
mod feed;
mod found;
mod inbox;
mod steer;
mod snapshot;
pub mod pacing;
mod pieces;
pub mod stats;
pub mod config;
mod crawler;
pub mod probe;
#[cfg(test)]
mod trial;
#[cfg(test)]
mod adversity;
#[cfg(test)]
mod handshakes;
mod builder;

pub use admission::Refused;
pub use builder::Builder;
pub use crawler::{Crawler, Parts, SetUpError, Turn};
pub use feed::{End, Ended, Source, SourceError, Supply, Wake};
pub use handle::{Closed, Handle, NotTaken, NotTold, Stopper};
pub use snapshot::Snapshot;
pub use stop::Pending;
