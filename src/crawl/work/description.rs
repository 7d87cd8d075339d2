//! What a job asks for on the wire: its request's description, and the exchange that is made of it.

use crate::fetch::exchange::Description;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::wire::http::{RequestError, UsualFields};
use crate::wire::proxy::Proxy;
use crate::wire::robots;

/// Whether a job's request can be put on the wire, as far as the job goes: the fields of every
/// request were checked before the crawl began.
pub fn check_request(job: &Job) -> Result<(), RequestError> {
    describe(job, &job.fields(), None, &UsualFields::default()).check()
}

/// What a job asks for with these fields, of a proxy where there is one that forwards.
pub fn describe<'a>(
    job: &'a Job,
    fields: &'a [(String, String)],
    proxy: Option<&'a Proxy>,
    usual: &'a UsualFields,
) -> Description<'a> {
    let proxy = proxy.filter(|proxy| proxy.forwards(&job.url));
    Description {
        method: job.method(),
        target: match proxy {
            None => job.url.request_target(),
            Some(_) => job.url.as_str(),
        },
        host: job.url.authority(),
        usual,
        headers: fields,
        body: Some(job.body()).filter(|body| !body.is_empty()),
        keep_wire: true,
        body_max: match job.kind {
            Kind::Robots => Some(robots::LENGTH_MAX as u64),
            Kind::Page | Kind::Sitemap => job.body_max(),
        },
        timeout: job.timeout(),
        proxy,
    }
}
