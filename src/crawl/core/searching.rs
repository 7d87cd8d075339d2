//! Questions of operators that are answered by a search in steps, while the crawl goes on.

use serde_json::{Value, json};

use crate::admin::response::Response;
use crate::admin::routes::Call;
use crate::base::keys::OriginKey;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::core::host_view::lane_wait;
use crate::crawl::core::url_search::SearchStep;
use crate::crawl::core::views::{fits, limit_of, pattern_of};
use crate::crawl::steering::{Asked, Description, Found, Search, Subject};
use crate::frontier::{Elsewhere, LongQueue, LongestQueues};
use crate::io::Io;
use crate::throttle::engine::{ScopeSearch, ScopeState};

impl<I: Io> Core<I> {
    /// Begins a search that a call asks for.
    pub fn begin_search(&mut self, asked: &Asked, subject: Subject) {
        let key = asked.key;
        if !self.steering.searches().begin(Search { key, subject }) {
            let response = Response::error(503, "too many searches are under way");
            return self.refuse(asked, &response.with("Retry-After", "1"));
        }
        let late = Response::error(503, "the search takes too long while the crawl is so busy");
        self.steering
            .respond_later(key, late.with("Retry-After", "10"));
    }

    /// Begins to look for the longest queues.
    pub fn begin_queues(&mut self, asked: &Asked) {
        let queues = asked_of(&asked.call)
            .map(|(pattern, limit)| Subject::Queues(pattern, LongestQueues::new(limit)));
        match queues {
            Ok(subject) => self.begin_search(asked, subject),
            Err(refusal) => self.refuse(asked, &refusal),
        }
    }

    /// Begins to look for scopes in a state, among all.
    pub fn begin_scopes(&mut self, asked: &Asked, state: &str) {
        let known = ScopeState::ALL.iter().find(|(word, _)| *word == state);
        let Some((_, state)) = known else {
            let words = ScopeState::ALL.map(|(word, _)| word).join(", ");
            let message = format!("state is one of {words}, not {state:?}");
            return self.refuse(asked, &Response::error(400, &message));
        };
        if asked.call.parameter("sort").is_some() {
            let message =
                "with state there is no sort: those that are held longest, or busiest, are first";
            return self.refuse(asked, &Response::error(400, message));
        }
        match asked_of(&asked.call) {
            Ok((pattern, limit)) => {
                let search = ScopeSearch::new(*state, limit);
                self.begin_search(asked, Subject::Scopes(pattern, search));
            }
            Err(refusal) => self.refuse(asked, &refusal),
        }
    }

    /// Goes on with the first search that does not wait for the disk; returns whether there was one.
    pub fn advance_searches(&mut self) -> bool {
        for _ in 0..self.steering.searches().len() {
            let Some(mut search) = self.steering.searches().take() else {
                break;
            };
            let key = search.key;
            if !self.steering.waits_for_answer(key) {
                // It was not in time.
                continue;
            }
            let step = self.advance_search(key, &mut search.subject);
            if step != SearchStep::Answered {
                self.steering.searches().put_back(search);
            }
            if step != SearchStep::Waits {
                self.end_searches_in_files();
                return true;
            }
        }
        self.end_searches_in_files();
        false
    }

    /// Takes a step of a search.
    fn advance_search(&mut self, key: Key, subject: &mut Subject) -> SearchStep {
        match subject {
            Subject::Url(question) => return self.advance_url(key, question),
            Subject::Queues(pattern, progress) => {
                let is_wanted = |host: &str| fits(pattern, host);
                let in_files = |origin: OriginKey| self.spill.requests_of(origin.0);
                let in_files: Option<Elsewhere<'_>> = match self.spill.is_empty() {
                    true => None,
                    false => Some(&in_files),
                };
                if (self.frontier).advance_longest(progress, is_wanted, in_files) {
                    let progress = std::mem::replace(progress, LongestQueues::new(0));
                    let queues = self.frontier.longest(progress, is_wanted, in_files);
                    let queues = queues.into_iter().map(Found::Queue);
                    let queues = Description::new("{\"queues\":[".to_owned(), queues);
                    *subject = Subject::Found(queues);
                }
            }
            Subject::Scopes(pattern, progress) => {
                let is_wanted = |name: &str| fits(pattern, name);
                if (self.throttle).advance_search(progress, is_wanted, self.now) {
                    let progress =
                        std::mem::replace(progress, ScopeSearch::new(ScopeState::Any, 0));
                    let names = self.throttle.found(progress, is_wanted, self.now);
                    let scopes = names.into_iter().map(Found::Scope);
                    let scopes = Description::new("{\"scopes\":[".to_owned(), scopes);
                    *subject = Subject::Found(scopes);
                }
            }
            Subject::Found(list) => {
                for _ in 0..DESCRIBED_PER_STEP {
                    let Some(found) = list.poll() else {
                        break;
                    };
                    if let Some(described) = self.describe(found) {
                        list.add(&described);
                    }
                }
                if let Some(response) = list.finish() {
                    if let Some(call) = list.take_repeated() {
                        self.steering.keep(call, response.clone(), self.now);
                    }
                    self.answer_search(key, &response);
                    return SearchStep::Answered;
                }
            }
        }
        SearchStep::GoesOn
    }

    /// Describes a queue or a scope; `None` if it is gone.
    fn describe(&self, found: Found) -> Option<Value> {
        match found {
            Found::Queue(queue) => self.queue_json(&queue),
            Found::Scope(name) => {
                let now = self.scope_now(&name);
                Some(json!({"scope": name, "now": now}))
            }
            Found::Pacing(pacing) => Some(pacing.to_json()),
        }
    }

    /// Answers a call at the end of its search.
    pub fn answer_search(&mut self, key: Key, response: &Response) {
        let wall = self.network.wall_at(self.now);
        self.steering.respond(key, response, self.now, wall);
    }

    fn queue_json(&self, queue: &LongQueue) -> Option<Value> {
        if !self.frontier.is_open(queue) {
            return None;
        }
        let view = self.frontier.lane_view(queue.lane);
        let scopes = self.throttle.lane_scopes(queue.lane).iter();
        let scopes: Vec<&str> = scopes.map(|id| self.throttle.scope_name(*id)).collect();
        Some(json!({
            "origin": queue.origin,
            "queued": view.queued,
            "in_files": queue.elsewhere,
            "in_flight": view.in_flight,
            "waits_for": lane_wait(view),
            "scopes": scopes,
        }))
    }
}

/// What was found and is described in one step, up to thirty microseconds each.
const DESCRIBED_PER_STEP: usize = 10;

/// The pattern and the limit of a list.
fn asked_of(call: &Call) -> Result<(String, usize), Response> {
    Ok((pattern_of(call)?.to_owned(), limit_of(call)?))
}
