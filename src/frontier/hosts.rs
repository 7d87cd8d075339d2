//! Hosts: how many pages each has given, and whether it still answers.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::chunked::ChunkedVec;
use crate::base::intern::Interner;
use crate::base::secret::Secret;
use crate::base::time::Instant;

/// A host by the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// All hosts that the crawl has to do with. Their names are spelled out elsewhere, among those of
/// the scopes, which are mostly the same.
///
/// ```text
///        five failures in a row,             a failure, HOST_DOWN_AFTER
///        or no answer for robots.txt         after the first of them
/// Up ───────────────────────────────► Held ───────────────────────────► Down
///  ▲                                   │ ▲                               │
///  │                        hold over  ▼ │ a failure: twice as long      │
///  └──────────── a success ◄────────── Up (one more try) ◄───────────────┘ 15 min later
/// ```
#[derive(Debug)]
pub struct Hosts {
    hosts: ChunkedVec<Host>,
    /// What each has given; empty where nobody asks how much that is.
    given: ChunkedVec<Given>,
    counts: bool,
    /// Those that failed since their last success.
    failing: HashMap<Place, Failing, Secret>,
    /// Those that are held, by the end of their holds: each once. Holds that are over leave it in time.
    held: BTreeSet<(Instant, Place)>,
    /// For how long nothing could be asked through no fault of theirs, until `stopped_since`.
    stopped: Duration,
    /// Since when it is so again.
    stopped_since: Option<Instant>,
}

/// What is remembered of one host. There may be millions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// A seed names it, or a seed's redirect leads to it.
    pub is_seed: bool,
    /// One of its ports may have an entry in `failing`.
    has_failed: bool,
}

/// What is connected to: a host and a port. A port that is closed says nothing of another.
pub type Place = (HostId, u16);

/// A host that failed since its last success.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// The first failure in the row, in [running time](Hosts::running).
    since: Instant,
    /// Failures since the last success.
    failures: u8,
    /// Holds since the last success; [`GIVEN_UP`] once it was given up.
    holds: u8,
    /// The end of its hold, or of its being given up; in the past while it may be tried.
    until: Instant,
    /// It accepted connections and answered nothing: a connection alone is no success.
    is_mute: bool,
    /// Times it was given up.
    given_up: u8,
    /// It was given up because our machine has no route to it.
    is_unroutable: bool,
    /// Until then, in running time, it was excused.
    excused_until: Instant,
}

/// The pages of one host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Pages fetched.
    pub pages: u32,
    /// Pages being fetched.
    pub in_flight: u32,
}

/// Whether a host may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It may.
    Up,
    /// It failed; not before this moment.
    Held(Instant),
    /// It was given up: its URLs end as `host_down`, or as `robots.unreachable` where its robots.txt
    /// never came.
    Down,
    /// It was given up because our machine has no route to it: its URLs end as `connect.unreachable`.
    Unroutable,
}

/// How a host failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFailure {
    /// Its name could not be resolved, or it could not be connected to.
    Unconnected,
    /// Its robots.txt got no answer, before or after a connection.
    Unanswered,
}

/// What came of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostVerdict {
    /// Nothing yet, or it was of a request on its way when an earlier verdict fell.
    Counted,
    /// The host is held for so long.
    Held(Duration),
    /// It was without a success for this long and is given up.
    GivenUp(Duration),
}

/// Failures in a row that put a host on hold.
const FAILURES_MAX: u8 = 5;
/// The first hold; each further one is twice as long.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// The longest hold, and how long a host that was given up stays so. Then one request tries again, and
/// if that fails the host stays given up for twice as long.
const HOLD_MAX: Duration = Duration::from_secs(15 * 60);
/// The longest that a host stays given up.
const DOWN_MAX: Duration = Duration::from_secs(24 * 3600);
/// In place of the number of holds.
const GIVEN_UP: u8 = u8::MAX;

