//! What a server says of its rate limits, in every generation of header fields that is in use.
//!
//! - Three fields `RateLimit-Limit`, `-Remaining` and `-Reset`, with their policies behind the
//!   limit or in `RateLimit-Policy`: draft-polli-ratelimit-headers,
//!   draft-ietf-httpapi-ratelimit-headers-00 to 06.
//! - A dictionary, `RateLimit: limit=100, remaining=50, reset=5`: draft 07.
//! - A list of named limits, `RateLimit: "name";r=50;t=30`: since draft 08.
//! - The fields that vendors invented before and after, `X-RateLimit-*` and `X-Rate-Limit-*`.
//!
//! A reply out of a cache tells what somebody else had left: see [`super::cache_status`].

use std::borrow::Cow;
use std::cmp::Ordering;
use std::time::Duration;

use crate::base::time::Wall;

use super::date;
use super::http::Headers;
use super::retry_after::WAIT_MAX;
use super::structured;

/// The limits that a reply speaks of. All that it says nothing of, or nothing that can be read,
/// is `None`.
///
/// Where it speaks of several, what binds is the one with nothing remaining, of these the one
/// with the longest reset; else the one with the least remaining.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimit {
    /// How much the limit that binds allows in its window.
    pub limit: Option<f64>,
    /// How much of that is left; some servers count in fractions.
    pub remaining: Option<f64>,
    /// How long until there is more, at most [`WAIT_MAX`].
    pub reset: Option<Duration>,
    /// The reset was further off than that.
    pub clamped: bool,
    /// The limits that have names, in order; the first [`LIMITS_MAX`].
    pub limits: Vec<NamedLimit>,
    /// The policies, in order; the first [`LIMITS_MAX`].
    pub policies: Vec<Policy>,
}

/// What is left of a limit with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLimit {
    /// The name, which is that of a policy.
    pub policy: String,
    /// How much is left, in the unit of the policy.
    pub remaining: Option<f64>,
    /// How long until there is more.
    pub reset: Option<Duration>,
    /// For which part of its clients the server counts, as it writes it; to be compared only.
    pub partition: Option<String>,
}

/// What a server allows in general.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The name, since draft 08.
    pub policy: Option<String>,
    /// How much is allowed in a window.
    pub quota: f64,
    /// How long the window is.
    pub window: Option<Duration>,
    /// What is counted: `requests` unless the policy says otherwise.
    pub unit: Cow<'static, str>,
    /// For which part of its clients the server counts, as it writes it; to be compared only.
    pub partition: Option<String>,
}

