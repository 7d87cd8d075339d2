//! One socket's system calls: opened with stamps on, read with stamps, sent, ended.
//!
//! Those that each request makes go straight to the kernel: around each of its own the C library notes
//! that the thread may be cancelled meanwhile, in two locked instructions, and nobody here ever is.

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
use rustix::net::SendFlags;
use rustix::time::Timespec;
use socket2::{Domain, Protocol, SockAddr, Socket as Raw, Type};

use super::{Close, NetError};

/// A non-blocking socket whose arrivals the kernel stamps.
#[derive(Debug)]
pub(super) struct Socket {
    raw: Raw,
    holds_back: HoldsBack,
}

/// Whether the kernel may hold back what is sent until what was sent before is acknowledged (Nagle's
/// algorithm). It does so with a small segment behind another small one; so the first send of a
/// connection, mostly the only one, leaves at once in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldsBack {
    /// Nothing was sent yet.
    NotTheFirst,
    /// Something was sent, all of which may be unacknowledged whatever was answered since.
    TheNext,
    Nothing,
}

/// What one read found.
#[derive(Debug)]
pub(super) enum Read {
    /// Bytes, or a datagram, and the stamp of the last of them.
    Bytes {
        length: usize,
        stamp: Option<Timespec>,
    },
    /// The peer has ended its side. An empty datagram looks the same.
    End,
    /// Nothing more for now.
    Empty,
}

/// Segments that a connection has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// Those with bytes, seconds of the same counted in.
    pub(super) segments: u32,
    /// Those that had to wait for one before them, which was lost or overtaken. Read together with
    /// that one, they have the stamp, and it is older than the arrival of what was missing.
    pub(super) out_of_order: u32,
}

/// How a connection attempt stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// No answer yet.
    Pending,
    /// Established; the handshake's round trip if the kernel measured it.
    Established(Option<Duration>),
    Failed(NetError),
}

impl Socket {
    /// A TCP socket, ready to connect.
    pub(super) fn stream(to: SocketAddr) -> io::Result<Self> {
        let raw = Raw::new(
            Domain::for_address(to),
            Type::STREAM.nonblocking(),
            Some(Protocol::TCP),
        )?;
        stamp(raw.as_fd());
        Ok(Socket {
            raw,
            holds_back: HoldsBack::NotTheFirst,
        })
    }

    /// A UDP socket connected to `to`: the kernel drops what comes from elsewhere, and draws the
    /// port at random from its ephemeral range.
    pub(super) fn datagram(to: SocketAddr) -> io::Result<Self> {
        let raw = Raw::new(
            Domain::for_address(to),
            Type::DGRAM.nonblocking(),
            Some(Protocol::UDP),
        )?;
        stamp(raw.as_fd());
        raw.connect(&SockAddr::from(to))?;
        Ok(Socket::of_datagrams(raw))
    }

