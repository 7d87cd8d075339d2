//! One scope: its departures so far, in order, and what each must keep.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::settings::{DEPARTURES_MAX, Limits};
use super::time::{Time, seconds};
use super::verdict::Kind;
use super::waiting::{Departure, Hold};

/// The state of one scope.
#[derive(Debug, Default)]
pub struct Row {
    pub departures: u64,
    /// Violations by kind.
    pub kinds: Vec<(Kind, u64)>,
    /// The shortest gap.
    pub gap_min: Option<u64>,
    /// The least gap that the settings allowed at the last departure.
    pub gap_allowed: Option<u64>,
    pub unobserved_gaps: u64,
    last: Option<(Time, u64)>,
    /// The last departures, as many as limits concern.
    recent: VecDeque<Time>,
    in_flight: BinaryHeap<Reverse<Time>>,
    /// Holds that may concern a departure that is yet to come.
    hold: Option<Box<Hold>>,
    slots: u32,
}

/// How a departure violated a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    pub kind: Kind,
    /// The limit: nanoseconds, or a number of requests.
    pub limit: u64,
    /// Nanoseconds, or the number of requests, that there were.
    pub found: u64,
    /// The attempt before it, or that which asked for the hold.
    pub after: Option<u64>,
}

impl Breach {
    /// Nanoseconds by which it was too early; `None` of numbers of requests.
    pub fn early(&self) -> Option<u64> {
        self.is_time()
            .then(|| self.limit.saturating_sub(self.found))
    }

    fn is_time(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Concurrency | Kind::TotalConcurrency | Kind::CrawlDelayConcurrency
        )
    }

    pub fn detail(&self) -> String {
        let (found, limit) = (seconds(self.found), seconds(self.limit));
        match self.kind {
            Kind::RetryAfter | Kind::RateLimit => {
                format!("{found} s after a reply that asked for {limit} s")
            }
            Kind::HoldUntil => format!("{limit} s before the end of its hold_until"),
            _ if self.is_time() => format!("{found} s in place of {limit} s"),
            _ => format!("{} in flight in place of {}", self.found, self.limit),
        }
    }
}

/// What is in force for a departure: when it was sent, and when throttling allowed it. It must violate both to be a
/// violation.
#[derive(Clone, Copy, Debug)]
pub struct InForce {
    pub at_departure: Limits,
    pub as_allowed: Limits,
}

/// `requests_per_minute` is for this time.
const MINUTE: u64 = 60_000_000_000;

impl Row {
    /// A request departs; calls `found` with what it violates.
    pub fn depart(
        &mut self,
        sent: Time,
        departure: &Departure,
        limits: Option<InForce>,
        found: &mut Findings,
    ) {
        self.departures += 1;
        self.check_hold(sent, departure, found);
        if let Some((last, _)) = self.last {
            let gap = sent.since(last);
            self.gap_min = Some(self.gap_min.map_or(gap, |least| least.min(gap)));
        }
        if let Some(limits) = limits {
            self.check_hold_until(sent, limits, found);
            self.check_gap(sent, limits, found);
            self.check_recent(sent, limits, found);
            self.check_concurrency(sent, departure.end, limits, found);
        }
        self.last = Some((sent, departure.id));
    }

    /// When the last request departed.
    pub fn last_sent(&self) -> Option<Time> {
        self.last.map(|(sent, _)| sent)
    }

    /// A request departs to an origin with a Crawl-delay, or with none.
    pub fn depart_to_origin(&mut self, sent: Time, departure: &Departure, found: &mut Findings) {
        let delay = departure.crawl_delay;
        if let Some((last, id)) = self.last
            && sent.since(last) < delay
        {
            found.add(Breach {
                kind: Kind::CrawlDelay,
                limit: delay,
                found: sent.since(last),
                after: Some(id),
            });
        }
        if departure.is_alone {
            let others = self.others_in_flight(sent);
            if others > 0 {
                found.add(Breach {
                    kind: Kind::CrawlDelayConcurrency,
                    limit: 1,
                    found: others + 1,
                    after: self.last.map(|(_, id)| id),
                });
            }
            self.in_flight.push(Reverse(departure.end));
        }
        self.last = Some((sent, departure.id));
    }

    /// One more request is in flight; returns how many are.
    pub fn count_in_flight(&mut self, sent: Time, end: Time) -> u64 {
        let others = self.others_in_flight(sent);
        self.in_flight.push(Reverse(end));
        others + 1
    }

