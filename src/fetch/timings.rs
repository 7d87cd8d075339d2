//! When each phase of an attempt ended, and the latencies that follow from it.

use std::time::Duration;

use crate::base::time::Instant;

/// The ends of an attempt's phases. A phase that did not happen is `None`: a kept connection has neither
/// `dns` nor `connect` nor `tls_handshake` (`KEEPALIVE_MAX=0` keeps none), and an address that is
/// remembered no `dns` (as long as its name server says, 30 s at least and a day at most).
///
/// How long each took [`Timings::spans`] says; any other span between two of them is
/// `later.saturating_since(earlier)`. When an attempt failed is not among them: see
/// [`Page::ended`](crate::Page::ended).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The attempt's start: its release by the throttle.
    pub started: Instant,
    /// When throttling allowed the departure.
    pub due: Option<Instant>,
    /// The name was resolved (by a query that this attempt waited for). The attempt's start is as
    /// long before this as it waited: from the query's departure to the arrival of the answer.
    pub dns: Option<Instant>,
    /// TCP was established for this attempt.
    pub connect: Option<Instant>,
    /// How long that took, from the SYN's departure: what kept us from sending it is nobody's
    /// latency.
    pub connect_took: Option<Duration>,
    /// The end of that is an upper bound: the kernel measured no round trip, as of a SYN that was sent
    /// again, and we noticed when we got round to it; or our thread was held up while it sent.
    pub connect_bound: bool,
    /// The TLS handshake was complete.
    pub tls_handshake: Option<Instant>,
    /// How long that handshake took, from the ClientHello's departure: our own wait before it is
    /// nobody's latency. One that [resumes](crate::TlsInfo::resumed) a session is shorter; sessions are
    /// resumed wherever a server lets us.
    pub tls_took: Option<Duration>,
    /// The connection was ready to carry the request.
    pub ready: Option<Instant>,
    /// The request departed: just before the system call that sent its first byte.
    pub sent: Option<Instant>,
    /// The first byte of the final reply arrived.
    pub first_byte: Option<Instant>,
    /// That may have been earlier.
    pub first_byte_bound: bool,
    /// The last byte of the final head arrived.
    pub headers: Option<Instant>,
    /// That may have been earlier.
    pub headers_bound: bool,
    /// The last byte of the body arrived. Where only the end of the connection tells that it was
    /// the last one, that end is no part of this: it brings nothing, and no kernel stamps it.
    pub body: Option<Instant>,
    /// That may have been earlier: the kernel's stamp is perhaps that of another segment, or we stamped
    /// it when we got round to it.
    pub body_bound: bool,
    /// The arrivals that its latencies end with were stamped by the kernel.
    pub kernel: bool,
    /// Its latencies are upper bounds.
    pub bound: bool,
    /// [`Timings::server_latency`] may be too long by as much. Zero where it is exact.
    pub slack: Duration,
    /// So may [`Timings::tls_took`].
    pub tls_slack: Duration,
    /// We stamped the end of the handshake, not the kernel.
    pub tls_by_user: bool,
}

/// How long each phase of an attempt took, in their order: [`Timings::spans`]. `None` is what did not
/// happen, or was not over when the attempt failed. Which are upper bounds
/// [`Page::bounds`](crate::Page::bounds) says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spans {
    /// The lookup, from its first query's departure.
    pub dns: Option<Duration>,
    /// TCP's handshake: [`Timings::connect_took`].
    pub connect: Option<Duration>,
    /// TLS's handshake: [`Timings::tls_took`].
    pub tls: Option<Duration>,
    /// From the connection being ready to the request's departure: our own wait, for the pace too.
    pub request: Option<Duration>,
    /// From the request's departure to the first byte of the final reply.
    pub first_byte: Option<Duration>,
    /// From that to the last byte of the final head. With `first_byte` it is
    /// [`Timings::server_latency`].
    pub headers: Option<Duration>,
    /// From that to the last byte of the body.
    pub body: Option<Duration>,
}

/// How far a latency can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Its ends are the kernel's stamps, or taken right beside the system call.
    Exact,
    /// The kernel stamped its end, but perhaps that of another segment than the one meant; or our
    /// thread was held up while it sent. It was no longer than this.
    Bound,
    /// We stamped its end when we got round to it. It was no longer than this.
    User,
}

impl Label {
    /// All of them.
    pub const ALL: [Label; 3] = [Label::Exact, Label::Bound, Label::User];

    /// `exact`, `bound` or `user`.
    pub fn name(self) -> &'static str {
        match self {
            Label::Exact => "exact",
            Label::Bound => "bound",
            Label::User => "user",
        }
    }
}

impl Timings {
    /// How long each phase took, as far as it happened.
    pub fn spans(&self) -> Spans {
        let span =
            |start: Option<Instant>, end: Option<Instant>| Some(end?.saturating_since(start?));
        Spans {
            dns: span(Some(self.started), self.dns),
            connect: self.connect_took,
            tls: self.tls_took,
            request: span(self.ready, self.sent),
            first_byte: span(self.sent, self.first_byte),
            headers: span(self.first_byte, self.headers),
            body: span(self.headers, self.body),
        }
    }

    /// From the request's departure to the last byte of the final head.
    pub fn server_latency(&self) -> Option<Duration> {
        Some(self.headers?.saturating_since(self.sent?))
    }

