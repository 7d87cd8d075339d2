//! What our own machine has room for, found out where it refuses sockets or ports.

use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::slab::Key;
use crate::base::time::Instant;
use crate::crawl::core::Core;
use crate::fetch::failure::Failure;
use crate::io::Io;

/// Requests that may be in flight: fewer after a refusal, slowly more after that.
#[derive(Debug)]
pub struct Room {
    most: usize,
    present: usize,
    pub said: Once,
}

impl Room {
    /// Room for `most`, until the machine says otherwise.
    pub fn new(most: usize) -> Self {
        Room {
            most,
            present: most,
            said: Once::default(),
        }
    }

    /// What was asked for.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The machine had no socket for one more beside `in_flight`: a quarter fewer from now on.
    ///
    /// Of many refusals at once most are of requests that were released before the first of them
    /// was heard of. They change nothing: `None`.
    pub fn refused(&mut self, in_flight: usize) -> Option<usize> {
        if in_flight > self.present && self.present < self.most {
            return None;
        }
        self.present = (self.present.min(in_flight) * 3 / 4).max(1);
        Some(self.present)
    }

    /// Called every second: a sixteenth more, where there are fewer than were asked for. Of what
    /// is there, not of the whole: what is one too many is refused, and asks for its socket in vain.
    pub fn widened(&mut self) -> Option<usize> {
        if self.present == self.most {
            return None;
        }
        self.present = (self.present + (self.present / 16).max(1)).min(self.most);
        Some(self.present)
    }
}

/// The places to which our machine has no local port left, and how long each is let alone.
#[derive(Debug)]
pub struct Ports {
    /// Forgotten some time after the last refusal, so there are no more than were refused of late.
    scarce: HashMap<SocketAddr, Scarce, Secret>,
    pub said: Once,
}

#[derive(Clone, Copy, Debug)]
struct Scarce {
    /// No port is asked for before this.
    until: Instant,
    pause: Duration,
}

impl Ports {
    /// Enough for everybody, until the machine says otherwise.
    pub fn new(secret: &Secret) -> Self {
        Ports {
            scarce: HashMap::with_hasher(*secret),
            said: Once::default(),
        }
    }

    /// There was none for one more connection to `to`. Until when none is asked for: each time
    /// that there was still none it is twice as long.
    pub fn refused(&mut self, to: SocketAddr, now: Instant) -> Instant {
        let pause = match self.scarce.get(&to) {
            // It was asked for before the first refusal was heard of.
            Some(known) if known.until > now => return known.until,
            Some(known) => (known.pause * 2).min(PORTS_PAUSE_MAX),
            None => PORTS_PAUSE,
        };
        let until = now + pause;
        self.scarce.insert(to, Scarce { until, pause });
        until
    }

    /// There was one, after all.
    pub fn granted(&mut self, to: SocketAddr, now: Instant) {
        if !self.scarce.is_empty() && self.scarce.get(&to).is_some_and(|known| known.until <= now) {
            self.scarce.remove(&to);
        }
    }

    /// Until when none is to be asked for, where there was none for any of these places.
    pub fn scarce_until(
        &self,
        mut places: impl Iterator<Item = SocketAddr>,
        now: Instant,
    ) -> Option<Instant> {
        if self.scarce.is_empty() {
            return None;
        }
        let until = |place| {
            let known = self.scarce.get(&place)?;
            (known.until > now).then_some(known.until)
        };
        let first = until(places.next()?)?;
        places.try_fold(first, |earliest, place| Some(earliest.min(until(place)?)))
    }

    /// Called every second: forgets what is over.
    pub fn expire(&mut self, now: Instant) {
        self.scarce
            .retain(|_, known| known.until + PORTS_PAUSE_MAX > now);
    }
}

/// Something that is said aloud once; whoever wants to hear more hears it each time.
#[derive(Debug, Default)]
pub struct Once {
    said: bool,
}

impl Once {
    /// How loudly it is to be said now.
    pub fn level(&mut self) -> log::Level {
        match std::mem::replace(&mut self.said, true) {
            false => log::Level::Warn,
            true => log::Level::Info,
        }
    }
}

