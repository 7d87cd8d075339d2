//! TLS by rustls with few changes of its defaults.

use std::io::{self, Error, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};

use crate::socket;

/// Shared by all sessions: trusted roots, and the tickets of each address.
pub type Config = Arc<ClientConfig>;

/// Trusts the certificates of a PEM file; keeps as many sessions as a crawl does.
pub fn config(ca_file: &Path) -> io::Result<Config> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca_file).map_err(Error::other)? {
        let certificate = certificate.map_err(Error::other)?;
        roots.add(certificate).map_err(Error::other)?;
    }
    let provider = CryptoProvider {
        // The group that servers accept without a retry, as in a crawl.
        kx_groups: vec![kx_group::X25519],
        // The cheapest suite, which a crawl prefers too.
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..aws_lc_rs::default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(Arc::new(config))
}

/// TLS on one connection.
pub struct Session {
    connection: ClientConnection,
    out: Vec<u8>,
    plain: Vec<u8>,
}

impl Session {
    /// Starts a handshake with one of the server's addresses.
    pub fn new(config: &Config, address: u32) -> io::Result<Self> {
        let ip = Ipv4Addr::from_bits(socket::ip_of(address));
        let name = ServerName::from(IpAddr::from(ip));
        Ok(Session {
            connection: ClientConnection::new(config.clone(), name).map_err(Error::other)?,
            out: Vec::new(),
            plain: Vec::new(),
        })
    }

    /// Queues a request, sent after the handshake.
    pub fn write(&mut self, request: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(request)
    }

    /// Decrypts received bytes into [`Session::plain`].
    pub fn read(&mut self, mut wire: &[u8]) -> io::Result<()> {
        self.plain.clear();
        while !wire.is_empty() && self.connection.read_tls(&mut wire)? > 0 {
            let state = self.connection.process_new_packets();
            let waiting = state.map_err(Error::other)?.plaintext_bytes_to_read();
            let held = self.plain.len();
            self.plain.resize(held + waiting, 0);
            self.connection
                .reader()
                .read_exact(&mut self.plain[held..])?;
        }
        Ok(())
    }

    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// Bytes to send, if any.
    pub fn output(&mut self) -> io::Result<Option<&[u8]>> {
        if !self.connection.wants_write() {
            return Ok(None);
        }
        self.out.clear();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.out)?;
        }
        Ok(Some(&self.out))
    }

    /// Queues close_notify, which RFC 8446 requires of the side that closes (section 6.1).
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    pub fn resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// Cached tickets: eight for each of 2048 hosts.
const SESSIONS: usize = 2048 * 8;
