//! The ring: what the kernel is asked through it, and what it answers.
//!
//! It is made so that an answer is there as soon as it can be: bytes are taken from a socket the
//! moment they come, by an interruption of whatever our thread is doing, into buffers lent in
//! advance. Only so each segment keeps the stamp of its own arrival while we are busy.

use std::alloc::Layout;
#[cfg(test)]
use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{EnterFlags, IoUring, cqueue, opcode, register, squeue, types};
use rustix::time::Timespec;

use super::pinned::Pinned;
use crate::io::socket::arrival_stamp;

/// A ring of our own.
pub(super) struct Ring {
    ring: IoUring,
    /// What a receive brings along beside the bytes. Boxed: the kernel looks at it when it is asked.
    header: Box<libc::msghdr>,
    /// How the next cancellations fail.
    #[cfg(test)]
    pub(super) injected: VecDeque<io::Error>,
    /// Whether the kernel takes a deadline as a moment; else as a span.
    absolute: bool,
}

/// Why there is no ring to be had.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel has been built without it.
    #[error("this kernel has no io_uring")]
    Absent,
    /// It is there, but not for us.
    #[error("io_uring is forbidden here ({0})")]
    Forbidden(String),
    /// It is older than what we need.
    #[error("this kernel's io_uring lacks {0}")]
    Lacks(&'static str),
    /// There is no memory, descriptor or socket to be had.
    #[error("io_uring cannot be set up: {0}")]
    Refused(#[from] io::Error),
}

/// Names an operation, so that its answers can be told from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) what: What,
    /// The slot it is about; 0 for what is about none.
    pub(super) slot: u32,
    /// Which user of the slot.
    pub(super) serial: u32,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    /// Answered once, when a socket can be written to or has failed.
    Ready,
    /// Answered for all that arrives, until it ends.
    Receive,
    /// Answered each time the deadline passes.
    Timer,
    /// Answered each time somebody rings.
    Bell,
    /// Answered only if there was nothing to end.
    Cancel,
}

/// What the kernel has to say about an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) name: Name,
    /// A number that depends on the operation, or an errno.
    pub(super) result: Result<u32, i32>,
    /// The lent buffer that comes back with it.
    pub(super) buffer: Option<u16>,
    /// There will be further answers.
    pub(super) more: bool,
}

/// What stands in a buffer that came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// How many bytes there are, from [`OVERHEAD`] on.
    pub(super) length: usize,
    pub(super) stamp: Option<Timespec>,
}

