//! The open loop: creates requests at their due times, and measures their latency from due.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::base::ids::LaneId;
use crate::base::slab::{Key, Slab};
use crate::base::time::{Instant, Wall};
use crate::crawl::finish::FinishReason;
use crate::crawl::network::ports::NO_PORT;
use crate::crawl::network::room::EXHAUSTED;
use crate::crawl::probe::report::{ProbeInterval, ProbeReport, Tally};
use crate::crawl::probe::schedule::{Arrival, Schedule};
use crate::crawl::probe::watch::Watch;
use crate::fetch::failure::FailureKind;
use crate::frontier::extra::{Extra, Flags};
use crate::frontier::job::{Job, Rank};
use crate::frontier::request::Request;
use crate::sink::page::Page;
use crate::wire::url::CrawlUrl;

/// Creates a request at each due time, and counts the results.
pub(in crate::crawl) struct OpenLoop {
    schedule: Schedule,
    /// A copy of `schedule` that may be ahead of it while due requests wait to be taken; with
    /// random gaps, it determines whether `measured_until` is past.
    ahead: Schedule,
    targets: Vec<Target>,
    next_target: usize,
    new_connections: bool,
    /// The last result of each target, where that is kept. A target has one open request then.
    watch: Option<Watched>,
    /// Requests that were taken and have not ended.
    open: Slab<Open>,
    /// Whether the schedule has started.
    is_begun: bool,
    /// When the probe was stopped. Requests due later are not counted.
    closed: Option<Instant>,
    /// How long after the measurement open requests are abandoned.
    grace: Duration,
    /// Whether a target's address is not allowed.
    is_refused: bool,
    /// Requests that ended, measured or not.
    ended: u64,
    report: ProbeReport,
    interval: Option<(Instant, Tally)>,
}

/// One of the requests that are sent in turn.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub url: CrawlUrl,
    pub request: Request,
}

/// A request that was taken from the schedule.
#[derive(Clone, Copy, Debug)]
struct Open {
    arrival: Arrival,
    target: usize,
    /// Where it was queued last, and its rank there.
    queued: Option<(LaneId, Rank)>,
    /// Its entry in `Watched::deadlines`.
    deadline: Option<Instant>,
}

/// A request that was queued.
#[derive(Clone, Copy, Debug)]
pub(in crate::crawl) struct QueuedRequest {
    pub tag: u64,
    /// Its rank in its lane.
    pub rank: Rank,
    /// It was sent before.
    pub is_repeated: bool,
}

/// A request to a watched target that may wait no longer.
#[derive(Clone, Copy, Debug)]
pub(in crate::crawl) struct Overdue {
    pub tag: u64,
    /// Where it was queued last, and its rank there.
    pub queued: Option<(LaneId, Rank)>,
    /// All of its time is over, not only the part in which it must have got a connection.
    pub is_over: bool,
}

/// Targets that are watched.
struct Watched {
    watch: Watch,
    /// The time between two requests to the same target.
    every: Duration,
    /// How long a request may take from its due time on.
    timeout: Duration,
    /// Until when each open request may wait, and its slot.
    deadlines: BTreeSet<(Instant, u32)>,
    /// When requests were last held back, by an order or by a sink that took no more.
    held: Option<Instant>,
}

impl Watched {
    /// Sets until when an open request may wait.
    fn set_deadline(&mut self, slot: u32, open: &mut Open, at: Option<Instant>) {
        if let Some(old) = open.deadline {
            self.deadlines.remove(&(old, slot));
        }
        open.deadline = at;
        if let Some(at) = at {
            self.deadlines.insert((at, slot));
        }
    }
}

/// Maximum waiting requests; further ones are dropped. With so many the server or this machine
/// cannot keep up with the rate, and waiting would measure nothing more.
const WAITING_MAX: usize = 65_536;

impl OpenLoop {
    pub(super) fn new(
        schedule: Schedule,
        targets: Vec<Target>,
        new_connections: bool,
        grace: Duration,
        report: ProbeReport,
    ) -> Self {
        assert!(!targets.is_empty(), "a probe has at least one target");
        OpenLoop {
            ahead: schedule.clone(),
            schedule,
            is_begun: false,
            closed: None,
            grace,
            targets,
            next_target: 0,
            new_connections,
            watch: None,
            open: Slab::new(),
            is_refused: false,
            ended: 0,
            report,
            interval: None,
        }
    }

    /// Keeps the last result of each target, which is requested once in `every`. A request ends when `timeout` is
    /// over, unless it has its own, whatever it waits for.
    pub(super) fn watch(&mut self, every: Duration, timeout: Duration, wall_at_start: Wall) {
        let urls = self.targets.iter().map(|target| target.url.as_str());
        self.watch = Some(Watched {
            watch: Watch::new(urls, wall_at_start),
            every,
            timeout,
            deadlines: BTreeSet::new(),
            held: None,
        });
    }

