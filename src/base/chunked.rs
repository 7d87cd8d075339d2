//! A table that grows without moving its records, so that millions of them are never copied at
//! once.
//!
//! Hand-written: it is a vector of vectors, too little for a dependency.

use std::ops::{Index, IndexMut};

/// Records by dense indices from 0.
///
/// A list of chunks of equal size, of which only the first grows by moving. A `Vec` that doubles at
/// ten million records copies hundreds of megabytes in one turn, and needs half as much memory in
/// addition meanwhile.
#[derive(Clone, Debug)]
pub struct ChunkedVec<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> ChunkedVec<T> {
    /// Number of records per chunk.
    const CHUNK: usize = if size_of::<T>() == 0 {
        CHUNK_BYTES
    } else {
        CHUNK_BYTES / size_of::<T>()
    };

    /// An empty table.
    pub const fn new() -> Self {
        ChunkedVec {
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// Adds a record; its index is the previous length.
    pub fn push(&mut self, record: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::CHUNK => last.push(record),
            Some(_) => {
                let mut chunk = Vec::with_capacity(Self::CHUNK);
                chunk.push(record);
                self.chunks.push(chunk);
            }
            // A small table stays small.
            None => self.chunks.push(vec![record]),
        }
        self.len += 1;
    }

    /// Extends the table to at least `len` records.
    pub fn grow_to(&mut self, len: usize, mut record: impl FnMut() -> T) {
        while self.len < len {
            self.push(record());
        }
    }

    /// The record with this index.
    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks
            .get(index / Self::CHUNK)?
            .get(index % Self::CHUNK)
    }

    /// The record with this index, mutable.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks
            .get_mut(index / Self::CHUNK)?
            .get_mut(index % Self::CHUNK)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All records in the order of their indices, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.chunks[index / Self::CHUNK][index % Self::CHUNK]
    }
}

impl<T> IndexMut<usize> for ChunkedVec<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / Self::CHUNK][index % Self::CHUNK]
    }
}

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        ChunkedVec::new()
    }
}

/// Below the size from which an allocator maps memory page by page, minus alignment overhead below
/// a power of two: with some allocators blocks of exactly that size take a quarter more.
const CHUNK_BYTES: usize = 64 * 1024 - 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_by_index_across_chunks() {
        let mut table = ChunkedVec::new();
        assert!(table.is_empty());
        for number in 0..100_000u64 {
            table.push(number);
        }
        table[70_000] = 7;
        *table.get_mut(99_999).expect("the last") = 9;
        assert_eq!(table.get(100_000), None);
        assert_eq!((table[0], table[8183], table[8184]), (0, 8183, 8184));
        assert_eq!((table[70_000], table[99_999]), (7, 9));
        let sum: u64 = table.iter_mut().map(|number| *number).sum();
        assert_eq!(sum, 99_999 * 50_000 - 70_000 + 7 - 99_999 + 9);
    }

    #[test]
    fn a_grown_table_is_filled_and_never_shrinks() {
        let mut table = ChunkedVec::new();
        table.grow_to(20_000, || [3u8; 5]);
        table.grow_to(10, || [4u8; 5]);
        assert_eq!(table.len(), 20_000);
        assert_eq!(table[19_999], [3; 5]);
    }

    #[test]
    fn growing_does_not_move_records() {
        let mut table = ChunkedVec::new();
        table.grow_to(CHUNK_BYTES, || 0u64);
        let first: *const u64 = &table[0];
        table.grow_to(4 * CHUNK_BYTES, || 0u64);
        assert_eq!(first, &raw const table[0]);
    }
}
