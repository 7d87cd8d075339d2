//! Python bindings: a crawl as an object with a descriptor, for any event loop.
//! `python/argiope/__init__.py` adds an asynchronous iterator for `asyncio`.
//!
//! A turn releases the interpreter lock and runs no Python code.

mod crawler;
mod handle;
mod kept;
mod page;
mod setting;

use pyo3::prelude::*;

/// The allocator of the command: a page is freed long after it was allocated, which is slow with glibc's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The part of the package `argiope` that is written in Rust.
#[pymodule]
mod _argiope {
    #[pymodule_export]
    use super::crawler::Crawler;
    #[pymodule_export]
    use super::crawler::Pages;
    #[pymodule_export]
    use super::handle::Full;
    #[pymodule_export]
    use super::handle::Handle;
    #[pymodule_export]
    use super::handle::Over;
    #[pymodule_export]
    use super::page::Page;
}
