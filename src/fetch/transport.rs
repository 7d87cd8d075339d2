//! The layer between the wire and HTTP: none, or TLS.

use super::failure::Failure;
use super::tls::{Certificates, TlsInfo, TlsSession};

/// The layer between the wire and HTTP.
#[derive(Debug)]
pub(super) enum Transport {
    /// HTTP runs directly on the wire.
    Plain,
    /// TLS, with its decrypted bytes that were not read yet.
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

    /// Passes all bytes from the wire to TLS; without TLS they stay in `wire`.
    pub(super) fn decrypt(&mut self, wire: &mut &[u8]) {
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

    /// Marks this many bytes as read.
    pub(super) fn consume(&mut self, wire: &mut &[u8], bytes: usize) {
        match self {
            Transport::Plain => *wire = &wire[bytes..],
            Transport::Tls(tls) => {
                tls.read += bytes;
                if tls.read == tls.plain.len() {
                    // Freed at once, because most connections are idle most of the time.
                    tls.plain = Vec::new();
                    tls.read = 0;
                }
            }
        }
    }

    /// Sends bytes of HTTP: to `out`, or through TLS, whose output [`Transport::take_output`]
    /// returns.
    pub(super) fn send(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Transport::Plain => out.extend_from_slice(bytes),
            Transport::Tls(tls) => tls.session.write(bytes),
        }
    }

    /// Appends the layer's own output to `out`.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) {
        if let Transport::Tls(tls) = self {
            tls.session.take_output(out);
        }
    }

    /// Takes the failure that follows after the unread bytes. Returned once.
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        match self {
            Transport::Plain => None,
            Transport::Tls(tls) => tls.broken.take(),
        }
    }

    /// Returns whether there is a failure that was not taken yet.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.broken.is_some())
    }

    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.session.is_handshaking())
    }

    /// Returns whether the peer has ended its data within the layer (close_notify).
    pub(super) fn peer_closed(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.session.peer_closed())
    }

    /// Returns whether an end of the wire now can only come from the peer itself.
    pub(super) fn may_end(&self) -> bool {
        matches!(self, Transport::Plain) || self.peer_closed()
    }

    /// Nothing more is queued for the server: see [`TlsSession::release_sessions`].
    pub(super) fn release_sessions(&self) {
        if let Transport::Tls(tls) = self {
            tls.session.release_sessions();
        }
    }

    /// Sends close_notify, if there is TLS.
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

    /// Bytes of memory held by unread bytes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Transport::Plain => 0,
            Transport::Tls(tls) => tls.plain.capacity(),
        }
    }
}
