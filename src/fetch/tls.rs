//! TLS over bytes: trust, names, session resumption, and stable codes for certificate failures.
//!
//! The only file that uses rustls. Nothing here touches a socket or a clock: wire bytes go in,
//! plain bytes come out, and the time is the one last set with [`TlsConfig::set_now`]. This file
//! has what all connections of a crawl share; `session.rs` has the part of one connection.

mod session;
mod sessions;
mod certificates;
mod refused;
mod failure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    WebPkiServerVerifier,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, CipherSuite, ClientConfig, ClientConnection,
    DigitallySignedStruct, Error, HandshakeKind, NamedGroup, PeerMisbehaved, ProtocolVersion,
    RootCertStore, SignatureScheme,
};

pub use self::certificates::Certificates;
use self::refused::{KeepRejected, RejectedChain};
pub use self::session::{TlsInfo, TlsSession, TlsVersion};
use self::sessions::Sessions;
use crate::base::sentence::debug_as_sentence;
use crate::base::time::{Instant, Wall};

/// The trusted roots, and the time at the start of the crawl.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// `--ca-file`: roots trusted in addition to the built-in ones.
    pub ca_file: Option<CaFile>,
    /// `--insecure`: certificates are not verified.
    pub insecure: bool,
    /// Wall-clock time at [`Instant::START`], used to verify certificates.
    pub wall_at_start: Wall,
    /// `TLS_SESSIONS_MEMORY`: about so many bytes of sessions are kept for resumption, which halves the cost of a
    /// handshake: 4 kB each, two of most servers. They are evicted after a day.
    pub sessions_memory: u64,
    /// A server's certificates are requested anew by a full handshake once the last ones are older than this (half of it
    /// for some servers, so that not all are due at once), or once the first of them has expired. `None`: sessions are
    /// resumed as long as the server accepts them, and certificates are verified again only when it does not.
    pub chain_age_max: Option<Duration>,
}

impl TlsSettings {
    /// The built-in roots, with verification.
    pub fn new(wall_at_start: Wall) -> Self {
        TlsSettings {
            ca_file: None,
            insecure: false,
            wall_at_start,
            sessions_memory: 512 << 20,
            chain_age_max: None,
        }
    }
}

/// A PEM file with certificates to trust, already read by the caller.
#[derive(Clone, Debug)]
pub struct CaFile {
    /// Its name for error messages.
    pub name: String,
    /// Its contents.
    pub pem: Vec<u8>,
}

/// Why TLS cannot be set up; a fault of this machine, not of the web.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// Not a PEM file, or a broken one.
    #[error("CA file {name}: {reason}")]
    CaFileUnreadable {
        /// The file.
        name: String,
        /// The fault.
        reason: String,
    },
    /// A PEM file without a certificate.
    #[error("CA file {name} holds no certificate (expected -----BEGIN CERTIFICATE-----)")]
    CaFileEmpty {
        /// The file.
        name: String,
    },
    /// A certificate that cannot be used as a root.
    #[error("CA file {name}, certificate {number}: {reason}")]
    CaFileCertificate {
        /// The file.
        name: String,
        /// Number of the certificate in the file, from 1.
        number: usize,
        /// The fault.
        reason: String,
    },
    /// The cryptographic provider rejected its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Provider(String),
}

debug_as_sentence!(TlsConfigError);

impl TlsConfigError {
    /// Stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            TlsConfigError::CaFileUnreadable { .. } => "ca_file.unreadable",
            TlsConfigError::CaFileEmpty { .. } => "ca_file.empty",
            TlsConfigError::CaFileCertificate { .. } => "ca_file.certificate",
            TlsConfigError::Provider(_) => "tls.provider",
        }
    }

    /// Returns whether a retry may succeed: never.
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The TLS configuration shared by all sessions of a crawl. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    client: Arc<ClientConfig>,
    sessions: Arc<Sessions>,
    refused: Arc<RejectedChain>,
    time: Arc<CrawlTime>,
    wall_at_start: Wall,
    verified: bool,
}

impl TlsConfig {
    /// Reads the roots and sets what every handshake offers.
    pub fn new(settings: &TlsSettings) -> Result<Self, TlsConfigError> {
        let time = Arc::new(CrawlTime(AtomicU64::new(settings.wall_at_start.0)));
        let provider = Arc::new(provider());
        let builder = ClientConfig::builder_with_details(provider.clone(), time.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsConfigError::Provider(error.to_string()))?;
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(file) = &settings.ca_file {
            add_roots(&mut roots, file)?;
        }
        let inner: Arc<dyn ServerCertVerifier> = if settings.insecure {
            Arc::new(NoVerification(provider))
        } else {
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| TlsConfigError::Provider(error.to_string()))?
        };
        let refused = Arc::new(RejectedChain::default());
        let verifier = KeepRejected {
            inner,
            refused: refused.clone(),
        };
        let mut client = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        // Some servers abort the handshake if another protocol is offered.
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let sessions = Arc::new(Sessions::new(
            settings.sessions_memory,
            settings.chain_age_max,
            time.clone(),
        ));
        client.resumption = Resumption::store(sessions.clone());
        Ok(TlsConfig {
            client: Arc::new(client),
            sessions,
            refused,
            time,
            wall_at_start: settings.wall_at_start,
            verified: !settings.insecure,
        })
    }

    /// Sets the time for all sessions. Call it once per turn.
    pub fn set_now(&self, now: Instant) {
        let wall = self.wall_at_start.at(now);
        self.time.0.store(wall.0, Ordering::Relaxed);
        self.sessions.evict_old();
    }
}

