//! Judges result lines one by one, and what they have in common in the order of their departures.

use std::collections::{BTreeMap, HashMap};

use super::address::address_of;
use super::attempt::{Attempt, host_of};
use super::names::{NameId, Names};
use super::orders::{Forbidden, Orders};
use super::robots::{RobotsLog, RobotsVerdict};
use super::row::{Breach, Findings, InForce, Row};
use super::runs::RunLog;
use super::settings::{Limits, Settings, excludes};
use super::time::{Time, nanos, seconds};
use super::verdict::{Kind, ScopeVerdict, Unjudged, Verdict, Violation};
use super::waiting::{Departure, Event, Hold, Waiting, What};

/// The files of a crawl beside its result lines.
#[derive(Debug, Default)]
pub struct Evidence {
    /// `runs.jsonl`; it has a run.
    pub runs: RunLog,
    /// `orders.jsonl`.
    pub orders: Orders,
    /// `robots.jsonl`.
    pub robots: RobotsLog,
}

/// Judges the requests of a crawl.
#[derive(Debug)]
pub struct Auditor {
    evidence: Evidence,
    forbidden: Forbidden,
    names: Names,
    rows: Vec<Row>,
    /// Origins, by their own numbers.
    origins: Names,
    origin_rows: Vec<Row>,
    /// All requests.
    total: Row,
    waiting: Waiting,
    /// Limits of scopes, by the number of the settings.
    limits: HashMap<(NameId, usize), Option<Limits>>,
    /// By redirect: until when its target waits.
    redirects: HashMap<u64, (Time, Time)>,
    unobserved: Vec<(Time, Time)>,
    found: Verdict,
    kinds: BTreeMap<Kind, u64>,
}

/// Names of scopes and hosts, and those of origins, that are kept.
const NAMES_MAX: usize = 1_000_000;
/// Departures and holds that wait for earlier ones, some 100 bytes each.
const WAITING_MAX: usize = 1 << 20;
/// Violations that are listed.
const LISTED_MAX: usize = 10_000;
/// Redirects whose targets are yet to come.
const REDIRECTS_MAX: usize = 1 << 20;
/// Limits of scopes that are kept; beyond it they are looked up again.
const LIMITS_MAX: usize = 1 << 20;

impl Auditor {
    /// An audit by this evidence.
    ///
    /// # Panics
    /// The log has no run.
    pub fn new(evidence: Evidence) -> Self {
        assert!(!evidence.runs.is_empty(), "an audit needs a run's settings");
        Auditor::bounded(evidence, NAMES_MAX, WAITING_MAX)
    }

    pub(super) fn bounded(evidence: Evidence, names_max: usize, waiting_max: usize) -> Self {
        let unobserved = evidence.runs.unobserved();
        Auditor {
            forbidden: Forbidden::new(&evidence.orders, &evidence.runs),
            names: Names::new(names_max),
            rows: Vec::new(),
            origins: Names::new(names_max),
            origin_rows: Vec::new(),
            total: Row::default(),
            waiting: Waiting::new(waiting_max),
            limits: HashMap::new(),
            redirects: HashMap::new(),
            unobserved: unobserved
                .iter()
                .map(|period| (period.from, period.to.unwrap_or(Time::MAX)))
                .collect(),
            found: Verdict {
                verdict: "kept",
                departures: 0,
                excused: 0,
                violated: 0,
                kinds: Vec::new(),
                violations: Vec::new(),
                violations_omitted: 0,
                runs: evidence.runs.runs().to_vec(),
                unobserved,
                unjudged: Unjudged::default(),
                scopes: Vec::new(),
            },
            kinds: BTreeMap::new(),
            evidence,
        }
    }

    /// Judges the next result line.
    pub fn add(&mut self, attempt: &Attempt<'_>) {
        let Some(sent) = attempt.sent else {
            return;
        };
        self.found.departures += 1;
        let allowed_at = attempt.allowed_at(sent);
        self.judge_alone(attempt, sent, allowed_at);
        self.note_hold(attempt, sent);
        self.wait(attempt, sent, allowed_at);
        while let Some(event) = self.waiting.poll() {
            self.judge_in_order(event);
        }
    }

