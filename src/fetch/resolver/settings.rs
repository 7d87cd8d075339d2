//! Settings of name resolution.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

pub use super::answer::Families;
use super::hosts::{Hosts, plain_host};

use crate::base::sentence::debug_as_sentence;

/// Servers, fixed answers and limits of a [`Resolver`](super::Resolver).
#[derive(Clone, Debug, PartialEq)]
pub struct ResolverSettings {
    /// Recursive name servers, in the order to ask them; only the first 16 are used.
    pub servers: Vec<SocketAddr>,
    /// `--resolve`: fixed answers. Of several for one host and port the last applies.
    pub overrides: Vec<Override>,
    /// The hosts file.
    pub hosts: Hosts,
    /// Which address families are queried, and which comes first.
    pub families: Families,
    /// Timeout of one try at one server; twice that over TCP, including its handshake.
    pub try_timeout: Duration,
    /// Number of tries per server; at least one.
    pub attempts: u32,
    /// Whether lookups start at the servers in turn instead of always at the first.
    pub rotate: bool,
    /// Maximum number of queries in flight (a name has two); more wait in line.
    pub queries_max: usize,
    /// Maximum number of open UDP sockets over all servers, each with its own port, unless there
    /// are more servers than that.
    pub ports_max: usize,
    /// Maximum number of names being resolved, and of callers waiting for them; beyond it a lookup
    /// is `Busy`.
    pub pending_max: usize,
    /// Maximum number of cached names.
    pub cache_max: usize,
    /// Minimum time that an address is cached, even if its TTL is shorter.
    pub ttl_min: Duration,
    /// Maximum time that an address is cached.
    pub ttl_max: Duration,
    /// Maximum time that the absence of a name is cached.
    pub negative_ttl_max: Duration,
    /// Maximum time before a name whose lookup failed is looked up anew: it doubles from 30 s on.
    pub backoff_max: Duration,
    /// Maximum time, from the beginning of a lookup, after which a name that it did not find is looked up anew; `None`:
    /// no other than the two above, which count from its end.
    pub retried_after: Option<Duration>,
}

impl ResolverSettings {
    /// A name without addresses, or whose lookup failed, is looked up anew so long after the beginning of its lookup at
    /// most.
    pub(crate) fn retry_within(&mut self, most: Duration) {
        self.negative_ttl_max = self.negative_ttl_max.min(most);
        self.backoff_max = self.backoff_max.min(most);
        self.retried_after = Some(most);
    }
}

impl Default for ResolverSettings {
    fn default() -> Self {
        ResolverSettings {
            servers: Vec::new(),
            overrides: Vec::new(),
            hosts: Hosts::default(),
            families: Families::V6First,
            // A resolver that has the answer cached replies in milliseconds, one that has to look
            // it up usually within a second. A lost datagram should not cost a crawl more than two
            // seconds.
            try_timeout: Duration::from_secs(2),
            attempts: 3,
            rotate: false,
            // As many as a small local resolver can handle: unbound accepts 512 at a time on one
            // thread.
            queries_max: 256,
            // All that two servers use; a query in flight may hold one more open.
            ports_max: 512,
            // Callers are lanes ahead of their release: more than there can be connections.
            pending_max: 65_536,
            // About 30 MB; however large the answers, less than 40 MB.
            cache_max: 200_000,
            // Load-balanced names have TTLs of 0 to 60 s; a page and its robots.txt need only one
            // lookup.
            ttl_min: Duration::from_secs(30),
            ttl_max: Duration::from_secs(24 * 3600),
            // RFC 2308 §5 considers one to three hours sensible.
            negative_ttl_max: Duration::from_secs(3600),
            // As long as a failing host is held.
            backoff_max: Duration::from_secs(15 * 60),
            retried_after: None,
        }
    }
}

/// A fixed answer: `HOST:PORT:ADDR` or `HOST:PORT:ADDR:PORT`, as in curl's `--resolve`.
///
/// HOST may be `*` for all hosts; IPv6 addresses may be in brackets, and must be if a port follows.
/// It only replaces the address: whether that address may be crawled is checked as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// In lower case, without a final dot; `None` for all hosts.
    pub host: Option<Box<str>>,
    /// The port of the URLs it applies to.
    pub port: u16,
    /// The address to connect to.
    pub address: IpAddr,
    /// The port to connect to, if it differs.
    pub to_port: Option<u16>,
}

impl FromStr for Override {
    type Err = OverrideInvalid;

