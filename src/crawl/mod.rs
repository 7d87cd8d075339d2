//! The loop, where the floors meet: a crawler, and how to run, embed, feed and stop it.

mod core;
mod phase;
mod timer;
mod breaker;
mod life;
mod crawler;
mod builder;
mod embed;
pub mod pacing;
pub mod stats;
pub mod config;
pub mod probe;
#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use crawler::{Crawler, Parts, SetUpError, Turn};
pub use embed::feed::{End, Ended, Source, SourceError, SourcePoll, Wake};
pub use embed::handle::{ControlError, CrawlOver, Handle, Stopper, SubmitError};
pub use embed::snapshot::Snapshot;
pub use embed::stop::Pending;
pub use life::admission::AdmitError;
