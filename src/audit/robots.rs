//! The archive of robots.txt: what was in force for each origin, and when.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, BufRead};
use std::rc::Rc;

use data_encoding::BASE64;
use serde::Serialize;

use super::lines::{self, Read};
use super::time::Time;
use crate::wire::robots::{Robots, Rules};

/// `robots.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct RobotsLog {
    origins: HashMap<Box<str>, Vec<InForce>>,
    /// Files, each once.
    files: Vec<Rc<[u8]>>,
    numbers: HashMap<String, u32>,
    /// Bytes of all files.
    bytes: usize,
    /// Rules of files by number and agent, as they were needed.
    rules: RefCell<HashMap<(u32, String), Rc<Rules>>>,
    read: Read,
    omitted: u64,
}

/// What was in force for an origin, until the next was.
#[derive(Clone, Copy, Debug)]
pub(super) struct InForce {
    pub from: Time,
    pub until: Time,
    pub meaning: Meaning,
    /// It came by a route that not all requests take.
    is_routed: bool,
}

/// What it meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The rules of the file with this number.
    File(u32),
    /// Everything is allowed.
    Absent,
    /// Nothing is allowed.
    Unreachable,
    /// The file is not in the archive.
    Missing,
}

/// Files in memory. Of more the rules are not judged.
const BYTES_MAX: usize = 1 << 30;
/// Rules in memory; beyond it all are read again.
const RULES_MAX: usize = 1 << 16;

#[derive(serde::Deserialize)]
struct Line {
    at: Time,
    until: Time,
    origin: String,
    proxied: Option<bool>,
    meaning: String,
    digest: Option<String>,
    body: Option<String>,
    body_b64: Option<String>,
}

/// Verdict on a request by the robots.txt of its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RobotsVerdict {
    Allowed,
    /// No robots.txt was fetched before.
    NotFetched,
    /// The last one was valid until then.
    Expired(Time),
    /// None was available, so that nothing was allowed.
    Unreachable,
    /// A rule forbids it: its line and text.
    Disallowed(u32, String),
    /// The archive lacks the file.
    Unknown,
}

