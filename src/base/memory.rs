//! Memory occupied by buffers.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// Bytes of memory occupied by a buffer. For capacity that was never written to, the kernel
/// reserves only addresses, in whole pages; a page may have two mebibytes.
pub fn memory_of(buffer: &Vec<u8>) -> usize {
    if is_room_scarce() {
        return buffer.capacity();
    }
    let written = buffer.len().max(1).next_multiple_of(PAGE);
    buffer.capacity().min(written)
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

/// The size of a large page.
const PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::loud;

    #[test]
    fn untouched_capacity_uses_no_memory() {
        if is_room_scarce() {
            return loud::skip("memory is limited here");
        }
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(memory_of(&buffer), 100);
        buffer.push(1);
        buffer.reserve_exact(10 << 20);
        assert_eq!(memory_of(&buffer), 2 << 20);
        buffer.resize(3 << 20, 1);
        assert_eq!(memory_of(&buffer), 4 << 20);
    }
}
