//! The system calls of one socket: open, receive and send with stamps, close.
//!
//! Calls made for each request bypass the C library, whose cancellation points cost two locked
//! instructions each and serve nothing here.

#![expect(
    unsafe_code,
    reason = "stamps and these system calls come through libc alone"
)]

use std::io::{self, ErrorKind};
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

use crate::io::sockets::listening::{Credentials, Peer, Place};
use crate::io::{Close, NetError};

/// A non-blocking socket. The kernel stamps its arrivals, unless it was accepted.
#[derive(Debug)]
pub(in crate::io) struct Socket {
    raw: Raw,
    nagle: Nagle,
    role: Role,
}

/// Origin of a socket.
#[derive(Debug)]
enum Role {
    /// A TCP connection that we opened.
    Client,
    Datagram,
    /// A connection to a listener of ours, with its place among the accepted ones.
    Accepted {
        _place: Place,
    },
}

/// Whether the kernel may hold back a send until earlier bytes are acknowledged (Nagle's algorithm).
/// That affects a small segment behind another small one, so a connection's first and mostly only send
/// leaves at once in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nagle {
    /// Nothing was sent yet; it is on.
    FirstSend,
    /// Sent once, perhaps unacknowledged; to be turned off before the next send.
    SecondSend,
    Off,
}

/// Result of a read.
#[derive(Debug)]
pub(in crate::io) enum Read {
    /// Bytes or a datagram, with the stamp of the last of them.
    Bytes {
        length: usize,
        stamp: Option<Timespec>,
    },
    /// The peer has ended its side. An empty datagram looks the same.
    End,
    /// Off more for now.
    Empty,
}

/// Segments that a connection has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) struct Received {
    /// Segments with bytes, duplicates included.
    pub(in crate::io) segments: u32,
    /// Segments that had to wait for an earlier one, which was lost or reordered. When both are read
    /// together, their stamp is older than the arrival of the missing segment.
    pub(in crate::io) out_of_order: u32,
}

/// State of a connection attempt.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::io) enum Attempt {
    /// Not answered yet.
    Pending,
    /// Established; the handshake's round trip if the kernel measured it.
    Established(Option<Duration>),
    Failed(NetError),
}

impl Socket {
    /// A TCP socket, not yet connecting.
    pub(in crate::io) fn stream(to: SocketAddr) -> io::Result<Self> {
        let raw = Raw::new(
            Domain::for_address(to),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        stamp(raw.as_fd());
        Ok(Socket {
            raw,
            nagle: Nagle::FirstSend,
            role: Role::Client,
        })
    }

    /// A connection that a listener accepted. The kernel does not stamp its arrivals.
    pub(in crate::io) fn accepted(raw: Raw, place: Place, peer: &Peer) -> Self {
        Socket {
            raw,
            nagle: match peer {
                Peer::Tcp(_) => Nagle::FirstSend,
                Peer::Unix(_) => Nagle::Off,
            },
            role: Role::Accepted { _place: place },
        }
    }

    /// Whether it was accepted by a listener.
    pub(in crate::io) fn is_accepted(&self) -> bool {
        matches!(self.role, Role::Accepted { .. })
    }

    /// Whether the kernel can stamp what it sends.
    pub(in crate::io) fn stamps_departures(&self) -> bool {
        matches!(self.role, Role::Client)
    }

    /// A UDP socket connected to `to`: the kernel drops datagrams from elsewhere and chooses the port at
    /// random from its ephemeral range.
    pub(in crate::io) fn datagram(to: SocketAddr) -> io::Result<Self> {
        let raw = Raw::new(
            Domain::for_address(to),
            Type::DGRAM.nonblocking(),
            Some(Protocol::UDP),
        )?;
        stamp(raw.as_fd());
        raw.connect(&SockAddr::from(to))?;
        Ok(Socket::of_datagrams(raw))
    }

    /// Two sockets connected to each other.
    pub(in crate::io) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Raw::pair(Domain::UNIX, Type::DGRAM.nonblocking(), None)?;
        Ok((Socket::of_datagrams(one), Socket::of_datagrams(other)))
    }

    fn of_datagrams(raw: Raw) -> Self {
        Socket {
            raw,
            nagle: Nagle::Off,
            role: Role::Datagram,
        }
    }

    /// A connection and its peer, which sends each write at once.
    #[cfg(test)]
    pub(in crate::io) fn connected() -> (Self, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let socket = Socket::stream(to).expect("a socket");
        socket.connect(to).expect("the listener accepts");
        let (peer, _) = listener.accept().expect("we connected");
        peer.set_nodelay(true).expect("it is a TCP socket");
        (socket, peer)
    }

