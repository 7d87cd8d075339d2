//! Admits URLs that pass all filters and were not seen before.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Frontier;
use crate::base::keys::{HostKey, OriginKey, UrlKey};
use crate::base::named::NamedValues;
use crate::base::pile::Pile;
use crate::base::time::Instant;
use crate::frontier::domains::DomainStanding;
use crate::frontier::filter::{self, Filtered, Rejection};
use crate::frontier::offers::{Admission, LateAnswer, Offer, Pending};
use crate::frontier::request::PageKind;
use crate::frontier::saved_counts::CountOf;
use crate::frontier::seen::{Seen, SeenAnswer};
use crate::frontier::settings::Follow;
use crate::wire::url::CrawlUrl;

impl Frontier {
    /// Offers a URL. Once admitted it counts as seen.
    ///
    /// An offer that equals one that waits for its answer is a duplicate; that one keeps the least depth
    /// and the highest priority of both, and is a seed if either is.
    pub fn offer(&mut self, offer: &Offer<'_>, now: Instant) -> Admission {
        let admission = match self.filter(offer) {
            Ok(()) => self.look_up(offer, now),
            Err(rejection) => Admission::Filtered(rejection),
        };
        match admission {
            Admission::Filtered(rejection) => {
                self.warn_if_full(rejection.filter, offer.url);
                self.count_filtered(rejection.filter, 1);
            }
            Admission::Duplicate => self.count_filtered(Filtered::Duplicate, 1),
            Admission::Admitted | Admission::Later(_) => {}
        }
        admission
    }

    /// The stable key of a URL's origin.
    pub fn origin_key(&self, url: &CrawlUrl) -> OriginKey {
        self.secret.keys().origin(url.origin())
    }

    /// The seen set.
    pub fn seen_mut(&mut self) -> &mut Seen {
        &mut self.seen
    }

    /// Whether the seen set has no room, and answers no more until keys in memory become a run.
    pub fn is_seen_set_full(&self) -> bool {
        self.seen.is_full()
    }

    /// The stable key of a URL.
    pub fn url_key(&self, url: &CrawlUrl) -> UrlKey {
        self.seen.key(url)
    }

    /// Admits a URL that bypasses the filters. It counts as seen; its host counts as a seed's if `seed`.
    pub fn mark_seen(&mut self, url: &CrawlUrl, seed: bool) {
        self.seen.insert(self.seen.key(url));
        if seed {
            self.add_seed(url);
        }
    }

    /// Adds what an earlier run has seen: the keys of URLs.
    pub fn restore_seen(&mut self, keys: Pile<u64>) {
        self.seen.restore_keys(keys);
    }

    /// The Crawl-delays that an earlier run found, by host, in ns.
    pub fn restore_crawl_delays(&mut self, delays: NamedValues) {
        self.earlier_crawl_delays = delays;
    }

    /// The Crawl-delay of a host that an earlier run found, if robots.txt is obeyed.
    pub fn earlier_crawl_delay(&self, host: &str) -> Option<Duration> {
        match self.settings.robots_obey && !self.earlier_crawl_delays.is_empty() {
            true => {
                let delay = self.earlier_crawl_delays.get(host)?;
                Some(Duration::from_nanos(delay.at))
            }
            false => None,
        }
    }

    /// Adds a seed of an earlier run: the keys of its host and of its registrable domain.
    pub fn restore_seed(&mut self, host: HostKey, domain: HostKey) {
        match self.settings.follow {
            Follow::Host => self.hosts.restore_seed(host),
            Follow::Domain => self.site.restore(domain),
            Follow::None | Follow::All => {}
        }
    }

    /// Applies the filters, which answer at once. A seed's host counts from here on: a link to it may
    /// be offered before the seed is admitted.
    fn filter(&mut self, offer: &Offer<'_>) -> Result<(), Rejection> {
        let url = offer.url;
        if offer.kind == PageKind::Sitemap {
            self.filter_sitemap(offer)?;
        }
        self.check_url(url, offer.depth, offer.seed)?;
        if offer.seed {
            self.add_seed(url);
            return Ok(());
        }
        if !self.has_room() {
            // A URL offered before is a duplicate, not a loss.
            let key = self.seen.key(url);
            return match self.seen.contains(key) || self.offers.holds(key) {
                true => Ok(()),
                false => Err(Filtered::FrontierFull.into()),
            };
        }
        Ok(())
    }

    /// The filters of a URL: those of the settings and of the orders; of a link also what is followed, and the limits
    /// of its host and its domain. `depth`: links from a seed.
    ///
    /// # Errors
    /// The first filter that it does not pass.
    pub fn check_url(&self, url: &CrawlUrl, depth: u32, is_seed: bool) -> Result<(), Rejection> {
        filter::check(&self.settings, url, depth)?;
        if self.excluded.exclude(url) {
            return Err(Filtered::Excluded.into());
        }
        if is_seed {
            return Ok(());
        }
        let (seed_host, pages) = self.hosts.standing(url.host_str());
        if !self.site.contains(self.settings.follow, url, seed_host) {
            return Err(Filtered::Offsite.into());
        }
        let max = self.pages_max_of(url.host_str());
        if max > 0 && pages >= max {
            return Err(Filtered::HostPages.into());
        }
        self.filter_domain(url).map_err(Rejection::from)
    }

