//! Statistics of a crawl: counts, and histograms of latency, phases, lateness and lag.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use crate::base::secret::Secret;
use crate::base::time::{Wall, nanos};
use crate::crawl::finish::FinishReason;
use crate::crawl::pace_report::PaceReport;
use crate::fetch::failure::{Failure, FailureKind, Truncation};
use crate::fetch::timings::{Accuracy, Phase, Timings};
use crate::frontier::filter::Filtered;
use crate::frontier::request::PageKind;
use crate::io::IoKind;
use crate::sink::page::Page;

/// Counts and distributions of a whole crawl.
#[derive(Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Result lines by kind, final or not.
    pub attempts: u64,
    /// Final results of pages with a status.
    pub pages: u64,
    /// Those of [`Stats::errors_final`] that are pages, not robots.txt or sitemaps.
    pub pages_failed: u64,
    /// Final results with an error, of whatever kind, that count towards `CLOSESPIDER_ERRORCOUNT`: all
    /// but those that were filtered, cancelled or disallowed by robots.txt.
    pub errors_final: u64,
    /// The same of earlier runs of the crawl: `CLOSESPIDER_ERRORCOUNT` is for all of them.
    pub(crate) errors_earlier: u64,
    /// Bytes of replies as they came over the wire.
    pub bytes_wire: u64,
    /// Bytes of bodies after the content codings.
    pub bytes_body: u64,
    /// Final results of pages whose body was cut at `DOWNLOAD_MAXSIZE`.
    pub bodies_cut: u64,
    /// Links found in pages.
    pub links: u64,
    /// Pages in which the search for fields (`EXTRACT`) ended early for its cost.
    pub fields_partial: u64,
    /// Attempts by status of their final head.
    pub by_status: BTreeMap<u16, u64>,
    /// Attempts by failure, `kind.code`.
    pub by_error: BTreeMap<String, u64>,
    /// The URL and the message of the first failure of each of those kinds.
    pub first_errors: BTreeMap<String, (Arc<str>, String)>,
    /// Attempts by kind.
    pub by_kind: BTreeMap<PageKind, u64>,
    /// Exchanges on a connection that had carried one before.
    pub reused: u64,
    /// Seeds taken, and lines that were no URL.
    pub seeds: u64,
    /// Seeds lines that were no URL.
    pub seeds_bad: u64,
    /// Connections opened.
    pub connections: u64,
    /// From the request's departure to the last byte of the final head.
    pub server_latency: Spread,
    /// The same plus the TLS handshake where the exchange made one.
    pub latency: Spread,
    /// [`Stats::server_latency`] of those that are not mere bounds.
    pub server_latency_exact: Spread,
    /// Number of latencies of each accuracy, in the order of [`Accuracy::ALL`].
    pub by_accuracy: [u64; Accuracy::ALL.len()],
    /// Durations of each phase.
    pub phases: [(Phase, Spread); 6],
    /// From when a request could leave to when it left.
    pub lateness: Spread,
    /// Length of a turn: from the end of one wait to the beginning of the next.
    pub lag: Spread,
    /// Most processor time of a turn, zero if unknown. A turn in [`Stats::lag`] is longer if the thread did not
    /// run for a part of it.
    pub lag_processor_max: Duration,
    /// Small strings, since most names are short: they are compared without another memory access.
    scopes: HashMap<SmolStr, Tally, Secret>,
    scopes_omitted: u64,
}

/// Counters of one scope.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Tally {
    /// Attempts that were sent.
    pub sent: u64,
    /// Attempts that the throttle classified as refusals of this scope, by the `Classify` in use
    /// and the scope's `BACKOFF_*` settings.
    pub refused: u64,
    /// Sum of server latencies, in nanoseconds.
    latency_sum: u64,
    /// Number of them.
    latency_count: u64,
}

impl Tally {
    /// Mean server latency.
    pub fn latency_mean(&self) -> Option<Duration> {
        let mean = self.latency_sum.checked_div(self.latency_count)?;
        Some(Duration::from_nanos(mean))
    }
}

