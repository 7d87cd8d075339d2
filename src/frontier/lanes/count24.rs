//! A number of three bytes: there are millions of lanes.

/// A count of requests in flight, in three bytes: up to 2²⁴ - 1, more than there can be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count24([u8; 3]);

impl Count24 {
    /// Its value.
    pub(super) fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }

    /// Sets it.
    pub(super) fn set(&mut self, count: u32) {
        let [bytes @ .., 0] = count.to_le_bytes() else {
            panic!("fewer than 2^24 requests are in flight");
        };
        self.0 = bytes;
    }

    /// Adds one.
    pub(super) fn add(&mut self) {
        self.set(self.get() + 1);
    }

    /// Subtracts one.
    pub(super) fn subtract(&mut self) {
        self.set(self.get() - 1);
    }

    /// Whether it is zero.
    pub(super) fn is_zero(self) -> bool {
        self.get() == 0
    }
}
