//! Estimates the busy time that a request causes at its server, for servers with several classes of
//! pages.
//!
//! In flight is rate × busy time (Little's law), so a pace that keeps N requests in flight on
//! average needs the *mean* busy time. A plain mean follows every outlier; a median ignores the
//! slow half of a site. So durations are kept by *class*, each with its own mean and its share of
//! the replies:
//!
//! - A class counts after [`CONFIRMED`] occurrences within [`FORGOTTEN`] replies. One outlier has
//!   no effect.
//! - Shares change slowly. Alternating batches of known classes hardly change the mean.
//! - A run of durations that fit no known class is a change of the server. A rise is followed after
//!   [`RISE`] replies, a fall after [`FALL`].
//! - Fast replies during [`FALL_TIME`] are a change even if their class is known: at a slow pace
//!   counting replies takes too long.

use std::time::Duration;

use crate::base::time::Instant;

/// The classes of one kind of duration, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Mix {
    classes: [Class; CLASSES],
    /// Number of durations since the last change of the server, saturating at [`MEMORY`].
    spans: u8,
    run: Run,
    /// Consecutive durations that look like cache hits.
    cached: u8,
    /// Whether cache hits are detected.
    detects_caches: bool,
}

/// Durations of about one length.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    mean: f32,
    share: f32,
    /// Number of durations in this class; 0 marks an empty entry.
    seen: u8,
    /// Durations of other classes since the last of this one.
    idle: u8,
    /// None of them was a success, so they are our waiting time and not the server's busy time.
    failed: bool,
}

/// Consecutive durations on one side of the usual one.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    side: Side,
    length: u8,
    /// Some of them belong to a known class.
    known: bool,
    /// The usual duration before the first.
    usual: f32,
    /// Time of the first.
    began: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    Below,
    #[default]
    Within,
    Above,
}

/// What a duration was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The very first: one duration does not prove that a server is slow.
    First,
    /// Counted in its class.
    Counted,
    /// Unlike all known classes; ignored until more of its kind follow.
    Outlier,
    /// Far shorter than the others: a cache answered, so it does not measure the origin.
    CacheHit,
    /// With those before it, it is a change of the server; the previous estimate is discarded.
    Changed,
}

impl Mix {
    /// A mix of latencies, with detection of cache hits.
    pub fn of_heads() -> Self {
        Mix {
            detects_caches: true,
            ..Mix::default()
        }
    }

    /// The same mix with one class of this usual duration, which counts.
    pub fn with_usual(mut self, usual: f32) -> Self {
        self.classes[0] = Class {
            mean: usual,
            share: 1.0,
            seen: CONFIRMED,
            idle: 0,
            failed: false,
        };
        self.spans = CONFIRMED;
        self
    }

