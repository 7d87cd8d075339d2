//! Origins that have no turn before a time, and which names an order may have that shortens their rest.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use crate::base::secret::Known;
use crate::base::time::Instant;

/// The origins that rest. There may be ten million, so no step moves, or looks at, more than one of them.
#[derive(Debug, Default)]
pub struct Rests {
    origins: BTreeMap<u64, Rest>,
    by_end: BTreeSet<(Instant, u64)>,
    /// Orders that may shorten rests, until each origin was looked at.
    reviews: Vec<Review>,
    /// Reviews look at the origins from this one on, in the order of their keys, and then at the first.
    next: u64,
    /// Number of reviews so far.
    begun: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Instant,
    scopes: ScopeNames,
    /// Reviews up to this number were begun before it.
    after: u64,
}

#[derive(Clone, Copy, Debug)]
struct Review {
    number: u64,
    about: ScopeNames,
    /// Where it began.
    from: u64,
    /// It goes on with the first origins.
    has_wrapped: bool,
}

/// Names of scopes, and the patterns that match them, in 64 bits: three bits each. Names that are not among them may
/// seem to be, in about one of a hundred cases for a host in three labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeNames(u64);

/// An odd number with many bits: 2⁶⁴ by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Most orders whose origins are looked for at once. Beyond it all rests end.
const REVIEWS_MAX: usize = 16;

impl ScopeNames {
    /// An order about these is about all.
    pub const ANY: ScopeNames = ScopeNames(0);

    /// Adds the name of a scope.
    pub fn add(&mut self, name: &str) {
        self.add_word(name);
        if name.starts_with("ip/") {
            self.add_word("ip/*");
        } else if !name.contains('/') {
            let host = name.split_once(':').map_or(name, |(host, _port)| host);
            let dots = host.match_indices('.');
            dots.for_each(|(dot, _)| self.add_word(&host[dot..]));
        }
    }

    /// The name that an order is about: that of a scope, a pattern, or `default`.
    pub fn of_order(name: &str) -> Self {
        let mut names = ScopeNames::ANY;
        match name.strip_prefix('*') {
            // Which names are those of domains only the public suffix list says.
            _ if name == "default" || name == "domain/*" => {}
            Some(domain) => names.add_word(domain),
            None => names.add_word(name),
        }
        names
    }

    fn add_word(&mut self, word: &str) {
        // Its upper bits depend on all of the hash.
        let hash = Known::default().hash_one(word).wrapping_mul(SPREAD);
        for place in 1..=3 {
            self.0 |= 1 << (hash >> (64 - place * 6) & 63);
        }
    }

    /// Whether all of these names may be among them.
    fn may_have(self, others: ScopeNames) -> bool {
        self.0 & others.0 == others.0
    }
}

impl Rests {
    /// An origin rests until this time, under scopes of these names.
    pub fn insert(&mut self, origin: u64, until: Instant, scopes: ScopeNames) {
        let mut rest = Rest {
            until,
            scopes,
            after: self.begun,
        };
        if let Some(before) = self.origins.get(&origin) {
            // Of another lane.
            rest.scopes.0 |= before.scopes.0;
            self.by_end.remove(&(before.until, origin));
        }
        self.origins.insert(origin, rest);
        self.by_end.insert((until, origin));
    }

    /// Whether an origin rests.
    pub fn has(&self, origin: u64) -> bool {
        self.origins.contains_key(&origin)
    }

    /// Until when an origin rests.
    pub fn until(&self, origin: u64) -> Option<Instant> {
        Some(self.origins.get(&origin)?.until)
    }

    /// How long scopes of this name wait may have changed: the rests of origins under them end, as far as they have
    /// begun. Each is looked at by [`Rests::poll`].
    pub fn review(&mut self, mut about: ScopeNames) {
        if self.origins.is_empty() {
            return;
        }
        if self.reviews.len() >= REVIEWS_MAX {
            self.reviews.clear();
            about = ScopeNames::ANY;
        }
        self.begun += 1;
        self.reviews.push(Review {
            number: self.begun,
            about,
            from: self.next,
            has_wrapped: false,
        });
    }

    /// Looks at the next origin. `Some` with one whose rest is over; `Some(None)`: it rests on; `None`: there is none to
    /// look at.
    pub fn poll(&mut self, now: Instant) -> Option<Option<u64>> {
        if !self.reviews.is_empty() {
            return Some(self.review_next());
        }
        let (until, origin) = *self.by_end.first()?;
        (until <= now).then(|| {
            self.remove(origin);
            Some(origin)
        })
    }

