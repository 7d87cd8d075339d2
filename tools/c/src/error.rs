//! Errors for C: a status, and a message that can be queried.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// What came of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgiopeStatus {
    /// It is done. Of a turn: the crawl goes on.
    Ok = 0,
    /// The crawl is over.
    Over = 1,
    /// There is no room now: try again after a turn.
    Full = 2,
    /// What was said cannot be: `argiope_error` tells what.
    Refused = 3,
    /// We are broken; the crawler is to be freed.
    Broken = 4,
}

thread_local! {
    static ERROR: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Why the last call of this thread that failed did so; null if none has. Belongs to the library, and
/// holds until the thread's next call of another function.
#[unsafe(no_mangle)]
pub extern "C" fn argiope_error() -> *const c_char {
    ERROR.with(|error| {
        error
            .borrow()
            .as_ref()
            .map_or(ptr::null(), |text| text.as_ptr())
    })
}

/// Keeps the sentence, and gives the status it goes with.
pub(crate) fn refuse(why: impl ToString) -> ArgiopeStatus {
    say(why);
    ArgiopeStatus::Refused
}

pub(crate) fn say(why: impl ToString) {
    let text = why.to_string().replace('\0', " ");
    ERROR.with(|error| *error.borrow_mut() = CString::new(text).ok());
}

/// Runs what a function is about. A panic ends here.
pub(crate) fn guarded<T>(broken: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or(panic.downcast_ref::<String>().map(String::as_str));
        say(format!("broken: {}", words.unwrap_or("a panic")));
        broken
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn a_panic_ends_in_a_status_and_a_sentence() {
        let status = guarded(ArgiopeStatus::Broken, || panic!("an {}", "invariant"));
        assert_eq!(status, ArgiopeStatus::Broken);
        // SAFETY: there is a sentence, and nothing is called meanwhile.
        let text = unsafe { CStr::from_ptr(argiope_error()) };
        assert_eq!(text.to_str(), Ok("broken: an invariant"));
    }
}
