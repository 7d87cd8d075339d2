//! Results of a probe: counts, and the distribution of each span.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::stamp::Stamp;
use crate::base::time::{Instant, Wall};
use crate::crawl::finish::FinishReason;
use crate::crawl::probe::schedule::{Arrivals, Length};
use crate::crawl::stats::Spread;
use crate::fetch::timings::{Accuracy, Timings};
use crate::io::IoKind;
use crate::sink::page::Page;

/// A span that a probe measures for every request that succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Measure {
    /// Latency for a user who arrives when the request is due: from then to the last byte of the
    /// final head. Includes the wait for a connection, its set-up, and [`Measure::Lateness`].
    Due,
    /// Latency of the server: from the departure to the last byte of the final head. The wait for
    /// a connection that a slow reply occupies is not included.
    Sent,
    /// From due to the last byte of the body, or of the head if there is no body.
    Whole,
    /// From due to the start of the request: the wait for a free connection and for a lookup in
    /// progress, plus the delay of the event loop.
    Wait,
    /// The DNS lookup, if this request started or joined one: from the query's departure.
    Dns,
    /// The TCP handshake, if this request opened a connection: from the SYN's departure.
    Connect,
    /// The TLS handshake, if this request opened a connection.
    Tls,
    /// From the departure to the first byte of the final reply.
    FirstByte,
    /// From the first to the last byte of the final head.
    Headers,
    /// From the last byte of the head to the last byte of the body. The close of the connection is
    /// not included, even if only the close shows that the body is complete.
    Body,
    /// How late the request left: time from when it was due and its connection ready. Caused by this
    /// machine.
    Lateness,
}

impl Measure {
    /// All measures, in the order of a report.
    pub const ALL: [Measure; 11] = [
        Measure::Due,
        Measure::Sent,
        Measure::Whole,
        Measure::Wait,
        Measure::Dns,
        Measure::Connect,
        Measure::Tls,
        Measure::FirstByte,
        Measure::Headers,
        Measure::Body,
        Measure::Lateness,
    ];

