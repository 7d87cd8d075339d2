//! Connections that fetched a robots.txt and wait for the first page of their host: each takes a file for
//! [`RESERVED_FOR`] at the most, and a host begins only while there is one.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::ids::LaneId;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// The lanes whose robots.txt is being fetched, or whose first page is to come next.
#[derive(Debug)]
pub(super) struct FirstPages {
    /// Connections that may be open; `usize::MAX`: any number.
    files: usize,
    /// Connections among them that may wait; 0: none is kept.
    reserved_max: usize,
    /// Requests of all lanes in flight.
    in_flight: usize,
    /// Lanes that have a file, and until when.
    lanes: HashMap<LaneId, Reserved, Secret>,
    /// Lanes among them whose robots.txt is in flight.
    asking: usize,
    /// When reservations end, in order. An entry is void if that of its lane ends at another time by now.
    ends: VecDeque<(Instant, LaneId)>,
    /// A lane could not begin: it waits for a file.
    is_awaited: bool,
    /// Since then a file has become free.
    is_freed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reserved {
    until: Instant,
    /// Its robots.txt is in flight.
    is_asking: bool,
}

/// A connection waits for so long after its robots.txt was asked for: twice the longest gap for which it pays.
const RESERVED_FOR: Duration = Duration::from_secs(4);

impl FirstPages {
    /// No connection is kept, so no file is reserved.
    pub fn new(secret: &Secret) -> Self {
        FirstPages {
            files: usize::MAX,
            reserved_max: 0,
            in_flight: 0,
            lanes: HashMap::with_hasher(*secret),
            asking: 0,
            ends: VecDeque::new(),
            is_awaited: false,
            is_freed: false,
        }
    }

    /// So many connections may be open, and so many of them may be idle.
    pub fn set_files(&mut self, files: usize, kept_max: usize) {
        self.files = files;
        // Others need connections, too.
        let kept = kept_max.min(files);
        self.reserved_max = match kept < files / 2 && files != usize::MAX {
            // Hosts would wait for connections to be kept, not for files.
            true => 0,
            false => kept - kept / 4,
        };
    }

    /// Whether connections are kept for first pages.
    pub fn is_on(&self) -> bool {
        self.reserved_max > 0
    }

    /// Whether there is a file for one more host, beside `others` that begin before it.
    pub fn may_begin(&self, others: usize) -> bool {
        if !self.is_on() {
            return true;
        }
        let in_flight = self.in_flight - self.asking;
        // Requests in flight take three quarters of the files at the most: new hosts begin however busy the
        // others are.
        let free = self.files.saturating_sub(in_flight).max(self.files / 4);
        self.lanes.len() + others < free.min(self.reserved_max).max(1)
    }

    /// A lane asks for its host's robots.txt: the connection is kept for its first page. Returns false if
    /// there is no file for that, so that it is not to ask.
    pub fn begin(&mut self, lane: LaneId, now: Instant) -> bool {
        if !self.is_on() {
            return true;
        }
        self.end(lane);
        if !self.may_begin(0) {
            self.is_awaited = true;
            return false;
        }
        let until = now + RESERVED_FOR;
        self.asking += 1;
        let reserved = Reserved {
            until,
            is_asking: true,
        };
        self.lanes.insert(lane, reserved);
        self.ends.push_back((until, lane));
        true
    }

    /// A request of a lane is in flight.
    pub fn add_in_flight(&mut self) {
        self.in_flight += 1;
    }

    /// A request of a lane is no longer in flight.
    pub fn subtract_in_flight(&mut self) {
        self.in_flight -= 1;
        self.note_freed();
    }

    /// The robots.txt of a lane is no longer in flight.
    pub fn end_asking(&mut self, lane: LaneId) {
        if let Some(reserved) = self.lanes.get_mut(&lane)
            && std::mem::take(&mut reserved.is_asking)
        {
            self.asking -= 1;
        }
    }

    /// Until when a connection waits for the first page of a lane; `None` if none does.
    pub fn reserved_until(&self, lane: LaneId) -> Option<Instant> {
        match self.lanes.is_empty() {
            true => None,
            false => self.lanes.get(&lane).map(|reserved| reserved.until),
        }
    }

