//! Blocks that look like pages: answers that are quick and good, and say nothing.
//!
//! Latency and status tell nothing of them, so this looks at what the pages of a scope used to be.
//! There is no suspicion without a *baseline*: a site that always was like that is like that.
//!
//! ```text
//! learning ─ 10 varied pages ─► normal ─ a run of blocked replies ─► suspected
//!                                 ▲                                      │ at each: probes, ever rarer
//!                                 └───────── 2 normal replies ◄──────────┘
//! ```
//!
//! While suspected, the scope goes on with single requests, so that it sees the end of the block,
//! and they become ever rarer, because slowing down seldom helps against one.

use std::borrow::Cow;
use std::time::Duration;

use super::signal::Ending;
use crate::base::time::Instant;

/// What is known of one scope's pages.
#[derive(Clone, Debug, Default)]
pub struct Suspect {
    baseline: Baseline,
    /// Replies in a row that have the same body.
    same: Run,
    /// Pages in a row that bear the mark of a block.
    marked: u8,
    /// Pages in a row without an item.
    barren: u8,
    refused: Refused,
    suspected: Option<Suspected>,
}

/// What pages are usually like.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    /// Pages that differed from the one before.
    varied: u8,
    /// Pages with a mark that were pages all the same.
    marked: u8,
    /// The longest run of equal pages.
    same: u8,
    /// The longest run of pages without items, where some came again.
    barren: u8,
    /// Pages in which somebody looked for items.
    looked: u8,
    /// The share of those that had some.
    fertile: f32,
    /// Mean bytes.
    size: f32,
    /// Mean latency in seconds.
    latency: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    digest: u64,
    length: u8,
}

/// Refusals in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    length: u8,
    /// So often the gap between two of them was wider than every one before.
    widened: u8,
    /// The widest gap, in milliseconds.
    widest: u32,
    last: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Suspected {
    kind: Kind,
    /// The body of the block, where it is always the same.
    digest: Option<u64>,
    /// Blocked replies, those that led to the suspicion included.
    seen: u32,
    /// Normal replies in a row since.
    normal: u8,
    /// Gap between probes, in milliseconds.
    delay: u32,
    /// When it was last widened.
    widened: Instant,
}

/// A suspicion that came up, or went.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspicion {
    /// What the block is recognised by.
    pub kind: Kind,
    /// It is over: pages are normal again.
    pub cleared: bool,
    /// Blocked replies so far.
    pub seen: u32,
    /// Words for a person; the scope's name is for the caller to add.
    pub reason: Cow<'static, str>,
}

/// What a block is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Different URLs give one small page.
    SameTinyPage,
    /// Pages bear the marks of a challenge.
    Captcha,
    /// Pages have no items any more.
    ItemsGone,
    /// Requests are refused at every pace.
    SlowingDoesNotHelp,
}

impl Kind {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SameTinyPage => "same-tiny-page",
            Kind::Captcha => "captcha",
            Kind::ItemsGone => "items-gone",
            Kind::SlowingDoesNotHelp => "slowing-does-not-help",
        }
    }
}

/// What a reply is, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Page,
    Refusal,
    /// A redirect, a missing page, a broken one: no sign of anything.
    Neither,
}

impl Suspect {
    /// The state before the first reply.
    #[cfg(test)]
    pub fn new() -> Self {
        Suspect::default()
    }

    /// The gap that probes keep while a block is suspected; zero while none is. Then the scope
    /// also keeps to one request in flight.
    pub fn delay(&self) -> Duration {
        let delay = self.suspected.map_or(0, |suspected| suspected.delay);
        Duration::from_millis(u64::from(delay))
    }

    /// What is suspected now.
    pub fn kind(&self) -> Option<Kind> {
        self.suspected.map(|suspected| suspected.kind)
    }

    /// Looks at a reply that ended: once for each, in the order in which they end.
    ///
    /// Gives a suspicion once when it comes up and once when it is cleared, not while it lasts;
    /// [`delay`](Suspect::delay) may change with every reply.
    pub fn ended(
        &mut self,
        status: Option<u16>,
        latency: Option<Duration>,
        ending: &Ending,
        now: Instant,
    ) -> Option<Suspicion> {
        let reply = Reply::of(status, ending);
        if self.suspected.is_some() {
            return self.ended_suspected(reply, ending, now);
        }
        match reply {
            Reply::Refusal => self.refusal(status, ending, now),
            Reply::Page => self.page(latency, ending, now),
            Reply::Neither => None,
        }
    }

