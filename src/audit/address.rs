//! Networks that settings name.

use std::net::IpAddr;

use crate::base::address::{Guard, Network};

/// Which addresses a crawl may connect to.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    allowed: Guard,
    excluded: Vec<Network>,
}

impl Addresses {
    /// Global addresses and those in `allow_net`, but for those in `exclude_nets`.
    ///
    /// # Errors
    /// One is no network.
    pub fn new(allow_net: &[String], exclude_nets: &[String]) -> Result<Self, String> {
        let mut addresses = Addresses::default();
        for word in allow_net {
            addresses
                .allowed
                .allow(word)
                .map_err(|error| error.to_string())?;
        }
        for text in exclude_nets {
            let network = text.parse::<Network>();
            addresses
                .excluded
                .push(network.map_err(|error| error.to_string())?);
        }
        Ok(addresses)
    }

    /// Whether an address is global, or allowed.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allowed.allows(address)
    }

    /// Whether an address is excluded.
    pub fn excludes(&self, address: IpAddr) -> bool {
        self.excluded
            .iter()
            .any(|network| network.contains(address))
    }
}

/// The address of an address and port, as result lines have it.
pub fn address_of(remote: &str) -> Option<IpAddr> {
    remote
        .parse::<std::net::SocketAddr>()
        .ok()
        .map(|at| at.ip())
}
