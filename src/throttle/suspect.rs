//! Detects block pages: answers that are fast and successful but contain no page.
//!
//! Latency and status do not reveal them, so this compares with the earlier pages of the scope. A
//! suspicion needs a *baseline*: a site that always looked like this is not suspected.
//!
//! ```text
//! learning ─ 10 varied pages ─► normal ─ a run of blocked replies ─► suspected
//!                                 ▲                                      │ at each: probes, ever rarer
//!                                 └───────── 2 normal replies ◄──────────┘
//! ```
//!
//! While a block is suspected, the scope continues with single probe requests in order to see its
//! end. Their gap grows, because slowing down seldom ends a block.

use std::borrow::Cow;
use std::time::Duration;

use super::settings::Backoff;
use super::signal::{ExchangeEnd, Signal};
use crate::base::time::Instant;

/// The detection state of one scope.
#[derive(Clone, Debug, Default)]
pub struct Suspect {
    baseline: Baseline,
    /// Consecutive replies with the same body.
    same: Run,
    /// Consecutive pages with the mark of a block.
    marked: u8,
    /// Consecutive pages without an item.
    itemless: u8,
    refused: Refused,
    suspected: Option<Suspected>,
}

/// Properties of the usual pages.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    /// Number of pages that differed from the one before.
    varied: u8,
    /// Number of normal pages with a mark.
    marked: u8,
    /// Length of the longest run of equal pages.
    same: u8,
    /// Length of the longest run of pages without items that was followed by items.
    itemless: u8,
    /// Number of pages in which items were counted.
    items_counted: u8,
    /// Share of those with at least one item.
    with_items: f32,
    /// Mean size in bytes.
    size: f32,
    /// Mean latency in seconds.
    latency: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    digest: u64,
    length: u8,
}

/// Consecutive refusals.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    length: u8,
    /// How many times the gap between two of them exceeded every earlier one.
    widened: u8,
    /// The longest gap, in milliseconds.
    widest: u32,
    last: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Suspected {
    kind: Kind,
    /// Digest of the block page, if it is always the same.
    digest: Option<u64>,
    /// Number of blocked replies, including those that led to the suspicion.
    seen: u32,
    /// Consecutive normal replies since.
    normal: u8,
    /// Gap between probes, in milliseconds.
    delay: u32,
    /// When the gap was last increased.
    widened: Instant,
}

/// A suspicion as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedSuspicion {
    pub kind: Kind,
    /// Digest of the block page, if it is always the same.
    pub digest: Option<u64>,
    /// Number of blocked replies.
    pub seen: u32,
    /// Gap between probes, in milliseconds.
    pub delay: u32,
}

/// A suspicion that was raised or cleared.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspicion {
    /// Evidence of the block.
    pub kind: Kind,
    /// The suspicion is over: pages are normal again.
    pub cleared: bool,
    /// Number of blocked replies so far.
    pub seen: u32,
    /// Human-readable text; the caller adds the scope's name.
    pub reason: Cow<'static, str>,
}

/// Evidence of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Different URLs return the same small page.
    SameTinyPage,
    /// Pages contain the marks of a challenge.
    Captcha,
    /// Pages contain no items any more.
    ItemsGone,
    /// Requests are refused at every pace.
    SlowingDoesNotHelp,
}

impl Kind {
    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SameTinyPage => "same-tiny-page",
            Kind::Captcha => "captcha",
            Kind::ItemsGone => "items-gone",
            Kind::SlowingDoesNotHelp => "slowing-does-not-help",
        }
    }
}

/// The kind of a reply for this detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Page,
    /// A refusal by the scope's settings, which may be a matter of pace.
    Refusal,
    /// 403: seldom a matter of pace.
    Forbidden,
    /// A redirect, a missing or a broken page: evidence of nothing.
    Neither,
}

impl Suspect {
    /// The state before the first reply.
    #[cfg(test)]
    pub fn new() -> Self {
        Suspect::default()
    }

    /// The gap between probes while a block is suspected, else zero. During a suspicion the scope
    /// also keeps to one request in flight.
    pub fn delay(&self) -> Duration {
        let delay = self.suspected.map_or(0, |suspected| suspected.delay);
        Duration::from_millis(u64::from(delay))
    }

    /// The present suspicion.
    pub fn kind(&self) -> Option<Kind> {
        self.suspected.map(|suspected| suspected.kind)
    }

