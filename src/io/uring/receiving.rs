//! State of a connection's input in the io_uring back end.
//!
//! An open socket's receive operation has states of its own:
//! ```text
//!  ┌──────── last completion ─────────┬─────────────┐
//!  ▼                                  │             │
//! Off ── wanted ──► Queued ── submitted ──► Armed ── cancelled ──► Stopping
//!  ▲                                  │
//!  └── buffers freed ──── Starved ◄───┘ no buffers
//! ```

use super::buffers::Queue;
use crate::base::time::Instant;
use crate::io::sockets::socket::{Received, Socket};
use crate::io::sockets::{Input, Kind};
use crate::io::{NetError, Stamp};

/// A connection's input as completions show it.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) receive: Receive,
    /// Whether a poll for writability is active or to be started.
    pub(super) polling_writable: bool,
    /// Received and not reported yet.
    pub(super) unreported: Queue,
    /// Reported after those bytes.
    pub(super) ending: Option<Ending>,
    pub(super) gap: Gap,
    arrivals: Arrivals,
}

/// State of a receive operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    Off,
    /// To be submitted.
    Queued,
    Armed,
    /// Cancelled; the last completion is outstanding.
    Stopping,
    /// It ended for want of buffers and waits for them.
    Starved,
}

/// What follows the last bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    Fin(Stamp),
    Failure(NetError),
}

/// The last period in which no receive was active.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// How bytes arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Each segment or datagram separately, so that no stamp replaced another.
    SingleSegment,
    /// Possibly several together.
    Unknown,
    /// The same, and segments waited for a missing one, now or earlier: the stamp can be older than
    /// that.
    OutOfOrder,
}

/// Counts that show whether arrivals were single segments, whose stamps are their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    /// Arrivals since segments were counted.
    since: u32,
    /// The kernel's count of segments then.
    segments: u32,
    /// One arrival filled its buffer, so a segment may have made two arrivals.
    cut: bool,
    /// No receive is active, so segments may wait in the kernel.
    stopped: bool,
    /// Arrivals noted and not judged.
    pending: u32,
    /// The first of those: they came before segments were counted.
    uncounted: u32,
}

impl Input for Receiving {
    fn new(_: Kind, started: Instant) -> Self {
        Receiving {
            receive: Receive::Off,
            polling_writable: false,
            unreported: Queue::default(),
            ending: None,
            gap: Gap {
                since: started,
                until: Instant::FAR_FUTURE,
            },
            arrivals: Arrivals::default(),
        }
    }

    fn is_pending(&self) -> bool {
        !self.unreported.is_empty() || self.ending.is_some()
    }

    fn is_unread(&self) -> bool {
        // While no receive is active, input may wait in the kernel.
        self.is_pending() || self.receive != Receive::Armed
    }
}

impl Receiving {
    /// Notes an arrival; `cut` if it filled its buffer.
    pub(super) fn note_arrival(&mut self, cut: bool) {
        self.arrivals.since = self.arrivals.since.wrapping_add(1);
        self.arrivals.pending += 1;
        self.arrivals.cut |= cut;
    }

    /// Notes whether a receive is active.
    pub(super) fn receives(&mut self, on: bool) {
        self.arrivals.stopped = !on;
    }

    /// The next noted arrival is judged.
    pub(super) fn note_judged(&mut self) {
        self.arrivals.pending -= 1;
        self.arrivals.uncounted = self.arrivals.uncounted.saturating_sub(1);
    }

    /// How the next arrival came, by the kernel's count of segments against that of noted arrivals.
    ///
    /// `all_seen` returns whether every arrival was noted.
    pub(super) fn arrived(&mut self, socket: &Socket, all_seen: impl FnOnce() -> bool) -> Arrived {
        let Some(Received {
            segments,
            out_of_order,
        }) = socket.received()
        else {
            return Arrived::Unknown;
        };
        let arrivals = self.arrivals;
        let came = segments.wrapping_sub(arrivals.segments);
        if !arrivals.cut && came == arrivals.since && arrivals.uncounted == 0 {
            return Arrived::SingleSegment;
        }
        if out_of_order > 0 {
            // A counted segment may still wait for a missing one.
            return Arrived::OutOfOrder;
        }
        // The count can be reset, unless a counted segment was not recorded.
        if !arrivals.stopped && all_seen() {
            self.arrivals = Arrivals {
                segments,
                pending: arrivals.pending,
                uncounted: arrivals.pending,
                ..Arrivals::default()
            };
        }
        Arrived::Unknown
    }

    /// Whether to receive for a caller who wants to read. Bounds the unreported bytes.
    pub(super) fn wants_receive(&self, unreported_max: usize) -> bool {
        self.ending.is_none() && self.unreported.bytes() < unreported_max
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn where_segments_came_together_no_arrival_counts_as_a_single_segment() {
        let (socket, mut peer) = Socket::connected();
        let mut receiving = Receiving::new(Kind::Stream, Instant::START);
        let mut send = |segments| {
            (0..segments).for_each(|_| peer.write_all(b"!").expect("the socket is open"))
        };
        let judge = |receiving: &mut Receiving| {
            let arrived = receiving.arrived(&socket, || true);
            receiving.note_judged();
            arrived
        };
        send(2);
        (0..2).for_each(|_| receiving.note_arrival(false));
        assert_eq!(judge(&mut receiving), Arrived::SingleSegment);
        assert_eq!(judge(&mut receiving), Arrived::SingleSegment);
        // Three segments made two arrivals: either may be two of them.
        send(3);
        (0..2).for_each(|_| receiving.note_arrival(false));
        assert_eq!(judge(&mut receiving), Arrived::Unknown);
        assert_eq!(judge(&mut receiving), Arrived::Unknown);
        send(1);
        receiving.note_arrival(false);
        assert_eq!(judge(&mut receiving), Arrived::SingleSegment);
    }
}