/// Most scopes counted one by one. A broad crawl has millions; the first so many are a sample.
const SCOPES_MAX: usize = 50_000;

impl Stats {
    /// Nothing measured.
    pub fn new() -> Self {
        Stats {
            attempts: 0,
            pages: 0,
            pages_failed: 0,
            errors_final: 0,
            errors_earlier: 0,
            bytes_wire: 0,
            bytes_body: 0,
            bodies_cut: 0,
            links: 0,
            fields_partial: 0,
            by_status: BTreeMap::new(),
            by_error: BTreeMap::new(),
            first_errors: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            reused: 0,
            seeds: 0,
            seeds_bad: 0,
            connections: 0,
            server_latency: Spread::new(),
            latency: Spread::new(),
            server_latency_exact: Spread::new(),
            by_accuracy: [0; Accuracy::ALL.len()],
            phases: [
                Phase::Dns,
                Phase::Connect,
                Phase::TlsHandshake,
                Phase::Request,
                Phase::FirstByte,
                Phase::Body,
            ]
            .map(|phase| (phase, Spread::new())),
            lateness: Spread::new(),
            lag: Spread::new(),
            lag_processor_max: Duration::ZERO,
            scopes: HashMap::with_hasher(Secret::from_seed(0)),
            scopes_omitted: 0,
        }
    }

    /// Hashes the names of scopes under this secret, which are none yet.
    pub(super) fn with_secret(mut self, secret: &Secret) -> Self {
        self.scopes = HashMap::with_hasher(*secret);
        self
    }

    /// Counts a finished attempt.
    pub fn count(&mut self, page: &Page) {
        self.attempts += 1;
        *self.by_kind.entry(page.kind).or_default() += 1;
        if page.kind == PageKind::Page && page.is_final && page.status.is_some() {
            self.pages += 1;
        }
        let counts = page.failure.as_ref().is_some_and(counts_as_error);
        self.errors_final += u64::from(page.is_final && counts);
        self.pages_failed += u64::from(page.kind == PageKind::Page && page.is_final && counts);
        self.bytes_wire += page.bytes_wire;
        self.bytes_body += page.body.len() as u64 + page.bytes_taken;
        let is_cut = page.truncated == Some(Truncation::Length) && page.is_result();
        self.bodies_cut += u64::from(is_cut);
        self.links += u64::from(page.links.unwrap_or(0));
        let fields = page.fields.as_ref();
        self.fields_partial += u64::from(fields.is_some_and(|fields| fields.is_partial()));
        if let Some(status) = page.status {
            *self.by_status.entry(status).or_default() += 1;
        }
        if let Some(failure) = &page.failure {
            let name = format!("{}.{}", failure.kind.as_str(), failure.name);
            if !self.first_errors.contains_key(&name) {
                let first = (Arc::from(page.url.as_str()), failure.detail.to_string());
                self.first_errors.insert(name.clone(), first);
            }
            *self.by_error.entry(name).or_default() += 1;
        }
        self.reused += u64::from(page.reused);
        self.time(&page.timings);
    }

    fn time(&mut self, timings: &Timings) {
        let record = |spread: &mut Spread, span: Option<Duration>| {
            if let Some(span) = span {
                spread.record(span);
            }
        };
        record(&mut self.server_latency, timings.server_latency());
        record(&mut self.latency, timings.latency());
        if let Some(label) = timings.accuracy() {
            self.by_accuracy[label as usize] += 1;
            let exact = timings
                .server_latency()
                .filter(|_| label == Accuracy::Exact);
            record(&mut self.server_latency_exact, exact);
        }
        record(&mut self.lateness, timings.lateness());
        let of = timings.spans();
        let spans = [
            of.dns,
            of.connect,
            of.tls,
            of.request,
            of.first_byte,
            of.body,
        ];
        for ((_, spread), span) in self.phases.iter_mut().zip(spans) {
            record(spread, span);
        }
    }

