//! Values that are measured or counted: durations, sizes, numbers.

use std::marker::PhantomData;
use std::time::Duration;

use serde_json::Value;

use super::error::Problem;
use super::form::{Form, number, wrong};
use crate::base::gzip::LEVEL_MAX;
use crate::base::time::Wall;
use crate::wire::date::timestamp;

/// A duration of 0 or more, up to [`SECONDS_MAX`].
pub(super) struct Delay;

impl Form for Delay {
    type Of = Duration;
    const KIND: &'static str = "duration";

    fn read(value: &Value) -> Result<Duration, Problem> {
        const MEND: &str = "give seconds (0.5) or a duration (500ms, 10s, 2h)";
        let seconds = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => seconds(text),
            _ => None,
        };
        let text = value.as_str().unwrap_or_default();
        match seconds {
            None => Err(match (interval_of_rate(text), in_short_units(text)) {
                (Some(gap), _) => {
                    let mend = format!("write the time between two requests: {}", short(gap));
                    wrong(value, "a rate, not a duration", mend)
                }
                (None, Some(text)) => wrong(value, "not a duration", format!("write {text}")),
                (None, None) => wrong(value, "not a duration", MEND),
            }),
            Some(s) if !s.is_finite() => Err(wrong(value, "not finite", MEND)),
            Some(s) if s < 0.0 => Err(wrong(value, "negative", "give a duration of 0 or more")),
            Some(s) if s > SECONDS_MAX => Err(wrong(value, "too long", "give less than 100 years")),
            Some(s) => Ok(Duration::from_secs_f64(s)),
        }
    }

    fn write(of: &Duration) -> Value {
        match of.subsec_nanos() {
            0 => of.as_secs().into(),
            _ => of.as_secs_f64().into(),
        }
    }
}

/// A duration above 0: a timeout of 0 would expire at once.
pub(super) struct Timeout;

impl Form for Timeout {
    type Of = Duration;
    const KIND: &'static str = Delay::KIND;

    fn read(value: &Value) -> Result<Duration, Problem> {
        match Delay::read(value)? {
            Duration::ZERO => Err(wrong(value, "not above 0", "give a duration above 0")),
            span => Ok(span),
        }
    }

    fn write(of: &Duration) -> Value {
        Delay::write(of)
    }
}

/// A duration; 0 means no limit.
pub(super) struct Limit;

impl Form for Limit {
    type Of = Option<Duration>;
    const KIND: &'static str = Delay::KIND;

    fn read(value: &Value) -> Result<Option<Duration>, Problem> {
        Ok(Some(Delay::read(value)?).filter(|span| !span.is_zero()))
    }

    fn write(of: &Option<Duration>) -> Value {
        Delay::write(&of.unwrap_or_default())
    }
}

/// A whole number of at least `MIN`.
pub(super) struct Whole<T, const MIN: u64>(PhantomData<T>);

impl<T, const MIN: u64> Form for Whole<T, MIN>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    type Of = T;
    const KIND: &'static str = "number";

    fn read(value: &Value) -> Result<T, Problem> {
        let mend = format!("give a whole number of {MIN} or more");
        let number = match value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let text = value.as_str().unwrap_or_default();
        let number = match number {
            Some(number) => number,
            None if is_digits(text.trim()) => u64::MAX,
            None => {
                let meant = whole_meant(text).filter(|number| *number >= MIN);
                let mend = meant.map_or(mend, |number| format!("write {number}"));
                return Err(wrong(value, "not a whole number", mend));
            }
        };
        if number < MIN {
            return Err(wrong(value, "too small", mend));
        }
        // TOML has no larger integer, and a file must be able to hold every value of a flag.
        let is_held = |number: u64| i64::try_from(number).is_ok() && T::try_from(number).is_ok();
        let read = T::try_from(number).ok().filter(|_| is_held(number));
        read.ok_or_else(|| {
            let bounds = [i64::MAX as u64, u32::MAX.into(), u16::MAX.into()];
            let most = bounds.into_iter().find(|most| is_held(*most));
            let mend = format!("give at most {}", most.unwrap_or(u8::MAX.into()));
            wrong(value, "too large", mend)
        })
    }

    fn write(of: &T) -> Value {
        (*of).try_into().unwrap_or(u64::MAX).into()
    }
}

