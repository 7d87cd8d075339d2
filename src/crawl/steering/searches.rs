//! Questions that are answered by a search through all lanes or scopes, a step of one of them in each turn. What is
//! found is described in steps as well.

use std::collections::VecDeque;

use serde_json::Value;

use super::url_question::UrlQuestion;
use crate::admin::response::Response;
use crate::admin::routes::Call;
use crate::base::slab::Key;
use crate::crawl::pace_report::ScopePacing;
use crate::frontier::{LongQueue, LongestQueues};
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
    /// What was found, which is being described.
    Found(Description),
}

/// Something that was found.
#[derive(Debug)]
pub enum Found {
    /// A queue.
    Queue(LongQueue),
    /// A scope, by its name.
    Scope(String),
    /// The pacing of a scope so far.
    Pacing(Box<ScopePacing>),
}

/// A list that is being described: an object in JSON whose last entry is an array.
#[derive(Debug)]
pub struct Description {
    left: VecDeque<Found>,
    body: Vec<u8>,
    is_first: bool,
    repeated: Option<Call>,
}

impl Description {
    /// A description that begins with this text, up to the array.
    pub fn new(beginning: String, found: impl Iterator<Item = Found>) -> Self {
        Description {
            left: found.collect(),
            body: beginning.into_bytes(),
            is_first: true,
            repeated: None,
        }
    }

    /// The same for a call that gets the same answer for a while.
    pub fn repeated(mut self, call: Call) -> Self {
        self.repeated = Some(call);
        self
    }

    /// That call.
    pub fn take_repeated(&mut self) -> Option<Call> {
        self.repeated.take()
    }

    /// The next thing to be described.
    pub fn poll(&mut self) -> Option<Found> {
        self.left.pop_front()
    }

    /// Adds a description.
    pub fn add(&mut self, described: &Value) {
        if !std::mem::take(&mut self.is_first) {
            self.body.push(b',');
        }
        self.body
            .extend_from_slice(described.to_string().as_bytes());
    }

    /// The reply once nothing is left.
    pub fn finish(&mut self) -> Option<Response> {
        if !self.left.is_empty() {
            return None;
        }
        self.body.extend_from_slice(b"]}\n");
        let body = std::mem::take(&mut self.body);
        Some(Response::of(200, "application/json", body))
    }
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
