//! Orders that can have no effect, whatever the crawl does: refused, with what was meant.

use crate::admin::routes::{Call, Resource};
use crate::crawl::core::Core;
use crate::io::Io;
use crate::throttle::settings::ScopePatch;

impl<I: Io> Core<I> {
    /// Why an order about this scope can have no effect; `None` if it can. A request may have scopes of any name of its
    /// own: one that is there, or was given settings, is never refused.
    pub fn why_in_vain(&self, call: &Call) -> Option<String> {
        let is_cancel = match call.resource {
            Resource::CancelScope => true,
            Resource::ChangeScope | Resource::MergeScope | Resource::ForgetScope => false,
            _ => return None,
        };
        let checked = (self.config).check_scope(&call.name, &ScopePatch::default());
        let name = checked.unwrap_or_else(|_| call.name.clone());
        let is_known = self.throttle.known_scope(&name).is_some();
        let has_settings = self.orders.scopes.contains_key(&name)
            || self.config.throttle.scopes.contains_key(&name);
        if is_known || !is_cancel && has_settings {
            return None;
        }
        if let Some(address) = name.strip_prefix(ADDRESS) {
            return match is_cancel {
                true => Some(format!(
                    "nothing is sent under {name:?} now: what is queued for an address is ended by excluding it, as {}",
                    network_of(address)
                )),
                false if self.throttle.has_addresses() => None,
                false => Some(format!(
                    "no request has the scope {name:?}: SCOPE_MAP has no ip, and CONCURRENT_REQUESTS_PER_IP is 0"
                )),
            };
        }
        match name.strip_prefix(DOMAIN) {
            Some("*") if !is_cancel => None,
            Some(domain) if domain != "*" => Some(format!(
                "the scope of a domain has the name of the domain: {domain}"
            )),
            _ if is_cancel && name.contains('*') => Some(format!(
                "one scope is cancelled, and {name:?} is a pattern: name the scope, or exclude the domain, such as \
                 *.example.com"
            )),
            _ => None,
        }
    }
}

/// The network to exclude in place of a scope's address.
fn network_of(address: &str) -> String {
    match address {
        "*" => "192.0.2.0/24".to_owned(),
        address if address.contains(':') => format!("{address}/128"),
        address => format!("{address}/32"),
    }
}

/// What the names of scopes of addresses begin with, and the pattern of those of domains.
const ADDRESS: &str = "ip/";
const DOMAIN: &str = "domain/";