/// Concurrency of a scope: from `MIN` to [`CONCURRENCY_MAX`] requests in flight.
pub(super) struct Concurrency<const MIN: u64>;

impl<const MIN: u64> Form for Concurrency<MIN> {
    type Of = u32;
    const KIND: &'static str = Whole::<u32, MIN>::KIND;

    fn read(value: &Value) -> Result<u32, Problem> {
        let mend = format!("give a whole number of {MIN} or more, up to {CONCURRENCY_MAX}");
        match Whole::<u32, MIN>::read(value) {
            Ok(slots) if slots > CONCURRENCY_MAX => Err(wrong(value, "too large", mend)),
            Ok(slots) => Ok(slots),
            Err(problem) => Err(Problem::new(problem.what, mend)),
        }
    }

    fn write(of: &u32) -> Value {
        (*of).into()
    }
}

/// A number of failures in a row, from 1: those of a host are counted in one octet.
pub(super) struct Failures;

impl Form for Failures {
    type Of = u8;
    const KIND: &'static str = Whole::<u8, 1>::KIND;

    fn read(value: &Value) -> Result<u8, Problem> {
        const MEND: &str = "give a whole number of 1 or more, up to 255";
        Whole::<u8, 1>::read(value).map_err(|problem| Problem::new(problem.what, MEND))
    }

    fn write(of: &u8) -> Value {
        (*of).into()
    }
}

/// A level of gzip: 0 to [`LEVEL_MAX`].
pub(super) struct GzipLevel;

impl Form for GzipLevel {
    type Of = u32;
    const KIND: &'static str = Whole::<u32, 0>::KIND;

    fn read(value: &Value) -> Result<u32, Problem> {
        const MEND: &str = "give a level from 0, which stores, to 12, which is the slowest";
        match Whole::<u32, 0>::read(value) {
            Ok(level) if level > LEVEL_MAX => Err(wrong(value, "too large", MEND)),
            Ok(level) => Ok(level),
            Err(problem) => Err(Problem::new(problem.what, MEND)),
        }
    }

    fn write(of: &u32) -> Value {
        (*of).into()
    }
}

/// A number of scopes with metrics of their own: at most [`METRICS_SCOPES_MOST`].
pub(super) struct MetricsScopes;

/// The event loop is blocked while these scopes are chosen, and a scraper keeps their series for weeks.
const METRICS_SCOPES_MOST: usize = 100;

impl Form for MetricsScopes {
    type Of = usize;
    const KIND: &'static str = Whole::<usize, 0>::KIND;

    fn read(value: &Value) -> Result<usize, Problem> {
        match Whole::<usize, 0>::read(value)? {
            scopes if scopes > METRICS_SCOPES_MOST => {
                let mend =
                    format!("give at most {METRICS_SCOPES_MOST}; `stats.json` has further scopes");
                Err(wrong(value, "too large", mend))
            }
            scopes => Ok(scopes),
        }
    }

    fn write(of: &usize) -> Value {
        (*of).into()
    }
}

/// A number of bytes, at least 1.
pub(super) struct Bytes<T, const MIN: u64 = 1>(PhantomData<T>);

impl<T, const MIN: u64> Form for Bytes<T, MIN>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    type Of = T;
    const KIND: &'static str = "bytes";

    fn read(value: &Value) -> Result<T, Problem> {
        const MEND: &str = "give bytes (65536) or a size (64KiB, 10MiB, 1GB)";
        match value {
            Value::String(text) => {
                let bytes = bytes(text).ok_or_else(|| match whole_meant(text) {
                    _ if is_digits(text.trim()) => wrong(value, "too large", MEND),
                    Some(bytes) => wrong(value, "not a size", format!("write {bytes}")),
                    None => wrong(value, "not a size", MEND),
                })?;
                let read = Whole::<T, MIN>::read(&bytes.into());
                read.map_err(|problem| Problem::new(problem.what, MEND))
            }
            _ => {
                let read = Whole::<T, MIN>::read(value);
                read.map_err(|problem| Problem::new(problem.what, MEND))
            }
        }
    }

    fn write(of: &T) -> Value {
        Whole::<T, MIN>::write(of)
    }
}

