//! What orders to forget are to be applied to later: states of scopes that were not in use when they were given.
//!
//! Such a state is known by its name alone, or lies in the journal. It is compared with the orders when its scope is in
//! use again, also in a later run.

use std::collections::BTreeMap;

use super::super::settings::{ADDRESSES, DOMAINS};
use crate::base::time::Wall;

/// The patterns, and `default`, of which all that was learned is forgotten, with the last order about each.
#[derive(Debug, Default)]
pub(crate) struct ForgottenNames {
    by_name: BTreeMap<String, ForgottenUntil>,
    /// Number of the last order of this run.
    orders: u16,
}

#[derive(Clone, Copy, Debug)]
struct ForgottenUntil {
    /// What was saved until then is forgotten: any time, if the order is of this run.
    saved: Wall,
    /// What was evicted in this run before the order of this number is forgotten, too.
    order: u16,
}

/// Most patterns of a crawl, which each state of a scope may have to be compared with.
pub(super) const NAMES_MAX: usize = 1000;

impl ForgottenNames {
    /// Whether there is room for an order about this name.
    pub fn has_room_for(&self, name: &str) -> bool {
        let is_known = name == DEFAULT || self.by_name.contains_key(name);
        (is_known || self.by_name.len() < NAMES_MAX) && self.orders < u16::MAX
    }

    /// An order of this run, about a pattern or `default`.
    pub fn order(&mut self, name: &str) {
        self.orders += 1;
        let until = ForgottenUntil {
            saved: Wall(u64::MAX),
            order: self.orders,
        };
        self.by_name.insert(name.to_owned(), until);
    }

    /// An order of an earlier run, given at this time.
    pub fn restore(&mut self, name: &str, at: Wall) {
        let until = ForgottenUntil {
            saved: at,
            order: 0,
        };
        self.by_name.insert(name.to_owned(), until);
    }

    /// Number of the last order of this run.
    pub fn orders(&self) -> u16 {
        self.orders
    }

    /// Whether what was saved of a scope at this time is forgotten. `is_domain`: whether it is that of a registrable
    /// domain.
    pub fn has_saved(&self, name: &str, at: Wall, is_domain: impl FnOnce() -> bool) -> bool {
        self.any_about(name, |until| at <= until.saved, is_domain)
    }

    /// The same of what was evicted when this was the number of the last order of this run.
    pub fn has_evicted(&self, name: &str, orders: u16, is_domain: impl FnOnce() -> bool) -> bool {
        self.any_about(name, |until| orders < until.order, is_domain)
    }

    /// Whether an order that `counts` is about a scope.
    fn any_about(
        &self,
        name: &str,
        counts: impl Fn(&ForgottenUntil) -> bool,
        is_domain: impl FnOnce() -> bool,
    ) -> bool {
        if self.by_name.is_empty() {
            return false;
        }
        let has = |pattern: &str| self.by_name.get(pattern).is_some_and(&counts);
        if has(DEFAULT) {
            return true;
        }
        if name.starts_with("ip/") {
            return has(ADDRESSES);
        }
        if name.contains('/') {
            return false;
        }
        let host = name.split_once(':').map_or(name, |(host, _port)| host);
        let mut above = host.match_indices('.');
        above.any(|(dot, _)| has(&format!("*{}", &host[dot..]))) || has(DOMAINS) && is_domain()
    }
}

/// The name that all scopes have.
const DEFAULT: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_about_what_was_saved_or_evicted_before_it() {
        let mut names = ForgottenNames::default();
        names.restore("*.example.com", Wall(100));
        let saved = |names: &ForgottenNames, name: &str, at| {
            names.has_saved(name, Wall(at), || name == "example.org")
        };
        assert!(saved(&names, "a.example.com", 100) && saved(&names, "b.a.example.com:80", 7));
        assert!(!saved(&names, "a.example.com", 101));
        assert!(!saved(&names, "example.com", 7) && !saved(&names, "ip/192.0.2.1", 7));
        assert!(
            !names.has_evicted("a.example.com", 0, || false),
            "by an earlier run"
        );
        names.order("domain/*");
        assert!(saved(&names, "example.org", u64::MAX) && !saved(&names, "a.example.org", 7));
        assert!(names.has_evicted("example.org", 0, || true));
        assert!(!names.has_evicted("example.org", names.orders(), || true));
        names.order("ip/*");
        assert!(saved(&names, "ip/192.0.2.1", 200) && !saved(&names, "host/a.test", 200));
        names.order("default");
        assert!(saved(&names, "host/a.test", 200));
    }

    #[test]
    fn the_number_of_patterns_is_bounded() {
        let mut names = ForgottenNames::default();
        for number in 0..NAMES_MAX {
            let name = format!("*.{number}.test");
            assert!(names.has_room_for(&name));
            names.order(&name);
        }
        assert!(!names.has_room_for("*.other.test"));
        assert!(names.has_room_for("*.7.test") && names.has_room_for("default"));
    }
}
