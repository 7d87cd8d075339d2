//! The numbers of attempts: one count for all who draw from it, on whatever thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts attempts, from 1.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// The next number. No two who draw get the same.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The last that was drawn; 0 where none was.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
