//! Memory whose address the kernel holds.

#![expect(
    unsafe_code,
    reason = "allocates and frees memory whose address the kernel holds"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A zeroed block of memory that the kernel can read and write. Freed on drop unless it was leaked.
#[derive(Debug)]
pub(super) struct Pinned {
    start: NonNull<u8>,
    layout: Layout,
    is_leaked: bool,
}

// SAFETY: nothing else of ours holds the address, and any thread may free the block.
unsafe impl Send for Pinned {}

impl Pinned {
    /// A block of this layout, whose size is not 0.
    pub fn new(layout: Layout) -> Self {
        assert!(layout.size() > 0, "a block has a size");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        Pinned {
            start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)),
            layout,
            is_leaked: false,
        }
    }

    /// Its first byte, valid for reads and writes of the whole layout until the block is dropped.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Never frees the memory: the kernel can use it as long as the process lives.
    pub fn leak(&mut self) {
        self.is_leaked = true;
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        #[cfg(test)]
        DROPPED.with_borrow_mut(|dropped| match self.is_leaked {
            true => dropped.leaked += 1,
            false => {
                dropped.freed += 1;
                dropped.freed_before_ring += usize::from(!dropped.ring);
            }
        });
        if !self.is_leaked {
            // SAFETY: it was allocated with this layout, and the kernel does not use it, or else it
            // would be leaked.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

/// Rings and blocks that a thread dropped.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dropped {
    /// A ring was closed.
    pub ring: bool,
    pub leaked: usize,
    pub freed: usize,
    /// Those of `freed` that no ring was closed before.
    pub freed_before_ring: usize,
}

#[cfg(test)]
thread_local! {
    pub(super) static DROPPED: std::cell::RefCell<Dropped> = std::cell::RefCell::default();
}
