//! Requests left unfetched when a crawl ends early.

use crate::crawl::requests::credentials::Credentials;
use crate::frontier::job::Job;
use crate::frontier::request::Request;
use crate::wire::url::CrawlUrl;

/// A request that had not been fetched when its crawl ended early.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The number that its submission was given, or the first attempt at a link; `None` where it
    /// never had one.
    pub id: Option<u64>,
    /// The request that fetches it. If it had been redirected, the request is for the target.
    pub request: Request,
}

impl Pending {
    /// Sets `dont_send_credentials` if its origin may not have the credentials: as a seed of another
    /// crawl it would get them.
    pub(in crate::crawl) fn of(job: &Job, credentials: &Credentials) -> Self {
        let mut request = job.to_request();
        request.dont_send_credentials |= !credentials.are_for(&job.url);
        Pending {
            id: Some(job.root()),
            request,
        }
    }

    /// The same for a request whose result could not be written.
    pub(in crate::crawl) fn of_unwritten(mut request: Request, credentials: &Credentials) -> Self {
        let url = CrawlUrl::parse(&request.url);
        request.dont_send_credentials |= !url.is_ok_and(|url| credentials.are_for(&url));
        Pending { id: None, request }
    }
}
