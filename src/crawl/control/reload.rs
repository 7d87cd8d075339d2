//! Requests to read the configuration anew, and their answers from any thread.

use std::fmt;

use crate::crawl::config::Config;
use crate::crawl::control::handle::Stopper;

/// Gives a crawl the configuration that it asked for: see
/// [`Crawler::reload_from`](crate::Crawler::reload_from). Dropping it is an error for its caller.
pub struct ReloadAnswer {
    /// Taken when it is given.
    stopper: Option<Stopper>,
    number: u64,
}

/// Reads the configuration; called on the crawl's thread, which it must not block.
pub type ReloadSource = Box<dyn Fn(ReloadAnswer) + Send>;

/// The source of configurations of a crawl, and how often it was asked.
#[derive(Default)]
pub struct Reloader {
    source: Option<ReloadSource>,
    last: u64,
}

impl ReloadAnswer {
    /// Gives the configuration, or a line about why there is none. The crawl is woken.
    pub fn give(mut self, config: Result<Config, String>) {
        self.send(config.map(Box::new));
    }

    fn send(&mut self, config: Result<Box<Config>, String>) {
        if let Some(stopper) = self.stopper.take() {
            stopper.shared().reloads.answer(self.number, config);
            stopper.waker().wake();
        }
    }
}

impl Drop for ReloadAnswer {
    fn drop(&mut self) {
        self.send(Err("the configuration was not read".to_owned()));
    }
}

impl fmt::Debug for ReloadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReloadAnswer({})", self.number)
    }
}

impl Reloader {
    /// Sets the source.
    pub fn set_source(&mut self, source: ReloadSource) {
        self.source = Some(source);
    }

    /// Asks the source for the configuration; returns the number of the request, `None` without a source.
    pub fn ask(&mut self, stopper: Stopper) -> Option<u64> {
        let source = self.source.as_ref()?;
        self.last += 1;
        source(ReloadAnswer {
            stopper: Some(stopper),
            number: self.last,
        });
        Some(self.last)
    }
}
