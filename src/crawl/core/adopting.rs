//! Gives a changed configuration to the machines, each of which applies what it has of it.

use std::sync::Arc;

use crate::crawl::config::{Config, DEFAULT_ENTRY};
use crate::crawl::core::Core;
use crate::crawl::core::set_up::{active_limits, sockets_for_requests};
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Runs under this configuration from now on. Settings that need another run have the values that they had.
    pub fn adopt(&mut self, config: Config) {
        let config = Arc::new(config);
        let before = std::mem::replace(&mut self.config, Arc::clone(&config));
        self.network.set_config(Arc::clone(&config), self.now);
        self.requests.set_config(Arc::clone(&config));
        self.control.set_limits(&config);
        self.frontier.change_settings(&config.frontier);
        self.throttle
            .change_settings(&config.throttle, &self.orders.scopes, self.now);
        if config.throttle.concurrent_requests != before.throttle.concurrent_requests {
            self.change_in_flight_max(config.throttle.concurrent_requests);
        }
        if config.exclude_nets != before.exclude_nets {
            self.network.set_excluded(config.excluded_networks());
            // Connections may lead there: they are made anew.
            self.cancel_unsent();
        }
        if config.frontier.exclude_hosts != before.frontier.exclude_hosts {
            self.withdraw_excluded();
        }
        self.end_rests_of(DEFAULT_ENTRY);
        self.update_lanes();
        self.log_settings();
        self.wakeups.turn_again();
    }

    /// Most requests in flight from now on, as far as this machine has sockets. Those that are in flight beyond it run
    /// to their end.
    fn change_in_flight_max(&mut self, wanted: usize) {
        let for_requests = sockets_for_requests(self.network.io().capacity());
        let most = wanted.min(for_requests);
        if wanted > most {
            log::warn!("CONCURRENT_REQUESTS is {wanted}, but only {most} sockets are for requests");
        }
        let present = self.network.set_in_flight_max(most);
        self.throttle.set_in_flight_max(present);
        let kept = self.config.fetch.keepalive_max;
        self.frontier
            .limit_active(active_limits(most, for_requests, kept));
    }
}
