//! The ring: submissions and completions.
//!
//! It is set up for prompt completions: the kernel interrupts our thread to copy bytes from a socket
//! into provided buffers as they arrive. Only so does each segment keep its own stamp while we are busy.

#![expect(
    unsafe_code,
    reason = "the kernel reads and writes memory that is lent to it"
)]

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
use crate::base::sentence::debug_as_sentence;
use crate::io::sockets::socket::arrival_stamp;

/// The ring of one back end.
pub(super) struct Ring {
    ring: IoUring,
    /// Layout of a receive's buffer: room for control messages. Boxed: the kernel reads it on
    /// submission.
    header: Box<libc::msghdr>,
    /// The same layout without control messages: the room is declared for a name, of equal length, so
    /// that the payload has the same offset.
    plain_header: Box<libc::msghdr>,
    /// How the next cancellations fail.
    #[cfg(test)]
    pub(super) injected: VecDeque<io::Error>,
    /// After the ring: fields drop in this order.
    #[cfg(test)]
    _guard: CloseNote,
    /// Whether the kernel takes deadlines as moments; otherwise as durations.
    absolute: bool,
}

/// Why io_uring is unavailable.
#[derive(thiserror::Error)]
pub enum Unavailable {
    /// The kernel was built without it.
    #[error("this kernel has no io_uring")]
    Absent,
    /// The system forbids it to us.
    #[error("io_uring is forbidden here ({0})")]
    Forbidden(String),
    /// The kernel is too old.
    #[error("this kernel's io_uring lacks {0}")]
    Lacks(&'static str),
    /// Memory, descriptors or sockets are exhausted.
    #[error("io_uring cannot be set up: {0}")]
    Refused(#[from] io::Error),
}

debug_as_sentence!(Unavailable);

/// Identifies an operation in its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpId {
    pub(super) what: OpKind,
    /// The socket's slot or the listener's index; 0 for other operations.
    pub(super) slot: u32,
    /// Which user of the slot.
    pub(super) serial: u32,
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum OpKind {
    /// Completes once, when a socket is writable or has failed.
    Ready,
    /// Completes for each arrival until it ends.
    Receive,
    /// Completes each time the deadline passes.
    Timer,
    /// Completes each time the wake signal is sent.
    Wake,
    /// Completes each time connections wait at a listener.
    Listener,
    /// Cancels a `Ready`. Cancellations complete only if they fail.
    CancelReady,
    /// Cancels a `Receive`.
    CancelReceive,
    /// Cancels a `Listener`.
    CancelListener,
}

impl OpKind {
    /// What cancels an operation of this kind.
    fn cancel(self) -> OpKind {
        match self {
            OpKind::Ready => OpKind::CancelReady,
            OpKind::Receive => OpKind::CancelReceive,
            OpKind::Listener => OpKind::CancelListener,
            other => unreachable!("{other:?} lasts as long as the ring or is not cancelled"),
        }
    }
}

/// The completion of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) name: OpId,
    /// A number that depends on the operation, or an errno.
    pub(super) result: Result<u32, i32>,
    /// The provided buffer that was filled.
    pub(super) buffer: Option<u16>,
    /// Further completions follow.
    pub(super) more: bool,
}

/// Content of a filled buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// Number of bytes, from [`OVERHEAD`] on.
    pub(super) length: usize,
    pub(super) stamp: Option<Timespec>,
}

