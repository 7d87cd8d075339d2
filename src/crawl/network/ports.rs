//! Local ports, of which our machine has only so many for connections to one place.

use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::crawl::network::room::Once;

/// The places to which our machine has no local port left, and how long each is let alone.
#[derive(Debug)]
pub struct Ports {
    /// Forgotten some time after the last refusal, so there are no more than were refused of late.
    scarce: HashMap<SocketAddr, Scarce, Secret>,
    /// Where looking for one takes long. Forgotten in the same way.
    searched: HashMap<SocketAddr, Search, Secret>,
    said: Once,
    said_of_search: Once,
}

#[derive(Clone, Copy, Debug)]
struct Scarce {
    /// No port is asked for before this.
    until: Instant,
    pause: Duration,
}

/// A place for which the kernel looks through many ports before it finds a free one.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Connects in a row that took long.
    row: u32,
    /// How long the next one waits after each: the processor has rest in between.
    pause: Duration,
    /// No connection is begun before this.
    next: Instant,
    /// Until when requests that wait have their turns already.
    tail: Instant,
}

impl Ports {
    /// Enough ports for all requests, until the machine refuses one.
    pub fn new(secret: &Secret) -> Self {
        Ports {
            scarce: HashMap::with_hasher(*secret),
            searched: HashMap::with_hasher(*secret),
            said: Once::default(),
            said_of_search: Once::default(),
        }
    }

