//! What of a scope's rules a later run of the crawl continues with, as bytes.
//!
//! ```text
//! state = version (1 byte), labelled fields (base::records)
//! ```
//!
//! A field is there if it differs from a new scope's. Times are relative to the moment of saving: how long
//! a hold has left, how long a cost counts. Unknown fields are skipped; a version that is not known is not
//! read. What is not read is as in a new scope, which waits for a full gap.

use std::time::Duration;

use super::{Adapts, Hold, Profile, Rules, SLOW_KEPT, Slots};
use crate::base::records::{self, Records};
use crate::base::time::{Instant, nanos};
use crate::throttle::autothrottle;
use crate::throttle::backoff::{Backoff, LEARNED_KEPT_FOR, Learned};
use crate::throttle::decision::DecisionSource;
use crate::throttle::quota::SavedCost;
use crate::throttle::robust::{Robust, SavedRobust};
use crate::throttle::suspect::{Kind, SavedSuspicion, Suspect};

/// The saved state of a scope.
#[derive(Clone, Debug)]
pub(in crate::throttle) struct SavedRules(Records);

/// What a saved state has of a scope, for people. Times count from the moment of saving.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedSummary {
    /// A hold: how long it has left, and why.
    pub hold: Option<(Duration, DecisionSource)>,
    /// The gap that was learned from refusals.
    pub gap: Option<Duration>,
    /// AutoThrottle's delay.
    pub delay: Option<Duration>,
    /// Number of replies and sends that count in a quota.
    pub costs: usize,
    /// The content of replies is suspected.
    pub is_suspected: bool,
}

/// When and how a state is restored.
#[derive(Clone, Copy, Debug)]
pub(in crate::throttle) struct Restoring {
    /// Time since it was saved, by the system's clock.
    pub elapsed: Duration,
    /// Nothing was sent after it was saved, so that its costs are all there are.
    pub is_complete: bool,
    pub now: Instant,
}

impl SavedRules {
    /// Reads a state. `None` if it is of an unknown version, or incomplete.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, fields) = bytes.split_first()?;
        (*version == VERSION)
            .then(|| Records::from_encoded(fields))?
            .map(SavedRules)
    }

    /// A state without what was learned from replies: holds and quotas stay. Empty if it cannot be read, or there is
    /// nothing else.
    pub fn without_learned(bytes: &[u8]) -> Vec<u8> {
        let Some(mut rules) = SavedRules::decode(bytes) else {
            return Vec::new();
        };
        let stays = |label| matches!(label, HOLD | PROBES | QUOTA | MINUTE);
        rules.0.retain(|label, _| stays(label));
        let mut left = vec![VERSION];
        for (label, value) in rules.0.iter() {
            records::encode(label, value, &mut left);
        }
        match left.len() {
            1 => Vec::new(),
            _ => left,
        }
    }

    /// Returns whether it has no effect any more after this time.
    pub fn is_over(&self, elapsed: Duration) -> bool {
        self.0.iter().all(|(label, value)| match label {
            HOLD => Fields(value).duration().is_none_or(|left| left <= elapsed),
            LIMITS | SLOT_LIMITS => elapsed >= LEARNED_KEPT_FOR,
            STRATEGY => false,
            _ => elapsed >= SLOW_KEPT.max(self.longest_cost()),
        })
    }

    /// What it has.
    pub fn summary(&self) -> SavedSummary {
        let fields = &self.0;
        let limits = fields.get(LIMITS).and_then(decode_limits);
        let robust = || fields.get(ROBUST).and_then(decode_robust);
        let scrapy = fields
            .get(SCRAPY)
            .and_then(|value| Fields(value).duration());
        SavedSummary {
            hold: fields.get(HOLD).and_then(decode_hold),
            gap: limits
                .filter(|limits| limits.gap > 0)
                .map(|limits| Duration::from_nanos(limits.gap)),
            delay: scrapy.or_else(|| robust().map(|saved| Duration::from_nanos(saved.delay))),
            costs: self.costs(QUOTA).len() + self.costs(MINUTE).len(),
            is_suspected: fields.get(SUSPICION).is_some(),
        }
    }

    fn longest_cost(&self) -> Duration {
        let costs = [QUOTA, MINUTE]
            .into_iter()
            .flat_map(|label| self.costs(label));
        costs.map(|cost| cost.left).max().unwrap_or_default()
    }

    fn costs(&self, label: u8) -> Vec<SavedCost> {
        self.0.all(label).filter_map(decode_cost).collect()
    }
}

impl Rules {
    /// Appends what a later run continues with; nothing if that is a new scope.
    pub fn save(&self, profile: &Profile, now: Instant, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(VERSION);
        self.save_fields(profile, now, out);
        if out.len() == start + 1 {
            out.truncate(start);
        }
    }

