//! Public hosts beyond those that may be asked without a contact: their URLs end unsent.

use std::net::IpAddr;

use crate::crawl::config::PUBLIC_HOSTS_MAX;
use crate::crawl::core::Core;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::job::Job;
use crate::io::Io;
use crate::wire::url::CrawlUrl;

impl<I: Io> Core<I> {
    /// The job, if its host may be asked. Otherwise it ends as `filtered.no_contact`.
    pub fn with_contact(&mut self, job: Job) -> Option<Job> {
        if self.may_ask(&job.url) {
            return Some(job);
        }
        let failure = no_contact(job.url.host_str());
        self.end_later(job, Vec::new(), failure);
        None
    }

    /// Whether a URL's host may be asked: it is not public, a contact is named, or it is among the
    /// first public hosts. Warns of the first that is not.
    pub fn may_ask(&mut self, url: &CrawlUrl) -> bool {
        if self.public_hosts.admits(url) {
            return true;
        }
        self.warn_of_contact(url.host_str());
        false
    }

    /// Whether a host with this address may be asked; if not, how a request to it ends.
    pub fn may_ask_at(&mut self, host: &str, address: IpAddr) -> Result<(), Failure> {
        if self.public_hosts.admits_at(host, address) {
            return Ok(());
        }
        self.warn_of_contact(host);
        Err(no_contact(host))
    }

    fn warn_of_contact(&mut self, host: &str) {
        if self.public_hosts.is_first_refusal() {
            log::warn!(
                "the crawl comes to more than {PUBLIC_HOSTS_MAX} public hosts and names no contact: \
                 {host} and all further ones are left out (filtered.no_contact); --contact with a URL \
                 or mail address that their owners can turn to lets them in"
            );
        }
    }
}

fn no_contact(host: &str) -> Failure {
    Failure::new(
        FailureKind::Filtered,
        "no_contact",
        format!(
            "{host} would be one public host more than the {PUBLIC_HOSTS_MAX} that are asked without a \
             contact; --contact (CONTACT) names one"
        ),
    )
}
