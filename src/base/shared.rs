//! A value with several owners, possibly on several threads, so that a test can observe what a crawl uses.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Like `Rc<RefCell<T>>`, for a crawl that may move to another thread. Borrowing blocks while the
/// value is borrowed elsewhere.
pub struct Shared<T>(Arc<RwLock<T>>);

impl<T> Shared<T> {
    /// Creates the value with its first owner.
    pub fn new(value: T) -> Self {
        Shared(Arc::new(RwLock::new(value)))
    }

    /// Borrows for reading.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Borrows for writing.
    pub fn borrow_mut(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the value.
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        *self.borrow()
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.borrow_mut() = value;
    }

    /// Takes the value out and leaves the default.
    pub fn take(&self) -> T
    where
        T: Default,
    {
        std::mem::take(&mut self.borrow_mut())
    }

    /// The value, if this is its only owner.
    pub fn into_inner(self) -> Option<T> {
        let lock = Arc::into_inner(self.0)?;
        Some(lock.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Shared::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
