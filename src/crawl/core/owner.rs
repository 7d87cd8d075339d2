//! Methods that the owner of a crawl calls between turns.

use std::sync::Arc;

use crate::base::time::Instant;
use crate::crawl::config::{Config, ConfigError};
use crate::crawl::control::feed::SourceError;
use crate::crawl::control::found::Found;
use crate::crawl::control::handle::{Handle, Stopper};
use crate::crawl::control::reload::ReloadSource;
use crate::crawl::core::Core;
use crate::crawl::finish::FinishReason;
use crate::crawl::output::Output;
use crate::crawl::work::admission::AdmitError;
use crate::crawl::work::offers::OfferOrigin;
use crate::crawl::workload::Workload;
use crate::frontier::request::Request;
use crate::io::Io;
use crate::sink::page::Page;
use crate::throttle::settings::ScopePatch;
use crate::throttle::signal::Feedback;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// Why it is over, once it is.
    pub fn over(&self) -> Option<FinishReason> {
        let phase = self.control.phase();
        phase.finish_reason().filter(|_| phase.is_over())
    }

    /// Another thread than the builder's will take the turns.
    pub fn leave_turns_to_others(&self) {
        self.control.hand_over();
    }

    /// Offers a request; gives the number of its first attempt.
    ///
    /// # Errors
    /// The crawl is over, or it could never be sent.
    pub fn submit(&mut self, request: &Request) -> Result<u64, AdmitError> {
        if self.over().is_some() {
            return Err(AdmitError::Over);
        }
        self.wake_host();
        // The last turn may be long ago.
        self.throttle.set_clock(self.network.clock());
        let job = self.numbered_job_of(request)?;
        let id = job.id;
        self.admit(job, OfferOrigin::Submitter);
        Ok(id)
    }

    /// Replaces the settings of a scope from now on.
    ///
    /// # Errors
    /// No name of a scope, or a value out of range.
    pub fn set_scope(&mut self, name: &str, patch: ScopePatch) -> Result<(), ConfigError> {
        let name = self.config.check_scope(name, &patch)?;
        self.wake_host();
        self.change_scope(&name, patch, self.network.clock())
    }

    /// Sets the source of new configurations.
    pub fn set_reload_source(&mut self, source: ReloadSource) {
        self.control.set_reload_source(source);
    }

    /// Applies knowledge of a scope from another source than its answers.
    pub fn feedback(&mut self, feedback: &Feedback) {
        self.wake_host();
        self.throttle.feedback(feedback, self.network.clock());
    }

    /// A control handle for any thread.
    pub fn handle(&self) -> Handle {
        if !self.control.has_handles() {
            self.answer_handles();
        }
        self.control.handle()
    }

    /// A turn has panicked, and there will be no other: nothing more is accepted.
    pub fn close_after_panic(&mut self) {
        self.control.close_inbox();
    }

    /// Replaces the most requests that handles may submit beyond what is being fetched.
    pub fn set_ahead(&mut self, requests: usize) {
        self.control.set_ahead_max(requests);
    }

    /// A stop handle for any thread.
    pub fn stopper(&self) -> Stopper {
        self.control.stopper()
    }

    /// Whether it was asked to stop.
    pub fn is_stopping(&self) -> bool {
        self.control.is_stopping()
    }

    /// The next result, where the owner takes them one by one.
    pub fn take_result(&mut self) -> Option<Page> {
        let page = self.output.take_result();
        if page.is_some() {
            self.on_result_taken();
        }
        page
    }

    /// The owner does not lose a result any more.
    pub fn acknowledge(&mut self, id: u64) {
        let waited = self.output.is_unacknowledged();
        self.output.acknowledge(id);
        if waited && !self.output.is_unacknowledged() {
            self.wake_host();
        }
    }

    /// Whether all results were taken, and only acknowledgements are missing.
    pub fn waits_for_owner(&self) -> bool {
        self.control.phase().is_flushing() && self.output.is_unacknowledged()
    }

    /// The output machine.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Links from outside of the crawl's thread.
    pub fn found(&self) -> &Arc<Found> {
        self.control.found()
    }

    /// Why the source has no more requests, if it failed.
    pub fn source_error(&self) -> Option<&SourceError> {
        self.control.source_error()
    }

    /// The back end.
    pub fn io(&self) -> &I {
        self.network.io()
    }

    /// The same, to be changed by a test.
    pub fn io_mut(&mut self) -> &mut I {
        self.network.io_mut()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time of the last turn.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Requests that may be in flight, as far as this machine has room for them.
    pub fn in_flight_max(&self) -> usize {
        self.network.in_flight_max()
    }

    /// Replaces the workload by a probe's, whose requests are due by the clock.
    pub fn set_workload(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// The workload of the loop.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The same, mutable.
    pub fn workload_mut(&mut self) -> &mut Workload {
        &mut self.workload
    }

    /// The origin of a URL gets all header fields, credentials included.
    pub fn trust_origin_of(&mut self, url: &CrawlUrl) {
        self.name_origin(url);
    }
}