    fn refusal(&mut self, status: Option<u16>, ending: &Ending, now: Instant) -> Option<Suspicion> {
        self.refused.add(now);
        let seen = self.refused.length;
        if ending.mark.is_some() {
            // A refusal with a challenge in it needs no baseline.
            self.marked = self.marked.saturating_add(1);
        }
        if self.marked >= MARKED {
            let reason = words("refused with a challenge", ending.mark);
            return Some(self.suspect(Kind::Captcha, None, seen, reason, now));
        }
        let reason = if self.refused.at_every_pace() {
            "refused at every pace: slowing down does not help, this is a block and no rate limit"
        } else if seen >= REFUSED_MANY && status == Some(403) {
            "all is forbidden: slowing down does not help, this is a block and no rate limit"
        } else {
            return None;
        };
        Some(self.suspect(Kind::SlowingDoesNotHelp, None, seen, reason.into(), now))
    }

    fn page(
        &mut self,
        latency: Option<Duration>,
        ending: &Ending,
        now: Instant,
    ) -> Option<Suspicion> {
        self.refused = Refused::default();
        if let Some(length) = self.same.add(ending.digest) {
            self.baseline.same = self.baseline.same.max(length);
        }
        let quick = self.baseline.is_quick(latency);
        let settled = self.baseline.varied >= VARIED;
        let size = ending.size as f32;

        let tiny = size <= (self.baseline.size * TINY).max(TINY_ANYWAY);
        if settled && quick && tiny && self.same.length >= self.baseline.same_max() {
            let reason = "different URLs give one small page, and quickly".into();
            let seen = self.same.length;
            return Some(self.suspect(Kind::SameTinyPage, Some(ending.digest), seen, reason, now));
        }

        let odd =
            size <= self.baseline.size * TINY || self.same.length > 1 || ending.items == Some(0);
        let fruitless = ending.items.is_none_or(|items| items == 0);
        let marked = ending.mark.is_some() && self.baseline.marked < MARKED_BEFORE;
        let challenge = settled && marked && odd && fruitless;
        self.marked = if challenge { self.marked + 1 } else { 0 };
        if self.marked >= MARKED {
            let reason = words("pages turned into challenges", ending.mark);
            return Some(self.suspect(Kind::Captcha, None, self.marked, reason, now));
        }

        if ending.items == Some(0) && quick {
            self.barren = self.barren.saturating_add(1);
            let enough = self.baseline.barren_max();
            if settled && enough.is_some_and(|enough| self.barren >= enough) {
                let reason = "no items any more, while replies stay quick and good".into();
                return Some(self.suspect(Kind::ItemsGone, None, self.barren, reason, now));
            }
        }

        self.learn_items(ending);
        // What may be the beginning of a block is not usual yet.
        let barren = ending.items == Some(0) && self.baseline.fertile >= FERTILE_LEAST;
        if !challenge && !barren && self.same.length == 1 {
            self.baseline.learn(latency, ending);
        }
        None
    }

    fn learn_items(&mut self, ending: &Ending) {
        if ending.items.is_some_and(|items| items > 0) {
            // Those without are known to be usual only now.
            self.baseline.barren = self.baseline.barren.max(self.barren);
            for _ in 0..self.barren {
                self.baseline.learn_items(false);
            }
            self.baseline.learn_items(true);
            self.barren = 0;
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
        ending: &Ending,
        now: Instant,
    ) -> Option<Suspicion> {
        let suspected = self.suspected.as_mut()?;
        let marked = ending.mark.is_some() && self.baseline.marked < MARKED_BEFORE;
        let blocked = match reply {
            Reply::Neither => return None,
            Reply::Refusal => true,
            Reply::Page => {
                marked
                    || suspected.digest == Some(ending.digest)
                    || (suspected.kind == Kind::ItemsGone && ending.items == Some(0))
            }
        };
        if blocked {
            suspected.go_on(now);
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
    fn go_on(&mut self, now: Instant) {
        self.seen = self.seen.saturating_add(1);
        self.normal = 0;
        // Only what was sent at the present gap is a probe of it; a bit less than the gap, for jitter.
        let since = now.saturating_since(self.widened).as_millis();
        if since * 2 >= u128::from(self.delay) {
            self.delay = self.delay.saturating_mul(2).min(PROBE_LAST);
            self.widened = now;
        }
    }
}

impl Reply {
    fn of(status: Option<u16>, ending: &Ending) -> Self {
        match status {
            Some(403 | 429 | 503) => Reply::Refusal,
            Some(200..=299) if ending.failure.is_none() => Reply::Page,
            _ => Reply::Neither,
        }
    }
}

impl Run {
    /// Counts one more; gives the length of the run that it ends, if it does.
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
            // Not by the few milliseconds by which replies of one burst differ.
            if f64::from(gap) > f64::from(self.widest.max(GAP_GRAIN)) * WIDER {
                self.widened = self.widened.saturating_add(1);
            }
            self.widest = self.widest.max(gap);
        }
        self.length = self.length.saturating_add(1);
        self.last = now;
    }

    /// Whether refusals went on although the scope slowed down again and again.
    fn at_every_pace(&self) -> bool {
        self.widened >= WIDENED || (self.length >= REFUSED_MANY && self.widened >= WIDENED_FEW)
    }
}

impl Baseline {
    fn is_quick(&self, latency: Option<Duration>) -> bool {
        let most = self.latency * QUICK + LATENCY_GRAIN;
        latency.is_none_or(|latency| latency.as_secs_f32() <= most)
    }

