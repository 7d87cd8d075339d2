//! All that a state knows of one host, scope or URL, and why its requests have not been sent.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use argiope::{Config, CrawlUrl, HostFacts, OrderedSettings, QueuedRequest, ScopeFacts, Wall};
use serde::Serialize;
use serde_json::value::RawValue;

use super::overview::{DamagedFile, Hold, LastCommit, commit_text, damages, running_text};
use super::{Crawl, Subject};
use crate::cli::Usage;

/// A subject that can be compared with requests.
pub struct Matched {
    kind: &'static str,
    name: String,
    url: Option<CrawlUrl>,
    config: Config,
}

/// What the state knows of it.
#[derive(Serialize)]
pub struct Report {
    subject: &'static str,
    name: String,
    running: Option<String>,
    commit: Option<LastCommit>,
    /// Whether the state has anything of it.
    known: bool,
    /// Of a URL: `queued`, `delayed`, `offered`, `ended` or `never_seen`.
    standing: Option<&'static str>,
    /// How the last attempt at a URL ended, if a result line says so.
    pub outcome: Option<String>,
    /// Whether result lines went to standard output.
    #[serde(skip)]
    to_stdout: bool,
    /// Number of its requests that are still to be fetched.
    requests: usize,
    /// Of a host, or of the host of the URL, in seconds.
    crawl_delay: Option<f64>,
    /// When the robots.txt of the host or of the URL's origin was fetched, if its result is known.
    robots_fetched: Option<String>,
    /// What was learned of its scopes.
    scopes: Vec<Scope>,
    /// The settings that these scopes were given while the crawl ran.
    ordered_settings: Vec<Ordered>,
    /// Its hosts that are not asked for now, because they do not answer.
    held_hosts: Vec<HeldHost>,
    /// The first of them in the order in which they are fetched.
    next: Vec<Waiting>,
    damage: Vec<DamagedFile>,
}

/// What was learned of a scope.
#[derive(Serialize)]
struct Scope {
    name: String,
    recorded: String,
    hold: Option<Hold>,
    /// The gap that was learned from refusals, in seconds.
    gap: Option<f64>,
    /// AutoThrottle's delay, in seconds.
    delay: Option<f64>,
    /// Number of replies and sends that count in a quota.
    quota_costs: usize,
    suspected: bool,
}

/// Settings that were given to scopes while the crawl ran.
#[derive(Serialize)]
struct Ordered {
    /// The name of a scope, a pattern, or `default`.
    scope: String,
    recorded: String,
    settings: Box<RawValue>,
}

/// A host that is not asked for now, because it does not answer.
#[derive(Serialize)]
struct HeldHost {
    /// With its port.
    host: String,
    recorded: String,
    until: String,
    /// Seconds from now.
    left: f64,
    failures: u32,
    given_up: u32,
}

/// A request that has not ended.
#[derive(Serialize)]
struct Waiting {
    id: u64,
    parent: Option<u64>,
    url: String,
    kind: &'static str,
    standing: &'static str,
    method: String,
    seed: bool,
    depth: u32,
    priority: i32,
    attempt: u32,
    redirects: u32,
    scopes: Vec<String>,
    meta: Option<Box<RawValue>>,
    not_before: Option<String>,
    /// Its place in its queue, from 1.
    position: usize,
    /// Why it has not been sent, as far as the files show.
    why: Vec<&'static str>,
    #[serde(skip)]
    why_text: String,
}

impl Matched {
    /// # Errors
    /// The URL is not one, or the name of a host is none.
    pub fn new(subject: &Subject, config: &Config) -> Result<Self, Usage> {
        let (kind, name) = match subject {
            Subject::Host(name) => ("host", name),
            Subject::Scope(name) => ("scope", name),
            Subject::Url(name) => ("url", name),
            Subject::All | Subject::Export => unreachable!("they have reports of their own"),
        };
        let has_more = |c: char| c.is_whitespace() || "/@?#".contains(c);
        if kind == "host" && name.contains(has_more) {
            return Err(Usage(format!(
                "--host {name}: give its name, with the port if that is not the usual one, like a.test or \
                 a.test:8080; for a URL there is --url"
            )));
        }
        let url = match kind {
            "url" => Some(CrawlUrl::parse(name).map_err(|error| {
                Usage(format!(
                    "--url {name}: {error}; give an absolute URL, like https://example.com/page"
                ))
            })?),
            _ => None,
        };
        Ok(Matched {
            kind,
            name: match (&url, kind) {
                (Some(url), _) => url.as_str().to_owned(),
                (None, "host") => name.to_lowercase(),
                (None, _) => name.clone(),
            },
            url,
            config: config.clone(),
        })
    }