    /// The last result of each target, where that is kept.
    pub(in crate::crawl) fn watched(&self) -> Option<&Watch> {
        self.watch.as_ref().map(|watched| &watched.watch)
    }

    /// The next deadline: the next due time, or when open requests are abandoned.
    pub fn next(&self) -> Option<Instant> {
        if self.closed.is_some() {
            // Arrivals that are never taken would stay due, and the loop would never sleep.
            return None;
        }
        let next = match self.schedule.next() {
            Some(arrival) => Some(arrival.due),
            None if self.open.is_empty() => None,
            None => Some(self.until()),
        };
        let watched = self.watch.as_ref();
        let overdue = watched.and_then(|watched| watched.deadlines.first());
        next.into_iter().chain(overdue.map(|(at, _)| *at)).min()
    }

    /// A request waits in this lane from now on: for the first time, or once more.
    ///
    /// The first time it must get a connection in the first half of its time. Where all connections are taken, it would
    /// otherwise get one with hardly any time left, and fail there, and so would all behind it.
    pub fn note_queued(&mut self, queued: QueuedRequest, lane: LaneId) {
        let (Some(key), Some(watched)) = (key_of(&self.open, queued.tag), &mut self.watch) else {
            return;
        };
        let open = self.open.get_mut(key).expect("its key was just found");
        open.queued = Some((lane, queued.rank));
        let timeout = timeout_of(&self.targets[open.target], watched);
        let within = match queued.is_repeated {
            false => timeout / 2,
            true => timeout,
        };
        watched.set_deadline(key.slot, open, Some(open.arrival.due + within));
    }

    /// A request that may wait no longer, once, whether it still waits or not.
    pub fn poll_overdue(&mut self, now: Instant) -> Option<Overdue> {
        let watched = self.watch.as_mut()?;
        let (at, slot) = *watched.deadlines.first().filter(|(at, _)| *at <= now)?;
        let key = key_of(&self.open, slot.into()).expect("only open requests have deadlines");
        let open = self.open.get_mut(key).expect("its key was just found");
        watched.set_deadline(slot, open, None);
        Some(Overdue {
            tag: slot.into(),
            queued: open.queued,
            is_over: at >= open.arrival.due + timeout_of(&self.targets[open.target], watched),
        })
    }

    /// A request may wait until all of its time is over.
    pub fn extend(&mut self, tag: u64) {
        let (Some(key), Some(watched)) = (key_of(&self.open, tag), &mut self.watch) else {
            return;
        };
        let open = self.open.get_mut(key).expect("its key was just found");
        let timeout = timeout_of(&self.targets[open.target], watched);
        watched.set_deadline(key.slot, open, Some(open.arrival.due + timeout));
    }

    /// Whether a request that is queued may wait no longer.
    pub fn is_overdue(&self, tag: u64, now: Instant) -> bool {
        let open = key_of(&self.open, tag).and_then(|key| self.open.get(key));
        open.and_then(|open| open.deadline)
            .is_some_and(|at| at <= now)
    }

    /// Requests are held back now, for a reason that is not the targets'.
    pub fn note_held(&mut self, now: Instant) {
        if let Some(watched) = &mut self.watch {
            watched.held = Some(now);
        }
    }

    /// Whether requests were held back since an open one was due.
    pub fn was_held(&self, tag: u64) -> bool {
        let open = key_of(&self.open, tag).and_then(|key| self.open.get(key));
        open.is_some_and(|open| self.was_held_since(open.arrival.due))
    }

    fn was_held_since(&self, due: Instant) -> bool {
        let held = self.watch.as_ref().and_then(|watched| watched.held);
        held.is_some_and(|held| due <= held)
    }

    /// An open request is not sent, for a reason that is not its target's: the last result stays.
    pub fn skip(&mut self, tag: u64) {
        let key = key_of(&self.open, tag).expect("its request is open");
        let mut open = self.open.remove(key).expect("its key was just found");
        match open.arrival.measured {
            true => self.report.due -= 1,
            false => self.report.warmup -= 1,
        }
        self.report.skipped += u64::from(open.arrival.measured);
        if let Some(watched) = &mut self.watch {
            watched.set_deadline(key.slot, &mut open, None);
            watched.watch.skip_open(open.target);
        }
    }

    /// When an open request to a watched target was due.
    pub fn due_of(&self, tag: u64) -> Option<Instant> {
        self.watch.as_ref()?;
        let key = key_of(&self.open, tag)?;
        self.open.get(key).map(|open| open.arrival.due)
    }

    /// When open requests are abandoned.
    fn until(&self) -> Instant {
        self.schedule.measured_until() + self.grace
    }