    /// Counts an attempt that was sent in the statistics of one of its scopes. `refused`: the
    /// throttle classified an answer to it as a refusal of this scope.
    pub(super) fn tally(&mut self, scope: &str, refused: bool, latency: Option<Duration>) {
        let is_full = self.scopes.len() >= SCOPES_MAX;
        let tally = match self.scopes.get_mut(scope) {
            Some(tally) => tally,
            None if is_full => {
                self.scopes_omitted += 1;
                return;
            }
            None => self.scopes.entry(SmolStr::new(scope)).or_default(),
        };
        tally.sent += 1;
        tally.refused += u64::from(refused);
        if let Some(latency) = latency {
            tally.latency_sum = tally.latency_sum.saturating_add(nanos(latency));
            tally.latency_count += 1;
        }
    }

    /// The scopes with the longest mean server latency, slowest first.
    pub fn slowest_scopes(&self, count: usize) -> Vec<(&str, Tally)> {
        self.top(count, |tally| tally.latency_mean().map(nanos))
    }

    /// The scopes with the most refused attempts, in descending order.
    pub fn most_refused_scopes(&self, count: usize) -> Vec<(&str, Tally)> {
        self.top(count, |tally| Some(tally.refused).filter(|n| *n > 0))
    }

    /// Ties are ordered by name. The event loop is blocked meanwhile, so all are visited once and only a few
    /// are sorted.
    fn top(&self, count: usize, rank: impl Fn(&Tally) -> Option<u64>) -> Vec<(&str, Tally)> {
        let mut best: BinaryHeap<Reverse<(u64, Reverse<&str>)>> = BinaryHeap::new();
        for (name, tally) in &self.scopes {
            let Some(rank) = rank(tally) else {
                continue;
            };
            let worst = best.peek().map_or(0, |Reverse((rank, _))| *rank);
            if best.len() < count || rank >= worst {
                best.push(Reverse((rank, Reverse(name.as_str()))));
            }
            if best.len() > count {
                best.pop();
            }
        }
        let best = best.into_sorted_vec().into_iter();
        best.map(|Reverse((_, Reverse(name)))| (name, self.scopes[name]))
            .collect()
    }

    /// Total number of errors.
    pub fn errors(&self) -> u64 {
        self.by_error.values().sum()
    }

    /// `stats.json` as text; the reference defines its keys.
    pub fn to_json(&self, progress: &Progress, pacing: &PaceReport) -> String {
        self.to_value(progress, pacing).to_string()
    }