    /// The verdict, after the last line.
    pub fn finish(mut self) -> (Verdict, Evidence) {
        while let Some(event) = self.waiting.take() {
            self.judge_in_order(event);
        }
        let names = &self.names;
        let rows = std::mem::take(&mut self.rows);
        let scopes = rows.into_iter().enumerate().map(|(id, row)| ScopeVerdict {
            scope: names.name(id as NameId).to_owned(),
            verdict: if row.kinds.is_empty() {
                "kept"
            } else {
                "violated"
            },
            departures: row.departures,
            violations: row.kinds,
            gap_min: row.gap_min.map(seconds),
            gap_allowed: row.gap_allowed.map(seconds),
            unobserved_gaps: row.unobserved_gaps,
        });
        // A host without violations, of which there is no scope, needs none.
        let scopes = scopes.filter(|row| row.departures > 0 || row.violated() > 0);
        let mut found = self.found;
        found.scopes = scopes.collect();
        found.scopes.sort_by(|one, other| {
            let by_count = other.violated().cmp(&one.violated());
            by_count.then_with(|| one.scope.cmp(&other.scope))
        });
        found.kinds = self.kinds.into_iter().collect();
        found.verdict = match (found.violated, found.unjudged.is_none()) {
            (0, true) => "kept",
            (0, false) => "incomplete",
            _ => "violated",
        };
        (found, self.evidence)
    }

    /// Judges what concerns this request alone.
    fn judge_alone(&mut self, attempt: &Attempt<'_>, sent: Time, allowed_at: Time) {
        let log = &self.evidence.runs;
        let mut violations = Vec::new();
        if let Some(due) = attempt.due.filter(|due| sent < *due) {
            violations.push((
                Kind::Early,
                Some(due.since(sent)),
                format!("it was due at {due}"),
            ));
        }
        if !log.is_running(sent) {
            violations.push((Kind::OutsideRun, None, "no run could send then".to_owned()));
        }
        let forbidden = &self.forbidden;
        let mut excused = false;
        let mut judge = |is_forbidden: &dyn Fn(Time) -> bool| {
            let is_now = is_forbidden(sent);
            let is_both = is_now && is_forbidden(allowed_at);
            excused |= is_now && !is_both;
            is_both
        };
        if judge(&|at| forbidden.is_paused(at)) {
            violations.push((Kind::Paused, None, "the crawl was paused".to_owned()));
        }
        if judge(&|at| forbidden.is_stopped(at)) {
            let detail = "the crawl was ordered to stop".to_owned();
            violations.push((Kind::Stopped, None, detail));
        }
        let authority = attempt.authority();
        let is_proxied = attempt
            .proxied
            .unwrap_or(log.settings(log.settings_at(sent)).proxied);
        let address = attempt.remote.as_deref().and_then(address_of);
        let address = address.filter(|_| !is_proxied);
        if judge(&|at| forbidden.excluded(attempt, address, at).is_some()) {
            let entry = forbidden
                .excluded(attempt, address, sent)
                .unwrap_or_default();
            let detail = format!("an order excludes {entry}");
            violations.push((Kind::ExcludedByOrder, None, detail));
        }
        let is_cancelled = |scope: &&String| {
            attempt.kind == "page" && judge(&|at| forbidden.is_cancelled(scope, attempt.id, at))
        };
        if let Some(scope) = attempt.scopes.iter().find(is_cancelled) {
            let detail = format!("an order cancels the requests of {scope}");
            violations.push((Kind::Cancelled, None, detail));
        }
        self.found.excused += u64::from(excused);

        let settings = self.settings_of(sent, allowed_at);
        let host = host_of(authority);
        let excluded = |settings: &&Settings| {
            let mut entries = settings.exclude_hosts.iter();
            entries.any(|entry| excludes(entry, host))
        };
        if settings.iter().all(excluded) {
            violations.push((Kind::ExcludedHost, None, "EXCLUDE has its host".to_owned()));
        }
        judge_address(attempt, &settings, &mut violations);
        if let Some(robots) = self.judge_robots(attempt, sent, &settings) {
            match robots {
                Ok(violation) => violations.push(violation),
                Err(Unknown) => self.found.unjudged.robots_unknown += 1,
            }
        }
        let parent = attempt.parent.unwrap_or_default();
        if let Some((from, until)) = self.redirects.remove(&parent)
            && sent < until
        {
            let detail = format!("the redirect asked at {from} to wait until {until}");
            violations.push((Kind::RedirectWait, Some(until.since(sent)), detail));
        }
        for (kind, early, detail) in violations {
            let after = (kind == Kind::RedirectWait).then_some(parent);
            self.report(Violation {
                kind,
                scope: authority.to_owned(),
                host: authority.to_owned(),
                id: attempt.id,
                sent,
                early: early.map(seconds),
                after,
                detail,
            });
        }
    }

