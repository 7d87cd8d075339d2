//! The ledger of one scope's quota: estimated costs per window, corrected by what answers report.
//!
//! ```text
//! charge ──► reserved ──departed──► spent, unanswered ──settle──► spent, corrected
//!                └────give_back────► nothing
//! ```
//!
//! A reserved cost counts in every window, because it is unknown in which one the request will
//! depart; after the departure it counts in that window. So a slow handshake never carries a
//! request into a window that was already full.

use std::collections::VecDeque;
use std::time::Duration;

use super::settings::{Oversize, Quota, WindowKind};
use crate::base::time::Instant;

/// The quota of one scope and what was spent of it.
///
/// Amounts are integers, in millionths of a unit, so that ten costs of 1.1 are exactly 11 and
/// rounding errors never accumulate. An invalid cost (negative, not a number, infinite) counts as
/// more than any window holds, never as less.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    quota: Micros,
    window: Duration,
    oversize: Oversize,
    /// Charged and not departed.
    reserved: Sum,
    /// Departed and not settled.
    unanswered: Sum,
    spent: Spent,
    /// The server's own count, if it reports one.
    view: Option<View>,
    /// Costs of an earlier run of the crawl, and until when each counts: earliest first.
    earlier: Vec<(Instant, Sum)>,
}

/// The cost charged for one request, and its departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    cost: Micros,
    /// Time of departure; `RESERVED` until then.
    at: Instant,
}

/// When a cost may be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// At once.
    Now,
    /// Not before this time, if nothing changes. Costs that are given back or settled may make it
    /// earlier; reserved costs that depart meanwhile may make it later.
    At(Instant),
    /// Never: it costs more than a window holds, and such requests are refused.
    Never,
}

/// Departed costs, by kind of window.
#[derive(Clone, Debug)]
enum Spent {
    /// The window began with the first departure after the previous one ended. `late`: how much
    /// later than its charge that request was on the wire, which extends the window by the same
    /// amount.
    Fixed {
        started_at: Option<Instant>,
        late: Duration,
        sum: Sum,
    },
    /// Departures within the last window, oldest first.
    Sliding { log: VecDeque<Slice>, sum: Sum },
}

/// Departures close to each other. They expire together with the last of them, so none expires
/// early.
#[derive(Clone, Copy, Debug)]
struct Slice {
    first: Instant,
    last: Instant,
    sum: Sum,
}

/// The server's own count.
#[derive(Clone, Copy, Debug)]
struct View {
    spent: Sum,
    until: Instant,
}

/// A cost that counts, as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedCost {
    /// How long it counts.
    pub left: Duration,
    /// In millionths of a unit.
    pub cost: u64,
    /// It is the server's own count.
    pub is_view: bool,
}

/// Millionths of a unit, saturating at 18 million million units.
type Micros = u64;
/// A sum of [`Micros`], wide enough never to overflow.
type Sum = u128;

/// Marks a charge that has not departed.
const RESERVED: Instant = Instant::FAR_FUTURE;
/// Departures within this fraction of a window share one slice of the log. So the log has at most
/// two slices more than this, about 6 KiB, and no cost is counted for longer than 1/128 of a window
/// too much.
const SLICES: u32 = 128;
/// Most costs that are saved of a sliding window.
const SAVED_MAX: usize = 16;
/// Extra time that `requests_per_minute` looks back beyond a minute. A request that departs late
/// and arrives fast may closely follow one that departed early and arrived late. One second covers
/// a segment that is lost twice at usual round trips, and costs less than 2 % of the rate.
const ARRIVAL_MARGIN: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

impl Ledger {
    /// A ledger without any costs.
    pub fn new(quota: Quota) -> Self {
        Ledger {
            quota: micros_down(quota.units),
            window: quota.window,
            oversize: quota.oversize,
            reserved: 0,
            unanswered: 0,
            spent: match quota.kind {
                WindowKind::Fixed => Spent::Fixed {
                    started_at: None,
                    late: Duration::ZERO,
                    sum: 0,
                },
                WindowKind::Sliding => Spent::Sliding {
                    log: VecDeque::new(),
                    sum: 0,
                },
            },
            view: None,
            earlier: Vec::new(),
        }
    }