// SAFETY: the headers that prevent the derived impl contain no pointers, and the kernel only reads them.
// The ring itself may be used from any thread, one at a time.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring with room for so many completions. Checks the listed features.
    pub(super) fn new(completions: usize) -> Result<Self, Unavailable> {
        let ring = IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_cqsize(u32::try_from(completions).unwrap_or(u32::MAX >> 1))
            .build(SUBMISSIONS_MAX)
            .map_err(|error| Unavailable::from_set_up(error, disabled().as_deref()))?;
        let has = ring.params();
        let features = [
            (
                has.is_feature_nodrop(),
                "a completion queue that drops nothing",
            ),
            (has.is_feature_ext_arg(), "waits with a timeout"),
            (has.is_feature_fast_poll(), "receives that poll internally"),
            (
                has.is_feature_skip_cqe_on_success(),
                "cancellation without a completion on success",
            ),
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
        // SAFETY: as above.
        let mut plain_header: Box<libc::msghdr> = Box::new(unsafe { mem::zeroed() });
        plain_header.msg_namelen = CONTROL as _;
        Ok(Ring {
            absolute: has.is_feature_min_timeout(),
            ring,
            header,
            plain_header,
            #[cfg(test)]
            injected: VecDeque::new(),
            #[cfg(test)]
            _guard: CloseNote,
        })
    }

    /// Registers the buffers that receives fill.
    ///
    /// # Safety
    /// The memory of `provided_ring` must not move or be freed while a receive is active.
    pub(super) unsafe fn register_buffers(
        &self,
        provided_ring: &ProvidedRing,
    ) -> Result<(), Unavailable> {
        let address = provided_ring.entries() as u64;
        // SAFETY: the ring of buffers is aligned to a page and has that many entries. It is freed when no
        // receive is under way and none can begin, or never: see `Uring`'s `drop`.
        let registered = unsafe {
            self.ring.submitter().register_buf_ring_with_flags(
                address,
                provided_ring.count,
                GROUP,
                0,
            )
        };
        registered.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Unavailable::Lacks("rings of provided buffers"),
            _ => Unavailable::Refused(error),
        })
    }

    /// Whether one more operation fits before the next `submit`.
    pub(super) fn has_room(&mut self) -> bool {
        !self.ring.submission().is_full()
    }

    /// Polls once for a socket to be writable or failed.
    pub(super) fn submit_poll_writable(&mut self, name: OpId, socket: RawFd) {
        let events = libc::POLLOUT as u32;
        self.push(
            opcode::PollAdd::new(types::Fd(socket), events).build(),
            name,
        );
    }

    /// Polls a descriptor of ours for each time it becomes readable.
    pub(super) fn submit_poll_readable(&mut self, name: OpId, of_ours: RawFd) {
        let events = libc::POLLIN as u32;
        let sqe = opcode::PollAdd::new(types::Fd(of_ours), events).multi(true);
        self.push(sqe.build(), name);
    }

    /// Receives all that arrives into provided buffers, with stamps if `stamped`. Otherwise there is no
    /// room for control messages, so a process cannot pass us descriptors along a Unix socket.
    pub(super) fn submit_receive(&mut self, name: OpId, socket: RawFd, stamped: bool) {
        let header = if stamped {
            &raw const *self.header
        } else {
            &raw const *self.plain_header
        };
        let sqe = opcode::RecvMsgMulti::new(types::Fd(socket), header, GROUP).ioprio(POLL_FIRST);
        self.push(sqe.build(), name);
    }

    /// Cancels an operation, which then completes for the last time unless it already has.
    pub(super) fn submit_cancel(&mut self, target: OpId) {
        let name = OpId {
            what: target.what.cancel(),
            ..target
        };
        let sqe = opcode::AsyncCancel::new(target.to_u64()).build();
        self.push(sqe.flags(squeue::Flags::SKIP_SUCCESS), name);
    }

    fn push(&mut self, sqe: squeue::Entry, name: OpId) {
        let sqe = sqe.user_data(name.to_u64());
        // SAFETY: the one piece of memory that an operation points to is a header, which lives as long
        // as the ring or is leaked: see `leak`. The buffers of a receive are provided: see
        // `register_buffers`.
        unsafe { self.ring.submission().push(&sqe) }.expect("the caller checked `has_room`");
    }

    /// Submits. What the kernel does not take now stays in the queue.
    pub(super) fn submit(&mut self) {
        if let Err(error) = self.ring.submit() {
            assert_transient(error);
        }
    }

    /// Sleeps until there is a completion, or until the deadline by CLOCK_MONOTONIC.
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
                // SAFETY: with these flags the argument is what `SubmitArgs` stands for, and it and the
                // deadline outlive the call.
                unsafe {
                    self.ring
                        .submitter()
                        .enter(put_down, 1, flags.bits(), Some(&args))
                }
            }
        };
        if let Err(error) = slept {
            assert_transient(error);
        }
    }

    /// Whether there are completions to take.
    pub(super) fn has_completions(&mut self) -> bool {
        let overflown = self.ring.submission().cq_overflow();
        overflown || !self.ring.completion().is_empty()
    }

    /// Takes at most `most` completions.
    pub(super) fn take(&mut self, most: usize, into: &mut Vec<Completion>) {
        if self.ring.submission().cq_overflow() {
            // The kernel holds those that overflowed and posts them when it is entered.
            self.submit();
        }
        into.extend(self.ring.completion().take(most).map(|entry| Completion {
            name: OpId::from_u64(entry.user_data()),
            result: u32::try_from(entry.result()).map_err(|_| -entry.result()),
            buffer: cqueue::buffer_select(entry.flags()),
            more: cqueue::more(entry.flags()),
        }));
    }

    /// Never frees the memory that operations point to: they may outlive the ring.
    pub(super) fn leak(&mut self) {
        for header in [&mut self.header, &mut self.plain_header] {
            // SAFETY: a header of zeroes is a valid one, without name, data or control.
            let empty = Box::new(unsafe { mem::zeroed() });
            mem::forget(mem::replace(header, empty));
        }
    }

    /// Cancels all operations and waits until they have ended. Their last completions can be taken then.
    /// Fails if it is interrupted [`INTERRUPTED_MAX`] times.
    pub(super) fn cancel_all(&mut self) -> io::Result<()> {
        for _ in 0..INTERRUPTED_MAX {
            let all = types::CancelBuilder::any();
            let result = self.ring.submitter().register_sync_cancel(None, all);
            #[cfg(test)]
            let result = self.injected.pop_front().map_or(result, Err);
            match result {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                // The rest is cancelled by the next call.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
        Err(ErrorKind::Interrupted.into())
    }

    /// Parses a filled buffer.
    pub(super) fn read(&self, buffer: &[u8]) -> Message {
        let message = types::RecvMsgOut::parse(buffer, &self.header)
            .expect("a buffer is longer than its overhead");
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

impl OpId {
    /// The 64 bits of user data: three for the kind, 29 for the slot, 32 for the serial.
    fn to_u64(self) -> u64 {
        (self.what as u64) << 61 | u64::from(self.slot) << 32 | u64::from(self.serial)
    }

    fn from_u64(bits: u64) -> Self {
        let what = match bits >> 61 {
            0 => OpKind::Ready,
            1 => OpKind::Receive,
            2 => OpKind::Timer,
            3 => OpKind::Wake,
            4 => OpKind::Listener,
            5 => OpKind::CancelReady,
            6 => OpKind::CancelReceive,
            _ => OpKind::CancelListener,
        };
        OpId {
            what,
            slot: (bits >> 32) as u32 & SLOT_MAX,
            serial: bits as u32,
        }
    }
}

impl Unavailable {
    /// Maps a failed set-up; `disabled` is the value of the sysctl, where it exists.
    fn from_set_up(error: io::Error, disabled: Option<&str>) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => Unavailable::Absent,
            Some(libc::EPERM | libc::EACCES) => Unavailable::Forbidden(match disabled {
                Some(level @ ("1" | "2")) => format!("kernel.io_uring_disabled is {level}"),
                _ => "possibly by a sandbox".to_owned(),
            }),
            Some(libc::EINVAL) => Unavailable::Lacks("features of Linux 6.0"),
            _ => Unavailable::Refused(error),
        }
    }
}

/// Signals that may interrupt the cancellation of all operations. Far more than come in so short a time; then
/// the ring counts as busy, and what the kernel may still use is not freed.
pub(super) const INTERRUPTED_MAX: usize = 1000;

/// The sysctl that restricts io_uring.
fn disabled() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    Some(text.trim().to_owned())
}