    /// [`Timings::server_latency`] plus the TLS handshake where this exchange made one.
    pub fn latency(&self) -> Option<Duration> {
        Some(self.server_latency()? + self.tls_took.unwrap_or_default())
    }

    /// How far its latencies can be trusted; `None` without a final head.
    pub fn label(&self) -> Option<Label> {
        self.headers?;
        Some(match (self.kernel, self.bound) {
            (true, false) => Label::Exact,
            (true, true) => Label::Bound,
            (false, _) => Label::User,
        })
    }

    /// By how much [`Timings::latency`] may be too long.
    pub fn latency_slack(&self) -> Duration {
        self.slack + self.tls_slack
    }

    /// TCP was established, if it was. What was over before the attempt began is no phase of it.
    pub fn end_connect(&mut self, established: Option<Established>) {
        let phase = established.filter(|tcp| tcp.at >= self.started);
        self.connect = phase.map(|tcp| tcp.at);
        self.connect_took = phase.map(|tcp| tcp.took);
        self.connect_bound = phase.is_some_and(|tcp| tcp.bound);
    }

    /// The first byte of what may be the final reply is there, with bytes that arrived like this.
    pub(super) fn begin_reply(&mut self, arrival: Arrival) {
        if self.first_byte.is_none() {
            self.first_byte = Some(arrival.at);
            self.first_byte_bound = arrival.is_bound();
        }
    }

    /// The last byte of the body is there, with bytes that arrived like this.
    pub(super) fn end_body(&mut self, arrival: Arrival) {
        self.body = Some(arrival.at);
        self.body_bound = arrival.is_bound();
    }

    /// The final head is complete, with bytes that arrived like this.
    pub(super) fn end_headers(&mut self, arrival: Arrival) {
        self.headers = Some(arrival.at);
        self.headers_bound = arrival.is_bound();
        self.kernel = arrival.kernel && !self.tls_by_user;
        self.slack += arrival.slack;
        // A departure that was held up makes a bound of the best stamp.
        self.bound = !self.kernel || !self.latency_slack().is_zero();
    }

    /// How long after it could have left the request left: from the later of due and ready.
    pub fn lateness(&self) -> Option<Duration> {
        let could = self.due?.max(self.ready?);
        Some(self.sent?.saturating_since(could))
    }
}

/// When bytes arrived, and how far that can be trusted: a back end's stamp, as this floor takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When the last of them arrived.
    pub at: Instant,
    /// The kernel stamped it.
    pub kernel: bool,
    /// They may have arrived as much earlier.
    pub slack: Duration,
}

impl Arrival {
    /// It happened then or before.
    pub fn is_bound(&self) -> bool {
        !self.kernel || !self.slack.is_zero()
    }
}

/// A TCP handshake that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// When it was.
    pub at: Instant,
    /// How long it took, from the SYN's departure.
    pub took: Duration,
    /// It may have been earlier.
    pub bound: bool,
}

impl Established {
    /// By an attempt that left at `left`, or as much later as the arrival has of slack.
    pub fn after(left: Instant, arrival: Arrival) -> Self {
        let at = arrival.at;
        // The kernel measures the round trip: in doubt is when it began, not how long it took.
        let doubt = if arrival.kernel {
            arrival.slack
        } else {
            Duration::ZERO
        };
        Established {
            at,
            took: at.saturating_since(left + doubt),
            bound: arrival.is_bound(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    #[test]
    fn each_phase_took_from_the_end_of_the_one_before_and_what_did_not_happen_took_nothing() {
        let millis = |millis| Some(Duration::from_millis(millis));
        let timings = Timings {
            started: at(10),
            dns: Some(at(12)),
            // Both say what they took: what is between is our own.
            connect: Some(at(20)),
            connect_took: millis(4),
            tls_handshake: Some(at(50)),
            tls_took: millis(8),
            ready: Some(at(50)),
            sent: Some(at(66)),
            first_byte: Some(at(98)),
            headers: Some(at(162)),
            body: Some(at(290)),
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
        // On a kept connection, with a reply that broke off in its head.
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
    fn a_handshake_took_as_long_as_the_kernel_measured_or_as_we_waited_at_the_most() {
        let check = |kernel, slack, took| {
            let arrival = Arrival {
                at: at(50),
                kernel,
                slack: Duration::from_millis(slack),
            };
            let established = Established::after(at(10), arrival);
            assert_eq!(established.at, at(50));
            assert_eq!(established.took, Duration::from_millis(took));
            assert_eq!(established.bound, !kernel || slack > 0);
            let mut timings = Timings::default();
            timings.end_connect(Some(established));
            assert_eq!(timings.connect_bound, established.bound);
        };
        check(true, 0, 40);
        // The attempt left up to 30 ms later than it began to, and took a round trip from there.
        check(true, 30, 10);
        // Nobody knows but we, who noticed at the end of this.
        check(false, 40, 40);
    }

    #[test]
    fn a_connection_from_before_the_attempt_is_no_phase_of_it() {
        let mut timings = Timings {
            started: at(20),
            ..Timings::default()
        };
        let took = Duration::from_millis(5);
        let bound = true;
        timings.end_connect(Some(Established {
            at: at(19),
            took,
            bound,
        }));
        assert!(!timings.connect_bound);
        assert_eq!((timings.connect, timings.connect_took), (None, None));
        timings.end_connect(Some(Established {
            at: at(20),
            took,
            bound,
        }));
        assert_eq!(timings.connect, Some(at(20)));
        assert_eq!(timings.connect_took, Some(took));
    }
}