    fn save_fields(&self, profile: &Profile, now: Instant, out: &mut Vec<u8>) {
        let left = self.held.until.saturating_since(now);
        if !left.is_zero() {
            let source = [source_code(self.held.source)];
            let value = [&nanos(left).to_le_bytes()[..], &source].concat();
            records::encode(HOLD, &value, out);
        }
        if self.probing_from.is_some() {
            records::encode(PROBES, &[], out);
        }
        if let Some(learned) = self.learned() {
            records::encode(LIMITS, &encode_limits(learned), out);
        }
        if let Some(slots) = &self.slots {
            for (slot, learned) in slots.learned() {
                let value = [&slot.to_le_bytes()[..], &encode_limits(learned)].concat();
                records::encode(SLOT_LIMITS, &value, out);
            }
            if slots.cuts() > 0 {
                records::encode(SLOT_CUTS, &[slots.cuts()], out);
            }
        }
        match &self.adapts {
            Adapts::No => {}
            Adapts::Scrapy(delay) => {
                let settings = &profile.settings;
                let auto = settings.autothrottle.as_ref();
                let fresh = auto.map(|auto| autothrottle::start_delay(auto, settings.delay));
                if fresh != Some(*delay) {
                    records::encode(SCRAPY, &nanos(*delay).to_le_bytes(), out);
                }
            }
            Adapts::Robust(robust) => {
                if let Some(saved) = robust.save() {
                    let bits = |time: Option<f32>| time.unwrap_or(f32::NAN).to_le_bytes();
                    let times = [bits(saved.heads), bits(saved.bodies)].concat();
                    let value = [&saved.delay.to_le_bytes()[..], &times].concat();
                    records::encode(ROBUST, &value, out);
                }
            }
            Adapts::Custom(strategy) => {
                if let Some(saved) = strategy.save(now) {
                    records::encode(STRATEGY, &saved, out);
                }
            }
        }
        if let Some(saved) = self.suspect.as_ref().and_then(|suspect| suspect.save()) {
            records::encode(SUSPICION, &encode_suspicion(saved), out);
        }
        for (label, ledger) in [(QUOTA, &self.quota), (MINUTE, &self.minute)] {
            let costs = ledger.iter().flat_map(|ledger| ledger.save(now));
            for cost in costs {
                let kind = [u8::from(cost.is_view)];
                let numbers = [nanos(cost.left).to_le_bytes(), cost.cost.to_le_bytes()];
                records::encode(label, &[&numbers.concat()[..], &kind].concat(), out);
            }
        }
    }

    /// Continues with a saved state, as far as it still applies. A hold ends no later than it would have,
    /// counted from now: if the system's clock went back, nothing has elapsed.
    pub fn restore(&mut self, profile: &Profile, saved: &SavedRules, restoring: Restoring) {
        let Restoring { elapsed, now, .. } = restoring;
        let settings = &profile.settings;
        let fields = &saved.0;
        if settings.backoff.enabled && elapsed < LEARNED_KEPT_FOR {
            if let Some(learned) = fields.get(LIMITS).and_then(decode_limits) {
                self.backoff = Some(Box::new(Backoff::from_learned(learned, now)));
            }
            if let Some(slots) = &mut self.slots {
                let cuts = fields
                    .get(SLOT_CUTS)
                    .and_then(|value| value.first().copied());
                restore_slots(slots, fields, cuts.unwrap_or(0), profile, now);
            }
        }
        if elapsed < SLOW_KEPT {
            match (&mut self.adapts, &settings.autothrottle) {
                (Adapts::Scrapy(delay), Some(auto)) => {
                    let most = auto.max_delay.max(settings.delay);
                    let saved = fields
                        .get(SCRAPY)
                        .and_then(|value| Fields(value).duration());
                    let saved = saved.map(|saved| saved.clamp(settings.delay, most));
                    *delay = saved.unwrap_or(*delay);
                }
                (Adapts::Robust(robust), Some(auto)) => {
                    if let Some(saved) = fields.get(ROBUST).and_then(decode_robust) {
                        **robust = Robust::restored(saved, auto, settings.delay);
                    }
                }
                _ => {}
            }
            let suspicion = fields.get(SUSPICION).and_then(decode_suspicion);
            if let Some(suspicion) = suspicion.filter(|_| !self.has_strategy()) {
                self.suspect = Some(Box::new(Suspect::restored(suspicion, now)));
            }
        }
        if let (Adapts::Custom(strategy), Some(saved)) = (&mut self.adapts, fields.get(STRATEGY)) {
            let pace = strategy.restore(settings, saved, elapsed, now);
            self.pace = pace.unwrap_or(self.pace);
            self.pace.concurrency = self.pace.concurrency.max(1);
        }
        for (label, ledger) in [(QUOTA, &mut self.quota), (MINUTE, &mut self.minute)] {
            if let Some(ledger) = ledger.as_mut().filter(|_| restoring.is_complete) {
                ledger.restore(&saved.costs(label), elapsed, now);
            }
        }
        let hold = fields.get(HOLD).and_then(decode_hold);
        let (left, source) = hold.unwrap_or((Duration::ZERO, DecisionSource::User));
        let probes = fields.get(PROBES).is_some() && elapsed < SLOW_KEPT + left;
        let until = now + left.saturating_sub(elapsed);
        if until > now || probes {
            self.hold(Hold {
                until,
                source,
                probes,
            });
        }
        self.recompute(profile);
    }

