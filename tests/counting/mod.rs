//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread how often it was asked, and how many bytes
/// that thread took more than it gave back.
pub struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
    static HELD_MOST: Cell<isize> = const { Cell::new(0) };
}

/// How often the calling thread has asked for memory, or for more of it.
pub fn asked() -> usize {
    ASKED.with(Cell::get)
}

/// Bytes that the calling thread holds.
pub fn held() -> isize {
    HELD.with(Cell::get)
}

/// Bytes that it held at the most, since that was forgotten.
pub fn held_most() -> isize {
    HELD_MOST.with(Cell::get)
}

/// What it held before counts no more.
pub fn forget_most() {
    HELD_MOST.with(|most| most.set(held()));
}

fn count() {
    ASKED.with(|asked| asked.set(asked.get() + 1));
}

fn take(bytes: usize) {
    let now = held() + bytes as isize;
    HELD.with(|held| held.set(now));
    HELD_MOST.with(|most| most.set(most.get().max(now)));
}

fn give_back(bytes: usize) {
    HELD.with(|held| held.set(held.get() - bytes as isize));
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        take(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // For a moment there may be both.
        take(size);
        give_back(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
