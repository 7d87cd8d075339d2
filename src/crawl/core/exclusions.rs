//! Hosts, domains, networks and patterns of URLs that are excluded while the crawl runs.

use serde_json::{Map, Value, json};

use crate::admin::response::Response;
use crate::crawl::config::Config;
use crate::crawl::core::Core;
use crate::crawl::steering::Asked;
use crate::frontier::exclusion::{EXCLUSIONS_MAX, Exclusion, PATTERNS_MAX};
use crate::io::Io;
use crate::state::record::About;

impl<I: Io> Core<I> {
    /// What is excluded by order.
    pub fn exclusions(&self) -> Response {
        let excluded = self.frontier.excluded().texts();
        Response::json(200, &json!({"excluded": excluded}))
    }

    /// Excludes something, or withdraws that.
    pub fn order_exclusion(&mut self, asked: &Asked, is_excluded: bool) {
        let exclusion = match Config::check_exclusion(&asked.call.name) {
            Ok(exclusion) => exclusion,
            Err(message) => return self.refuse(asked, &Response::error(400, &message)),
        };
        let Some((order, facts)) = self.order_of_exclusion(&exclusion, is_excluded) else {
            return self.refuse(asked, &Response::error(409, &too_many()));
        };
        let reply = json!({"excluded": self.frontier.excluded().texts()});
        self.acknowledge_order(asked, order, facts, reply);
    }

    /// Excludes something, or withdraws that. Returns the order and its facts; `None` if there is no room.
    pub fn order_of_exclusion(
        &mut self,
        exclusion: &Exclusion,
        is_excluded: bool,
    ) -> Option<(&'static str, Value)> {
        let before = self.frontier.excluded().has(&exclusion.text());
        if before != is_excluded && !self.change_exclusion(exclusion, is_excluded) {
            return None;
        }
        let order = if is_excluded { "exclude" } else { "include" };
        let mut facts = Map::new();
        facts.insert(exclusion.kind().to_owned(), json!(exclusion.text()));
        facts.insert("before".to_owned(), json!(before));
        facts.insert("after".to_owned(), json!(is_excluded));
        Some((order, facts.into()))
    }

    /// Excludes what an earlier run was ordered to exclude; returns whether the order is kept.
    pub fn restore_exclusion(&mut self, text: &str) -> bool {
        match Config::check_exclusion(text) {
            Ok(exclusion) => self.apply_exclusion(&exclusion, true),
            Err(error) => {
                log::warn!(
                    "an earlier run was ordered to exclude {text}, which is left out: {error}"
                );
                false
            }
        }
    }

    /// Excludes something in later runs, too, or withdraws that. Returns false if there is no room.
    fn change_exclusion(&mut self, exclusion: &Exclusion, is_excluded: bool) -> bool {
        if !self.apply_exclusion(exclusion, is_excluded) {
            return false;
        }
        if self.journal.is_on() {
            let value: &[u8] = if is_excluded { &[1] } else { &[] };
            self.record_order(About::Excluded, &exclusion.text(), value);
        }
        self.withdraw_excluded();
        true
    }

    fn apply_exclusion(&mut self, exclusion: &Exclusion, is_excluded: bool) -> bool {
        let is_changed = match is_excluded {
            true => self.frontier.exclude(exclusion),
            false => self.frontier.include(exclusion),
        };
        if let (true, Exclusion::Network(network)) = (is_changed, exclusion) {
            self.network.exclude(*network, is_excluded);
        }
        is_changed
    }
}

/// Why there is no room for an exclusion.
pub fn too_many() -> String {
    format!(
        "there may be {EXCLUSIONS_MAX} exclusions by order, {PATTERNS_MAX} of them patterns: withdraw one"
    )
}