    /// A documented limit: at most this many requests arrive in any 60 s, each charged as one unit.
    /// A limit below 1 is one request in correspondingly more minutes.
    pub fn per_minute(limit: f64) -> Self {
        let span = if limit < 1.0 {
            // Zero or a negative limit becomes one request in 584 years.
            Duration::try_from_secs_f64(MINUTE.as_secs_f64() / limit).unwrap_or(Duration::MAX)
        } else {
            MINUTE
        };
        Ledger::new(Quota {
            units: limit.floor().max(1.0),
            window: span.saturating_add(ARRIVAL_MARGIN),
            kind: WindowKind::Sliding,
            oversize: Oversize::Alone,
        })
    }

    /// Returns when a cost may be charged.
    ///
    /// A cost larger than a whole window waits until nothing is spent or reserved, or is refused. A
    /// cost of zero never waits.
    pub fn fits_at(&self, cost: f64, now: Instant) -> Fit {
        let cost = micros_up(cost);
        if self.window.is_zero() || cost == 0 {
            return Fit::Now;
        }
        let is_oversize = cost > self.quota;
        if is_oversize && self.oversize == Oversize::Refuse {
            return Fit::Never;
        }
        // The most that may be spent already.
        let most = Sum::from(self.quota.saturating_sub(cost));
        let after_window = now + self.window;
        let mut fits_at = now;
        if self.reserved > most {
            // It may depart now, and then counts for a whole window.
            fits_at = after_window;
        } else {
            fits_at = fits_at.max(self.all_within(most - self.reserved, now));
            if let Some(view) = self.view_at(now)
                && view.spent + self.unanswered + self.reserved > most
            {
                fits_at = fits_at.max(view.until);
            }
        }
        if fits_at <= now {
            Fit::Now
        } else {
            Fit::At(fits_at)
        }
    }

    /// Reserves a cost, whether it fits or not. Must be followed by [`Ledger::departed`] or
    /// [`Ledger::give_back`].
    pub fn charge(&mut self, cost: f64) -> Charge {
        let cost = if self.window.is_zero() {
            0
        } else {
            micros_up(cost)
        };
        self.reserved += Sum::from(cost);
        Charge { cost, at: RESERVED }
    }

    /// Records that the request departed, or that its set-up failed, which counts the same. Must be
    /// followed by [`Ledger::settle`].
    pub fn departed(&mut self, charge: Charge, at: Instant) -> Charge {
        if charge.at != RESERVED {
            return charge;
        }
        let cost = Sum::from(charge.cost);
        self.unreserve(cost);
        self.unanswered += cost;
        self.earlier.retain(|(until, _)| *until > at);
        Charge {
            at: self.spend(cost, at),
            ..charge
        }
    }

    /// Reports that a departed request was on the wire only at this later time. Its window runs
    /// from then; otherwise a request at the end of the window would be one too many for the
    /// server.
    pub fn reached_wire(&mut self, charge: Charge, at: Instant) {
        let departed = charge.at;
        match &mut self.spent {
            Spent::Fixed {
                started_at, late, ..
            } => {
                if *started_at == Some(departed) {
                    *late = at.saturating_since(departed).max(*late);
                }
            }
            Spent::Sliding { log, .. } => {
                let slice = log
                    .iter_mut()
                    .rfind(|slice| slice.first <= departed && departed <= slice.last);
                if let Some(slice) = slice {
                    slice.last = slice.last.max(at);
                }
            }
        }
    }

    /// Gives back the cost of a request that did not depart.
    pub fn give_back(&mut self, charge: Charge, now: Instant) {
        let cost = Sum::from(charge.cost);
        if charge.at == RESERVED {
            self.unreserve(cost);
        } else {
            self.unanswered = self.unanswered.saturating_sub(cost);
            self.refund(charge.at, cost, now);
        }
    }

