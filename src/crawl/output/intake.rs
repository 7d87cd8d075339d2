//! Whether the sink takes more; warns where it has not for 10 s.

use std::time::Duration;

use crate::base::time::Instant;

/// What the sink said when the last turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// It takes more.
    Ready,
    /// It has not since then.
    Full { since: Instant },
    /// Nor before that, for so long that it was warned of.
    Stuck,
}

/// A sink that has not been ready for so long while something waits for it is warned of. Disks are slow
/// for seconds at a time.
pub const PATIENCE: Duration = Duration::from_secs(10);

impl Intake {
    /// Whether it did not.
    pub fn is_full(self) -> bool {
        self != Intake::Ready
    }

    /// What it says now; returns whether that is to be warned of.
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