    /// The settings when a request departed, and those when it was allowed to, if these are others.
    fn settings_of(&self, sent: Time, allowed_at: Time) -> Vec<&Settings> {
        let log = &self.evidence.runs;
        let (now, then) = (log.settings_at(sent), log.settings_at(allowed_at));
        let mut settings = vec![log.settings(now)];
        if then != now {
            settings.push(log.settings(then));
        }
        settings
    }

    fn judge_robots(
        &self,
        attempt: &Attempt<'_>,
        sent: Time,
        settings: &[&Settings],
    ) -> Option<Result<LineViolation, Unknown>> {
        let is_exempt = attempt.kind == "robots" || attempt.robots_ignored;
        if is_exempt || settings.iter().any(|settings| !settings.robots.obeyed) {
            return None;
        }
        let agent = &settings[0].robots.agent;
        let (origin, target) = (attempt.origin(), attempt.target());
        let times = (attempt.started.min(sent), sent);
        let verdict = self.evidence.robots.verdict(origin, target, agent, times);
        let (kind, detail) = match verdict {
            RobotsVerdict::Allowed => return None,
            RobotsVerdict::Unknown => return Some(Err(Unknown)),
            RobotsVerdict::NotFetched => (
                Kind::RobotsNotFetched,
                format!("no robots.txt of {origin} was fetched before"),
            ),
            RobotsVerdict::Expired(until) => (
                Kind::RobotsExpired,
                format!("robots.txt of {origin} was valid until {until}"),
            ),
            RobotsVerdict::Unreachable => (
                Kind::RobotsUnreachable,
                format!("robots.txt of {origin} was unavailable"),
            ),
            RobotsVerdict::Disallowed(line, rule) => (
                Kind::RobotsDisallowed,
                format!("line {line} of robots.txt of {origin} disallows it: {rule}"),
            ),
        };
        Some(Ok((kind, None, detail)))
    }

    /// Notes what its reply asked for.
    fn note_hold(&mut self, attempt: &Attempt<'_>, sent: Time) {
        let Some(hold) = &attempt.hold else {
            return;
        };
        let asked = nanos(hold.seconds);
        let number = self.evidence.runs.settings_at(hold.from);
        if let Some(redirect) = hold.redirect {
            let wait = nanos(redirect);
            let most = nanos(self.evidence.runs.settings(number).holds.redirect_max);
            if wait < asked.min(most) {
                self.report_short(attempt, sent, attempt.authority(), (asked.min(most), wait));
            }
            if self.redirects.len() < REDIRECTS_MAX {
                self.redirects
                    .insert(attempt.id, (hold.from, hold.from.plus(wait)));
            }
        }
        for (scope, held) in &hold.scopes {
            let Some(id) = self.name(scope) else {
                self.found.unjudged.beyond_names += 1;
                continue;
            };
            let held = nanos(*held);
            let hold_max = self
                .limits_of(id, number)
                .map_or(u64::MAX, |of| of.hold_max);
            if held < asked.min(hold_max) {
                self.report_short(attempt, sent, scope, (asked.min(hold_max), held));
            }
            let what = What::Hold(Hold {
                scope: id,
                from: hold.from,
                until: hold.from.plus(held),
                by_rate_limit: hold.source == "ratelimit",
                by: attempt.id,
            });
            let at = hold.from;
            if !self.waiting.add(Event { at, what }) {
                self.found.unjudged.unordered += 1;
            }
        }
    }

