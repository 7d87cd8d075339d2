//! A segment that overtakes the one before it: on a loopback device it has to be forged.

#![expect(unsafe_code, reason = "packets are forged through libc")]

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::kernel::{Kernel, KernelBackEnd, kernels};
use super::{Seen, Watch, token};
use crate::base::loud;
use crate::io::Clock;

fn a_missing_segment_does_not_take_the_stamp_of_the_one_that_overtook_it<I: KernelBackEnd>() {
    let held_back = Duration::from_millis(30);
    for busy in [false, true] {
        let mut watch = Watch::<Kernel<I>>::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("an address");
        watch.connect(token(0), to);
        let (mut peer, _) = listener.accept().expect("we connected");
        peer.set_nodelay(true).expect("it is a TCP socket");
        watch.io().send(token(0), b"?", true);
        watch.io().submit();
        assert!(matches!(watch.next(), Seen::Sent(..)));
        if let Err(error) = overtake(&peer, b"B") {
            loud::skip(format_args!("segments cannot be forged here ({error})"));
            return;
        }
        // The kernel has it, and there is nothing to be read.
        let seen = if busy {
            thread::sleep(held_back);
            Vec::new()
        } else {
            watch.during(held_back)
        };
        assert!(seen.is_empty(), "{seen:?}");
        let missing = watch.io().now();
        peer.write_all(b"A").expect("we are there");
        let Seen::Received(_, bytes, stamp) = watch.next() else {
            panic!("both can be read now");
        };
        assert_eq!(bytes, b"AB");
        assert!(stamp.at >= missing, "it came later than {stamp:?}");
        assert_eq!((stamp.clock, stamp.is_bound()), (Clock::User, true));
    }
}

/// Sends bytes as if one more had been sent before them, and got lost.
fn overtake(from: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let ends = (from.local_addr()?, from.peer_addr()?);
    let (SocketAddr::V4(source), SocketAddr::V4(target)) = ends else {
        unreachable!("it listens on an IPv4 address");
    };
    let sequence = next_byte(from, SEND_QUEUE)?.wrapping_add(1);
    let acknowledged = next_byte(from, RECEIVE_QUEUE)?;
    let mut segment = Vec::new();
    segment.extend(source.port().to_be_bytes());
    segment.extend(target.port().to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledged.to_be_bytes());
    // Five words of header, ACK and PSH, a window, and room for the checksum.
    segment.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend(bytes);
    let checksum = checksum(*source.ip(), *target.ip(), &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
    raw.bind(&SockAddr::from(SocketAddrV4::new(*source.ip(), 0)))?;
    raw.send_to(
        &segment,
        &SockAddr::from(SocketAddrV4::new(*target.ip(), 0)),
    )?;
    Ok(())
}

/// The number of the next byte that a connection sends or receives.
fn next_byte(of: &TcpStream, queue: libc::c_int) -> io::Result<u32> {
    let set = |option, value: libc::c_int| {
        // SAFETY: the pointer and length are those of a live `c_int`, which is what these take.
        let result = unsafe {
            libc::setsockopt(
                of.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    set(libc::TCP_REPAIR, 1)?;
    set(libc::TCP_REPAIR_QUEUE, queue)?;
    let mut number = 0_u32;
    let mut length = size_of_val(&number) as libc::socklen_t;
    // SAFETY: `number` has room for `length` bytes, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            of.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUEUE_SEQ,
            (&raw mut number).cast(),
            &raw mut length,
        )
    };
    let number_read = match result {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    };
    set(libc::TCP_REPAIR, REPAIR_OFF)?;
    number_read
}

/// RFC 9293, 3.1: over the addresses, the protocol, the length and the segment.
fn checksum(source: Ipv4Addr, target: Ipv4Addr, segment: &[u8]) -> u16 {
    let mut whole = [source.octets(), target.octets()].concat();
    whole.extend([0, libc::IPPROTO_TCP as u8]);
    whole.extend((segment.len() as u16).to_be_bytes());
    whole.extend(segment);
    let words = whole.chunks(2).map(|two| {
        let low = two.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([two[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// TCP_RECV_QUEUE and TCP_SEND_QUEUE.
const RECEIVE_QUEUE: libc::c_int = 1;
const SEND_QUEUE: libc::c_int = 2;

/// TCP_REPAIR_OFF_NO_WP: the connection goes on, and sends no probe.
const REPAIR_OFF: libc::c_int = -1;

kernels! {
    a_missing_segment_does_not_take_the_stamp_of_the_one_that_overtook_it
}
