//! How far a crawl has come, and how it comes to its end: it sends, it waits for what is on its way,
//! its sink writes the rest.

use crate::base::time::Instant;

/// How far a crawl has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It sends.
    Running,
    /// It sends nothing more and waits for what is in flight.
    Draining {
        reason: &'static str,
        until: Instant,
        /// A stop was ordered, as the reason or beside it: the last writes have until then, too.
        is_stopped: bool,
    },
    /// The sink writes the rest. After an order to stop, the reader of standard output has
    /// limited time to take it.
    Flushing {
        reason: &'static str,
        until: Option<Instant>,
    },
    /// It is over.
    Over { reason: &'static str },
}