    /// The scope is held. What two holds have in common counts once.
    pub fn hold(&mut self, hold: Hold) {
        let known = self.hold.get_or_insert_with(|| Box::new(hold));
        if hold.until >= known.until {
            let from = match known.until >= hold.from {
                true => known.from.min(hold.from),
                false => hold.from,
            };
            **known = Hold { from, ..hold };
        }
    }

    fn check_hold(&mut self, sent: Time, departure: &Departure, found: &mut Findings) {
        let Some(hold) = self.hold.as_deref() else {
            return;
        };
        if sent >= hold.until {
            self.hold = None;
            return;
        }
        if sent <= hold.from {
            return;
        }
        if departure.allowed_at <= hold.from {
            return found.excuse();
        }
        found.add(Breach {
            kind: match hold.by_rate_limit {
                true => Kind::RateLimit,
                false => Kind::RetryAfter,
            },
            limit: hold.until.since(hold.from),
            found: sent.since(hold.from),
            after: Some(hold.by),
        });
    }

    fn check_hold_until(&self, sent: Time, limits: InForce, found: &mut Findings) {
        let until = limits.at_departure.hold_until;
        if sent >= until {
            return;
        }
        if sent >= limits.as_allowed.hold_until {
            return found.excuse();
        }
        found.add(Breach {
            kind: Kind::HoldUntil,
            limit: until.since(sent),
            found: 0,
            after: None,
        });
    }

    fn check_gap(&mut self, sent: Time, limits: InForce, found: &mut Findings) {
        let least = limits.at_departure.gap.min(limits.as_allowed.gap);
        self.gap_allowed = Some(limits.at_departure.gap);
        let Some((last, id)) = self.last else {
            return;
        };
        if sent.since(last) < least {
            found.add(Breach {
                kind: Kind::Gap,
                limit: least,
                found: sent.since(last),
                after: Some(id),
            });
        }
    }

    fn check_recent(&mut self, sent: Time, limits: InForce, found: &mut Findings) {
        let Limits {
            slots, per_minute, ..
        } = limits.at_departure;
        if slots != self.slots {
            // Other slots: what departed before belongs to none of them.
            self.recent.clear();
            self.slots = slots;
        }
        let kept = slots.max(per_minute);
        if kept == 0 {
            return;
        }
        if kept > DEPARTURES_MAX {
            return found.leave_out();
        }
        let before = |count: u32| {
            let at = self.recent.len().checked_sub(count as usize)?;
            Some(sent.since(self.recent[at]))
        };
        let slot_gap = limits.at_departure.slot_gap.min(limits.as_allowed.slot_gap);
        if slots > 0
            && let Some(gap) = before(slots)
            && gap < slot_gap
        {
            found.add(Breach {
                kind: Kind::SlotGap,
                limit: slot_gap,
                found: gap,
                after: None,
            });
        }
        if per_minute > 0
            && limits.as_allowed.per_minute > 0
            && let Some(gap) = before(per_minute.max(limits.as_allowed.per_minute))
            && gap < MINUTE
        {
            found.add(Breach {
                kind: Kind::PerMinute,
                limit: MINUTE,
                found: gap,
                after: None,
            });
        }
        self.recent.push_back(sent);
        if self.recent.len() > kept as usize {
            self.recent.pop_front();
        }
    }

    fn check_concurrency(&mut self, sent: Time, end: Time, limits: InForce, found: &mut Findings) {
        let (now, then) = (
            limits.at_departure.concurrency,
            limits.as_allowed.concurrency,
        );
        let count = self.count_in_flight(sent, end);
        let most = u64::from(now.max(then));
        if now > 0 && then > 0 && count > most {
            found.add(Breach {
                kind: Kind::Concurrency,
                limit: most,
                found: count,
                after: self.last.map(|(_, id)| id),
            });
        }
    }

    /// Requests that departed before a time and had not ended.
    fn others_in_flight(&mut self, sent: Time) -> u64 {
        while let Some(Reverse(end)) = self.in_flight.peek()
            && *end <= sent
        {
            self.in_flight.pop();
        }
        self.in_flight.len() as u64
    }
}

/// What one departure violates.
#[derive(Debug, Default)]
pub struct Findings {
    pub breaches: Vec<Breach>,
    /// It was on its way when it became forbidden.
    pub excused: bool,
    /// A limit concerns more departures than are kept.
    pub left_out: bool,
}

impl Findings {
    fn add(&mut self, breach: Breach) {
        self.breaches.push(breach);
    }

    fn excuse(&mut self) {
        self.excused = true;
    }

    fn leave_out(&mut self) {
        self.left_out = true;
    }
}