    /// Sends the SYN.
    pub(in crate::io) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match rustix::net::connect(&self.raw, &to) {
            Err(Errno::INPROGRESS) => Ok(()),
            Err(Errno::ADDRNOTAVAIL) => Err(without_address(unbound(to)).into()),
            other => Ok(other?),
        }
    }

    /// The attempt's state, and the handshake's round trip.
    pub(in crate::io) fn attempt(&self) -> Attempt {
        let Ok(info) = tcp_info(self.raw.as_fd()) else {
            return self.attempt_by_peer();
        };
        match info.tcpi_state {
            TCP_SYN_SENT => match self.raw.take_error() {
                Ok(Some(error)) => Attempt::Failed(net_error(&error)),
                _ => Attempt::Pending,
            },
            TCP_CLOSE => Attempt::Failed(self.error()),
            _ => {
                // With a repeated SYN it is unknown which one was answered.
                let measured = info.tcpi_total_retrans == 0 && info.tcpi_rtt > 0;
                let rtt = Duration::from_micros(u64::from(info.tcpi_rtt));
                Attempt::Established(measured.then_some(rtt))
            }
        }
    }

    /// The same where TCP_INFO is unavailable: a socket with a peer address is connected.
    fn attempt_by_peer(&self) -> Attempt {
        match (self.raw.take_error(), self.raw.peer_addr()) {
            (Ok(None), Ok(_)) => Attempt::Established(None),
            (Ok(None), Err(_)) => Attempt::Pending,
            (Ok(Some(error)) | Err(error), _) => Attempt::Failed(net_error(&error)),
        }
    }

    /// Segments with bytes that a TCP connection has received, duplicates included; `None` where the
    /// kernel does not count them.
    pub(in crate::io) fn segments(&self) -> Option<u32> {
        Some(self.received()?.segments)
    }

    /// The kernel's counts of received segments.
    pub(in crate::io) fn received(&self) -> Option<Received> {
        let mut info = [0_u32; OUT_OF_ORDER + 1];
        let mut length = size_of_val(&info) as libc::socklen_t;
        // SAFETY: `info` has room for `length` bytes, and the kernel writes no more than that.
        let result = unsafe {
            libc::getsockopt(
                self.raw.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        // Fields unknown to an older kernel stay zero.
        let counted = result == 0 && length as usize > size_of::<u32>() * DATA_SEGS_IN;
        counted.then_some(Received {
            segments: info[DATA_SEGS_IN],
            out_of_order: info[OUT_OF_ORDER],
        })
    }

    fn error(&self) -> NetError {
        match self.raw.take_error() {
            Ok(Some(error)) | Err(error) => net_error(&error),
            Ok(None) => NetError::Reset,
        }
    }

    pub(in crate::io) fn local(&self) -> io::Result<SocketAddr> {
        self.raw
            .local_addr()?
            .as_socket()
            .ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Ensures that the next send leaves at once. Called before each send, before the clock is read for
    /// it.
    pub(in crate::io) fn prepare_send(&mut self) {
        self.nagle = match self.nagle {
            Nagle::FirstSend => Nagle::SecondSend,
            Nagle::SecondSend => {
                // If this fails, the send may leave later.
                let _ = self.raw.set_tcp_nodelay(true);
                Nagle::Off
            }
            Nagle::Off => Nagle::Off,
        };
    }

    /// Sends bytes; returns how many the kernel took, `None` if none.
    pub(in crate::io) fn send(&self, bytes: &[u8]) -> Result<Option<usize>, NetError> {
        taken(|| Ok(rustix::net::send(&self.raw, bytes, SendFlags::NOSIGNAL)?))
    }

    /// The same; the kernel also stamps the departure of the last byte taken, which [`Socket::departed`]
    /// returns.
    pub(in crate::io) fn send_stamped(&self, bytes: &[u8]) -> Result<Option<usize>, NetError> {
        taken(|| send_stamped(self.raw.as_fd(), bytes))
    }

    /// The next stamp requested by [`Socket::send_stamped`]; `None` if there is none yet. While one
    /// waits, epoll reports an error on the socket.
    pub(in crate::io) fn departed(&self) -> Option<Timespec> {
        // A stamp comes without bytes.
        let received = receive_stamped(self.raw.as_fd(), &mut [], libc::MSG_ERRQUEUE);
        received.ok()?.1
    }

    /// Drops the stamps of departures that came too late to be used. While a stamp is left, each edge of the
    /// socket reports an error behind the bytes.
    pub(in crate::io) fn forget_departures(&self) {
        while self.departed().is_some() {}
    }

    /// Reads what has arrived into `buffer`. A longer datagram is truncated.
    pub(in crate::io) fn receive(&self, buffer: &mut [u8]) -> Result<Read, NetError> {
        loop {
            let received = if self.is_accepted() {
                receive_plain(self.raw.as_fd(), buffer)
            } else {
                receive_stamped(self.raw.as_fd(), buffer, 0)
            };
            match received {
                Ok((0, _)) => return Ok(Read::End),
                Ok((length, stamp)) => return Ok(Read::Bytes { length, stamp }),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(Read::Empty),
                    ErrorKind::Interrupted => {}
                    _ => return Err(net_error(&error)),
                },
            }
        }
    }

    /// Sets how the socket ends when it is dropped.
    pub(in crate::io) fn prepare_close(&self, how: Close) {
        if how == Close::Reset {
            // On failure the socket is closed like any other.
            let _ = self.raw.set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// A socket whose only purpose is to keep the kernel stamping arrivals.
///
/// The kernel begins to stamp some time after the first socket requests it; without this, the first
/// packets of the first connections would have no stamp. A refusal is logged once.
pub(in crate::io) fn keep_stamping() -> io::Result<OwnedFd> {
    let raw = Raw::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    if let Err(error) = stamp_arrivals(raw.as_fd()) {
        log::warn!(
            "the kernel does not stamp arrivals ({error}); our own stamps make latencies upper bounds"
        );
    }
    Ok(raw.into())
}

/// Checks for a route and a source address, without a TCP port.
fn unbound(to: SocketAddr) -> io::Result<()> {
    let raw = Raw::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    raw.connect(&SockAddr::from(to))
}

/// Interprets `EADDRNOTAVAIL` of a connect by the result of the same with an unbound UDP socket: no TCP
/// port is left, unless this machine has no source address for UDP either. Then retrying does not help,
/// as without a route.
fn without_address(unbound: io::Result<()>) -> Errno {
    let errno = unbound.err().and_then(|error| error.raw_os_error());
    match errno {
        Some(libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EAFNOSUPPORT) => Errno::NETUNREACH,
        _ => Errno::ADDRNOTAVAIL,
    }
}

/// Maps an I/O error of a socket.
pub(in crate::io) fn net_error(error: &io::Error) -> NetError {
    match error.raw_os_error().unwrap_or(0) {
        libc::ECONNREFUSED => NetError::Refused,
        libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => NetError::Reset,
        libc::ETIMEDOUT => NetError::TimedOut,
        libc::ENETUNREACH | libc::ENETDOWN => NetError::NoRoute,
        libc::EHOSTUNREACH | libc::EHOSTDOWN => NetError::Unreachable,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => NetError::Exhausted,
        libc::EADDRNOTAVAIL | libc::EADDRINUSE => NetError::NoPort,
        errno => NetError::Other(errno),
    }
}

/// Requests receive stamps. Without them the stamps are ours, as [`keep_stamping`] logged.
fn stamp(socket: BorrowedFd<'_>) {
    let _ = stamp_arrivals(socket);
}

fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Departure stamps come without the bytes that departed.
    let wanted = libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    // SAFETY: the pointer and length are those of a live `c_uint`, which is what the option takes.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const wanted).cast(),
            size_of_val(&wanted) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all fields are integers, for which the zeroes that an older kernel leaves are valid.
    Ok(unsafe { info.assume_init() })
}

/// The credentials of the process that connected to a Unix socket of ours.
pub(in crate::io) fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut found = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of_val(&found) as libc::socklen_t;
    // SAFETY: `found` has room for `length` bytes, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials {
        // A process of another pid namespace has the id 0.
        pid: u32::try_from(found.pid).ok().filter(|pid| *pid > 0),
        uid: found.uid,
        gid: found.gid,
    })
}

