//! How a crawl does, for whoever asks from elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::crawl::stats::{Progress, Stats};

/// How a crawl did at one moment: what it has come to, counts, and the two spreads that tell whether
/// it is well. [`Crawler::stats`](crate::Crawler::stats) knows more.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// How far it has come; `elapsed` says when this was.
    pub progress: Progress,
    /// It was told to [pause](crate::Handle::pause).
    pub paused: bool,
    /// Attempts that ended, final or not, of pages, robots.txt and sitemaps.
    pub attempts: u64,
    /// Final results of pages with a status.
    pub pages: u64,
    /// Final results of pages with an error; those that we left out ourselves are none.
    pub pages_failed: u64,
    /// Bytes of replies as they came over the wire (above TLS).
    pub bytes_wire: u64,
    /// Connections opened.
    pub connections: u64,
    /// Attempts by status of their final head.
    pub by_status: BTreeMap<u16, u64>,
    /// Attempts by failure, `kind.code`.
    pub by_error: BTreeMap<String, u64>,
    /// From departure to the last byte of the final head: half of all took no longer.
    pub server_latency_p50: Option<Duration>,
    /// The same: 99 of 100 took no longer.
    pub server_latency_p99: Option<Duration>,
    /// How late requests left, of our own making: 99 of 100 no later.
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
