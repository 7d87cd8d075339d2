//! The exchange of an attempt: what its request says on the wire.

use crate::crawl::core::Core;
use crate::crawl::work::description::describe;
use crate::fetch::exchange::Exchange;
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::wire::http::{Limits, RequestError};
use crate::wire::proxy::Proxy;

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
        let mut exchange = self.output.take_exchange();
        exchange.renew(&asked, settings, limits, timings)?;
        Ok(exchange)
    }
}
