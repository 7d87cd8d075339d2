//! Handling of completions, and reporting of received bytes.

use std::io;
use std::sync::atomic::Ordering;

use super::Uring;
use super::receiving::{Ending, Gap, Receive};
use super::ring::{Completion, OVERHEAD, OpId, OpKind};
use super::submissions::{Submission, listener_id};
use crate::base::time::Instant;
use crate::io::sockets::ready::TurnReads;
use crate::io::sockets::socket::{Attempt, net_error};
use crate::io::sockets::{Entry, Kind};
use crate::io::stamps::established;
use crate::io::{Chunk, Clock, Event, Token};

impl Uring {
    /// Handles the completions that this turn took.
    pub(super) fn handle_completions(&mut self, now: Instant, events: &mut Vec<Event>) {
        // All arrivals are counted before the first of them is judged.
        for completion in &self.completions {
            if completion.name.what == OpKind::Receive
                && let OpId { slot, serial, .. } = completion.name
                && let Some(entry) = self.sockets.get_serial(slot, serial)
                && let Some(connection) = entry.connection()
            {
                let receiving = &mut connection.input;
                let length = completion.result.map_or(0, |whole| whole as usize);
                if length > OVERHEAD {
                    receiving.note_arrival(length == OVERHEAD + self.settings.buffer_bytes);
                }
                if !completion.more {
                    receiving.receives(false);
                }
            }
        }
        for index in 0..self.completions.len() {
            let completion = self.completions[index];
            match completion.name.what {
                OpKind::Ready => self.handle_ready(completion, now, events),
                OpKind::Receive => self.handle_received(completion),
                OpKind::Timer => {
                    self.timer.note_fired();
                    self.keep_polling(completion);
                }
                OpKind::Wake => {
                    if self.signal.requested.swap(false, Ordering::AcqRel) {
                        events.push(Event::Woken);
                    }
                    self.threads.take_results(events);
                    self.keep_polling(completion);
                }
                OpKind::Listener => {
                    if self
                        .sockets
                        .listeners
                        .fd(listener_id(completion.name))
                        .is_some()
                    {
                        self.sockets
                            .listeners
                            .mark_ready(completion.name.slot as usize);
                        self.keep_polling(completion);
                    }
                }
                OpKind::CancelReceive => self.retry_cancel(completion.name),
                OpKind::CancelListener => {
                    // Its poll was about to be started again. As long as there is one, the kernel keeps
                    // the socket and its address.
                    if completion.result == Err(libc::EALREADY) {
                        let what = OpKind::Listener;
                        let poll = OpId {
                            what,
                            ..completion.name
                        };
                        self.submissions.push(Submission::Cancel(poll));
                    }
                }
                // It polls once and then completes.
                OpKind::CancelReady => {}
            }
        }
    }

    /// The cancel of a receive failed, mostly because that had ended. One that could not be
    /// cancelled at that moment would continue, and its unreported bytes grow without a bound.
    fn retry_cancel(&mut self, refused: OpId) {
        let entry = self.sockets.get_serial(refused.slot, refused.serial);
        if let Some(connection) = entry.and_then(Entry::open)
            && connection.input.receive == Receive::Stopping
        {
            let what = OpKind::Receive;
            self.submissions
                .push(Submission::Cancel(OpId { what, ..refused }));
        }
    }

    /// A multishot poll continues unless the completion queue was full.
    fn keep_polling(&mut self, completion: Completion) {
        if !completion.more {
            self.submissions.push(Submission::Start(completion.name));
        }
    }

    /// A socket may be connected, writable or failed. Does nothing if it was closed.
    fn handle_ready(&mut self, completion: Completion, now: Instant, events: &mut Vec<Event>) {
        let slot = completion.name.slot;
        let Some(entry) = self.sockets.get_serial(slot, completion.name.serial) else {
            return;
        };
        let token = entry.token(slot);
        let connecting = entry.is_connecting();
        let Some(connection) = entry.connection() else {
            return;
        };
        connection.input.polling_writable = false;
        if connecting {
            match connection.socket.attempt() {
                Attempt::Pending => return self.poll_writable(slot),
                Attempt::Failed(error) => return self.fail(token, error, events),
                Attempt::Established(rtt) => {
                    let (started, slack) = (connection.floor, connection.attempt_slack);
                    let stamp = established(started, slack, rtt, now);
                    connection.input.gap.since = stamp.at;
                    events.push(Event::Connected {
                        token,
                        started,
                        stamp,
                    });
                    entry.establish();
                }
            }
            self.update_receive(slot);
        }
        let Some(connection) = self.sockets.at(slot).connection() else {
            return;
        };
        if let Some(backlog) = &mut connection.backlog {
            let drained = backlog.drain(
                &mut connection.socket,
                || self.stamps.now(),
                |left| events.push(self.departures.event(token, left)),
            );
            if let Err(error) = drained {
                return self.fail(token, error, events);
            }
            if connection.has_backlog() {
                // A stamp left there would complete each poll at once.
                connection.socket.forget_departures();
                self.poll_writable(slot);
            }
        }
    }