    fn report_short(
        &mut self,
        attempt: &Attempt<'_>,
        sent: Time,
        scope: &str,
        (least, held): (u64, u64),
    ) {
        let (least, held) = (seconds(least), seconds(held));
        self.report(Violation {
            kind: Kind::ShortHold,
            scope: scope.to_owned(),
            host: attempt.authority().to_owned(),
            id: attempt.id,
            sent,
            early: Some(least - held),
            after: None,
            detail: format!("it is held for {held} s in place of {least} s"),
        });
    }

    /// Adds a departure to those that are judged in order.
    fn wait(&mut self, attempt: &Attempt<'_>, sent: Time, allowed_at: Time) {
        let scopes = attempt.scopes.iter().map(|scope| self.names.id(scope));
        let scopes = scopes.collect::<Option<_>>();
        let origin = self.origins.id(attempt.origin());
        let (Some(scopes), Some(origin)) = (scopes, origin) else {
            self.found.unjudged.beyond_names += 1;
            return;
        };
        let (crawl_delay, is_alone) = self.crawl_delay_of(attempt, sent, allowed_at);
        let what = What::Departure(Departure {
            id: attempt.id,
            allowed_at,
            end: attempt.end(),
            scopes,
            origin,
            crawl_delay,
            is_alone,
        });
        if !self.waiting.add(Event { at: sent, what }) {
            self.found.unjudged.unordered += 1;
        }
    }

    /// The Crawl-delay of a request, and whether it must be the only one to its origin.
    fn crawl_delay_of(&self, attempt: &Attempt<'_>, sent: Time, allowed_at: Time) -> (u64, bool) {
        let settings = self.settings_of(sent, allowed_at);
        let authority = attempt.authority();
        let mut least = u64::MAX;
        let mut is_alone = true;
        for settings in settings {
            let robots = &settings.robots;
            let entry = settings.entry_of(authority);
            let is_replaced = entry.is_some_and(|entry| entry.own_delay);
            if !robots.obeyed || !robots.crawl_delay || is_replaced {
                return (0, false);
            }
            let times = (attempt.started.min(sent), sent);
            let asked = (self.evidence.robots).crawl_delay(attempt.origin(), &robots.agent, times);
            least = least.min(asked).min(nanos(robots.crawl_delay_max));
            let keeps = entry.is_some_and(|entry| entry.own_concurrency);
            is_alone &= !keeps && !robots.keeps_concurrency;
        }
        (least, is_alone && least > 0)
    }

    /// Judges an event once all before it are known.
    fn judge_in_order(&mut self, event: Event) {
        let sent = event.at;
        let departure = match event.what {
            What::Hold(hold) => return self.row(hold.scope).hold(hold),
            What::Departure(departure) => departure,
        };
        let log = &self.evidence.runs;
        let (now, then) = (log.settings_at(sent), log.settings_at(departure.allowed_at));
        for scope in departure.scopes.clone() {
            let limits = self.limits_of(scope, now).map(|at_departure| InForce {
                at_departure,
                as_allowed: at_departure,
            });
            let limits = match (limits, then == now) {
                (Some(limits), false) => self.limits_of(scope, then).map(|as_allowed| InForce {
                    as_allowed,
                    ..limits
                }),
                (limits, _) => limits,
            };
            let is_unobserved = self.is_unobserved(scope, sent);
            let mut found = Findings::default();
            let row = self.row(scope);
            row.unobserved_gaps += u64::from(is_unobserved);
            row.depart(sent, &departure, limits, &mut found);
            self.take_findings(found, Some(scope), &departure, sent);
        }
        let mut found = Findings::default();
        let origin = departure.origin as usize;
        if self.origin_rows.len() <= origin {
            self.origin_rows.resize_with(origin + 1, Row::default);
        }
        self.origin_rows[origin].depart_to_origin(sent, &departure, &mut found);
        let most = [now, then].map(|number| self.evidence.runs.settings(number));
        let most = most.iter().map(|settings| settings.concurrent_requests);
        let most = most.max().unwrap_or(u64::MAX);
        let count = self.total.count_in_flight(sent, departure.end);
        if count > most {
            found.breaches.push(Breach {
                kind: Kind::TotalConcurrency,
                limit: most,
                found: count,
                after: None,
            });
        }
        self.take_findings(found, None, &departure, sent);
    }

