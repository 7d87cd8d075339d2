//! What one scope may spend per window: a ledger of estimates, corrected by what answers say.
//!
//! ```text
//! charge ──► reserved ──departed──► spent, unanswered ──settle──► spent, corrected
//!                └────give_back────► nothing
//! ```
//!
//! What is reserved counts in whatever window comes, because nobody knows in which it will leave;
//! once departed it counts where it left. So a slow handshake never carries a request into a window
//! that was full without it.

use std::collections::VecDeque;
use std::time::Duration;

use super::settings::{Oversize, Quota, WindowKind};
use crate::base::time::Instant;

/// What one scope may spend per window, and what it has spent.
///
/// Amounts are kept in whole millionths of a unit, so that ten costs of 1.1 are 11 and a ledger
/// never ends up a rounding error short of blank. A cost that is no number of units (negative, not
/// a number, without end) counts as more than any window holds: never as less than it is.
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
    /// What the server says it has counted, where it says so.
    view: Option<View>,
}

/// What was charged for one request, and when that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    cost: Micros,
    /// Its departure; `RESERVED` until then.
    at: Instant,
}

/// Whether a cost may be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// At once.
    Now,
    /// Not before then, if nothing changes: charges given back or settled may make it earlier, and
    /// what is reserved and leaves in the meantime later.
    At(Instant),
    /// Not at all: it costs more than a window holds, and that is refused.
    Never,
}

/// What has departed, by kind of window.
#[derive(Clone, Debug)]
enum Spent {
    /// The window began with the first departure since the last one ended. That was gone as much
    /// later, and the window ends so much later.
    Fixed {
        began: Option<Instant>,
        late: Duration,
        sum: Sum,
    },
    /// Departures of the last window, oldest first.
    Sliding { log: VecDeque<Slice>, sum: Sum },
}

/// Departures close to each other. They end together with the last of them, so none ends early.
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

/// Millionths of a unit; more than 18 million million units count as so many.
type Micros = u64;
/// So many of those that no sum overflows.
type Sum = u128;

/// A charge that has not departed.
const RESERVED: Instant = Instant::FAR_FUTURE;
/// Departures within this share of a window are one slice of the log. So it has at most two more
/// slices than this, some 6 KiB, and no spending is remembered for more than 1/128 of a window too
/// long.
const SLICES: u32 = 128;
/// How much longer than a minute `requests_per_minute` looks back. A request that departs late and
/// arrives soon may follow closely one that departed early and arrived late; a second is more than
/// a segment that is lost twice takes at usual round trips, and costs less than 2 % of the rate.
const ARRIVAL_MARGIN: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

impl Ledger {
    /// An untouched ledger.
    pub fn new(quota: Quota) -> Self {
        Ledger {
            quota: micros_down(quota.units),
            window: quota.window,
            oversize: quota.oversize,
            reserved: 0,
            unanswered: 0,
            spent: match quota.kind {
                WindowKind::Fixed => Spent::Fixed {
                    began: None,
                    late: Duration::ZERO,
                    sum: 0,
                },
                WindowKind::Sliding => Spent::Sliding {
                    log: VecDeque::new(),
                    sum: 0,
                },
            },
            view: None,
        }
    }

