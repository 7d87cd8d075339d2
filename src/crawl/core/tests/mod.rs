//! Whole crawls in virtual time.

pub mod trial;
pub mod watch;
mod timers;
mod log;
mod busy_scopes;
mod commits;
mod full_queues;
mod full_sinks;
mod large_pages;
mod idle_hosts;
mod late_admission;
mod late_ends;
mod many_rules;
mod full_disks;
mod resuming;
mod secrets;
mod stable_keys;
mod short_memory;
mod slow_hosts;
mod short_timeouts;
pub mod adversity;
mod handshakes;
mod pulled;
mod races;
pub mod resumed_files;
mod durability;
mod resumed_pace;
