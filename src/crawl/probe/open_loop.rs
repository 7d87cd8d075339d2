//! An open loop on the crawl's own: requests come in when they are due, and what becomes of each
//! is told by when it was.

use std::time::Duration;

use crate::base::slab::Slab;
use crate::base::time::{Instant, Wall};
use crate::crawl::finish::FinishReason;
use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::room::EXHAUSTED;
use crate::crawl::probe::report::{ProbeInterval, ProbeReport, Tally};
use crate::crawl::probe::schedule::{Arrival, Schedule};
use crate::fetch::failure::FailureKind;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::Job;
use crate::frontier::request::Request;
use crate::sink::page::Page;
use crate::wire::url::CrawlUrl;

/// Requests by the clock, and the book that is kept of them.
pub(in crate::crawl) struct OpenLoop {
    schedule: Schedule,
    /// The same, ahead of it where requests come due faster than they are taken in: the end of
    /// chance is known as soon as it is past.
    ahead: Schedule,
    targets: Vec<Target>,
    next_target: usize,
    new_connections: bool,
    /// Requests that came in and have not ended.
    open: Slab<Open>,
    /// It has begun: its schedule runs.
    is_begun: bool,
    /// Nothing comes in any more, since then: it was stopped. What would have been due later never
    /// was.
    closed: Option<Instant>,
    /// How long after its end requests that are still open are given up.
    grace: Duration,
    /// An address was refused: nothing can be measured there.
    is_refused: bool,
    /// Requests that ended, measured or not.
    ended: u64,
    report: ProbeReport,
    interval: Option<(Instant, Tally)>,
}

/// One of the requests sent in turn.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub url: CrawlUrl,
    pub request: Request,
}

/// A request that has come in.
#[derive(Clone, Copy, Debug)]
struct Open {
    arrival: Arrival,
    target: usize,
}

/// Requests that may wait for their turn. Behind so many nothing is learned by waiting, too: the
/// server, or we, cannot keep up.
const WAITING_MAX: usize = 65_536;

impl OpenLoop {
    pub(super) fn new(
        schedule: Schedule,
        targets: Vec<Target>,
        new_connections: bool,
        grace: Duration,
        report: ProbeReport,
    ) -> Self {
        assert!(!targets.is_empty(), "a probe asks for something");
        OpenLoop {
            ahead: schedule.clone(),
            schedule,
            is_begun: false,
            closed: None,
            grace,
            targets,
            next_target: 0,
            new_connections,
            open: Slab::new(),
            is_refused: false,
            ended: 0,
            report,
            interval: None,
        }
    }

    /// When something is to be done.
    pub fn next(&self) -> Option<Instant> {
        if self.closed.is_some() {
            // Else what is never taken would be due for ever, and the loop not come to rest.
            return None;
        }
        match self.schedule.next() {
            Some(arrival) => Some(arrival.due),
            None if self.open.is_empty() => None,
            None => Some(self.until()),
        }
    }

    /// When requests that are still open are given up.
    fn until(&self) -> Instant {
        self.schedule.measured_until() + self.grace
    }

    /// Whether nothing more comes in.
    pub fn is_spent(&self) -> bool {
        self.schedule.is_spent()
    }

    /// Why it cannot continue, if it cannot.
    pub fn is_stuck(&self, now: Instant) -> Option<FinishReason> {
        if self.is_refused {
            return Some(FinishReason::BlockedAddress);
        }
        (now >= self.until()).then_some(FinishReason::Overdue)
    }

    /// Whether a connection is kept for requests that are queued or still to come.
    pub fn keeps_connection(&self, is_queued: bool) -> bool {
        !self.new_connections && (is_queued || !self.schedule.is_spent())
    }

    /// Connections that there may be at once.
    pub fn connections_max(&self) -> usize {
        self.report.connections_max
    }

    /// Requests that ended, in the warm-up too.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The next request, if one is due; `waiting` others wait for their turn. None within where it
    /// is dropped for their number.
    pub(in crate::crawl) fn take(&mut self, waiting: usize, now: Instant) -> Option<Option<Job>> {
        if !self.is_begun {
            // Setting up is no part of it.
            self.is_begun = true;
            self.schedule.begin(now);
            self.ahead = self.schedule.clone();
        }
        let arrival = self.schedule.take(now)?;
        match arrival.measured {
            true => self.report.due += 1,
            false => self.report.warmup += 1,
        }
        if waiting >= WAITING_MAX {
            self.report.dropped += u64::from(arrival.measured);
            return Some(None);
        }
        let target = self.next_target;
        self.next_target = (target + 1) % self.targets.len();
        let key = self.open.insert(Open { arrival, target });
        Some(Some(self.job_of(&self.targets[target], key.slot)))
    }

    /// Nothing more comes in: the first time counts.
    pub(in crate::crawl) fn close(&mut self, now: Instant) {
        self.closed.get_or_insert(now);
    }

    /// The requests, sent in turn.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// An attempt at a target, for the request in this slot. It has no number yet.
    pub(super) fn job_of(&self, target: &Target, slot: u32) -> Job {
        let mut extra = Extra::of(&target.request).unwrap_or_default();
        // Given back as the caller's own when the request has ended.
        extra.set_tag(slot.into());
        Job {
            fresh: self.new_connections,
            depth: target.request.depth,
            flags: Flags::of(&target.request),
            extra: Some(extra),
            ..Job::seed(0, target.url.clone())
        }
    }

