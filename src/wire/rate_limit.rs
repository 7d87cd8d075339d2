//! Parses the rate-limit fields of a reply, in all versions that are in use.
//!
//! - Three fields `RateLimit-Limit`, `-Remaining` and `-Reset`, with policies after the limit or in
//!   `RateLimit-Policy`: draft-polli-ratelimit-headers, draft-ietf-httpapi-ratelimit-headers-00 to
//!   06.
//! - A dictionary, `RateLimit: limit=100, remaining=50, reset=5`: draft 07.
//! - A list of named limits, `RateLimit: "name";r=50;t=30`: since draft 08.
//! - Vendor fields from before and after, `X-RateLimit-*` and `X-Rate-Limit-*`.
//!
//! A cached reply reports another client's state: see [`super::cache_status`].
//!
//! Hand-written: most of these fields are no structured fields, and an invalid part must not hide the
//! valid ones.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::time::Duration;

use crate::base::time::Wall;

use super::date;
use super::http::Headers;
use super::retry_after::WAIT_MAX;
use super::structured;

/// The rate limits in a reply. Missing and invalid values are `None`.
///
/// If there are several limits, the binding one is the exhausted one with the longest reset, or
/// else the one with the least remaining.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RateLimit {
    /// Quota per window of the binding limit.
    pub limit: Option<f64>,
    /// Remaining quota of that limit; some servers use fractions.
    pub remaining: Option<f64>,
    /// Time until more is available, at most [`WAIT_MAX`].
    pub reset: Option<Duration>,
    /// The reset was later than that and was clamped.
    pub clamped: bool,
    /// The named limits, in order; the first [`LIMITS_MAX`].
    #[doc(hidden)]
    pub limits: Vec<NamedLimit>,
    /// The policies, in order; the first [`LIMITS_MAX`].
    #[doc(hidden)]
    pub policies: Vec<Policy>,
}

/// The state of a named limit.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLimit {
    /// The name, which is also that of a policy.
    pub policy: String,
    /// Remaining quota, in the unit of the policy.
    pub remaining: Option<f64>,
    /// Time until more is available.
    pub reset: Option<Duration>,
    /// The partition key of the clients that the server counts together, as written; for comparison
    /// only.
    pub partition: Option<String>,
}

/// A quota policy of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The name, since draft 08.
    pub policy: Option<String>,
    /// Quota per window.
    pub quota: f64,
    /// Length of the window.
    pub window: Option<Duration>,
    /// The unit counted: `requests` by default.
    pub unit: Cow<'static, str>,
    /// The partition key of the clients that the server counts together, as written; for comparison
    /// only.
    pub partition: Option<String>,
}

impl RateLimit {
    /// Parses the header fields of a reply that arrived at `wall_now`.
    ///
    /// A reset is a number of seconds, or a time: in seconds since 1970 if above 10⁹, in
    /// milliseconds if above 10¹², or an HTTP date. Times are read by the server's own clock if
    /// that is plausible (see [`date::clock_of`]); past times become zero. Negative or invalid
    /// values count as missing.
    pub fn read(headers: &Headers, wall_now: Wall) -> Self {
        let pairs = [*b"ra", *b"x-"];
        if !headers.may_begin_with_any(&pairs) || !headers.names().any(is_about_limits) {
            return RateLimit::default();
        }
        let mut reading = Reading {
            server_now: date::clock_of(headers, wall_now),
            binding: Limit::default(),
            found: RateLimit::default(),
        };
        for family in &FAMILIES {
            let is_there = |name| begins(name, family.prefix);
            if headers.names().any(is_there) {
                reading.read_family(headers, family);
            }
        }
        for value in headers.get_all("ratelimit") {
            reading.read_structured(value);
        }
        let Limit {
            limit,
            remaining,
            reset,
        } = reading.binding;
        RateLimit {
            limit,
            remaining,
            reset: reset.map(|reset| reset.wait),
            clamped: reset.is_some_and(|reset| reset.clamped),
            ..reading.found
        }
    }

    /// Returns whether the quota is exhausted: less than one request remains.
    pub fn is_exhausted(&self) -> bool {
        self.remaining.is_some_and(|remaining| remaining < 1.0)
    }
}

/// Maximum number of limits and of policies kept of one reply, and of values read of one field. No
/// legitimate server sends more.
pub const LIMITS_MAX: usize = 16;

/// The state of parsing one reply.
struct Reading {
    server_now: Wall,
    binding: Limit,
    found: RateLimit,
}

