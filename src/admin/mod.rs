//! The control interface: HTTP and JSON on connections that the crawl's loop serves. It does no input or output
//! itself, and knows nothing of crawls: it reads requests and access rights, and writes replies.

pub mod access;
pub mod connection;
pub mod response;
pub mod routes;
