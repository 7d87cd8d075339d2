//! How long a scope's requests keep its server busy: the usual span, of a mix that may have several.
//!
//! In flight is rate × busy time (Little's law), so a pace that keeps N in flight on average needs
//! the *mean* busy time. A plain mean follows every outlier; a median knows nothing of the slow
//! half of a site. So spans are kept by *class*, each with its own mean and its share of the
//! replies:
//!
//! - A class counts once it was seen [`CONFIRMED`] times within [`FORGOTTEN`] replies. One outlier
//!   costs nothing.
//! - Shares move slowly. Batches of known classes that take turns hardly move the mean.
//! - A run of spans that no known class explains is a change of the server. A rise is followed
//!   after [`RISE`] replies, a fall after [`FALL`].
//! - Quick replies in a row over [`FALL_TIME`] are a change whatever is known: where the pace is
//!   slow, counting replies takes too long.

use std::time::Duration;

use crate::base::time::Instant;

/// The classes of one kind of span, by seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Mix {
    classes: [Class; CLASSES],
    /// Spans since the last change of the server, as far as shares need to know.
    spans: u8,
    run: Run,
    /// How many spans like a cache's came in a row.
    cached: u8,
    /// Those are told apart.
    caches: bool,
}

/// Spans of about one length.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    mean: f32,
    share: f32,
    /// Spans seen of it; 0 means that there is no such class.
    seen: u8,
    /// Spans seen of others since.
    idle: u8,
    /// None of them was a success: how long we waited, and not how long the server takes.
    failed: bool,
}

/// Spans in a row on one side of what is usual.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    side: Side,
    length: u8,
    /// Some of them were of a class that was known before.
    known: bool,
    /// What was usual before the first.
    usual: f32,
    /// When the first came.
    began: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    Below,
    #[default]
    Within,
    Above,
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learned {
    /// The first of all: one is no evidence that a server is slow.
    First,
    /// It is counted.
    Counted,
    /// It stands apart from all that is known, and waits for more of its kind.
    Outlier,
    /// Far too quick beside the others: a cache answered, and the origin remains unseen.
    LikeACache,
    /// With those before it, it is a change of the server: what was usual is no more.
    Changed,
}

impl Mix {
    /// A mix of latencies: spans that only a cache can explain are told apart.
    pub fn of_heads() -> Self {
        Mix {
            caches: true,
            ..Mix::default()
        }
    }

    /// Whether nothing is known yet.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.seen == 0)
    }

    /// The mean span, in seconds, by what counts. `None` before the first.
    pub fn usual(&self) -> Option<f32> {
        let slowest = self.slowest();
        let counted = || {
            self.classes
                .iter()
                .filter(|class| class.seen >= CONFIRMED && !is_like_a_cache(class.mean, slowest))
        };
        let shares: f32 = counted().map(|class| class.share).sum();
        if shares > 0.0 {
            let busy: f32 = counted().map(|class| class.share * class.mean).sum();
            return Some(busy / shares);
        }
        // Too few to know classes from outliers: the lower median.
        let mut means: Vec<f32> = self.seen().map(|class| class.mean).collect();
        means.sort_by(f32::total_cmp);
        let middle = means.len().checked_sub(1)? / 2;
        means.get(middle).copied()
    }

    /// Learns one span, of what was a success or none.
    pub fn learn(&mut self, span: Duration, success: bool, now: Instant) -> Learned {
        let span = span.as_secs_f32();
        if self.caches && is_like_a_cache(span, self.slowest()) {
            self.cached += 1;
            if self.cached < CACHED {
                return Learned::LikeACache;
            }
            // So many in a row are no cache's luck: the server became quick.
            *self = Mix::of_heads();
        }
        self.cached = 0;

        let first = self.is_empty();
        let usual = self.usual().unwrap_or(span);
        let index = self.class_of(span);
        let known = self.classes[index].seen >= self.run.length.saturating_add(CONFIRMED);
        self.count(index, span, success);

        self.run.add(span, usual, known, now);
        if self.run.is_change(now) {
            self.change(self.run.length);
            return Learned::Changed;
        }
        match self.classes[index].seen {
            _ if first => Learned::First,
            CONFIRMED.. => Learned::Counted,
            _ => Learned::Outlier,
        }
    }

    /// Whether the usual span is shorter than in `before`, by more than rounding.
    pub fn falls_from(&self, before: &Mix) -> bool {
        match (self.usual(), before.usual()) {
            (Some(now), Some(before)) => now < before * 0.9999,
            _ => false,
        }
    }

    /// The mean of the longest class that is remembered, outliers among them.
    pub fn longest(&self) -> f32 {
        self.seen()
            .fold(0.0, |longest, class| class.mean.max(longest))
    }

    fn seen(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| class.seen > 0)
    }

    /// The mean of the slowest class of successes that is more than outliers.
    fn slowest(&self) -> f32 {
        self.classes
            .iter()
            .filter(|class| class.seen >= CONFIRMED && !class.failed)
            .fold(0.0, |slowest, class| class.mean.max(slowest))
    }

    /// The class that `span` belongs to; where there is none, a place for a new one.
    fn class_of(&self, span: f32) -> usize {
        let distance = |class: &Class| (class.mean - span).abs();
        let near = (0..CLASSES)
            .filter(|&i| self.classes[i].seen > 0)
            .filter(|&i| side(span, self.classes[i].mean) == Side::Within)
            .min_by(|&a, &b| distance(&self.classes[a]).total_cmp(&distance(&self.classes[b])));
        // An empty place has no share; of others, who has the least is missed least.
        near.unwrap_or_else(|| {
            (0..CLASSES)
                .min_by(|&a, &b| {
                    let (a, b) = (&self.classes[a], &self.classes[b]);
                    let rank = |class: &Class| (class.seen > 0, class.seen >= CONFIRMED);
                    rank(a)
                        .cmp(&rank(b))
                        .then(a.share.total_cmp(&b.share))
                        .then(b.idle.cmp(&a.idle))
                })
                .expect("there are classes")
        })
    }

    fn count(&mut self, index: usize, span: f32, success: bool) {
        self.spans = (self.spans + 1).min(MEMORY);
        let step = 1.0 / f32::from(self.spans);
        for class in &mut self.classes {
            class.share *= 1.0 - step;
            class.idle = class.idle.saturating_add(1);
        }
        let class = &mut self.classes[index];
        if class.seen == 0 || side(span, class.mean) != Side::Within {
            // A new class, perhaps in the place of another.
            *class = Class {
                failed: true,
                ..Class::default()
            };
        }
        class.failed &= !success;
        class.seen = class.seen.saturating_add(1);
        class.idle = 0;
        class.share += step;
        class.mean += (span - class.mean) / f32::from(class.seen.min(WITHIN));
        for class in &mut self.classes {
            if class.idle >= FORGOTTEN {
                *class = Class::default();
            }
        }
    }

    /// Only the classes of the last `run` spans have a share from now on. The others remain known:
    /// when they come again, that is no change.
    fn change(&mut self, run: u8) {
        let kept: f32 = self.seen().filter(|c| c.idle < run).map(|c| c.share).sum();
        for class in self.classes.iter_mut().filter(|class| class.seen > 0) {
            if class.idle < run {
                class.share /= kept;
                class.seen = class.seen.max(CONFIRMED);
            } else {
                class.share = 0.0;
            }
        }
        self.spans = run;
        self.run = Run::default();
    }
}

