//! Record of the requests to one host: arrivals, ends, gaps and requests in flight.

use std::time::Duration;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Arrival<T> {
    /// When it arrived.
    pub at: Duration,
    /// When its reply was written or its client disconnected; `None` before.
    pub ended: Option<Duration>,
    /// Requests in flight when it was recorded, itself included.
    pub in_flight: usize,
    /// What the server notes about it.
    pub note: T,
}

/// Number of an arrival in its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalId(usize);

/// All requests to one host, in the order in which they were recorded.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    arrivals: Vec<Arrival<T>>,
    in_flight: usize,
    unrecorded: u64,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Ledger {
            arrivals: Vec::new(),
            in_flight: 0,
            unrecorded: 0,
        }
    }
}

impl<T> Ledger<T> {
    /// Records a request. Beyond ten million, requests are only counted.
    pub fn arrive(&mut self, at: Duration, note: T) -> ArrivalId {
        self.in_flight += 1;
        if self.arrivals.len() == ARRIVALS_MAX {
            self.unrecorded += 1;
            return ArrivalId(usize::MAX);
        }
        self.arrivals.push(Arrival {
            at,
            ended: None,
            in_flight: self.in_flight,
            note,
        });
        ArrivalId(self.arrivals.len() - 1)
    }

    /// Records the end of a request, once for each.
    pub fn end(&mut self, id: ArrivalId, at: Duration) {
        self.in_flight -= 1;
        if let Some(arrival) = self.arrivals.get_mut(id.0) {
            arrival.ended = Some(at);
        }
    }

    /// The recorded requests.
    pub fn arrivals(&self) -> &[Arrival<T>] {
        &self.arrivals
    }

    /// Requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Requests that arrived when the ledger was full.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// Orders the requests by arrival, which may differ from the order of recording. Numbers given
    /// before are invalid afterwards.
    pub fn sort(&mut self) {
        self.arrivals.sort_by_key(|arrival| arrival.at);
    }

    /// The most requests that overlapped, by their times. One that ends as another arrives does not
    /// overlap it. The ledger must be sorted.
    pub fn overlap_max(&self) -> usize {
        let mut ends: Vec<Duration> = Vec::new();
        let mut max = 0;
        for arrival in &self.arrivals {
            ends.retain(|end| *end > arrival.at);
            ends.push(arrival.ended.unwrap_or(Duration::MAX));
            max = max.max(ends.len());
        }
        max
    }
}

/// The gap after each arrival but the last. The arrivals must be in order of time.
pub fn gaps<'a, T: 'a>(
    arrivals: impl Iterator<Item = &'a Arrival<T>> + Clone,
) -> impl Iterator<Item = (&'a Arrival<T>, Duration)> {
    let next = arrivals.clone().skip(1);
    arrivals
        .zip(next)
        .map(|(arrival, next)| (arrival, next.at - arrival.at))
}

const ARRIVALS_MAX: usize = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A sorted ledger of requests with these arrivals and ends, in milliseconds.
    fn ledger(requests: &[(u64, u64)]) -> Ledger<()> {
        let mut ledger = Ledger::default();
        for (at, ended) in requests {
            let id = ledger.arrive(millis(*at), ());
            ledger.end(id, millis(*ended));
        }
        ledger.sort();
        ledger
    }

    #[test]
    fn requests_overlap_until_they_end() {
        let check = |requests: &[_], expected| {
            assert_eq!(ledger(requests).overlap_max(), expected, "{requests:?}");
        };
        check(&[], 0);
        check(&[(0, 10), (10, 20)], 1);
        check(&[(0, 11), (10, 20), (11, 12)], 2);
        check(&[(10, 20), (0, 11)], 2);
    }

    #[test]
    fn in_flight_counts_requests_until_they_end() {
        let mut ledger = Ledger::default();
        let first = ledger.arrive(millis(0), 'a');
        let second = ledger.arrive(millis(1), 'b');
        ledger.end(first, millis(2));
        let third = ledger.arrive(millis(3), 'c');
        let counts = ledger.arrivals().iter().map(|arrival| arrival.in_flight);
        assert_eq!(counts.collect::<Vec<_>>(), [1, 2, 2]);
        ledger.end(second, millis(4));
        ledger.end(third, millis(4));
        assert_eq!((ledger.in_flight(), ledger.unrecorded()), (0, 0));
    }

    #[test]
    fn gaps_are_between_neighbours_in_order_of_arrival() {
        let ledger = ledger(&[(0, 1), (30, 31), (10, 11)]);
        let gaps = gaps(ledger.arrivals().iter()).map(|(arrival, gap)| (arrival.at, gap));
        assert_eq!(
            gaps.collect::<Vec<_>>(),
            [(millis(0), millis(10)), (millis(10), millis(20))]
        );
    }
}
