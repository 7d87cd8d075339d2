//! How closely the sockets were watched, and so how far their stamps can be trusted.

use std::time::Duration;

use rustix::time::Timespec;

use super::connection::Connection;
use crate::base::time::Instant;
use crate::io::delay::RunDelay;
use crate::io::stamps::{EXACT, Stamps, Unseen};
use crate::io::{Clock, Stamp};

/// How closely the sockets were watched up to this turn.
#[derive(Debug)]
pub(super) struct Watch {
    delay: RunDelay,
    /// When there was no answer last.
    empty_at: Instant,
    /// Since when the answers of this turn may have been given.
    since: Instant,
    /// The same, as well as it is known without the scheduler's account.
    unseen: Unseen,
    /// How long our thread was kept from watching in that time; `None` where nobody knows.
    kept: Option<Duration>,
}

impl Watch {
    pub(super) fn start() -> Self {
        Watch {
            delay: RunDelay::none(),
            empty_at: Instant::START,
            since: Instant::START,
            unseen: Unseen::since(Instant::START),
            kept: None,
        }
    }

    /// From now on the calling thread watches.
    pub(super) fn adopt(&mut self) {
        self.delay = RunDelay::start();
    }

    /// There was no answer at this moment.
    pub(super) fn saw_nothing(&mut self, at: Instant) {
        self.empty_at = at;
    }

    /// Answers were taken, all or not all of them.
    pub(super) fn begin_turn(&mut self, now: Instant, unseen: Unseen, complete: bool) {
        self.unseen = unseen;
        self.since = self.empty_at;
        // It cannot have been longer than there was time.
        let longest = now.saturating_since(self.since);
        self.kept = if longest > EXACT {
            self.delay.since_last().map(|delay| delay.min(longest))
        } else {
            Some(longest)
        };
        if complete {
            self.empty_at = now;
        }
    }

    /// When bytes arrived, and how far that may be off. Whatever kept us from looking: where they
    /// came in one segment, and no other one with them, the stamp is theirs.
    ///
    /// That our thread had its processor does not tell it all. On a busy machine segments wait,
    /// stamped, for the kernel to deliver them together. So segments are counted wherever that is
    /// [worth it](Unseen::is_worth_asking).
    pub(super) fn judge(
        &self,
        kernel: Option<Timespec>,
        connection: &mut Connection,
        stamps: &Stamps,
        all_seen: impl FnOnce() -> bool,
    ) -> Stamp {
        let (blind, floor, asked) = (connection.blind, connection.floor, connection.asked);
        let told = |unseen: Unseen| stamps.arrival(kernel, unseen.asked(asked), floor);
        let unseen = match self.kept {
            Some(_) => Unseen::since(self.since),
            None => self.unseen,
        };
        let stamp = told(unseen);
        if stamp.clock == Clock::User {
            return stamp;
        }
        if self.unseen.is_stale(&stamp) && connection.is_out_of_order() {
            // Nobody stamped what was missing.
            return stamps.arrival(None, unseen.asked(asked), floor);
        }
        let (slack, counts) = if stamp.at < blind.until {
            (told(Unseen::since(blind.since.min(self.since))).slack, true)
        } else if self.unseen.is_worth_asking(&stamp) {
            (stamp.slack, true)
        } else {
            (stamp.slack.min(self.kept.unwrap_or(Duration::MAX)), false)
        };
        let exact = slack <= EXACT || (counts && connection.arrived_singly(all_seen));
        Stamp {
            slack: if exact { Duration::ZERO } else { slack },
            ..stamp
        }
    }
}
