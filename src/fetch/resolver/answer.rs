//! What comes of a lookup: addresses in the order to try them, or the reason there are none.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::settings::Families;
use crate::base::time::Instant;
use crate::fetch::failure::{Failure, FailureKind};

/// Addresses of one host, best first.
pub type Addresses = SmallVec<[IpAddr; 2]>;

/// The addresses of a host and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// In the order of RFC 8305 §4, the families taking turns; at least one.
    pub addresses: Addresses,
    /// The port to connect to where an override names another than the URL does.
    pub port: Option<u16>,
    /// Until when they may be used; [`Instant::FAR_FUTURE`] if they are not from the DNS.
    pub expires: Instant,
    /// Who says so.
    pub source: Source,
}

impl Answer {
    /// An answer that was known beforehand and stays.
    pub(super) fn fixed(addresses: Addresses, source: Source) -> Self {
        Answer {
            addresses,
            port: None,
            expires: Instant::FAR_FUTURE,
            source,
        }
    }
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The host is an address itself.
    Literal,
    /// The user's `--resolve`.
    Override,
    /// The hosts table, or `localhost` (RFC 6761 §6.3).
    Hosts,
    /// A name server, earlier.
    Cache,
    /// A name server, for this lookup.
    Query,
}

/// Why a name has no addresses, in a byte or two: what the cache keeps.
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
    /// As the sink sees it; the codes are stable.
    pub(super) fn failure(self) -> Failure {
        let fail = |code, detail: &'static str| Failure::new(FailureKind::Dns, code, detail);
        match self {
            Fault::NxDomain => fail("nxdomain", "the name does not exist"),
            Fault::NoData => fail("nodata", "the name has no addresses"),
            Fault::ServFail => fail("servfail", "the name servers failed"),
            Fault::Refused => fail("refused", "the name servers refused the query"),
            Fault::Referral => fail("refused", "the name server resolves no names for us"),
            Fault::Code(code) => Failure::new(
                FailureKind::Dns,
                "servfail",
                format!("the name servers answered with response code {code}"),
            ),
            Fault::Timeout => fail("timeout", "no name server answered in time"),
            Fault::Unreachable => fail("timeout", "no name server could be reached"),
            Fault::Malformed => fail("malformed", "the reply cannot be read"),
            Fault::CnameLoop => fail("cname_loop", "aliases in a circle, or too many"),
            Fault::NoServers => fail("no_servers", "no name server is known; name one with --dns"),
            Fault::NameInvalid => fail("name_invalid", "the host is no domain name"),
        }
    }
}

/// Puts addresses in the order to try them: the families take turns, the preferred one first
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
    fn families_take_turns_and_the_preferred_one_begins() {
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
