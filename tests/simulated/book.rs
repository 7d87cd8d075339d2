//! Records of simulated servers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use argiope::base::time::Instant;
use argiope::io::sim::ConnId;

use super::proxies::Way;

/// A request, as its server saw it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Instant,
    pub host: String,
    pub path: String,
    pub conn: ConnId,
    /// Where the connection leads: the host's address, or that of a proxy.
    pub to: SocketAddr,
    pub way: Way,
    /// A proxy answers it in the host's place.
    pub by_proxy: bool,
    /// The server had ended the connection: the request was never answered.
    pub too_late: bool,
    /// The reply was sent, or will never be.
    pub over: Option<Instant>,
    /// The reply invited another try.
    pub retry: bool,
    /// It gets no answer.
    pub unanswered: bool,
    /// It was beyond the host's limit.
    pub refused: bool,
    /// It came on a connection that had been kept, and that brought no reply to it.
    pub died_kept: bool,
}

/// What one host or one address had to bear.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// The numbers of its arrivals.
    pub visits: Vec<usize>,
    /// How many of them were about robots.txt.
    pub robots: usize,
    /// Requests that are being answered.
    pub open: usize,
    /// The most that there were.
    pub peak: usize,
    /// A visitor was asked to leave it alone: since when that was known, and until when.
    pub hold: Option<(Instant, Instant)>,
    by_path: BTreeMap<String, Vec<usize>>,
}

impl Book {
    /// A request has arrived.
    pub fn note(&mut self, number: usize, path: &str) {
        self.visits.push(number);
        self.robots += usize::from(path.starts_with("/robots"));
        self.open += 1;
        match self.by_path.get_mut(path) {
            Some(numbers) => numbers.push(number),
            None => {
                self.by_path.insert(path.to_owned(), vec![number]);
            }
        }
    }

    /// The arrivals at one path.
    pub fn of(&self, path: &str) -> &[usize] {
        self.by_path.get(path).map_or(&[], Vec::as_slice)
    }

    /// How many are open, which may be a peak.
    pub fn peaks(&mut self) -> usize {
        self.peak = self.peak.max(self.open);
        self.open
    }

    /// A hold was requested; the longer one counts.
    pub fn hold(&mut self, known: Instant, until: Instant) {
        self.hold = match self.hold {
            Some((since, longer)) if longer >= until && known < longer => Some((since, longer)),
            Some((since, old)) if known < old => Some((since, until)),
            _ => Some((known, until)),
        };
    }
}

/// How many rounds the refusals at these moments make: what came before the first of a round was
/// known to the visitor belongs to it.
pub fn rounds(refused: impl IntoIterator<Item = Instant>, round_trip: Duration) -> usize {
    let mut known = None;
    let mut rounds = 0;
    for at in refused {
        if known.is_none_or(|known| at > known) {
            rounds += 1;
            known = Some(at + round_trip);
        }
    }
    rounds
}
