//! Which addresses may be connected to.

use std::net::IpAddr;

use crate::base::address::{self, Kind, Network};
use crate::fetch::failure::{Failure, FailureKind};

/// The addresses that may be asked: globally routable ones, and what was allowed beside them.
#[derive(Debug)]
pub struct Guard {
    allowed: address::Guard,
    excluded: Vec<Network>,
}

impl Guard {
    pub fn new(allowed: address::Guard, excluded: Vec<Network>) -> Self {
        Guard { allowed, excluded }
    }

    /// Whether `address` may be connected to; if not, how an attempt at it ends.
    pub fn check(&self, address: IpAddr) -> Result<(), Failure> {
        if self.excluded.iter().any(|net| net.contains(address)) {
            return Err(Failure::new(
                FailureKind::Filtered,
                "excluded_address",
                format!("{address} lies in a network of --exclude"),
            ));
        }
        if !self.allowed.allows(address) {
            let kind = Kind::of(address).name();
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
}