impl Run {
    fn add(&mut self, span: f32, usual: f32, known: bool, now: Instant) {
        if self.length > 0 && side(span, self.usual) == self.side {
            self.length = self.length.saturating_add(1);
            self.known |= known;
        } else {
            let side = side(span, usual);
            *self = Run {
                side,
                length: u8::from(side != Side::Within),
                known,
                usual,
                began: now,
            };
        }
    }

    fn is_change(&self, now: Instant) -> bool {
        match self.side {
            Side::Within => false,
            Side::Above => self.length >= RISE && !self.known,
            Side::Below => {
                let lasted = now.saturating_since(self.began);
                (self.length >= FALL && !self.known) || (self.length >= RISE && lasted >= FALL_TIME)
            }
        }
    }
}

/// On which side of `usual` a span lies: within it is what chance and the clock's grain explain.
fn side(span: f32, usual: f32) -> Side {
    if span > usual * SPREAD + GRAIN {
        Side::Above
    } else if span < usual / SPREAD - GRAIN {
        Side::Below
    } else {
        Side::Within
    }
}

/// Whether `span` is too quick for a server whose slowest usual replies take `slowest`.
fn is_like_a_cache(span: f32, slowest: f32) -> bool {
    span < CACHE_LONGEST && span * CACHE_RATIO < slowest
}

