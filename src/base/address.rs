//! Classifies IP addresses by the IANA special-purpose registries, and decides which ones may be
//! connected to.
//!
//! Hand-written: `IpAddr::is_global` of the standard library is unstable in Rust 1.88, and does not
//! name the kinds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use crate::base::sentence::debug_as_sentence;

/// The purpose of an address. Only [`AddressKind::Global`] is reachable from everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// Globally routable.
    Global,
    /// This machine: 127.0.0.0/8, ::1.
    Loopback,
    /// A private network: RFC 1918, and IPv6's deprecated site-local addresses.
    Private,
    /// This link only: 169.254.0.0/16, fe80::/10. Cloud metadata services are here.
    LinkLocal,
    /// The provider's side of carrier-grade NAT: 100.64.0.0/10.
    Cgnat,
    /// IPv6's private networks: fc00::/7.
    UniqueLocal,
    /// For examples in documentation.
    Documentation,
    /// For benchmarks of network devices: 198.18.0.0/15, 2001:2::/48.
    Benchmarking,
    /// A group of machines.
    Multicast,
    /// Not an address: 0.0.0.0, ::.
    Unspecified,
    /// All other non-public addresses: protocol assignments, future use, discard.
    Reserved,
}

impl AddressKind {
    /// The name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            AddressKind::Global => "global",
            AddressKind::Loopback => "loopback",
            AddressKind::Private => "private",
            AddressKind::LinkLocal => "link-local",
            AddressKind::Cgnat => "cgnat",
            AddressKind::UniqueLocal => "unique-local",
            AddressKind::Documentation => "documentation",
            AddressKind::Benchmarking => "benchmarking",
            AddressKind::Multicast => "multicast",
            AddressKind::Unspecified => "unspecified",
            AddressKind::Reserved => "reserved",
        }
    }

    /// The purpose of an address.
    ///
    /// An IPv6 address that embeds a reachable IPv4 address (mapped, NAT64, 6to4, Teredo) has the
    /// kind of the embedded address; otherwise each of these forms would bypass the guard.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => match carried(address) {
                Some(address) => of_v4(address),
                None => of_v6(address),
            },
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns whether an address is globally routable.
pub fn is_global(address: IpAddr) -> bool {
    AddressKind::of(address) == AddressKind::Global
}

/// Decides which addresses may be connected to: global ones, and those allowed by the user.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Networks allowed in addition to global addresses.
    pub allow: Vec<Network>,
}

impl Guard {
    /// Returns whether this address may be connected to.
    pub fn allows(&self, address: IpAddr) -> bool {
        is_global(address) || self.allow.iter().any(|network| network.contains(address))
    }

    /// Adds a value of `--allow-net`: `loopback`, `private`, or a network.
    pub fn allow(&mut self, word: &str) -> Result<(), NetworkError> {
        let named: &[&str] = match word.trim() {
            "loopback" => &["127.0.0.0/8", "::1/128"],
            "private" => &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
            other => &[other],
        };
        for text in named {
            self.allow.push(text.parse()?);
        }
        Ok(())
    }
}

/// A block of addresses in CIDR notation; bits below the prefix are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Returns whether the address is in this block. An IPv4-mapped address is in the blocks of its
    /// IPv4 address as well as in its own.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.covers(address) || self.covers(address.to_canonical())
    }

    fn covers(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing
                    .checked_shr(32 - u32::from(self.prefix))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing
                    .checked_shr(128 - u32::from(self.prefix))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| NetworkError::Address(text.to_owned()))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= bits && digits.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| NetworkError::Prefix(text.to_owned(), bits))?,
        };
        // A block of mapped addresses becomes the block of the embedded addresses.
        Ok(match address.to_canonical() {
            carried @ IpAddr::V4(_) if address.is_ipv6() && prefix >= 96 => Network {
                address: carried,
                prefix: prefix - 96,
            },
            _ => Network { address, prefix },
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why a text is not a network.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The part before the slash is not an address.
    #[error("`{0}` is not a network: expected an address, ADDRESS/BITS, `loopback` or `private`")]
    Address(String),
    /// The part after the slash is not a number of bits.
    #[error("`{0}` is not a network: the number after the slash must be from 0 to {1}")]
    Prefix(String, u8),
}

debug_as_sentence!(NetworkError);

impl NetworkError {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            NetworkError::Address(_) => "network.address",
            NetworkError::Prefix(..) => "network.prefix",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// IANA IPv4 Special-Purpose Address Registry.
fn of_v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [0, 0, 0, 0] => AddressKind::Unspecified,
        [0, ..] => AddressKind::Reserved,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressKind::Private,
        [100, 64..=127, ..] => AddressKind::Cgnat,
        [127, ..] => AddressKind::Loopback,
        [169, 254, ..] => AddressKind::LinkLocal,
        // Anycast addresses of PCP and TURN, which are exceptions among the protocol assignments.
        [192, 0, 0, 9 | 10] => AddressKind::Global,
        [192, 0, 0, _] => AddressKind::Reserved,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => AddressKind::Documentation,
        // The former anycast address of 6to4 relays.
        [192, 88, 99, _] => AddressKind::Reserved,
        [198, 18 | 19, ..] => AddressKind::Benchmarking,
        [224..=239, ..] => AddressKind::Multicast,
        [240..=255, ..] => AddressKind::Reserved,
        _ => AddressKind::Global,
    }
}