    pub(crate) fn to_value(&self, progress: &Progress, pacing: &PaceReport) -> Value {
        let seconds = progress.elapsed.as_secs_f64();
        let rate = |count: u64| {
            if seconds > 0.0 {
                count as f64 / seconds
            } else {
                0.0
            }
        };
        let counts = |map: &BTreeMap<String, u64>| -> Map<String, Value> {
            map.iter().map(|(k, v)| (k.clone(), json!(v))).collect()
        };
        let phases: Map<String, Value> = self
            .phases
            .iter()
            .map(|(phase, spread)| (key_of(*phase).to_owned(), spread.to_json()))
            .collect();
        let stamps: Map<String, Value> = Accuracy::ALL
            .into_iter()
            .map(|label| {
                (
                    label.as_str().to_owned(),
                    json!(self.by_accuracy[label as usize]),
                )
            })
            .collect();
        let status: Map<String, Value> = self
            .by_status
            .iter()
            .map(|(status, count)| (status.to_string(), json!(count)))
            .collect();
        let scopes = |list: Vec<(&str, Tally)>| -> Vec<Value> {
            list.into_iter()
                .map(|(name, tally)| {
                    json!({"scope": name, "sent": tally.sent, "refused": tally.refused,
                           "server_latency_mean": tally.latency_mean().map(|d| d.as_secs_f64())})
                })
                .collect()
        };
        let filtered: Map<String, Value> = progress
            .filtered
            .iter()
            .map(|(reason, count)| (reason.as_str().to_owned(), json!(count)))
            .collect();
        let mut all = json!({
            "finish_reason": progress.finish_reason.map(FinishReason::as_str),
            "io": progress.io.as_str(),
            "started": progress.started.to_string(),
            "now": progress.now.to_string(),
            "elapsed": seconds,
            "attempts": self.attempts,
            "pages": self.pages,
            "robots": self.by_kind.get(&PageKind::Robots).copied().unwrap_or(0),
            "sitemaps": self.by_kind.get(&PageKind::Sitemap).copied().unwrap_or(0),
            "queued": progress.queued,
            "in_flight": progress.in_flight,
            "scopes": progress.scopes,
            "scopes_waiting": progress.scopes_waiting,
            "seen": progress.seen,
            "seeds": self.seeds,
            "seeds_bad": self.seeds_bad,
            "links": self.links,
            "fields_partial": self.fields_partial,
            "filtered": filtered,
            "connections": self.connections,
            "reused": self.reused,
            "bytes_wire": self.bytes_wire,
            "bytes_body": self.bytes_body,
            "bodies_cut": self.bodies_cut,
            "pages_per_second": rate(self.pages),
            "bytes_wire_per_second": rate(self.bytes_wire),
            "status": status,
            "errors": counts(&self.by_error),
            "latency": self.latency.to_json(),
            "server_latency": self.server_latency.to_json(),
            "server_latency_exact": self.server_latency_exact.to_json(),
            "stamps": stamps,
            "phases": phases,
            "lateness": self.lateness.to_json(),
            "lag": self.lag.to_json(),
            "lag_processor_max": self.lag_processor_max.as_secs_f64(),
            "slowest_scopes": scopes(self.slowest_scopes(10)),
            "most_refused_scopes": scopes(self.most_refused_scopes(10)),
            "scopes_omitted": self.scopes_omitted,
        });
        // Shortages of this machine, and held hosts.
        let lacking = [
            ("disk_pauses", json!(progress.disk_pauses)),
            ("disk_paused", json!(progress.disk_paused.as_secs_f64())),
            ("outages", json!(progress.outages)),
            ("outage_seconds", json!(progress.outage_time.as_secs_f64())),
            ("outage_open", json!(progress.outage_open.is_some())),
            ("hosts_held", json!(progress.hosts_held)),
            (
                "hosts_held_next",
                json!(progress.hosts_held_next.map(|span| span.as_secs_f64())),
            ),
        ];
        for (key, value) in lacking {
            all[key] = value;
        }
        for (key, value) in pacing.to_json() {
            all[key] = value;
        }
        all
    }
}

/// The key of a phase in `stats.json`, which is shorter than in result lines.
fn key_of(phase: Phase) -> &'static str {
    match phase {
        Phase::TlsHandshake => "tls",
        phase => phase.as_str(),
    }
}

/// Whether a final result with this failure counts towards `CLOSESPIDER_ERRORCOUNT`. A robots.txt that
/// is unavailable is an error; a rule in it is not.
fn counts_as_error(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Filtered | FailureKind::Cancelled => false,
        FailureKind::Robots => failure.name != "disallowed",
        _ => true,
    }
}

impl Default for Stats {
    fn default() -> Self {
        Stats::new()
    }
}

/// What limits of a whole crawl count, in all its runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Final pages with a status (`CLOSESPIDER_PAGECOUNT`).
    pub pages: u64,
    /// Requests that failed for good (`CLOSESPIDER_ERRORCOUNT`).
    pub errors: u64,
    /// Bytes of replies that have ended, over the wire (`CLOSESPIDER_BYTECOUNT`).
    pub bytes: u64,
    /// Time in which the crawl ran (`CLOSESPIDER_TIMEOUT`).
    pub active: Duration,
}

