//! Questions for one URL: each place where it can be is searched, a step in each turn, while the crawl goes on.
//!
//! A URL is in one place at a time. One that stays in its place is found there. One that is queued during the search, or
//! comes back to memory, is noted, and the search begins anew. One that leaves a queue is in flight, or its reply or result
//! waits, until it ends: these places are looked at last, in one turn.

use crate::admin::response::Response;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::spill::Searched;
use crate::crawl::steering::{Asked, Place, Subject, UrlQuestion};
use crate::crawl::work::admission::without_dropped;
use crate::io::Io;
use crate::wire::url::CrawlUrl;

/// What a step of a search has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStep {
    /// The question is answered.
    Answered,
    /// There is another step to take.
    GoesOn,
    /// There is another step once the disk has read something.
    Waits,
}

impl<I: Io> Core<I> {
    /// Begins to answer the question for a URL: it may be in a long queue.
    pub fn begin_url(&mut self, asked: &Asked) {
        let url = match CrawlUrl::parse(&asked.call.name) {
            Ok(url) => without_dropped(url, &self.config),
            Err(error) => {
                let message = format!("{:?} is no URL to fetch: {error}", asked.call.name);
                return self.refuse(asked, &Response::error(400, &message));
            }
        };
        if let Some(state) = self.place_json(&url) {
            return self.answer_url(asked.key, &url, state);
        }
        let search = self.frontier.search(&url);
        let origin = self.frontier.origin_key(&url).0;
        let is_elsewhere = self.spill.has(origin) || self.work.has_left() || self.work.has_unsent();
        if search.is_over() && !is_elsewhere {
            let state = self.over_json(&url, None);
            return self.answer_url(asked.key, &url, state);
        }
        let mut question = UrlQuestion::new(url, search);
        question.number = self.steering.searches().number();
        self.begin_search(asked, Subject::Url(Box::new(question)));
    }

    /// Takes a step of the search for a URL.
    pub fn advance_url(&mut self, key: Key, question: &mut UrlQuestion) -> SearchStep {
        if question.has_moved() {
            return self.search_again(key, question, "it was queued again and again: ask again");
        }
        let url = question.url.clone();
        if let Place::Queues(search) = &mut question.place {
            let Some(found) = self.frontier.advance_search(&url, search) else {
                return SearchStep::GoesOn;
            };
            if let Some(found) = found {
                let state = self.queued_json(&url, &found);
                return self.end_search_for(key, &url, state);
            }
            if search.is_unsure() {
                question.doubt("its queue changed too often during the search: ask again");
            }
            question.place = Place::Files;
        }
        if let Place::Files = question.place {
            let origin = self.frontier.origin_key(&url).0;
            match self.spill.search(question.number, &url, origin) {
                Searched::Found(found) => {
                    let state = self.spilled_json(&url, &found);
                    return self.end_search_for(key, &url, state);
                }
                Searched::Nothing => {
                    question.place = Place::Left {
                        from: 0,
                        compared: 0,
                        count: self.work.left_len(),
                    };
                }
                Searched::Unfinished { is_waiting: true } => return SearchStep::Waits,
                Searched::Unfinished { is_waiting: false } => return SearchStep::GoesOn,
                Searched::Failed(why) => return self.search_again(key, question, &why),
            }
        }
        if let Place::Left {
            from,
            compared,
            count,
        } = &mut question.place
        {
            let (found, next, more) = self.work.find_left(*from, &url);
            *compared += more;
            if let Some(entry) = found {
                // Some of the first were queued meanwhile.
                let queued = *count - self.work.left_len();
                let ahead = compared.saturating_sub(queued) as u64;
                let state = self.left_json(&url, &entry.job, ahead);
                return self.end_search_for(key, &url, state);
            }
            if let Some(next) = next {
                *from = next;
                return SearchStep::GoesOn;
            }
            question.place = Place::Unsent(0);
        }
        if let Place::Unsent(next) = &mut question.place {
            let (found, is_over) = self.work.find_unsent(next, &url);
            if let Some(unsent) = found {
                let state = self.unsent_json(unsent);
                return self.end_search_for(key, &url, state);
            }
            if !is_over {
                return SearchStep::GoesOn;
            }
        }
        // It may have left its queue since the search began.
        let place = self.place_json(&url);
        let state = place.unwrap_or_else(|| self.over_json(&url, question.doubts()));
        self.end_search_for(key, &url, state)
    }

    /// Begins a search anew. After many times, the URL may be anywhere, and `why` is the reason.
    fn search_again(&mut self, key: Key, question: &mut UrlQuestion, why: &str) -> SearchStep {
        let url = question.url.clone();
        // It may have left its queue already.
        if let Some(state) = self.place_json(&url) {
            return self.end_search_for(key, &url, state);
        }
        let search = self.frontier.search(&url);
        let number = self.steering.searches().number();
        if question.begin_again(number, search, why) {
            return SearchStep::GoesOn;
        }
        let state = self.over_json(&url, question.doubts());
        self.end_search_for(key, &url, state)
    }

    fn end_search_for(&mut self, key: Key, url: &CrawlUrl, state: serde_json::Value) -> SearchStep {
        self.answer_url(key, url, state);
        SearchStep::Answered
    }

    /// Ends searches in files whose questions were answered, or not in time.
    pub fn end_searches_in_files(&mut self) {
        let searches = self.steering.searches();
        self.spill.end_searches(|number| searches.has(number));
    }
}
