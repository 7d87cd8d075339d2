//! Receiving with the kernel's word on when the bytes arrived, so that a server that is late
//! to look does not misjudge the gap between two requests.

#![expect(unsafe_code, reason = "receive stamps come through libc alone")]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Asks for receive stamps on a socket; connections accepted by a listener inherit the wish.
///
/// While one socket wishes for them the kernel stamps everything that arrives, so the first
/// bytes of a connection that has not been accepted yet have a stamp too. It takes the kernel
/// some milliseconds to begin: see [`Stamping`].
pub fn ask_for_stamps(socket: impl AsFd) -> io::Result<()> {
    let wish = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the descriptor is open, and the option's value is the `u32` pointed to.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const wish).cast(),
            mem::size_of_val(&wish) as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps the kernel stamping all arrivals until it is dropped.
#[derive(Debug)]
pub struct Stamping {
    _socket: UdpSocket,
}

impl Stamping {
    /// Asks for stamps, and returns when the kernel has begun: when one of the datagrams that it sends
    /// to itself is stamped.
    ///
    /// # Errors
    /// There are no sockets, or no stamps after some seconds.
    pub fn begin() -> io::Result<Stamping> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        ask_for_stamps(&socket)?;
        socket.connect(socket.local_addr()?)?;
        for _ in 0..DATAGRAMS_MAX {
            socket.send(b"?")?;
            sleep(DATAGRAM_GAP);
            if let Ok((_, Some(_))) = receive_stamped(&socket, &mut [0; 1]) {
                return Ok(Stamping { _socket: socket });
            }
        }
        Err(io::Error::other("the kernel stamps no arrivals"))
    }
}

/// Reads what has arrived: how many bytes, and when the last of them did, on [`Clock`]'s scale.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    clock: &Clock,
) -> io::Result<(usize, Duration)> {
    let (received, stamp) = receive_stamped(socket, buffer)?;
    Ok((received, clock.arrival(stamp)))
}

/// Reads what has arrived: how many bytes, and the stamp of the last of them, as wall time. The end of
/// a stream has none, nor has now and then the first packet of a connection.
pub fn receive_stamped(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<Duration>)> {
    let mut control = Control([0; 128]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all of `msghdr` may be zero.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the message points to live memory of the lengths it gives.
    let received = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    Ok((received, stamp(&message)))
}

/// The software stamp among a message's control data, as wall time.
fn stamp(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel filled the control data of `message`, which is alive and aligned; the
    // macros stay inside the length that it set.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let kind = ((*header).cmsg_level, (*header).cmsg_type);
            if kind == (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) {
                let software = libc::CMSG_DATA(header)
                    .cast::<libc::timespec>()
                    .read_unaligned();
                let stamp = Duration::new(software.tv_sec as u64, software.tv_nsec as u32);
                return (!stamp.is_zero()).then_some(stamp);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    None
}

/// Room for control data, aligned as its headers are.
#[repr(align(8))]
struct Control([u8; 128]);

/// One reading of two clocks: the steady one, which all times here are based on, and the wall
/// clock, which the kernel stamps with. Taken anew each turn.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The steady clock's time.
    pub now: Duration,
    wall: Duration,
}

impl Clock {
    /// Reads both clocks. The steady one is read on either side of the other, and again if the
    /// thread lost the processor in between: the pair would be off by as much.
    pub fn read() -> Clock {
        let mut best = None;
        for _ in 0..READINGS {
            let before = span(clock_gettime(ClockId::Monotonic));
            let wall = span(clock_gettime(ClockId::Realtime));
            let now = span(clock_gettime(ClockId::Monotonic));
            let apart = now.saturating_sub(before);
            if best.is_none_or(|(least, _)| apart < least) {
                best = Some((apart, Clock { now, wall }));
            }
            if apart < APART_MAX {
                break;
            }
        }
        let (_, clock) = best.expect("at least one reading was taken");
        clock
    }

    /// The stamp on the steady clock. Where there is none, or one so far from the reading that
    /// the wall clock must have been set in between, the reading itself.
    fn arrival(&self, stamp: Option<Duration>) -> Duration {
        let Some(stamp) = stamp.filter(|stamp| stamp.abs_diff(self.wall) < DISTANCE_MAX) else {
            return self.now;
        };
        (self.now + stamp).saturating_sub(self.wall)
    }
}

fn span(time: Timespec) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Datagrams sent to see whether the kernel has begun to stamp; it takes a few.
const DATAGRAMS_MAX: u32 = 5_000;
const DATAGRAM_GAP: Duration = Duration::from_millis(1);
/// Bound for the error of a pair: three readings of a clock take a tenth of a microsecond.
const APART_MAX: Duration = Duration::from_micros(2);
/// Tries before the best pair is taken, if each is interrupted.
const READINGS: u32 = 5;
/// No turn of the server is this late or this long.
const DISTANCE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn bytes_are_stamped_when_they_arrive_not_when_they_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        ask_for_stamps(&listener).expect("stamps");
        let _stamping = Stamping::begin().expect("stamps");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("connected");
        let before = Clock::read().now;
        client.write_all(b"hello").expect("written");
        sleep(Duration::from_millis(50));
        let (server, _) = listener.accept().expect("accepted");
        let mut buffer = [0; 16];
        let clock = Clock::read();
        let (count, arrival) = receive(&server, &mut buffer, &clock).expect("received");
        assert_eq!(&buffer[..count], b"hello");
        let early = before.saturating_sub(arrival);
        assert!(
            early < Duration::from_millis(1),
            "{early:?} before it was sent"
        );
        let waited = clock.now.saturating_sub(arrival);
        assert!(waited > Duration::from_millis(40), "read {waited:?} later");
        let none = receive(&server, &mut buffer, &clock);
        assert_eq!(none.expect_err("empty").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_stamp_that_cannot_be_right_is_replaced_by_the_clock() {
        let clock = Clock {
            now: Duration::from_secs(100),
            wall: Duration::from_secs(5000),
        };
        let check = |stamp, expected| {
            let arrival = clock.arrival(stamp);
            assert_eq!(arrival, Duration::from_secs(expected));
        };
        check(Some(Duration::from_secs(4999)), 99);
        check(Some(Duration::from_secs(5002)), 102);
        check(Some(Duration::from_secs(6000)), 100);
        check(Some(Duration::from_secs(4000)), 100);
        check(None, 100);
    }
}
