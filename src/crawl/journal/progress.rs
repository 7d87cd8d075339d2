//! How far the reading of a state has come.

/// How far the reading of a state has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// What is being read.
    pub phase: LoadPhase,
    /// Bytes that were read of it.
    pub read: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// What of a state is being read: each once for each segment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadPhase {
    /// The frames of the journal: whether they are intact, and which of them count.
    Check,
    /// The records of the journal.
    Records,
    /// Files of queued requests, by [`State::salvage`](crate::State::salvage).
    Requests,
}

/// Says how far the reading of some bytes has come, some hundred times at most.
pub struct Meter<W> {
    watch: W,
    phase: LoadPhase,
    length: u64,
    next: u64,
}

impl<W: FnMut(LoadProgress)> Meter<W> {
    /// Before so many bytes are read.
    pub fn new(phase: LoadPhase, length: u64, watch: W) -> Self {
        Meter {
            watch,
            phase,
            length,
            next: length.div_ceil(WATCHED),
        }
    }

    /// So many of them were read.
    pub fn note(&mut self, read: u64) {
        if read >= self.next {
            self.next = read + self.length.div_ceil(WATCHED);
            (self.watch)(LoadProgress {
                phase: self.phase,
                read,
                length: self.length,
            });
        }
    }
}

/// How often a reader says how far it has come.
pub const WATCHED: u64 = 400;
