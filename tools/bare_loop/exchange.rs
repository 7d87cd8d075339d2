//! One request and its reply on a connection, plain or over TLS.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::socket;
use crate::tls::{Config, Session};

/// A connection and its current request.
pub struct Exchange {
    fd: OwnedFd,
    address: u32,
    tls: Option<Session>,
    /// Bytes received of the current reply.
    received: usize,
    sent: bool,
}

/// Result of one read.
pub enum Outcome {
    /// Nothing is left to read; an edge will follow.
    Empty,
    /// There may be more to read.
    More,
    /// The reply is complete.
    Complete,
}

impl Exchange {
    /// Starts to connect.
    pub fn new(address: u32, port: u16, tls: Option<&Config>) -> io::Result<Self> {
        Ok(Exchange {
            fd: socket::connect(address, port)?,
            address,
            tls: tls
                .map(|config| Session::new(config, address))
                .transpose()?,
            received: 0,
            sent: false,
        })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Sends the first request, once the connection is established.
    pub fn begin(&mut self, request: &[u8]) -> io::Result<()> {
        if self.sent {
            return Ok(());
        }
        self.sent = true;
        self.send(request)
    }

    /// Sends one more request on the same connection.
    pub fn again(&mut self, request: &[u8]) -> io::Result<()> {
        self.received = 0;
        self.send(request)
    }

    /// Reads once; `reply` is the length of a complete reply, set by the first one.
    pub fn receive(&mut self, buffer: &mut [u8], reply: &mut Option<usize>) -> io::Result<Outcome> {
        let length = match socket::receive(&self.fd, buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Outcome::Empty),
            Err(error) => return Err(error),
        };
        if length == 0 {
            return Err(Error::other("a connection ended before its reply did"));
        }
        let bytes = &buffer[..length];
        let plain = match &mut self.tls {
            None => bytes,
            Some(session) => {
                session.read(bytes)?;
                if let Some(out) = session.output()? {
                    socket::send(&self.fd, out, self.address)?;
                }
                session.plain()
            }
        };
        // A part of the handshake has no plaintext.
        if !plain.is_empty() {
            self.received += plain.len();
            if self.received >= *reply.get_or_insert_with(|| reply_length(plain)) {
                return Ok(Outcome::Complete);
            }
        }
        // After a read that did not fill the buffer, more bytes cause another edge.
        Ok(if length < buffer.len() {
            Outcome::Empty
        } else {
            Outcome::More
        })
    }

    /// Whether the TLS session was resumed.
    pub fn resumed(&self) -> bool {
        self.tls.as_ref().is_some_and(Session::resumed)
    }

    /// Sends close_notify on TLS.
    pub fn close(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            session.close();
            if let Some(bytes) = session.output()? {
                socket::send(&self.fd, bytes, self.address)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let bytes = match &mut self.tls {
            None => request,
            Some(session) => {
                session.write(request)?;
                session.output()?.unwrap_or_default()
            }
        };
        socket::send(&self.fd, bytes, self.address)
    }
}

/// Length of head and body of the first reply, by its Content-Length.
fn reply_length(first: &[u8]) -> usize {
    let text = String::from_utf8_lossy(first);
    let head = text
        .find("\r\n\r\n")
        .expect("a small head arrives in one read")
        + 4;
    let body = text[..head]
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .expect("the reply declares its length");
    head + body.trim().parse::<usize>().expect("a length is a number")
}
