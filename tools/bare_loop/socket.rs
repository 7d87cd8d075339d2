//! Thin wrappers around system calls on sockets.

use std::io::{self, Error};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Starts a connection with cubic and a linger of 0, so that no TIME_WAIT remains after it is closed.
pub fn connect(address: u32, port: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor and touches no memory.
    let fd = owned(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    set(&fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)?;
    set(&fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"cubic")?;
    // SAFETY: all zeroes is a valid address, whose fields are then filled.
    let mut to: libc::sockaddr_in = unsafe { mem::zeroed() };
    to.sin_family = libc::AF_INET as libc::sa_family_t;
    to.sin_port = port.to_be();
    to.sin_addr.s_addr = ip_of(address).to_be();
    // SAFETY: the address outlives the call and its length is given.
    let result = unsafe {
        libc::connect(
            fd.as_raw_fd(),
            (&raw const to).cast(),
            mem::size_of_val(&to) as libc::socklen_t,
        )
    };
    if result < 0 && Error::last_os_error().raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(Error::last_os_error());
    }
    Ok(fd)
}

/// 127.0.1.1 and on, 250 addresses in each block of 256.
pub fn ip_of(address: u32) -> u32 {
    0x7f00_0101 + address / 250 * 256 + address % 250
}

/// Sends all bytes in one call; the send buffer has room.
pub fn send(fd: &OwnedFd, bytes: &[u8], address: u32) -> io::Result<()> {
    // SAFETY: reads as many bytes as the slice has.
    let sent = unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    if sent != bytes.len() as isize {
        return Err(Error::other(format!(
            "address number {address} took {sent} bytes of {}: {}",
            bytes.len(),
            Error::last_os_error()
        )));
    }
    Ok(())
}

/// Reads once, up to the size of the buffer.
pub fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most as many bytes as the slice has.
    let received =
        unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(received).map_err(|_| Error::last_os_error())
}

fn set<T>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value outlives the call and its length is given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    checked(result).map(drop)
}

pub fn owned(fd: i32) -> io::Result<OwnedFd> {
    let fd = checked(fd)?;
    // SAFETY: the kernel just made it and no other owner has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(Error::last_os_error())
    } else {
        Ok(result)
    }
}