/// aws-lc-rs, with the one key share that nearly every server accepts at once.
///
/// AES-128 with SHA-256 is preferred, as in browsers: processors have instructions for that hash
/// and mostly none for SHA-384, and hashing is a large part of a resumed handshake.
fn provider() -> CryptoProvider {
    use aws_lc_rs::kx_group::{SECP256R1, SECP384R1, X25519, X25519MLKEM768};
    let mut provider = CryptoProvider {
        kx_groups: vec![X25519, SECP256R1, SECP384R1, X25519MLKEM768],
        ..aws_lc_rs::default_provider()
    };
    provider
        .cipher_suites
        .sort_by_key(|offered| !is_aes_128(offered.suite()));
    provider
}

fn is_aes_128(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

fn add_roots(roots: &mut RootCertStore, file: &CaFile) -> Result<(), TlsConfigError> {
    let name = || file.name.clone();
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&file.pem) {
        let certificate = certificate.map_err(|error| TlsConfigError::CaFileUnreadable {
            name: name(),
            reason: error.to_string(),
        })?;
        found += 1;
        roots
            .add(certificate)
            .map_err(|error| TlsConfigError::CaFileCertificate {
                name: name(),
                number: found,
                reason: error.to_string(),
            })?;
    }
    match found {
        0 => Err(TlsConfigError::CaFileEmpty { name: name() }),
        _ => Ok(()),
    }
}

/// The crawl's wall-clock time in nanoseconds, for certificate verification.
#[derive(Debug)]
struct CrawlTime(AtomicU64);

impl TimeProvider for CrawlTime {
    fn current_time(&self) -> Option<UnixTime> {
        let wall = Duration::from_nanos(self.0.load(Ordering::Relaxed));
        Some(UnixTime::since_unix_epoch(wall))
    }
}

/// `--insecure`: accepts any certificate and any signature.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! An in-memory server for tests.

    use std::io::{Read, Write};

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConnection;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    pub(crate) use rustls::version::{TLS12, TLS13};
    pub(crate) use rustls::{ServerConfig, SupportedProtocolVersion};

    use super::*;

    /// 2026-11-21, the time at which these tests run.
    pub(crate) const WALL: Wall = Wall(1_795_219_200_000_000_000);

    /// A certificate authority whose certificate goes into a `--ca-file`.
    pub(crate) struct Authority {
        issuer: CertifiedIssuer<'static, KeyPair>,
    }

    impl Authority {
        pub(crate) fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let issuer = CertifiedIssuer::self_signed(params, key).expect("an issuer");
            Authority { issuer }
        }

        pub(crate) fn ca_file(&self) -> CaFile {
            CaFile {
                name: "roots.pem".to_owned(),
                pem: self.issuer.pem().into_bytes(),
            }
        }

        /// Settings that trust it.
        pub(crate) fn settings(&self) -> TlsSettings {
            TlsSettings {
                ca_file: Some(self.ca_file()),
                ..TlsSettings::new(WALL)
            }
        }

        /// A server for `name`, valid from the first year up to, not including, the second.
        pub(crate) fn server(
            &self,
            name: &str,
            years: (i32, i32),
            versions: &[&'static SupportedProtocolVersion],
        ) -> Arc<ServerConfig> {
            let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
            params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
            params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
            server_config(certificate.der().clone(), &key, versions)
        }

        /// A server that should be trusted.
        pub(crate) fn good_server(&self, name: &str) -> Arc<ServerConfig> {
            self.server(name, (2020, 2040), &[&TLS13])
        }
    }

    pub(crate) fn server_config(
        certificate: CertificateDer<'static>,
        key: &KeyPair,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(versions)
            .expect("versions of the provider's")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate with its key");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// The peer of a [`TlsSession`].
    pub(crate) struct Server(ServerConnection);

    impl Server {
        pub(crate) fn new(config: &Arc<ServerConfig>) -> Self {
            Server(ServerConnection::new(config.clone()).expect("a server"))
        }

        /// Receives bytes from the client; returns bytes for it and the received plaintext.
        pub(crate) fn exchange(&mut self, mut wire: &[u8]) -> (Vec<u8>, Vec<u8>) {
            let mut received = Vec::new();
            while !wire.is_empty() && self.0.read_tls(&mut wire).expect("room") > 0 {
                let outcome = self.0.process_new_packets();
                let _ = self.0.reader().read_to_end(&mut received);
                if outcome.is_err() {
                    break;
                }
            }
            (self.output(), received)
        }

        /// Bytes for the client that carry `plain`.
        pub(crate) fn respond(&mut self, plain: &[u8]) -> Vec<u8> {
            self.0.writer().write_all(plain).expect("room");
            self.output()
        }

        /// Bytes for the client with close_notify.
        pub(crate) fn close(&mut self) -> Vec<u8> {
            self.0.send_close_notify();
            self.output()
        }

        pub(crate) fn sni(&self) -> Option<&str> {
            self.0.server_name()
        }

        pub(crate) fn alpn(&self) -> Option<&[u8]> {
            self.0.alpn_protocol()
        }

        fn output(&mut self) -> Vec<u8> {
            let mut out = Vec::new();
            while self.0.wants_write() {
                self.0.write_tls(&mut out).expect("writing to a Vec");
            }
            out
        }
    }
}

#[cfg(test)]
mod tests;