/// Progress of a crawl, as shown while it runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// Why it ended; `None` while it runs.
    pub finish_reason: Option<FinishReason>,
    /// The socket back end.
    pub io: IoKind,
    /// Wall time at its start.
    pub started: Wall,
    /// Wall time now.
    pub now: Wall,
    /// Since its start.
    pub elapsed: Duration,
    /// Requests queued.
    pub queued: usize,
    /// Requests released and not finished.
    pub in_flight: usize,
    /// Bytes of replies that are buffered until their exchanges end.
    pub buffered: usize,
    /// Time without room on the disk so far, if there is none: nothing is released then.
    pub disk_full_for: Option<Duration>,
    /// Number of times there was none.
    pub disk_pauses: u64,
    /// Total time without room.
    pub disk_paused: Duration,
    /// Scopes with state.
    pub scopes: usize,
    /// Scopes with a waiting lane.
    pub scopes_waiting: usize,
    /// Number of outages of the local network or the name servers (`OUTAGE_BREAKER`).
    pub outages: u64,
    /// Total time of these outages.
    pub outage_time: Duration,
    /// Time until the next probe, during an outage.
    pub outage_open: Option<Duration>,
    /// Hosts that do not answer and are held (`HOST_DOWN_AFTER`).
    pub hosts_held: usize,
    /// Time until the first of them may be asked again.
    pub hosts_held_next: Option<Duration>,
    /// URLs seen.
    pub seen: usize,
    /// Links filtered, by reason.
    pub filtered: BTreeMap<Filtered, u64>,
    /// What its limits count.
    pub totals: Totals,
}

/// Progress, counters, server latency and departure lateness of a crawl at one moment.
/// [`Crawler::stats`](crate::Crawler::stats) has more.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// Progress; its `elapsed` is the time of the snapshot.
    pub progress: Progress,
    /// The crawl is [paused](crate::Handle::pause).
    pub paused: bool,
    /// Attempts that ended, final or not, of pages, robots.txt and sitemaps.
    pub attempts: u64,
    /// Final results of pages with a status.
    pub pages: u64,
    /// Final results of pages with an error, of whatever kind, but for those that were filtered,
    /// cancelled or disallowed by robots.txt.
    pub pages_failed: u64,
    /// Bytes of replies as they came over the wire (above TLS).
    pub bytes_wire: u64,
    /// Connections opened.
    pub connections: u64,
    /// Attempts by status of their final head.
    pub by_status: BTreeMap<u16, u64>,
    /// Attempts by failure, `kind.code`.
    pub by_error: BTreeMap<String, u64>,
    /// Median time from departure to the last byte of the final head.
    pub server_latency_p50: Option<Duration>,
    /// 99th percentile of the same time.
    pub server_latency_p99: Option<Duration>,
    /// 99th percentile of the delay of departures that our own process caused.
    pub lateness_p99: Option<Duration>,
}

impl Snapshot {
    pub(in crate::crawl) fn of(stats: &Stats, progress: Progress, paused: bool) -> Self {
        Snapshot {
            progress,
            paused,
            attempts: stats.attempts,
            pages: stats.pages,
            pages_failed: stats.pages_failed,
            bytes_wire: stats.bytes_wire,
            connections: stats.connections,
            by_status: stats.by_status.clone(),
            by_error: stats.by_error.clone(),
            server_latency_p50: stats.server_latency.quantile(0.5),
            server_latency_p99: stats.server_latency.quantile(0.99),
            lateness_p99: stats.lateness.quantile(0.99),
        }
    }
}

/// The longest span of a [`Spread`], in nanoseconds.
const HOUR: u64 = 3_600_000_000_000;

/// A distribution of spans, to three digits, from 1 ns to an hour. Each counter holds up to four thousand
/// million equal spans: 32 bits halve the memory touched, and each page touches a dozen counters.
#[derive(Clone, Debug)]
pub struct Spread {
    histogram: Histogram<u32>,
    /// Sum of the recorded spans, in nanoseconds: the histogram itself would pass through all of its
    /// counters for a mean, a hundred microseconds for each of the distributions of `stats.json`.
    sum: u128,
}

