//! Follows a reply: retry, redirect, robots rules, sitemaps, links.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::crawl::core::Core;
use crate::crawl::core::health::HostStanding;
use crate::crawl::core::starting::outcome_unknown;
use crate::crawl::core::url_log::URL_LOG;
use crate::crawl::network::IDLE_CLOSED;
use crate::crawl::pages::finding::Finding;
use crate::crawl::requests::credentials::is_private;
use crate::crawl::work::admission::without_dropped;
use crate::crawl::work::offers::OfferOrigin;
use crate::crawl::work::unsent::{CANCELLED, STOPPED};
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::filter;
use crate::frontier::job::Job;
use crate::frontier::offers::{Admission, OfferId};
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::page::{AskedHold, Page};
use crate::throttle::decision::DecisionSource;
use crate::wire::octets::percent_encoded;
use crate::wire::retry_after;
use crate::wire::url::CrawlUrl;

/// Redirects of a robots.txt that are followed; RFC 9309, section 2.3.1.2 requires at least five.
const ROBOTS_REDIRECTS_MAX: u8 = 5;

/// Attempts are counted in two octets.
const RETRIES_MAX: u32 = 60_000;

/// Whether the attempt was cancelled by a command.
fn is_cancelled(page: &Page) -> bool {
    let failure = page.failure.as_ref();
    failure.is_some_and(|f| f.kind == FailureKind::Cancelled && f.name == CANCELLED)
}

/// Whether the attempt was cancelled because the crawl stops.
pub fn is_stopped(page: &Page) -> bool {
    let failure = page.failure.as_ref();
    failure.is_some_and(|f| f.kind == FailureKind::Cancelled && f.name == STOPPED)
}

/// Remaining work for a finished attempt.
pub enum Followed {
    /// Its body is searched for this.
    Finding(Finding),
    /// It redirects to a URL that is offered: its page is final if that is not admitted.
    Awaits(OfferId),
}

/// Result of following a redirect.
enum Redirected {
    /// Its target is followed.
    Followed,
    /// Its target is not followed.
    NotFollowed,
    /// Its target is offered.
    Awaits(OfferId),
}

impl Followed {
    /// Nothing is left to do.
    pub fn nothing() -> Self {
        Followed::Finding(Finding::default())
    }
}

impl<I: Io> Core<I> {
    /// Does what follows from a finished attempt, and notes in its page what that is.
    pub fn follow(&mut self, job: &Job, page: &mut Page) -> Followed {
        page.is_final = false;
        if is_cancelled(page) {
            // What it leads to was not meant to be fetched.
            page.is_final = true;
            return Followed::nothing();
        }
        if is_stopped(page) {
            if self.has_unknown_outcome(job) {
                page.failure = Some(outcome_unknown());
                page.is_final = true;
                return Followed::nothing();
            }
            if self.continues_later(job) {
                return Followed::nothing();
            }
            if job.kind == PageKind::Robots {
                // What waits for it is still to be fetched; the run that resumes the crawl asks again.
                page.is_final = true;
                return Followed::nothing();
            }
        }
        let standing = self.host_standing(job, page);
        if standing == HostStanding::Awaited {
            self.requeue(job, page, job.attempt);
            return Followed::nothing();
        }
        if standing != HostStanding::GivenUp && self.is_retried(job, page) {
            let lane = self.requeue(job, page, job.attempt.saturating_add(1));
            if let (HostStanding::Spared, Some(lane)) = (standing, lane) {
                let hold = self.frontier.settings().hosts.hold_min;
                self.pause_lane(lane, self.now + hold);
            }
            return Followed::nothing();
        }
        if !self.workload.rules().follows_replies {
            page.is_final = true;
            return Followed::nothing();
        }
        if let Some(location) = location(page) {
            match self.redirect(job, page, &location) {
                Ok(Redirected::Followed) => return Followed::nothing(),
                Ok(Redirected::Awaits(target)) => return Followed::Awaits(target),
                Ok(Redirected::NotFollowed) => {}
                Err(failure) => page.failure = Some(failure),
            }
        }
        page.is_final = true;
        Followed::Finding(match job.kind {
            PageKind::Robots => self.read_robots(job, page),
            PageKind::Sitemap => self.read_sitemap(job, page),
            PageKind::Page => self.read_page(job, page),
        })
    }

