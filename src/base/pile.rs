//! A list that is only appended to and then taken as a whole, without moving what it has.
//!
//! Hand-written: it is a vector of vectors, too little for a dependency.

/// Records in the order in which they were added.
///
/// A `Vec` that doubles at a million records moves megabytes in one turn. Here only pieces of some thousand
/// records grow.
#[derive(Debug)]
pub struct Pile<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

/// Records in one piece.
const PIECE: usize = 4096;

impl<T> Pile<T> {
    /// Without records.
    pub const fn new() -> Self {
        Pile {
            pieces: Vec::new(),
            len: 0,
        }
    }

    /// Adds a record.
    pub fn push(&mut self, record: T) {
        self.len += 1;
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => last.push(record),
            _ => self.pieces.push(vec![record]),
        }
    }

    /// Adds all records of another pile, whose pieces are not moved.
    pub fn append(&mut self, mut other: Pile<T>) {
        self.len += other.len;
        self.pieces.append(&mut other.pieces);
    }

    /// Number of pieces of some thousand records at most.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Keeps the records of a piece that satisfy `is_kept`.
    pub fn retain_in_piece(&mut self, piece: usize, is_kept: impl FnMut(&T) -> bool) {
        let piece = &mut self.pieces[piece];
        self.len -= piece.len();
        piece.retain(is_kept);
        self.len += piece.len();
    }

    /// Number of records.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All records, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// The records in pieces of some thousand at most, each of which is freed when it was used.
    pub fn into_pieces(self) -> impl Iterator<Item = Vec<T>> {
        self.pieces.into_iter().filter(|piece| !piece.is_empty())
    }

    /// All records in one vector.
    #[cfg(test)]
    pub fn into_vec(self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len);
        for mut piece in self.pieces {
            all.append(&mut piece);
        }
        all
    }
}

impl<T> Default for Pile<T> {
    fn default() -> Self {
        Pile::new()
    }
}

impl<T> Extend<T> for Pile<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, records: I) {
        records.into_iter().for_each(|record| self.push(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_stay_in_order_and_where_they_are() {
        let mut pile = Pile::new();
        pile.extend(0..PIECE as u64);
        let first: *const u64 = &raw const pile.pieces[0][0];
        pile.extend(PIECE as u64..100_000);
        assert_eq!(first, &raw const pile.pieces[0][0], "it has not moved");
        for piece in 0..pile.pieces() {
            pile.retain_in_piece(piece, |number| {
                number % 3 == 0 && !(10_000..30_000).contains(number)
            });
        }
        let left: Vec<u64> = (0..100_000)
            .filter(|number| number % 3 == 0 && !(10_000..30_000).contains(number))
            .collect();
        assert_eq!(pile.into_vec(), left);
    }

    #[test]
    fn pieces_are_short_and_none_is_empty() {
        let mut pile: Pile<u32> = Pile::new();
        pile.extend(0..50_000);
        for piece in 0..pile.pieces() {
            pile.retain_in_piece(piece, |number| *number >= 20_000);
        }
        let mut other = Pile::new();
        other.extend(0..10_000);
        pile.append(other);
        let pieces: Vec<usize> = pile.into_pieces().map(|piece| piece.len()).collect();
        assert_eq!(pieces.iter().sum::<usize>(), 40_000);
        assert!(pieces.iter().all(|piece| (1..=PIECE).contains(piece)));
    }
}