    /// What rejects a URL, as a setting or an order is written; `None` if nothing has to be said beyond the filter.
    pub fn rule_of(&self, rejection: &Rejection, url: &CrawlUrl) -> Option<String> {
        rejection.rule(&self.settings, Some(url)).or_else(|| {
            let text = self.excluded.text_for(url)?;
            Some(format!("exclude {text}"))
        })
    }

    /// Checks `PAGES_PER_DOMAIN_MAX` and `BYTES_PER_DOMAIN_MAX`.
    pub(super) fn filter_domain(&self, url: &CrawlUrl) -> Result<(), Filtered> {
        if self.domains.are_counted() {
            match self.domains.standing(self.domains.key_of(url.host_str())) {
                DomainStanding::Pages => return Err(Filtered::DomainPages),
                DomainStanding::Bytes => return Err(Filtered::DomainBytes),
                DomainStanding::Open | DomainStanding::Pending => {}
            }
        }
        Ok(())
    }

    /// Checks `SITEMAP_DEPTH_LIMIT` and `SITEMAPS_PER_HOST_MAX`.
    fn filter_sitemap(&self, offer: &Offer<'_>) -> Result<(), Rejection> {
        let settings = &self.settings;
        let (depth_limit, host_max) =
            (settings.sitemap_depth_limit, settings.sitemaps_per_host_max);
        if depth_limit > 0 && offer.nesting > depth_limit {
            return Err(Filtered::SitemapDepth.into());
        }
        if host_max > 0 && self.hosts.sitemaps(offer.url.host_str()) >= host_max {
            return Err(Filtered::HostSitemaps.into());
        }
        Ok(())
    }

    /// Looks whether a URL that passes the filters was seen before.
    fn look_up(&mut self, offer: &Offer<'_>, now: Instant) -> Admission {
        let key = self.seen.key(offer.url);
        if self.offers.merge(key, offer) {
            return Admission::Duplicate;
        }
        match self.seen.ask(key, now) {
            SeenAnswer::Seen => Admission::Duplicate,
            SeenAnswer::New => {
                self.count_sitemap(offer);
                Admission::Admitted
            }
            SeenAnswer::Later => {
                let pending = Pending {
                    depth: offer.depth,
                    priority: offer.priority,
                    seed: offer.seed,
                    sitemap_of: self.count_sitemap(offer),
                };
                Admission::Later(self.offers.defer(key, pending))
            }
        }
    }

    /// Handles a later answer about a URL: from a seen set on disk, or from the shard that owns it. `None` if
    /// no offer waits for it.
    pub fn handle_answer(&mut self, key: UrlKey, is_new: bool) -> Option<LateAnswer> {
        let (id, pending) = self.offers.take(key)?;
        if !is_new {
            self.count_filtered(Filtered::Duplicate, 1);
            if let Some(host) = pending.sitemap_of {
                self.hosts.uncount_sitemap(host);
            }
        }
        Some(LateAnswer {
            id,
            is_admitted: is_new,
            depth: pending.depth,
            priority: pending.priority,
            seed: pending.seed,
        })
    }

    /// An answer of this process's seen set that is due.
    pub fn poll_answer(&mut self, now: Instant) -> Option<LateAnswer> {
        loop {
            let (key, is_new) = self.seen.poll_answer(now)?;
            if let Some(answer) = self.handle_answer(key, is_new) {
                return Some(answer);
            }
        }
    }

    /// When [`Frontier::poll_answer`] has an answer.
    pub fn next_answer(&self) -> Option<Instant> {
        self.seen.next_answer()
    }

    /// Delays half of all answers by up to 5 s, by chance: for tests.
    pub fn delay_admission(&mut self, seed: u64) {
        self.seen.delay_by_chance(seed);
    }

    /// Counts a sitemap among those of its host, if they are limited.
    fn count_sitemap(&mut self, offer: &Offer<'_>) -> Option<HostKey> {
        let is_limited = self.settings.sitemaps_per_host_max > 0;
        let counts = is_limited && offer.kind == PageKind::Sitemap;
        if counts && self.changed_counts.is_on() {
            let host = offer.url.host_str().into();
            self.changed_counts.add(CountOf::Host(host));
        }
        counts.then(|| self.hosts.count_sitemap(offer.url.host_str()))
    }

    fn warn_if_full(&self, filtered: Filtered, url: &CrawlUrl) {
        if filtered == Filtered::FrontierFull && !self.filtered.contains_key(&filtered) {
            log::warn!(
                "{} requests are queued (FRONTIER_MAX): links are dropped while there are so many, \
                 {url} is the first; stats.json counts them as frontier_full",
                self.queued + self.spilled
            );
        }
    }

    /// Adds the host of a seed.
    pub fn add_seed(&mut self, url: &CrawlUrl) {
        if self.settings.follow == Follow::Host {
            self.hosts.add_seed(url.host_str());
        }
        self.site.add(self.settings.follow, url);
    }

    /// Counts filtered links.
    pub fn count_filtered(&mut self, reason: Filtered, count: u64) {
        if count > 0 {
            *self.filtered.entry(reason).or_default() += count;
        }
    }

    /// Number of links filtered, by filter.
    pub fn filtered(&self) -> &BTreeMap<Filtered, u64> {
        &self.filtered
    }

    /// Number of distinct URLs admitted so far.
    pub fn seen_len(&self) -> usize {
        self.seen.len()
    }
}
