//! Parsers and writers of wire formats: pure functions with bounded work.

pub mod url;
pub mod page_kind;
pub mod surt;
pub mod login;
pub mod proxy;
pub mod http;
mod structured;
pub(crate) mod octets;
pub mod text;
pub mod date;
pub mod retry_after;
pub mod rate_limit;
pub mod cache_status;
pub mod coding;
pub mod dns;
pub mod robots;
pub mod charset;
pub mod directives;
pub mod html;
pub mod marks;
pub mod sitemap;
pub mod certificate;
pub mod warc;
pub mod cdxj;