    /// The present suspicion, for a later run of the crawl.
    pub fn save(&self) -> Option<SavedSuspicion> {
        self.suspected.map(|suspected| SavedSuspicion {
            kind: suspected.kind,
            digest: suspected.digest,
            seen: suspected.seen,
            delay: suspected.delay,
        })
    }

    /// Continues with a suspicion of an earlier run. What usual pages are like is learned again.
    pub fn restored(saved: SavedSuspicion, now: Instant) -> Self {
        Suspect {
            suspected: Some(Suspected {
                kind: saved.kind,
                digest: saved.digest,
                seen: saved.seen,
                normal: 0,
                delay: saved.delay.clamp(PROBE_FIRST, PROBE_LAST),
                widened: now,
            }),
            ..Suspect::default()
        }
    }

    /// Examines a reply that ended. Call it once for each, in the order in which they end.
    ///
    /// Returns a suspicion once when it is raised and once when it is cleared, not in between;
    /// [`delay`](Suspect::delay) may change with every reply.
    pub fn ended(
        &mut self,
        reply: Reply,
        latency: Option<Duration>,
        ending: &ExchangeEnd,
        now: Instant,
    ) -> Option<Suspicion> {
        if self.suspected.is_some() {
            return self.ended_suspected(reply, ending, now);
        }
        match reply {
            Reply::Refusal | Reply::Forbidden => self.refusal(reply, ending, now),
            Reply::Page => self.page(latency, ending, now),
            Reply::Neither => None,
        }
    }

    fn refusal(&mut self, reply: Reply, ending: &ExchangeEnd, now: Instant) -> Option<Suspicion> {
        self.refused.add(now);
        let seen = self.refused.length;
        if ending.mark.is_some() {
            // A refusal with a challenge needs no baseline.
            self.marked = self.marked.saturating_add(1);
        }
        if self.marked >= MARKED {
            let reason = describe("refused with a challenge", ending.mark);
            return Some(self.suspect(Kind::Captcha, None, seen, reason, now));
        }
        let reason = if self.refused.at_every_pace() {
            "refused at every pace: slowing down does not help, so this is a block and not a rate limit"
        } else if seen >= REFUSED_MANY && reply == Reply::Forbidden {
            "everything is forbidden: slowing down does not help, so this is a block and not a rate limit"
        } else {
            return None;
        };
        Some(self.suspect(Kind::SlowingDoesNotHelp, None, seen, reason.into(), now))
    }

    fn page(
        &mut self,
        latency: Option<Duration>,
        ending: &ExchangeEnd,
        now: Instant,
    ) -> Option<Suspicion> {
        self.refused = Refused::default();
        if let Some(length) = self.same.add(ending.digest) {
            self.baseline.same = self.baseline.same.max(length);
        }
        let quick = self.baseline.is_quick(latency);
        let settled = self.baseline.varied >= VARIED;
        let size = ending.size as f32;

        let tiny = size <= (self.baseline.size * TINY).max(TINY_BYTES);
        if settled && quick && tiny && self.same.length >= self.baseline.same_max() {
            let reason = "different URLs return the same small page, and fast".into();
            let seen = self.same.length;
            return Some(self.suspect(Kind::SameTinyPage, Some(ending.digest), seen, reason, now));
        }

        let odd =
            size <= self.baseline.size * TINY || self.same.length > 1 || ending.items == Some(0);
        let empty_polls = ending.items.is_none_or(|items| items == 0);
        let marked = ending.mark.is_some() && self.baseline.marked < MARKED_BEFORE;
        let challenge = settled && marked && odd && empty_polls;
        self.marked = if challenge { self.marked + 1 } else { 0 };
        if self.marked >= MARKED {
            let reason = describe("pages were replaced by challenges", ending.mark);
            return Some(self.suspect(Kind::Captcha, None, self.marked, reason, now));
        }

        if ending.items == Some(0) && quick {
            self.itemless = self.itemless.saturating_add(1);
            let enough = self.baseline.itemless_max();
            if settled && enough.is_some_and(|enough| self.itemless >= enough) {
                let reason =
                    "pages have no items any more, while replies stay fast and successful".into();
                return Some(self.suspect(Kind::ItemsGone, None, self.itemless, reason, now));
            }
        }

        self.learn_items(ending);
        // A page that may be the start of a block is not added to the baseline yet.
        let itemless = ending.items == Some(0) && self.baseline.with_items >= ITEM_SHARE_MIN;
        if !challenge && !itemless && self.same.length == 1 {
            self.baseline.learn(latency, ending);
        }
        None
    }

