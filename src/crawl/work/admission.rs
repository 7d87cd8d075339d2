//! Checks a request before it is offered, on the crawl's thread or on its submitter's.

use std::borrow::Cow;

use crate::crawl::config::Config;
use crate::crawl::requests::check_request;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::request::{Request, ScopesError};
use crate::wire::http::RequestError;
use crate::wire::url::{CrawlUrl, UrlError};

/// Why a request was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// It is no URL that can be fetched.
    #[error("it is no URL to fetch: {0}")]
    Url(#[source] UrlError),
    /// It cannot be throttled under the scopes that it names.
    #[error(transparent)]
    Scopes(ScopesError),
    /// It cannot be put on the wire.
    #[error(transparent)]
    Request(RequestError),
    /// The crawl is over.
    #[error("the crawl is over")]
    Over,
}

impl AdmitError {
    /// The stable name, after its family: `url.relative`, `scopes.cost`, `request.method`,
    /// or `over`.
    pub fn code(&self) -> Cow<'static, str> {
        match self {
            AdmitError::Url(error) => format!("url.{}", error.code()).into(),
            AdmitError::Scopes(error) => error.code().into(),
            AdmitError::Request(error) => format!("request.{}", error.code()).into(),
            AdmitError::Over => "over".into(),
        }
    }

    /// Whether the same request may be admitted later: always `false`.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The first attempt that a request asks for, without a number. What can never be sent is refused.
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
