//! What buffers take of the machine's memory.

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// Bytes of memory that a buffer takes. Of room that nothing was ever written to the kernel gives the
/// addresses alone, in whole pages; a page may have two mebibytes.
pub fn memory_of(buffer: &Vec<u8>) -> usize {
    if is_room_scarce() {
        return buffer.capacity();
    }
    let written = buffer.len().max(1).next_multiple_of(PAGE);
    buffer.capacity().min(written)
}

/// Whether room that nothing is written to is taken from something all the same: where the process has a
/// limit of addresses or of data (`RLIMIT_AS`, `RLIMIT_DATA`), or the kernel promises no more memory
/// than there is (`vm.overcommit_memory=2`). Asked of the kernel once.
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
    fn room_that_was_never_written_to_takes_no_memory() {
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