/// Six classes, each a factor of 2.25 wide, span two decades.
const CLASSES: usize = 6;
/// So often a class was seen before it is more than outliers.
const CONFIRMED: u8 = 3;
/// A class of which none of so many spans was is forgotten. A batch may be as long.
const FORGOTTEN: u8 = 128;
/// Shares are a mean over about so many spans: batches of twenty move them by a sixth.
const MEMORY: u8 = 64;
/// A class's own length is a mean over about so many of its spans.
const WITHIN: u8 = 8;
/// So many slow replies in a row, of a kind not known, mean that the server became slower.
const RISE: u8 = 3;
/// So many quick ones mean that it became quicker. More than a rise needs, since speeding up by
/// mistake burdens others; and more than it takes to recognise a block that looks like a page.
const FALL: u8 = 12;
/// Quick replies for so long, at least [`RISE`] of them, mean the same even if their kind is known.
const FALL_TIME: Duration = Duration::from_secs(60);
/// A class reaches this factor to either side of its mean.
const SPREAD: f32 = 1.5;
/// Spans this close are the same, whatever their ratio, in seconds.
const GRAIN: f32 = 0.001;
/// A reply that a cache near the crawler gave takes less than this, in seconds; an origin's static
/// page seldom does, beside others that take
const CACHE_LONGEST: f32 = 0.010;
/// this many times as long.
const CACHE_RATIO: f32 = 20.0;
/// So many in a row that look like a cache's, without one that does not, are the server's own.
const CACHED: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// The usual span in ms after `spans` (ms), with caches told apart.
    fn check(spans: impl IntoIterator<Item = f32>, expected: std::ops::Range<f32>) -> Mix {
        check_paced(0.0, spans, expected)
    }

    /// The same, with `gap` seconds from one to the next.
    fn check_paced(
        gap: f64,
        spans: impl IntoIterator<Item = f32>,
        expected: std::ops::Range<f32>,
    ) -> Mix {
        let mut mix = Mix::of_heads();
        let mut now = Instant::START;
        for span in spans {
            now += Duration::from_secs_f64(gap);
            mix.learn(Duration::from_secs_f32(span / 1000.0), true, now);
        }
        let usual = mix.usual().expect("something was learned") * 1000.0;
        assert!(expected.contains(&usual), "{usual}: {mix:?}");
        mix
    }

    fn repeated(span: f32, count: usize) -> impl Iterator<Item = f32> {
        std::iter::repeat_n(span, count)
    }

    #[test]
    fn f84_a_constant_span_is_met_at_once_and_exactly() {
        check([100.0], 99.99..100.01);
        check(repeated(100.0, 1000), 99.99..100.01);
    }

    #[test]
    fn f85_one_or_two_outliers_cost_nothing() {
        let outliers = repeated(100.0, 50).chain([30_000.0, 100.0, 30_000.0]);
        check(outliers.chain(repeated(100.0, 5)), 99.0..101.0);
        check([30_000.0, 100.0], 99.0..101.0);
    }

    #[test]
    fn f85_a_rise_that_lasts_is_followed_within_three_replies() {
        check(repeated(100.0, 500).chain(repeated(500.0, 3)), 499.0..501.0);
        check(
            repeated(100.0, 500).chain([400.0, 900.0, 2500.0]),
            1200.0..1300.0,
        );
        // A rise too small to be a class of its own.
        check(
            repeated(100.0, 500).chain(repeated(140.0, 12)),
            128.0..140.0,
        );
    }

    #[test]
    fn f85_a_fall_that_lasts_is_followed_within_a_dozen() {
        let fell = |count| repeated(5000.0, 500).chain(repeated(100.0, count));
        check(fell(10), 4000.0..5000.0);
        check(fell(12), 99.0..101.0);
    }

    #[test]
    fn f85_where_the_pace_is_slow_a_fall_is_followed_by_the_minute() {
        let slow = || repeated(100.0, 50).chain(repeated(20_000.0, 10));
        check_paced(20.0, slow().chain(repeated(100.0, 3)), 15_000.0..20_000.0);
        check_paced(20.0, slow().chain(repeated(100.0, 4)), 99.0..101.0);
        check_paced(90.0, slow().chain(repeated(100.0, 2)), 15_000.0..20_000.0);
        check_paced(90.0, slow().chain(repeated(100.0, 3)), 99.0..101.0);
    }

    #[test]
    fn f99_batches_of_two_known_classes_hardly_move_the_mean() {
        let mut mix = Mix::of_heads();
        let mut seen = (f32::MAX, 0.0_f32);
        for index in 0..2000 {
            let span = if index / 20 % 2 == 0 { 30 } else { 800 };
            mix.learn(Duration::from_millis(span), true, Instant::START);
            if index >= 200 {
                let usual = mix.usual().expect("something was learned");
                seen = (seen.0.min(usual), seen.1.max(usual));
            }
        }
        assert!(seen.0 > 0.34 && seen.1 < 0.49, "{seen:?}");
    }

    #[test]
    fn f99_a_class_that_never_comes_again_is_forgotten() {
        let batches = (0..400).map(|i| if i / 20 % 2 == 0 { 30.0 } else { 800.0 });
        check(batches.chain(repeated(30.0, 128)), 29.0..31.0);
    }

    #[test]
    fn f95_what_is_far_too_quick_beside_the_others_is_a_caches() {
        let mixed = (0..500).map(|i| if i % 10 == 0 { 300.0 } else { 1.0 });
        check(mixed, 299.0..301.0);
        // A page that is merely quick is the origin's.
        let mixed = (0..500).map(|i| if i % 2 == 0 { 300.0 } else { 20.0 });
        check(mixed, 150.0..170.0);
    }

    #[test]
    fn f95_a_server_that_became_quick_is_believed_in_the_end() {
        check(repeated(300.0, 50).chain(repeated(1.0, 127)), 299.0..301.0);
        check(repeated(300.0, 50).chain(repeated(1.0, 128)), 0.9..1.1);
    }

    #[test]
    fn the_state_fits_into_100_bytes() {
        assert!(size_of::<Mix>() <= 100);
    }
}
