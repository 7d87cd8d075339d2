//! Handling of epoll's edges, and reading from sockets.

use std::sync::atomic::Ordering;

use super::reading::{Arrived, Unread};
use super::{DUE, Epoll, LISTENERS, Name, TIMER, WAKE, event};
use crate::base::time::Instant;
use crate::io::sockets::ready::TurnReads;
use crate::io::sockets::socket::{Attempt, Read};
use crate::io::sockets::{Connection, Kind};
use crate::io::stamps::{PollWindow, established};
use crate::io::{Chunk, Clock, Event, NetError, Stamp, Token};

impl Epoll {
    /// Handles the edges that were polled.
    pub(super) fn handle_edges(
        &mut self,
        now: Instant,
        window: PollWindow,
        events: &mut Vec<Event>,
    ) {
        self.edges.clear();
        self.edges.extend(self.polled.iter().map(Edge::from));
        self.polled.clear();
        for index in 0..self.edges.len() {
            let edge = self.edges[index];
            match edge.name {
                TIMER => self.timer.note_fired(),
                DUE => self.due.note_reported(),
                WAKE => {
                    if self.signal.requested.swap(false, Ordering::AcqRel) {
                        events.push(Event::Woken);
                    }
                    self.threads.take_results(events);
                }
                name if name >= LISTENERS => {
                    self.sockets.listeners.mark_ready(name.0 - LISTENERS.0)
                }
                Name(slot) => self.handle_edge(slot as u32, edge, now, window, events),
            }
        }
    }

    /// Handles an edge of a socket. A stale one finds nothing to do.
    fn handle_edge(
        &mut self,
        slot: u32,
        edge: Edge,
        now: Instant,
        window: PollWindow,
        events: &mut Vec<Event>,
    ) {
        let entry = self.sockets.at(slot);
        let token = entry.token(slot);
        if entry.is_connecting()
            && let Some(connection) = entry.connection()
        {
            match connection.socket.attempt() {
                Attempt::Pending => return,
                Attempt::Failed(error) => return self.fail(token, error, events),
                Attempt::Established(rtt) => {
                    let (started, slack) = (connection.floor, connection.attempt_slack);
                    let stamp = established(started, slack, rtt, now);
                    events.push(Event::Connected {
                        token,
                        started,
                        stamp,
                    });
                    entry.establish();
                }
            }
        }
        let Some(connection) = self.sockets.at(slot).connection() else {
            return;
        };
        if edge.writable
            && let Some(backlog) = &mut connection.backlog
        {
            let drained = backlog.drain(
                &mut connection.socket,
                || self.stamps.now(),
                |left| events.push(self.departures.event(token, left)),
            );
            if let Err(error) = drained {
                return self.fail(token, error, events);
            }
        }
        if edge.readable {
            let unread = connection.input.unread.get_or_insert(Unread {
                before: window,
                ending: false,
            });
            unread.ending |= edge.ending;
            self.sockets.enqueue_ready(token);
        }
    }

    /// Reads once from each of the first ready sockets, while there are buffers and bytes left of the turn's.
    /// The others wait for the next call: what is read here is handled before anything is sent.
    pub(super) fn serve_ready(&mut self, events: &mut Vec<Event>) {
        let mut turn = TurnReads::new(self.settings.read_budget);
        for _ in 0..self.sockets.ready_count() {
            if !self.pool.has_free() {
                return;
            }
            let Some(token) = self.sockets.next_ready(&mut turn) else {
                return;
            };
            let before = events.len();
            if let Err(error) = self.read(token, turn.bytes(), events) {
                self.fail(token, error, events);
            }
            turn.count(&events[before..]);
        }
    }

    /// Reads from a socket until it is drained, its share of `most` bytes is read or the pool is empty.
    fn read(&mut self, token: Token, most: usize, events: &mut Vec<Event>) -> Result<(), NetError> {
        let Some(entry) = self.sockets.get(token) else {
            return Ok(());
        };
        let Some(connection) = entry.open() else {
            return Ok(());
        };
        let has_idle_time = self.idle_time.is_available(self.idle_time.since());
        let mut budget = connection.reads.share_of(most);
        while connection.reading
            && let Some(unread) = connection.input.unread
        {
            let buffer = if budget == 0 { None } else { self.pool.take() };
            let Some(buffer) = buffer else {
                self.sockets.enqueue_ready(token);
                return Ok(());
            };
            let Connection {
                socket,
                kind,
                input,
                ..
            } = connection;
            let is_stream = *kind == Kind::Stream;
            // If the read leaves nothing, these were read for certain.
            let counts = self.counting_turns > 0 && self.query_budget.try_spend() && is_stream;
            let counted = if counts { socket.segments() } else { None };
            match socket.receive(self.pool.get_mut(buffer)) {
                Ok(Read::Bytes { length, stamp }) => {
                    let short = length < self.pool.buffer_bytes() && is_stream;
                    if short && !unread.ending {
                        // Later arrivals make an edge of their own.
                        input.unread = None;
                    }
                    let before = unread.before.sent_at(connection.sent_at);
                    let mut stamp = self.stamps.arrival(stamp, before, connection.floor);
                    let is_kernels = stamp.clock == Clock::Kernel;
                    if is_kernels {
                        connection.floor = stamp.at;
                    }
                    let imprecise = before.is_worth_query(&stamp, has_idle_time);
                    if imprecise {
                        self.counting_turns = COUNTING_TURNS;
                    }
                    // A stamp that is too early is worse than an imprecise one.
                    let queries =
                        before.is_stale(&stamp) || imprecise && self.query_budget.try_spend();
                    let arrived = match is_stream {
                        true => input.arrived(socket, queries, counted, short),
                        false => Arrived::SingleSegment,
                    };
                    match arrived {
                        Arrived::SingleSegment if is_kernels => stamp = Stamp::exact(stamp.at),
                        Arrived::SingleSegment | Arrived::Unknown => {}
                        // The missing segment has no stamp.
                        Arrived::OutOfOrder => {
                            stamp = self.stamps.arrival(None, before, connection.floor);
                        }
                    }
                    budget = budget.saturating_sub(length);
                    connection.reads.count(length);
                    events.push(Event::Received {
                        token,
                        chunk: Chunk {
                            buffer,
                            length: length as u32,
                        },
                        stamp,
                    });
                }
                Ok(Read::End) if is_stream => {
                    self.pool.put_back(buffer);
                    events.push(Event::Ended {
                        token,
                        stamp: self.stamps.bound_now(),
                    });
                    entry.end();
                    return Ok(());
                }
                // An empty datagram carries nothing.
                Ok(Read::End) => {
                    self.pool.put_back(buffer);
                    budget = budget.saturating_sub(1);
                }
                Ok(Read::Empty) => {
                    self.pool.put_back(buffer);
                    input.unread = None;
                    if unread.ending {
                        socket.forget_departures();
                    }
                }
                Err(error) => {
                    self.pool.put_back(buffer);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Events of one descriptor reported by epoll.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    name: Name,
    readable: bool,
    /// An end or an error follows the bytes: reading must continue until it shows.
    ending: bool,
    writable: bool,
}

impl From<&event::Event> for Edge {
    fn from(event: &event::Event) -> Self {
        let ending = event.is_read_closed() || event.is_error();
        Edge {
            name: event.token(),
            readable: event.is_readable() || ending,
            ending,
            writable: event.is_writable(),
        }
    }
}

/// Turns after an imprecise stamp in which segments are counted before each request leaves. That takes
/// half a microsecond, which a loop that is never late saves.
const COUNTING_TURNS: u32 = 1024;
