//! What a runtime needs under it, in a form that does not know it is in a crawler.

pub mod time;
pub mod wheel;
pub mod timeouts;
pub(crate) mod units;
pub(crate) mod bound;
pub mod slab;
pub mod chunked;
pub mod secret;
pub mod sharded;
pub mod intern;
pub mod rng;
pub mod shared;
pub mod records;

pub mod pool;
pub(crate) mod memory;

pub mod disk;
pub mod machine;
pub mod address;
#[cfg(test)]
pub mod loud;