    /// Whether the attempt is made again: decided by the `Classify`, otherwise by `RETRY_HTTP_CODES` and
    /// `RETRY_EXCEPTIONS`, `RETRY_TIMES` at most. A status that the `Classify` gave the body counts before that
    /// of the head. Only the `Classify` can repeat what is not idempotent.
    fn is_retried(&self, job: &Job, page: &Page) -> bool {
        let failure = page.failure.as_ref();
        if failure.is_some_and(|failure| failure.name == IDLE_CLOSED) {
            return true;
        }
        if failure.is_some_and(|failure| failure.kind == FailureKind::Cancelled) {
            return false;
        }
        if let Some(again) = self.classifier.retries(job, page, self.now) {
            return again && u32::from(job.attempt) <= RETRIES_MAX;
        }
        if !job.is_idempotent() {
            // The server may have done it.
            return false;
        }
        let settings = self.frontier.settings();
        if u32::from(job.attempt) > settings.retry_times.min(RETRIES_MAX) {
            return false;
        }
        if let Some(failure) = failure {
            let mut passing = settings.retry_exceptions.iter();
            let is_passing = passing.any(|name| failure.is_named(name));
            if is_passing || page.judged.is_none() {
                return is_passing;
            }
        }
        page.judged_status()
            .is_some_and(|status| settings.retry_codes.contains(&status))
    }

    /// Queues the request again as this attempt. It is throttled like any other. Returns its lane, if that is known
    /// at once.
    fn requeue(&mut self, job: &Job, page: &Page, attempt: u16) -> Option<LaneId> {
        let died_idle = page.failure.as_ref().is_some_and(|f| f.name == IDLE_CLOSED);
        let mut again = Job {
            id: self.frontier.number(),
            parent: job.id,
            attempt,
            // No further attempt uses a kept connection.
            fresh: job.fresh || died_idle,
            ..job.clone()
        };
        again.extra_mut().set_root(job.root());
        log::debug!(
            target: URL_LOG,
            "retried {} as {} (attempt {attempt}): {} {}",
            job.id,
            again.id,
            job.method(),
            job.url
        );
        self.record_successor(&again, job);
        self.release_in_lane(again)
    }

