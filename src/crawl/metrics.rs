//! The metrics of a crawl, as text for scrapers: counters, gauges and histograms.

mod families;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

pub use self::families::FAMILIES;
pub use crate::admin::exposition::{Family, Kind};

use crate::admin::exposition::{Exposition, Samples, Value, label_value};
use crate::admin::format::MetricsFormat;
use crate::base::time::Wall;
use crate::crawl::pace_report::{PaceReport, ScopePacing};
use crate::crawl::probe::watch::WatchCounts;
use crate::crawl::stats::{Progress, Spread, Stats};
use crate::fetch::timings::Accuracy;
use crate::frontier::request::PageKind;
use crate::throttle::cause::WaitCause;
use crate::throttle::decision::DecisionEvent;

/// What the metrics of a crawl at one moment are made of.
pub(super) struct Metrics<'a> {
    pub stats: &'a Stats,
    pub progress: &'a Progress,
    pub pacing: &'a PaceReport,
    /// The crawl is paused by command.
    pub is_paused: bool,
    /// Most scopes with series of their own: the first ones of the report.
    pub scopes_max: usize,
    /// What became of the requests to targets that are requested over and over.
    pub watch: Option<WatchCounts>,
}

/// Upper bounds of the buckets of latencies and phases.
const LATENCY_BOUNDS: &[Duration] = &[
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_micros(1_000),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1_000),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    // `DOWNLOAD_TIMEOUT` by default.
    Duration::from_secs(180),
];

/// Upper bounds of the buckets of lateness and of turns, which our own machine causes.
const LOOP_BOUNDS: &[Duration] = &[
    Duration::from_micros(10),
    Duration::from_micros(25),
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_micros(1_000),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(1_000),
];

