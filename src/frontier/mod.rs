//! The frontier: lanes of queued requests, the seen set, robots rules, filters.
//!
//! It is in memory. Everything that would have to survive a crash passes through the methods of
//! [`Frontier`] that take or return a [`Job`](job::Job), so a durable frontier could log behind the same
//! interface.

mod lanes;
mod queue;
mod queued;
pub mod numbers;
pub mod offers;
mod origins;
pub mod request;
pub mod job;
pub mod extra;
pub mod filter;
pub mod seen;
pub mod hosts;
mod domains;
pub mod exclusion;
mod host_records;
pub mod host_settings;
pub mod robots;
pub mod saved_counts;
pub mod saved_hosts;
mod saved_robots;
pub mod proxies;
pub mod settings;

pub use lanes::{
    ActiveLimits, Elsewhere, Evicted, Frontier, HOST_PRIORITIES_MAX, HOST_PRIORITY_MAX, LaneChange,
    LaneView, LaneWait, LongQueue, LongestQueues, NewLane, Next, OriginView, QueuedUrl, Removal,
    RobotsView, TURN, Unsent, UrlSearch,
};