    /// Whether every arrival has been taken.
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

    /// Whether an idle connection is kept: further requests are queued or scheduled.
    pub fn keeps_connection(&self, is_queued: bool) -> bool {
        !self.new_connections && (is_queued || !self.schedule.is_spent())
    }

    /// Maximum open connections.
    pub fn connections_max(&self) -> usize {
        self.report.connections_max
    }

    /// Requests that ended, those of the warm-up included.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The next request, if one is due; `waiting` others wait for a connection. `Some(None)`: it was
    /// dropped, because [`WAITING_MAX`] wait.
    pub(in crate::crawl) fn take(&mut self, waiting: usize, now: Instant) -> Option<Option<Job>> {
        if !self.is_begun {
            // The schedule starts after set-up.
            self.is_begun = true;
            self.schedule.begin(now);
            self.ahead = self.schedule.clone();
        }
        let arrival = self.schedule.take(now)?;
        let target = self.next_target;
        self.next_target = (target + 1) % self.targets.len();
        // Too many wait. Where they wait for ourselves, that says nothing about their targets.
        let is_dropped = waiting >= WAITING_MAX;
        let is_held = is_dropped && self.was_held_since(arrival.due);
        // After a stall those of many rounds are due at once: of each target the last is sent.
        let skips = |watched: &mut Watched| {
            let is_stale = now.saturating_since(arrival.due) >= watched.every;
            watched.watch.skips(target, is_stale || is_held)
        };
        if self.watch.as_mut().is_some_and(skips) {
            self.report.skipped += u64::from(arrival.measured);
            return Some(None);
        }
        match arrival.measured {
            true => self.report.due += 1,
            false => self.report.warmup += 1,
        }
        if is_dropped {
            self.report.dropped += u64::from(arrival.measured);
            if let Some(watched) = &mut self.watch {
                watched
                    .watch
                    .drops(target, now.saturating_since(arrival.due), now);
            }
            return Some(None);
        }
        let key = self.open.insert(Open {
            arrival,
            target,
            queued: None,
            deadline: None,
        });
        if let Some(watched) = &mut self.watch {
            watched.watch.begin(target);
        }
        Some(Some(self.job_of(&self.targets[target], key.slot)))
    }

    /// Stops taking arrivals; later calls have no effect.
    pub(in crate::crawl) fn close(&mut self, now: Instant) {
        self.closed.get_or_insert(now);
    }

    /// The requests that are sent in turn.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// An attempt at a target, for the request in this slot; its number is not assigned yet.
    pub(super) fn job_of(&self, target: &Target, slot: u32) -> Job {
        let mut extra = Extra::of(&target.request).unwrap_or_default();
        // `end` replaces it by the caller's tag.
        extra.set_tag(slot.into());
        Job {
            fresh: self.new_connections,
            depth: target.request.depth,
            flags: Flags::of(&target.request),
            extra: Some(extra),
            ..Job::seed(0, target.url.clone())
        }
    }

    /// Sets the due time and the caller's tag in the page of an attempt that ended, and counts it.
    pub fn end(&mut self, page: &mut Page) {
        let key = key_of(&self.open, page.tag).expect("an attempt ends while its request is open");
        let mut open = *self.open.get(key).expect("its key was just found");
        let Open {
            arrival, target, ..
        } = open;
        page.tag = self.targets[target].request.tag;
        // The placeholder for "no scope" is internal.
        page.scopes.clear();
        page.timings.due = Some(arrival.due);
        if !page.is_final {
            self.report.retried += u64::from(arrival.measured);
            return;
        }
        self.open.remove(key);
        self.ended += 1;
        let failure = page.failure.as_ref().map(|failure| failure.kind);
        match &mut self.watch {
            Some(watched) => {
                watched.watch.end(target, page);
                watched.set_deadline(key.slot, &mut open, None);
            }
            // Of targets that are watched one may have such an address now and then: it is down.
            None => self.is_refused |= failure == Some(FailureKind::BlockedAddress),
        }
        if arrival.measured {
            let begun = page.timings.dns.unwrap_or(page.timings.started);
            // A request without a local socket or port was never started.
            let code = page.failure.as_ref().map(|failure| failure.name);
            let is_lacking = matches!(code, Some(EXHAUSTED | NO_PORT));
            let in_time = self.is_within(begun) && !is_lacking;
            self.report.begun_in_time += u64::from(in_time);
            let tally = self.interval.as_mut().map(|(_, tally)| tally);
            self.report.count(page, arrival.due, tally);
        }
    }

    /// Whether `at`, which is past, is before `measured_until`.
    fn is_within(&mut self, at: Instant) -> bool {
        let is_unknown = |ahead: &Schedule| ahead.measured_until() == Instant::FAR_FUTURE;
        while is_unknown(&self.ahead) && self.ahead.take(at).is_some() {}
        at < self.ahead.measured_until()
    }

