//! Whether standard output was closed when the process began, which the standard library hides.
//!
//! Before `main` it opens /dev/null in place of a closed descriptor: results would be lost without an error. So the
//! descriptor is looked at before that.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};

use super::Usage;

/// Refuses to write data to standard output that was closed.
pub fn check() -> Result<(), Usage> {
    match WAS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Usage(
            "standard output is closed, and the results go there: end the command with > FILE in place of >&-"
                .to_owned(),
        )),
    }
}

/// Called by the start-up code of the C library, before the standard library starts.
extern "C" fn look() {
    let is_closed = fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF);
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}

#[used]
#[expect(
    unsafe_code,
    reason = "there is no other way to run code before the standard library's"
)]
// SAFETY: the section has addresses of functions without a result, whose arguments may be ignored; this one only makes
// a system call and stores a flag, which needs nothing of the standard library.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);