    /// No connection waits for the first page of a lane any more.
    pub fn end(&mut self, lane: LaneId) {
        if !self.lanes.is_empty()
            && let Some(reserved) = self.lanes.remove(&lane)
        {
            self.asking -= usize::from(reserved.is_asking);
            self.note_freed();
        }
    }

    fn note_freed(&mut self) {
        self.is_freed |= self.is_awaited;
    }

    /// A lane waits for a file.
    pub fn wait(&mut self) {
        self.is_awaited = true;
    }

    /// Whether a lane waited for a file, and there may be one now.
    pub fn is_freed(&self) -> bool {
        self.is_freed
    }

    /// Lanes that wait for a file are to be activated, as far as they may begin.
    pub fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_freed) {
            self.is_awaited = false;
        }
    }

    /// When [`expire`](Self::expire) is due, if a lane waits for a file.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.is_awaited && !self.is_freed {
            true => self.ends.front().map(|(until, _)| *until),
            false => None,
        }
    }

    /// Ends what was reserved for long enough.
    pub fn expire(&mut self, now: Instant) {
        while let Some((until, lane)) = self.ends.front().copied() {
            if until > now {
                return;
            }
            self.ends.pop_front();
            if self.reserved_until(lane) == Some(until) {
                self.end(lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    fn first_pages(files: usize, kept: usize) -> FirstPages {
        let mut first_pages = FirstPages::new(&Secret::from_seed(1));
        first_pages.set_files(files, kept);
        first_pages
    }

    /// How many lanes begin at once.
    fn begin_all(first_pages: &mut FirstPages) -> u32 {
        let begin = |lane: &u32| {
            let begins = first_pages.begin(LaneId(*lane), at(0));
            begins.then(|| first_pages.add_in_flight());
            begins
        };
        (0..1000).take_while(begin).count() as u32
    }

    #[test]
    fn as_many_hosts_begin_as_connections_may_wait() {
        assert_eq!(begin_all(&mut first_pages(100, 1000)), 75);
        assert_eq!(begin_all(&mut first_pages(100, 60)), 45);
        assert_eq!(begin_all(&mut first_pages(100, 20)), 1000, "few are kept");
        assert_eq!(begin_all(&mut first_pages(1, 1)), 1);
        assert_eq!(begin_all(&mut first_pages(100, 0)), 1000, "none is kept");
        let mut busy = first_pages(100, 1000);
        (0..60).for_each(|_| busy.add_in_flight());
        assert_eq!(begin_all(&mut busy), 40);
        let mut full = first_pages(100, 1000);
        (0..100).for_each(|_| full.add_in_flight());
        assert_eq!(begin_all(&mut full), 25, "a quarter of the files");
    }

    #[test]
    fn a_file_is_free_once_its_lane_is_done_or_after_four_seconds() {
        let mut first_pages = first_pages(4, 4);
        assert_eq!(begin_all(&mut first_pages), 3);
        assert_eq!(first_pages.next_wake(), Some(at(4000)));
        first_pages.end_asking(LaneId(0));
        first_pages.subtract_in_flight();
        assert!(first_pages.is_freed() && first_pages.next_wake().is_none());
        first_pages.end_wait();
        assert!(!first_pages.may_begin(0), "it waits for the first page");
        first_pages.end(LaneId(0));
        assert!(first_pages.may_begin(0) && !first_pages.may_begin(1));
        assert!(first_pages.begin(LaneId(7), at(1000)));
        first_pages.add_in_flight();
        assert!(!first_pages.begin(LaneId(8), at(1000)));
        first_pages.expire(at(3999));
        assert!(!first_pages.may_begin(0));
        first_pages.expire(at(4000));
        (0..2).for_each(|_| first_pages.subtract_in_flight());
        assert!(first_pages.may_begin(1) && !first_pages.may_begin(2));
        assert_eq!(first_pages.reserved_until(LaneId(7)), Some(at(5000)));
        first_pages.expire(at(5000));
        assert_eq!((first_pages.lanes.len(), first_pages.asking), (0, 0));
        assert!(first_pages.ends.is_empty());
    }
}