/// IANA IPv6 Special-Purpose Address Registry; otherwise only 2000::/3 is allocated.
fn of_v6(address: Ipv6Addr) -> AddressKind {
    if address.is_unspecified() {
        return AddressKind::Unspecified;
    }
    if address.is_loopback() {
        return AddressKind::Loopback;
    }
    match address.segments() {
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        // NAT64 within one network (RFC 8215).
        [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => AddressKind::Private,
        [0xfc00..=0xfdff, ..] => AddressKind::UniqueLocal,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressKind::Documentation,
        [0x2001, 2, 0, ..] => AddressKind::Benchmarking,
        // The globally reachable ones among the protocol assignments: anycast, AMT, AS112,
        // ORCHIDv2, DRIP.
        [0x2001, 1, 0, 0, 0, 0, 0, 1..=3]
        | [0x2001, 3, ..]
        | [0x2001, 4, 0x112, ..]
        | [0x2001, 0x20..=0x3f, ..] => AddressKind::Global,
        [0x2001, 0..=0x1ff, ..] => AddressKind::Reserved,
        [0x2000..=0x3fff, ..] => AddressKind::Global,
        _ => AddressKind::Reserved,
    }
}

/// The IPv4 address to which traffic for an IPv6 address is forwarded.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let low = Ipv4Addr::from_bits(address.to_bits() as u32);
    match address.segments() {
        // Mapped (RFC 4291) and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(low),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Teredo (RFC 4380): the client's address, inverted.
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!low.to_bits())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: AddressKind, addresses: &[&str]) {
        for text in addresses {
            assert_eq!(AddressKind::of(text.parse().expect(text)), kind, "{text}");
        }
    }

    fn guard(words: &[&str]) -> Guard {
        let mut guard = Guard::default();
        for word in words {
            guard.allow(word).expect(word);
        }
        guard
    }

    #[test]
    fn every_block_of_the_registries_is_classified_up_to_its_last_address() {
        check(
            AddressKind::Global,
            &["1.1.1.1", "9.255.255.255", "11.0.0.0", "172.15.255.255"],
        );
        check(
            AddressKind::Global,
            &["172.32.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.0"],
        );
        check(
            AddressKind::Global,
            &[
                "192.0.0.9",
                "192.0.0.10",
                "192.0.1.0",
                "198.20.0.0",
                "223.255.255.255",
            ],
        );
        check(
            AddressKind::Global,
            &[
                "2606:4700::1111",
                "2001:200::",
                "2001:4860::8888",
                "3ffe::1",
            ],
        );
        check(
            AddressKind::Global,
            &[
                "2001:1::1",
                "2001:3::1",
                "2001:4:112::1",
                "2001:20::1",
                "2620:4f:8000::1",
            ],
        );
        check(
            AddressKind::Loopback,
            &["127.0.0.1", "127.255.255.255", "::1"],
        );
        check(
            AddressKind::Private,
            &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255"],
        );
        check(
            AddressKind::Private,
            &["192.168.0.0", "192.168.255.255", "fec0::1", "64:ff9b:1::1"],
        );
        check(
            AddressKind::LinkLocal,
            &["169.254.169.254", "fe80::1", "febf::1"],
        );
        check(AddressKind::Cgnat, &["100.64.0.0", "100.127.255.255"]);
        check(AddressKind::UniqueLocal, &["fc00::", "fdff::1"]);
        check(
            AddressKind::Documentation,
            &["192.0.2.1", "198.51.100.1", "203.0.113.255"],
        );
        check(
            AddressKind::Documentation,
            &["2001:db8::1", "3fff::1", "3fff:fff::1"],
        );
        check(
            AddressKind::Benchmarking,
            &["198.18.0.0", "198.19.255.255", "2001:2::1"],
        );
        check(
            AddressKind::Multicast,
            &["224.0.0.1", "239.255.255.255", "ff02::1"],
        );
        check(AddressKind::Unspecified, &["0.0.0.0", "::"]);
        check(
            AddressKind::Reserved,
            &["0.1.2.3", "192.0.0.1", "192.88.99.1", "240.0.0.0"],
        );
        check(
            AddressKind::Reserved,
            &["255.255.255.255", "100::1", "2001:10::1", "2001:1ff::1"],
        );
        check(
            AddressKind::Reserved,
            &["5f00::1", "4000::1", "::2", "::7f00:1"],
        );
    }

    #[test]
    fn an_address_that_embeds_another_has_its_kind() {
        check(
            AddressKind::Loopback,
            &["::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"],
        );
        check(AddressKind::Loopback, &["2001:0:1::80ff:fffe"]);
        check(
            AddressKind::LinkLocal,
            &["::ffff:169.254.169.254", "64:ff9b::169.254.169.254"],
        );
        check(
            AddressKind::Private,
            &["2002:a00:1::", "2001:0:1::f5ff:fffe"],
        );
        check(
            AddressKind::Global,
            &["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::"],
        );
    }

    #[test]
    fn a_guard_refuses_non_global_addresses_unless_allowed() {
        let allows = |words: &[&str], address: &str| guard(words).allows(address.parse().unwrap());
        assert!(allows(&[], "1.1.1.1"));
        assert!(!allows(&[], "127.0.0.1"));
        assert!(allows(&["loopback"], "127.9.9.9"));
        assert!(allows(&["loopback"], "::1"));
        assert!(allows(&["loopback"], "::ffff:127.0.0.1"));
        assert!(!allows(&["loopback"], "10.0.0.1"));
        assert!(allows(&["private"], "192.168.1.1"));
        assert!(allows(&["private"], "fd00::1"));
        assert!(!allows(&["private"], "169.254.169.254"));
        assert!(allows(&["10.1.0.0/16", "fe80::/10"], "10.1.255.255"));
        assert!(!allows(&["10.1.0.0/16"], "10.2.0.0"));
        assert!(allows(&["169.254.169.254"], "169.254.169.254"));
        assert!(!allows(&["169.254.169.254"], "169.254.169.255"));
        assert!(allows(&["0.0.0.0/0"], "10.0.0.1"));
        assert!(!allows(&["0.0.0.0/0"], "::1"));
        assert!(allows(&["::/0"], "::1"));
    }

    #[test]
    fn an_invalid_network_is_an_error_that_quotes_it() {
        let error = |text: &str| text.parse::<Network>().unwrap_err().to_string();
        for text in ["", "localhost", "10.0.0", "10.0.0.0.0/8", "1.2.3.4:80"] {
            assert!(
                error(text).starts_with(&format!("`{text}` is not a network: expected")),
                "{text}"
            );
        }
        for text in [
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "::/x",
        ] {
            assert!(
                error(text).contains("the number after the slash must be"),
                "{text}"
            );
        }
        assert!(Guard::default().allow("lopback").is_err());
    }

    #[test]
    fn a_network_prints_as_it_is_written() {
        for text in ["10.0.0.0/8", "::/0", "fe80::/10"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!(
            "1.2.3.4".parse::<Network>().unwrap().to_string(),
            "1.2.3.4/32"
        );
    }

    #[test]
    fn a_mapped_address_is_allowed_in_every_form() {
        for word in [
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "::ffff:127.0.0.0/104",
            "127.0.0.1",
            "::/0",
        ] {
            let guard = guard(&[word]);
            assert!(
                guard.allows("::ffff:127.0.0.1".parse().expect("an address")),
                "{word}"
            );
        }
        assert!(guard(&["::ffff:127.0.0.1"]).allows("127.0.0.1".parse().expect("an address")));
        assert!(!guard(&["::ffff:127.0.0.1"]).allows("127.0.0.2".parse().expect("an address")));
    }
}
