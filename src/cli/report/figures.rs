//! The figures of a report, and how they are made from the files of a crawl.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::advice::{Evidence, Recommendations};
use super::bodies::{Bodies, BodyCounts};
use super::connections::{ConnectionCounts, Reuse, Tls};
use super::gaps::{GapJudge, Gaps, WINDOW};
use super::hosts::{HostTable, Hosts};
use super::latencies::{Latencies, Latency};
use super::line::{Line, nanos};
use super::names::{NAMES_MAX, NameId, Names};
use super::outcomes::Outcomes;
use super::percentiles::Percentiles;
use super::results::{self, LinesRead};
use super::stored::{StoredFile, StoredStats};
use super::timeline::{Throughput, Timeline};
use super::totals::Totals;

/// All figures of a report; `--json` prints them under these names.
#[derive(Serialize)]
pub struct Report {
    /// The output directory.
    pub directory: String,
    /// When the report was made.
    pub made: String,
    /// Version of the program that made it.
    pub version: &'static str,
    /// Why the crawl ended; null while it runs, and without `stats.json`.
    pub finish_reason: Option<String>,
    /// What is missing, damaged or not of the whole crawl.
    pub notes: Vec<String>,
    pub results: LinesRead,
    pub totals: Totals,
    pub throughput: Throughput,
    pub outcomes: Outcomes,
    pub latency: Latency,
    /// Durations of phases from their first packet, from `stats.json`.
    pub phases_exact: BTreeMap<String, Option<Percentiles>>,
    pub hosts: Hosts,
    pub gaps: Gaps,
    /// Seconds that scopes waited, by cause; null without `stats.json`.
    pub waited: Option<BTreeMap<String, f64>>,
    /// Decisions about paces, by event; null without `stats.json`.
    pub decisions: Option<BTreeMap<String, u64>>,
    pub connections: Reuse,
    pub tls: Tls,
    pub bodies: Bodies,
    pub recommendations: Recommendations,
}

impl Report {
    /// Reads the files of a crawl. `made`: the present time.
    ///
    /// # Errors
    /// The result lines cannot be read.
    pub fn read(folder: &Path, made: String) -> io::Result<Self> {
        let mut analysis = Analysis::new();
        let results = results::read(folder, |line| analysis.add(line))?;
        let stored = StoredFile::read(&folder.join(STATS));
        let directory = folder.display().to_string();
        Ok(analysis.report(directory, made, results, stored))
    }
}

/// The file of result lines in an output directory, and the first of their names.
pub const RESULTS: &str = "results.jsonl";
/// The file of statistics.
pub const STATS: &str = "stats.json";

/// What is counted while lines are read.
struct Analysis {
    totals: Totals,
    timeline: Timeline,
    outcomes: Outcomes,
    latencies: Latencies,
    names: Names,
    hosts: HostTable,
    gaps: GapJudge,
    connections: ConnectionCounts,
    bodies: BodyCounts,
    /// The numbers of a line's scopes.
    scopes: Vec<NameId>,
}

impl Analysis {
    fn new() -> Self {
        Analysis {
            totals: Totals::default(),
            timeline: Timeline::new(),
            outcomes: Outcomes::default(),
            latencies: Latencies::new(),
            names: Names::new(NAMES_MAX),
            hosts: HostTable::new(NAMES_MAX),
            gaps: GapJudge::new(WINDOW, NAMES_MAX),
            connections: ConnectionCounts::new(),
            bodies: BodyCounts::new(),
            scopes: Vec::new(),
        }
    }

    fn add(&mut self, line: &Line<'_>) {
        self.totals.add(line);
        self.timeline.add(line);
        self.outcomes.add(line);
        self.latencies.add(line);
        self.connections.add(line);
        self.bodies.add(line);
        let host = line.host();
        let host_id = self.names.id(host);
        self.hosts.add(host_id, line);
        if let Some(sent) = line.sent {
            self.scopes.clear();
            for scope in &line.scopes {
                let id = match *scope.0 == *host {
                    true => host_id,
                    false => self.names.id(&scope.0),
                };
                self.scopes.extend(id);
            }
            let is_whole = self.scopes.len() == line.scopes.len();
            let scopes = is_whole.then_some(&*self.scopes);
            let delay = Duration::from_nanos(nanos(line.delay.unwrap_or(0.0)));
            self.gaps.add(sent, delay, scopes, &self.names);
        }
    }

