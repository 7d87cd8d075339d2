//! Admission in two phases: a request is offered to the frontier, whose answer may come later.

use crate::crawl::core::Core;
use crate::crawl::core::commits::replaced_by;
use crate::crawl::core::url_log::URL_LOG;
use crate::crawl::work::offers::{OfferOrigin, Offered};
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::filter::Filtered;
use crate::frontier::job::Job;
use crate::frontier::offers::{Admission, LateAnswer, Offer, OfferId};
use crate::io::Io;

impl<I: Io> Core<I> {
    /// Offers a request to the frontier.
    pub fn offer(&mut self, job: &Job) -> Admission {
        if job.flags.dont_filter {
            self.frontier.mark_seen(&job.url, job.seed);
            return Admission::Admitted;
        }
        let offer = Offer {
            url: &job.url,
            kind: job.kind,
            depth: job.depth,
            priority: job.priority,
            nesting: job.nesting(),
            seed: job.seed,
        };
        self.frontier.offer(&offer, self.now)
    }

    /// Applies the answer to an offer.
    pub fn on_admission(&mut self, admission: Admission, job: Job, origin: OfferOrigin) {
        match admission {
            Admission::Admitted => self.on_admitted(job, origin),
            Admission::Duplicate => self.on_not_admitted(job, origin, Filtered::Duplicate),
            Admission::Filtered(rejection) => {
                self.leave_out(&rejection, &job);
                self.on_not_admitted(job, origin, rejection.filter);
            }
            Admission::Later(id) => self.wait_for_answer(id, job, origin),
        }
    }

    fn on_admitted(&mut self, mut job: Job, origin: OfferOrigin) {
        if job.id == 0 {
            job.id = self.frontier.number();
        }
        log::debug!(
            target: URL_LOG,
            "admitted {}: {} {} (depth {}, from {})",
            job.id,
            job.method(),
            job.url,
            job.depth,
            job.via.as_deref().unwrap_or("outside")
        );
        match origin {
            OfferOrigin::List | OfferOrigin::Submitter | OfferOrigin::Link => {
                self.queue_admitted(job);
            }
            OfferOrigin::Redirect(None) => {
                self.record_admitted(&job, origin);
                self.release_later(job);
            }
            OfferOrigin::Redirect(Some(at)) => {
                self.record_admitted(&job, origin);
                if let Some(early) = self.work.delay(job, at) {
                    self.release_later(early);
                }
            }
        }
    }

    fn on_not_admitted(&mut self, job: Job, origin: OfferOrigin, filtered: Filtered) {
        match origin {
            OfferOrigin::Submitter => self.work.end(job, Vec::new(), not_admitted(filtered)),
            OfferOrigin::List | OfferOrigin::Link | OfferOrigin::Redirect(_) => {}
        }
    }

    fn wait_for_answer(&mut self, id: OfferId, mut job: Job, origin: OfferOrigin) {
        // A seed of a list gets its number when it is admitted; whatever a page leads to can be
        // cancelled from now on.
        if job.id == 0 && (origin != OfferOrigin::List || self.journal.is_on()) {
            job.id = self.frontier.number();
        }
        self.journal.record_offered(&job, replaced_by(&job, origin));
        self.work.wait_for_answer(id, job, origin);
    }

    /// Takes an answer that is due.
    pub fn take_due_answer(&mut self) {
        if let Some(answer) = self.frontier.poll_answer(self.now) {
            self.on_answer(&answer);
        }
    }

    fn on_answer(&mut self, answer: &LateAnswer) {
        // The crawl is not woken for what had no room until now.
        self.wakeups.turn_again_if(self.work.is_full());
        let Some(Offered { mut job, origin }) = self.work.handle_answer(answer.id) else {
            // It was cancelled, or the crawl ended.
            return;
        };
        job.depth = answer.depth;
        job.priority = answer.priority;
        job.seed |= answer.seed;
        if matches!(origin, OfferOrigin::Redirect(_)) {
            self.conclude_redirect(answer.id, answer.is_admitted);
        }
        let admission = match answer.is_admitted {
            true => Admission::Admitted,
            false => {
                self.journal.record_dropped(&job);
                Admission::Duplicate
            }
        };
        self.on_admission(admission, *job, origin);
    }

    /// The page of a redirect has its answer: it is final if its target is not followed.
    pub fn conclude_redirect(&mut self, id: OfferId, is_followed: bool) {
        if self.pages.resume(id, |page| page.is_final = !is_followed) {
            self.wakeups.turn_again();
        }
    }

    /// Ends the wait of all offers: the crawl ends before their answers come. They are kept for
    /// `pending.jsonl`, so the page of a redirect is not final.
    pub fn keep_offers(&mut self) {
        for (id, Offered { mut job, origin }) in self.work.take_offers() {
            if job.id == 0 {
                job.id = self.frontier.number();
            }
            if matches!(origin, OfferOrigin::Redirect(_)) {
                if self.journal.is_on()
                    && let Some(redirecting) = self.pages.waiting_for(id).cloned()
                {
                    // The next run may find that the target was seen: only then is the redirect final.
                    self.journal.record_dropped(&job);
                    self.continue_later(&redirecting);
                    self.conclude_redirect(id, true);
                    continue;
                }
                self.conclude_redirect(id, true);
            }
            self.work.keep_cancelled(*job);
        }
    }

    /// Delays half of all answers, by chance: for tests.
    pub fn delay_admission(&mut self, seed: u64) {
        self.frontier.delay_admission(seed);
    }
}

/// Failure in the page of a request that was not admitted.
fn not_admitted(filtered: Filtered) -> Failure {
    let detail = match filtered {
        Filtered::Duplicate => "admitted before",
        _ => "excluded by a filter",
    };
    Failure::new(FailureKind::Filtered, filtered.as_str(), detail)
}
