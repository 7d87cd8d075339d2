//! General building blocks of the runtime, without any knowledge of crawling.

pub mod time;
pub mod stamp;
pub mod wheel;
pub mod timeouts;
pub(crate) mod units;
pub(crate) mod bound;
pub(crate) mod sentence;
pub(crate) mod byte_rate;
pub mod slab;
pub mod chunked;
pub mod pile;
pub mod secret;
pub mod sharded;
pub mod named;
pub mod intern;
pub mod rng;
pub mod shared;
pub mod records;
pub mod priorities;
pub mod ids;
pub mod keys;
pub mod scopes;

pub mod pool;
pub(crate) mod memory;

pub mod disk;
pub mod worker;
pub mod gzip;
pub mod compression;
pub mod line_sorter;
pub mod derive;
pub mod machine;
pub mod address;
pub mod host_patterns;
#[cfg(test)]
pub mod loud;
