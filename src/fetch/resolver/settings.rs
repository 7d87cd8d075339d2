//! What a user may say about the resolving of names.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::system::Hosts;

/// Servers, fixed answers and limits of a [`Resolver`](super::Resolver).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Name servers that resolve for us, in the order to ask them; the first 16 count.
    pub servers: Vec<SocketAddr>,
    /// `--resolve`: answers fixed by the user. Of several for one host and port the last counts.
    pub overrides: Vec<Override>,
    /// The hosts table.
    pub hosts: Hosts,
    /// Which addresses are asked for, and which come first.
    pub families: Families,
    /// How long one server has for one try; over TCP, with its handshake, twice that.
    pub try_timeout: Duration,
    /// How often each server is tried; at least once.
    pub attempts: u32,
    /// Whether lookups begin with the servers in turn rather than all with the first.
    pub rotate: bool,
    /// Questions in flight at once (a name is two); more wait in line.
    pub queries_max: usize,
    /// UDP sockets, each with a port of its own, open at once for all servers, if there are no more servers.
    pub ports_max: usize,
    /// Names being resolved at once, and callers waiting for them; beyond, a lookup is `Busy`.
    pub pending_max: usize,
    /// Names remembered.
    pub cache_max: usize,
    /// The least time an address is kept, whatever its server says.
    pub ttl_min: Duration,
    /// The longest time an address is kept.
    pub ttl_max: Duration,
    /// The longest time the absence of a name is believed.
    pub negative_ttl_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            servers: Vec::new(),
            overrides: Vec::new(),
            hosts: Hosts::default(),
            families: Families::V6First,
            // A resolver that knows the answer replies in milliseconds; one that must look it up
            // mostly within a second, and a lost datagram should not cost a crawl more than two.
            try_timeout: Duration::from_secs(2),
            attempts: 3,
            rotate: false,
            // What a small local resolver stands: unbound takes 512 at once on one thread.
            queries_max: 256,
            // For two servers all that they use; a question in flight may hold one more.
            ports_max: 512,
            // Callers are lanes ahead of their release: more than connections there can be.
            pending_max: 65_536,
            // About 30 MB.
            cache_max: 200_000,
            // Names that balance load say 0 to 60 s; a page and its robots.txt need not ask twice.
            ttl_min: Duration::from_secs(30),
            ttl_max: Duration::from_secs(24 * 3600),
            // RFC 2308 §5 finds one to three hours sensible.
            negative_ttl_max: Duration::from_secs(3600),
        }
    }
}

/// Which families of addresses are wanted, and which is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone: no AAAA is asked for.
    V4,
    /// IPv6 alone: no A is asked for.
    V6,
    /// Both, IPv4 first.
    V4First,
    /// Both, IPv6 first (RFC 8305 §4).
    V6First,
}

/// A fixed answer: `HOST:PORT:ADDR` or `HOST:PORT:ADDR:PORT`, as curl's `--resolve` has it.
///
/// HOST may be `*` for every host; IPv6 addresses may stand in brackets, and must where a port
/// follows. It decides the address alone: whether that address may be crawled is asked as ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// In lower case, without a dot at its end; `None` for every host.
    pub host: Option<Box<str>>,
    /// The port of the URLs it is for.
    pub port: u16,
    /// Where to connect.
    pub address: IpAddr,
    /// The port to connect to, if another.
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
                (super::plain_host(host).into_owned(), rest)
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

/// Why an override cannot be read; each says what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverrideInvalid {
    /// Not three parts.
    #[error("expected HOST:PORT:ADDR, as in example.com:443:127.0.0.1:8443")]
    Shape,
    /// An empty host, or brackets around no address.
    #[error("expected a host name, an address or `*` before the first colon")]
    Host,
    /// Not a number up to 65535.
    #[error("expected a port number after the host, as in example.com:443:127.0.0.1")]
    Port,
    /// No address, or its port is none.
    #[error("expected an IP address after the port, as in 127.0.0.1, 127.0.0.1:8443 or [::1]:8443")]
    Address,
}

impl OverrideInvalid {
    /// The stable name.
    pub const fn code(self) -> &'static str {
        match self {
            OverrideInvalid::Shape => "shape",
            OverrideInvalid::Host => "host",
            OverrideInvalid::Port => "port",
            OverrideInvalid::Address => "address",
        }
    }

    /// Whether another try may end otherwise: never.
    pub const fn is_retryable(self) -> bool {
        false
    }
}

/// Reads a name server as `--dns` has it: `ADDR` or `ADDR:PORT`, port 53 if there is none.
pub fn parse_server(text: &str) -> Option<SocketAddr> {
    let (address, port) = parse_address(text)?;
    Some(SocketAddr::new(address, port.unwrap_or(DNS_PORT)))
}

/// `ADDR`, `[ADDR]`, `V4:PORT` or `[V6]:PORT`.
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
    fn an_override_is_read_as_curl_reads_it() {
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
    fn an_override_that_cannot_be_read_says_what_is_wrong() {
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
    fn a_server_is_on_port_53_unless_it_says_otherwise() {
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
