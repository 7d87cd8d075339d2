//! What the machine says about names: `/etc/resolv.conf` and `/etc/hosts`. The door of `resolv-conf`.

use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::answer::Addresses;
use super::settings::{DNS_PORT, Settings};
use crate::base::secret::Known;

/// The settings of this machine, as its two files have them.
///
/// A file that cannot be read counts as empty; without servers it is up to the caller to say so.
pub fn read_settings() -> Settings {
    let read = |path| fs::read(path).unwrap_or_default();
    let mut settings = Settings::default();
    apply_resolv_conf(&read("/etc/resolv.conf"), &mut settings);
    settings.hosts = Hosts::parse(&String::from_utf8_lossy(&read("/etc/hosts")));
    settings
}

/// Takes over what a `resolv.conf(5)` says: `nameserver`, `timeout`, `attempts` and `rotate`.
///
/// Search lists and `ndots` mean nothing here: every host of a URL is absolute. Lines that cannot
/// be read are passed over, as the C library does. Values that are the format's own defaults
/// (5 s, 2 attempts) count as not said.
pub fn apply_resolv_conf(text: &[u8], settings: &mut Settings) {
    let (config, _unread) = resolv_conf::Config::parse_with_errors(text);
    settings.servers = config
        .nameservers
        .iter()
        .filter_map(server_address)
        .collect();
    let silent = resolv_conf::Config::new();
    if config.timeout != silent.timeout {
        let seconds = u64::from(config.timeout.clamp(1, SECONDS_MAX));
        settings.try_timeout = Duration::from_secs(seconds);
    }
    if config.attempts != silent.attempts {
        settings.attempts = config.attempts.clamp(1, ATTEMPTS_MAX);
    }
    settings.rotate = config.rotate;
}

/// A server with a zone that is not a number is passed over: only the kernel knows its index.
fn server_address(server: &resolv_conf::ScopedIp) -> Option<SocketAddr> {
    match server {
        resolv_conf::ScopedIp::V4(address) => Some((*address, DNS_PORT).into()),
        resolv_conf::ScopedIp::V6(address, None) => Some((*address, DNS_PORT).into()),
        resolv_conf::ScopedIp::V6(address, Some(zone)) => {
            let zone = zone.parse().ok()?;
            Some(SocketAddrV6::new(*address, DNS_PORT, 0, zone).into())
        }
    }
}

/// The hosts table: names that never go to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    table: HashMap<Box<str>, Addresses, Known>,
}

impl Hosts {
    /// Reads a `hosts(5)`: an address and its names on each line, `#` to the end is a comment.
    ///
    /// A name on several lines has all their addresses. Lines that cannot be read are passed over.
    pub fn parse(text: &str) -> Hosts {
        let mut hosts = Hosts::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            // An address with a zone (`fe80::1%eth0`) is of no use to a crawl, and does not parse.
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
        let name = super::plain_host(name);
        let addresses: &mut SmallVec<_> = self.table.entry_ref(name.as_ref()).or_default();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }

    /// The addresses of a host that is in lower case and has no dot at its end.
    pub(super) fn get(&self, host: &str) -> Option<&[IpAddr]> {
        self.table.get(host).map(SmallVec::as_slice)
    }
}

/// As the C library bounds them (`RES_MAXRETRANS`, `RES_MAXRETRY`).
const SECONDS_MAX: u32 = 30;
const ATTEMPTS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_of(text: &str) -> Settings {
        let mut settings = Settings::default();
        apply_resolv_conf(text.as_bytes(), &mut settings);
        settings
    }

    #[test]
    fn resolv_conf_gives_servers_timeout_attempts_and_rotation() {
        let settings = settings_of(
            "# made by hand\nsearch example.com\nnameserver 192.0.2.1\nnameserver 2001:db8::1\n\
             nameserver fe80::1%3\noptions ndots:5 timeout:1 attempts:4 rotate\n",
        );
        let servers: Vec<String> = settings.servers.iter().map(|a| a.to_string()).collect();
        assert_eq!(
            servers,
            ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%3]:53"]
        );
        assert_eq!(settings.try_timeout, Duration::from_secs(1));
        assert_eq!(settings.attempts, 4);
        assert!(settings.rotate);
    }

    #[test]
    fn what_resolv_conf_does_not_say_stays_as_it_was() {
        let defaults = Settings::default();
        assert_eq!(settings_of(""), defaults);
        assert_eq!(settings_of("; nothing\n").attempts, defaults.attempts);
    }

    #[test]
    fn a_broken_line_of_resolv_conf_spoils_no_other() {
        let text = "nameserver\nnameserver nonsense\noptions timeout:x\nnameserver 192.0.2.7\n";
        assert_eq!(settings_of(text).servers, ["192.0.2.7:53".parse().unwrap()]);
        let mut settings = Settings::default();
        apply_resolv_conf(b"nameserver 192.0.2.1\n\xff\xfe\n", &mut settings);
        assert_eq!(settings.servers.len(), 1);
    }

    #[test]
    fn hosts_gather_their_addresses_and_ignore_case_and_comments() {
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
