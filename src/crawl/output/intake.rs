//! Sink backpressure; warns after 10 s.

use std::time::Duration;

use crate::base::time::Instant;

/// Readiness of the sink when the last turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It accepts pages.
    Ready,
    /// It has accepted none since then.
    Full { since: Instant },
    /// It has accepted none for [`PATIENCE`], and the warning is logged.
    Stuck,
}

/// A warning is logged when a sink that is waited for has not been ready for so long. Disks are slow
/// for seconds at a time.
pub const PATIENCE: Duration = Duration::from_secs(10);

impl Intake {
    /// Whether it accepts no pages.
    pub fn is_full(self) -> bool {
        self != Intake::Ready
    }

    /// Records its present readiness; returns whether to log the warning.
    pub fn observe(&mut self, is_ready: bool, is_waited_for: bool, now: Instant) -> bool {
        match *self {
            _ if is_ready => *self = Intake::Ready,
            Intake::Ready => *self = Intake::Full { since: now },
            Intake::Full { since } => {
                if is_waited_for && now.saturating_since(since) >= PATIENCE {
                    *self = Intake::Stuck;
                    return true;
                }
            }
            Intake::Stuck => {}
        }
        false
    }
}
