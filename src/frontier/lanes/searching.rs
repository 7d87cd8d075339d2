//! Searches the queues for one URL, in steps, while requests come and leave.

use super::{Frontier, LaneState};
use crate::base::ids::LaneId;
use crate::frontier::origins::NO_LANE;
use crate::frontier::queue::{Cursor, Found};
use crate::wire::url::CrawlUrl;

/// The search for a queued URL.
#[derive(Debug)]
pub struct UrlSearch {
    target: String,
    origins: Vec<u32>,
    /// The lane that is searched, and how far that is.
    lane: u32,
    cursor: Cursor,
    /// First lanes of the origins that were searched before all others.
    first: Vec<LaneId>,
    is_in_first: bool,
    /// How often requests had left queues, and queues were made anew, when the last step ended.
    left: usize,
    rebuilt: usize,
    /// How often the search of a queue began anew.
    again: u32,
    is_unsure: bool,
}

/// A URL in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedUrl {
    /// Its lane.
    pub lane: LaneId,
    /// What is queued.
    pub found: Found,
}

/// Lanes and requests that a step of a search looks at: some tenths of a millisecond.
const LANES_PER_STEP: u32 = 32_768;
const REQUESTS_PER_STEP: usize = if cfg!(test) { 512 } else { 2_048 };

/// So often the search of a queue begins anew because that has changed.
const AGAIN_MAX: u32 = 64;

impl UrlSearch {
    /// Whether nothing of the URL's origin is in use, so that it is not queued in memory.
    pub fn is_over(&self) -> bool {
        self.origins.is_empty()
    }

    /// Whether a queue changed so often that the URL may be in it although it was not found.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure
    }
}

impl Frontier {
    /// Begins the search for a queued URL.
    pub fn search(&self, url: &CrawlUrl) -> UrlSearch {
        let origins = self.origins_for(url);
        let first = origins.iter().map(|number| self.origins.get(*number).lane);
        let first: Vec<LaneId> = first.filter(|lane| *lane != NO_LANE).collect();
        UrlSearch {
            target: url.request_target().to_owned(),
            is_in_first: true,
            lane: 0,
            cursor: Cursor::default(),
            origins,
            first,
            left: self.left.count(),
            rebuilt: self.rebuilt.count(),
            again: 0,
            is_unsure: false,
        }
    }

    /// The origins of a URL that are in use, one for each route.
    pub fn origins_for(&self, url: &CrawlUrl) -> Vec<u32> {
        let host = self.hosts.find(url.host_str());
        let key = |host| (host, url.port(), url.is_https());
        host.map_or_else(Vec::new, |host| self.origins.numbers_of(key(host)))
    }

    /// The first lane of a URL's origin, if there is one.
    pub fn first_lane_for(&self, url: &CrawlUrl) -> Option<LaneId> {
        let numbers = self.origins_for(url).into_iter();
        let mut lanes = numbers.map(|number| self.origins.get(number).lane);
        lanes.find(|lane| *lane != NO_LANE)
    }

    /// Goes on with the search for a URL; `Some` once it is over, with the URL if it was found. It is found if it was in
    /// one queue from the first step to the last, unless the search is unsure.
    pub fn advance_search(
        &self,
        url: &CrawlUrl,
        search: &mut UrlSearch,
    ) -> Option<Option<QueuedUrl>> {
        // The number of an origin that is not in use any more may be another's by now.
        search.origins = self.origins_for(url);
        if search.is_over() {
            return Some(None);
        }
        let found = self.search_on(search);
        search.left = self.left.count();
        search.rebuilt = self.rebuilt.count();
        found
    }

    /// One step.
    fn search_on(&self, search: &mut UrlSearch) -> Option<Option<QueuedUrl>> {
        let mut left = REQUESTS_PER_STEP;
        if search.is_in_first {
            while let Some(lane) = search.first.get(search.lane as usize).copied() {
                let slot = &self.lanes[lane.0 as usize];
                if slot.state == LaneState::Closed || !search.origins.contains(&slot.origin) {
                    // Its number may be another lane's by now.
                    (search.lane, search.cursor) = (search.lane + 1, Cursor::default());
                    continue;
                }
                match self.search_lane(lane, search, &mut left) {
                    None => return None,
                    Some(Some(found)) => return Some(Some(found)),
                    Some(None) => search.lane += 1,
                }
            }
            let lanes = search.first.len() as u32;
            let users = search.origins.iter();
            let users: u32 = users.map(|number| self.origins.get(*number).users).sum();
            if users <= lanes {
                // There are no other lanes.
                return Some(None);
            }
            (search.is_in_first, search.lane) = (false, 0);
        }
        for _ in 0..LANES_PER_STEP {
            let Some(slot) = self.lanes.get(search.lane as usize) else {
                return Some(None);
            };
            if slot.state == LaneState::Closed || !search.origins.contains(&slot.origin) {
                search.cursor = Cursor::default();
            } else {
                match self.search_lane(LaneId(search.lane), search, &mut left) {
                    None => return None,
                    Some(Some(found)) => return Some(Some(found)),
                    Some(None) => {}
                }
            }
            search.lane += 1;
        }
        None
    }

