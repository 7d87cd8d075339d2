//! Whether the kernel can do what no list of its features promises, and whether it is done.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::ring::{Answer, Name, SLOT_MAX, What};
use super::{ANSWERS_A_TURN, Unavailable, Uring};
use crate::io::socket::Socket;

impl Uring {
    /// Receives twice with one operation, and ends it.
    pub(super) fn try_out(&mut self) -> Result<(), Unavailable> {
        let lacking = || Unavailable::Lacks("receives that go on after the first");
        let (ours, theirs) = Socket::pair()?;
        self.buffers.lend();
        self.ring.ask_receive(TRIAL, ours.as_fd().as_raw_fd());
        self.ring.submit();
        self.receiving += 1;
        for _ in 0..2 {
            theirs
                .send(b"?")
                .map_err(|error| io::Error::other(format!("{error:?}")))?;
            let answer = self.trial_answer().ok_or_else(lacking)?;
            let id = answer.buffer.ok_or_else(lacking)?;
            self.buffers.take_back(id);
            let length = self.ring.read(self.buffers.whole(id)).length;
            self.buffers.put_back(id);
            if length != 1 || !answer.more {
                return Err(lacking());
            }
        }
        self.ring.ask_cancel(TRIAL);
        self.ring.submit();
        match self.trial_answer() {
            Some(Answer { more: false, .. }) => Ok(()),
            _ => Err(Unavailable::Lacks("an end to what was begun")),
        }
    }

    fn trial_answer(&mut self) -> Option<Answer> {
        let patient_until = self.stamps.now() + TRIAL_PATIENCE;
        while !self.ring.has_answers() && self.stamps.now() < patient_until {
            self.sleep(Some(patient_until));
        }
        self.answers.clear();
        self.ring.take(1, &mut self.answers);
        let answer = self.answers.pop()?;
        self.receiving -= usize::from(!answer.more);
        Some(answer)
    }

    /// Ends all that is under way. Whether the kernel is done with our buffers.
    pub(super) fn quiesce(&mut self) -> bool {
        if self.ring.cancel_all().is_err() {
            return false;
        }
        // The kernel gives the last answers in the name of the thread that asked, which may be another.
        let patient_until = self.stamps.now() + QUIESCE_PATIENCE;
        while self.receiving > 0 {
            self.answers.clear();
            self.ring.take(ANSWERS_A_TURN, &mut self.answers);
            if self.answers.is_empty() {
                let now = self.stamps.now();
                if now >= patient_until {
                    return false;
                }
                self.ring.sleep(
                    Some(self.stamps.timer_time(patient_until)),
                    self.stamps.timer_time(now),
                );
            }
            let ended = |answer: &&Answer| answer.name.what == What::Receive && !answer.more;
            self.receiving -= self.answers.iter().filter(ended).count();
        }
        true
    }
}

/// No socket's: serials begin with 1.
const TRIAL: Name = Name {
    what: What::Receive,
    slot: SLOT_MAX,
    serial: 0,
};

/// What was cancelled has ended long before, unless the thread that asked for it does not run.
const QUIESCE_PATIENCE: Duration = Duration::from_millis(100);

/// A datagram to ourselves arrives at once, whatever the machine is busy with.
const TRIAL_PATIENCE: Duration = Duration::from_secs(1);
