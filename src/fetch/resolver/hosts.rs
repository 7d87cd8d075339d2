//! Names with fixed addresses, as a `hosts(5)` file lists them.

use std::borrow::Cow;
use std::net::IpAddr;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::answer::Addresses;
use crate::base::secret::Known;

/// The hosts file: names that are never queried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    table: HashMap<Box<str>, Addresses, Known>,
}

impl Hosts {
    /// Parses a `hosts(5)` file: an address and its names on each line; `#` starts a comment.
    ///
    /// A name on several lines has all their addresses. Invalid lines are skipped.
    pub fn parse(text: &str) -> Hosts {
        let mut hosts = Hosts::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            // An address with a zone (`fe80::1%eth0`) is useless to a crawl, and does not parse.
            let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else {
                continue;
            };
            for name in words {
                hosts.add(name, address);
            }
        }
        hosts
    }

    /// Adds an address to a name.
    pub fn add(&mut self, name: &str, address: IpAddr) {
        let name = plain_host(name);
        let addresses: &mut SmallVec<_> = self.table.entry_ref(name.as_ref()).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }

    /// The addresses of a host in lower case without a final dot.
    pub(super) fn get(&self, host: &str) -> Option<&[IpAddr]> {
        self.table.get(host).map(SmallVec::as_slice)
    }
}

/// A host in lower case, without a final dot and without the brackets of IPv6.
pub(super) fn plain_host(host: &str) -> Cow<'_, str> {
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|octet| octet.is_ascii_uppercase()) {
        host.to_ascii_lowercase().into()
    } else {
        host.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_collect_addresses_and_ignore_case_and_comments() {
        let hosts = Hosts::parse(
            "127.0.0.1 localhost  # loopback\n::1\tlocalhost ip6-localhost\n\n#10.0.0.9 a.test\n\
             10.0.0.1 A.test alias.\nnonsense b.test\nfe80::1%lo0 c.test\n10.0.0.1 a.test\n",
        );
        let check = |host, expected: Option<&[&str]>| {
            let found = hosts
                .get(host)
                .map(|list| list.iter().map(|address| address.to_string()).collect());
            let expected: Option<Vec<String>> =
                expected.map(|list| list.iter().map(|text| (*text).to_owned()).collect());
            assert_eq!(found, expected, "{host}");
        };
        check("localhost", Some(&["127.0.0.1", "::1"]));
        check("ip6-localhost", Some(&["::1"]));
        check("a.test", Some(&["10.0.0.1"]));
        check("alias", Some(&["10.0.0.1"]));
        check("b.test", None);
        check("c.test", None);
    }
}
