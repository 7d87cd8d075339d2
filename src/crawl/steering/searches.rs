//! Questions that are answered by a search through all lanes or scopes, a step of one of them in each turn.

use std::collections::VecDeque;

use super::url_question::UrlQuestion;
use crate::base::slab::Key;
use crate::frontier::LongestQueues;
use crate::throttle::engine::ScopeSearch;
use crate::wire::url::CrawlUrl;

/// Searches that were begun and have not ended.
#[derive(Debug, Default)]
pub struct Searches {
    waiting: VecDeque<Search>,
    /// The number of the last search in files.
    last: u32,
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
    /// A URL.
    Url(Box<UrlQuestion>),
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

    /// A number for a search in files. It may be that of a search that is over for long.
    pub fn number(&mut self) -> u32 {
        // The highest bit is for others.
        self.last = (self.last + 1) % (1 << 31);
        self.last
    }

    /// Whether the search of this number in files has not ended.
    pub fn has(&self, number: u32) -> bool {
        let mut subjects = self.waiting.iter().map(|search| &search.subject);
        subjects
            .any(|subject| matches!(subject, Subject::Url(question) if question.number == number))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A request for this URL is queued: a search for it may have been in that place already.
    pub fn note_queued(&mut self, url: &CrawlUrl) {
        for search in &mut self.waiting {
            if let Subject::Url(question) = &mut search.subject {
                question.note_queued(url);
            }
        }
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