    /// Reviews the next origin; returns it if its rest ends.
    fn review_next(&mut self) -> Option<u64> {
        let next = self.origins.range(self.next..).next();
        let Some((origin, rest)) = next.map(|(origin, rest)| (*origin, *rest)) else {
            self.wrap();
            return None;
        };
        let is_over = |review: &Review| review.has_wrapped && review.from <= origin;
        self.reviews.retain(|review| !is_over(review));
        match origin.checked_add(1) {
            Some(next) => self.next = next,
            None => self.wrap(),
        }
        let ends = self.reviews.iter().any(|review| {
            let was_there = rest.after < review.number;
            was_there && rest.scopes.may_have(review.about)
        });
        ends.then(|| {
            self.remove(origin);
            origin
        })
    }

    fn wrap(&mut self) {
        self.next = 0;
        self.reviews.retain_mut(|review| {
            let was_wrapped = std::mem::replace(&mut review.has_wrapped, true);
            review.from > 0 && !was_wrapped
        });
    }

    fn remove(&mut self, origin: u64) {
        if let Some(rest) = self.origins.remove(&origin) {
            self.by_end.remove(&(rest.until, origin));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ORIGINS: u64 = 2_000;

    fn names(scopes: &[&str]) -> ScopeNames {
        let mut names = ScopeNames::default();
        scopes.iter().for_each(|scope| names.add(scope));
        names
    }

    fn resting() -> Rests {
        let mut rests = Rests::default();
        for origin in 0..ORIGINS {
            let host = format!("h{origin}.site{}.example.com", origin % 10);
            let until = Instant::START + Duration::from_secs(1_000_000 + origin);
            rests.insert(origin * (u64::MAX / (ORIGINS - 1)), until, names(&[&host]));
        }
        rests
    }

    /// The origins whose rests end at the beginning of time, and how many were looked at.
    fn ended(rests: &mut Rests) -> (Vec<u64>, usize) {
        let mut steps = 0;
        let polled = std::iter::from_fn(|| rests.poll(Instant::START));
        let ended = polled.inspect(|_| steps += 1).flatten();
        let mut ended: Vec<u64> = ended.collect();
        ended.sort_unstable();
        (ended, steps)
    }

    #[test]
    fn an_order_ends_the_rests_of_the_origins_that_it_covers_and_of_few_others() {
        let check = |order: &str, covered: usize| {
            let mut rests = resting();
            rests.review(ScopeNames::of_order(order));
            let (ended, steps) = ended(&mut rests);
            let beyond = ended.len().checked_sub(covered);
            let few = ORIGINS as usize / 20;
            let count = ended.len();
            assert!(
                beyond.is_some_and(|beyond| beyond <= few),
                "{order}: {count} of {covered}"
            );
            assert!(steps <= ORIGINS as usize + 2, "{steps}");
            assert_eq!(rests.origins.len(), ORIGINS as usize - ended.len());
            assert_eq!(rests.by_end.len(), rests.origins.len());
        };
        check("default", 2_000);
        check("domain/*", 2_000);
        check("*.example.com", 2_000);
        check("*.site3.example.com", 200);
        check("h7.site7.example.com", 1);
        check("other.test", 0);
        check("*.test", 0);
        check("ip/*", 0);
    }

    #[test]
    fn names_are_those_of_the_scopes_their_ports_and_addresses() {
        let check = |scope: &str, order: &str| {
            let order = ScopeNames::of_order(order);
            names(&["key-0", scope]).may_have(order)
        };
        assert!(check("a.example.com:8080", "*.example.com"));
        assert!(check("a.example.com:8080", "a.example.com:8080"));
        assert!(check("ip/192.0.2.1", "ip/*") && check("ip/192.0.2.1", "ip/192.0.2.1"));
        assert!(check("host/a.test", "host/a.test") && check("x", "key-0"));
        assert!(!check("ip/192.0.2.1", "*.2.1"));
        assert!(!check("a.example.com", "a.example.org"));
    }

    #[test]
    fn orders_during_a_review_look_at_each_origin_once_and_beyond_a_bound_end_all() {
        let mut rests = resting();
        rests.review(ScopeNames::of_order("*.site1.example.com"));
        let mut found = Vec::new();
        for _ in 0..700 {
            found.extend(rests.poll(Instant::START).flatten());
        }
        rests.review(ScopeNames::of_order("*.site2.example.com"));
        let (others, steps) = ended(&mut rests);
        found.extend(others);
        assert!((400..500).contains(&found.len()), "{}", found.len());
        assert!((1_900..2_100).contains(&steps), "{steps}");
        for number in 0..=REVIEWS_MAX {
            rests.review(ScopeNames::of_order(&format!("{number}.test")));
        }
        let (others, _) = ended(&mut rests);
        assert_eq!(found.len() + others.len(), ORIGINS as usize);
        assert_eq!(rests.poll(Instant::START), None);
    }
}