    fn has(&self, queued: &QueuedRequest) -> bool {
        let url = queued.url();
        match (&self.url, self.kind) {
            (Some(wanted), _) => url.as_str() == wanted.as_str(),
            (None, "host") => [url.scope_key(), url.host_str()].contains(&self.name.as_str()),
            (None, _) => self.scopes_of(queued).contains(&self.name),
        }
    }

    /// The scopes of a request.
    fn scopes_of(&self, queued: &QueuedRequest) -> Vec<String> {
        let own = queued.request().scopes;
        own.unwrap_or_else(|| self.config.scopes_of(queued.url()))
    }

    /// Whether a Crawl-delay is that of its host.
    fn has_host(&self, host: &str) -> bool {
        match &self.url {
            Some(url) => url.scope_key() == host,
            None => self.name == host,
        }
    }

    /// Whether a host with its port is its host, which may have no requests.
    fn has_held_host(&self, host: &str) -> bool {
        match (&self.url, self.kind) {
            (Some(url), _) => host_and_port(url) == host,
            (None, "host") => {
                let without_port = host.rsplit_once(':').map(|(name, _)| name);
                self.name == host || without_port == Some(&self.name)
            }
            (None, _) => false,
        }
    }
}

impl Report {
    /// Of this crawl, with so many requests.
    pub fn of(crawl: &Crawl, matched: &Matched, top: usize) -> Self {
        let contents = &crawl.contents;
        // There may be more of them than fit into memory.
        let mut first = Vec::new();
        let mut requests = 0;
        for queued in contents.queued().filter(|queued| matched.has(queued)) {
            requests += 1;
            let place = first.partition_point(|other| is_listed_before(other, &queued));
            if place < top {
                first.truncate(top - 1);
                first.insert(place, queued);
            }
        }
        let mut ahead = vec![0; first.len()];
        for other in contents.queued().filter(|other| !other.is_offered()) {
            for (queued, ahead) in first.iter().zip(&mut ahead) {
                *ahead += usize::from(other.is_before(queued) && other.shares_queue_with(queued));
            }
        }
        let next: Vec<Waiting> = first
            .iter()
            .zip(ahead)
            .map(|(queued, ahead)| Waiting::of(queued, ahead, crawl, matched.scopes_of(queued)))
            .collect();
        let standing = matched.url.as_ref().map(|url| match next.first() {
            Some(waiting) => waiting.standing,
            None if contents.has_ended(url) => "ended",
            None => "never_seen",
        });
        let mut delays = contents.crawl_delays();
        let mut names: BTreeSet<&str> = next
            .iter()
            .flat_map(|next| &next.scopes)
            .map(String::as_str)
            .collect();
        let of_url = matched
            .url
            .as_ref()
            .map(|url| matched.config.scopes_of(url));
        names.extend(of_url.iter().flatten().map(String::as_str));
        if matched.kind == "scope" {
            names = BTreeSet::from([matched.name.as_str()]);
        }
        let mut ordered_settings: Vec<Ordered> = Vec::new();
        for name in &names {
            for ordered in contents.ordered_settings(name, &matched.config) {
                if ordered_settings
                    .iter()
                    .all(|shown| shown.scope != ordered.scope)
                {
                    ordered_settings.push(Ordered::of(ordered));
                }
            }
        }
        let scopes = contents.scopes(crawl.now);
        let scopes: Vec<Scope> = scopes
            .filter(|scope| names.contains(scope.name.as_str()))
            .map(|scope| Scope::of(&scope, crawl.now))
            .collect();
        let origins = match (&matched.url, matched.kind) {
            (Some(url), _) => vec![url.origin().to_owned()],
            (None, "host") => vec![
                format!("http://{}", matched.name),
                format!("https://{}", matched.name),
            ],
            (None, _) => Vec::new(),
        };
        let mut fetched = origins
            .iter()
            .filter_map(|origin| contents.robots_fetched_at(origin));
        let robots_fetched = fetched.next().map(|at| at.to_string());
        let mut next = next;
        for waiting in &mut next {
            waiting.add_holds(&scopes);
        }
        let of_next: BTreeSet<String> = first.iter().map(|one| host_and_port(one.url())).collect();
        let held_hosts = contents.held_hosts(crawl.now);
        let held_hosts: Vec<HeldHost> = held_hosts
            .filter(|host| of_next.contains(&host.name) || matched.has_held_host(&host.name))
            .map(|host| HeldHost::of(&host, crawl.now))
            .collect();
        for (waiting, queued) in next.iter_mut().zip(&first) {
            let host = host_and_port(queued.url());
            let held = held_hosts.iter().find(|held| held.host == host);
            waiting.add_held_host(held);
        }
        let crawl_delay = delays
            .find(|(host, _)| matched.has_host(host))
            .map(|(_, delay)| delay.as_secs_f64());
        let is_learned = crawl_delay.is_some() || robots_fetched.is_some() || !scopes.is_empty();
        let known = match standing {
            Some(standing) => standing != "never_seen",
            None => requests > 0 || is_learned || !held_hosts.is_empty(),
        };
        Report {
            known,
            held_hosts,
            robots_fetched,
            scopes,
            ordered_settings,
            subject: matched.kind,
            name: matched.name.clone(),
            running: crawl.owner.as_ref().map(ToString::to_string),
            commit: LastCommit::of(crawl),
            standing,
            outcome: None,
            to_stdout: (crawl.inputs.as_ref()).is_some_and(|inputs| inputs.to_stdout),
            requests,
            crawl_delay,
            next,
            damage: damages(contents),
        }
    }

