//! Addresses that may be connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smallvec::{SmallVec, smallvec};

use crate::base::address;
use crate::base::address::{AddressKind, Network};
use crate::crawl::config::Config;
use crate::crawl::set_up::SetUpError;
use crate::fetch::failure::{Failure, FailureKind};

/// Allowed addresses: globally routable ones, and those of `ALLOW_NET`.
#[derive(Debug)]
pub struct Guard {
    allowed: address::Guard,
    excluded: Vec<Network>,
    /// They were replaced since the run began, so that connections may lead to one.
    has_changed: bool,
    /// By order.
    ordered: Vec<Network>,
}

impl Guard {
    /// `excluded`: networks of the configuration.
    pub fn new(allowed: address::Guard, excluded: Vec<Network>) -> Self {
        Guard {
            allowed,
            excluded,
            has_changed: false,
            ordered: Vec::new(),
        }
    }

    /// Those of a configuration.
    ///
    /// # Errors
    /// A network is invalid.
    pub fn of(config: &Config) -> Result<Self, SetUpError> {
        let mut allowed = address::Guard::default();
        for word in &config.allow_net {
            allowed.allow(word).map_err(|error| SetUpError::Setting {
                setting: "ALLOW_NET",
                reason: format!("{word:?}: {error}"),
            })?;
        }
        let excluded = config
            .exclude_nets
            .iter()
            .map(|text| {
                text.parse().map_err(|error| SetUpError::Setting {
                    setting: "EXCLUDE",
                    reason: format!("{text:?}: {error}"),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Guard::new(allowed, excluded))
    }

    /// Excludes a network by order.
    pub fn exclude(&mut self, network: Network) {
        self.ordered.push(network);
    }

    /// Withdraws that.
    pub fn include(&mut self, network: Network) {
        self.ordered.retain(|known| *known != network);
    }

    /// Whether networks were excluded since the run began, so that connections may lead to one.
    pub fn has_changed(&self) -> bool {
        self.has_changed || !self.ordered.is_empty()
    }

    /// Whether a connection that was allowed may lead to an excluded address by now.
    pub fn is_excluded_since(&self, address: IpAddr) -> bool {
        self.has_changed && self.excluded.iter().any(|net| net.contains(address))
            || self.is_ordered(address)
    }

    fn is_ordered(&self, address: IpAddr) -> bool {
        self.ordered.iter().any(|net| net.contains(address))
    }

    /// Replaces the excluded networks of the configuration.
    pub fn set_excluded(&mut self, excluded: Vec<Network>) {
        self.excluded = excluded;
        self.has_changed = true;
    }

    /// Checks whether `address` may be connected to; the error is the failure of the attempt.
    pub fn check(&self, address: IpAddr) -> Result<(), Failure> {
        let by = match self.excluded.iter().any(|net| net.contains(address)) {
            true => Some("EXCLUDE"),
            false => self.is_ordered(address).then_some("an order"),
        };
        if let Some(by) = by {
            return Err(Failure::new(
                FailureKind::Filtered,
                "excluded_address",
                format!("{address} is in an excluded network ({by})"),
            ));
        }
        if !self.allowed.allows(address) {
            let kind = AddressKind::of(address).as_str();
            return Err(Failure::new(
                FailureKind::BlockedAddress,
                "not_global",
                format!(
                    "{address} is not globally routable ({kind}); --allow-net {address} allows it"
                ),
            ));
        }
        Ok(())
    }

    /// Checks a host that a proxy looks up. Its addresses are not visible here, unless the name is an
    /// address. One allowed address is enough, as it is without a proxy.
    pub fn check_host(&self, host: &str) -> Result<(), Failure> {
        let known = known_addresses(host);
        let mut verdicts = known.iter().map(|address| self.check(*address));
        let first = verdicts.next().unwrap_or(Ok(()));
        match first.is_err() && verdicts.any(|verdict| verdict.is_ok()) {
            true => Ok(()),
            false => first,
        }
    }
}

/// Addresses that a host has in any resolver: itself if it is one, and this machine's own if it is one of
/// its names (RFC 6761, section 6.3).
fn known_addresses(host: &str) -> SmallVec<[IpAddr; 2]> {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = literal.parse() {
        return smallvec![address];
    }
    let name = host.trim_end_matches('.');
    let is_below = |domain: &str| {
        let rest = name.len().checked_sub(domain.len());
        let (rest, end) = match rest.and_then(|at| name.split_at_checked(at)) {
            Some(parts) => parts,
            None => return false,
        };
        end.eq_ignore_ascii_case(domain) && (rest.is_empty() || rest.ends_with('.'))
    };
    match LOCAL_NAMES.into_iter().any(is_below) {
        true => smallvec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        false => SmallVec::new(),
    }
}

/// Names of this machine: the reserved one, and those in common hosts files.
const LOCAL_NAMES: [&str; 6] = [
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::url::CrawlUrl;

    #[test]
    fn every_name_and_address_of_this_machine_is_recognised() {
        let local = |url: &str| {
            let url = CrawlUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let known = known_addresses(url.host_str());
            !known.is_empty() && known.iter().all(|a| !crate::base::address::is_global(*a))
        };
        for url in [
            "http://localhost/",
            "http://LOCALHOST./",
            "http://localhost:8080/",
            "http://a.b.localhost/",
            "http://a.localhost./",
            "http://localhost.localdomain/",
            "http://ip6-localhost/",
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://0/",
            "http://%31%32%37.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
        ] {
            assert!(local(url), "{url}");
        }
        for url in [
            "http://localhost.example/",
            "http://notlocalhost/",
            "http://example.com/",
            "http://8.8.8.8/",
        ] {
            assert!(!local(url), "{url}");
        }
    }
}