impl Spread {
    /// Nothing recorded.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, HOUR, 3);
        Spread {
            histogram: histogram.expect("these bounds are valid"),
            sum: 0,
        }
    }

    /// Records a span; what is over an hour counts as an hour.
    pub fn record(&mut self, span: Duration) {
        let nanos = nanos(span).min(HOUR);
        self.histogram.saturating_record(nanos);
        self.sum += u128::from(nanos);
    }

    /// Number of recorded spans.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The span that a share of all (0 to 1) does not exceed; `None` if nothing was recorded.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        (!self.histogram.is_empty())
            .then(|| Duration::from_nanos(self.histogram.value_at_quantile(share)))
    }

    /// The mean; `None` if nothing was recorded.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.histogram.len()))?;
        Some(Duration::from_nanos(mean as u64))
    }

    /// The longest; `None` if nothing was recorded.
    pub fn max(&self) -> Option<Duration> {
        (!self.histogram.is_empty()).then(|| Duration::from_nanos(self.histogram.max()))
    }

    /// Recorded spans with their counts, from the shortest: spans that are equal to three digits are
    /// reported as the longest of them.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.histogram.iter_recorded().map(|bucket| {
            let span = Duration::from_nanos(bucket.value_iterated_to());
            (span, u64::from(bucket.count_at_value()))
        })
    }

    /// Sum of the recorded spans, in seconds.
    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// Number of recorded spans up to each of these bounds, which ascend. To three digits: spans that are equal
    /// to a bound as far as recorded are counted in it.
    ///
    /// Counters are visited only between the shortest and the longest span, some thousands, each once.
    pub(super) fn counts_up_to<'a>(
        &'a self,
        bounds: &'a [Duration],
    ) -> impl Iterator<Item = (Duration, u64)> + 'a {
        let histogram = &self.histogram;
        let (mut counted, mut next) = (0, histogram.min());
        bounds.iter().map(move |bound| {
            let end = nanos(*bound);
            if end >= histogram.max() {
                counted = histogram.len();
            } else if end >= next {
                counted += histogram.count_between(next, end);
                next = histogram.next_non_equivalent(end);
            }
            (*bound, counted)
        })
    }

    /// Count and percentiles, in seconds; null if nothing was recorded.
    pub(super) fn to_json(&self) -> Value {
        if self.histogram.is_empty() {
            return Value::Null;
        }
        let at = |share: f64| self.histogram.value_at_quantile(share) as f64 / 1e9;
        json!({
            "count": self.histogram.len(),
            "mean": self.sum as f64 / self.histogram.len() as f64 / 1e9,
            "min": self.histogram.min() as f64 / 1e9,
            "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999),
            "max": self.histogram.max() as f64 / 1e9,
        })
    }
}