impl RobotsLog {
    /// Reads the archive.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut log = RobotsLog::default();
        log.read = lines::read(input, |line| log.add(line))?;
        Ok(log)
    }

    /// What was read.
    pub fn read_lines(&self) -> &Read {
        &self.read
    }

    /// Files that did not fit into memory.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn add(&mut self, line: Line) -> Result<(), String> {
        let meaning = match line.meaning.as_str() {
            "absent" => Meaning::Absent,
            "unreachable" => Meaning::Unreachable,
            "rules" => {
                let digest = line.digest.ok_or("it has no digest")?;
                let file = match (line.body, line.body_b64) {
                    (Some(text), _) => Some(text.into_bytes()),
                    (None, Some(coded)) => {
                        let decoded = BASE64.decode(coded.as_bytes());
                        Some(decoded.map_err(|error| format!("body_b64: {error}"))?)
                    }
                    (None, None) => None,
                };
                match file {
                    Some(file) => self.add_file(digest, &file),
                    None => {
                        let known = self.numbers.get(&digest);
                        known.map_or(Meaning::Missing, |number| Meaning::File(*number))
                    }
                }
            }
            other => return Err(format!("{other:?} is no meaning")),
        };
        let of_origin = self.origins.entry(line.origin.into()).or_default();
        // The next one replaces it, whatever its lifetime was. One that came by a route other than that of all
        // requests neither replaces nor is replaced: each route has one of its own.
        let is_routed = line.proxied.is_some();
        let mut of_all = of_origin.iter_mut().rev().filter(|one| !one.is_routed);
        if let Some(before) = of_all.next().filter(|_| !is_routed) {
            before.until = before.until.min(line.at);
        }
        of_origin.push(InForce {
            from: line.at,
            until: line.until,
            meaning,
            is_routed,
        });
        Ok(())
    }

    fn add_file(&mut self, digest: String, file: &[u8]) -> Meaning {
        if let Some(number) = self.numbers.get(&digest) {
            return Meaning::File(*number);
        }
        if self.bytes + file.len() > BYTES_MAX {
            self.omitted += 1;
            return Meaning::Missing;
        }
        self.bytes += file.len();
        let number = self.files.len() as u32;
        self.files.push(file.into());
        self.numbers.insert(digest, number);
        Meaning::File(number)
    }

    /// What was in force for an origin at some time of an attempt.
    fn in_force(&self, origin: &str, started: Time, sent: Time) -> Vec<InForce> {
        let all = self.origins.get(origin).map_or(&[][..], Vec::as_slice);
        let end = all.partition_point(|one| one.from <= sent);
        let known = all[..end].iter().copied();
        known.filter(|one| one.until > started).collect()
    }

    /// Whether a request was allowed by what was in force at some time between its release and its departure.
    pub(super) fn verdict(
        &self,
        origin: &str,
        target: &str,
        agent: &str,
        (started, sent): (Time, Time),
    ) -> RobotsVerdict {
        let candidates = self.in_force(origin, started, sent);
        let Some(last) = candidates.last() else {
            let all = self.origins.get(origin).map_or(&[][..], Vec::as_slice);
            let before = all.iter().rev().find(|one| one.from <= sent);
            return before.map_or(RobotsVerdict::NotFetched, |one| {
                RobotsVerdict::Expired(one.until)
            });
        };
        let allows = |one: &InForce| match one.meaning {
            Meaning::Absent => true,
            Meaning::File(number) => self.rules(number, agent).allowed(target).allowed,
            Meaning::Unreachable | Meaning::Missing => false,
        };
        if candidates.iter().any(allows) {
            return RobotsVerdict::Allowed;
        }
        let is_missing = |one: &InForce| one.meaning == Meaning::Missing;
        if candidates.iter().any(is_missing) {
            return RobotsVerdict::Unknown;
        }
        let Meaning::File(number) = last.meaning else {
            return RobotsVerdict::Unreachable;
        };
        let rules = self.rules(number, agent);
        let rule = rules.allowed(target).rule;
        let (line, text) = rule.map_or((0, "/"), |rule| (rule.line, rule.pattern));
        RobotsVerdict::Disallowed(line, text.to_owned())
    }

    /// The least Crawl-delay, in nanoseconds, of what was in force at some time of an attempt; 0 for none.
    pub fn crawl_delay(&self, origin: &str, agent: &str, (started, sent): (Time, Time)) -> u64 {
        let candidates = self.in_force(origin, started, sent);
        if candidates.first().is_none_or(|first| first.from > started) {
            // It was released before any was known.
            return 0;
        }
        let candidates = candidates.iter();
        let delays = candidates.map(|one| match one.meaning {
            Meaning::File(number) => self.rules(number, agent).crawl_delay(),
            _ => None,
        });
        let delays = delays.map(|delay| {
            let nanos = delay.map_or(0, |delay| delay.as_nanos());
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        delays.min().unwrap_or(0)
    }

    fn rules(&self, number: u32, agent: &str) -> Rc<Rules> {
        let mut known = self.rules.borrow_mut();
        if let Some(rules) = known.get(&(number, agent.to_owned())) {
            return Rc::clone(rules);
        }
        if known.len() >= RULES_MAX {
            known.clear();
        }
        let file = &self.files[number as usize];
        let rules = Rc::new(Robots::parse(file).agent(agent));
        known.insert((number, agent.to_owned()), Rc::clone(&rules));
        rules
    }

    /// What was in force for the origins of a host, for a receipt.
    pub fn of_host(&self, is_of_host: impl Fn(&str) -> bool) -> Vec<RobotsRecord> {
        let mut records = Vec::new();
        for (origin, all) in &self.origins {
            if !is_of_host(origin) {
                continue;
            }
            for one in all {
                let file = match one.meaning {
                    Meaning::File(number) => Some(&self.files[number as usize]),
                    _ => None,
                };
                let digest = file.map(|file| crate::wire::warc::Digest::new(file).to_string());
                records.push(RobotsRecord {
                    origin: origin.to_string(),
                    from: one.from,
                    until: one.until,
                    meaning: match one.meaning {
                        Meaning::File(_) => "rules",
                        Meaning::Absent => "absent",
                        Meaning::Unreachable => "unreachable",
                        Meaning::Missing => "missing",
                    },
                    digest,
                    body: file.map(|file| String::from_utf8_lossy(file).into_owned()),
                });
            }
        }
        records.sort_by(|one, other| (one.from, &one.origin).cmp(&(other.from, &other.origin)));
        records
    }
}

/// A robots.txt in a receipt.
#[derive(Clone, Debug, Serialize)]
pub struct RobotsRecord {
    origin: String,
    from: Time,
    until: Time,
    meaning: &'static str,
    digest: Option<String>,
    body: Option<String>,
}
