//! What was learned: the newest fact about each thing.

use crate::base::named::{NamedValue, NamedValues};
use crate::state::record::{About, Fact, Learned};

/// The newest fact about each thing.
///
/// A robots.txt can be fetched again: of those at most 512 MiB are kept, the newest.
#[derive(Debug, Default)]
pub struct Facts {
    /// By what they are about.
    kinds: [NamedValues; About::ALL.len()],
    /// The Crawl-delay of each host, in ns, in place of a time.
    crawl_delays: NamedValues,
}

/// Bytes of a record without name and value: the head of its frame, the kind, the time, and lengths.
const RECORD: usize = 22;

/// Facts of a kind are settled when they take so much memory: newer ones may have replaced most of them.
const UNSETTLED_MAX: usize = if cfg!(test) { 3000 } else { 128 << 20 };

/// Most bytes of facts about a robots.txt.
const ROBOTS_BYTES_MAX: usize = 512 << 20;

impl Facts {
    /// Adds a fact that is newer than those before.
    pub fn add(&mut self, about: About, named: NamedValue<'_>) {
        self.add_within(about, named, ROBOTS_BYTES_MAX);
    }

    pub(super) fn add_within(
        &mut self,
        about: About,
        named: NamedValue<'_>,
        robots_bytes_max: usize,
    ) {
        // One that has nothing to say is kept: there may be an older one in another segment.
        let kind = self.kind_mut(about);
        kind.insert(named);
        if about == About::Robots {
            drop_oldest(kind, robots_bytes_max);
        }
    }

    /// Adds what was learned after all before.
    pub fn learn(&mut self, learned: Learned<'_>) {
        match learned {
            Learned::Fact(about, named) => self.add(about, named),
            Learned::CrawlDelay(named) => self.crawl_delays.insert(named),
        }
    }

    /// As [`Facts::learn`]; [`Facts::settle`] must come before all else.
    pub fn learn_unsettled(&mut self, learned: Learned<'_>) {
        match learned {
            Learned::Fact(about, named) => {
                let kind = self.kind_mut(about);
                kind.add(named);
                let is_bounded = about != About::Robots || kind.bytes() <= ROBOTS_BYTES_MAX;
                if kind.unsettled_memory() >= UNSETTLED_MAX || !is_bounded {
                    self.settle_kind(about);
                }
            }
            Learned::CrawlDelay(named) => {
                self.crawl_delays.add(named);
                if self.crawl_delays.unsettled_memory() >= UNSETTLED_MAX {
                    self.crawl_delays.settle();
                }
            }
        }
    }

    /// Ends the adding of facts.
    pub fn settle(&mut self) {
        self.crawl_delays.settle();
        About::ALL
            .into_iter()
            .for_each(|about| self.settle_kind(about));
    }

    fn settle_kind(&mut self, about: About) {
        let kind = self.kind_mut(about);
        kind.settle();
        if about == About::Robots {
            drop_oldest(kind, ROBOTS_BYTES_MAX);
        }
    }

    /// Adds facts of a newer segment.
    pub fn extend(&mut self, newer: Facts) {
        for (about, kind) in About::ALL.into_iter().zip(newer.kinds) {
            let own = self.kind_mut(about);
            match own.is_empty() {
                true => *own = kind,
                false => kind.iter().for_each(|named| self.add(about, named)),
            }
        }
        match self.crawl_delays.is_empty() {
            true => self.crawl_delays = newer.crawl_delays,
            false => {
                let newer = newer.crawl_delays.iter();
                newer.for_each(|named| self.crawl_delays.insert(named));
            }
        }
    }

    /// Bytes of their records, roughly.
    pub fn bytes_in_journal(&self) -> usize {
        let kinds = self.kinds.iter().chain([&self.crawl_delays]);
        kinds.map(|kind| kind.bytes() + RECORD * kind.len()).sum()
    }

    /// The facts of a kind; those without a value have nothing to say.
    pub fn kind(&self, about: About) -> &NamedValues {
        &self.kinds[place_of(about)]
    }

    /// The Crawl-delay of each host, in ns, in place of a time.
    pub fn crawl_delays(&self) -> &NamedValues {
        &self.crawl_delays
    }

    /// Removes them.
    pub fn take_crawl_delays(&mut self) -> NamedValues {
        std::mem::take(&mut self.crawl_delays)
    }

    /// Removes the facts of a kind.
    pub fn take_kind(&mut self, about: About) -> NamedValues {
        std::mem::take(self.kind_mut(about))
    }

    /// The facts of a kind that have something to say.
    pub fn about(&self, about: About) -> impl Iterator<Item = NamedValue<'_>> {
        let of_kind = self.kind(about).iter();
        of_kind.filter(|named| !named.value.is_empty())
    }

    /// All facts; those without a value have nothing to say.
    pub fn all(&self) -> impl Iterator<Item = Fact> {
        let kinds = About::ALL.into_iter().zip(&self.kinds);
        kinds.flat_map(|(about, kind)| {
            kind.iter().map(move |NamedValue { name, at, value }| Fact {
                about,
                name: name.to_owned(),
                at,
                value: value.to_owned(),
            })
        })
    }

    /// The facts that have something to say, in place of all.
    pub fn into_known(self) -> impl Iterator<Item = Fact> {
        self.into_all().filter(|fact| !fact.value.is_empty())
    }

    /// As [`Facts::all`], in place of all.
    pub(super) fn into_all(self) -> impl Iterator<Item = Fact> {
        let kinds = About::ALL.into_iter().zip(self.kinds);
        kinds.flat_map(|(about, kind)| {
            kind.into_values().map(move |(name, at, value)| Fact {
                about,
                name,
                at,
                value,
            })
        })
    }

    fn kind_mut(&mut self, about: About) -> &mut NamedValues {
        &mut self.kinds[place_of(about)]
    }
}

/// Drops the oldest of too many facts, some at a time: there may be millions.
fn drop_oldest(kind: &mut NamedValues, bytes_max: usize) {
    while kind.bytes() > bytes_max && kind.drop_first() {}
}

fn place_of(about: About) -> usize {
    let place = About::ALL.iter().position(|other| *other == about);
    place.expect("all are there")
}
