//! How a page is fetched: sans-IO state machines. Bytes and the time go in, bytes and news come out.

pub mod pool;
pub mod connection;
mod transport;
pub mod exchange;
mod body;
pub mod deadline;
pub mod tls;

pub mod failure;
pub mod timings;

pub mod settings;
