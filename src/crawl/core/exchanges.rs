//! Exchanges: the request as it goes on the wire, and the cookies of its reply.

use std::time::Duration;

use crate::base::ids::LaneId;
#[cfg(feature = "cookies")]
use crate::base::slab::Key;
use crate::base::time::Wall;
use crate::crawl::core::Core;
use crate::fetch::exchange::Exchange;
use crate::fetch::timings::Timings;
use crate::frontier::job::Job;
use crate::io::Io;
use crate::state::record::About;
use crate::wire::proxy::Proxy;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// The exchange of a request that was released, by this proxy.
    pub fn exchange_for(
        &mut self,
        job: &Job,
        lane: LaneId,
        proxy: Option<&Proxy>,
    ) -> Box<Exchange> {
        let mut timings = Timings {
            started: self.now,
            ..Timings::default()
        };
        if let Some(took) = self.network.take_lookup(lane) {
            // The lookup was this attempt's; the wait after it is not part of the lookup.
            timings.started = self.now - took;
            timings.dns = Some(self.now);
        }
        let mut exchange = self.output.take_exchange();
        self.requests
            .write(&mut exchange, job, proxy, timings, self.now)
            .expect("what cannot be put on the wire is not admitted");
        exchange
    }

    /// Keeps the cookies of a reply whose head has just come.
    #[cfg(feature = "cookies")]
    pub fn keep_cookies(&mut self, key: Key, socket: Key) {
        let Some(flight) = self.flights.get(key) else {
            return;
        };
        let exchange = self.network.exchange_on(socket);
        if let Some(head) = exchange.and_then(|exchange| exchange.head()) {
            let wall = self.network.wall_at(self.now);
            self.requests
                .handle_headers(&flight.job, &head.headers, wall, self.now);
            while let Some((domain, cookies)) = self.requests.poll_cookies(self.now) {
                self.journal
                    .record_fact(About::Cookies, &domain, wall, &cookies);
            }
        }
    }

    /// The user named a URL: its origin gets the crawl's credentials, in later runs, too.
    pub fn name_origin(&mut self, url: &CrawlUrl) {
        if self.requests.add_origin(url.origin()) {
            let at = self.network.wall_at(self.now);
            self.journal
                .record_fact(About::SeedOrigin, url.origin(), at, &[1]);
        }
    }

    /// The same, of an origin that an earlier run recorded.
    pub fn restore_seed_origin(&mut self, origin: &str) -> bool {
        self.requests.add_origin(origin);
        true
    }

    /// Records the public hosts that were admitted: in later runs they count, too.
    pub fn record_public_hosts(&mut self, at: Wall) {
        while let Some(host) = self.requests.poll_public_host() {
            self.journal.record_fact(About::PublicHost, &host, at, &[1]);
        }
    }

    /// An earlier run admitted a public host.
    pub fn restore_public_host(&mut self, host: &str) -> bool {
        self.requests.restore_public_host(host);
        true
    }

    /// Adds the cookies of a domain that an earlier run saved `elapsed` ago. Returns whether there are any.
    #[cfg(feature = "cookies")]
    pub fn restore_cookies(&mut self, saved: &[u8], elapsed: Duration) -> bool {
        let wall = self.network.wall_at(self.now);
        self.requests
            .restore_cookies(saved, elapsed, wall, self.now)
    }

    /// They are kept for a run that has cookies.
    #[cfg(not(feature = "cookies"))]
    pub fn restore_cookies(&mut self, _saved: &[u8], _elapsed: Duration) -> bool {
        true
    }
}
