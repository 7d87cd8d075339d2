//! The cookies of a crawl: which requests carry them, and which replies add to them.

use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::frontier::job::Job;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// The cookies that a job's request carries beside its own fields, if there are any, as the value
    /// of their field.
    pub fn cookies_for(&self, job: &Job, own: &[(String, String)]) -> Option<String> {
        let jar = self.jar.as_ref()?;
        let is_cookie = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        let brings_some = own.iter().any(is_cookie) || self.credentials.bring_cookies(job);
        if job.flags.dont_merge_cookies || brings_some {
            return None;
        }
        jar.header(&job.url, self.now)
    }

    /// Keeps the cookies of a reply whose head has just come.
    pub fn keep_cookies(&mut self, key: Key, socket: Key) {
        let (Some(jar), Some(flight)) = (&mut self.jar, self.flights.get(key)) else {
            return;
        };
        let http = self.network.http_of(socket);
        let exchange = http.and_then(|http| http.connection.exchange());
        if let Some(head) = exchange.and_then(|exchange| exchange.head())
            && !flight.job.flags.dont_merge_cookies
        {
            let wall = self.network.io().wall_at_start().at(self.now);
            let fields = head.headers.get_all("set-cookie");
            jar.take(&flight.job.url, fields, wall, self.now);
        }
    }
}
