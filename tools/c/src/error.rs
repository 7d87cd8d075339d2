//! Errors for C: a status, and the message of the last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgiopeStatus {
    /// Done. From `argiope_turn`: the crawl is running.
    Ok = 0,
    /// The crawl has ended.
    Over = 1,
    /// There is no room now: take a turn and all pages, then try again.
    Full = 2,
    /// Invalid argument; see `argiope_error`.
    Refused = 3,
    /// Internal panic; free the crawler.
    Broken = 4,
}

thread_local! {
    static ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Message of the last call that failed in this thread; null if none has. It belongs to the library, and
/// is valid until the thread calls another function.
#[unsafe(no_mangle)]
pub extern "C" fn argiope_error() -> *const c_char {
    ERROR.with(|error| {
        error
            .borrow()
            .as_ref()
            .map_or(ptr::null(), |text| text.as_ptr())
    })
}

/// Sets the error message; returns the status of an invalid argument.
pub(crate) fn refuse(why: impl ToString) -> ArgiopeStatus {
    failed(ArgiopeStatus::Refused, why)
}

/// Sets the error message; returns the status.
pub(crate) fn failed(status: ArgiopeStatus, why: impl ToString) -> ArgiopeStatus {
    set_error(why);
    status
}

pub(crate) fn set_error(why: impl ToString) {
    let text = why.to_string().replace('\0', " ");
    ERROR.with(|error| *error.borrow_mut() = CString::new(text).ok());
}

/// Runs the body of a function. A panic sets the error message and returns `broken`.
pub(crate) fn guarded<T>(broken: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().copied();
        let message = message.or(panic.downcast_ref::<String>().map(String::as_str));
        set_error(format!("broken: {}", message.unwrap_or("a panic")));
        broken
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_becomes_a_status_and_a_message() {
        let status = guarded(ArgiopeStatus::Broken, || panic!("an {}", "invariant"));
        assert_eq!(status, ArgiopeStatus::Broken);
        // SAFETY: a message was set, and no other function is called before it is read.
        let text = unsafe { CStr::from_ptr(argiope_error()) };
        assert_eq!(text.to_str(), Ok("broken: an invariant"));
    }
}
