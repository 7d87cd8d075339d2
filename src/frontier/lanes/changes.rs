//! Settings that change while the crawl runs.

use std::collections::BTreeSet;

use hashbrown::HashSet;

use super::Frontier;
use crate::base::secret::Secret;
use crate::frontier::settings::FrontierSettings;

/// Hosts that the configuration excludes since the run began: requests to them may be queued.
#[derive(Debug)]
pub(super) struct ExcludedSince {
    hosts: HashSet<String, Secret>,
    /// Without `*.`: they themselves, and all below them.
    domains: HashSet<String, Secret>,
}

impl ExcludedSince {
    pub fn new(secret: &Secret) -> Self {
        ExcludedSince {
            hosts: HashSet::with_hasher(*secret),
            domains: HashSet::with_hasher(*secret),
        }
    }

    /// Whether a host is among them.
    pub fn contains(&self, host: &str) -> bool {
        if self.hosts.contains(host) {
            return true;
        }
        !self.domains.is_empty() && {
            let below = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
            [host]
                .into_iter()
                .chain(below)
                .any(|name| self.domains.contains(name))
        }
    }

    /// The list of the configuration has changed.
    fn change(&mut self, before: &[String], after: &[String]) {
        let before: BTreeSet<&str> = before.iter().map(String::as_str).collect();
        let now: BTreeSet<&str> = after.iter().map(String::as_str).collect();
        self.hosts.retain(|host| now.contains(host.as_str()));
        self.domains
            .retain(|domain| now.contains(format!("*.{domain}").as_str()));
        for entry in now.difference(&before) {
            match entry.strip_prefix("*.") {
                Some(domain) => self.domains.insert(domain.to_owned()),
                None => self.hosts.insert((*entry).to_owned()),
            };
        }
    }
}

impl Frontier {
    /// Applies the settings that may change: limits, filters of what is found from now on, retries, redirects, and how
    /// long a robots.txt is valid. Lanes that a limit has stopped are rechecked.
    pub fn change_settings(&mut self, new: &FrontierSettings) {
        let own = &mut self.settings;
        own.depth_limit = new.depth_limit;
        own.url_length_limit = new.url_length_limit;
        own.path_repeat_limit = new.path_repeat_limit;
        own.pages_max = new.pages_max;
        own.errors_max = new.errors_max;
        own.bytes_max = new.bytes_max;
        own.pages_per_host_max = new.pages_per_host_max;
        own.pages_per_domain_max = new.pages_per_domain_max;
        own.bytes_per_domain_max = new.bytes_per_domain_max;
        own.allow.clone_from(&new.allow);
        own.deny.clone_from(&new.deny);
        own.robots_lifetime = new.robots_lifetime;
        own.retry_times = new.retry_times;
        own.retry_codes.clone_from(&new.retry_codes);
        own.retry_exceptions.clone_from(&new.retry_exceptions);
        own.redirects_max = new.redirects_max;
        own.nofollow = new.nofollow;
        own.follow_resources = new.follow_resources;
        self.change_exclusions(&new.exclude_hosts);
        self.domains
            .set_limits(new.pages_per_domain_max, new.bytes_per_domain_max);
        self.recheck_all_limited();
    }

    /// Requests of an earlier run are restored without filters: hosts that this run excludes count as excluded since
    /// then.
    pub fn exclude_restored(&mut self) {
        self.excluded_since
            .change(&[], &self.settings.exclude_hosts);
    }

    /// Applies the list of excluded hosts.
    fn change_exclusions(&mut self, new: &[String]) {
        let before = &self.settings.exclude_hosts;
        if before != new {
            self.excluded_since.change(before, new);
            self.settings.exclude_hosts = new.to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_excluded_since_the_run_began_are_known_with_their_domains() {
        let mut since = ExcludedSince::new(&Secret::from_seed(1));
        let list = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let begun = list("old.test");
        let first = list("old.test a.test *.b.test");
        since.change(&begun, &first);
        let excluded = |since: &ExcludedSince| {
            let all = [
                "old.test", "a.test", "x.a.test", "b.test", "x.b.test", "xb.test",
            ];
            all.map(|host| since.contains(host))
        };
        assert_eq!(excluded(&since), [false, true, false, true, true, false]);
        since.change(&first, &list("*.b.test"));
        assert_eq!(excluded(&since), [false, false, false, true, true, false]);
        since.change(&list("*.b.test"), &begun);
        assert_eq!(excluded(&since), [true, false, false, false, false, false]);
    }
}
