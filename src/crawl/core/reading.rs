//! Reads replies: a head's cookies, the sink's body mode, and bodies whose reading was paused.

use crate::base::bound::Bound;
use crate::base::slab::Key;
use crate::crawl::core::Core;
use crate::crawl::flights::Flights;
use crate::crawl::network::Resumed;
use crate::crawl::network::pieces::{Read, steps_max};
use crate::crawl::network::socket::End;
use crate::crawl::workload::Workload;
use crate::fetch::body::BodyMode;
use crate::fetch::failure::{Failure, FailureKind};
use crate::frontier::request::PageKind;
use crate::io::Io;
use crate::sink::DiskSink;
use crate::sink::reply::{Flow, Held, Reply};

/// Bodies of which as much is resumed in one turn as a turn allows for one: some milliseconds' work.
const LONG_READS_PER_TURN: usize = 4;

impl<I: Io> Core<I> {
    /// Gets the sink's mode for the body of a head that has just arrived.
    pub fn ask_for_body(&mut self, key: Key, socket: Key) {
        let Some(flight) = self.flights.get(key) else {
            return;
        };
        if self.workload.counts_bodies() {
            return self.network.count_body(socket);
        }
        if flight.job.kind != PageKind::Page || !self.workload.rules().streams_bodies {
            return;
        }
        let job = &flight.job;
        let (id, tag) = (job.id, job.tag());
        let connection = self.network.connection(socket);
        let exchange = connection.exchange().expect("a head has its exchange");
        let head = exchange.head().expect("the head just came");
        let body_mode = self.output.sink().on_head(&Reply {
            id,
            tag,
            url: job.url.as_str(),
            attempt: u32::from(job.attempt),
            status: head.status,
            headers: &head.headers,
            remote: connection.remote(),
            tls: connection.tls(),
            certificates: connection.certificates(),
            timings: exchange.timings(),
            held: Held {
                attempt: id,
                socket,
            },
            resumed: self.network.resume_fn(),
            root: job.root(),
            depth: job.depth,
            route: job.route(),
            leads: self.control.leads(),
        });
        self.network.set_body_mode(socket, body_mode);
        if body_mode == BodyMode::Cancel {
            let failure = Failure::new(
                FailureKind::Cancelled,
                "by_sink",
                "the sink asked for the head only",
            );
            if let Some(event) = self.network.abort(socket, failure, self.now) {
                self.on_connection_event(socket, event);
            }
        }
    }

    /// Resumes stopped bodies where there is room again, as many as the room holds reads of.
    pub fn resume_bodies(&mut self) {
        let mut room = self.network.room();
        let mut long_reads = 0;
        let waiting = self.network.paused_len();
        // Each is resumed once; one that must wait again has been read in the meantime.
        let mut steps = Bound::new("resume bodies", waiting.saturating_mul(2) + 64);
        while self.network.paused_len() > 0 {
            if !steps.step() {
                self.wakeups.turn_again();
                return;
            }
            if !self.output.is_ready() {
                return;
            }
            let Some(resumed) = self.network.resume_next(&mut room, self.now) else {
                return;
            };
            match resumed {
                Resumed::Other => {}
                Resumed::Event(key, event) => self.on_connection_event(key, event),
                Resumed::Reads(key) => {
                    self.resume_body(key);
                    if self.network.is_rate_limited() {
                        // Others are read once it is known how much this one has received.
                        self.wakeups.turn_again_if(self.network.paused_len() > 0);
                        return;
                    }
                    if self.network.gave_way(key) {
                        long_reads += 1;
                        if long_reads == LONG_READS_PER_TURN {
                            self.wakeups.turn_again();
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Reads what was received of a body while it was stopped, and resumes its connection.
    fn resume_body(&mut self, key: Key) {
        let mut unread = self.network.take_unread(key);
        let Some(stamp) = unread.stamp else {
            return;
        };
        let mut used = 0;
        let mut steps = Bound::new("resume a body", steps_max(unread.bytes.len()));
        while steps.step() {
            let give = piece_sink(self.output.sink(), &self.flights, &self.workload);
            let network = &mut self.network;
            let Some(read) = network.read_unread(key, &mut unread, &mut used, stamp, give) else {
                return;
            };
            self.judge_body_start(key);
            match read {
                Read::Again => {}
                Read::Event(event) | Read::Last(event) => self.on_connection_event(key, event),
                Read::Full => return self.network.hold(key, self.now),
                Read::Enough => return self.hold_for_others(key),
                Read::Held => unreachable!("it was just let go"),
                Read::All => break,
            }
        }
        match unread.end {
            None => self.transmit_with_request(key),
            Some(End::Ended(stamp)) => self.on_ended(key, stamp),
            Some(End::Failed(error, at)) => self.on_failed(key, error, at),
        }
    }

    /// As much of this body was read as one turn allows: its connection resumes in the next turn.
    pub fn hold_for_others(&mut self, key: Key) {
        let flight = self.flights.get(self.network.attempt_on(key));
        let number = flight.expect("a reply has its attempt").job.id;
        self.network.hold_for_others(key, number, self.now);
    }
}

/// Passes pieces of the body of an attempt to the sink, unless only their length is wanted.
pub fn piece_sink<'a>(
    sink: &'a mut dyn DiskSink,
    flights: &'a Flights,
    workload: &Workload,
) -> impl FnOnce(Key, &[u8]) -> Flow + use<'a> {
    let is_wanted = workload.rules().streams_bodies;
    move |key, piece| {
        if !is_wanted {
            return Flow::Ready;
        }
        let flight = flights.get(key).expect("a reply has its attempt");
        sink.on_body(flight.job.id, piece)
    }
}
