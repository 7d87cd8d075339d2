//! Submitted requests that the crawl has and does not fetch: they bound what handles submit.

use hashbrown::HashMap;

use crate::base::secret::Known;

/// The requests of handles that have not ended, by their numbers.
///
/// They enter by [`Ahead::handle_taken`] and leave by [`Ahead::handle_end`]. Every number ends once, by a final page or
/// with the crawl, so none stays behind.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Whether an attempt of each is in flight.
    open: HashMap<u64, bool, Known>,
    /// Number of those in flight.
    fetched: usize,
    /// Whether [`Ahead::unfetched`] may have changed since it was last taken.
    has_changed: bool,
}

impl Ahead {
    /// A request was taken from the inbox.
    pub fn handle_taken(&mut self, id: u64) {
        self.open.insert(id, false);
        self.has_changed = true;
    }

    /// An attempt of the request of this number took off, or its flight is over.
    pub fn handle_flight(&mut self, root: u64, is_in_flight: bool) {
        let Some(is_fetched) = self.open.get_mut(&root) else {
            return;
        };
        let was_fetched = std::mem::replace(is_fetched, is_in_flight);
        self.fetched = self.fetched + usize::from(is_in_flight) - usize::from(was_fetched);
        self.has_changed |= was_fetched != is_in_flight;
    }

    /// The request of this number has its final page.
    pub fn handle_end(&mut self, root: u64) {
        if let Some(was_fetched) = self.open.remove(&root) {
            self.fetched -= usize::from(was_fetched);
            self.has_changed = true;
        }
    }

    /// Number of requests that wait or are processed: none of their attempts is in flight.
    pub fn unfetched(&self) -> usize {
        self.open.len() - self.fetched
    }

    /// The same, if it may have changed since the last call.
    pub fn take_change(&mut self) -> Option<usize> {
        std::mem::take(&mut self.has_changed).then(|| self.unfetched())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_while_none_of_its_attempts_is_in_flight() {
        let mut ahead = Ahead::default();
        let check = |ahead: &mut Ahead, expected| {
            assert_eq!(ahead.unfetched(), expected);
            assert_eq!(ahead.take_change(), Some(expected));
            assert_eq!(ahead.take_change(), None);
        };
        ahead.handle_taken(7);
        ahead.handle_taken(9);
        check(&mut ahead, 2);
        ahead.handle_flight(7, true);
        check(&mut ahead, 1);
        // A retry waits.
        ahead.handle_flight(7, false);
        check(&mut ahead, 2);
        ahead.handle_flight(7, true);
        ahead.handle_flight(7, false);
        ahead.handle_end(7);
        check(&mut ahead, 1);
        // Cancelled in flight: its end comes first.
        ahead.handle_flight(9, true);
        ahead.handle_end(9);
        ahead.handle_flight(9, false);
        check(&mut ahead, 0);
    }

    #[test]
    fn requests_of_others_do_not_count() {
        let mut ahead = Ahead::default();
        ahead.handle_flight(1, true);
        ahead.handle_flight(1, false);
        ahead.handle_end(1);
        assert_eq!((ahead.unfetched(), ahead.take_change()), (0, None));
    }
}
