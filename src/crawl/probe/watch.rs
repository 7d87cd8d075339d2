//! The last result of each target that is requested over and over, and its metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::admin::exposition::{Exposition, Family, Kind, Value};
use crate::admin::format::MetricsFormat;
use crate::base::time::{Instant, Wall};
use crate::fetch::failure::FailureKind;
use crate::sink::page::{Page, TlsVersion};
use crate::wire::certificate;
use crate::wire::date::http_date;
use crate::wire::http::HttpVersion;

/// Targets, each with its last result.
#[derive(Debug)]
pub(in crate::crawl) struct Watch {
    /// The number of each target, by its URL.
    numbers: BTreeMap<Box<str>, usize>,
    targets: Vec<State>,
    counts: WatchCounts,
    wall_at_start: Wall,
}

/// What became of the requests to all targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchCounts {
    /// Targets.
    pub targets: usize,
    /// Targets whose last request succeeded: a whole reply with a status of 2xx.
    pub up: usize,
    /// Targets that have no result yet.
    pub pending: usize,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed, or whose reply had another status.
    pub failed: u64,
    /// Requests that were not sent, for a reason that is not their target's: the one before to the same target was open,
    /// they were overdue by a whole round, or they were held back by a pause or by a sink that took no more. The last
    /// result of the target stays.
    pub skipped: u64,
    /// Requests that were not sent because too many others waited: the last result is that they failed.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    last: Option<Box<Outcome>>,
}

/// What is kept of a request: some 200 bytes.
#[derive(Clone, Debug)]
struct Outcome {
    ended: Wall,
    is_success: bool,
    /// From when it was due to its end, whatever that was.
    took: Duration,
    status: Option<u16>,
    version: Option<HttpVersion>,
    /// In the order of [`PHASES`].
    phases: [Duration; PHASES.len()],
    content_length: Option<u64>,
    body_length: u64,
    address: Option<IpAddr>,
    last_modified: Option<Wall>,
    /// The version and the cipher suite.
    tls: Option<(TlsVersion, &'static str)>,
    /// When the first certificate of the chain to expire does so.
    expires: Option<Wall>,
    /// The kind and the code of its failure; also of a body that was cut, and of a request that was dropped.
    failure: Option<(FailureKind, &'static str)>,
}

/// The code of a request that was dropped, as too many others waited.
const DROPPED: &str = "dropped";

/// The phases of a request, as the blackbox exporter names them.
const PHASES: [&str; 5] = ["resolve", "connect", "tls", "processing", "transfer"];

impl Watch {
    /// Targets with these URLs, without results.
    pub fn new<'a>(urls: impl Iterator<Item = &'a str>, wall_at_start: Wall) -> Self {
        let numbers: BTreeMap<Box<str>, usize> =
            (0..).zip(urls).map(|(n, url)| (url.into(), n)).collect();
        let count = numbers.values().max().map_or(0, |last| last + 1);
        let mut targets = Vec::new();
        targets.resize_with(count, State::default);
        Watch {
            numbers,
            targets,
            counts: WatchCounts {
                targets: count,
                pending: count,
                ..WatchCounts::default()
            },
            wall_at_start,
        }
    }

    /// A request to a target is due. Returns true, and counts that, if the one before is open still, or if this one
    /// is of no use: the next one is due, too, or it waits for ourselves.
    pub fn skips(&mut self, target: usize, is_useless: bool) -> bool {
        let skips = self.targets[target].is_open || is_useless;
        self.counts.skipped += u64::from(skips);
        skips
    }

    /// An open request is not sent, for a reason that is not its target's.
    pub fn skip_open(&mut self, target: usize) {
        self.targets[target].is_open = false;
        self.counts.skipped += 1;
    }

    /// A request to a target is dropped, as too many wait: the last result is that it failed.
    pub fn drops(&mut self, target: usize, took: Duration, now: Instant) {
        self.counts.dropped += 1;
        let ended = self.wall_at_start.at(now);
        self.set_last(target, Outcome::of_dropped(ended, took));
    }

    /// A request to a target begins.
    pub fn begin(&mut self, target: usize) {
        self.targets[target].is_open = true;
    }

    /// A request to a target has ended.
    pub fn end(&mut self, target: usize, page: &Page) {
        let outcome = Outcome::of(page);
        let counts = &mut self.counts;
        match outcome.is_success {
            true => counts.succeeded += 1,
            false => counts.failed += 1,
        }
        self.targets[target].is_open = false;
        self.set_last(target, outcome);
    }

    fn set_last(&mut self, target: usize, outcome: Outcome) {
        let (state, counts) = (&mut self.targets[target], &mut self.counts);
        counts.up += usize::from(outcome.is_success);
        match &mut state.last {
            Some(last) => {
                counts.up -= usize::from(last.is_success);
                **last = outcome;
            }
            None => {
                counts.pending -= 1;
                state.last = Some(Box::new(outcome));
            }
        }
    }

    /// The counts of all targets.
    pub fn counts(&self) -> WatchCounts {
        self.counts
    }

    /// The metrics of the target with this URL.
    ///
    /// # Errors
    /// There is no such target, or it has no result yet.
    pub fn metrics(&self, url: &str, format: MetricsFormat) -> Result<String, NoMetrics> {
        let number = self.numbers.get(url).ok_or(NoMetrics::Unknown)?;
        let last = self.targets[*number].last.as_deref();
        last.map(|last| last.metrics(format))
            .ok_or(NoMetrics::Pending)
    }
}

/// Why a target has no metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::crawl) enum NoMetrics {
    /// No results of targets are kept.
    Unwatched,
    /// It is none of the targets.
    Unknown,
    /// Its first request has not ended.
    Pending,
}

