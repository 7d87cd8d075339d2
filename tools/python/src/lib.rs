//! Argiope for programs in Python: a crawl as an object with a descriptor, for any loop; `asyncio` has
//! it as an iterator, in `python/argiope/__init__.py`.
//!
//! The interpreter's lock is given up while a turn is taken, and no Python runs inside of one.

mod crawler;
mod handle;
mod page;
mod setting;

use pyo3::prelude::*;

/// The binary's own: a page is freed long after it came, once its program has looked at it, and for that
/// glibc's is slow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is written in Rust of the package `argiope`.
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
