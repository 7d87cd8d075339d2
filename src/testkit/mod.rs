//! Servers on the loopback device, for the demo, tests, benchmarks and tools.
//!
//! [`server`] runs a thread per connection: an answer may block, and TLS is supported. [`engine`] runs
//! thousands of connections on one epoll. Both use [`http`] to read requests and write replies; a reply is
//! a list of [`Step`](http::Step)s, which include truncation and reset. [`dns`] is a name server, [`stamp`]
//! reads the kernel's receive timestamps, and [`ledger`] records requests. The caller makes certificates.

pub mod dns;
pub mod engine;
pub mod http;
pub mod ledger;
pub mod server;
pub mod stamp;
mod stream;
