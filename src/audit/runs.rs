//! The log of runs: when a crawl could send, and by which settings.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::sync::Arc;

use serde::Serialize;

use super::lines::{self, Read};
use super::settings::{Entry, Settings};
use super::time::Time;

/// `runs.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct RunLog {
    runs: Vec<Run>,
    /// In the order of their times.
    changes: Vec<(Time, Arc<Settings>)>,
    read: Read,
}

/// One run of a crawl.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// When it began.
    pub start: Time,
    /// When it ended; `None`: it was killed, or runs.
    pub end: Option<Time>,
    /// Why it ended.
    pub reason: Option<String>,
    /// Which version of the program it was.
    pub version: String,
    /// When the run before it recorded its last commit; `None` if it is the first, or there was none.
    pub committed: Option<Time>,
    /// It began paused, by an order of an earlier run.
    #[serde(skip)]
    pub(super) is_paused: bool,
    /// Hosts that orders of earlier runs excluded.
    #[serde(skip)]
    pub(super) excluded: Vec<String>,
}

/// Time in which requests may have been sent that have no lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unobserved {
    /// The last commit before.
    pub from: Time,
    /// The start of the next run; `None`: there is none.
    pub to: Option<Time>,
}

#[derive(serde::Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start {
        at: Time,
        version: String,
        committed: Option<Time>,
        paused: bool,
        settings: Settings,
    },
    Settings {
        at: Time,
        settings: Settings,
    },
    Scopes {
        at: Time,
        default: Entry,
        /// All entries: of older crawls.
        scopes: Option<BTreeMap<String, Entry>>,
        /// Entries that have changed; `None`: they are gone.
        #[serde(default)]
        changed: BTreeMap<String, Option<Entry>>,
    },
    Scope {
        at: Time,
        scope: String,
        settings: Option<Entry>,
    },
    End {
        at: Time,
        reason: String,
    },
}

impl RunLog {
    /// Reads the log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut log = RunLog::default();
        log.read = lines::read(input, |line| log.add(line))?;
        Ok(log)
    }

    /// What was read.
    pub fn read_lines(&self) -> &Read {
        &self.read
    }

    /// Whether it has no run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn add(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Start {
                at,
                version,
                committed,
                paused,
                settings,
            } => {
                let settings = settings.complete()?;
                self.runs.push(Run {
                    start: at,
                    end: None,
                    reason: None,
                    version,
                    committed,
                    is_paused: paused,
                    excluded: settings.excluded.clone(),
                });
                self.changes.push((at, Arc::new(settings)));
            }
            Line::Settings { at, settings } => {
                self.changes.push((at, Arc::new(settings.complete()?)));
            }
            Line::Scopes {
                at,
                default,
                scopes,
                changed,
            } => {
                let (_, before) = self.changes.last().ok_or("there is no start before")?;
                let mut after = Settings::clone(before);
                after.default = default;
                after.scopes = scopes.unwrap_or(after.scopes);
                for (name, entry) in changed {
                    after.set_entry(name, entry);
                }
                self.changes.push((at, Arc::new(after)));
            }
            Line::Scope {
                at,
                scope,
                settings,
            } => {
                let (_, before) = self.changes.last().ok_or("there is no start before")?;
                let mut after = Settings::clone(before);
                after.set_entry(scope, settings);
                self.changes.push((at, Arc::new(after)));
            }
            Line::End { at, reason } => {
                let run = self.runs.last_mut().ok_or("there is no start before")?;
                (run.end, run.reason) = (Some(at), Some(reason));
            }
        }
        Ok(())
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All settings, with the times from which on they were in effect.
    pub(super) fn changes(&self) -> &[(Time, Arc<Settings>)] {
        &self.changes
    }

    /// The number of the settings in effect at a time: those of the first run before it.
    pub(super) fn settings_at(&self, at: Time) -> usize {
        let later = self.changes.partition_point(|(from, _)| *from <= at);
        later.saturating_sub(1)
    }

    /// The settings of a number.
    pub(super) fn settings(&self, number: usize) -> &Settings {
        &self.changes[number].1
    }

    /// Whether a run could send at a time.
    pub(super) fn is_running(&self, at: Time) -> bool {
        let later = self.runs.partition_point(|run| run.start <= at);
        let run = later.checked_sub(1).map(|last| &self.runs[last]);
        run.is_some_and(|run| run.end.is_none_or(|end| at <= end))
    }

    /// When requests may have been sent that have no lines.
    pub fn unobserved(&self) -> Vec<Unobserved> {
        let mut periods = Vec::new();
        for (number, run) in self.runs.iter().enumerate() {
            if run.end.is_some() {
                continue;
            }
            let next = self.runs.get(number + 1);
            let Some(next) = next else {
                // It runs, or it was killed and not resumed: its lines are not cut.
                continue;
            };
            let from = next.committed.filter(|at| *at >= run.start);
            periods.push(Unobserved {
                from: from.unwrap_or(run.start).min(next.start),
                to: Some(next.start),
            });
        }
        periods
    }
}