    fn report(
        self,
        directory: String,
        made: String,
        results: LinesRead,
        stored: StoredFile,
    ) -> Report {
        let hosts = self.hosts.hosts(&self.names);
        let gaps = self.gaps.finish(&self.names);
        let (connections, tls) = self.connections.finished();
        let notes = notes(&results, &stored, &hosts, &gaps);
        let stats = match stored {
            StoredFile::Read(stats) => Some(*stats),
            StoredFile::Missing | StoredFile::Unusable(_) => None,
        };
        let totals = self.totals.finished();
        let outcomes = self.outcomes.finished();
        let latency = self.latencies.latency();
        let recommendations = Recommendations::of(&Evidence {
            totals: &totals,
            outcomes: &outcomes,
            latency: &latency,
            hosts: &hosts,
            gaps: &gaps,
            stats: stats.as_ref(),
        });
        Report {
            directory,
            made,
            version: env!("CARGO_PKG_VERSION"),
            finish_reason: stats.as_ref().and_then(|stats| stats.finish_reason.clone()),
            notes,
            results,
            totals,
            throughput: self.timeline.throughput(),
            outcomes,
            latency,
            phases_exact: stats
                .as_ref()
                .map(|stats| stats.phases.clone())
                .unwrap_or_default(),
            hosts,
            gaps,
            waited: stats.as_ref().map(|stats| stats.waited.clone()),
            decisions: stats.as_ref().map(|stats| stats.decisions.clone()),
            connections,
            tls,
            bodies: self.bodies.bodies(),
            recommendations,
        }
    }
}

/// What a reader must know about the completeness of the figures.
fn notes(results: &LinesRead, stored: &StoredFile, hosts: &Hosts, gaps: &Gaps) -> Vec<String> {
    let mut notes = Vec::new();
    if results.lines == 0 {
        notes.push(format!("{RESULTS} has no line: nothing has ended yet."));
    }
    if results.bad > 0 {
        let first = results.bad_lines.first();
        let first = first.map_or_else(String::new, |bad| {
            let file = match &*bad.file {
                RESULTS => String::new(),
                file => format!(" of {file}"),
            };
            format!(
                " The first is line {}{file}, at byte {}: {}.",
                bad.line, bad.byte, bad.reason
            )
        });
        notes.push(format!(
            "{} lines of {RESULTS} are damaged and left out.{first}",
            results.bad
        ));
    }
    if results.incomplete {
        notes.push(format!(
            "The last line of {RESULTS} has no end and is left out: the crawl runs, or it was killed; crawl --resume \
             cuts it off and fetches its URL again."
        ));
    }
    match stored {
        StoredFile::Read(stats) => notes.extend(note_of_run(stats, results)),
        StoredFile::Missing => notes.push(format!(
            "There is no {STATS}: waits by cause, decisions, phases from their first packet and remarks on scopes are \
             missing. A crawl writes it every few seconds."
        )),
        StoredFile::Unusable(reason) => notes.push(format!(
            "{STATS} cannot be used ({reason}): waits by cause, decisions, phases from their first packet and remarks \
             on scopes are missing. Restore it from a backup; crawl --resume writes a new one."
        )),
    }
    if hosts.attempts_omitted > 0 {
        notes.push(format!(
            "{} attempts are of hosts beyond the first million names of hosts and scopes: these hosts are not among \
             those listed.",
            hosts.attempts_omitted
        ));
    }
    if gaps.omitted + gaps.unordered > 0 {
        notes.push(format!(
            "Gaps: {} departures of scopes beyond the first million names, or without scopes, and {} whose line comes \
             more than {WINDOW} lines late are not compared; the gap of the next departure of the latter's scope is \
             too long.",
            gaps.omitted, gaps.unordered
        ));
    }
    notes
}

/// A note if `stats.json` is of other attempts than the lines.
fn note_of_run(stats: &StoredStats, results: &LinesRead) -> Option<String> {
    let attempts = stats.attempts?;
    let lines = results.lines + results.bad;
    (attempts != lines).then(|| {
        format!(
            "{STATS} is of {attempts} attempts and {RESULTS} has {lines} lines: it is of the last run of a crawl that \
             was resumed, or from shortly before the crawl was killed. Waits, decisions, phases from their first \
             packet and remarks on scopes are of these attempts."
        )
    })
}
