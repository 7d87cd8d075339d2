//! Bodies that come in pieces: what the sink wants of each, how much of them is read in a turn, and which
//! are held.

use crate::base::slab::Key;
use crate::crawl::network::socket::HttpSocket;
use crate::fetch::connection::ConnectionEvent;
use crate::io::{Stamp, Waker};
use crate::sink::reply::{Flow, Held, ResumeFn, Resumed};

/// Bytes of one body that a sink is given before others have their turn: a few bytes may decode to
/// hundreds of megabytes, which a sink that is always ready would otherwise get all at once.
const GIVEN_AT_ONCE: usize = 1 << 20;

/// Body pieces on their way to a sink that takes bodies in pieces.
#[derive(Debug)]
pub struct Pieces {
    /// Bodies that may be read on.
    resumed: Resumed,
    /// Memory for the piece on its way.
    piece: Vec<u8>,
    /// Bytes that may still be kept in this turn of bodies that are long or become much more than they
    /// were.
    kept_left: usize,
    /// The most that a turn kept of them.
    #[cfg(test)]
    pub kept_max: usize,
    /// Totals over all turns.
    #[cfg(test)]
    pub kept_total: usize,
}

/// Bytes that a turn keeps of bodies that are long or become much more than they were, or reads of the
/// wire for them: some milliseconds, in which they are decoded, or the kernel clears the memory for them.
pub const KEPT_PER_TURN: usize = 512 << 10;

impl Pieces {
    pub fn new(waker: Waker) -> Self {
        Pieces {
            resumed: Resumed::new(move || waker.wake()),
            piece: Vec::new(),
            kept_left: KEPT_PER_TURN,
            #[cfg(test)]
            kept_max: 0,
            #[cfg(test)]
            kept_total: 0,
        }
    }

    /// Handle that a sink uses to resume a body.
    pub fn resume_fn(&self) -> &ResumeFn {
        self.resumed.resume_fn()
    }

    /// The next body that the sink has room for again.
    pub fn take_resumed(&mut self) -> Option<Held> {
        self.resumed.take()
    }

    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.kept_left = KEPT_PER_TURN;
    }

    /// Reads from a connection until there is an event or a piece of a body, which `give` takes, with the
    /// attempt's key, where the sink takes the body. What may not be read yet is put by.
    pub fn read(
        &mut self,
        http: &mut HttpSocket,
        bytes: &mut &[u8],
        stamp: Stamp,
        give: impl FnOnce(Key, &[u8]) -> Flow,
    ) -> Read {
        if http.held {
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Held;
        }
        if self.kept_left == 0 && http.is_long() {
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Enough;
        }
        let before = http.progress();
        let event = http.connection.handle_bytes(bytes, stamp);
        let flow = self.hand_over(http, give);
        if event == Some(ConnectionEvent::Piece) && http.is_long() {
            let kept = http.kept_since(before);
            self.kept_left = self.kept_left.saturating_sub(kept);
            #[cfg(test)]
            {
                self.kept_max = self.kept_max.max(KEPT_PER_TURN - self.kept_left);
                self.kept_total += kept;
            }
            if self.kept_left > 0 {
                return Read::Again;
            }
            http.put_by(std::mem::take(bytes), stamp);
            return Read::Enough;
        }
        match event {
            Some(ConnectionEvent::Piece) | None if flow == Some(Flow::Full) => {
                http.put_by(std::mem::take(bytes), stamp);
                Read::Full
            }
            Some(ConnectionEvent::Piece) if http.given >= GIVEN_AT_ONCE => {
                http.given = 0;
                http.put_by(std::mem::take(bytes), stamp);
                Read::Enough
            }
            Some(ConnectionEvent::Piece) => Read::Again,
            Some(event) => Read::Event(event),
            None => Read::All,
        }
    }

    /// Gives what there is of a body that the sink takes. `None` where there is nothing.
    fn hand_over(
        &mut self,
        http: &mut HttpSocket,
        give: impl FnOnce(Key, &[u8]) -> Flow,
    ) -> Option<Flow> {
        let exchange = http.connection.exchange_mut()?;
        if !exchange.swap_body(&mut self.piece) {
            return None;
        }
        let flow = give(http.flight.expect("a reply is somebody's"), &self.piece);
        http.given += self.piece.len();
        self.piece.clear();
        Some(flow)
    }
}

/// Result of a read.
pub enum Read {
    /// There may be more in what was read.
    Again,
    /// This has happened.
    Event(ConnectionEvent),
    /// An exchange is over, and nothing more comes of what was read.
    Last(ConnectionEvent),
    /// The sink has no room for more of the body, from now on.
    Full,
    /// As much of the body as one turn allows was read, or given to the sink: it is others' turn.
    Enough,
    /// It is held: nothing was read.
    Held,
    /// There is no more.
    All,
}

impl Read {
    /// The same where all was read that came.
    pub fn into_last(self) -> Read {
        match self {
            Read::Event(event @ ConnectionEvent::Ended { .. }) => Read::Last(event),
            other => other,
        }
    }
}

/// Steps that so many bytes may take to read: each takes some of them or is the end of something that a
/// byte at least belongs to.
pub fn steps_max(bytes: usize) -> usize {
    bytes.saturating_mul(4).saturating_add(1024)
}