/// `recv` without room for control messages, so that descriptors which a process sends along a Unix
/// socket are not installed in ours.
fn receive_plain(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<Timespec>)> {
    let (received, _) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok((received, None))
}

/// `recvmsg` with the stamp of the bytes, if they have one.
fn receive_stamped(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Option<Timespec>)> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut slice = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a header of zeroes is a valid one, without name, data or control.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the header points to one slice, borrowed mutably for as long as the call lasts, and
    // to `control`, with the alignment and the length that the header states.
    let received = unsafe {
        libc::syscall(
            libc::SYS_recvmsg,
            socket.as_raw_fd(),
            &raw mut header,
            flags,
        )
    };
    let Ok(received) = usize::try_from(received) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: `recvmsg` has written `msg_controllen` bytes of `control`.
    let control = unsafe {
        std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), header.msg_controllen as _)
    };
    Ok((received, arrival_stamp(control)))
}

/// Repeats an interrupted send.
fn taken(send: impl Fn() -> io::Result<usize>) -> Result<Option<usize>, NetError> {
    loop {
        match send() {
            Ok(sent) => return Ok(Some(sent)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(None),
                ErrorKind::Interrupted => {}
                _ => return Err(net_error(&error)),
            },
        }
    }
}

/// `sendmsg` that requests a stamp of the moment at which the packet with the last byte is handed to its
/// device, mostly before the call returns.
fn send_stamped(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mut control = Control([0; 96]);
    let wanted = libc::SOF_TIMESTAMPING_TX_SOFTWARE;
    let mut slice = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a header of zeroes is a valid one, without name, data or control.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    // SAFETY: they only compute.
    let (space, length) = unsafe {
        let bytes = size_of_val(&wanted) as libc::c_uint;
        (libc::CMSG_SPACE(bytes), libc::CMSG_LEN(bytes))
    };
    header.msg_controllen = space as _;
    // SAFETY: `control` has room for a message of `space` bytes and is aligned for its header.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SO_TIMESTAMPING;
        (*message).cmsg_len = length as _;
        libc::CMSG_DATA(message)
            .cast::<libc::c_uint>()
            .write_unaligned(wanted);
    }
    // SAFETY: the header points to one slice, which is only read, and to `control`.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The software stamp, if it is the first control message.