/// Panics unless a retry can succeed: after a signal, a timeout or want of memory.
fn assert_transient(error: io::Error) {
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
        "io_uring_enter failed on a valid ring: {error}"
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

/// The ring of provided buffers, which the kernel takes in order.
#[derive(Debug)]
pub(super) struct ProvidedRing {
    entries: Pinned,
    count: u16,
    /// One past the last entry added.
    tail: u16,
}

impl ProvidedRing {
    /// Room for at least `count` buffers, at most [`PROVIDED_MAX`].
    pub(super) fn new(count: usize) -> Self {
        let count = count.clamp(1, PROVIDED_MAX).next_power_of_two();
        let layout = Layout::from_size_align(count * size_of::<types::BufRingEntry>(), PAGE)
            .expect("half a megabyte at most");
        ProvidedRing {
            entries: Pinned::new(layout),
            count: count as u16,
            tail: 0,
        }
    }

    /// Adds a buffer. The kernel sees it after the next `publish`.
    ///
    /// # Safety
    /// The kernel may write to the memory until a completion names it.
    pub(super) unsafe fn add(&mut self, at: NonNull<u8>, length: usize, id: u16) {
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: the entry is within the ring, which is zeroed memory at least. Field by field: the
        // first entry's last one is the tail that the kernel reads.
        unsafe {
            let entry = &mut *self.entries().add(place);
            entry.set_addr(at.as_ptr() as u64);
            entry.set_len(length as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes added buffers visible to the kernel.
    pub(super) fn publish(&self) {
        // SAFETY: the tail lies within the first entry, aligned, and is written nowhere else.
        let tail = unsafe { &*types::BufRingEntry::tail(self.entries()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    /// Never frees the memory: the kernel can still read it.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
    }

    fn entries(&self) -> *mut types::BufRingEntry {
        self.entries.start().as_ptr().cast()
    }
}

/// Notes that a ring was closed.
#[cfg(test)]
#[derive(Debug)]
struct CloseNote;

#[cfg(test)]
impl Drop for CloseNote {
    fn drop(&mut self) {
        super::pinned::DROPPED.with_borrow_mut(|dropped| dropped.ring = true);
    }
}

/// Buffers that can be provided at once.
pub(super) const PROVIDED_MAX: usize = 1 << 15;

/// What precedes the bytes in a buffer: the kernel's header and the control messages.
pub(super) const OVERHEAD: usize = 16 + CONTROL;

/// The highest slot that fits into the user data.
pub(super) const SLOT_MAX: u32 = (1 << 29) - 1;

/// Room for the control message of three stamps.
const CONTROL: usize = 64;

/// Operations per system call. More of them take more calls.
const SUBMISSIONS_MAX: u32 = 256;

/// Our only buffer group.
const GROUP: u16 = 0;

/// IORING_RECVSEND_POLL_FIRST: a new socket has nothing to read yet.
const POLL_FIRST: u16 = 1;

const SECOND: i128 = 1_000_000_000;

/// A multiple of any page size.
const PAGE: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_id_survives_its_encoding() {
        for what in [
            OpKind::Ready,
            OpKind::Receive,
            OpKind::Timer,
            OpKind::Wake,
            OpKind::Listener,
            OpKind::CancelReady,
            OpKind::CancelReceive,
            OpKind::CancelListener,
        ] {
            for (slot, serial) in [(0, 0), (7, u32::MAX), (SLOT_MAX, 1)] {
                let name = OpId { what, slot, serial };
                assert_eq!(OpId::from_u64(name.to_u64()), name);
            }
        }
    }

    #[test]
    fn the_error_names_what_is_missing_or_forbidden() {
        let check = |errno, disabled, expected: &str| {
            let error = io::Error::from_raw_os_error(errno);
            assert_eq!(
                Unavailable::from_set_up(error, disabled).to_string(),
                expected
            );
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
            "io_uring is forbidden here (possibly by a sandbox)",
        );
        check(
            libc::EINVAL,
            Some("0"),
            "this kernel's io_uring lacks features of Linux 6.0",
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