    /// The URL that was asked for, if that has ended: its result lines say how.
    pub fn ended_url<'a>(&self, matched: &'a Matched) -> Option<&'a str> {
        let url = matched
            .url
            .as_ref()
            .filter(|_| self.standing == Some("ended"))?;
        Some(url.as_str())
    }

    /// As lines.
    pub fn to_text(&self) -> String {
        let mut out = format!("{} {}\n", self.subject, self.name);
        let mut line = |name: &str, text: &str| {
            writeln!(out, "  {name:<13} {text}").expect("a text takes all");
        };
        line("running", &running_text(self.running.as_deref()));
        line("last commit", &commit_text(self.commit.as_ref()));
        match self.standing {
            Some("ended") => match &self.outcome {
                Some(outcome) => line("standing", &format!("ended: {outcome}")),
                None if self.to_stdout => line(
                    "standing",
                    "ended, so that it is not admitted again; its result line went to standard output (--results -)",
                ),
                None => line(
                    "standing",
                    "ended, so that it is not admitted again; no result line has it: they were moved away, or --salvage left it out",
                ),
            },
            Some("never_seen") => {
                line(
                    "standing",
                    "never seen: not admitted up to the last commit; seeds that were not taken yet are not known",
                );
                let why = "`argiope url --from SEED URL` says whether a filter leaves it out; a crawl with \
                           --filtered lists those that were left out";
                line("why", why);
            }
            Some(standing) => line("standing", standing),
            None => line("requests", &self.requests.to_string()),
        }
        if !self.known && self.standing.is_none() {
            line(
                "known",
                "nothing: its requests have ended, or it has another name",
            );
        }
        if let Some(delay) = self.crawl_delay {
            line("Crawl-delay", &format!("{delay} s"));
        }
        if let Some(fetched) = &self.robots_fetched {
            line("robots.txt", &format!("fetched at {fetched}"));
        }
        for scope in &self.scopes {
            line("scope", &scope.to_text());
        }
        for ordered in &self.ordered_settings {
            line("ordered", &ordered.to_text());
        }
        for held in &self.held_hosts {
            line("no answer", &held.to_text());
        }
        for damaged in &self.damage {
            line("damage", damaged.as_text());
        }
        for waiting in &self.next {
            line("request", &waiting.to_text());
            line("", &format!("not sent: {}", waiting.why_text));
        }
        out.pop();
        out
    }
}

/// Whether a request is listed before another: as they are fetched, then delayed ones, then those without a
/// decision.
fn is_listed_before(one: &QueuedRequest, other: &QueuedRequest) -> bool {
    let delayed = |queued: &QueuedRequest| (queued.is_offered(), queued.not_before());
    match delayed(one).cmp(&delayed(other)) {
        Ordering::Equal => one.is_before(other),
        order => order.is_lt(),
    }
}

impl Scope {
    fn of(facts: &ScopeFacts, now: Wall) -> Self {
        Scope {
            name: facts.name.clone(),
            recorded: facts.at.to_string(),
            hold: Hold::of(facts, now),
            gap: facts.gap.map(|gap| gap.as_secs_f64()),
            delay: facts.delay.map(|delay| delay.as_secs_f64()),
            quota_costs: facts.costs,
            suspected: facts.is_suspected,
        }
    }

    fn to_text(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(
            self.hold
                .as_ref()
                .map(|hold| format!("held: {}", hold.to_text())),
        );
        parts.extend(self.gap.map(|gap| format!("learned gap {gap:.3} s")));
        parts.extend(
            self.delay
                .map(|delay| format!("AutoThrottle's delay {delay:.3} s")),
        );
        if self.quota_costs > 0 {
            parts.push(format!("{} sends count in its quota", self.quota_costs));
        }
        if self.suspected {
            parts.push("its replies are suspected".to_owned());
        }
        if parts.is_empty() {
            parts.push("other limits were learned".to_owned());
        }
        format!(
            "{} ({}; recorded {})",
            self.name,
            parts.join("; "),
            self.recorded
        )
    }
}