    /// Two that talk to each other and to nobody else.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Raw::pair(Domain::UNIX, Type::DGRAM.nonblocking(), None)?;
        Ok((Socket::of_datagrams(one), Socket::of_datagrams(other)))
    }

    fn of_datagrams(raw: Raw) -> Self {
        let holds_back = HoldsBack::Nothing;
        Socket { raw, holds_back }
    }

    /// A connection and its other end, which sends each write at once.
    #[cfg(test)]
    pub(super) fn connected() -> (Self, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        let socket = Socket::stream(to).expect("a socket");
        socket.connect(to).expect("the listener accepts");
        let (peer, _) = listener.accept().expect("we connected");
        peer.set_nodelay(true).expect("it is a TCP socket");
        (socket, peer)
    }

    /// Sends the SYN.
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match rustix::net::connect(&self.raw, &to) {
            Err(Errno::INPROGRESS) => Ok(()),
            Err(Errno::ADDRNOTAVAIL) => Err(without_address(unbound(to)).into()),
            other => Ok(other?),
        }
    }

    /// How the attempt stands, and how long the handshake took.
    pub(super) fn attempt(&self) -> Attempt {
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
                // A SYN that was sent again may have been answered either time.
                let measured = info.tcpi_total_retrans == 0 && info.tcpi_rtt > 0;
                let rtt = Duration::from_micros(u64::from(info.tcpi_rtt));
                Attempt::Established(measured.then_some(rtt))
            }
        }
    }

    /// The same where the kernel tells nothing of TCP: who has a peer is connected.
    fn attempt_by_peer(&self) -> Attempt {
        match (self.raw.take_error(), self.raw.peer_addr()) {
            (Ok(None), Ok(_)) => Attempt::Established(None),
            (Ok(None), Err(_)) => Attempt::Pending,
            (Ok(Some(error)) | Err(error), _) => Attempt::Failed(net_error(&error)),
        }
    }

    /// How many segments with bytes a TCP connection has received, seconds of the same counted in;
    /// `None` where the kernel does not count them.
    pub(super) fn segments(&self) -> Option<u32> {
        Some(self.received()?.segments)
    }

    /// What a TCP connection has received so far, by the kernel's count.
    pub(super) fn received(&self) -> Option<Received> {
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
        // What an older kernel does not know stays zero.
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

    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.raw
            .local_addr()?
            .as_socket()
            .ok_or_else(|| ErrorKind::AddrNotAvailable.into())
    }

    /// Sees to it that the next send leaves at once. To be called before each, and before the clock is
    /// read for it.
    pub(super) fn prepare_send(&mut self) {
        self.holds_back = match self.holds_back {
            HoldsBack::NotTheFirst => HoldsBack::TheNext,
            HoldsBack::TheNext => {
                // One that cannot be told is late at the worst.
                let _ = self.raw.set_tcp_nodelay(true);
                HoldsBack::Nothing
            }
            HoldsBack::Nothing => HoldsBack::Nothing,
        };
    }

    /// Hands bytes to the kernel; how many it took, `None` if it takes none now.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<Option<usize>, NetError> {
        taken(|| Ok(rustix::net::send(&self.raw, bytes, SendFlags::NOSIGNAL)?))
    }

    /// The same, and the kernel stamps the moment at which the last of what it takes leaves.
    /// [`Socket::departed`] tells it.
    pub(super) fn send_stamped(&self, bytes: &[u8]) -> Result<Option<usize>, NetError> {
        taken(|| send_stamped(self.raw.as_fd(), bytes))
    }

    /// The next of the moments that [`Socket::send_stamped`] asked for; `None` if there is none yet.
    /// A socket for which one waits is polled as one with an error.
    pub(super) fn departed(&self) -> Option<Timespec> {
        // Such a message has no bytes of its own.
        let received = receive_stamped(self.raw.as_fd(), &mut [], libc::MSG_ERRQUEUE);
        received.ok()?.1
    }

    /// Reads into `buffer` what has arrived, at most what it holds. A longer datagram is cut.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<Read, NetError> {
        loop {
            match receive_stamped(self.raw.as_fd(), buffer, 0) {
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

    /// Says how it is to end when it is dropped.
    pub(super) fn prepare_close(&self, how: Close) {
        if how == Close::Reset {
            // A socket that cannot be told to reset is closed like any other.
            let _ = self.raw.set_linger(Some(Duration::ZERO));
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

/// A socket that does nothing but keep the kernel stamping arrivals.
///
/// The kernel begins to stamp some time after the first socket asks for it; the first packets
/// of the first few connections would have no stamp. Where it refuses, this is said, once.
pub(super) fn keep_stamping() -> io::Result<OwnedFd> {
    let raw = Raw::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    if let Err(error) = stamp_arrivals(raw.as_fd()) {
        log::warn!(
            "the kernel does not stamp what arrives ({error}); we do, and latencies are upper bounds"
        );
    }
    Ok(raw.into())
}

/// Asks the kernel for a route and a source address, and for no TCP port.
fn unbound(to: SocketAddr) -> io::Result<()> {
    let raw = Raw::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    raw.connect(&SockAddr::from(to))
}

/// What `EADDRNOTAVAIL` of a connect means, by what a UDP socket without a port gets for the same
/// address: no TCP port is left, unless our machine has no source address for it either. Then no later
/// try helps, as without a route.
fn without_address(unbound: io::Result<()>) -> Errno {
    let errno = unbound.err().and_then(|error| error.raw_os_error());
    match errno {
        Some(libc::EADDRNOTAVAIL | libc::ENETUNREACH | libc::EAFNOSUPPORT) => Errno::NETUNREACH,
        _ => Errno::ADDRNOTAVAIL,
    }
}

/// What an I/O error on a socket means.
pub(super) fn net_error(error: &io::Error) -> NetError {
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

/// Asks for receive stamps. Where the kernel has none, we stamp, as [`keep_stamping`] has said.
fn stamp(socket: BorrowedFd<'_>) {
    let _ = stamp_arrivals(socket);
}

fn stamp_arrivals(socket: BorrowedFd<'_>) -> io::Result<()> {
    // A departure's stamp, where one is asked for, is to come without what departed.
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

/// `recvmsg` with the stamp that came along, if one did.
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
    // to `control`, aligned for and as long as it says.
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
    // SAFETY: `recvmsg` has written as much of `control` as it says.
    let control = unsafe {
        std::slice::from_raw_parts(control.as_ptr().cast::<u8>(), header.msg_controllen as _)
    };
    Ok((received, arrival_stamp(control)))
}

/// Repeats a system call that sends if it was interrupted.
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

/// `sendmsg` that asks for a stamp of the moment at which the packet with the last of the bytes is
/// handed to its device. Mostly that is before the call returns.
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

/// The software's stamp among control messages, if they begin with it.
pub(super) fn arrival_stamp(control: &[u8]) -> Option<Timespec> {
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
            // The first of three stamps is the software one.
            at.add(before).cast::<libc::timespec>().read_unaligned(),
        )
    };
    let ours = message.cmsg_level == libc::SOL_SOCKET && message.cmsg_type == libc::SO_TIMESTAMPING;
    // A kernel that has no stamp for these bytes writes zeroes.
    (ours && stamp.tv_sec != 0).then_some(Timespec {
        tv_sec: stamp.tv_sec,
        tv_nsec: stamp.tv_nsec,
    })
}

/// Room for one control message of three stamps, aligned as its header must be.
#[repr(C, align(8))]
struct Control([u8; 96]);

/// Where the kernel's `tcp_info` has `tcpi_data_segs_in`, in words. Since Linux 4.6.
const DATA_SEGS_IN: usize = 38;
/// The same of `tcpi_rcv_ooopack`. Since Linux 5.4.
const OUT_OF_ORDER: usize = 56;

/// States of a TCP socket as `tcp_info` has them.
const TCP_SYN_SENT: u8 = 2;
const TCP_CLOSE: u8 = 7;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_connect_without_a_source_address_lacks_a_route_and_no_port() {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        assert_eq!(without_address(Ok(())), Errno::ADDRNOTAVAIL);
        let check = |errno, expected| assert_eq!(without_address(failed(errno)), expected);
        check(libc::EADDRNOTAVAIL, Errno::NETUNREACH);
        check(libc::ENETUNREACH, Errno::NETUNREACH);
        // It may be UDP's ports or our files that are used up.
        check(libc::EAGAIN, Errno::ADDRNOTAVAIL);
        check(libc::EMFILE, Errno::ADDRNOTAVAIL);
        let here = SocketAddr::from(([127, 0, 0, 1], 9));
        unbound(here).expect("our own machine is always reached");
    }

    #[test]
    fn from_the_second_send_on_nothing_is_held_back_behind_what_is_unacknowledged() {
        let (mut socket, mut peer) = Socket::connected();
        let told = [(); 3].map(|()| {
            socket.prepare_send();
            let told = socket.raw.tcp_nodelay().expect("it is a TCP socket");
            assert_eq!(socket.send(b"?"), Ok(Some(1)));
            // What it says need not acknowledge all that we sent.
            peer.read_exact(&mut [0]).expect("it was sent");
            peer.write_all(b"!").expect("we are there");
            told
        });
        // A first send has nothing to wait for, and most connections have no other.
        assert_eq!(told, [false, true, true]);
    }
}
