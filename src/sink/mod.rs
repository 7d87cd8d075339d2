//! Sinks: destinations of results.

#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod reply;
pub(crate) mod commit;
pub(crate) mod later;
mod line;
#[doc(hidden)]
pub mod results;
pub(crate) mod decisions;
mod durable;
mod lines;
pub(crate) mod filtered;
pub(crate) mod links;
mod prepared;
mod records;
mod robots;
mod unwritten;
mod warc;
pub mod cdxj;
mod indexes;
pub mod files;
pub mod directory;

#[doc(hidden)]
pub mod function;
#[doc(hidden)]
pub mod traits;
pub(crate) mod pull;
pub mod tee;

pub(crate) use self::traits::{DiskSink, Preparation, Sink, WriteError};

use self::page::Page;

/// Discards every result, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn reads_local(&self) -> bool {
        false
    }

    fn put(&mut self, _page: &mut Page) {}
}