impl Ordered {
    fn of(ordered: OrderedSettings) -> Self {
        Ordered {
            scope: ordered.scope,
            recorded: ordered.at.to_string(),
            settings: RawValue::from_string(ordered.settings).expect("it is JSON"),
        }
    }

    fn to_text(&self) -> String {
        format!(
            "{} {} (while the crawl ran; recorded {})",
            self.scope, self.settings, self.recorded
        )
    }
}

fn host_and_port(url: &CrawlUrl) -> String {
    format!("{}:{}", url.host_str(), url.port())
}

impl HeldHost {
    fn of(facts: &HostFacts, now: Wall) -> Self {
        HeldHost {
            host: facts.name.clone(),
            recorded: facts.at.to_string(),
            until: facts.held_until.to_string(),
            left: facts.held_until.saturating_since(now).as_secs_f64(),
            failures: facts.failures,
            given_up: facts.given_up,
        }
    }

    fn to_text(&self) -> String {
        let HeldHost {
            host,
            until,
            failures,
            given_up,
            ..
        } = self;
        let given_up = match given_up {
            0 => String::new(),
            times => format!(", given up {times} times"),
        };
        format!("{host} is not asked until {until} ({failures} failures{given_up})")
    }
}

impl Waiting {
    /// That its host does not answer is a reason that it was not sent.
    fn add_held_host(&mut self, held: Option<&HeldHost>) {
        if let Some(held) = held {
            self.why.push("host_held");
            self.why_text
                .push_str(&format!("; its host does not answer: {}", held.to_text()));
        }
    }

    /// Holds of its scopes are reasons that it was not sent.
    fn add_holds(&mut self, scopes: &[Scope]) {
        let own = scopes
            .iter()
            .filter(|scope| self.scopes.contains(&scope.name));
        for hold in own.filter_map(|scope| scope.hold.as_ref()) {
            self.why.push("held");
            let text = format!("; held: {}", hold.to_text());
            self.why_text.push_str(&text);
        }
    }

    /// Of a request behind so many others of its queue.
    fn of(queued: &QueuedRequest, ahead: usize, crawl: &Crawl, scopes: Vec<String>) -> Self {
        let request = queued.request();
        let delayed_until = queued.not_before().filter(|at| *at > crawl.now);
        let mut why = Vec::new();
        let mut reasons = Vec::new();
        if queued.is_offered() {
            why.push("not_decided");
            reasons.push("its admission was not decided at the last commit".to_owned());
        } else if let Some(at) = delayed_until {
            why.push("delayed_redirect");
            reasons.push(format!("waits for its delayed redirect until {at}"));
        } else if ahead > 0 {
            why.push("queued");
            reasons.push(format!("number {} of its queue", ahead + 1));
        } else {
            why.push("first");
            reasons.push(
                "first of its queue: it was waiting for its scopes, or in flight, at the last commit"
                    .to_owned(),
            );
        }
        if crawl.owner.is_none() {
            why.push("not_running");
            reasons.push(format!(
                "the crawl is not running: continue it with `argiope crawl --resume --out {}`",
                crawl.folder.display()
            ));
        }
        Waiting {
            id: queued.id(),
            parent: queued.parent(),
            url: queued.url().as_str().to_owned(),
            kind: queued.kind().as_str(),
            standing: match (queued.is_offered(), delayed_until) {
                (true, _) => "offered",
                (false, Some(_)) => "delayed",
                (false, None) => "queued",
            },
            method: match request.method.is_empty() {
                true => "GET".to_owned(),
                false => request.method.clone(),
            },
            seed: queued.is_seed(),
            depth: request.depth,
            priority: request.priority,
            attempt: queued.attempt(),
            redirects: queued.redirects(),
            scopes,
            meta: (request.meta_json())
                .and_then(|json| RawValue::from_string(json.to_owned()).ok()),
            not_before: queued.not_before().map(|at| at.to_string()),
            position: ahead + 1,
            why,
            why_text: reasons.join("; "),
        }
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "{} {} (id {}, {}, depth {}, priority {}, attempt {}, {}",
            self.method,
            self.url,
            self.id,
            self.kind,
            self.depth,
            self.priority,
            self.attempt,
            self.standing
        );
        if self.seed {
            text.push_str(", seed");
        }
        if !self.scopes.is_empty() {
            let scopes = self.scopes.join(", ");
            write!(text, ", scopes {scopes}").expect("a text takes all");
        }
        if let Some(meta) = &self.meta {
            write!(text, ", meta {meta}").expect("a text takes all");
        }
        text.push(')');
        text
    }
}
