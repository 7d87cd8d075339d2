//! Operations to submit, kept until the next flush.

use std::os::fd::{AsFd, AsRawFd};

use super::Uring;
use super::receiving::Receive;
use super::ring::{OpId, OpKind};
use crate::io::sockets::Entry;
use crate::io::sockets::listeners::ListenerId;

/// The operation to submit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Submission {
    /// Start an operation.
    Start(OpId),
    /// Cancel an operation.
    Cancel(OpId),
}

impl Uring {
    /// Starts a poll for writability, unless one is active.
    pub(super) fn poll_writable(&mut self, slot: u32) {
        let entry = self.sockets.at(slot);
        let serial = entry.serial();
        if let Some(connection) = entry.connection()
            && !connection.input.polling_writable
        {
            connection.input.polling_writable = true;
            let what = OpKind::Ready;
            self.submissions
                .push(Submission::Start(OpId { what, slot, serial }));
        }
    }

    /// Starts or cancels receiving, as the socket's state requires.
    pub(super) fn update_receive(&mut self, slot: u32) {
        let unreported_max = self.settings.read_budget;
        let entry = self.sockets.at(slot);
        let serial = entry.serial();
        let Some(connection) = entry.open() else {
            return;
        };
        let what = OpKind::Receive;
        let name = OpId { what, slot, serial };
        let wants = connection.reading && connection.input.wants_receive(unreported_max);
        let receive = &mut connection.input.receive;
        match (*receive, wants) {
            (Receive::Off, true) => {
                *receive = Receive::Queued;
                self.submissions.push(Submission::Start(name));
            }
            // When its turn comes, the submission finds that it is no longer wanted.
            (Receive::Queued | Receive::Starved, false) => *receive = Receive::Off,
            (Receive::Armed, false) => {
                *receive = Receive::Stopping;
                self.submissions.push(Submission::Cancel(name));
            }
            _ => {}
        }
    }

    /// Submits all that is kept. Sends are not among it.
    pub(super) fn flush(&mut self) {
        if self.submissions.is_empty() {
            return;
        }
        let mut submissions = std::mem::take(&mut self.submissions);
        let mut handed_over = 0;
        for sqe in &submissions {
            if !self.ring.has_room() {
                self.ring.submit();
                if !self.ring.has_room() {
                    break;
                }
            }
            match sqe {
                Submission::Start(name) => self.start(*name),
                Submission::Cancel(name) => self.ring.submit_cancel(*name),
            }
            handed_over += 1;
        }
        // The rest is submitted next time.
        submissions.drain(..handed_over);
        self.submissions = submissions;
        self.ring.submit();
        let now = self.stamps.now();
        for name in self.arming.drain(..) {
            if let Some(connection) = self.sockets.at(name.slot).open() {
                connection.input.gap.until = now;
            }
        }
    }

    fn start(&mut self, name: OpId) {
        match name.what {
            OpKind::Wake => self
                .ring
                .submit_poll_readable(name, self.signal.fd.as_raw_fd()),
            OpKind::Timer => self
                .ring
                .submit_poll_readable(name, self.timer.as_fd().as_raw_fd()),
            OpKind::Listener => {
                if let Some(fd) = self.sockets.listeners.fd(listener_id(name)) {
                    self.ring.submit_poll_readable(name, fd.as_raw_fd());
                }
            }
            OpKind::Ready | OpKind::Receive => {
                let entry = self.sockets.get_serial(name.slot, name.serial);
                let Some(connection) = entry.and_then(Entry::connection) else {
                    return;
                };
                let fd = connection.socket.as_fd().as_raw_fd();
                if name.what == OpKind::Ready {
                    return self.ring.submit_poll_writable(name, fd);
                }
                if connection.input.receive == Receive::Queued {
                    connection.input.receive = Receive::Armed;
                    connection.input.receives(true);
                    let stamped = !connection.socket.is_accepted();
                    self.ring.submit_receive(name, fd, stamped);
                    self.arming.push(name);
                    self.receiving += 1;
                }
            }
            OpKind::CancelReady | OpKind::CancelReceive | OpKind::CancelListener => {
                unreachable!("a cancel is not started like an operation")
            }
        }
    }

    /// Provides free buffers to the kernel, and restarts receives that ended for want of them.
    pub(super) fn provide(&mut self) {
        self.buffers.provide();
        for _ in 0..self.starved.len().min(self.buffers.provided()) {
            let Some(token) = self.starved.pop_front() else {
                return;
            };
            if let Some(connection) = self.sockets.get(token).and_then(Entry::connection)
                && connection.input.receive == Receive::Starved
            {
                connection.input.receive = Receive::Off;
                self.update_receive(token.slot);
            }
        }
    }
}

/// The poll of a listener.
pub(super) fn listener_op(id: ListenerId) -> OpId {
    OpId {
        what: OpKind::Listener,
        slot: id.index as u32,
        serial: id.serial,
    }
}

/// The listener of a poll.
pub(super) fn listener_id(name: OpId) -> ListenerId {
    ListenerId {
        index: name.slot as usize,
        serial: name.serial,
    }
}

pub(super) const WAKE: OpId = OpId {
    what: OpKind::Wake,
    slot: 0,
    serial: 0,
};

pub(super) const TIMER: OpId = OpId {
    what: OpKind::Timer,
    slot: 0,
    serial: 0,
};
