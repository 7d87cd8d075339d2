//! Failures that the local network may have caused: suspended until the breaker's verdict, then charged
//! to their hosts or requeued unchanged.

mod probes;

pub use self::probes::{LOOKUP_WAITER, ProbeLookup, Probes};

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::base::ids::LaneId;
use crate::base::keys::Keys;
use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::breaker::{
    Breaker, Egress, Failed, Judgement, Order, Picked, Probed, Question, Target,
};
use crate::crawl::network::socket::Carrier;
use crate::fetch::failure::Failure;
use crate::fetch::resolver::Answer;
use crate::frontier::job::Job;
use crate::wire::url::{CrawlUrl, registrable};

/// The breaker, and the failures that wait for its verdict.
///
/// Failures and answers enter by `handle_*`. Actions leave by [`Outage::poll_order`],
/// [`Outage::poll_resuming`] and [`Outage::poll_verdict`].
pub struct Outage {
    breaker: Breaker,
    /// `OUTAGE_BREAKER`; a probe has none.
    is_on: bool,
    keys: Keys,
    suspects: Vec<Suspect>,
    /// Suspects with a verdict that was not carried out yet.
    judged: VecDeque<(Suspect, Judgement)>,
    probes: Probes,
    /// Lanes that wait for an egress to close, or are to be resumed since it has.
    parked: HashMap<LaneId, Parked, Secret>,
    /// Lanes whose egress has closed, in the order opposite to that in which they are resumed. One that
    /// was closed in the meantime is no longer among the parked.
    resuming: Vec<LaneId>,
    /// Requests requeued since it opened.
    put_back: u64,
}

/// A lane that waits for an egress to close.
#[derive(Debug)]
struct Parked {
    egress: Egress,
    /// Start of its wait, in running time.
    since: Instant,
    /// Its egress has closed.
    is_resuming: bool,
}

/// A failure that waits for a verdict.
#[derive(Debug)]
pub enum Suspect {
    /// An attempt without a connection; it keeps its slots.
    Flight {
        key: Key,
        failure: Failure,
        carrier: Carrier,
        egress: Egress,
        /// The address without a route, if the host has addresses of that family alone.
        unrouted: Option<SocketAddr>,
    },
    /// A request whose host has no address.
    Unresolved {
        lane: LaneId,
        job: Box<Job>,
        failure: Failure,
    },
}

/// Action of the crawl for the breaker.
pub enum OutageTask {
    /// Connect to this address for a probe.
    Connect { probe: u32, to: SocketAddr },
    /// Look a name up for a probe.
    Lookup { probe: u32, question: Question },
    /// Pick a host of the queue for a probe.
    Pick { probe: u32, egress: Egress },
    /// End a probe.
    Abandon { probe: u32 },
    /// An egress failed. `stops_all`: nothing may be sent at all.
    Opened { stops_all: bool },
    /// An egress works again.
    Closed,
}

/// Least number of suspects that may wait, however few requests may be in flight.
const SUSPECTS_MIN: usize = 64;
/// Most lanes that are resumed when their egress closes; others try again behind the next probe.
const PARKED_MAX: usize = 65_536;
/// Delay behind a probe after which lanes that wait for it try again.
const PARKED_BEHIND_PROBE: Duration = Duration::from_millis(200);

impl Outage {
    /// A closed breaker. `is_on`: `OUTAGE_BREAKER`.
    pub fn new(is_on: bool, secret: &Secret) -> Self {
        Outage {
            breaker: Breaker::default(),
            is_on,
            keys: *secret.keys(),
            suspects: Vec::new(),
            judged: VecDeque::new(),
            probes: Probes::new(secret),
            parked: HashMap::with_hasher(*secret),
            resuming: Vec::new(),
            put_back: 0,
        }
    }

    /// The network of a host's name: hosts of one registrable domain are likely to share their name servers.
    pub fn network_of(&self, host: &str) -> u64 {
        self.keys.host(registrable(host)).0
    }

    /// The breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Requests that are neither queued nor in flight while they wait for a verdict.
    pub fn held(&self) -> usize {
        let is_apart = |suspect: &&Suspect| matches!(suspect, Suspect::Unresolved { .. });
        self.waiting().filter(is_apart).count()
    }

    /// The failure of an attempt that waits for a verdict.
    pub fn failure_of(&self, attempt: Key) -> Option<&Failure> {
        self.waiting().find_map(|suspect| match suspect {
            Suspect::Flight { key, failure, .. } => (*key == attempt).then_some(failure),
            Suspect::Unresolved { .. } => None,
        })
    }

    /// The request for a URL that waits for a verdict without being in flight, and its failure.
    pub fn find(&self, url: &CrawlUrl) -> Option<(&Job, &Failure)> {
        self.waiting().find_map(|suspect| match suspect {
            Suspect::Unresolved { job, failure, .. } => {
                (job.url == *url).then_some((&**job, failure))
            }
            Suspect::Flight { .. } => None,
        })
    }

