//! Local ports, of which a kernel has a limited number per destination.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use crate::base::time::Instant;

/// Counts the ports in use for each destination.
#[derive(Debug)]
pub(super) struct Ports {
    most: usize,
    /// How long a search of all of them takes.
    search: Duration,
    taken: BTreeMap<SocketAddr, Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    open: usize,
    /// When each port in TIME_WAIT becomes free.
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

    /// Takes a port for a connection to `to`, unless none is left; with the duration of the search.
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

    /// A connection to `to` is over; `rests`: we ended it first, so its port stays in TIME_WAIT.
    pub(super) fn give_back(&mut self, to: SocketAddr, rests: bool, now: Instant) {
        if let Some(taken) = self.taken.get_mut(&to) {
            taken.open -= 1;
            if rests {
                taken.resting.push_back(now + TIME_WAIT);
            }
        }
    }
}

/// How long Linux keeps a port in TIME_WAIT.
const TIME_WAIT: Duration = Duration::from_secs(60);
