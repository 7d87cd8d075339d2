//! Local ports: this machine has a limited number for connections to one place.

use std::net::SocketAddr;
use std::time::Duration;

use hashbrown::HashMap;

use crate::base::secret::Secret;
use crate::base::time::Instant;
use crate::crawl::network::room::Once;

/// Places for which this machine has no local port left, and the pause of each.
#[derive(Debug)]
pub struct Ports {
    /// Forgotten some time after the last refusal, so only recently refused places are here.
    scarce: HashMap<SocketAddr, Scarce, Secret>,
    /// Places for which the search for a port is slow. Forgotten in the same way.
    searched: HashMap<SocketAddr, Search, Secret>,
    logged: Once,
    logged_search: Once,
}

#[derive(Clone, Copy, Debug)]
struct Scarce {
    /// No port is requested before this.
    until: Instant,
    pause: Duration,
}

/// A place for which the kernel searches many ports before it finds a free one.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// Consecutive slow connects.
    row: u32,
    /// Pause after each connect, in which the processor is free.
    pause: Duration,
    /// No connect before this.
    next: Instant,
    /// End of the turns assigned to waiting requests.
    tail: Instant,
}

impl Ports {
    /// No pauses: there are enough ports until the machine refuses one.
    pub fn new(secret: &Secret) -> Self {
        Ports {
            scarce: HashMap::with_hasher(*secret),
            searched: HashMap::with_hasher(*secret),
            logged: Once::default(),
            logged_search: Once::default(),
        }
    }

    /// Pauses connects to `to`, for which no port was left, and logs it. Returns the end of the pause, which
    /// doubles each time that there is still none.
    pub fn refused(&mut self, to: SocketAddr, now: Instant) -> Instant {
        log::log!(
            self.logged.level(),
            "this machine has no local port left for {to}; requests wait until one is free \
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

    /// Ends the pauses of `to` if the present one is over: a port was available again.
    pub fn granted(&mut self, to: SocketAddr, now: Instant) {
        if !self.scarce.is_empty() && self.scarce.get(&to).is_some_and(|known| known.until <= now) {
            self.scarce.remove(&to);
        }
    }

    /// Adapts the pause between connects to `to` to the time that the last search for a port took. Returns
    /// whether the place is paced after a slow search.
    ///
    /// The kernel finds a port sooner the more are free. So pauses in proportion to the search time settle
    /// at as many connections as ports become free, for a twentieth of the processor.
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

    /// Adapts the pause as [`Ports::looked_for`] does, and logs a warning if connections to the place are
    /// paced.
    pub fn note_search(&mut self, to: SocketAddr, took: Duration, now: Instant) {
        if !self.looked_for(to, took, now) {
            return;
        }
        log::log!(
            self.logged_search.level(),
            "searching a free local port for a connection to {to} takes {} µs, because most ports are in \
             TIME_WAIT. New connections are opened more slowly, so that the search takes 5 % of one \
             processor. To avoid it, set net.ipv4.tcp_tw_reuse=1, widen net.ipv4.ip_local_port_range or \
             reuse connections (KEEPALIVE_TIMEOUT)",
            took.as_micros()
        );
    }

    /// Returns the time until which a request waits before it connects, if all of these places are paused.
    /// Requests for the same place get consecutive turns.
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

    /// Called every second: removes expired entries.
    pub fn expire(&mut self, now: Instant) {
        self.scarce
            .retain(|_, known| known.until + PORTS_PAUSE_MAX > now);
        self.searched
            .retain(|_, known| known.next + SEARCH_KEPT > now);
    }
}

/// Error code of a connection for which this machine had no local port left.
pub const NO_PORT: &str = "no_port";

/// Minimum pause. The kernel searches all ports before it reports that none is left, which takes a
/// millisecond; and the port of a closed connection is free after a second at the earliest.
const PORTS_PAUSE: Duration = Duration::from_secs(1);

/// Maximum pause. A port is free after one minute at the latest, and should be used soon after that.
const PORTS_PAUSE_MAX: Duration = Duration::from_secs(8);

/// A connect call that takes this long searched many ports: otherwise it takes 20 to 50 µs, also on
/// loopback.
const LONG_SEARCH: Duration = Duration::from_micros(250);

/// Number of consecutive slow connects to one address after which connections to it are paced.
const LONG_IN_A_ROW: u32 = 3;

/// Pause in multiples of the search time.
const RESTS: u32 = 19;

/// A shorter pause is left out.
const PAUSE_LEAST: Duration = Duration::from_micros(500);

/// Time for which a place is remembered after its last slow search: as long as a port is in TIME_WAIT.
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
    fn the_pause_of_an_address_without_ports_doubles() {
        let place = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let mut now = Instant::from_nanos(5);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let until = ports.refused(place, now);
            // Requests of the same moment do not double the pause.
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
    fn connections_to_an_address_with_slow_port_searches_are_paced() {
        let place = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut ports = Ports::new(&Secret::from_seed(1));
        let now = Instant::from_nanos(5);
        let (long, short) = (Duration::from_millis(2), Duration::from_micros(30));
        let rest = long * 19;
        let asked = |ports: &mut Ports, now| ports.waits_until([place].into_iter(), now);
        // Single slow searches have no effect.
        for took in [long, short, long, long, short] {
            assert!(!ports.looked_for(place, took, now));
            assert_eq!(asked(&mut ports, now), None);
        }
        let taken = [long; 3].map(|took| ports.looked_for(place, took, now));
        assert_eq!(taken, [false, false, true]);
        // Waiting requests get consecutive turns.
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
        // The pauses end once ports are free.
        let mut later = turns[2];
        while !ports.searched.is_empty() {
            ports.looked_for(place, short, later);
            later += rest;
        }
        assert_eq!(asked(&mut ports, later), None);
    }

    #[test]
    fn waiting_requests_are_retried_within_the_maximum_pause() {
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
