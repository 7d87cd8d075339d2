//! Configures the allocator so that it does not block the crawl's event loop (`tools/large_pages.rs`).
//!
//! By default, mimalloc returns freed memory to the kernel within an allocation, which takes 10 to 30 ms
//! after large pages; here a separate thread does that. The kernel clears a whole huge page at its first
//! write, which takes 5 ms and more on a virtual machine whose host must provide the memory; [`prepare`]
//! disables huge pages.

use std::ffi::c_long;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 2 and 3: milliseconds until an allocation returns freed memory.
const PURGE_DELAY: mi_option_t = 15;
/// 1 h: in practice, only a forced collection returns memory.
const NEVER: c_long = 3_600_000;
/// Memory is never returned.
const DISABLED: c_long = -1;
/// The default of mimalloc 3, in milliseconds.
const DEFAULT: c_long = 1000;
/// How long freed memory is kept for later allocations.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Whether memory may have been freed since the thread last returned some.
static IS_DUE: AtomicBool = AtomicBool::new(false);
static THREAD: OnceLock<Option<Thread>> = OnceLock::new();

/// Disables huge pages for the process, and the return of freed memory within allocations. Call it before large
/// allocations: memory that is freed under the default delay is returned after that delay.
///
/// Without huge pages a page costs 0 to 0.9 µs more with a million scopes, 10 to 15 % more with ten million
/// (`tools/scope_growth`).
pub fn prepare() {
    // The call fails only on a kernel without huge pages, where it is not needed.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    set_purge_delay(NEVER);
}

/// Starts a timer of [`KEPT_FOR`], unless it runs already, at whose end the thread returns all free memory
/// to the kernel. Cheap enough for every turn; does not wake an idle process.
pub fn give_back_soon() {
    let Some(thread) = THREAD.get_or_init(start) else {
        return;
    };
    if !IS_DUE.load(Ordering::Relaxed) && !IS_DUE.swap(true, Ordering::AcqRel) {
        thread.unpark();
    }
}

/// The process ends soon: what is freed from now on is not returned to the kernel page by page, which takes tens of
/// milliseconds after a large crawl. The end of the process returns all.
#[allow(
    dead_code,
    reason = "tools that include this file have no large crawl at their end"
)]
pub fn leave_to_exit() {
    set_purge_delay(DISABLED);
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
            // A thread without allocations has no heap to collect.
            drop(std::hint::black_box(Box::new(0_u8)));
            // SAFETY: any thread may call it at any time; it accesses free memory only.
            unsafe { mi_collect(true) };
        }
    });
    let Ok(thread) = thread else {
        set_purge_delay(DEFAULT);
        return None;
    };
    Some(thread.thread().clone())
}

fn set_purge_delay(milliseconds: c_long) {
    // SAFETY: options may be set at any time.
    unsafe { mi_option_set(PURGE_DELAY, milliseconds) };
}