    /// An earlier run may have sent until `from`: counts the costs and the sends that are not known. A scope
    /// that is created later than a window after that has none.
    pub fn begin_after(&mut self, profile: &Profile, from: Instant, costs_known: bool) {
        if let Some(slots) = &mut self.slots {
            slots.free_from(from + profile.settings.delay_per_slot);
        }
        if !costs_known {
            let ledgers = [&mut self.quota, &mut self.minute].into_iter().flatten();
            ledgers.for_each(|ledger| ledger.spend_all(from));
        }
    }

    /// Returns whether each send changes what is saved.
    pub fn counts_sends(&self) -> bool {
        self.is_bounded() || self.has_strategy()
    }

    fn has_strategy(&self) -> bool {
        matches!(self.adapts, Adapts::Custom(_))
    }
}

fn restore_slots(slots: &mut Slots, fields: &Records, cuts: u8, profile: &Profile, now: Instant) {
    for value in fields.all(SLOT_LIMITS) {
        let mut read = Fields(value);
        if let Some(slot) = read.take().map(u16::from_le_bytes)
            && let Some(learned) = decode_limits(read.0)
        {
            slots.restore_learned(slot, learned, profile, now);
        }
    }
    slots.restore_cuts(cuts, now);
}

fn encode_limits(learned: Learned) -> Vec<u8> {
    let mut value = Vec::with_capacity(22);
    value.extend(learned.gap.to_le_bytes());
    value.extend(learned.refused.to_le_bytes());
    value.extend(learned.lanes.to_le_bytes());
    value.extend([u8::from(learned.known), learned.cuts]);
    value
}

fn decode_limits(value: &[u8]) -> Option<Learned> {
    let mut read = Fields(value);
    Some(Learned {
        gap: read.number()?,
        refused: read.number()?,
        lanes: read.take().map(u32::from_le_bytes)?,
        known: read.byte()? != 0,
        cuts: read.byte()?,
    })
}

fn decode_robust(value: &[u8]) -> Option<SavedRobust> {
    let mut read = Fields(value);
    Some(SavedRobust {
        delay: read.number()?,
        heads: read.take().map(f32::from_le_bytes).map(Some)?,
        bodies: read.take().map(f32::from_le_bytes).map(Some)?,
    })
}

fn encode_suspicion(saved: SavedSuspicion) -> Vec<u8> {
    let kind = KINDS.iter().position(|kind| *kind == saved.kind);
    let mut value = vec![kind.unwrap_or(0) as u8, u8::from(saved.digest.is_some())];
    value.extend(saved.digest.unwrap_or(0).to_le_bytes());
    value.extend(saved.seen.to_le_bytes());
    value.extend(saved.delay.to_le_bytes());
    value
}

fn decode_suspicion(value: &[u8]) -> Option<SavedSuspicion> {
    let mut read = Fields(value);
    let kind = *KINDS.get(usize::from(read.byte()?))?;
    let has_digest = read.byte()? != 0;
    Some(SavedSuspicion {
        kind,
        digest: Some(read.number()?).filter(|_| has_digest),
        seen: read.take().map(u32::from_le_bytes)?,
        delay: read.take().map(u32::from_le_bytes)?,
    })
}

fn decode_cost(value: &[u8]) -> Option<SavedCost> {
    let mut read = Fields(value);
    Some(SavedCost {
        left: read.duration()?,
        cost: read.number()?,
        is_view: read.byte()? != 0,
    })
}

fn decode_hold(value: &[u8]) -> Option<(Duration, DecisionSource)> {
    let mut read = Fields(value);
    let left = read.duration()?;
    Some((left, source_of(read.byte()?)))
}

fn source_code(source: DecisionSource) -> u8 {
    match source {
        DecisionSource::RetryAfter => 1,
        DecisionSource::RateLimit => 2,
        _ => 0,
    }
}

fn source_of(code: u8) -> DecisionSource {
    match code {
        1 => DecisionSource::RetryAfter,
        2 => DecisionSource::RateLimit,
        _ => DecisionSource::User,
    }
}

/// The rest of a value, read from its start.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn duration(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_nanos)
    }
}

/// The version that is written, and the only one that is read.
const VERSION: u8 = 1;

/// Kinds of suspicions by their codes. None is changed or moved.
const KINDS: [Kind; 4] = [
    Kind::SameTinyPage,
    Kind::Captcha,
    Kind::ItemsGone,
    Kind::SlowingDoesNotHelp,
];

// Labels of fields. None is changed or used again.
const HOLD: u8 = 1;
const PROBES: u8 = 2;
const LIMITS: u8 = 3;
const SLOT_LIMITS: u8 = 4;
const SLOT_CUTS: u8 = 5;
const SCRAPY: u8 = 6;
const ROBUST: u8 = 7;
const SUSPICION: u8 = 8;
const QUOTA: u8 = 9;
const MINUTE: u8 = 10;
const STRATEGY: u8 = 11;

#[cfg(test)]
mod tests;
