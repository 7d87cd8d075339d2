//! Fetches pages with sans-IO state machines: bytes and the time go in, bytes and events come out.

pub mod connection;
mod transport;
pub mod tunnel;
pub mod exchange;
pub mod body;
pub mod deadline;
pub mod tls;
pub mod pool;
pub mod eyeballs;
pub mod resolver;
#[cfg(feature = "cookies")]
pub mod cookie_file;
#[cfg(feature = "cookies")]
pub mod cookies;
pub mod timings;
pub mod failure;
pub mod settings;