    /// An attempt has ended: its page has its due time, and the counts are updated.
    pub fn end(&mut self, page: &mut Page) {
        let slot = u32::try_from(page.tag).expect("its tag is our own");
        let key = self
            .open
            .key_of(slot)
            .expect("an attempt ends while its request is open");
        let Open { arrival, target } = *self.open.get(key).expect("it was just found");
        page.tag = self.targets[target].request.tag;
        // It was under none; what stands for that is our own affair.
        page.scopes.clear();
        page.timings.due = Some(arrival.due);
        if !page.is_final {
            self.report.retried += u64::from(arrival.measured);
            return;
        }
        self.open.remove(key);
        self.ended += 1;
        let failure = page.failure.as_ref().map(|failure| failure.kind);
        self.is_refused |= failure == Some(FailureKind::BlockedAddress);
        if arrival.measured {
            let begun = page.timings.dns.unwrap_or(page.timings.started);
            // What our own machine had no socket or port for never had its turn.
            let code = page.failure.as_ref().map(|failure| failure.code);
            let is_lacking = matches!(code, Some(EXHAUSTED | NO_PORT));
            let in_time = self.is_within(begun) && !is_lacking;
            self.report.begun_in_time += u64::from(in_time);
            let tally = self.interval.as_mut().map(|(_, tally)| tally);
            self.report.count(page, arrival.due, tally);
        }
    }

    /// Whether others that count were still due at this moment, which is past.
    fn is_within(&mut self, at: Instant) -> bool {
        let is_unknown = |ahead: &Schedule| ahead.measured_until() == Instant::FAR_FUTURE;
        while is_unknown(&self.ahead) && self.ahead.take(at).is_some() {}
        at < self.ahead.measured_until()
    }

    /// Keeps the distributions of intervals from `now` on.
    pub fn keep_intervals(&mut self, now: Instant) {
        self.interval = Some((now, Tally::default()));
    }

    /// The interval that ends now.
    pub fn take_interval(&mut self, wall: Wall, now: Instant) -> Option<ProbeInterval> {
        let (start, tally) = self.interval.replace((now, Tally::default()))?;
        Some(ProbeInterval {
            start: wall.at(start),
            length: now.saturating_since(start),
            spreads: tally.into_spreads(),
        })
    }

    /// Counters so far.
    pub fn so_far(&self) -> &ProbeReport {
        &self.report
    }

    /// Report up to now.
    pub fn report(
        &self,
        wall: Wall,
        over: Option<FinishReason>,
        connections: u64,
        now: Instant,
    ) -> ProbeReport {
        let now = self.closed.map_or(now, |closed| closed.min(now));
        let mut report = self.report.clone();
        let from = self.schedule.measured_from();
        report.finish_reason = over;
        report.started = wall.at(self.schedule.start());
        report.measured_from = wall.at(from);
        let until = self.schedule.measured_until();
        let to = match self.schedule.is_spent() {
            true => until,
            false => until.min(now),
        };
        report.span = to.saturating_since(from);
        report.connections = connections;
        if over.is_some() {
            let left = self.open.iter();
            report.unsent = left.filter(|(_, open)| open.arrival.measured).count() as u64;
            // What came due while we were too busy to see it.
            let mut unseen = self.schedule.clone();
            while let Some(arrival) = unseen.take(now) {
                report.due += u64::from(arrival.measured);
                report.unsent += u64::from(arrival.measured);
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::crawl::probe::{Arrivals, Length};
    use crate::fetch::failure::Failure;
    use crate::sink::page::samples;

    /// A load of so many requests, a second apart in the mean.
    fn load(arrivals: Arrivals, count: u64) -> OpenLoop {
        let (pace, length) = ((arrivals, 1.0), Length::Requests(count));
        let rng = Rng::from_seed(1);
        let schedule = Schedule::new(pace, Duration::ZERO, length, rng, Instant::START);
        let request = Request::get("http://a.test/");
        let url = CrawlUrl::parse(&request.url).expect("a URL");
        let targets = vec![Target { url, request }];
        let report = ProbeReport::new(pace, length, 1, 10);
        OpenLoop::new(schedule, targets, false, Duration::ZERO, report)
    }

    /// A load of two requests a second apart, both taken.
    fn taken() -> OpenLoop {
        let mut load = load(Arrivals::Constant, 2);
        for second in [0, 1] {
            let now = Instant::START + Duration::from_secs(second);
            assert!(load.take(0, now).is_some_and(|job| job.is_some()));
        }
        load
    }

    #[test]
    fn what_our_machine_had_no_socket_for_never_had_its_turn() {
        let mut load = taken();
        let failed = |code| {
            let mut page = samples::page(0);
            page.timings.started = Instant::START;
            page.failure = Some(Failure::new(FailureKind::Connect, code, "no"));
            page
        };
        let mut page = failed("refused");
        load.end(&mut page);
        assert_eq!(load.so_far().begun_in_time, 1);
        let mut page = failed(EXHAUSTED);
        page.tag = 1;
        load.end(&mut page);
        assert_eq!(load.so_far().begun_in_time, 1);
        assert_eq!(load.so_far().errors(), 2);
    }
    #[test]
    fn the_end_of_chance_is_known_when_it_is_past_although_requests_wait_to_be_taken_in() {
        let mut load = load(Arrivals::Poisson, 100);
        let at = |second| Instant::START + Duration::from_secs(second);
        assert!(load.take(0, at(0)).is_none(), "it begins");
        assert!(load.take(0, at(1000)).is_some());
        assert_eq!(load.schedule.measured_until(), Instant::FAR_FUTURE);
        assert!(load.is_within(at(20)));
        assert!(!load.is_within(at(1000)));
        assert!(load.is_within(at(20)), "it is the moment that counts");
        while load.take(0, at(1000)).is_some() {}
        let until = load.schedule.measured_until();
        assert!((at(70)..at(130)).contains(&until), "{until:?}");
        assert!(load.is_within(until - Duration::from_nanos(1)));
        assert!(!load.is_within(until));
    }
}
