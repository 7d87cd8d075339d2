//! When each phase of an attempt ended, and the latencies computed from it.

use std::fmt;
use std::time::Duration;

use crate::base::stamp::Stamp;
use crate::base::time::Instant;

/// End times of an attempt's phases. A phase that did not happen is `None`: a reused connection has
/// no `dns`, `connect` or `tls_handshake` (`KEEPALIVE_MAX=0` reuses none), and a cached address has
/// no `dns` (cached for its TTL, at least 30 s and at most a day).
///
/// An arrival is a [`Stamp`], which bounds how precisely it is known. [`Timings::spans`] has the duration
/// of each phase; any other span between two of them is `later.saturating_since(earlier)`. The time of
/// a failure is not included: see [`Page::ended`](crate::Page::ended).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timings {
    /// The attempt's start: its release by the throttle.
    pub started: Instant,
    /// When throttling allowed the departure.
    pub due: Option<Instant>,
    /// The name was resolved (by a query that this attempt waited for). The attempt's start is
    /// earlier by the time from the query's departure to the arrival of the answer.
    pub dns: Option<Instant>,
    /// TCP was established for this attempt. It is an upper bound if the kernel measured no round
    /// trip, for example of a retransmitted SYN, so that our own late observation counts; or if our
    /// thread was delayed while sending.
    pub connect: Option<Stamp>,
    /// How long that took since the departure of the SYN; delays on our side before it are not
    /// counted. An upper bound if `connect` is one.
    pub connect_took: Option<Duration>,
    /// The TLS handshake was complete, on a connection that carried no exchange before. It may have
    /// been complete before this attempt started: see [`Timings::tls_handshake`]. Its slack is how
    /// much `tls_took` may be too long.
    pub secured: Option<Stamp>,
    /// How long that handshake took since the departure of the ClientHello; our own wait before it
    /// is not counted. A [resumed](crate::TlsInfo::resumed) session takes less; sessions are
    /// resumed wherever a server permits it.
    pub tls_took: Option<Duration>,
    /// The connection was ready to carry the request.
    pub ready: Option<Instant>,
    /// The request departed: the time just before the system call that sent its first byte.
    pub sent: Option<Instant>,
    /// The request may have departed up to this much later, because our thread was delayed while
    /// sending.
    pub sent_slack: Duration,
    /// The first byte of the final reply arrived.
    pub first_byte: Option<Stamp>,
    /// The last byte of the final head arrived.
    pub headers: Option<Stamp>,
    /// The last byte of the body arrived. If only the end of the connection shows that it was the
    /// last, the arrival of that end does not count: it has no bytes and no kernel stamp.
    pub body: Option<Stamp>,
}

/// The duration of each phase of an attempt, in order: [`Timings::spans`]. `None`: the phase did
/// not happen, or was not over when the attempt failed. [`Page::bounds`](crate::Page::bounds) states
/// which are upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spans {
    /// The lookup, from the departure of its first query.
    pub dns: Option<Duration>,
    /// The TCP handshake: [`Timings::connect_took`].
    pub connect: Option<Duration>,
    /// The TLS handshake: [`Timings::tls_took`].
    pub tls: Option<Duration>,
    /// From the ready connection to the departure of the request: our own wait, including that for
    /// the pace.
    pub request: Option<Duration>,
    /// From the request's departure to the first byte of the final reply.
    pub first_byte: Option<Duration>,
    /// From the first byte to the last byte of the final head. The sum with `first_byte` is
    /// [`Timings::server_latency`].
    pub headers: Option<Duration>,
    /// From the end of the head to the last byte of the body.
    pub body: Option<Duration>,
}

/// A phase of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Phase {
    /// The name was resolved.
    Dns,
    /// TCP was established.
    Connect,
    /// The TLS handshake.
    TlsHandshake,
    /// The wait for the pace, and sending the request.
    Request,
    /// The wait for the first byte of the final reply.
    FirstByte,
    /// The final head.
    Headers,
    /// The body.
    Body,
}

impl Phase {
    /// The name in result lines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Dns => "dns",
            Phase::Connect => "connect",
            Phase::TlsHandshake => "tls_handshake",
            Phase::Request => "request",
            Phase::FirstByte => "first_byte",
            Phase::Headers => "headers",
            Phase::Body => "body",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Accuracy of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accuracy {
    /// Both ends are kernel stamps, or were taken right beside the system call.
    Exact,
    /// The kernel stamped its end, but possibly that of another segment; or our thread was delayed
    /// while sending. The latency is an upper bound.
    Bound,
    /// We stamped its end ourselves, possibly late. The latency is an upper bound.
    User,
}

impl Accuracy {
    /// All labels.
    pub const ALL: [Accuracy; 3] = [Accuracy::Exact, Accuracy::Bound, Accuracy::User];

    /// `exact`, `bound` or `user`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Accuracy::Exact => "exact",
            Accuracy::Bound => "bound",
            Accuracy::User => "user",
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Timings {
    /// The duration of each phase that happened.
    pub fn spans(&self) -> Spans {
        let span =
            |start: Option<Instant>, end: Option<Instant>| Some(end?.saturating_since(start?));
        let at = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.at);
        let (first_byte, headers, body) = (at(self.first_byte), at(self.headers), at(self.body));
        Spans {
            dns: span(Some(self.started), self.dns),
            connect: self.connect_took,
            tls: self.tls_took,
            request: span(self.ready, self.sent),
            first_byte: span(self.sent, first_byte),
            headers: span(first_byte, headers),
            body: span(headers, body),
        }
    }

    /// The TLS handshake was complete, within this attempt.
    pub fn tls_handshake(&self) -> Option<Stamp> {
        self.secured.filter(|secured| secured.at >= self.started)
    }

