//! The TLS session of one connection.

use std::cell::OnceCell;
use std::fmt;
use std::io::{BufRead, Write};
use std::sync::Arc;

use super::certificates::Certificates;
use super::failure::failure;
use super::refused::RejectedChain;
use super::sessions::Sessions;
use super::{CipherSuite, ClientConnection, HandshakeKind, ProtocolVersion, ServerName, TlsConfig};
use crate::fetch::failure::{Failure, FailureKind};
use crate::wire::certificate;

/// The TLS session of one connection: a handshake, then data in both directions.
pub struct TlsSession {
    connection: ClientConnection,
    name: ServerName<'static>,
    sessions: Arc<Sessions>,
    refused: Arc<RejectedChain>,
    verified: bool,
    peer_closed: bool,
    /// Copied once, for all exchanges of the connection.
    certificates: OnceCell<Certificates>,
}

impl TlsSession {
    /// Starts a handshake with `host`, a name or an address (IPv6 with or without brackets).
    ///
    /// A name is sent as SNI, an address is not; the certificate must be valid for either.
    pub fn new(config: &TlsConfig, host: &str) -> Result<Self, Failure> {
        let name = server_name(host).ok_or_else(|| {
            let detail = format!("{host:?} is not a name that a certificate can be valid for");
            Failure::new(FailureKind::Tls, "name", detail)
        })?;
        let mut connection = ClientConnection::new(config.client.clone(), name.clone())
            .map_err(|error| failure(&error))?;
        // The output is bounded by the requests, which the caller builds.
        connection.set_buffer_limit(None);
        Ok(TlsSession {
            connection,
            name,
            sessions: config.sessions.clone(),
            refused: config.refused.clone(),
            verified: config.verified,
            peer_closed: false,
            certificates: OnceCell::new(),
        })
    }

    /// Consumes all bytes from the wire, and appends the plaintext to `plain`.
    ///
    /// After a failure `plain` contains what was received correctly before it, and
    /// [`TlsSession::take_output`] returns the alert for the peer. There may be output in either
    /// case.
    pub fn read(&mut self, wire: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        let was_handshaking = self.is_handshaking();
        let read = self.read_all(wire, plain);
        let kind = self.connection.handshake_kind();
        if was_handshaking
            && !self.is_handshaking()
            && kind != Some(HandshakeKind::Resumed)
            && self.sessions.limits_chains()
        {
            let chain = self.certificates();
            let expires = chain.iter().filter_map(certificate::expires).min();
            self.sessions.note_chain(&self.name, expires);
        }
        read
    }

    fn read_all(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        while !wire.is_empty() {
            match self.connection.read_tls(&mut wire) {
                // Bytes after close_notify are ignored.
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    let detail = error.to_string();
                    return Err(Failure::new(FailureKind::Tls, "protocol", detail));
                }
            }
            let outcome = self.connection.process_new_packets();
            self.take_plain(plain);
            match outcome {
                Ok(state) => self.peer_closed = state.peer_has_closed(),
                Err(error) => {
                    if let Some(chain) = self.refused.take() {
                        self.certificates = OnceCell::from(chain);
                    }
                    return Err(failure(&error));
                }
            }
        }
        Ok(())
    }

    /// Queues bytes to be sent; during the handshake they wait for its end.
    pub fn write(&mut self, plain: &[u8]) {
        self.connection
            .writer()
            .write_all(plain)
            .expect("a TLS buffer without limit takes every byte");
    }

    /// Nothing more is queued for the server: the sessions that it gave are the first to be evicted.
    pub fn release_sessions(&self) {
        self.sessions.release(&self.name);
    }

    /// Queues close_notify, which shows the peer that nothing was cut.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Appends the bytes to send on the wire to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection
                .write_tls(out)
                .expect("writing to a Vec does not fail");
        }
    }

    /// Returns whether the handshake is in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns whether the peer sent close_notify: its data is complete.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The negotiated parameters; `None` before the end of the handshake.
    pub fn info(&self) -> Option<TlsInfo> {
        if self.is_handshaking() {
            return None;
        }
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => TlsVersion::Tls13,
            ProtocolVersion::TLSv1_2 => TlsVersion::Tls12,
            _ => return None,
        };
        Some(TlsInfo {
            version,
            cipher: iana_name(self.connection.negotiated_cipher_suite()?.suite()),
            resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
            verified: self.verified,
        })
    }

    /// The server's certificates; empty before the end of the handshake, unless it failed because
    /// of them.
    pub fn certificates(&self) -> Certificates {
        if self.is_handshaking() {
            return self.certificates.get().cloned().unwrap_or_default();
        }
        let copied = self.certificates.get_or_init(|| {
            let chain = self.connection.peer_certificates();
            chain.map(Certificates::of).unwrap_or_default()
        });
        copied.clone()
    }

    fn take_plain(&mut self, plain: &mut Vec<u8>) {
        let mut reader = self.connection.reader();
        // Ends with an empty chunk at close_notify and with WouldBlock otherwise; both are
        // expected.
        while let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let taken = chunk.len();
            plain.extend_from_slice(chunk);
            reader.consume(taken);
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("handshaking", &self.is_handshaking())
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

/// The negotiated TLS parameters; `tls` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite by its IANA name.
    pub cipher: &'static str,
    /// The session was resumed.
    pub resumed: bool,
    /// The certificate was verified (false under `--insecure`).
    pub verified: bool,
}

impl TlsInfo {
    /// A new session whose certificate was verified.
    pub fn new(version: TlsVersion, cipher: &'static str) -> Self {
        TlsInfo {
            version,
            cipher,
            resumed: false,
            verified: true,
        }
    }
}

/// The versions of TLS that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl TlsVersion {
    /// The name in result lines: `TLSv1.2` or `TLSv1.3`.
    pub const fn as_str(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "TLSv1.2",
            TlsVersion::Tls13 => "TLSv1.3",
        }
    }
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A host as in certificates: without the brackets of IPv6.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

/// The IANA name of a suite; rustls names the suites of TLS 1.3 differently.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
