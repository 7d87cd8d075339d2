//! Takes in links that were found outside of the crawl's thread.

use crate::crawl::control::found::News;
use crate::crawl::core::{Core, SUBMITTED_PER_TURN};
use crate::crawl::work::offers::OfferOrigin;
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::offers::Admission;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Takes in the links that were found outside. A crawl that sends nothing more still does: they
    /// are among what was left to be fetched.
    pub fn take_found(&mut self) {
        for _ in 0..SUBMITTED_PER_TURN {
            if self.mapping.is_full() || self.offers.is_full() {
                return;
            }
            let Some(news) = self.found.take() else {
                return;
            };
            match news {
                News::Link(job) => {
                    let admission = self.offer(&job);
                    self.on_admission(admission, *job, OfferOrigin::Link);
                }
                News::Cut(count) => self.frontier.count_filtered(Filtered::LinksPerPage, count),
                News::Closed(root) => {
                    if let Some(feed) = &mut self.feed
                        && !self.found.is_open(root)
                    {
                        feed.close(root);
                    }
                }
            }
        }
        self.unfinished |= !self.found.is_empty();
    }

    /// The links that came too late for a crawl that is over, as far as no filter leaves them out.
    /// Those whose answers come later wait among the offers.
    pub fn drain_found(&mut self) -> Vec<Job> {
        let mut admitted = Vec::new();
        for job in self.found.drain() {
            match self.offer(&job) {
                Admission::Admitted => admitted.push(job),
                later => self.on_admission(later, job, OfferOrigin::Link),
            }
        }
        admitted
    }
}
