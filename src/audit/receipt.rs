//! A receipt for one site: every request to it, the rules in force, and the verdict, for its owner to check.

use serde::Serialize;

use super::attempt::{Attempt, host_of};
use super::auditor::Evidence;
use super::robots::RobotsRecord;
use super::runs::{Run, Unobserved};
use super::settings::Limits;
use super::time::{Time, seconds};
use super::verdict::{Verdict, Violation};
use crate::wire::warc::Digest;

/// Collects the requests to one site.
#[derive(Debug)]
pub struct ReceiptMaker {
    site: String,
    requests: Vec<Request>,
    omitted: u64,
    lines: u64,
    digest: String,
    holds: Vec<AskedHold>,
}

/// Requests in a receipt; more are counted.
const REQUESTS_MAX: usize = 1_000_000;

/// What the owner of a site can check against the site's own log.
#[derive(Debug, Serialize)]
pub struct Receipt {
    site: String,
    made: String,
    verdict: &'static str,
    violations: Vec<Violation>,
    violations_omitted: u64,
    user_agents: Vec<String>,
    robots_agents: Vec<String>,
    runs: Vec<Run>,
    unobserved: Vec<Unobserved>,
    limits: Vec<LimitsFrom>,
    robots: Vec<RobotsRecord>,
    holds: Vec<AskedHold>,
    lines: u64,
    digest: String,
    requests_omitted: u64,
    requests: Vec<Request>,
}

#[derive(Debug, Serialize)]
struct Request {
    sent: Time,
    id: u64,
    kind: String,
    method: String,
    origin: String,
    target: String,
    remote: Option<String>,
    status: Option<u16>,
    error: Option<String>,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct AskedHold {
    from: Time,
    until: Time,
    asked: f64,
    source: String,
    id: u64,
}

/// What the configuration promised from a time on.
#[derive(Debug, PartialEq, Serialize)]
struct LimitsFrom {
    from: Time,
    scope: String,
    gap: f64,
    slot_gap: f64,
    concurrency: Option<u32>,
    per_minute: Option<u32>,
    robots_obeyed: bool,
}

impl ReceiptMaker {
    /// For a host, with or without its port. Without, all its ports count.
    pub fn new(site: &str) -> Self {
        ReceiptMaker {
            site: site.to_ascii_lowercase(),
            requests: Vec::new(),
            omitted: 0,
            lines: 0,
            digest: Digest::new(b"").to_string(),
            holds: Vec::new(),
        }
    }

    fn is_of_site(&self, authority: &str) -> bool {
        authority == self.site || host_of(authority) == self.site
    }

    /// Adds an attempt with its line, if a request of it was sent to the site.
    pub fn add(&mut self, attempt: &Attempt<'_>, line: &[u8]) {
        let Some(sent) = attempt.sent else {
            return;
        };
        if !self.is_of_site(attempt.authority()) {
            return;
        }
        self.lines += 1;
        self.digest = Digest::new(&[self.digest.as_bytes(), line].concat()).to_string();
        if let Some(hold) = &attempt.hold {
            let held = hold.scopes.values().copied().fold(0.0, f64::max);
            self.holds.push(AskedHold {
                from: hold.from,
                until: hold.from.plus(super::time::nanos(held)),
                asked: hold.seconds,
                source: hold.source.clone(),
                id: attempt.id,
            });
        }
        if self.requests.len() == REQUESTS_MAX {
            self.omitted += 1;
            return;
        }
        self.requests.push(Request {
            sent,
            id: attempt.id,
            kind: attempt.kind.clone().into_owned(),
            method: attempt.method.clone(),
            origin: attempt.origin().to_owned(),
            target: attempt.target().to_owned(),
            remote: attempt.remote.clone(),
            status: attempt.status,
            error: attempt.error.as_ref().map(|error| error.code.clone()),
            bytes: attempt.bytes_wire,
        });
    }

    /// Whether no request was sent to the site.
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// The receipt, with what was found of the whole crawl.
    pub fn finish(mut self, verdict: &Verdict, evidence: &Evidence, made: String) -> Receipt {
        self.requests
            .sort_by_key(|request| (request.sent, request.id));
        let of_site = |violation: &&Violation| self.is_of_site(&violation.host);
        let violations: Vec<Violation> =
            verdict.violations.iter().filter(of_site).cloned().collect();
        let mut scopes: Vec<String> = Vec::new();
        for request in &self.requests {
            let (_, authority) = request.origin.split_once("://").unwrap_or_default();
            if !scopes.iter().any(|known| known == authority) {
                scopes.push(authority.to_owned());
            }
        }
        let is_of_origin = |origin: &str| {
            let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
            self.is_of_site(authority)
        };
        let changes = evidence.runs.changes();
        let mut user_agents = Vec::new();
        let mut robots_agents = Vec::new();
        let mut limits: Vec<LimitsFrom> = Vec::new();
        for (from, settings) in changes {
            add_new(&mut user_agents, &settings.user_agent);
            add_new(&mut robots_agents, &settings.robots.agent);
            for scope in &scopes {
                let of = settings.limits_of(scope).unwrap_or_default();
                let new = LimitsFrom::new(*from, scope, of, settings.robots.obeyed);
                let known = limits.iter().rev().find(|known| known.scope == *scope);
                if known.is_none_or(|known| *known != new.at(known.from)) {
                    limits.push(new);
                }
            }
        }
        Receipt {
            robots: evidence.robots.of_host(is_of_origin),
            made,
            verdict: match (violations.is_empty(), verdict.verdict) {
                (false, _) => "violated",
                (true, "violated") if verdict.violations_omitted == 0 => "kept",
                (true, "violated") => "incomplete",
                (true, other) => other,
            },
            violations,
            violations_omitted: verdict.violations_omitted,
            user_agents,
            robots_agents,
            runs: verdict.runs.clone(),
            unobserved: verdict.unobserved.clone(),
            limits,
            holds: self.holds,
            lines: self.lines,
            digest: self.digest,
            requests_omitted: self.omitted,
            requests: self.requests,
            site: self.site,
        }
    }
}

impl Receipt {
    /// Whether no violation was found.
    pub fn is_kept(&self) -> bool {
        self.violations.is_empty()
    }
}

fn add_new(list: &mut Vec<String>, text: &str) {
    if !list.iter().any(|known| known == text) {
        list.push(text.to_owned());
    }
}

impl LimitsFrom {
    fn new(from: Time, scope: &str, of: Limits, robots_obeyed: bool) -> Self {
        LimitsFrom {
            from,
            scope: scope.to_owned(),
            gap: seconds(of.gap),
            slot_gap: seconds(of.slot_gap),
            concurrency: (of.concurrency > 0).then_some(of.concurrency),
            per_minute: (of.per_minute > 0).then_some(of.per_minute),
            robots_obeyed,
        }
    }

    /// The same from another time on.
    fn at(&self, from: Time) -> Self {
        LimitsFrom {
            from,
            scope: self.scope.clone(),
            ..*self
        }
    }
}
