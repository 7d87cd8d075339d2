//! The control interface: HTTP and JSON on connections that the crawl's loop serves, and the text formats of
//! metrics. It does no input or output itself, and knows nothing of crawls: it reads requests and access rights,
//! and writes replies.

pub mod access;
pub mod connection;
pub mod exposition;
pub mod format;
pub mod page;
pub mod response;
pub mod routes;