    /// Returns whether no duration was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.seen == 0)
    }

    /// The mean duration in seconds over the classes that count. `None` before the first.
    pub fn usual(&self) -> Option<f32> {
        let slowest = self.slowest();
        let counted = || {
            self.classes
                .iter()
                .filter(|class| class.seen >= CONFIRMED && !is_cache_hit(class.mean, slowest))
        };
        let shares: f32 = counted().map(|class| class.share).sum();
        if shares > 0.0 {
            let busy: f32 = counted().map(|class| class.share * class.mean).sum();
            return Some(busy / shares);
        }
        // Too few to distinguish classes from outliers: the lower median.
        let mut means: Vec<f32> = self.seen().map(|class| class.mean).collect();
        means.sort_by(f32::total_cmp);
        let middle = means.len().checked_sub(1)? / 2;
        means.get(middle).copied()
    }

    /// Records one duration, of a success or a failure.
    pub fn record(&mut self, span: Duration, success: bool, now: Instant) -> Recorded {
        let span = span.as_secs_f32();
        if self.detects_caches && is_cache_hit(span, self.slowest()) {
            self.cached += 1;
            if self.cached < CACHED {
                return Recorded::CacheHit;
            }
            // This many in a row are not cache hits: the server became fast.
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
            return Recorded::Changed;
        }
        match self.classes[index].seen {
            _ if first => Recorded::First,
            CONFIRMED.. => Recorded::Counted,
            _ => Recorded::Outlier,
        }
    }

    /// Returns whether the usual duration is shorter than in `before`, by more than rounding.
    pub fn falls_from(&self, before: &Mix) -> bool {
        match (self.usual(), before.usual()) {
            (Some(now), Some(before)) => now < before * 0.9999,
            _ => false,
        }
    }

    /// The mean of the longest remembered class, outliers included.
    pub fn longest(&self) -> f32 {
        self.seen()
            .fold(0.0, |longest, class| class.mean.max(longest))
    }

    fn seen(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().filter(|class| class.seen > 0)
    }

    /// The mean of the slowest confirmed class of successes.
    fn slowest(&self) -> f32 {
        self.classes
            .iter()
            .filter(|class| class.seen >= CONFIRMED && !class.failed)
            .fold(0.0, |slowest, class| class.mean.max(slowest))
    }

    /// The class that `span` belongs to; if there is none, the entry to use for a new class.
    fn class_of(&self, span: f32) -> usize {
        let distance = |class: &Class| (class.mean - span).abs();
        let near = (0..CLASSES)
            .filter(|&i| self.classes[i].seen > 0)
            .filter(|&i| side(span, self.classes[i].mean) == Side::Within)
            .min_by(|&a, &b| distance(&self.classes[a]).total_cmp(&distance(&self.classes[b])));
        // An empty entry has share 0; otherwise the class with the smallest share is replaced.
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
            // A new class, possibly in place of another.
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

    /// Restricts the shares to the classes of the last `run` durations. The others stay known, so
    /// their return is not a change.
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

/// Classifies `span` relative to `usual`; differences within chance and clock resolution count as
/// equal.
fn side(span: f32, usual: f32) -> Side {
    if span > usual * SPREAD + GRAIN {
        Side::Above
    } else if span < usual / SPREAD - GRAIN {
        Side::Below
    } else {
        Side::Within
    }
}

/// Returns whether `span` is too short for a server whose slowest confirmed class takes `slowest`.
fn is_cache_hit(span: f32, slowest: f32) -> bool {
    span < CACHE_LONGEST && span * CACHE_RATIO < slowest
}

/// Number of classes. Six classes, each a factor of 2.25 wide, span two decades.
const CLASSES: usize = 6;
/// Occurrences after which a class counts as more than outliers.
const CONFIRMED: u8 = 3;
/// A class is forgotten after this many durations of other classes. A batch of pages may be as
/// long.
const FORGOTTEN: u8 = 128;
/// Shares are a mean over about this many durations, so batches of twenty change them by a sixth.
const MEMORY: u8 = 64;
/// A class's duration is a mean over about this many of its durations.
const WITHIN: u8 = 8;
/// This many slow replies in a row of an unknown class mean that the server became slower.
const RISE: u8 = 3;
/// This many fast ones mean that it became faster. More than for a rise, since speeding up by
/// mistake burdens others, and more than are needed to detect a block page.
const FALL: u8 = 12;
/// Fast replies for this long, at least [`RISE`] of them, mean the same even if their class is
/// known.
const FALL_TIME: Duration = Duration::from_secs(60);
/// A class extends by this factor to both sides of its mean.
const SPREAD: f32 = 1.5;
/// Durations in seconds that differ by less than this count as equal, whatever their ratio.
const GRAIN: f32 = 0.001;
/// A reply from a cache near the crawler takes less than this, in seconds. A static page of an
/// origin seldom does while other pages of it take
const CACHE_LONGEST: f32 = 0.010;
/// this many times as long.
const CACHE_RATIO: f32 = 20.0;
/// This many consecutive apparent cache hits are the server's own replies.
const CACHED: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the usual duration in ms after `spans` (ms), with cache detection.
    fn check(spans: impl IntoIterator<Item = f32>, expected: std::ops::Range<f32>) -> Mix {
        check_paced(0.0, spans, expected)
    }

    /// The same, with `gap` seconds between durations.
    fn check_paced(
        gap: f64,
        spans: impl IntoIterator<Item = f32>,
        expected: std::ops::Range<f32>,
    ) -> Mix {
        let mut mix = Mix::of_heads();
        let mut now = Instant::START;
        for span in spans {
            now += Duration::from_secs_f64(gap);
            mix.record(Duration::from_secs_f32(span / 1000.0), true, now);
        }
        let usual = mix.usual().expect("something was learned") * 1000.0;
        assert!(expected.contains(&usual), "{usual}: {mix:?}");
        mix
    }

    fn repeated(span: f32, count: usize) -> impl Iterator<Item = f32> {
        std::iter::repeat_n(span, count)
    }

    #[test]
    fn f84_a_constant_span_is_estimated_exactly_at_once() {
        check([100.0], 99.99..100.01);
        check(repeated(100.0, 1000), 99.99..100.01);
    }

    #[test]
    fn f85_one_or_two_outliers_have_no_effect() {
        let outliers = repeated(100.0, 50).chain([30_000.0, 100.0, 30_000.0]);
        check(outliers.chain(repeated(100.0, 5)), 99.0..101.0);
        check([30_000.0, 100.0], 99.0..101.0);
    }

    #[test]
    fn f85_a_lasting_rise_is_followed_within_three_replies() {
        check(repeated(100.0, 500).chain(repeated(500.0, 3)), 499.0..501.0);
        check(
            repeated(100.0, 500).chain([400.0, 900.0, 2500.0]),
            1200.0..1300.0,
        );
        // A rise too small to form a class of its own.
        check(
            repeated(100.0, 500).chain(repeated(140.0, 12)),
            128.0..140.0,
        );
    }

    #[test]
    fn f85_a_lasting_fall_is_followed_within_twelve_replies() {
        let fell = |count| repeated(5000.0, 500).chain(repeated(100.0, count));
        check(fell(10), 4000.0..5000.0);
        check(fell(12), 99.0..101.0);
    }

    #[test]
    fn f85_at_a_slow_pace_a_fall_is_followed_within_a_minute() {
        let slow = || repeated(100.0, 50).chain(repeated(20_000.0, 10));
        check_paced(20.0, slow().chain(repeated(100.0, 3)), 15_000.0..20_000.0);
        check_paced(20.0, slow().chain(repeated(100.0, 4)), 99.0..101.0);
        check_paced(90.0, slow().chain(repeated(100.0, 2)), 15_000.0..20_000.0);
        check_paced(90.0, slow().chain(repeated(100.0, 3)), 99.0..101.0);
    }

    #[test]
    fn f99_batches_of_two_known_classes_hardly_change_the_mean() {
        let mut mix = Mix::of_heads();
        let mut seen = (f32::MAX, 0.0_f32);
        for index in 0..2000 {
            let span = if index / 20 % 2 == 0 { 30 } else { 800 };
            mix.record(Duration::from_millis(span), true, Instant::START);
            if index >= 200 {
                let usual = mix.usual().expect("something was learned");
                seen = (seen.0.min(usual), seen.1.max(usual));
            }
        }
        assert!(seen.0 > 0.34 && seen.1 < 0.49, "{seen:?}");
    }

    #[test]
    fn f99_a_class_that_never_occurs_again_is_forgotten() {
        let batches = (0..400).map(|i| if i / 20 % 2 == 0 { 30.0 } else { 800.0 });
        check(batches.chain(repeated(30.0, 128)), 29.0..31.0);
    }

    #[test]
    fn f95_spans_far_shorter_than_the_others_are_cache_hits() {
        let mixed = (0..500).map(|i| if i % 10 == 0 { 300.0 } else { 1.0 });
        check(mixed, 299.0..301.0);
        // A page that is merely fast comes from the origin.
        let mixed = (0..500).map(|i| if i % 2 == 0 { 300.0 } else { 20.0 });
        check(mixed, 150.0..170.0);
    }

    #[test]
    fn f95_a_server_that_became_fast_is_believed_eventually() {
        check(repeated(300.0, 50).chain(repeated(1.0, 127)), 299.0..301.0);
        check(repeated(300.0, 50).chain(repeated(1.0, 128)), 0.9..1.1);
    }

    #[test]
    fn a_mix_fits_into_100_bytes() {
        assert!(size_of::<Mix>() <= 100);
    }
}