    /// Settles a charge when the request has its answer, or will have none: `actual` is its real
    /// cost and `remaining` the quota left according to the server, where reported. Returns the
    /// units by which it cost more than was charged.
    ///
    /// An excess over the estimate counts in the present window. A rest is given back only if the
    /// estimate still counts in the present window; otherwise it would be added to a later one.
    /// Invalid amounts are ignored. `remaining` refers to the window in which the request departed,
    /// and never allows more: the larger of our count and the server's applies. Unanswered requests
    /// are added to the server's count, which may not include them.
    pub fn settle(
        &mut self,
        charge: Charge,
        actual: Option<f64>,
        remaining: Option<f64>,
        now: Instant,
    ) -> f64 {
        if self.window.is_zero() {
            return 0.0;
        }
        let charge = self.departed(charge, now);
        let estimate = Sum::from(charge.cost);
        self.unanswered = self.unanswered.saturating_sub(estimate);
        let actual = actual
            .filter(|units| is_amount(*units))
            .map_or(estimate, |units| Sum::from(micros_up(units)));
        if actual > estimate {
            self.spend(actual - estimate, now);
        } else {
            self.refund(charge.at, estimate - actual, now);
        }
        match remaining.filter(|units| is_amount(*units)) {
            Some(units) if self.is_current(charge.at, now) => self.set_view(units, now),
            _ => {
                if let Some(view) = &mut self.view {
                    view.spent += actual;
                }
            }
        }
        (actual as f64 - estimate as f64) / MICROS_PER_UNIT
    }

    /// Limits what remains in the present window, which begins now if there is none. For knowledge
    /// that does not come from the answer to a charge.
    pub fn remaining(&mut self, units: f64, now: Instant) {
        if is_amount(units) && !self.window.is_zero() {
            self.set_view(units, now);
        }
    }

    /// Units spent or reserved in the present window, by our count or the server's.
    pub fn consumed_units(&self, now: Instant) -> f64 {
        self.consumed(now) as f64 / MICROS_PER_UNIT
    }

    /// Counts the whole quota as spent at `at`: what was spent before is not known.
    pub fn spend_all(&mut self, at: Instant) {
        self.spend(Sum::from(self.quota), at);
    }

    /// Costs that count now, each with how long it will: those that may still depart, for a whole window.
    pub fn save(&self, now: Instant) -> Vec<SavedCost> {
        let mut costs = Vec::new();
        let mut add = |until: Instant, cost: Sum, is_view: bool| {
            let left = until.saturating_since(now).min(self.window);
            if cost > 0 && !left.is_zero() {
                costs.push(SavedCost {
                    left,
                    cost: Micros::try_from(cost).unwrap_or(Micros::MAX),
                    is_view,
                });
            }
        };
        add(now + self.window, self.reserved, false);
        match &self.spent {
            Spent::Fixed {
                started_at,
                late,
                sum,
            } => {
                let started_at = started_at.unwrap_or(Instant::START);
                add(started_at + *late + self.window, *sum, false);
            }
            // If there are many, several at a time, which expire with the last of them.
            Spent::Sliding { log, .. } => {
                let together = log.len().div_ceil(SAVED_MAX).max(1);
                let slices: Vec<Slice> = log.iter().copied().collect();
                for slices in slices.chunks(together) {
                    let last = slices.iter().map(|slice| slice.last).max();
                    let sum = slices.iter().map(|slice| slice.sum).sum();
                    add(last.unwrap_or(Instant::START) + self.window, sum, false);
                }
            }
        }
        for (until, cost) in &self.earlier {
            add(*until, *cost, false);
        }
        if let Some(view) = self.view_at(now) {
            add(view.until, view.spent + self.unanswered, true);
        }
        costs
    }

    /// Counts costs that were saved `elapsed` ago, for as long as they would have.
    pub fn restore(&mut self, costs: &[SavedCost], elapsed: Duration, now: Instant) {
        for cost in costs {
            // In a window of another length it counts for no longer than that.
            let left = cost.left.min(self.window).saturating_sub(elapsed);
            let (until, cost, is_view) = (now + left, Sum::from(cost.cost), cost.is_view);
            match is_view {
                _ if left.is_zero() => {}
                true => self.view = Some(View { spent: cost, until }),
                false => self.earlier.push((until, cost)),
            }
        }
        self.earlier.sort_unstable();
    }

