//! Why a crawl ended, and what was left unfetched.

use std::fmt;

use crate::crawl::requests::credentials::Credentials;
use crate::frontier::job::Job;
use crate::frontier::request::Request;
use crate::wire::url::CrawlUrl;

/// Why a crawl ended: `finish_reason` of `stats.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FinishReason {
    /// All work was done.
    Finished,
    /// It was stopped: by a [`Stopper`](crate::Stopper), by
    /// [`Handle::shutdown`](crate::Handle::shutdown), or by a signal to the command.
    Shutdown,
    /// `CLOSESPIDER_PAGECOUNT` was reached.
    PageCount,
    /// `CLOSESPIDER_TIMEOUT` expired.
    Timeout,
    /// `CLOSESPIDER_ERRORCOUNT` was reached.
    ErrorCount,
    /// `CLOSESPIDER_BYTECOUNT` was reached.
    ByteCount,
    /// The [`RequestSource`](crate::RequestSource) returned an error:
    /// [`Crawler::source_error`](crate::Crawler::source_error).
    SourceFailed,
    /// A result could not be written: [`Crawler::write_error`](crate::Crawler::write_error).
    SinkFailed,
    /// A probe's target has an address that `ALLOW_NET` does not admit.
    BlockedAddress,
    /// A probe's requests did not all end within the time they have.
    Overdue,
}

impl FinishReason {
    /// The string in files: `finished`, `shutdown`, `closespider_pagecount`, `closespider_timeout`,
    /// `closespider_errorcount`, `closespider_bytecount`, `source_failed`, `sink_failed`, `blocked_address` or `overdue`.
    pub const fn as_str(self) -> &'static str {
        match self {
            FinishReason::Finished => "finished",
            FinishReason::Shutdown => "shutdown",
            FinishReason::PageCount => "closespider_pagecount",
            FinishReason::Timeout => "closespider_timeout",
            FinishReason::ErrorCount => "closespider_errorcount",
            FinishReason::ByteCount => "closespider_bytecount",
            FinishReason::SourceFailed => "source_failed",
            FinishReason::SinkFailed => "sink_failed",
            FinishReason::BlockedAddress => "blocked_address",
            FinishReason::Overdue => "overdue",
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A request that had not been fetched when its crawl ended early.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pending {
    /// The number that its submission was given, or the first attempt at a link; `None` where it
    /// never had one.
    pub id: Option<u64>,
    /// The request that fetches it. If it had been redirected, the request is for the target.
    pub request: Request,
    /// Its position in the list of seeds ([`Handle::submit_seed_at`](crate::Handle::submit_seed_at)), if it was
    /// submitted and not taken: no state has it, and the run that resumes the crawl is to submit it again.
    pub position: Option<u64>,
}

impl Pending {
    /// Sets `dont_send_credentials` if its origin may not have the credentials: as a seed of another
    /// crawl, which may have other ones, it would get them.
    pub(in crate::crawl) fn of(job: &Job, credentials: &Credentials) -> Self {
        let mut request = job.to_request();
        request.dont_send_credentials |= !job.names_origin() && !credentials.may_reach(&job.url);
        Pending {
            id: Some(job.root()),
            request,
            position: None,
        }
    }

    /// The same for a request that its source returned, or whose result could not be written: how it was
    /// reached is not known.
    pub(in crate::crawl) fn of_request(mut request: Request, credentials: &Credentials) -> Self {
        let url = CrawlUrl::parse(&request.url);
        request.dont_send_credentials |= !url.is_ok_and(|url| credentials.may_reach(&url));
        Pending {
            id: None,
            request,
            position: None,
        }
    }
}
