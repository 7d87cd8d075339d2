//! What is still to fetch: lanes of queued requests, the seen set, robots rules, filters.
//!
//! This one lives in memory. All that would have to survive a crash goes through the methods of
//! [`Frontier`] that take or give a [`Job`](job::Job), so a durable one writes its log behind the
//! same front.

mod lanes;
mod queue;
pub mod numbers;
mod origins;
pub mod request;
pub mod seeds;
pub mod job;
pub mod extra;
pub mod filter;
pub mod seen;
pub mod hosts;
pub mod robots;
pub mod settings;

pub use lanes::{Frontier, Next, Unsent};
