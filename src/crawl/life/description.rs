//! What a job asks for on the wire: its request's description, and the exchange that is made of it.

use crate::crawl::core::Core;
use crate::fetch::exchange::{Description, Exchange};
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::frontier::request::Kind;
use crate::io::Io;
use crate::wire::http::{Limits, RequestError, UsualFields};
use crate::wire::proxy::Proxy;
use crate::wire::robots;

impl<I: Io> Core<I> {
    /// The exchange of a job, ready to be sent, in the memory of one that is over where there is some.
    pub fn exchange_of(
        &mut self,
        job: &Job,
        proxy: Option<&Proxy>,
        timings: Timings,
    ) -> Result<Box<Exchange>, RequestError> {
        self.warn_of_credentials(job);
        #[cfg_attr(not(feature = "cookies"), expect(unused_mut, reason = "they are all"))]
        let mut fields = job.fields();
        #[cfg(feature = "cookies")]
        if let Some(cookies) = self.cookies_for(job, &fields) {
            fields.push(("Cookie".to_owned(), cookies));
        }
        let asked = describe(job, &fields, proxy, self.credentials.fields(job));
        let (settings, limits) = (&self.config.fetch, Limits::default());
        let mut exchange = self.spare.take_exchange();
        exchange.renew(&asked, settings, limits, timings)?;
        Ok(exchange)
    }
}

/// Whether a job's request can be put on the wire, as far as the job goes: the fields of every
/// request were checked before the crawl began.
pub fn check_request(job: &Job) -> Result<(), RequestError> {
    describe(job, &job.fields(), None, &UsualFields::default()).check()
}

/// What a job asks for with these fields, of a proxy where there is one that forwards.
fn describe<'a>(
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