impl Reading {
    /// Several servers on the way may each have added their fields: the first values of the fields
    /// belong together, and so do the second.
    fn read_family(&mut self, headers: &Headers, family: &Family) {
        for value in headers.get_all(family.policy) {
            structured::members(value).for_each(|member| self.add_policy(member));
        }
        let mut limits = headers.get_all(family.limit);
        let mut remainings = headers.get_all(family.remaining).flat_map(pieces);
        let mut afters = headers.get_all(family.reset_after).flat_map(pieces);
        let mut resets = headers.get_all(family.reset).flat_map(pieces);
        let mut times = headers.get_all(family.reset_time).flat_map(pieces);
        let mut nexts = headers.get_all(family.next).flat_map(pieces);
        let mut last_reset = None;
        for _ in 0..LIMITS_MAX {
            let limit = limits.next();
            let remaining = remainings.next();
            let (after, reset) = (afters.next(), resets.next());
            let (time, next) = (times.next(), nexts.next());
            let more = [limit, remaining, after, reset, time, next];
            if more.iter().all(Option::is_none) {
                break;
            }
            // Forms that need no clock first.
            let reset = (after.and_then(structured::number).map(Reset::after))
                .or_else(|| self.reset(reset?))
                .or_else(|| Some(self.until(date::http_date(time?)?)))
                .or_else(|| Some(self.until(date::timestamp(next?)?)));
            // Several limits with one reset share it.
            last_reset = reset.or(last_reset);
            let limit = Limit {
                limit: limit.and_then(|value| self.limit_and_policies(value)),
                remaining: remaining.and_then(amount),
                reset: last_reset,
            };
            self.bind(limit);
        }
    }

    /// A limit, followed by the policies that it belongs to.
    fn limit_and_policies(&mut self, value: &[u8]) -> Option<f64> {
        let mut members = structured::members(value);
        let (limit, _) = structured::item(members.next()?);
        members.for_each(|member| self.add_policy(member));
        amount(limit)
    }

    /// A `RateLimit` field: members of a dictionary, named limits, or invalid members.
    fn read_structured(&mut self, value: &[u8]) {
        let mut limit = Limit::default();
        for member in structured::members(value) {
            if member.starts_with(b"\"") {
                self.read_named(member);
                continue;
            }
            let (key, value) = structured::pair(structured::item(member).0);
            let Some(value) = value else { continue };
            match key {
                b"limit" => limit.limit = amount(value).or(limit.limit),
                b"remaining" => limit.remaining = amount(value).or(limit.remaining),
                b"reset" => limit.reset = self.reset(value).or(limit.reset),
                _ => {}
            }
        }
        self.bind(limit);
    }

    fn read_named(&mut self, member: &[u8]) {
        let (name, parameters) = structured::item(member);
        let Some(policy) = structured::string(name) else {
            return;
        };
        let mut limit = Limit::default();
        let mut partition = None;
        for (key, value) in parameters {
            let Some(value) = value else { continue };
            match key {
                b"r" => limit.remaining = amount(value),
                b"t" => limit.reset = self.reset(value),
                b"pk" => partition = text(value),
                _ => {}
            }
        }
        if self.found.limits.len() < LIMITS_MAX {
            self.found.limits.push(NamedLimit {
                policy,
                remaining: limit.remaining,
                reset: limit.reset.map(|reset| reset.wait),
                partition,
            });
        }
        self.bind(limit);
    }

    fn add_policy(&mut self, member: &[u8]) {
        if self.found.policies.len() < LIMITS_MAX {
            self.found.policies.extend(policy(member));
        }
    }

    fn bind(&mut self, limit: Limit) {
        if limit.binds_before(&self.binding) {
            self.binding = limit;
        }
    }

    /// A reset in any form, except those with fields of their own.
    fn reset(&self, value: &[u8]) -> Option<Reset> {
        let Some(number) = structured::number(value) else {
            return Some(self.until(date::http_date(value)?));
        };
        let epoch = match number {
            ..=EPOCH_SECONDS_MIN => return Some(Reset::after(number)),
            ..=EPOCH_MILLIS_MIN => number,
            _ => number / 1e3,
        };
        let now = self.server_now.0 as f64 / 1e9;
        Some(Reset::after((epoch - now).max(0.0)))
    }

    fn until(&self, moment: Wall) -> Reset {
        Reset::after(moment.saturating_since(self.server_now).as_secs_f64())
    }
}

