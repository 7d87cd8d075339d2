//! In which mixed line each lane waits, if in any.

use crate::base::ids::ScopeId;

/// For each lane the scope of its line, and a number by which an entry of the line is void once the lane has left
/// it. Eight bytes a lane, in pages that are made when one of their lanes is in such a line.
#[derive(Debug, Default)]
pub(super) struct Places {
    pages: Vec<Option<Box<[Place; PAGE]>>>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    scope: ScopeId,
    /// Twice the number of times that the lane entered a line, and 1 while it is in one.
    turns: u32,
}

const PAGE: usize = 1024;

const NOWHERE: Place = Place {
    scope: ScopeId(u32::MAX),
    turns: 0,
};

impl Places {
    /// A lane enters the line of a scope. Returns the number of its entry.
    pub fn enter(&mut self, lane: u32, scope: ScopeId) -> u32 {
        let (page, index) = (lane as usize / PAGE, lane as usize % PAGE);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([NOWHERE; PAGE]));
        let turns = (page[index].turns | 1).wrapping_add(2);
        page[index] = Place { scope, turns };
        turns
    }

    /// A lane leaves its line; returns the scope of that, if it is in one.
    pub fn leave(&mut self, lane: u32) -> Option<ScopeId> {
        let (page, index) = (lane as usize / PAGE, lane as usize % PAGE);
        let place = &mut self.pages.get_mut(page)?.as_mut()?[index];
        let is_in_line = place.turns & 1 == 1;
        place.turns &= !1;
        is_in_line.then_some(place.scope)
    }

    /// Whether an entry with this number is that of the lane.
    pub fn is_current(&self, lane: u32, entry: u32) -> bool {
        let (page, index) = (lane as usize / PAGE, lane as usize % PAGE);
        let page = self.pages.get(page).and_then(Option::as_ref);
        page.is_some_and(|page| page[index].turns == entry)
    }

    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let pages = self.pages.iter().flatten().count();
        pages * size_of::<[Place; PAGE]>() + self.pages.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_void_once_its_lane_has_left_or_entered_again() {
        let mut places = Places::default();
        assert_eq!(places.leave(7), None);
        let first = places.enter(70_000, ScopeId(3));
        assert!(places.is_current(70_000, first) && !places.is_current(70_001, first));
        assert_eq!(places.leave(70_000), Some(ScopeId(3)));
        assert_eq!(places.leave(70_000), None);
        assert!(!places.is_current(70_000, first));
        let second = places.enter(70_000, ScopeId(4));
        assert!(places.is_current(70_000, second) && !places.is_current(70_000, first));
        assert!(places.bytes() < 16_000, "one page");
    }
}
