//! State of a connection's input in the epoll back end.

use crate::base::time::Instant;
use crate::io::sockets::socket::Socket;
use crate::io::sockets::{Input, Kind};
use crate::io::stamps::PollWindow;

/// A connection's input as edges and reads show it.
#[derive(Debug)]
pub(super) struct Reading {
    /// There was an edge, and the socket has not been drained since.
    pub(super) unread: Option<Unread>,
    /// The kernel's count of segments with bytes at a moment when all of them had been read.
    segments: Option<u32>,
}

/// How the bytes of a read arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// In one segment or datagram, whose stamp this is.
    SingleSegment,
    /// In one or more.
    Unknown,
    /// Segments waited for a missing one, now or earlier: the stamp can be older than that.
    OutOfOrder,
}

/// Something to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unread {
    pub(super) before: PollWindow,
    /// An end or an error follows the bytes, without an edge of its own.
    pub(super) ending: bool,
}

impl Input for Reading {
    fn new(kind: Kind, _: Instant) -> Self {
        Reading {
            unread: None,
            segments: (kind == Kind::Stream).then_some(0),
        }
    }

    fn is_pending(&self) -> bool {
        self.unread.is_some()
    }
}

impl Reading {
    /// How the bytes of a read arrived. The kernel is queried if `queries`. `counted`: segments before the
    /// read; `drained`: it left none.
    pub(super) fn arrived(
        &mut self,
        socket: &Socket,
        queries: bool,
        counted: Option<u32>,
        drained: bool,
    ) -> Arrived {
        let known = self.segments.take();
        self.segments = counted.filter(|_| drained);
        let received = if queries { socket.received() } else { None };
        let Some(received) = received else {
            return Arrived::Unknown;
        };
        if received.out_of_order > 0 {
            return Arrived::OutOfOrder;
        }
        // A segment that came after the read is counted as well: if there was only one, that was read.
        if known.is_none_or(|known| received.segments.wrapping_sub(known) != 1) {
            return Arrived::Unknown;
        }
        self.segments = Some(received.segments).filter(|_| drained);
        Arrived::SingleSegment
    }

    /// Counts the segments so far, if nothing waits to be read, for [`Reading::arrived`].
    pub(super) fn count_segments(&mut self, socket: &Socket, kind: Kind) {
        if kind == Kind::Stream && self.segments.is_none() && self.unread.is_none() {
            self.segments = socket.segments();
        }
    }
}
