//! By when each phase of a fetch must have ended, and what it is called when it has not.

use std::time::Duration;

use super::failure::{Failure, FailureKind};
use super::settings::Settings;
use crate::base::time::Instant;

/// The moment at which a phase is out of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The moment.
    pub at: Instant,
    /// What then took too long.
    pub phase: Phase,
}

impl Deadline {
    /// A deadline for a phase.
    pub fn new(at: Instant, phase: Phase) -> Self {
        Deadline { at, phase }
    }

    /// The earlier of two; of two at once, `self`.
    pub fn or(self, other: Deadline) -> Deadline {
        if other.at < self.at { other } else { self }
    }
}

/// What can take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until TCP is established, whether it is this phase or the whole fetch that is out of time, but for
    /// a request whose own timeout is too short to count against the peer.
    Connect,
    /// Until a proxy has made its tunnel, TCP to the proxy included.
    Tunnel,
    /// The TLS handshake.
    Tls,
    /// From the request's departure to the first byte of the final reply.
    FirstByte,
    /// A silence within the reply.
    Idle,
    /// The reply comes, but too slowly to be worth the wait.
    Rate,
    /// The whole fetch.
    Total,
}

impl Phase {
    /// The stable code: `first_byte` of `timeout.first_byte`.
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

    /// The failure of a fetch whose phase ran out of time.
    pub fn failure(self) -> Failure {
        let detail = match self {
            Phase::Connect => "no connection within CONNECT_TIMEOUT, or within DOWNLOAD_TIMEOUT",
            Phase::Tunnel => "the proxy made no tunnel within CONNECT_TIMEOUT",
            Phase::Tls => "the TLS handshake did not end within TLS_TIMEOUT",
            Phase::FirstByte => "no byte of a final reply within FIRST_BYTE_TIMEOUT",
            Phase::Idle => "the reply fell silent for IDLE_TIMEOUT",
            Phase::Rate => "the reply came more slowly than DOWNLOAD_MIN_RATE",
            Phase::Total => "the fetch did not end within DOWNLOAD_TIMEOUT",
        };
        Failure::new(FailureKind::Timeout, self.code(), detail)
    }
}

/// The beat of a reply's arrivals, by which a silence or a trickle is told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulse {
    /// The last arrival.
    last: Option<Instant>,
    /// What a window must bring; 0 asks for nothing.
    quota: u64,
    /// When the present window began, which is when the one before had brought its quota.
    since: Instant,
    /// What the present window has brought.
    bytes: u64,
}

impl Pulse {
    pub(super) fn new(settings: &Settings) -> Self {
        Pulse {
            last: None,
            quota: settings.rate_min.saturating_mul(RATE_WINDOW.as_secs()),
            since: Instant::START,
            bytes: 0,
        }
    }

    pub(super) fn beat(&mut self, at: Instant, bytes: u64) {
        // What had arrived before it was kept waiting is stamped so.
        let at = self.last.map_or(at, |last| last.max(at));
        self.bytes += bytes;
        if self.last.is_none() || self.bytes >= self.quota {
            self.since = at;
            self.bytes = 0;
        }
        self.last = Some(at);
    }

    /// Ends a silence, if the reply has begun at all.
    pub(super) fn touch(&mut self, at: Instant) {
        self.last = self.last.map(|last| last.max(at));
    }

    /// Begins anew after a time in which nothing was read.
    pub(super) fn resume(&mut self, now: Instant) {
        self.touch(now);
        self.since = self.since.max(now);
        self.bytes = 0;
    }

    /// Whether any byte has come.
    pub(super) fn has_begun(&self) -> bool {
        self.last.is_some()
    }

    /// When a silence or a trickle has lasted too long; `None` before the first byte.
    pub(super) fn deadline(&self, settings: &Settings) -> Option<Deadline> {
        let idle = Deadline::new(self.last? + settings.idle_timeout, Phase::Idle);
        if self.quota == 0 {
            return Some(idle);
        }
        Some(idle.or(Deadline::new(self.since + RATE_WINDOW, Phase::Rate)))
    }
}

/// Over how long the minimum rate is looked at: long enough for a pause to be forgiven.
const RATE_WINDOW: Duration = Duration::from_secs(30);