    fn learn_items(&mut self, ending: &ExchangeEnd) {
        if ending.items.is_some_and(|items| items > 0) {
            // Pages without items are known to be normal only now.
            self.baseline.itemless = self.baseline.itemless.max(self.itemless);
            for _ in 0..self.itemless {
                self.baseline.learn_items(false);
            }
            self.baseline.learn_items(true);
            self.itemless = 0;
        }
    }

    fn suspect(
        &mut self,
        kind: Kind,
        digest: Option<u64>,
        seen: u8,
        reason: Cow<'static, str>,
        now: Instant,
    ) -> Suspicion {
        let seen = u32::from(seen);
        self.suspected = Some(Suspected {
            kind,
            digest,
            seen,
            normal: 0,
            delay: PROBE_FIRST,
            widened: now,
        });
        Suspicion {
            kind,
            cleared: false,
            seen,
            reason,
        }
    }

    fn ended_suspected(
        &mut self,
        reply: Reply,
        ending: &ExchangeEnd,
        now: Instant,
    ) -> Option<Suspicion> {
        let suspected = self.suspected.as_mut()?;
        let marked = ending.mark.is_some() && self.baseline.marked < MARKED_BEFORE;
        let blocked = match reply {
            Reply::Neither => return None,
            Reply::Refusal | Reply::Forbidden => true,
            Reply::Page => {
                marked
                    || suspected.digest == Some(ending.digest)
                    || (suspected.kind == Kind::ItemsGone && ending.items == Some(0))
            }
        };
        if blocked {
            suspected.update_probe_gap(now);
            return None;
        }
        suspected.normal += 1;
        if suspected.normal < NORMAL {
            return None;
        }
        let suspicion = Suspicion {
            kind: suspected.kind,
            cleared: true,
            seen: suspected.seen,
            reason: "pages are normal again".into(),
        };
        *self = Suspect {
            baseline: self.baseline,
            ..Suspect::default()
        };
        Some(suspicion)
    }
}

impl Suspected {
    fn update_probe_gap(&mut self, now: Instant) {
        self.seen = self.seen.saturating_add(1);
        self.normal = 0;
        // Only a request that was sent at the present gap probes it; a bit less than the gap,
        // because of jitter.
        let since = now.saturating_since(self.widened).as_millis();
        if since * 2 >= u128::from(self.delay) {
            self.delay = self.delay.saturating_mul(2).min(PROBE_LAST);
            self.widened = now;
        }
    }
}

impl Reply {
    /// `backoff` defines which statuses are refusals. Of those of a server that fails, only 503 is evidence of a
    /// block: the others come from a gateway.
    pub(super) fn of(signal: &Signal, ending: &ExchangeEnd, backoff: &Backoff) -> Self {
        match signal.status {
            Some(403) => Reply::Forbidden,
            Some(status @ (400..=499 | 503)) if backoff.http_codes.contains(&status) => {
                Reply::Refusal
            }
            Some(200..=299) if ending.failure.is_none() => Reply::Page,
            _ => Reply::Neither,
        }
    }
}

impl Run {
    /// Counts a reply. Returns the length of the previous run if this one ends it.
    fn add(&mut self, digest: u64) -> Option<u8> {
        if self.length > 0 && self.digest == digest {
            self.length = self.length.saturating_add(1);
            return None;
        }
        let over = std::mem::replace(self, Run { digest, length: 1 });
        (over.length > 0).then_some(over.length)
    }
}

impl Refused {
    fn add(&mut self, now: Instant) {
        if self.length > 0 {
            let gap = now.saturating_since(self.last).as_millis();
            let gap = u32::try_from(gap).unwrap_or(u32::MAX);
            // Differences of a few milliseconds between the replies of one burst do not count.
            if f64::from(gap) > f64::from(self.widest.max(GAP_GRAIN)) * WIDER {
                self.widened = self.widened.saturating_add(1);
            }
            self.widest = self.widest.max(gap);
        }
        self.length = self.length.saturating_add(1);
        self.last = now;
    }