    /// From the request's departure to the last byte of the final head.
    pub fn server_latency(&self) -> Option<Duration> {
        Some(self.headers?.at.saturating_since(self.sent?))
    }

    /// [`Timings::server_latency`] plus the TLS handshake, if this exchange made one.
    pub fn latency(&self) -> Option<Duration> {
        Some(self.server_latency()? + self.tls_took.unwrap_or_default())
    }

    /// Accuracy of the latencies; `None` without a final head.
    pub fn accuracy(&self) -> Option<Accuracy> {
        let is_kernels = self.headers?.is_kernels() && self.secured.is_none_or(|s| s.is_kernels());
        Some(match (is_kernels, self.latency_slack().is_zero()) {
            (true, true) => Accuracy::Exact,
            // If the departure was delayed, even a kernel stamp gives only an upper bound.
            (true, false) => Accuracy::Bound,
            (false, _) => Accuracy::User,
        })
    }

    /// How much [`Timings::server_latency`] may be too long. Zero if it is exact.
    pub fn server_latency_slack(&self) -> Duration {
        let arrival = self.headers.map(|headers| headers.slack);
        self.sent_slack + arrival.unwrap_or_default()
    }

    /// How much [`Timings::latency`] may be too long.
    pub fn latency_slack(&self) -> Duration {
        let secured = self.secured.map(|secured| secured.slack);
        self.server_latency_slack() + secured.unwrap_or_default()
    }

    /// Records that TCP was established. A connection from before the attempt is not a phase of it.
    pub(crate) fn end_connect(&mut self, established: Option<Established>) {
        let phase = established.filter(|tcp| tcp.arrival.at >= self.started);
        self.connect = phase.map(|tcp| tcp.arrival);
        self.connect_took = phase.map(|tcp| tcp.took);
    }

    /// Records the first byte that may belong to the final reply, by the arrival of its bytes.
    pub(super) fn begin_reply(&mut self, arrival: Stamp) {
        self.first_byte.get_or_insert(arrival);
    }

    /// How late the request departed, compared with the later of due and ready.
    pub fn lateness(&self) -> Option<Duration> {
        let could = self.due?.max(self.ready?);
        Some(self.sent?.saturating_since(could))
    }
}

/// A complete TCP handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// When it was complete.
    pub arrival: Stamp,
    /// How long it took since the departure of the SYN; an upper bound if the arrival is one.
    pub took: Duration,
}

impl Established {
    /// From an attempt that departed at `left`, or later by up to the slack of the arrival.
    pub fn after(left: Instant, arrival: Stamp) -> Self {
        // The kernel measures the round trip, so its start is uncertain and not its duration.
        let doubt = if arrival.is_kernels() {
            arrival.slack
        } else {
            Duration::ZERO
        };
        Established {
            arrival,
            took: arrival.at.saturating_since(left + doubt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stamp::Clock;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn each_phase_runs_from_the_end_of_the_one_before() {
        let millis = |millis| Some(Duration::from_millis(millis));
        let timings = Timings {
            started: at(10),
            dns: Some(at(12)),
            // Both contain their durations: the time in between is our own.
            connect: Some(Stamp::exact(at(20))),
            connect_took: millis(4),
            secured: Some(Stamp::exact(at(50))),
            tls_took: millis(8),
            ready: Some(at(50)),
            sent: Some(at(66)),
            first_byte: Some(Stamp::exact(at(98))),
            headers: Some(Stamp::exact(at(162))),
            body: Some(Stamp::exact(at(290))),
            ..Timings::default()
        };
        let all = Spans {
            dns: millis(2),
            connect: millis(4),
            tls: millis(8),
            request: millis(16),
            first_byte: millis(32),
            headers: millis(64),
            body: millis(128),
        };
        assert_eq!(timings.spans(), all);
        // On a reused connection, with a reply that broke off in its head.
        let kept = Timings {
            started: timings.started,
            ready: timings.ready,
            sent: timings.sent,
            first_byte: timings.first_byte,
            ..Timings::default()
        };
        let some = Spans {
            request: all.request,
            first_byte: all.first_byte,
            ..Spans::default()
        };
        assert_eq!(kept.spans(), some);
    }

    #[test]
    fn a_handshake_takes_the_kernels_time_or_our_wait_as_a_bound() {
        let check = |kernel, slack, took| {
            let clock = if kernel { Clock::Kernel } else { Clock::User };
            let arrival = Stamp {
                at: at(50),
                clock,
                slack: Duration::from_millis(slack),
            };
            let established = Established::after(at(10), arrival);
            assert_eq!(established.took, Duration::from_millis(took));
            let mut timings = Timings::default();
            timings.end_connect(Some(established));
            let connect = timings.connect.expect("a phase of this attempt");
            assert_eq!(connect.at, at(50));
            assert_eq!(connect.is_bound(), !kernel || slack > 0);
        };
        check(true, 0, 40);
        // The attempt departed up to 30 ms later than its start, and took a round trip from there.
        check(true, 30, 10);
        // Only our own stamp exists, taken at the end of this.
        check(false, 40, 40);
    }

    #[test]
    fn a_connection_from_before_the_attempt_is_not_a_phase() {
        let mut timings = Timings {
            started: at(20),
            ..Timings::default()
        };
        let took = Duration::from_millis(5);
        let established = |millis| Established {
            arrival: Stamp::exact(at(millis)),
            took,
        };
        timings.end_connect(Some(established(19)));
        assert_eq!((timings.connect, timings.connect_took), (None, None));
        timings.end_connect(Some(established(20)));
        assert_eq!(timings.connect, Some(Stamp::exact(at(20))));
        assert_eq!(timings.connect_took, Some(took));
    }
}
