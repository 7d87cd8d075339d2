//! What lies between the wire and HTTP: nothing, or TLS.

use super::failure::Failure;
use super::tls::{Certificates, TlsInfo, TlsSession};

/// The layer between the wire and HTTP.
#[derive(Debug)]
pub(super) enum Transport {
    /// The wire carries HTTP itself.
    Plain,
    /// TLS, and what it has decrypted but nobody has read yet.
    Tls(Box<Secured>),
}

#[derive(Debug)]
pub(super) struct Secured {
    session: TlsSession,
    plain: Vec<u8>,
    read: usize,
    broken: Option<Failure>,
}

impl Transport {
    pub(super) fn new(tls: Option<TlsSession>) -> Self {
        match tls {
            None => Transport::Plain,
            Some(session) => Transport::Tls(Box::new(Secured {
                session,
                plain: Vec::new(),
                read: 0,
                broken: None,
            })),
        }
    }

    /// TLS takes all that came from the wire; without it the bytes stay where they are.
    pub(super) fn take_in(&mut self, wire: &mut &[u8]) {
        if let Transport::Tls(tls) = self {
            let wire = std::mem::take(wire);
            if tls.broken.is_none() {
                tls.broken = tls.session.read(wire, &mut tls.plain).err();
            }
        }
    }

    /// The bytes that HTTP has not read yet.
    pub(super) fn unread<'a>(&'a self, wire: &'a [u8]) -> &'a [u8] {
        match self {
            Transport::Plain => wire,
            Transport::Tls(tls) => &tls.plain[tls.read..],
        }
    }

    /// HTTP has read so many bytes.
    pub(super) fn consume(&mut self, wire: &mut &[u8], bytes: usize) {
        match self {
            Transport::Plain => *wire = &wire[bytes..],
            Transport::Tls(tls) => {
                tls.read += bytes;
                if tls.read == tls.plain.len() {
                    // Given back at once: most connections wait most of the time.
                    tls.plain = Vec::new();
                    tls.read = 0;
                }
            }
        }
    }

    /// Sends bytes of HTTP's: to `out`, or to where [`Transport::take_output`] finds them.
    pub(super) fn send(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Transport::Plain => out.extend_from_slice(bytes),
            Transport::Tls(tls) => tls.session.write(bytes),
        }
    }

    /// Appends what the layer itself has to say to `out`.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) {
        if let Transport::Tls(tls) = self {
            tls.session.take_output(out);
        }
    }

    /// What broke after the bytes that are unread. Told once.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        match self {
            Transport::Plain => None,
            Transport::Tls(tls) => tls.broken.take(),
        }
    }

    /// Whether something broke and has not been told.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.broken.is_some())
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.session.is_handshaking())
    }

    /// Whether the peer has said, within the layer, that nothing follows (close_notify).
    pub(super) fn peer_closed(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.session.peer_closed())
    }

    /// Whether the wire's end, if it comes now, is one that nobody but the peer can have made.
    pub(super) fn may_end(&self) -> bool {
        matches!(self, Transport::Plain) || self.peer_closed()
    }

    /// Tells the peer that nothing follows.
    pub(super) fn close(&mut self) {
        if let Transport::Tls(tls) = self {
            tls.session.close();
        }
    }

    pub(super) fn info(&self) -> Option<TlsInfo> {
        match self {
            Transport::Plain => None,
            Transport::Tls(tls) => tls.session.info(),
        }
    }

    pub(super) fn certificates(&self) -> Certificates {
        match self {
            Transport::Plain => Certificates::default(),
            Transport::Tls(tls) => tls.session.certificates(),
        }
    }

    /// Bytes of memory held by what is unread.
    pub(super) fn memory(&self) -> usize {
        match self {
            Transport::Plain => 0,
            Transport::Tls(tls) => tls.plain.capacity(),
        }
    }
}
