//! Which URLs come in: those that no filter leaves out and that were not seen before.

use std::collections::BTreeMap;

use super::Frontier;
use crate::base::intern::Interner;
use crate::frontier::filter::{self, Filtered};
use crate::throttle::engine::Throttle;
use crate::wire::url::CrawlUrl;

impl Frontier {
    /// Whether `url` may come in, at `depth` links from its seed; it counts as seen from now on.
    ///
    /// `seed`: its host, or domain, is one that `--follow` may lead to from now on.
    pub fn check(
        &mut self,
        url: &CrawlUrl,
        depth: u32,
        seed: bool,
        throttle: &mut Throttle,
    ) -> Result<(), Filtered> {
        let verdict = self.verdict(url, depth, seed, throttle.names_mut());
        if let Err(filtered) = verdict {
            if filtered == Filtered::FrontierFull && !self.filtered.contains_key(&filtered) {
                log::warn!(
                    "{} requests are queued (FRONTIER_MAX): links are dropped while there are so many, \
                     {url} is the first; stats.json counts them as frontier_full",
                    self.queued
                );
            }
            self.count_filtered(filtered, 1);
        }
        verdict
    }

    /// The same of a sitemap, which stands so deep in others and which a host may have only so many of.
    pub fn check_sitemap(
        &mut self,
        url: &CrawlUrl,
        depth: u32,
        nesting: u32,
        seed: bool,
        throttle: &mut Throttle,
    ) -> Result<(), Filtered> {
        let settings = &self.settings;
        let (depth_limit, host_max) =
            (settings.sitemap_depth_limit, settings.sitemaps_per_host_max);
        if depth_limit > 0 && nesting > depth_limit {
            self.count_filtered(Filtered::SitemapDepth, 1);
            return Err(Filtered::SitemapDepth);
        }
        let host = self.hosts.find(url.host_str(), throttle.names_mut());
        let count = host.and_then(|host| self.sitemaps.get(&host)).copied();
        if host_max > 0 && count.unwrap_or(0) >= host_max {
            self.count_filtered(Filtered::HostSitemaps, 1);
            return Err(Filtered::HostSitemaps);
        }
        self.check(url, depth, seed, throttle)?;
        let host = self.hosts.host(url.host_str(), throttle.names_mut());
        *self.sitemaps.entry(host).or_default() += 1;
        Ok(())
    }

    /// Lets a URL in that no filter may leave out. It counts as seen, and as a seed's where it is one.
    pub fn mark_seen(&mut self, url: &CrawlUrl, seed: bool, throttle: &mut Throttle) {
        self.seen.insert(url);
        if seed {
            self.add_seed(url, throttle.names_mut());
        }
    }

    pub(super) fn verdict(
        &mut self,
        url: &CrawlUrl,
        depth: u32,
        seed: bool,
        names: &mut Interner,
    ) -> Result<(), Filtered> {
        filter::check(&self.settings, url, depth)?;
        if !seed {
            let host = self.hosts.find(url.host_str(), names);
            let seed_host = host.is_some_and(|host| self.hosts.get(host).is_seed);
            if !self.site.contains(self.settings.follow, url, seed_host) {
                return Err(Filtered::Offsite);
            }
            if self.queued >= self.settings.queued_max {
                // What was seen before is not lost by it.
                return Err(match self.seen.contains(url) {
                    true => Filtered::Duplicate,
                    false => Filtered::FrontierFull,
                });
            }
            let spent = self.settings.pages_per_host_max;
            if spent > 0 && host.is_some_and(|host| self.hosts.given(host).pages >= spent) {
                return Err(Filtered::HostPages);
            }
        }
        if !self.seen.insert(url) {
            return Err(Filtered::Duplicate);
        }
        if seed {
            self.add_seed(url, names);
        }
        Ok(())
    }

    pub(super) fn add_seed(&mut self, url: &CrawlUrl, names: &mut Interner) {
        let host = self.hosts.host(url.host_str(), names);
        self.hosts.get_mut(host).is_seed = true;
        self.site.add(self.settings.follow, url);
    }

    /// Counts links that were left out for a reason.
    pub fn count_filtered(&mut self, reason: Filtered, count: u64) {
        if count > 0 {
            *self.filtered.entry(reason).or_default() += count;
        }
    }

    /// How often each filter said no.
    pub fn filtered(&self) -> &BTreeMap<Filtered, u64> {
        &self.filtered
    }

    /// URLs admitted so far, by fingerprint.
    pub fn seen_len(&self) -> usize {
        self.seen.len()
    }
}
