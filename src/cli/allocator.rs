//! The allocator, which must not hold up a turn of the crawl's loop (`tools/large_pages.rs`).
//!
//! mimalloc returns all freed memory to the kernel at once, in the first call after its delay: 10 to 30 ms
//! after large pages. So a thread does that. The kernel clears a huge page whole where it is first written
//! to: 5 ms and more on a virtual machine whose host has to find the memory first. So [`prepare`] switches
//! them off.

use std::ffi::c_long;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 2 and 3: milliseconds until an allocator call gives memory back.
const PURGE_DELAY: mi_option_t = 15;
/// An hour: only a forced collection gives memory back.
const NEVER: c_long = 3_600_000;
/// Time for which freed memory is kept for later allocations.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Memory may have been freed since the thread last gave some back.
static IS_DUE: AtomicBool = AtomicBool::new(false);
static THREAD: OnceLock<Option<Thread>> = OnceLock::new();

/// Sets up the process, before anything large is allocated: the kernel gives it no huge pages. At a million
/// scopes a page then takes 0 to 0.9 µs longer, at ten million 10 to 15 % (`tools/scope_growth`).
pub fn prepare() {
    // The call fails only on a kernel without huge pages, where it is not needed.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Starts a span of [`KEPT_FOR`], unless one runs already. At its end the thread gives back all memory
/// that is free by then. Cheap enough for every turn; an idle process is not woken.
pub fn give_back_soon() {
    let Some(thread) = THREAD.get_or_init(start) else {
        return;
    };
    if !IS_DUE.load(Ordering::Relaxed) && !IS_DUE.swap(true, Ordering::AcqRel) {
        thread.unpark();
    }
}

/// Starts the thread. If it cannot be started, the allocator keeps its default.
fn start() -> Option<Thread> {
    let thread = thread::Builder::new().name("memory".to_owned());
    let thread = thread.spawn(|| {
        loop {
            while !IS_DUE.swap(false, Ordering::AcqRel) {
                thread::park();
            }
            thread::sleep(KEPT_FOR);
            // A thread that never allocated has nothing to collect from.
            drop(std::hint::black_box(Box::new(0_u8)));
            // SAFETY: it may be called by any thread at any time, and touches only what is free.
            unsafe { mi_collect(true) };
        }
    });
    let thread = thread.ok()?.thread().clone();
    // SAFETY: options may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, NEVER) };
    Some(thread)
}