    /// Costs of an earlier run that count at this time.
    fn earlier_at(&self, at: Instant) -> Sum {
        let counting = self.earlier.iter().filter(|(until, _)| *until > at);
        counting.map(|(_, cost)| cost).sum()
    }

    /// When at most `most` of the departed costs and of those of an earlier run will still count.
    fn all_within(&self, most: Sum, now: Instant) -> Instant {
        if self.earlier.is_empty() {
            return self.spent_within(most, now);
        }
        // Each time a cost of the earlier run ends, more of this run's may count.
        let ends = self.earlier.iter().map(|(until, _)| *until);
        let times = [now].into_iter().chain(ends.filter(|until| *until > now));
        let fits = times.filter_map(|at| {
            let left = most.checked_sub(self.earlier_at(at))?;
            Some(self.spent_within(left, now).max(at))
        });
        fits.min().unwrap_or(now)
    }

    /// Returns whether the ledger equals a new one.
    #[cfg(test)]
    pub fn is_blank(&self, now: Instant) -> bool {
        self.blank_at() <= now
    }

    /// When the ledger will be blank if nothing more is spent. `FAR_FUTURE` while a cost is
    /// reserved.
    pub fn blank_at(&self) -> Instant {
        if self.reserved > 0 {
            return Instant::FAR_FUTURE;
        }
        let spent_until = match &self.spent {
            Spent::Fixed {
                started_at,
                late,
                sum,
            } => started_at
                .filter(|_| *sum > 0)
                .map(|started_at| started_at + *late + self.window),
            Spent::Sliding { log, .. } => log
                .iter()
                .rfind(|slice| slice.sum > 0)
                .map(|slice| slice.last + self.window),
        };
        let view_until = self.view.map(|view| view.until);
        let earlier_until = self.earlier.last().map(|(until, _)| *until);
        let until = spent_until.max(view_until).max(earlier_until);
        until.unwrap_or(Instant::START)
    }

    fn consumed(&self, now: Instant) -> Sum {
        let seen = self
            .view_at(now)
            .map_or(0, |view| view.spent + self.unanswered);
        (self.spent_at(now) + self.earlier_at(now)).max(seen) + self.reserved
    }

    fn view_at(&self, now: Instant) -> Option<View> {
        self.view.filter(|view| now < view.until)
    }

    /// Departed costs that count now.
    fn spent_at(&self, now: Instant) -> Sum {
        match &self.spent {
            Spent::Fixed {
                started_at,
                late,
                sum,
            } => match started_at {
                Some(started_at) if now < *started_at + *late + self.window => *sum,
                _ => 0,
            },
            Spent::Sliding { log, sum } => {
                let over = log
                    .iter()
                    .take_while(|slice| slice.last + self.window <= now);
                sum - over.map(|slice| slice.sum).sum::<Sum>()
            }
        }
    }

    /// When at most `most` of the departed costs will still count.
    fn spent_within(&self, most: Sum, now: Instant) -> Instant {
        match &self.spent {
            Spent::Fixed {
                started_at,
                late,
                sum,
            } => match started_at {
                Some(started_at) if *sum > most => *started_at + *late + self.window,
                _ => now,
            },
            Spent::Sliding { log, sum } => {
                let mut counts = *sum;
                let mut slices = log.iter();
                let mut at = now;
                while counts > most
                    && let Some(slice) = slices.next()
                {
                    counts -= slice.sum;
                    // A slice may expire after the next one: its last departure was on the wire
                    // that late.
                    at = at.max(slice.last + self.window);
                }
                at
            }
        }
    }

