//! What was learned: the newest fact about each thing.

use std::collections::BTreeMap;

use crate::state::record::{About, Fact};

/// The newest fact about each thing.
///
/// A robots.txt can be fetched again: of those at most 512 MiB are kept, the newest.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    all: BTreeMap<(About, String), (u64, Vec<u8>)>,
    /// Bytes of those about a robots.txt, those that were replaced included.
    pub(super) robots_bytes: usize,
}

/// Bytes of a record without name and value: the head of its frame, the kind, the time, and lengths.
const RECORD: usize = 22;

/// Most bytes of facts about a robots.txt.
const ROBOTS_BYTES_MAX: usize = 512 << 20;

impl Facts {
    /// Adds a fact that is newer than those before.
    pub fn add(&mut self, fact: Fact) {
        self.add_within(fact, ROBOTS_BYTES_MAX);
    }

    pub(super) fn add_within(&mut self, fact: Fact, robots_bytes_max: usize) {
        if fact.about == About::Robots {
            self.robots_bytes += fact.name.len() + fact.value.len();
        }
        // One that has nothing to say is kept: there may be an older one in another segment.
        let key = (fact.about, fact.name);
        self.all.insert(key, (fact.at, fact.value));
        if self.robots_bytes > robots_bytes_max {
            self.drop_old_robots(robots_bytes_max / 2);
        }
    }

    /// Drops the oldest facts about a robots.txt, until those that are left have at most so many bytes.
    fn drop_old_robots(&mut self, bytes_max: usize) {
        let robots = || {
            let all = self.all.iter();
            all.filter(|((about, _), _)| *about == About::Robots)
        };
        let sizes = robots().map(|((_, name), (at, value))| (*at, name.len() + value.len()));
        let mut sizes: Vec<(u64, usize)> = sizes.collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        let newest = sizes.iter().take_while(|(_, size)| {
            bytes += size;
            bytes <= bytes_max
        });
        let oldest = newest.last().map_or(u64::MAX, |(at, _)| *at);
        self.all
            .retain(|(about, _), (at, _)| *about != About::Robots || *at >= oldest);
        let left = sizes.iter().filter(|(at, _)| *at >= oldest);
        self.robots_bytes = left.map(|(_, size)| size).sum();
    }

    /// Adds facts of a newer segment.
    pub fn extend(&mut self, newer: Facts) {
        self.all.extend(newer.all);
        self.robots_bytes += newer.robots_bytes;
    }

    /// Bytes of their records, roughly.
    pub fn bytes_in_journal(&self) -> usize {
        let all = self.all.iter();
        all.map(|((_, name), (_, value))| name.len() + value.len() + RECORD)
            .sum()
    }

    /// The facts of a kind that have something to say: name, time and value.
    pub fn about(&self, about: About) -> impl Iterator<Item = (&str, u64, &[u8])> {
        let of_kind = self.all.iter().filter(move |((kind, _), _)| *kind == about);
        let known = of_kind.filter(|(_, (_, value))| !value.is_empty());
        known.map(|((_, name), (at, value))| (name.as_str(), *at, value.as_slice()))
    }

    /// All facts, in order; those without a value have nothing to say.
    pub fn all(&self) -> impl Iterator<Item = Fact> {
        self.all.iter().map(|((about, name), (at, value))| Fact {
            about: *about,
            name: name.clone(),
            at: *at,
            value: value.clone(),
        })
    }

    /// The facts that have something to say, in order, in place of all.
    pub fn into_known(self) -> impl Iterator<Item = Fact> {
        self.into_all().filter(|fact| !fact.value.is_empty())
    }

    /// As [`Facts::all`], in place of all.
    pub(super) fn into_all(self) -> impl Iterator<Item = Fact> {
        let all = self.all.into_iter();
        all.map(|((about, name), (at, value))| Fact {
            about,
            name,
            at,
            value,
        })
    }
}
