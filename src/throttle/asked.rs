//! What replies asked for: how long their scopes are to wait.

use std::time::Duration;

use super::decision::DecisionSource;
use crate::base::time::Instant;

/// How long a reply asked to wait: by Retry-After or rate-limit fields, as far as the settings obey these.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AskedHold {
    /// When the crawl read the fields; the wait begins then.
    pub from: Instant,
    /// The time that the fields asked for, without the bounds of the settings; above 0.
    pub asked: Duration,
    /// The fields: [`DecisionSource::RetryAfter`] or [`DecisionSource::RateLimit`].
    pub source: DecisionSource,
    /// The scopes that are held, and for how long: `asked`, at most `BACKOFF_MAX_DELAY` unless `RETRY_AFTER_OBEY`.
    pub scopes: Vec<(String, Duration)>,
    /// How long the target of this redirect waits: `asked`, at most `REDIRECT_MAX_DELAY`.
    pub redirect: Option<Duration>,
}

impl AskedHold {
    /// A wait that begins at `from` and holds nothing yet.
    pub fn new(from: Instant, asked: Duration, source: DecisionSource) -> Self {
        AskedHold {
            from,
            asked,
            source,
            scopes: Vec::new(),
            redirect: None,
        }
    }

    /// A scope is held until then. Of several waits for one scope the one that ends last counts.
    pub(super) fn hold(&mut self, scope: &str, until: Instant) {
        let held = until.saturating_since(self.from);
        match self.scopes.iter_mut().find(|(name, _)| name == scope) {
            Some((_, longest)) => *longest = held.max(*longest),
            None => self.scopes.push((scope.to_owned(), held)),
        }
    }
}
