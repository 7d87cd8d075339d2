//! Receive buffers: of one size, handed out by index, bounded in number.
//!
//! What the kernel fills must not move and must not be allocated per operation, so buffers come
//! in blocks that are never given up. At the bound nothing is handed out: whoever wanted to read
//! waits until a buffer comes back, and the peer feels it.

/// A pool of buffers of `buffer_bytes` each, at most `buffers_max` of them.
#[derive(Debug)]
pub struct Pool {
    buffer_bytes: usize,
    buffers_max: usize,
    /// Each holds `BLOCK` buffers, the last perhaps fewer.
    blocks: Vec<Box<[u8]>>,
    /// Buffers that nobody holds; the one given back last goes out first, while it is in cache.
    free: Vec<u32>,
    /// Whether each buffer is out, so that giving one back twice is noticed.
    out: Vec<bool>,
}

impl Pool {
    /// An empty pool. Memory is taken from the system as it is first needed.
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

    /// Takes a buffer out; `None` at the bound. Its content is whatever was there before.
    pub fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            self.grow();
        }
        let buffer = self.free.pop()?;
        self.out[buffer as usize] = true;
        Some(buffer)
    }

    /// Puts a buffer back.
    pub fn put_back(&mut self, buffer: u32) {
        let out = std::mem::replace(&mut self.out[buffer as usize], false);
        assert!(out, "a buffer is put back once for each time it is taken");
        self.free.push(buffer);
    }

    /// A buffer's bytes, all `buffer_bytes` of them.
    pub fn get(&self, buffer: u32) -> &[u8] {
        let (block, start) = self.place(buffer);
        &self.blocks[block][start..start + self.buffer_bytes]
    }

    /// A buffer's bytes, to be filled.
    pub fn get_mut(&mut self, buffer: u32) -> &mut [u8] {
        let (block, start) = self.place(buffer);
        &mut self.blocks[block][start..start + self.buffer_bytes]
    }

    /// Whether `take` would hand one out.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty() || self.out.len() < self.buffers_max
    }

    /// How many buffers are out.
    pub fn taken(&self) -> usize {
        self.out.len() - self.free.len()
    }

    /// How many bytes one buffer holds.
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
        // Taken from the end, so the first buffer of the block goes out first.
        self.free
            .extend((first..first + count).rev().map(|index| index as u32));
    }

    fn place(&self, buffer: u32) -> (usize, usize) {
        let buffer = buffer as usize;
        (buffer / BLOCK, buffer % BLOCK * self.buffer_bytes)
    }
}

/// Buffers in a block: a megabyte at 16 KiB each, which the system hands over untouched.
const BLOCK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_its_bound_and_recovers() {
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
    #[should_panic(expected = "put back once")]
    fn a_buffer_put_back_twice_is_a_mistake_of_ours() {
        let mut pool = Pool::new(8, 8);
        let buffer = pool.take().expect("a fresh pool has buffers");
        pool.put_back(buffer);
        pool.put_back(buffer);
    }
}