impl Hosts {
    /// None yet.
    pub fn new(secret: &Secret) -> Self {
        Hosts {
            hosts: ChunkedVec::new(),
            given: ChunkedVec::new(),
            counts: false,
            failing: HashMap::with_hasher(*secret),
            held: BTreeSet::new(),
            stopped: Duration::ZERO,
            stopped_since: None,
        }
    }

    /// The host of a name, made if it is new.
    pub fn host(&mut self, name: &str, names: &mut Interner) -> HostId {
        let id = names.intern(name);
        names.keep(id);
        self.hosts.grow_to(id as usize + 1, Host::default);
        HostId(id)
    }

    /// Counts pages from now on: where they are limited.
    pub fn count_pages(&mut self) {
        self.counts = true;
    }

    /// The pages of a host; none where they are not counted.
    pub fn given(&self, id: HostId) -> Given {
        let given = self.given.get(id.0 as usize);
        given.copied().unwrap_or_default()
    }

    /// Whether pages are counted.
    pub fn counts_pages(&self) -> bool {
        self.counts
    }

    /// The pages of a host, to be changed, where they are counted.
    pub fn given_mut(&mut self, id: HostId) -> &mut Given {
        self.given.grow_to(id.0 as usize + 1, Given::default);
        &mut self.given[id.0 as usize]
    }

    /// The host of a name, if it is known.
    pub fn find(&self, name: &str, names: &Interner) -> Option<HostId> {
        let id = names.get(name)?;
        self.hosts.get(id as usize).map(|_| HostId(id))
    }

    /// What is remembered of a host.
    pub fn get(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    /// What is remembered of a host, to be changed.
    pub fn get_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }

    /// Whether a host may be asked at `now`.
    pub fn health(&self, place: Place, now: Instant) -> Health {
        if !self.get(place.0).has_failed {
            return Health::Up;
        }
        match self.failing.get(&place) {
            Some(failing) if failing.until <= now => Health::Up,
            Some(failing) if failing.holds < GIVEN_UP => Health::Held(failing.until),
            Some(failing) if failing.is_unroutable => Health::Unroutable,
            Some(_) => Health::Down,
            None => Health::Up,
        }
    }

    /// A host failed. After five failures in a row it is held for 5 s, after one where its robots.txt
    /// got no answer, and again, for twice as long, up to 15 min, after each failure that follows a
    /// hold. It is given up at a failure `down_after` after the first of the row; no hold ends later
    /// than that.
    pub fn failed(
        &mut self,
        place: Place,
        how: HostFailure,
        down_after: Duration,
        now: Instant,
    ) -> HostVerdict {
        if self.health(place, now) != Health::Up {
            // Of requests that were on their way when the verdict fell.
            return HostVerdict::Counted;
        }
        let running = self.running(now);
        let failing = self.failing_mut(place, now);
        let since = running.saturating_since(failing.since);
        let before = failing.until;
        failing.is_mute |= how == HostFailure::Unanswered;
        failing.failures = failing.failures.saturating_add(1);
        let is_tried_again = failing.holds > 0;
        if how == HostFailure::Unconnected && failing.failures < FAILURES_MAX && !is_tried_again {
            return HostVerdict::Counted;
        }
        if since >= down_after {
            self.give_up(place, false, now);
            return HostVerdict::GivenUp(since);
        }
        let hold = HOLD_MIN
            .saturating_mul(1 << failing.holds.min(16))
            .min(HOLD_MAX);
        // Its last try is due when its time is over, not after that.
        let hold = hold.min(down_after - since);
        failing.until = now + hold;
        failing.holds = failing.holds.saturating_add(1).min(GIVEN_UP - 1);
        let until = failing.until;
        self.held.remove(&(before, place));
        self.held.insert((until, place));
        HostVerdict::Held(hold)
    }