    fn from_str(text: &str) -> Result<Self, OverrideInvalid> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed
                .split_once("]:")
                .ok_or(OverrideInvalid::Shape)
                .and_then(|(host, rest)| match host.parse::<IpAddr>() {
                    Ok(address) => Ok((address.to_string(), rest)),
                    Err(_) => Err(OverrideInvalid::Host),
                })?,
            None => {
                let (host, rest) = text.split_once(':').ok_or(OverrideInvalid::Shape)?;
                (plain_host(host).into_owned(), rest)
            }
        };
        if host.is_empty() {
            return Err(OverrideInvalid::Host);
        }
        let (port, address) = rest.split_once(':').ok_or(OverrideInvalid::Shape)?;
        let port = port.parse().map_err(|_| OverrideInvalid::Port)?;
        let (address, to_port) = parse_address(address).ok_or(OverrideInvalid::Address)?;
        Ok(Override {
            host: (host != "*").then(|| host.into()),
            port,
            address,
            to_port,
        })
    }
}

/// Why an override is invalid; each message shows the expected form.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverrideInvalid {
    /// Fewer than three parts.
    #[error("expected HOST:PORT:ADDR, as in example.com:443:127.0.0.1:8443")]
    Shape,
    /// An empty host, or brackets without an address.
    #[error("expected a host name, an address or `*` before the first colon")]
    Host,
    /// The port is not a number up to 65535.
    #[error("expected a port number after the host, as in example.com:443:127.0.0.1")]
    Port,
    /// Not an address, or its port is invalid.
    #[error("expected an IP address after the port, as in 127.0.0.1, 127.0.0.1:8443 or [::1]:8443")]
    Address,
}

debug_as_sentence!(OverrideInvalid);

impl OverrideInvalid {
    /// Stable error code.
    pub const fn code(self) -> &'static str {
        match self {
            OverrideInvalid::Shape => "shape",
            OverrideInvalid::Host => "host",
            OverrideInvalid::Port => "port",
            OverrideInvalid::Address => "address",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(self) -> bool {
        false
    }
}

/// Parses a name server as given to `--dns`: `ADDR` or `ADDR:PORT`, with port 53 as default.
pub fn parse_server(text: &str) -> Option<SocketAddr> {
    let (address, port) = parse_address(text)?;
    Some(SocketAddr::new(address, port.unwrap_or(DNS_PORT)))
}

/// Parses `ADDR`, `[ADDR]`, `V4:PORT` or `[V6]:PORT`.
fn parse_address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Some((address, None));
    }
    let with_port: SocketAddr = text.parse().ok()?;
    Some((with_port.ip(), Some(with_port.port())))
}

/// RFC 1035 §4.2.
pub(super) const DNS_PORT: u16 = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_parsed_as_in_curl() {
        let check = |text: &str, host: Option<&str>, port, address: &str, to_port| {
            let expected = Override {
                host: host.map(Into::into),
                port,
                address: address.parse().unwrap(),
                to_port,
            };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        };
        check("a.test:80:127.0.0.1", Some("a.test"), 80, "127.0.0.1", None);
        check(
            "A.Test.:80:127.0.0.1",
            Some("a.test"),
            80,
            "127.0.0.1",
            None,
        );
        check("*:443:10.0.0.1:8443", None, 443, "10.0.0.1", Some(8443));
        check("a.test:80:::1", Some("a.test"), 80, "::1", None);
        check("a.test:80:[::1]", Some("a.test"), 80, "::1", None);
        check("a.test:80:[::1]:81", Some("a.test"), 80, "::1", Some(81));
        check("[::1]:80:10.0.0.1", Some("::1"), 80, "10.0.0.1", None);
    }

    #[test]
    fn an_invalid_override_has_a_helpful_error() {
        let check = |text: &str, expected| {
            assert_eq!(text.parse::<Override>(), Err(expected), "{text}");
        };
        check("", OverrideInvalid::Shape);
        check("a.test", OverrideInvalid::Shape);
        check("a.test:80", OverrideInvalid::Shape);
        check(":80:127.0.0.1", OverrideInvalid::Host);
        check("[a.test]:80:127.0.0.1", OverrideInvalid::Host);
        check("a.test:http:127.0.0.1", OverrideInvalid::Port);
        check("a.test:65536:127.0.0.1", OverrideInvalid::Port);
        check("a.test:80:b.test", OverrideInvalid::Address);
        check("a.test:80:127.0.0.1:x", OverrideInvalid::Address);
    }

    #[test]
    fn a_servers_default_port_is_53() {
        let check = |text, expected: Option<&str>| {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(parse_server(text), expected);
        };
        check("127.0.0.1", Some("127.0.0.1:53"));
        check("127.0.0.1:5353", Some("127.0.0.1:5353"));
        check("::1", Some("[::1]:53"));
        check("[::1]", Some("[::1]:53"));
        check("[::1]:5353", Some("[::1]:5353"));
        check("ns.test", None);
        check("", None);
    }
}
