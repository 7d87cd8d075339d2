//! A value with several owners, on several threads perhaps: what a test keeps a hand on while a
//! crawl has it.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// `Rc<RefCell<T>>` for a crawl that may move to another thread. Who borrows waits for who has it.
pub struct Shared<T>(Arc<RwLock<T>>);

impl<T> Shared<T> {
    /// The first owner.
    pub fn new(value: T) -> Self {
        Shared(Arc::new(RwLock::new(value)))
    }

    /// To be looked at.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be changed.
    pub fn borrow_mut(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of it.
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        *self.borrow()
    }

    /// Puts another in its place.
    pub fn set(&self, value: T) {
        *self.borrow_mut() = value;
    }

    /// Takes the value out and leaves the default one.
    pub fn take(&self) -> T
    where
        T: Default,
    {
        std::mem::take(&mut self.borrow_mut())
    }

    /// The value, if this is its last owner.
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