    /// Adds a departure. Returns the time under which it is found again.
    fn spend(&mut self, amount: Sum, at: Instant) -> Instant {
        let window = self.window;
        match &mut self.spent {
            Spent::Fixed {
                started_at,
                late,
                sum,
            } => {
                let start = *started_at.get_or_insert(at);
                if at >= start + *late + window {
                    *started_at = Some(at);
                    *late = Duration::ZERO;
                    *sum = 0;
                    self.view = None;
                }
                *sum += amount;
                // A time before the start of the window counts in it all the same.
                at.max(started_at.unwrap_or(at))
            }
            Spent::Sliding { log, sum } => {
                while let Some(slice) = log.front()
                    && slice.last + window <= at
                {
                    *sum -= slice.sum;
                    log.pop_front();
                }
                *sum += amount;
                let grain = window / SLICES;
                match log.back_mut() {
                    Some(slice) if at.saturating_since(slice.first) <= grain => {
                        slice.last = slice.last.max(at);
                        slice.sum += amount;
                        at.max(slice.first)
                    }
                    _ => {
                        log.push_back(Slice {
                            first: at,
                            last: at,
                            sum: amount,
                        });
                        at
                    }
                }
            }
        }
    }

    /// Saturates: after a change of settings a charge may belong to the previous ledger.
    fn unreserve(&mut self, cost: Sum) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// Gives back a cost that departed at `at`, if it still counts.
    fn refund(&mut self, at: Instant, amount: Sum, now: Instant) {
        if !self.is_current(at, now) {
            return;
        }
        match &mut self.spent {
            Spent::Fixed { sum, .. } => *sum = sum.saturating_sub(amount),
            Spent::Sliding { log, sum } => {
                let slice = log
                    .iter_mut()
                    .find(|slice| slice.first <= at && at <= slice.last);
                if let Some(slice) = slice {
                    let taken = amount.min(slice.sum);
                    slice.sum -= taken;
                    *sum -= taken;
                }
            }
        }
    }

    /// Returns whether a departure at `at` still counts at `now`.
    fn is_current(&self, at: Instant, now: Instant) -> bool {
        match &self.spent {
            Spent::Fixed {
                started_at, late, ..
            } => started_at.is_some_and(|started_at| {
                started_at <= at && now < started_at + *late + self.window
            }),
            Spent::Sliding { .. } => now < at + self.window,
        }
    }

    /// Applies the server's count until the present window ends.
    ///
    /// In a fixed window the count only grows, so of answers that arrive out of order the largest
    /// count is the newest. In a sliding one the last answer is taken as the newest.
    fn set_view(&mut self, remaining: f64, now: Instant) {
        let spent = Sum::from(self.quota.saturating_sub(micros_down(remaining)));
        if let Spent::Fixed { .. } = self.spent {
            // Starts a window if there is none.
            self.spend(0, now);
        }
        let (spent, until) = match &self.spent {
            Spent::Fixed {
                started_at, late, ..
            } => {
                let before = self.view.map_or(0, |view| view.spent);
                (
                    spent.max(before),
                    started_at.unwrap_or(now) + *late + self.window,
                )
            }
            Spent::Sliding { .. } => (spent, now + self.window),
        };
        self.view = (spent > 0).then_some(View { spent, until });
    }
}

const MICROS_PER_UNIT: f64 = 1e6;
/// A product this close to an integer is taken as that integer: in binary, 1.1 times a million is
/// off by two parts in 10^16.
const ROUNDING: f64 = 1e-12;

/// Returns whether this is a valid number of units.
fn is_amount(units: f64) -> bool {
    units.is_finite() && units >= 0.0
}

/// Converts a cost, rounding up.
fn micros_up(units: f64) -> Micros {
    if !is_amount(units) {
        return Micros::MAX;
    }
    let exact = units * MICROS_PER_UNIT;
    // Saturates.
    whole(exact).unwrap_or(exact.ceil()) as Micros
}

/// Converts a remaining quota, rounding down.
fn micros_down(units: f64) -> Micros {
    let exact = units * MICROS_PER_UNIT;
    // Saturates; NaN becomes 0.
    whole(exact).unwrap_or(exact.floor()) as Micros
}

/// The integer that was meant, if `exact` is very close to one.
fn whole(exact: f64) -> Option<f64> {
    let rounded = exact.round();
    (rounded > 0.0 && (exact - rounded).abs() <= exact.abs() * ROUNDING).then_some(rounded)
}

#[cfg(test)]
mod tests;