impl Outcome {
    fn of(page: &Page) -> Self {
        let timings = &page.timings;
        let spans = timings.spans();
        let sum = |parts: [Option<Duration>; 2]| parts.into_iter().flatten().sum();
        let field = page.headers.get("content-length");
        let field = field.and_then(|value| std::str::from_utf8(value).ok());
        // Those of a handshake that failed are not to be trusted.
        let chain = page.tls.map(|_| page.certificates.iter());
        let failure = page.failure.as_ref();
        let failure = failure.map(|failure| (failure.kind, failure.name));
        // A body that was cut at `DOWNLOAD_MAXSIZE`, which is no failure of a page.
        let cut = page
            .truncated
            .map(|cut| (FailureKind::Truncated, cut.as_str()));
        let failure = failure.or(cut);
        let is_of_2xx = page.status.is_some_and(|status| status / 100 == 2);
        Outcome {
            ended: page.wall_at_start.at(page.ended),
            is_success: failure.is_none() && is_of_2xx,
            took: (page.ended).saturating_since(timings.due.unwrap_or(timings.started)),
            status: page.status,
            version: page.version,
            phases: [
                sum([spans.dns, None]),
                sum([spans.connect, None]),
                sum([spans.tls, None]),
                sum([spans.first_byte, None]),
                sum([spans.headers, spans.body]),
            ],
            content_length: field.and_then(|value| value.trim().parse().ok()),
            body_length: page.body.len() as u64 + page.bytes_taken,
            address: page.remote.map(|remote| remote.ip()),
            last_modified: page.headers.get("last-modified").and_then(http_date),
            tls: page.tls.map(|tls| (tls.version, tls.cipher)),
            expires: chain.and_then(|chain| chain.filter_map(certificate::expires).min()),
            failure,
        }
    }

    /// Of a request that was dropped after this time.
    fn of_dropped(ended: Wall, took: Duration) -> Self {
        Outcome {
            ended,
            is_success: false,
            took,
            status: None,
            version: None,
            phases: [Duration::ZERO; PHASES.len()],
            content_length: None,
            body_length: 0,
            address: None,
            last_modified: None,
            tls: None,
            expires: None,
            failure: Some((FailureKind::Cancelled, DROPPED)),
        }
    }

    fn metrics(&self, format: MetricsFormat) -> String {
        let mut out = Exposition::new(format);
        out.family(&SUCCESS).add(&[], self.is_success);
        out.family(&DURATION).add(&[], self.took);
        out.family(&DNS_LOOKUP).add(&[], self.phases[0]);
        out.family(&REGEX).add(&[], false);
        out.family(&STATUS)
            .add(&[], u64::from(self.status.unwrap_or(0)));
        let mut phases = out.family(&PHASE);
        for (name, span) in PHASES.into_iter().zip(self.phases) {
            phases.add(&[name], span);
        }
        let length = match self.content_length {
            Some(length) => length as f64,
            None => -1.0,
        };
        out.family(&CONTENT_LENGTH).add(&[], Value::Real(length));
        out.family(&BODY_LENGTH).add(&[], self.body_length);
        out.family(&REDIRECTS).add(&[], 0_u64);
        out.family(&SSL).add(&[], self.tls.is_some());
        let version = match self.version {
            Some(HttpVersion::Http10) => 1.0,
            Some(HttpVersion::Http11) => 1.1,
            None => 0.0,
        };
        out.family(&VERSION).add(&[], Value::Real(version));
        if let Some(modified) = self.last_modified {
            let modified = modified.saturating_since(Wall::default());
            out.family(&LAST_MODIFIED).add(&[], modified);
        }
        if let Some(address) = self.address {
            let protocol: u64 = if address.is_ipv6() { 6 } else { 4 };
            out.family(&IP_PROTOCOL).add(&[], protocol);
            out.family(&IP_HASH).add(&[], u64::from(hash_of(address)));
        }
        if let Some(expires) = self.expires {
            let expires = expires.saturating_since(Wall::default());
            out.family(&EXPIRY).add(&[], expires);
        }
        if let Some((version, cipher)) = self.tls {
            let version = match version {
                TlsVersion::Tls12 => "TLS 1.2",
                TlsVersion::Tls13 => "TLS 1.3",
            };
            out.family(&TLS_VERSION).add(&[version], true);
            out.family(&TLS_CIPHER).add(&[cipher], true);
        }
        if let Some((kind, code)) = self.failure {
            out.family(&FAILURE).add(&[kind.as_str(), code], true);
        }
        let ended = self.ended.saturating_since(Wall::default());
        out.family(&ENDED).add(&[], ended);
        out.finish()
    }
}

