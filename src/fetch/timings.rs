//! When each phase of an attempt ended, and the latencies that follow from it.

use std::time::Duration;

use crate::base::time::Instant;

/// The ends of an attempt's phases. A phase that did not happen is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The attempt's start: its release by the throttle.
    pub started: Instant,
    /// When throttling allowed the departure.
    pub due: Option<Instant>,
    /// The name was resolved (by a query of this attempt's).
    pub dns: Option<Instant>,
    /// TCP was established for this attempt.
    pub connect: Option<Instant>,
    /// The TLS handshake was complete.
    pub tls_handshake: Option<Instant>,
    /// How long that handshake took, from the ClientHello's departure: our own wait before it is
    /// nobody's latency.
    pub tls_took: Option<Duration>,
    /// The connection was ready to carry the request.
    pub ready: Option<Instant>,
    /// The request departed: just before the system call that sent its first byte.
    pub sent: Option<Instant>,
    /// The first byte of the final reply arrived.
    pub first_byte: Option<Instant>,
    /// The last byte of the final head arrived.
    pub headers: Option<Instant>,
    /// The last byte of the body arrived.
    pub body: Option<Instant>,
    /// The arrival of the head was stamped by the kernel.
    pub kernel: bool,
    /// That stamp is only an upper bound.
    pub bound: bool,
}

impl Timings {
    /// From the request's departure to the last byte of the final head.
    pub fn server_latency(&self) -> Option<Duration> {
        Some(self.headers?.saturating_since(self.sent?))
    }

    /// [`Timings::server_latency`] plus the TLS handshake where this exchange made one.
    pub fn latency(&self) -> Option<Duration> {
        Some(self.server_latency()? + self.tls_took.unwrap_or_default())
    }

    /// How long after it could have left the request left: from the later of due and ready.
    pub fn lateness(&self) -> Option<Duration> {
        let could = self.due?.max(self.ready?);
        Some(self.sent?.saturating_since(could))
    }
}

/// When bytes arrived, and how far that can be trusted: a back end's stamp, as this floor takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the last of them arrived.
    pub at: Instant,
    /// The kernel stamped it.
    pub kernel: bool,
    /// It happened then or before.
    pub bound: bool,
}
