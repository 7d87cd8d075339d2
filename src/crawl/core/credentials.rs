//! Warns where a request goes without the credentials.

use crate::crawl::core::Core;
use crate::frontier::job::Job;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Warns once where a job's request goes without the user's credentials.
    pub fn warn_of_credentials(&mut self, job: &Job) {
        if let Some(warning) = self.credentials.warning(job) {
            log::warn!("{warning}");
        }
    }
}