// SAFETY: the header that makes it the thread's own points to nothing, and the kernel only reads it.
// The ring itself may be used from any thread, one at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring with room for so many answers. Checks what can be checked without trying it out.
    pub(super) fn new(answers: usize) -> Result<Self, Unavailable> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_cqsize(u32::try_from(answers).unwrap_or(u32::MAX >> 1))
            .build(QUESTIONS)
            .map_err(|error| Unavailable::from_set_up(error, disabled().as_deref()))?;
        let has = ring.params();
        let features = [
            (has.is_feature_nodrop(), "a queue that drops no answer"),
            (has.is_feature_ext_arg(), "a deadline for waiting"),
            (
                has.is_feature_fast_poll(),
                "receives that wait by themselves",
            ),
            (has.is_feature_skip_cqe_on_success(), "silent cancels"),
        ];
        let mut probe = register::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let operations = [
            (opcode::PollAdd::CODE, "polling"),
            (opcode::RecvMsgMulti::CODE, "receiving"),
            (opcode::AsyncCancel::CODE, "cancelling"),
        ]
        .map(|(code, name)| (probe.is_supported(code), name));
        let mut needed = features.into_iter().chain(operations);
        if let Some((_, lacking)) = needed.find(|(there, _)| !there) {
            return Err(Unavailable::Lacks(lacking));
        }
        // SAFETY: a header of zeroes is a valid one, without name, data or control.
        let mut header: Box<libc::msghdr> = Box::new(unsafe { mem::zeroed() });
        header.msg_controllen = CONTROL as _;
        Ok(Ring {
            absolute: has.is_feature_min_timeout(),
            ring,
            header,
            #[cfg(test)]
            injected: VecDeque::new(),
        })
    }

    /// Where the kernel finds the buffers that receives fill.
    ///
    /// # Safety
    /// What `lending` holds must stay where it is as long as a receive is under way.
    pub(super) unsafe fn borrow_from(&self, lending: &Lending) -> Result<(), Unavailable> {
        let address = lending.entries() as u64;
        // SAFETY: the ring of buffers is aligned to a page and as long as it says. It is freed when no
        // receive is under way and none can begin, or never: see `Uring`'s `drop`.
        let registered = unsafe {
            self.ring
                .submitter()
                .register_buf_ring_with_flags(address, lending.count, GROUP, 0)
        };
        registered.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Unavailable::Lacks("rings of provided buffers"),
            _ => Unavailable::Refused(error),
        })
    }

    /// Whether one more operation can be put down before the next `submit`.
    pub(super) fn has_room(&mut self) -> bool {
        !self.ring.submission().is_full()
    }

    /// Asks to be told once when a socket can be written to, or has failed.
    pub(super) fn ask_ready(&mut self, name: Name, socket: RawFd) {
        let events = libc::POLLOUT as u32;
        self.push(
            opcode::PollAdd::new(types::Fd(socket), events).build(),
            name,
        );
    }

    /// Asks to be told each time a descriptor of ours becomes readable.
    pub(super) fn ask_watch(&mut self, name: Name, of_ours: RawFd) {
        let events = libc::POLLIN as u32;
        let ask = opcode::PollAdd::new(types::Fd(of_ours), events).multi(true);
        self.push(ask.build(), name);
    }

    /// Asks for all that arrives, into lent buffers.
    pub(super) fn ask_receive(&mut self, name: Name, socket: RawFd) {
        let ask = opcode::RecvMsgMulti::new(types::Fd(socket), &raw const *self.header, GROUP)
            .ioprio(POLL_FIRST);
        self.push(ask.build(), name);
    }

    /// Asks for the end of an operation: it answers for the last time, unless it has already.
    pub(super) fn ask_cancel(&mut self, target: Name) {
        let name = Name {
            what: What::Cancel,
            ..target
        };
        let ask = opcode::AsyncCancel::new(target.to_u64()).build();
        self.push(ask.flags(squeue::Flags::SKIP_SUCCESS), name);
    }

    fn push(&mut self, ask: squeue::Entry, name: Name) {
        let ask = ask.user_data(name.to_u64());
        // SAFETY: the one piece of memory that an operation points to is the header, which lives as long
        // as the ring, or for ever: see `leak`. The buffers of a receive are lent: see `borrow_from`.
        unsafe { self.ring.submission().push(&ask) }
            .expect("the caller asked whether there is room");
    }

    /// Hands over what was put down. What the kernel does not take now stays put.
    pub(super) fn submit(&mut self) {
        if let Err(error) = self.ring.submit() {
            refused_for_now(error);
        }
    }

    /// Sleeps until there is an answer, or until the deadline by CLOCK_MONOTONIC.
    pub(super) fn sleep(&mut self, until: Option<Timespec>, now: Timespec) {
        let slept = match until {
            None => self.ring.submit_and_wait(1),
            Some(until) => {
                let until = if self.absolute {
                    until
                } else {
                    span(now, until)
                };
                let until = types::Timespec::new()
                    .sec(until.tv_sec as u64)
                    .nsec(until.tv_nsec as u32);
                let args = types::SubmitArgs::new().timespec(&until);
                let mut flags = EnterFlags::EXT_ARG | EnterFlags::GETEVENTS;
                flags.set(EnterFlags::ABS_TIMER, self.absolute);
                let put_down = self.ring.submission().len() as u32;
                // SAFETY: with these flags the argument is what `SubmitArgs` stands for, and it and
                // the deadline outlive the call.
                unsafe {
                    self.ring
                        .submitter()
                        .enter(put_down, 1, flags.bits(), Some(&args))
                }
            }
        };
        if let Err(error) = slept {
            refused_for_now(error);
        }
    }

    /// Whether there are answers that were not taken yet.
    pub(super) fn has_answers(&mut self) -> bool {
        let overflown = self.ring.submission().cq_overflow();
        overflown || !self.ring.completion().is_empty()
    }

    /// Takes the next answers, at most so many.
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<Answer>) {
        if self.ring.submission().cq_overflow() {
            // The kernel kept those that had no room, and brings them when it is entered.
            self.submit();
        }
        into.extend(self.ring.completion().take(most).map(|entry| Answer {
            name: Name::from_u64(entry.user_data()),
            result: u32::try_from(entry.result()).map_err(|_| -entry.result()),
            buffer: cqueue::buffer_select(entry.flags()),
            more: cqueue::more(entry.flags()),
        }));
    }

    /// Never frees the memory that operations point to: they may still be under way when the ring is gone.
    pub(super) fn leak(&mut self) {
        // SAFETY: a header of zeroes is a valid one, without name, data or control.
        let empty = Box::new(unsafe { mem::zeroed() });
        mem::forget(mem::replace(&mut self.header, empty));
    }

    /// Ends all that is under way and waits until it has ended. The last answers can be taken then.
    pub(super) fn cancel_all(&mut self) -> io::Result<()> {
        loop {
            let all = types::CancelBuilder::any();
            let result = self.ring.submitter().register_sync_cancel(None, all);
            #[cfg(test)]
            let result = self.injected.pop_front().map_or(result, Err);
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                // What was not cancelled yet is found again.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// What a receive has written into a buffer of ours.
    pub(super) fn read(&self, buffer: &[u8]) -> Message {
        let message = types::RecvMsgOut::parse(buffer, &self.header)
            .expect("a buffer holds more than what stands before the bytes");
        Message {
            length: message.payload_data().len(),
            stamp: arrival_stamp(message.control_data()),
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's own and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Name {
    /// The 64 bits that the kernel hands back: three for the kind, 29 for the slot, the rest.
    fn to_u64(self) -> u64 {
        (self.what as u64) << 61 | u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    fn from_u64(bits: u64) -> Self {
        let what = match bits >> 61 {
            0 => What::Ready,
            1 => What::Receive,
            2 => What::Timer,
            3 => What::Bell,
            _ => What::Cancel,
        };
        Name {
            what,
            slot: (bits >> 32) as u32 & SLOT_MAX,
            serial: bits as u32,
        }
    }
}

impl Unavailable {
    /// What a refused set-up means; `disabled` is the system's setting, where there is one.
    fn from_set_up(error: io::Error, disabled: Option<&str>) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Unavailable::Absent,
            Some(libc::EPERM | libc::EACCES) => Unavailable::Forbidden(match disabled {
                Some(level @ ("1" | "2")) => format!("kernel.io_uring_disabled is {level}"),
                _ => "a sandbox, perhaps".to_owned(),
            }),
            Some(libc::EINVAL) => Unavailable::Lacks("what Linux 6.0 has"),
            _ => Unavailable::Refused(error),
        }
    }
}

/// The system's word on who may have a ring.
fn disabled() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    Some(text.trim().to_owned())
}

/// An interruption, the end of a sleep, or want of memory: nothing that the next try may not mend.
fn refused_for_now(error: io::Error) {
    let passing = [
        libc::EINTR,
        libc::ETIME,
        libc::EAGAIN,
        libc::EBUSY,
        libc::ENOMEM,
    ];
    assert!(
        error
            .raw_os_error()
            .is_some_and(|errno| passing.contains(&errno)),
        "io_uring_enter takes a ring of our own: {error}"
    );
}

fn span(from: Timespec, to: Timespec) -> Timespec {
    let nanos = |at: Timespec| i128::from(at.tv_sec) * SECOND + i128::from(at.tv_nsec);
    let apart = (nanos(to) - nanos(from)).max(0);
    Timespec {
        tv_sec: (apart / SECOND) as _,
        tv_nsec: (apart % SECOND) as _,
    }
}

/// Where buffers are laid out for the kernel to take, first come first served.
#[derive(Debug)]
pub(super) struct Lending {
    entries: Pinned,
    count: u16,
    /// One past the last that was laid out.
    tail: u16,
}

impl Lending {
    /// Room for at least so many, at most [`LENT_MAX`].
    pub(super) fn new(count: usize) -> Self {
        let count = count.clamp(1, LENT_MAX).next_power_of_two();
        let layout = Layout::from_size_align(count * size_of::<types::BufRingEntry>(), PAGE)
            .expect("half a megabyte at most");
        Lending {
            entries: Pinned::new(layout),
            count: count as u16,
            tail: 0,
        }
    }

    /// Lays a buffer out. The kernel sees it after the next `publish`.
    ///
    /// # Safety
    /// The memory is the kernel's to write to until an answer names it.
    pub(super) unsafe fn lay_out(&mut self, at: NonNull<u8>, length: usize, id: u16) {
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: the place is within the ring, which is zeroed memory at least. Field by field:
        // the first entry's last one is the tail that the kernel reads.
        unsafe {
            let entry = &mut *self.entries().add(place);
            entry.set_addr(at.as_ptr() as u64);
            entry.set_len(length as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was laid out.
    pub(super) fn publish(&self) {
        // SAFETY: the tail lies within the first entry, aligned, and is written nowhere else.
        let tail = unsafe { &*types::BufRingEntry::tail(self.entries()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Never frees the memory: the kernel may still read it.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
    }

    fn entries(&self) -> *mut types::BufRingEntry {
        self.entries.start().as_ptr().cast()
    }
}

/// How many buffers the kernel can be lent at once.
pub(super) const LENT_MAX: usize = 1 << 15;

/// What stands in a buffer before the bytes: the kernel's own header, and the control message.
pub(super) const OVERHEAD: usize = 16 + CONTROL;

/// The highest slot that a name has room for.
pub(super) const SLOT_MAX: u32 = (1 << 29) - 1;

/// Room for the control message of three stamps.
const CONTROL: usize = 64;

/// Operations that one system call hands over. More of them take more calls.
const QUESTIONS: u32 = 256;

/// Our one group of buffers.
const GROUP: u16 = 0;

/// IORING_RECVSEND_POLL_FIRST: a socket that has just been opened has nothing to read.
const POLL_FIRST: u16 = 1;

const SECOND: i128 = 1_000_000_000;

/// Any page size there is divides it.
const PAGE: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_as_it_went() {
        for what in [
            What::Ready,
            What::Receive,
            What::Timer,
            What::Bell,
            What::Cancel,
        ] {
            for (slot, serial) in [(0, 0), (7, u32::MAX), (SLOT_MAX, 1)] {
                let name = Name { what, slot, serial };
                assert_eq!(Name::from_u64(name.to_u64()), name);
            }
        }
    }

    #[test]
    fn a_refusal_says_what_is_missing_or_who_forbids_it() {
        let check = |errno, disabled, said: &str| {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(Unavailable::from_set_up(error, disabled).to_string(), said);
        };
        check(libc::ENOSYS, None, "this kernel has no io_uring");
        check(
            libc::EPERM,
            Some("2"),
            "io_uring is forbidden here (kernel.io_uring_disabled is 2)",
        );
        check(
            libc::EPERM,
            Some("0"),
            "io_uring is forbidden here (a sandbox, perhaps)",
        );
        check(
            libc::EINVAL,
            Some("0"),
            "this kernel's io_uring lacks what Linux 6.0 has",
        );
        let text = Unavailable::from_set_up(io::Error::from_raw_os_error(libc::EMFILE), None);
        assert!(text.to_string().contains("open files"), "{text}");
    }

    #[test]
    fn a_span_is_never_negative() {
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        assert_eq!(span(at(1, 999_999_999), at(3, 1)), at(1, 2));
        assert_eq!(span(at(3, 1), at(1, 999_999_999)), at(0, 0));
    }
}
