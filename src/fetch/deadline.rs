//! Deadlines of the phases of a fetch, and the failure when one has passed.

use std::time::Duration;

use super::failure::{Failure, FailureKind};
use super::settings::FetchSettings;
use crate::base::time::Instant;

/// The time at which a phase times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time.
    pub at: Instant,
    /// The phase that then took too long.
    pub phase: Phase,
}

impl Deadline {
    /// A deadline for a phase.
    pub fn new(at: Instant, phase: Phase) -> Self {
        Deadline { at, phase }
    }

    /// The earlier of two; of equal ones, `self`.
    pub fn or(self, other: Deadline) -> Deadline {
        if other.at < self.at { other } else { self }
    }
}

/// The phases that can time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until TCP is established. Also if the timeout of the whole fetch expires in this phase,
    /// unless that is a request's own timeout that is too short to count against the host.
    Connect,
    /// Until a proxy has opened its tunnel, including TCP to the proxy.
    Tunnel,
    /// The TLS handshake.
    Tls,
    /// From the request's departure to the first byte of the final reply.
    FirstByte,
    /// A pause within the reply.
    Idle,
    /// The reply is slower than the minimum rate.
    Rate,
    /// The whole fetch.
    Total,
}

impl Phase {
    /// The stable error code: `first_byte` of `timeout.first_byte`.
    pub const fn code(self) -> &'static str {
        match self {
            Phase::Connect => "connect",
            Phase::Tunnel => "proxy",
            Phase::Tls => "tls",
            Phase::FirstByte => "first_byte",
            Phase::Idle => "idle",
            Phase::Rate => "rate",
            Phase::Total => "total",
        }
    }

    /// Whether it ends because nothing is received, or too little.
    pub const fn is_silence(self) -> bool {
        match self {
            Phase::Connect | Phase::Total => false,
            Phase::Tunnel | Phase::Tls | Phase::FirstByte | Phase::Idle | Phase::Rate => true,
        }
    }

    /// The failure of a fetch whose phase timed out.
    pub fn failure(self) -> Failure {
        let detail = match self {
            Phase::Connect => "no connection within CONNECT_TIMEOUT, or within DOWNLOAD_TIMEOUT",
            Phase::Tunnel => "the proxy opened no tunnel within CONNECT_TIMEOUT",
            Phase::Tls => "the TLS handshake did not end within TLS_TIMEOUT",
            Phase::FirstByte => "no byte of a final reply within FIRST_BYTE_TIMEOUT",
            Phase::Idle => "no byte of the reply within IDLE_TIMEOUT",
            Phase::Rate => "the reply was slower than DOWNLOAD_MIN_RATE",
            Phase::Total => "the fetch did not end within DOWNLOAD_TIMEOUT",
        };
        Failure::new(FailureKind::Timeout, self.code(), detail)
    }
}

/// Tracks arrivals of a reply, to detect silence and a too low rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalMonitor {
    /// The last arrival.
    last: Option<Instant>,
    /// Bytes that a window must bring; 0 disables the minimum rate.
    quota: u64,
    /// Start of the present window, which is when the previous one had reached its quota.
    since: Instant,
    /// Bytes in the present window.
    bytes: u64,
}

impl ArrivalMonitor {
    pub(super) fn new(settings: &FetchSettings) -> Self {
        ArrivalMonitor {
            last: None,
            quota: settings.rate_min.saturating_mul(RATE_WINDOW.as_secs()),
            since: Instant::START,
            bytes: 0,
        }
    }

    pub(super) fn record(&mut self, at: Instant, bytes: u64) {
        // Bytes that arrived before reading was paused have an earlier stamp.
        let at = self.last.map_or(at, |last| last.max(at));
        self.bytes += bytes;
        if self.last.is_none() || self.bytes >= self.quota {
            self.since = at;
            self.bytes = 0;
        }
        self.last = Some(at);
    }

    /// Ends a silence, if the reply has begun.
    pub(super) fn touch(&mut self, at: Instant) {
        self.last = self.last.map(|last| last.max(at));
    }

    /// Starts a new window after a time without reading.
    pub(super) fn resume(&mut self, now: Instant) {
        self.touch(now);
        self.since = self.since.max(now);
        self.bytes = 0;
    }

    /// Returns whether any byte has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// When a silence or a low rate has lasted too long; `None` before the first byte.
    pub(super) fn deadline(&self, settings: &FetchSettings) -> Option<Deadline> {
        let idle = Deadline::new(self.last? + settings.idle_timeout, Phase::Idle);
        if self.quota == 0 {
            return Some(idle);
        }
        Some(idle.or(Deadline::new(self.since + RATE_WINDOW, Phase::Rate)))
    }
}

/// Length of the window for the minimum rate: long enough that a pause is tolerated.
const RATE_WINDOW: Duration = Duration::from_secs(30);