    /// All that wait for a verdict, or for its execution.
    fn waiting(&self) -> impl Iterator<Item = &Suspect> {
        let judged = self.judged.iter().map(|(suspect, _)| suspect);
        self.suspects.iter().chain(judged)
    }

    /// Whether nothing waits for a verdict.
    pub fn is_idle(&self) -> bool {
        self.suspects.is_empty() && self.judged.is_empty()
    }

    /// Whether releases stop: the breaker is open, or as many requests wait for its verdict as may be
    /// in flight.
    pub fn stops_releases(&self, in_flight_max: usize) -> bool {
        self.breaker.stops_all()
            || self.suspects.len() + self.judged.len() >= in_flight_max.max(SUSPECTS_MIN)
    }

    /// Returns when [`Outage::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.breaker.next_timeout()
    }

    /// Carries out what the breaker has due; see [`Breaker::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.breaker.handle_timeout(now);
    }

    /// The egress for which a lane waits; `None` if it waits for none.
    pub fn parked_for(&self, lane: LaneId) -> Option<Egress> {
        self.parked.get(&lane).map(|parked| parked.egress)
    }

    /// Returns the time until which nothing may be sent by this egress; `None` if it is not open.
    pub fn blocked_until(&self, egress: Egress) -> Option<Instant> {
        self.breaker.blocked_until(egress)
    }

    /// Sets whether the crawl is paused: no probe of an open egress begins while it is.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.breaker.set_paused(is_paused);
    }

    /// Called when a host accepted or refused a connection. Passes it on to the breaker.
    pub fn handle_answer(&mut self, by_proxy: bool, remote: SocketAddr, now: Instant) {
        if self.is_on {
            let egress = egress_of(by_proxy, remote);
            let network = Target::network(remote.ip());
            let target = Some(Target::Address(remote));
            self.breaker.handle_answer(egress, network, target, now);
        }
    }

    /// Called when name servers answered a query for a host: it has addresses (`exists`), or has none. Passes
    /// it on to the breaker.
    pub fn handle_reply(&mut self, host: &str, exists: bool, now: Instant) {
        if self.is_on {
            // No name exists below one that does not exist, and a cache may answer that.
            let target = exists.then(|| Target::Name(host.into()));
            let network = self.network_of(host);
            self.breaker
                .handle_answer(Egress::Names, network, target, now);
        }
    }

    /// Called when an attempt or a lookup failed while so many hosts have something queued. Returns what to
    /// do with the failure: to charge it, if the breaker is off.
    pub fn handle_failure(&mut self, failed: Failed, hosts: usize, now: Instant) -> Judgement {
        match self.is_on {
            true => self.breaker.handle_failure(failed, hosts, now),
            false => Judgement::Charge,
        }
    }

    /// Stores a failure until its verdict.
    pub fn suspend(&mut self, suspect: Suspect) {
        self.suspects.push(suspect);
    }

    /// Called when a probe has ended. Passes its result on to the breaker.
    pub fn handle_probe(&mut self, probe: u32, ended: Probed, now: Instant) {
        self.breaker.handle_probe(probe, ended, now);
    }

    /// Called when a host was picked for a probe, or none was found. Passes it on to the breaker.
    pub fn handle_picked(&mut self, probe: u32, picked: Picked) {
        self.breaker.handle_picked(probe, picked);
    }

    /// The probes under way.
    pub fn probes(&mut self) -> &mut Probes {
        &mut self.probes
    }

    /// Counts a request that is requeued unchanged, for the log.
    pub fn count_put_back(&mut self) {
        self.put_back += 1;
    }

    /// Makes a lane wait until an egress closes. Returns when it tries again if the egress has not closed by
    /// then: shortly after the next probe. `since`: now, in running time.
    pub fn park(&mut self, lane: LaneId, egress: Egress, since: Instant, now: Instant) -> Instant {
        let Some(probe) = self.blocked_until(egress) else {
            return now;
        };
        if self.parked.len() < PARKED_MAX {
            let parked = self.parked.entry(lane).or_insert(Parked {
                egress,
                since,
                is_resuming: false,
            });
            parked.egress = egress;
            parked.is_resuming = false;
        }
        probe.max(now) + PARKED_BEHIND_PROBE
    }

    /// Takes the breaker's next action.
    pub fn poll_order(&mut self) -> Option<OutageTask> {
        loop {
            return Some(match self.breaker.poll()? {
                Order::Connect { probe, to } => OutageTask::Connect { probe, to },
                Order::Lookup { probe, question } => OutageTask::Lookup { probe, question },
                Order::Pick { probe, egress } => OutageTask::Pick { probe, egress },
                Order::Abandon { probe } => OutageTask::Abandon { probe },
                Order::Charge(egress) => {
                    self.judge(|of| of == egress, Judgement::Charge);
                    continue;
                }
                Order::Open(egress, report) => {
                    self.put_back = 0;
                    self.judge(|of| of == egress, Judgement::PutBack);
                    log::warn!(
                        "{report}. The crawl is paused and keeps its requests; a single probe is \
                         sent every 1 to 30 s"
                    );
                    OutageTask::Opened {
                        stops_all: self.breaker.stops_all(),
                    }
                }
                Order::Close(egress, span) => {
                    self.resume_parked(egress);
                    log::warn!(
                        "{} recovered after {:.0} s: crawl resumed; {} failed attempts requeued \
                         and not counted",
                        egress.label(),
                        span.as_secs_f64(),
                        self.put_back
                    );
                    OutageTask::Closed
                }
            });
        }
    }

    fn resume_parked(&mut self, egress: Egress) {
        let of_egress = self.parked.iter_mut();
        let of_egress = of_egress.filter(|(_, parked)| parked.egress == egress);
        for (lane, parked) in of_egress.filter(|(_, parked)| !parked.is_resuming) {
            parked.is_resuming = true;
            self.resuming.push(*lane);
        }
        // The last continues first: of the lanes of one host, the one that waited longest.
        let since = |lane: &LaneId| self.parked.get(lane).map(|parked| parked.since);
        self.resuming
            .sort_unstable_by_key(|lane| Reverse(since(lane)));
    }

    /// Removes a closed lane, whose number may be used again.
    pub fn forget(&mut self, lane: LaneId) {
        self.parked.remove(&lane);
    }

    /// Takes the next lane whose egress has closed, and the start of its wait, in running time.
    pub fn poll_resuming(&mut self) -> Option<(LaneId, Instant)> {
        while let Some(lane) = self.resuming.pop() {
            if let Entry::Occupied(parked) = self.parked.entry(lane)
                && parked.get().is_resuming
            {
                return Some((lane, parked.remove().since));
            }
        }
        None
    }

    /// Whether lanes whose egress has closed are to be resumed.
    pub fn has_resuming(&self) -> bool {
        !self.resuming.is_empty()
    }

    /// Takes the next failure with a verdict.
    pub fn poll_verdict(&mut self) -> Option<(Suspect, Judgement)> {
        self.judged.pop_front()
    }

    /// Takes out the failures that `is_wanted` names, with a verdict or without.
    pub fn take_suspects(&mut self, is_wanted: impl Fn(&Suspect) -> bool) -> Vec<Suspect> {
        let waiting = self.suspects.extract_if(.., |suspect| is_wanted(suspect));
        let mut taken: Vec<Suspect> = waiting.collect();
        for (suspect, judgement) in std::mem::take(&mut self.judged) {
            match is_wanted(&suspect) {
                true => taken.push(suspect),
                false => self.judged.push_back((suspect, judgement)),
            }
        }
        taken
    }

    fn judge(&mut self, wanted: impl Fn(Egress) -> bool, judgement: Judgement) {
        let of = |suspect: &Suspect| match suspect {
            Suspect::Flight { egress, .. } => *egress,
            Suspect::Unresolved { .. } => Egress::Names,
        };
        let judged = self
            .suspects
            .extract_if(.., |suspect| wanted(of(suspect)))
            .map(|suspect| (suspect, judgement));
        self.judged.extend(judged);
    }
}

