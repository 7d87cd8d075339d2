//! Errors of submissions and commands.

use std::borrow::Cow;

use crate::base::sentence::debug_as_sentence;
use crate::crawl::config::{ConfigError, SettingValue};
use crate::crawl::overrides::{FixedChange, MEND};
use crate::crawl::work::admission::AdmitError;
use crate::frontier::request::Request;

/// Why a submission was not accepted. It holds the request, unchanged.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The crawl has as many requests ahead of what it fetches as it accepts ([`Builder::ahead`](crate::Builder::ahead)),
    /// or 4096 that are not admitted; try again later.
    #[error("the crawl has no room for more requests now; {} was not accepted, try again later", .0.url)]
    Full(Box<Request>),
    /// The crawl is over, or ends: all is done, it was stopped, or a limit was reached.
    #[error("the crawl is over; {} was not accepted", .0.url)]
    Over(Box<Request>),
    /// The request is invalid.
    #[error("{}: {why}", .request.url)]
    Rejected {
        /// The request submitted.
        request: Box<Request>,
        /// What is wrong with the request. Filters are not applied here.
        #[source]
        why: AdmitError,
    },
}

debug_as_sentence!(SubmitError);

/// Why a command was not accepted.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Too many commands wait for the crawl's next turn; try again later.
    #[error("too many commands wait for the crawl's next turn; try again later")]
    Busy,
    /// The crawl is over, or fetches nothing more.
    #[error("the crawl fetches nothing more")]
    Over,
    /// The settings of a scope are invalid.
    #[error(transparent)]
    Unsound(#[from] ConfigError),
    /// An argument is invalid: what is wrong with it, and how to mend it.
    #[error("{0}")]
    Invalid(String),
}

debug_as_sentence!(ControlError);

/// Why a configuration was not reloaded. Nothing of it was applied.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Settings have changed that need another run.
    #[error("{}", refused_words(.0))]
    NeedsRun(Vec<RefusedSetting>),
    /// The crawl takes no commands, or not now.
    #[error(transparent)]
    Control(#[from] ControlError),
}

debug_as_sentence!(ReloadError);

/// A setting that a running crawl does not change.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RefusedSetting {
    /// Its name.
    pub name: &'static str,
    /// The value with which the run began.
    pub before: SettingValue,
    /// The value of the new configuration.
    pub after: SettingValue,
    /// Why it needs another run.
    pub why: &'static str,
}

impl ReloadError {
    /// The stable code: `config`, `needs_run`, or [`ControlError::code`].
    pub const fn code(&self) -> &'static str {
        match self {
            ReloadError::Config(error) => error.code(),
            ReloadError::NeedsRun(_) => "needs_run",
            ReloadError::Control(error) => error.code(),
        }
    }

    /// Returns whether the same configuration may be accepted later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            ReloadError::Config(_) | ReloadError::NeedsRun(_) => false,
            ReloadError::Control(error) => error.is_retryable(),
        }
    }
}

/// One line about settings that need another run.
fn refused_words(refused: &[RefusedSetting]) -> String {
    let words = refused
        .iter()
        .map(|setting| format!("{}: {}", setting.name, setting.why));
    let words: Vec<String> = words.collect();
    format!("nothing was applied: {}; {MEND}", words.join("; "))
}

impl RefusedSetting {
    /// The setting of a change that needs another run.
    pub(crate) fn of(refused: FixedChange) -> Self {
        let FixedChange { change, why } = refused;
        RefusedSetting {
            name: change.setting.name,
            before: change.before.into(),
            after: change.after.into(),
            why,
        }
    }
}

impl ControlError {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            ControlError::Busy => "busy",
            ControlError::Over => "over",
            ControlError::Unsound(_) => "unsound",
            ControlError::Invalid(_) => "invalid",
        }
    }

    /// Returns whether the same command may be accepted later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, ControlError::Busy)
    }
}

impl SubmitError {
    /// The stable code: `full`, `over`, or [`AdmitError::code`].
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            SubmitError::Full(_) => "full".into(),
            SubmitError::Over(_) => "over".into(),
            SubmitError::Rejected { why, .. } => why.code(),
        }
    }

    /// Returns whether the same request may be accepted later.
    pub fn is_retryable(&self) -> bool {
        match self {
            SubmitError::Full(_) => true,
            SubmitError::Over(_) => false,
            SubmitError::Rejected { why, .. } => why.is_retryable(),
        }
    }

    /// Returns the request that was not accepted.
    pub fn into_request(self) -> Request {
        match self {
            SubmitError::Full(request) | SubmitError::Over(request) => *request,
            SubmitError::Rejected { request, .. } => *request,
        }
    }
}