impl<I: Io> Core<I> {
    /// Our machine has no socket to give. That is no fault of the origin's, and no URL's loss: the
    /// request waits, and fewer are in flight from now on.
    pub fn on_exhausted(&mut self, key: Key, failure: &Failure) {
        if let Some(most) = self.room.refused(self.throttle.in_flight()) {
            let level = self.room.said.level();
            log::log!(
                level,
                "{failure}; at most {most} requests are in flight for now (CONCURRENT_REQUESTS)"
            );
            self.throttle.set_in_flight_max(most);
        }
        self.put_off(key, self.now + EXHAUSTED_PAUSE);
    }

    /// Our machine has no port left for one more connection to this place. Requests for it wait,
    /// and those for others go on.
    pub fn on_no_port(&mut self, key: Key, remote: SocketAddr) {
        let until = self.ports.refused(remote, self.now);
        let level = self.ports.said.level();
        log::log!(
            level,
            "our machine has no local port left for {remote}; requests wait until one is free \
             (net.ipv4.ip_local_port_range has more)"
        );
        self.put_off(key, until);
    }
}

/// The code of a connection that our own machine had no socket for.
pub const EXHAUSTED: &str = "exhausted";

/// The code of a connection that our own machine had no local port for.
pub const NO_PORT: &str = "no_port";

/// How long a lane waits after our machine had no socket for it.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(1);

/// The kernel looks at every port it has before it says that there is none, which takes it a
/// millisecond; and a port that a closed connection had is free after a second at the earliest.
const PORTS_PAUSE: Duration = Duration::from_secs(1);
/// It is free after a minute at the latest; it should not wait long for us then.
const PORTS_PAUSE_MAX: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_shrinks_at_once_and_grows_back_slowly() {
        let mut room = Room::new(160);
        assert_eq!(room.widened(), None);
        assert_eq!(room.refused(100), Some(75));
        assert_eq!(room.refused(70), Some(52));
        assert_eq!(room.widened(), Some(55));
        assert_eq!(room.widened(), Some(58));
        for _ in 0..20 {
            room.widened();
        }
        assert_eq!(room.widened(), None);
        assert_eq!(Room::new(1).refused(0), Some(1));
        let mut little = Room::new(10);
        little.refused(2);
        assert_eq!(little.widened(), Some(2), "room for one grows, too");
    }

    #[test]
    fn a_burst_of_refusals_leaves_room_for_what_was_not_refused() {
        // Twenty have a socket; eighty of the same moment have none, and go one after the other.
        let mut room = Room::new(4096);
        for in_flight in (20..100).rev() {
            room.refused(in_flight + 1);
        }
        assert!((16..=24).contains(&room.present), "{}", room.present);
    }

    #[test]
    fn a_place_without_ports_is_let_alone_for_a_while_and_others_are_not() {
        let place = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let now = Instant::from_nanos(5);
        let asked = |ports: &Ports, places: &[u16], now| {
            ports.scarce_until(places.iter().copied().map(place), now)
        };
        assert_eq!(asked(&ports, &[80], now), None);
        let until = ports.refused(place(80), now);
        assert_eq!(asked(&ports, &[80], now), Some(until));
        assert_eq!(asked(&ports, &[81], now), None);
        assert_eq!(asked(&ports, &[80, 81], now), None, "one of them has ports");
        let later = now + Duration::from_millis(300);
        ports.refused(place(81), later);
        assert_eq!(asked(&ports, &[80, 81], later), Some(until));
        assert_eq!(asked(&ports, &[80], until), None);
        ports.expire(until + PORTS_PAUSE_MAX);
        assert_eq!(ports.scarce.len(), 1);
    }

    #[test]
    fn a_place_that_still_has_no_ports_is_asked_ever_more_seldom() {
        let place = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let mut now = Instant::from_nanos(5);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let until = ports.refused(place, now);
            // Those who had asked at the same time.
            assert_eq!(ports.refused(place, now), until);
            ports.granted(place, now);
            pauses.push(until.saturating_since(now).as_secs());
            now = until;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 8]);
        ports.granted(place, now);
        let until = ports.refused(place, now);
        assert_eq!(until.saturating_since(now), PORTS_PAUSE);
    }
}
