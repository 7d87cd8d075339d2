//! Non-numeric values: switches, lists, patterns, choices.

use std::marker::PhantomData;
use std::path::PathBuf;

use regex::Regex;
use serde_json::Value;

use super::error::{Problem, nearest};
use super::form::{Form, items, number, text, wrong};
use super::quantity::{FACTOR_MAX, Whole};
use crate::base::compression::Compression;
use crate::frontier::settings::Follow;
use crate::throttle::settings::{
    AutoThrottleMode, Jitter, LatencyFrom, MapKind, Oversize, RateLimitHeaders, WindowKind,
};
use crate::wire::html::fields::{Extraction, FieldSpec};

/// A switch: true or false.
pub(super) struct Flag;

impl Form for Flag {
    type Of = bool;
    const KIND: &'static str = "true or false";

    fn read(value: &Value) -> Result<bool, Problem> {
        let text = match value {
            Value::Bool(flag) => return Ok(*flag),
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.trim().to_ascii_lowercase(),
            _ => String::new(),
        };
        match text.as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(wrong(value, "neither true nor false", "give true or false")),
        }
    }

    fn write(of: &bool) -> Value {
        (*of).into()
    }
}

/// The path of a file of cookies; it needs the cargo feature `cookies`.
pub(super) struct CookieFile;

impl Form for CookieFile {
    type Of = PathBuf;
    const KIND: &'static str = "path";

    fn read(value: &Value) -> Result<PathBuf, Problem> {
        Cookies::read(&true.into())?;
        Ok(PathBuf::from(text(value)?))
    }

    fn write(of: &PathBuf) -> Value {
        of.to_string_lossy().into_owned().into()
    }
}

/// A switch; true needs the cargo feature `cookies`.
pub(super) struct Cookies;

impl Form for Cookies {
    type Of = bool;
    const KIND: &'static str = Flag::KIND;

    fn read(value: &Value) -> Result<bool, Problem> {
        match Flag::read(value)? {
            true if !cfg!(feature = "cookies") => Err(Problem::new(
                "this build has no cookie jar",
                "build argiope with the feature `cookies`",
            )),
            flag => Ok(flag),
        }
    }

    fn write(of: &bool) -> Value {
        (*of).into()
    }
}

/// `none`, `gzip` or `zstd`, which needs the cargo feature `zstd`.
pub(super) struct LineCompression;

impl Form for LineCompression {
    type Of = Option<Compression>;
    const KIND: &'static str = "none, gzip or zstd";

    fn read(value: &Value) -> Result<Option<Compression>, Problem> {
        const MEND: &str = "give none, gzip or zstd";
        let word = value.as_str().unwrap_or_default().trim();
        if word.eq_ignore_ascii_case("none") {
            return Ok(None);
        }
        let mut all = Compression::ALL.into_iter();
        match all.find(|compression| compression.coding().eq_ignore_ascii_case(word)) {
            Some(compression) if !compression.is_built() => Err(Problem::new(
                "this build does not compress with zstd",
                "build argiope with the feature `zstd`, or give gzip",
            )),
            Some(compression) => Ok(Some(compression)),
            None => Err(wrong(value, "not one of the choices", MEND)),
        }
    }

    fn write(of: &Option<Compression>) -> Value {
        of.map_or("none", Compression::coding).into()
    }
}

/// A switch whose field holds the negated value.
pub(super) struct NotFlag;

impl Form for NotFlag {
    type Of = bool;
    const KIND: &'static str = Flag::KIND;

    fn read(value: &Value) -> Result<bool, Problem> {
        Ok(!Flag::read(value)?)
    }

    fn write(of: &bool) -> Value {
        (!*of).into()
    }
}

/// `true`, `false`, a share (0.2 is `[-0.2, 0.2]`), or `[low, high]`.
pub(super) struct JitterForm;

impl Form for JitterForm {
    type Of = Jitter;
    const KIND: &'static str = "true, false, share or [low, high]";

