//! Memory occupied by buffers.

use std::fs;
use std::sync::OnceLock;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::thread::transparent_huge_pages_are_disabled;

/// Bytes of memory occupied by a buffer. For capacity that was never written to, the kernel
/// reserves only addresses, in whole pages; where it has huge pages, a page may have two mebibytes. Small
/// buffers are reused, so that all of their memory may have been written to.
pub fn memory_of(buffer: &Vec<u8>) -> usize {
    if is_room_scarce() || buffer.capacity() <= REUSED_MAX {
        return buffer.capacity();
    }
    let written = buffer.len().max(1).next_multiple_of(page_max());
    buffer.capacity().min(written)
}

/// What a buffer is expected to hold in total, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// So many, as far as its sender can be believed.
    Declared(usize),
    /// Any number up to this.
    AtMost(usize),
}

/// Reserves space for `bytes` more bytes in a buffer.
///
/// Repeated doubling would copy a long buffer several times, into memory that the kernel must clear first,
/// and block everything else for milliseconds. So a buffer grows to what is expected, in steps that are
/// bounded by what it holds: a peer that declares much and sends little makes it take little.
pub fn make_room(buffer: &mut Vec<u8>, bytes: usize, expected: Expected) {
    let needed = buffer.len().saturating_add(bytes);
    if needed <= buffer.capacity() || is_room_scarce() {
        return;
    }
    let whole = match expected {
        Expected::Declared(all) if needed <= ROOM_FIRST => all.min(ROOM_FIRST).max(needed),
        Expected::Declared(all) if needed <= ROOM_SECOND => all.min(ROOM_SECOND).max(needed),
        // It doubles.
        Expected::AtMost(_) if needed <= ROOM_SECOND => return,
        Expected::Declared(most) | Expected::AtMost(most) => {
            let room_max = needed.saturating_mul(ROOM_FACTOR).max(ROOM_LEAST);
            match needed <= most {
                // The last bytes read may exceed the body's limit until it is cut.
                true => most.saturating_add(LONG).min(room_max).max(needed),
                // The framing of chunks is added to what was expected, and may be many times as much.
                false => room_max,
            }
        }
    };
    // If this much is not available, it grows as any other buffer.
    let _ = buffer.try_reserve_exact(whole - buffer.len());
}

/// Returns whether untouched capacity counts against a limit: the process has a limit of address
/// space or data (`RLIMIT_AS`, `RLIMIT_DATA`), or the kernel does not overcommit memory
/// (`vm.overcommit_memory=2`). Queried once.
pub fn is_room_scarce() -> bool {
    static SCARCE: OnceLock<bool> = OnceLock::new();
    *SCARCE.get_or_init(|| {
        let is_limited = |resource| getrlimit(resource).current.is_some();
        let promises = fs::read_to_string("/proc/sys/vm/overcommit_memory");
        is_limited(Resource::As)
            || is_limited(Resource::Data)
            || promises.is_ok_and(|promises| promises.trim() == "2")
    })
}

/// The size of the largest pages that the kernel may give to the process unasked. Queried once.
fn page_max() -> usize {
    static PAGE_MAX: OnceLock<usize> = OnceLock::new();
    *PAGE_MAX.get_or_init(|| {
        let is_off = transparent_huge_pages_are_disabled().unwrap_or(false)
            || fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .is_ok_and(|enabled| !enabled.contains("[always]"));
        if is_off { page_size() } else { PAGE_HUGE }
    })
}

/// A body is long from this many bytes on.
pub const LONG: usize = 1 << 20;

/// Bytes of a buffer that is emptied and used again.
pub const REUSED_MAX: usize = 32 << 10;

/// Space for the first bytes of a buffer whose length is declared: those of one read.
const ROOM_FIRST: usize = 16 << 10;

/// Space for its next bytes; and a buffer of unknown length doubles until it has more.
const ROOM_SECOND: usize = 256 << 10;

/// Bounds of the space reserved for more bytes: this many, or this many times those it holds. Untouched
/// memory costs only address space; memory that an earlier buffer has left to the allocator is not counted
/// before it is written to again.
const ROOM_LEAST: usize = 64 << 20;
const ROOM_FACTOR: usize = 8;

/// The size of a huge page.
const PAGE_HUGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::loud;

    #[test]
    fn all_of_a_buffer_that_is_used_again_counts() {
        let mut buffer = Vec::with_capacity(REUSED_MAX);
        assert_eq!(memory_of(&buffer), REUSED_MAX);
        buffer.push(1);
        buffer.clear();
        assert_eq!(memory_of(&buffer), REUSED_MAX);
    }

    #[test]
    fn untouched_capacity_uses_no_memory() {
        if is_room_scarce() {
            return loud::skip("memory is limited here");
        }
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(memory_of(&buffer), 100);
        buffer.push(1);
        buffer.reserve_exact(10 << 20);
        assert_eq!(memory_of(&buffer), page_max());
        buffer.resize((2 << 20) + 1, 1);
        assert_eq!(memory_of(&buffer), (2 << 20) + page_max());
    }

    /// The capacities of a buffer that grows by 1 KiB to so many bytes.
    fn capacities(all: usize, expected: Expected) -> Vec<usize> {
        let mut buffer: Vec<u8> = Vec::new();
        let mut capacities = Vec::new();
        while buffer.len() < all {
            make_room(&mut buffer, 1 << 10, expected);
            buffer.resize(buffer.len() + (1 << 10), 1);
            capacities.push(buffer.capacity());
        }
        capacities.dedup();
        capacities
    }

    #[test]
    fn a_buffer_of_declared_length_grows_in_steps_bounded_by_what_it_holds() {
        if is_room_scarce() {
            return loud::skip("memory is limited here");
        }
        let declared = |all| capacities(all, Expected::Declared(all));
        assert_eq!(declared(10 << 10), [10 << 10]);
        assert_eq!(declared(100 << 10), [16 << 10, 100 << 10]);
        assert_eq!(declared(2 << 20), [16 << 10, 256 << 10, 3 << 20]);
        let lying = capacities(300 << 10, Expected::Declared(usize::MAX));
        assert_eq!(lying, [16 << 10, 256 << 10, 64 << 20]);
    }

    #[test]
    fn a_buffer_of_unknown_length_doubles_before_it_is_long() {
        if is_room_scarce() {
            return loud::skip("memory is limited here");
        }
        let unknown = capacities(2 << 20, Expected::AtMost(10 << 20));
        let (last, first) = unknown.split_last().expect("it grew");
        assert_eq!(*last, 11 << 20);
        assert!(first.iter().all(|room| *room <= 256 << 10), "{first:?}");
        assert_eq!(capacities(1 << 10, Expected::AtMost(10 << 20)), [1 << 10]);
    }
}