    /// Searches the queue of a lane; `Some` once that is over.
    fn search_lane(
        &self,
        lane: LaneId,
        search: &mut UrlSearch,
        left: &mut usize,
    ) -> Option<Option<QueuedUrl>> {
        let is_begun = search.cursor != Cursor::default();
        let has_moved = search.cursor.is_among_unsorted() && self.left.has(lane, search.left)
            || is_begun && self.rebuilt.has(lane, search.rebuilt);
        if has_moved {
            search.again += 1;
            search.is_unsure |= search.again > AGAIN_MAX;
            if !search.is_unsure {
                search.cursor = Cursor::default();
            }
        }
        let queue = &self.lanes[lane.0 as usize].queue;
        let (found, is_over) = queue.find(&search.target, &mut search.cursor, left);
        if let Some(found) = found {
            return Some(Some(QueuedUrl { lane, found }));
        }
        if is_over {
            search.cursor = Cursor::default();
        }
        is_over.then_some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{ScopeId, ScopeSet};
    use crate::base::rng::Rng;
    use crate::base::secret::Secret;
    use crate::base::time::Instant;
    use crate::frontier::job::Job;
    use crate::frontier::lanes::{Next, Removal};
    use crate::frontier::settings::FrontierSettings;

    fn job(id: u64, priority: i32) -> Job {
        let url = CrawlUrl::parse(&format!("http://a.test/{id}")).expect("a URL");
        Job {
            priority,
            ..Job::seed(id, url)
        }
    }

    fn push(frontier: &mut Frontier, job: Job) {
        let scopes = ScopeSet::unordered([ScopeId(0)]);
        let query = frontier.lane_query(&job);
        let lane = match (query.candidate, frontier.lane_for(query, &scopes)) {
            (Some(lane), _) | (None, Ok(lane)) => lane,
            (None, Err(new)) => {
                frontier.open_lane(new, LaneId(0));
                LaneId(0)
            }
        };
        frontier.push(lane, job);
    }

    #[test]
    fn a_request_that_stays_in_its_queue_is_found_while_others_come_and_leave() {
        let (mut found, mut began_again) = (0, 0);
        for seed in 0..200 {
            let mut rng = Rng::from_seed(seed);
            let settings = FrontierSettings {
                robots_obey: false,
                ..FrontierSettings::default()
            };
            let mut frontier = Frontier::new(settings, &Secret::from_seed(seed));
            let count = 2 + rng.below(3000);
            let levels = 1 + rng.below(4);
            // All others rank above the first: they are out of order.
            push(&mut frontier, job(1, 0));
            for id in 2..count {
                push(&mut frontier, job(id, 1 + rng.below(levels) as i32));
            }
            // The last place of a heap is the one that changes when another leaves.
            push(&mut frontier, job(count, 1));
            let wanted = match rng.chance(0.5) {
                true => count,
                false => 1 + rng.below(count),
            };
            let url = job(wanted, 0).url;
            let mut search = frontier.search(&url);
            let mut next = count;
            let mut has_left = false;
            let outcome = loop {
                if let Some(outcome) = frontier.advance_search(&url, &mut search) {
                    break outcome;
                }
                for _ in 0..rng.below(8).saturating_sub(5) {
                    next += 1;
                    push(&mut frontier, job(next, rng.below(levels + 1) as i32));
                }
                let mut popped = Vec::new();
                frontier.released(LaneId(0), Instant::START);
                for _ in 0..rng.below(6).saturating_sub(3) {
                    let Next::Send(job) = frontier.next(LaneId(0), Instant::START) else {
                        break;
                    };
                    popped.push(job);
                }
                if rng.chance(0.1) {
                    let mut removal = Removal::default();
                    let is_out = |root: u64| root.is_multiple_of(97) && root != wanted;
                    while !frontier.advance_removal(&mut removal, is_out, |_| None).1 {}
                }
                has_left |= popped.iter().any(|job| job.id == wanted);
                for job in popped {
                    if rng.chance(0.5) {
                        push(&mut frontier, job);
                    }
                }
            };
            let is_known = outcome.is_some() || has_left || search.is_unsure();
            assert!(is_known, "seed {seed}: {wanted} of {count}");
            found += usize::from(outcome.is_some());
            began_again += search.again;
        }
        assert!(found > 150 && began_again > 100, "{found} {began_again}");
    }
}
