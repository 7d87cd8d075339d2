//! Snapshot of a crawl's counters, for other threads.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crawl::stats::{Progress, Stats};

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
    /// Final results of pages with an error, without filtered ones.
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
