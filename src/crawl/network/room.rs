//! Limit on requests in flight, adapted to the sockets that this machine grants.

use crate::fetch::failure::Failure;

/// Requests that may be in flight: fewer after a refusal, slowly more after that.
#[derive(Debug)]
pub struct Room {
    most: usize,
    present: usize,
    logged: Once,
}

impl Room {
    /// Room for `most`, until the machine refuses a socket.
    pub fn new(most: usize) -> Self {
        Room {
            most,
            present: most,
            logged: Once::default(),
        }
    }

    /// The configured maximum.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Sets the configured maximum; returns the present one, which stays lower after a refusal.
    pub fn set_most(&mut self, most: usize) -> usize {
        let was_refused = self.present < self.most;
        self.most = most.max(1);
        self.present = match was_refused {
            true => self.present.min(self.most),
            false => self.most,
        };
        self.present
    }

    /// Called when the machine refused a socket for one more request beside `in_flight`. Lowers the limit,
    /// which is logged, and returns it; `None` if the limit stays.
    pub fn handle_exhausted(&mut self, failure: &Failure, in_flight: usize) -> Option<usize> {
        let most = self.refused(in_flight)?;
        log::log!(
            self.logged.level(),
            "{failure}; at most {most} requests are in flight for now (CONCURRENT_REQUESTS)"
        );
        Some(most)
    }

    /// Lowers the limit to three quarters of `in_flight`.
    ///
    /// Most of many refusals at once concern requests that were released before the first refusal was known.
    /// They change nothing: `None`.
    fn refused(&mut self, in_flight: usize) -> Option<usize> {
        if in_flight > self.present && self.present < self.most {
            return None;
        }
        self.present = (self.present.min(in_flight) * 3 / 4).max(1);
        Some(self.present)
    }

    /// Called every second: raises a lowered limit by a sixteenth of its present value, so that few further
    /// requests are refused.
    pub fn widened(&mut self) -> Option<usize> {
        if self.present == self.most {
            return None;
        }
        self.present = (self.present + (self.present / 16).max(1)).min(self.most);
        Some(self.present)
    }
}

/// A condition logged once at warn level, and at info level each further time.
#[derive(Debug, Default)]
pub struct Once {
    was_logged: bool,
}

impl Once {
    /// The level of the next log line.
    pub fn level(&mut self) -> log::Level {
        match std::mem::replace(&mut self.was_logged, true) {
            false => log::Level::Warn,
            true => log::Level::Info,
        }
    }
}

/// Error code of a connection for which this machine had no socket.
pub const EXHAUSTED: &str = "exhausted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_shrinks_at_once_and_grows_back_slowly() {
        let mut room = Room::new(160);
        assert_eq!(room.widened(), None);
        assert_eq!(room.refused(100), Some(75));
        assert_eq!(room.refused(70), Some(52));
        assert_eq!(room.widened(), Some(55));
        assert_eq!(room.widened(), Some(58));
        for _ in 0..20 {
            room.widened();
        }
        assert_eq!(room.widened(), None);
        assert_eq!(Room::new(1).refused(0), Some(1));
        let mut little = Room::new(10);
        little.refused(2);
        assert_eq!(little.widened(), Some(2), "room for one grows, too");
    }

    #[test]
    fn a_changed_maximum_holds_at_once_unless_the_machine_refused_sockets() {
        let mut room = Room::new(100);
        assert_eq!(room.set_most(10), 10);
        assert_eq!(room.set_most(200), 200);
        room.refused(40);
        assert_eq!(room.set_most(300), 30);
        assert_eq!(room.set_most(20), 20);
        assert_eq!(room.widened(), None);
        assert_eq!(room.set_most(0), 1, "one is always possible");
    }

    #[test]
    fn a_burst_of_refusals_lowers_the_limit_to_the_requests_with_a_socket() {
        // Twenty requests have a socket; eighty of the same moment are refused one, and end one after the
        // other.
        let mut room = Room::new(4096);
        for in_flight in (20..100).rev() {
            room.refused(in_flight + 1);
        }
        assert!((16..=24).contains(&room.present), "{}", room.present);
    }
}