    /// Gives a host up, whatever it did. `is_unroutable`: our machine has no route to it.
    pub fn give_up(&mut self, place: Place, is_unroutable: bool, now: Instant) {
        let failing = self.failing_mut(place, now);
        let before = failing.until;
        failing.holds = GIVEN_UP;
        failing.is_unroutable = is_unroutable;
        let silence = HOLD_MAX.saturating_mul(1 << failing.given_up.min(16));
        failing.until = now + silence.min(DOWN_MAX);
        failing.given_up = failing.given_up.saturating_add(1);
        self.held.remove(&(before, place));
    }

    fn failing_mut(&mut self, place: Place, now: Instant) -> &mut Failing {
        let since = self.running(now);
        self.get_mut(place.0).has_failed = true;
        self.failing.entry(place).or_insert(Failing {
            since,
            failures: 0,
            holds: 0,
            until: now,
            is_mute: false,
            given_up: 0,
            is_unroutable: false,
            excused_until: Instant::START,
        })
    }

    /// See [`Frontier::excuse_hosts`](crate::frontier::Frontier::excuse_hosts).
    pub fn excuse_all(&mut self, span: Duration) {
        if self.stopped_since.is_none() {
            self.stopped += span;
        }
    }

    /// See [`Frontier::excuse_host`](crate::frontier::Frontier::excuse_host).
    pub fn excuse(&mut self, place: Place, since: Instant, now: Instant) {
        let running = self.running(now);
        if let Some(failing) = self.failing.get_mut(&place) {
            // Several lanes may lead there.
            let since = since.max(failing.since).max(failing.excused_until);
            failing.since += running.saturating_since(since);
            failing.excused_until = running;
        }
    }

    /// A clock that stands still while nothing can be asked through no fault of the hosts.
    pub fn running(&self, now: Instant) -> Instant {
        self.stopped_since.map_or(now, |since| since.min(now)) - self.stopped
    }

    /// Whether anything can be asked now, or not through no fault of the hosts: such time does not count
    /// towards their being given up.
    pub fn set_stopped(&mut self, is_stopped: bool, now: Instant) {
        match (self.stopped_since, is_stopped) {
            (None, true) => self.stopped_since = Some(now),
            (Some(since), false) => {
                self.stopped += now.saturating_since(since);
                self.stopped_since = None;
            }
            _ => {}
        }
    }

    /// A host was connected to: a success, unless connections are all it gives.
    pub fn connected(&mut self, place: Place) {
        if self.get(place.0).has_failed
            && self.failing.get(&place).is_some_and(|host| !host.is_mute)
        {
            self.forgive(place);
        }
    }

    /// A host answered a request: a success.
    pub fn answered(&mut self, place: Place) {
        if self.get(place.0).has_failed {
            self.forgive(place);
        }
    }

    fn forgive(&mut self, place: Place) {
        if let Some(failing) = self.failing.remove(&place) {
            self.held.remove(&(failing.until, place));
        }
    }

    /// How many hosts are held at `now`, and when the first of these holds is over. Holds that are over
    /// and not yet [forgotten](Hosts::expire) are few.
    pub fn held(&self, now: Instant) -> (usize, Option<Instant>) {
        let over = self
            .held
            .iter()
            .take_while(|(until, _)| *until <= now)
            .count();
        let next = self.held.iter().nth(over).map(|(until, _)| *until);
        (self.held.len() - over, next)
    }

    /// Forgets holds that are over: at most so many, so that a turn stays short.
    pub fn expire(&mut self, now: Instant) {
        for _ in 0..EXPIRED_PER_TURN {
            match self.held.first() {
                Some((until, _)) if *until <= now => self.held.pop_first(),
                _ => return,
            };
        }
    }
}

