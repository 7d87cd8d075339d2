//! What the kernel answers, and what sockets tell of it.

use std::io;
use std::sync::atomic::Ordering;

use super::READS_MAX;
use super::Uring;
use super::asks::Ask;
use super::connection::{Blind, Ending, Kind, Receive, State, current, named};
use super::ring::{Answer, Name, OVERHEAD, What};
use crate::base::time::Instant;
use crate::io::socket::{Attempt, net_error};
use crate::io::stamps::established;
use crate::io::{Chunk, Clock, Event, Token};

impl Uring {
    /// Does what the answers that were taken lead to.
    pub(super) fn handle_answers(&mut self, now: Instant, events: &mut Vec<Event>) {
        // All arrivals are taken note of before the first of them is judged.
        for answer in &self.answers {
            if answer.name.what == What::Receive
                && let Some(entry) = named(&mut self.entries, answer.name)
                && let Some(connection) = entry.connection()
            {
                let length = answer.result.map_or(0, |whole| whole as usize);
                if length > OVERHEAD {
                    connection.note_arrival(length == OVERHEAD + self.settings.buffer_bytes);
                }
                if !answer.more {
                    connection.receives(false);
                }
            }
        }
        for index in 0..self.answers.len() {
            let answer = self.answers[index];
            match answer.name.what {
                What::Ready => self.handle_ready(answer, now, events),
                What::Receive => self.handle_received(answer),
                What::Timer => {
                    self.timer.told();
                    self.keep_watching(answer);
                }
                What::Bell => {
                    if self.bell.rung.swap(false, Ordering::AcqRel) {
                        events.push(Event::Woken);
                    }
                    if let Some(disk) = &mut self.disk {
                        disk.take_done(events);
                    }
                    self.keep_watching(answer);
                }
                What::Cancel => self.cancel_again(answer.name),
            }
        }
    }

    /// A cancel was refused, mostly since there was nothing to end any more. A receive that could not be
    /// ended at that moment would go on for good, and what is untold grow without a bound.
    fn cancel_again(&mut self, refused: Name) {
        if let Some(entry) = named(&mut self.entries, refused)
            && let State::Open(connection) = &entry.state
            && connection.receive == Receive::Stopping
        {
            let what = What::Receive;
            self.asks.push(Ask::Cancel(Name { what, ..refused }));
        }
    }

    /// A watch goes on by itself, unless the kernel had no room for its answers.
    fn keep_watching(&mut self, answer: Answer) {
        if !answer.more {
            self.asks.push(Ask::Start(answer.name));
        }
    }

    /// A socket may have been connected, or takes more, or failed. One that is gone does nothing.
    fn handle_ready(&mut self, answer: Answer, now: Instant, events: &mut Vec<Event>) {
        let slot = answer.name.slot;
        let Some(entry) = named(&mut self.entries, answer.name) else {
            return;
        };
        let token = entry.token(slot as usize);
        let connecting = matches!(entry.state, State::Connecting(_));
        let Some(connection) = entry.connection() else {
            return;
        };
        connection.awaiting = false;
        if connecting {
            match connection.socket.attempt() {
                Attempt::Pending => return self.await_ready(slot),
                Attempt::Failed(error) => return self.fail(token, error, events),
                Attempt::Established(rtt) => {
                    let (started, slack) = (connection.floor, connection.attempt_slack);
                    let stamp = established(started, slack, rtt, now);
                    connection.blind.since = stamp.at;
                    events.push(Event::Connected {
                        token,
                        started,
                        stamp,
                    });
                    entry.establish();
                }
            }
            self.consider_receiving(slot);
        }
        let Some(connection) = self.entries[slot as usize].connection() else {
            return;
        };
        if let Some(backlog) = &mut connection.backlog {
            let drained = backlog.drain(
                &mut connection.socket,
                || self.stamps.now(),
                |left| events.push(self.departures.news(token, left)),
            );
            if let Err(error) = drained {
                return self.fail(token, error, events);
            }
            if connection.has_backlog() {
                // One that waits would be an answer each time.
                while connection.socket.departed().is_some() {}
                self.await_ready(slot);
            }
        }
    }

