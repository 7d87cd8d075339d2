//! Bodies in pieces: the sink's mode for each, the bytes read of them in a turn, and the bodies that are
//! held.

use crate::base::slab::Key;
use crate::crawl::network::socket::HttpSocket;
use crate::fetch::connection::ConnectionEvent;
use crate::io::{Stamp, Waker};
use crate::sink::reply::{Flow, Held, ResumeFn, Resumed};

/// Bytes of one body given to a sink before others have their turn: a few bytes may decode to hundreds of
/// megabytes, which a sink that is always ready would otherwise get all at once.
const GIVEN_AT_ONCE: usize = 1 << 20;

/// Body pieces on their way to a sink that takes bodies in pieces.
#[derive(Debug)]
pub struct Pieces {
    /// Bodies that may be read again.
    resumed: Resumed,
    /// Memory for the present piece.
    piece: Vec<u8>,
    /// Bytes that may still be kept in this turn of bodies that are long or grow by decoding.
    kept_left: usize,
    /// Most bytes kept of them in a turn.
    #[cfg(test)]
    pub kept_max: usize,
    /// Totals over all turns.
    #[cfg(test)]
    pub kept_total: usize,
}

/// Bytes that a turn keeps of bodies that are long or grow by decoding, or reads from the wire for them:
/// some 1.5 ms of decoding, or less of clearing memory in the kernel.
pub const KEPT_PER_TURN: usize = 256 << 10;

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

    /// The next body for which the sink has room again.
    pub fn take_resumed(&mut self) -> Option<Held> {
        self.resumed.take()
    }

    /// Begins a turn, in which [`KEPT_PER_TURN`] bytes may be kept.
    pub fn begin_turn(&mut self) {
        self.kept_left = KEPT_PER_TURN;
    }

    /// Reads from a connection until there is an event or a piece of a body that the sink takes, which is
    /// passed to `give` with the attempt's key. Bytes that may not be read yet are stored.
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

    /// Passes on the received part of a body that the sink takes. `None` if there is nothing.
    fn hand_over(
        &mut self,
        http: &mut HttpSocket,
        give: impl FnOnce(Key, &[u8]) -> Flow,
    ) -> Option<Flow> {
        let exchange = http.connection.exchange_mut()?;
        if !exchange.swap_body(&mut self.piece) {
            return None;
        }
        let flow = give(http.flight.expect("a reply has an attempt"), &self.piece);
        http.given += self.piece.len();
        self.piece.clear();
        Some(flow)
    }
}

/// Result of a read.
pub enum Read {
    /// There may be more in the bytes read.
    Again,
    /// An event.
    Event(ConnectionEvent),
    /// An exchange is over, and the bytes read hold nothing more.
    Last(ConnectionEvent),
    /// The sink has no room for more of the body.
    Full,
    /// The body has used its share of the turn.
    Enough,
    /// It is held: nothing was read.
    Held,
    /// There is no more input.
    All,
}

impl Read {
    /// The same if all input was read.
    pub fn into_last(self) -> Read {
        match self {
            Read::Event(event @ ConnectionEvent::Ended { .. }) => Read::Last(event),
            other => other,
        }
    }
}

/// Most steps in which so many bytes are read: each takes some of them, or is the end of something that has
/// at least one byte.
pub fn steps_max(bytes: usize) -> usize {
    bytes.saturating_mul(4).saturating_add(1024)
}
