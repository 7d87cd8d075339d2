//! Local ports, of which a kernel has only so many for connections to one place.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::time::Instant;

/// Who has which is nobody's affair; only how many are taken for each place.
#[derive(Debug)]
pub(super) struct Ports {
    most: usize,
    /// How long it takes to look at all of them.
    search: Duration,
    taken: BTreeMap<SocketAddr, Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    open: usize,
    /// Until when each port of a connection that we ended in good order is kept.
    resting: VecDeque<Instant>,
}

impl Ports {
    pub(super) fn new(most: usize, search: Duration) -> Self {
        Ports {
            most,
            search,
            taken: BTreeMap::new(),
        }
    }

    /// Takes one for a connection to `to`, unless none is left; and how long that was looked for.
    pub(super) fn take(&mut self, to: SocketAddr, now: Instant) -> (bool, Duration) {
        if self.most == usize::MAX {
            return (true, Duration::ZERO);
        }
        let taken = self.taken.entry(to).or_default();
        while taken.resting.front().is_some_and(|until| *until <= now) {
            taken.resting.pop_front();
        }
        let count = taken.open + taken.resting.len();
        let is_left = count < self.most;
        taken.open += usize::from(is_left);
        let search = match count * 2 >= self.most {
            true => self.search * count as u32 / self.most as u32,
            false => Duration::ZERO,
        };
        (is_left, search)
    }

    /// A connection to `to` is over; `rests`: we ended it, and waited for nobody.
    pub(super) fn give_back(&mut self, to: SocketAddr, rests: bool, now: Instant) {
        if let Some(taken) = self.taken.get_mut(&to) {
            taken.open -= 1;
            if rests {
                taken.resting.push_back(now + TIME_WAIT);
            }
        }
    }
}

/// How long Linux keeps the port of a connection that it was the first to end.
const TIME_WAIT: Duration = Duration::from_secs(60);