/// Returns the egress by which an address is reached.
pub fn egress_of(by_proxy: bool, remote: SocketAddr) -> Egress {
    match by_proxy {
        true => Egress::Proxy(remote),
        false => Egress::of(remote.ip()),
    }
}

/// Whether the name servers did their work: there are addresses, or there are none.
pub fn is_reply(result: &Result<Answer, Failure>) -> bool {
    match result {
        Ok(_) => true,
        Err(failure) => matches!(failure.name, "nxdomain" | "nodata"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_was_closed_is_not_resumed_under_its_number() {
        let mut outage = Outage::new(true, &Secret::from_seed(1));
        let of = |egress, seconds| Parked {
            egress,
            since: Instant::START + Duration::from_secs(seconds),
            is_resuming: false,
        };
        for (lane, since) in [(1, 10), (2, 20), (3, 15)] {
            outage.parked.insert(LaneId(lane), of(Egress::Names, since));
        }
        outage.resume_parked(Egress::Names);
        outage.forget(LaneId(3));
        // Its number is used again by a lane that waits for another egress.
        outage.parked.insert(LaneId(3), of(Egress::Global4, 30));
        let resumed = std::iter::from_fn(|| outage.poll_resuming());
        let resumed: Vec<u32> = resumed.map(|(lane, _)| lane.0).collect();
        assert_eq!(resumed, [1, 2], "the longest wait first");
        assert!(outage.parked.contains_key(&LaneId(3)));
    }
}
