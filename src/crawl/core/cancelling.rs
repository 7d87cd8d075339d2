//! Cancels attempts: when the crawl stops or pauses, what has not departed goes back to the frontier and
//! what is on its way ends as `cancelled`; when handles cancel requests, both end so.

use std::collections::BTreeSet;

use crate::base::bound::Bound;
use crate::base::ids::ScopeId;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::{Flight, Stage};
use crate::crawl::network::origins::Origin;
use crate::crawl::work::unsent::{STOPPED, cancelled};
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::request::PageKind;
use crate::io::{Close, Io};

impl<I: Io> Core<I> {
    /// Returns every request that has not departed to its lane: nothing more is sent.
    pub fn cancel_unsent(&mut self) {
        for key in self
            .flights
            .keys_where(|stage| !matches!(stage, Stage::Exchanging { .. }))
        {
            let flight = self.withdraw(key);
            self.return_to_lane(flight.lane, flight.job);
        }
        let idle = self.network.idle_len();
        let mut steps = Bound::new("close idle connections", idle);
        while let Some(origin) = self.network.evict_idle() {
            self.release_origin(origin);
            if !steps.step() {
                break;
            }
        }
    }

    /// Returns the requests to what is excluded that have not departed to their lanes, where they end. Idle
    /// connections to excluded networks are closed. Those that are being made may lead to one, so they are made anew.
    pub fn withdraw_excluded(&mut self) {
        for origin in self.network.close_excluded() {
            self.release_origin(origin);
        }
        for key in self
            .flights
            .keys_where(|stage| !matches!(stage, Stage::Exchanging { .. }))
        {
            let Some(flight) = self.flights.get(key) else {
                continue;
            };
            let is_direct = matches!(flight.origin, Origin::Direct(_));
            let leads_there = match flight.stage {
                Stage::Connecting { .. } => self.network.excludes_networks(),
                Stage::Ready { socket, .. } => self.network.is_excluded(socket),
                Stage::Exchanging { .. } | Stage::Moving => false,
            };
            let url = &flight.job.url;
            let is_excluded = self.frontier.excluded().exclude(url)
                || self.frontier.is_host_excluded_since(url.host_str());
            if is_excluded || is_direct && leads_there {
                let flight = self.withdraw(key);
                self.return_to_lane(flight.lane, flight.job);
            }
        }
    }

    /// Ends the attempts in flight. They are still to be fetched, so they are kept for `pending.jsonl`,
    /// unless the submitter is notified of the end.
    pub fn cancel_all(&mut self) {
        self.finish_removals();
        self.requeue_suspects();
        self.cancel_unsent();
        self.keep_offers();
        self.put_all_unsent();
        for key in self.flights.keys_where(|_| true) {
            let Some(flight) = self.flights.get(key) else {
                continue;
            };
            let Stage::Exchanging { socket } = flight.stage else {
                continue;
            };
            let is_pending = flight.job.kind != PageKind::Robots && !flight.job.awaited;
            if is_pending && !self.journal.is_on() {
                self.work.keep_cancelled(flight.job.clone());
            }
            let failure = Failure::new(
                FailureKind::Cancelled,
                STOPPED,
                "the crawl was stopped before the reply was complete",
            );
            if let Some(event) = self.network.abort(socket, failure, self.now) {
                self.on_connection_event(socket, event);
            }
        }
    }

    /// Ends the attempts of the requests of these numbers, and all under these scopes.
    pub fn cancel_flights(&mut self, numbers: &BTreeSet<u64>, scopes: &[ScopeId]) {
        for key in self.flights.keys_where(|_| true) {
            let Some(flight) = self.flights.get(key) else {
                continue;
            };
            let is_under = || {
                let mut held = self.throttle.ticket_scopes(flight.ticket);
                held.any(|scope| scopes.contains(&scope))
            };
            let is_named = numbers.contains(&flight.job.root());
            if flight.job.kind != PageKind::Robots && (is_named || is_under()) {
                self.cancel_attempt(key, numbers);
            }
        }
    }

    /// Ends one attempt that was released. `numbers`: of the requests that are cancelled.
    fn cancel_attempt(&mut self, key: Key, numbers: &BTreeSet<u64>) {
        let flight = self.flights.get(key).expect("the caller found it");
        if let Stage::Exchanging { socket } = flight.stage {
            if let Some(event) = self.network.abort(socket, cancelled(), self.now) {
                self.on_connection_event(socket, event);
            }
            return;
        }
        let held = self.throttle.ticket_scopes(flight.ticket);
        let names = held.map(|scope| self.throttle.scope_name(scope).to_owned());
        let names = names.collect();
        let flight = self.withdraw(key);
        self.end_attempt(flight.lane, &flight.job, false);
        self.end_by_order(flight.job, names, numbers);
    }

    /// Removes an attempt that has not departed; closes its connections and returns its ticket.
    pub fn withdraw(&mut self, key: Key) -> Flight {
        let flight = self.flights.remove(key).expect("the caller found it");
        match &flight.stage {
            Stage::Connecting { .. } => self.abandon(key),
            Stage::Ready { socket, .. } => self.close_socket(*socket, Close::Finish),
            Stage::Exchanging { .. } | Stage::Moving => {}
        }
        self.release_origin(flight.origin);
        self.throttle.cancel(flight.ticket, self.now);
        flight
    }
}