    /// The name in reports, in HDR logs and before a statistic (`connect.p99`).
    pub const fn as_str(self) -> &'static str {
        match self {
            Measure::Due => "due",
            Measure::Sent => "sent",
            Measure::Whole => "whole",
            Measure::Wait => "wait",
            Measure::Dns => "dns",
            Measure::Connect => "connect",
            Measure::Tls => "tls",
            Measure::FirstByte => "first_byte",
            Measure::Headers => "headers",
            Measure::Body => "body",
            Measure::Lateness => "lateness",
        }
    }

    /// The measure of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|measure| measure.as_str() == name)
    }

    /// The span of one request that was due at `due`.
    fn of(self, timings: &Timings, due: Instant) -> Option<Duration> {
        let since = |end: Option<Stamp>, start: Instant| Some(end?.at.saturating_since(start));
        match self {
            Measure::Due => since(timings.headers, due),
            Measure::Sent => timings.server_latency(),
            Measure::Whole => since(timings.body.or(timings.headers), due),
            Measure::Wait => Some(timings.started.saturating_since(due)),
            Measure::Dns => timings.spans().dns,
            Measure::Connect => timings.spans().connect,
            Measure::Tls => timings.spans().tls,
            Measure::FirstByte => timings.spans().first_byte,
            Measure::Headers => timings.spans().headers,
            Measure::Body => timings.spans().body,
            Measure::Lateness => timings.lateness(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Results of a probe's requests that were due after its warm-up.
///
/// The distributions contain successful requests only; failures are counted by code.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeReport {
    /// Why it ended; `None` while it runs. See [`Probe::run`](super::Probe::run).
    pub finish_reason: Option<FinishReason>,
    /// The back end: `epoll` or `uring`.
    pub io: IoKind,
    /// The configured rate, in requests per second.
    pub rate: f64,
    /// Distribution of the gaps between requests.
    pub arrivals: Arrivals,
    /// Extent of the measurement.
    pub length: Length,
    /// Random seed: the same seed gives the same arrivals.
    pub seed: u64,
    /// Maximum open connections.
    pub connections_max: usize,
    /// Wall time of the start.
    pub started: Wall,
    /// Wall time of the start of the measurement.
    pub measured_from: Wall,
    /// Time over which counted requests were due.
    pub span: Duration,
    /// Requests that were due.
    pub due: u64,
    /// Requests that were started within `span`; divided by `span`, it is the rate reached.
    pub begun_in_time: u64,
    /// Requests that left.
    pub sent: u64,
    /// Complete replies, of any status.
    pub replies: u64,
    /// Requests that were due and dropped, because too many waited.
    pub dropped: u64,
    /// Requests that were not sent, for a reason that is not their target's: the one before to the same target was open,
    /// they were overdue by a whole round, or they were held back by a pause or by a sink that took no more. Only with
    /// [`ProbeSettings::every`](super::ProbeSettings::every); they are not among those that were due.
    pub skipped: u64,
    /// Requests that were still waiting when the probe ended.
    pub unsent: u64,
    /// Requests repeated on a new connection because a reused one was closed before the reply.
    pub retried: u64,
    /// Requests of the warm-up, which no other figure includes.
    pub warmup: u64,
    /// Replies by status.
    pub by_status: BTreeMap<u16, u64>,
    /// Failures by `kind.code`.
    pub by_error: BTreeMap<String, u64>,
    /// The URL and the detail of the first failure of each code.
    pub first_errors: BTreeMap<String, (String, String)>,
    /// Connections opened, those of the warm-up included.
    pub connections: u64,
    /// Replies with an exact kernel timestamp of their arrival.
    pub exact: u64,
    /// Replies with a kernel timestamp that is an upper bound.
    pub bound: u64,
    /// Replies with a timestamp taken in user space, when the event was handled.
    pub user: u64,
    spreads: Vec<Spread>,
}

/// Measurements of one interval; each request belongs to the interval in which it ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProbeInterval {
    /// When it started.
    pub start: Wall,
    /// Its length.
    pub length: Duration,
    /// The distribution of each measure that has samples.
    pub spreads: Vec<(Measure, Spread)>,
}

impl ProbeReport {
    pub(super) fn new(
        (arrivals, rate): (Arrivals, f64),
        length: Length,
        seed: u64,
        connections_max: usize,
    ) -> Self {
        ProbeReport {
            finish_reason: None,
            io: IoKind::default(),
            rate,
            arrivals,
            length,
            seed,
            connections_max,
            started: Wall::default(),
            measured_from: Wall::default(),
            span: Duration::ZERO,
            due: 0,
            begun_in_time: 0,
            sent: 0,
            replies: 0,
            dropped: 0,
            skipped: 0,
            unsent: 0,
            retried: 0,
            warmup: 0,
            by_status: BTreeMap::new(),
            by_error: BTreeMap::new(),
            first_errors: BTreeMap::new(),
            connections: 0,
            exact: 0,
            bound: 0,
            user: 0,
            spreads: vec![Spread::new(); Measure::ALL.len()],
        }
    }

    /// The distribution of a measure.
    pub fn spread(&self, measure: Measure) -> &Spread {
        &self.spreads[measure as usize]
    }

    /// Number of failures.
    pub fn errors(&self) -> u64 {
        self.by_error.values().sum()
    }

    /// Requests that lack this span because they were not answered: of those due, of those sent, or
    /// those that failed in this phase. No distribution includes them; a [`Ceiling`](super::Ceiling)
    /// counts each as above its bound.
    pub fn unanswered(&self, measure: Measure) -> u64 {
        let failed_at = |phase: &str| {
            let errors = self.by_error.iter();
            let of_it = errors.filter(|(name, _)| match name.split_once('.') {
                Some(("timeout", code)) => code == phase,
                Some((kind, _)) => kind == phase,
                None => false,
            });
            of_it.map(|(_, count)| count).sum()
        };
        match measure {
            Measure::Due | Measure::Whole => self.due.saturating_sub(self.replies),
            Measure::Sent | Measure::FirstByte | Measure::Headers | Measure::Body => {
                self.sent.saturating_sub(self.replies)
            }
            Measure::Wait => self.unsent + self.dropped,
            Measure::Dns | Measure::Connect | Measure::Tls => failed_at(measure.as_str()),
            Measure::Lateness => 0,
        }
    }

    /// Requests started per second of `span`.
    pub fn rate_reached(&self) -> f64 {
        self.begun_in_time as f64 / self.span.as_secs_f64().max(1e-9)
    }

    /// Whether the rate was reached: at least 99 % of the requests due were started within `span`, and
    /// none was dropped. In a short probe, the requests due in 0.1 s may be missing, but at most 10 %.
    pub fn is_rate_reached(&self) -> bool {
        let missed = self.due.saturating_sub(self.begun_in_time) as f64;
        let due = self.due as f64;
        let allowed = (self.rate * 0.1).clamp(due * 0.01, due * 0.1);
        self.dropped == 0 && missed <= allowed
    }

    /// Counts a request that ended and was due at `due`, and records its spans, in `interval` too.
    pub(super) fn count(&mut self, page: &Page, due: Instant, interval: Option<&mut Tally>) {
        let timings = &page.timings;
        self.sent += u64::from(timings.sent.is_some());
        if let Some(failure) = &page.failure {
            let name = format!("{}.{}", failure.kind.as_str(), failure.name);
            if !self.by_error.contains_key(&name) {
                let first = (page.url.to_string(), failure.detail.to_string());
                self.first_errors.insert(name.clone(), first);
            }
            *self.by_error.entry(name).or_default() += 1;
            return;
        }
        self.replies += 1;
        if let Some(status) = page.status {
            *self.by_status.entry(status).or_default() += 1;
        }
        match timings.accuracy() {
            Some(Accuracy::Exact) => self.exact += 1,
            Some(Accuracy::Bound) => self.bound += 1,
            Some(Accuracy::User) | None => self.user += 1,
        }
        let mut interval = interval;
        for measure in Measure::ALL {
            let Some(span) = measure.of(timings, due) else {
                continue;
            };
            self.spreads[measure as usize].record(span);
            if let Some(tally) = interval.as_deref_mut() {
                tally.record(measure, span);
            }
        }
    }

    /// The report as JSON; the reference defines its keys. Spans are in seconds.
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }

    pub(crate) fn to_value(&self) -> Value {
        let spreads: Map<String, Value> = Measure::ALL
            .iter()
            .map(|measure| {
                let json = self.spread(*measure).to_json();
                (measure.as_str().to_owned(), json)
            })
            .collect();
        let status: Map<String, Value> = self
            .by_status
            .iter()
            .map(|(status, count)| (status.to_string(), json!(count)))
            .collect();
        json!({
            "finish_reason": self.finish_reason.map(FinishReason::as_str),
            "io": self.io.as_str(),
            "rate": self.rate,
            "rate_reached": self.rate_reached(),
            "is_rate_reached": self.is_rate_reached(),
            "arrivals": self.arrivals.as_str(),
            "seed": self.seed,
            "connections_max": self.connections_max,
            "started": self.started.to_string(),
            "measured_from": self.measured_from.to_string(),
            "span": self.span.as_secs_f64(),
            "due": self.due,
            "sent": self.sent,
            "replies": self.replies,
            "errors": self.by_error,
            "dropped": self.dropped,
            "skipped": self.skipped,
            "unsent": self.unsent,
            "retried": self.retried,
            "warmup": self.warmup,
            "status": status,
            "connections": self.connections,
            "stamps": {"exact": self.exact, "bound": self.bound, "user": self.user},
            "latency": spreads,
        })
    }
}

/// The distributions of one interval, each created with its first sample.
#[derive(Debug, Default)]
pub(super) struct Tally {
    spreads: [Option<Box<Spread>>; Measure::ALL.len()],
}

impl Tally {
    fn record(&mut self, measure: Measure, span: Duration) {
        let spread = &mut self.spreads[measure as usize];
        spread.get_or_insert_default().record(span);
    }

    /// The distributions that have samples.
    pub fn into_spreads(self) -> Vec<(Measure, Spread)> {
        Measure::ALL
            .into_iter()
            .zip(self.spreads)
            .filter_map(|(measure, spread)| Some((measure, *spread?)))
            .collect()
    }
}