/// FNV-1a, as in the blackbox exporter: it changes with the address.
fn hash_of(address: IpAddr) -> u32 {
    let hash = |octets: &[u8]| {
        octets.iter().fold(0x811c_9dc5_u32, |hash, octet| {
            (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193)
        })
    };
    match address {
        IpAddr::V4(address) => hash(&address.octets()),
        IpAddr::V6(address) => hash(&address.octets()),
    }
}

impl WatchCounts {
    /// Writes them.
    pub(in crate::crawl) fn write(&self, out: &mut Exposition) {
        let mut targets = out.family(&TARGETS);
        let down = self.targets - self.up - self.pending;
        for (state, count) in [("up", self.up), ("down", down), ("pending", self.pending)] {
            targets.add(&[state], count);
        }
        let mut results = out.family(&RESULTS);
        let all = [
            ("success", self.succeeded),
            ("failure", self.failed),
            ("skipped", self.skipped),
            ("dropped", self.dropped),
        ];
        for (result, count) in all {
            results.add(&[result], count);
        }
    }
}

macro_rules! families {
    ($all:ident, $what:literal: $($constant:ident: $kind:ident $name:literal $labels:tt, $help:literal;)*) => {
        $(const $constant: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &$labels,
            help: $help,
        };)*

        #[doc = $what]
        #[cfg(test)]
        pub(super) const $all: &[Family] = &[$($constant),*];
    };
}

families! { COUNT_FAMILIES, "What is written of all targets.":
    TARGETS: Gauge "argiope_probe_targets" ["state"],
        "Targets by their last result; pending: without one.";
    RESULTS: Counter "argiope_probes" ["result"],
        "Requests by what became of them; skipped: not sent, as the one before to the same target was open, the next one due, or requests were held back; dropped: too many waited.";
}

families! { TARGET_FAMILIES, "What is written of one target, in this order.":
    SUCCESS: Gauge "probe_success" [],
        "1 if the last request had a whole reply with a status of 2xx.";
    DURATION: Gauge "probe_duration_seconds" [],
        "From when the last request was due to its end, also if it failed.";
    DNS_LOOKUP: Gauge "probe_dns_lookup_time_seconds" [],
        "Time of the name lookup; 0 if the addresses were known.";
    REGEX: Gauge "probe_failed_due_to_regex" [],
        "Always 0, as bodies are not matched.";
    STATUS: Gauge "probe_http_status_code" [],
        "Status of the final head; 0 without one.";
    PHASE: Gauge "probe_http_duration_seconds" ["phase"],
        "Time of each phase; processing is from the departure of the request to the first byte of the reply.";
    CONTENT_LENGTH: Gauge "probe_http_content_length" [],
        "Value of the Content-Length field; -1 without one.";
    BODY_LENGTH: Gauge "probe_http_uncompressed_body_length" [],
        "Bytes of the body after the content codings.";
    REDIRECTS: Gauge "probe_http_redirects" [],
        "Always 0, as redirects are not followed.";
    SSL: Gauge "probe_http_ssl" [],
        "1 if TLS was used.";
    VERSION: Gauge "probe_http_version" [],
        "HTTP version of the final head; 0 without one.";
    LAST_MODIFIED: Gauge "probe_http_last_modified_timestamp_seconds" [],
        "Value of the Last-Modified field, since the Unix epoch.";
    IP_PROTOCOL: Gauge "probe_ip_protocol" [],
        "4 or 6: the protocol of the address.";
    IP_HASH: Gauge "probe_ip_addr_hash" [],
        "A hash of the address, which changes with it.";
    EXPIRY: Gauge "probe_ssl_earliest_cert_expiry" [],
        "When the first certificate of the server's chain expires, since the Unix epoch.";
    TLS_VERSION: Info "probe_tls_version" ["version"],
        "The TLS version.";
    TLS_CIPHER: Info "probe_tls_cipher" ["cipher"],
        "The cipher suite.";
    FAILURE: Info "argiope_probe_failure" ["kind", "code"],
        "Why the last request failed.";
    ENDED: Gauge "argiope_probe_ended_time_seconds" [],
        "When the last request ended, since the Unix epoch.";
}

#[cfg(test)]
mod tests;
