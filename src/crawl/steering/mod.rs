//! The connections of operators: which request is answered next, what it may do, and replies that wait for the disk.

mod history;
mod order_log;
mod searches;
mod url_question;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use self::history::History;
pub use self::history::{Measured, Sample};
use self::order_log::OrderLog;
use self::searches::Searches;
pub use self::searches::{Description, Found, Search, Subject};
pub use self::url_question::{Place, UrlQuestion};
use crate::admin::access::{Access, Via};
use crate::admin::connection::Connection;
use crate::admin::format::MetricsFormat;
use crate::admin::response::Response;
use crate::admin::routes::Call;
use crate::base::disk::{DiskDone, DiskJob};
use crate::base::slab::Key;
use crate::base::time::{Instant, Wall};
use crate::crawl::network::OperatorEvent;
use crate::sink::commit::Epoch;

/// Connections of operators, and the orders that are being recorded.
///
/// Events of sockets enter by [`Steering::handle_event`]; a call leaves by [`Steering::poll_call`] and is answered
/// by [`Steering::respond`] or [`Steering::respond_once_recorded`]; what is to be done with the sockets leaves by
/// [`Steering::poll_sockets`].
#[derive(Debug)]
pub struct Steering {
    access: Access,
    connections: BTreeMap<Key, Served>,
    /// The connection that was served last: the next one has its turn.
    served: Option<Key>,
    orders: OrderLog,
    searches: Searches,
    history: History,
    /// Whether operators may change the level of the log.
    sets_log_level: bool,
    /// The last calls that visited all scopes, with their answers.
    recent: VecDeque<(Call, Instant, Response)>,
    /// How many such answers were made since a moment.
    visits: (Instant, u32),
    /// The last metrics in each format.
    metrics: Vec<(MetricsFormat, Instant, Response)>,
}

/// A connection and what it waits for.
#[derive(Debug)]
struct Served {
    connection: Connection,
    via: Via,
    is_read: bool,
    /// The number of an order that is being recorded, and its reply.
    recording: Option<(u64, Response)>,
    /// The reply if there is none in time.
    if_late: Option<Response>,
    unsent: usize,
}

/// A call that may be made.
#[derive(Debug)]
pub struct Asked {
    /// The connection.
    pub key: Key,
    /// What is asked for.
    pub call: Call,
    /// The body of the request.
    pub body: Vec<u8>,
    /// How the client reached us.
    pub via: Via,
}

/// What is to be done with a connection's socket.
#[derive(Debug)]
pub enum SocketStep {
    /// Bytes are to be sent.
    Send(Vec<u8>),
    /// Reading is to stop or to resume.
    Read(bool),
    /// It is to be closed.
    Close,
}

impl Default for Steering {
    fn default() -> Self {
        Steering {
            access: Access::default(),
            connections: BTreeMap::new(),
            served: None,
            orders: OrderLog::default(),
            searches: Searches::default(),
            history: History::default(),
            sets_log_level: false,
            recent: VecDeque::new(),
            visits: (Instant::START, 0),
            metrics: Vec::new(),
        }
    }
}

impl Steering {
    /// Sets who may do what by TCP, and the file of orders with its length, as far as they are given.
    pub fn configure(&mut self, access: Option<Access>, orders: Option<(PathBuf, u64)>) {
        if let Some(access) = access {
            self.access = access;
        }
        if let Some((path, length)) = orders {
            self.orders = OrderLog::new(path, length);
        }
    }

    /// Operators may change the level of the log.
    pub fn allow_log_level(&mut self) {
        self.sets_log_level = true;
    }