    fn read(value: &Value) -> Result<Jitter, Problem> {
        const MEND: &str =
            "give true, false, a share from 0 to 1, or [low, high] with -1 ≤ low ≤ high ≤ 1000";
        let jitter = match value {
            Value::Bool(true) => Jitter::default(),
            Value::Bool(false) => Jitter::NONE,
            Value::Array(pair) => match (pair.first(), pair.get(1), pair.get(2)) {
                (Some(low), Some(high), None) => match (number(low), number(high)) {
                    (Some(low), Some(high)) => Jitter { low, high },
                    _ => return Err(wrong(value, "not a pair of numbers", MEND)),
                },
                _ => return Err(wrong(value, "not a pair", MEND)),
            },
            Value::String(text) if text.contains(',') => {
                let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
                let pair = inner.split(',').map(Value::from).collect();
                return Self::read(&Value::Array(pair));
            }
            _ => match (number(value), Flag::read(value)) {
                (Some(share), _) if share < 0.0 => return Err(wrong(value, "negative", MEND)),
                (Some(share), _) => Jitter::symmetric(share),
                (None, Ok(flag)) => return Self::read(&flag.into()),
                (None, Err(_)) => return Err(wrong(value, "not a jitter", MEND)),
            },
        };
        let sound = jitter.low.is_finite() && jitter.high.is_finite();
        let ordered = -1.0 <= jitter.low && jitter.low <= jitter.high;
        match sound && ordered && jitter.high <= FACTOR_MAX {
            true => Ok(jitter),
            false => Err(wrong(value, "out of range", MEND)),
        }
    }

    fn write(of: &Jitter) -> Value {
        if *of == Jitter::NONE {
            false.into()
        } else if of.low == -of.high {
            of.high.into()
        } else {
            vec![of.low, of.high].into()
        }
    }
}

/// Status codes.
pub(super) struct Codes;

impl Form for Codes {
    type Of = Vec<u16>;
    const KIND: &'static str = "list of status codes";

    fn read(value: &Value) -> Result<Vec<u16>, Problem> {
        items(value)?
            .iter()
            .map(|code| match Whole::<u16, 100>::read(code) {
                // RFC 9110 defines up to 599, but some servers send 999.
                Ok(code @ 100..=999) => Ok(code),
                _ => Err(wrong(
                    code,
                    "not a status code",
                    "give codes from 100 to 999",
                )),
            })
            .collect()
    }

    fn write(of: &Vec<u16>) -> Value {
        of.clone().into()
    }
}

/// The end of URLs that `*.ending` means in a shell, as a pattern without its `$`.
fn glob(text: &str) -> Option<String> {
    let ending = text.strip_prefix("*.")?;
    let is_plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let parts: Vec<&str> = ending.split('.').collect();
    (parts.iter().all(|part| is_plain(part))).then(|| format!("[.]{}", parts.join("[.]")))
}

/// Regular expressions. Text is one pattern, because patterns may contain commas.
pub(super) struct Patterns;

impl Form for Patterns {
    type Of = Vec<Regex>;
    const KIND: &'static str = "list of regular expressions";

    fn read(value: &Value) -> Result<Vec<Regex>, Problem> {
        patterns(value, |ending| format!("{ending}$"))
    }

    fn write(of: &Vec<Regex>) -> Value {
        of.iter().map(Regex::as_str).collect::<Vec<_>>().into()
    }
}

/// The same, of the URLs that are fetched. Seeds and pages with links are among them.
pub(super) struct AllowedPatterns;

impl Form for AllowedPatterns {
    type Of = Vec<Regex>;
    const KIND: &'static str = Patterns::KIND;

    fn read(value: &Value) -> Result<Vec<Regex>, Problem> {
        patterns(value, |ending| format!("'(/|[.]html?|{ending})$'"))
    }

    fn write(of: &Vec<Regex>) -> Value {
        Patterns::write(of)
    }
}

/// Reads patterns. `of_ending`: what is meant by `*.ending`.
fn patterns(value: &Value, of_ending: fn(&str) -> String) -> Result<Vec<Regex>, Problem> {
    let one = |value: &Value| {
        let text = text(value)?;
        Regex::new(text).map_err(|error| {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim();
            let reason = reason.trim_start_matches("error: ");
            let mend = match glob(text) {
                Some(ending) => format!("in place of {text} write {}", of_ending(&ending)),
                None => format!("correct the pattern: {reason}"),
            };
            wrong(value, "not a valid regular expression", mend)
        })
    };
    match value {
        Value::Array(items) => items.iter().map(one).collect(),
        // Empty text is an empty list; as a pattern it would match every URL.
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        _ => Ok(vec![one(value)?]),
    }
}

/// Fields of pages: a list, or text: one field with a selector, or built-in ones with commas. Any needs the
/// cargo feature `extract`.
pub(super) struct ExtractForm;

impl Form for ExtractForm {
    type Of = Extraction;
    const KIND: &'static str = "list of fields";

