//! Takes requests from the source while there is room.

use crate::base::time::Instant;
use crate::crawl::control::phase::Phase;
use crate::crawl::core::{Core, SUBMITTED_PER_TURN};
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::request::Request;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Takes in what the source has to give, as far as there is room.
    pub fn draw(&mut self) {
        for _ in 0..SUBMITTED_PER_TURN {
            if !self.takes_more() {
                return;
            }
            let now = self.now;
            let Some(request) = self.feed.as_mut().and_then(|feed| feed.draw(now)) else {
                return;
            };
            self.admit_given(&request);
            self.count_seed_memory();
        }
    }

    /// When the source is to be asked.
    pub fn draws_at(&self) -> Option<Instant> {
        let feed = self.feed.as_ref()?;
        if self.phase != Phase::Running || !self.takes_more() {
            return None;
        }
        feed.asks_at(self.now)
    }

    /// A request of the source's comes in. Whatever becomes of it, the source hears.
    fn admit_given(&mut self, request: &Request) {
        let job = self.job_of(request);
        let feed = self.feed.as_mut().expect("it gave something");
        match job {
            Ok(mut job) => {
                job.id = self.frontier.number();
                job.awaited = true;
                feed.give(job.id, request);
                self.admit(job, OfferOrigin::Submitter);
            }
            Err(why) => feed.refuse(request, &why),
        }
    }
}