impl Metrics<'_> {
    /// The text. Its length is bounded by the number of statuses, errors and other words, and by `scopes_max`.
    pub fn render(&self, format: MetricsFormat) -> String {
        let mut out = Exposition::new(format);
        self.write_crawl(&mut out);
        self.write_results(&mut out);
        self.write_frontier(&mut out);
        self.write_shortages(&mut out);
        self.write_times(&mut out);
        if let Some(counts) = &self.watch {
            counts.write(&mut out);
        }
        let scopes = self.scopes();
        self.write_paces(&mut out, scopes.len());
        write_scopes(&mut out, &scopes);
        out.finish()
    }

    fn write_crawl(&self, out: &mut Exposition) {
        let progress = self.progress;
        out.family(&families::BUILD)
            .add(&[env!("CARGO_PKG_VERSION"), progress.io.as_str()], true);
        let started = progress.started.saturating_since(Wall::default());
        single(out, &families::START, started);
        single(out, &families::PAUSED, self.is_paused);
    }

    fn write_results(&self, out: &mut Exposition) {
        let stats = self.stats;
        let mut attempts = out.family(&families::ATTEMPTS);
        for kind in [PageKind::Page, PageKind::Robots, PageKind::Sitemap] {
            let count = stats.by_kind.get(&kind).copied().unwrap_or(0);
            attempts.add(&[kind.as_str()], count);
        }
        single(out, &families::PAGES, stats.pages);
        single(out, &families::PAGES_FAILED, stats.pages_failed);
        let mut responses = out.family(&families::RESPONSES);
        for (status, count) in &stats.by_status {
            responses.add(&[&status.to_string()], *count);
        }
        let mut errors = out.family(&families::ERRORS);
        for (name, count) in &stats.by_error {
            let (kind, code) = name.split_once('.').unwrap_or((name, ""));
            errors.add(&[kind, code], *count);
        }
        single(out, &families::ERRORS_FINAL, stats.errors_final);
        single(out, &families::BYTES_WIRE, stats.bytes_wire);
        single(out, &families::BYTES_BODY, stats.bytes_body);
        single(out, &families::CONNECTIONS, stats.connections);
        single(out, &families::REUSED, stats.reused);
    }

    fn write_frontier(&self, out: &mut Exposition) {
        let (stats, progress) = (self.stats, self.progress);
        single(out, &families::SEEDS, stats.seeds);
        single(out, &families::SEEDS_BAD, stats.seeds_bad);
        single(out, &families::LINKS, stats.links);
        let mut filtered = out.family(&families::FILTERED);
        for (reason, count) in &progress.filtered {
            filtered.add(&[reason.as_str()], *count);
        }
        single(out, &families::SEEN, progress.seen);
        single(out, &families::QUEUED, progress.queued);
        single(out, &families::IN_FLIGHT, progress.in_flight);
        single(out, &families::BUFFERED, progress.buffered);
    }

    fn write_shortages(&self, out: &mut Exposition) {
        let progress = self.progress;
        single(out, &families::OUTAGES, progress.outages);
        single(out, &families::OUTAGE_TIME, progress.outage_time);
        single(out, &families::OUTAGE_OPEN, progress.outage_open.is_some());
        single(out, &families::DISK_PAUSES, progress.disk_pauses);
        single(out, &families::DISK_PAUSED, progress.disk_paused);
        single(out, &families::DISK_FULL, progress.disk_full_for.is_some());
        single(out, &families::HOSTS_HELD, progress.hosts_held);
        let mut next = out.family(&families::HOSTS_HELD_NEXT);
        if let Some(span) = progress.hosts_held_next {
            next.add(&[], span);
        }
    }

    fn write_times(&self, out: &mut Exposition) {
        let stats = self.stats;
        let mut stamps = out.family(&families::STAMPS);
        for label in Accuracy::ALL {
            stamps.add(&[label.as_str()], stats.by_accuracy[label as usize]);
        }
        let latencies = [
            (&families::SERVER_LATENCY, &stats.server_latency),
            (&families::LATENCY, &stats.latency),
        ];
        for (family, spread) in latencies {
            add_spread(&mut out.family(family), &[], spread, LATENCY_BOUNDS);
        }
        let mut phases = out.family(&families::PHASES);
        for (phase, spread) in &stats.phases {
            add_spread(&mut phases, &[phase.as_str()], spread, LATENCY_BOUNDS);
        }
        let of_loop = [
            (&families::LATENESS, &stats.lateness),
            (&families::TURNS, &stats.lag),
        ];
        for (family, spread) in of_loop {
            add_spread(&mut out.family(family), &[], spread, LOOP_BOUNDS);
        }
        single(out, &families::TURN_PROCESSOR_MAX, stats.lag_processor_max);
    }

    fn write_paces(&self, out: &mut Exposition, scopes_written: usize) {
        let (progress, pacing) = (self.progress, self.pacing);
        single(out, &families::SCOPES, progress.scopes);
        single(out, &families::SCOPES_WAITING, progress.scopes_waiting);
        let known = pacing.left_out + pacing.scopes.len();
        single(out, &families::SCOPES_OMITTED, known - scopes_written);
        let mut waited = out.family(&families::WAITED);
        // No request waits for an empty queue.
        let causes = WaitCause::ALL
            .iter()
            .filter(|cause| **cause != WaitCause::Queue);
        for cause in causes {
            let span = pacing.waited.get(cause).copied().unwrap_or_default();
            waited.add(&[cause.as_str()], span);
        }
        let mut decisions = out.family(&families::DECISIONS);
        for event in &DecisionEvent::ALL {
            let count = pacing.decided.get(event).copied().unwrap_or(0);
            decisions.add(&[event.as_str()], count);
        }
    }

    /// The scopes with series of their own, by label. Of names that become the same label the first is taken,
    /// since a series that appears twice is an error.
    fn scopes(&self) -> Scopes<'_> {
        let mut chosen = Scopes::new();
        for scope in self.pacing.scopes.iter().take(self.scopes_max) {
            chosen.entry(label_value(&scope.scope)).or_insert(scope);
        }
        chosen
    }
}

type Scopes<'a> = BTreeMap<Cow<'a, str>, &'a ScopePacing>;

fn write_scopes(out: &mut Exposition, scopes: &Scopes<'_>) {
    let mut write = |family: &Family, value: fn(&ScopePacing) -> Option<Value>| {
        let mut samples = out.family(family);
        for (name, scope) in scopes {
            if let Some(value) = value(scope) {
                samples.add(&[name], value);
            }
        }
    };
    write(&families::SCOPE_SENT, |scope| Some(scope.sent.into()));
    write(&families::SCOPE_REFUSED, |scope| Some(scope.refused.into()));
    write(&families::SCOPE_WAITED, |scope| {
        Some(scope.waited.values().sum::<Duration>().into())
    });
    write(&families::SCOPE_DELAY, |scope| {
        Some(scope.pace.delay.into())
    });
    write(&families::SCOPE_CONCURRENCY, |scope| {
        Some(u64::from(scope.pace.concurrency).into())
    });
    write(&families::SCOPE_LATENCY, |scope| {
        scope.latency.map(Value::from)
    });
}

/// Writes a family of one sample without labels.
fn single(out: &mut Exposition, family: &Family, value: impl Into<Value>) {
    out.family(family).add(&[], value);
}

fn add_spread(samples: &mut Samples<'_>, labels: &[&str], spread: &Spread, bounds: &[Duration]) {
    let buckets = spread.counts_up_to(bounds);
    samples.add_histogram(labels, buckets, spread.count(), spread.sum_seconds());
}
