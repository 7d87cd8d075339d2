//! Answers that need no query: overrides, addresses, and the hosts file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashMap;

use super::answer::{Addresses, Answer, Fault, Source, sort};
use super::hosts::Hosts;
use super::settings::{Families, Override};
use crate::base::secret::Known;

/// Fixed answers from the user's settings and from this machine.
pub(super) struct Fixed {
    /// By port, then by host.
    overrides: HashMap<u16, PortOverrides, Known>,
    hosts: Hosts,
    families: Families,
}

#[derive(Default)]
struct PortOverrides {
    hosts: HashMap<Box<str>, Override, Known>,
    every: Option<Override>,
}

impl Fixed {
    pub(super) fn new(overrides: &[Override], hosts: Hosts, families: Families) -> Self {
        let mut by_port: HashMap<u16, PortOverrides, Known> = HashMap::default();
        for one in overrides {
            let port = by_port.entry(one.port).or_default();
            match &one.host {
                Some(host) => drop(port.hosts.insert(host.clone(), one.clone())),
                None => port.every = Some(one.clone()),
            }
        }
        Fixed {
            overrides: by_port,
            hosts,
            families,
        }
    }

    /// The answer for a plain host, if no query is needed.
    ///
    /// An override for the host takes precedence over one for all hosts, as in curl, and both over
    /// everything else. The wanted families only order addresses that are fixed by name, and remove
    /// none.
    pub(super) fn get(&self, host: &str, port: u16) -> Option<Result<Answer, Fault>> {
        if let Some(overrides) = self.overrides.get(&port)
            && let Some(fixed) = overrides.hosts.get(host).or(overrides.every.as_ref())
        {
            let mut answer = Answer::fixed(Addresses::from_iter([fixed.address]), Source::Override);
            answer.port = fixed.to_port;
            return Some(Ok(answer));
        }
        // Most are names, which need not be read as an address.
        let may_be_address = host.contains(':') || host.ends_with(|c: char| c.is_ascii_digit());
        if may_be_address && let Ok(address) = host.parse() {
            return Some(Ok(Answer::fixed(
                Addresses::from_iter([address]),
                Source::Literal,
            )));
        }
        let localhost = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let (addresses, last_label) = (self.hosts.get(host), host.rsplit('.').next());
        match (addresses, last_label) {
            (Some(addresses), _) => Some(Ok(self.by_hosts(addresses))),
            (None, Some("localhost")) => Some(Ok(self.by_hosts(&localhost))),
            (None, Some("invalid" | "onion")) => Some(Err(Fault::NxDomain)),
            _ => None,
        }
    }

    fn by_hosts(&self, addresses: &[IpAddr]) -> Answer {
        let wanted = sort(self.families, addresses);
        let either = match self.families {
            Families::V4 | Families::V4First => Families::V4First,
            Families::V6 | Families::V6First => Families::V6First,
        };
        let addresses = if wanted.is_empty() {
            sort(either, addresses)
        } else {
            wanted
        };
        Answer::fixed(addresses, Source::Hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::hosts::plain_host;
    use super::*;

    fn check(overrides: &[&str], hosts: &str, host: &str, port: u16, expected: Option<&str>) {
        let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        let fixed = Fixed::new(&overrides, Hosts::parse(hosts), Families::V6First);
        let found = fixed
            .get(&plain_host(host), port)
            .map(|answer| match answer {
                Ok(Answer {
                    addresses,
                    port,
                    source,
                    ..
                }) => format!("{source:?} {addresses:?} {port:?}"),
                Err(fault) => format!("{fault:?}"),
            });
        assert_eq!(found.as_deref(), expected, "{host}:{port}");
    }

    #[test]
    fn an_override_applies_only_to_its_host_and_port() {
        let overrides = &["a.test:80:10.0.0.1:8080", "a.test:443:10.0.0.2"];
        let first = Some("Override [10.0.0.1] Some(8080)");
        check(overrides, "", "a.test", 80, first);
        check(overrides, "", "A.TEST.", 80, first);
        check(
            overrides,
            "",
            "a.test",
            443,
            Some("Override [10.0.0.2] None"),
        );
        check(overrides, "", "a.test", 81, None);
        check(overrides, "", "b.a.test", 80, None);
    }

    #[test]
    fn the_more_specific_override_wins_and_of_equal_ones_the_later() {
        let overrides = &["*:80:10.0.0.9", "a.test:80:10.0.0.1", "a.test:80:10.0.0.2"];
        check(
            overrides,
            "",
            "a.test",
            80,
            Some("Override [10.0.0.2] None"),
        );
        check(
            overrides,
            "",
            "b.test",
            80,
            Some("Override [10.0.0.9] None"),
        );
        check(
            overrides,
            "",
            "192.0.2.1",
            80,
            Some("Override [10.0.0.9] None"),
        );
    }

    #[test]
    fn addresses_and_hosts_file_entries_need_no_server() {
        let hosts = "10.0.0.1 a.test\n::1 a.test";
        check(&[], "", "192.0.2.1", 80, Some("Literal [192.0.2.1] None"));
        check(&[], "", "[::1]", 80, Some("Literal [::1] None"));
        check(&[], hosts, "a.test", 80, Some("Hosts [::1, 10.0.0.1] None"));
        check(&[], hosts, "b.test", 80, None);
    }

    #[test]
    fn names_that_are_never_in_the_dns_are_not_queried() {
        let loopback = Some("Hosts [::1, 127.0.0.1] None");
        check(&[], "", "localhost", 80, loopback);
        check(&[], "", "x.localhost.", 80, loopback);
        check(&[], "", "x.invalid", 80, Some("NxDomain"));
        check(&[], "", "x.onion", 80, Some("NxDomain"));
        check(&[], "", "localhost.test", 80, None);
    }
}