impl RateLimit {
    /// Reads the header fields of a reply that came at `wall_now`.
    ///
    /// A reset is a number of seconds, or a moment: in seconds since 1970 if it is above 10⁹, in
    /// milliseconds if above 10¹², or an HTTP date. Moments are read by the server's own clock
    /// where that is sane (see [`date::clock_of`]); those that have passed are zero. What is
    /// negative or no number is as if it were not there.
    pub fn read(headers: &Headers, wall_now: Wall) -> Self {
        if !headers.begin_with_any(b"rx") || !headers.names().any(is_about_limits) {
            return RateLimit::default();
        }
        let mut reading = Reading {
            server_now: date::clock_of(headers, wall_now),
            binding: Told::default(),
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
        let Told {
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

    /// Whether nothing remains: less than one request.
    pub fn is_exhausted(&self) -> bool {
        self.remaining.is_some_and(|remaining| remaining < 1.0)
    }
}

/// How many limits and policies of one reply are kept, and how often one field is read. Who writes
/// more has no wish to be read.
pub const LIMITS_MAX: usize = 16;

/// The work of reading one reply.
struct Reading {
    server_now: Wall,
    binding: Told,
    found: RateLimit,
}

impl Reading {
    /// Servers on the way may each have put their fields in: first values go with first values,
    /// second with second.
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
            // What needs no clock first.
            let reset = (after.and_then(structured::number).map(Reset::after))
                .or_else(|| self.reset(reset?))
                .or_else(|| Some(self.until(date::http_date(time?)?)))
                .or_else(|| Some(self.until(date::timestamp(next?)?)));
            // Several limits with one reset share it.
            last_reset = reset.or(last_reset);
            let told = Told {
                limit: limit.and_then(|value| self.limit_and_policies(value)),
                remaining: remaining.and_then(amount),
                reset: last_reset,
            };
            self.hear(told);
        }
    }

    /// A limit, and behind it the policies that it comes from.
    fn limit_and_policies(&mut self, value: &[u8]) -> Option<f64> {
        let mut members = structured::members(value);
        let (limit, _) = structured::item(members.next()?);
        members.for_each(|member| self.add_policy(member));
        amount(limit)
    }

    /// A `RateLimit` field: members of a dictionary, limits with names, or garbage between them.
    fn read_structured(&mut self, value: &[u8]) {
        let mut told = Told::default();
        for member in structured::members(value) {
            if member.starts_with(b"\"") {
                self.read_named(member);
                continue;
            }
            let (key, value) = structured::pair(structured::item(member).0);
            let Some(value) = value else { continue };
            match key {
                b"limit" => told.limit = amount(value).or(told.limit),
                b"remaining" => told.remaining = amount(value).or(told.remaining),
                b"reset" => told.reset = self.reset(value).or(told.reset),
                _ => {}
            }
        }
        self.hear(told);
    }

    fn read_named(&mut self, member: &[u8]) {
        let (name, parameters) = structured::item(member);
        let Some(policy) = structured::string(name) else {
            return;
        };
        let mut told = Told::default();
        let mut partition = None;
        for (key, value) in parameters {
            let Some(value) = value else { continue };
            match key {
                b"r" => told.remaining = amount(value),
                b"t" => told.reset = self.reset(value),
                b"pk" => partition = text(value),
                _ => {}
            }
        }
        if self.found.limits.len() < LIMITS_MAX {
            self.found.limits.push(NamedLimit {
                policy,
                remaining: told.remaining,
                reset: told.reset.map(|reset| reset.wait),
                partition,
            });
        }
        self.hear(told);
    }

    fn add_policy(&mut self, member: &[u8]) {
        if self.found.policies.len() < LIMITS_MAX {
            self.found.policies.extend(policy(member));
        }
    }

    fn hear(&mut self, told: Told) {
        if told.binds_before(&self.binding) {
            self.binding = told;
        }
    }

    /// A reset in whatever way it is written, save those that have fields of their own.
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

/// One limit, as far as it is told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    limit: Option<f64>,
    remaining: Option<f64>,
    reset: Option<Reset>,
}

impl Told {
    fn binds_before(&self, other: &Told) -> bool {
        let left = |told: &Told| match told.remaining {
            None => f64::INFINITY,
            Some(remaining) if remaining < 1.0 => 0.0,
            Some(remaining) => remaining,
        };
        let wait = |told: &Told| told.reset.map(|reset| reset.wait);
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

/// What is allowed in general: a number, or a string with a quota, and their window.
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

/// An amount; one beyond all bounds is the largest there is.
fn amount(value: &[u8]) -> Option<f64> {
    structured::number(value).map(|number| number.min(f64::MAX))
}

/// A span that is not negative; `None` if it is longer than [`WAIT_MAX`].
fn span(seconds: f64) -> Option<Duration> {
    let span = Duration::try_from_secs_f64(seconds).ok();
    span.filter(|span| *span <= WAIT_MAX)
}

fn text(value: &[u8]) -> Option<String> {
    String::from_utf8(value.to_vec()).ok()
}

/// The values of one line, which may be several lines joined, without any parameters. A date
/// holds a comma of its own.
fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_date = value.first().is_some_and(u8::is_ascii_alphabetic);
    value
        .split(move |&byte| byte == b',' && !is_date)
        .map(|piece| structured::item(piece).0)
}

/// Whether it is worth looking further: most replies say nothing of limits.
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

/// Fields of one make, which speak of the same limits.
struct Family {
    prefix: &'static str,
    limit: &'static str,
    remaining: &'static str,
    reset: &'static str,
    /// Seconds: Discord's.
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

/// Above it a reset is a moment: as a span it would be thirty years.
const EPOCH_SECONDS_MIN: f64 = 1e9;

/// Above it that moment is in milliseconds: in seconds it would be in the year 33658.
const EPOCH_MILLIS_MIN: f64 = 1e12;

#[cfg(test)]
mod tests;
