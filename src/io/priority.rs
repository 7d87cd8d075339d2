//! The priority of threads beside the loop.

use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;

/// Lowers the priority of this thread: where processors are few, the loop does not wait for one that computes.
pub(super) fn lower_priority(by: i32) {
    let thread = Some(gettid());
    // A system that refuses has it run as before.
    if let Ok(nice) = getpriority_process(thread) {
        let _ = setpriority_process(thread, nice.saturating_add(by).min(NICEST));
    }
}

/// The lowest priority that there is.
const NICEST: i32 = 19;
