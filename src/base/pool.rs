//! Receive buffers of one size, handed out by index, bounded in number.
//!
//! Memory written by the kernel must not move and must not be allocated per operation, so buffers
//! are allocated in blocks that are never freed. At the bound none is handed out: reading pauses
//! until a buffer is returned, which slows the peer down.

/// A pool of buffers of `buffer_bytes` each, at most `buffers_max` of them.
#[derive(Debug)]
pub struct Pool {
    buffer_bytes: usize,
    buffers_max: usize,
    /// Each has `BLOCK` buffers, the last possibly fewer.
    blocks: Vec<Box<[u8]>>,
    /// Free buffers; the last one returned is reused first, while it is in the cache.
    free: Vec<u32>,
    /// Whether each buffer is taken, to detect double returns.
    out: Vec<bool>,
}

impl Pool {
    /// An empty pool. Memory is allocated when it is first needed.
    pub fn new(buffer_bytes: usize, buffers_max: usize) -> Self {
        assert!(buffer_bytes > 0, "a buffer holds at least a byte");
        assert!(
            buffers_max > 0 && u32::try_from(buffers_max).is_ok(),
            "a pool has at least one buffer, and its indices are 32 bits wide"
        );
        Pool {
            buffer_bytes,
            buffers_max,
            blocks: Vec::new(),
            free: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Takes a buffer; `None` at the bound. Its content is arbitrary.
    pub fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.grow();
        }
        let buffer = self.free.pop()?;
        self.out[buffer as usize] = true;
        Some(buffer)
    }

    /// Returns a buffer.
    pub fn put_back(&mut self, buffer: u32) {
        let out = std::mem::replace(&mut self.out[buffer as usize], false);
        assert!(out, "a buffer is returned once for each time it is taken");
        self.free.push(buffer);
    }

    /// The whole contents of a buffer.
    pub fn get(&self, buffer: u32) -> &[u8] {
        let (block, start) = self.place(buffer);
        &self.blocks[block][start..start + self.buffer_bytes]
    }

    /// The whole contents of a buffer, mutable.
    pub fn get_mut(&mut self, buffer: u32) -> &mut [u8] {
        let (block, start) = self.place(buffer);
        &mut self.blocks[block][start..start + self.buffer_bytes]
    }

    /// Returns whether `take` would succeed.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || self.out.len() < self.buffers_max
    }

    /// Number of buffers taken.
    pub fn taken(&self) -> usize {
        self.out.len() - self.free.len()
    }

    /// Size of a buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn grow(&mut self) {
        let first = self.out.len();
        let count = BLOCK.min(self.buffers_max - first);
        if count == 0 {
            return;
        }
        self.blocks
            .push(vec![0; count * self.buffer_bytes].into_boxed_slice());
        self.out.resize(first + count, false);
        // Taken from the end, so the first buffer of the block is used first.
        self.free
            .extend((first..first + count).rev().map(|index| index as u32));
    }

    fn place(&self, buffer: u32) -> (usize, usize) {
        let buffer = buffer as usize;
        (buffer / BLOCK, buffer % BLOCK * self.buffer_bytes)
    }
}

/// Buffers per block: a megabyte at 16 KiB each, which the system provides untouched.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_grows_to_its_bound_and_recovers() {
        let mut pool = Pool::new(16, BLOCK + 3);
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), BLOCK + 3);
        assert!(!pool.has_free());
        pool.put_back(taken[5]);
        assert!(pool.has_free());
        assert_eq!(pool.taken(), BLOCK + 2);
        assert_eq!(pool.take(), Some(taken[5]));
    }

    #[test]
    fn no_two_buffers_share_a_byte() {
        let mut pool = Pool::new(8, 2 * BLOCK);
        let taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
        for &buffer in &taken {
            pool.get_mut(buffer).fill(buffer as u8);
        }
        for &buffer in &taken {
            assert_eq!(pool.get(buffer), [buffer as u8; 8]);
        }
    }

    #[test]
    #[should_panic(expected = "returned once")]
    fn returning_a_buffer_twice_panics() {
        let mut pool = Pool::new(8, 8);
        let buffer = pool.take().expect("a fresh pool has buffers");
        pool.put_back(buffer);
        pool.put_back(buffer);
    }
}