    /// There was none for one more connection to `to`, which is logged. Until when none is asked for: each
    /// time that there was still none it is twice as long.
    pub fn refused(&mut self, to: SocketAddr, now: Instant) -> Instant {
        log::log!(
            self.said.level(),
            "our machine has no local port left for {to}; requests wait until one is free \
             (net.ipv4.ip_local_port_range has more)"
        );
        let pause = match self.scarce.get(&to) {
            // It was requested before the first refusal was known.
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

    /// Looking for the port of one more connection to `to` kept the processor busy for so long. Whether the
    /// place is paced from now on, or still.
    ///
    /// The kernel finds one sooner the more have come free meanwhile, so a rest that is a multiple of the
    /// search comes to as many connections as ports come free, at a twentieth of the processor.
    fn looked_for(&mut self, to: SocketAddr, took: Duration, now: Instant) -> bool {
        if took < LONG_SEARCH {
            if let Some(known) = self.searched.get_mut(&to) {
                known.row = 0;
                known.pause /= 2;
                known.next = now + known.pause;
                if known.pause < PAUSE_LEAST {
                    self.searched.remove(&to);
                }
            }
            return false;
        }
        let known = self.searched.entry(to).or_insert(Search {
            row: 0,
            pause: Duration::ZERO,
            next: now,
            tail: now,
        });
        known.row += 1;
        if known.row < LONG_IN_A_ROW && known.pause.is_zero() {
            return false;
        }
        known.pause = (took * RESTS).min(PORTS_PAUSE);
        known.next = now + known.pause;
        true
    }

    /// The same, with a line in the log if the place is paced.
    pub fn note_search(&mut self, to: SocketAddr, took: Duration, now: Instant) {
        if !self.looked_for(to, took, now) {
            return;
        }
        log::log!(
            self.said_of_search.level(),
            "for each connection to {to} our machine looks through its local ports for {} µs: most of \
             them rest for a minute after a connection that we ended. New ones are begun more slowly, so \
             that this takes a twentieth of the processor; net.ipv4.tcp_tw_reuse=1, a wider \
             net.ipv4.ip_local_port_range or kept connections (KEEPALIVE_TIMEOUT) cure it",
            took.as_micros()
        );
    }

    /// Until when a request waits before it connects, where no port is to be asked for any of these places.
    /// Those that wait for the same place have their turns one after the other.
    pub fn waits_until(
        &mut self,
        places: impl Iterator<Item = SocketAddr>,
        now: Instant,
    ) -> Option<Instant> {
        if self.scarce.is_empty() && self.searched.is_empty() {
            return None;
        }
        let mut first: Option<(Instant, SocketAddr)> = None;
        for place in places {
            let until = self.closed_until(place, now)?;
            if first.is_none_or(|(earliest, _)| until < earliest) {
                first = Some((until, place));
            }
        }
        let (until, place) = first?;
        let Some(search) = self.searched.get_mut(&place) else {
            return Some(until);
        };
        let turn = until.max(search.tail);
        search.tail = (turn + search.pause).min(now + PORTS_PAUSE_MAX);
        Some(turn)
    }

    fn closed_until(&self, place: SocketAddr, now: Instant) -> Option<Instant> {
        let refused = self.scarce.get(&place).map(|known| known.until);
        let searched = self.searched.get(&place);
        // A turn may come a little early: the one before it may have come late.
        let searched = searched.filter(|known| now + known.pause / 2 < known.next);
        let refused = refused.filter(|until| *until > now);
        refused.max(searched.map(|known| known.next))
    }

    /// Called every second: forgets what is over.
    pub fn expire(&mut self, now: Instant) {
        self.scarce
            .retain(|_, known| known.until + PORTS_PAUSE_MAX > now);
        self.searched
            .retain(|_, known| known.next + SEARCH_KEPT > now);
    }
}

/// The code of a connection that our own machine had no local port for.
pub const NO_PORT: &str = "no_port";

/// The kernel looks at every port it has before it says that there is none, which takes it a
/// millisecond; and a port that a closed connection had is free after a second at the earliest.
const PORTS_PAUSE: Duration = Duration::from_secs(1);

/// It is free after a minute at the latest; it should not wait long for us then.
const PORTS_PAUSE_MAX: Duration = Duration::from_secs(8);

/// A search that takes the processor so long is one through many ports: a connect takes 20 to 50 µs
/// otherwise, that to our own machine included.
const LONG_SEARCH: Duration = Duration::from_micros(250);

/// So many of one place in a row are no accident.
const LONG_IN_A_ROW: u32 = 3;

/// A rest is as many times as long as the search before it.
const RESTS: u32 = 19;

/// A rest that is shorter is none.
const PAUSE_LEAST: Duration = Duration::from_micros(500);

/// How long a place is remembered after its last long search: as long as a port rests.
const SEARCH_KEPT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_ports_is_let_alone_for_a_while_and_others_are_not() {
        let place = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let now = Instant::from_nanos(5);
        let asked = |ports: &mut Ports, places: &[u16], now| {
            ports.waits_until(places.iter().copied().map(place), now)
        };
        assert_eq!(asked(&mut ports, &[80], now), None);
        let until = ports.refused(place(80), now);
        assert_eq!(asked(&mut ports, &[80], now), Some(until));
        assert_eq!(asked(&mut ports, &[81], now), None);
        assert_eq!(
            asked(&mut ports, &[80, 81], now),
            None,
            "one of them has ports"
        );
        let later = now + Duration::from_millis(300);
        ports.refused(place(81), later);
        assert_eq!(asked(&mut ports, &[80, 81], later), Some(until));
        assert_eq!(asked(&mut ports, &[80], until), None);
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
            // Requests made at the same time.
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

    #[test]
    fn a_place_whose_ports_are_looked_for_long_has_rests_between_its_connections() {
        let place = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let now = Instant::from_nanos(5);
        let (long, short) = (Duration::from_millis(2), Duration::from_micros(30));
        let rest = long * 19;
        let asked = |ports: &mut Ports, now| ports.waits_until([place].into_iter(), now);
        // Now and then one takes long by chance.
        for took in [long, short, long, long, short] {
            assert!(!ports.looked_for(place, took, now));
            assert_eq!(asked(&mut ports, now), None);
        }
        let taken = [long; 3].map(|took| ports.looked_for(place, took, now));
        assert_eq!(taken, [false, false, true]);
        // Those that wait do not all come at once, and each may connect at its turn.
        let turns = [(); 3].map(|()| asked(&mut ports, now).expect("it waits"));
        assert_eq!(turns, [1, 2, 3].map(|nth| now + rest * nth));
        assert_eq!(asked(&mut ports, turns[0]), None);
        ports.looked_for(place, long, turns[0] + short);
        assert_eq!(
            asked(&mut ports, turns[1]),
            None,
            "the one before came a little late"
        );
        assert_ne!(asked(&mut ports, turns[0] + short), None);
        // Once ports have come free there are no rests any more.
        let mut later = turns[2];
        while !ports.searched.is_empty() {
            ports.looked_for(place, short, later);
            later += rest;
        }
        assert_eq!(asked(&mut ports, later), None);
    }

    #[test]
    fn however_many_wait_they_come_again_in_time() {
        let place = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let now = Instant::from_nanos(5);
        for _ in 0..3 {
            ports.looked_for(place, Duration::from_millis(10), now);
        }
        for _ in 0..10_000 {
            let until = ports.waits_until([place].into_iter(), now);
            assert!(until.is_some_and(|until| until <= now + PORTS_PAUSE_MAX));
        }
        ports.expire(now + SEARCH_KEPT + PORTS_PAUSE);
        assert!(ports.searched.is_empty());
    }
}