/// A number above 0, fractions allowed.
pub(super) struct AboveZero;

impl Form for AboveZero {
    type Of = f64;
    const KIND: &'static str = "number above 0";

    fn read(value: &Value) -> Result<f64, Problem> {
        number(value)
            .filter(|number| number.is_finite() && *number > 0.0)
            .ok_or_else(|| wrong(value, "not above 0", "give a number above 0, such as 1.0"))
    }

    fn write(of: &f64) -> Value {
        (*of).into()
    }
}

/// A factor above 1, up to [`FACTOR_MAX`].
pub(super) struct AboveOne;

impl Form for AboveOne {
    type Of = f64;
    const KIND: &'static str = "number above 1";

    fn read(value: &Value) -> Result<f64, Problem> {
        const MEND: &str = "give a number above 1 and up to 1000, such as 2.0";
        match number(value) {
            Some(factor) if factor > 1.0 && factor <= FACTOR_MAX => Ok(factor),
            Some(factor) if factor > FACTOR_MAX => Err(wrong(value, "too large", MEND)),
            _ => Err(wrong(value, "not above 1", MEND)),
        }
    }

    fn write(of: &f64) -> Value {
        (*of).into()
    }
}

/// A factor above 0 and below 1.
pub(super) struct BelowOne;

impl Form for BelowOne {
    type Of = f64;
    const KIND: &'static str = "number between 0 and 1";

    fn read(value: &Value) -> Result<f64, Problem> {
        number(value)
            .filter(|factor| *factor > 0.0 && *factor < 1.0)
            .ok_or_else(|| {
                let mend = "give a number above 0 and below 1, such as 0.5";
                wrong(value, "not between 0 and 1", mend)
            })
    }

    fn write(of: &f64) -> Value {
        (*of).into()
    }
}

/// A rate per minute, from [`PER_MINUTE_MIN`] to [`PER_MINUTE_MAX`].
pub(super) struct PerMinute;

impl Form for PerMinute {
    type Of = f64;
    const KIND: &'static str = "number per minute";

    fn read(value: &Value) -> Result<f64, Problem> {
        number(value)
            .filter(|rate| PER_MINUTE_MIN <= *rate && *rate <= PER_MINUTE_MAX)
            .ok_or_else(|| {
                let mend = "give a number from 0.001 to 1000000, such as 60";
                wrong(value, "not a rate", mend)
            })
    }

    fn write(of: &f64) -> Value {
        (*of).into()
    }
}

/// A moment, as RFC 3339 has it (section 5.6).
pub(super) struct Moment;

impl Form for Moment {
    type Of = Wall;
    const KIND: &'static str = "time";

    fn read(value: &Value) -> Result<Wall, Problem> {
        let text = value.as_str().map(str::as_bytes);
        text.and_then(timestamp).ok_or_else(|| {
            let mend = "give date, time and zone, such as \"2030-01-31T18:00:00Z\"";
            wrong(value, "not a time", mend)
        })
    }

    fn write(of: &Wall) -> Value {
        of.to_string().into()
    }
}

/// Parses `0.5`, `500ms` or `1h30m` into seconds.
fn seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(bare) = text.parse() {
        return Some(bare);
    }
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let mut sum = 0.0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let end = after
            .find(|next: char| next.is_ascii_digit())
            .unwrap_or(after.len());
        let unit: f64 = match after[..end].trim() {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        // Dividing by a thousand rounds once; multiplying by its inverse would round twice.
        sum += if unit < 1.0 {
            number / (1.0 / unit).round()
        } else {
            number * unit
        };
        rest = &after[end..];
    }
    (!text.is_empty()).then_some(sign * sum)
}

