//! Results taken one by one by the crawl's owner, in place of a sink.

use crate::sink::page::Page;
use crate::sink::pull::Results;

/// The receiving end of the sink, and the behaviour of its owner.
#[derive(Debug)]
pub struct Pull {
    results: Results,
    owner: Owner,
}

/// Behaviour of the owner of waiting results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Results are taken, or there are none.
    Takes,
    /// The last turn ended with waiting results, and none was taken since.
    Notified,
    /// Another turn was taken although results waited.
    Ignores,
}

impl Pull {
    pub fn new(results: Results) -> Self {
        Pull {
            results,
            owner: Owner::Takes,
        }
    }

    /// The receiving end.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// No owner takes results.
    pub fn give_up(&self) {
        self.results.give_up();
    }

    /// Each result is to be acknowledged.
    pub fn keep_unacknowledged(&self) {
        self.results.keep_unacknowledged();
    }

    /// The owner does not lose this result any more.
    pub fn acknowledge(&self, id: u64) {
        self.results.acknowledge(id);
    }

    /// Whether a commit waits for the owner to acknowledge results, which it has taken.
    pub fn is_unacknowledged(&self) -> bool {
        self.results.is_unacknowledged()
    }

    /// Whether a commit waits for results that no owner acknowledges any more.
    pub fn is_abandoned(&self) -> bool {
        self.results.is_abandoned()
    }

    /// Whether no result waits.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        if self.owner == Owner::Notified {
            self.owner = Owner::Ignores;
        }
    }

    /// A turn ends.
    pub fn end_turn(&mut self) {
        if self.owner == Owner::Takes && !self.results.is_empty() {
            self.owner = Owner::Notified;
        }
    }

    /// Whether to return at once to an owner that takes the waiting results.
    pub fn is_pressing(&self) -> bool {
        self.owner != Owner::Ignores && !self.results.is_empty()
    }

    /// The next result.
    pub fn take(&mut self) -> Option<Page> {
        self.owner = Owner::Takes;
        self.results.take()
    }
}
