//! Phases of a crawl.
//!
//! ```text
//! Running ──► Draining ──► Flushing ──► Over
//!    └─────────────────────────▲
//!      nothing is left to do, or a result could not be written
//! ```

use crate::base::time::Instant;
use crate::crawl::finish::FinishReason;

/// Phase of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are sent.
    Running,
    /// Nothing more is sent; requests in flight are awaited.
    Draining {
        reason: FinishReason,
        /// Requests in flight then are cancelled.
        until: Instant,
        /// Deadline of a requested stop, also for the last writes.
        is_stopped: bool,
    },
    /// The sink writes the rest. After a command to stop, the reader of standard output has limited
    /// time to take it.
    Flushing {
        reason: FinishReason,
        until: Option<Instant>,
    },
    /// The crawl is over.
    Over { reason: FinishReason },
}

impl Phase {
    /// The name in `stats.json` and in replies of the control interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Running => "running",
            Phase::Draining { .. } => "draining",
            Phase::Flushing { .. } => "flushing",
            Phase::Over { .. } => "over",
        }
    }

    /// Whether requests are sent.
    pub fn is_running(self) -> bool {
        self == Phase::Running
    }

    /// Whether replies are awaited.
    pub fn is_fetching(self) -> bool {
        matches!(self, Phase::Running | Phase::Draining { .. })
    }

    /// Whether the sink writes the rest.
    pub fn is_flushing(self) -> bool {
        matches!(self, Phase::Flushing { .. })
    }

    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Over { .. })
    }

    /// Whether a failing write no longer changes the end of the crawl.
    pub fn has_failed(self) -> bool {
        self.is_over() || self.finish_reason() == Some(FinishReason::SinkFailed)
    }

    /// Returns when the grace time of a crawl that drains ends.
    pub fn grace_end(self) -> Option<Instant> {
        match self {
            Phase::Draining { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The finish reason, once nothing more is fetched.
    pub fn finish_reason(self) -> Option<FinishReason> {
        match self {
            Phase::Running | Phase::Draining { .. } => None,
            Phase::Flushing { reason, .. } | Phase::Over { reason } => Some(reason),
        }
    }

    /// Its place in the order of phases.
    pub(super) fn rank(self) -> u8 {
        match self {
            Phase::Running => 0,
            Phase::Draining { .. } => 1,
            Phase::Flushing { .. } => 2,
            Phase::Over { .. } => 3,
        }
    }
}