/// The time between two requests at a rate, as people write one: `2/s`, `2 req/s`, `120rpm`. It is rounded up to a
/// millisecond, of more than a hundred requests per second to a microsecond.
pub fn interval_of_rate(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase().replace(" per ", "/");
    let (number, unit) = split_number(&text)?;
    let seconds = match unit.trim() {
        "rps" | "qps" | "pps" => 1.0,
        "rpm" => 60.0,
        unit => {
            let (what, span) = unit.split_once('/')?;
            let is_known = [
                "", "r", "req", "reqs", "request", "requests", "page", "pages",
            ];
            if !is_known.contains(&what.trim()) {
                return None;
            }
            match span.trim() {
                "s" | "sec" | "second" => 1.0,
                "m" | "min" | "minute" => 60.0,
                "h" | "hour" => 3600.0,
                _ => return None,
            }
        }
    };
    let gap = seconds / number;
    let steps = if gap < 0.01 { 1e6 } else { 1e3 };
    let is_usual = (1e-6..SECONDS_MAX).contains(&gap);
    is_usual.then(|| Duration::from_micros(((gap * steps).ceil() * 1e6 / steps) as u64))
}

/// A duration with one unit.
fn short(span: Duration) -> String {
    match (span.subsec_millis(), span.as_micros() % 1000) {
        (0, 0) => format!("{}s", span.as_secs()),
        (_, 0) => format!("{}ms", span.as_millis()),
        _ => format!("{}us", span.as_micros()),
    }
}

/// A duration whose unit is a longer word, with that which is read: `5 minutes`.
fn in_short_units(text: &str) -> Option<String> {
    const UNITS: [(&[&str], &str); 5] = [
        (&["msec", "msecs", "millis", "milliseconds"], "ms"),
        (&["sec", "secs", "second", "seconds"], "s"),
        (&["mins", "minute", "minutes"], "m"),
        (&["hr", "hrs", "hour", "hours"], "h"),
        (&["day", "days"], "d"),
    ];
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = split_number(&text)?;
    let mut units = UNITS.iter();
    let (_, short) = units.find(|(long, _)| long.contains(&unit.trim()))?;
    Some(format!("{number}{short}"))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number that people mean by `1e6`, `10k` or `10,000`.
fn whole_meant(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let groups: Vec<&str> = text.split([',', '_']).collect();
    let are_thousands = groups[1..].iter().all(|group| group.len() == 3);
    if groups.len() > 1 && are_thousands && groups.iter().all(|group| is_digits(group)) {
        return groups.concat().parse().ok();
    }
    let number = match split_number(&text)? {
        (number, "k") => number * 1e3,
        (number, "m") => number * 1e6,
        (_, rest) if rest.starts_with('e') => text.parse().ok()?,
        _ => return None,
    };
    let is_whole = (0.0..BYTES_EXACT_MAX).contains(&number) && number.fract() == 0.0;
    is_whole.then_some(number as u64)
}

/// Parses `65536`, `64KiB`, `10M` or `1.5GB` into bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Ok(bare) = text.parse() {
        return Some(bare);
    }
    let (number, unit) = split_number(text)?;
    let unit: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        _ => return None,
    };
    let bytes = number * unit;
    (bytes < BYTES_EXACT_MAX).then_some(bytes.round() as u64)
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|next: char| !next.is_ascii_digit() && next != '.')
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// 100 years: longer than any crawl, and far below where arithmetic on instants saturates.
const SECONDS_MAX: f64 = 100.0 * 365.25 * 86_400.0;
/// The number of local ports, each of which can have one connection to an address. A scope allocates
/// the state of all its slots at once, so their number is bounded.
const CONCURRENCY_MAX: u32 = u16::MAX as u32;
/// 2⁵³: up to this value `f64` represents every whole number.
const BYTES_EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Larger than any useful factor, and too small for the product with a duration to overflow.
pub(super) const FACTOR_MAX: f64 = 1000.0;
/// One request in 17 hours.
const PER_MINUTE_MIN: f64 = 1e-3;
/// One request in 60 µs.
const PER_MINUTE_MAX: f64 = 1e6;