    /// Whether requests without lines may have departed since the last one of a scope.
    fn is_unobserved(&self, scope: NameId, sent: Time) -> bool {
        if self.unobserved.is_empty() {
            return false;
        }
        let row = self.rows.get(scope as usize);
        let last = row.and_then(Row::last_sent);
        last.is_some_and(|last| {
            let mut periods = self.unobserved.iter();
            periods.any(|(from, to)| last < *to && *from < sent && *to <= sent)
        })
    }

    fn take_findings(
        &mut self,
        found: Findings,
        scope: Option<NameId>,
        departure: &Departure,
        sent: Time,
    ) {
        self.found.excused += u64::from(found.excused);
        self.found.unjudged.beyond_departures += u64::from(found.left_out);
        for breach in found.breaches {
            let origin = self.origins.name(departure.origin);
            let host = origin.split_once("://").map_or(origin, |(_, rest)| rest);
            let host = host.to_owned();
            let scope = match scope {
                Some(scope) => self.names.name(scope).to_owned(),
                None => host.clone(),
            };
            self.report(Violation {
                kind: breach.kind,
                scope,
                host,
                id: departure.id,
                sent,
                early: breach.early().map(seconds),
                after: breach.after,
                detail: breach.detail(),
            });
        }
    }

    fn report(&mut self, violation: Violation) {
        *self.kinds.entry(violation.kind).or_default() += 1;
        self.found.violated += 1;
        match self.name(&violation.scope) {
            Some(id) => {
                let kinds = &mut self.row(id).kinds;
                match kinds.iter_mut().find(|(kind, _)| *kind == violation.kind) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((violation.kind, 1)),
                }
            }
            None => self.found.unjudged.beyond_names += 1,
        }
        match self.found.violations.len() < LISTED_MAX {
            true => self.found.violations.push(violation),
            false => self.found.violations_omitted += 1,
        }
    }

    fn name(&mut self, name: &str) -> Option<NameId> {
        self.names.id(name)
    }

    fn row(&mut self, id: NameId) -> &mut Row {
        let at = id as usize;
        if self.rows.len() <= at {
            self.rows.resize_with(at + 1, Row::default);
        }
        &mut self.rows[at]
    }

    /// The limits of a scope by the settings of a number.
    fn limits_of(&mut self, scope: NameId, number: usize) -> Option<Limits> {
        if let Some(limits) = self.limits.get(&(scope, number)) {
            return *limits;
        }
        let settings = self.evidence.runs.settings(number);
        let limits = settings.limits_of(self.names.name(scope));
        if self.limits.len() >= LIMITS_MAX {
            self.limits.clear();
        }
        self.limits.insert((scope, number), limits);
        limits
    }
}

/// A kind, the nanoseconds by which it was early, and a detail.
type LineViolation = (Kind, Option<u64>, String);

/// The archive lacks the robots.txt.
struct Unknown;

/// Judges the address that a request was sent to.
fn judge_address(
    attempt: &Attempt<'_>,
    settings: &[&Settings],
    violations: &mut Vec<LineViolation>,
) {
    let is_proxied = |settings: &&Settings| attempt.proxied.unwrap_or(settings.proxied);
    let remote = attempt.remote.as_deref().and_then(address_of);
    let Some(address) = remote.filter(|_| !settings.iter().any(is_proxied)) else {
        return;
    };
    if settings.iter().all(|of| !of.addresses.allows(address)) {
        let detail = format!("{address} is not globally routable, and not in ALLOW_NET");
        violations.push((Kind::Address, None, detail));
    }
    if settings.iter().all(|of| of.addresses.excludes(address)) {
        let detail = format!("EXCLUDE has a network of {address}");
        violations.push((Kind::ExcludedNetwork, None, detail));
    }
    let name = format!("ip/{address}");
    let has_scopes = settings.iter().all(|of| of.concurrent_requests_per_ip > 0);
    if has_scopes && !attempt.scopes.contains(&name) {
        let detail = format!("it has no scope {name}");
        violations.push((Kind::AddressScope, None, detail));
    }
}
