//! What epoll says of descriptors, and what is read of sockets after that.

use std::sync::atomic::Ordering;

use super::connection::{Arrived, Kind, State, Unread, current};
use super::{BELL, DUE, Epoll, Name, READS_MAX, TIMER, event};
use crate::base::time::Instant;
use crate::io::socket::{Attempt, Read};
use crate::io::stamps::{Unseen, established};
use crate::io::{Chunk, Clock, Event, NetError, Stamp, Token};

impl Epoll {
    /// Does what the edges that were polled lead to.
    pub(super) fn handle_edges(&mut self, now: Instant, unseen: Unseen, events: &mut Vec<Event>) {
        self.edges.clear();
        self.edges.extend(self.polled.iter().map(Edge::from));
        self.polled.clear();
        for index in 0..self.edges.len() {
            let edge = self.edges[index];
            match edge.name {
                TIMER => self.timer.told(),
                DUE => self.due.told(),
                BELL => {
                    if self.bell.rung.swap(false, Ordering::AcqRel) {
                        events.push(Event::Woken);
                    }
                    if let Some(disk) = &mut self.disk {
                        disk.take_done(events);
                    }
                }
                Name(slot) => self.handle_edge(slot, edge, now, unseen, events),
            }
        }
    }

    /// Takes an edge of a socket. One that is out of date finds nothing to do.
    fn handle_edge(
        &mut self,
        slot: usize,
        edge: Edge,
        now: Instant,
        unseen: Unseen,
        events: &mut Vec<Event>,
    ) {
        let entry = &mut self.entries[slot];
        let token = entry.token(slot);
        if let State::Connecting(connection) = &mut entry.state {
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
        let Some(connection) = self.entries[slot].connection() else {
            return;
        };
        if edge.writable
            && let Some(backlog) = &mut connection.backlog
        {
            let drained = backlog.drain(
                &mut connection.socket,
                || self.stamps.now(),
                |left| events.push(self.departures.news(token, left)),
            );
            if let Err(error) = drained {
                return self.fail(token, error, events);
            }
        }
        if edge.readable {
            let unread = connection.unread.get_or_insert(Unread {
                before: unseen,
                ending: false,
            });
            unread.ending |= edge.ending;
            if connection.wants_turn() {
                self.line.push_back(token);
            }
        }
    }

    /// Reads from the first sockets in line, once from each, as long as there are buffers. The
    /// others wait for the next call: what is read here is worked off before anything is sent.
    pub(super) fn serve_line(&mut self, events: &mut Vec<Event>) {
        let mut bytes = 0;
        for _ in 0..self.line.len().min(READS_MAX) {
            if !self.pool.has_free() || bytes >= self.settings.read_budget {
                return;
            }
            let Some(token) = self.line.pop_front() else {
                return;
            };
            let before = events.len();
            if let Err(error) = self.read(token, events) {
                self.fail(token, error, events);
            }
            bytes += events[before..].iter().map(Event::len).sum::<usize>();
        }
    }

    /// Reads from a socket until it is drained, its budget is spent or the pool is empty.
    fn read(&mut self, token: Token, events: &mut Vec<Event>) -> Result<(), NetError> {
        let Some(entry) = current(&mut self.entries, token) else {
            return Ok(());
        };
        let State::Open(connection) = &mut entry.state else {
            return Ok(());
        };
        connection.in_line = false;
        let has_leisure = self.leisure.is_there(self.leisure.since());
        let mut budget = self.settings.read_budget;
        while connection.reading
            && let Some(unread) = connection.unread
        {
            let buffer = if budget == 0 { None } else { self.pool.take() };
            let Some(buffer) = buffer else {
                connection.in_line = true;
                self.line.push_back(token);
                return Ok(());
            };
            let counts = self.watchful > 0 && self.allowance.spend();
            let counted = connection.count_before(counts);
            match connection.socket.receive(self.pool.get_mut(buffer)) {
                Ok(Read::Bytes { length, stamp }) => {
                    let short =
                        length < self.pool.buffer_bytes() && connection.kind == Kind::Stream;
                    if short && !unread.ending {
                        // Whatever comes after this makes an edge of its own.
                        connection.unread = None;
                    }
                    let before = unread.before.asked(connection.asked);
                    let mut stamp = self.stamps.arrival(stamp, before, connection.floor);
                    let is_kernels = stamp.clock == Clock::Kernel;
                    if is_kernels {
                        connection.floor = stamp.at;
                    }
                    let doubted = before.is_worth_asking(&stamp, has_leisure);
                    if doubted {
                        self.watchful = WATCHFUL_TURNS;
                    }
                    // A stamp that is too early is worse than one that is in doubt.
                    let asks = before.is_stale(&stamp) || doubted && self.allowance.spend();
                    match connection.arrived(asks, counted, short) {
                        Arrived::Alone if is_kernels => stamp = Stamp::exact(stamp.at),
                        Arrived::Alone | Arrived::Unknown => {}
                        // Nobody stamped what was missing.
                        Arrived::OutOfOrder => {
                            stamp = self.stamps.arrival(None, before, connection.floor);
                        }
                    }
                    budget = budget.saturating_sub(length);
                    events.push(Event::Received {
                        token,
                        chunk: Chunk {
                            buffer,
                            length: length as u32,
                        },
                        stamp,
                    });
                }
                Ok(Read::End) if connection.kind == Kind::Stream => {
                    self.pool.put_back(buffer);
                    events.push(Event::Ended {
                        token,
                        stamp: self.stamps.noticed(),
                    });
                    entry.end();
                    return Ok(());
                }
                // An empty datagram says nothing.
                Ok(Read::End) => {
                    self.pool.put_back(buffer);
                    budget = budget.saturating_sub(1);
                }
                Ok(Read::Empty) => {
                    self.pool.put_back(buffer);
                    connection.unread = None;
                    if unread.ending {
                        connection.forget_stamps();
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

/// What epoll said about one descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    name: Name,
    readable: bool,
    /// An end or an error stands behind what is to be read: reading must go on until it shows.
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

/// For so many turns after one that left a stamp in doubt the kernel is asked for a socket's segments
/// before a request leaves: half a microsecond, which a loop saves that is never late.
const WATCHFUL_TURNS: u32 = 1024;