    /// Offers a redirect's target, or follows it at once where no answer is needed.
    fn redirect(
        &mut self,
        job: &Job,
        page: &mut Page,
        location: &str,
    ) -> Result<Redirected, Failure> {
        let fail = |code, detail: String| Failure::new(FailureKind::Redirect, code, detail);
        let target = job
            .url
            .join(location)
            .map_err(|error| fail("invalid", format!("Location {location:?}: {error}")))?;
        let target = match job.kind {
            PageKind::Page => without_dropped(target, &self.config),
            PageKind::Robots | PageKind::Sitemap => target,
        };
        page.redirect = Some(target.as_str().to_owned());
        let settings = self.frontier.settings();
        let redirects_max = match job.kind {
            PageKind::Robots => u32::from(ROBOTS_REDIRECTS_MAX),
            PageKind::Page | PageKind::Sitemap => settings.redirects_max,
        };
        // Redirects are counted in one octet.
        let redirects_max = redirects_max.min(u8::MAX.into());
        if u32::from(job.redirects) >= redirects_max {
            return Err(fail(
                "limit",
                format!("more than {redirects_max} redirects"),
            ));
        }
        let here = self.frontier.url_key(&job.url);
        let there = self.frontier.url_key(&target);
        let extra = job.extra.as_ref();
        if there == here || extra.is_some_and(|extra| extra.was_redirected_from(there)) {
            return Err(fail(
                "loop",
                format!("{} was requested earlier in this chain", target.as_str()),
            ));
        }
        let mut next = Job {
            id: 0,
            parent: job.id,
            via: Some(Arc::from(page.url.as_str())),
            url: target,
            redirects: job.redirects + 1,
            attempt: 1,
            fresh: false,
            ..job.clone()
        };
        let admission = match job.kind {
            PageKind::Page => self.offer(&next),
            PageKind::Robots | PageKind::Sitemap if self.may_follow_for_own_use(&next.url) => {
                Admission::Admitted
            }
            PageKind::Robots | PageKind::Sitemap => return Ok(Redirected::NotFollowed),
        };
        match admission {
            Admission::Duplicate => return Ok(Redirected::NotFollowed),
            Admission::Filtered(rejection) => {
                self.leave_out_link(&rejection, &next.url, page);
                return Ok(Redirected::NotFollowed);
            }
            Admission::Admitted | Admission::Later(_) => {}
        }
        let elsewhere = next.url.origin() != job.url.origin();
        let becomes_get = match page.status {
            Some(303) => job.method() != "HEAD",
            Some(301 | 302) => job.method() == "POST",
            _ => false,
        };
        let private = [&*self.config.fetch.private_headers, &*job.private_headers()].concat();
        let extra = next.extra_mut();
        extra.set_root(job.root());
        extra.add_redirected_from(here);
        // The map is called for every URL.
        extra.forget_mapped();
        if becomes_get {
            extra.become_get();
            // They describe a body that is not sent (RFC 9110, section 15.4).
            extra.retain_fields(|name| {
                !name
                    .get(..8)
                    .is_some_and(|start| start.eq_ignore_ascii_case("content-"))
            });
        }
        if elsewhere {
            // Credentials and `Host` are for one origin.
            extra.leave_origin(|name| is_private(name, &private));
        }
        let at = self.hold_redirect(page).map(|wait| self.now + wait);
        self.on_admission(admission, next, OfferOrigin::Redirect(at));
        Ok(match admission {
            Admission::Later(id) => Redirected::Awaits(id),
            _ => Redirected::Followed,
        })
    }

    /// Whether the redirect of a robots.txt or of a sitemap to this URL is followed. The seen set is not
    /// asked: many origins may redirect to one URL.
    fn may_follow_for_own_use(&mut self, target: &CrawlUrl) -> bool {
        let settings = self.frontier.settings();
        target.as_str().len() <= settings.url_length_limit
            && !filter::excludes(settings, target)
            && !self.frontier.excluded().exclude_host(target.host_str())
            && self.requests.check_public(target).is_ok()
    }

    /// The Retry-After of a redirect (RFC 9110, section 10.2.3), at most `REDIRECT_MAX_DELAY`. It
    /// holds for this redirect alone, and is noted in its page.
    fn hold_redirect(&self, page: &mut Page) -> Option<Duration> {
        let wall = self.network.wall_at(self.now);
        let asked = retry_after::read(&page.headers, wall)?;
        let most = self.config.throttle.redirect_max_delay;
        if asked > most {
            log::warn!(
                "{}: the redirect's Retry-After of {asked:.0?} is reduced to {most:.0?} \
                 (REDIRECT_MAX_DELAY)",
                page.url
            );
        }
        let wait = Some(asked.min(most)).filter(|wait| !wait.is_zero())?;
        let new = || AskedHold::new(self.now, asked, DecisionSource::RetryAfter);
        page.hold.get_or_insert_with(|| Box::new(new())).redirect = Some(wait);
        Some(wait)
    }
}

/// The Location of a redirect; `None` if the reply is none.
fn location(page: &Page) -> Option<String> {
    let is_redirect = |status| matches!(status, Some(301 | 302 | 303 | 307 | 308));
    if page.failure.is_some() || !is_redirect(page.status) || !is_redirect(page.judged_status()) {
        return None;
    }
    let value = page.headers.get("location")?;
    Some(percent_encoded(value).into_owned())
}

#[cfg(test)]
mod tests;
