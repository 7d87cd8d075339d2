//! What the kernel is to be asked: kept until the next opportunity, and handed over together.

use std::os::fd::{AsFd, AsRawFd};

use super::Uring;
use super::connection::{Entry, Receive, State, current};
use super::ring::{Name, What};

/// What the kernel is to be asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// For the start of an operation.
    Start(Name),
    /// For the end of one.
    Cancel(Name),
}

impl Uring {
    /// Asks to be told when a socket can be written to, unless that is asked already.
    pub(super) fn await_ready(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let name = name(What::Ready, slot, entry);
        if let Some(connection) = entry.connection()
            && !connection.awaiting
        {
            connection.awaiting = true;
            self.asks.push(Ask::Start(name));
        }
    }

    /// Starts or ends receiving, as the socket's state demands.
    pub(super) fn consider_receiving(&mut self, slot: u32) {
        let untold_max = self.settings.read_budget;
        let entry = &mut self.entries[slot as usize];
        let name = name(What::Receive, slot, entry);
        let State::Open(connection) = &mut entry.state else {
            return;
        };
        match (connection.receive, connection.wants_receive(untold_max)) {
            (Receive::Off, true) => {
                connection.receive = Receive::Queued;
                self.asks.push(Ask::Start(name));
            }
            // The ask will find that it is no longer wanted.
            (Receive::Queued | Receive::Starved, false) => connection.receive = Receive::Off,
            (Receive::Armed, false) => {
                connection.receive = Receive::Stopping;
                self.asks.push(Ask::Cancel(name));
            }
            _ => {}
        }
    }

    /// Hands over what the kernel is to be asked. No send is among it.
    pub(super) fn flush(&mut self) {
        if self.asks.is_empty() {
            return;
        }
        let mut asks = std::mem::take(&mut self.asks);
        let mut handed_over = 0;
        for ask in &asks {
            if !self.ring.has_room() {
                self.ring.submit();
                if !self.ring.has_room() {
                    break;
                }
            }
            match ask {
                Ask::Start(name) => self.start(*name),
                Ask::Cancel(name) => self.ring.ask_cancel(*name),
            }
            handed_over += 1;
        }
        // What the kernel did not take now it is asked for again.
        asks.drain(..handed_over);
        self.asks = asks;
        self.ring.submit();
        let now = self.stamps.now();
        for name in self.arming.drain(..) {
            if let State::Open(connection) = &mut self.entries[name.slot as usize].state {
                connection.blind.until = now;
            }
        }
    }

    fn start(&mut self, name: Name) {
        match name.what {
            What::Bell => self.ring.ask_watch(name, self.bell.fd.as_raw_fd()),
            What::Timer => self.ring.ask_watch(name, self.timer.as_fd().as_raw_fd()),
            What::Ready | What::Receive => {
                let entry = &mut self.entries[name.slot as usize];
                if entry.serial != name.serial {
                    return;
                }
                let Some(connection) = entry.connection() else {
                    return;
                };
                let fd = connection.socket.as_fd().as_raw_fd();
                if name.what == What::Ready {
                    return self.ring.ask_ready(name, fd);
                }
                if connection.receive == Receive::Queued {
                    connection.receive = Receive::Armed;
                    connection.receives(true);
                    self.ring.ask_receive(name, fd);
                    self.arming.push(name);
                    self.receiving += 1;
                }
            }
            What::Cancel => unreachable!("a cancel is no operation to be started"),
        }
    }

    /// Lends the kernel what buffers there are, and lets those receive again that had none.
    pub(super) fn lend(&mut self) {
        self.buffers.lend();
        for _ in 0..self.starved.len().min(self.buffers.lent()) {
            let Some(token) = self.starved.pop_front() else {
                return;
            };
            if let Some(entry) = current(&mut self.entries, token)
                && let Some(connection) = entry.connection()
                && connection.receive == Receive::Starved
            {
                connection.receive = Receive::Off;
                self.consider_receiving(token.slot);
            }
        }
    }
}

/// What an operation for the slot's present user is called.
pub(super) fn name(what: What, slot: u32, entry: &Entry) -> Name {
    Name {
        what,
        slot,
        serial: entry.serial,
    }
}

pub(super) const BELL: Name = Name {
    what: What::Bell,
    slot: 0,
    serial: 0,
};

pub(super) const TIMER: Name = Name {
    what: What::Timer,
    slot: 0,
    serial: 0,
};
