//! A line of `results.jsonl`: the keys that an audit needs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::time::{Time, nanos};

/// A finished attempt.
#[derive(Debug, serde::Deserialize)]
pub struct Attempt<'a> {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) parent: Option<u64>,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) url: Cow<'a, str>,
    #[serde(default)]
    pub(super) method: String,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) error: Option<AttemptError>,
    pub(super) remote: Option<String>,
    #[serde(default)]
    pub(super) bytes_wire: u64,
    pub(super) started: Time,
    pub(super) due: Option<Time>,
    pub(super) sent: Option<Time>,
    pub(super) body: Option<f64>,
    pub(super) headers: Option<f64>,
    #[serde(default)]
    pub(super) ended: Option<f64>,
    #[serde(default)]
    pub(super) hold: Option<AskedHold>,
    #[serde(default)]
    pub(super) robots_ignored: bool,
    #[serde(default)]
    pub(super) proxied: Option<bool>,
}

/// Why it failed.
#[derive(Debug, serde::Deserialize)]
pub(super) struct AttemptError {
    pub code: String,
}

/// How long its reply asked to wait.
#[derive(Debug, serde::Deserialize)]
pub(super) struct AskedHold {
    pub from: Time,
    pub seconds: f64,
    pub source: String,
    pub scopes: BTreeMap<String, f64>,
    #[serde(default)]
    pub redirect: Option<f64>,
}

impl<'a> Attempt<'a> {
    /// Parses a line.
    ///
    /// # Errors
    /// It is no result line: the reason.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// When it ended, as far as that is known.
    pub(super) fn end(&self) -> Time {
        let after = self.ended.or(self.body).or(self.headers).unwrap_or(0.0);
        let end = self.started.plus(nanos(after));
        end.max(self.sent.unwrap_or(end))
    }

    /// When throttling allowed its departure, at most a second before that. What was decided in between was too late
    /// for it: requests of one turn of the loop depart together.
    pub(super) fn allowed_at(&self, sent: Time) -> Time {
        let earliest = sent.minus(TURN_MAX);
        self.due.unwrap_or(sent).clamp(earliest, sent)
    }

    /// Scheme, host and port of its URL.
    pub(super) fn origin(&self) -> &str {
        let rest = self.url.find("://").map_or(0, |at| at + 3);
        let end = self.url[rest..].find(['/', '?', '#']);
        &self.url[..end.map_or(self.url.len(), |end| rest + end)]
    }

    /// Host and port of its URL: the port is absent if it is the usual one.
    pub(super) fn authority(&self) -> &str {
        let origin = self.origin();
        let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest);
        authority
            .rsplit_once('@')
            .map_or(authority, |(_, authority)| authority)
    }

    /// Path and query of its URL.
    pub(super) fn target(&self) -> &str {
        &self.url[self.origin().len()..]
    }
}

/// The host of a host and port.
pub(super) fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Longest time from a departure's decision to its system call that counts as one turn of the loop.
pub const TURN_MAX: u64 = 1_000_000_000;
