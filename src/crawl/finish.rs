//! Why a crawl ended.

use std::fmt;

/// Why a crawl ended: `finish_reason` of `stats.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FinishReason {
    /// All work was done.
    Finished,
    /// It was stopped: by a [`Stopper`](crate::Stopper), by
    /// [`Handle::shutdown`](crate::Handle::shutdown), or by a signal to the command.
    Shutdown,
    /// `CLOSESPIDER_PAGECOUNT` was reached.
    PageCount,
    /// `CLOSESPIDER_TIMEOUT` expired.
    Timeout,
    /// `CLOSESPIDER_ERRORCOUNT` was reached.
    ErrorCount,
    /// The [`RequestSource`](crate::RequestSource) returned an error:
    /// [`Crawler::source_error`](crate::Crawler::source_error).
    SourceFailed,
    /// A result could not be written: [`Crawler::write_error`](crate::Crawler::write_error).
    SinkFailed,
    /// A probe's target has an address that `ALLOW_NET` does not admit.
    BlockedAddress,
    /// A probe's requests did not all end within the time they have.
    Overdue,
}

impl FinishReason {
    /// The string in files: `finished`, `shutdown`, `closespider_pagecount`, `closespider_timeout`,
    /// `closespider_errorcount`, `source_failed`, `sink_failed`, `blocked_address` or `overdue`.
    pub const fn as_str(self) -> &'static str {
        match self {
            FinishReason::Finished => "finished",
            FinishReason::Shutdown => "shutdown",
            FinishReason::PageCount => "closespider_pagecount",
            FinishReason::Timeout => "closespider_timeout",
            FinishReason::ErrorCount => "closespider_errorcount",
            FinishReason::SourceFailed => "source_failed",
            FinishReason::SinkFailed => "sink_failed",
            FinishReason::BlockedAddress => "blocked_address",
            FinishReason::Overdue => "overdue",
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
