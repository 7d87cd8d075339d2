//! Orders that a crawl was given: when it was to send nothing, or nothing to some hosts.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::net::IpAddr;

use regex::Regex;

use super::attempt::{Attempt, host_of};
use super::lines::{self, Read};
use super::runs::{Run, RunLog};
use super::settings::excludes;
use super::time::Time;
use crate::base::address::Network;

/// `orders.jsonl`.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    orders: Vec<Order>,
    read: Read,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct Order {
    at: Time,
    order: String,
    #[serde(default)]
    after: serde_json::Value,
    #[serde(default)]
    scope: Option<String>,
    #[serde(default)]
    host: Option<String>,
    #[serde(default)]
    network: Option<String>,
    #[serde(default)]
    pattern: Option<String>,
    #[serde(default)]
    until: Option<u64>,
}

impl Orders {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut orders = Orders::default();
        orders.read = lines::read(input, |order: Order| {
            orders.orders.push(order);
            Ok(())
        })?;
        Ok(orders)
    }

    /// What was read.
    pub fn read_lines(&self) -> &Read {
        &self.read
    }
}

/// A time from which on, until which.
type Span = (Time, Time);

/// What orders forbade, and when.
#[derive(Debug, Default)]
pub(super) struct Forbidden {
    pauses: Vec<Span>,
    stops: Vec<Span>,
    /// By host, domain, network or pattern.
    excluded: BTreeMap<String, (What, Vec<Span>)>,
    /// By scope: from when on, and up to which attempt.
    cancelled: BTreeMap<String, Vec<(Time, u64)>>,
}

impl Forbidden {
    /// What these orders forbade in these runs. What a run begins with is in the log of runs.
    pub fn new(orders: &Orders, log: &RunLog) -> Self {
        let mut forbidden = Forbidden::default();
        let mut pause = None;
        let mut open: BTreeMap<String, Time> = BTreeMap::new();
        let mut runs = log.runs().iter().peekable();
        for order in &orders.orders {
            while let Some(run) = runs.next_if(|run| run.start <= order.at) {
                forbidden.begin_run(run, &mut pause, &mut open);
            }
            let at = order.at;
            match order.order.as_str() {
                "pause" | "resume" => {
                    forbidden.set_pause(&mut pause, at, order.after == true);
                }
                "stop" => {
                    let next = runs.peek().map_or(Time::MAX, |run| run.start);
                    forbidden.stops.push((at, next));
                }
                "exclude" | "include" => {
                    let names = [&order.host, &order.network, &order.pattern];
                    let Some(host) = names.into_iter().flatten().next() else {
                        continue;
                    };
                    match order.after == true {
                        true => {
                            open.entry(host.clone()).or_insert(at);
                        }
                        false => forbidden.close(host, &mut open, at),
                    }
                }
                "cancel" => {
                    if let (Some(scope), Some(until)) = (&order.scope, order.until) {
                        let cancelled = forbidden.cancelled.entry(scope.clone()).or_default();
                        cancelled.push((at, until));
                    }
                }
                _ => {}
            }
        }
        for run in runs {
            forbidden.begin_run(run, &mut pause, &mut open);
        }
        forbidden.set_pause(&mut pause, Time::MAX, false);
        for host in open.keys().cloned().collect::<Vec<_>>() {
            forbidden.close(&host, &mut open, Time::MAX);
        }
        forbidden
    }

    /// A run begins: its log says what is in effect.
    fn begin_run(
        &mut self,
        run: &Run,
        pause: &mut Option<Time>,
        open: &mut BTreeMap<String, Time>,
    ) {
        self.set_pause(pause, run.start, run.is_paused);
        let ended = open.keys().filter(|host| !run.excluded.contains(host));
        for host in ended.cloned().collect::<Vec<_>>() {
            self.close(&host, open, run.start);
        }
        for host in &run.excluded {
            open.entry(host.clone()).or_insert(run.start);
        }
    }

    fn set_pause(&mut self, pause: &mut Option<Time>, at: Time, is_paused: bool) {
        match (is_paused, *pause) {
            (true, None) => *pause = Some(at),
            (false, Some(from)) => {
                self.pauses.push((from, at));
                *pause = None;
            }
            _ => {}
        }
    }

    fn close(&mut self, host: &str, open: &mut BTreeMap<String, Time>, at: Time) {
        if let Some(from) = open.remove(host) {
            let new = || (What::of(host), Vec::new());
            let (_, spans) = self.excluded.entry(host.to_owned()).or_insert_with(new);
            spans.push((from, at));
        }
    }

    /// Whether the crawl was paused at a time.
    pub fn is_paused(&self, at: Time) -> bool {
        is_in(&self.pauses, at)
    }

    /// Whether the run was ordered to stop before a time.
    pub fn is_stopped(&self, at: Time) -> bool {
        is_in(&self.stops, at)
    }

    /// The exclusion by an order that had this request at a time. `address`: that it was sent to, unless by a proxy.
    pub fn excluded(
        &self,
        attempt: &Attempt<'_>,
        address: Option<IpAddr>,
        at: Time,
    ) -> Option<&str> {
        let mut entries = self.excluded.iter();
        let entry = entries.find(|(_, (what, spans))| {
            is_in(spans, at)
                && match what {
                    What::Name(entry) => excludes(entry, host_of(attempt.authority())),
                    What::Network(network) => {
                        address.is_some_and(|address| network.contains(address))
                    }
                    // A robots.txt is needed for other URLs.
                    What::Pattern(pattern) => {
                        attempt.kind != "robots" && pattern.is_match(&attempt.url)
                    }
                    What::Nothing => false,
                }
        });
        entry.map(|(entry, _)| entry.as_str())
    }

    /// Whether an attempt was cancelled by its scope before a time.
    pub fn is_cancelled(&self, scope: &str, id: u64, at: Time) -> bool {
        let cancelled = self.cancelled.get(scope);
        cancelled.is_some_and(|orders| {
            let mut orders = orders.iter();
            orders.any(|(from, until)| at > *from && id <= *until)
        })
    }
}

/// What an order excludes.
#[derive(Debug)]
enum What {
    /// A host, or a domain.
    Name(String),
    /// A network.
    Network(Network),
    /// A pattern of URLs.
    Pattern(Regex),
    /// Its pattern cannot be read.
    Nothing,
}

impl What {
    fn of(text: &str) -> Self {
        if let Some(pattern) = text.strip_prefix("re:") {
            return Regex::new(pattern).map_or(What::Nothing, What::Pattern);
        }
        match text.parse() {
            // An address alone is that of URLs which name it.
            Ok(network) if text.contains('/') => What::Network(network),
            _ => What::Name(text.to_owned()),
        }
    }
}

/// Whether a time is within one of these spans. What departs in the turn of an order's time is not.
fn is_in(spans: &[Span], at: Time) -> bool {
    spans.iter().any(|(from, to)| *from < at && at < *to)
}
