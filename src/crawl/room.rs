//! How many requests our own machine has room for, found out where it refuses sockets or ports.

/// Requests that may be in flight: fewer after a refusal, slowly more after that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    most: usize,
    present: usize,
}

impl Room {
    /// Room for `most`, until the machine says otherwise.
    pub fn new(most: usize) -> Self {
        Room {
            most,
            present: most,
        }
    }

    /// What was asked for.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The machine had no socket for one more beside `in_flight`: a quarter fewer from now on.
    pub fn refused(&mut self, in_flight: usize) -> usize {
        self.present = (self.present.min(in_flight) * 3 / 4).max(1);
        self.present
    }

    /// Called every second: a sixteenth of the whole more, where there are fewer than were asked for.
    pub fn widened(&mut self) -> Option<usize> {
        if self.present == self.most {
            return None;
        }
        self.present = (self.present + (self.most / 16).max(1)).min(self.most);
        Some(self.present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_shrinks_at_once_and_grows_back_slowly() {
        let mut room = Room::new(160);
        assert_eq!(room.widened(), None);
        assert_eq!(room.refused(100), 75);
        assert_eq!(room.refused(100), 56);
        assert_eq!(room.widened(), Some(66));
        for _ in 0..10 {
            room.widened();
        }
        assert_eq!(room.widened(), None);
        assert_eq!(Room::new(1).refused(0), 1);
    }
}
