//! Argiope for programs in C. `include/argiope.h` is made from this by cbindgen; a test keeps it so.
//!
//! # Rules
//!
//! - A crawler belongs to one thread at a time: it may move between calls, and no two calls with the
//!   same crawler may run at once. A handle may be used by any thread at any time.
//! - What a function gives as an owned pointer is the caller's, to be given back once to the function
//!   that its comment names. Null may be given back to any of them.
//! - Text goes in as UTF-8 with a zero at its end, and is copied. Text and bytes come out as a
//!   pointer and a length, without a zero, and belong to what they were asked of.
//! - No function calls back into the program, writes to standard output, or installs a signal handler.
//! - Nothing is thrown or unwound out of a function. Where one of ours is broken it says
//!   `ARGIOPE_BROKEN`, and the crawler it was called with does nothing from then on.
//! - Where a function fails, `argiope_error` says why.

mod crawler;
mod error;
mod handle;
mod page;