    /// So many equal pages in a row are too many.
    fn same_max(&self) -> u8 {
        SAME.max(self.same.saturating_mul(2))
    }

    /// So many pages in a row without items are no chance, given the share of those that have
    /// some, and no habit; `None` where items are too rare to tell.
    fn barren_max(&self) -> Option<u8> {
        if self.looked < VARIED || self.fertile < FERTILE_LEAST {
            return None;
        }
        let barren = (1.0 - self.fertile).max(0.01);
        let enough = (CHANCE.ln() / barren.ln()).ceil();
        Some((enough as u8).max(SAME).max(self.barren.saturating_mul(2)))
    }

    fn learn(&mut self, latency: Option<Duration>, ending: &Ending) {
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

    fn learn_items(&mut self, fertile: bool) {
        self.looked = self.looked.saturating_add(1);
        let step = 1.0 / f32::from(self.looked.min(MEAN_OVER));
        self.fertile += (f32::from(u8::from(fertile)) - self.fertile) * step;
    }
}

fn words(what: &str, mark: Option<&str>) -> Cow<'static, str> {
    format!("{what} ({})", mark.unwrap_or("no mark")).into()
}

/// Pages that differ before anything is usual.
const VARIED: u8 = 10;
/// Means of the baseline are over about so many pages.
const MEAN_OVER: u8 = 16;
/// So many equal pages in a row: more than a listing's empty ends give, fewer than the ten within
/// which a block is to be seen.
const SAME: u8 = 8;
/// What is tiny: this part of the usual size, or
const TINY: f32 = 0.5;
/// so many bytes: on a site of small pages a block is no smaller.
const TINY_ANYWAY: f32 = 2048.0;
/// A block is made before the origin is asked: it takes no longer than this × the usual latency, and
const QUICK: f32 = 1.2;
/// this, in seconds.
const LATENCY_GRAIN: f32 = 0.005;
/// Challenges in a row.
const MARKED: u8 = 3;
/// Where so many good pages have marks, marks mean nothing here: forms have captchas too.
const MARKED_BEFORE: u8 = 2;
/// Where fewer pages have items, their absence tells nothing soon.
const FERTILE_LEAST: f32 = 0.2;
/// A run without items that has this chance is none.
const CHANCE: f32 = 1e-4;
/// Refusals in a row, at however many paces, that are a block.
const REFUSED_MANY: u8 = 20;
/// A gap is wider from this factor on: backoff's steps are.
const WIDER: f64 = 1.4;
/// In milliseconds.
const GAP_GRAIN: u32 = 100;
/// So often the gaps between refusals widened: from one second to half a minute.
const WIDENED: u8 = 6;
/// The same where they are many: the delay has reached its longest.
const WIDENED_FEW: u8 = 2;
/// The gap of the first probes, in milliseconds: a few seconds, since a block costs nothing but
/// the pages that it hides meanwhile.
const PROBE_FIRST: u32 = 5_000;
/// Of the last ones: `BACKOFF_MAX_DELAY`'s default.
const PROBE_LAST: u32 = 300_000;
/// Normal replies in a row that end a suspicion.
const NORMAL: u8 = 2;

#[cfg(test)]
mod tests;