pub(in crate::io) fn arrival_stamp(control: &[u8]) -> Option<Timespec> {
    // SAFETY: it only computes.
    let before = unsafe { libc::CMSG_LEN(0) } as usize;
    if control.len() < before + size_of::<libc::timespec>() {
        return None;
    }
    // SAFETY: there are as many bytes, and any bits make a header and a time.
    let (message, stamp) = unsafe {
        let at = control.as_ptr();
        (
            at.cast::<libc::cmsghdr>().read_unaligned(),
            // The first of three stamps is the software's.
            at.add(before).cast::<libc::timespec>().read_unaligned(),
        )
    };
    let ours = message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SO_TIMESTAMPING;
    // A kernel without a stamp for these bytes writes zeroes.
    (ours && stamp.tv_sec != 0).then_some(Timespec {
        tv_sec: stamp.tv_sec,
        tv_nsec: stamp.tv_nsec,
    })
}

/// Room for one control message of three stamps, aligned like its header.
#[repr(C, align(8))]
struct Control([u8; 96]);

/// Index of `tcpi_data_segs_in` in the kernel's `tcp_info`, in words. Since Linux 4.6.
const DATA_SEGS_IN: usize = 38;
/// Index of `tcpi_rcv_ooopack`. Since Linux 5.4.
const OUT_OF_ORDER: usize = 56;

/// TCP states in `tcp_info`.
const TCP_SYN_SENT: u8 = 2;
const TCP_CLOSE: u8 = 7;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_connect_without_a_source_address_fails_for_want_of_a_route() {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        assert_eq!(without_address(Ok(())), Errno::ADDRNOTAVAIL);
        let check = |errno, expected| assert_eq!(without_address(failed(errno)), expected);
        check(libc::EADDRNOTAVAIL, Errno::NETUNREACH);
        check(libc::ENETUNREACH, Errno::NETUNREACH);
        // UDP ports or descriptors may be exhausted instead.
        check(libc::EAGAIN, Errno::ADDRNOTAVAIL);
        check(libc::EMFILE, Errno::ADDRNOTAVAIL);
        let here = SocketAddr::from(([127, 0, 0, 1], 9));
        unbound(here).expect("loopback is always routed");
    }

    #[test]
    fn nagle_is_off_from_the_second_send_on() {
        let (mut socket, mut peer) = Socket::connected();
        let nodelay = [(); 3].map(|()| {
            socket.prepare_send();
            let nodelay = socket.raw.tcp_nodelay().expect("it is a TCP socket");
            assert_eq!(socket.send(b"?"), Ok(Some(1)));
            // Its reply need not acknowledge all that we sent.
            peer.read_exact(&mut [0]).expect("it was sent");
            peer.write_all(b"!").expect("we are there");
            nodelay
        });
        // A first send waits for nothing, and most connections have no other.
        assert_eq!(nodelay, [false, true, true]);
    }
}