    /// Something arrived, or nothing will any more.
    fn handle_received(&mut self, answer: Answer) {
        let slot = answer.name.slot;
        if let Some(id) = answer.buffer {
            self.buffers.take_back(id);
        }
        if !answer.more {
            self.receiving -= 1;
        }
        let open = named(&mut self.entries, answer.name)
            .is_some_and(|entry| matches!(entry.state, State::Open(_)));
        if !open {
            if let Some(id) = answer.buffer {
                self.buffers.put_back(id);
            }
            if answer.more {
                // A cancel that came at a bad moment; it would go on for good.
                self.asks.push(Ask::Cancel(answer.name));
            }
            return;
        }
        let mut starved = false;
        match (answer.result, answer.buffer) {
            (Ok(_), Some(id)) => self.take_bytes(slot, id),
            (Err(libc::ENOBUFS), _) => {
                self.buffers.want_more();
                starved = true;
            }
            (Ok(_) | Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN), _) => {}
            (Err(errno), _) => {
                let error = net_error(&io::Error::from_raw_os_error(errno));
                self.end(slot, Ending::Failure(error));
            }
        }
        let entry = &mut self.entries[slot as usize];
        let token = entry.token(slot as usize);
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        if !answer.more {
            // From here on nobody looks until it is armed again.
            connection.blind = Blind {
                since: connection.floor,
                until: Instant::FAR_FUTURE,
            };
            connection.receive = Receive::Off;
            if starved {
                connection.receive = Receive::Starved;
                self.starved.push_back(token);
            }
        }
        if connection.wants_turn() {
            self.line.push_back(token);
        }
        self.consider_receiving(slot);
    }

    /// Takes what stands in a buffer that came back.
    fn take_bytes(&mut self, slot: u32, id: u16) {
        let State::Open(connection) = &mut self.entries[slot as usize].state else {
            unreachable!("the caller looked");
        };
        let message = self.ring.read(self.buffers.whole(id));
        if message.length == 0 {
            self.buffers.put_back(id);
            // An empty datagram says nothing.
            if connection.kind == Kind::Stream {
                self.end(slot, Ending::Fin(self.stamps.noticed()));
            }
            return;
        }
        let all_seen = || !self.ring.has_answers();
        let stamp = self
            .watch
            .judge(message.stamp, connection, &self.stamps, all_seen);
        connection.judged();
        if stamp.clock == Clock::Kernel {
            connection.floor = stamp.at;
        }
        let untold = &mut connection.untold;
        self.buffers.push(untold, id, message.length, stamp);
    }

    fn end(&mut self, slot: u32, ending: Ending) {
        if let State::Open(connection) = &mut self.entries[slot as usize].state {
            connection.ending = Some(ending);
        }
    }

    /// Lets the first sockets in line tell their shares. The others wait for the next call: what is
    /// told here is worked off before anything is sent.
    pub(super) fn serve_line(&mut self, events: &mut Vec<Event>) {
        let mut bytes = 0;
        for _ in 0..self.line.len().min(READS_MAX) {
            if bytes >= self.settings.read_budget {
                return;
            }
            let Some(token) = self.line.pop_front() else {
                return;
            };
            if let Some(entry) = current(&mut self.entries, token)
                && let Some(connection) = entry.connection()
            {
                connection.in_line = false;
                let before = events.len();
                self.tell(token, events);
                bytes += events[before..].iter().map(Event::len).sum::<usize>();
                self.consider_receiving(token.slot);
            }
        }
    }

    /// Tells what a socket has received, until its share of this turn is spent.
    fn tell(&mut self, token: Token, events: &mut Vec<Event>) {
        let entry = &mut self.entries[token.slot as usize];
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        let mut told = 0;
        while connection.reading && told < self.settings.read_budget {
            if let Some((id, length, stamp)) = self.buffers.pop(&mut connection.untold) {
                told += length;
                let chunk = Chunk {
                    buffer: u32::from(id),
                    length: length as u32,
                };
                events.push(Event::Received {
                    token,
                    chunk,
                    stamp,
                });
                continue;
            }
            match connection.ending.take() {
                None => return,
                Some(Ending::Failure(error)) => self.fail(token, error, events),
                Some(Ending::Fin(stamp)) => {
                    events.push(Event::Ended { token, stamp });
                    entry.end();
                }
            }
            return;
        }
        if connection.wants_turn() {
            self.line.push_back(token);
        }
    }
}