    /// A documented limit: no more requests than this arrive in any 60 s, each of them charged as
    /// one unit. A limit below one is one request in as many minutes as that makes.
    pub fn per_minute(limit: f64) -> Self {
        let span = if limit < 1.0 {
            // What is no limit at all (zero, negative) is one request in 584 years.
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

    /// When a cost may be charged.
    ///
    /// One that is more than a window holds waits until nothing at all is spent or reserved, or is
    /// refused. One of zero waits for nothing.
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
            // It may leave now, and counts for a window then.
            fits_at = after_window;
        } else {
            fits_at = fits_at.max(self.spent_within(most - self.reserved, now));
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

    /// Reserves a cost, whether it fits or not. To be followed by [`Ledger::departed`] or
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

    /// The request left, or its set-up failed and counts as if it had: its window is known now. To
    /// be followed by [`Ledger::settle`].
    pub fn departed(&mut self, charge: Charge, at: Instant) -> Charge {
        if charge.at != RESERVED {
            return charge;
        }
        let cost = Sum::from(charge.cost);
        self.unreserve(cost);
        self.unanswered += cost;
        Charge {
            at: self.spend(cost, at),
            ..charge
        }
    }

    /// What has departed was gone at this moment, a little later: its window runs from there, or what
    /// leaves at the end of it would be one too many for the server.
    pub fn gone(&mut self, charge: Charge, at: Instant) {
        let departed = charge.at;
        match &mut self.spent {
            Spent::Fixed { began, late, .. } => {
                if *began == Some(departed) {
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

    /// It never left.
    pub fn give_back(&mut self, charge: Charge, now: Instant) {
        let cost = Sum::from(charge.cost);
        if charge.at == RESERVED {
            self.unreserve(cost);
        } else {
            self.unanswered = self.unanswered.saturating_sub(cost);
            self.refund(charge.at, cost, now);
        }
    }

    /// The request has its answer, or will have none: what it did cost, and what the server says
    /// remains, where it says so. Gives the units by which it cost more than was charged.
    ///
    /// More than the estimate counts in the present window; less is given back only where the
    /// estimate counts in it still, or it would be free in a later one. What is no number of units
    /// is not said. What remains is said of the window in which the request left, and makes nothing
    /// faster: the larger of our count and the server's holds. Requests that have no answer yet
    /// are added to the server's, which may not have seen them.
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

    /// No more than this remains in the present window, which begins now if there is none: for
    /// what is known otherwise than from the answer to a charge.
    pub fn remaining(&mut self, units: f64, now: Instant) {
        if is_amount(units) && !self.window.is_zero() {
            self.set_view(units, now);
        }
    }

    /// Units that are spent or reserved in the present window, by our count or the server's.
    pub fn consumed_units(&self, now: Instant) -> f64 {
        self.consumed(now) as f64 / MICROS_PER_UNIT
    }

    /// Whether it could be made anew without anybody noticing.
    #[cfg(test)]
    pub fn is_blank(&self, now: Instant) -> bool {
        self.blank_at() <= now
    }

    /// When it will be blank, if nothing more is spent. `FAR_FUTURE` while something is reserved.
    pub fn blank_at(&self) -> Instant {
        if self.reserved > 0 {
            return Instant::FAR_FUTURE;
        }
        let spent_until = match &self.spent {
            Spent::Fixed { began, late, sum } => began
                .filter(|_| *sum > 0)
                .map(|began| began + *late + self.window),
            Spent::Sliding { log, .. } => log
                .iter()
                .rfind(|slice| slice.sum > 0)
                .map(|slice| slice.last + self.window),
        };
        let view_until = self.view.map(|view| view.until);
        spent_until.max(view_until).unwrap_or(Instant::START)
    }

    fn consumed(&self, now: Instant) -> Sum {
        let seen = self
            .view_at(now)
            .map_or(0, |view| view.spent + self.unanswered);
        self.spent_at(now).max(seen) + self.reserved
    }

    fn view_at(&self, now: Instant) -> Option<View> {
        self.view.filter(|view| now < view.until)
    }

    /// What has departed and counts now.
    fn spent_at(&self, now: Instant) -> Sum {
        match &self.spent {
            Spent::Fixed { began, late, sum } => match began {
                Some(began) if now < *began + *late + self.window => *sum,
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

    /// When no more than `most` of what has departed counts.
    fn spent_within(&self, most: Sum, now: Instant) -> Instant {
        match &self.spent {
            Spent::Fixed { began, late, sum } => match began {
                Some(began) if *sum > most => *began + *late + self.window,
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
                    // One may end after the next has begun: its last was gone that late.
                    at = at.max(slice.last + self.window);
                }
                at
            }
        }
    }

    /// Adds a departure; gives the moment under which it is found again.
    fn spend(&mut self, amount: Sum, at: Instant) -> Instant {
        let window = self.window;
        match &mut self.spent {
            Spent::Fixed { began, late, sum } => {
                let start = *began.get_or_insert(at);
                if at >= start + *late + window {
                    *began = Some(at);
                    *late = Duration::ZERO;
                    *sum = 0;
                    self.view = None;
                }
                *sum += amount;
                // A stamp from before the window began is counted in it all the same.
                at.max(began.unwrap_or(at))
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

    /// Saturates: where settings change under way, a charge may be of the ledger before this one.
    fn unreserve(&mut self, cost: Sum) {
        self.reserved = self.reserved.saturating_sub(cost);
    }

    /// Takes back what departed at `at`, if that counts still.
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

    /// Whether what departed at `at` counts at `now`.
    fn is_current(&self, at: Instant, now: Instant) -> bool {
        match &self.spent {
            Spent::Fixed { began, late, .. } => {
                began.is_some_and(|began| began <= at && now < began + *late + self.window)
            }
            Spent::Sliding { .. } => now < at + self.window,
        }
    }

    /// The server's count, until the present window ends.
    ///
    /// In a fixed window it only grows, so of answers that overtook each other the largest count is
    /// the newest. In a sliding one the answer that came last is taken for it.
    fn set_view(&mut self, remaining: f64, now: Instant) {
        let spent = Sum::from(self.quota.saturating_sub(micros_down(remaining)));
        if let Spent::Fixed { .. } = self.spent {
            // Opens the window where none is.
            self.spend(0, now);
        }
        let (spent, until) = match &self.spent {
            Spent::Fixed { began, late, .. } => {
                let before = self.view.map_or(0, |view| view.spent);
                (
                    spent.max(before),
                    began.unwrap_or(now) + *late + self.window,
                )
            }
            Spent::Sliding { .. } => (spent, now + self.window),
        };
        self.view = (spent > 0).then_some(View { spent, until });
    }
}

const MICROS_PER_UNIT: f64 = 1e6;
/// A product this close to a whole number was meant to be one: 1.1 times a million is not, in
/// binary, by two parts in 10^16.
const ROUNDING: f64 = 1e-12;

/// Whether this is a number of units.
fn is_amount(units: f64) -> bool {
    units.is_finite() && units >= 0.0
}

/// A cost, never less than it is.
fn micros_up(units: f64) -> Micros {
    if !is_amount(units) {
        return Micros::MAX;
    }
    let exact = units * MICROS_PER_UNIT;
    // Saturates.
    whole(exact).unwrap_or(exact.ceil()) as Micros
}

/// What may be spent, never more than it is.
fn micros_down(units: f64) -> Micros {
    let exact = units * MICROS_PER_UNIT;
    // Saturates, and what is no number is nothing.
    whole(exact).unwrap_or(exact.floor()) as Micros
}

/// The whole number that was meant.
fn whole(exact: f64) -> Option<f64> {
    let rounded = exact.round();
    (rounded > 0.0 && (exact - rounded).abs() <= exact.abs() * ROUNDING).then_some(rounded)
}

#[cfg(test)]
mod tests;