/// Holds forgotten per call of [`Hosts::expire`].
const EXPIRED_PER_TURN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::HostFailure::{Unanswered, Unconnected};
    use super::*;

    const DOWN_AFTER: Duration = Duration::from_secs(3600);

    fn one() -> (Hosts, Place) {
        let mut hosts = Hosts::new(&Secret::from_seed(1));
        let id = hosts.host("a.test", &mut Interner::new(&Secret::from_seed(1)));
        (hosts, (id, 80))
    }

    fn fail(hosts: &mut Hosts, id: Place, times: u32, now: Instant) -> HostVerdict {
        let fail = |_| hosts.failed(id, Unconnected, DOWN_AFTER, now);
        (0..times).map(fail).last().expect("at least one")
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_million_of_them_fit_into_4_megabytes() {
        assert!(size_of::<Host>() <= 4);
    }

    #[test]
    fn five_failures_in_a_row_hold_a_host_for_five_seconds_then_each_one_for_twice_as_long() {
        let (mut hosts, id) = one();
        let mut now = Instant::START + secs(7);
        assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
        assert_eq!(hosts.health(id, now), Health::Up);
        for seconds in [5, 10, 20, 40, 80, 160, 320, 640, 900, 900] {
            assert_eq!(
                fail(&mut hosts, id, 1, now),
                HostVerdict::Held(secs(seconds))
            );
            let until = now + secs(seconds);
            assert_eq!(hosts.health(id, now), Health::Held(until));
            assert_eq!(hosts.held(now), (1, Some(until)));
            assert_eq!(fail(&mut hosts, id, 9, now), HostVerdict::Counted);
            now = until;
            assert_eq!(hosts.health(id, now), Health::Up);
            assert_eq!(hosts.held(now), (0, None));
        }
    }

    #[test]
    fn the_last_try_is_due_when_its_time_is_over_and_a_failure_then_gives_the_host_up() {
        let (mut hosts, id) = one();
        let down_after = secs(120);
        let mut now = Instant::START;
        let mut holds = Vec::new();
        let span = loop {
            match hosts.failed(id, Unanswered, down_after, now) {
                HostVerdict::Held(hold) => holds.push(hold.as_secs()),
                HostVerdict::GivenUp(span) => break span,
                HostVerdict::Counted => panic!("every try is a verdict"),
            }
            now += Duration::from_secs(*holds.last().expect("just pushed"));
        };
        assert_eq!(holds, [5, 10, 20, 40, 45]);
        assert_eq!(span, down_after);
        assert_eq!(hosts.health(id, now), Health::Down);
        assert_eq!(hosts.held(now), (0, None));
        // Hosts come back: a quarter of an hour later one request tries.
        now += HOLD_MAX;
        assert_eq!(hosts.health(id, now), Health::Up);
        let verdict = hosts.failed(id, Unconnected, down_after, now);
        assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
        now += HOLD_MAX;
        assert_eq!(hosts.health(id, now), Health::Down, "for twice as long");
        now += HOLD_MAX;
        hosts.connected(id);
        assert_eq!(
            hosts.health(id, now),
            Health::Up,
            "mute, but it may be asked"
        );
        hosts.answered(id);
        assert_eq!(
            hosts.failed(id, Unconnected, down_after, now),
            HostVerdict::Counted
        );
    }

    #[test]
    fn time_in_which_a_host_could_not_be_asked_does_not_count() {
        let down_after = secs(120);
        let check = |excuse: fn(&mut Hosts, Place, Instant)| {
            let (mut hosts, id) = one();
            let mut now = Instant::START + secs(1000);
            hosts.failed(id, Unanswered, down_after, now);
            now += secs(300);
            excuse(&mut hosts, id, now);
            matches!(
                hosts.failed(id, Unanswered, down_after, now),
                HostVerdict::GivenUp(_)
            )
        };
        assert!(check(|_, _, _| ()));
        assert!(!check(|hosts, _, _| hosts.excuse_all(secs(200))));
        assert!(!check(|hosts, id, now| hosts.excuse(
            id,
            now - secs(200),
            now
        )));
        assert!(check(|hosts, id, now| hosts.excuse(
            id,
            now - secs(100),
            now
        )));
        // From before its first failure on: all of it is excused, and no more.
        assert!(!check(|hosts, id, now| hosts.excuse(
            id,
            now - secs(900),
            now
        )));
    }

    #[test]
    fn a_closed_port_says_nothing_of_another_and_an_open_one_nothing_of_it() {
        let (mut hosts, open) = one();
        let closed = (open.0, 443);
        let mut now = Instant::START;
        for seconds in [5, 10, 20, 40, 45] {
            let verdict = hosts.failed(closed, Unanswered, secs(120), now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            assert_eq!(hosts.health(open, now), Health::Up);
            hosts.answered(open);
            hosts.connected(open);
            now += secs(seconds);
        }
        let verdict = hosts.failed(closed, Unanswered, secs(120), now);
        assert!(matches!(verdict, HostVerdict::GivenUp(_)), "{verdict:?}");
    }

    #[test]
    fn a_success_forgives_everything() {
        let (mut hosts, id) = one();
        let now = Instant::START;
        fail(&mut hosts, id, 4, now);
        hosts.connected(id);
        assert_eq!(fail(&mut hosts, id, 4, now), HostVerdict::Counted);
        assert_eq!(fail(&mut hosts, id, 1, now), HostVerdict::Held(HOLD_MIN));
        hosts.connected(id);
        assert_eq!(hosts.held(now), (0, None));
        assert_eq!(fail(&mut hosts, id, 5, now), HostVerdict::Held(HOLD_MIN));
    }

    #[test]
    fn a_host_that_accepts_and_answers_nothing_has_no_success_by_being_connected_to() {
        let (mut hosts, id) = one();
        let mut now = Instant::START;
        for seconds in [5, 10, 20] {
            hosts.connected(id);
            let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            now += secs(seconds);
        }
        hosts.answered(id);
        let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
        assert_eq!(verdict, HostVerdict::Held(HOLD_MIN));
    }

    #[test]
    fn time_in_which_the_crawl_stands_still_does_not_count() {
        let (mut hosts, id) = one();
        let at = |seconds| Instant::START + secs(seconds);
        let fail =
            |hosts: &mut Hosts, seconds| hosts.failed(id, Unanswered, secs(120), at(seconds));
        assert_eq!(fail(&mut hosts, 10), HostVerdict::Held(secs(5)));
        hosts.set_stopped(true, at(12));
        hosts.set_stopped(true, at(400));
        hosts.set_stopped(false, at(500));
        // Five seconds of running time are gone.
        assert_eq!(fail(&mut hosts, 503), HostVerdict::Held(secs(10)));
        hosts.set_stopped(true, at(513));
        assert_eq!(fail(&mut hosts, 700), HostVerdict::Held(secs(20)));
        hosts.set_stopped(false, at(700));
        assert_eq!(fail(&mut hosts, 805), HostVerdict::GivenUp(secs(120)));
    }

    #[test]
    fn a_host_is_among_those_that_are_held_once() {
        let (mut hosts, id) = one();
        let mut now = Instant::START;
        for seconds in [5, 10, 20] {
            let verdict = hosts.failed(id, Unanswered, DOWN_AFTER, now);
            assert_eq!(verdict, HostVerdict::Held(secs(seconds)));
            assert_eq!(hosts.held.len(), 1);
            now += secs(seconds);
        }
        hosts.give_up(id, false, now);
        assert_eq!((hosts.held.len(), hosts.health(id, now)), (0, Health::Down));
    }

    #[test]
    fn holds_that_are_over_are_forgotten_and_not_counted() {
        let mut hosts = Hosts::new(&Secret::from_seed(1));
        let mut names = Interner::new(&Secret::from_seed(1));
        let ids: Vec<Place> = (0..3)
            .map(|number| (hosts.host(&format!("h{number}.test"), &mut names), 80))
            .collect();
        for (number, id) in ids.iter().enumerate() {
            let at = Instant::START + secs(number as u64);
            hosts.failed(*id, Unanswered, DOWN_AFTER, at);
        }
        let now = Instant::START + secs(6);
        assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
        hosts.expire(now);
        assert_eq!(hosts.held.len(), 1);
        assert_eq!(hosts.held(now), (1, Some(Instant::START + secs(7))));
    }
}