    fn read(value: &Value) -> Result<Extraction, Problem> {
        let fields = match value {
            Value::Array(fields) => fields.clone(),
            // A selector may have commas.
            Value::String(one)
                if one.contains(['=', '(']) && !one.trim_start().starts_with('[') =>
            {
                vec![value.clone()]
            }
            _ => items(value)?,
        };
        let mut specs = Vec::new();
        for value in &fields {
            let field = text(value)?;
            // A selector without a name is refused as a whole.
            let is_one = field.contains(['=', '(', '[']);
            for one in field.split(|char| char == ',' && !is_one) {
                let spec = FieldSpec::parse(one);
                specs.push(spec.map_err(|problem| wrong(value, &problem.what, problem.mend))?);
            }
        }
        Extraction::new(specs)
            .map_err(|(field, problem)| wrong(&field.into(), &problem.what, problem.mend))
    }

    fn write(of: &Extraction) -> Value {
        of.texts().collect::<Vec<_>>().into()
    }
}

/// One of the names that [`Choice::ALL`] lists.
pub(super) struct OneOf<T>(PhantomData<T>);

/// An enum whose variants have names in settings.
pub(super) trait Choice: Copy + PartialEq + 'static {
    const KIND: &'static str;
    const ALL: &'static [(&'static str, Self)];
}

impl<T: Choice> Form for OneOf<T> {
    type Of = T;
    const KIND: &'static str = T::KIND;

    fn read(value: &Value) -> Result<T, Problem> {
        let word = value.as_str().unwrap_or_default().trim();
        let names = || T::ALL.iter().map(|(name, _)| *name);
        T::ALL
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word))
            .map(|(_, choice)| *choice)
            .ok_or_else(|| {
                let mend = match nearest(word, names()) {
                    Some(name) => format!("did you mean {name}? ({})", T::KIND),
                    None => format!("give {}", T::KIND),
                };
                wrong(value, "not one of the choices", mend)
            })
    }

    fn write(of: &T) -> Value {
        T::ALL
            .iter()
            .find(|(_, choice)| choice == of)
            .map_or(Value::Null, |(name, _)| (*name).into())
    }
}

impl Choice for Follow {
    const KIND: &'static str = "none, host, domain or all";
    const ALL: &'static [(&'static str, Self)] = &[
        ("none", Follow::None),
        ("host", Follow::Host),
        ("domain", Follow::Domain),
        ("all", Follow::All),
    ];
}

impl Choice for LatencyFrom {
    const KIND: &'static str = "send or connect";
    const ALL: &'static [(&'static str, Self)] = &[
        ("send", LatencyFrom::Send),
        ("connect", LatencyFrom::Connect),
    ];
}

impl Choice for AutoThrottleMode {
    const KIND: &'static str = "robust or scrapy";
    const ALL: &'static [(&'static str, Self)] = &[
        ("robust", AutoThrottleMode::Robust),
        ("scrapy", AutoThrottleMode::Scrapy),
    ];
}

impl Choice for RateLimitHeaders {
    const KIND: &'static str = "always, backoff or off";
    const ALL: &'static [(&'static str, Self)] = &[
        ("always", RateLimitHeaders::Always),
        ("backoff", RateLimitHeaders::Backoff),
        ("off", RateLimitHeaders::Off),
    ];
}

impl Choice for WindowKind {
    const KIND: &'static str = "fixed or sliding";
    const ALL: &'static [(&'static str, Self)] = &[
        ("fixed", WindowKind::Fixed),
        ("sliding", WindowKind::Sliding),
    ];
}

impl Choice for Oversize {
    const KIND: &'static str = "alone or refuse";
    const ALL: &'static [(&'static str, Self)] =
        &[("alone", Oversize::Alone), ("refuse", Oversize::Refuse)];
}

impl Choice for MapKind {
    const KIND: &'static str = "host, domain, hierarchy, endpoint, ip, or several of them";
    const ALL: &'static [(&'static str, Self)] = &[
        ("host", MapKind::Host),
        ("domain", MapKind::Domain),
        ("hierarchy", MapKind::Hierarchy),
        ("endpoint", MapKind::Endpoint),
        ("ip", MapKind::Ip),
    ];
}

impl Choice for super::BackEnd {
    const KIND: &'static str = "auto, epoll or uring";
    const ALL: &'static [(&'static str, Self)] = &[
        ("auto", super::BackEnd::Auto),
        ("epoll", super::BackEnd::Epoll),
        ("uring", super::BackEnd::Uring),
    ];
}

/// A value that may be absent: null or empty text.
pub(super) struct Maybe<F>(PhantomData<F>);

impl<F: Form> Form for Maybe<F> {
    type Of = Option<F::Of>;
    const KIND: &'static str = F::KIND;

    fn read(value: &Value) -> Result<Option<F::Of>, Problem> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            _ => F::read(value).map(Some),
        }
    }

    fn write(of: &Option<F::Of>) -> Value {
        of.as_ref().map_or(Value::Null, F::write)
    }
}
