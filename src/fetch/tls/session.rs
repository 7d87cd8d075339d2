//! One connection's TLS.

use std::cell::OnceCell;
use std::fmt;
use std::io::{BufRead, Write};
use std::sync::Arc;

use super::certificates::Certificates;
use super::failure::failure;
use super::refused::Refused;
use super::{CipherSuite, ClientConnection, HandshakeKind, ProtocolVersion, ServerName, TlsConfig};
use crate::fetch::failure::{Failure, FailureKind};

/// One connection's TLS: a handshake, then bytes both ways.
pub struct TlsSession {
    connection: ClientConnection,
    refused: Arc<Refused>,
    verified: bool,
    peer_closed: bool,
    /// Copied once, for all exchanges of the connection.
    certificates: OnceCell<Certificates>,
}

impl TlsSession {
    /// Begins a handshake with `host`, a name or an address (IPv6 with or without brackets).
    ///
    /// A name goes into SNI, an address does not; the certificate must be valid for either.
    pub fn new(config: &TlsConfig, host: &str) -> Result<Self, Failure> {
        let name = server_name(host).ok_or_else(|| {
            let detail = format!("{host:?} is no name that a certificate could be valid for");
            Failure::new(FailureKind::Tls, "name", detail)
        })?;
        let mut connection =
            ClientConnection::new(config.client.clone(), name).map_err(|error| failure(&error))?;
        // What waits to leave is bounded by the requests, which the caller builds.
        connection.set_buffer_limit(None);
        Ok(TlsSession {
            connection,
            refused: config.refused.clone(),
            verified: config.verified,
            peer_closed: false,
            certificates: OnceCell::new(),
        })
    }

    /// Takes bytes from the wire, all of them, and appends what they carried to `plain`.
    ///
    /// After a failure `plain` still holds what came in good order before it, and
    /// [`TlsSession::take_output`] the alert that tells the peer. Either way there may be output.
    pub fn read(&mut self, mut wire: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        while !wire.is_empty() {
            match self.connection.read_tls(&mut wire) {
                // Nothing counts after close_notify.
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

    /// Queues bytes to be sent; before the end of the handshake they wait for it.
    pub fn write(&mut self, plain: &[u8]) {
        self.connection
            .writer()
            .write_all(plain)
            .expect("a TLS buffer without limit takes every byte");
    }

    /// Queues close_notify, which tells the peer that nothing was cut off.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Appends what is to go out on the wire to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection
                .write_tls(out)
                .expect("writing to a Vec does not fail");
        }
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer said close_notify: its bytes ended where it meant them to.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// What was agreed on; `None` before the end of the handshake.
    pub fn info(&self) -> Option<TlsInfo> {
        if self.is_handshaking() {
            return None;
        }
        let version = match self.connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => "TLSv1.3",
            ProtocolVersion::TLSv1_2 => "TLSv1.2",
            _ => return None,
        };
        Some(TlsInfo {
            version,
            cipher: iana_name(self.connection.negotiated_cipher_suite()?.suite()),
            resumed: self.connection.handshake_kind() == Some(HandshakeKind::Resumed),
            verified: self.verified,
        })
    }

    /// What the server showed; nothing before the end of the handshake, or before it was refused for
    /// them.
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
        // Ends with an empty chunk at close_notify and with WouldBlock everywhere else: neither is
        // news here.
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

/// What TLS agreed on; `tls` of a result line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite by its IANA name.
    pub cipher: &'static str,
    /// The session was resumed.
    pub resumed: bool,
    /// The certificate was verified (false under `--insecure`).
    pub verified: bool,
}

/// A host as certificates know it: without the brackets of IPv6.
fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(bare.to_owned()).ok()
}

/// The name that IANA gives a suite; rustls marks the suites of TLS 1.3 in its own way.
fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("unknown"),
    }
}
