//! Stopping: what is not sent goes back to the frontier, what is on its way ends as `cancelled`.

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
    /// What would have it fetched. Where it had been redirected it asks for the target.
    pub request: Request,
}

impl Pending {
    /// Of one whose origin may not have the credentials of the seeds' origins it says so: as a seed of
    /// another crawl it would get them.
    pub(in crate::crawl) fn of(job: &Job, credentials: &Credentials) -> Self {
        let mut request = job.to_request();
        request.dont_send_credentials |= !credentials.are_for(&job.url);
        Pending {
            id: Some(job.root()),
            request,
        }
    }

    /// Of one whose result could not be written; the same holds for its credentials.
    pub(in crate::crawl) fn of_unwritten(mut request: Request, credentials: &Credentials) -> Self {
        let url = CrawlUrl::parse(&request.url);
        request.dont_send_credentials |= !url.is_ok_and(|url| credentials.are_for(&url));
        Pending { id: None, request }
    }
}