impl Default for Spread {
    fn default() -> Self {
        Spread::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::base::stamp::{Clock, Stamp};
    use crate::base::time::Instant;

    #[test]
    fn a_spread_without_values_is_null_and_one_with_values_gives_seconds() {
        let mut spread = Spread::new();
        assert_eq!(spread.to_json(), Value::Null);
        assert_eq!(spread.quantile(0.5), None);
        for millis in 1..=100 {
            spread.record(Duration::from_millis(millis));
        }
        let p50 = spread.quantile(0.5).expect("values").as_secs_f64();
        assert!((0.0499..0.0511).contains(&p50), "{p50}");
        assert_eq!(spread.to_json()["count"], 100);
    }

    #[test]
    fn the_mean_is_exact_and_a_span_over_an_hour_counts_as_an_hour() {
        let mut spread = Spread::new();
        assert_eq!(spread.mean(), None);
        for nanos in [1, 2_000_001, 4_000_001] {
            spread.record(Duration::from_nanos(nanos));
        }
        assert_eq!(spread.mean(), Some(Duration::from_nanos(2_000_001)));
        assert_eq!(spread.to_json()["mean"], 0.002_000_001);
        let mut spread = Spread::new();
        spread.record(Duration::from_secs(86_400));
        assert_eq!(spread.mean(), Some(Duration::from_secs(3600)));
    }

    #[test]
    fn spans_are_counted_up_to_each_bound() {
        let check = |millis: &[u64], expected: &[u64]| {
            let mut spread = Spread::new();
            for millis in millis {
                spread.record(Duration::from_millis(*millis));
            }
            let bounds = [1, 5, 10, 100, 60_000].map(Duration::from_millis);
            let counts = spread.counts_up_to(&bounds).map(|(_, count)| count);
            assert_eq!(counts.collect::<Vec<_>>(), expected, "{millis:?}");
        };
        check(&[], &[0, 0, 0, 0, 0]);
        check(&[0], &[1, 1, 1, 1, 1]);
        check(&[1, 5, 10, 100, 60_000], &[1, 2, 3, 4, 5]);
        check(&[2, 6, 6, 11, 101, 61_000], &[0, 1, 3, 4, 5]);
        check(&[7_000_000], &[0, 0, 0, 0, 0]);
        check(&[5, 5, 5], &[0, 3, 3, 3, 3]);
    }

    #[test]
    fn counts_up_to_bounds_are_those_of_the_recorded_spans() {
        let mut rng = Rng::from_seed(7);
        let mut spread = Spread::new();
        let spans: Vec<Duration> = (0..20_000)
            .map(|_| Duration::from_nanos(1 << rng.below(42) | rng.below(1 << 30)))
            .collect();
        for span in &spans {
            spread.record(*span);
        }
        let bounds: Vec<Duration> = (0..24)
            .map(|power| Duration::from_micros(10) * (1 << power))
            .collect();
        for (bound, counted) in spread.counts_up_to(&bounds) {
            let up_to =
                |bound: Duration| spans.iter().filter(|span| **span <= bound).count() as u64;
            assert!(counted >= up_to(bound), "{bound:?}: {counted}");
            assert!(
                counted <= up_to(bound.mul_f64(1.001)),
                "{bound:?}: {counted}"
            );
        }
    }

    #[test]
    fn latencies_are_counted_by_how_far_they_can_be_trusted() {
        let mut stats = Stats::new();
        let head = |millis, clock, slack| Timings {
            sent: Some(Instant::START),
            headers: Some(Stamp {
                at: Instant::START + Duration::from_millis(millis),
                clock,
                slack: Duration::from_millis(slack),
            }),
            ..Timings::default()
        };
        for timings in [
            head(20, Clock::Kernel, 0),
            head(70, Clock::Kernel, 1),
            head(80, Clock::Kernel, 2),
            head(90, Clock::User, 0),
            Timings::default(),
        ] {
            stats.time(&timings);
        }
        let json = stats.to_value(&Progress::default(), &PaceReport::default());
        assert_eq!(
            json["stamps"],
            json!({"exact": 1, "bound": 2, "user": 1}),
            "what had no head has no latency"
        );
        assert_eq!(json["server_latency"]["count"], 4);
        assert_eq!(json["server_latency_exact"]["count"], 1);
        assert!(stats.server_latency_exact.quantile(1.0) < Some(Duration::from_millis(21)));
    }

    #[test]
    fn scopes_with_equal_counts_are_ordered_by_name() {
        let mut stats = Stats::new();
        for number in (0..500).rev() {
            let millis = if number == 400 { 9 } else { number % 7 };
            let latency = Duration::from_millis(millis);
            stats.tally(&format!("{number:03}.test"), false, Some(latency));
        }
        let slowest = stats.slowest_scopes(4);
        let names: Vec<&str> = slowest.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["400.test", "006.test", "013.test", "020.test"]);
        assert!(stats.slowest_scopes(0).is_empty());
        assert!(stats.most_refused_scopes(4).is_empty());
    }

    #[test]
    fn scopes_are_ranked_by_refusals_and_by_latency() {
        let mut stats = Stats::new();
        for (scope, refused, millis) in [("a", true, 5), ("b", false, 50), ("a", true, 7)] {
            stats.tally(scope, refused, Some(Duration::from_millis(millis)));
        }
        assert_eq!(stats.most_refused_scopes(5).len(), 1);
        assert_eq!(stats.most_refused_scopes(5)[0].1.refused, 2);
        assert_eq!(stats.slowest_scopes(5)[0].0, "b");
    }
}
