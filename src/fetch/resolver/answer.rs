//! The result of a lookup: addresses in the order to try them, or the reason why there are none.

use std::net::IpAddr;

use smallvec::SmallVec;

use crate::base::time::Instant;
use crate::fetch::failure::{Failure, FailureKind};

/// Which address families are used, and which is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only: no AAAA queries.
    V4,
    /// IPv6 only: no A queries.
    V6,
    /// Both, IPv4 first.
    V4First,
    /// Both, IPv6 first (RFC 8305 §4).
    V6First,
}

/// Addresses of one host, best first.
pub type Addresses = SmallVec<[IpAddr; 2]>;

/// The addresses of a host and their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// In the order of RFC 8305 §4, with alternating families; at least one.
    pub addresses: Addresses,
    /// The port to connect to, if an override replaces the URL's.
    pub port: Option<u16>,
    /// Time of expiry; [`Instant::FAR_FUTURE`] if they are not from the DNS.
    pub expires: Instant,
    /// Source of the addresses.
    pub source: Source,
}

impl Answer {
    /// A permanent answer that needs no query.
    pub(super) fn fixed(addresses: Addresses, source: Source) -> Self {
        Answer {
            addresses,
            port: None,
            expires: Instant::FAR_FUTURE,
            source,
        }
    }
}

/// Source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The host is an address.
    Literal,
    /// The user's `--resolve`.
    Override,
    /// The hosts file, or `localhost` (RFC 6761 §6.3).
    Hosts,
    /// A name server, in an earlier lookup.
    Cache,
    /// A name server, in this lookup.
    Query,
}

/// Why a name has no addresses, in the compact form used by the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    NxDomain,
    NoData,
    ServFail,
    Refused,
    Referral,
    Code(u16),
    Timeout,
    Unreachable,
    Malformed,
    CnameLoop,
    NoServers,
    NameInvalid,
}

impl Fault {
    /// Converts it to a failure; the codes are stable.
    pub(super) fn failure(self) -> Failure {
        let fail = |code, detail: &'static str| Failure::new(FailureKind::Dns, code, detail);
        match self {
            Fault::NxDomain => fail("nxdomain", "the name does not exist"),
            Fault::NoData => fail("nodata", "the name has no addresses"),
            Fault::ServFail => fail("servfail", "the name servers failed"),
            Fault::Refused => fail("refused", "the name servers refused the query"),
            Fault::Referral => fail("refused", "the name server offers no recursion"),
            Fault::Code(code) => Failure::new(
                FailureKind::Dns,
                "servfail",
                format!("the name servers answered with response code {code}"),
            ),
            Fault::Timeout => fail("timeout", "no name server answered in time"),
            Fault::Unreachable => fail("timeout", "no name server could be reached"),
            Fault::Malformed => fail("malformed", "the reply is malformed"),
            Fault::CnameLoop => fail("cname_loop", "the aliases form a loop or are too many"),
            Fault::NoServers => fail("no_servers", "no name server is known; set one with --dns"),
            Fault::NameInvalid => fail("name_invalid", "the host is not a valid domain name"),
        }
    }
}

/// Puts addresses in the order to try them: alternating families, starting with the preferred one
/// (RFC 8305 §4), each in its server's order.
pub(super) fn in_order(families: Families, a: &[IpAddr], aaaa: &[IpAddr]) -> Addresses {
    let (first, second) = match families {
        Families::V4 => (a, &[][..]),
        Families::V6 => (aaaa, &[][..]),
        Families::V4First => (a, aaaa),
        Families::V6First => (aaaa, a),
    };
    let mut ordered = Addresses::new();
    for turn in 0..first.len().max(second.len()) {
        ordered.extend(first.get(turn).copied());
        ordered.extend(second.get(turn).copied());
    }
    ordered
}

/// The same for addresses of both families in one list.
pub(super) fn sort(families: Families, mixed: &[IpAddr]) -> Addresses {
    let (a, aaaa): (Addresses, Addresses) = mixed.iter().copied().partition(IpAddr::is_ipv4);
    in_order(families, &a, &aaaa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_starting_with_the_preferred_one() {
        let check = |families, expected: &[&str]| {
            let ordered = sort(
                families,
                &["10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"].map(|text| text.parse().unwrap()),
            );
            let ordered: Vec<String> = ordered.iter().map(IpAddr::to_string).collect();
            assert_eq!(ordered, expected);
        };
        check(
            Families::V6First,
            &["::1", "10.0.0.1", "10.0.0.2", "10.0.0.3"],
        );
        check(
            Families::V4First,
            &["10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"],
        );
        check(Families::V4, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        check(Families::V6, &["::1"]);
    }
}