    /// Bytes or an end arrived, or the receive ended.
    fn handle_received(&mut self, completion: Completion) {
        let slot = completion.name.slot;
        if let Some(id) = completion.buffer {
            self.buffers.take(id);
        }
        if !completion.more {
            self.receiving -= 1;
        }
        let entry = self.sockets.get_serial(slot, completion.name.serial);
        if entry.and_then(Entry::open).is_none() {
            if let Some(id) = completion.buffer {
                self.buffers.put_back(id);
            }
            if completion.more {
                // A cancel came at the wrong moment; the receive would continue.
                self.submissions.push(Submission::Cancel(completion.name));
            }
            return;
        }
        let mut starved = false;
        match (completion.result, completion.buffer) {
            (Ok(_), Some(id)) => self.take_bytes(slot, id),
            (Err(libc::ENOBUFS), _) => {
                self.buffers.grow_provided();
                starved = true;
            }
            (Ok(_) | Err(libc::ECANCELED | libc::EINTR | libc::EAGAIN), _) => {}
            (Err(errno), _) => {
                let error = net_error(&io::Error::from_raw_os_error(errno));
                self.end(slot, Ending::Failure(error));
            }
        }
        let entry = self.sockets.at(slot);
        let token = entry.token(slot);
        let Some(connection) = entry.open() else {
            return;
        };
        if !completion.more {
            // Nothing is received until the operation is started again.
            connection.input.gap = Gap {
                since: connection.floor,
                until: Instant::FAR_FUTURE,
            };
            connection.input.receive = Receive::Off;
            if starved {
                connection.input.receive = Receive::Starved;
                self.starved.push_back(token);
            }
        }
        self.sockets.enqueue_ready(token);
        self.update_receive(slot);
    }

    /// Queues the bytes of a filled buffer.
    fn take_bytes(&mut self, slot: u32, id: u16) {
        let Some(connection) = self.sockets.at(slot).open() else {
            unreachable!("the caller checked that it is open");
        };
        let message = self.ring.read(self.buffers.whole(id));
        if message.length == 0 {
            self.buffers.put_back(id);
            // An empty datagram carries nothing.
            if connection.kind == Kind::Stream {
                self.end(slot, Ending::Fin(self.stamps.bound_now()));
            }
            return;
        }
        let all_seen = || !self.ring.has_completions();
        let stamp = self
            .stamping
            .judge(message.stamp, connection, &self.stamps, all_seen);
        connection.input.note_judged();
        if stamp.clock == Clock::Kernel {
            connection.floor = stamp.at;
        }
        let unreported = &mut connection.input.unreported;
        self.buffers.push(unreported, id, message.length, stamp);
    }

    fn end(&mut self, slot: u32, ending: Ending) {
        if let Some(connection) = self.sockets.at(slot).open() {
            connection.input.ending = Some(ending);
        }
    }

    /// Reports from the first sockets in line. The others wait for the next call: what is reported here
    /// is handled before anything is sent.
    pub(super) fn serve_ready(&mut self, events: &mut Vec<Event>) {
        let mut turn = TurnReads::new(self.settings.read_budget);
        for _ in 0..self.sockets.ready_count() {
            let Some(token) = self.sockets.next_ready(&mut turn) else {
                return;
            };
            let before = events.len();
            self.report(token, turn.bytes(), events);
            turn.count(&events[before..]);
            self.update_receive(token.slot);
        }
    }

    /// Reports what a socket has received, up to its share of `most` bytes.
    fn report(&mut self, token: Token, most: usize, events: &mut Vec<Event>) {
        let entry = self.sockets.at(token.slot);
        let Some(connection) = entry.open() else {
            return;
        };
        let share = connection.reads.share_of(most);
        let mut reported = 0;
        while connection.reading && reported < share {
            if let Some((id, length, stamp)) = self.buffers.pop(&mut connection.input.unreported) {
                reported += length;
                connection.reads.count(length);
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
            match connection.input.ending.take() {
                None => return,
                Some(Ending::Failure(error)) => self.fail(token, error, events),
                Some(Ending::Fin(stamp)) => {
                    events.push(Event::Ended { token, stamp });
                    entry.end();
                }
            }
            return;
        }
        self.sockets.enqueue_ready(token);
    }
}
