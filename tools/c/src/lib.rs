//! C bindings. cbindgen generates `include/argiope.h` from this crate; a test compares the two.
//!
//! # Rules
//!
//! - A crawler belongs to one thread at a time: it may move between calls, and no two calls with the
//!   same crawler may run at once. A handle may be used by any thread at any time.
//! - The caller owns the pointers to crawlers, handles and pages that functions return, and frees each
//!   once with the function named in its comment. Those functions accept null.
//! - Strings are passed as zero-terminated UTF-8, and copied. Strings and bytes of a crawl or a page are
//!   returned as a pointer and a length (`ArgiopeBytes`), without a zero, and belong to the object that
//!   returned them. The strings that are returned as a pointer alone, by `argiope_reason` and `argiope_error`,
//!   end with a zero and belong to the library.
//! - No function calls back into the program, writes to standard output, or installs a signal handler.
//! - No function unwinds. After an internal panic it returns `ARGIOPE_STATUS_BROKEN`, and later calls with the
//!   same crawler do nothing.
//! - After a failed call, `argiope_error` returns the message.

mod arguments;
mod crawler;
mod error;
mod handle;
mod kept;
mod page;
