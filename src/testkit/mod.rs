//! Servers on the loopback device, for the demo, tests, benchmarks and tools.
//!
//! [`server`] runs a thread for each connection: the answer may block, and TLS may be spoken. [`engine`]
//! runs all connections on one epoll, for thousands of them. Both read requests and write replies by
//! [`http`] and act by [`Step`](http::Step)s, so a truncated body or a reset is a value; [`dns`] answers
//! for names, and [`stamp`] gives the kernel's time of arrival. Certificates are the caller's to make.

pub mod dns;
pub mod engine;
pub mod http;
pub mod server;
pub mod stamp;
mod stream;
