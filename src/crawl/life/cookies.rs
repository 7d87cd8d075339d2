//! The cookies of a crawl: which requests carry them, and which replies add to them.

use super::flight::Socket;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::frontier::job::Job;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// The header fields of a job's request, where it carries cookies beside its own fields.
    pub fn fields_with_cookies(&self, job: &Job) -> Option<Vec<(String, String)>> {
        let jar = self.jar.as_ref()?;
        let extra = job.extra.as_deref();
        let own = extra.map_or(&[][..], |extra| &extra.headers);
        let is_cookie = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        let usual = &self.config.fetch.headers;
        if !merges(job) || own.iter().chain(usual).any(is_cookie) {
            return None;
        }
        let cookies = jar.header(&job.url, self.now)?;
        let mut fields = own.to_vec();
        fields.push(("Cookie".to_owned(), cookies));
        Some(fields)
    }

    /// Keeps the cookies of a reply whose head has just come.
    pub fn keep_cookies(&mut self, key: Key, socket: Key) {
        let (Some(jar), Some(flight)) = (&mut self.jar, self.flights.get(key)) else {
            return;
        };
        let connection = self.sockets.get(socket).and_then(Socket::http);
        let exchange = connection.and_then(|http| http.connection.exchange());
        if let Some(head) = exchange.and_then(|exchange| exchange.head())
            && merges(&flight.job)
        {
            let wall = self.io.wall_at_start().at(self.now);
            let fields = head.headers.get_all("set-cookie");
            jar.take(&flight.job.url, fields, wall, self.now);
        }
    }
}

/// Whether a request has to do with the cookies of others.
fn merges(job: &Job) -> bool {
    let extra = job.extra.as_deref();
    !extra.is_some_and(|extra| extra.dont_merge_cookies)
}
