//! Validates a request before it is offered, on the crawl's thread or on its submitter's.

use std::borrow::Cow;

use crate::base::sentence::debug_as_sentence;
use crate::crawl::config::Config;
use crate::crawl::requests::check_request;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::request::{Request, ScopesError};
use crate::wire::http::RequestError;
use crate::wire::url::{CrawlUrl, UrlError};

/// Why a request was not admitted.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The URL is invalid.
    #[error("invalid URL: {0}")]
    Url(#[source] UrlError),
    /// The scopes that it names, or their costs, are invalid.
    #[error(transparent)]
    Scopes(ScopesError),
    /// It cannot be encoded as an HTTP request.
    #[error(transparent)]
    Request(RequestError),
    /// The crawl is over.
    #[error("the crawl is over")]
    Over,
}

debug_as_sentence!(AdmitError);

impl AdmitError {
    /// The stable code, after its family: `url.relative`, `scopes.cost`, `request.method`,
    /// or `over`.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            AdmitError::Url(error) => format!("url.{}", error.code()).into(),
            AdmitError::Scopes(error) => error.code().into(),
            AdmitError::Request(error) => format!("request.{}", error.code()).into(),
            AdmitError::Over => "over".into(),
        }
    }

    /// Whether a retry could succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The first attempt of a request, without a number. An error if the request can never be sent.
pub fn job_of(request: &Request, config: &Config) -> Result<Job, AdmitError> {
    let url = CrawlUrl::parse(&request.url).map_err(AdmitError::Url)?;
    request.check_scopes().map_err(AdmitError::Scopes)?;
    let job = Job {
        kind: request.kind(),
        depth: request.depth,
        priority: request.priority,
        flags: Flags::of(request),
        extra: Extra::of(request),
        ..Job::seed(0, without_dropped(url, config))
    };
    // An error for the caller now, not for the sink later.
    check_request(&job).map_err(AdmitError::Request)?;
    Ok(job)
}

/// The URL without the query parameters that `DROP_QUERY_PARAMETERS` names.
pub fn without_dropped(url: CrawlUrl, config: &Config) -> CrawlUrl {
    let dropped = &config.frontier.drop_parameters;
    if dropped.is_empty() {
        url
    } else {
        url.drop_parameters(dropped)
    }
}