/// The known values of one limit.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    limit: Option<f64>,
    remaining: Option<f64>,
    reset: Option<Reset>,
}

impl Limit {
    fn binds_before(&self, other: &Limit) -> bool {
        let left = |limit: &Limit| match limit.remaining {
            None => f64::INFINITY,
            Some(remaining) if remaining < 1.0 => 0.0,
            Some(remaining) => remaining,
        };
        let wait = |limit: &Limit| limit.reset.map(|reset| reset.wait);
        let order = left(self)
            .total_cmp(&left(other))
            .then_with(|| wait(other).cmp(&wait(self)))
            .then_with(|| other.limit.is_some().cmp(&self.limit.is_some()));
        order == Ordering::Less
    }
}

#[derive(Clone, Copy, Debug)]
struct Reset {
    wait: Duration,
    clamped: bool,
}

impl Reset {
    fn after(seconds: f64) -> Self {
        let wait = span(seconds);
        Reset {
            wait: wait.unwrap_or(WAIT_MAX),
            clamped: wait.is_none(),
        }
    }
}

/// A policy: a number, or a string with a quota, with a window.
fn policy(member: &[u8]) -> Option<Policy> {
    let (item, parameters) = structured::item(member);
    let name = structured::string(item);
    let mut quota = amount(item);
    let mut window = None;
    let mut unit = None;
    let mut partition = None;
    for (key, value) in parameters {
        let Some(value) = value else { continue };
        match key {
            b"q" if name.is_some() => quota = amount(value),
            b"w" | b"window" => window = structured::number(value),
            b"qu" => unit = structured::string(value),
            b"pk" => partition = text(value),
            _ => {}
        }
    }
    Some(Policy {
        policy: name,
        quota: quota?,
        window: window.map(|seconds| span(seconds).unwrap_or(WAIT_MAX)),
        unit: unit.map_or(Cow::Borrowed("requests"), Cow::Owned),
        partition,
    })
}

/// An amount; infinity becomes the largest finite value.
fn amount(value: &[u8]) -> Option<f64> {
    structured::number(value).map(|number| number.min(f64::MAX))
}

/// A non-negative duration; `None` if it is longer than [`WAIT_MAX`].
fn span(seconds: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok();
    span.filter(|span| *span <= WAIT_MAX)
}

fn text(value: &[u8]) -> Option<String> {
    String::from_utf8(value.to_vec()).ok()
}

/// The values of one line, which may be several lines joined, without parameters. A date contains a
/// comma itself.
fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_date = value.first().is_some_and(u8::is_ascii_alphabetic);
    value
        .split(move |&byte| byte == b',' && !is_date)
        .map(|piece| structured::item(piece).0)
}

/// Returns whether a field may be relevant: most replies have no limits.
fn is_about_limits(name: &[u8]) -> bool {
    match name.first() {
        Some(b'r' | b'R') => begins(name, "ratelimit"),
        Some(b'x' | b'X') => begins(name, "x-ratelimit-") || begins(name, "x-rate-limit-"),
        _ => false,
    }
}

fn begins(name: &[u8], prefix: &str) -> bool {
    let start = name.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// Fields with one prefix, which describe the same limits.
struct Family {
    prefix: &'static str,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
    /// In seconds: Discord's.
    reset_after: &'static str,
    /// An HTTP date: GitLab's.
    reset_time: &'static str,
    /// RFC 3339: Akamai's.
    next: &'static str,
    policy: &'static str,
}

macro_rules! family {
    ($prefix:literal) => {
        Family {
            prefix: $prefix,
            limit: concat!($prefix, "limit"),
            remaining: concat!($prefix, "remaining"),
            reset: concat!($prefix, "reset"),
            reset_after: concat!($prefix, "reset-after"),
            reset_time: concat!($prefix, "resettime"),
            next: concat!($prefix, "next"),
            policy: concat!($prefix, "policy"),
        }
    };
}

const FAMILIES: [Family; 3] = [
    family!("ratelimit-"),
    family!("x-ratelimit-"),
    family!("x-rate-limit-"),
];

/// A larger reset is a time: as a duration it would be thirty years.
const EPOCH_SECONDS_MIN: f64 = 1e9;

/// Larger times are in milliseconds: in seconds they would be in the year 33658.
const EPOCH_MILLIS_MIN: f64 = 1e12;

#[cfg(test)]
mod tests;
