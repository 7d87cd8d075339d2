//! What buffers take of the machine's memory.

/// Bytes of memory that a buffer takes. Of room that nothing was ever written to the kernel gives the
/// addresses alone, in whole pages; a page may have two mebibytes.
pub fn memory_of(buffer: &Vec<u8>) -> usize {
    let written = buffer.len().max(1).next_multiple_of(PAGE);
    buffer.capacity().min(written)
}

/// The size of a large page.
const PAGE: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_was_never_written_to_takes_no_memory() {
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(memory_of(&buffer), 100);
        buffer.push(1);
        buffer.reserve_exact(10 << 20);
        assert_eq!(memory_of(&buffer), 2 << 20);
        buffer.resize(3 << 20, 1);
        assert_eq!(memory_of(&buffer), 4 << 20);
    }
}
