//! Settings that limit what a crawl sends, as `runs.jsonl` has them.

mod entries;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

pub(super) use self::entries::excludes;

use super::address::Addresses;
use super::time::{Time, nanos};

/// The settings in effect at one time.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Settings {
    pub user_agent: String,
    pub concurrent_requests: u64,
    pub concurrent_requests_per_ip: u32,
    pub scope_map: Vec<String>,
    pub default: Entry,
    pub scopes: BTreeMap<String, Entry>,
    pub robots: RobotsSettings,
    pub holds: HoldSettings,
    pub allow_net: Vec<String>,
    pub exclude_nets: Vec<String>,
    /// Shared by all settings of a run that have the same: it may have a million hosts.
    #[serde(deserialize_with = "shared")]
    pub exclude_hosts: Arc<[String]>,
    pub excluded: Vec<String>,
    pub proxied: bool,
    #[serde(skip)]
    pub addresses: Addresses,
}

/// How robots.txt is obeyed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RobotsSettings {
    pub obeyed: bool,
    pub agent: String,
    pub crawl_delay: bool,
    pub crawl_delay_max: f64,
    pub keeps_concurrency: bool,
}

/// How Retry-After and rate-limit fields are obeyed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct HoldSettings {
    pub obeyed_fully: bool,
    pub redirect_max: f64,
}

/// The settings of the scopes under one entry.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Entry {
    pub concurrency: u32,
    pub delay: f64,
    pub delay_per_slot: f64,
    pub jitter: [f64; 2],
    pub backoff_jitter: Option<[f64; 2]>,
    pub hold_until: Option<Time>,
    pub hold_max: f64,
    pub rampup_min_delay: Option<f64>,
    pub requests_per_minute: Option<f64>,
    pub managed: bool,
    pub own_delay: bool,
    pub own_concurrency: bool,
}

/// What one scope must keep. Times are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Shortest time from one departure to the next.
    pub gap: u64,
    /// Shortest time from a departure to that as many departures later as there are slots.
    pub slot_gap: u64,
    /// Slots, if there are several with a gap of their own; else 0.
    pub slots: u32,
    /// Most requests in flight; 0: no limit.
    pub concurrency: u32,
    /// Most departures in any 60 s; 0: no limit.
    pub per_minute: u32,
    /// Nothing is sent before it.
    pub hold_until: Time,
    /// Longest hold that a server may ask for; `u64::MAX`: no bound.
    pub hold_max: u64,
}

/// Departures of one scope that are compared with later ones.
pub(super) const DEPARTURES_MAX: u32 = 4096;

impl Settings {
    /// Reads the networks.
    ///
    /// # Errors
    /// One is no network.
    pub fn complete(mut self) -> Result<Self, String> {
        self.addresses = Addresses::new(&self.allow_net, &self.exclude_nets)?;
        Ok(self)
    }

    /// What a scope must keep. `None`: nothing that these settings say.
    pub fn limits_of(&self, scope: &str) -> Option<Limits> {
        if scope.starts_with("host/") {
            // It applies a Crawl-delay, which is judged by the robots.txt.
            return None;
        }
        let entry = self.entry_of(scope);
        let per_ip = self.concurrent_requests_per_ip;
        if entry.is_none() && per_ip > 0 && scope.starts_with("ip/") {
            return Some(Limits {
                concurrency: per_ip,
                hold_max: u64::MAX,
                ..Limits::default()
            });
        }
        Some(self.limits(entry.unwrap_or(&self.default)))
    }

    fn limits(&self, entry: &Entry) -> Limits {
        let hold_max = match self.holds.obeyed_fully {
            true => u64::MAX,
            false => nanos(entry.hold_max),
        };
        let hold_until = entry.hold_until.unwrap_or_default();
        if entry.managed {
            // A program decides on its pace.
            return Limits {
                hold_until,
                hold_max,
                ..Limits::default()
            };
        }
        // Backoff has a jitter of its own, also where it is the longer one.
        let jitters = entry.backoff_jitter.into_iter().chain([entry.jitter]);
        let low = jitters.map(|[low, _]| low).fold(0.0, f64::min);
        let shortest = |delay: f64| rounded_down(delay * (1.0 + low));
        let per_minute = entry.requests_per_minute;
        let per_minute = per_minute.map_or(0, |most| most.floor().clamp(1.0, 1e9) as u32);
        if let Some(delay) = entry.rampup_min_delay {
            return Limits {
                gap: shortest(delay),
                per_minute,
                hold_until,
                hold_max,
                ..Limits::default()
            };
        }
        let (gap, slot_gap) = (shortest(entry.delay), shortest(entry.delay_per_slot));
        let has_slots = entry.concurrency > 1 && slot_gap > 0;
        Limits {
            gap: match entry.concurrency {
                1 => gap.max(slot_gap),
                _ => gap,
            },
            slot_gap: if has_slots { slot_gap } else { 0 },
            slots: if has_slots { entry.concurrency } else { 0 },
            concurrency: entry.concurrency,
            per_minute,
            hold_until,
            hold_max,
        }
    }
}

fn shared<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<[String]>, D::Error> {
    Vec::deserialize(input).map(Arc::from)
}

/// A jittered delay, less the rounding of the factor that it is multiplied by.
fn rounded_down(seconds: f64) -> u64 {
    nanos(seconds * (1.0 - 1e-6)).saturating_sub(2)
}
