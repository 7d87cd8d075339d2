//! Whether the sink takes more, and a word about one that has not for long.

use std::time::Duration;

use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::crawl::phase::Phase;
use crate::io::Io;

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
const PATIENCE: Duration = Duration::from_secs(10);

impl Intake {
    /// Whether it did not.
    pub fn is_full(self) -> bool {
        self != Intake::Ready
    }

    /// What it says now; whether that is to be warned of.
    fn hear(&mut self, is_ready: bool, is_waited_for: bool, now: Instant) -> bool {
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

impl<I: Io> Core<I> {
    /// A turn ends: asks the sink whether it takes more.
    pub fn ask_sink(&mut self) {
        let is_ready = self.sink.is_ready();
        let queued = self.frontier.queued() + self.mapping.len() + self.delayed.len();
        let (under_way, ended) = (self.flights.len() + self.work.len(), self.ending.len());
        // Why it is not ready while there is no room on the disk has been reported.
        let is_waited_for = queued + under_way + ended > 0
            && self.storage.has_room()
            && matches!(self.phase, Phase::Running | Phase::Draining { .. });
        if self.intake.hear(is_ready, is_waited_for, self.now) {
            log::warn!(
                "the sink has not been ready for {} s: for it wait {queued} requests that are \
                 queued, {under_way} under way and {ended} that have ended",
                PATIENCE.as_secs()
            );
        }
    }
}
