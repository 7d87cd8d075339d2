//! Questions that are answered by a search through all lanes or scopes, a step of one of them in each turn.

use std::collections::VecDeque;

use crate::base::slab::Key;
use crate::frontier::{LongestQueues, UrlSearch};
use crate::throttle::engine::ScopeSearch;
use crate::wire::url::CrawlUrl;

/// Searches that were begun and have not ended.
#[derive(Debug, Default)]
pub struct Searches {
    waiting: VecDeque<Search>,
}

/// A search, and the connection whose call asks for it.
#[derive(Debug)]
pub struct Search {
    /// The connection.
    pub key: Key,
    /// What is searched for.
    pub subject: Subject,
}

/// What is searched for, and how far that is.
#[derive(Debug)]
pub enum Subject {
    /// A queued URL.
    Url(CrawlUrl, UrlSearch),
    /// The longest queues of hosts that fit a pattern.
    Queues(String, LongestQueues),
    /// Scopes in a state whose names fit a pattern.
    Scopes(String, ScopeSearch),
}

/// Searches that may wait: more are refused. Each takes one connection.
const SEARCHES_MAX: usize = 8;

impl Searches {
    /// Begins a search; returns false if too many wait.
    pub fn begin(&mut self, search: Search) -> bool {
        let has_room = self.waiting.len() < SEARCHES_MAX;
        if has_room {
            self.waiting.push_back(search);
        }
        has_room
    }

    /// Takes the next search for a step; [`Searches::put_back`] follows if it is not over.
    pub fn take(&mut self) -> Option<Search> {
        self.waiting.pop_front()
    }

    /// A search that is not over waits for its next step, behind the others.
    pub fn put_back(&mut self, search: Search) {
        self.waiting.push_back(search);
    }

    /// Ends the searches of a connection that is closed.
    pub fn end(&mut self, key: Key) {
        self.waiting.retain(|search| search.key != key);
    }

    /// Ends all.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}
