//! Closes the output files by order, so that tools can take them.

use serde_json::json;

use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Closes the output files; the next results begin others. Returns the names of those that are closed: they get
    /// them after the next commit, which need not wait for anything else.
    pub fn rotate_files(&mut self) -> Vec<String> {
        let closed = self.output.rotate();
        if !closed.is_empty() {
            self.journal.await_commit();
        }
        closed
    }

    /// An operator wants the output files closed.
    pub fn order_rotation(&mut self, asked: &Asked) {
        let closed = self.rotate_files();
        let facts = json!({"closed": closed});
        self.acknowledge_order(asked, "rotate", facts.clone(), facts);
    }
}