    /// Whether operators may change the level of the log.
    pub fn sets_log_level(&self) -> bool {
        self.sets_log_level
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Called with an event of a connection.
    pub fn handle_event(&mut self, key: Key, event: OperatorEvent, now: Instant) {
        match event {
            OperatorEvent::Accepted(via) => {
                let served = Served {
                    connection: Connection::new(now),
                    via,
                    is_read: true,
                    recording: None,
                    if_late: None,
                    unsent: 0,
                };
                self.connections.insert(key, served);
            }
            OperatorEvent::Received(bytes) => {
                if let Some(served) = self.connections.get_mut(&key) {
                    served.connection.handle_bytes(&bytes, now);
                }
            }
            OperatorEvent::Ended => {
                if let Some(served) = self.connections.get_mut(&key) {
                    served.connection.handle_end();
                }
            }
            OperatorEvent::Failed => {
                self.connections.remove(&key);
                self.searches.end(key);
            }
        }
    }

    /// The next call, of each connection in turn. `unsent`: bytes sent on a connection in earlier turns that have
    /// not left; it has its next turn once there are none.
    pub fn poll_call(
        &mut self,
        unsent: impl Fn(Key) -> usize,
        now: Instant,
        wall: Wall,
    ) -> Option<Asked> {
        let after = self
            .connections
            .keys()
            .filter(|key| Some(**key) > self.served);
        let keys: Vec<Key> = after.chain(self.connections.keys()).copied().collect();
        for key in keys.into_iter().take(self.connections.len()) {
            let served = self.connections.get_mut(&key).expect("it was just there");
            served.unsent = unsent(key);
            if served.unsent > 0 {
                continue;
            }
            let Some(mut request) = served.connection.poll_request(now, wall) else {
                continue;
            };
            self.served = Some(key);
            let via = served.via;
            let call = Call::of(&request).and_then(|call| {
                self.access.check(&request, via, call.permission)?;
                Ok(call)
            });
            match call {
                Ok(call) => {
                    let body = std::mem::take(&mut request.body);
                    return Some(Asked {
                        key,
                        call,
                        body,
                        via,
                    });
                }
                Err(refusal) => served.connection.respond(&refusal, now, wall),
            }
        }
        None
    }

    /// Answers the last call of a connection.
    pub fn respond(&mut self, key: Key, response: &Response, now: Instant, wall: Wall) {
        if let Some(served) = self.connections.get_mut(&key) {
            served.if_late = None;
            served.connection.respond(response, now, wall);
        }
    }

    /// The last call of a connection is answered later; if it is not in time, with this.
    pub fn respond_later(&mut self, key: Key, if_late: Response) {
        if let Some(served) = self.connections.get_mut(&key) {
            served.if_late = Some(if_late);
        }
    }

    /// Whether a connection waits for such an answer.
    pub fn waits_for_answer(&self, key: Key) -> bool {
        let served = self.connections.get(&key);
        served.is_some_and(|served| served.if_late.is_some())
    }

    /// Records an order that no connection waits for. `epoch`: the one that has its effects, if it has any in the state.
    pub fn record(&mut self, line: Value, epoch: Option<Epoch>) {
        self.recent.clear();
        self.orders.add(line, epoch);
    }

    /// Whether orders have lines.
    pub fn records_orders(&self) -> bool {
        self.orders.has_file()
    }

    /// Whether so many orders wait for the disk that programs can give no further one.
    pub fn is_behind(&self) -> bool {
        self.orders.is_behind()
    }

    /// An epoch is committed: the orders that it has get their lines.
    pub fn handle_committed(&mut self, epoch: Epoch, now: Instant, wall: Wall) {
        self.orders.handle_committed(epoch);
        self.answer_recorded(None, now, wall);
    }

    /// Answers the last call of a connection with a stream of events.
    pub fn respond_with_stream(&mut self, key: Key, now: Instant, wall: Wall) {
        if let Some(served) = self.connections.get_mut(&key) {
            served.connection.respond_with_stream(now, wall);
        }
    }

    /// The streams whose next event is due. One that has `unsent` bytes of earlier turns gets no further event.
    pub fn due_streams(&mut self, unsent: impl Fn(Key) -> usize, now: Instant) -> Vec<Key> {
        let mut due = Vec::new();
        for (key, served) in &mut self.connections {
            if served.connection.is_stream() {
                served.unsent = unsent(*key);
                if served.unsent == 0 && served.connection.is_event_due(now) {
                    due.push(*key);
                }
            }
        }
        due
    }

    /// Sends an event on a stream.
    pub fn send_event(&mut self, key: Key, event: &[u8], now: Instant) {
        if let Some(served) = self.connections.get_mut(&key) {
            served.connection.send_event(event, now);
        }
    }

    /// The streams to which all is sent, so that they can get a last event.
    pub fn streams_without(&self, unsent: impl Fn(Key) -> usize) -> Vec<Key> {
        let streams = self.connections.iter();
        let streams =
            streams.filter(|(key, served)| served.connection.is_stream() && unsent(**key) == 0);
        streams.map(|(key, _)| *key).collect()
    }

    /// Answers the last call of a connection once its order, and what it has changed in the state, is durable.
    /// `epoch`: as in [`Steering::record`].
    pub fn respond_once_recorded(
        &mut self,
        key: Key,
        line: Value,
        epoch: Option<Epoch>,
        response: Response,
        now: Instant,
        wall: Wall,
    ) {
        self.recent.clear();
        let number = self.orders.add(line, epoch);
        if let Some(served) = self.connections.get_mut(&key) {
            served.if_late = None;
            served.recording = Some((number, response));
        }
        self.answer_recorded(None, now, wall);
    }

    /// The questions about URLs that are being searched for.
    pub fn searches(&mut self) -> &mut Searches {
        &mut self.searches
    }

    /// The totals of the last hour.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The same, to add to them.
    pub fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    /// Whether an order is on its way to the disk.
    pub fn is_recording(&self) -> bool {
        !self.orders.is_done()
    }

    /// The answer to a call that was made a moment ago, if no order was given since.
    pub fn recent(&self, call: &Call, now: Instant) -> Option<&Response> {
        let mut kept = self.recent.iter();
        let (_, at, response) = kept.find(|(kept, ..)| kept == call)?;
        (now.saturating_since(*at) < REPEATED_FOR).then_some(response)
    }

    /// The metrics in a format, if they were made less than a second ago: neither orders nor other calls have them made
    /// again.
    pub fn recent_metrics(&self, format: MetricsFormat, now: Instant) -> Option<&Response> {
        let mut kept = self.metrics.iter();
        let (_, at, response) = kept.find(|(kept, ..)| *kept == format)?;
        (now.saturating_since(*at) < REPEATED_FOR).then_some(response)
    }

    /// Keeps the metrics in a format.
    pub fn keep_metrics(&mut self, format: MetricsFormat, response: Response, now: Instant) {
        self.metrics.retain(|(kept, ..)| *kept != format);
        self.metrics.push((format, now, response));
    }

    /// Whether another answer that visits all scopes may be made: some in each second.
    pub fn may_visit_all(&mut self, now: Instant) -> bool {
        let (since, made) = &mut self.visits;
        if now.saturating_since(*since) >= Duration::from_secs(1) {
            (*since, *made) = (now, 0);
        }
        *made += 1;
        *made <= VISITS_MAX
    }

    /// A call was refused before anything was visited: it does not count.
    pub fn return_visit(&mut self) {
        self.visits.1 -= 1;
    }

    /// Keeps the answer to a call, in place of an earlier one or of the oldest.
    pub fn keep(&mut self, call: Call, response: Response, now: Instant) {
        self.recent.retain(|(kept, ..)| *kept != call);
        if self.recent.len() == KEPT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((call, now, response));
    }

    /// The jobs for the disk since the last call.
    pub fn poll_jobs(&mut self) -> Vec<DiskJob> {
        self.orders.poll_jobs()
    }

    /// Called with a finished job; returns whether it is one of these.
    pub fn handle_disk(&mut self, done: &DiskDone, now: Instant, wall: Wall) -> bool {
        let Some(recorded) = self.orders.handle_disk(done) else {
            return false;
        };
        if let Some(recorded) = recorded {
            self.answer_recorded(recorded.error.as_deref(), now, wall);
        }
        true
    }

    /// Answers the calls whose orders are recorded, or with this error cannot be.
    fn answer_recorded(&mut self, error: Option<&str>, now: Instant, wall: Wall) {
        for served in self.connections.values_mut() {
            let orders = &self.orders;
            let is_recorded = |(number, _): &mut (u64, Response)| orders.is_recorded(*number);
            let Some((_, response)) = served.recording.take_if(is_recorded) else {
                continue;
            };
            // What was asked since may not show the order.
            self.recent.clear();
            let response = match error {
                None => response,
                Some(error) => Response::error(
                    500,
                    &format!("the order is in effect, but orders.jsonl cannot be written: {error}"),
                ),
            };
            served.connection.respond(&response, now, wall);
        }
    }

    /// What is to be done with the sockets; closed connections are removed.
    pub fn poll_sockets(&mut self, now: Instant, wall: Wall) -> Vec<(Key, SocketStep)> {
        let mut steps = Vec::new();
        self.connections.retain(|key, served| {
            if served.recording.is_some() && now >= served.connection.deadline(false) {
                // The disk is full or slow, which is when an operator is needed.
                served.recording = None;
                served
                    .connection
                    .respond(&Response::json(202, &json!(UNRECORDED)), now, wall);
            }
            if now >= served.connection.deadline(false)
                && let Some(response) = served.if_late.take()
            {
                // What was begun for it is no answer to a later call.
                self.searches.end(*key);
                served.connection.respond_and_close(&response, now, wall);
            }
            let mut bytes = Vec::new();
            served.connection.take_output(&mut bytes);
            let is_sending = served.unsent > 0 || !bytes.is_empty();
            if !bytes.is_empty() {
                served.unsent = bytes.len();
                steps.push((*key, SocketStep::Send(bytes)));
            }
            let is_late = now >= served.connection.deadline(is_sending);
            if is_late || served.connection.is_over(now) && !is_sending {
                self.searches.end(*key);
                steps.push((*key, SocketStep::Close));
                return false;
            }
            let reads = served.connection.takes_input();
            if reads != served.is_read {
                served.is_read = reads;
                steps.push((*key, SocketStep::Read(reads)));
            }
            true
        });
        self.close_kept(&mut steps, now);
        steps
    }

    /// Closes connections that wait for a request, while there are many: others wait for their places. Those that never
    /// sent one first, of which the client may be gone; then those that are kept for a next one. Of each kind those first
    /// that wait longest.
    fn close_kept(&mut self, steps: &mut Vec<(Key, SocketStep)>, now: Instant) {
        while self.connections.len() > OPEN_MAX {
            let kept = self.connections.iter().filter_map(|(key, served)| {
                let connection = &served.connection;
                let silent = connection.silent_since();
                // The first request of a client comes right after its connection.
                let silent = silent.filter(|since| now >= *since + SILENT_MAX);
                let silent = silent.map(|since| (false, since, *key));
                let kept = connection.kept_since();
                silent
                    .or(kept.map(|since| (true, since, *key)))
                    .filter(|_| served.unsent == 0)
            });
            let Some((_, _, key)) = kept.min() else {
                return;
            };
            self.connections.remove(&key);
            steps.push((key, SocketStep::Close));
        }
    }

    /// Removes all connections.
    pub fn drain(&mut self) -> Vec<Key> {
        self.searches.clear();
        std::mem::take(&mut self.connections).into_keys().collect()
    }
}

/// Time for which an answer that visits all scopes is given again: it takes a millisecond or more.
const REPEATED_FOR: Duration = Duration::from_secs(1);

/// Such answers that are kept, some ten kilobytes each; the history has a hundred.
const KEPT_MAX: usize = 8;

/// Connections beyond which none is kept for a next request: a listener has places for 16, and a scraper of many targets
/// opens one for each that it asks for at once.
const OPEN_MAX: usize = 12;

/// While there are more, a connection that has sent nothing is closed after this time.
const SILENT_MAX: Duration = Duration::from_secs(2);

/// Answers that visit all scopes in one second, a millisecond or two each.
const VISITS_MAX: u32 = 16;

/// Reply to an order whose line is not durable in time.
const UNRECORDED: &str = "the order is in effect; that it is durable waits for the disk";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::START + Duration::from_secs(seconds)
    }

    fn key() -> Key {
        let mut keys = crate::base::slab::Slab::default();
        keys.insert(())
    }

    #[test]
    fn a_client_that_does_not_read_gets_no_further_event_and_is_closed() {
        let (mut steering, key) = (Steering::default(), key());
        let via = Via::Unix { uid: 1000 };
        steering.handle_event(key, OperatorEvent::Accepted(via), at(0));
        let request = b"GET /v1/events HTTP/1.1\r\n\r\n".to_vec();
        steering.handle_event(key, OperatorEvent::Received(request), at(0));
        let asked = steering.poll_call(|_| 0, at(0), Wall(0));
        assert!(asked.is_some());
        steering.respond_with_stream(key, at(0), Wall(0));
        assert_eq!(steering.due_streams(|_| 0, at(0)), [key]);
        steering.send_event(key, b"data: 1\n\n", at(0));
        let steps = steering.poll_sockets(at(0), Wall(0));
        assert!(matches!(steps[..], [(_, SocketStep::Send(_))]), "{steps:?}");
        for second in 1..10 {
            assert_eq!(steering.due_streams(|_| 5, at(second)), [] as [Key; 0]);
            assert_eq!(steering.streams_without(|_| 5), [] as [Key; 0]);
            assert!(steering.poll_sockets(at(second), Wall(0)).is_empty());
        }
        // As soon as it has read, it gets the next one.
        assert_eq!(steering.due_streams(|_| 0, at(9)), [key]);
        assert_eq!(steering.due_streams(|_| 5, at(10)), [] as [Key; 0]);
        let steps = steering.poll_sockets(at(10), Wall(0));
        assert!(matches!(steps[..], [(_, SocketStep::Close)]), "{steps:?}");
        assert!(steering.is_empty());
    }

    #[test]
    fn connections_that_wait_for_a_request_make_room_for_others() {
        let mut steering = Steering::default();
        let mut slots = crate::base::slab::Slab::default();
        let via = Via::Unix { uid: 1000 };
        let mut closed = Vec::new();
        let keys: Vec<Key> = (0..20).map(|_| slots.insert(())).collect();
        for (second, key) in (0..).zip(&keys) {
            let now = at(second);
            steering.handle_event(*key, OperatorEvent::Accepted(via), now);
            let request = b"GET /healthz HTTP/1.1\r\n\r\n".to_vec();
            steering.handle_event(*key, OperatorEvent::Received(request), now);
            let asked = steering.poll_call(|_| 0, now, Wall(0)).expect("a call");
            steering.respond(asked.key, &Response::text(200, "ok\n"), now, Wall(0));
            for _ in 0..2 {
                for (key, step) in steering.poll_sockets(now, Wall(0)) {
                    closed.extend(matches!(step, SocketStep::Close).then_some(key));
                }
                // What was to be sent has left.
                assert!(steering.poll_call(|_| 0, now, Wall(0)).is_none());
            }
        }
        assert_eq!(closed, keys[..8], "those that wait longest");
        // One that was not answered yet is none of these.
        let mut fresh = Steering::default();
        for key in &keys {
            fresh.handle_event(*key, OperatorEvent::Accepted(via), at(0));
        }
        assert!(fresh.poll_sockets(at(1), Wall(0)).is_empty());
    }

    #[test]
    fn connections_without_a_request_make_room_first() {
        let mut steering = Steering::default();
        let mut slots = crate::base::slab::Slab::default();
        let via = Via::Unix { uid: 1000 };
        let keys: Vec<Key> = (0..20).map(|_| slots.insert(())).collect();
        // Of the first four one is kept for a next request, and the others are silent.
        for (second, key) in [0, 0, 0, 0].into_iter().zip(&keys) {
            steering.handle_event(*key, OperatorEvent::Accepted(via), at(second));
        }
        let request = b"GET /healthz HTTP/1.1\r\n\r\n".to_vec();
        steering.handle_event(keys[0], OperatorEvent::Received(request), at(0));
        let asked = steering.poll_call(|_| 0, at(0), Wall(0)).expect("a call");
        steering.respond(asked.key, &Response::text(200, "ok\n"), at(0), Wall(0));
        for _ in 0..2 {
            steering.poll_sockets(at(0), Wall(0));
            // What was to be sent has left.
            assert!(steering.poll_call(|_| 0, at(0), Wall(0)).is_none());
        }
        let closed = |steering: &mut Steering, now| -> Vec<Key> {
            let steps = steering.poll_sockets(now, Wall(0)).into_iter();
            let closes = steps.filter(|(_, step)| matches!(step, SocketStep::Close));
            closes.map(|(key, _)| key).collect()
        };
        for key in &keys[4..] {
            steering.handle_event(*key, OperatorEvent::Accepted(via), at(1));
        }
        // A scrape begins.
        let part = b"GET /metrics".to_vec();
        steering.handle_event(keys[19], OperatorEvent::Received(part), at(2));
        let first = [&keys[1..4], &keys[..1]].concat();
        assert_eq!(closed(&mut steering, at(2)), first);
        assert_eq!(closed(&mut steering, at(3)), keys[4..8]);
        assert_eq!(closed(&mut steering, at(10)), [] as [Key; 0]);
        // Without a request they are closed when it should have come, and so is what it is a part of.
        let mut rest = closed(&mut steering, at(11));
        rest.sort();
        assert_eq!(rest, keys[8..19]);
        assert_eq!(closed(&mut steering, at(12)), keys[19..]);
    }

    #[test]
    fn a_stream_needs_the_right_to_read() {
        let (mut steering, key) = (Steering::default(), key());
        let from = "192.0.2.1:5".parse().expect("an address");
        steering.handle_event(key, OperatorEvent::Accepted(Via::Tcp { from }), at(0));
        let request = b"GET /v1/events HTTP/1.1\r\nHost: 192.0.2.2\r\n\r\n".to_vec();
        steering.handle_event(key, OperatorEvent::Received(request), at(0));
        assert!(steering.poll_call(|_| 0, at(0), Wall(0)).is_none());
        assert_eq!(steering.due_streams(|_| 0, at(0)), [] as [Key; 0]);
        let steps = steering.poll_sockets(at(0), Wall(0));
        let [(_, SocketStep::Send(reply))] = &steps[..] else {
            panic!("it is refused: {steps:?}");
        };
        assert!(reply.starts_with(b"HTTP/1.1 401 "));
    }
}