    /// Returns whether refusals went on although the scope slowed down several times.
    fn at_every_pace(&self) -> bool {
        self.widened >= WIDENED || (self.length >= REFUSED_MANY && self.widened >= WIDENED_FEW)
    }
}

impl Baseline {
    fn is_quick(&self, latency: Option<Duration>) -> bool {
        let most = self.latency * QUICK + LATENCY_GRAIN;
        latency.is_none_or(|latency| latency.as_secs_f32() <= most)
    }

    /// Number of equal pages in a row that count as a block.
    fn same_max(&self) -> u8 {
        SAME.max(self.same.saturating_mul(2))
    }

    /// Number of consecutive pages without items that is neither chance, given the share of pages
    /// with items, nor usual; `None` if items are too rare for a conclusion.
    fn itemless_max(&self) -> Option<u8> {
        if self.items_counted < VARIED || self.with_items < ITEM_SHARE_MIN {
            return None;
        }
        let itemless = (1.0 - self.with_items).max(0.01);
        let enough = (CHANCE.ln() / itemless.ln()).ceil();
        Some(
            (enough as u8)
                .max(SAME)
                .max(self.itemless.saturating_mul(2)),
        )
    }

    fn learn(&mut self, latency: Option<Duration>, ending: &ExchangeEnd) {
        if ending.mark.is_some() {
            self.marked = self.marked.saturating_add(1);
        }
        self.varied = self.varied.saturating_add(1);
        let step = 1.0 / f32::from(self.varied.min(MEAN_OVER));
        self.size += (ending.size as f32 - self.size) * step;
        if let Some(latency) = latency {
            self.latency += (latency.as_secs_f32() - self.latency) * step;
        }
    }

    fn learn_items(&mut self, with_items: bool) {
        self.items_counted = self.items_counted.saturating_add(1);
        let step = 1.0 / f32::from(self.items_counted.min(MEAN_OVER));
        self.with_items += (f32::from(u8::from(with_items)) - self.with_items) * step;
    }
}

fn describe(what: &str, mark: Option<&str>) -> Cow<'static, str> {
    format!("{what} ({})", mark.unwrap_or("no mark")).into()
}

/// Number of varied pages before the baseline is valid.
const VARIED: u8 = 10;
/// Means of the baseline are over about this many pages.
const MEAN_OVER: u8 = 16;
/// Equal pages in a row that are a block: more than the empty pages at the end of a listing, fewer
/// than the ten within which a block is to be detected.
const SAME: u8 = 8;
/// A page is tiny below this share of the usual size, or
const TINY: f32 = 0.5;
/// below this many bytes: on a site of small pages a block page is not smaller.
const TINY_BYTES: f32 = 2048.0;
/// A block page is made without asking the origin, so it takes at most this × the usual latency
/// plus
const QUICK: f32 = 1.2;
/// this many seconds.
const LATENCY_GRAIN: f32 = 0.005;
/// Challenges in a row that are a block.
const MARKED: u8 = 3;
/// With this many normal pages with marks, marks mean nothing on this site: forms have captchas
/// too.
const MARKED_BEFORE: u8 = 2;
/// If a smaller share of pages has items, their absence proves nothing soon.
const ITEM_SHARE_MIN: f32 = 0.2;
/// A run without items is suspicious if its probability is below this.
const CHANCE: f32 = 1e-4;
/// Refusals in a row that are a block, at any number of paces.
const REFUSED_MANY: u8 = 20;
/// Factor by which a gap must exceed earlier ones to count as longer; backoff's steps do.
const WIDER: f64 = 1.4;
/// Minimum reference gap, in milliseconds.
const GAP_GRAIN: u32 = 100;
/// Number of increases of the gap between refusals that show a block: from one second to half a
/// minute.
const WIDENED: u8 = 6;
/// The same after many refusals: the delay has reached its maximum.
const WIDENED_FEW: u8 = 2;
/// First gap between probes, in milliseconds: a few seconds, since a block costs nothing but the
/// pages it hides.
const PROBE_FIRST: u32 = 5_000;
/// Longest gap between probes, in milliseconds: `BACKOFF_MAX_DELAY`'s default.
const PROBE_LAST: u32 = 300_000;
/// Consecutive normal replies that end a suspicion.
const NORMAL: u8 = 2;

#[cfg(test)]
mod tests;