    /// Starts to record distributions per interval.
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
            // Arrivals that were due and not taken.
            let mut unseen = self.schedule.clone();
            while let Some(arrival) = unseen.take(now) {
                report.due += u64::from(arrival.measured);
                report.unsent += u64::from(arrival.measured);
            }
        }
        report
    }
}

/// The key of the open request with this tag.
fn key_of(open: &Slab<Open>, tag: u64) -> Option<Key> {
    open.key_of(u32::try_from(tag).ok()?)
}

/// How long a request to a watched target may take from its due time on.
fn timeout_of(target: &Target, watched: &Watched) -> Duration {
    target.request.timeout.unwrap_or(watched.timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::Rng;
    use crate::crawl::probe::{Arrivals, Length};
    use crate::fetch::failure::Failure;
    use crate::sink::page::samples;

    /// A loop of `count` requests, with a mean gap of 1 s.
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

    /// A loop of two requests with a gap of 1 s, both taken.
    fn taken() -> OpenLoop {
        let mut load = load(Arrivals::Constant, 2);
        for second in [0, 1] {
            let now = Instant::START + Duration::from_secs(second);
            assert!(load.take(0, now).is_some_and(|job| job.is_some()));
        }
        load
    }

    #[test]
    fn a_request_without_a_local_socket_does_not_count_as_begun() {
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
    fn after_a_stall_each_target_is_requested_once() {
        let every = Duration::from_secs(2);
        let target = |path: &str| {
            let request = Request::get(format!("http://a.test/{path}"));
            let url = CrawlUrl::parse(&request.url).expect("a URL");
            Target { url, request }
        };
        let mut load = load(Arrivals::Constant, 1000);
        load.targets = vec![target("a"), target("b")];
        load.watch(every, every, Wall::default());
        let at = |second| Instant::START + Duration::from_secs(second);
        for second in [0, 1] {
            let job = load.take(0, at(second)).flatten().expect("one is due");
            let mut page = samples::page(0);
            page.tag = job.tag();
            load.end(&mut page);
        }
        // Forty rounds later.
        let mut taken = Vec::new();
        while let Some(job) = load.take(0, at(81)) {
            let Some(job) = job else {
                continue;
            };
            taken.push(job.url.as_str().to_owned());
            let mut page = samples::page(0);
            page.tag = job.tag();
            load.end(&mut page);
        }
        assert_eq!(taken, ["http://a.test/a", "http://a.test/b"]);
        let counts = load.watched().expect("they are watched").counts();
        assert_eq!(counts.skipped, 78);
        assert_eq!(load.so_far().skipped, 78);
    }

    #[test]
    fn a_request_behind_too_many_is_dropped_unless_they_wait_for_ourselves() {
        let mut load = load(Arrivals::Constant, 1000);
        let second = Duration::from_secs(1);
        load.watch(second, second, Wall::default());
        let at = |second| Instant::START + Duration::from_secs(second);
        let counts = |load: &OpenLoop| load.watched().expect("they are watched").counts();
        let job = load.take(0, at(0)).flatten().expect("one is due");
        let mut page = samples::page(0);
        page.tag = job.tag();
        load.end(&mut page);
        load.note_held(at(1));
        assert!(
            load.take(WAITING_MAX, at(1))
                .is_some_and(|job| job.is_none())
        );
        let held = counts(&load);
        assert_eq!((held.up, held.skipped, held.dropped), (1, 1, 0));
        assert!(
            load.take(WAITING_MAX, at(2))
                .is_some_and(|job| job.is_none())
        );
        let dropped = counts(&load);
        assert_eq!((dropped.up, dropped.skipped, dropped.dropped), (0, 1, 1));
        let report = load.so_far();
        assert_eq!((report.due, report.skipped, report.dropped), (2, 1, 1));
    }

    #[test]
    fn the_end_of_random_arrivals_is_determined_while_due_requests_wait() {
        let mut load = load(Arrivals::Poisson, 100);
        let at = |second| Instant::START + Duration::from_secs(second);
        assert!(load.take(0, at(0)).is_none(), "the first gap is not over");
        assert!(load.take(0, at(1000)).is_some());
        assert_eq!(load.schedule.measured_until(), Instant::FAR_FUTURE);
        assert!(load.is_within(at(20)));
        assert!(!load.is_within(at(1000)));
        assert!(
            load.is_within(at(20)),
            "the answer depends on the instant alone"
        );
        while load.take(0, at(1000)).is_some() {}
        let until = load.schedule.measured_until();
        assert!((at(70)..at(130)).contains(&until), "{until:?}");
        assert!(load.is_within(until - Duration::from_nanos(1)));
        assert!(!load.is_within(until));
    }
}
